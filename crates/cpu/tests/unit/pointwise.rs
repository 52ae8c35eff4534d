//! Every op, dtype and level against plain formulas; every kind of operand.

#[allow(unused)]
#[path = "../../src/pointwise/convert.rs"]
mod convert;
mod operands;
mod ops;
#[allow(unused)]
#[path = "../../src/pointwise/walk.rs"]
mod walk;
