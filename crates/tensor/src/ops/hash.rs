//! Hashes of elements.

use crate::Tensor;
use crate::autograd::no_grad;
use crate::ops::sizes::AsDims;
use rushlight_core::{DType, Error, Result};

impl Tensor {
    /// The exclusive or of the elements' 64 bits, over `dims` or, if none are named, over all: numbers count as
    /// `int64`, floats as `float64`. The result is `uint64`.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
    /// use rushlight::{DType, Tensor};
    /// let hash = Tensor::new([1i64, 2, 4])?.hash_tensor(.., false)?;
    /// assert_eq!(hash.to_dtype(DType::I64)?.to_vec::<i64>()?, [7]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn hash_tensor(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let call = "hash_tensor";
        let dims = dims.as_dims();
        let mask = self.reduced(call, dims)?;
        if self.dtype().is_carried() {
            return Err(Error::dtype(format!("{call}: not implemented for {}", self.dtype())));
        }
        if self.numel() == 0 && dims.is_empty() {
            return Err(Error::shape(format!(
                "{call}: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
            )));
        }
        if let Some(d) = (0..self.rank()).find(|&d| mask[d] && self.shape()[d] == 0) {
            return Err(Error::index(format!("{call}: Expected reduction dim {d} to have non-zero size.")));
        }
        no_grad(|| {
            let wide = if self.dtype().is_float() { DType::F64 } else { DType::I64 };
            let mut bits = self.detach().to_dtype(wide)?.contiguous()?.reinterpreted(DType::I64);
            for d in (0..self.rank()).filter(|&d| mask[d]) {
                bits = bits.xor_along(d as isize)?;
            }
            for d in (0..self.rank()).rev().filter(|&d| mask[d] && !keepdim) {
                bits = bits.squeeze(d as isize)?;
            }
            Ok(bits.contiguous()?.reinterpreted(DType::U64))
        })
    }

    /// The exclusive or along a dimension, which is kept at size one: halves are joined until one element is left.
    fn xor_along(&self, dim: isize) -> Result<Tensor> {
        let mut bits = self.clone();
        let mut odd: Option<Tensor> = None;
        loop {
            let size = bits.size(dim)?;
            if size <= 1 {
                return match odd {
                    Some(odd) => bits.bitwise_xor(&odd),
                    None => Ok(bits),
                };
            }
            let half = size / 2;
            if size % 2 == 1 {
                let last = bits.narrow(dim, size as isize - 1, 1)?;
                odd = Some(match odd {
                    Some(odd) => odd.bitwise_xor(&last)?,
                    None => last,
                });
            }
            bits = bits.narrow(dim, 0, half)?.bitwise_xor(&bits.narrow(dim, half as isize, half)?)?;
        }
    }
}
