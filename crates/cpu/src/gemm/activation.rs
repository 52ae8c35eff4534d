//! Activations of the epilogue, written so that the compiler vectorises loops over them.

const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044_715;

/// `e^x` within two units in the last place; 0 and infinity beyond the range.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding and subtracting 1.5·2²³ rounds to the nearest integer and leaves that integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Comparisons, not `clamp`: a NaN must pass through.
    let x = if x > 88.8 { 88.8 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + c;
    }
    // Two factors, because 2^n itself may be outside the normal range.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let power = |e: i32| f32::from_bits(((e + 127) << 23) as u32);
    p * power(half) * power(n - half)
}

/// `erfc(z)` for z ≥ 0 with a relative error near 1e-7.
#[inline(always)]
fn erfc_f32(z: f32) -> f32 {
    // log(e^(z²)·erfc(z)/t) as a polynomial in t = 1/(1 + z/2): a Chebyshev fit for z in 0..10.
    const FIT: [f32; 10] = [
        0.144_930_21,
        -0.680_827_2,
        1.156_733_8,
        -0.696_251_9,
        -0.080_280_43,
        0.001_267_585,
        0.034_602_8,
        0.386_640_4,
        0.998_632_8,
        -1.265_448,
    ];
    let t = 1.0 / (1.0 + 0.5 * z);
    let mut p = 0.0;
    for c in FIT {
        p = p * t + c;
    }
    t * exp_f32(p - z * z)
}

#[inline(always)]
pub(super) fn gelu_f32(x: f32) -> f32 {
    let tail = erfc_f32(x.abs() * std::f32::consts::FRAC_1_SQRT_2);
    // On the negative side the tail itself is the factor: 1 + erf would cancel.
    let factor = if x < 0.0 { tail } else { 2.0 - tail };
    // Without the comparison an underflowed tail would turn −∞ into NaN.
    if x == f32::NEG_INFINITY { 0.0 } else { 0.5 * x * factor }
}

#[inline(always)]
pub(super) fn gelu_tanh_f32(x: f32) -> f32 {
    // x·(1 + tanh u)/2 = x / (1 + e^(−2u))
    let u = x * (SQRT_2_OVER_PI as f32) * (1.0 + (CUBIC as f32) * x * x);
    if x == f32::NEG_INFINITY { 0.0 } else { x / (1.0 + exp_f32(-2.0 * u)) }
}

pub(super) fn gelu_f64(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) }
}

pub(super) fn gelu_tanh_f64(x: f64) -> f64 {
    let u = x * SQRT_2_OVER_PI * (1.0 + CUBIC * x * x);
    if x == f64::NEG_INFINITY { 0.0 } else { x / (1.0 + libm::exp(-2.0 * u)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_precision_follows_double() {
        for i in -40_000..40_000 {
            let x = i as f32 * 3e-4;
            for (got, want) in [
                (gelu_f32(x), gelu_f64(x as f64)),
                (gelu_tanh_f32(x), gelu_tanh_f64(x as f64)),
                (exp_f32(7.0 * x), libm::exp(7.0 * x as f64)),
            ] {
                let error = (got as f64 - want).abs();
                assert!(error <= 2e-5 * want.abs() + 1e-37, "{x}: {got} for {want}");
                // The rounding error of the exponent's argument grows in the tail; near zero it must not be visible.
                if x.abs() < 1.5 {
                    assert!(error <= 6e-7 * want.abs(), "{x}: {got} for {want}");
                }
            }
        }
    }

    #[test]
    fn limits() {
        for f in [gelu_f32, gelu_tanh_f32] {
            assert!(f(f32::NAN).is_nan());
            assert_eq!(f(f32::INFINITY), f32::INFINITY);
            assert_eq!(f(f32::NEG_INFINITY), 0.0);
            assert_eq!(f(0.0), 0.0);
            assert_eq!(f(-1e30), 0.0);
        }
        assert_eq!(exp_f32(-200.0), 0.0);
        assert_eq!(exp_f32(200.0), f32::INFINITY);
    }
}
