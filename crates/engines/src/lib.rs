//! The engines that are compiled in: the one place that names them. The features `cuda`, `hip` and `xpu` add those of
//! GPUs.
//!
//! Higher layers look up the engine of a [`Device`] here and use it through the traits of
//! [`rushlight_core::backend`]. A new engine is a crate with a static [`Engine`] and a line in [`ENGINES`].

mod carried;
mod kernel;
mod meta;

pub use carried::run_carried;
pub use kernel::{DeviceKernel, KernelArg, Language};

use rushlight_core::backend::{Engine, PinnedMemory};
use rushlight_core::{Backend, Device, Error, Result};
use std::sync::OnceLock;

/// Compiled-in engines: the CPU, accelerators in the order [`accelerator`] prefers them, and the meta
/// engine, whose tensors have no elements.
pub static ENGINES: &[&dyn Engine] = &[
    &rushlight_cpu::ENGINE,
    #[cfg(feature = "cuda")]
    &rushlight_cuda::ENGINE,
    #[cfg(feature = "hip")]
    &rushlight_hip::ENGINE,
    #[cfg(feature = "xpu")]
    &rushlight_xpu::ENGINE,
    &meta::ENGINE,
];

/// How many threads the CPU's engine computes with.
pub fn threads() -> usize {
    rushlight_cpu::pool::num_threads()
}

/// The engine of a device, started on its first use. Several engines may serve one kind of device: the first that can
/// is taken.
///
/// ```
/// # mod rushlight { pub use rushlight_core::Device; pub use rushlight_engines as engines; }
/// use rushlight::Device;
/// assert_eq!(rushlight::engines::backend(Device::Cpu)?.device(), Device::Cpu);
/// // Where there is no GPU, this is an error that says why.
/// if let Err(e) = rushlight::engines::backend(Device::Cuda(0)) {
///     println!("{e}");
/// }
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn backend(device: Device) -> Result<&'static dyn Backend> {
    if device.is_cpu() {
        return Ok(rushlight_cpu::backend());
    }
    let mut why = Vec::new();
    for engine in of(device) {
        match engine.backend(device.index()) {
            Ok(backend) => return Ok(backend),
            Err(e) => why.push(e),
        }
    }
    match (why.len(), chosen()) {
        (0, Some(name)) => {
            Err(Error::device(format!("{device}: {CHOICE} names {name}, which is no engine for this device")))
        }
        (0, None) => Err(Error::device(format!(
            "{device}: no engine for this device is compiled in; the features `cuda`, `hip` and `xpu` of the crate have them"
        ))),
        (1, _) => Err(why.remove(0)),
        _ => Err(Error::device(why.iter().map(Error::to_string).collect::<Vec<_>>().join("\n"))),
    }
}

/// The variable that names the one engine to be used for accelerators, where a machine has libraries of several: `cuda`
/// or `hip`.
const CHOICE: &str = "RUSHLIGHT_GPU_ENGINE";

fn chosen() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    NAME.get_or_init(|| std::env::var(CHOICE).ok().filter(|name| !name.is_empty())).as_deref()
}

/// Whether an engine may be used: the CPU always, accelerators' unless another is chosen.
fn may_be_used(engine: &&'static dyn Engine) -> bool {
    matches!(engine.device(0), Device::Cpu | Device::Meta) || chosen().is_none_or(|name| name == engine.name())
}

/// The engines that serve a device.
fn of(device: Device) -> impl Iterator<Item = &'static dyn Engine> {
    ENGINES.iter().copied().filter(may_be_used).filter(move |engine| engine.device(device.index()) == device)
}

/// The engine of the accelerators of this machine: the first that has a device.
pub fn accelerator() -> Option<&'static dyn Engine> {
    accelerators().find(|engine| engine.count().is_ok_and(|count| count > 0))
}

/// The engines of hardware other than the CPU, whether they find a device or not.
pub fn accelerators() -> impl Iterator<Item = &'static dyn Engine> {
    ENGINES.iter().copied().filter(may_be_used).filter(|engine| !matches!(engine.device(0), Device::Cpu | Device::Meta))
}

/// The first of CUDA and HIP that is installed and may be used, by its engine's name, with its version. Starts no
/// driver.
pub fn toolkit() -> Option<(&'static str, String)> {
    type Version = fn() -> Result<String>;
    let known: &[(&'static dyn Engine, Version)] = &[
        #[cfg(feature = "cuda")]
        (&rushlight_cuda::ENGINE, rushlight_cuda::toolkit_version),
        #[cfg(feature = "hip")]
        (&rushlight_hip::ENGINE, rushlight_hip::toolkit_version),
    ];
    known
        .iter()
        .filter(|(engine, _)| may_be_used(engine))
        .find_map(|(engine, version)| Some((engine.name(), version().ok()?)))
}

/// Pinned host memory of this machine's accelerators. An error says why it is unavailable.
pub fn pinned_memory() -> Result<&'static dyn PinnedMemory> {
    if let Some(memory) = accelerator().and_then(|engine| engine.pinned_memory()) {
        return Ok(memory);
    }
    let why = accelerators().find_map(|engine| engine.count().err());
    Err(why.unwrap_or_else(|| Error::device("pinned memory needs an accelerator, and this machine has none")))
}

/// Whether an address is in an engine's pinned memory. Starts no device.
pub fn is_pinned(address: *const u8) -> bool {
    ENGINES.iter().filter_map(|engine| engine.pinned_memory()).any(|memory| memory.contains(address))
}
