//! Training runs: checkpoints that lose nothing.

mod checkpoint;

pub use checkpoint::{Best, Checkpoints, CheckpointsBuilder, Position, Restored, SaveOptions, load_checkpoint};
