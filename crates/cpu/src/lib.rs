//! The CPU engine.

pub mod isa;
pub mod lane;
pub mod pointwise;
pub mod pool;
