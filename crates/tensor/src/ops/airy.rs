//! Airy's function of the first kind, in double precision.

use super::special::{elementwise, polynomial};
use crate::{Tensor, where_};
use rushlight_core::{Error, Result};
use std::f64::consts::{FRAC_PI_4, PI};

/// From here on asymptotic series in `zeta = 2/3 |x|^1.5` are used.
const FAR: f64 = 8.0;

/// `Ai(0)` and `-Ai'(0)`.
const VALUE: f64 = 0.355_028_053_887_817_2;
const SLOPE: f64 = 0.258_819_403_792_806_8;

fn zeta(x: &Tensor) -> Result<Tensor> {
    x.mul(&x.sqrt()?)?.mul(2.0 / 3.0)
}

/// The power series around zero: two series in `x³`.
fn near(x: &Tensor) -> Result<Tensor> {
    let series = |step: usize| -> [f64; 60] {
        let mut term = 1.0;
        std::array::from_fn(|k| {
            if k > 0 {
                term /= (3 * k * (3 * k - 1 + step)) as f64;
            }
            term
        })
    };
    let cube = x.mul(&x.square()?)?;
    let odd = polynomial(&cube, &series(2))?.mul(x)?.mul(SLOPE)?;
    polynomial(&cube, &series(0))?.mul(VALUE)?.sub(&odd)
}

/// Positive numbers where the two parts of the power series would cancel: the integral of a modified Bessel function of
/// order 1/3, by trapezoids.
fn between(x: &Tensor) -> Result<Tensor> {
    const STEP: f64 = 0.0625;
    let zeta = zeta(x)?;
    let mut total = x.full_like(0.5)?;
    for i in 1..128 {
        let t = f64::from(i) * STEP;
        total = total.add(&zeta.mul(1.0 - t.cosh())?.exp()?.mul((t / 3.0).cosh())?)?;
    }
    x.div(3.0)?.sqrt()?.mul(STEP / PI)?.mul(&zeta.neg()?.exp()?)?.mul(&total)
}

/// The coefficients of the asymptotic series.
fn asymptotic() -> [f64; 22] {
    let mut term = 1.0;
    std::array::from_fn(|k| {
        if k > 0 {
            let k = k as f64;
            term *= (6.0 * k - 5.0) * (6.0 * k - 3.0) * (6.0 * k - 1.0) / (216.0 * k * (2.0 * k - 1.0));
        }
        term
    })
}

fn far_above(x: &Tensor) -> Result<Tensor> {
    let zeta = zeta(x)?;
    let sum = polynomial(&zeta.reciprocal()?.neg()?, &asymptotic())?;
    zeta.neg()?.exp()?.mul(&sum)?.div(&x.pow(0.25)?)?.div(2.0 * PI.sqrt())
}

/// The wave at `-x`.
fn far_below(x: &Tensor) -> Result<Tensor> {
    let zeta = zeta(x)?;
    let inverse = zeta.square()?.reciprocal()?.neg()?;
    let terms = asymptotic();
    let part = |odd: usize| -> [f64; 11] { std::array::from_fn(|k| terms[2 * k + odd]) };
    let (even, odd) = (polynomial(&inverse, &part(0))?, polynomial(&inverse, &part(1))?.div(&zeta)?);
    let angle = zeta.add(FRAC_PI_4)?;
    angle.sin()?.mul(&even)?.sub(&angle.cos()?.mul(&odd)?)?.div(&x.pow(0.25)?)?.div(PI.sqrt())
}

fn airy(x: &Tensor) -> Result<Tensor> {
    let mut made = near(&x.clamp(-FAR, 1.0)?)?;
    made = where_(&x.gt(1.0)?, &between(&x.clamp(1.0, FAR)?)?, &made)?;
    made = where_(&x.gt(FAR)?, &far_above(&x.clamp_min(FAR)?)?, &made)?;
    made = where_(&x.lt(-FAR)?, &far_below(&x.neg()?.clamp_min(FAR)?)?, &made)?;
    where_(&x.isinf()?.logical_or(&x.isnan()?)?, f64::NAN, &made)
}

impl Tensor {
    /// Airy's function of the first kind; NaN at both infinities, and without a derivative, as in PyTorch.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0])?.airy_ai()?.to_vec::<f32>()?;
    /// assert!((y[0] - 0.355_028).abs() < 1e-6 && (y[1] - 0.135_292).abs() < 1e-6);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn airy_ai(&self) -> Result<Tensor> {
        elementwise(
            "airy_ai",
            [self],
            |[x]| airy(&x),
            |_, _| Err(Error::unsupported("the derivative for 'airy_ai' is not implemented")),
        )
    }
}
