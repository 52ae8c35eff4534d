//! AVX-512 microkernels for `f32` (and what widens to it) and `f64`.

use super::super::kernel::{Features, Kernel, Left, Strip, Target, Task};
use super::super::scalar::Scalar;
use super::pack512::{Load16, low_mask, low_mask8, pack_f32, pack_f64};
use crate::isa::Avx512;
use half::{bf16, f16};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Rows of a tile; with two vectors of columns, 28 sums, the vectors and a broadcast stay in registers.
const ROWS: usize = 14;
/// One line is fetched ahead for so many k.
const K_PER_LINE: usize = 8;

/// `f32` sums.
pub(super) struct Single<T>(PhantomData<T>);

/// How `f32` sums become elements.
pub(super) trait Store16: Load16 + Scalar<Acc = f32> {
    /// # Safety
    /// The elements whose mask bits are set are writable. Needs AVX-512 F, BW and VL.
    unsafe fn store(v: __m512, to: *mut Self, mask: __mmask16);
}

impl Store16 for f32 {
    #[inline(always)]
    unsafe fn store(v: __m512, to: *mut f32, mask: __mmask16) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_storeu_ps(to, mask, v) }
    }
}

impl Store16 for f16 {
    #[inline(always)]
    unsafe fn store(v: __m512, to: *mut f16, mask: __mmask16) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), mask, _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
}

impl Store16 for bf16 {
    #[inline(always)]
    unsafe fn store(v: __m512, to: *mut bf16, mask: __mmask16) {
        // SAFETY: the caller's promise.
        unsafe {
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            let kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x40_0000));
            _mm256_mask_storeu_epi16(to.cast(), mask, _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(kept)));
        }
    }
}

impl<T: Store16> Kernel for Single<T> {
    type Elem = T;
    type Packed = f32;
    const MR: usize = ROWS;
    const NR: usize = 32;
    const K_UNIT: usize = 1;
    const KC: usize = 512;
    const MC: usize = 20 * ROWS;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;
    const RATE: usize = 60_000;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { Avx512::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_f32::<T, ROWS>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_f32::<T, 32>(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<f32>,
        b: *const f32,
        rows: usize,
        cols: usize,
        target: Target<f32>,
        ahead: *const u8,
    ) {
        // SAFETY: the caller's promise.
        unsafe { tile_f32(k, a.ptr, b, rows, cols, target, ahead) }
    }

    #[inline(always)]
    unsafe fn narrow(from: *const f32, to: *mut T, len: usize) {
        for i in (0..len).step_by(16) {
            let mask = low_mask(len - i);
            // SAFETY: masked to `len`.
            unsafe { T::store(_mm512_maskz_loadu_ps(mask, from.add(i)), to.add(i), mask) };
        }
    }

    #[inline(always)]
    unsafe fn dot(len: usize, x: *const f32, y: *const T) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { dot_f32(len, x, y) }
    }
}

/// How many elements ahead of its sums a dot product fetches: the hardware stops at the end of each page.
const FETCH: usize = 1024;

/// Four chains of 16 sums hide the latency of the additions.
///
/// # Safety
/// Both pointers are readable for `len`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn dot_f32<T: Load16>(len: usize, x: *const f32, y: *const T) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 4];
    // SAFETY: loads are masked to `len`.
    unsafe {
        let mut i = 0;
        while i + 64 <= len {
            for (c, sum) in sums.iter_mut().enumerate() {
                let at = i + 16 * c;
                _mm_prefetch::<_MM_HINT_T0>(y.wrapping_add(at + FETCH).cast());
                *sum = _mm512_fmadd_ps(_mm512_loadu_ps(x.add(at)), T::load(y.add(at), 0xffff), *sum);
            }
            i += 64;
        }
        while i < len {
            let mask = low_mask(len - i);
            let (left, right) = (_mm512_maskz_loadu_ps(mask, x.add(i)), T::load(y.add(i), mask));
            sums[0] = _mm512_fmadd_ps(left, right, sums[0]);
            i += 16;
        }
    }
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])))
}

/// Calls `$kernel::<rows, vectors>` for run-time numbers of both; rows are rounded up to one of a few numbers.
macro_rules! with_size {
    ($rows:expr, $vectors:expr, $kernel:ident $args:tt) => {
        match $vectors {
            1 => with_size!(@ $rows, 1, $kernel, $args),
            _ => with_size!(@ $rows, 2, $kernel, $args),
        }
    };
    (@ $rows:expr, $vectors:literal, $kernel:ident, $args:tt) => {
        match $rows {
            ..=2 => $kernel::<2, $vectors> $args,
            ..=4 => $kernel::<4, $vectors> $args,
            ..=8 => $kernel::<8, $vectors> $args,
            ..=11 => $kernel::<11, $vectors> $args,
            _ => $kernel::<ROWS, $vectors> $args,
        }
    };
}

/// # Safety
/// As for [`Kernel::tile`].
#[target_feature(enable = "avx512f")]
unsafe fn tile_f32(
    k: usize,
    a: *const f32,
    b: *const f32,
    rows: usize,
    cols: usize,
    target: Target<f32>,
    ahead: *const u8,
) {
    // SAFETY: the caller's promise.
    unsafe { with_size!(rows, cols.div_ceil(16), tile_f32_sized(k, a, b, rows, cols, target, ahead)) }
}

/// # Safety
/// As for [`Kernel::tile`].
#[target_feature(enable = "avx512f")]
unsafe fn tile_f32_sized<const R: usize, const V: usize>(
    k: usize,
    mut a: *const f32,
    mut b: *const f32,
    rows: usize,
    cols: usize,
    target: Target<f32>,
    mut ahead: *const u8,
) {
    // SAFETY: strips are k deep; C is touched at `rows` rows and, by the masks, `cols` columns. Prefetches may point anywhere.
    unsafe {
        let row = |i: usize| target.ptr.offset(i as isize * target.stride);
        for i in 0..rows {
            for v in 0..V {
                _mm_prefetch::<_MM_HINT_T0>(row(i).wrapping_add(16 * v).cast());
            }
        }
        let mut sums = [[_mm512_setzero_ps(); V]; R];
        for p in 0..k {
            if p % K_PER_LINE == 0 {
                _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
                ahead = ahead.wrapping_add(64);
            }
            let mut right = [_mm512_setzero_ps(); V];
            for (v, r) in right.iter_mut().enumerate() {
                *r = _mm512_loadu_ps(b.add(16 * v));
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                let left = _mm512_set1_ps(*a.add(i));
                for v in 0..V {
                    sum[v] = _mm512_fmadd_ps(left, right[v], sum[v]);
                }
            }
            a = a.add(ROWS);
            b = b.add(2 * 16);
        }
        let alpha = _mm512_set1_ps(target.alpha);
        let beta = _mm512_set1_ps(target.beta);
        for (i, sum) in sums.iter().enumerate().take(rows) {
            for (v, &sum) in sum.iter().enumerate() {
                let mask = low_mask(cols - 16 * v);
                let to = row(i).add(16 * v);
                let mut out = _mm512_mul_ps(sum, alpha);
                if target.beta != 0.0 {
                    out = _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(mask, to), out);
                }
                _mm512_mask_storeu_ps(to, mask, out);
            }
        }
    }
}

/// `f64` sums.
pub(super) struct Double;

impl Kernel for Double {
    type Elem = f64;
    type Packed = f64;
    const MR: usize = ROWS;
    const NR: usize = 16;
    const K_UNIT: usize = 1;
    const KC: usize = 384;
    const MC: usize = 14 * ROWS;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;
    const RATE: usize = 30_000;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { Avx512::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_f64::<ROWS>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_f64::<16>(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<f64>,
        b: *const f64,
        rows: usize,
        cols: usize,
        target: Target<f64>,
        ahead: *const u8,
    ) {
        // SAFETY: the caller's promise.
        unsafe { tile_f64(k, a.ptr, b, rows, cols, target, ahead) }
    }

    #[inline(always)]
    unsafe fn dot(len: usize, x: *const f64, y: *const f64) -> f64 {
        // SAFETY: the caller's promise.
        unsafe { dot_f64(len, x, y) }
    }
}

/// As for `f32`, 8 sums in each chain.
///
/// # Safety
/// Both pointers are readable for `len`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn dot_f64(len: usize, x: *const f64, y: *const f64) -> f64 {
    let mut sums = [_mm512_setzero_pd(); 4];
    // SAFETY: loads are masked to `len`.
    unsafe {
        let mut i = 0;
        while i + 32 <= len {
            for (c, sum) in sums.iter_mut().enumerate() {
                let at = i + 8 * c;
                _mm_prefetch::<_MM_HINT_T0>(y.wrapping_add(at + FETCH).cast());
                *sum = _mm512_fmadd_pd(_mm512_loadu_pd(x.add(at)), _mm512_loadu_pd(y.add(at)), *sum);
            }
            i += 32;
        }
        while i < len {
            let mask = low_mask8(len - i);
            let (left, right) = (_mm512_maskz_loadu_pd(mask, x.add(i)), _mm512_maskz_loadu_pd(mask, y.add(i)));
            sums[0] = _mm512_fmadd_pd(left, right, sums[0]);
            i += 8;
        }
    }
    _mm512_reduce_add_pd(_mm512_add_pd(_mm512_add_pd(sums[0], sums[1]), _mm512_add_pd(sums[2], sums[3])))
}

/// # Safety
/// As for [`Kernel::tile`].
#[target_feature(enable = "avx512f")]
unsafe fn tile_f64(
    k: usize,
    a: *const f64,
    b: *const f64,
    rows: usize,
    cols: usize,
    target: Target<f64>,
    ahead: *const u8,
) {
    // SAFETY: the caller's promise.
    unsafe { with_size!(rows, cols.div_ceil(8), tile_f64_sized(k, a, b, rows, cols, target, ahead)) }
}

/// # Safety
/// As for [`Kernel::tile`].
#[target_feature(enable = "avx512f")]
unsafe fn tile_f64_sized<const R: usize, const V: usize>(
    k: usize,
    mut a: *const f64,
    mut b: *const f64,
    rows: usize,
    cols: usize,
    target: Target<f64>,
    mut ahead: *const u8,
) {
    // SAFETY: strips are k deep; C is touched at `rows` rows and, by the masks, `cols` columns. Prefetches may point anywhere.
    unsafe {
        let row = |i: usize| target.ptr.offset(i as isize * target.stride);
        for i in 0..rows {
            for v in 0..V {
                _mm_prefetch::<_MM_HINT_T0>(row(i).wrapping_add(8 * v).cast());
            }
        }
        let mut sums = [[_mm512_setzero_pd(); V]; R];
        for p in 0..k {
            if p % K_PER_LINE == 0 {
                _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
                ahead = ahead.wrapping_add(64);
            }
            let mut right = [_mm512_setzero_pd(); V];
            for (v, r) in right.iter_mut().enumerate() {
                *r = _mm512_loadu_pd(b.add(8 * v));
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                let left = _mm512_set1_pd(*a.add(i));
                for v in 0..V {
                    sum[v] = _mm512_fmadd_pd(left, right[v], sum[v]);
                }
            }
            a = a.add(ROWS);
            b = b.add(2 * 8);
        }
        let alpha = _mm512_set1_pd(target.alpha);
        let beta = _mm512_set1_pd(target.beta);
        for (i, sum) in sums.iter().enumerate().take(rows) {
            for (v, &sum) in sum.iter().enumerate() {
                let mask = low_mask8(cols - 8 * v);
                let to = row(i).add(8 * v);
                let mut out = _mm512_mul_pd(sum, alpha);
                if target.beta != 0.0 {
                    out = _mm512_fmadd_pd(beta, _mm512_maskz_loadu_pd(mask, to), out);
                }
                _mm512_mask_storeu_pd(to, mask, out);
            }
        }
    }
}
