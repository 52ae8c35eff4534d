// A multiprocessor with wavefronts of 64 lanes: a block's threads run as coroutines, wavefronts in a random order;
// those that wait for lanes or for the block are taken up again when all others have come. A wait that never ends, and
// a lane that asks another which is not there, are errors.
#include "multiprocessor.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace {
constexpr int WAVEFRONT = 64;
constexpr size_t STACK = 256 << 10;

enum State { READY, AT_BARRIER, AT_LANES, DONE };

struct Thread {
    State state;
    char* stack;
    bool started;
#ifdef __x86_64__
    void* place;
#else
    ucontext_t place;
#endif
    // What it waits for at lanes.
    int kind, lanes, width, line;
    unsigned long long word, answer;
    const float *a, *b;
    float* c;
};

std::vector<Thread> threads;
std::vector<char*> stacks;
Thread* current;
bool failed;
int any, answer_of_all;
// RUSHLIGHT_EMULATOR_SEED: another order of wavefronts.
std::mt19937 dice(getenv("RUSHLIGHT_EMULATOR_SEED") ? (unsigned)atoi(getenv("RUSHLIGHT_EMULATOR_SEED")) : 1);
void (*run)(void**);
void** arguments;

[[noreturn]] void leave();
void stop(const char* why) {
    Three t = emulated.thread, b = emulated.block;
    fprintf(stderr, "emulated multiprocessor: %s (thread %u, %u of block %u, %u, %u)\n", why, t.x, t.y, b.x, b.y, b.z);
    failed = true;
}

#ifdef __x86_64__
// Saves the caller's registers on its stack, which is noted, and goes on with another.
extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch, .-emulator_switch
)");
void* scheduler;
void pause() { emulator_switch(&current->place, scheduler); }
void resume(Thread& t) { emulator_switch(&scheduler, t.place); }
#else
ucontext_t scheduler;
void pause() { swapcontext(&current->place, &scheduler); }
void resume(Thread& t) { swapcontext(&scheduler, &t.place); }
#endif

void leave() {
    while (true) pause();
}

void thread_main() {
    run(arguments);
    current->state = DONE;
    leave();
}

void begin(Thread& t) {
    if (stacks.empty()) {
        void* made = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED) abort();
        // A stack that is too small is a fault, not another's memory.
        mprotect(made, 4096, PROT_NONE);
        stacks.push_back((char*)made);
    }
    t.stack = stacks.back();
    stacks.pop_back();
    t.started = true;
#ifdef __x86_64__
    // Six registers and where to go; aligned as after a call.
    void** top = (void**)(t.stack + STACK) - 1;
    *--top = (void*)thread_main;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    t.place = top;
#else
    getcontext(&t.place);
    t.place.uc_stack.ss_sp = t.stack;
    t.place.uc_stack.ss_size = STACK;
    makecontext(&t.place, thread_main, 0);
#endif
}

unsigned long long exchange(int kind, unsigned long long word, int lanes, int width, int line) {
    Thread& t = *current;
    t.kind = kind, t.word = word, t.lanes = lanes, t.width = width, t.line = line;
    t.state = AT_LANES;
    pause();
    return t.answer;
}

int barrier(int yes) {
    any |= yes;
    current->state = AT_BARRIER;
    pause();
    return answer_of_all;
}

void mfma(const float* a, const float* b, float* c, int line) {
    current->a = a, current->b = b, current->c = c;
    exchange(EXCHANGE_MFMA, 0, 0, WAVEFRONT, line);
}

// Lane l has A[l % 16][4 * (l / 16) + i], B[4 * (l / 16) + i][l % 16] and C[4 * (l / 16) + i][l % 16].
void multiply(Thread* wave) {
    float sums[16][16];
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < 16; column++) {
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += wave[k / 4 * 16 + row].a[k % 4] * wave[k / 4 * 16 + column].b[k % 4];
            sums[row][column] = sum;
        }
    }
    for (int l = 0; l < WAVEFRONT; l++) {
        for (int i = 0; i < 4; i++) wave[l].c[i] += sums[l / 16 * 4 + i][l % 16];
    }
}

// Lets the lanes that stand at the same place as the first that waits exchange.
void meet(Thread* wave, int count) {
    int first = 0;
    while (wave[first].state != AT_LANES) first++;
    Thread like = wave[first];
    bool here[WAVEFRONT] = {};
    for (int l = 0; l < count; l++) here[l] = wave[l].state == AT_LANES && wave[l].kind == like.kind && wave[l].line == like.line;
    for (int l = 0; l < count; l++) {
        Thread& t = wave[l];
        if (!here[l]) {
            if (like.kind == EXCHANGE_MFMA) return stop("lanes are missing where a wavefront multiplies");
            continue;
        }
        int base = l / t.width * t.width, other = l;
        if (t.kind == EXCHANGE_XOR) other = base + ((l - base) ^ t.lanes);
        // Beyond the width a lane gets its own word.
        if (t.kind == EXCHANGE_DOWN && l - base + t.lanes < t.width) other = l + t.lanes;
        if (other >= base + t.width || other >= count || !here[other]) return stop("a lane reads the word of one that is not there");
        t.answer = wave[other].word;
    }
    if (like.kind == EXCHANGE_MFMA) {
        if (count != WAVEFRONT) return stop("a wavefront that multiplies is not whole");
        multiply(wave);
    }
    for (int l = 0; l < count; l++) if (here[l]) wave[l].state = READY;
}

void run_block(unsigned count) {
    threads.assign(count, Thread{});
    any = 0;
    std::vector<unsigned> waves((count + WAVEFRONT - 1) / WAVEFRONT);
    for (unsigned w = 0; w < waves.size(); w++) waves[w] = w;
    unsigned live = count;
    while (live > 0 && !failed) {
        bool progress = false;
        // Wavefronts overtake each other.
        for (size_t i = waves.size(); i > 1; i--) std::swap(waves[i - 1], waves[dice() % i]);
        for (unsigned w : waves) {
            unsigned first = w * WAVEFRONT, size = std::min<unsigned>(WAVEFRONT, count - first);
            bool at_lanes = false;
            for (unsigned n = first; n < first + size && !failed; n++) {
                Thread& t = threads[n];
                if (t.state == READY) {
                    if (!t.started) begin(t);
                    current = &t;
                    emulated.thread = {n % emulated.block_size.x, n / emulated.block_size.x, 0};
                    resume(t);
                    progress = true;
                    if (t.state == DONE) stacks.push_back(t.stack), live--;
                }
                at_lanes |= t.state == AT_LANES;
            }
            if (at_lanes && !failed) meet(&threads[first], size), progress = true;
        }
        if (!progress) {
            // All that are left stand at the barrier.
            answer_of_all = any, any = 0;
            for (Thread& t : threads) if (t.state == AT_BARRIER) t.state = READY;
        }
    }
}
}  // namespace

Machine emulated = {{}, {}, {}, {}, exchange, barrier, mfma};

bool run_kernel(const EmulatedKernel& kernel, Three grid, Three block, size_t shared, void** args) {
    emulated.grid_size = grid, emulated.block_size = block;
    run = kernel.run, arguments = args, failed = false;
    for (unsigned z = 0; z < grid.z && !failed; z++)
        for (unsigned y = 0; y < grid.y && !failed; y++)
            for (unsigned x = 0; x < grid.x && !failed; x++) {
                emulated.block = {x, y, z};
                // Nothing is left over from the block before.
                if (shared) memset(kernel.shared, 0xff, shared);
                run_block(block.x * block.y * block.z);
            }
    return !failed;
}
