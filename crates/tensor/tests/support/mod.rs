//! PyTorch's recorded answers (`tests/goldens`) as cases that can be run, differentiated and abused.
// Each test binary uses a part of it.
#![allow(dead_code, unused_imports)]

pub mod args;
pub mod data;
pub mod ops;
pub mod run;

pub use args::{Args, Item};
pub use data::{Case, load};
