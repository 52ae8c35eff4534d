//! Every op: its shape rule, dtype rule and derivative, by family.

mod cast;
pub(crate) mod create;
pub(crate) mod join;
pub(crate) mod math;
mod operators;
pub(crate) mod pointwise;
mod random;
mod reduce;
mod sort;
pub(crate) mod view;
