//! Every op: its shape rule, dtype rule and derivative, by family.

mod cast;
pub(crate) mod create;
mod extremum;
pub(crate) mod gather;
mod index;
pub(crate) mod indexing;
pub(crate) mod join;
mod mask;
pub(crate) mod math;
mod operators;
pub(crate) mod pad;
pub(crate) mod pointwise;
mod random;
pub(crate) mod rearrange;
mod reduce;
mod scan;
pub(crate) mod search;
mod sort;
mod statistics;
pub(crate) mod view;
