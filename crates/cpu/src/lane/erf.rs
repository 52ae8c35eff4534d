//! The error function and the normal distribution in `f32`.

use super::{fma, one_minus_exp, poly};
use crate::isa::Isa;

/// Error function.
///
/// One form for all magnitudes, `1 - exp(log(1 - erf(x)))`: a second form for small numbers would double the work of
/// every element.
#[inline(always)]
pub fn erf<I: Isa>(x: f32) -> f32 {
    /// `(-log(1 - erf(a)) / a - 2 / sqrt(pi)) / a` in `a`.
    const LOG: [f32; 8] = [
        0.636_619_4,
        0.102_777_84,
        -0.019_153_09,
        -1.603_528_7e-4,
        1.666_987_1e-3,
        -6.328_159_4e-4,
        1.176_356_7e-4,
        -9.255_665e-6,
    ];
    /// From here on the result rounds to 1, or to its neighbour.
    const ONE_FROM: f32 = 3.9;
    let a = x.abs();
    let log = -fma::<I>(a, fma::<I>(a, poly::<I, 8>(a, LOG), 0.128_379_17), a);
    (if a > ONE_FROM { 1.0 } else { one_minus_exp::<I>(log) }).copysign(x)
}

/// The normal distribution function with an error of about 2e-7: enough for a factor between 0.5 and 1, in half the
/// time of
/// `erf`.
#[inline(always)]
pub fn normal_cdf<I: Isa>(x: f32) -> f32 {
    /// In `x^2`, the quotient of these is the distance from one half over `x`. (Both may be scaled; so they round
    /// well.)
    const P: [f32; 6] = [0.795_395_3, 0.065_193_065, 9.196_774e-3, 3.146_063_5e-4, 1.266_358_2e-5, 4.821_57e-8];
    const Q: [f32; 6] = [1.993_760_3, 0.495_707_93, 0.055_827_685, 3.633_467_7e-3, 1.405_199_9e-4, 2.470_172_1e-6];
    /// From here on the tail is within the error.
    const ONE_FROM: f32 = 5.3;
    let z = x * x;
    let y = x * poly::<I, 6>(z, P) / poly::<I, 6>(z, Q);
    0.5 + if x.abs() >= ONE_FROM { 0.5f32.copysign(x) } else { y }
}
