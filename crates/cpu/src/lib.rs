//! The CPU engine.

pub mod gemm;
pub mod isa;
pub mod pool;
