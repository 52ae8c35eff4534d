//! Training runs: checkpoints that lose nothing, and ends that come too early.

mod checkpoint;
#[cfg(target_os = "linux")]
mod preemption;

pub use checkpoint::{Best, Checkpoints, CheckpointsBuilder, Position, Restored, SaveOptions, load_checkpoint};
#[cfg(target_os = "linux")]
pub use preemption::{Preemption, REQUEUE_CODE};
