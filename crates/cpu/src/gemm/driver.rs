//! The blocked product: B is packed once for all, each task packs its rows of A and walks tiles.
//!
//! Every element of C is the sum over the same blocks of K in the same order, however rows and columns are shared out, so
//! results do not depend on the number of threads.

use super::buffer::{Use, with_buffer};
use super::kernel::{Acc, Kernel, Left, Strip, Target, Task};
use super::problem::{Matrix, Problem};
use super::scalar::{Accumulator, Scalar};
use crate::pool;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Packed B is kept below this many bytes by working on a part of the columns at a time.
const PACKED_B_BYTES: usize = 24 << 20;
/// Packed A of this many bytes stays in the second-level cache beside what streams past it.
const PACKED_A_BYTES: usize = 5 << 18;
/// About how many columns a task finishes before it goes on: their strips stay in the second-level cache.
const COLUMNS_AT_ONCE: usize = 512;
/// The same when several blocks of K follow each other: the sums between them stay in that cache too.
const COLUMNS_WITH_SUMS: usize = 256;

/// The same, in whole strips.
fn columns_at_once<K: Kernel>(blocks: KBlocks) -> usize {
    (if blocks.count() == 1 { COLUMNS_AT_ONCE } else { COLUMNS_WITH_SUMS }).next_multiple_of(K::NR)
}
/// How many columns a task takes at a time when it packs them itself: their packed strips stay in that cache too.
const COLUMNS_ON_THE_WAY: usize = 256;
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
#[derive(Clone)]
enum Packed<P> {
    /// Packed before, for these columns: block after block of K, strip after strip.
    Shared { ptr: *const P, columns: Range<usize> },
    /// Each task packs the columns it has taken, a block of K at a time, into this room.
    OnTheWay(*mut P),
}

/// Columns shared out evenly among tasks; one that has done its own share helps with the others'.
///
/// Shares are the same in every call of the same shape: a thread finds in its cache what it wrote the last time.
struct Parts {
    /// The next column of each share.
    next: SmallVec<[AtomicUsize; 8]>,
    columns: Range<usize>,
    share: usize,
    /// How many columns are taken at a time.
    step: usize,
}

impl Parts {
    fn new(columns: Range<usize>, share: usize, step: usize) -> Self {
        let (share, step) = (share.max(1), step.max(1));
        let next = columns.clone().step_by(share).map(AtomicUsize::new).collect();
        Parts { next, columns, share, step }
    }
    fn whole(columns: Range<usize>) -> Self {
        let len = columns.len();
        Parts::new(columns, len, len)
    }
    fn all_taken(&self) -> bool {
        self.next.iter().enumerate().all(|(share, next)| next.load(Relaxed) >= self.end(share))
    }
    fn end(&self, share: usize) -> usize {
        self.columns.end.min(self.columns.start + (share + 1) * self.share)
    }
    /// The next columns for the task whose own share is `mine`.
    fn take(&self, mine: usize) -> Option<Range<usize>> {
        let shares = self.next.len();
        (0..shares).map(|i| (mine + i) % shares).find_map(|share| {
            let end = self.end(share);
            let start = self.next[share].fetch_add(self.step, Relaxed);
            (start < end).then(|| start..end.min(start + self.step))
        })
    }
}

/// Computes rows of C on one thread, for the columns it gets hold of.
struct BlockTask<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    /// Where the sums of the whole of K go when not to the problem's C: scaled by nothing, no epilogue.
    sums_only: Option<*mut Acc<K>>,
    rows: Range<usize>,
    parts: &'a Parts,
    share: usize,
    b: Packed<K::Packed>,
    packed_a: *mut K::Packed,
    sums: *mut Acc<K>,
}

impl<K: Kernel> BlockTask<'_, K> {
    /// How many rows, from the first on, the kernel reads where they lie.
    #[inline(always)]
    fn rows_in_place(&self) -> usize {
        let a = self.problem.a;
        let row_bytes = (a.row_stride * size_of::<K::Elem>() as isize) as usize;
        let aligned = (a.ptr as usize | row_bytes).is_multiple_of(64);
        // At such distances all rows would share a few sets of the first-level cache.
        let crowded = row_bytes.is_multiple_of(2048);
        let whole = self.problem.k.is_multiple_of(K::K_UNIT);
        let suits = K::A_IN_PLACE && a.col_stride == 1 && aligned && whole && !crowded;
        if suits { self.rows.len() / K::MR * K::MR } else { 0 }
    }

    /// Packs this task's rows of A from `first` on over the whole of K.
    ///
    /// # Safety
    /// A is readable, and `packed_a` has room for the padded rows over the padded K.
    #[inline(always)]
    unsafe fn pack_rows(&self, first: usize, blocks: KBlocks) {
        let p = self.problem;
        let height = self.rows.len().next_multiple_of(K::MR);
        for block in 0..blocks.count() {
            let (k0, depth) = blocks.block(block);
            let padded = depth.next_multiple_of(K::K_UNIT);
            for i in (self.rows.start + first..self.rows.end).step_by(K::MR) {
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

    /// What remains to be done for a tile whose sums are complete.
    ///
    /// # Safety
    /// The tile lies inside C and at `sums`.
    #[inline(always)]
    unsafe fn finish(&self, i: usize, j: usize, rows: usize, cols: usize, sums: Target<Acc<K>>, in_c: bool) {
        let p = self.problem;
        if in_c && (self.sums_only.is_some() || !p.has_epilogue()) {
            return;
        }
        for r in 0..rows {
            // SAFETY: r is a row of the tile.
            unsafe {
                let row = std::slice::from_raw_parts_mut(sums.ptr.offset(r as isize * sums.stride), cols);
                match self.sums_only {
                    _ if in_c => p.bias_and_activation(i + r, j, row),
                    Some(out) => out.add((i + r) * p.n + j).copy_from_nonoverlapping(row.as_ptr(), cols),
                    None => p.finish_row::<K>(i + r, j, row),
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
        let in_place = self.rows_in_place();
        // C can take partial sums itself when it has their type and its columns are adjacent.
        let sums_in_c = match self.sums_only {
            Some(ptr) => Some((ptr, p.n as isize)),
            None if K::Elem::IS_ACC && p.c.col_stride == 1 => Some((p.c.ptr.cast::<Acc<K>>(), p.c.row_stride)),
            None => None,
        }
        .filter(|_| !K::WHOLE_TILES);
        let mut packed = false;
        while let Some(columns) = self.parts.take(self.share) {
            if !packed {
                // SAFETY: the buffer was sized by `with_task_buffers`.
                unsafe { self.pack_rows(in_place, blocks) };
                packed = true;
            }
            let steps = (0..columns.len()).step_by(columns_at_once::<K>(blocks));
            for (j0, block) in steps.flat_map(|j| (0..blocks.count()).map(move |block| (columns.start + j, block))) {
                let j1 = columns.end.min(j0 + columns_at_once::<K>(blocks));
                let (k0, depth) = blocks.block(block);
                let padded = depth.next_multiple_of(K::K_UNIT);
                let last = block + 1 == blocks.count();
                // The first of the strips from j0 on, for this block of K.
                // SAFETY: the packed columns hold these; the room was sized for as many as are taken at a time.
                let strips = unsafe {
                    match &self.b {
                        Packed::Shared { ptr, columns } => {
                            let width = columns.len().next_multiple_of(K::NR);
                            ptr.add(k0 * width + (j0 - columns.start) * padded)
                        }
                        &Packed::OnTheWay(room) => {
                            pack_columns::<K>(p, (k0, depth), j0..j1, room);
                            room.cast_const()
                        }
                    }
                };
                let (down, across) = (height / K::MR, (j1 - j0).div_ceil(K::NR));
                let (outer, inner) = if K::ALONG_ROWS { (down, across) } else { (across, down) };
                // Every tile asks for its share of what comes next of shared B: the next strip, or along rows the next block.
                let strip_bytes = K::NR * padded * size_of::<K::Packed>();
                let ahead_step = strip_bytes / down;
                let ahead = match &self.b {
                    Packed::OnTheWay(_) => strips,
                    Packed::Shared { .. } if !K::ALONG_ROWS => strips.wrapping_add(K::NR * padded),
                    Packed::Shared { columns, .. } if last => strips
                        .wrapping_sub(k0 * columns.len().next_multiple_of(K::NR))
                        .wrapping_add(across * K::NR * padded),
                    Packed::Shared { columns, .. } => {
                        strips.wrapping_add(depth * columns.len().next_multiple_of(K::NR))
                    }
                }
                .cast::<u8>();
                for x in 0..outer {
                    for y in 0..inner {
                        let (row, column) = if K::ALONG_ROWS { (x * K::MR, y * K::NR) } else { (y * K::MR, x * K::NR) };
                        let (i, j) = (self.rows.start + row, j0 + column);
                        let (rows, cols) = (K::MR.min(self.rows.end - i), K::NR.min(j1 - j));
                        // SAFETY: strips and tiles are inside A, the packed buffers, the sums and C, as sized by the callers.
                        unsafe {
                            let a = if row < in_place {
                                let ptr = p.a.ptr.offset(i as isize * p.a.row_stride).add(k0);
                                Left { ptr: ptr.cast(), row_stride: Some(p.a.row_stride) }
                            } else {
                                Left { ptr: self.packed_a.add(k0 * height + row * padded), row_stride: None }
                            };
                            let mut target = match sums_in_c {
                                Some((c, stride)) => {
                                    let ptr = c.offset(i as isize * stride + j as isize);
                                    let (alpha, beta) = match self.sums_only {
                                        Some(_) => (Acc::<K>::ONE, Acc::<K>::ZERO),
                                        None => (p.alpha, p.beta),
                                    };
                                    Target { ptr, stride, alpha, beta }
                                }
                                None => {
                                    if last && self.sums_only.is_none() {
                                        p.prefetch_tile(i, j, rows, cols);
                                    }
                                    // Tiles that wait for the next block of K lie one after the other.
                                    let at = if blocks.count() == 1 { 0 } else { column * height + row * K::NR };
                                    let ptr = self.sums.add(at);
                                    Target { ptr, stride: K::NR as isize, alpha: Acc::<K>::ONE, beta: Acc::<K>::ZERO }
                                }
                            };
                            if block > 0 {
                                target.beta = Acc::<K>::ONE;
                            }
                            let ahead =
                                ahead.wrapping_add((if K::ALONG_ROWS { x * inner + y } else { y }) * ahead_step);
                            let ahead = if K::ALONG_ROWS { ahead } else { ahead.wrapping_add(x * strip_bytes) };
                            K::tile(depth, a, strips.add(column * padded), rows, cols, target, ahead);
                            if last {
                                self.finish(i, j, rows, cols, target, sums_in_c.is_some());
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Packs these columns of one block of K (its start and depth), strip after strip.
///
/// # Safety
/// The columns and the block are inside B, and `to` has room for the padded columns over the padded depth.
#[inline(always)]
unsafe fn pack_columns<K: Kernel>(
    p: &Problem<K::Elem>,
    (k0, depth): (usize, usize),
    columns: Range<usize>,
    to: *mut K::Packed,
) {
    let padded = depth.next_multiple_of(K::K_UNIT);
    // Where rows of B are contiguous, a few of them at a time: neighbouring strips share their pages and lines.
    let step = if p.b.col_stride == 1 { 64 } else { depth };
    for k in (0..depth).step_by(step) {
        for j in columns.clone().step_by(K::NR) {
            let row = (k0 + k) as isize;
            let strip = Strip {
                ptr: p.b.ptr.wrapping_offset(row * p.b.row_stride + j as isize * p.b.col_stride),
                lane_stride: p.b.col_stride,
                k_stride: p.b.row_stride,
                lanes: K::NR.min(columns.end - j),
                k: step.min(depth - k),
            };
            // SAFETY: the strip is inside B, and a packed strip is a sequence of units of k.
            unsafe { K::pack_b(strip, to.add((j - columns.start) * padded + k * K::NR)) };
        }
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
        // SAFETY: the part is inside B, and the buffer holds the padded columns over all of K.
        unsafe {
            let to = self.to.add(k0 * width + (self.part.start - self.columns.start) * padded);
            pack_columns::<K>(self.problem, self.block, self.part, to);
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
        _ => height * columns.min(columns_at_once::<K>(blocks)).next_multiple_of(K::NR),
    };
    with_buffer(Use::PackedA, height * blocks.padded::<K>() + SLACK, |a| with_buffer(Use::Sums, sums, |s| f(a, s)));
}

/// Everything a task needs besides packed B, for all of these columns.
struct Work<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    sums_only: Option<*mut Acc<K>>,
    rows: Range<usize>,
    parts: &'a Parts,
    share: usize,
}

impl<K: Kernel> Work<'_, K> {
    /// Does it on this thread; without packed B, strips are packed as they are needed.
    ///
    /// # Safety
    /// As for [`serial`], and `packed_b` holds what it says.
    unsafe fn run(self, packed_b: Option<Packed<K::Packed>>) {
        let Work { problem, sums_only, rows, parts, share } = self;
        if parts.all_taken() {
            return;
        }
        let room = if packed_b.is_none() {
            parts.step.next_multiple_of(K::NR) * KBlocks::new::<K>(problem.k).depth
        } else {
            0
        };
        with_task_buffers::<K>(problem, rows.len(), parts.step, |packed_a, sums| {
            with_buffer(Use::Columns, room + SLACK, |room| {
                let b = packed_b.unwrap_or(Packed::OnTheWay(room));
                // SAFETY: the caller's promise.
                unsafe { K::enter(BlockTask::<K> { problem, sums_only, rows, parts, share, b, packed_a, sums }) };
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
        let work = Work::<K> {
            problem: p,
            sums_only,
            rows: 0..p.m,
            parts: &Parts::new(0..p.n, p.n, COLUMNS_ON_THE_WAY),
            share: 0,
        };
        // SAFETY: the caller's promise.
        return unsafe { work.run(None) };
    }
    let blocks = KBlocks::new::<K>(p.k);
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
                let parts = Parts::whole(columns.clone());
                let b = Packed::Shared { ptr: packed_b.cast_const(), columns: columns.clone() };
                let rows = i0..p.m.min(i0 + K::MC);
                // SAFETY: the caller's promise.
                unsafe { Work::<K> { problem: p, sums_only, rows, parts: &parts, share: 0 }.run(Some(b)) };
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

/// How many columns of B are packed at a time.
fn columns_per_pack<K: Kernel>(p: &Problem<K::Elem>) -> usize {
    let strip_bytes = K::NR * p.k.next_multiple_of(K::K_UNIT) * size_of::<K::Packed>();
    let strips = (PACKED_B_BYTES / strip_bytes).max(COLUMNS_AT_ONCE / K::NR);
    (strips * K::NR).min(p.n.next_multiple_of(K::NR))
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
        return unsafe { serial_product::<K>(p) };
    }
    let blocks = KBlocks::new::<K>(p.k);
    let threads = pool::num_threads();
    // Where all of packed A stays in a thread's cache, every thread packs it for itself and packs the columns it takes:
    // cheaper than packing for each other, since a line another core has written comes slowly.
    let small = p.m.saturating_mul(blocks.padded::<K>()) <= PACKED_A_BYTES / size_of::<K::Packed>();
    if small && p.n >= 2 * K::NR * threads {
        // All threads pack the operand that costs less: rows are shared out when A would have to be transposed.
        let rows = if a_packs_fast::<K>(p) { p.m } else { p.m.div_ceil(threads) };
        // SAFETY: the caller's promise.
        return unsafe { share_out::<K>(p, rows.max(4 * K::MR), 0..p.n, None) };
    }
    let row_blocks = p.m.div_ceil(K::MC).next_multiple_of(threads).min(p.m.div_ceil(4 * K::MR));
    let width = columns_per_pack::<K>(p);
    with_buffer(Use::PackedB, width * blocks.padded::<K>() + SLACK, |packed_b| {
        let packed_b = Shared(packed_b);
        for j0 in (0..p.n).step_by(width) {
            let columns = j0..p.n.min(j0 + width);
            pack_b_parallel::<K>(p, blocks, &columns, &packed_b);
            // SAFETY: the caller's promise; these columns are packed.
            unsafe { share_out::<K>(p, p.m.div_ceil(row_blocks), columns, Some(packed_b.get())) };
        }
    });
}

/// Whether A is read where it lies or copied vector by vector.
fn a_packs_fast<K: Kernel>(p: &Problem<K::Elem>) -> bool {
    p.a.row_stride == 1 || (K::A_IN_PLACE && p.a.col_stride == 1)
}

/// Shares these columns of C out over the pool, in blocks of about `height` rows; unless they are packed, each task packs what
/// it needs.
///
/// # Safety
/// As for [`parallel`].
unsafe fn share_out<K: Kernel>(
    p: &Problem<K::Elem>,
    height: usize,
    columns: Range<usize>,
    packed_b: Option<*const K::Packed>,
) {
    let threads = pool::num_threads();
    // Only kernels of whole tiles lose by a block that ends inside one.
    let height = if K::WHOLE_TILES { height.next_multiple_of(K::MR) } else { height };
    let row_blocks = p.m.div_ceil(height);
    let shares = threads.div_ceil(row_blocks);
    let share = columns.len().div_ceil(shares).next_multiple_of(K::NR);
    let most = if packed_b.is_some() { columns_at_once::<K>(KBlocks::new::<K>(p.k)) } else { COLUMNS_ON_THE_WAY };
    let step = share.div_ceil(4).next_multiple_of(K::NR).clamp(2 * K::NR, most);
    let parts: SmallVec<[Parts; 8]> = (0..row_blocks).map(|_| Parts::new(columns.clone(), share, step)).collect();
    let packed_b = packed_b.map(|ptr| Shared(ptr.cast_mut()));
    pool::parallel_for(threads, |thread| {
        // Every thread has blocks to begin with, and then goes through the others for what is left of them.
        for block in (0..row_blocks).map(|i| (thread * row_blocks / threads + i) % row_blocks) {
            let rows = block * height..p.m.min((block + 1) * height);
            let work = Work::<K> { problem: p, sums_only: None, rows, parts: &parts[block], share: thread % shares };
            let b = packed_b.as_ref().map(|b| Packed::Shared { ptr: b.get().cast_const(), columns: columns.clone() });
            // SAFETY: the caller's promise; nobody else gets the same rows and columns.
            unsafe { work.run(b) };
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
