//! The microkernel that multiplies a vector of B by single lanes of A.
//!
//! A tile of eight rows by three vectors keeps 24 sums in registers; five more hold a column of A and a row of B. Every
//! value of A is loaded once and not broadcast: the multiply-add reads it from a lane.

use super::super::kernel::{Features, Kernel, Left, Strip, Target, Task, prefetch_to_write};
use super::super::scalar::{Accumulator, Scalar};
use super::DotProd;
use crate::isa::Neon;
use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

/// Rows of a tile.
pub(super) const ROWS: usize = 8;
/// Vectors across a tile.
pub(super) const ACROSS: usize = 3;

/// A register of sums or factors. All methods need the features of `Isa`.
pub(super) trait Lanes: Copy + Send + Sync + 'static {
    type Acc: Accumulator;
    /// A packed element.
    type Packed: Copy + Send + Sync + 'static;
    type Isa: Features;
    /// How many sums it holds.
    const LEN: usize;
    /// How many k a lane of an operand holds.
    const DEPTH: usize;
    /// See [`Kernel`].
    const KC: usize;
    const RATE: usize;

    unsafe fn splat(v: Self::Acc) -> Self;
    unsafe fn load(from: *const Self::Acc) -> Self;
    unsafe fn store(self, to: *mut Self::Acc);
    /// An operand.
    unsafe fn operand(from: *const Self::Packed) -> Self;
    /// `self · other + sum`, lane by lane, of sums.
    unsafe fn multiply_add(self, other: Self, sum: Self) -> Self;
    /// `self + other`, of sums.
    unsafe fn plus(self, other: Self) -> Self;
    /// The sum of all lanes.
    unsafe fn total(self) -> Self::Acc;
    /// Adds lane `i` of `left` times `right` to row `first + i` of the sums.
    unsafe fn add_products<const R: usize, const C: usize>(
        left: Self,
        right: &[Self; C],
        sums: &mut [[Self; C]; R],
        first: usize,
    );

    /// The first `len` sums, at most all, zeros beyond.
    #[inline(always)]
    unsafe fn load_part(from: *const Self::Acc, len: usize) -> Self {
        // SAFETY: the caller's promise; the array has room for a vector.
        unsafe {
            if len >= Self::LEN {
                return Self::load(from);
            }
            let mut values = [Self::Acc::ZERO; 4];
            (0..len).for_each(|i| values[i] = *from.add(i));
            Self::load(values.as_ptr())
        }
    }

    /// Writes the first `len` sums, at most all.
    #[inline(always)]
    unsafe fn store_part(self, to: *mut Self::Acc, len: usize) {
        // SAFETY: as above.
        unsafe {
            if len >= Self::LEN {
                return self.store(to);
            }
            let mut values = [Self::Acc::ZERO; 4];
            self.store(values.as_mut_ptr());
            (0..len).for_each(|i| *to.add(i) = values[i]);
        }
    }
}

macro_rules! lanes {
    (
        $v:ty, $t:ty, $len:literal, KC $kc:literal, RATE $rate:literal,
        $splat:ident $load:ident $store:ident $plus:ident $total:ident, |$a:ident, $b:ident, $sum:ident| $fma:expr, $by_lane:ident: $($lane:literal)*
    ) => {
        // SAFETY (all blocks): every 64-bit ARM has NEON; the caller guarantees the memory.
        impl Lanes for $v {
            type Acc = $t;
            type Packed = $t;
            type Isa = Neon;
            const LEN: usize = $len;
            const DEPTH: usize = 1;
            const KC: usize = $kc;
            const RATE: usize = $rate;

            #[inline(always)]
            unsafe fn splat(v: $t) -> Self {
                unsafe { $splat(v) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn operand(from: *const $t) -> Self {
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn multiply_add(self, other: Self, $sum: Self) -> Self {
                let ($a, $b) = (self, other);
                unsafe { $fma }
            }
            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                unsafe { $plus(self, other) }
            }
            #[inline(always)]
            unsafe fn total(self) -> $t {
                unsafe { $total(self) }
            }
            #[inline(always)]
            unsafe fn add_products<const R: usize, const C: usize>(
                left: Self,
                right: &[Self; C],
                sums: &mut [[Self; C]; R],
                first: usize,
            ) {
                for c in 0..C {
                    $(sums[first + $lane][c] = unsafe { $by_lane::<$lane>(sums[first + $lane][c], right[c], left) };)*
                }
            }
        }
    };
}
lanes!(
    float32x4_t, f32, 4, KC 384, RATE 20_000,
    vdupq_n_f32 vld1q_f32 vst1q_f32 vaddq_f32 vaddvq_f32, |a, b, sum| vfmaq_f32(sum, a, b), vfmaq_laneq_f32: 0 1 2 3
);
lanes!(
    float64x2_t, f64, 2, KC 384, RATE 10_000,
    vdupq_n_f64 vld1q_f64 vst1q_f64 vaddq_f64 vaddvq_f64, |a, b, sum| vfmaq_f64(sum, a, b), vfmaq_laneq_f64: 0 1
);
lanes!(
    int32x4_t, i32, 4, KC 384, RATE 10_000,
    vdupq_n_s32 vld1q_s32 vst1q_s32 vaddq_s32 vaddvq_s32, |a, b, sum| vmlaq_s32(sum, a, b), vmlaq_laneq_s32: 0 1 2 3
);

/// Four sums of products of bytes; as an operand, four bytes along K in each lane.
#[derive(Clone, Copy)]
pub(super) struct Dots(int32x4_t);

// SAFETY (all blocks): the caller guarantees the features and the memory.
impl Lanes for Dots {
    type Acc = i32;
    type Packed = u8;
    type Isa = DotProd;
    const LEN: usize = 4;
    const DEPTH: usize = 4;
    const KC: usize = 1024;
    const RATE: usize = 60_000;

    #[inline(always)]
    unsafe fn splat(v: i32) -> Self {
        Self(unsafe { vdupq_n_s32(v) })
    }
    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        Self(unsafe { vld1q_s32(from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        unsafe { vst1q_s32(to, self.0) }
    }
    #[inline(always)]
    unsafe fn operand(from: *const u8) -> Self {
        Self(unsafe { vreinterpretq_s32_u8(vld1q_u8(from)) })
    }
    #[inline(always)]
    unsafe fn multiply_add(self, other: Self, sum: Self) -> Self {
        Self(unsafe { vmlaq_s32(sum.0, self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        Self(unsafe { vaddq_s32(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn total(self) -> i32 {
        unsafe { vaddvq_s32(self.0) }
    }
    #[inline(always)]
    unsafe fn add_products<const R: usize, const C: usize>(
        left: Self,
        right: &[Self; C],
        sums: &mut [[Self; C]; R],
        first: usize,
    ) {
        macro_rules! lane {
            ($lane:literal, $c:expr) => {
                // SAFETY: from registers to a register.
                unsafe {
                    asm!(
                        concat!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[", $lane, "]"),
                        inout(vreg) sums[first + $lane][$c].0, in(vreg) right[$c].0, in(vreg) left.0,
                        options(pure, nomem, nostack, preserves_flags)
                    )
                }
            };
        }
        for c in 0..C {
            lane!(0, c);
            lane!(1, c);
            lane!(2, c);
            lane!(3, c);
        }
    }
}

/// Packing and rounding of elements for a vector's kernel.
pub(super) trait Elements<T: Scalar<Acc = Self::Acc>>: Lanes {
    /// Packs a strip as `[k / DEPTH][WIDTH][DEPTH]`, missing lanes and k as zeros.
    unsafe fn pack<const WIDTH: usize>(strip: Strip<T>, to: *mut Self::Packed);
    /// See [`Kernel::narrow`].
    unsafe fn narrow(from: *const Self::Acc, to: *mut T, len: usize);
    /// See [`Kernel::dot`].
    unsafe fn dot(len: usize, x: *const Self::Acc, y: *const T) -> Self::Acc;
}

/// Products of `T` with sums in vectors `V`.
pub(super) struct LaneKernel<V, T>(PhantomData<(V, T)>);

impl<V: Elements<T>, T: Scalar<Acc = V::Acc>> Kernel for LaneKernel<V, T> {
    type Elem = T;
    type Packed = V::Packed;
    const MR: usize = ROWS;
    const NR: usize = ACROSS * V::LEN;
    const K_UNIT: usize = V::DEPTH;
    const KC: usize = V::KC;
    const MC: usize = 16 * ROWS;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;
    const RATE: usize = V::RATE;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { V::Isa::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<T>, to: *mut V::Packed) {
        // SAFETY: the caller's promise.
        unsafe { V::pack::<ROWS>(strip, to) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<T>, to: *mut V::Packed) {
        // SAFETY: the caller's promise.
        unsafe { if V::LEN == 4 { V::pack::<{ ACROSS * 4 }>(strip, to) } else { V::pack::<{ ACROSS * 2 }>(strip, to) } }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<V::Packed>,
        b: *const V::Packed,
        rows: usize,
        cols: usize,
        target: Target<V::Acc>,
        ahead: *const u8,
    ) {
        let tile = Tile::<V> { depth: k.div_ceil(V::DEPTH), a: a.ptr, b, rows, cols, target, ahead };
        // SAFETY: the caller's promise; the sizes hold the rows and columns.
        unsafe {
            match (rows <= ROWS / 2, cols.div_ceil(V::LEN)) {
                (true, ..=1) => V::Isa::enter(Sized::<V, 4, 1>(tile)),
                (true, 2) => V::Isa::enter(Sized::<V, 4, 2>(tile)),
                (true, _) => V::Isa::enter(Sized::<V, 4, 3>(tile)),
                (false, ..=1) => V::Isa::enter(Sized::<V, 8, 1>(tile)),
                (false, 2) => V::Isa::enter(Sized::<V, 8, 2>(tile)),
                (false, _) => V::Isa::enter(Sized::<V, 8, 3>(tile)),
            }
        }
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
struct Tile<V: Lanes> {
    depth: usize,
    a: *const V::Packed,
    b: *const V::Packed,
    rows: usize,
    cols: usize,
    target: Target<V::Acc>,
    ahead: *const u8,
}

/// A tile of up to R rows and C vectors.
struct Sized<V: Lanes, const R: usize, const C: usize>(Tile<V>);

impl<V: Lanes, const R: usize, const C: usize> Task for Sized<V, R, C> {
    #[inline(always)]
    unsafe fn run(self) {
        let Tile { depth, mut a, mut b, rows, cols, target, mut ahead } = self.0;
        // SAFETY: strips are `depth` deep; C is touched at `rows` rows and `cols` columns. Prefetches may point
        // anywhere.
        unsafe {
            (0..rows).for_each(|i| prefetch_to_write(target.ptr.wrapping_offset(i as isize * target.stride)));
            let mut sums = [[V::splat(V::Acc::ZERO); C]; R];
            for p in 0..depth {
                if p.is_multiple_of(8) {
                    prefetch_later(ahead);
                    ahead = ahead.wrapping_add(64);
                }
                let mut right = [V::splat(V::Acc::ZERO); C];
                for (c, right) in right.iter_mut().enumerate() {
                    *right = V::operand(b.add(c * V::LEN * V::DEPTH));
                }
                for first in (0..R).step_by(V::LEN) {
                    let left = V::operand(a.add(first * V::DEPTH));
                    V::add_products(left, &right, &mut sums, first);
                }
                a = a.add(ROWS * V::DEPTH);
                b = b.add(ACROSS * V::LEN * V::DEPTH);
            }
            write(&sums, rows, cols, target);
        }
    }
}

/// Prefetches a line into the second-level cache. Any address is allowed.
#[inline(always)]
pub(super) fn prefetch_later(line: *const u8) {
    // SAFETY: a hint, which never faults.
    unsafe { asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, readonly, preserves_flags)) }
}

/// Combines rows of sums with their target.
///
/// # Safety
/// The target is valid at `rows × cols`, and there are as many sums.
#[inline(always)]
pub(super) unsafe fn write<V: Lanes, const R: usize, const C: usize>(
    sums: &[[V; C]; R],
    rows: usize,
    cols: usize,
    target: Target<V::Acc>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut bias = [V::splat(V::Acc::ZERO); C];
        if !target.bias.is_null() {
            for (c, bias) in bias.iter_mut().enumerate() {
                *bias = V::load_part(target.bias.add(c * V::LEN), cols - c * V::LEN);
            }
        }
        let (alpha, beta) = (V::splat(target.alpha), V::splat(target.beta));
        for (i, sum) in sums.iter().enumerate() {
            // A constant bound keeps the sums in registers.
            if i >= rows {
                break;
            }
            for (c, &sum) in sum.iter().enumerate() {
                let len = cols - c * V::LEN;
                let to = target.ptr.offset(i as isize * target.stride).add(c * V::LEN);
                let mut out = sum.multiply_add(alpha, bias[c]);
                if target.beta != V::Acc::ZERO {
                    out = beta.multiply_add(V::load_part(to, len), out);
                }
                out.store_part(to, len);
            }
        }
    }
}
