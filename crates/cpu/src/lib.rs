//! The CPU engine.

pub mod isa;
pub mod pool;
