//! The GPU engine shared by all vendors: everything except drivers, compilers and libraries.
//!
//! A vendor's crate implements [`Driver`](vendor::driver::Driver), [`Compiler`](vendor::driver::Compiler) and, if
//! available, [`Libraries`](vendor::driver::Libraries), and holds its devices in a [`Fleet`]. The kernels are written
//! in the subset of C++ that NVIDIA's and AMD's run-time compilers both accept.
//!
//! | folder | what |
//! |---|---|
//! | [`vendor`] | what a vendor's crate implements: driver, run-time compiler, libraries |
//! | [`device`] | a GPU: its context, memory, streams, captured steps and kernel times |
//! | [`launch`] | kernels: text, compilation, the disk cache, the launch queue, loop nests |
//! | `comm` | collectives between processes: on a separate stream, by shared device memory |
//! | `families` | one module for each family of engine calls |
//! | `backend` | the `Backend` trait: dispatches a call to its family |
//! | [`catalogue`] | every kernel in the forms in use, for the vendors' compile tests |

mod backend;
#[doc(hidden)]
pub mod catalogue;
mod comm;
pub mod device;
#[cfg(test)]
mod emulated;
mod families;
#[doc(hidden)]
pub mod hash;
pub mod launch;
pub mod vendor;

pub use backend::{Fleet, GpuBackend};
pub use device::{Gpu, Scratch, Temporary};
pub use families::attention::hopper_attentions;
pub use families::conv::{Order, Pass};
pub use families::matmul::{Gelu, Gemm};
pub use launch::kernel::UserKernel;
pub use launch::recent::Recent;
