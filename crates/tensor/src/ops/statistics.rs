//! Variance, norms, medians and quantiles.

use super::reduce::Mask;
use crate::Tensor;
use crate::announce::{self, announced};
use crate::autograd::{Ctx, Saved, no_grad, record, record_many, recording};
use crate::ops::sizes::{Along, AsDims};
use rushlight_core::backend::{Operand, Rank, Reduce, call};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Pointwise, Result};

/// The gradient of a variance: `dy * 2 / (count - correction) * (x - mean)`. `dy` has the reduced dimensions at size
/// one.
fn var_grad(ctx: &Ctx, dy: &Tensor, x: &Tensor, mask: &Mask, correction: f64, whole: bool) -> Result<Tensor> {
    let dims: Vec<isize> = (0..mask.len()).filter(|&d| mask[d]).map(|d| d as isize).collect();
    let mean = if dims.is_empty() { x.clone() } else { x.mean_dims(&dims, true)? };
    let freedom = x.reduced_count(mask) as f64 - correction;
    if freedom <= 0.0 && whole {
        // The limit of the formula, which PyTorch takes where no dimension was named.
        let slope = crate::where_(&x.eq(&mean)?, f64::NAN, f64::INFINITY)?.to_dtype(dy.dtype())?;
        return slope.mul(dy);
    }
    if ctx.recording() {
        return x.sub(&mean)?.mul(&dy.mul(2.0 / freedom)?);
    }
    // One pass: the derivative of a squared error is the formula.
    let scaled = dy.div(freedom)?;
    let out = x.uninit_like(x.shape(), x.dtype())?;
    if out.numel() > 0 {
        let (dy_layout, mean_layout) = (scaled.layout().expand(x.shape())?, mean.layout().expand(x.shape())?);
        let values = [
            Some(Operand::Tensor(scaled.view_as(&dy_layout))),
            Some(Operand::Tensor(x.engine_view())),
            Some(Operand::Tensor(mean.view_as(&mean_layout))),
            None,
            None,
        ];
        out.run(call::PointwiseGrad {
            op: Pointwise::MseLoss,
            wrt: 0,
            compute: x.dtype().compute(),
            values,
            params: Default::default(),
            out: out.engine_view(),
        })?;
    }
    Ok(out)
}

impl Tensor {
    /// Variance over dimensions, `..` for all, with `count - 1` as divisor.
    pub fn var(&self, dims: impl AsDims) -> Result<Tensor> {
        self.var_dims(dims, 1.0, false)
    }

    /// Variance over the named dimensions (`..`: all), with `count - correction` as divisor.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([[1.0f32, 3.0], [2.0, 8.0]])?;
    /// assert_eq!(x.var_dims([1], 1.0, false)?.to_vec::<f32>()?, [2.0, 18.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn var_dims(&self, dims: impl AsDims, correction: f64, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.needs_float("var")?;
        if self.is_complex() {
            // The variances of the parts add up.
            let of = |part: Tensor| match dims.is_empty() {
                true => part.var_dims(.., correction, keepdim),
                false => part.var_dims(dims, correction, keepdim),
            };
            return of(self.real()?)?.add(&of(self.imag()?)?);
        }
        let mask = self.reduced("var", dims)?;
        announced!(
            "torch.var", [self, announce::dims(dims)], correction = correction, keepdim = keepdim;
            self.var_dims(dims, correction, keepdim)
        );
        let out = self.variance(&mask, correction, keepdim)?;
        if recording(&[self]) {
            let (kept, x, whole) = (self.kept_shape(&mask), Saved::input(self), dims.is_empty() || self.rank() == 0);
            record("var", &[self], &out, move |ctx, dy| {
                Ok(smallvec![Some(var_grad(ctx, &dy.reshape(&kept)?, &ctx.get(&x)?, &mask, correction, whole)?)])
            })?;
        }
        Ok(out)
    }

    /// The variance of each group; NaN of nothing, whatever the correction.
    fn variance(&self, mask: &Mask, correction: f64, keepdim: bool) -> Result<Tensor> {
        let correction = if self.reduced_count(mask) == 0 { 0.0 } else { correction };
        self.reduce(Reduce::Var { correction }, mask, keepdim, self.dtype())
    }

    /// Standard deviation over dimensions, `..` for all, with `count - 1` as divisor.
    pub fn std(&self, dims: impl AsDims) -> Result<Tensor> {
        self.std_dims(dims, 1.0, false)
    }

    /// Standard deviation over the named dimensions (`..`: all), with `count - correction` as divisor. Where it is
    /// zero, so is its gradient.
    pub fn std_dims(&self, dims: impl AsDims, correction: f64, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.needs_float("std")?;
        if self.is_complex() {
            return self.var_dims(dims, correction, keepdim)?.sqrt();
        }
        let mask = self.reduced("std", dims)?;
        announced!(
            "torch.std", [self, announce::dims(dims)], correction = correction, keepdim = keepdim;
            self.std_dims(dims, correction, keepdim)
        );
        let out = self.variance(&mask, correction, keepdim)?;
        out.sqrt_()?;
        if recording(&[self]) {
            let (kept, x, y) = (self.kept_shape(&mask), Saved::input(self), Saved::output(&out, 0));
            let whole = dims.is_empty() || self.rank() == 0;
            record("std", &[self], &out, move |ctx, dy| {
                let y = ctx.get(&y)?;
                let dvar = dy.div(&y.mul(2.0)?)?.masked_fill(&y.eq(0)?, 0.0)?;
                Ok(smallvec![Some(var_grad(ctx, &dvar.reshape(&kept)?, &ctx.get(&x)?, &mask, correction, whole)?)])
            })?;
        }
        Ok(out)
    }

    /// Variance and mean over the named dimensions (`..`: all).
    pub fn var_mean(&self, dims: impl AsDims, correction: f64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.spread_and_mean("var_mean", dims.as_dims(), correction, keepdim, false)
    }

    /// Standard deviation and mean over the named dimensions (`..`: all).
    pub fn std_mean(&self, dims: impl AsDims, correction: f64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.spread_and_mean("std_mean", dims.as_dims(), correction, keepdim, true)
    }

    /// The variance, or its `root`, and the mean as one recorded op.
    fn spread_and_mean(
        &self,
        name: &'static str,
        dims: &[isize],
        correction: f64,
        keepdim: bool,
        root: bool,
    ) -> Result<(Tensor, Tensor)> {
        let parts = || {
            let spread =
                if root { self.std_dims(dims, correction, keepdim) } else { self.var_dims(dims, correction, keepdim) };
            Ok((spread?, self.mean_dims(dims, keepdim)?))
        };
        if self.is_complex() || !recording(&[self]) {
            return parts();
        }
        let (spread, mean) = no_grad(parts)?;
        let (mask, whole) = (self.reduced(name, dims)?, dims.is_empty() || self.rank() == 0);
        let (shape, kept, count) = (Dims::from_slice(self.shape()), self.kept_shape(&mask), self.reduced_count(&mask));
        let (x, y) = (Saved::input(self), root.then(|| Saved::output(&spread, 0)));
        record_many(name, &[self], &[&spread, &mean], move |ctx, mut grads| {
            let (dmean, dspread) = (grads.pop().flatten(), grads.pop().flatten());
            let by_mean = match dmean {
                Some(dy) => Some(dy.reshape(&kept)?.div(count as f64)?.expand(&shape)?),
                None => None,
            };
            let Some(dspread) = dspread else { return Ok(smallvec![by_mean]) };
            let dvar = match &y {
                Some(y) => {
                    let y = ctx.get(y)?;
                    dspread.div(&y.mul(2.0)?)?.masked_fill(&y.eq(0)?, 0.0)?
                }
                None => dspread,
            };
            let by_spread = var_grad(ctx, &dvar.reshape(&kept)?, &ctx.get(&x)?, &mask, correction, whole)?;
            Ok(smallvec![Some(match by_mean {
                Some(other) => by_spread.add(&other)?,
                None => by_spread,
            })])
        })?;
        Ok((spread, mean))
    }

    /// The p-norm of all elements; `p` may be 0 (how many are not zero), infinite or negative. PyTorch's default is 2.
    pub fn norm(&self, p: f64) -> Result<Tensor> {
        self.norm_dims(p, [], false)
    }

    /// The p-norm over the named dimensions (`..`: all), taken together as one vector.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([[3.0f32, 4.0], [6.0, 8.0]])?;
    /// assert_eq!(x.norm_dims(2.0, [1], false)?.to_vec::<f32>()?, [5.0, 10.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn norm_dims(&self, p: f64, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.needs_float("norm")?;
        if self.is_complex() {
            return self.abs()?.norm_dims(p, dims, keepdim);
        }
        let mask = self.reduced("norm", dims)?;
        announced!("torch.norm", [self, p, announce::dims(dims), keepdim]; self.norm_dims(p, dims, keepdim));
        if (p < 0.0 || p.is_infinite()) && self.reduced_count(&mask) == 0 {
            return Err(Error::value(format!(
                "norm: cannot compute the {p} norm on an empty dimension because the operation does not have an identity (shape {:?})",
                self.shape()
            )));
        }
        let out = match p != 0.0 && self.reduced_count(&mask) == 1 {
            // The norm of one number is its magnitude, without powers that overflow.
            true => self.detach().abs()?.reduce(Reduce::Sum, &mask, keepdim, self.dtype())?,
            false => self.reduce(Reduce::Norm { p }, &mask, keepdim, self.dtype())?,
        };
        if recording(&[self]) {
            let (kept, x, y) = (self.kept_shape(&mask), Saved::input(self), Saved::output(&out, 0));
            record("norm", &[self], &out, move |ctx, dy| {
                if p == 0.0 {
                    return Ok(smallvec![None]);
                }
                let (x, y, dy) = (ctx.get(&x)?, ctx.get(&y)?.reshape(&kept)?, dy.reshape(&kept)?);
                Ok(smallvec![Some(norm_grad(&dy, &x, &y, p, &mask)?)])
            })?;
        }
        Ok(out)
    }

    /// Another name of [`Tensor::norm_dims`], as in `torch.linalg`.
    pub fn vector_norm(&self, ord: f64, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.norm_dims(ord, dims, keepdim)
    }

    /// The Frobenius norm of the matrices in two dimensions (PyTorch's defaults are -2 and -1).
    pub fn frobenius_norm(&self, dims: [isize; 2], keepdim: bool) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::shape(format!(
                "frobenius_norm: the input must have at least 2 dimensions, got shape {:?}",
                self.shape()
            )));
        }
        self.norm_dims(2.0, dims, keepdim)
    }

    fn median_along(&self, name: &'static str, dim: isize, keepdim: bool, skip_nan: bool) -> Result<(Tensor, Tensor)> {
        self.not_bool(name)?;
        let dim = self.wrap_dim(name, dim)?;
        if self.rank() == 0 {
            return self.reshape([1usize])?.median_along(name, 0, false, skip_nan);
        }
        if self.shape()[dim] == 0 {
            return Err(Error::index(format!("{name}: expected reduction dim {dim} to have non-zero size")));
        }
        let (values, indices) = self.kth(dim, if skip_nan { Rank::NanMedian } else { Rank::Median })?;
        if keepdim {
            return Ok((values, indices));
        }
        Ok((values.squeeze([dim as isize])?, indices.squeeze([dim as isize])?))
    }

    fn median_whole(&self, name: &'static str, skip_nan: bool) -> Result<Tensor> {
        self.not_bool(name)?;
        if self.numel() == 0 {
            let nothing = match self.dtype() {
                dtype if dtype.is_float() => self.full_number(f64::NAN)?,
                // PyTorch's NaN as an integer.
                dtype @ (DType::I32 | DType::I64) => {
                    Tensor::full_with([], super::number::range(dtype).0, (dtype, self.device()))?
                }
                dtype => Tensor::zeros_with([], (dtype, self.device()))?,
            };
            if self.dtype().is_float() {
                self.record_shared(name, &nothing, &self.reduced("median_whole", &[])?, true)?;
            }
            return Ok(nothing);
        }
        let out =
            crate::autograd::no_grad(|| self.reshape([-1isize])?.median_along(name, 0, false, skip_nan)?.0.copy())?;
        self.record_shared(name, &out, &self.reduced("median_whole", &[])?, true)?;
        Ok(out)
    }

    fn full_number(&self, value: f64) -> Result<Tensor> {
        Tensor::full_with([], value, (self.dtype(), self.device()))
    }

    /// The median along a dimension and its index (`x.median(1)?`), or of all elements (`x.median(..)?`, where equals
    /// share the gradient): the lower of two middle ones, NaN if any is.
    pub fn median<D: Along>(&self, dim: D) -> Result<D::Output> {
        dim.either(|| self.median_whole("median", false), |dim| self.median_dim(dim, false))
    }

    /// [`Tensor::median`] along a dimension that stays at size one with `keepdim`.
    pub fn median_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.median_along("median", dim, keepdim, false)
    }

    /// [`Tensor::median`] of the elements that are not NaN.
    pub fn nanmedian<D: Along>(&self, dim: D) -> Result<D::Output> {
        dim.either(|| self.median_whole("nanmedian", true), |dim| self.nanmedian_dim(dim, false))
    }

    /// [`Tensor::nanmedian`] along a dimension that stays at size one with `keepdim`.
    pub fn nanmedian_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.median_along("nanmedian", dim, keepdim, true)
    }

    /// The value below which a fraction `q` of the elements is, with linear interpolation between neighbours; along a
    /// dimension or of all. NaN if any element is.
    pub fn quantile(&self, q: f64, dim: Option<isize>, keepdim: bool) -> Result<Tensor> {
        self.needs_float("quantile")?;
        if !(0.0..=1.0).contains(&q) {
            return Err(Error::value(format!("quantile: q must be in the range [0, 1] but got {q}")));
        }
        let Some(dim) = dim else {
            let out = self.reshape([-1isize])?.quantile(q, Some(0), false)?;
            return if keepdim { out.reshape(&smallvec![1usize; self.rank()] as &Dims) } else { Ok(out) };
        };
        let d = self.wrap_dim("quantile", dim)? as isize;
        let x = self.at_least_1d()?;
        let n = x.size(d)?;
        if n == 0 {
            return Err(Error::value("quantile: the input must have at least one element along the dimension"));
        }
        let place = q * (n - 1) as f64;
        let (floor, ceil) = (place.floor() as usize, place.ceil() as usize);
        let low = x.kthvalue(floor + 1, d, true)?.0;
        let high = if ceil == floor { low.clone() } else { x.kthvalue(ceil + 1, d, true)?.0 };
        // The greatest is NaN if any element is.
        let nan = no_grad(|| x.amax([d], true)?.isnan())?;
        let between = low.lerp(&high, place.fract())?;
        let any_nan = !crate::capture::may_read(x.device()) || no_grad(|| nan.any(..)?.item::<bool>())?;
        // NaN is the last in order: its place gets the gradient.
        let out = if any_nan { crate::where_(&nan, &x.kthvalue(n, d, true)?.0, &between)? } else { between };
        if self.rank() == 0 {
            return out.reshape([0usize; 0]);
        }
        if keepdim { Ok(out) } else { out.squeeze(d) }
    }
}

/// The gradient of a p-norm; `dy` and `y` have the reduced dimensions at size one.
fn norm_grad(dy: &Tensor, x: &Tensor, y: &Tensor, p: f64, mask: &Mask) -> Result<Tensor> {
    let unless_zero = |t: Tensor| t.masked_fill(&y.eq(0)?, 0.0);
    if p == 1.0 {
        x.sign()?.mul(dy)
    } else if p == 2.0 {
        x.mul(&unless_zero(dy.div(y)?)?)
    } else if p.is_infinite() {
        // Equal extremes share.
        let hit = x.abs()?.eq(y)?;
        let dims: Vec<isize> = (0..mask.len()).filter(|&d| mask[d]).map(|d| d as isize).collect();
        let counts = if dims.is_empty() { hit.to_dtype(DType::I64)? } else { hit.sum_dims(&dims, true)? };
        crate::where_(&hit, &x.sign()?.mul(&dy.div(&counts)?)?, 0.0)
    } else if p < 1.0 {
        let slope = x.sign()?.mul(&x.abs()?.pow(p - 1.0)?)?.masked_fill(&x.eq(0)?, 0.0)?;
        slope.mul(&dy.mul(&y.pow(1.0 - p)?)?)
    } else {
        let slope = if p < 2.0 { x.sign()?.mul(&x.abs()?.pow(p - 1.0)?)? } else { x.mul(&x.abs()?.pow(p - 2.0)?)? };
        slope.mul(&unless_zero(dy.div(&y.pow(p - 1.0)?)?)?)
    }
}
