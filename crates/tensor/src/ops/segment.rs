//! Reductions of consecutive segments of a dimension.

use crate::autograd::{Saved, record, recording};
use crate::{PadMode, ScatterReduce, Tensor, where_};
use rushlight_core::layout::wrap_dim;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Result, Scalar};

/// Where the elements of a dimension go: a slot before the segments and one after them take what no segment covers.
#[derive(Clone)]
struct Segments {
    dim: isize,
    count: usize,
    /// The slot of each element, in the shape of the data.
    slots: Tensor,
}

impl Segments {
    fn new(data: &Tensor, offsets: &Tensor, dim: usize) -> Result<Segments> {
        let shape = data.shape();
        let Some(count) = offsets.shape().last().and_then(|&n| n.checked_sub(1)) else {
            return Err(Error::shape(
                "segment_reduce: offsets must have at least one element along their last dimension",
            ));
        };
        if offsets.rank() != dim + 1 {
            return Err(Error::shape(format!(
                "segment_reduce: Expected axis to be the last dimension of lengths but got {dim}."
            )));
        }
        if offsets.shape()[..dim] != shape[..dim] {
            return Err(Error::shape(format!(
                "segment_reduce: offsets of shape {:?} do not have the leading sizes of data of shape {shape:?}",
                offsets.shape()
            )));
        }
        let places = Tensor::arange_with(0, shape[dim] as i64, 1, (DType::I64, data.device()))?;
        let offsets = offsets.to(data.device())?.to_dtype(DType::I64)?.contiguous()?;
        let slots = offsets.searchsorted(&places.expand(&shape[..=dim])?.contiguous()?, true)?;
        let mut lifted: Dims = shape[..=dim].into();
        lifted.resize(shape.len(), 1);
        Ok(Segments { dim: dim as isize, count, slots: slots.reshape(&lifted[..])?.expand(shape)?.contiguous()? })
    }

    /// A tensor of the slots' shape, filled with a number.
    fn filled(&self, like: &Tensor, value: Scalar) -> Result<Tensor> {
        let mut shape: Dims = self.slots.shape().into();
        shape[self.dim as usize] = self.count + 2;
        Tensor::full_with(&shape[..], value, (like.dtype(), like.device()))
    }

    /// Reduces elements into slots that start as `initial`.
    fn reduce(&self, data: &Tensor, reduce: ScatterReduce, initial: Scalar) -> Result<Tensor> {
        self.filled(data, initial)?.scatter_reduce(self.dim, &self.slots, data, reduce, true)
    }

    /// How many elements each slot has.
    fn lengths(&self, like: &Tensor) -> Result<Tensor> {
        self.reduce(&like.detach().ones_like()?, ScatterReduce::Sum, 0.into())
    }

    /// The slots of the segments alone.
    fn inner(&self, slots: &Tensor) -> Result<Tensor> {
        slots.narrow(self.dim, 1, self.count)
    }

    /// Values of segments with zeros in the outer slots.
    fn outer(&self, segments: &Tensor) -> Result<Tensor> {
        let mut padding = vec![0; 2 * (segments.rank() - self.dim as usize)];
        let end = padding.len();
        padding[end - 2..].fill(1);
        segments.pad(&padding, PadMode::Constant(0.into()))
    }

    /// The gradient of the data.
    fn gradient(&self, reduce: ScatterReduce, initial: Scalar, dy: &Tensor, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let dy = self.outer(dy)?;
        let at = |slots: &Tensor| slots.gather(self.dim, &self.slots);
        match reduce {
            ScatterReduce::Sum => at(&dy),
            ScatterReduce::Mean => at(&dy.div(&self.lengths(x)?.clamp_min(1)?)?),
            ScatterReduce::Amax | ScatterReduce::Amin => {
                // Equal winners share; NaN wins over all else.
                let y = at(&self.outer(y)?)?;
                let wins = x.eq(&y)?.logical_or(&x.isnan()?.logical_and(&y.isnan()?)?)?.to_dtype(x.dtype())?;
                let winners = self.reduce(&wins, ScatterReduce::Sum, 0.into())?.clamp_min(1)?;
                wins.mul(&at(&dy.div(&winners)?)?)
            }
            ScatterReduce::Prod => {
                // The product of all the others: a single zero or NaN is replaced by one, which a quotient would lose.
                let odd = x.eq(0)?.logical_or(&x.isnan()?)?;
                let odds = at(&self.reduce(&odd.to_dtype(x.dtype())?, ScatterReduce::Sum, 0.into())?)?;
                let alone = odd.logical_and(&odds.eq(1)?)?;
                let others = at(&self.reduce(&x.masked_fill(&alone, 1)?, ScatterReduce::Prod, initial)?)?;
                let usual = at(&self.reduce(x, ScatterReduce::Prod, initial)?)?.div(&x.masked_fill(&x.eq(0)?, 1)?)?;
                at(&dy)?.mul(&where_(&alone, &others, &usual)?)
            }
        }
    }
}

impl Tensor {
    /// Reduces the segments `offsets[i]..offsets[i + 1]` of dimension `dim`. The offsets have the data's shape up to
    /// `dim`, with one more entry than there are segments. Without an `initial` value an empty segment gives the
    /// reduction's neutral element, NaN for a mean.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{ScatterReduce, Tensor};
    /// let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0])?;
    /// let offsets = Tensor::new([0i64, 1, 4])?;
    /// assert_eq!(x.segment_reduce(ScatterReduce::Sum, &offsets, 0, None)?.to_vec::<f32>()?, [1.0, 9.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn segment_reduce(
        &self,
        reduce: ScatterReduce,
        offsets: &Tensor,
        dim: isize,
        initial: Option<Scalar>,
    ) -> Result<Tensor> {
        let name = "segment_reduce";
        if !self.dtype().is_differentiable() || self.dtype().is_complex() {
            return Err(Error::unsupported(format!("\"{name}\" not implemented for '{}'", self.dtype())));
        }
        let dim = wrap_dim(dim, self.rank()).map_err(|e| e.within(name))?;
        let segments = Segments::new(self, offsets, dim)?;
        let start = initial.unwrap_or(match reduce {
            ScatterReduce::Sum | ScatterReduce::Mean => Scalar::Float(0.0),
            ScatterReduce::Prod => Scalar::Float(1.0),
            ScatterReduce::Amax => Scalar::Float(f64::NEG_INFINITY),
            ScatterReduce::Amin => Scalar::Float(f64::INFINITY),
        });
        let data = self.detach();
        let out = match reduce {
            ScatterReduce::Mean => {
                let lengths = segments.inner(&segments.lengths(&data)?)?;
                let sums = segments.inner(&segments.reduce(&data, ScatterReduce::Sum, start)?)?;
                let empty = initial.unwrap_or(Scalar::Float(f64::NAN));
                sums.div(&lengths.clamp_min(1)?)?.masked_fill(&lengths.eq(0)?, empty)?
            }
            _ => segments.inner(&segments.reduce(&data, reduce, start)?)?.contiguous()?,
        };
        if recording(&[self]) {
            let x = Saved::input(self);
            let y = Saved::output(&out, 0);
            record(name, &[self], &out, move |ctx, dy| {
                Ok(smallvec![Some(segments.gradient(reduce, start, dy, &ctx.get(&x)?, &ctx.get(&y)?)?)])
            })?;
        }
        Ok(out)
    }
}
