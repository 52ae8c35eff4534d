//! Lengths, angles and distances.

use crate::autograd::no_grad;
use crate::{Tensor, amp};
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::{Error, Result};

impl Tensor {
    /// The cosine of the angle between the vectors along `dim`; lengths below `eps` count as `eps`. PyTorch's defaults are 1 and 1e-8.
    pub fn cosine_similarity(&self, other: &Tensor, dim: isize, eps: f64) -> Result<Tensor> {
        let name = "cosine_similarity";
        let dtype = self.dtype().promote(other.dtype());
        if !dtype.is_float() {
            return Err(Error::dtype(format!(
                "{name}: not implemented for {} and {}; it takes floating point tensors",
                self.dtype(),
                other.dtype()
            )));
        }
        let shape = broadcast_shapes(self.shape(), other.shape()).map_err(|e| e.within(name))?;
        let (a, b) = (self.to_dtype(dtype)?.expand(&shape)?, other.to_dtype(dtype)?.expand(&shape)?);
        // As in PyTorch, a length that counts as `eps` keeps its gradient.
        let unit = |t: &Tensor| {
            let length = t.norm_dims(2.0, &[dim], true)?.copy()?;
            no_grad(|| length.clamp_(eps, f64::INFINITY).map(|_| ()))?;
            t.div(&length)
        };
        unit(&a)?.mul(&unit(&b)?)?.sum_dims(&[a.dim(dim)? as isize], false)
    }

    /// The `p`-norm of `self - other + eps` over the last dimension. PyTorch's defaults are 2 and 1e-6.
    pub fn pairwise_distance(&self, other: &Tensor, p: f64, eps: f64, keepdim: bool) -> Result<Tensor> {
        let difference = self.sub(other)?.add(eps)?;
        difference.norm_dims(p, &[-1], keepdim).map_err(|e| e.within("pairwise_distance"))
    }

    /// The `p`-norm distance of each row of `self` (`[.., rows, size]`) to each row of `other`; batch sizes broadcast.
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.cdist(&cast.of(other)?, p));
        }
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
        differences.norm_dims(p, &[-1], false)
    }
}
