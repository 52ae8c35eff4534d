//! Tasks of the blocked product: pack strips and loop over tiles.

use super::Activation;
use super::kernel::{Acc, Kernel, Left, Strip, Target, Task};
use super::problem::{Matrix, Problem};
use super::scalar::{Accumulator, Scalar};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Approximate number of columns that a task finishes at a time, so that their strips stay in the L2 cache.
pub(super) const COLUMNS_AT_ONCE: usize = 512;
/// The same if there are several blocks of K: the sums between them stay in the L2 cache too.
const COLUMNS_WITH_SUMS: usize = 256;

/// The same in whole strips.
pub(super) fn columns_at_once<K: Kernel>(blocks: KBlocks) -> usize {
    (if blocks.count() == 1 { COLUMNS_AT_ONCE } else { COLUMNS_WITH_SUMS }).next_multiple_of(K::NR)
}

/// Bytes of columns that a task packs at a time, which leaves room in the L2 cache for its rows.
const ON_THE_WAY_BYTES: usize = 192 << 10;

/// How many columns a task packs at a time, in whole strips: more for rows of tiles, and where a row of B is read as
/// one.
pub(super) fn columns_on_the_way<K: Kernel>(p: &Problem<K::Elem>, blocks: KBlocks) -> usize {
    let bytes = if p.b.col_stride == 1 { 2 * ON_THE_WAY_BYTES } else { ON_THE_WAY_BYTES };
    let strips = bytes / (K::NR * blocks.depth * size_of::<K::Packed>());
    let most = COLUMNS_WITH_SUMS.div_ceil(K::NR);
    K::NR * if K::ALONG_ROWS { most } else { strips.clamp(2, most) }
}

/// K split into equal blocks, by its size alone.
#[derive(Clone, Copy)]
pub(super) struct KBlocks {
    pub k: usize,
    pub depth: usize,
}

impl KBlocks {
    pub fn new<K: Kernel>(k: usize) -> Self {
        let count = k.div_ceil(K::KC).max(1);
        KBlocks { k, depth: k.div_ceil(count).next_multiple_of(K::K_UNIT).max(K::K_UNIT) }
    }
    pub fn count(self) -> usize {
        self.k.div_ceil(self.depth)
    }
    /// The start and the depth of a block.
    #[inline(always)]
    pub fn block(self, index: usize) -> (usize, usize) {
        let start = index * self.depth;
        (start, self.depth.min(self.k - start))
    }
    /// The padded K of the packed form.
    pub fn padded<K: Kernel>(self) -> usize {
        self.k.next_multiple_of(K::K_UNIT)
    }
}

/// Source of B's tiles.
#[derive(Clone)]
pub(super) enum Source<P> {
    /// Packed before, for these columns: block by block of K, strip by strip.
    Packed { ptr: *const P, columns: Range<usize> },
    /// Each task packs the columns it has taken, one block of K at a time.
    OnTheWay,
}

// SAFETY: packed data is only read.
unsafe impl<P> Sync for Source<P> {}

/// Columns split evenly among tasks; a task that has finished its own share takes columns of the others'.
///
/// Shares are the same in every call with the same shape, so a thread finds its last output in its cache. Aligned to
/// avoid false sharing.
#[repr(align(128))]
pub(super) struct Parts {
    /// The next column of each share.
    pub next: SmallVec<[AtomicUsize; 8]>,
    pub columns: Range<usize>,
    pub share: usize,
    /// Number of columns taken at a time.
    pub step: usize,
}

impl Parts {
    pub fn new(columns: Range<usize>, share: usize, step: usize) -> Self {
        let (share, step) = (share.max(1), step.max(1));
        let next = columns.clone().step_by(share).map(AtomicUsize::new).collect();
        Parts { next, columns, share, step }
    }
    pub fn whole(columns: Range<usize>) -> Self {
        let len = columns.len();
        Parts::new(columns, len, len)
    }
    pub fn all_taken(&self) -> bool {
        self.next.iter().enumerate().all(|(share, next)| next.load(Relaxed) >= self.end(share))
    }
    fn end(&self, share: usize) -> usize {
        self.columns.end.min(self.columns.start + (share + 1) * self.share)
    }
    /// The next columns for the task with share `mine`.
    pub fn take(&self, mine: usize) -> Option<Range<usize>> {
        let shares = self.next.len();
        (0..shares).map(|i| (mine + i) % shares).find_map(|share| {
            let end = self.end(share);
            let start = self.next[share].fetch_add(self.step, Relaxed);
            (start < end).then(|| start..end.min(start + self.step))
        })
    }
}

/// Whether C can hold partial sums: it has the accumulator type and adjacent columns.
#[inline(always)]
pub(super) fn sums_fit_c<K: Kernel>(p: &Problem<K::Elem>) -> bool {
    K::Elem::IS_ACC && p.c.col_stride == 1 && !K::WHOLE_TILES
}

/// Maximum elements of NR rows of a strip, which are transposed at a time.
const SQUARE: usize = 1024;
/// Elements of C that are finished in one vector.
const RUN: usize = 16;

/// Whether a task collects the sums of a strip for all of its rows and writes C column by column: C is contiguous along
/// columns only.
#[inline(always)]
pub(super) fn writes_columns<K: Kernel>(p: &Problem<K::Elem>) -> bool {
    let transposed = p.c.row_stride == 1 && p.c.col_stride != 1;
    transposed && K::Elem::IS_ACC && !K::WHOLE_TILES && !K::ALONG_ROWS && K::K_UNIT == 1 && K::NR * K::NR <= SQUARE
}

/// Computes rows of C on one thread, for the columns that it takes.
pub(super) struct BlockTask<'a, K: Kernel> {
    pub problem: &'a Problem<K::Elem>,
    /// Destination of the sums over all of K if not the problem's C: not scaled, no epilogue.
    pub sums_only: Option<*mut Acc<K>>,
    pub rows: Range<usize>,
    pub parts: &'a Parts,
    pub share: usize,
    pub b: Source<K::Packed>,
    /// Buffer for the columns that the task packs.
    pub packed_b: *mut K::Packed,
    pub packed_a: *mut K::Packed,
    pub sums: *mut Acc<K>,
}

impl<K: Kernel> BlockTask<'_, K> {
    /// Number of leading rows that the kernel reads without packing.
    #[inline(always)]
    fn rows_in_place(&self) -> usize {
        let suits = K::reads_in_place(&self.problem.a, self.problem.n, self.problem.k);
        if suits { self.rows.len() / K::MR * K::MR } else { 0 }
    }

    /// The epilogue of a tile whose sums are complete.
    ///
    /// # Safety
    /// The tile is inside C and at `sums`. Called within `K::enter`.
    #[inline(always)]
    unsafe fn finish(&self, i: usize, j: usize, rows: usize, cols: usize, sums: Target<Acc<K>>, in_c: bool) {
        let p = self.problem;
        // Sums in C already include a bias along columns.
        let has_bias = in_c && (p.bias.is_none() || p.bias_of_columns(j).is_some());
        if in_c && (self.sums_only.is_some() || has_bias && p.activation == Activation::None) {
            return;
        }
        let (problem, sums_only) = (p, self.sums_only);
        // SAFETY: the caller's promise.
        unsafe {
            K::apart(FinishTile::<K> { problem, sums_only, at: (i, j), size: (rows, cols), sums, in_c, has_bias })
        }
    }
}

/// The epilogue of a tile.
struct FinishTile<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    sums_only: Option<*mut Acc<K>>,
    at: (usize, usize),
    size: (usize, usize),
    sums: Target<Acc<K>>,
    in_c: bool,
    has_bias: bool,
}

impl<K: Kernel> Task for FinishTile<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let Self { problem: p, at: (i, j), size: (rows, cols), sums, .. } = self;
        for r in 0..rows {
            // SAFETY: r is a row of the tile.
            unsafe {
                let row = std::slice::from_raw_parts_mut(sums.ptr.offset(r as isize * sums.stride), cols);
                match self.sums_only {
                    _ if self.has_bias => p.activate::<K>(row),
                    _ if self.in_c => p.bias_and_activation::<K>(i + r, j, row),
                    Some(out) => out.add((i + r) * p.n + j).copy_from_nonoverlapping(row.as_ptr(), cols),
                    None => p.finish_row::<K>(i + r, j, row),
                }
            }
        }
    }
}

/// The epilogue of all rows of a task in one strip of columns, for a C that is contiguous along columns: the `cols`
/// columns from `j` on are inside C. `sums` are rows of NR sums, one for each row of the task.
struct FinishStrip<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    rows: Range<usize>,
    j: usize,
    cols: usize,
    sums: *const Acc<K>,
}

impl<K: Kernel> Task for FinishStrip<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let Self { j, cols, sums, .. } = self;
        let transposed = self.problem.transposed();
        let mut square = [Acc::<K>::ZERO; SQUARE];
        for first in (0..self.rows.len()).step_by(K::NR) {
            let lanes = K::NR.min(self.rows.len() - first);
            let i = self.rows.start + first;
            // SAFETY: packing NR rows brings the values of a column next to each other; sums, elements and packed ones
            // are of one type.
            unsafe {
                let ptr = sums.add(first * K::NR).cast();
                let strip = Strip { ptr, lane_stride: K::NR as isize, k_stride: 1, lanes, k: cols };
                K::pack_b(strip, square.as_mut_ptr().cast());
                for (column, values) in square.chunks_mut(K::NR).take(cols).enumerate() {
                    // A constant length becomes a vector without a loop.
                    let (runs, rest) = values[..lanes].as_chunks_mut::<RUN>();
                    let end = i + runs.len() * RUN;
                    for (k, run) in runs.iter_mut().enumerate() {
                        transposed.finish_row::<K>(j + column, i + k * RUN, run);
                    }
                    if !rest.is_empty() {
                        transposed.finish_long_row::<K>(j + column, end, rest);
                    }
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
        let sums_in_c = match self.sums_only {
            Some(ptr) if !K::WHOLE_TILES => Some((ptr, p.n as isize)),
            None if sums_fit_c::<K>(p) => Some((p.c.ptr.cast::<Acc<K>>(), p.c.row_stride)),
            _ => None,
        };
        let by_columns = self.sums_only.is_none() && writes_columns::<K>(p);
        let at_once = match self.b {
            Source::OnTheWay => columns_on_the_way::<K>(p, blocks),
            Source::Packed { .. } => columns_at_once::<K>(blocks),
        };
        let mut packed = false;
        while let Some(columns) = self.parts.take(self.share) {
            if !packed {
                let rows = self.rows.start + in_place..self.rows.end;
                for (k0, depth) in (0..blocks.count()).map(|block| blocks.block(block)) {
                    let first = k0 * height + in_place * depth.next_multiple_of(K::K_UNIT);
                    // SAFETY: the buffer was sized by `with_task_buffers`, for all of K. It begins with the rows that
                    // are read in place.
                    unsafe {
                        let to = self.packed_a.add(first);
                        K::apart(PackRows::<K> { a: p.a, rows: rows.clone(), block: (k0, depth), to });
                    }
                }
                packed = true;
            }
            let steps =
                columns.clone().step_by(at_once).flat_map(|j0| (0..blocks.count()).map(move |block| (j0, block)));
            for (j0, block) in steps {
                let (k0, depth) = blocks.block(block);
                // SAFETY: as above.
                let packed_a = unsafe { self.packed_a.add(k0 * height) };
                let j1 = columns.end.min(j0 + at_once);
                let padded = depth.next_multiple_of(K::K_UNIT);
                let last = block + 1 == blocks.count();
                // The first of the strips from j0 on, for this block of K. SAFETY: the packed columns include these;
                // the buffer was sized for as many as are taken at a time.
                let strips = unsafe {
                    match &self.b {
                        Source::Packed { ptr, columns } => {
                            let width = columns.len().next_multiple_of(K::NR);
                            ptr.add(k0 * width + (j0 - columns.start) * padded)
                        }
                        Source::OnTheWay => {
                            let to = self.packed_b;
                            K::apart(PackTask::<K> { problem: p, block: (k0, depth), part: j0..j1, to });
                            self.packed_b.cast_const()
                        }
                    }
                };
                let (down, across) = (height / K::MR, (j1 - j0).div_ceil(K::NR));
                let (outer, inner) = if K::ALONG_ROWS { (down, across) } else { (across, down) };
                // Every tile prefetches a part of the next shared B: the next strip, or along rows the next
                // block.
                let strip_bytes = K::NR * padded * size_of::<K::Packed>();
                let ahead_step = strip_bytes / down;
                let ahead = match &self.b {
                    Source::OnTheWay => strips,
                    Source::Packed { .. } if !K::ALONG_ROWS => strips.wrapping_add(K::NR * padded),
                    Source::Packed { columns, .. } if last => strips
                        .wrapping_sub(k0 * columns.len().next_multiple_of(K::NR))
                        .wrapping_add(across * K::NR * padded),
                    Source::Packed { columns, .. } => {
                        strips.wrapping_add(depth * columns.len().next_multiple_of(K::NR))
                    }
                }
                .cast::<u8>();
                for x in 0..outer {
                    for y in 0..inner {
                        let (row, column) = if K::ALONG_ROWS { (x * K::MR, y * K::NR) } else { (y * K::MR, x * K::NR) };
                        let (i, j) = (self.rows.start + row, j0 + column);
                        let (rows, cols) = (K::MR.min(self.rows.end - i), K::NR.min(j1 - j));
                        // SAFETY: strips and tiles are inside A, the packed buffers, the sums and C, as sized by the
                        // callers.
                        unsafe {
                            let a = if row < in_place {
                                let ptr = p.a.ptr.offset(i as isize * p.a.row_stride).add(k0);
                                Left { ptr: ptr.cast(), row_stride: Some(p.a.row_stride), once: across == 1 }
                            } else {
                                Left { ptr: packed_a.add(row * padded), row_stride: None, once: false }
                            };
                            let mut target = match sums_in_c {
                                Some((c, stride)) => {
                                    let ptr = c.offset(i as isize * stride + j as isize);
                                    let (alpha, beta) = match self.sums_only {
                                        Some(_) => (Acc::<K>::ONE, Acc::<K>::ZERO),
                                        None => (p.alpha, p.beta),
                                    };
                                    let bias = match p.bias_of_columns(j) {
                                        Some(bias) if last && self.sums_only.is_none() => bias.cast(),
                                        _ => std::ptr::null(),
                                    };
                                    Target { ptr, stride, alpha, beta, bias }
                                }
                                None => {
                                    if last && self.sums_only.is_none() {
                                        p.prefetch_tile(i, j, rows, cols);
                                    }
                                    // Tiles that continue in the next block of K are stored consecutively.
                                    let at = match blocks.count() {
                                        1 if by_columns => row * K::NR,
                                        1 => 0,
                                        _ => column * height + row * K::NR,
                                    };
                                    let ptr = self.sums.add(at);
                                    let (alpha, beta) = (Acc::<K>::ONE, Acc::<K>::ZERO);
                                    Target { ptr, stride: K::NR as isize, alpha, beta, bias: std::ptr::null() }
                                }
                            };
                            if block > 0 {
                                target.beta = Acc::<K>::ONE;
                            }
                            let ahead =
                                ahead.wrapping_add((if K::ALONG_ROWS { x * inner + y } else { y }) * ahead_step);
                            let ahead = if K::ALONG_ROWS { ahead } else { ahead.wrapping_add(x * strip_bytes) };
                            K::tile(depth, a, strips.add(column * padded), rows, cols, target, ahead);
                            if last && !by_columns {
                                self.finish(i, j, rows, cols, target, sums_in_c.is_some());
                            } else if last && y + 1 == inner {
                                let sums = target.ptr.sub(row * K::NR);
                                K::apart(FinishStrip::<K> { problem: p, rows: self.rows.clone(), j, cols, sums });
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Packs lanes (rows of A or columns of B), strip by strip. `from` is the address of lane 0, the width of a strip and
/// the depth of a block of K.
///
/// # Safety
/// The lanes and the block are inside the matrix, and `to` has room for the padded lanes over the padded depth.
#[inline(always)]
unsafe fn pack_strips<K: Kernel, const ROWS: bool>(from: Strip<K::Elem>, lanes: Range<usize>, to: *mut K::Packed) {
    let (width, depth) = (from.lanes, from.k);
    let padded = depth.next_multiple_of(K::K_UNIT);
    // If lanes are adjacent, packs a few k at a time: adjacent strips share pages and cache lines.
    let step = if from.lane_stride == 1 { 16usize.next_multiple_of(K::K_UNIT) } else { depth };
    for k in (0..depth).step_by(step) {
        for lane in lanes.clone().step_by(width) {
            let offset = k as isize * from.k_stride + lane as isize * from.lane_stride;
            let strip = Strip {
                ptr: from.ptr.wrapping_offset(offset),
                lanes: width.min(lanes.end - lane),
                k: step.min(depth - k),
                ..from
            };
            // SAFETY: the strip is inside the matrix; a packed one is a sequence of units of k.
            unsafe {
                let to = to.add((lane - lanes.start) * padded + k * width);
                if ROWS { K::pack_a(strip, to) } else { K::pack_b(strip, to) }
            }
        }
    }
}

/// Packs rows of A, over one block of K (its start and depth), strip by strip. There is room for the padded rows over
/// the padded depth.
struct PackRows<K: Kernel> {
    a: Matrix<*const K::Elem>,
    rows: Range<usize>,
    block: (usize, usize),
    to: *mut K::Packed,
}

impl<K: Kernel> Task for PackRows<K> {
    #[inline(always)]
    unsafe fn run(self) {
        let (a, (k0, depth)) = (self.a, self.block);
        let from = Strip {
            ptr: a.ptr.wrapping_offset(k0 as isize * a.col_stride),
            lane_stride: a.row_stride,
            k_stride: a.col_stride,
            lanes: K::MR,
            k: depth,
        };
        // SAFETY: the rows and the block are inside A.
        unsafe { pack_strips::<K, true>(from, self.rows, self.to) };
    }
}

/// Packs some columns of B, over one block of K (its start and depth), strip by strip. There is room for the padded
/// columns over the padded depth.
pub(super) struct PackTask<'a, K: Kernel> {
    pub problem: &'a Problem<K::Elem>,
    pub block: (usize, usize),
    pub part: Range<usize>,
    pub to: *mut K::Packed,
}

impl<'a, K: Kernel> PackTask<'a, K> {
    /// Packs the columns `part` of `columns`, which are packed over all of K to `packed`.
    ///
    /// # Safety
    /// There is room for all of them.
    pub unsafe fn within(
        problem: &'a Problem<K::Elem>,
        block: (usize, usize),
        columns: &Range<usize>,
        part: Range<usize>,
        packed: *mut K::Packed,
    ) -> Self {
        let (k0, depth) = block;
        let padded = depth.next_multiple_of(K::K_UNIT);
        let width = columns.len().next_multiple_of(K::NR);
        // SAFETY: the caller's promise.
        let to = unsafe { packed.add(k0 * width + (part.start - columns.start) * padded) };
        Self { problem, block, part, to }
    }
}

impl<K: Kernel> Task for PackTask<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let (b, (k0, depth)) = (self.problem.b, self.block);
        let from = Strip {
            ptr: b.ptr.wrapping_offset(k0 as isize * b.row_stride),
            lane_stride: b.col_stride,
            k_stride: b.row_stride,
            lanes: K::NR,
            k: depth,
        };
        // SAFETY: the columns and the block are inside B.
        unsafe { pack_strips::<K, false>(from, self.part, self.to) };
    }
}
