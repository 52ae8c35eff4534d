//! Exponentials in `f32`.

use super::{fma, poly};
use crate::isa::Isa;

/// Added to a small float, it leaves the nearest integer in the low bits.
const MAGIC: f32 = 12_582_912.0;
const MAGIC_BITS: i32 = 0x4B40_0000;

/// ln 2 in two parts; products of the first with integers up to 2^15 are exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;

/// `(e^r - 1 - r) / r^2` for `|r| <= ln(2) / 2`.
const EXP_TAIL: [f32; 5] = [0.5, 0.166_665_18, 0.041_666_206, 8.368_908e-3, 1.395_052_2e-3];

/// The integer nearest to a float within `±2^21`, as a float and as an integer.
#[inline(always)]
fn nearest(x: f32) -> (f32, i32) {
    let t = x + MAGIC;
    (t - MAGIC, (t.to_bits() as i32).wrapping_sub(MAGIC_BITS))
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `p * 2^n`, rounded once more at most, for `-252 <= n <= 254`.
#[inline(always)]
fn scale(p: f32, n: i32) -> f32 {
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `x` kept between two bounds; NaN stays.
#[inline(always)]
fn clamp(x: f32, lo: f32, hi: f32) -> f32 {
    let x = if x > hi { hi } else { x };
    if x < lo { lo } else { x }
}

/// e to the power `x`.
#[inline(always)]
pub fn exp<I: Isa>(x: f32) -> f32 {
    // Beyond these bounds the result is infinite or zero already.
    let x = clamp(x, -104.0, 89.0);
    let (n, i) = nearest(x * std::f32::consts::LOG2_E);
    let r = fma::<I>(n, -LN2_LO, fma::<I>(n, -LN2_HI, x));
    let p = fma::<I>(r * r, poly::<I, 5>(r, EXP_TAIL), r) + 1.0;
    scale(p, i)
}

/// Two to the power `x`.
#[inline(always)]
pub fn exp2<I: Isa>(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let (n, i) = nearest(x);
    let r = (x - n) * std::f32::consts::LN_2;
    let p = fma::<I>(r * r, poly::<I, 5>(r, EXP_TAIL), r) + 1.0;
    scale(p, i)
}
