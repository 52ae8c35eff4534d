//! Every op, dtype and level against plain formulas; every kind of operand.

#[allow(unused, clippy::all)]
#[path = "../../src/pointwise/convert.rs"]
mod convert;
mod operands;
mod ops;
#[allow(unused, clippy::all)]
#[path = "../../src/pointwise/walk.rs"]
mod walk;
