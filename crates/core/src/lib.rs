//! The ground floor of Rushlight: what every backend and every front agrees on.

mod dtype;
mod error;

pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use half;
