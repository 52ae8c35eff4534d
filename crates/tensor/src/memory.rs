//! Statistics of a device's allocator.

use crate::tensor::backend;
use rushlight_core::backend::{CachingAllocator, MemoryStats};
use rushlight_core::{Device, Error, Result};

fn allocator(device: Device) -> Result<&'static dyn CachingAllocator> {
    let none = || Error::unsupported(format!("the engine of {device} keeps no statistics of its memory"));
    backend(device)?.allocator().ok_or_else(none)
}

/// Bytes in use, held and at the peak on a device.
///
/// ```
/// # mod rushlight { pub use rushlight_core::Device; pub use rushlight_tensor::*; }
/// use rushlight::Device;
/// let x = rushlight::Tensor::zeros([1024, 1024])?;
/// assert!(rushlight::memory_stats(&Device::Cpu)?.allocated >= 4 << 20);
/// # drop(x);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn memory_stats(device: &Device) -> Result<MemoryStats> {
    Ok(allocator(*device)?.stats())
}

/// Starts measuring a new peak on a device.
pub fn reset_peak_memory(device: &Device) -> Result<()> {
    allocator(*device)?.reset_peak();
    Ok(())
}

/// Gives memory kept for reuse back to the system.
pub fn empty_cache(device: &Device) -> Result<()> {
    allocator(*device)?.empty_cache();
    Ok(())
}

/// Waits until a device has finished all submitted work.
pub fn synchronize(device: &Device) -> Result<()> {
    crate::capture::refuse("synchronize", *device)?;
    backend(*device)?.synchronize()
}
