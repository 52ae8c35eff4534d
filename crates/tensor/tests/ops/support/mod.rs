//! PyTorch's recorded answers (`tests/goldens`) as cases that can be run, differentiated and abused.

pub mod args;
pub mod data;
pub mod ops;
pub mod run;

pub use args::{Args, Item};
pub use data::{Case, load};
