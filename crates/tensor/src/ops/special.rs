//! Bessel functions, the scaled error function, Hurwitz's zeta function and the incomplete gamma functions.
//!
//! They are sums of tensors in double precision: right to the last digits of `f32`, and no faster than their number of
//! terms allows. Of the modified Bessel functions there are sums in `f32` too, of few terms.

use crate::autograd::{Saved, record, recording};
use crate::program::recipe;
use crate::{Tensor, where_};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Error, Result};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// A function of floats, computed in `f64` and rounded to the inputs' dtype. `slopes` gives the derivative by an input.
pub(super) fn elementwise<const N: usize>(
    name: &'static str,
    inputs: [&Tensor; N],
    compute: fn([Tensor; N]) -> Result<Tensor>,
    slopes: fn(usize, [Tensor; N]) -> Result<Tensor>,
) -> Result<Tensor> {
    elementwise_in(|_| DType::F64, name, inputs, compute, slopes)
}

/// [`elementwise`] computed in a dtype that depends on the result's.
fn elementwise_in<const N: usize>(
    wide: fn(DType) -> DType,
    name: &'static str,
    inputs: [&Tensor; N],
    compute: fn([Tensor; N]) -> Result<Tensor>,
    slopes: fn(usize, [Tensor; N]) -> Result<Tensor>,
) -> Result<Tensor> {
    let mut floats: SmallVec<[Tensor; 2]> = SmallVec::new();
    for t in inputs {
        floats.push(if t.dtype().is_float() { t.clone() } else { t.to_dtype(DType::F32)? });
    }
    let dtype = floats.iter().skip(1).fold(floats[0].dtype(), |dtype, t| dtype.promote(t.dtype()));
    let of: [&Tensor; N] = std::array::from_fn(|i| &floats[i]);
    let out = recipe(name, &[], of, |floats| {
        let mut widened: SmallVec<[Tensor; 2]> = SmallVec::new();
        for t in floats {
            widened.push(t.detach().to_dtype(wide(dtype))?);
        }
        compute(std::array::from_fn(|i| widened[i].clone()))?.to_dtype(dtype)
    })?;
    if !recording(&of) {
        return Ok(out);
    }
    let saved: [Saved; N] = std::array::from_fn(|i| Saved::input(of[i]));
    record(name, &of, &out, move |ctx, dy| {
        let mut values: SmallVec<[Tensor; 2]> = SmallVec::new();
        for saved in &saved {
            values.push(ctx.get(saved)?);
        }
        (0..N)
            .map(|i| {
                if !ctx.needs(i) {
                    return Ok(None);
                }
                let slope = slopes(i, std::array::from_fn(|i| values[i].clone()))?;
                Ok(Some(dy.mul(&slope)?.sum_to_size(values[i].shape())?.to_dtype(values[i].dtype())?))
            })
            .collect()
    })?;
    Ok(out)
}

/// `c[0] + c[1] x + c[2] x² + …`
pub(super) fn polynomial(x: &Tensor, coefficients: &[f64]) -> Result<Tensor> {
    let (last, others) = coefficients.split_last().ok_or_else(|| Error::value("a polynomial without coefficients"))?;
    let mut out = x.mul(0.0)?.add(*last)?;
    for c in others.iter().rev() {
        out = out.mul(x)?.add(*c)?;
    }
    Ok(out)
}

/// Beyond this, Bessel functions follow their asymptotic series.
const FAR: f64 = 25.0;

/// The power series of a modified Bessel function of the first kind, of order 0 or 1, in `x² / 4`. All terms are
/// positive.
fn power_series(order: u32) -> [f64; 60] {
    let mut terms = [1.0; 60];
    for k in 1..60 {
        terms[k] = terms[k - 1] / (k as f64 * (k as f64 + f64::from(order)));
    }
    terms
}

/// The asymptotic series of the same function in `1 / x`.
fn asymptotic(order: u32) -> [f64; 22] {
    let mu = 4.0 * f64::from(order * order);
    let mut terms = [1.0; 22];
    for k in 1..22 {
        let odd = 2.0 * k as f64 - 1.0;
        terms[k] = -terms[k - 1] * (mu - odd * odd) / (8.0 * k as f64);
    }
    terms
}

/// Where the sums in `f32` change over: the larger, the more a rounding of `x²` counts.
const FAR_SHORT: f64 = 4.0;

/// [`power_series`] up to [`FAR_SHORT`], of eight terms: interpolated at Chebyshev's points, to 2e-9 of the value.
const POWERS: [[f64; 8]; 2] = [
    [0.999999999, 1.00000005, 0.249999749, 0.0277782781, 0.00173562279, 6.97022355e-05, 1.85420602e-06, 5.04534769e-08],
    [1.0, 0.500000005, 0.083333306, 0.00694449899, 0.000347168949, 1.16022255e-05, 2.67390044e-07, 6.13804056e-09],
];

/// `sqrt(x) exp(-x)` times the function in `1 / x` beyond it, the same way, to 3e-8 of the value.
const RECIPROCALS: [[f64; 10]; 2] = [
    [
        0.398942278,
        0.0498695227,
        0.0278091902,
        0.0426128253,
        -0.335475297,
        6.17532477,
        -56.1011329,
        293.410059,
        -763.608829,
        762.874244,
    ],
    [
        0.398942283,
        -0.149605617,
        -0.04644108,
        -0.0577419106,
        0.408962872,
        -7.40119838,
        65.7988888,
        -337.921266,
        866.217596,
        -854.782881,
    ],
];

/// [`bessel`] in `f32`.
fn bessel_short(x: &Tensor, order: u32, scaled: bool) -> Result<Tensor> {
    let size = x.abs()?;
    let (half, far) = (size.clamp_max(FAR_SHORT)?.mul(0.5)?, size.clamp_min(FAR_SHORT)?);
    let mut inner = polynomial(&half.mul(&half)?, &POWERS[order as usize])?;
    if order == 1 {
        inner = inner.mul(&half)?;
    }
    let mut outer = polynomial(&far.reciprocal()?, &RECIPROCALS[order as usize])?.div(&far.sqrt()?)?;
    if scaled {
        inner = inner.mul(&size.neg()?.exp()?)?;
    } else {
        // `exp` overflows before the function does.
        let most = far.clamp_max(80.0)?;
        outer = outer.mul(&most.exp()?)?.mul(&far.sub(&most)?.exp()?)?;
    }
    let out = where_(&size.le(FAR_SHORT)?, &inner, &outer)?;
    if order == 1 { out.mul(&x.sign()?) } else { Ok(out) }
}

/// The modified Bessel function of the first kind; times `exp(-|x|)` if `scaled`.
fn bessel(x: &Tensor, order: u32, scaled: bool) -> Result<Tensor> {
    if x.dtype() != DType::F64 {
        return bessel_short(x, order, scaled);
    }
    let size = x.abs()?;
    let (near, far) = (size.clamp_max(FAR)?, size.clamp_min(FAR)?);
    let mut inner = polynomial(&near.mul(&near)?.div(4.0)?, &power_series(order))?;
    if order == 1 {
        inner = inner.mul(&near.div(2.0)?)?;
    }
    let mut outer = polynomial(&far.reciprocal()?, &asymptotic(order))?.div(&far.mul(2.0 * PI)?.sqrt()?)?;
    if scaled {
        inner = inner.mul(&size.neg()?.exp()?)?;
    } else {
        outer = outer.mul(&far.exp()?)?;
    }
    let out = where_(&size.le(FAR)?, &inner, &outer)?;
    if order == 1 { out.mul(&x.sign()?) } else { Ok(out) }
}

/// `y / x`, one half at zero: the slope of `I₁` and `J₁` there.
pub(super) fn sloped(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    let zero = x.eq(0.0)?;
    where_(&zero, 0.5, &y.div(&where_(&zero, 1.0, x)?)?)
}

fn scaled_erfc(x: &Tensor) -> Result<Tensor> {
    let (near, far) = (x.clamp_max(25.0)?, x.clamp_min(25.0)?);
    let tail = polynomial(&far.mul(&far)?.reciprocal()?, &[1.0, -0.5, 0.75, -1.875, 6.5625])?;
    let tail = tail.div(&far.mul(PI.sqrt())?)?;
    where_(&x.gt(25.0)?, &tail, &near.mul(&near)?.exp()?.mul(&near.erfc()?)?)
}

/// Hurwitz's zeta function: a sum of ten terms and Euler and Maclaurin's correction of the rest.
fn hurwitz(x: &Tensor, q: &Tensor) -> Result<Tensor> {
    const TERMS: usize = 10;
    /// `B(2j) / (2j)!`
    const CORRECTIONS: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30240.0,
        -1.0 / 1209600.0,
        1.0 / 47900160.0,
        -691.0 / 1307674368000.0,
        1.0 / 74724249600.0,
        -3617.0 / 10670622842880000.0,
    ];
    let minus = x.neg()?;
    let mut total = q.pow(&minus)?;
    for k in 1..TERMS {
        total = total.add(&q.add(k as f64)?.pow(&minus)?)?;
    }
    let edge = q.add(TERMS as f64)?;
    total = total.add(&edge.pow(&x.rsub(1.0)?)?.div(&x.sub(1.0)?)?)?.add(&edge.pow(&minus)?.div(2.0)?)?;
    let (mut rising, mut power) = (x.clone(), edge.pow(&minus.sub(1.0)?)?);
    let square = edge.mul(&edge)?;
    for (j, c) in CORRECTIONS.into_iter().enumerate() {
        total = total.add(&rising.mul(&power)?.mul(c)?)?;
        let next = 2.0 * j as f64;
        rising = rising.mul(&x.add(next + 1.0)?)?.mul(&x.add(next + 2.0)?)?;
        power = power.div(&square)?;
    }
    let poles = q.le(0.0)?.bitwise_and(&q.eq(&q.floor()?)?)?;
    total = where_(&poles.bitwise_or(&x.eq(1.0)?)?, f64::INFINITY, &total)?;
    let fraction = q.lt(0.0)?.bitwise_and(&x.ne(&x.floor()?)?)?.bitwise_and(&poles.logical_not()?)?;
    where_(&x.lt(1.0)?.bitwise_or(&fraction)?, f64::NAN, &total)
}

/// Terms after which the incomplete gamma functions stop in any case.
const MOST_TERMS: usize = 2000;

/// The series of the lower incomplete gamma function, for `x < a + 1`.
fn lower_series(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let mut term = a.reciprocal()?;
    let mut total = term.clone();
    for n in 1..MOST_TERMS {
        term = term.mul(x)?.div(&a.add(n as f64)?)?;
        total = total.add(&term)?;
        if !term.abs()?.gt(&total.abs()?.mul(1e-17)?)?.any(..)?.item::<bool>()? {
            break;
        }
    }
    Ok(total)
}

/// The continued fraction of the upper one, for `x >= a + 1`, by Lentz's method.
fn upper_fraction(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    const TINY: f64 = 1e-300;
    let away = |t: &Tensor| where_(&t.abs()?.lt(TINY)?, TINY, t);
    let mut b = x.add(1.0)?.sub(a)?;
    let mut c = x.mul(0.0)?.add(1.0 / TINY)?;
    let mut d = b.reciprocal()?;
    let mut h = d.clone();
    for n in 1..MOST_TERMS {
        let n = n as f64;
        let an = a.rsub(n)?.mul(-n)?;
        b = b.add(2.0)?;
        d = away(&an.mul(&d)?.add(&b)?)?.reciprocal()?;
        c = away(&b.add(&an.div(&c)?)?)?;
        let step = d.mul(&c)?;
        h = h.mul(&step)?;
        if !step.sub(1.0)?.abs()?.gt(1e-16)?.any(..)?.item::<bool>()? {
            break;
        }
    }
    Ok(h)
}

fn incomplete_gamma(a: &Tensor, x: &Tensor, upper: bool) -> Result<Tensor> {
    let both = |f: fn(&Tensor) -> Result<Tensor>| f(a)?.bitwise_and(&f(x)?);
    let either = |f: fn(&Tensor) -> Result<Tensor>| f(a)?.bitwise_or(&f(x)?);
    let bad = either(|t| t.lt(0.0))?
        .bitwise_or(&both(|t| t.eq(0.0))?)?
        .bitwise_or(&either(Tensor::isnan)?)?
        .bitwise_or(&both(Tensor::isinf)?)?;
    let inner = bad.logical_not()?.bitwise_and(&both(|t| t.gt(0.0))?)?.bitwise_and(&both(Tensor::isfinite)?)?;
    let (a1, x1) = (where_(&inner, a, 1.0)?, where_(&inner, x, 1.0)?);
    let prefactor = a1.mul(&x1.log()?)?.sub(&x1)?.sub(&a1.lgamma()?)?.exp()?;
    let series = x1.lt(&a1.add(1.0)?)?;
    let low = lower_series(&a1, &where_(&series, &x1, 0.5)?)?.mul(&prefactor)?;
    let high = upper_fraction(&where_(&series, 1.0, &a1)?, &where_(&series, 3.0, &x1)?)?.mul(&prefactor)?;
    let value = if upper { where_(&series, &low.rsub(1.0)?, &high)? } else { where_(&series, &low, &high.rsub(1.0)?)? };
    // At the ends of the ranges.
    let whole = x.isinf()?.bitwise_or(&a.eq(0.0)?)?.bitwise_and(&a.isinf()?.logical_not()?)?;
    let whole = if upper { whole.logical_not()? } else { whole };
    where_(&bad, f64::NAN, &where_(&inner, &value, &whole.to_dtype(DType::F64)?)?)
}

/// The derivative of the lower incomplete gamma function by `x`.
fn density([a, x]: [Tensor; 2]) -> Result<Tensor> {
    a.sub(1.0)?.mul(&x.log()?)?.sub(&x)?.sub(&a.lgamma()?)?.exp()
}

fn first_is_fixed(name: &str) -> Error {
    Error::unsupported(format!(
        "the derivative for '{name}' with respect to its first argument is not implemented; detach it"
    ))
}

impl Tensor {
    /// The modified Bessel function of the first kind of order 0.
    pub fn i0(&self) -> Result<Tensor> {
        elementwise_in(DType::compute, "i0", [self], |[x]| bessel(&x, 0, false), |_, [x]| x.i1())
    }

    /// `exp(-|x|) * i0(x)`.
    pub fn i0e(&self) -> Result<Tensor> {
        elementwise_in(
            DType::compute,
            "i0e",
            [self],
            |[x]| bessel(&x, 0, true),
            |_, [x]| x.i1e()?.sub(&x.sign()?.mul(&x.i0e()?)?),
        )
    }

    /// The modified Bessel function of the first kind of order 1.
    pub fn i1(&self) -> Result<Tensor> {
        elementwise_in(
            DType::compute,
            "i1",
            [self],
            |[x]| bessel(&x, 1, false),
            |_, [x]| x.i0()?.sub(&sloped(&x.i1()?, &x)?),
        )
    }

    /// `exp(-|x|) * i1(x)`.
    pub fn i1e(&self) -> Result<Tensor> {
        elementwise_in(
            DType::compute,
            "i1e",
            [self],
            |[x]| bessel(&x, 1, true),
            |_, [x]| x.i0e()?.sub(&sloped(&x.i1e()?, &x)?)?.sub(&x.sign()?.mul(&x.i1e()?)?),
        )
    }

    /// `exp(x²) * erfc(x)`.
    pub fn erfcx(&self) -> Result<Tensor> {
        let slope = |_: usize, [x]: [Tensor; 1]| x.mul(2.0)?.mul(&x.erfcx()?)?.sub(2.0 / PI.sqrt());
        elementwise("erfcx", [self], |[x]| scaled_erfc(&x), slope)
    }

    /// The logarithm of the normal distribution function.
    pub fn log_ndtr(&self) -> Result<Tensor> {
        let compute = |[x]: [Tensor; 1]| {
            let z = x.mul(FRAC_1_SQRT_2)?;
            let (low, high) = (z.clamp_max(-0.5)?, z.clamp_min(-0.5)?);
            let tail = scaled_erfc(&low.neg()?)?.div(2.0)?.log()?.sub(&low.mul(&low)?)?;
            where_(&z.lt(-0.5)?, &tail, &high.erfc()?.div(-2.0)?.log1p()?)
        };
        let slope = |_: usize, [x]: [Tensor; 1]| x.mul(-FRAC_1_SQRT_2)?.erfcx()?.reciprocal()?.mul((2.0 / PI).sqrt());
        elementwise("log_ndtr", [self], compute, slope)
    }

    /// Hurwitz's zeta function of `self` and `q`. Its derivative by `self` is not implemented, as in PyTorch.
    pub fn zeta(&self, q: &Tensor) -> Result<Tensor> {
        let slope = |i: usize, [x, q]: [Tensor; 2]| match i {
            0 => Err(first_is_fixed("zeta")),
            _ => x.neg()?.mul(&x.add(1.0)?.zeta(&q)?),
        };
        elementwise("zeta", [self, q], |[x, q]| hurwitz(&x, &q), slope)
    }

    /// The regularised lower incomplete gamma function of `self` and `x`. Its derivative by `self` is not implemented,
    /// as in PyTorch.
    pub fn gammainc(&self, x: &Tensor) -> Result<Tensor> {
        let slope = |i, inputs| if i == 0 { Err(first_is_fixed("igamma")) } else { density(inputs) };
        elementwise("igamma", [self, x], |[a, x]| incomplete_gamma(&a, &x, false), slope)
    }

    /// The regularised upper incomplete gamma function: one minus [`Tensor::gammainc`], without its rounding.
    pub fn gammaincc(&self, x: &Tensor) -> Result<Tensor> {
        let slope = |i, inputs| if i == 0 { Err(first_is_fixed("igammac")) } else { density(inputs)?.neg() };
        elementwise("igammac", [self, x], |[a, x]| incomplete_gamma(&a, &x, true), slope)
    }
}
