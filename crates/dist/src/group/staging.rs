//! Tensors as bytes: in place if they are contiguous in the CPU's memory, otherwise as a copy.

use crate::comm::{Reduction, Span};
use rushlight_core::{Device, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;

/// A tensor whose bytes are accessible to the host.
pub(super) struct Staged {
    tensor: Tensor,
    copy: Option<Tensor>,
}

impl Staged {
    /// For a tensor that is read, or read and written.
    pub(super) fn new(tensor: &Tensor) -> Result<Self> {
        let tensor = tensor.detach();
        if tensor.device() == Device::Cpu && tensor.is_contiguous() {
            return Ok(Self { tensor, copy: None });
        }
        let copy = no_grad(|| tensor.to(Device::Cpu)?.contiguous())?;
        Ok(Self { tensor, copy: Some(copy) })
    }

    /// For the operand of a reduction over `ranks`.
    pub(super) fn operand(tensor: &Tensor, how: Reduction, ranks: usize) -> Result<Self> {
        match how.scale(ranks) {
            1 => Self::new(tensor),
            scale => {
                let tensor = tensor.detach();
                let copy = no_grad(|| tensor.to(Device::Cpu)?.div(scale as f64)?.contiguous())?;
                Ok(Self { tensor, copy: Some(copy) })
            }
        }
    }

    pub(super) fn all(tensors: &[Tensor]) -> Result<Vec<Self>> {
        tensors.iter().map(Self::new).collect()
    }

    /// The bytes. Valid as long as this value lives.
    pub(super) fn span(&self) -> Span {
        let t = self.copy.as_ref().unwrap_or(&self.tensor);
        let size = t.dtype().size();
        Span { ptr: t.storage().ptr().wrapping_add(t.layout().offset() * size), len: t.numel() * size }
    }

    /// Copies a staged result back to its tensor.
    pub(super) fn written(self) -> Result<()> {
        match self.copy {
            Some(copy) => no_grad(|| self.tensor.copy_(&copy).map(drop)),
            None => {
                self.tensor.storage().bump_version();
                Ok(())
            }
        }
    }
}

pub(super) fn spans(all: &[Staged]) -> Vec<Span> {
    all.iter().map(Staged::span).collect()
}

pub(super) fn written(all: Vec<Staged>) -> Result<()> {
    all.into_iter().try_for_each(Staged::written)
}
