//! Memory order of results: which dimension is innermost.
//!
//! Results keep the order of their operands as in PyTorch: copies by `preserve_format`, pointwise results by the
//! operands' strides, channels-last images through convolutions, pooling and normalisation. Row-major
//! operands give row-major results without looking at strides. Engines see the dimensions of a permuted result in its
//! memory order, so that their fast paths for contiguous data apply.

use crate::Tensor;
use crate::autograd::{Meta, record, recording};
use crate::engine::allocate;
use rushlight_core::backend::{Operand, View, call};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Layout, Result};

/// Most operands of a pointwise call.
const OPERANDS: usize = 5;

impl Tensor {
    /// Memory for a dense layout, on this tensor's device.
    pub(crate) fn uninit_in(&self, layout: Layout, dtype: DType) -> Result<Tensor> {
        let storage = allocate(self.backend(), layout.numel() * dtype.size())?;
        Ok(Tensor::from_parts(storage, layout.with_offset(0), dtype, Meta::default()))
    }

    /// Memory for a copy of this tensor that keeps its memory order.
    pub(crate) fn uninit_preserving(&self, dtype: DType) -> Result<Tensor> {
        if self.is_contiguous() {
            return self.uninit_like(self.shape(), dtype);
        }
        self.uninit_in(self.layout().preserved(), dtype)
    }

    /// The dimensions in memory order, as results that keep the order have them.
    pub(crate) fn preserved_order(&self) -> Dims {
        self.layout().preserved().memory_order()
    }

    /// The same elements in the memory order that a copy of `other`, of the same shape, would have; the same tensor if
    /// they lie so already.
    pub fn in_order_of(&self, other: &Tensor) -> Result<Tensor> {
        if self.shape() != other.shape() {
            return Err(Error::shape(format!("in_order_of: shapes {:?} and {:?} differ", self.shape(), other.shape())));
        }
        self.in_layout(&other.layout().preserved())
    }

    /// Whether the elements have the memory order of `other`, which has the same shape and no gaps.
    pub(crate) fn lies_as(&self, other: &Tensor) -> bool {
        (0..self.rank()).all(|d| self.shape()[d] <= 1 || self.strides()[d] == other.strides()[d])
    }

    /// The same elements in a dense layout of this tensor's shape; the same tensor if it has that layout already.
    pub(crate) fn in_layout(&self, layout: &Layout) -> Result<Tensor> {
        let apart = |d: usize| self.shape()[d] > 1 && self.strides()[d] != layout.strides()[d];
        if self.numel() == 0 || !(0..self.rank()).any(apart) {
            return Ok(self.clone());
        }
        let out = self.uninit_in(layout.clone(), self.dtype())?;
        self.copy_to(&out)?;
        if recording(&[self]) {
            record("clone", &[self], &out, |_, dy| Ok(smallvec![Some(dy.clone())]))?;
        }
        Ok(out)
    }

    /// Writes the elements, converted, to memory of this shape that nothing else uses. Not recorded.
    pub(crate) fn copy_to(&self, out: &Tensor) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let target = out;
        let inputs = [Some(Operand::Tensor(self.engine_view())), None, None, None, None];
        in_memory_order(inputs, out.engine_view(), |inputs, out| match inputs[0] {
            Some(Operand::Tensor(from)) => target.run_with(self, call::Copy { src: from, out }),
            _ => Ok(()),
        })
    }

    /// Whether results of images or volumes like this one have their channels innermost.
    pub(crate) fn suggests_channels_last(&self) -> bool {
        !self.is_contiguous() && self.layout().suggests_channels_last()
    }

    /// The same elements with their channels innermost if those of `images` are: the memory format of an op's result.
    pub fn in_format_of(self, images: &Tensor) -> Result<Tensor> {
        let wanted = images.suggests_channels_last() && self.rank() == images.rank();
        self.channels_last_if(wanted)
    }

    /// [`Tensor::to_channels_last`] of the result of an op on images, if `wanted`.
    pub(crate) fn channels_last_if(self, wanted: bool) -> Result<Tensor> {
        if wanted { self.to_channels_last() } else { Ok(self) }
    }

    /// The same elements with the channels of images or volumes innermost; the same tensor if they are already.
    pub(crate) fn to_channels_last(&self) -> Result<Tensor> {
        self.in_layout(&Layout::channels_last(self.shape())?)
    }
}

/// Runs a pointwise call with the dimensions of all operands in the memory order of `out`.
pub(crate) fn in_memory_order(
    inputs: [Option<Operand>; OPERANDS],
    out: View,
    run: impl FnOnce([Option<Operand>; OPERANDS], View) -> Result<()>,
) -> Result<()> {
    if out.layout().is_contiguous() {
        return run(inputs, out);
    }
    let order = out.layout().memory_order();
    let layouts = inputs.map(|input| match input {
        Some(Operand::Tensor(view)) => Some(view.layout().permute(&order)),
        _ => None,
    });
    let mut permuted = inputs;
    for (input, layout) in permuted.iter_mut().zip(&layouts) {
        if let (Some(Operand::Tensor(view)), Some(layout)) = (input, layout) {
            *view = view.with_layout(layout)?;
        }
    }
    let layout = out.layout().permute(&order);
    run(permuted, out.with_layout(&layout)?)
}
