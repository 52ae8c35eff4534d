//! Captured steps, streams and memory of a device. `RUSHLIGHT_TEST_DEVICE=cuda` runs them on a GPU; on the CPU the same
//! programs must give the same.

mod capture;
mod first_use;
mod memory;
mod recurrent;
mod streams;

use rushlight::prelude::*;
use rushlight_core::sync::lock;
use std::sync::{Mutex, MutexGuard};

/// Tests take turns: the default generator is the process's.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lock(&TURN)
}

/// The device to test on: `RUSHLIGHT_TEST_DEVICE`, else the CPU. Panics if the named device is missing.
fn device() -> Device {
    let name = std::env::var("RUSHLIGHT_TEST_DEVICE").unwrap_or("cpu".into());
    let device = name.parse().expect("RUSHLIGHT_TEST_DEVICE names a device");
    match Tensor::zeros_with([1], device) {
        Ok(_) => device,
        Err(e) => panic!("RUSHLIGHT_TEST_DEVICE={name}: {e}"),
    }
}
