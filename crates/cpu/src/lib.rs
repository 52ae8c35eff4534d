//! The CPU engine.

pub mod attention;
pub mod batch_norm;
pub mod cross_entropy;
mod float;
pub mod isa;
pub mod pool;
pub mod pool2d;
pub mod row_norm;
mod simd;
pub mod softmax;
#[cfg(test)]
mod testing;
