// Products by four warps together, 64 rows at a time (wgmma, compute capability 9.0). They are
// asynchronous until `wait_for_products`.
//
// Tiles in shared memory are cut into panels of 64 columns, lines of 128 bytes. The 16-byte pieces of a line
// are swizzled by its number, so that neighbouring lines are in different banks. A tile starts at a multiple of 1024
// bytes.

// The layout of a panel for wgmma: a stride of 1024 bytes per eight lines, a swizzle over 128 bytes. It is the upper
// half of the descriptor and the same for all; the lower half holds the address.
__device__ inline u32 lines(const T* tile) { return (shared_address(tile) & 0x3ffff) >> 4 | 64u << 16; }
#define LINES_UPPER "0x40000040"
// Descriptor offsets, in the units of `lines`: 16 columns along a panel, 16 lines down, the next panel of a tile.
#define NEXT_COLUMNS 2
#define NEXT_LINES 128
#define NEXT_PANEL(rows) ((rows) * 8)
// The same for a product whose columns continue in the next panel of a tile of `rows` rows.
__device__ inline u32 panels(const T* tile, int rows) { return (shared_address(tile) & 0x3ffff) >> 4 | NEXT_PANEL(rows) << 16; }

__device__ inline T* tiles_in(double* memory) { return (T*)((char*)memory + (1024 - shared_address(memory) % 1024) % 1024); }

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Keeps the compiler from moving uses of accumulators or operands across the products.
template <int N> __device__ inline void hold(float (&c)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
template <int N> __device__ inline void hold(Fragment (&a)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3])::"memory");
}

// Waits until all but the latest LEFT sets of products are done. The arguments are the accumulators or operands of the
// finished products.
template <int LEFT, class A> __device__ inline void wait_for_products(A& c) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    hold(c);
}

#define FRAGMENT(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define FRAGMENTS_8(c, n) FRAGMENT(c, n), FRAGMENT(c, n + 1), FRAGMENT(c, n + 2), FRAGMENT(c, n + 3), FRAGMENT(c, n + 4), FRAGMENT(c, n + 5), FRAGMENT(c, n + 6), FRAGMENT(c, n + 7)
#define REGISTERS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64 REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// 64 by 64 accumulators: += 16 columns of rows in registers times 16 lines of a panel.
__device__ inline void multiply(float (&c)[8][4], const Fragment& a, u32 b) {
    asm volatile(
        "{\n.reg .b64 b;\nmov.b64 b, {%36, " LINES_UPPER "};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MMA_DTYPE "." MMA_DTYPE " {" REGISTERS_32 "}, {%32, %33, %34, %35}, b, 1, 1, 1, 1;\n}"
        : FRAGMENTS_8(c, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

// 64 by 128 accumulators: the same for two panels, which `panels` describes.
__device__ inline void multiply_panels(float (&c)[16][4], const Fragment& a, u32 b) {
    asm volatile(
        "{\n.reg .b64 b;\nmov.b64 b, {%68, " LINES_UPPER "};\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." MMA_DTYPE "." MMA_DTYPE " {" REGISTERS_64 "}, {%64, %65, %66, %67}, b, 1, 1, 1, 1;\n}"
        : FRAGMENTS_8(c, 0), FRAGMENTS_8(c, 8) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

// 64 by 64 accumulators: the product of 16 columns of 64 lines and of 64 other lines, or += that if ADD.
template <int ADD> __device__ inline void multiply(float (&c)[8][4], u32 a, u32 b) {
    asm volatile(
        "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %34, 0;\nmov.b64 a, {%32, " LINES_UPPER "};\nmov.b64 b, {%33, " LINES_UPPER "};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MMA_DTYPE "." MMA_DTYPE " {" REGISTERS_32 "}, a, b, p, 1, 1, 0, 0;\n}"
        : FRAGMENTS_8(c, 0) : "r"(a), "r"(b), "n"(ADD));
}

// The same for 64 lines and 128 other lines.
template <int ADD> __device__ inline void multiply(float (&c)[16][4], u32 a, u32 b) {
    asm volatile(
        "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %66, 0;\nmov.b64 a, {%64, " LINES_UPPER "};\nmov.b64 b, {%65, " LINES_UPPER "};\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." MMA_DTYPE "." MMA_DTYPE " {" REGISTERS_64 "}, a, b, p, 1, 1, 0, 0;\n}"
        : FRAGMENTS_8(c, 0), FRAGMENTS_8(c, 8) : "r"(a), "r"(b), "n"(ADD));
}
