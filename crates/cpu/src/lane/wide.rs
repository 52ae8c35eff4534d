//! Rarely used functions of `f32`, computed through `f64`: half as many lanes, but no care for the last bits.
//!
//! The `f64` helpers are good to about 1e-10, which rounds to within one unit of an `f32`.

use super::{clamp, fma64, poly64};
use crate::isa::Isa;
use std::f64::consts::{FRAC_PI_2, LN_2, LOG2_E, PI};

/// Added to a small `f64`, it leaves the nearest integer in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// e to the power `x`; beyond the range of `f32` anything beyond that range.
#[inline(always)]
fn exp64<I: Isa>(x: f64) -> f64 {
    const TAIL: [f64; 7] = [
        0.499_999_999_995_184_35,
        0.166_666_667_868_360_82,
        0.041_666_667_054_862_69,
        0.008_333_281_211_000_736,
        0.001_388_879_631_762_619_6,
        0.000_199_092_827_849_541_87,
        2.488_766_024_358_452_7e-5,
    ];
    let x = clamp(x, -200.0, 200.0);
    let t = x * LOG2_E + MAGIC;
    let r = fma64::<I>(t - MAGIC, -LN_2, x);
    let p = fma64::<I>(r * r, poly64::<I, 7>(r, TAIL), r) + 1.0;
    let n = t.to_bits().wrapping_sub(MAGIC.to_bits());
    p * f64::from_bits(n.wrapping_add(1023) << 52)
}

/// Natural logarithm of zero, a normal number, infinity or NaN.
#[inline(always)]
fn log64<I: Isa>(x: f64) -> f64 {
    const SQRT_HALF: i64 = 0x3FE6_A09E_667F_3BCD;
    /// `(2 atanh(s) - 2 s) / s^3` in `s^2`.
    const TAIL: [f64; 5] = [
        0.666_666_666_758_995_9,
        0.399_999_955_842_697_4,
        0.285_721_135_284_854_43,
        0.221_759_911_050_028_26,
        0.195_871_968_279_184_68,
    ];
    let bits = x.to_bits() as i64;
    let k = bits.wrapping_sub(SQRT_HALF) >> 52;
    let f = f64::from_bits(bits.wrapping_sub(k << 52) as u64) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let r = fma64::<I>(s * z, poly64::<I, 5>(z, TAIL), s + s);
    let k = f64::from_bits((k as u64).wrapping_add(MAGIC.to_bits())) - MAGIC;
    let y = fma64::<I>(k, LN_2, r);
    let y = if x == f64::INFINITY { x } else { y };
    let other = if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    if x > 0.0 { y } else { other }
}

/// `log(1 + x)` without cancellation.
#[inline(always)]
fn log1p64<I: Isa>(x: f64) -> f64 {
    let near = x * fma64::<I>(x, fma64::<I>(x, 1.0 / 3.0, -0.5), 1.0);
    if x.abs() < 0.000_244_140_625 { near } else { log64::<I>(1.0 + x) }
}

/// Angle of the point `(x, y)`.
#[inline(always)]
fn atan2_64<I: Isa>(y: f64, x: f64) -> f64 {
    /// `(atan(t) / t - 1) / t^2` in `t^2`.
    const TAIL: [f64; 11] = [
        -0.333_333_322_352_149,
        0.199_999_321_926_749_9,
        -0.142_842_507_871_989_57,
        0.110_952_018_033_171_8,
        -0.089_887_889_813_296_7,
        0.072_693_751_455_945_44,
        -0.054_704_315_620_476_22,
        0.034_704_451_938_541_65,
        -0.016_471_303_734_434_898,
        0.004_999_252_541_309_911,
        -0.000_711_293_162_275_983_7,
    ];
    let (ax, ay) = (x.abs(), y.abs());
    let steep = ay > ax;
    let (low, high) = if steep { (ax, ay) } else { (ay, ax) };
    let t = low / high;
    let t = if high == 0.0 { 0.0 } else { t };
    let t = if low == f64::INFINITY { 1.0 } else { t };
    let z = t * t;
    let r = fma64::<I>(t * z, poly64::<I, 11>(z, TAIL), t);
    let r = if steep { FRAC_PI_2 - r } else { r };
    let r = if (x.to_bits() as i64) < 0 { PI - r } else { r };
    let r = if (x != x) | (y != y) { f64::NAN } else { r };
    r.copysign(y)
}

/// `sqrt(1 - x^2)`.
#[inline(always)]
fn cathetus(x: f64) -> f64 {
    ((1.0 - x) * (1.0 + x)).sqrt()
}

/// Inverse tangent.
#[inline(always)]
pub fn atan<I: Isa>(x: f32) -> f32 {
    atan2_64::<I>(x as f64, 1.0) as f32
}

/// Angle of the point `(x, y)`.
#[inline(always)]
pub fn atan2<I: Isa>(y: f32, x: f32) -> f32 {
    atan2_64::<I>(y as f64, x as f64) as f32
}

/// Inverse sine.
#[inline(always)]
pub fn asin<I: Isa>(x: f32) -> f32 {
    atan2_64::<I>(x as f64, cathetus(x as f64)) as f32
}

/// Inverse cosine.
#[inline(always)]
pub fn acos<I: Isa>(x: f32) -> f32 {
    atan2_64::<I>(cathetus(x as f64), x as f64) as f32
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh<I: Isa>(x: f32) -> f32 {
    let x = x as f64;
    let (e, z) = (exp64::<I>(x), x * x);
    let near = x * poly64::<I, 5>(z, [1.0, 1.0 / 6.0, 1.0 / 120.0, 1.0 / 5_040.0, 1.0 / 362_880.0]);
    (if x.abs() < 0.5 { near } else { 0.5 * (e - 1.0 / e) }) as f32
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh<I: Isa>(x: f32) -> f32 {
    let e = exp64::<I>(x as f64);
    (0.5 * (e + 1.0 / e)) as f32
}

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh<I: Isa>(x: f32) -> f32 {
    let a = x.abs() as f64;
    let z = a * a;
    let y = log1p64::<I>(a + z / (1.0 + (z + 1.0).sqrt())) as f32;
    let y = if a == f64::INFINITY { f32::INFINITY } else { y };
    y.copysign(x)
}

/// Inverse hyperbolic cosine.
#[inline(always)]
pub fn acosh<I: Isa>(x: f32) -> f32 {
    let t = x as f64 - 1.0;
    let y = log1p64::<I>(t + (t * (t + 2.0)).sqrt()) as f32;
    if x < 1.0 { f32::NAN } else { y }
}

/// Inverse hyperbolic tangent.
#[inline(always)]
pub fn atanh<I: Isa>(x: f32) -> f32 {
    let a = x.abs() as f64;
    ((0.5 * log1p64::<I>((a + a) / (1.0 - a))) as f32).copysign(x)
}

/// `1 - erf(x)` without cancellation.
#[inline(always)]
pub fn erfc<I: Isa>(x: f32) -> f32 {
    /// `exp(a^2) erfc(a) / t` in `t = 2 / (2 + a)`.
    const SCALED: [f64; 12] = [
        0.282_098_535_391_750_6,
        0.281_975_756_620_698_24,
        0.248_504_022_993_961_02,
        0.162_632_657_271_336_5,
        0.156_252_992_620_310_25,
        -0.265_526_945_000_748_64,
        0.592_246_135_157_811_7,
        -1.153_480_113_556_453_2,
        1.203_936_815_458_342,
        -0.697_085_385_705_671_7,
        0.217_243_499_665_687_98,
        -0.028_797_970_600_050_498,
    ];
    let a = x.abs() as f64;
    let t = 2.0 / (2.0 + a);
    let tail = t * poly64::<I, 12>(t, SCALED) * exp64::<I>(-a * a);
    (if x < 0.0 { 2.0 - tail } else { tail }) as f32
}

/// Inverse error function.
#[inline(always)]
pub fn erfinv<I: Isa>(x: f32) -> f32 {
    /// `erfinv(x) / x` in `w - 2.5` where `w = -log(1 - x^2) < 5`.
    const MIDDLE: [f64; 12] = [
        1.501_409_351_710_677,
        0.246_640_275_824_814_32,
        -0.004_177_324_813_018_046,
        -0.001_252_705_053_009_868_6,
        0.000_218_263_823_783_620_05,
        -4.998_556_704_627_872e-6,
        -3.426_149_225_270_669_2e-6,
        4.796_081_533_070_523e-7,
        1.648_551_474_488_416_5e-8,
        -1.100_609_044_924_988_5e-8,
        4.350_164_183_711_865e-10,
        1.317_118_530_204_485_6e-10,
    ];
    /// The same in `sqrt(w) - 3.2` beyond.
    const TAILS: [f64; 10] = [
        3.033_636_546_392_388_7,
        1.004_692_602_899_15,
        0.005_974_904_319_038_507,
        -0.004_296_990_256_158_73,
        0.002_933_581_414_562_581,
        -0.001_979_552_480_117_700_2,
        0.001_139_298_280_232_484_7,
        -0.000_382_739_356_145_407_1,
        -0.000_103_208_993_611_286_18,
        0.000_113_761_939_220_462_47,
    ];
    let x = x as f64;
    let w = -log64::<I>((1.0 - x) * (1.0 + x));
    let middle = poly64::<I, 12>(w - 2.5, MIDDLE);
    let tails = poly64::<I, 10>(w.sqrt() - 3.2, TAILS);
    let y = x * if w < 5.0 { middle } else { tails };
    (if x.abs() == 1.0 { x * f64::INFINITY } else { y }) as f32
}

/// `a` to the power `b`.
#[inline(always)]
pub fn pow<I: Isa>(a: f32, b: f32) -> f32 {
    let size = exp64::<I>(b as f64 * log64::<I>(a.abs() as f64));
    // Adding 2^23 leaves integers alone up to 2^24 and rounds everything else; larger floats are even integers.
    let magnitude = b.abs();
    let half = magnitude * 0.5;
    const ROUND: f32 = 8_388_608.0;
    let integer = (magnitude >= ROUND) | ((magnitude + ROUND) - ROUND == magnitude);
    let even = (half >= ROUND) | ((half + ROUND) - ROUND == half);
    let negative = (a.to_bits() as i32) < 0;
    let size = if (a < 0.0) & (a != f32::NEG_INFINITY) & !integer { f64::NAN } else { size };
    let y = if negative & integer & !even { -size } else { size };
    let one = (b == 0.0) | (a == 1.0) | ((a == -1.0) & (magnitude == f32::INFINITY));
    (if one { 1.0 } else { y }) as f32
}
