//! Products of 32- and 64-bit integers on AVX-512: sums wrap.

use super::super::kernel::{Features, Kernel, Left, Strip, Target, Task, pack_widened, write_tile};
use super::super::scalar::Accumulator;
use crate::isa::Avx512;
use std::arch::x86_64::*;
use std::marker::PhantomData;

const MR: usize = 8;

/// An element that 512-bit vectors multiply.
pub(super) trait Integer: Accumulator {
    /// # Safety
    /// The machine has AVX-512 DQ.
    unsafe fn splat(self) -> __m512i;
    /// `sum + a * b`.
    ///
    /// # Safety
    /// As above.
    unsafe fn multiply_add(sum: __m512i, a: __m512i, b: __m512i) -> __m512i;
}

impl Integer for i32 {
    #[inline(always)]
    unsafe fn splat(self) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_set1_epi32(self) }
    }
    #[inline(always)]
    unsafe fn multiply_add(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_add_epi32(sum, _mm512_mullo_epi32(a, b)) }
    }
}

impl Integer for i64 {
    #[inline(always)]
    unsafe fn splat(self) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_set1_epi64(self) }
    }
    #[inline(always)]
    unsafe fn multiply_add(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_add_epi64(sum, _mm512_mullo_epi64(a, b)) }
    }
}

/// Eight rows by `NR` columns, two vectors.
pub(super) struct Integers<T, const NR: usize>(PhantomData<T>);

impl<T: Integer, const NR: usize> Kernel for Integers<T, NR> {
    type Elem = T;
    type Packed = T;
    const MR: usize = MR;
    const NR: usize = NR;
    const K_UNIT: usize = 1;
    const KC: usize = 256;
    const MC: usize = 128;
    const WHOLE_TILES: bool = false;
    const FMA: bool = false;
    const RATE: usize = 10_000;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { Avx512::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<T, MR>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { pack_widened::<T, NR>(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(k: usize, a: Left<T>, b: *const T, rows: usize, cols: usize, target: Target<T>, _ahead: *const u8) {
        const { assert!(NR * size_of::<T>() == 2 * size_of::<__m512i>()) };
        // SAFETY: packed strips are `k` deep; a tile of sums has as many bytes as its vectors.
        unsafe {
            let mut sums = [[_mm512_setzero_si512(); 2]; MR];
            for p in 0..k {
                let b = b.add(p * NR).cast::<__m512i>();
                let right = [_mm512_loadu_si512(b), _mm512_loadu_si512(b.add(1))];
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left = (*a.ptr.add(p * MR + i)).splat();
                    sums[0] = T::multiply_add(sums[0], left, right[0]);
                    sums[1] = T::multiply_add(sums[1], left, right[1]);
                }
            }
            write_tile(&*(&raw const sums).cast::<[[T; NR]; MR]>(), rows, cols, target)
        }
    }
}
