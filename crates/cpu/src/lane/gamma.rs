//! Derivatives of the logarithm of the gamma function, in `f64`.

use std::f64::consts::PI;

/// The derivative of `lgamma`: minus infinity at 0 (plus at -0), NaN at negative integers.
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.trunc() {
            return f64::NAN;
        }
        // Reflection; the tangent has period one in x, and is best taken near zero.
        return digamma(1.0 - x) - PI / (PI * (x - x.round())).tan();
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    // Bernoulli numbers over twice their index.
    const SERIES: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32_760.0, 1.0 / 12.0];
    let series = SERIES.iter().rev().fold(0.0, |y, c| (y + c) * z);
    sum + x.ln() - 0.5 / x - if x.is_finite() { series } else { 0.0 }
}

/// The derivative of `digamma` of order `n`.
pub fn polygamma(n: f64, x: f64) -> f64 {
    if n == 0.0 {
        return digamma(x);
    }
    let sign = if n % 2.0 == 0.0 { -1.0 } else { 1.0 };
    sign * libm::tgamma(n + 1.0) * hurwitz_zeta(n + 1.0, x)
}

/// The sum of `(q + k)^-s` over `k >= 0` for an integer `s > 1`, by Euler and Maclaurin.
fn hurwitz_zeta(s: f64, q: f64) -> f64 {
    if q.is_nan() || !(s > 1.0) {
        return f64::NAN;
    }
    if q <= 0.0 && q == q.floor() {
        return f64::INFINITY;
    }
    // Far below zero the leading terms vanish; start where they matter.
    const FAR: f64 = -1e6;
    let mut a = if q < FAR { q - q.floor() + FAR } else { q };
    let mut sum = 0.0;
    while a < 10.0 {
        sum += a.powf(-s);
        a += 1.0;
    }
    let power = a.powf(-s);
    sum += power * a / (s - 1.0) + 0.5 * power;
    // Factorials over Bernoulli numbers, (2k)! / B_2k.
    const SERIES: [f64; 8] = [
        12.0,
        -720.0,
        30_240.0,
        -1_209_600.0,
        47_900_160.0,
        -1.892_437_580_318_379_5e9,
        7.472_424_96e10,
        -2.950_130_727_918_164_3e12,
    ];
    let (mut factor, mut k, mut t) = (s, 0.0, power / a);
    for c in SERIES {
        sum += factor * t / c;
        factor *= (s + k + 1.0) * (s + k + 2.0);
        k += 2.0;
        t /= a * a;
    }
    sum
}

/// Inverse error function of an `f64`.
pub(super) fn erfinv64(x: f64) -> f64 {
    let a = x.abs();
    if !(a < 1.0) {
        return if a == 1.0 { x * f64::INFINITY } else { f64::NAN };
    }
    if x == 0.0 {
        return x;
    }
    // A closed form good to three digits, then Halley's method, which triples them.
    let rest = 1.0 - a;
    let l = (rest * (1.0 + a)).ln();
    let t = 2.0 / (PI * 0.147) + 0.5 * l;
    let mut y = ((t * t - l / 0.147).sqrt() - t).sqrt();
    for _ in 0..3 {
        let error = if a > 0.5 { rest - libm::erfc(y) } else { libm::erf(y) - a };
        let step = error / (2.0 / PI.sqrt() * (-y * y).exp());
        y -= step / (1.0 + y * step);
    }
    y.copysign(x)
}
