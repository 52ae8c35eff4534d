//! Rules of tensors beyond PyTorch's recorded answers: the tape, views, text, autocast, and ops case by case.

mod amp;
mod autograd;
mod autograd_functions;
mod bisect;
mod carried;
mod compile;
mod complex;
mod display;
mod factors;
mod functional;
mod fusion;
mod gpu_fusion;
mod indexing;
mod kernels;
mod meta;
mod model;
// Its unit tests run here; the rest of it is unused: the library is not compiled as a test.
#[allow(dead_code)]
#[path = "../../src/ops/number.rs"]
mod number;
mod operators;
mod product;
mod program;
mod property;
mod recordings;
mod reduction;
mod regions;
mod sampling;
mod views;

use rushlight_core::sync::lock;
use std::sync::{Mutex, MutexGuard};

/// Tests that draw from the default generator take turns, because it is process-wide.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lock(&TURN)
}
