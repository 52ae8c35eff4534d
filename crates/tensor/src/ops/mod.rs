//! Every op: its shape rule, dtype rule and derivative, by family.

mod cast;
pub(crate) mod conv;
pub(crate) mod create;
pub(crate) mod einsum;
pub(crate) mod join;
pub(crate) mod linalg;
pub(crate) mod math;
mod matmul;
mod operators;
pub(crate) mod pointwise;
pub(crate) mod pool;
mod random;
mod reduce;
pub(crate) mod sizes;
mod softmax;
mod sort;
pub(crate) mod view;
