//! Training runs: checkpoints that lose nothing.
