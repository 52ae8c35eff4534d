//! Packing and rounding of elements for the ARM kernels.

use super::super::kernel::{Strip, dot_in_lanes, narrow_each, pack_widened};
use super::super::scalar::Scalar;
use super::lanes::{Dots, Elements, Lanes};
use super::squares::Byte;
use crate::simd::neon::{narrow_f16x4, transposed4, widen_f16x4};
use half::{bf16, f16};
use std::arch::aarch64::*;

/// A vector that loads elements `T`, and can be transposed.
pub(super) trait Widened<T>: Lanes {
    /// `LEN` elements.
    unsafe fn widen(from: *const T) -> Self;
    /// Transposes a square of `LEN` vectors; other vectors are unchanged.
    unsafe fn transposed(square: [Self; 4]) -> [Self; 4];
}

macro_rules! widened {
    ($($v:ty, $t:ty, |$from:ident| $load:expr, |$square:ident| $turn:expr;)*) => {$(
        // SAFETY (all blocks): the caller guarantees the memory; every 64-bit ARM has NEON.
        impl Widened<$t> for $v {
            #[inline(always)]
            unsafe fn widen($from: *const $t) -> Self {
                unsafe { $load }
            }
            #[inline(always)]
            unsafe fn transposed($square: [Self; 4]) -> [Self; 4] {
                #[allow(unused_unsafe)]
                unsafe {
                    $turn
                }
            }
        }
    )*};
}
widened! {
    float32x4_t, f32, |from| vld1q_f32(from), |square| transposed4(square);
    float32x4_t, f16, |from| widen_f16x4(vld1_u16(from.cast())), |square| transposed4(square);
    float32x4_t, bf16, |from| vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.cast()))), |square| transposed4(square);
    int32x4_t, i32, |from| vld1q_s32(from), |square| {
        // Unrolled by hand: `map` is a call that is not always inlined.
        let words = |v: int32x4_t| vreinterpretq_f32_s32(v);
        let numbers = |v: float32x4_t| vreinterpretq_s32_f32(v);
        let [a, b, c, d] = square;
        let [a, b, c, d] = transposed4([words(a), words(b), words(c), words(d)]);
        [numbers(a), numbers(b), numbers(c), numbers(d)]
    };
    float64x2_t, f64, |from| vld1q_f64(from), |square| {
        let [a, b, c, d] = square;
        [vtrn1q_f64(a, b), vtrn2q_f64(a, b), c, d]
    };
}

/// Packs a strip as `[k][WIDTH]`, widened, missing lanes as zeros.
///
/// # Safety
/// The strip is readable and `to` has room for `k × WIDTH`.
#[inline(always)]
unsafe fn pack<V: Widened<T>, T: Scalar<Acc = V::Acc>, const WIDTH: usize>(s: Strip<T>, to: *mut V::Acc) {
    // SAFETY: vectors are read only where the strip has enough lanes or k; the rest goes through `pack_widened`.
    unsafe {
        if s.lanes < WIDTH || (s.lane_stride != 1 && s.k_stride != 1) {
            return pack_widened::<T, WIDTH>(s, to);
        }
        if s.lane_stride == 1 {
            for p in 0..s.k {
                let from = s.ptr.offset(p as isize * s.k_stride);
                for l in (0..WIDTH).step_by(V::LEN) {
                    V::widen(from.add(l)).store(to.add(p * WIDTH + l));
                }
            }
            return;
        }
        let whole = s.k / V::LEN * V::LEN;
        for p in (0..whole).step_by(V::LEN) {
            for l in (0..WIDTH).step_by(V::LEN) {
                let mut square = [V::splat(<V::Acc as super::super::scalar::Accumulator>::ZERO); 4];
                for (i, row) in square.iter_mut().enumerate().take(V::LEN) {
                    *row = V::widen(s.ptr.offset((l + i) as isize * s.lane_stride).add(p));
                }
                let square = V::transposed(square);
                for (q, column) in square.into_iter().enumerate().take(V::LEN) {
                    column.store(to.add((p + q) * WIDTH + l));
                }
            }
        }
        let rest = Strip { ptr: s.ptr.wrapping_add(whole), k: s.k - whole, ..s };
        pack_widened::<T, WIDTH>(rest, to.add(whole * WIDTH));
    }
}

/// The sum of `x[i] · y[i]`, in four chains of vectors.
///
/// # Safety
/// Both pointers are readable for `len`.
#[inline(always)]
unsafe fn dot<V: Widened<T>, T: Scalar<Acc = V::Acc>>(len: usize, x: *const V::Acc, y: *const T) -> V::Acc {
    use super::super::scalar::Accumulator;
    // SAFETY: vectors stay below `len`.
    unsafe {
        let mut sums = [V::splat(V::Acc::ZERO); 4];
        let step = |i: usize, sum: &mut V| *sum = V::load(x.add(i)).multiply_add(V::widen(y.add(i)), *sum);
        let mut at = 0;
        while at + 4 * V::LEN <= len {
            sums.iter_mut().enumerate().for_each(|(c, sum)| step(at + c * V::LEN, sum));
            at += 4 * V::LEN;
        }
        while at + V::LEN <= len {
            step(at, &mut sums[0]);
            at += V::LEN;
        }
        let mut total = sums[0].plus(sums[1]).plus(sums[2].plus(sums[3])).total();
        for i in at..len {
            total = (*x.add(i)).mul_add::<true>((*y.add(i)).widen(), total);
        }
        total
    }
}

macro_rules! elements {
    ($($v:ty, $t:ty, |$from:ident, $to:ident, $len:ident| $narrow:expr;)*) => {$(
        // SAFETY (all blocks): the caller's promise.
        impl Elements<$t> for $v {
            #[inline(always)]
            unsafe fn pack<const WIDTH: usize>(strip: Strip<$t>, to: *mut <$v as Lanes>::Acc) {
                unsafe { pack::<$v, $t, WIDTH>(strip, to) }
            }
            #[inline(always)]
            unsafe fn narrow($from: *const <$v as Lanes>::Acc, $to: *mut $t, $len: usize) {
                unsafe { $narrow }
            }
            #[inline(always)]
            unsafe fn dot(len: usize, x: *const <$v as Lanes>::Acc, y: *const $t) -> <$v as Lanes>::Acc {
                unsafe { dot::<$v, $t>(len, x, y) }
            }
        }
    )*};
}
elements! {
    float32x4_t, f32, |from, to, len| from.copy_to_nonoverlapping(to, len);
    float64x2_t, f64, |from, to, len| from.copy_to_nonoverlapping(to, len);
    int32x4_t, i32, |from, to, len| from.copy_to_nonoverlapping(to, len);
    float32x4_t, bf16, |from, to, len| narrow_each(from, to, len);
    float32x4_t, f16, |from, to, len| {
        let whole = len / 4 * 4;
        for i in (0..whole).step_by(4) {
            vst1_u16(to.add(i).cast(), narrow_f16x4(vld1q_f32(from.add(i))));
        }
        narrow_each(from.add(whole), to.add(whole), len - whole)
    };
}

// SAFETY (all blocks): the caller's promise.
impl Elements<Byte> for Dots {
    #[inline(always)]
    unsafe fn pack<const WIDTH: usize>(strip: Strip<Byte>, to: *mut u8) {
        unsafe { pack_groups::<Byte, WIDTH, 4>(strip, to.cast()) }
    }
    #[inline(always)]
    unsafe fn narrow(from: *const i32, to: *mut Byte, len: usize) {
        unsafe { narrow_each(from, to, len) }
    }
    #[inline(always)]
    unsafe fn dot(len: usize, x: *const i32, y: *const Byte) -> i32 {
        unsafe { dot_in_lanes::<Byte, false>(len, x, y) }
    }
}

/// Packs a strip as `[k / GROUP][WIDTH][GROUP]`, without conversion, with zeros for missing lanes and k.
///
/// # Safety
/// The strip is readable and `to` has room for `k`, rounded up to whole groups, times WIDTH. All bits zero are a `T`.
#[inline(always)]
pub(super) unsafe fn pack_groups<T: Copy, const WIDTH: usize, const GROUP: usize>(s: Strip<T>, to: *mut T) {
    // SAFETY: indices stay inside the strip and inside the packed groups.
    unsafe {
        let whole = s.k / GROUP;
        for group in 0..whole {
            let (from, to) = (
                s.ptr.offset((group * GROUP) as isize * s.k_stride),
                to.add(group * WIDTH * GROUP).cast::<[T; GROUP]>(),
            );
            let mut lane = 0;
            if s.k_stride == 1 {
                while lane < s.lanes {
                    let group = from.offset(lane as isize * s.lane_stride).cast::<[T; GROUP]>();
                    to.add(lane).write_unaligned(group.read_unaligned());
                    lane += 1;
                }
            } else if s.lane_stride == 1 && const { size_of::<T>() == 2 && GROUP == 4 } {
                while lane + 4 <= s.lanes {
                    let row = |k: usize| vld1_u16(from.offset(k as isize * s.k_stride).add(lane).cast());
                    vst4_u16(to.add(lane).cast(), uint16x4x4_t(row(0), row(1), row(2), row(3)));
                    lane += 4;
                }
            }
            while lane < s.lanes {
                for k in 0..GROUP {
                    let value = *from.offset(lane as isize * s.lane_stride + k as isize * s.k_stride);
                    to.add(lane).cast::<T>().add(k).write(value);
                }
                lane += 1;
            }
            to.add(s.lanes).write_bytes(0, WIDTH - s.lanes);
        }
        let rest = s.k - whole * GROUP;
        if rest > 0 {
            let to = to.add(whole * WIDTH * GROUP);
            to.write_bytes(0, WIDTH * GROUP);
            for lane in 0..s.lanes {
                for k in 0..rest {
                    let at = lane as isize * s.lane_stride + (whole * GROUP + k) as isize * s.k_stride;
                    to.add(lane * GROUP + k).write(*s.ptr.offset(at));
                }
            }
        }
    }
}
