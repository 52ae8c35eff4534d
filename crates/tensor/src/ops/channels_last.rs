//! Images whose channels are innermost: the order in which a GPU's convolutions of half types are fastest.
//!
//! Under autocast a convolution on a GPU puts its operands in this order and leaves its result in it. Pointwise ops and
//! batch norm keep the order, so a network is in it from its first convolution to its last. Shapes stay
//! `[batch, channels, height, width]`; everything else reads such a tensor as any other with strides, but for `view`,
//! which copies where PyTorch's row-major result would not have to.

use crate::Tensor;
use crate::autograd::{record, recording};
use rushlight_core::backend::call;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Layout, Result};

impl Tensor {
    /// Whether the channels of images on a GPU are innermost, without gaps, and not also as a row-major tensor's would.
    pub(crate) fn is_channels_last(&self) -> bool {
        !self.is_contiguous() && self.has_channels_last()
    }

    /// The same of tensors that may be row-major too, as where images have one pixel.
    fn has_channels_last(&self) -> bool {
        let mut step = 1;
        self.rank() == 4
            && self.backend().features().channels_last
            && [1, 3, 2, 0].into_iter().all(|d| {
                let dense = self.shape()[d] == 1 || self.strides()[d] == step;
                step *= self.shape()[d];
                dense
            })
    }

    /// Memory for images of this shape with the channels innermost.
    fn uninit_channels_last(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let inside_out: Dims = smallvec![shape[0], shape[2], shape[3], shape[1]];
        let memory = self.uninit_like(&inside_out, dtype)?;
        let layout = Layout::contiguous(&inside_out)?.permute(&[0, 3, 1, 2]);
        Ok(Tensor::from_parts(memory.0.storage.clone(), layout, dtype, Default::default()))
    }

    /// Memory for a result of this shape in the order of `self`.
    pub(crate) fn uninit_in_order(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        if shape.len() == 4 && self.is_channels_last() {
            return self.uninit_channels_last(shape, dtype);
        }
        self.uninit_like(shape, dtype)
    }

    /// The same elements with the channels innermost; the same tensor if they are already.
    pub(crate) fn channels_last(&self) -> Result<Tensor> {
        if self.has_channels_last() {
            return Ok(self.clone());
        }
        let out = self.uninit_channels_last(self.shape(), self.dtype())?;
        if out.numel() > 0 {
            self.run(call::Copy { src: self.engine_view(), out: out.engine_view() })?;
        }
        if recording(&[self]) {
            record("channels_last", &[self], &out, |_, dy| Ok(smallvec![Some(dy.clone())]))?;
        }
        Ok(out)
    }
}
