//! The blocked product: B is packed once for all tasks; each task packs its rows of A and loops over tiles.
//!
//! Every element of C is the sum over the same blocks of K in the same order, however rows and columns are split, so
//! results do not depend on the number of threads.

use super::buffer::{Use, with_buffer};
use super::kernel::{Acc, Kernel, Task};
use super::problem::{Matrix, Problem};
use super::scalar::{Accumulator, Scalar};
use super::task::{
    BlockTask, COLUMNS_AT_ONCE, KBlocks, PackTask, Parts, Source, columns_at_once, columns_on_the_way, sums_fit_c,
    writes_columns,
};
use crate::pool;
use rushlight_core::sync::SendPtr;
use smallvec::SmallVec;
use std::ops::Range;

/// Maximum bytes of packed B; larger problems are processed by column ranges.
const PACKED_B_BYTES: usize = 24 << 20;
/// Packed B up to this size leaves room in the L2 cache.
const OWN_B_BYTES: usize = 1 << 19;
/// Packed A up to this size stays in the L2 cache next to the streamed data.
const PACKED_A_BYTES: usize = 3 << 19;
/// Minimum columns per thread that pay for packing the same rows twice.
const COLUMNS_EACH: usize = 192;
/// Minimum length of a task: scheduling a shorter one costs more than it saves.
const TASK_MICROSECONDS: usize = 4;

/// Calls `f` with room for the packed rows of A and for the sums of a task.
fn with_task_buffers<K: Kernel>(
    p: &Problem<K::Elem>,
    rows: usize,
    columns: usize,
    f: impl FnOnce(*mut K::Packed, *mut Acc<K>),
) {
    let blocks = KBlocks::new::<K>(p.k);
    let height = rows.next_multiple_of(K::MR);
    let sums = match blocks.count() {
        0 | 1 if writes_columns::<K>(p) => height * K::NR,
        0 | 1 => K::MR * K::NR,
        _ if sums_fit_c::<K>(p) => 0,
        _ => height * columns.min(columns_at_once::<K>(blocks)).next_multiple_of(K::NR),
    };
    with_buffer(Use::PackedA, height * blocks.padded::<K>(), |a| with_buffer(Use::Sums, sums, |s| f(a, s)));
}

/// Inputs of a task besides packed B, for all of these columns.
struct Work<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    sums_only: Option<*mut Acc<K>>,
    rows: Range<usize>,
    parts: &'a Parts,
    share: usize,
}

impl<K: Kernel> Work<'_, K> {
    /// Runs the task on this thread.
    ///
    /// # Safety
    /// As for [`serial`], and `b` holds the described columns.
    unsafe fn run(self, b: Source<K::Packed>) {
        let Work { problem, sums_only, rows, parts, share } = self;
        if parts.all_taken() {
            return;
        }
        let room = match b {
            Source::OnTheWay => {
                let blocks = KBlocks::new::<K>(problem.k);
                parts.step.min(columns_on_the_way::<K>(problem, blocks)).next_multiple_of(K::NR) * blocks.depth
            }
            _ => 0,
        };
        with_task_buffers::<K>(problem, rows.len(), parts.step, |packed_a, sums| {
            with_buffer(Use::Columns, room, |packed_b| {
                let task = BlockTask::<K> { problem, sums_only, rows, parts, share, b, packed_b, packed_a, sums };
                // SAFETY: the caller's promise.
                unsafe { K::enter(task) };
            })
        });
    }
}

/// A product on the calling thread.
///
/// # Safety
/// The pointers of the problem are valid and the machine has the kernel's features. k is not 0.
pub(super) unsafe fn serial<K: Kernel>(p: &Problem<K::Elem>, sums_only: Option<*mut Acc<K>>) {
    if p.m <= K::MC {
        let parts = &Parts::whole(0..p.n);
        let work = Work::<K> { problem: p, sums_only, rows: 0..p.m, parts, share: 0 };
        // SAFETY: the caller's promise.
        return unsafe { work.run(Source::OnTheWay) };
    }
    let blocks = KBlocks::new::<K>(p.k);
    let width = columns_per_pack::<K>(p);
    with_buffer(Use::PackedB, width * blocks.padded::<K>(), |packed_b| {
        for j0 in (0..p.n).step_by(width) {
            let columns = j0..p.n.min(j0 + width);
            for block in 0..blocks.count() {
                let block = blocks.block(block);
                // SAFETY: the caller's promise; the buffer has room for the columns.
                unsafe { K::enter(PackTask::<K>::within(p, block, &columns, columns.clone(), packed_b)) };
            }
            for i0 in (0..p.m).step_by(K::MC) {
                let parts = Parts::whole(columns.clone());
                let b = Source::Packed { ptr: packed_b.cast_const(), columns: columns.clone() };
                let rows = i0..p.m.min(i0 + K::MC);
                // SAFETY: the caller's promise.
                unsafe { Work::<K> { problem: p, sums_only, rows, parts: &parts, share: 0 }.run(b) };
            }
        }
    });
}

/// A whole product on the calling thread.
///
/// # Safety
/// As for [`serial`].
pub(super) unsafe fn serial_product<K: Kernel>(p: &Problem<K::Elem>) {
    // SAFETY: the caller's promise.
    unsafe { serial::<K>(p, None) }
}

/// Number of columns of B that are packed at a time.
fn columns_per_pack<K: Kernel>(p: &Problem<K::Elem>) -> usize {
    let strip_bytes = K::NR * p.k.next_multiple_of(K::K_UNIT) * size_of::<K::Packed>();
    let strips = (PACKED_B_BYTES / strip_bytes).max(COLUMNS_AT_ONCE / K::NR);
    (strips * K::NR).min(p.n.next_multiple_of(K::NR))
}

/// Minimum multiply-adds for another thread to pay.
pub(super) fn task_work<K: Kernel>() -> usize {
    TASK_MICROSECONDS * K::RATE
}

/// Computes one product on the whole pool.
///
/// # Safety
/// The pointers of the problem are valid and the machine has the kernel's features. k is not 0.
pub(super) unsafe fn parallel<K: Kernel>(p: &Problem<K::Elem>) {
    if pool::num_threads() == 1 || p.m * p.n * p.k < 2 * task_work::<K>() {
        // SAFETY: the caller's promise.
        return unsafe { serial_product::<K>(p) };
    }
    let blocks = KBlocks::new::<K>(p.k);
    let threads = pool::num_threads();
    if !a_packs_fast::<K>(p) && stays_cached::<K::Packed>(p.n, blocks.padded::<K>()) {
        // SAFETY: the caller's promise.
        return unsafe { by_rows::<K>(p) };
    }
    // If packed A stays in a thread's cache, every thread packs A itself and packs the columns it takes: that is
    // cheaper than sharing packed data, because a line written by another core arrives slowly.
    let small = p.m.saturating_mul(blocks.padded::<K>()) <= PACKED_A_BYTES / size_of::<K::Packed>();
    if small && p.n >= 2 * K::NR * threads {
        // All threads pack the cheaper operand, and split the other.
        let row_blocks = match a_packs_fast::<K>(p) {
            true => 1,
            false if p.n > p.m => (COLUMNS_EACH * threads).div_ceil(p.n).min(threads),
            false => threads,
        };
        let rows = p.m.div_ceil(row_blocks).max(4 * K::MR);
        // SAFETY: the caller's promise.
        return unsafe { share_out::<K>(p, rows, 0..p.n, Source::OnTheWay) };
    }
    let row_blocks = p.m.div_ceil(K::MC).next_multiple_of(threads).min(p.m.div_ceil(4 * K::MR));
    let width = columns_per_pack::<K>(p);
    with_buffer(Use::PackedB, width * blocks.padded::<K>(), |packed_b| {
        let packed_b = SendPtr::new(packed_b);
        for j0 in (0..p.n).step_by(width) {
            let columns = j0..p.n.min(j0 + width);
            pack_b_parallel::<K>(p, blocks, &columns, &packed_b);
            let b = Source::Packed { ptr: packed_b.get().cast_const(), columns: columns.clone() };
            // SAFETY: the caller's promise; these columns are packed.
            unsafe { share_out::<K>(p, p.m.div_ceil(row_blocks), columns, b) };
        }
    });
}

/// Whether this many packed columns leave room in the L2 cache.
fn stays_cached<P>(columns: usize, k: usize) -> bool {
    columns.saturating_mul(k) <= OWN_B_BYTES / size_of::<P>()
}

/// Splits the rows of C over the pool, a few at a time, so that all threads end together; each packs all of B for
/// itself.
///
/// # Safety
/// As for [`parallel`].
pub(super) unsafe fn by_rows<K: Kernel>(p: &Problem<K::Elem>) {
    let blocks = KBlocks::new::<K>(p.k);
    let threads = if p.m * p.n * p.k < 2 * task_work::<K>() { 1 } else { pool::num_threads() };
    let share = p.m.div_ceil(threads).next_multiple_of(K::MR);
    // Columns of C are written in long runs.
    let step = if writes_columns::<K>(p) { 8 * K::MR } else { 2 * K::MR };
    let rows = Parts::new(0..p.m, share, step);
    pool::parallel_for(threads, |thread| {
        let width = p.n.next_multiple_of(K::NR);
        with_buffer(Use::PackedB, width * blocks.padded::<K>(), |packed_b| {
            let mut packed = false;
            while let Some(rows) = rows.take(thread % threads) {
                for block in (0..blocks.count()).filter(|_| !packed).map(|block| blocks.block(block)) {
                    // SAFETY: the caller's promise; the buffer has room for all of B.
                    unsafe { K::enter(PackTask::<K>::within(p, block, &(0..p.n), 0..p.n, packed_b)) };
                }
                packed = true;
                let b = Source::Packed { ptr: packed_b.cast_const(), columns: 0..p.n };
                let parts = Parts::whole(0..p.n);
                // SAFETY: the caller's promise; nobody else gets the same rows.
                unsafe { Work::<K> { problem: p, sums_only: None, rows, parts: &parts, share: 0 }.run(b) };
            }
        });
    });
}

/// A product with B packed before: block by block of K, all columns of each. Columns of C are adjacent, so that it
/// holds the sums between blocks.
///
/// # Safety
/// As for [`parallel`], and `right` holds the columns.
pub(super) unsafe fn by_columns<K: Kernel>(p: &Problem<K::Elem>, right: *const K::Packed) {
    let (blocks, width) = (KBlocks::new::<K>(p.k), p.n.next_multiple_of(K::NR));
    let tasks = if p.m * p.n * p.k < 2 * task_work::<K>() { 1 } else { pool::num_threads() };
    for (k0, depth) in (0..blocks.count()).map(|block| blocks.block(block)) {
        let small = p.m.saturating_mul(depth) <= PACKED_A_BYTES / size_of::<K::Packed>();
        let row_blocks = match small && p.n >= 2 * K::NR * tasks {
            true => 1,
            false => p.m.div_ceil(K::MC).next_multiple_of(tasks).min(p.m.div_ceil(4 * K::MR)),
        };
        // SAFETY: the caller's promise; the columns of a block begin with the padded ones of the blocks before it.
        unsafe {
            let b = Source::Packed { ptr: right.add(k0 * width), columns: 0..p.n };
            share_out::<K>(&p.over(k0, depth), p.m.div_ceil(row_blocks), 0..p.n, b);
        }
    }
}

/// Whether rows of A are packed by copying vectors.
fn a_packs_fast<K: Kernel>(p: &Problem<K::Elem>) -> bool {
    p.a.row_stride == 1 || (K::COPIES_ROWS && p.a.col_stride == 1)
}

/// Splits these columns of C over the pool, in blocks of about `height` rows.
///
/// # Safety
/// As for [`parallel`].
unsafe fn share_out<K: Kernel>(p: &Problem<K::Elem>, height: usize, columns: Range<usize>, b: Source<K::Packed>) {
    let threads = pool::num_threads();
    // Only kernels that always write whole tiles lose by a block that ends inside one.
    let height = if K::WHOLE_TILES { height.next_multiple_of(K::MR) } else { height };
    let row_blocks = p.m.div_ceil(height);
    let shares = threads.div_ceil(row_blocks);
    let share = columns.len().div_ceil(shares).next_multiple_of(K::NR);
    let most = match b {
        Source::OnTheWay => columns_on_the_way::<K>(p, KBlocks::new::<K>(p.k)),
        Source::Packed { .. } => columns_at_once::<K>(KBlocks::new::<K>(p.k)),
    };
    let step = share.div_ceil(4).next_multiple_of(K::NR).clamp(2 * K::NR, most);
    let parts: SmallVec<[Parts; 8]> = (0..row_blocks).map(|_| Parts::new(columns.clone(), share, step)).collect();
    let b = &b;
    pool::parallel_for(threads, |thread| {
        // A private copy avoids false sharing with the caller's cache line.
        let p = &p.clone();
        // Every thread starts with its own blocks and then takes remaining blocks of others.
        for block in (0..row_blocks).map(|i| (thread * row_blocks / threads + i) % row_blocks) {
            let rows = block * height..p.m.min((block + 1) * height);
            let (parts, share) = (&parts[block], thread % shares);
            let work = Work::<K> { problem: p, sums_only: None, rows, parts, share };
            // SAFETY: the caller's promise; nobody else gets the same rows and columns.
            unsafe { work.run(b.clone()) };
        }
    });
}

fn pack_b_parallel<K: Kernel>(
    p: &Problem<K::Elem>,
    blocks: KBlocks,
    columns: &Range<usize>,
    packed_b: &SendPtr<K::Packed>,
) {
    // Several strips at a time, so that rows of B are read in runs of cache lines, but at least one share per thread.
    let strips = columns.len().div_ceil(K::NR) * blocks.count();
    let step = (strips / (2 * pool::num_threads())).clamp(1, 8) * K::NR;
    let parts = columns.len().div_ceil(step);
    pool::parallel_for(parts * blocks.count(), |t| {
        let start = columns.start + (t % parts) * step;
        let part = start..columns.end.min(start + step);
        let block = blocks.block(t / parts);
        // SAFETY: the caller of `parallel` vouches for B, the features and the room; tasks write disjoint strips.
        unsafe { K::enter(PackTask::<K>::within(p, block, columns, part, packed_b.get())) };
    });
}

/// Computes a product as `blocked` does. If C can hold partial sums, it loops over blocks of K: rows of one block stay
/// in the caches, and threads rebalance after each block.
///
/// # Safety
/// As for [`parallel`].
pub(super) unsafe fn by_blocks<K: Kernel>(p: &Problem<K::Elem>, blocked: unsafe fn(&Problem<K::Elem>)) {
    let blocks = KBlocks::new::<K>(p.k);
    // SAFETY: the caller's promise, for parts of A and B.
    unsafe {
        if !sums_fit_c::<K>(p) {
            return blocked(p);
        }
        for (k0, depth) in (0..blocks.count()).map(|block| blocks.block(block)) {
            blocked(&p.over(k0, depth));
        }
    }
}

/// C for an empty K: `act(beta · C + bias)`.
///
/// # Safety
/// C and bias are valid and the machine has the kernel's features.
pub(super) unsafe fn without_sums<K: Kernel>(p: &Problem<K::Elem>) {
    struct Rows<'a, K: Kernel>(&'a Problem<K::Elem>);
    impl<K: Kernel> Task for Rows<'_, K> {
        #[inline(always)]
        unsafe fn run(self) {
            for i in 0..self.0.m {
                for j in (0..self.0.n).step_by(64) {
                    let mut sums = [Acc::<K>::ZERO; 64];
                    // SAFETY: row and columns are inside C.
                    unsafe { self.0.finish_long_row::<K>(i, j, &mut sums[..64.min(self.0.n - j)]) };
                }
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { K::enter(Rows::<K>(p)) }
}

/// Transposes the problem if that is faster. Kernels write rows of C, so its columns should have unit stride. A single
/// strip of rows times a matrix that is contiguous along K is computed transposed, so that the matrix is not packed.
pub(super) fn oriented<K: Kernel>(p: Problem<K::Elem>) -> Problem<K::Elem> {
    let Matrix { row_stride, col_stride, .. } = p.c;
    let turned = p.transposed();
    if col_stride != 1 && row_stride == 1 {
        return turned;
    }
    let a_strip = K::Elem::IS_ACC && (K::NR / 2..=K::NR).contains(&p.m) && p.n >= 4 * p.m;
    if a_strip && K::reads_in_place(&turned.a, turned.n, turned.k) { turned } else { p }
}
