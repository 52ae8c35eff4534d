//! The profiler: `rushlight_profile`, fed by every engine call and every node of a backward pass.
//!
//! ```
//! # use rushlight_tensor as rushlight;
//! use rushlight::{Tensor, profile::Profiler};
//! let x = Tensor::ones([64, 64])?.requires_grad_(true)?;
//! let mut profiler = Profiler::new().record_shapes(true).profile_memory(true);
//! profiler.start()?;
//! x.matmul(&x)?.sum()?.backward()?;
//! let trace = profiler.stop();
//! let table = trace.table("self_cpu_time_total", 10);
//! assert!(table.contains("rushlight::matmul"), "{table}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;

#[doc(hidden)]
pub use engine::prepare;
pub(crate) use engine::profiled;
pub use rushlight_profile::*;

/// Operations (additions and multiplications) of the matrix products, convolutions and attention that a closure runs,
/// counted as they reach the engine. The error says that the profiler is at work already.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, profile::count_flops};
/// let x = Tensor::ones([4, 8])?;
/// let (y, flops) = count_flops(|| x.matmul(&x.t()?))?;
/// assert_eq!(flops, 2 * 4 * 4 * 8);
/// # y?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn count_flops<T>(f: impl FnOnce() -> T) -> Result<(T, u64), String> {
    start(Options::default())?;
    struct Stop(bool);
    impl Drop for Stop {
        fn drop(&mut self) {
            if self.0 {
                stop();
            }
        }
    }
    let mut guard = Stop(true);
    let out = f();
    guard.0 = false;
    let flops = stop().events.iter().filter_map(|e| e.details.as_ref()).map(|d| d.flops).sum();
    Ok((out, flops))
}
