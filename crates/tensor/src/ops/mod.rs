//! Every op: its shape rule, dtype rule and derivative, by family.

pub(crate) mod attention;
pub(crate) mod batch_norm;
mod cast;
pub(crate) mod conv;
pub(crate) mod create;
pub(crate) mod cross_entropy;
mod distance;
pub(crate) mod einsum;
pub(crate) mod interpolate;
pub(crate) mod join;
pub(crate) mod loss;
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
