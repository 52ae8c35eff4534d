//! The blocked product: B is packed once for all, each task packs its rows of A and walks tiles.
//!
//! Every element of C is the sum over the same blocks of K in the same order, however rows and columns are shared out, so
//! results do not depend on the number of threads.

use super::buffer::{Use, with_buffer};
use super::kernel::{Acc, Kernel, Strip, Target, Task};
use super::problem::{Matrix, Problem};
use super::scalar::{Accumulator, Scalar};
use crate::pool;
use std::ops::Range;

/// Packed B is kept below this many bytes by working on a part of the columns at a time.
const PACKED_B_BYTES: usize = 24 << 20;
/// About how many columns a task finishes over the whole of K before it goes on: their sums stay in the second-level cache.
const COLUMNS_AT_ONCE: usize = 512;

/// The same, in whole strips.
const fn columns_at_once<K: Kernel>() -> usize {
    COLUMNS_AT_ONCE.next_multiple_of(K::NR)
}
/// Shorter tasks cost more to hand out than they bring.
const TASK_MICROSECONDS: usize = 4;

/// K cut into equal blocks by its size alone.
#[derive(Clone, Copy)]
struct KBlocks {
    k: usize,
    depth: usize,
}

impl KBlocks {
    fn new<K: Kernel>(k: usize) -> Self {
        let count = k.div_ceil(K::KC).max(1);
        KBlocks { k, depth: k.div_ceil(count).next_multiple_of(K::K_UNIT).max(K::K_UNIT) }
    }
    fn count(self) -> usize {
        self.k.div_ceil(self.depth)
    }
    /// The start and the depth of a block.
    #[inline(always)]
    fn block(self, index: usize) -> (usize, usize) {
        let start = index * self.depth;
        (start, self.depth.min(self.k - start))
    }
    /// K as it is stored packed.
    fn padded<K: Kernel>(self) -> usize {
        self.k.next_multiple_of(K::K_UNIT)
    }
}

/// Where tiles of B come from.
enum Packed<P> {
    /// Packed before, for these columns: block after block of K, strip after strip.
    Shared { ptr: *const P, columns: Range<usize> },
    /// Each task packs the strip it needs next, into this room for one.
    OnTheWay(*mut P),
}

/// Computes a block of C on one thread.
struct BlockTask<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    /// Where the sums of the whole of K go when not to the problem's C: scaled by nothing, no epilogue.
    sums_only: Option<*mut Acc<K>>,
    rows: Range<usize>,
    columns: Range<usize>,
    b: Packed<K::Packed>,
    packed_a: *mut K::Packed,
    sums: *mut Acc<K>,
}

impl<K: Kernel> BlockTask<'_, K> {
    /// What the `index`th tile with a strip of B should fetch: a part of the strip that comes next.
    #[inline(always)]
    fn ahead(&self, b: *const K::Packed, padded: usize, index: usize) -> *const u8 {
        let strip = K::NR * padded * size_of::<K::Packed>();
        let done = index * padded * K::AHEAD_PER_K;
        let fetch = matches!(self.b, Packed::Shared { .. }) && done < strip;
        b.cast::<u8>().wrapping_add(if fetch { strip + done } else { 0 })
    }

    /// Packs this task's rows of A over the whole of K.
    ///
    /// # Safety
    /// A is readable, and `packed_a` has room for the padded rows over the padded K.
    #[inline(always)]
    unsafe fn pack_rows(&self, blocks: KBlocks) {
        let p = self.problem;
        let height = self.rows.len().next_multiple_of(K::MR);
        for block in 0..blocks.count() {
            let (k0, depth) = blocks.block(block);
            let padded = depth.next_multiple_of(K::K_UNIT);
            for i in self.rows.clone().step_by(K::MR) {
                // SAFETY: rows and k are inside A; the buffer holds all rows over all of K.
                unsafe {
                    let strip = Strip {
                        ptr: p.a.ptr.offset(i as isize * p.a.row_stride + k0 as isize * p.a.col_stride),
                        lane_stride: p.a.row_stride,
                        k_stride: p.a.col_stride,
                        lanes: K::MR.min(self.rows.end - i),
                        k: depth,
                    };
                    K::pack_a(strip, self.packed_a.add(k0 * height + (i - self.rows.start) * padded));
                }
            }
        }
    }
}

impl<K: Kernel> Task for BlockTask<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = self.problem;
        let blocks = KBlocks::new::<K>(p.k);
        let height = self.rows.len().next_multiple_of(K::MR);
        // SAFETY: the buffer was sized by `with_task_buffers`.
        unsafe { self.pack_rows(blocks) };
        // C can take partial sums itself when it has their type and its columns are adjacent.
        let in_place = match self.sums_only {
            Some(ptr) => Some((ptr, p.n as isize)),
            None if K::Elem::IS_ACC && p.c.col_stride == 1 => Some((p.c.ptr.cast::<Acc<K>>(), p.c.row_stride)),
            None => None,
        }
        .filter(|_| !K::WHOLE_TILES);
        for j0 in self.columns.clone().step_by(columns_at_once::<K>()) {
            let j1 = self.columns.end.min(j0 + columns_at_once::<K>());
            let sums_stride = if blocks.count() == 1 { K::NR } else { (j1 - j0).next_multiple_of(K::NR) };
            for block in 0..blocks.count() {
                let (k0, depth) = blocks.block(block);
                let padded = depth.next_multiple_of(K::K_UNIT);
                let last = block + 1 == blocks.count();
                for j in (j0..j1).step_by(K::NR) {
                    let cols = K::NR.min(j1 - j);
                    // SAFETY: strips and tiles are inside the packed buffers, the sums and C, as sized by the callers.
                    unsafe {
                        let b = match &self.b {
                            Packed::Shared { ptr, columns } => {
                                let width = columns.len().next_multiple_of(K::NR);
                                ptr.add(k0 * width + (j - columns.start) * padded)
                            }
                            Packed::OnTheWay(room) => {
                                K::pack_b(b_strip::<K>(p, k0, depth, j, cols), *room);
                                room.cast_const()
                            }
                        };
                        for i in self.rows.clone().step_by(K::MR) {
                            let rows = K::MR.min(self.rows.end - i);
                            let a = self.packed_a.add(k0 * height + (i - self.rows.start) * padded);
                            let ahead = self.ahead(b, padded, (i - self.rows.start) / K::MR);
                            match in_place {
                                Some((c, stride)) => {
                                    let ptr = c.offset(i as isize * stride + j as isize);
                                    let plain = self.sums_only.is_some();
                                    let alpha = if plain { Acc::<K>::ONE } else { p.alpha };
                                    let first_beta = if plain { Acc::<K>::ZERO } else { p.beta };
                                    let beta = if block == 0 { first_beta } else { Acc::<K>::ONE };
                                    K::tile(depth, a, b, rows, cols, Target { ptr, stride, alpha, beta }, ahead);
                                    if last && !plain && p.has_epilogue() {
                                        for r in 0..rows {
                                            let row = ptr.offset(r as isize * stride);
                                            let row = std::slice::from_raw_parts_mut(row, cols);
                                            p.bias_and_activation(i + r, j, row);
                                        }
                                    }
                                }
                                None => {
                                    let at = if blocks.count() == 1 {
                                        0
                                    } else {
                                        (i - self.rows.start) * sums_stride + (j - j0)
                                    };
                                    let ptr = self.sums.add(at);
                                    let beta = if block == 0 { Acc::<K>::ZERO } else { Acc::<K>::ONE };
                                    let target =
                                        Target { ptr, stride: sums_stride as isize, alpha: Acc::<K>::ONE, beta };
                                    if last && self.sums_only.is_none() {
                                        p.prefetch_tile(i, j, rows, cols);
                                    }
                                    K::tile(depth, a, b, rows, cols, target, ahead);
                                    if last {
                                        for r in 0..rows {
                                            let row = std::slice::from_raw_parts_mut(ptr.add(r * sums_stride), cols);
                                            match self.sums_only {
                                                Some(out) => out
                                                    .add((i + r) * p.n + j)
                                                    .copy_from_nonoverlapping(row.as_ptr(), cols),
                                                None => p.finish_row::<K>(i + r, j, row),
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn b_strip<K: Kernel>(p: &Problem<K::Elem>, k0: usize, depth: usize, j: usize, cols: usize) -> Strip<K::Elem> {
    Strip {
        ptr: p.b.ptr.wrapping_offset(k0 as isize * p.b.row_stride + j as isize * p.b.col_stride),
        lane_stride: p.b.col_stride,
        k_stride: p.b.row_stride,
        lanes: cols,
        k: depth,
    }
}

/// Packs some strips of one block of K of B.
struct PackTask<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    block: (usize, usize),
    /// The columns packed in all, and those of this task.
    columns: Range<usize>,
    part: Range<usize>,
    to: *mut K::Packed,
}

impl<K: Kernel> Task for PackTask<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let (k0, depth) = self.block;
        let padded = depth.next_multiple_of(K::K_UNIT);
        let width = self.columns.len().next_multiple_of(K::NR);
        // Where rows of B are contiguous, a few of them at a time: neighbouring strips share their pages and lines.
        let step = if self.problem.b.col_stride == 1 { 64 } else { depth };
        for k in (0..depth).step_by(step) {
            for j in self.part.clone().step_by(K::NR) {
                let cols = K::NR.min(self.part.end - j);
                // SAFETY: the strip is inside B, the buffer holds the padded columns over all of K, and a packed strip is a
                // sequence of units of k.
                unsafe {
                    let to = self.to.add(k0 * width + (j - self.columns.start) * padded + k * K::NR);
                    K::pack_b(b_strip::<K>(self.problem, k0 + k, step.min(depth - k), j, cols), to);
                }
            }
        }
    }
}

/// Room beyond a packed strip that packing may overwrite, in elements.
const SLACK: usize = 64;

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
        0 | 1 => K::MR * K::NR,
        _ if K::Elem::IS_ACC && p.c.col_stride == 1 && !K::WHOLE_TILES => 0,
        _ => height * columns.min(columns_at_once::<K>()).next_multiple_of(K::NR),
    };
    with_buffer(Use::PackedA, height * blocks.padded::<K>() + SLACK, |a| with_buffer(Use::Sums, sums, |s| f(a, s)));
}

/// A product on the calling thread.
///
/// # Safety
/// The pointers of the problem are valid and the machine has the kernel's features. k is not 0.
pub(super) unsafe fn serial<K: Kernel>(p: &Problem<K::Elem>, sums_only: Option<*mut Acc<K>>) {
    let blocks = KBlocks::new::<K>(p.k);
    with_task_buffers::<K>(p, p.m.min(K::MC), p.n, |packed_a, sums| {
        let block_task = |rows, columns, b| BlockTask::<K> { problem: p, sums_only, rows, columns, b, packed_a, sums };
        if p.m <= K::MC {
            with_buffer(Use::PackedB, K::NR * blocks.depth + SLACK, |room| {
                // SAFETY: the caller's promise.
                unsafe { K::enter(block_task(0..p.m, 0..p.n, Packed::OnTheWay(room))) };
            });
            return;
        }
        let width = columns_per_pack::<K>(p);
        with_buffer(Use::PackedB, width * blocks.padded::<K>() + SLACK, |packed_b| {
            for j0 in (0..p.n).step_by(width) {
                let columns = j0..p.n.min(j0 + width);
                for block in 0..blocks.count() {
                    let block = blocks.block(block);
                    let (columns, part) = (columns.clone(), columns.clone());
                    // SAFETY: the caller's promise.
                    unsafe { K::enter(PackTask::<K> { problem: p, block, columns, part, to: packed_b }) };
                }
                for i0 in (0..p.m).step_by(K::MC) {
                    let b = Packed::Shared { ptr: packed_b.cast_const(), columns: columns.clone() };
                    // SAFETY: the caller's promise.
                    unsafe { K::enter(block_task(i0..p.m.min(i0 + K::MC), columns.clone(), b)) };
                }
            }
        });
    });
}

/// How many columns of B are packed at a time.
fn columns_per_pack<K: Kernel>(p: &Problem<K::Elem>) -> usize {
    let strip_bytes = K::NR * p.k.next_multiple_of(K::K_UNIT) * size_of::<K::Packed>();
    let strips = (PACKED_B_BYTES / strip_bytes).max(columns_at_once::<K>() / K::NR);
    (strips * K::NR).min(p.n.next_multiple_of(K::NR))
}

/// How one product is shared out.
struct Grid {
    row_step: usize,
    column_step: usize,
}

impl Grid {
    /// Cuts `m × columns` into enough blocks to keep all threads busy to the end.
    fn new<K: Kernel>(p: &Problem<K::Elem>, columns: usize) -> Self {
        let threads = pool::num_threads();
        let work = p.m * columns * p.k;
        let wanted = (work / task_work::<K>()).clamp(1, 4 * threads);
        let row_parts = wanted.min(p.m.div_ceil(4 * K::MR)).max(p.m.div_ceil(K::MC));
        let row_step = p.m.div_ceil(row_parts).next_multiple_of(K::MR);
        let row_parts = p.m.div_ceil(row_step);
        let column_parts = wanted.div_ceil(row_parts).min(columns.div_ceil(2 * K::NR)).max(1);
        let column_step = columns.div_ceil(column_parts).next_multiple_of(K::NR);
        Grid { row_step, column_step }
    }
}

/// A pointer that tasks on other threads may use.
pub(super) struct Shared<P>(pub *mut P);
// SAFETY: tasks write disjoint parts, and the pool's return orders them before later reads.
unsafe impl<P> Sync for Shared<P> {}

impl<P> Shared<P> {
    pub(super) fn get(&self) -> *mut P {
        self.0
    }
}

/// Multiply-adds of a product worth handing to another thread.
pub(super) fn task_work<K: Kernel>() -> usize {
    TASK_MICROSECONDS * K::RATE
}

/// One product over the whole pool.
///
/// # Safety
/// The pointers of the problem are valid and the machine has the kernel's features. k is not 0.
pub(super) unsafe fn parallel<K: Kernel>(p: &Problem<K::Elem>) {
    if pool::num_threads() == 1 || p.m * p.n * p.k < 2 * task_work::<K>() {
        // SAFETY: the caller's promise.
        return unsafe { serial::<K>(p, None) };
    }
    let blocks = KBlocks::new::<K>(p.k);
    // With one block of rows each strip of B serves one task: packed there, it never leaves the cache.
    if p.m <= K::MC && p.n >= 2 * K::NR {
        let grid = Grid::new::<K>(p, p.n);
        if grid.row_step >= p.m {
            pool::parallel_for(p.n.div_ceil(grid.column_step), |t| {
                let columns = t * grid.column_step..p.n.min((t + 1) * grid.column_step);
                with_task_buffers::<K>(p, p.m, columns.len(), |packed_a, sums| {
                    with_buffer(Use::PackedB, K::NR * blocks.depth + SLACK, |room| {
                        let (rows, b) = (0..p.m, Packed::OnTheWay(room));
                        let task = BlockTask::<K> { problem: p, sums_only: None, rows, columns, b, packed_a, sums };
                        // SAFETY: the caller's promise; tasks write disjoint columns.
                        unsafe { K::enter(task) };
                    })
                });
            });
            return;
        }
    }
    let width = columns_per_pack::<K>(p);
    with_buffer(Use::PackedB, width * blocks.padded::<K>() + SLACK, |packed_b| {
        let packed_b = Shared(packed_b);
        for j0 in (0..p.n).step_by(width) {
            let columns = j0..p.n.min(j0 + width);
            pack_b_parallel::<K>(p, blocks, &columns, &packed_b);
            let grid = Grid::new::<K>(p, columns.len());
            let column_parts = columns.len().div_ceil(grid.column_step);
            pool::parallel_for(p.m.div_ceil(grid.row_step) * column_parts, |t| {
                let (ti, tj) = (t / column_parts, t % column_parts);
                let rows = ti * grid.row_step..p.m.min((ti + 1) * grid.row_step);
                let start = columns.start + tj * grid.column_step;
                let part = start..columns.end.min(start + grid.column_step);
                with_task_buffers::<K>(p, rows.len(), part.len(), |packed_a, sums| {
                    let b = Packed::Shared { ptr: packed_b.get().cast_const(), columns: columns.clone() };
                    let task = BlockTask::<K> { problem: p, sums_only: None, rows, columns: part, b, packed_a, sums };
                    // SAFETY: the caller's promise; tasks write disjoint blocks of C.
                    unsafe { K::enter(task) };
                });
            });
        }
    });
}

fn pack_b_parallel<K: Kernel>(
    p: &Problem<K::Elem>,
    blocks: KBlocks,
    columns: &Range<usize>,
    packed_b: &Shared<K::Packed>,
) {
    // Several strips at a time, so that rows of B are read in runs of cache lines, but a share for every thread.
    let strips = columns.len().div_ceil(K::NR) * blocks.count();
    let step = (strips / (2 * pool::num_threads())).clamp(1, 8) * K::NR;
    let parts = columns.len().div_ceil(step);
    pool::parallel_for(parts * blocks.count(), |t| {
        let start = columns.start + (t % parts) * step;
        let part = start..columns.end.min(start + step);
        let block = blocks.block(t / parts);
        let task = PackTask::<K> { problem: p, block, columns: columns.clone(), part, to: packed_b.get() };
        // SAFETY: the caller of `parallel` vouches for B and the features; tasks write disjoint strips.
        unsafe { K::enter(task) };
    });
}

/// K is cut into pieces of at least this many when the result is too small to share out.
const PIECE: usize = 4096;
/// And into at most this many pieces.
const PIECES: usize = 128;

/// Whether the product is a long sum into a small result.
pub(super) fn is_long_and_thin<K: Kernel>(p: &Problem<K::Elem>) -> bool {
    p.k >= 4 * PIECE && p.m.div_ceil(K::MR) * p.n.div_ceil(K::NR) <= 64
}

/// A product with small C and large K: pieces of K in parallel, then their sums in order.
///
/// # Safety
/// The pointers of the problem are valid and the machine has the kernel's features.
pub(super) unsafe fn over_k<K: Kernel>(p: &Problem<K::Elem>) {
    let depth = p.k.div_ceil(PIECES).max(PIECE);
    let pieces = p.k.div_ceil(depth);
    let size = p.m * p.n;
    with_buffer(Use::Partials, pieces * size, |partials: *mut Acc<K>| {
        let partials = Shared(partials);
        pool::parallel_for(pieces, |t| {
            let k0 = t * depth;
            let mut piece = *p;
            piece.k = depth.min(p.k - k0);
            piece.a.ptr = p.a.ptr.wrapping_offset(k0 as isize * p.a.col_stride);
            piece.b.ptr = p.b.ptr.wrapping_offset(k0 as isize * p.b.row_stride);
            // SAFETY: the piece is inside A and B, and each writes its own sums.
            unsafe { serial::<K>(&piece, Some(partials.get().add(t * size))) };
        });
        let rows = SumRows::<K> { problem: p, partials: partials.get(), pieces };
        // SAFETY: all partial sums are written.
        unsafe { K::enter(rows) };
    });
}

/// Adds the partial sums of `over_k` and finishes C.
struct SumRows<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    partials: *mut Acc<K>,
    pieces: usize,
}

impl<K: Kernel> Task for SumRows<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = self.problem;
        for i in 0..p.m {
            // SAFETY: every piece has m × n sums.
            unsafe {
                let total = std::slice::from_raw_parts_mut(self.partials.add(i * p.n), p.n);
                for piece in 1..self.pieces {
                    let more = std::slice::from_raw_parts(self.partials.add((piece * p.m + i) * p.n), p.n);
                    total.iter_mut().zip(more).for_each(|(t, v)| *t = t.plus(*v));
                }
                p.finish_row::<K>(i, 0, total);
            }
        }
    }
}

/// C when there is nothing to sum: `act(beta · C + bias)`.
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
                    unsafe { self.0.finish_row::<K>(i, j, &mut sums[..64.min(self.0.n - j)]) };
                }
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { K::enter(Rows::<K>(p)) }
}

/// Unit column strides let kernels write rows of C: turns the product over when only its rows are contiguous.
pub(super) fn oriented<T: Scalar>(p: Problem<T>) -> Problem<T> {
    let Matrix { row_stride, col_stride, .. } = p.c;
    if col_stride != 1 && row_stride == 1 { p.transposed() } else { p }
}
