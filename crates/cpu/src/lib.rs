//! The CPU engine.

mod float;
pub mod isa;
pub mod pool;
mod simd;
pub mod softmax;
