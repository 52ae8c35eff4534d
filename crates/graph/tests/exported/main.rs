//! Programs: TorchScript archives by PyTorch, `.rlm` files, hostile files.

mod device;
mod library;
mod onnx;
mod onnx_out;
mod pt2;
mod rlm;
mod rust;
mod torchscript;
mod torchscript_out;

use std::path::PathBuf;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/script")
}
