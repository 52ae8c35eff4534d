//! Accuracy of the vector mathematics against `f64`, at every level.

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

/// Every bit pattern a step of a prime apart, so that all exponents and signs come up.
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
}
