//! Arithmetic with arguments beyond the tables of `math`: negation, powers, scalars on the left, interpolation, and
//! products added to a tensor.

use super::complex;
use super::number::fitting;
use super::operands::{
    alpha_of, no_negative_exponent, no_whole_quotient, not_bools, number, whole_factor, zero_divisor,
};
use super::pointwise::{pointwise, pointwise_inplace};
use crate::Tensor;
use crate::arg::{Arg, addend, result_type};
use rushlight_core::{DType, Error, Pointwise, Result, Scalar};

impl Tensor {
    /// Negation.
    pub fn neg(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return Err(Error::dtype(
                "neg: not implemented for bool: negation of bool is not supported; use logical_not instead",
            ));
        }
        pointwise(Pointwise::Neg, &[Arg::Tensor(self)], &[])
    }

    /// [`Tensor::neg`] in place.
    pub fn neg_(&self) -> Result<&Tensor> {
        if self.dtype() == DType::Bool {
            return Err(Error::dtype(
                "neg_: not implemented for bool: negation of bool is not supported; use logical_not instead",
            ));
        }
        pointwise_inplace(Pointwise::Neg, self, &[], &[])?;
        Ok(self)
    }

    /// Magnitude.
    pub fn abs(&self) -> Result<Tensor> {
        self.not_bool("abs")?;
        pointwise(Pointwise::Abs, &[Arg::Tensor(self)], &[])
    }

    /// [`Tensor::abs`] in place.
    pub fn abs_(&self) -> Result<&Tensor> {
        self.not_bool("abs_")?;
        pointwise_inplace(Pointwise::Abs, self, &[], &[])?;
        Ok(self)
    }

    /// -1, 0 or 1 by sign.
    pub fn sign(&self) -> Result<Tensor> {
        pointwise(Pointwise::Sign, &[Arg::Tensor(self)], &[])
    }

    /// `self + alpha * other`.
    pub fn add_scaled(&self, other: &Tensor, alpha: impl Into<Scalar>) -> Result<Tensor> {
        let alpha = alpha_of("add", self, other, alpha.into())?;
        // The product has the sum's dtype: that of `other` may be too narrow for `alpha`.
        let common = crate::arg::result_type(&[Arg::Tensor(self), Arg::Tensor(other)]);
        self.add(&other.to_dtype(common)?.mul(Arg::Scalar(alpha))?)
    }

    /// `self += alpha * other`.
    #[doc(alias = "axpy")]
    pub fn add_scaled_(&self, other: &Tensor, alpha: impl Into<Scalar>) -> Result<&Tensor> {
        match alpha_of("add_", self, other, alpha.into())? {
            // One pass for floats; the row's factor is a float.
            alpha if self.dtype().is_float() && !matches!(alpha, Scalar::Complex(..)) => {
                pointwise_inplace(
                    Pointwise::Addcmul,
                    self,
                    &[Arg::Tensor(other), Arg::Scalar(Scalar::Float(1.0))],
                    &[alpha.to_f64()],
                )?;
                Ok(self)
            }
            alpha => self.add_(&other.mul(Arg::Scalar(alpha))?),
        }
    }

    /// Power. A tensor exponent broadcasts; small whole exponents are products.
    pub fn pow<'a>(&self, exponent: impl Into<Arg<'a>>) -> Result<Tensor> {
        let exponent = exponent.into();
        no_negative_exponent("pow", self, exponent)?;
        if let Arg::Tensor(_) = exponent {
            number("pow", self, exponent)?;
        }
        if let Arg::Scalar(s) = exponent {
            fitting("pow", s, result_type(&[Arg::Tensor(self), exponent]))?;
        }
        if let Arg::Scalar(s) = exponent
            && self.dtype().is_float()
        {
            match s.to_f64() {
                0.5 => return self.sqrt(),
                2.0 => return self.square(),
                -1.0 => return self.reciprocal(),
                -0.5 => return self.rsqrt(),
                _ => {}
            }
        }
        pointwise(Pointwise::Pow, &[Arg::Tensor(self), exponent], &[])
    }

    /// [`Tensor::pow`] in place.
    pub fn pow_<'a>(&self, exponent: impl Into<Arg<'a>>) -> Result<&Tensor> {
        let exponent = exponent.into();
        if let Arg::Tensor(_) = exponent {
            number("pow_", self, exponent)?;
        }
        no_negative_exponent("pow_", self, exponent)?;
        pointwise_inplace(Pointwise::Pow, self, &[exponent], &[])?;
        Ok(self)
    }

    /// A number to the power of each element.
    pub fn rpow(&self, base: impl Into<Scalar>) -> Result<Tensor> {
        pointwise(Pointwise::Pow, &[Arg::Scalar(base.into()), Arg::Tensor(self)], &[])
    }

    /// A number minus each element.
    pub fn rsub(&self, a: impl Into<Scalar>) -> Result<Tensor> {
        let a = addend(Arg::Scalar(a.into()), self.dtype());
        not_bools("rsub", self, a)?;
        pointwise(Pointwise::Sub, &[a, Arg::Tensor(self)], &[])
    }

    /// A number divided by each element.
    pub fn rdiv(&self, a: impl Into<Scalar>) -> Result<Tensor> {
        pointwise(Pointwise::Div, &[Arg::Scalar(a.into()), Arg::Tensor(self)], &[])
    }

    /// Remainder of a number divided by each element, with the sign of the element.
    pub fn rremainder(&self, a: impl Into<Scalar>) -> Result<Tensor> {
        let a = a.into();
        if !result_type(&[Arg::Tensor(self), Arg::Scalar(a)]).is_float()
            && crate::capture::may_read(self.device())
            && crate::autograd::no_grad(|| self.eq(0)?.any(..)?.item::<bool>())?
        {
            return Err(zero_divisor("rremainder"));
        }
        pointwise(Pointwise::Remainder, &[Arg::Scalar(a), Arg::Tensor(self)], &[])
    }

    /// A number times the logarithm of each element; zero if the number is.
    pub fn rxlogy(&self, a: impl Into<Scalar>) -> Result<Tensor> {
        pointwise(Pointwise::Xlogy, &[Arg::Scalar(a.into()), Arg::Tensor(self)], &[])
    }

    /// From `self` to `end` by `weight`, a number or a tensor.
    pub fn lerp<'a>(&self, end: &'a Tensor, weight: impl Into<Arg<'a>>) -> Result<Tensor> {
        self.needs_float("lerp")?;
        pointwise(Pointwise::Lerp, &[Arg::Tensor(self), Arg::Tensor(end), weight.into()], &[])
    }

    /// [`Tensor::lerp`] in place.
    pub fn lerp_<'a>(&self, end: &'a Tensor, weight: impl Into<Arg<'a>>) -> Result<&Tensor> {
        self.needs_float("lerp_")?;
        pointwise_inplace(Pointwise::Lerp, self, &[Arg::Tensor(end), weight.into()], &[])?;
        Ok(self)
    }

    /// `self + value * a * b`.
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let (args, value) = ([Arg::Tensor(self), Arg::Tensor(a), Arg::Tensor(b)], value.into());
        if complex::involved(&args) || matches!(value, Scalar::Complex(..)) {
            return self.add(&a.mul(b)?.mul(value)?);
        }
        match whole_factor("addcmul", &args, value)? {
            Some(value) => self.add(&a.mul(b)?.to_dtype(result_type(&args))?.mul(value)?),
            None => pointwise(Pointwise::Addcmul, &args, &[value.to_f64()]),
        }
    }

    /// [`Tensor::addcmul`] in place.
    pub fn addcmul_(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<&Tensor> {
        let value = value.into();
        if complex::involved(&[Arg::Tensor(self), Arg::Tensor(a), Arg::Tensor(b)])
            || matches!(value, Scalar::Complex(..))
        {
            return self.add_(&a.mul(b)?.mul(value)?);
        }
        match whole_factor("addcmul_", &[Arg::Tensor(self), Arg::Tensor(a), Arg::Tensor(b)], value)? {
            Some(value) => self.add_(&a.mul(b)?.to_dtype(self.dtype())?.mul(value)?),
            None => {
                let params = [value.to_f64()];
                pointwise_inplace(Pointwise::Addcmul, self, &[Arg::Tensor(a), Arg::Tensor(b)], &params)?;
                Ok(self)
            }
        }
    }

    /// `self + value * a / b`.
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let (args, value) = ([Arg::Tensor(self), Arg::Tensor(a), Arg::Tensor(b)], value.into());
        if complex::involved(&args) || matches!(value, Scalar::Complex(..)) {
            return self.add(&a.div(b)?.mul(value)?);
        }
        no_whole_quotient(a, b)?;
        pointwise(Pointwise::Addcdiv, &args, &[value.to_f64()])
    }

    /// [`Tensor::addcdiv`] in place.
    pub fn addcdiv_(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<&Tensor> {
        let value = value.into();
        if complex::involved(&[Arg::Tensor(self), Arg::Tensor(a), Arg::Tensor(b)])
            || matches!(value, Scalar::Complex(..))
        {
            return self.add_(&a.div(b)?.mul(value)?);
        }
        no_whole_quotient(a, b)?;
        pointwise_inplace(Pointwise::Addcdiv, self, &[Arg::Tensor(a), Arg::Tensor(b)], &[value.to_f64()])?;
        Ok(self)
    }

    /// `x * x`; of bool an integer, as any power.
    pub fn square(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return self.to_dtype(DType::I64);
        }
        pointwise(Pointwise::Square, &[Arg::Tensor(self)], &[])
    }

    /// [`Tensor::square`] in place.
    pub fn square_(&self) -> Result<&Tensor> {
        pointwise_inplace(Pointwise::Square, self, &[], &[])?;
        Ok(self)
    }
}
