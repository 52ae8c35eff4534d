//! Order: sorting, the largest, running sums.

use crate::Tensor;
use rushlight_core::backend::Scan;
use rushlight_core::{DType, Result};

impl Tensor {
    /// Indices that sort along `dim`, stably.
    pub fn argsort(&self, dim: isize, descending: bool) -> Result<Tensor> {
        let dim = self.dim(dim)?;
        let (values, indices) = (self.uninit_like(self.shape(), self.dtype())?, self.uninit_like(self.shape(), DType::I64)?);
        self.backend().sort(self.view(), dim, descending, values.view(), indices.view())?;
        Ok(indices)
    }

    /// The `k` largest or smallest along `dim`.
    pub fn topk(&self, k: usize, dim: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        let dim = self.dim(dim)?;
        let mut shape = self.shape().to_vec();
        shape[dim] = k;
        let (values, indices) = (self.uninit_like(&shape, self.dtype())?, self.uninit_like(&shape, DType::I64)?);
        self.backend().topk(self.view(), dim, largest, values.view(), indices.view())?;
        Ok((values, indices))
    }

    /// Running sum along `dim`.
    pub fn cumsum(&self, dim: isize) -> Result<Tensor> {
        let out = self.uninit_like(self.shape(), self.dtype())?;
        self.backend().scan(Scan::Sum, self.view(), self.dim(dim)?, out.view(), None)?;
        Ok(out)
    }

    /// Where values would go in sorted rows.
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        let out = values.uninit_like(values.shape(), DType::I64)?;
        self.backend().searchsorted(self.view(), values.view(), right, out.view())?;
        Ok(out)
    }
}
