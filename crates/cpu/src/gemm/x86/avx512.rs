//! AVX-512 vectors for the microkernel, and their elements.

use super::super::kernel::Strip;
use super::super::scalar::Scalar;
use super::fma::{Elements, Lanes, Tile, dispatch};
use super::pack512::{Load16, low_mask, low_mask8, pack_f32, pack_f64};
use crate::isa::Avx512;
use half::{bf16, f16};
use std::arch::x86_64::*;

macro_rules! lanes {
    (
        $v:ty, $t:ty, $len:literal, KC $kc:literal, MC $mc:literal, RATE $rate:literal, $mask:ident,
        $zero:ident, $splat:ident, $load:ident, $load_part:ident, $store_part:ident, $fma:ident,
        |$upper:ident, $lower:ident| $add_pairs:expr
    ) => {
        impl Lanes for $v {
            type Acc = $t;
            type Isa = Avx512;
            const LEN: usize = $len;
            const ROWS: usize = 14;
            const KC: usize = $kc;
            const MC: usize = $mc;
            const RATE: usize = $rate;
            const BROADCASTS: bool = true;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller guarantees the features, here and below.
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn splat(from: *const $t) -> Self {
                // SAFETY: the caller's promise.
                unsafe { $splat(*from) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                // SAFETY: the caller's promise.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn load_part(from: *const $t, len: usize) -> Self {
                // SAFETY: the caller's promise.
                unsafe { $load_part($mask(len), from) }
            }
            #[inline(always)]
            unsafe fn store_part(self, to: *mut $t, len: usize) {
                // SAFETY: the caller's promise.
                unsafe { $store_part(to, $mask(len), self) }
            }
            #[inline(always)]
            unsafe fn fma(self, other: Self, sum: Self) -> Self {
                // SAFETY: as above.
                unsafe { $fma(self, other, sum) }
            }
            #[inline(always)]
            unsafe fn add_pairs(self, $lower: Self) -> Self {
                let $upper = self;
                // SAFETY: as above.
                unsafe { $add_pairs }
            }
            dispatch!(2 4 8 11 | 14);
        }
    };
}

lanes!(
    __m512, f32, 16, KC 768, MC 280, RATE 60_000, low_mask,
    _mm512_setzero_ps, _mm512_set1_ps, _mm512_loadu_ps, _mm512_maskz_loadu_ps, _mm512_mask_storeu_ps, _mm512_fmadd_ps,
    |x, y| _mm512_fmaddsub_ps(x, _mm512_set1_ps(1.0), _mm512_permute_ps::<0b1011_0001>(y))
);
lanes!(
    __m512d, f64, 8, KC 640, MC 196, RATE 30_000, low_mask8,
    _mm512_setzero_pd, _mm512_set1_pd, _mm512_loadu_pd, _mm512_maskz_loadu_pd, _mm512_mask_storeu_pd, _mm512_fmadd_pd,
    |x, y| _mm512_fmaddsub_pd(x, _mm512_set1_pd(1.0), _mm512_permute_pd::<0b0101_0101>(y))
);

impl<T: Store16> Elements<T> for __m512 {
    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_f32::<T, { Self::ROWS }>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_f32::<T, { 2 * Self::LEN }>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_pairs(s: Strip<[T; 2]>, to: *mut f32) {
        const { assert!(T::IS_ACC) };
        let Strip { ptr, lane_stride, k_stride, lanes, k } = s;
        // SAFETY: the caller's promise. Pairs of `f32` move as eight bytes each, whatever their values.
        unsafe {
            let eights = Strip { ptr: ptr.cast(), lane_stride, k_stride, lanes, k };
            pack_f64::<{ Self::ROWS / 2 }>(eights, to.cast());
        }
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

impl Elements<f64> for __m512d {
    #[inline(always)]
    unsafe fn pack_a(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_f64::<{ Self::ROWS }>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_f64::<{ 2 * Self::LEN }>(strip, to) }
    }

    #[inline(always)]
    unsafe fn dot(len: usize, x: *const f64, y: *const f64) -> f64 {
        // SAFETY: the caller's promise.
        unsafe { dot_f64(len, x, y) }
    }
}

/// Conversion of `f32` sums to elements.
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

/// Prefetch distance of a dot product in elements: the hardware prefetcher stops at the end of each page.
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
