//! Which device to use.

use rushlight_core::Device;

/// What there is to compute on: in the prelude, so that `Device::best()` can be written.
pub trait BestDevice {
    /// The first GPU if there is one that works, else the CPU.
    ///
    /// ```
    /// use rushlight_core::Device;
    /// use rushlight_tensor::{BestDevice, Tensor};
    /// let x = Tensor::ones_with([2], Device::best())?;
    /// assert_eq!(x.sum()?.item::<f32>()?, 2.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    fn best() -> Device;
}

impl BestDevice for Device {
    fn best() -> Device {
        if rushlight_cuda::backend(0).is_ok() { Device::Cuda(0) } else { Device::Cpu }
    }
}
