//! Every op, dtype and level against plain formulas; every kind of operand.

mod operands;
mod ops;
