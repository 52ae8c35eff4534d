//! The CPU engine: kernels compiled per instruction set, one thread pool, a caching allocator, behind [`backend`].

pub mod alloc;
pub mod attention;
mod backend;
pub mod batch_norm;
pub mod conv;
pub mod copy;
pub mod cross_entropy;
mod float;
pub mod gather;
pub mod gemm;
pub mod index;
pub mod isa;
pub mod lane;
pub mod linalg;
pub mod pointwise;
pub mod pool;
pub mod pool2d;
mod product;
pub mod random;
pub mod reduce;
pub mod row_norm;
pub mod scan;
mod simd;
pub mod softmax;
pub mod sort;
#[cfg(test)]
mod testing;

pub use backend::backend;
