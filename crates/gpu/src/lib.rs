//! The GPU engine shared by all vendors: everything except drivers, compilers and libraries.
//!
//! A vendor's crate implements [`driver::Driver`], [`driver::Compiler`] and, if available, [`driver::Libraries`], and
//! holds its devices in a [`Fleet`]. The kernels are written in the subset of C++ that NVIDIA's and AMD's run-time
//! compilers both accept.
//!
//! | module | what |
//! |---|---|
//! | [`driver`] | traits that a vendor implements |
//! | [`mod@driver_calls`] | driver calls common to CUDA and HIP |
//! | [`library`] | finding and opening a vendor's libraries |
//! | [`rtc`] | compiling by NVRTC and hiprtc |
//! | [`lt`] | matrix products by cuBLASLt and hipBLASLt |
//! | [`conv_library`] | convolutions in the terms of cuDNN and MIOpen |
//! | [`factorisations`] | factorisations in the terms of cuSOLVER and rocSOLVER |
//! | `device` | a GPU: context, current stream of a thread, faults |
//! | `stream`, `capture` | streams and events; recording and replaying steps |
//! | `collectives`, [`nccl`], `shared_memory` | collectives between processes: on a separate stream, by NCCL or RCCL, by shared device memory |
//! | `host` | pinned memory, copies between devices |
//! | `alloc` | the caching allocator |
//! | `kernel`, `cache` | kernels: text, compilation, launch; the disk cache |
//! | `compiler`, `queue` | parallel compilation of kernels; the launch queue |
//! | [`timing`] | kernels timed by events, for the profiler |
//! | `plan`, `rows`, `plans` | merged loops, rows shared by threads, bounded caches of prepared problems |
//! | the rest | one family of the trait each |

#[doc(hidden)]
pub mod alloc;
mod attention;
mod attention_products;
mod backend;
mod batch_norm;
mod cache;
mod capture;
#[doc(hidden)]
pub mod catalogue;
mod chain;
mod collectives;
mod compiler;
mod conv;
mod conv_few;
pub mod conv_library;
mod conv_pixels;
mod copy;
mod cross_entropy;
mod device;
pub mod driver;
pub mod driver_calls;
#[cfg(test)]
mod emulated;
pub mod factorisations;
mod flash;
mod flash_hopper;
mod flash_mfma;
mod foreach;
#[doc(hidden)]
pub mod hash;
mod host;
mod index;
pub mod kernel;
pub mod library;
mod linalg;
pub mod lt;
mod matmul;
pub mod nccl;
#[doc(hidden)]
pub mod plan;
mod plans;
mod pointwise;
mod pool;
mod queue;
mod random;
mod recurrent;
mod reduce;
mod row_norm;
mod rows;
pub mod rtc;
mod scan;
mod shared_memory;
mod softmax;
mod sort;
mod stream;
mod task_order;
pub mod timing;

pub use attention::hopper_attentions;
pub use backend::{Fleet, GpuBackend};
pub use conv::{Order, Pass};
pub use device::{Gpu, Scratch, Temporary};
pub use matmul::{Gelu, Gemm};
pub use plans::Recent;
