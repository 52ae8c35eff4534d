//! The device of new tensors.

use rushlight_core::{Device, Result};
use rushlight_tensor::Tensor;

/// The device of new tensors.
pub fn default() -> Device {
    Device::Cpu
}

/// A copy of a tensor in pinned memory; unchanged without an accelerator.
pub fn pinned(tensor: &Tensor) -> Result<Tensor> {
    let pins = rushlight_engines::accelerator().is_some_and(|engine| engine.pinned_memory().is_some());
    if tensor.device().is_cpu() && !pins { Ok(tensor.clone()) } else { tensor.pin_memory() }
}
