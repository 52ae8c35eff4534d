//! The base layer of Rushlight: types and traits shared by all engines and front ends.
//!
//! | module | what |
//! |---|---|
//! | `dtype`, `device`, `scalar`, `error` | the basic types |
//! | [`float8`] | conversion of 8-bit floats |
//! | [`log`] | warnings and messages: the program's logger, or the standard error stream |
//! | [`sync`] | locks |
//! | `layout` | shapes, strides, views, broadcasting, merged loop nests |
//! | [`rng`] | the counter-based random generator |
//! | [`rows`] | one row per pointwise op: value and derivatives, for every engine |
//! | [`backend`] | storage, engine calls as values, and the trait an engine implements |
//! | [`program`] | the calls of a recorded step, over numbered buffers |
//! | `setters` | the macro that declares setters of builders and options |

pub mod backend;
mod device;
mod dtype;
mod error;
pub mod float8;
pub mod layout;
pub mod log;
pub mod program;
pub mod rng;
pub mod rows;
mod scalar;
mod setters;
pub mod sync;

pub use backend::{Backend, Operand, Storage, View};
pub use device::Device;
pub use dtype::{DType, Element, Truth};
pub use error::{Error, ErrorKind, Result};
pub use half;
pub use layout::{Dims, Layout};
pub use rng::{Generator, Philox};
pub use rows::Pointwise;
pub use scalar::Scalar;
pub use smallvec;
