//! The CPU engine.

mod float;
pub mod isa;
pub mod pool;
pub mod row_norm;
mod simd;
pub mod softmax;
