//! The CPU engine.

pub mod alloc;
pub mod isa;
pub mod lane;
pub mod pool;
