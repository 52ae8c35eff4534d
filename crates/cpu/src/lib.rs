//! The CPU engine: kernels compiled per instruction set, one thread pool, a caching allocator, behind [`backend`].

// NaN is tested by comparisons that stay without branches.
#![allow(clippy::eq_op, clippy::neg_cmp_op_on_partial_ord)]
// Constants are written as published.
#![allow(clippy::excessive_precision)]
// A kernel names the instruction set it is compiled for, used or not, and closures would not inherit its features.
#![allow(clippy::extra_unused_type_parameters, clippy::manual_map)]

pub mod alloc;
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub mod amx;
pub mod attention;
mod backend;
pub mod batch_norm;
pub mod complex;
mod composed;
pub mod conv;
pub mod copy;
pub mod cross_entropy;
pub mod distance;
mod engine;
pub mod fft;
pub mod flip;
mod float;
pub mod gather;
pub mod gemm;
pub mod histogram;
pub mod index;
mod index_add;
pub mod isa;
pub mod lane;
pub mod linalg;
pub mod lstm;
mod normal;
mod pad;
pub mod pointwise;
pub mod pool;
pub mod pool2d;
mod product;
pub mod random;
pub mod reduce;
pub mod resample;
pub mod row_norm;
pub mod scan;
mod simd;
pub mod softmax;
pub mod sort;
// Where a tool compiles the library as a test: those of its modules that have tests inside share this with
// `tests/unit`.
#[cfg(test)]
#[allow(unused)]
#[path = "../tests/unit/testing/mod.rs"]
mod testing;
pub mod update;

pub use backend::backend;
pub use composed::composed;
pub use engine::ENGINE;
