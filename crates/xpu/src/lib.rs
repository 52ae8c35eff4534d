//! Rushlight's engine for Intel GPUs, over OpenCL, which is opened at run time.
//!
//! Nothing of Intel's or OpenCL's is needed to build. Where a driver is missing, the error says where it was looked for
//! and what to do. Any OpenCL device with addresses (unified or shared virtual memory) will do, so the engine runs, and
//! is tested, on CPUs too: `RUSHLIGHT_XPU_PLATFORM=pocl` has PoCL's device stand for `xpu`.
//!
//! | module | what |
//! |---|---|
//! | `driver` | what is asked of a driver, so that another than OpenCL can come |
//! | `opencl`, `driver_opencl` | OpenCL's functions; OpenCL behind `driver` |
//! | `platform` | which devices are `xpu` |
//! | `device`, `stream` | a device at work: memory, queues, faults; streams and events |
//! | `host` | pinned host memory |
//! | `program`, `cache` | kernels: text, compilation, launch; compiled ones on disk |
//! | `limits` | what simple kernels reach on a device, for benchmarks |
//! | the rest | a family of the trait each, with its text in `kernels/` |

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

use backend::XpuBackend;
pub use limits::Limits;
use rushlight_core::backend::{Engine, Library, PinnedMemory, Properties};
use rushlight_core::{Backend, Device, Error, ErrorKind, Result};
use std::sync::{Mutex, OnceLock};

/// Most devices of one process.
const MAX_DEVICES: usize = 64;

static STARTED: [OnceLock<&'static XpuBackend>; MAX_DEVICES] = [const { OnceLock::new() }; MAX_DEVICES];

/// Held while a device starts: two threads do not start one at once.
static STARTING: Mutex<()> = Mutex::new(());

/// The engine of device `index`, started on its first use. The error says which driver is missing and what to do.
///
/// ```
/// // Where there is no Intel GPU, this is an error that says why, and the CPU engine works as ever.
/// match rushlight_xpu::backend(0) {
///     Ok(engine) => assert_eq!(engine.device(), rushlight_core::Device::Xpu(0)),
///     Err(e) => println!("{e}"),
/// }
/// ```
pub fn backend(index: usize) -> Result<&'static dyn Backend> {
    started(index).map(|started| started as &'static dyn Backend).map_err(|e| e.within(&format!("xpu:{index}")))
}

/// What simple kernels reach on device `index`: some seconds of multiplications and copies.
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

fn started(index: usize) -> Result<&'static XpuBackend> {
    let found = device_at(index)?;
    let slot = &STARTED[index];
    if let Some(started) = slot.get() {
        return Ok(started);
    }
    let _turn = STARTING.lock().unwrap_or_else(|e| e.into_inner());
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
            // OpenCL without an Intel GPU is no failure unless a device was asked for by name.
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
