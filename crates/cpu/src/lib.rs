//! The CPU engine.

pub mod conv;
pub mod isa;
pub mod pool;
