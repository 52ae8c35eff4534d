//! The engines that are compiled in: the one place that names them.
//!
//! Everything above asks here for the engine of a [`Device`], and uses what it finds through the traits of
//! [`rushlight_core::backend`]. A new engine is a crate with a static [`Engine`] and a line in [`ENGINES`].

mod meta;

use rushlight_core::backend::{Engine, PinnedMemory};
use rushlight_core::{Backend, Device, Error, Result};

/// What is compiled in: the CPU, accelerators in the order [`accelerator`] prefers them, and the engine without elements.
pub static ENGINES: &[&dyn Engine] =
    &[&rushlight_cpu::ENGINE, &rushlight_cuda::ENGINE, &rushlight_xpu::ENGINE, &meta::ENGINE];

/// The engine of a device, started on its first use. Several engines may serve one kind of device: the first that can is taken.
///
/// ```
/// use rushlight_core::Device;
/// assert_eq!(rushlight_engines::backend(Device::Cpu)?.device(), Device::Cpu);
/// // Where there is no GPU, this is an error that says why.
/// if let Err(e) = rushlight_engines::backend(Device::Cuda(0)) {
///     println!("{e}");
/// }
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn backend(device: Device) -> Result<&'static dyn Backend> {
    if device.is_cpu() {
        return Ok(rushlight_cpu::backend());
    }
    let mut why = None;
    for engine in of(device) {
        match engine.backend(device.index()) {
            Ok(backend) => return Ok(backend),
            Err(e) => why = why.or(Some(e)),
        }
    }
    Err(why.unwrap_or_else(|| Error::device(format!("{device}: no engine for this device is compiled in"))))
}

/// The engines that serve a device.
fn of(device: Device) -> impl Iterator<Item = &'static dyn Engine> {
    ENGINES.iter().copied().filter(move |engine| engine.device(device.index()) == device)
}

/// The engine of the accelerators of this machine: the first that has a device.
pub fn accelerator() -> Option<&'static dyn Engine> {
    accelerators().find(|engine| engine.count().is_ok_and(|count| count > 0))
}

/// The engines of hardware other than the CPU, whether they find a device or not.
pub fn accelerators() -> impl Iterator<Item = &'static dyn Engine> {
    ENGINES.iter().copied().filter(|engine| !matches!(engine.device(0), Device::Cpu | Device::Meta))
}

/// Pinned host memory of this machine's accelerators. An error says why there is none.
pub fn pinned_memory() -> Result<&'static dyn PinnedMemory> {
    if let Some(memory) = accelerator().and_then(|engine| engine.pinned_memory()) {
        return Ok(memory);
    }
    let why = accelerators().find_map(|engine| engine.count().err());
    Err(why.unwrap_or_else(|| Error::device("pinned memory needs an accelerator, and this machine has none")))
}

/// Whether an address lies in some engine's pinned memory. Starts no device.
pub fn is_pinned(address: *const u8) -> bool {
    ENGINES.iter().filter_map(|engine| engine.pinned_memory()).any(|memory| memory.contains(address))
}
