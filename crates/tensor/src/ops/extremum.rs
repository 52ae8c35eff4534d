//! Maxima, minima and their indices.

use super::reduce::Mask;
use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{Saved, record, recording};
use crate::ops::sizes::{Along, AsDims};
use rushlight_core::backend::{ArgReduce, Reduce, call};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Result};

impl Tensor {
    /// The extreme of each group; equal extremes share the gradient.
    fn extreme(&self, name: &'static str, op: Reduce, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let mask = self.reduced(name, dims)?;
        if self.reduced_count(&mask) == 0 {
            let message = format!(
                "{name}: expected the reduced dimensions to have non-zero size, but the input has shape {:?}",
                self.shape()
            );
            return Err(if dims.is_empty() { Error::value(message) } else { Error::index(message) });
        }
        let program = if op == Reduce::Max { "torch.amax" } else { "torch.amin" };
        announced!(program, [self, dims, keepdim]; self.extreme(name, op, dims, keepdim));
        let out = self.reduce(op, &mask, keepdim, self.dtype())?;
        // As in PyTorch, NaN equals NaN for the gradients of `max` and `min` only.
        self.record_shared(name, &out, &mask, matches!(name, "max" | "min"))?;
        Ok(out)
    }

    /// Records `out` as elements of `self` reduced over `mask`: those equal to their group's result share its gradient
    /// evenly. Those that are NaN share the gradient of NaN if `nan_equals_nan`; else all gradients of its group are
    /// NaN.
    pub(crate) fn record_shared(
        &self,
        name: &'static str,
        out: &Tensor,
        mask: &Mask,
        nan_equals_nan: bool,
    ) -> Result<()> {
        if !self.dtype().is_float() || !recording(&[self]) {
            return Ok(());
        }
        let (kept, x, y) = (self.kept_shape(mask), Saved::input(self), Saved::output(out, 0));
        let dims: Vec<isize> = (0..mask.len()).filter(|&d| mask[d]).map(|d| d as isize).collect();
        record(name, &[self], out, move |ctx, dy| {
            let (x, y) = (ctx.get(&x)?, ctx.get(&y)?.reshape(&kept)?);
            let equal = x.eq(&y)?;
            let hit = if nan_equals_nan { equal.logical_or(&x.isnan()?.logical_and(&y.isnan()?)?)? } else { equal };
            let counts = if dims.is_empty() { hit.to_dtype(DType::I64)? } else { hit.sum_dims(&dims, true)? };
            let share = dy.reshape(&kept)?.div(&counts)?;
            Ok(smallvec![Some(match nan_equals_nan {
                true => crate::where_(&hit, &share, 0.0)?,
                // Zero times infinity is NaN.
                false => share.mul(&hit.to_dtype(share.dtype())?)?,
            })])
        })
    }

    /// Records `values` as the elements of `self` that `indices` name along `dim`, each at most once in a row.
    pub(crate) fn record_picked(
        &self,
        name: &'static str,
        values: &Tensor,
        indices: &Tensor,
        dim: usize,
        keepdim: bool,
    ) -> Result<()> {
        if !self.dtype().is_float() || !recording(&[self]) {
            return Ok(());
        }
        let (shape, indices) = (Dims::from_slice(self.shape()), Saved::input(indices));
        record(name, &[self], values, move |ctx, dy| {
            let d = dim as isize;
            let (mut indices, mut dy) = (ctx.get(&indices)?, dy.clone());
            if !keepdim {
                (indices, dy) = (indices.unsqueeze(d)?, dy.unsqueeze(d)?);
            }
            let zeros = Tensor::zeros_with(&shape, (dy.dtype(), dy.device()))?;
            zeros.scatter_(d, &indices, &dy)?;
            Ok(smallvec![Some(zeros)])
        })
    }

    /// Extreme along one dimension and its index, kept at size one and not recorded. `self` has dimensions.
    fn arg_extreme(&self, name: &str, op: ArgReduce, dim: usize) -> Result<(Tensor, Tensor)> {
        if self.shape()[dim] == 0 {
            return Err(Error::index(format!("{name}: expected reduction dim {dim} to have non-zero size")));
        }
        let mut shape = Dims::from_slice(self.shape());
        shape[dim] = 1;
        let (values, indices) = (self.uninit_like(&shape, self.dtype())?, self.uninit_like(&shape, DType::I64)?);
        if values.numel() > 0 {
            self.run(call::ArgReduce {
                op,
                x: self.engine_view(),
                dim,
                values: values.engine_view(),
                indices: indices.engine_view(),
            })?;
        }
        Ok((values, indices))
    }

    fn extreme_dim(&self, name: &'static str, op: ArgReduce, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            self.wrap_dim(name, dim)?;
            return self.reshape([1usize])?.extreme_dim(name, op, 0, false);
        }
        let dim = self.wrap_dim(name, dim)?;
        let program = if op == ArgReduce::Max { "torch.max" } else { "torch.min" };
        announced!(program, [self, dim, keepdim]; self.extreme_dim(name, op, dim as isize, keepdim));
        let (values, indices) = self.arg_extreme(name, op, dim)?;
        let mask: Mask = (0..self.rank()).map(|d| d == dim).collect();
        let (values, indices) = (self.finish(values, &mask, keepdim), self.finish(indices, &mask, keepdim));
        self.record_picked(name, &values, &indices, dim, keepdim)?;
        Ok((values, indices))
    }

    fn arg_dim(&self, name: &'static str, op: ArgReduce, dim: isize, keepdim: bool) -> Result<Tensor> {
        self.not_bool(name)?;
        crate::autograd::no_grad(|| Ok(self.extreme_dim(name, op, dim, keepdim)?.1))
    }

    fn arg_whole(&self, name: &'static str, op: ArgReduce) -> Result<Tensor> {
        self.not_bool(name)?;
        if self.numel() == 0 {
            return Err(Error::index(format!("{name}: expected reduction dim to be specified for input.numel() == 0")));
        }
        crate::autograd::no_grad(|| self.reshape([-1isize])?.arg_dim(name, op, 0, false))
    }

    fn arg_either(&self, name: &'static str, op: ArgReduce, dims: &[isize]) -> Result<Tensor> {
        match *dims {
            [] => self.arg_whole(name, op),
            [dim] => self.arg_dim(name, op, dim, false),
            _ => Err(Error::index(format!("{name}: takes one dimension, or `..` for all, but got {dims:?}"))),
        }
    }

    /// The largest along a dimension and its index (`x.max(1)?`; the first of equals gets the gradient), or the largest
    /// of all (`x.max(..)?`; equals share the gradient). NaN if any is.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::Tensor;
    /// let x = Tensor::new([[1.0, 5.0], [7.0, 2.0]])?;
    /// let (values, indices) = x.max(1)?;
    /// assert_eq!(values.to_vec::<f32>()?, [5.0, 7.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [1, 0]);
    /// assert_eq!(x.max(..)?.item::<f32>()?, 7.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn max<D: Along>(&self, dim: D) -> Result<D::Output> {
        dim.either(|| self.extreme("max", Reduce::Max, &[], false), |dim| self.max_dim(dim, false))
    }

    /// The smallest along a dimension and its index, or the smallest of all, as [`Tensor::max`].
    pub fn min<D: Along>(&self, dim: D) -> Result<D::Output> {
        dim.either(|| self.extreme("min", Reduce::Min, &[], false), |dim| self.min_dim(dim, false))
    }

    /// [`Tensor::max`] along a dimension that stays at size one with `keepdim`.
    pub fn max_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.extreme_dim("max", ArgReduce::Max, dim, keepdim)
    }

    /// [`Tensor::min`] along a dimension that stays at size one with `keepdim`.
    pub fn min_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.extreme_dim("min", ArgReduce::Min, dim, keepdim)
    }

    /// The largest over the named dimensions (`..`: all). Equal ones share the gradient.
    pub fn amax(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.extreme("amax", Reduce::Max, dims, keepdim)
    }

    /// The smallest over the named dimensions (`..`: all). Equal ones share the gradient.
    pub fn amin(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.extreme("amin", Reduce::Min, dims, keepdim)
    }

    /// The smallest and the largest element, or those along a dimension.
    pub fn aminmax(&self, dim: Option<isize>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let dims: &[isize] = dim.as_slice();
        Ok((self.extreme("aminmax", Reduce::Min, dims, keepdim)?, self.extreme("aminmax", Reduce::Max, dims, keepdim)?))
    }

    /// Index of the largest element along a dimension, or with `..` in the flattened tensor; the first of equals.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::Tensor;
    /// let x = Tensor::new([[1.0, 5.0], [7.0, 2.0]])?;
    /// assert_eq!(x.argmax(1)?.to_vec::<i64>()?, [1, 0]);
    /// assert_eq!(x.argmax(..)?.item::<i64>()?, 2);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn argmax(&self, dim: impl AsDims) -> Result<Tensor> {
        self.arg_either("argmax", ArgReduce::Max, dim.as_dims())
    }

    /// Index of the smallest element along a dimension, or with `..` in the flattened tensor; the first of equals.
    pub fn argmin(&self, dim: impl AsDims) -> Result<Tensor> {
        self.arg_either("argmin", ArgReduce::Min, dim.as_dims())
    }

    /// [`Tensor::argmax`] along a dimension that stays at size one with `keepdim`.
    pub fn argmax_dim(&self, dim: isize, keepdim: bool) -> Result<Tensor> {
        self.arg_dim("argmax", ArgReduce::Max, dim, keepdim)
    }

    /// [`Tensor::argmin`] along a dimension that stays at size one with `keepdim`.
    pub fn argmin_dim(&self, dim: isize, keepdim: bool) -> Result<Tensor> {
        self.arg_dim("argmin", ArgReduce::Min, dim, keepdim)
    }
}
