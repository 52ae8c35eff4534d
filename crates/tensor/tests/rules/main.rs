//! Rules of tensors beyond PyTorch's recorded answers: the tape, views, text, autocast, and ops case by case.

mod amp;
mod autograd;
mod autograd_functions;
mod carried;
mod display;
mod factors;
mod functional;
mod indexing;
mod kernels;
mod meta;
mod model;
mod operators;
mod product;
mod program;
mod property;
mod reduction;
mod sampling;
mod views;

use std::sync::{Mutex, MutexGuard};

/// Tests that draw from the default generator take turns, because it is process-wide.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}
