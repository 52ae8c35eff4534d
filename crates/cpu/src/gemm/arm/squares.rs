//! The microkernel of matrix instructions: two rows of A times two columns of B give a square of four sums in a
//! register.
//!
//! `BFMMLA` takes four k of bf16 at a time and adds in `f32`; `SMMLA` takes eight of bytes and adds in `i32`. A tile of
//! eight rows by twelve columns is 24 squares. Like AVX512-BF16, `BFMMLA` takes subnormal values as zero.

use super::super::kernel::{Features, Kernel, Left, Strip, Target, Task, dot_in_lanes, prefetch_to_write};
use super::super::scalar::{Accumulator, Scalar};
use super::Matrices;
use super::elements::pack_groups;
use super::lanes::{self, Lanes};
use half::bf16;
use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

const ROWS: usize = 8;
const COLUMNS: usize = 12;

/// An 8-bit integer with products modulo 2⁸.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Byte(u8);

impl Scalar for Byte {
    type Acc = i32;
    const IS_ACC: bool = false;
    #[inline(always)]
    fn widen(self) -> i32 {
        self.0 as i8 as i32
    }
    #[inline(always)]
    fn narrow(acc: i32) -> Byte {
        Byte(acc as u8)
    }
}

/// An element that a matrix instruction multiplies.
pub(super) trait Square: Scalar {
    /// A vector of its sums.
    type Sums: Lanes<Acc = Self::Acc>;
    /// How many k a register holds of each of two rows.
    const DEPTH: usize;
    const RATE: usize;
    /// `sums[i][j] += a[i] · b[j]`.
    ///
    /// # Safety
    /// For all: the machine has the features of `Matrices`.
    unsafe fn multiply_add(sums: &mut Self::Sums, a: uint8x16_t, b: uint8x16_t);
    /// The upper rows of two squares as a vector, and the lower ones.
    unsafe fn rows(left: Self::Sums, right: Self::Sums) -> [Self::Sums; 2];
    /// See [`Kernel::narrow`].
    unsafe fn narrow_run(from: *const Self::Acc, to: *mut Self, len: usize);
}

macro_rules! square {
    ($t:ty, $sums:ty, $depth:literal, RATE $rate:literal, $instruction:literal, |$from:ident, $to:ident, $len:ident| $narrow:expr, $pairs:ident $words:ident) => {
        // SAFETY (all blocks): the caller guarantees the features and the memory.
        impl Square for $t {
            type Sums = $sums;
            const DEPTH: usize = $depth;
            const RATE: usize = $rate;
            #[inline(always)]
            unsafe fn multiply_add(sums: &mut $sums, a: uint8x16_t, b: uint8x16_t) {
                unsafe {
                    asm!($instruction, inout(vreg) *sums, in(vreg) a, in(vreg) b, options(pure, nomem, nostack, preserves_flags))
                }
            }
            #[inline(always)]
            unsafe fn rows(left: $sums, right: $sums) -> [$sums; 2] {
                unsafe {
                    let (left, right) = ($pairs(left), $pairs(right));
                    [$words(vtrn1q_f64(left, right)), $words(vtrn2q_f64(left, right))]
                }
            }
            #[inline(always)]
            unsafe fn narrow_run($from: *const Self::Acc, $to: *mut $t, $len: usize) {
                unsafe { $narrow }
            }
        }
    };
}
square!(
    bf16, float32x4_t, 4, RATE 80_000, "bfmmla {0:v}.4s, {1:v}.8h, {2:v}.8h",
    |from, to, len| crate::simd::neon::narrow_bf16(from, to, len),
    vreinterpretq_f64_f32 vreinterpretq_f32_f64
);
square!(
    Byte, int32x4_t, 8, RATE 120_000, "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b",
    |from, to, len| super::super::kernel::narrow_each(from, to, len),
    vreinterpretq_f64_s32 vreinterpretq_s32_f64
);

/// Products of `T` by matrix instructions.
pub(super) struct SquareKernel<T>(PhantomData<T>);

impl<T: Square> Kernel for SquareKernel<T> {
    type Elem = T;
    type Packed = T;
    const MR: usize = ROWS;
    const NR: usize = COLUMNS;
    const K_UNIT: usize = T::DEPTH;
    const KC: usize = 1536 / size_of::<T>();
    const MC: usize = 16 * ROWS;
    const WHOLE_TILES: bool = false;
    const COPIES_ROWS: bool = true;
    const FMA: bool = true;
    const RATE: usize = T::RATE;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { Matrices::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { pack::<T, ROWS>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { pack::<T, COLUMNS>(strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<T>,
        b: *const T,
        rows: usize,
        cols: usize,
        target: Target<T::Acc>,
        ahead: *const u8,
    ) {
        let tile = Tile::<T> { steps: k.div_ceil(T::DEPTH), a: a.ptr.cast(), b: b.cast(), rows, cols, target, ahead };
        // SAFETY: the caller's promise; the sizes hold the rows and columns.
        unsafe {
            match (rows <= ROWS / 2, cols.div_ceil(4)) {
                (true, ..=1) => Matrices::enter(Sized::<T, 2, 2>(tile)),
                (true, 2) => Matrices::enter(Sized::<T, 2, 4>(tile)),
                (true, _) => Matrices::enter(Sized::<T, 2, 6>(tile)),
                (false, ..=1) => Matrices::enter(Sized::<T, 4, 2>(tile)),
                (false, 2) => Matrices::enter(Sized::<T, 4, 4>(tile)),
                (false, _) => Matrices::enter(Sized::<T, 4, 6>(tile)),
            }
        }
    }

    #[inline(always)]
    unsafe fn narrow(from: *const T::Acc, to: *mut T, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { T::narrow_run(from, to, len) }
    }

    #[inline(always)]
    unsafe fn dot(len: usize, x: *const T::Acc, y: *const T) -> T::Acc {
        // SAFETY: the caller's promise.
        unsafe { dot_in_lanes::<T, true>(len, x, y) }
    }
}

/// # Safety
/// As for [`Kernel::pack_a`].
#[inline(always)]
unsafe fn pack<T: Square, const WIDTH: usize>(strip: Strip<T>, to: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { if T::DEPTH == 4 { pack_groups::<T, WIDTH, 4>(strip, to) } else { pack_groups::<T, WIDTH, 8>(strip, to) } }
}

/// The arguments of [`Kernel::tile`]; a register holds two rows or two columns.
struct Tile<T: Square> {
    steps: usize,
    a: *const u8,
    b: *const u8,
    rows: usize,
    cols: usize,
    target: Target<T::Acc>,
    ahead: *const u8,
}

/// A tile of up to R pairs of rows and C pairs of columns.
struct Sized<T: Square, const R: usize, const C: usize>(Tile<T>);

impl<T: Square, const R: usize, const C: usize> Task for Sized<T, R, C> {
    #[inline(always)]
    unsafe fn run(self) {
        let Tile { steps, mut a, mut b, rows, cols, target, mut ahead } = self.0;
        // SAFETY: the strips have `steps` steps of 8 bytes for each row and column; prefetches may point anywhere.
        unsafe {
            (0..rows).for_each(|i| prefetch_to_write(target.ptr.wrapping_offset(i as isize * target.stride)));
            let mut sums = [[T::Sums::splat(T::Acc::ZERO); C]; R];
            for p in 0..steps {
                if p.is_multiple_of(4) {
                    lanes::prefetch_later(ahead);
                    ahead = ahead.wrapping_add(64);
                }
                let mut left = [vdupq_n_u8(0); R];
                for (r, left) in left.iter_mut().enumerate() {
                    *left = vld1q_u8(a.add(16 * r));
                }
                for c in 0..C {
                    let right = vld1q_u8(b.add(16 * c));
                    for r in 0..R {
                        T::multiply_add(&mut sums[r][c], left[r], right);
                    }
                }
                a = a.add(8 * ROWS);
                b = b.add(8 * COLUMNS);
            }
            for (r, squares) in sums.iter().enumerate() {
                if 2 * r >= rows {
                    break;
                }
                let mut pair = [[T::Sums::splat(T::Acc::ZERO); 3]; 2];
                for c in 0..C / 2 {
                    let [upper, lower] = T::rows(squares[2 * c], squares[2 * c + 1]);
                    (pair[0][c], pair[1][c]) = (upper, lower);
                }
                let ptr = target.ptr.wrapping_offset(2 * r as isize * target.stride);
                write::<T, C>(&pair, rows - 2 * r, cols, Target { ptr, ..target });
            }
        }
    }
}

/// Combines two rows of sums, C / 2 vectors each, with their target.
///
/// # Safety
/// As for [`lanes::write`].
#[inline(always)]
unsafe fn write<T: Square, const C: usize>(pair: &[[T::Sums; 3]; 2], rows: usize, cols: usize, target: Target<T::Acc>) {
    let rows = rows.min(2);
    // SAFETY: the caller's promise.
    unsafe {
        match C / 2 {
            1 => lanes::write::<T::Sums, 2, 1>(&[[pair[0][0]], [pair[1][0]]], rows, cols, target),
            2 => {
                let pair = [[pair[0][0], pair[0][1]], [pair[1][0], pair[1][1]]];
                lanes::write::<T::Sums, 2, 2>(&pair, rows, cols, target)
            }
            _ => lanes::write::<T::Sums, 2, 3>(pair, rows, cols, target),
        }
    }
}
