//! Elements kept between bounds, and those replaced by a number where they cross one.

use super::number::{fitting, saturated};
use super::pointwise::{pointwise, pointwise_inplace};
use crate::arg::{Arg, result_type};
use crate::{Tensor, where_};
use rushlight_core::{DType, Error, Pointwise, Result, Scalar};

/// A row of [`clamp`](Tensor::clamp) with its operands and parameters.
enum Clamp<'a> {
    /// Numbers around floats, where PyTorch's derivative differs from that between tensors: zero at the bounds.
    Between(f64, f64),
    Both(Arg<'a>, Arg<'a>),
    Min(Arg<'a>),
    Max(Arg<'a>),
}

fn plan<'a>(name: &str, input: &Tensor, min: Option<Arg<'a>>, max: Option<Arg<'a>>) -> Result<Clamp<'a>> {
    let mut args = vec![Arg::Tensor(input)];
    args.extend(min);
    args.extend(max);
    let dtype = result_type(&args);
    if dtype == DType::Bool {
        return Err(Error::dtype(format!("{name}: not implemented for bool; convert to a number with to_dtype first")));
    }
    let bound = |arg: Arg<'a>, upper: bool| match arg {
        Arg::Scalar(s) if dtype.is_float() => fitting(name, s, dtype).map(Arg::Scalar),
        Arg::Scalar(s) => match (saturated(s, dtype).to_i64(), s.to_i64(), upper) {
            // No element would be within.
            (end, given, true) if end > given => Err(beyond(name, given, dtype)),
            (end, given, false) if end < given => Err(beyond(name, given, dtype)),
            (end, ..) => Ok(Arg::Scalar(Scalar::Int(end))),
        },
        tensor => Ok(tensor),
    };
    let (min, max) = (min.map(|a| bound(a, false)).transpose()?, max.map(|a| bound(a, true)).transpose()?);
    Ok(match (min, max) {
        (Some(Arg::Scalar(lo)), Some(Arg::Scalar(hi))) if input.dtype().is_float() => {
            Clamp::Between(lo.to_f64(), hi.to_f64())
        }
        (Some(Arg::Scalar(lo)), None) if input.dtype().is_float() => Clamp::Between(lo.to_f64(), f64::INFINITY),
        (None, Some(Arg::Scalar(hi))) if input.dtype().is_float() => Clamp::Between(f64::NEG_INFINITY, hi.to_f64()),
        (Some(min), Some(max)) => Clamp::Both(min, max),
        (Some(min), None) => Clamp::Min(min),
        (None, Some(max)) => Clamp::Max(max),
        (None, None) => return Err(Error::value(format!("{name}: At least one of 'min' or 'max' must not be None"))),
    })
}

fn beyond(name: &str, bound: i64, dtype: DType) -> Error {
    Error::value(format!("{name}: the bound {bound} is outside the representable range of {dtype}"))
}

impl Tensor {
    /// Kept between bounds, numbers or tensors.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([-2.0f32, 0.5, 3.0])?;
    /// assert_eq!(x.clamp(-1.0, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias = "clip")]
    pub fn clamp<'a>(&self, min: impl Into<Arg<'a>>, max: impl Into<Arg<'a>>) -> Result<Tensor> {
        self.clamp_bounds(Some(min.into()), Some(max.into()))
    }

    /// Not below a bound.
    pub fn clamp_min<'a>(&self, min: impl Into<Arg<'a>>) -> Result<Tensor> {
        self.clamp_bounds(Some(min.into()), None)
    }

    /// Not above a bound.
    pub fn clamp_max<'a>(&self, max: impl Into<Arg<'a>>) -> Result<Tensor> {
        self.clamp_bounds(None, Some(max.into()))
    }

    /// [`Tensor::clamp`] with bounds of which either may be missing.
    pub fn clamp_bounds(&self, min: Option<Arg>, max: Option<Arg>) -> Result<Tensor> {
        if let Some(clamped) = self.clamp_bools(&min, &max) {
            return clamped;
        }
        match plan("clamp", self, min, max)? {
            Clamp::Between(lo, hi) => pointwise(Pointwise::ClampBetween, &[Arg::Tensor(self)], &[lo, hi]),
            Clamp::Both(min, max) => pointwise(Pointwise::Clamp, &[Arg::Tensor(self), min, max], &[]),
            Clamp::Min(min) => pointwise(Pointwise::ClampMin, &[Arg::Tensor(self), min], &[]),
            Clamp::Max(max) => pointwise(Pointwise::ClampMax, &[Arg::Tensor(self), max], &[]),
        }
    }

    /// Bools between bounds that are tensors of bools; `None` for anything else.
    fn clamp_bools(&self, min: &Option<Arg>, max: &Option<Arg>) -> Option<Result<Tensor>> {
        let bools = |bound: &Option<Arg>| match bound {
            None => true,
            Some(Arg::Tensor(t)) => t.dtype() == DType::Bool,
            Some(_) => false,
        };
        if self.dtype() != DType::Bool || !bools(min) || !bools(max) {
            return None;
        }
        match (min, max) {
            (Some(Arg::Tensor(min)), None) => Some(self.logical_or(min)),
            (None, Some(Arg::Tensor(max))) => Some(self.logical_and(max)),
            (Some(Arg::Tensor(min)), Some(Arg::Tensor(max))) => {
                Some(self.logical_or(min).and_then(|above| above.logical_and(max)))
            }
            _ => None,
        }
    }

    /// [`Tensor::clamp`] in place.
    pub fn clamp_<'a>(&self, min: impl Into<Arg<'a>>, max: impl Into<Arg<'a>>) -> Result<&Tensor> {
        self.clamp_bounds_(Some(min.into()), Some(max.into()))
    }

    /// [`Tensor::clamp_bounds`] in place.
    pub fn clamp_bounds_(&self, min: Option<Arg>, max: Option<Arg>) -> Result<&Tensor> {
        match plan("clamp_", self, min, max)? {
            Clamp::Between(lo, hi) => pointwise_inplace(Pointwise::ClampBetween, self, &[], &[lo, hi])?,
            Clamp::Both(min, max) => pointwise_inplace(Pointwise::Clamp, self, &[min, max], &[])?,
            Clamp::Min(min) => pointwise_inplace(Pointwise::ClampMin, self, &[min], &[])?,
            Clamp::Max(max) => pointwise_inplace(Pointwise::ClampMax, self, &[max], &[])?,
        }
        Ok(self)
    }

    /// Kept between two constants, as [`Tensor::clamp`], in the tensor's own dtype; PyTorch's defaults are -1 and 1.
    pub fn hardtanh(&self, min_val: impl Into<Scalar>, max_val: impl Into<Scalar>) -> Result<Tensor> {
        self.not_bool("hardtanh")?;
        let (lo, hi) = (min_val.into(), max_val.into());
        if self.dtype().is_float() {
            return pointwise(Pointwise::Hardtanh, &[Arg::Tensor(self)], &[lo.to_f64(), hi.to_f64()]);
        }
        self.clamp(saturated(lo, self.dtype()), saturated(hi, self.dtype()))
    }

    /// `min(max(x, 0), 6)`.
    pub fn relu6(&self) -> Result<Tensor> {
        self.hardtanh(0, 6)
    }

    /// Elements above `threshold`; `value` in place of the others.
    pub fn threshold(&self, threshold: impl Into<Scalar>, value: impl Into<Scalar>) -> Result<Tensor> {
        self.not_bool("threshold")?;
        let threshold = fitting("threshold", threshold.into(), self.dtype())?;
        let value = fitting("threshold", value.into(), self.dtype())?;
        if self.dtype().is_float() {
            let params = [threshold.to_f64(), value.to_f64()];
            return pointwise(Pointwise::Threshold, &[Arg::Tensor(self)], &params);
        }
        // Parameters of a row are floats; integers are compared as integers.
        where_(&self.gt(threshold.to_i64())?, self, value.to_i64())
    }

    /// The continuously differentiable `elu`; PyTorch's default alpha is 1.
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        self.needs_float("celu")?;
        if alpha == 0.0 {
            return Err(Error::value("celu: alpha cannot be 0 (\"ZeroDivisionError\")"));
        }
        if alpha > 0.0 {
            return pointwise(Pointwise::Celu, &[Arg::Tensor(self)], &[alpha]);
        }
        // The row keeps `x / alpha` below zero, where a positive alpha has it.
        let above = self.gt(0)?;
        let below = where_(&above, 0.0, self)?.div(alpha)?.expm1()?.mul(alpha)?;
        where_(&above, self, &below)
    }

    /// The positive part.
    pub fn relu(&self) -> Result<Tensor> {
        self.not_bool("relu")?;
        pointwise(Pointwise::Relu, &[Arg::Tensor(self)], &[])
    }

    /// [`Tensor::relu`] in place.
    pub fn relu_(&self) -> Result<&Tensor> {
        self.not_bool("relu_")?;
        pointwise_inplace(Pointwise::Relu, self, &[], &[])?;
        Ok(self)
    }

    /// Moved `lambda` towards zero; PyTorch's default is 0.5.
    pub fn softshrink(&self, lambda: f64) -> Result<Tensor> {
        self.needs_float("softshrink")?;
        if lambda < 0.0 {
            return Err(Error::value(format!("softshrink: lambda must not be negative, but found {lambda}")));
        }
        pointwise(Pointwise::Softshrink, &[Arg::Tensor(self)], &[lambda])
    }
}
