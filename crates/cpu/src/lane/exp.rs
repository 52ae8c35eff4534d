//! Exponentials in `f32`.

use super::{LN2_HI, LN2_LO, clamp, fma, poly, power_of_two};
use crate::isa::Isa;
use std::f32::consts::{LN_2, LOG2_E};

/// Added to a small float, it leaves the nearest integer in the low bits.
const MAGIC: f32 = 12_582_912.0;
const MAGIC_BITS: i32 = 0x4B40_0000;

/// `(e^r - 1 - r) / r^2` for `|r| <= ln(2) / 2`, close enough for `e^r`.
const EXP_TAIL: [f32; 5] = [0.5, 0.166_665_18, 0.041_666_206, 8.368_908e-3, 1.395_052_2e-3];
/// The same, close enough for `e^r - 1`.
const EXPM1_TAIL: [f32; 6] = [0.5, 0.166_666_67, 0.041_666_355, 8.333_274e-3, 1.394_105e-3, 1.991_361_4e-4];

/// The integer nearest to `a * b`, which is within `±2^21`, as a float and as an integer.
#[inline(always)]
fn nearest<I: Isa>(a: f32, b: f32) -> (f32, i32) {
    let t = fma::<I>(a, b, MAGIC);
    (t - MAGIC, (t.to_bits() as i32).wrapping_sub(MAGIC_BITS))
}

/// `x = n ln 2 + r`: `n` as an integer, and `r`.
#[inline(always)]
fn reduce<I: Isa>(x: f32) -> (i32, f32) {
    let (n, i) = nearest::<I>(x, LOG2_E);
    (i, fma::<I>(n, -LN2_LO, fma::<I>(n, -LN2_HI, x)))
}

/// `e^r` for `|r| <= ln(2) / 2`.
#[inline(always)]
fn exp_reduced<I: Isa>(r: f32) -> f32 {
    fma::<I>(r * r, poly::<I, 5>(r, EXP_TAIL), r) + 1.0
}

/// `p * 2^n` for `-252 <= n <= 254`: in two steps, so that it can underflow gradually and overflow.
#[inline(always)]
fn scale(p: f32, n: i32) -> f32 {
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// e to the power `x`.
#[inline(always)]
pub fn exp<I: Isa>(x: f32) -> f32 {
    // Beyond these bounds the result is infinite or zero already.
    let (n, r) = reduce::<I>(clamp(x, -104.0, 89.0));
    scale(exp_reduced::<I>(r), n)
}

/// e to the power `x` where the caller knows that `-87 <= x <= 88`, so that the result is a normal number; NaN stays
/// NaN.
#[inline(always)]
pub fn exp_bounded<I: Isa>(x: f32) -> f32 {
    let (n, r) = reduce::<I>(x);
    exp_reduced::<I>(r) * power_of_two(n)
}

/// Two to the power `x`.
#[inline(always)]
pub fn exp2<I: Isa>(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let (n, i) = nearest::<I>(x, 1.0);
    scale(exp_reduced::<I>((x - n) * LN_2), i)
}

/// `exp(x) - 1` without cancellation.
#[inline(always)]
pub fn expm1<I: Isa>(x: f32) -> f32 {
    let (n, r) = reduce::<I>(clamp(x, -26.0, 89.0));
    let p = fma::<I>(r * r, poly::<I, 6>(r, EXPM1_TAIL), r);
    // Half the result first: 2^n itself may overflow.
    let s = power_of_two(n.wrapping_sub(1));
    (2.0 * fma::<I>(s, p, s - 0.5)).copysign(x)
}

/// `1 - exp(x)` without cancellation, for `-20 <= x <= 0`.
#[inline(always)]
pub fn one_minus_exp<I: Isa>(x: f32) -> f32 {
    /// As `EXPM1_TAIL`, in fewer terms, to a quarter of a unit.
    const TAIL: [f32; 5] = [0.499_999_97, 0.166_665_43, 0.041_667_2, 8.366_52e-3, 1.388_252_2e-3];
    let (n, i) = nearest::<I>(x, LOG2_E);
    // ln 2 in one part: the error grows with n, but its effect halves with every n.
    let r = fma::<I>(n, -LN_2, x);
    let s = power_of_two(i);
    fma::<I>(-s, fma::<I>(r * r, poly::<I, 5>(r, TAIL), r), 1.0 - s)
}

/// The logistic function.
#[inline(always)]
pub fn sigmoid<I: Isa>(x: f32) -> f32 {
    // Of the two equivalent forms, use the one whose exponential cannot overflow.
    let e = exp::<I>(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<I: Isa>(x: f32) -> f32 {
    const TANH: [f32; 5] = [-0.333_332_78, 0.133_313_28, -0.053_729_23, 0.020_601_999, -5.660_780_7e-3];
    let (a, z) = (x.abs(), x * x);
    let small = fma::<I>(x * z, poly::<I, 5>(z, TANH), x);
    let large = 1.0 - 2.0 / (exp_bounded::<I>(clamp(a + a, 0.0, 20.0)) + 1.0);
    if a < 0.625 { small } else { large.copysign(x) }
}
