//! The CPU engine.

pub mod alloc;
pub mod isa;
pub mod lane;
pub mod pool;
pub mod reduce;
#[cfg(test)]
mod testing;
