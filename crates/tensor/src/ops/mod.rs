//! Every op: its shape rule, dtype rule and derivative, by family.

pub(crate) mod batch_norm;
mod cast;
pub(crate) mod conv;
pub(crate) mod create;
mod distance;
pub(crate) mod einsum;
pub(crate) mod join;
pub(crate) mod math;
mod matmul;
mod norm;
mod operators;
pub(crate) mod pointwise;
pub(crate) mod pool;
mod random;
mod reduce;
pub(crate) mod sizes;
mod softmax;
mod sort;
pub(crate) mod view;
