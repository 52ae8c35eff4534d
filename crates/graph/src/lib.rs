//! Models that leave their source: programs of PyTorch's ops, run without the code that made them.
//!
//! | module | what |
//! |---|---|
//! | [`script`] | the language: a subset of Python, as TorchScript archives have it |
//! | [`ops`] | the ops a program may call: the table of the Python and C fronts, under aten's names too |
//! | [`Model`] | a program with its weights: `.rlm` files, TorchScript and `torch.export` archives, ONNX files |
//! | [`export()`], [`Export`] | programs of Rust modules |
//! | [`onnx`] | ONNX files |
//! | [`Model::save_torchscript`] | TorchScript archives, for PyTorch |
//! | [`library`] | ops that the host program has registered |
//!
//! A program can call the ops of the table, those that the host has registered, and nothing else: it has no files, no
//! network, no Python. A hostile file gives an error, at worst a long computation.

mod device;
mod dispatch;
mod draw;
mod dtype;
mod error;
mod export;
mod freeze;
mod inline;
mod interpret;
mod ivalue;
pub mod library;
mod model;
pub mod onnx;
pub mod ops;
mod params;
mod pt2;
mod recorded;
mod rows;
pub mod script;
mod torchscript;
mod unit;
// Generators of random numbers and names of results are Python's.
#[allow(dead_code)]
mod value;

pub use export::{Export, Outputs, export};
pub use ivalue::{IValue, Object};
pub use model::{Model, extra_files};
pub use unit::Unit;

/// PyTorch's `torch.jit`: reading archives of traced and scripted modules.
pub mod jit {
    use crate::Model;
    use rushlight_core::Result;
    use std::path::Path;

    /// Reads an archive written by `torch.jit.save`, or a `.rlm` file.
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        Model::load(path)
    }
}
