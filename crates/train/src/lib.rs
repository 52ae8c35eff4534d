//! Training runs: checkpoints that lose nothing.

mod checkpoint;

pub use checkpoint::{Checkpoints, CheckpointsBuilder, Position, Restored};
