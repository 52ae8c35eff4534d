//! Rushlight's CUDA engine.
//!
//! Nothing of CUDA is needed to build it: the driver, the run-time compiler and the libraries are opened when a device is first asked
//! for ([`backend`]), and where one is missing the error says which, where it was looked for, and what to do.
//!
//! | module | what |
//! |---|---|
//! | `library`, `driver`, `nvrtc`, `cublaslt`, `cudnn`, `cusolver`, `nccl` | NVIDIA's libraries, opened at run time |
//! | `device` | a GPU: context, where a thread's work goes, faults |
//! | `stream`, `capture` | streams and events; steps recorded and replayed |
//! | `host` | pinned memory, copies between devices |
//! | `alloc` | the caching allocator |
//! | `kernel`, `cache` | kernels: text, compilation, launch; compiled ones on disk |
//! | `compiler`, `queue` | threads that compile; work that waits for them |
//! | `plan`, `rows` | loops and rows as kernels take them |
//! | the rest | one module per family of work, with its kernels in `kernels/` |
//!
//! All work of a device goes to one stream, in order, unless a thread chooses another ([`Stream`]). Nothing waits for it but reading values; an index out of range is noted by the kernel
//! that meets it and reported by the next call that waits (`RUSHLIGHT_CUDA_SYNC=1` makes every call wait).

mod alloc;
mod attention;
mod attention_products;
mod backend;
mod batch_norm;
mod cache;
mod capture;
mod compiler;
mod conv;
mod conv_few;
mod conv_pixels;
mod copy;
mod cross_entropy;
mod cublaslt;
mod cudnn;
mod cusolver;
mod device;
mod driver;
#[cfg(test)]
mod emulated;
mod flash;
mod flash_hopper;
mod foreach;
mod hash;
mod host;
mod index;
mod kernel;
mod library;
mod linalg;
mod matmul;
mod nccl;
mod nvrtc;
mod plan;
mod plans;
mod pointwise;
mod pool;
mod queue;
mod random;
mod reduce;
mod row_norm;
mod rows;
mod scan;
mod softmax;
mod sort;
mod stream;
mod task_order;
#[cfg(test)]
mod tests;

pub use attention::hopper_attentions;
pub use backend::{ENGINE, backend};
pub use device::{count as device_count, properties};
pub use host::{Pinned, copy_between, empty_pinned_cache, is_pinned, upload_pinned};
pub use stream::{Event, Stream, lend_to_default_stream, record_stream};

use rushlight_core::backend::Library;

/// Each of NVIDIA's libraries that the engine knows: its name, and where it was found or why it was not.
pub fn libraries() -> Vec<(&'static str, rushlight_core::Result<Library>)> {
    let found = |path: &'static str, version: String| Library { path, version };
    vec![
        ("driver", driver::Driver::get().map(|l| found(&l.path, format!("for CUDA {}", cuda_version(l.number()))))),
        ("NVRTC", nvrtc::Nvrtc::get().and_then(|l| l.number().map(|(a, b)| found(&l.path, format!("{a}.{b}"))))),
        // SAFETY: these ask for nothing and give a small number.
        ("cuBLASLt", cublaslt::CublasLt::get().map(|l| found(&l.path, triple(unsafe { (l.version)() })))),
        // SAFETY: as above.
        ("cuDNN", cudnn::Cudnn::get().map(|l| found(&l.path, triple(unsafe { (l.version)() })))),
        ("cuBLAS", cusolver::Cublas::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("cuSOLVER", cusolver::Cusolver::get().and_then(|l| l.version().map(|version| found(&l.path, version)))),
        ("NCCL", nccl::Nccl::get().and_then(|l| l.number().map(|number| found(&l.path, triple(number))))),
    ]
}

/// A version as the driver writes it: 13010 is 13.1.
fn cuda_version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// A version whose three parts were put into one number: 91002 is 9.10.2; as cuDNN counts before 9 and NCCL before 2.9, 8902 is 8.9.2.
fn triple(number: i32) -> String {
    let major = if number < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", number / major, number % major / 100, number % 100)
}
