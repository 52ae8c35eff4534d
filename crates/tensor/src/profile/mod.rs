//! The profiler: `rushlight_profile`, fed by every engine call and every node of a backward pass.
//!
//! ```
//! # use rushlight_tensor as rushlight;
//! use rushlight::{Tensor, profile::Profiler};
//! let x = Tensor::ones([64, 64])?.requires_grad_(true)?;
//! let mut profiler = Profiler::new().record_shapes(true).profile_memory(true);
//! profiler.start()?;
//! x.matmul(&x)?.sum(..)?.backward()?;
//! let trace = profiler.stop();
//! let table = trace.table("self_cpu_time_total", 10);
//! assert!(table.contains("rushlight::matmul"), "{table}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
mod flops;

#[doc(hidden)]
pub use engine::prepare;
pub(crate) use engine::{noted, transfer};
pub use flops::{CountedCall, count_flops, counted_calls};
pub use rushlight_profile::*;
