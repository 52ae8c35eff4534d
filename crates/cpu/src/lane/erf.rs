//! The error function in `f32`.

use super::{clamp, exp_bounded, fma, poly};
use crate::isa::Isa;

/// Error function.
#[inline(always)]
pub fn erf<I: Isa>(x: f32) -> f32 {
    /// `(erf(x) / x - 2 / sqrt(pi)) / x^2` in `x^2`.
    const NEAR: [f32; 6] = [-0.376_126_35, 0.112_837_09, -0.026_859_883, 5.201_828e-3, -8.148_57e-4, 8.385_056_6e-5];
    /// `log(1 - erf(x))` from 0.93 to 3.95, where it rounds to 1.
    const FAR: [f32; 8] = [
        1.773_349_6e-4,
        -1.129_527_7,
        -0.633_321_2,
        -0.108_308_27,
        0.025_137_624,
        -4.177_963e-3,
        4.358_849e-4,
        -2.121_793_8e-5,
    ];
    let (a, z) = (x.abs(), x * x);
    let near = fma::<I>(x, fma::<I>(z, poly::<I, 6>(z, NEAR), 0.128_379_17), x);
    let far = 1.0 - exp_bounded::<I>(poly::<I, 8>(clamp(a, 0.0, 3.95), FAR));
    if a < 0.93 { near } else { far.copysign(x) }
}
