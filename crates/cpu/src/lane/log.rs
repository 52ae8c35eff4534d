//! Logarithms in `f32`.

use super::{LN2_HI, LN2_LO, fma, poly, power_of_two};
use crate::isa::Isa;
use std::f32::consts::{LOG2_E, LOG10_2, LOG10_E};

/// `x = 2^k m` with `2/3 <= m < 4/3`: `k`, and `m - 1`. For positive, normal `x`.
#[inline(always)]
fn split(x: f32) -> (i32, f32) {
    const TWO_THIRDS: i32 = 0x3F2A_AAAB;
    let bits = x.to_bits() as i32;
    let k = bits.wrapping_sub(TWO_THIRDS) >> 23;
    (k, f32::from_bits(bits.wrapping_sub(k << 23) as u32) - 1.0)
}

/// `log(1 + f)` for `|f| <= 1/3`.
#[inline(always)]
fn log_reduced<I: Isa>(f: f32) -> f32 {
    const TAIL: [f32; 8] = [
        0.333_332_24,
        -0.249_996_89,
        0.200_100_44,
        -0.166_854_66,
        0.140_109_2,
        -0.121_151_26,
        0.139_624_5,
        -0.131_916_46,
    ];
    let q = fma::<I>(f, poly::<I, 8>(f, TAIL), -0.5);
    fma::<I>(f * f, q, f)
}

/// `k` and `log(m)` with `x = 2^k m`, also for denormal `x`.
#[inline(always)]
fn parts<I: Isa>(x: f32) -> (f32, f32) {
    let tiny = x < f32::MIN_POSITIVE;
    let (k, f) = split(if tiny { x * 8_388_608.0 } else { x });
    (k as f32 - if tiny { 23.0 } else { 0.0 }, log_reduced::<I>(f))
}

/// Handles special cases of a logarithm: returns `y` for a positive finite `x`.
#[inline(always)]
fn special(x: f32, y: f32) -> f32 {
    let y = if x == f32::INFINITY { x } else { y };
    let other = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    if x > 0.0 { y } else { other }
}

/// Natural logarithm.
#[inline(always)]
pub fn log<I: Isa>(x: f32) -> f32 {
    let (k, r) = parts::<I>(x);
    special(x, fma::<I>(k, LN2_HI, fma::<I>(k, LN2_LO, r)))
}

/// Binary logarithm.
#[inline(always)]
pub fn log2<I: Isa>(x: f32) -> f32 {
    let (k, r) = parts::<I>(x);
    special(x, fma::<I>(r, LOG2_E, k))
}

/// Decimal logarithm.
#[inline(always)]
pub fn log10<I: Isa>(x: f32) -> f32 {
    let (k, r) = parts::<I>(x);
    special(x, fma::<I>(k, LOG10_2, r * LOG10_E))
}

/// `log(1 + x)` without cancellation.
#[inline(always)]
pub fn log1p<I: Isa>(x: f32) -> f32 {
    let u = 1.0 + x;
    let (k, rounded) = split(u);
    // 2^-k (1 + x) - 1 without rounding 1 + x; if 1 + x rounds to x there is nothing to gain, and 2^-k may leave the
    // range.
    let s = power_of_two(k.wrapping_neg());
    let f = if x > 1e9 { rounded } else { fma::<I>(x, s, s - 1.0) };
    let (k, r) = (k as f32, log_reduced::<I>(f));
    special(u, fma::<I>(k, LN2_HI, fma::<I>(k, LN2_LO, r))).copysign(x)
}
