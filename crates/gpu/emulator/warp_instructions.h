// Replaces the PTX of fragments.cu and tensor_cores.cu: copies that a thread waits for, and products of single warps.
float machine::value(uint16_t bits) { return plain(T{bits}); }

static u32 shared_address(const void* p) { return (u32)((const char*)p - (const char*)memory); }
static u32 packed(float low, float high) { return convert<T>(low).bits | (u32)convert<T>(high).bits << 16; }

// Sets of copies of each thread; the last set is open. They arrive at random, at the latest when the thread waits.
static std::map<unsigned, std::vector<std::vector<std::function<void()>>>> copies_of;
static std::vector<std::vector<std::function<void()>>>& own_copies() {
    auto& sets = copies_of[threadIdx.x];
    if (sets.empty()) sets.push_back({});
    return sets;
}
static void copy_later(std::function<void()> copy) {
    if (machine::chance(30)) copy();
    else own_copies().back().push_back(copy);
}
static void copy_async(T* to, const T* from, bool there) {
    if (shared_address(to) % 16 || (there && (u64)from % 16)) machine::fail("a copy of 16 bytes that are not aligned");
    if (shared_address(to) + 16 > sizeof memory) machine::fail("a copy outside shared memory");
    copy_later([=] { there ? (void)memcpy(to, from, 16) : (void)memset(to, 0, 16); });
}
template <class A> void copy_row(A* to, const A* from, bool there) {
    copy_later([=] { there ? (void)memcpy(to, from, 8) : (void)memset(to, 0, 8); });
}
static void commit() { own_copies().push_back({}); }
template <int N> void wait_for_all_but() {
    auto& sets = own_copies();
    while (sets.size() > N + 1) {
        for (auto& copy : sets.front()) copy();
        sets.erase(sets.begin());
    }
}

// What every lane of the warp has at `mine`, which must stay there until all have read it.
template <class A, class F> void exchange(const A& mine, F read) {
    unsigned turn = machine::meet_in_warp((uint64_t)&mine, [](machine::Warp&) {});
    const A* all[32];
    for (int l = 0; l < 32; l++) all[l] = (const A*)machine::warp().words[turn][l];
    read(all);
    machine::meet_in_warp(0, [](machine::Warp&) {});
}

// Lane 8 m + r gives the address of row r of matrix m.
static u16 matrix_element(const u32* const (&rows)[32], int matrix, int row, int column) {
    u32 at = *rows[matrix * 8 + row];
    if (at % 16 || at + 16 > sizeof memory) machine::fail("a row of a matrix that is not aligned or outside shared memory");
    return ((const u16*)((const char*)memory + at))[column];
}
__attribute__((noinline)) static void read_matrices(u32 (&f)[4], u32 at) {
    exchange(at, [&](const u32* const (&rows)[32]) {
        int row = machine::lane() / 4, column = machine::lane() % 4 * 2;
        for (int m = 0; m < 4; m++) f[m] = matrix_element(rows, m, row, column) | (u32)matrix_element(rows, m, row, column + 1) << 16;
    });
}
__attribute__((noinline)) static void read_transposed(u32 (&f)[4], u32 at) {
    exchange(at, [&](const u32* const (&rows)[32]) {
        int column = machine::lane() / 4, row = machine::lane() % 4 * 2;
        for (int m = 0; m < 4; m++) f[m] = matrix_element(rows, m, row, column) | (u32)matrix_element(rows, m, row + 1, column) << 16;
    });
}

struct Operands { u32 a[4], b[2]; };
static float half_of(u32 word, int k) { return machine::value((u16)(k % 2 ? word >> 16 : word)); }
__attribute__((noinline)) static void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    Operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    exchange(mine, [&](const Operands* const (&all)[32]) {
        for (int e = 0; e < 4; e++) {
            int row = machine::lane() / 4 + e / 2 * 8, column = machine::lane() % 4 * 2 + e % 2;
            float sum = 0;
            for (int k = 0; k < 16; k++) {
                u32 first = all[row % 8 * 4 + k % 8 / 2]->a[k / 8 * 2 + row / 8], second = all[column * 4 + k % 8 / 2]->b[k / 8];
                sum += half_of(first, k) * half_of(second, k);
            }
            c[e] += sum;
        }
    });
}
