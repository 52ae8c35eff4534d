//! AVX2 and FMA vectors for the microkernel, and their elements.

use super::super::kernel::{Strip, pack_widened};
use super::super::scalar::Scalar;
use super::fma::{Elements, Lanes, Tile, dispatch};
use crate::isa::Avx2;
use std::arch::x86_64::*;

/// The mask of the first `len` of four or eight lanes starts `len` values before the middle of this array.
static MASK32: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
static MASK64: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

macro_rules! lanes {
    (
        $v:ty, $t:ty, $len:literal, KC $kc:literal, MC $mc:literal, RATE $rate:literal, $masks:ident,
        $zero:ident, $splat:ident, $load:ident, $store:ident, $load_part:ident, $store_part:ident, $fma:ident,
        |$upper:ident, $lower:ident| $add_pairs:expr
    ) => {
        impl Lanes for $v {
            type Acc = $t;
            type Isa = Avx2;
            const LEN: usize = $len;
            const ROWS: usize = 6;
            const KC: usize = $kc;
            const MC: usize = $mc;
            const RATE: usize = $rate;
            const BROADCASTS: bool = false;

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
                // SAFETY: the caller's promise; the mask is read inside its table.
                unsafe {
                    if len >= $len {
                        $load(from)
                    } else {
                        $load_part(from, _mm256_loadu_si256($masks.as_ptr().add($len - len).cast()))
                    }
                }
            }
            #[inline(always)]
            unsafe fn store_part(self, to: *mut $t, len: usize) {
                // SAFETY: as above.
                unsafe {
                    if len >= $len {
                        $store(to, self)
                    } else {
                        $store_part(to, _mm256_loadu_si256($masks.as_ptr().add($len - len).cast()), self)
                    }
                }
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
            dispatch!(2 4 | 6);
        }
    };
}

lanes!(
    __m256, f32, 8, KC 768, MC 144, RATE 30_000, MASK32,
    _mm256_setzero_ps, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_maskload_ps, _mm256_maskstore_ps,
    _mm256_fmadd_ps, |x, y| _mm256_addsub_ps(x, _mm256_permute_ps::<0b1011_0001>(y))
);
lanes!(
    __m256d, f64, 4, KC 640, MC 96, RATE 15_000, MASK64,
    _mm256_setzero_pd, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_maskload_pd, _mm256_maskstore_pd,
    _mm256_fmadd_pd, |x, y| _mm256_addsub_pd(x, _mm256_permute_pd::<0b0101>(y))
);

impl<T: Scalar<Acc = f32>> Elements<T> for __m256 {
    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<T, { Self::ROWS }>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<T, { 2 * Self::LEN }>(strip, to) }
    }
}

impl Elements<f64> for __m256d {
    #[inline(always)]
    unsafe fn pack_a(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<f64, { Self::ROWS }>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<f64, { 2 * Self::LEN }>(strip, to) }
    }
}
