//! The microkernel of fused multiply-adds, for every vector type.

use super::super::kernel::{Features, Kernel, Left, Strip, Target, Task, dot_in_lanes, narrow_each, prefetch_to_write};
use super::super::problem::Matrix;
use super::super::scalar::{Accumulator, Scalar};
use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::marker::PhantomData;

/// Number of k per prefetched line.
const GROUP: usize = 8;
/// Number of k in one pass of the innermost loop.
const UNROLLED: usize = 4;
/// Number of k that are packed of a lane at a time.
const RUN: usize = 16;
/// Number of columns from which packing A pays, because sequential reads are faster.
const COLUMNS_WORTH_PACKING: usize = 384;

/// A vector of sums. All methods need the features of `Isa`.
pub(super) trait Lanes: Copy + Send + Sync + 'static {
    type Acc: Accumulator;
    type Isa: Features;
    /// Number of sums.
    const LEN: usize;
    /// Rows per tile: with two vectors of columns, their sums, the vectors and a broadcast fit the registers.
    const ROWS: usize;
    /// See [`Kernel`].
    const KC: usize;
    const MC: usize;
    const RATE: usize;
    /// Whether a multiply-add can broadcast its operand from memory.
    const BROADCASTS: bool;

    unsafe fn zero() -> Self;
    /// The value at `from` in every lane.
    unsafe fn splat(from: *const Self::Acc) -> Self;
    unsafe fn load(from: *const Self::Acc) -> Self;
    /// The first `len` lanes from memory, at most all.
    unsafe fn load_part(from: *const Self::Acc, len: usize) -> Self;
    /// The first `len` lanes to memory, at most all.
    unsafe fn store_part(self, to: *mut Self::Acc, len: usize);
    /// `self · other + sum`.
    unsafe fn fma(self, other: Self, sum: Self) -> Self;
    /// Adds products of pairs: `x - v` and `y + u` for each `(x, y)` of this and `(u, v)` of `lower`.
    unsafe fn add_pairs(self, lower: Self) -> Self;
    /// Runs the tile size that fits its rows and columns best.
    unsafe fn dispatch(tile: Tile<Self>);
}

/// Defines [`Lanes::dispatch`] for tiles of one or two vectors and several numbers of rows, the largest last.
macro_rules! dispatch {
    ($($rows:literal)* | $most:literal) => {
        #[inline(always)]
        unsafe fn dispatch(tile: Tile<Self>) {
            const { assert!($most == Self::ROWS) };
            // SAFETY: the caller's promise.
            unsafe {
                match (tile.rows, tile.cols > Self::LEN) {
                    $((..=$rows, false) => tile.run::<$rows, 1>(),)*
                    $((..=$rows, true) => tile.run::<$rows, 2>(),)*
                    (_, false) => tile.run::<$most, 1>(),
                    (_, true) => tile.run::<$most, 2>(),
                }
            }
        }
    };
}
pub(super) use dispatch;

/// Conversion between elements and a kernel's vectors.
pub(super) trait Elements<T: Scalar<Acc = Self::Acc>>: Lanes {
    /// See [`Kernel::pack_a`].
    unsafe fn pack_a(strip: Strip<T>, to: *mut Self::Acc);
    /// See [`Kernel::pack_b`].
    unsafe fn pack_b(strip: Strip<T>, to: *mut Self::Acc);
    /// See [`Kernel::pack_pairs`].
    #[inline(always)]
    unsafe fn pack_pairs(s: Strip<[T; 2]>, to: *mut Self::Acc) {
        // Short runs of k keep the lines being written in the first-level cache.
        for start in (0..s.k).step_by(RUN) {
            let end = s.k.min(start + RUN);
            for lane in 0..Self::ROWS / 2 {
                for p in start..end {
                    // SAFETY: inside the strip and `k × ROWS`.
                    unsafe {
                        let at = s.ptr.wrapping_offset(lane as isize * s.lane_stride + p as isize * s.k_stride);
                        let pair = if lane < s.lanes { (*at).map(T::widen) } else { [Self::Acc::ZERO; 2] };
                        to.add(p * Self::ROWS + 2 * lane).cast::<[Self::Acc; 2]>().write(pair);
                    }
                }
            }
        }
    }
    /// See [`Kernel::narrow`].
    #[inline(always)]
    unsafe fn narrow(from: *const Self::Acc, to: *mut T, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { narrow_each(from, to, len) }
    }
    /// See [`Kernel::dot`].
    #[inline(always)]
    unsafe fn dot(len: usize, x: *const Self::Acc, y: *const T) -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { dot_in_lanes::<T, true>(len, x, y) }
    }
}

/// Products of `T` with sums in vectors `V`.
pub(super) struct Fma<V, T>(PhantomData<(V, T)>);

impl<V: Elements<T>, T: Scalar<Acc = V::Acc>> Kernel for Fma<V, T> {
    type Elem = T;
    type Packed = V::Acc;
    const MR: usize = V::ROWS;
    const NR: usize = 2 * V::LEN;
    const K_UNIT: usize = 1;
    const KC: usize = V::KC;
    const MC: usize = V::MC;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;
    const RATE: usize = V::RATE;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { V::Isa::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut V::Acc) {
        // SAFETY: the caller's promise.
        unsafe { V::pack_a(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut V::Acc) {
        // SAFETY: the caller's promise.
        unsafe { V::pack_b(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_pairs(strip: Strip<[T; 2]>, to: *mut V::Acc) {
        // SAFETY: the caller's promise.
        unsafe { V::pack_pairs(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<V::Acc>,
        b: *const V::Acc,
        rows: usize,
        cols: usize,
        target: Target<V::Acc>,
        ahead: *const u8,
    ) {
        // SAFETY: the caller's promise.
        unsafe { V::dispatch(Tile { k, a, b, rows, cols, target, ahead, pairs: false }) }
    }

    #[inline(always)]
    unsafe fn tile_of_pairs(
        k: usize,
        a: Left<V::Acc>,
        b: *const V::Acc,
        rows: usize,
        cols: usize,
        target: Target<V::Acc>,
        ahead: *const u8,
    ) {
        // SAFETY: the caller's promise.
        unsafe { V::dispatch(Tile { k, a, b, rows, cols, target, ahead, pairs: true }) }
    }

    /// Broadcasts read single values: few columns do not pay for packing A, unless its rows conflict in the cache.
    #[inline(always)]
    fn reads_in_place(a: &Matrix<*const T>, n: usize, _k: usize) -> bool {
        // At such strides all rows would share the same sets of the L1 cache.
        let crowded = (a.row_stride * size_of::<T>() as isize) % 2048 == 0;
        // With a single strip every value is read once, packed or not.
        T::IS_ACC && a.col_stride == 1 && (n <= Self::NR || !crowded && n < COLUMNS_WORTH_PACKING)
    }

    #[inline(always)]
    unsafe fn narrow(from: *const V::Acc, to: *mut T, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { V::narrow(from, to, len) }
    }

    #[inline(always)]
    unsafe fn dot(len: usize, x: *const V::Acc, y: *const T) -> V::Acc {
        // SAFETY: the caller's promise.
        unsafe { V::dot(len, x, y) }
    }
}

/// The arguments of [`Kernel::tile`].
pub(super) struct Tile<V: Lanes> {
    k: usize,
    a: Left<V::Acc>,
    b: *const V::Acc,
    pub(super) rows: usize,
    pub(super) cols: usize,
    target: Target<V::Acc>,
    ahead: *const u8,
    /// See [`Kernel::tile_of_pairs`].
    pairs: bool,
}

impl<V: Lanes> Tile<V> {
    /// # Safety
    /// As for [`Kernel::tile`]; there are at most R rows and C vectors of columns.
    #[inline(always)]
    pub(super) unsafe fn run<const R: usize, const C: usize>(self) {
        // SAFETY: the caller's promise.
        unsafe { V::Isa::enter(Sized::<V, R, C>(self)) }
    }
}

/// A tile of up to R rows and C vectors.
struct Sized<V: Lanes, const R: usize, const C: usize>(Tile<V>);

impl<V: Lanes, const R: usize, const C: usize> Task for Sized<V, R, C> {
    #[inline(always)]
    unsafe fn run(self) {
        let Tile { a, rows, cols, target, pairs, .. } = self.0;
        // SAFETY: strips are k deep; C is touched at `rows` rows and `cols` columns.
        unsafe {
            let sums = match a.row_stride {
                // Only whole tiles are read in place.
                Some(stride) if R == V::ROWS && a.once => self.sums::<true>(InPlace::new(a.ptr, stride)),
                Some(stride) if R == V::ROWS => self.sums::<false>(InPlace::new(a.ptr, stride)),
                None if R == V::ROWS && a.once => self.sums::<true>(Packed::new(a.ptr)),
                _ => self.sums::<false>(Packed::new(a.ptr)),
            };
            let (sums, rows) = if pairs { (joined(sums), rows / 2) } else { (sums, rows) };
            let mut bias = [V::zero(); C];
            if !target.bias.is_null() {
                for (c, bias) in bias.iter_mut().enumerate() {
                    *bias = V::load_part(target.bias.add(c * V::LEN), cols - c * V::LEN);
                }
            }
            let (alpha, beta) = (V::splat(&target.alpha), V::splat(&target.beta));
            for (i, sum) in sums.iter().enumerate().take(rows) {
                for (c, &sum) in sum.iter().enumerate() {
                    let len = cols - c * V::LEN;
                    let to = target.ptr.offset(i as isize * target.stride).add(c * V::LEN);
                    let mut out = sum.fma(alpha, bias[c]);
                    if target.beta != V::Acc::ZERO {
                        out = beta.fma(V::load_part(to, len), out);
                    }
                    out.store_part(to, len);
                }
            }
        }
    }
}

impl<V: Lanes, const R: usize, const C: usize> Sized<V, R, C> {
    /// The products. If ONCE, the next rows of A are prefetched meanwhile.
    ///
    /// # Safety
    /// The strips are k deep.
    #[inline(always)]
    unsafe fn sums<const ONCE: bool>(&self, mut a: impl Strips<V>) -> [[V; C]; R] {
        let Tile { k, mut b, mut ahead, rows, target, pairs, .. } = self.0;
        // Lines of C are prefetched for writing, spread over the tile: many at once would occupy the L1 cache's fill
        // buffers, which loads of B need too.
        let (lines, groups) = (if pairs { rows / 2 * C } else { rows * C }, k / GROUP);
        // Dividing 64 bits takes some processors as long as several steps.
        let each = (lines as u32).div_ceil(groups.max(1) as u32) as usize;
        let mut line = 0;
        // SAFETY: the caller's promise. Prefetches may point anywhere.
        unsafe {
            let mut sums = [[V::zero(); C]; R];
            for group in 0..groups {
                for line in line..lines.min(line + each) {
                    let row = target.ptr.wrapping_offset((line / C) as isize * target.stride);
                    prefetch_to_write(row.wrapping_add(line % C * V::LEN));
                }
                line += each;
                if ONCE {
                    self.prefetch_rows(group * GROUP);
                } else {
                    // A part of the next strip of B.
                    _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
                    ahead = ahead.wrapping_add(64);
                }
                for _ in 0..GROUP / UNROLLED {
                    b = self.advance::<UNROLLED>(&mut a, b, &mut sums);
                }
            }
            for _ in 0..k % GROUP {
                b = self.advance::<1>(&mut a, b, &mut sums);
            }
            sums
        }
    }

    /// Prefetches A's next rows, once for every group of k from `p` on: the hardware prefetcher stops at the end of
    /// rows and of pages.
    ///
    /// # Safety
    /// The machine has the features.
    #[inline(always)]
    unsafe fn prefetch_rows(&self, p: usize) {
        let Left { ptr, row_stride, .. } = self.0.a;
        let line = 64 / size_of::<V::Acc>();
        // SAFETY: a prefetch may point anywhere.
        let prefetch = |at: *const V::Acc| unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
        match row_stride {
            Some(stride) => {
                for row in (p % line / GROUP..R).step_by(line / GROUP) {
                    let row = (V::ROWS + row) as isize * stride;
                    prefetch(ptr.wrapping_offset(row).wrapping_add(p / line * line));
                }
            }
            // The next strip follows.
            None => {
                let from = ptr.wrapping_add(V::ROWS * (self.0.k + p));
                (0..V::ROWS * GROUP).step_by(line).for_each(|at| prefetch(from.wrapping_add(at)));
            }
        }
    }

    /// Adds the products of the next U k. Returns the rest of B.
    ///
    /// # Safety
    /// The strips continue for at least U k.
    #[inline(always)]
    unsafe fn advance<const U: usize>(
        &self,
        a: &mut impl Strips<V>,
        b: *const V::Acc,
        sums: &mut [[V; C]; R],
    ) -> *const V::Acc {
        // SAFETY: the caller's promise.
        unsafe {
            for u in 0..U {
                let mut right = [V::zero(); C];
                for (c, r) in right.iter_mut().enumerate() {
                    *r = V::load(b.add((2 * u + c) * V::LEN));
                }
                for (i, sum) in sums.iter_mut().enumerate() {
                    let left: [V; C] = a.splats(i, u);
                    for c in 0..C {
                        sum[c] = left[c].fma(right[c], sum[c]);
                    }
                }
            }
            a.advance(U);
            b.add(2 * U * V::LEN)
        }
    }
}

/// Complex sums from products of pairs, in the upper half of the rows: see [`Kernel::tile_of_pairs`].
///
/// # Safety
/// The machine has the features.
#[inline(always)]
unsafe fn joined<V: Lanes, const R: usize, const C: usize>(mut sums: [[V; C]; R]) -> [[V; C]; R] {
    for i in 0..R / 2 {
        for c in 0..C {
            // SAFETY: the caller's promise.
            sums[i][c] = unsafe { sums[2 * i][c].add_pairs(sums[2 * i + 1][c]) };
        }
    }
    sums
}

/// A position in the rows of A that a tile multiplies.
trait Strips<V: Lanes> {
    /// A factor for each vector of columns: the value of row `i` at the `u`-th next k.
    ///
    /// # Safety
    /// The strip has that row, and continues for more than `u` k.
    unsafe fn splats<const C: usize>(&self, i: usize, u: usize) -> [V; C];
    /// Continues with the `u`-th next k.
    fn advance(&mut self, u: usize);
}

/// Rows at any stride, contiguous along k. Four rows are reached from one pointer.
struct InPlace<V: Lanes> {
    fours: [*const V::Acc; 4],
    stride: isize,
}

impl<V: Lanes> InPlace<V> {
    #[inline(always)]
    fn new(a: *const V::Acc, stride: isize) -> Self {
        let mut fours = [a; 4];
        for (i, four) in fours.iter_mut().enumerate() {
            *four = four.wrapping_offset(4 * i as isize * stride);
        }
        InPlace { fours, stride }
    }
}

impl<V: Lanes> Strips<V> for InPlace<V> {
    #[inline(always)]
    unsafe fn splats<const C: usize>(&self, i: usize, u: usize) -> [V; C] {
        // SAFETY: the caller's promise.
        unsafe { [V::splat(self.fours[i / 4].wrapping_offset((i % 4) as isize * self.stride).wrapping_add(u)); C] }
    }

    #[inline(always)]
    fn advance(&mut self, u: usize) {
        for four in &mut self.fours {
            // Otherwise the compiler would keep a pointer for every row, more than there are registers.
            *four = hidden(four.wrapping_add(u));
        }
    }
}

/// A packed strip: the rows' values for each k follow one another.
struct Packed<V: Lanes> {
    ptr: *const V::Acc,
    /// Equal to `ptr`, which the compiler does not know: see `splats`.
    twin: *const V::Acc,
}

impl<V: Lanes> Packed<V> {
    #[inline(always)]
    fn new(a: *const V::Acc) -> Self {
        Packed { ptr: a, twin: hidden(a) }
    }
}

impl<V: Lanes> Strips<V> for Packed<V> {
    /// Every second row is broadcast by the multiply-adds themselves, once for each vector: loads that the compiler
    /// takes for different ones become operands. That saves an instruction for each of these rows, which matters where
    /// another thread runs on the same core. If all rows did it, the loads would take longer than the arithmetic.
    #[inline(always)]
    unsafe fn splats<const C: usize>(&self, i: usize, u: usize) -> [V; C] {
        let at = u * V::ROWS + i;
        // SAFETY: the caller's promise.
        unsafe {
            let mut splats = [V::splat(self.ptr.add(at)); C];
            if V::BROADCASTS && i % 2 == 1 {
                for splat in splats.iter_mut().skip(1) {
                    *splat = V::splat(self.twin.add(at));
                }
            }
            splats
        }
    }

    #[inline(always)]
    fn advance(&mut self, u: usize) {
        self.ptr = self.ptr.wrapping_add(u * V::ROWS);
        if V::BROADCASTS {
            self.twin = self.twin.wrapping_add(u * V::ROWS);
        }
    }
}

/// The same pointer, unknown to the compiler.
#[expect(clippy::pointers_in_nomem_asm_block, reason = "the text is empty: the pointer is hidden, not followed")]
#[inline(always)]
fn hidden<T>(mut pointer: *const T) -> *const T {
    // SAFETY: the text is empty.
    unsafe { asm!("/* {0} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags)) };
    pointer
}
