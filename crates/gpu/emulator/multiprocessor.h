// Emulates the parts of a multiprocessor of compute capability 9.0 that our kernels use, on a machine without a GPU. A
// block's threads run as coroutines in a random order, copies arrive at once or late and out of order, products finish
// as early or as late as allowed. So tests find a kernel that reads a tile too early, releases it too soon, or
// deadlocks.
//
// Not emulated: time, registers, the order in which plain memory accesses become visible.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <ucontext.h>
#include <vector>

// Plain forms of the PTX in prelude.cu.
#define __HIP__ 1
#define EMULATED 1
#define __device__
#define __global__
#define __shared__
#define __grid_constant__
#define __launch_bounds__(...)

struct Three { unsigned x, y, z; };
static Three threadIdx, blockIdx, gridDim, blockDim;
alignas(1024) double memory[227 * 1024 / 8];

namespace machine {
std::mt19937 dice(1);
bool chance(int percent) { return (int)(dice() % 100) < percent; }
[[noreturn]] void fail(const char* what) {
    printf("FAILED: %s (thread %u, block %u)\n", what, threadIdx.x, blockIdx.x);
    fflush(stdout);
    _Exit(1);
}

struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    bool done = false;
    const char* waits = "";
};
std::vector<std::unique_ptr<Thread>> threads;
ucontext_t scheduler;
Thread* current;
std::function<void()> body;
uint64_t progress;

void yield() { swapcontext(&current->context, &scheduler); }
template <class F> void until(const char* what, F ready) {
    current->waits = what;
    while (!ready()) yield();
    progress++;
}

struct Barrier { int arrivals, pending; long bytes; unsigned phases; };
std::map<void*, Barrier> barriers;
Barrier& barrier(void* at) {
    auto found = barriers.find(at);
    if (found == barriers.end()) fail("a barrier that nobody initialised");
    return found->second;
}
void settle(Barrier& b) {
    if (b.pending < 0) fail("more arrivals at a barrier than it was made for");
    if (b.pending == 0 && b.bytes == 0) b.pending = b.arrivals, b.phases++;
}
std::vector<std::function<void()>> copies;
// Whether a copy arrives at once.
void copy_later(std::function<void()> copy) { chance(30) ? copy() : copies.push_back(copy); }

struct Meeting { int there = 0; unsigned over = 0; };
Meeting numbered[16], everybody;

// Lanes of a warp synchronise and exchange words.
struct Product { bool from_registers; int fragments; bool add; unsigned a, b; float (*c[32])[4]; const uint32_t* operand[32]; };
struct Warp {
    int there = 0;
    unsigned over = 0;
    uint64_t words[2][32];
    // Started products by set; the last set is open. Each lane counts its own.
    std::vector<std::vector<Product>> sets{1};
    int issued[32] = {};
    // Number of turns that the warp skips.
    int asleep = 0;
};
std::vector<Warp> warps;
Warp& warp() { return warps[threadIdx.x / 32]; }
int lane() { return threadIdx.x % 32; }

// At random, a warp falls behind the others.
void maybe_sleep() {
    if (chance(50)) warp().asleep = dice() % 30, yield();
}

// The last lane to arrive runs `together`.
template <class F> unsigned meet_in_warp(uint64_t word, F together) {
    Warp& w = warp();
    unsigned mine = w.over;
    w.words[mine % 2][lane()] = word;
    if (++w.there == 32) {
        together(w);
        w.there = 0;
        w.over++;
    }
    until("its warp", [&] { return w.over != mine; });
    return mine % 2;
}

// The address of a line's column in the swizzled layout; columns from 64 on are in the next panel.
uint16_t element(unsigned lines, int line, int column) {
    unsigned at = (lines & 0x3fff) * 16 + line / 8 * 1024 + line % 8 * 128 + column % 64 * 2 + column / 64 * (lines >> 16) * 16;
    at ^= (at >> 7 & 7) << 4;
    if (at + 2 > sizeof memory) fail("a product reads outside shared memory");
    return *(uint16_t*)((char*)memory + at);
}
float value(uint16_t bits);
void run(const Product& p, int warp_in_group) {
    float a[16][16], b[128][16];
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 16; k++) {
            if (p.from_registers) {
                uint32_t word = p.operand[row % 8 * 4 + k % 8 / 2][k / 8 * 2 + row / 8];
                a[row][k] = value((uint16_t)(k % 2 ? word >> 16 : word));
            } else {
                a[row][k] = value(element(p.a, warp_in_group * 16 + row, k));
            }
        }
    }
    for (int column = 0; column < p.fragments * 8; column++) {
        for (int k = 0; k < 16; k++) b[column][k] = value(p.from_registers ? element(p.b, k, column) : element(p.b, column, k));
    }
    for (int l = 0; l < 32; l++) {
        for (int f = 0; f < p.fragments; f++) {
            for (int e = 0; e < 4; e++) {
                int row = l / 4 + e / 2 * 8, column = f * 8 + l % 4 * 2 + e % 2;
                float sum = 0;
                for (int k = 0; k < 16; k++) sum += a[row][k] * b[column][k];
                float& c = p.c[l][f][e];
                c = p.add ? c + sum : sum;
            }
        }
    }
}
void run_sets(Warp& w, size_t but) {
    while (w.sets.size() > but + 1) {
        int index = (int)(&w - &warps[0]);
        for (const Product& p : w.sets.front()) run(p, index % 4);
        w.sets.erase(w.sets.begin());
    }
}
void issue(bool from_registers, int fragments, bool add, unsigned a, const uint32_t* operand, unsigned b, float (*c)[4]) {
    Warp& w = warp();
    auto& set = w.sets.back();
    size_t mine = w.issued[lane()]++;
    if (mine == set.size()) set.push_back(Product{from_registers, fragments, add, a, b, {}, {}});
    if (mine >= set.size() || set[mine].a != a || set[mine].b != b) fail("lanes of a warp issue different products");
    set[mine].operand[lane()] = operand, set[mine].c[lane()] = c;
}

void thread_main() {
    body();
    current->done = true;
    progress++;
    yield();
}

// Runs a grid's blocks one after the other.
template <class F> void launch(Three grid, unsigned block_threads, F kernel) {
    gridDim = grid;
    unsigned blocks = grid.x * grid.y * grid.z;
    blockDim = {block_threads, 1, 1};
    body = kernel;
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx = {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
        barriers.clear();
        warps.assign(block_threads / 32, Warp());
        for (Meeting& m : numbered) m = Meeting();
        everybody = Meeting();
        for (double& x : memory) memset(&x, 0xff, 8);
        threads.clear();
        for (unsigned n = 0; n < block_threads; n++) {
            auto t = std::make_unique<Thread>();
            t->stack.reset(new char[128 << 10]);
            getcontext(&t->context);
            t->context.uc_stack.ss_sp = t->stack.get();
            t->context.uc_stack.ss_size = 128 << 10;
            makecontext(&t->context, thread_main, 0);
            threads.push_back(std::move(t));
        }
        while (true) {
            uint64_t before = progress;
            bool left = false;
            std::vector<unsigned> order(warps.size());
            for (unsigned n = 0; n < order.size(); n++) order[n] = n;
            std::shuffle(order.begin(), order.end(), dice);
            for (unsigned w : order) {
                if (warps[w].asleep) {
                    warps[w].asleep--, progress++, left = true;
                    continue;
                }
                for (int l = 0; l < 32; l++) {
                    Thread& t = *threads[w * 32 + l];
                    if (t.done) continue;
                    left = true;
                    threadIdx = {w * 32 + l, 0, 0};
                    current = &t;
                    swapcontext(&scheduler, &t.context);
                }
            }
            if (!left) break;
            if (!copies.empty() && (progress == before || chance(50))) {
                size_t n = dice() % copies.size();
                auto copy = copies[n];
                copies.erase(copies.begin() + n);
                copy();
                progress++;
            }
            if (progress == before) {
                for (size_t n = 0; n < threads.size(); n += 32) printf("warp %zu waits for %s\n", n / 32, threads[n]->done ? "nothing" : threads[n]->waits);
                fail("everybody waits");
            }
        }
        for (Meeting& m : numbered) if (m.there) fail("a turn that nobody took");
        if (!copies.empty()) fail("a copy was still under way");
    }
}
}  // namespace machine

// ---- what kernels call ----------------------------------------------------------------------------------------------

static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline unsigned atomicCAS(unsigned* at, unsigned old, unsigned now) { unsigned was = *at; if (was == old) *at = now; return was; }
static inline void __threadfence_system() {}
template <class A> A min(A a, A b) { return a < b ? a : b; }
template <class A> A value_of_lane(A a, int lane) {
    uint64_t word = 0;
    memcpy(&word, &a, sizeof a);
    unsigned turn = machine::meet_in_warp(word, [](machine::Warp&) {});
    memcpy(&a, &machine::warp().words[turn][lane], sizeof a);
    return a;
}
template <class A> A __shfl_xor_sync(unsigned, A a, int mask) { return value_of_lane(a, machine::lane() ^ mask); }
template <class A> A __shfl_sync(unsigned, A a, int lane, int width) {
    return value_of_lane(a, machine::lane() / width * width + lane % width);
}
static inline bool __any_sync(unsigned, bool yes) {
    unsigned turn = machine::meet_in_warp(yes, [](machine::Warp&) {});
    for (int l = 0; l < 32; l++) yes |= machine::warp().words[turn][l] != 0;
    return yes;
}
static inline void __syncwarp() { machine::meet_in_warp(0, [](machine::Warp&) {}); }
static inline void __syncthreads() {
    machine::Meeting& m = machine::everybody;
    unsigned mine = m.over;
    if (++m.there == (int)blockDim.x) m.there = 0, m.over++;
    machine::until("its block", [&] { return m.over != mine; });
}
