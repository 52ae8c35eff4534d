//! NVIDIA's part of Rushlight's GPU engine: driver, run-time compiler and libraries, opened at run time.
//!
//! Nothing of CUDA is needed to build. Where a library is missing, the error says which, where it was looked for, and
//! what to do. Everything else of the engine is in [`rushlight_gpu`].
//!
//! | module | what |
//! |---|---|
//! | `driver`, `nvrtc` | the driver and the compiler, behind the engine's traits |
//! | `device` | the GPUs of this machine |
//! | `cublaslt` | matrix products |
//! | `cudnn` | convolutions by cuDNN |
//! | `cupti` | records of kernels and copies, for the profiler |
//! | `cufft` | cuFFT: where it is looked for; the engine has its functions |
//! | `cusolver` | factorisations by cuSOLVER, triangular systems by cuBLAS |
//! | `nccl` | NCCL: where it is looked for; the engine has its functions |

mod cublaslt;
mod cudnn;
mod cufft;
mod cupti;
mod cusolver;
mod device;
mod driver;
mod nccl;
mod nvrtc;
#[cfg(test)]
mod tests;

pub use device::{count as device_count, properties};

use rushlight_core::backend::{Engine, Library, PinnedMemory, Properties};
use rushlight_core::{Backend, Device, Result};
use rushlight_gpu::Fleet;
use rushlight_gpu::vendor::driver::{Convolutions, Factorisations, Libraries, Products};
use rushlight_gpu::vendor::factorisations::Routines;
use rushlight_gpu::vendor::fft::FftLibrary;
use rushlight_gpu::vendor::library::{Search, triple};
use rushlight_gpu::vendor::lt::Lt;
use rushlight_gpu::vendor::nccl::Nccl;

/// Where NVIDIA's libraries are.
const SEARCH: Search = Search {
    variable: "RUSHLIGHT_CUDA_PATH",
    toolkit_variables: &["CUDA_HOME", "CUDA_PATH"],
    toolkits: &["/usr/local/cuda"],
    packages: "nvidia",
    // NVRTC finds its built-in functions by name only.
    companion: Some(("libnvrtc.", "libnvrtc-builtins.so")),
};

/// A table of the functions of one of NVIDIA's libraries.
macro_rules! api {
    ($(#[$doc:meta])* $Api:ident($($where:tt)*) { $($functions:tt)* }) => {
        rushlight_gpu::library_api! { $(#[$doc])* $Api(crate::SEARCH, $($where)*) { $($functions)* } }
    };
}
use api;

static FLEET: Fleet = Fleet::new(device::open);

/// The engine of GPU `index`, started on its first use. The error says which library is missing, where it was looked
/// for and what to do.
///
/// ```
/// // Where there is no GPU, this is an error that says why, and the CPU engine works as ever.
/// match rushlight_cuda::backend(0) {
///     Ok(engine) => assert_eq!(engine.device(), rushlight_core::Device::Cuda(0)),
///     Err(e) => println!("{e}"),
/// }
/// ```
pub fn backend(index: usize) -> Result<&'static dyn Backend> {
    match FLEET.started(index) {
        Ok(started) => Ok(started),
        Err(e) => Err(e.within(&format!("cuda:{index}"))),
    }
}

/// NVIDIA's GPUs.
pub struct CudaEngine;

/// The entry for the list of engines.
pub static ENGINE: CudaEngine = CudaEngine;

impl Engine for CudaEngine {
    fn name(&self) -> &'static str {
        "cuda"
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

/// NVIDIA's libraries, behind the engine's trait.
struct CudaLibraries;

static LIBRARIES: CudaLibraries = CudaLibraries;

impl Libraries for CudaLibraries {
    fn products(&self) -> Result<&'static dyn Products> {
        Ok(Box::leak(Box::new(Lt::new(cublaslt::table()?)?)))
    }

    fn convolutions(&self) -> Option<&'static dyn Convolutions> {
        if cudnn::is_off() {
            return None;
        }
        Some(Box::leak(Box::new(cudnn::Library::new().ok()?)))
    }

    fn factorisations(&self) -> Result<&'static dyn Factorisations> {
        Ok(Box::leak(Box::new(Routines::new(&cusolver::Nvidia))))
    }

    fn activity(&self) -> &'static dyn rushlight_profile::Source {
        &cupti::ACTIVITY
    }

    fn transforms(&self) -> Result<&'static FftLibrary> {
        cufft::get()
    }

    fn collectives(&self) -> Result<&'static Nccl> {
        nccl::get()
    }
}

/// Each of NVIDIA's libraries that the engine knows: its name, and where it was found or why it was not.
pub fn libraries() -> Vec<(&'static str, Result<Library>)> {
    let found = |path: &'static str, version: String| Library { path, version };
    vec![
        ("driver", driver::Driver::get().map(|l| found(&l.path, format!("for CUDA {}", cuda_version(l.number()))))),
        ("NVRTC", nvrtc::Nvrtc::get().and_then(|l| l.number().map(|(a, b)| found(&l.path, format!("{a}.{b}"))))),
        // SAFETY: these take no arguments and return a small number.
        ("cuBLASLt", cublaslt::CublasLt::get().map(|l| found(&l.path, triple(unsafe { (l.version)() })))),
        // SAFETY: as above.
        ("cuDNN", cudnn::Cudnn::get().map(|l| found(&l.path, triple(unsafe { (l.version)() })))),
        ("cuBLAS", cusolver::Cublas::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("cuSOLVER", cusolver::Cusolver::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("cuFFT", cufft::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("CUPTI", cupti::Cupti::get().map(|l| found(&l.path, String::new()))),
        ("NCCL", nccl::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
    ]
}

/// The version of CUDA that is installed: NVRTC's, or the one that the driver supports. Starts no driver.
pub fn toolkit_version() -> Result<String> {
    let driver = driver::Driver::get()?;
    let compiler = nvrtc::Nvrtc::get().and_then(|nvrtc| nvrtc.number());
    Ok(compiler.map_or_else(|_| cuda_version(driver.number()), |(major, minor)| format!("{major}.{minor}")))
}

/// A version as the driver writes it: 13010 is 13.1.
fn cuda_version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}
