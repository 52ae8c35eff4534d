//! Sorting and the largest few.

use crate::Tensor;
use crate::announce::announced;
use rushlight_core::backend::{Rank, call};
use rushlight_core::{DType, Dims, Error, Result};

impl Tensor {
    /// The elements in order along `dim`, and the indices they came from. Stable; NaN counts as the largest.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let (values, indices) = Tensor::new([3.0f32, 1.0, 2.0])?.sort(0, false)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [1, 2, 0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn sort(&self, dim: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        let dim = self.wrap_dim("sort", dim)?;
        announced!("torch.sort", [self, dim, descending]; self.sort(dim as isize, descending));
        if self.rank() == 0 {
            return Ok((self.copy()?, Tensor::zeros_with([], (DType::I64, self.device()))?));
        }
        if self.dtype().is_carried() {
            return self.sort_carried(dim as isize, descending);
        }
        let (values, indices) = (self.uninit_preserving(self.dtype())?, self.uninit_preserving(DType::I64)?);
        if values.numel() > 0 {
            // With the dimensions in memory order the results are contiguous.
            let order = self.preserved_order();
            let [from, to, places] = [self, &values, &indices].map(|t| t.layout().permute(&order));
            let dim = order.iter().position(|&d| d == dim).unwrap_or(dim);
            self.run(call::Sort {
                x: self.view_as(&from),
                dim,
                descending,
                values: values.view_as(&to),
                indices: indices.view_as(&places),
            })?;
        }
        self.record_picked("sort", &values, &indices, dim, true)?;
        Ok((values, indices))
    }

    /// Indices that sort along `dim`, stably.
    pub fn argsort(&self, dim: isize, descending: bool) -> Result<Tensor> {
        crate::autograd::no_grad(|| Ok(self.sort(dim, descending)?.1))
    }

    /// The elements in ascending order along the first dimension.
    pub fn msort(&self) -> Result<Tensor> {
        Ok(self.sort(0, false)?.0)
    }

    /// The `k` largest or smallest along `dim`, best first, and their indices.
    pub fn topk(&self, k: usize, dim: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        self.not_bool("topk")?;
        let dim = self.wrap_dim("topk", dim)?;
        announced!("torch.topk", [self, k, dim, largest]; self.topk(k, dim as isize, largest));
        if self.rank() == 0 {
            if k > 1 {
                return Err(Error::value("topk: selected index k out of range: a zero-dim tensor has one element"));
            }
            return Ok((self.copy()?, Tensor::zeros_with([], (DType::I64, self.device()))?));
        }
        if k > self.shape()[dim] {
            return Err(Error::value(format!(
                "topk: selected index k out of range: k is {k}, dimension {dim} has size {}",
                self.shape()[dim]
            )));
        }
        let mut shape = Dims::from_slice(self.shape());
        shape[dim] = k;
        let (values, indices) = (self.uninit_like(&shape, self.dtype())?, self.uninit_like(&shape, DType::I64)?);
        if values.numel() > 0 {
            self.run(call::TopK {
                x: self.engine_view(),
                dim,
                largest,
                values: values.engine_view(),
                indices: indices.engine_view(),
            })?;
        }
        self.record_picked("topk", &values, &indices, dim, true)?;
        Ok((values, indices))
    }

    /// The `k`-th smallest along `dim`, counted from 1, and its index.
    pub fn kthvalue(&self, k: usize, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.not_bool("kthvalue")?;
        let dim = self.wrap_dim("kthvalue", dim)? as isize;
        let x = self.at_least_1d()?;
        let size = x.size(dim)?;
        if size == 0 {
            return Err(Error::index(format!("kthvalue: expected reduction dim {dim} to have non-zero size")));
        }
        if k == 0 || k > size {
            return Err(Error::value(format!(
                "kthvalue: selected number k out of range for dimension {dim}: k is {k}, the size {size}"
            )));
        }
        let (values, indices) = x.kth(dim as usize, Rank::At(k - 1))?;
        if keepdim && self.rank() > 0 {
            return Ok((values, indices));
        }
        Ok((values.squeeze(dim)?, indices.squeeze(dim)?))
    }

    /// The element of a rank along `dim`, which keeps size one, and its index.
    pub(crate) fn kth(&self, dim: usize, rank: Rank) -> Result<(Tensor, Tensor)> {
        let mut shape = Dims::from_slice(self.shape());
        shape[dim] = 1;
        let (values, indices) = (self.uninit_like(&shape, self.dtype())?, self.uninit_like(&shape, DType::I64)?);
        if values.numel() > 0 {
            let (x, values, indices) = (self.engine_view(), values.engine_view(), indices.engine_view());
            self.run(call::Kth { dim, rank, x, values, indices })?;
        }
        self.record_picked("kthvalue", &values, &indices, dim, true)?;
        Ok((values, indices))
    }
}
