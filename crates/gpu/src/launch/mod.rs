//! From a kernel's text to its launch: compilation, the cache on disk, the queue, and the arguments that kernels share.

#[doc(hidden)]
pub mod cache;
mod compiler;
#[doc(hidden)]
pub mod formula;
pub mod kernel;
#[doc(hidden)]
pub mod nest;
pub(crate) mod queue;
pub(crate) mod recent;
pub(crate) mod rows;
