//! Bessel functions of both kinds, modified and spherical ones, in double precision.

use super::special::{elementwise, polynomial, sloped};
use crate::{Tensor, where_};
use rushlight_core::{Error, Result};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, PI};

/// From here on Hankel's asymptotic series is used, before it the power series. Where they meet both are right to
/// eleven digits.
const FAR: f64 = 13.0;
const TERMS: usize = 48;
const EULER: f64 = 0.577_215_664_901_532_9;

/// `(-1)^k / (k! (k + order)!)`, the series of the first kind in `x² / 4`, each term times `factor(k)`.
fn alternating(order: usize, factor: impl Fn(usize) -> f64) -> [f64; TERMS] {
    let mut term = 1.0;
    std::array::from_fn(|k| {
        if k > 0 {
            term /= -((k * (k + order)) as f64);
        }
        term * factor(k)
    })
}

fn harmonic(k: usize) -> f64 {
    (1..=k).map(|i| 1.0 / i as f64).sum()
}

fn quarter_square(x: &Tensor) -> Result<Tensor> {
    x.square()?.div(4.0)
}

fn near_first(x: &Tensor, order: usize) -> Result<Tensor> {
    let sum = polynomial(&quarter_square(x)?, &alternating(order, |_| 1.0))?;
    if order == 0 { Ok(sum) } else { sum.mul(&x.div(2.0)?) }
}

fn near_second(x: &Tensor, order: usize) -> Result<Tensor> {
    let log = x.div(2.0)?.log()?;
    let square = quarter_square(x)?;
    if order == 0 {
        let sum = polynomial(&square, &alternating(0, |k| -harmonic(k)))?;
        return log.add(EULER)?.mul(&near_first(x, 0)?)?.add(&sum)?.mul(FRAC_2_PI);
    }
    let sum = polynomial(&square, &alternating(1, |k| harmonic(k) + harmonic(k + 1) - 2.0 * EULER))?;
    let regular = log.mul(&near_first(x, 1)?)?.mul(FRAC_2_PI)?.sub(&sum.mul(&x.div(2.0 * PI)?)?)?;
    regular.sub(&x.reciprocal()?.mul(FRAC_2_PI)?)
}

/// The coefficients of the asymptotic series in `1 / x`.
fn hankel(order: usize) -> [f64; 22] {
    let (mu, mut term) = ((4 * order * order) as f64, 1.0);
    std::array::from_fn(|k| {
        if k > 0 {
            let odd = 2.0 * k as f64 - 1.0;
            term *= (mu - odd * odd) / (8.0 * k as f64);
        }
        term
    })
}

/// Hankel's expansion of the first kind, or of the second.
fn far(x: &Tensor, order: usize, second: bool) -> Result<Tensor> {
    let terms = hankel(order);
    let inverse = x.square()?.reciprocal()?;
    let part = |odd: usize| -> [f64; 11] {
        std::array::from_fn(|k| if k % 2 == 0 { terms[2 * k + odd] } else { -terms[2 * k + odd] })
    };
    let (even, odd) = (polynomial(&inverse, &part(0))?, polynomial(&inverse, &part(1))?.div(x)?);
    let angle = x.sub((order as f64 / 2.0 + 0.25) * PI)?;
    let (sin, cos) = (angle.sin()?, angle.cos()?);
    let wave = match second {
        true => sin.mul(&even)?.add(&cos.mul(&odd)?)?,
        false => cos.mul(&even)?.sub(&sin.mul(&odd)?)?,
    };
    // As in PyTorch, no limit.
    where_(&x.isinf()?, f64::NAN, &wave.mul(&x.reciprocal()?.mul(FRAC_2_PI)?.sqrt()?)?)
}

/// The function of the first kind.
fn first(x: &Tensor, order: usize) -> Result<Tensor> {
    let size = x.abs()?;
    let made =
        where_(&size.lt(FAR)?, &near_first(&size.clamp_max(FAR)?, order)?, &far(&size.clamp_min(FAR)?, order, false)?)?;
    let made = where_(&x.isnan()?, x, &made)?;
    if order == 0 { Ok(made) } else { made.mul(&x.sign()?) }
}

/// `made` for positive numbers, `at_zero` for zero, NaN for negative ones.
fn of_positive(x: &Tensor, made: &Tensor, at_zero: f64) -> Result<Tensor> {
    where_(&x.gt(0.0)?, made, &where_(&x.eq(0.0)?, at_zero, f64::NAN)?.to_dtype(x.dtype())?)
}

/// The function of the second kind.
fn second(x: &Tensor, order: usize) -> Result<Tensor> {
    let safe = where_(&x.gt(0.0)?, x, 1.0)?;
    let (near, away) = (near_second(&safe.clamp_max(FAR)?, order)?, far(&safe.clamp_min(FAR)?, order, true)?);
    of_positive(x, &where_(&safe.lt(FAR)?, &near, &away)?, f64::NEG_INFINITY)
}

/// The modified function of the second kind; times `exp(x)` if `scaled`.
///
/// It is the integral of `exp(-x cosh t) cosh(order t)` over positive `t`, by trapezoids: exact to rounding, as the
/// integrand falls off twice exponentially. Far from zero its peak is narrower than a step, and the asymptotic series
/// is used.
fn modified_second(x: &Tensor, order: usize, scaled: bool) -> Result<Tensor> {
    const LIMIT: f64 = 25.0;
    const STEP: f64 = 0.0625;
    let safe = where_(&x.gt(0.0)?.logical_and(&x.lt(LIMIT)?)?, x, 1.0)?;
    let mut total = safe.full_like(0.5)?;
    // Where x is as small as 1e-13 the integrand ends near 35.
    for i in 1..580 {
        let cosh = (f64::from(i) * STEP).cosh();
        let term = safe.mul(1.0 - cosh)?.exp()?;
        total = total.add(&if order == 0 { term } else { term.mul(cosh)? })?;
    }
    let large = x.clamp_min(LIMIT)?;
    let away = large.reciprocal()?.mul(FRAC_PI_2)?.sqrt()?.mul(&polynomial(&large.reciprocal()?, &hankel(order))?)?;
    let mut made = where_(&x.lt(LIMIT)?, &total.mul(STEP)?, &away)?;
    if !scaled {
        made = made.mul(&x.clamp_min(0.0)?.neg()?.exp()?)?;
    }
    of_positive(x, &where_(&x.eq(f64::INFINITY)?, 0.0, &made)?, f64::INFINITY)
}

fn fixed(name: &str) -> Error {
    Error::unsupported(format!("the derivative for '{name}' is not implemented"))
}

impl Tensor {
    /// The Bessel function of the first kind of order 0.
    pub fn bessel_j0(&self) -> Result<Tensor> {
        elementwise("bessel_j0", [self], |[x]| first(&x, 0), |_, [x]| x.bessel_j1()?.neg())
    }

    /// The Bessel function of the first kind of order 1.
    pub fn bessel_j1(&self) -> Result<Tensor> {
        let slope = |_: usize, [x]: [Tensor; 1]| x.bessel_j0()?.sub(&sloped(&x.bessel_j1()?, &x)?);
        elementwise("bessel_j1", [self], |[x]| first(&x, 1), slope)
    }

    /// The Bessel function of the second kind of order 0.
    pub fn bessel_y0(&self) -> Result<Tensor> {
        elementwise("bessel_y0", [self], |[x]| second(&x, 0), |_, [x]| x.bessel_y1()?.neg())
    }

    /// The Bessel function of the second kind of order 1.
    pub fn bessel_y1(&self) -> Result<Tensor> {
        let slope = |_: usize, [x]: [Tensor; 1]| x.bessel_y0()?.sub(&x.bessel_y1()?.div(&x)?);
        elementwise("bessel_y1", [self], |[x]| second(&x, 1), slope)
    }

    /// The modified Bessel function of the second kind of order 0.
    pub fn modified_bessel_k0(&self) -> Result<Tensor> {
        let slope = |_: usize, [x]: [Tensor; 1]| x.modified_bessel_k1()?.neg();
        elementwise("modified_bessel_k0", [self], |[x]| modified_second(&x, 0, false), slope)
    }

    /// The modified Bessel function of the second kind of order 1.
    pub fn modified_bessel_k1(&self) -> Result<Tensor> {
        let slope = |_: usize, [x]: [Tensor; 1]| x.modified_bessel_k0()?.neg()?.sub(&x.modified_bessel_k1()?.div(&x)?);
        elementwise("modified_bessel_k1", [self], |[x]| modified_second(&x, 1, false), slope)
    }

    /// `exp(x)` times [`Tensor::modified_bessel_k0`]. Its derivative is not implemented, as in PyTorch.
    pub fn scaled_modified_bessel_k0(&self) -> Result<Tensor> {
        let name = "scaled_modified_bessel_k0";
        elementwise(name, [self], |[x]| modified_second(&x, 0, true), |_, _| Err(fixed("scaled_modified_bessel_k0")))
    }

    /// `exp(x)` times [`Tensor::modified_bessel_k1`]. Its derivative is not implemented, as in PyTorch.
    pub fn scaled_modified_bessel_k1(&self) -> Result<Tensor> {
        let name = "scaled_modified_bessel_k1";
        elementwise(name, [self], |[x]| modified_second(&x, 1, true), |_, _| Err(fixed("scaled_modified_bessel_k1")))
    }

    /// `sin(x) / x`, one at zero. Its derivative is not implemented, as in PyTorch.
    pub fn spherical_bessel_j0(&self) -> Result<Tensor> {
        let compute = |[x]: [Tensor; 1]| {
            let (zero, infinite) = (x.eq(0.0)?, x.isinf()?);
            let safe = where_(&zero.logical_or(&infinite)?, 1.0, &x)?;
            where_(&zero, 1.0, &where_(&infinite, 0.0, &safe.sin()?.div(&safe)?)?)
        };
        elementwise("spherical_bessel_j0", [self], compute, |_, _| Err(fixed("spherical_bessel_j0")))
    }
}
