//! Which device to use.

use rushlight_core::Device;
use rushlight_core::backend::Engine;

/// Adds `Device::best()`, the fastest device of this machine; part of the prelude.
pub trait BestDevice {
    /// The first GPU if there is one that works, else the CPU.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::Device; pub use rushlight_tensor::*; }
    /// use rushlight::Device;
    /// use rushlight::{BestDevice, Tensor};
    /// let x = Tensor::ones_with([2], Device::best())?;
    /// assert_eq!(x.sum(..)?.item::<f32>()?, 2.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    fn best() -> Device;
}

impl BestDevice for Device {
    fn best() -> Device {
        let works = |engine: &&dyn Engine| engine.backend(0).is_ok();
        rushlight_engines::accelerators().find(works).map_or(Device::Cpu, |engine| engine.device(0))
    }
}
