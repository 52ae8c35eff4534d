//! The CPU engine.

pub mod batch_norm;
pub mod cross_entropy;
mod float;
pub mod isa;
pub mod pool;
pub mod row_norm;
mod simd;
pub mod softmax;
