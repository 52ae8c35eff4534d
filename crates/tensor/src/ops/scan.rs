//! Running reductions along a dimension, and differences.

use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{Saved, record, recording};
use crate::ops::complex::conjugate_product;
use rushlight_core::backend::{Scan, call};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Result};

/// The lowest finite number of a float dtype.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN,
        DType::F16 => -65504.0,
        DType::BF16 => rushlight_core::half::bf16::MIN.to_f64(),
        _ => f64::from(f32::MIN),
    }
}

/// A running op from the far end.
fn reversed(x: &Tensor, dim: isize, scan: impl Fn(&Tensor, isize) -> Result<Tensor>) -> Result<Tensor> {
    scan(&x.flip([dim])?, dim)?.flip([dim])
}

impl Tensor {
    /// A scan, not recorded. `self` has dimensions.
    fn scan(&self, op: Scan, dim: usize) -> Result<Tensor> {
        if op == Scan::Prod && self.is_complex() {
            return crate::autograd::no_grad(|| running(&self.detach(), dim as isize, |a, b| a.mul(b)));
        }
        let out = self.uninit_like(self.shape(), self.dtype())?;
        if out.numel() > 0 {
            self.run(call::Scan { op, x: self.engine_view(), dim, out: out.engine_view(), indices: None })?;
        }
        Ok(out)
    }

    /// Integers and bool run as `int64`.
    fn scan_input(&self) -> Result<Tensor> {
        if self.dtype().is_differentiable() { self.at_least_1d() } else { self.to_dtype(DType::I64)?.at_least_1d() }
    }

    /// Running sum along `dim`. Integers and bool add up as `int64`.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 2.0, 3.0])?.cumsum(0)?.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn cumsum(&self, dim: isize) -> Result<Tensor> {
        let dim = self.wrap_dim("cumsum", dim)?;
        announced!("torch.cumsum", [self, dim]; self.cumsum(dim as isize));
        let x = self.scan_input()?;
        let out = x.scan(Scan::Sum, dim)?;
        if x.dtype().is_differentiable() && recording(&[&x]) {
            record("cumsum", &[&x], &out, move |_, dy| {
                Ok(smallvec![Some(reversed(dy, dim as isize, |t, d| t.cumsum(d))?)])
            })?;
        }
        out.reshape(self.shape())
    }

    /// [`Tensor::cumsum`] of the elements converted to a dtype first, which the result has too.
    pub fn cumsum_as(&self, dim: isize, dtype: DType) -> Result<Tensor> {
        self.to_dtype(dtype)?.cumsum(dim)?.to_dtype(dtype)
    }

    /// Running product along `dim`. Integers and bool multiply as `int64`.
    pub fn cumprod(&self, dim: isize) -> Result<Tensor> {
        let dim = self.wrap_dim("cumprod", dim)?;
        announced!("torch.cumprod", [self, dim]; self.cumprod(dim as isize));
        let x = self.scan_input()?;
        let out = x.scan(Scan::Prod, dim)?;
        if x.dtype().is_differentiable() && recording(&[&x]) {
            let (saved, y) = (Saved::input(&x), Saved::output(&out, 0));
            record("cumprod", &[&x], &out, move |ctx, dy| {
                let (x, d) = (ctx.get(&saved)?, dim as isize);
                let is_zero = x.eq(0)?;
                // A step that is recorded takes the way that suits zeros too.
                let grad = if crate::capture::may_read(x.device()) && !is_zero.any(..)?.item::<bool>()? {
                    reversed(&conjugate_product(dy, &ctx.get(&y)?)?, d, |t, d| t.cumsum(d))?.div(&x.conj()?)?
                } else if ctx.recording() {
                    cumprod_grad_by_parts(dy, &x.conj()?, d)?
                } else {
                    cumprod_grad_with_zeros(dy, &x.conj()?, &ctx.get(&y)?.conj()?, &is_zero, d)?
                };
                Ok(smallvec![Some(grad)])
            })?;
        }
        out.reshape(self.shape())
    }

    /// [`Tensor::cumprod`] of the elements converted to a dtype first, which the result has too.
    pub fn cumprod_as(&self, dim: isize, dtype: DType) -> Result<Tensor> {
        self.to_dtype(dtype)?.cumprod(dim)?.to_dtype(dtype)
    }

    /// Running `log(sum(exp(x)))` along `dim`.
    pub fn logcumsumexp(&self, dim: isize) -> Result<Tensor> {
        let dim = self.wrap_dim("logcumsumexp", dim)?;
        self.needs_float("logcumsumexp")?;
        if self.is_complex() {
            let x = self.at_least_1d()?;
            return running(&x, dim as isize, |a, b| a.logaddexp(b))?.reshape(self.shape());
        }
        let x = self.at_least_1d()?;
        let out = x.scan(Scan::LogSumExp, dim)?;
        if recording(&[&x]) {
            let (x_saved, y) = (Saved::input(&x), Saved::output(&out, 0));
            record("logcumsumexp", &[&x], &out, move |ctx, dy| {
                let (x, y) = (ctx.get(&x_saved)?, ctx.get(&y)?);
                // dx = exp(x) * reversed running sum of dy * exp(-y), in logarithms: one for each sign of dy.
                let side = |dy: &Tensor| {
                    let positive = dy.gt(0)?;
                    let log = crate::where_(&positive, dy, 1.0)?.log()?;
                    let log = crate::where_(&positive, &log, lowest(dy.dtype()))?;
                    reversed(&log.sub(&y)?, dim as isize, |t, d| t.logcumsumexp(d))?.add(&x)?.exp()
                };
                Ok(smallvec![Some(side(dy)?.sub(&side(&dy.neg()?)?)?)])
            })?;
        }
        out.reshape(self.shape())
    }

    fn running_extreme(&self, name: &'static str, op: Scan, dim: isize) -> Result<(Tensor, Tensor)> {
        let dim = self.wrap_dim(name, dim)?;
        let x = self.at_least_1d()?;
        let (out, indices) = (x.uninit_like(x.shape(), x.dtype())?, x.uninit_like(x.shape(), DType::I64)?);
        if out.numel() > 0 {
            x.run(call::Scan {
                op,
                x: x.engine_view(),
                dim,
                out: out.engine_view(),
                indices: Some(indices.engine_view()),
            })?;
        }
        if x.dtype().is_float() && recording(&[&x]) {
            let (shape, indices) = (Dims::from_slice(x.shape()), Saved::input(&indices));
            record(name, &[&x], &out, move |ctx, dy| {
                let zeros = Tensor::zeros_with(&shape, (dy.dtype(), dy.device()))?;
                zeros.scatter_add_(dim as isize, &ctx.get(&indices)?, dy)?;
                Ok(smallvec![Some(zeros)])
            })?;
        }
        Ok((out.reshape(self.shape())?, indices.reshape(self.shape())?))
    }

    /// Running maximum along `dim` and its position (the last of equal ones).
    pub fn cummax(&self, dim: isize) -> Result<(Tensor, Tensor)> {
        self.running_extreme("cummax", Scan::Max, dim)
    }

    /// Running minimum along `dim` and its position (the last of equal ones).
    pub fn cummin(&self, dim: isize) -> Result<(Tensor, Tensor)> {
        self.running_extreme("cummin", Scan::Min, dim)
    }

    /// Differences of neighbours along `dim`, taken `n` times, with tensors joined on at either end before. Bools
    /// differ or not.
    pub fn diff(&self, n: usize, dim: isize, prepend: Option<&Tensor>, append: Option<&Tensor>) -> Result<Tensor> {
        if self.rank() == 0 {
            return Err(Error::shape("diff: expects input to be at least one-dimensional"));
        }
        let dim = self.wrap_dim("diff", dim)?;
        let mut x = self.clone();
        if n == 0 {
            return self.copy();
        }
        if prepend.is_some() || append.is_some() {
            let parts: Vec<&Tensor> = prepend.into_iter().chain([self]).chain(append).collect();
            x = crate::cat(&parts, dim as isize).map_err(|e| e.within("diff"))?;
        }
        for _ in 0..n.min(x.shape()[dim]) {
            let length = x.shape()[dim] - 1;
            let (low, high) = (x.narrow(dim as isize, 0, length)?, x.narrow(dim as isize, 1, length)?);
            x = if x.dtype() == DType::Bool { high.logical_xor(&low)? } else { high.sub(&low)? };
        }
        Ok(x)
    }
}

/// A running op, each step over twice the distance of the one before.
fn running(x: &Tensor, dim: isize, combine: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let n = x.size(dim)?;
    let (mut out, mut reach) = (x.copy()?, 1);
    while reach < n {
        let start = out.narrow(dim, 0, reach)?;
        let later = combine(&out.narrow(dim, reach as isize, n - reach)?, &out.narrow(dim, 0, n - reach)?)?;
        out = crate::cat(&[&start, &later], dim)?;
        reach *= 2;
    }
    Ok(out)
}

/// A running product's gradient where some elements are zero: before a row's first zero as usual, at it by the products
/// without it, after it nothing.
fn cumprod_grad_with_zeros(dy: &Tensor, x: &Tensor, y: &Tensor, is_zero: &Tensor, dim: isize) -> Result<Tensor> {
    let running_sum = |t: &Tensor| reversed(t, dim, |t, d| t.cumsum(d));
    let zeros_so_far = is_zero.cumsum(dim)?;
    let first = is_zero.logical_and(&zeros_so_far.eq(1)?)?;
    let before = running_sum(&dy.mul(y)?)?.div(&x.masked_fill(is_zero, 1.0)?)?;
    let at = running_sum(&dy.mul(&x.masked_fill(&first, 1.0)?.cumprod(dim)?)?)?;
    crate::where_(&first, &at, &before)?.masked_fill(&zeros_so_far.gt(0)?.logical_xor(&first)?, 0.0)
}

/// The same element by element, made of products that can be differentiated again whatever is zero.
fn cumprod_grad_by_parts(dy: &Tensor, x: &Tensor, dim: isize) -> Result<Tensor> {
    let n = x.size(dim)?;
    let mut parts = Vec::with_capacity(n);
    for k in 0..n {
        let rest = n - k - 1;
        let before = x.narrow(dim, 0, k)?.prod_dims([dim], true)?;
        // The products up to each later element, without element k.
        let later = crate::cat(&[&before, &x.narrow(dim, k as isize + 1, rest)?], dim)?.cumprod(dim)?;
        parts.push(dy.narrow(dim, k as isize, rest + 1)?.mul(&later)?.sum_dims([dim], true)?);
    }
    crate::cat(&parts.iter().collect::<Vec<_>>(), dim)
}
