//! Reductions over any dimensions.

use crate::Tensor;
use crate::autograd::{record, recording};
use rushlight_core::backend::Reduce;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Result};

type Mask = SmallVec<[bool; 6]>;

impl Tensor {
    /// Which dimensions to reduce; none named means all.
    fn reduced(&self, dims: &[isize]) -> Result<Mask> {
        let mut mask: Mask = smallvec![dims.is_empty(); self.rank()];
        for d in self.dims(dims)? {
            if let Some(m) = mask.get_mut(d) {
                *m = true;
            }
        }
        Ok(mask)
    }

    /// A reduction with the reduced dimensions kept at size one, not recorded.
    pub(crate) fn reduce_keep(&self, op: Reduce, mask: &[bool], dtype: DType) -> Result<Tensor> {
        let shape: Dims = self.shape().iter().zip(mask).map(|(&d, &r)| if r { 1 } else { d }).collect();
        let out = self.uninit_like(&shape, dtype)?;
        if out.numel() > 0 {
            out.backend().reduce(op, self.view(), mask, out.view())?;
        }
        Ok(out)
    }

    /// The shape with the reduced dimensions removed.
    pub(crate) fn without(&self, mask: &[bool]) -> Dims {
        self.shape().iter().zip(mask).filter(|(_, r)| !**r).map(|(&d, _)| d).collect()
    }

    /// A kept reduction under its final shape.
    pub(crate) fn finish(&self, kept: Tensor, mask: &[bool], keepdim: bool) -> Tensor {
        if keepdim || !mask.contains(&true) {
            return kept;
        }
        let mut layout = kept.layout().clone();
        for d in (0..mask.len()).rev().filter(|&d| mask[d]) {
            layout = layout.squeeze(d);
        }
        Tensor::from_parts(kept.0.storage.clone(), layout, kept.dtype(), Default::default())
    }

    /// Sum of all elements. Integers and bool add up as `int64`.
    pub fn sum(&self) -> Result<Tensor> {
        self.sum_dims(&[], false)
    }

    /// Sum over the named dimensions (none named: all); with `keepdim` they stay at size one.
    pub fn sum_dims(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let mask = self.reduced(dims)?;
        let dtype = if self.dtype().is_float() { self.dtype() } else { DType::I64 };
        let out = self.finish(self.reduce_keep(Reduce::Sum, &mask, dtype)?, &mask, keepdim);
        if dtype.is_float() && recording(&[self]) {
            let shape = Dims::from_slice(self.shape());
            let kept: Dims = shape.iter().zip(&mask).map(|(&d, &r)| if r { 1 } else { d }).collect();
            record("sum", &[self], &out, move |_, dy| Ok(smallvec![Some(dy.reshape(&kept)?.expand(&shape)?)]))?;
        }
        Ok(out)
    }

    /// Whether any element is not zero.
    pub fn any(&self) -> Result<Tensor> {
        let mask = self.reduced(&[])?;
        Ok(self.finish(self.reduce_keep(Reduce::Any, &mask, DType::Bool)?, &mask, false))
    }

    /// Whether no element is zero.
    pub fn all(&self) -> Result<Tensor> {
        let mask = self.reduced(&[])?;
        Ok(self.finish(self.reduce_keep(Reduce::All, &mask, DType::Bool)?, &mask, false))
    }

    /// Summed down to a shape that broadcasts to this one: the reverse of `expand`.
    pub fn sum_to_size(&self, shape: &[usize]) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let lead = self.rank().checked_sub(shape.len());
        let fits = lead.is_some_and(|lead| shape.iter().zip(&self.shape()[lead..]).all(|(&want, &have)| want == have || want == 1));
        let Some(lead) = lead.filter(|_| fits) else {
            return Err(rushlight_core::Error::shape(format!(
                "sum_to_size: size {shape:?} is not expandable to size {:?}",
                self.shape()
            )));
        };
        let dims: Vec<isize> = (0..self.rank())
            .filter(|&d| d < lead || shape[d - lead] == 1 && self.shape()[d] != 1)
            .map(|d| d as isize)
            .collect();
        if dims.is_empty() {
            return self.reshape(shape);
        }
        self.sum_dims(&dims, true)?.reshape(shape)
    }
}
