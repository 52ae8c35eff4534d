//! Op names to calls of our API, by family.

mod activation;
mod attention;
mod binary;
mod conv;
mod creation;
mod index;
mod linalg;
mod loss;
mod matmul;
mod norm;
mod order;
mod pointwise;
mod pool;
mod reduce;
mod resize;
mod shape;
mod ternary;

use super::args::Args;
use rushlight_core::Result;
use rushlight_tensor::Tensor;

/// A call with recorded arguments.
pub type Op = fn(&Args) -> Result<Vec<Tensor>>;

const TABLES: &[&[(&str, Op)]] = &[
    activation::OPS,
    attention::OPS,
    binary::OPS,
    conv::OPS,
    creation::OPS,
    index::OPS,
    linalg::OPS,
    loss::OPS,
    matmul::OPS,
    norm::OPS,
    order::OPS,
    pointwise::OPS,
    pool::OPS,
    reduce::OPS,
    resize::OPS,
    shape::OPS,
    ternary::OPS,
];

/// The call behind a name.
pub fn find(name: &str) -> Option<Op> {
    all().find(|(n, _)| *n == name).map(|(_, op)| op)
}

/// Every name with its call.
pub fn all() -> impl Iterator<Item = (&'static str, Op)> {
    TABLES.iter().flat_map(|table| table.iter().copied())
}

/// Results of our ops, as a list.
pub trait Outputs {
    fn list(self) -> Vec<Tensor>;
}

impl Outputs for Tensor {
    fn list(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Outputs for (Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

impl Outputs for (Tensor, Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2]
    }
}

impl Outputs for Vec<Tensor> {
    fn list(self) -> Vec<Tensor> {
        self
    }
}

/// A dispatch table: `name => |args| call;`.
macro_rules! ops {
    ($($name:literal => |$a:ident| $call:expr;)*) => {
        pub const OPS: &[(&str, super::Op)] = &[$(($name, |$a| Ok(super::Outputs::list({ $call }?)))),*];
    };
}
pub(crate) use ops;
