//! The CPU engine: kernels compiled per instruction set, one thread pool, a caching allocator, behind [`backend`].

<<<<<<< HEAD
pub mod alloc;
<<<<<<< HEAD
pub mod attention;
mod backend;
pub mod batch_norm;
pub mod conv;
pub mod copy;
pub mod cross_entropy;
mod float;
pub mod gemm;
=======
pub mod copy;
>>>>>>> pointwise
=======
pub mod gather;
pub mod index;
>>>>>>> reduce
pub mod isa;
pub mod lane;
pub mod pointwise;
pub mod pool;
<<<<<<< HEAD
pub mod pool2d;
mod product;
pub mod random;
pub mod reduce;
<<<<<<< HEAD
pub mod row_norm;
mod simd;
pub mod softmax;
=======
pub mod scan;
pub mod sort;
>>>>>>> reduce
#[cfg(test)]
mod testing;

pub use backend::backend;
=======
pub mod random;
>>>>>>> pointwise
