//! Functions of complex numbers, by their real and imaginary parts.

use super::rows::refusal;
use super::{complex, conjugate_product};
use crate::autograd::{Saved, no_grad, record, recording};
use crate::{Tensor, where_};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Pointwise, Result, Scalar};
use std::f64::consts::{LN_2, LN_10, PI};

type Parts = Result<(Tensor, Tensor)>;

fn parts(x: &Tensor) -> Parts {
    Ok((x.real()?, x.imag()?))
}

/// A function of the parts.
fn map(x: &Tensor, f: impl FnOnce(&Tensor, &Tensor) -> Parts) -> Result<Tensor> {
    let (a, b) = parts(x)?;
    let (re, im) = f(&a, &b)?;
    complex(&re, &im)
}

/// A function computed in double precision: its formula loses digits.
fn wide(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    f(&x.to_dtype(DType::C128)?)?.to_dtype(x.dtype())
}

/// `i x`.
fn times_i(x: &Tensor) -> Result<Tensor> {
    map(x, |a, b| Ok((b.neg()?, a.clone())))
}

/// `-i x`.
fn over_i(x: &Tensor) -> Result<Tensor> {
    map(x, |a, b| Ok((b.clone(), a.neg()?)))
}

/// `a b` where an infinite `a`, or one that is not a number, does not make NaN of a zero `b`.
fn scaled(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let zero = where_(&a.isnan()?, b, &b.mul(&a.ones_like()?.copysign(a)?)?)?;
    where_(&b.eq(0)?, &zero, &a.mul(b)?)
}

/// Where the first part is infinite and the second is no number to take a sine of.
fn wild(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.isinf()?.logical_and(&b.isfinite()?.logical_not()?)
}

/// Where either part is infinite: the number is, even if the other part is NaN.
fn infinite(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.isinf()?.logical_or(&b.isinf()?)
}

/// `size` with the sign of `of`; as it is where that is NaN.
fn signed(size: &Tensor, of: &Tensor) -> Result<Tensor> {
    where_(&of.isnan()?, size, &size.copysign(of)?)
}

// The values at infinities and NaN are those of C's functions (C99, annex G).

fn exp(x: &Tensor) -> Result<Tensor> {
    map(x, |a, b| {
        let (size, wild) = (a.exp()?, wild(a, b)?);
        let (re, im) = (size.mul(&b.cos()?)?, scaled(&size, &b.sin()?)?);
        let vanishing = wild.logical_and(&a.lt(0)?)?;
        Ok((where_(&wild, &size, &re)?, where_(&vanishing, &signed(&size, b)?, &im)?))
    })
}

fn log(x: &Tensor) -> Result<Tensor> {
    wide(x, |x| map(x, |a, b| Ok((a.hypot(b)?.log()?, b.atan2(a)?))))
}

fn log1p(x: &Tensor) -> Result<Tensor> {
    wide(x, |x| {
        map(x, |a, b| {
            let beyond = a.mul(&a.add(2.0)?)?.add(&b.square()?)?;
            // Near -1 the sum cancels.
            let direct = a.add(1.0)?.hypot(b)?.log()?;
            let re = where_(&beyond.abs()?.lt(0.5)?, &beyond.log1p()?.mul(0.5)?, &direct)?;
            let re = where_(&a.isnan()?.logical_or(&b.isnan()?)?, f64::NAN, &re)?;
            Ok((re, b.atan2(&a.add(1.0)?)?))
        })
    })
}

fn expm1(x: &Tensor) -> Result<Tensor> {
    map(x, |a, b| {
        let half = b.mul(0.5)?.sin()?.square()?.mul(2.0)?;
        Ok((a.expm1()?.mul(&b.cos()?)?.sub(&half)?, a.exp()?.mul(&b.sin()?)?))
    })
}

fn sqrt(x: &Tensor) -> Result<Tensor> {
    map(x, |a, b| {
        let t = a.abs()?.add(&a.hypot(b)?)?.mul(0.5)?.sqrt()?;
        let other = where_(&t.eq(0)?, &b.abs()?, &b.abs()?.div(&t.mul(2.0)?)?)?;
        let right = a.ge(0)?;
        let (re, im) = (where_(&right, &t, &other)?, where_(&right, &other, &t)?);
        // Of an infinite real part the other vanishes, unless it is NaN.
        let (far, nothing) = (a.isinf()?, b.mul(0.0)?);
        let re = where_(&far, &where_(&right, f64::INFINITY, &nothing.abs()?)?, &re)?;
        let im = where_(&far, &where_(&right, &nothing, f64::INFINITY)?, &im)?;
        let tall = b.isinf()?;
        let (re, im) = (where_(&tall, f64::INFINITY, &re)?, where_(&tall, f64::INFINITY, &im)?);
        Ok((re, signed(&im, b)?))
    })
}

fn sin(x: &Tensor) -> Result<Tensor> {
    let ((a, b), found) = (parts(x)?, over_i(&sinh(&times_i(x)?)?)?);
    complex(&found.real()?, &where_(&wild(&b, &a)?, f64::INFINITY, &found.imag()?)?)
}

fn cos(x: &Tensor) -> Result<Tensor> {
    cosh(&times_i(x)?)
}

fn sinh(x: &Tensor) -> Result<Tensor> {
    map(x, |a, b| {
        let re = scaled(&b.cos()?, &a.sinh()?)?;
        Ok((where_(&wild(a, b)?, f64::INFINITY, &re)?, scaled(&a.cosh()?, &b.sin()?)?))
    })
}

fn cosh(x: &Tensor) -> Result<Tensor> {
    map(x, |a, b| {
        let re = where_(&wild(a, b)?, f64::INFINITY, &a.cosh()?.mul(&b.cos()?)?)?;
        let nothing = a.eq(0)?.logical_and(&b.isfinite()?.logical_not()?)?;
        Ok((re, where_(&nothing, 0.0, &scaled(&a.sinh()?, &b.sin()?)?)?))
    })
}

fn tanh(x: &Tensor) -> Result<Tensor> {
    wide(x, |x| {
        map(x, |a, b| {
            // (t + i T) / (1 + i t T), with t = tanh a and T = tan b; 1 - t^2 = 1 / cosh^2 a.
            let (t, tangent) = (a.tanh()?, b.tan()?);
            let (t2, tangent2) = (t.square()?, tangent.square()?);
            let size = t2.mul(&tangent2)?.add(1.0)?;
            let falling = a.cosh()?.square()?.reciprocal()?;
            let (re, im) = (t.mul(&tangent2.add(1.0)?)?.div(&size)?, tangent.mul(&falling)?.div(&size)?);
            let wild = wild(a, b)?;
            let re = where_(&wild.logical_or(&a.eq(0)?)?, &t, &re)?;
            let im = where_(&wild, &signed(&b.zeros_like()?, b)?, &im)?;
            Ok((re, where_(&b.eq(0)?, b, &im)?))
        })
    })
}

fn atanh(x: &Tensor) -> Result<Tensor> {
    wide(x, |x| {
        map(x, |a, b| {
            let b2 = b.square()?;
            let far = a.add(1.0)?.square()?.add(&b2)?;
            let near = a.rsub(1.0)?.square()?.add(&b2)?;
            // log(far / near) = log1p(4 a / near), which keeps small numbers.
            let re = where_(&a.lt(0)?, &a.mul(-4.0)?.div(&far)?.log1p()?.neg()?, &a.mul(4.0)?.div(&near)?.log1p()?)?;
            let gap = a.rsub(1.0)?.mul(&a.add(1.0)?)?.sub(&b2)?;
            let im = b.mul(2.0)?.atan2(&gap)?.mul(0.5)?;
            let infinite = infinite(a, b)?;
            let quarter = where_(&b.isnan()?, b, &b.full_like(PI / 2.0)?.copysign(b)?)?;
            let re = where_(&a.eq(0)?, a, &re.mul(0.25)?)?;
            let re = where_(&infinite, &signed(&a.zeros_like()?, a)?, &re)?;
            Ok((re, where_(&infinite, &quarter, &im)?))
        })
    })
}

/// `sqrt(1 - x)` and `sqrt(1 + x)`.
fn roots(x: &Tensor) -> Parts {
    Ok((sqrt(&x.rsub(1.0)?)?, sqrt(&x.add(1.0)?)?))
}

/// Kahan's formulas for the inverse functions.
fn asinh(x: &Tensor) -> Result<Tensor> {
    wide(x, |x| {
        let (a, b) = parts(x)?;
        let turned = times_i(x)?;
        let (low, high) = roots(&turned)?;
        let im = turned.real()?.atan2(&low.mul(&high)?.real()?)?;
        let re = conjugate_product(&high, &low)?.imag()?.asinh()?;
        let infinite = infinite(&a, &b)?;
        let re = where_(&infinite, f64::INFINITY, &re.abs()?)?;
        let im = where_(&infinite, &b.abs()?.atan2(&a.abs()?)?, &im.abs()?)?;
        let im = where_(&b.eq(0)?, 0.0, &im)?;
        complex(&signed(&re, &a)?, &signed(&im, &b)?)
    })
}

fn asin(x: &Tensor) -> Result<Tensor> {
    let ((a, b), found) = (parts(x)?, over_i(&asinh(&times_i(x)?)?)?);
    // The sign that NaN leaves open.
    let open = a.isinf()?.logical_and(&b.isnan()?)?;
    complex(&found.real()?, &where_(&open, f64::INFINITY, &found.imag()?)?)
}

fn acos(x: &Tensor) -> Result<Tensor> {
    wide(x, |x| {
        let (a, b) = parts(x)?;
        // `1 - x` with the sign of a zero imaginary part: it tells the sides of the cut apart.
        let (low, high) = (sqrt(&complex(&a.rsub(1.0)?, &b.neg()?)?)?, sqrt(&x.add(1.0)?)?);
        let re = low.real()?.atan2(&high.real()?)?.mul(2.0)?;
        let im = conjugate_product(&low, &high)?.imag()?.asinh()?;
        let infinite = infinite(&a, &b)?;
        let re = where_(&infinite, &b.abs()?.atan2(&a)?, &re)?;
        let re = where_(&a.eq(0)?.logical_and(&b.isnan()?)?, PI / 2.0, &re)?;
        complex(&re, &where_(&infinite, &signed(&b.full_like(f64::INFINITY)?, &b)?.neg()?, &im)?)
    })
}

fn acosh(x: &Tensor) -> Result<Tensor> {
    wide(x, |x| {
        let (a, b) = parts(x)?;
        let (low, high) = (sqrt(&x.sub(1.0)?)?, sqrt(&x.add(1.0)?)?);
        let im = low.imag()?.atan2(&high.real()?)?.mul(2.0)?;
        let re = conjugate_product(&high, &low)?.real()?.asinh()?;
        let infinite = infinite(&a, &b)?;
        let im = where_(&infinite, &b.atan2(&a)?, &im)?;
        let im = where_(&a.eq(0)?.logical_and(&b.isnan()?)?, PI / 2.0, &im)?;
        complex(&where_(&infinite, f64::INFINITY, &re)?, &im)
    })
}

fn sinc(x: &Tensor) -> Result<Tensor> {
    let angle = x.mul(PI)?;
    where_(&x.eq(0)?, 1.0, &sin(&angle)?.div(&angle)?)
}

/// A function whose derivative is a formula of its argument and its value, recorded.
fn holomorphic(
    name: &'static str,
    x: &Tensor,
    value: fn(&Tensor) -> Result<Tensor>,
    derivative: fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let out = no_grad(|| value(x))?;
    if recording(&[x]) {
        let (x_saved, y_saved) = (Saved::input(x), Saved::output(&out, 0));
        record(name, &[x], &out, move |ctx, dy| {
            let slope = derivative(&ctx.get(&x_saved)?, &ctx.get(&y_saved)?)?;
            Ok(smallvec![Some(conjugate_product(dy, &slope)?)])
        })?;
    }
    Ok(out)
}

/// A row of one operand.
pub(super) fn unary(op: Pointwise, x: &Tensor) -> Result<Tensor> {
    use Pointwise::*;
    let name = op.name();
    match op {
        Exp => holomorphic(name, x, exp, |_, y| Ok(y.clone())),
        Exp2 => holomorphic(name, x, |x| exp(&x.mul(LN_2)?), |_, y| y.mul(LN_2)),
        Expm1 => holomorphic(name, x, expm1, |_, y| y.add(1.0)),
        Log => holomorphic(name, x, log, |x, _| x.reciprocal()),
        Log2 => holomorphic(name, x, |x| log(x)?.div(LN_2), |x, _| x.mul(LN_2)?.reciprocal()),
        Log10 => holomorphic(name, x, |x| log(x)?.div(LN_10), |x, _| x.mul(LN_10)?.reciprocal()),
        Log1p => holomorphic(name, x, log1p, |x, _| x.add(1.0)?.reciprocal()),
        Sqrt => holomorphic(name, x, sqrt, |_, y| y.mul(2.0)?.reciprocal()),
        Rsqrt => holomorphic(name, x, |x| sqrt(x)?.reciprocal(), |x, y| y.div(x)?.mul(-0.5)),
        Reciprocal => x.rdiv(1.0),
        Square => x.mul(x),
        Sin => holomorphic(name, x, sin, |x, _| x.cos()),
        Cos => holomorphic(name, x, cos, |x, _| x.sin()?.neg()),
        Tan => holomorphic(name, x, |x| over_i(&tanh(&times_i(x)?)?), |_, y| y.square()?.add(1.0)),
        Sinh => holomorphic(name, x, sinh, |x, _| x.cosh()),
        Cosh => holomorphic(name, x, cosh, |x, _| x.sinh()),
        Tanh => holomorphic(name, x, tanh, |_, y| y.square()?.rsub(1.0)),
        Asin => holomorphic(name, x, asin, |x, _| x.square()?.rsub(1.0)?.rsqrt()),
        Acos => holomorphic(name, x, acos, |x, _| x.square()?.rsub(1.0)?.rsqrt()?.neg()),
        Atan => holomorphic(name, x, |x| over_i(&atanh(&times_i(x)?)?), |x, _| x.square()?.add(1.0)?.reciprocal()),
        Asinh => holomorphic(name, x, asinh, |x, _| x.square()?.add(1.0)?.rsqrt()),
        Acosh => holomorphic(name, x, acosh, |x, _| x.sub(1.0)?.rsqrt()?.mul(&x.add(1.0)?.rsqrt()?)),
        Atanh => holomorphic(name, x, atanh, |x, _| x.square()?.rsub(1.0)?.reciprocal()),
        Sigmoid => {
            let value = |x: &Tensor| wide(x, |x| exp(&x.neg()?)?.add(1.0)?.reciprocal());
            holomorphic(name, x, value, |_, y| y.mul(&y.rsub(1.0)?))
        }
        Sinc => {
            let slope = |x: &Tensor, y: &Tensor| where_(&x.eq(0)?, 0.0, &x.mul(PI)?.cos()?.sub(y)?.div(x)?);
            holomorphic(name, x, |x| wide(x, sinc), slope)
        }
        Silu => x.mul(&x.sigmoid()?),
        Tanhshrink => x.sub(&x.tanh()?),
        Abs => abs(x),
        _ => Err(refusal(name, x.dtype())),
    }
}

/// Magnitudes. The derivative at zero is zero.
fn abs(x: &Tensor) -> Result<Tensor> {
    let out = no_grad(|| x.real()?.hypot(&x.imag()?))?;
    if recording(&[x]) {
        let saved = Saved::input(x);
        record("abs", &[x], &out, move |ctx, dy| Ok(smallvec![Some(ctx.get(&saved)?.sgn()?.mul(dy)?)]))?;
    }
    Ok(out)
}

/// `a` to the power of `b`, both complex.
pub(super) fn pow(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let out = no_grad(|| {
        let zero = a.eq(0)?;
        let power = wide(&b.mul(&log(&where_(&zero, 1.0, a)?)?)?, exp)?;
        let at_zero = b.eq(0)?.to_dtype(a.dtype())?;
        where_(&zero.expand(power.shape())?, &at_zero, &power)
    })?;
    if recording(&[a, b]) {
        let (a_saved, b_saved, y) = (Saved::input(a), Saved::input(b), Saved::output(&out, 0));
        record("pow", &[a, b], &out, move |ctx, dy| {
            let (a, b, y) = (ctx.get(&a_saved)?, ctx.get(&b_saved)?, ctx.get(&y)?);
            let to_a = match ctx.needs(0) {
                true => {
                    let slope = where_(&b.eq(0)?, 0.0, &b.mul(&a.pow(&b.sub(1.0)?)?)?)?;
                    Some(conjugate_product(dy, &slope)?.sum_to_size(a.shape())?)
                }
                false => None,
            };
            let to_b = match ctx.needs(1) {
                true => {
                    let slope = y.mul(&where_(&a.eq(0)?, 1.0, &a)?.log()?)?;
                    Some(conjugate_product(dy, &slope)?.sum_to_size(b.shape())?)
                }
                false => None,
            };
            Ok(smallvec![to_a, to_b])
        })?;
    }
    Ok(out)
}

/// `a` to the power of a number; `b` is the number as a tensor. Small whole powers are products.
pub(super) fn pow_number(a: &Tensor, b: &Tensor, exponent: Scalar) -> Result<Tensor> {
    match (exponent.to_f64(), exponent.imag()) {
        (0.0, 0.0) => a.mul(0.0)?.ones_like(),
        (0.5, 0.0) => a.sqrt(),
        (1.0, 0.0) => a.copy(),
        (2.0, 0.0) => a.mul(a),
        (3.0, 0.0) => a.mul(a)?.mul(a),
        (-0.5, 0.0) => a.rsqrt(),
        (-1.0, 0.0) => a.reciprocal(),
        (-2.0, 0.0) => a.mul(a)?.reciprocal(),
        _ => pow(a, b),
    }
}

impl Tensor {
    /// The number of magnitude one in the direction of each element; zero for zero. The sign of real numbers.
    pub fn sgn(&self) -> Result<Tensor> {
        if !self.is_complex() {
            return self.sign();
        }
        let zero = self.detach().eq(0)?;
        let size = where_(&zero, 1.0, &self.abs()?)?;
        self.div(&size)
    }

    /// The angles of complex numbers in radians; of real ones 0, or π if negative.
    pub fn angle(&self) -> Result<Tensor> {
        if self.is_complex() {
            let out = no_grad(|| self.imag()?.atan2(&self.real()?))?;
            if recording(&[self]) {
                let saved = Saved::input(self);
                record("angle", &[self], &out, move |ctx, dy| {
                    let x = ctx.get(&saved)?;
                    let zero = x.detach().eq(0)?;
                    // i x / |x|^2, zero at zero.
                    let size = where_(&zero, 1.0, &x.real()?.square()?.add(&x.imag()?.square()?)?)?;
                    Ok(smallvec![Some(times_i(&x)?.mul(&dy.div(&size)?)?)])
                })?;
            }
            return Ok(out);
        }
        let x = if self.dtype().is_float() { self.clone() } else { self.to_dtype(crate::default_dtype())? };
        // NaN has no angle; minus zero counts as zero.
        let rest = where_(&x.isnan()?, &x, &x.mul(0.0)?.abs()?)?;
        where_(&x.lt(0)?, PI, &rest)
    }
}
