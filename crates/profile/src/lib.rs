//! The profiler: records spans of ops, kernels, data loading and collectives while it is on.
//!
//! | module | what |
//! |---|---|
//! | `record` | the recorder: a buffer per thread, spans, memory readings, sources of device events |
//! | `profiler` | [`Profiler`]: PyTorch's `torch.profiler.profile` with its schedule of steps |
//! | `average` | nesting of spans, totals by name, the table |
//! | `chrome` | traces that `chrome://tracing`, Perfetto and TensorBoard show |
//! | `memory` | the memory timeline |
//! | [`summary`] | reads traces, ours and PyTorch's, and sums up a step's time |
//!
//! While the profiler is off, it costs an op one relaxed atomic load ([`is_on`]).
//!
//! ```
//! # mod rushlight { pub use rushlight_profile as profile; }
//! use rushlight::profile::{Profiler, record_function};
//! let mut profiler = Profiler::new().record_shapes(true);
//! profiler.start()?;
//! for _ in 0..3 {
//!     let _span = record_function("work");
//!     std::hint::black_box((0..1000).sum::<u64>());
//!     profiler.step();
//! }
//! let trace = profiler.stop();
//! assert_eq!(trace.key_averages(false).iter().find(|a| a.name == "work").unwrap().count, 3);
//! println!("{}", trace.table("cpu_time_total", 10));
//! # Ok::<(), String>(())
//! ```

#![deny(missing_docs)]

mod average;
mod chrome;
mod memory;
mod profiler;
mod record;
pub mod summary;
#[cfg(test)]
mod tests;

pub use average::{Average, SORT_KEYS, table};
pub use profiler::{Action, Profiler, Schedule};
pub use record::{
    Category, Details, Event, MemoryReading, MemorySample, Options, Place, Source, Span, Trace, add_span, clock, is_on,
    kernels_wanted, launched, record_function, register_source, set_memory_probe, shapes_wanted, span, start, stop,
};
