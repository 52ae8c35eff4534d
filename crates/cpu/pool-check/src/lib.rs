//! The engine's thread pool alone, for tools that could not take the whole engine. `scripts/sanitize threads` runs
//! them.

// The engine uses more of it.
#![allow(dead_code)]

#[path = "../../src/pool/mod.rs"]
pub mod pool;
