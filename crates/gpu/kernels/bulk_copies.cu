// Tiles copied to shared memory by the copy engine (compute capability 9.0): one thread issues the copy, and a barrier
// in shared memory completes when the data has arrived.

// The driver's descriptor of a tensor's address, sizes and strides (`cuTensorMapEncodeTiled`).
struct alignas(64) Map { u64 words[16]; };

__device__ inline void init_barrier(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Makes barriers visible to the copy engine. The block's threads must synchronise after it.
__device__ inline void barriers_are_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and makes the barrier also wait for `bytes` bytes.
__device__ inline void arrive_expecting(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Waits until the barrier's phase of this parity is complete.
__device__ inline void wait(u64* barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

// Copies a box of a 4-D tensor that starts at this element. Elements outside the tensor are zero.
__device__ inline void copy_box(T* to, const Map& map, u64* barrier, int column, int row, int head, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)), "l"(&map),
                 "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}
// Copies bytes; all three arguments are multiples of 16.
__device__ inline void copy_bytes(void* to, const void* from, u32 bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];" ::"r"(shared_address(to)), "l"(from), "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// A named barrier of the block. The count includes threads that wait and threads that only arrive.
__device__ inline void meet(int number, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }
__device__ inline void let_go(int number, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

// Sets the register count of this warpgroup's threads: some groups release registers that others take.
template <int N> __device__ inline void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ inline void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
