//! Rushlight's engine for Intel GPUs, over OpenCL, which is opened at run time.
//!
//! Building needs no part of Intel's software or OpenCL. If a driver is missing, the error says what
//! to do. Any OpenCL device with addresses (unified or shared virtual memory) is supported, so the engine
//! runs, and is tested, on CPUs too: `RUSHLIGHT_XPU_PLATFORM=pocl` makes PoCL's device `xpu`.
//!
//! | module | what |
//! |---|---|
//! | `driver` | the driver interface, so that another driver than OpenCL can be added |
//! | `opencl`, `driver_opencl` | OpenCL's functions; the OpenCL implementation of `driver` |
//! | `platform` | selection of the devices that are `xpu` |
//! | `device`, `stream` | a device: memory, queues, faults; streams and events |
//! | `host` | pinned host memory |
//! | `program`, `cache` | kernels: text, compilation, launch; the disk cache |
//! | `limits` | measured peak rates of a device, for benchmarks |
//! | the rest | one family of the trait each, with its text in `kernels/` |

mod attention;
mod attention_tiles;
mod backend;
mod cache;
mod device;
mod driver;
mod driver_opencl;
mod host;
mod index;
mod limits;
mod matmul;
mod matmul_xmx;
mod opencl;
mod platform;
mod pointwise;
mod program;
mod random;
mod reduce;
mod row_text;
mod rows;
mod stream;
mod update;
mod user;

use backend::XpuBackend;
pub use limits::Limits;
use rushlight_core::backend::{Engine, Library, PinnedMemory, Properties};
use rushlight_core::sync::lock;
use rushlight_core::{Backend, Device, Error, ErrorKind, Result};
use std::sync::{Mutex, OnceLock};
pub use user::{UserArg, UserKernel};

/// Maximum number of devices in a process.
const MAX_DEVICES: usize = 64;

static STARTED: [OnceLock<&'static XpuBackend>; MAX_DEVICES] = [const { OnceLock::new() }; MAX_DEVICES];

/// Serialises device starts.
static STARTING: Mutex<()> = Mutex::new(());

/// The engine of device `index`, started on first use. The error names the missing driver and the remedy.
///
/// ```
/// // Without an Intel GPU this returns an error with the reason; the CPU engine is not affected.
/// match rushlight_xpu::backend(0) {
///     Ok(engine) => assert_eq!(engine.device(), rushlight_core::Device::Xpu(0)),
///     Err(e) => println!("{e}"),
/// }
/// ```
pub fn backend(index: usize) -> Result<&'static dyn Backend> {
    started(index).map(|started| started as &'static dyn Backend).map_err(|e| e.within(&format!("xpu:{index}")))
}

/// Peak rates of device `index`, measured by simple kernels: takes some seconds.
///
/// ```no_run
/// # fn main() -> rushlight_core::Result<()> {
/// let limits = rushlight_xpu::limits(0)?;
/// println!("{:.0} GFLOP/s, {:.0} GB/s", limits.flops / 1e9, limits.bandwidth / 1e9);
/// # Ok(())
/// # }
/// ```
pub fn limits(index: usize) -> Result<Limits> {
    started(index)?.0.limits().map_err(|e| e.within(&format!("xpu:{index}")))
}

/// Compiles a text of the user's on device `index`.
pub fn user_kernel(index: usize, source: &str, entry: &str) -> Result<UserKernel> {
    UserKernel::compile(&started(index)?.0, source, entry).map_err(|e| e.within(&format!("xpu:{index}")))
}

fn started(index: usize) -> Result<&'static XpuBackend> {
    let found = device_at(index)?;
    let slot = &STARTED[index];
    if let Some(started) = slot.get() {
        return Ok(started);
    }
    let _turn = lock(&STARTING);
    if let Some(started) = slot.get() {
        return Ok(started);
    }
    let driver = driver_opencl::OpenCl::start(found)?;
    let started = device::Xpu::start(Device::Xpu(index), Box::new(driver), properties(index)?)?;
    Ok(slot.get_or_init(|| started))
}

fn device_at(index: usize) -> Result<platform::Found> {
    let devices = platform::devices()?;
    match devices.get(index).filter(|_| index < MAX_DEVICES) {
        Some(found) => Ok(*found),
        None => Err(Error::device(format!("there is no such device: this machine has {}", devices.len()))),
    }
}

fn properties(index: usize) -> Result<Properties> {
    let found = device_at(index)?;
    let abilities = driver_opencl::abilities(&found);
    Ok(Properties {
        name: abilities.name,
        memory: abilities.memory,
        multiprocessors: abilities.compute_units,
        capability: (0, 0),
        driver: abilities.driver,
        runtime: found.platform.version.clone(),
    })
}

/// Intel's GPUs.
pub struct XpuEngine;

/// The entry for the list of engines.
pub static ENGINE: XpuEngine = XpuEngine;

impl Engine for XpuEngine {
    fn name(&self) -> &'static str {
        "xpu"
    }

    fn device(&self, index: usize) -> Device {
        Device::Xpu(index)
    }

    fn count(&self) -> Result<usize> {
        if !platform::may_have_device() {
            return Ok(0);
        }
        match platform::devices() {
            Ok(devices) => Ok(devices.len().min(MAX_DEVICES)),
            // OpenCL without an Intel GPU is not an error unless a device was requested by name.
            Err(e)
                if e.kind() == ErrorKind::Device
                    && opencl::platforms().is_ok()
                    && std::env::var_os(platform::PLATFORM).is_none() =>
            {
                Ok(0)
            }
            Err(e) => Err(e),
        }
    }

    fn properties(&self, index: usize) -> Result<Properties> {
        properties(index)
    }

    fn backend(&self, index: usize) -> Result<&'static dyn Backend> {
        backend(index)
    }

    fn pinned_memory(&self) -> Option<&'static dyn PinnedMemory> {
        Some(&host::HOST_MEMORY)
    }

    fn libraries(&self) -> Vec<(&'static str, Result<Library>)> {
        match opencl::platforms() {
            Ok(platforms) => platforms
                .iter()
                .map(|p| (p.name.as_str(), Ok(Library { path: &p.path, version: p.version.clone() })))
                .collect(),
            Err(e) => vec![("OpenCL", Err(e))],
        }
    }
}
