//! The CPU engine.

pub mod conv;
pub mod gemm;
pub mod isa;
pub mod pool;
