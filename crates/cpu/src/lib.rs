//! The CPU engine.

pub mod copy;
pub mod isa;
pub mod lane;
pub mod pointwise;
pub mod pool;
pub mod random;
