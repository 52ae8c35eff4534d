//! AMD's part of Rushlight's GPU engine: HIP's runtime, its run-time compiler and ROCm's libraries, opened at run time.
//!
//! Building needs no part of ROCm. If a library is missing at run time, the error names it and
//! says what to do. The engine itself is in [`rushlight_gpu`]. As in PyTorch, the device of an AMD GPU is called
//! `cuda`.
//!
//! | module | what |
//! |---|---|
//! | `driver`, `hiprtc` | the runtime and the compiler, behind the engine's traits |
//! | `device` | the GPUs of this machine |
//! | `hipblaslt`, `rocblas` | matrix products |
//! | `hipfft` | hipFFT: where it is looked for; the engine has its functions |
//! | `rocsolver` | factorisations by rocSOLVER, triangular systems by rocBLAS |
//! | `miopen`, `cache` | convolutions; MIOpen's cache directory |
//! | `rccl` | RCCL: its search path; the engine has its functions |
//! | `smi` | ROCm SMI: its version |

mod cache;
mod device;
mod driver;
mod hipblaslt;
mod hipfft;
mod hiprtc;
mod miopen;
mod rccl;
mod rocblas;
mod rocsolver;
mod smi;
#[cfg(test)]
mod tests;

pub use device::{count as device_count, properties};

use rushlight_core::backend::{Engine, Library, PinnedMemory, Properties};
use rushlight_core::{Backend, Device, Result};
use rushlight_gpu::Fleet;
use rushlight_gpu::vendor::driver::{Convolutions, Factorisations, Libraries, Products};
use rushlight_gpu::vendor::factorisations::Routines;
use rushlight_gpu::vendor::fft::FftLibrary;
use rushlight_gpu::vendor::library::Search;
use rushlight_gpu::vendor::nccl::Nccl;

/// Search path of AMD's libraries.
const SEARCH: Search = Search {
    variable: "RUSHLIGHT_HIP_PATH",
    toolkit_variables: &["ROCM_PATH", "ROCM_HOME", "HIP_PATH"],
    toolkits: &["/opt/rocm"],
    packages: "_rocm_sdk_core",
    companion: None,
};

/// Declares a table of the functions of one of AMD's libraries.
macro_rules! api {
    ($(#[$doc:meta])* $Api:ident($($where:tt)*) { $($functions:tt)* }) => {
        rushlight_gpu::library_api! { $(#[$doc])* $Api(crate::SEARCH, $($where)*) { $($functions)* } }
    };
}
use api;

static FLEET: Fleet = Fleet::new(device::open);

/// The engine of GPU `index`, started on first use. The error names the missing library and the
/// remedy.
///
/// ```
/// // Without an AMD GPU this returns an error with the reason; the CPU engine is not affected.
/// match rushlight_hip::backend(0) {
///     Ok(engine) => assert_eq!(engine.device(), rushlight_core::Device::Cuda(0)),
///     Err(e) => println!("{e}"),
/// }
/// ```
pub fn backend(index: usize) -> Result<&'static dyn Backend> {
    match FLEET.started(index) {
        Ok(started) => Ok(started),
        Err(e) => Err(e.within(&format!("cuda:{index} (HIP)"))),
    }
}

/// AMD's GPUs.
pub struct HipEngine;

/// The entry for the list of engines.
pub static ENGINE: HipEngine = HipEngine;

impl Engine for HipEngine {
    fn name(&self) -> &'static str {
        "hip"
    }

    fn device(&self, index: usize) -> Device {
        Device::Cuda(index)
    }

    fn count(&self) -> Result<usize> {
        device_count()
    }

    fn properties(&self, index: usize) -> Result<Properties> {
        properties(index)
    }

    fn backend(&self, index: usize) -> Result<&'static dyn Backend> {
        backend(index)
    }

    fn libraries(&self) -> Vec<(&'static str, Result<Library>)> {
        libraries()
    }

    fn pinned_memory(&self) -> Option<&'static dyn PinnedMemory> {
        Some(&FLEET)
    }
}

/// AMD's libraries, behind the engine's trait.
struct HipLibraries;

static LIBRARIES: HipLibraries = HipLibraries;

impl Libraries for HipLibraries {
    fn products(&self) -> Result<&'static dyn Products> {
        Ok(Box::leak(Box::new(rocblas::Library::new()?)))
    }

    fn convolutions(&self) -> Option<&'static dyn Convolutions> {
        if miopen::is_off() {
            return None;
        }
        Some(Box::leak(Box::new(miopen::Library::new().ok()?)))
    }

    fn factorisations(&self) -> Result<&'static dyn Factorisations> {
        Ok(Box::leak(Box::new(Routines::new(&rocsolver::Amd))))
    }

    fn transforms(&self) -> Result<&'static FftLibrary> {
        hipfft::get()
    }

    fn collectives(&self) -> Result<&'static Nccl> {
        rccl::get()
    }
}

/// AMD libraries known to the engine: name, and path or the reason why it is missing.
pub fn libraries() -> Vec<(&'static str, Result<Library>)> {
    let found = |path: &'static str, version: String| Library { path, version };
    vec![
        ("HIP", driver::Hip::get().map(|l| found(&l.path, hip_version(l.number())))),
        ("hiprtc", hiprtc::Hiprtc::get().and_then(|l| l.number().map(|(a, b)| found(&l.path, format!("{a}.{b}"))))),
        ("hipBLASLt", hipblaslt::HipblasLt::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("rocBLAS", rocblas::Rocblas::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("rocSOLVER", rocsolver::Rocsolver::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("hipFFT", hipfft::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("MIOpen", miopen::Miopen::get().and_then(|l| l.number().map(|version| found(&l.path, version)))),
        ("RCCL", rccl::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("ROCm SMI", smi::Smi::get().and_then(|l| l.number().map(|version| found(&l.path, version)))),
    ]
}

/// The installed HIP version, such as 6.3.42134. Starts no device.
pub fn toolkit_version() -> Result<String> {
    driver::Hip::get().map(|hip| hip_version(hip.number()))
}

/// Parses a version in HIP's encoding: 60342134 is 6.3.42134.
fn hip_version(number: i32) -> String {
    format!("{}.{}.{}", number / 10_000_000, number / 100_000 % 100, number % 100_000)
}
