//! AVX2 and FMA microkernels for `f32` (and what widens to it) and `f64`.

use super::super::kernel::{Features, Kernel, Left, Strip, Target, Task, pack_widened, write_tile};
use super::super::scalar::Scalar;
use crate::isa::Avx2;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Rows of a tile: twelve sums, two vectors of B and two broadcasts fill the 16 registers.
const ROWS: usize = 6;

/// `f32` sums.
pub(super) struct Single<T>(PhantomData<T>);

impl<T: Scalar<Acc = f32>> Kernel for Single<T> {
    type Elem = T;
    type Packed = f32;
    const MR: usize = ROWS;
    const NR: usize = 16;
    const K_UNIT: usize = 1;
    const KC: usize = 256;
    const MC: usize = 24 * ROWS;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;
    const RATE: usize = 30_000;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { Avx2::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<T, ROWS>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<T, 16>(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<f32>,
        b: *const f32,
        rows: usize,
        cols: usize,
        target: Target<f32>,
        _ahead: *const u8,
    ) {
        // SAFETY: the caller's promise.
        unsafe { tile_f32(k, a.ptr, b, rows, cols, target) }
    }
}

/// `f64` sums.
pub(super) struct Double;

impl Kernel for Double {
    type Elem = f64;
    type Packed = f64;
    const MR: usize = ROWS;
    const NR: usize = 8;
    const K_UNIT: usize = 1;
    const KC: usize = 256;
    const MC: usize = 16 * ROWS;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;
    const RATE: usize = 15_000;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { Avx2::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<f64, ROWS>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<f64>, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<f64, 8>(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<f64>,
        b: *const f64,
        rows: usize,
        cols: usize,
        target: Target<f64>,
        _ahead: *const u8,
    ) {
        // SAFETY: the caller's promise.
        unsafe { tile_f64(k, a.ptr, b, rows, cols, target) }
    }
}

/// Defines a tile of 6 rows by two vectors.
macro_rules! tile {
    ($name:ident, $t:ident, $lanes:literal, $zero:ident, $load:ident, $store:ident, $broadcast:ident, $fma:ident) => {
        /// # Safety
        /// As for [`Kernel::tile`].
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $name(k: usize, mut a: *const $t, mut b: *const $t, rows: usize, cols: usize, target: Target<$t>) {
            const NR: usize = 2 * $lanes;
            // SAFETY: the strips are k deep, and the target is valid at rows × cols.
            unsafe {
                let mut sums = [[$zero(); 2]; ROWS];
                for _ in 0..k {
                    let (low, high) = ($load(b), $load(b.add($lanes)));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let left = $broadcast(*a.add(i));
                        sum[0] = $fma(left, low, sum[0]);
                        sum[1] = $fma(left, high, sum[1]);
                    }
                    a = a.add(ROWS);
                    b = b.add(NR);
                }
                let mut tile = [[0.0; NR]; ROWS];
                for (sum, row) in sums.iter().zip(&mut tile) {
                    $store(row.as_mut_ptr(), sum[0]);
                    $store(row.as_mut_ptr().add($lanes), sum[1]);
                }
                // Constant bounds let the usual case become vector code.
                if rows == ROWS && cols == NR {
                    write_tile(&tile, ROWS, NR, target);
                } else {
                    write_tile(&tile, rows, cols, target);
                }
            }
        }
    };
}

tile!(tile_f32, f32, 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps);
tile!(tile_f64, f64, 4, _mm256_setzero_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_fmadd_pd);
