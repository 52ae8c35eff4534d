//! Lengths, angles and distances.

use crate::autograd::{Saved, no_grad, record, recording};
use crate::{Tensor, amp};
use rushlight_core::backend::call;
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Result};

/// More rows than this on either side, and Euclidean distances follow from a product, as in PyTorch.
const FEW_ROWS: usize = 25;

impl Tensor {
    /// The cosine of the angle between the vectors along `dim`; lengths below `eps` count as `eps`. PyTorch's defaults
    /// are 1 and 1e-8.
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
            let length = t.norm_dims(2.0, [dim], true)?.copy()?;
            no_grad(|| length.clamp_(eps, f64::INFINITY).map(|_| ()))?;
            t.div(&length)
        };
        unit(&a)?.mul(&unit(&b)?)?.sum([a.wrap_dim("cosine_similarity", dim)? as isize])
    }

    /// The `p`-norm of `self - other + eps` over the last dimension. PyTorch's defaults are 2 and 1e-6.
    pub fn pairwise_distance(&self, other: &Tensor, p: f64, eps: f64, keepdim: bool) -> Result<Tensor> {
        let difference = self.sub(other)?.add(eps)?;
        difference.norm_dims(p, [-1], keepdim).map_err(|e| e.within("pairwise_distance"))
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
        let batch = broadcast_shapes(&self.shape()[..a - 2], &other.shape()[..b - 2]).map_err(|e| e.within(name))?;
        let (n, m, size) = (self.shape()[a - 2], other.shape()[b - 2], self.shape()[a - 1]);
        let plain = self.dtype() == other.dtype() && matches!(self.dtype(), DType::F32 | DType::F64);
        let empty = batch.contains(&0) || n == 0 || m == 0 || size == 0;
        if plain && !empty && p == 2.0 && (n > FEW_ROWS || m > FEW_ROWS) {
            return self.euclidean(other, &batch);
        }
        if plain && !empty && !recording(&[self, other]) {
            let (x, y) = (self.as_batch(&batch)?, other.as_batch(&batch)?);
            let mut shape: Dims = smallvec![x.shape()[0], n, m];
            let out = self.uninit_like(&shape, self.dtype())?;
            out.run(call::Distances { p, a: x.engine_view(), b: y.engine_view(), out: out.engine_view() })?;
            let wrong = p == f64::INFINITY && self.device().is_cpu() && out.isnan()?.any(..)?.item::<bool>()?;
            if !wrong {
                shape = batch;
                shape.extend_from_slice(&[n, m]);
                return self.counted_by(other, p, out.reshape(&shape)?);
            }
        }
        let differences = self.unsqueeze(-2)?.sub(&other.unsqueeze(-3)?).map_err(|e| e.within(name))?;
        // PyTorch's largest difference leaves NaN out.
        let differences = match p {
            f64::INFINITY => differences.masked_fill(&differences.detach().isnan()?, 0.0)?,
            _ => differences,
        };
        self.counted_by(other, p, differences.norm_dims(p, [-1], false)?)
    }

    /// Distances, of which those that count differences (`p` of 0) are NaN where a difference is.
    fn counted_by(&self, other: &Tensor, p: f64, distances: Tensor) -> Result<Tensor> {
        if p != 0.0 || distances.numel() == 0 {
            return Ok(distances);
        }
        let missing = no_grad(|| self.detach().cdist(&other.detach(), 1.0)?.isnan())?;
        distances.masked_fill(&missing, f64::NAN)
    }

    /// `[batch.., rows, size]` with one batch dimension, contiguous.
    fn as_batch(&self, batch: &[usize]) -> Result<Tensor> {
        let own = [self.shape()[self.rank() - 2], self.shape()[self.rank() - 1]];
        let mut shape = Dims::from_slice(batch);
        shape.extend_from_slice(&own);
        self.expand(&shape)?.reshape([batch.iter().product(), own[0], own[1]])?.contiguous()
    }

    /// Euclidean distances by `|x|² - 2 x·y + |y|²`, all of it one product.
    fn euclidean(&self, other: &Tensor, batch: &[usize]) -> Result<Tensor> {
        let out = no_grad(|| -> Result<Tensor> {
            let (x, y) = (self.as_batch(batch)?, other.as_batch(batch)?);
            let out = self.uninit_like(&[x.shape()[0], x.shape()[1], y.shape()[1]], self.dtype())?;
            out.run(call::Euclidean { a: x.engine_view(), b: y.engine_view(), out: out.engine_view() })?;
            let mut shape = Dims::from_slice(batch);
            shape.extend_from_slice(&out.shape()[1..]);
            out.reshape(&shape)
        })?;
        if recording(&[self, other]) {
            let (x, y, distances) = (Saved::input(self), Saved::input(other), Saved::output(&out, 0));
            record("cdist", &[self, other], &out, move |ctx, dy| {
                let (x, y, distances) = (ctx.get(&x)?, ctx.get(&y)?, ctx.get(&distances)?);
                // Where two points meet there is no direction: no gradient.
                let ratio = dy.div(&distances)?.masked_fill(&distances.eq(0)?, 0.0)?;
                let pull = |from: &Tensor, to: &Tensor, ratio: &Tensor| {
                    let sums = ratio.sum_dims([-1], true)?;
                    from.mul(&sums)?.sub(&ratio.matmul(to)?)?.sum_to_size(from.shape())
                };
                Ok(smallvec![
                    if ctx.needs(0) { Some(pull(&x, &y, &ratio)?) } else { None },
                    if ctx.needs(1) { Some(pull(&y, &x, &ratio.transpose(-2, -1)?)?) } else { None },
                ])
            })?;
        }
        Ok(out)
    }
}
