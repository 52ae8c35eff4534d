//! The CPU engine.

pub mod conv;
pub mod gemm;
pub mod alloc;
pub mod batch_norm;
pub mod cross_entropy;
mod float;
pub mod isa;
pub mod linalg;
pub mod lane;
pub mod pointwise;
pub mod pool;

/// x
pub fn backend() -> &'static dyn rushlight_core::Backend {
    todo!()
}
pub mod reduce;
#[cfg(test)]
mod testing;
pub mod row_norm;
mod simd;
pub mod softmax;
