// Replaces warpgroup.cu and bulk_copies.cu, and the PTX of fragments.cu.
float machine::value(uint16_t bits) { return plain(T{bits}); }

static u32 shared_address(const void* p) { return (u32)((const char*)p - (const char*)memory); }
static u32 packed(float low, float high) { return convert<T>(low).bits | (u32)convert<T>(high).bits << 16; }
static u32 lines(const T* tile) { return (shared_address(tile) & 0x3ffff) >> 4; }
#define NEXT_COLUMNS 2
#define NEXT_LINES 128
#define NEXT_PANEL(rows) ((rows) * 8)
static u32 panels(const T* tile, int rows) { return lines(tile) | NEXT_PANEL(rows) << 16; }
static T* tiles_in(double* memory) { return (T*)memory; }

static void begin_products() {}
__attribute__((noinline)) static void end_products() {
    machine::meet_in_warp(0, [](machine::Warp& w) {
        for (int l = 0; l < 32; l++) {
            if (w.issued[l] != (int)w.sets.back().size()) machine::fail("lanes of a warp issue different products");
            w.issued[l] = 0;
        }
        w.sets.push_back({});
        if (machine::chance(40)) machine::run_sets(w, 0);
    });
}
template <class A> void hold(A&) {}
__attribute__((noinline)) static void wait_for_sets(size_t but) {
    machine::meet_in_warp(0, [=](machine::Warp& w) { machine::run_sets(w, but); });
}
template <int LEFT, class A> void wait_for_products(A&) { wait_for_sets(LEFT); }
__attribute__((noinline)) static void multiply(float (&c)[8][4], const u32 (&a)[4], u32 b) { machine::issue(true, 8, true, 0, a, b, c); }
__attribute__((noinline)) static void multiply_panels(float (&c)[16][4], const u32 (&a)[4], u32 b) { machine::issue(true, 16, true, 0, a, b, c); }
template <int ADD, int N> __attribute__((noinline)) void multiply(float (&c)[N][4], u32 a, u32 b) { machine::issue(false, N, ADD, a, nullptr, b, c); }

// The first word of a map points to its description.
struct Meaning { const T* at; u64 sizes[4], strides[4]; int rows; };
struct alignas(64) Map { u64 words[16]; };
static void init_barrier(u64* b, u32 arrivals) { machine::barriers[b] = {(int)arrivals, (int)arrivals, 0, 0}; }
static void barriers_are_ready() {}
__attribute__((noinline)) static void arrive(u64* at) {
    auto& b = machine::barrier(at);
    b.pending--;
    machine::settle(b);
    machine::progress++;
    machine::maybe_sleep();
}
static void arrive_expecting(u64* at, u32 bytes) {
    auto& b = machine::barrier(at);
    b.bytes += bytes;
    arrive(at);
}
__attribute__((noinline)) static void wait(u64* at, u32 parity) {
    machine::until("a barrier", [=] { return (machine::barrier(at).phases & 1) != parity; });
}
static void arrived(u64* barrier, long bytes) {
    auto& b = machine::barrier(barrier);
    b.bytes -= bytes;
    machine::settle(b);
}
static void copy_box(T* to, const Map& map, u64* barrier, int column, int row, int head, int batch) {
    const Meaning* m = (const Meaning*)map.words[0];
    if (shared_address(to) % 1024) machine::fail("a tile does not start at a multiple of 1024 bytes");
    machine::copy_later([=] {
        for (int r = 0; r < m->rows; r++) {
            for (int c = 0; c < 64; c++) {
                u64 at[4] = {(u64)(column + c), (u64)(row + r), (u64)head, (u64)batch}, offset = 0;
                bool inside = true;
                for (int d = 0; d < 4; d++) inside &= at[d] < m->sizes[d], offset += at[d] * m->strides[d];
                u32 place = (shared_address(to) + r * 128 + c * 2);
                place ^= (place >> 7 & 7) << 4;
                *(T*)((char*)memory + place) = inside ? m->at[offset] : T{0};
            }
        }
        arrived(barrier, m->rows * 128);
    });
}
static void copy_bytes(void* to, const void* from, u32 bytes, u64* barrier) {
    if (shared_address(to) % 16 || (u64)from % 16 || bytes % 16) machine::fail("a copy that is not of multiples of 16 bytes");
    machine::copy_later([=] {
        memcpy(to, from, bytes);
        arrived(barrier, bytes);
    });
}
__attribute__((noinline)) static void let_go(int number, int threads) {
    auto& m = machine::numbered[number];
    if (++m.there == threads) m.there = 0, m.over++;
    machine::progress++;
}
__attribute__((noinline)) static void meet(int number, int threads) {
    auto& m = machine::numbered[number];
    unsigned mine = m.over;
    let_go(number, threads);
    machine::until("its turn", [&] { return m.over != mine; });
}
template <int N> void give_registers() {}
template <int N> void take_registers() {}
