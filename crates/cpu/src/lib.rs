//! The CPU engine.

pub mod alloc;
pub mod gather;
pub mod index;
pub mod isa;
pub mod lane;
pub mod pool;
pub mod reduce;
pub mod scan;
pub mod sort;
#[cfg(test)]
mod testing;
