//! Lengths, angles and distances.

use crate::Tensor;
use crate::autograd::{Saved, record, recording};
use rushlight_core::backend::Reduce;
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{Dims, Error, Result};

/// The `p`-norm along `dim`, which stays at size one. Where the norm is zero so is its gradient.
pub(crate) fn vector_norm(x: &Tensor, p: f64, dim: isize) -> Result<Tensor> {
    let name = "vector_norm";
    x.needs_float(name)?;
    let dim = x.dim(dim)?;
    if x.rank() == 0 {
        return x.abs();
    }
    if x.shape()[dim] == 0 && (p < 0.0 || p == f64::INFINITY) {
        return Err(Error::shape(format!(
            "{name}: cannot compute the {p}-norm over an empty dimension of shape {:?}",
            x.shape()
        )));
    }
    let mask: SmallVec<[bool; 6]> = (0..x.rank()).map(|d| d == dim).collect();
    let out = x.reduce_keep(Reduce::Norm { p }, &mask, x.dtype())?;
    if recording(&[x]) {
        let (saved, length) = (Saved::input(x), Saved::output(&out, 0));
        record(name, &[x], &out, move |ctx, dy| {
            Ok(smallvec![Some(norm_gradient(&ctx.get(&saved)?, &ctx.get(&length)?, dy, p, dim as isize)?)])
        })?;
    }
    Ok(out)
}

/// The gradient of a `p`-norm, of recorded ops.
fn norm_gradient(x: &Tensor, length: &Tensor, dy: &Tensor, p: f64, dim: isize) -> Result<Tensor> {
    let sign = x.sign()?;
    if p == 0.0 {
        return dy.expand(x.shape())?.mul(0.0);
    }
    if p == 1.0 {
        return dy.mul(&sign);
    }
    if p.is_infinite() {
        // Shared evenly among the elements that reach the extreme.
        let reached = x.abs()?.eq(length)?.to_dtype(x.dtype())?;
        let count = reached.sum_dims(&[dim], true)?;
        return dy.div(&count)?.mul(&sign)?.mul(&reached);
    }
    // Zeros are replaced before they divide, so that derivatives of this stay finite too.
    let zero = length.eq(0.0)?;
    let safe = length.masked_fill(&zero, 1.0)?;
    let slope = if p == 2.0 {
        x.div(&safe)?
    } else {
        let still = x.eq(0.0)?;
        let ratio = x.abs()?.masked_fill(&still, 1.0)?.div(&safe)?;
        ratio.pow(p - 1.0)?.mul(&sign)?
    };
    dy.mul(&slope)?.masked_fill(&zero, 0.0)
}

impl Tensor {
    /// The cosine of the angle between the vectors along `dim`; lengths below `eps` count as `eps`. PyTorch's defaults are 1 and 1e-8.
    pub fn cosine_similarity(&self, other: &Tensor, dim: isize, eps: f64) -> Result<Tensor> {
        let name = "cosine_similarity";
        let dtype = self.dtype().promote(other.dtype());
        if !dtype.is_float() {
            return Err(Error::dtype(format!(
                "{name}: expected floating point tensors, got {} and {}",
                self.dtype(),
                other.dtype()
            )));
        }
        let shape = broadcast_shapes(self.shape(), other.shape()).map_err(|e| e.within(name))?;
        let (a, b) = (self.to_dtype(dtype)?.expand(&shape)?, other.to_dtype(dtype)?.expand(&shape)?);
        let unit = |t: &Tensor| t.div(&vector_norm(t, 2.0, dim)?.clamp_min(eps)?);
        unit(&a)?.mul(&unit(&b)?)?.sum_dims(&[a.dim(dim)? as isize], false)
    }

    /// The `p`-norm of `self - other + eps` over the last dimension. PyTorch's defaults are 2 and 1e-6.
    pub fn pairwise_distance(&self, other: &Tensor, p: f64, eps: f64, keepdim: bool) -> Result<Tensor> {
        let difference = self.sub(other)?.add(eps)?;
        let out = vector_norm(&difference, p, -1).map_err(|e| e.within("pairwise_distance"))?;
        if keepdim { Ok(out) } else { out.squeeze_dims(&[-1]) }
    }

    /// The `p`-norm distance of each row of `self` (`[.., rows, size]`) to each row of `other`; batch sizes broadcast.
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        let name = "cdist";
        for (what, t) in [("X1", self), ("X2", other)] {
            t.needs_float(name)?;
            if t.rank() < 2 {
                return Err(Error::shape(format!(
                    "{name}: {what} must have at least two dimensions, got shape {:?}",
                    t.shape()
                )));
            }
        }
        if p < 0.0 || p.is_nan() {
            return Err(Error::value(format!("{name}: only supports non-negative p values, got {p}")));
        }
        let (a, b) = (self.rank(), other.rank());
        if self.shape()[a - 1] != other.shape()[b - 1] {
            return Err(Error::shape(format!(
                "{name}: X1 and X2 must have the same number of columns. X1: {} X2: {}",
                self.shape()[a - 1],
                other.shape()[b - 1]
            )));
        }
        let differences = self.unsqueeze(-2)?.sub(&other.unsqueeze(-3)?).map_err(|e| e.within(name))?;
        if differences.numel() == 0 {
            let shape = Dims::from_slice(&differences.shape()[..differences.rank() - 1]);
            return differences.sum_dims(&[-1], false)?.reshape(&shape);
        }
        vector_norm(&differences, p, -1)?.squeeze_dims(&[-1])
    }
}
