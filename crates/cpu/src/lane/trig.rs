//! Sine, cosine and tangent in `f32`, sine and cosine in `f64`.
//!
//! Vector levels are accurate to the last bits for angles up to [`LARGEST_ANGLE`]; the level [`AnyAngle`] for all
//! angles.

use super::{fma, fma64, poly, poly64};
use crate::isa::Isa;

/// 256 bits of `1 / (2 pi)` after the binary point, highest first.
const INV_TWO_PI: [u64; 4] =
    [0x28be_60db_9391_054a, 0x7f09_d5f4_7d4d_3770, 0x36d8_a566_4f10_e410, 0x7f94_58ea_f7ae_f158];

/// For each exponent field `E` of a float `m 2^(E - 150)`, the fraction of `2^(E - 150) / (2 pi)`: 64 bits of it, and
/// the 32 after those. Multiplied by `m` modulo one, it is the angle in turns.
const TURNS: ([u64; 256], [u64; 256]) = {
    let (mut high, mut low) = ([0; 256], [0; 256]);
    let mut exponent = 126;
    while exponent < 255 {
        high[exponent] = bits_from(exponent as i32 - 150);
        low[exponent] = bits_from(exponent as i32 - 150 + 64) >> 32;
        exponent += 1;
    }
    (high, low)
};
static TURNS_HIGH: [u64; 256] = TURNS.0;
static TURNS_LOW: [u64; 256] = TURNS.1;

/// 64 bits of `INV_TWO_PI` from bit `start`; bits before the point are zero.
const fn bits_from(start: i32) -> u64 {
    let mut out = 0;
    let mut i = 0;
    while i < 64 {
        let at = start + i;
        if at >= 0 && at < 256 {
            out |= (INV_TWO_PI[(at / 64) as usize] >> (63 - at % 64) & 1) << (63 - i);
        }
        i += 1;
    }
    out
}

/// Largest angle for the vector levels; their reduction is exact up to three times that.
pub const LARGEST_ANGLE: f32 = 5e5;

/// Largest angle in `f64` that the vector levels reduce exactly.
pub const LARGEST_ANGLE64: f64 = 1.5e6;

/// A level for angles of any size: element by element, with a table.
#[derive(Clone, Copy)]
pub struct AnyAngle;

impl Isa for AnyAngle {
    const FMA: bool = false;
    const LANES: usize = 1;
}

/// `|x| = quadrant pi/2 + r` with `|r| <= pi/4`; `r` is NaN where `x` is not finite.
#[inline(always)]
fn reduce<I: Isa>(x: f32) -> (i32, f32) {
    if I::LANES == 1 { reduce_any(x) } else { reduce_moderate(x) }
}

#[inline(always)]
fn reduce_any(x: f32) -> (i32, f32) {
    let bits = x.to_bits() & 0x7FFF_FFFF;
    let (exponent, m) = ((bits >> 23) as usize & 255, (bits & 0x7F_FFFF | 0x80_0000) as u64);
    let turns = m.wrapping_mul(TURNS_HIGH[exponent]).wrapping_add(m.wrapping_mul(TURNS_LOW[exponent]) >> 32);
    // The nearest quarter of a turn, and the remainder as a signed fraction of 2^64.
    let quarter = turns.wrapping_add(1 << 61) >> 62;
    let rest = turns.wrapping_sub(quarter << 62) as i64;
    let r = (rest as f64 * (std::f64::consts::TAU / 18_446_744_073_709_551_616.0)) as f32;
    let small = exponent < 126;
    let (quarter, r) = if small { (0, f32::from_bits(bits)) } else { (quarter as i32, r) };
    (quarter, r + (x - x))
}

/// The same up to [`LARGEST_ANGLE`].
#[inline(always)]
fn reduce_moderate(x: f32) -> (i32, f32) {
    /// pi/2 in two parts; products of the first with integers up to 2^20 are exact.
    const HALF_PI: (f64, f64) = (1.570_796_326_734_125_6, 6.077_100_506_506_192e-11);
    /// Leaves the nearest integer in the low bits.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let a = x.abs() as f64;
    let t = a * std::f64::consts::FRAC_2_PI + MAGIC;
    let k = t - MAGIC;
    let r = (a - k * HALF_PI.0) - k * HALF_PI.1;
    (t.to_bits() as i32, r as f32)
}

/// Sine and cosine of `|r| <= pi/4`.
#[inline(always)]
fn sin_cos_reduced<I: Isa>(r: f32) -> (f32, f32) {
    const SIN: [f32; 3] = [-0.166_666_55, 8.332_178e-3, -1.951_722e-4];
    const COS: [f32; 3] = [0.041_666_646, -1.388_736_7e-3, 2.443_836_3e-5];
    let z = r * r;
    let s = fma::<I>(r * z, poly::<I, 3>(z, SIN), r);
    let c = fma::<I>(z * z, poly::<I, 3>(z, COS), fma::<I>(z, -0.5, 1.0));
    (s, c)
}

/// `x` with its sign changed where bit 1 of `quadrant` is set.
#[inline(always)]
fn negate_in_second_half(x: f32, quadrant: i32) -> f32 {
    f32::from_bits(x.to_bits() ^ ((quadrant as u32 & 2) << 30))
}

/// Sine and cosine (see [`LARGEST_ANGLE`]).
#[inline(always)]
pub fn sin_cos<I: Isa>(x: f32) -> (f32, f32) {
    let (q, r) = reduce::<I>(x);
    let (s, c) = sin_cos_reduced::<I>(r);
    let (sin, cos) = if q & 1 == 0 { (s, c) } else { (c, s) };
    let sign = x.to_bits() & 0x8000_0000;
    (f32::from_bits(negate_in_second_half(sin, q).to_bits() ^ sign), negate_in_second_half(cos, q.wrapping_add(1)))
}

/// Sine and cosine of `turns` full turns, for `0 <= turns < 1`.
#[inline(always)]
pub fn sin_cos_turns<I: Isa>(turns: f32) -> (f32, f32) {
    /// Leaves the nearest integer in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    let quarters = turns * 4.0;
    let t = quarters + MAGIC;
    let (s, c) = sin_cos_reduced::<I>((quarters - (t - MAGIC)) * std::f32::consts::FRAC_PI_2);
    let q = t.to_bits() as i32;
    let (sin, cos) = if q & 1 == 0 { (s, c) } else { (c, s) };
    (negate_in_second_half(sin, q), negate_in_second_half(cos, q.wrapping_add(1)))
}

/// Sine (see [`LARGEST_ANGLE`]).
#[inline(always)]
pub fn sin<I: Isa>(x: f32) -> f32 {
    sin_cos::<I>(x).0
}

/// Cosine (see [`LARGEST_ANGLE`]).
#[inline(always)]
pub fn cos<I: Isa>(x: f32) -> f32 {
    sin_cos::<I>(x).1
}

/// Tangent (see [`LARGEST_ANGLE`]).
#[inline(always)]
pub fn tan<I: Isa>(x: f32) -> f32 {
    let (s, c) = sin_cos::<I>(x);
    s / c
}

/// `|x| = quadrant pi/2 + r` with `|r| <= pi/4` for angles up to [`LARGEST_ANGLE64`].
#[inline(always)]
fn reduce64(x: f64) -> (u64, f64) {
    /// pi/2 in three parts; products of the first two with integers up to 2^20 are exact.
    const HALF_PI: [f64; 3] = [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21];
    /// Leaves the nearest integer in the low bits.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let a = x.abs();
    let t = a * std::f64::consts::FRAC_2_PI + MAGIC;
    let k = t - MAGIC;
    let (whole, part) = (a - k * HALF_PI[0], k * HALF_PI[1]);
    let r = whole - part;
    (t.to_bits(), r + (((whole - r) - part) - k * HALF_PI[2]))
}

/// Sine and cosine in `f64` (see [`LARGEST_ANGLE64`]), good to two units in the last place.
#[inline(always)]
fn sin_cos64<I: Isa>(x: f64) -> (f64, f64) {
    /// `(sin(r) - r) / r^3` in `r^2`.
    const SIN: [f64; 8] = [
        -1.0 / 6.0,
        1.0 / 120.0,
        -1.0 / 5_040.0,
        1.0 / 362_880.0,
        -1.0 / 39_916_800.0,
        1.0 / 6_227_020_800.0,
        -1.0 / 1_307_674_368_000.0,
        1.0 / 355_687_428_096_000.0,
    ];
    /// `(cos(r) - 1 + r^2 / 2) / r^4` in `r^2`.
    const COS: [f64; 7] = [
        1.0 / 24.0,
        -1.0 / 720.0,
        1.0 / 40_320.0,
        -1.0 / 3_628_800.0,
        1.0 / 479_001_600.0,
        -1.0 / 87_178_291_200.0,
        1.0 / 20_922_789_888_000.0,
    ];
    let (q, r) = reduce64(x);
    let z = r * r;
    let s = fma64::<I>(r * z, poly64::<I, 8>(z, SIN), r);
    // 1 - z/2 loses bits that are added back.
    let half = 0.5 * z;
    let near = 1.0 - half;
    let c = near + fma64::<I>(z * z, poly64::<I, 7>(z, COS), (1.0 - near) - half);
    let (sin, cos) = if q & 1 == 0 { (s, c) } else { (c, s) };
    let sign = x.to_bits() & (1 << 63);
    (
        f64::from_bits(sin.to_bits() ^ ((q & 2) << 62) ^ sign),
        f64::from_bits(cos.to_bits() ^ ((q.wrapping_add(1) & 2) << 62)),
    )
}

/// Sine in `f64`.
#[inline(always)]
pub fn sin64<I: Isa>(x: f64) -> f64 {
    if I::LANES == 1 { x.sin() } else { sin_cos64::<I>(x).0 }
}

/// Cosine in `f64`.
#[inline(always)]
pub fn cos64<I: Isa>(x: f64) -> f64 {
    if I::LANES == 1 { x.cos() } else { sin_cos64::<I>(x).1 }
}
