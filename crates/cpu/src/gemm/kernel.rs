//! The microkernel trait of the blocked driver, and a portable microkernel.

use super::Activation;
use super::problem::Matrix;
use super::scalar::{Accumulator, Scalar};
use crate::isa::{Avx2, Avx512, Isa, Portable};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// The accumulator type of a kernel.
pub(super) type Acc<K> = <<K as Kernel>::Elem as Scalar>::Acc;

/// Code that is compiled for the instruction set of its kernel.
pub(super) trait Task {
    /// Must be `#[inline(always)]`, together with everything generic it calls.
    ///
    /// # Safety
    /// The machine has the features of the kernel, and the pointers inside the task are valid.
    unsafe fn run(self);
}

/// An instruction set whose features a task can be compiled with. Each task is a function of its own, compiled once
/// for all kernels that run it.
pub(super) trait Features: Isa {
    /// # Safety
    /// The machine has the features, and the task may be run.
    unsafe fn enter(task: impl Task);
}

impl Features for Portable {
    #[inline(never)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise; nothing beyond the build's own target is used.
        unsafe { task.run() }
    }
}

impl Features for Avx2 {
    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        #[inline(never)]
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"))]
        unsafe fn inner(task: impl Task) {
            // SAFETY: the caller's promise.
            unsafe { task.run() }
        }
        // SAFETY: the caller guarantees the features.
        unsafe { inner(task) }
    }
}

impl Features for Avx512 {
    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        #[inline(never)]
        #[cfg_attr(
            target_arch = "x86_64",
            target_feature(
                enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
            )
        )]
        unsafe fn inner(task: impl Task) {
            // SAFETY: the caller's promise.
            unsafe { task.run() }
        }
        // SAFETY: the caller guarantees the features.
        unsafe { inner(task) }
    }
}

/// A strip of at most MR rows of A or NR columns of B: `lanes` × `k` elements.
#[derive(Clone, Copy)]
pub(super) struct Strip<T> {
    pub ptr: *const T,
    pub lane_stride: isize,
    pub k_stride: isize,
    pub lanes: usize,
    pub k: usize,
}

/// Rows of A for a tile.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "other machines' kernels read packed rows only"))]
pub(super) struct Left<P> {
    pub ptr: *const P,
    /// Row stride of an unpacked operand; `None` if it is packed.
    pub row_stride: Option<isize>,
    /// Whether these rows are read only once; the rows below come next.
    pub once: bool,
}

/// Destination of a tile: `C = alpha · tile + beta · C + bias`; C is not read if beta is 0.
#[derive(Clone, Copy)]
pub(super) struct Target<Acc> {
    pub ptr: *mut Acc,
    /// Row stride in elements; columns are adjacent.
    pub stride: isize,
    pub alpha: Acc,
    pub beta: Acc,
    /// One value per column; null without a bias, and if C does not hold the sums itself.
    pub bias: *const Acc,
}

/// A microkernel and its packed layouts.
pub(super) trait Kernel: Sized + Send + Sync + 'static {
    type Elem: Scalar;
    type Packed: Copy;
    /// Rows of a tile.
    const MR: usize;
    /// Columns of a tile.
    const NR: usize;
    /// Packed strips are padded with zeros to a multiple of this many k.
    const K_UNIT: usize;
    /// Maximum depth of a block of K; determines the order of summation.
    const KC: usize;
    /// Maximum rows of A that one task packs.
    const MC: usize;
    /// Whether `tile` writes all MR × NR elements whatever `rows` and `cols` say, and takes only alpha 1 and beta 0 or
    /// 1.
    const WHOLE_TILES: bool;
    /// Whether rows of A that are contiguous in k are packed by copying.
    const COPIES_ROWS: bool = false;
    /// Whether tiles are visited row by row, reusing rows of A, instead of column by column, reusing
    /// a strip of B.
    const ALONG_ROWS: bool = false;
    /// Whether `enter` compiles fused multiply-adds.
    const FMA: bool;
    /// Approximate multiply-adds per microsecond of one thread; determines how finely work is split.
    const RATE: usize;

    /// Runs a task with the kernel's features.
    ///
    /// # Safety
    /// The machine has the features, and the task may be run.
    unsafe fn enter(task: impl Task);

    /// Runs a part of a task, within `enter`, as a function of its own: it is compiled once, wherever it is called.
    ///
    /// # Safety
    /// The task may be run. Called within `enter`.
    #[inline(always)]
    unsafe fn apart(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { Self::enter(task) }
    }

    /// Writes exactly `MR × k` packed values.
    ///
    /// # Safety
    /// Every element of the strip is readable, and the destination has the room. Called within `enter`.
    unsafe fn pack_a(strip: Strip<Self::Elem>, to: *mut Self::Packed);

    /// Writes exactly `NR × k` packed values.
    ///
    /// # Safety
    /// As for `pack_a`.
    unsafe fn pack_b(strip: Strip<Self::Elem>, to: *mut Self::Packed);

    /// Packs a strip whose MR / 2 lanes are pairs of elements, each of which becomes two lanes.
    ///
    /// # Safety
    /// As for `pack_a`.
    #[inline(always)]
    unsafe fn pack_pairs(s: Strip<[Self::Elem; 2]>, to: *mut Self::Packed) {
        // SAFETY: the caller's promise.
        unsafe { pack_pairs(s, Self::MR, to, |strip, to| Self::pack_a(strip, to)) }
    }

    /// Multiplies a strip of A (`rows` of its MR), packed unless it has a stride, with one of B (`cols` of its NR), `k`
    /// deep.
    ///
    /// # Safety
    /// The strips hold `k` rounded up to `K_UNIT`, and the target is writable (readable when beta is not 0) at
    /// `rows × cols`, or at `MR × NR` for a kernel of whole tiles; `ahead`, which will be read some time later, may
    /// point anywhere. Called within `enter`.
    unsafe fn tile(
        k: usize,
        a: Left<Self::Packed>,
        b: *const Self::Packed,
        rows: usize,
        cols: usize,
        target: Target<<Self::Elem as Scalar>::Acc>,
        ahead: *const u8,
    );

    /// Multiplies strips whose rows and columns are pairs, parts of complex numbers, and adds the products to complex
    /// sums: of each pair, `x - v` and `y + u` for `(x, y)` above `(u, v)`. The rows of the target are half of `rows`.
    ///
    /// # Safety
    /// As for `tile`, with an A that is packed, even `rows` and `cols`, alpha 1, beta 0 or 1 and no bias.
    #[inline(always)]
    unsafe fn tile_of_pairs(
        k: usize,
        a: Left<Self::Packed>,
        b: *const Self::Packed,
        rows: usize,
        cols: usize,
        target: Target<Acc<Self>>,
        ahead: *const u8,
    ) {
        const TILE: usize = 128;
        const { assert!(Self::MR * Self::NR <= TILE) };
        let mut sums = [Acc::<Self>::ZERO; TILE];
        let ptr = sums.as_mut_ptr();
        let (alpha, beta, minus) = (Acc::<Self>::ONE, Acc::<Self>::ZERO, Acc::<Self>::from_f64(-1.0));
        let products = Target { ptr, stride: Self::NR as isize, alpha, beta, bias: std::ptr::null() };
        // SAFETY: the caller's promise; there is room for a tile.
        unsafe {
            Self::tile(k, a, b, rows, cols, products, ahead);
            for i in 0..rows / 2 {
                let (upper, lower) = (ptr.add(2 * i * Self::NR), ptr.add((2 * i + 1) * Self::NR));
                let to = target.ptr.offset(i as isize * target.stride);
                let old = |j: usize| if target.beta == Acc::<Self>::ZERO { target.beta } else { *to.add(j) };
                for j in (0..cols).step_by(2) {
                    let re = (*upper.add(j)).plus(minus.times(*lower.add(j + 1)));
                    let im = (*upper.add(j + 1)).plus(*lower.add(j));
                    let (re, im) = (re.plus(old(j)), im.plus(old(j + 1)));
                    to.add(j).write(re);
                    to.add(j + 1).write(im);
                }
            }
        }
    }

    /// Whether `tile` reads MR rows of this A without packing, for a product with `n` columns and this K.
    #[inline(always)]
    fn reads_in_place(_a: &Matrix<*const Self::Elem>, _n: usize, _k: usize) -> bool {
        false
    }

    /// Rounds a run of accumulators to elements.
    ///
    /// # Safety
    /// Both pointers are valid for `len`. Called within `enter`.
    #[inline(always)]
    unsafe fn narrow(from: *const Acc<Self>, to: *mut Self::Elem, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { narrow_each(from, to, len) }
    }

    /// The sum of `x[i] · y[i]`.
    ///
    /// # Safety
    /// Both pointers are readable for `len`. Called within `enter`.
    #[inline(always)]
    unsafe fn dot(len: usize, x: *const Acc<Self>, y: *const Self::Elem) -> Acc<Self> {
        // SAFETY: the caller's promise.
        unsafe { if Self::FMA { dot_in_lanes::<_, true>(len, x, y) } else { dot_in_lanes::<_, false>(len, x, y) } }
    }
}

/// Rounds a run of accumulators to elements, one by one.
///
/// # Safety
/// Both pointers are valid for `len`.
#[inline(always)]
pub(super) unsafe fn narrow_each<T: Scalar>(from: *const T::Acc, to: *mut T, len: usize) {
    for i in 0..len {
        // SAFETY: the caller's promise.
        unsafe { to.add(i).write(T::narrow(*from.add(i))) };
    }
}

/// Dot product in lanes that the compiler vectorises.
///
/// # Safety
/// Both pointers are readable for `len`.
#[inline(always)]
pub(super) unsafe fn dot_in_lanes<T: Scalar, const FMA: bool>(len: usize, x: *const T::Acc, y: *const T) -> T::Acc {
    const LANES: usize = 16;
    const CHAINS: usize = 4;
    let mut sums = [[T::Acc::ZERO; LANES]; CHAINS];
    // SAFETY: indices stay below `len`.
    unsafe {
        let mut i = 0;
        while i + CHAINS * LANES <= len {
            for (c, chain) in sums.iter_mut().enumerate() {
                for (l, sum) in chain.iter_mut().enumerate() {
                    let at = i + c * LANES + l;
                    *sum = (*x.add(at)).mul_add::<FMA>((*y.add(at)).widen(), *sum);
                }
            }
            i += CHAINS * LANES;
        }
        while i + LANES <= len {
            for (l, sum) in sums[0].iter_mut().enumerate() {
                *sum = (*x.add(i + l)).mul_add::<FMA>((*y.add(i + l)).widen(), *sum);
            }
            i += LANES;
        }
        for (l, sum) in sums[1].iter_mut().enumerate().take(len - i) {
            *sum = (*x.add(i + l)).mul_add::<FMA>((*y.add(i + l)).widen(), *sum);
        }
    }
    let mut lanes = [T::Acc::ZERO; LANES];
    for (l, lane) in lanes.iter_mut().enumerate() {
        *lane = sums[0][l].plus(sums[1][l]).plus(sums[2][l].plus(sums[3][l]));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            lanes[l] = lanes[l].plus(lanes[l + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Applies an activation to finished sums.
pub(super) struct Activate<'a, A>(pub &'a mut [A], pub Activation);

impl<A: Accumulator> Task for Activate<'_, A> {
    #[inline(always)]
    unsafe fn run(self) {
        A::activate(self.0, self.1);
    }
}

/// `a · b + c`, fused if the kernel's features include FMA.
#[inline(always)]
pub(super) fn fma<K: Kernel>(a: Acc<K>, b: Acc<K>, c: Acc<K>) -> Acc<K> {
    if K::FMA { a.mul_add::<true>(b, c) } else { a.mul_add::<false>(b, c) }
}

/// Prefetches a line for writing. Any address is allowed.
#[inline(always)]
pub(super) fn prefetch_to_write<T>(line: *const T) {
    // SAFETY: a prefetch never faults.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}

/// Packs a strip as `[k][WIDTH]`, widened, missing lanes as zeros.
///
/// # Safety
/// The strip is readable and `to` has room for `k × WIDTH`.
#[inline(always)]
pub(super) unsafe fn pack_widened<T: Scalar, const WIDTH: usize>(s: Strip<T>, to: *mut T::Acc) {
    // SAFETY: indices stay inside the strip and inside k × WIDTH.
    unsafe {
        if s.lane_stride == 1 && s.lanes == WIDTH {
            for p in 0..s.k {
                let from = s.ptr.offset(p as isize * s.k_stride);
                for l in 0..WIDTH {
                    to.add(p * WIDTH + l).write((*from.add(l)).widen());
                }
            }
            return;
        }
        // Short runs of k keep the lines being written in the first-level cache.
        const RUN: usize = 16;
        for start in (0..s.k).step_by(RUN) {
            let end = (start + RUN).min(s.k);
            for l in 0..s.lanes {
                let lane = s.ptr.offset(l as isize * s.lane_stride);
                for p in start..end {
                    to.add(p * WIDTH + l).write((*lane.offset(p as isize * s.k_stride)).widen());
                }
            }
            for l in s.lanes..WIDTH {
                for p in start..end {
                    to.add(p * WIDTH + l).write(T::Acc::ZERO);
                }
            }
        }
    }
}

/// Packs a strip of pairs as one of elements, `width` to a step of K: puts lanes side by side, a few steps at a time,
/// and packs these with `pack`.
///
/// # Safety
/// The strip is readable, has at most `width / 2` lanes, and `to` has room for `k × width`.
#[inline(always)]
pub(super) unsafe fn pack_pairs<T: Copy, P>(
    s: Strip<[T; 2]>,
    width: usize,
    to: *mut P,
    pack: impl Fn(Strip<T>, *mut P),
) {
    const STEPS: usize = 16;
    const LANES: usize = 32;
    assert!(s.lanes <= LANES);
    let mut buffer = [[MaybeUninit::<[T; 2]>::uninit(); LANES]; STEPS];
    let rows: *mut [T; 2] = buffer.as_mut_ptr().cast();
    for first in (0..s.k).step_by(STEPS) {
        let k = STEPS.min(s.k - first);
        for lane in 0..s.lanes {
            // SAFETY: inside the strip and the buffer.
            unsafe {
                let from = s.ptr.offset(lane as isize * s.lane_stride + first as isize * s.k_stride);
                (0..k).for_each(|p| rows.add(p * LANES + lane).write(*from.offset(p as isize * s.k_stride)));
            }
        }
        let lanes = 2 * s.lanes;
        let strip = Strip { ptr: rows.cast_const().cast(), lane_stride: 1, k_stride: 2 * LANES as isize, lanes, k };
        // SAFETY: `to` has room for all steps.
        pack(strip, unsafe { to.add(first * width) });
    }
}

/// Combines a finished tile of accumulators with its target.
///
/// # Safety
/// The target is valid at `rows × cols`.
#[inline(always)]
pub(super) unsafe fn write_tile<Acc: Accumulator, const MR: usize, const NR: usize>(
    tile: &[[Acc; NR]; MR],
    rows: usize,
    cols: usize,
    target: Target<Acc>,
) {
    for (i, row) in tile.iter().enumerate().take(rows) {
        for (j, &v) in row.iter().enumerate().take(cols) {
            // SAFETY: i < rows and j < cols.
            unsafe {
                let p = target.ptr.offset(i as isize * target.stride).add(j);
                let v = v.times(target.alpha);
                let v = if target.beta == Acc::ZERO { v } else { v.plus(target.beta.times(*p)) };
                p.write(if target.bias.is_null() { v } else { v.plus(*target.bias.add(j)) });
            }
        }
    }
}

/// The portable kernel in plain Rust, vectorised by the compiler for the instruction set `I`.
pub(super) struct Plain<T, I>(PhantomData<(T, I)>);

impl<T: Scalar, I: Features> Kernel for Plain<T, I> {
    type Elem = T;
    type Packed = T::Acc;
    const MR: usize = 4;
    const NR: usize = 8;
    const K_UNIT: usize = 1;
    const KC: usize = 256;
    const MC: usize = 128;
    const WHOLE_TILES: bool = false;
    const FMA: bool = I::FMA;
    const RATE: usize = 5_000;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { I::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut T::Acc) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<T, 4>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut T::Acc) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<T, 8>(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<T::Acc>,
        b: *const T::Acc,
        rows: usize,
        cols: usize,
        target: Target<T::Acc>,
        _ahead: *const u8,
    ) {
        let mut sums = [[T::Acc::ZERO; 8]; 4];
        for p in 0..k {
            // SAFETY: the packed strips are k deep.
            let (a, b) = unsafe { (&*a.ptr.add(p * 4).cast::<[T::Acc; 4]>(), &*b.add(p * 8).cast::<[T::Acc; 8]>()) };
            for i in 0..4 {
                for j in 0..8 {
                    sums[i][j] = if I::FMA {
                        a[i].mul_add::<true>(b[j], sums[i][j])
                    } else {
                        a[i].mul_add::<false>(b[j], sums[i][j])
                    };
                }
            }
        }
        // SAFETY: the caller's promise about the target.
        unsafe { write_tile(&sums, rows, cols, target) }
    }
}
