//! Accuracy of the vector mathematics against `f64`, at every level.

use super::{AnyAngle, Lane, digamma, gamma, polygamma};
use crate::isa::{Avx2, Portable};

/// Distance in units in the last place of `f32`, with a floor of the smallest normal's.
fn ulps(got: f32, want: f64) -> f64 {
    if want.is_nan() {
        return if got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let rounded = want as f32;
    if got == rounded {
        return 0.0;
    }
    if got.is_nan() || got.is_infinite() && want.abs() < 3.402_823e38 {
        return f64::INFINITY;
    }
    let exponent = (want.abs().max(f32::MIN_POSITIVE as f64)).log2().floor();
    (got as f64 - want).abs() / (exponent - 23.0).exp2()
}

/// Bit patterns with a prime stride, so that all exponents and signs occur.
fn samples() -> impl Iterator<Item = f32> {
    let special =
        [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-45, f32::MAX];
    (0..=u32::MAX / 9973).map(|i| f32::from_bits(i * 9973)).chain(special)
}

#[track_caller]
fn check(name: &str, bound: f64, f: impl Fn(f32) -> [f32; 2], want: impl Fn(f64) -> f64) {
    let mut worst = (0.0, 0.0);
    for x in samples() {
        for got in f(x) {
            let error = ulps(got, want(x as f64));
            if error > worst.0 {
                worst = (error, x);
            }
        }
    }
    eprintln!("{name}: {:.3} ulp at {:e}", worst.0, worst.1);
    assert!(
        worst.0 <= bound,
        "{name}: {} ulp at {:e}: got {:?}, want {:e}",
        worst.0,
        worst.1,
        f(worst.1),
        want(worst.1 as f64)
    );
}

macro_rules! accuracy {
    ($($name:ident $bound:literal $want:expr;)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), $bound, |x| [super::$name::<Portable>(x), super::$name::<Avx2>(x)], $want);
        }
    )*};
}

accuracy! {
    exp 2.0 f64::exp;
    exp2 2.0 f64::exp2;
    expm1 2.0 f64::exp_m1;
    sigmoid 2.1 |x| 1.0 / (1.0 + (-x).exp());
    tanh 2.0 f64::tanh;
    log 2.0 f64::ln;
    log2 2.0 f64::log2;
    log10 3.0 f64::log10;
    log1p 2.0 f64::ln_1p;
    erf 2.0 libm::erf;
    erfc 2.0 libm::erfc;
    erfinv 2.0 gamma::erfinv64;
    asin 1.0 f64::asin;
    acos 1.0 f64::acos;
    atan 1.0 f64::atan;
    sinh 1.0 f64::sinh;
    cosh 1.0 f64::cosh;
    asinh 1.0 libm::asinh;
    acosh 1.0 |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) };
    atanh 1.0 libm::atanh;
}

#[test]
fn normal_distribution() {
    for x in samples().filter(|x| !x.is_nan()) {
        let want = 0.5 * libm::erfc(-x as f64 * std::f64::consts::FRAC_1_SQRT_2);
        for got in [super::normal_cdf::<Portable>(x), super::normal_cdf::<Avx2>(x)] {
            assert!(
                (got as f64 - want).abs() < 2e-7 && (0.0..=1.0).contains(&got),
                "{x:e}: got {got:e}, want {want:e}"
            );
        }
    }
    assert!(super::normal_cdf::<Avx2>(f32::NAN).is_nan());
}

#[test]
fn angles() {
    // Vector levels within their range, the any-angle level everywhere.
    fn both(x: f32, f: impl Fn(f32) -> f32, any: impl Fn(f32) -> f32) -> [f32; 2] {
        if x.abs() > super::LARGEST_ANGLE && x.is_finite() { [any(x), any(x)] } else { [f(x), any(x)] }
    }
    check("sin", 2.0, |x| both(x, super::sin::<Avx2>, super::sin::<AnyAngle>), f64::sin);
    check("cos", 2.0, |x| both(x, super::cos::<Portable>, super::cos::<AnyAngle>), f64::cos);
    check("tan", 4.0, |x| both(x, super::tan::<Avx2>, super::tan::<AnyAngle>), f64::tan);
}

/// Numbers that make special cases, and a spread of ordinary ones.
fn coordinates() -> Vec<f32> {
    let mut all =
        vec![0.0, 1.0, 2.0, 3.0, 0.5, 2.5, f32::INFINITY, f32::NAN, 1e-45, 1e-30, 1e30, 16_777_215.0, 8_388_607.5];
    all.extend((0..60).map(|i| 1.37f32.powi(i - 30)));
    all.extend((0..12).map(|i| 1.0 + (i as f32 - 6.0) * 1e-6));
    let negative: Vec<f32> = all.iter().map(|x| -x).collect();
    all.extend(negative);
    all
}

#[test]
fn functions_of_two() {
    for a in coordinates() {
        for b in coordinates() {
            let want = (a as f64).powf(b as f64);
            assert!(
                ulps(super::pow::<Avx2>(a, b), want) <= 1.0,
                "pow({a:e}, {b:e}): {:e}, {want:e}",
                super::pow::<Avx2>(a, b)
            );
            let want = (a as f64).atan2(b as f64);
            let got = super::atan2::<Portable>(a, b);
            assert!(
                ulps(got, want) <= 1.0 && (want.is_nan() || got.is_sign_negative() == want.is_sign_negative()),
                "atan2({a:e}, {b:e}): {got:e}, {want:e}"
            );
        }
    }
}

#[test]
fn floor_division_of_floats() {
    use rushlight_core::rows::Num;
    let lane = Lane::<f32, Portable>::new;
    for (a, b, quotient, rest) in [
        (7.0, 2.0, 3.0, 1.0),
        (-7.0, 2.0, -4.0, 1.0),
        (7.0, -2.0, -4.0, -1.0),
        (-0.5, 3.0, -1.0, 2.5),
        (6.0, 0.1, 59.0, 0.099_999_91),
    ] {
        assert_eq!(lane(a).floor_div(lane(b)).0, quotient);
        assert_eq!(lane(a).remainder(lane(b)).0, rest);
    }
    assert_eq!(lane(1.0).floor_div(lane(0.0)).0, f32::INFINITY);
    assert!(lane(1.0).remainder(lane(0.0)).0.is_nan());
    assert!(lane(f32::NAN).max(lane(1.0)).0.is_nan() && lane(1.0).min(lane(f32::NAN)).0.is_nan());
}

#[test]
fn integers_wrap_and_never_trap() {
    use rushlight_core::rows::{Bits, Num};
    let lane = Lane::<i64, Portable>::new;
    assert_eq!(lane(i64::MIN).floor_div(lane(-1)).0, i64::MIN);
    assert_eq!(lane(i64::MIN).remainder(lane(-1)).0, 0);
    for f in [Num::floor_div, Num::trunc_div, Num::remainder, Num::fmod] {
        assert_eq!(f(lane(5), lane(0)).0, 0);
    }
    assert_eq!((lane(-7).floor_div(lane(2)).0, lane(-7).trunc_div(lane(2)).0), (-4, -3));
    assert_eq!((lane(-7).remainder(lane(2)).0, lane(-7).fmod(lane(2)).0), (1, -1));
    assert_eq!(
        (lane(3).pow(lane(5)).0, lane(-1).pow(lane(-3)).0, lane(2).pow(lane(-1)).0, lane(1).pow(lane(-9)).0),
        (243, -1, 0, 1)
    );
    assert_eq!(
        (lane(1).shl(lane(64)).0, lane(-8).shr(lane(99)).0, lane(-8).shr(lane(1)).0, lane(1).shl(lane(-1)).0),
        (0, -1, -4, 0)
    );
    let byte = Lane::<u8, Portable>::new;
    assert_eq!((byte(200).shr(byte(8)).0, (-byte(1)).0, byte(200).floor_div(byte(7)).0), (0, 255, 28));
}

/// Values from a table of the functions.
#[test]
fn gamma_family() {
    let close = |got: f64, want: f64| assert!((got - want).abs() <= 1e-13 * want.abs(), "{got:e}, {want:e}");
    close(digamma(1.0), -0.577_215_664_901_532_9);
    close(digamma(-0.5), 0.036_489_973_978_576_52);
    close(digamma(1e-5), -100_000.577_199_215_68);
    assert_eq!(
        (digamma(0.0), digamma(-0.0), digamma(f64::INFINITY)),
        (f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY)
    );
    assert!(digamma(-3.0).is_nan() && digamma(f64::NAN).is_nan());
    close(polygamma(1.0, 1.0), std::f64::consts::PI.powi(2) / 6.0);
    close(polygamma(2.0, 0.5), -16.828_796_644_234_32);
    close(polygamma(3.0, 4.25), 0.036_653_725_759_864_59);
    close(polygamma(1.0, -1.5), 9.379_246_644_989_124);
    assert_eq!(polygamma(1.0, -2.0), f64::INFINITY);
    for x in [-0.999_999, -0.3, 1e-9, 0.5, 0.9999, 1.0 - 1e-12] {
        close(libm::erf(gamma::erfinv64(x)), x);
    }
}

#[test]
fn half_types() {
    use rushlight_core::half::{bf16, f16};
    for h in 0..=u16::MAX {
        let (ours, theirs) = (super::f16_to_f32(h), f16::from_bits(h).to_f32());
        assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{h:x}");
        assert!(super::f32_to_f16(ours) == h || ours.is_nan() && f16::from_bits(super::f32_to_f16(ours)).is_nan());
        assert_eq!(super::bf16_to_f32(h).to_bits(), (h as u32) << 16);
    }
    for x in samples() {
        if x.is_nan() {
            assert!(f16::from_bits(super::f32_to_f16(x)).is_nan() && bf16::from_bits(super::f32_to_bf16(x)).is_nan());
        } else {
            assert_eq!(super::f32_to_f16(x), f16::from_f32(x).to_bits(), "{x:e}");
            assert_eq!(super::f32_to_bf16(x), bf16::from_f32(x).to_bits(), "{x:e}");
        }
    }
}

#[test]
fn angles_in_double_precision() {
    let any = (0..200_000).map(|i| (i as f64 * 0.618_033_988_749_895).fract() * 3e6 - 1.5e6);
    let small = (0..60_000).map(|i| (i as f64 - 30_000.0) * 1e-3);
    let quarters = (0..2_000).map(|i| i as f64 * std::f64::consts::FRAC_PI_2);
    for x in any.chain(small).chain(quarters).chain([0.0, -0.0, 1e-300, -1e-310]) {
        let pairs = [
            (super::sin64::<Avx2>(x), x.sin()),
            (super::sin64::<Portable>(x), x.sin()),
            (super::cos64::<Avx2>(x), x.cos()),
            (super::cos64::<Portable>(x), x.cos()),
        ];
        for (got, want) in pairs {
            let unit = f64::from_bits(want.abs().to_bits() + 1) - want.abs();
            assert!(
                (got - want).abs() <= 2.0 * unit && got.is_sign_negative() == want.is_sign_negative(),
                "{x:e}: {got:e}, {want:e}"
            );
        }
    }
    assert!(super::sin64::<Avx2>(f64::NAN).is_nan() && super::cos64::<AnyAngle>(f64::INFINITY).is_nan());
}
