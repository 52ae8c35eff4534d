//! AVX-512 microkernels for `f32` (and what widens to it) and `f64`.

use super::super::kernel::{Features, Kernel, Strip, Target, Task, pack_widened};
use super::super::scalar::Scalar;
use super::pack512::{Load16, low_mask, pack_f32};
use crate::isa::Avx512;
use half::{bf16, f16};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Rows × columns of vectors of a tile: 28 sums, two vectors of B and one broadcast fill the 32 registers but one.
const ROWS: usize = 14;

/// `f32` sums.
pub(super) struct Single<T>(PhantomData<T>);

/// How `f32` sums become elements.
pub(super) trait Narrow16: Load16 + Scalar<Acc = f32> {
    /// # Safety
    /// The elements whose mask bits are set are writable. Needs AVX-512 F, BW and VL.
    unsafe fn store(v: __m512, to: *mut Self, mask: __mmask16);
}

impl Narrow16 for f32 {
    #[inline(always)]
    unsafe fn store(v: __m512, to: *mut f32, mask: __mmask16) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_storeu_ps(to, mask, v) }
    }
}

impl Narrow16 for f16 {
    #[inline(always)]
    unsafe fn store(v: __m512, to: *mut f16, mask: __mmask16) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), mask, _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
}

impl Narrow16 for bf16 {
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

impl<T: Narrow16> Kernel for Single<T> {
    type Elem = T;
    type Packed = f32;
    const MR: usize = ROWS;
    const NR: usize = 32;
    const K_UNIT: usize = 1;
    const KC: usize = 384;
    const MC: usize = 20 * ROWS;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;

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
    unsafe fn tile(k: usize, a: *const f32, b: *const f32, rows: usize, cols: usize, target: Target<f32>) {
        // SAFETY: the caller's promise.
        unsafe { tile_f32(k, a, b, rows, cols, target) }
    }

    #[inline(always)]
    unsafe fn narrow(from: *const f32, to: *mut T, len: usize) {
        for i in (0..len).step_by(16) {
            let mask = low_mask(len - i);
            // SAFETY: masked to `len`.
            unsafe { T::store(_mm512_maskz_loadu_ps(mask, from.add(i)), to.add(i), mask) };
        }
    }
}

/// Calls `$kernel::<rows, $vectors>` for a run-time number of rows.
macro_rules! with_rows {
    ($rows:expr, $kernel:ident, $vectors:literal, $args:tt) => {
        with_rows!(@ $rows, $kernel, $vectors, $args, 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    (@ $rows:expr, $kernel:ident, $vectors:literal, $args:tt, $($n:literal)*) => {
        match $rows {
            $($n => $kernel::<$n, $vectors> $args,)*
            _ => $kernel::<ROWS, $vectors> $args,
        }
    };
}

#[target_feature(enable = "avx512f")]
unsafe fn tile_f32(k: usize, a: *const f32, b: *const f32, rows: usize, cols: usize, target: Target<f32>) {
    // SAFETY: the caller's promise.
    unsafe {
        if cols > 16 {
            with_rows!(rows, tile_f32_sized, 2, (k, a, b, cols, target))
        } else {
            with_rows!(rows, tile_f32_sized, 1, (k, a, b, cols, target))
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn tile_f32_sized<const R: usize, const V: usize>(
    k: usize,
    mut a: *const f32,
    mut b: *const f32,
    cols: usize,
    target: Target<f32>,
) {
    // SAFETY: strips are k deep; C is touched at R rows and, by the masks, `cols` columns.
    unsafe {
        let row = |i: usize| target.ptr.offset(i as isize * target.stride);
        for i in 0..R {
            _mm_prefetch::<_MM_HINT_ET0>(row(i).cast());
            _mm_prefetch::<_MM_HINT_ET0>(row(i).wrapping_add(cols - 1).cast());
        }
        let mut sums = [[_mm512_setzero_ps(); V]; R];
        for _ in 0..k {
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
            b = b.add(32);
        }
        let alpha = _mm512_set1_ps(target.alpha);
        let beta = _mm512_set1_ps(target.beta);
        for (i, sum) in sums.iter().enumerate() {
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
    const KC: usize = 256;
    const MC: usize = 14 * ROWS;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { Avx512::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<f64, ROWS>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<f64, 16>(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(k: usize, a: *const f64, b: *const f64, rows: usize, cols: usize, target: Target<f64>) {
        // SAFETY: the caller's promise.
        unsafe { tile_f64(k, a, b, rows, cols, target) }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn tile_f64(k: usize, a: *const f64, b: *const f64, rows: usize, cols: usize, target: Target<f64>) {
    // SAFETY: the caller's promise.
    unsafe {
        if cols > 8 {
            with_rows!(rows, tile_f64_sized, 2, (k, a, b, cols, target))
        } else {
            with_rows!(rows, tile_f64_sized, 1, (k, a, b, cols, target))
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn tile_f64_sized<const R: usize, const V: usize>(
    k: usize,
    mut a: *const f64,
    mut b: *const f64,
    cols: usize,
    target: Target<f64>,
) {
    // SAFETY: strips are k deep; C is touched at R rows and, by the masks, `cols` columns.
    unsafe {
        let row = |i: usize| target.ptr.offset(i as isize * target.stride);
        for i in 0..R {
            _mm_prefetch::<_MM_HINT_ET0>(row(i).cast());
            _mm_prefetch::<_MM_HINT_ET0>(row(i).wrapping_add(cols - 1).cast());
        }
        let mut sums = [[_mm512_setzero_pd(); V]; R];
        for _ in 0..k {
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
            b = b.add(16);
        }
        let alpha = _mm512_set1_pd(target.alpha);
        let beta = _mm512_set1_pd(target.beta);
        for (i, sum) in sums.iter().enumerate() {
            for (v, &sum) in sum.iter().enumerate() {
                let left_over = cols - 8 * v;
                let mask = if left_over >= 8 { 0xff } else { (1u8 << left_over) - 1 };
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
