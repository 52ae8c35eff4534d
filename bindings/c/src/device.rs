//! Devices, seeds, threads, versions.

use crate::handle::put;
use crate::status::{self, rl_status, text};
use crate::{ABI_VERSION, dtype};
use rushlight_core::{Device, Error, Result};
use rushlight_tensor::Tensor;
use std::ffi::c_char;

/// The device of new tensors for which none is given.
pub fn default() -> Device {
    Device::Cpu
}

/// A copy of a tensor in pinned memory; unchanged without an accelerator, or if it copies from any memory.
pub fn pinned(tensor: &Tensor) -> Result<Tensor> {
    let pins = rushlight_engines::accelerator().is_some_and(|engine| engine.pinned_memory().is_some());
    if tensor.device().is_cpu() && !pins { Ok(tensor.clone()) } else { tensor.pin_memory() }
}

/// Numbers of the kinds of devices, which are PyTorch's.
pub const CPU: i32 = 0;
pub const CUDA: i32 = 1;
pub const XPU: i32 = 12;
pub const META: i32 = 14;

/// A device by the number of its kind and its index.
pub fn of(kind: i32, index: usize) -> Result<Device> {
    match kind {
        CPU => Ok(Device::Cpu),
        CUDA => Ok(Device::Cuda(index)),
        XPU => Ok(Device::Xpu(index)),
        META => Ok(Device::Meta),
        _ => Err(Error::device(format!("device type {kind} is not supported; use CPU, CUDA, XPU or Meta"))),
    }
}

/// The number of a device's kind.
pub fn number(device: Device) -> i32 {
    match device {
        Device::Cpu => CPU,
        Device::Cuda(_) => CUDA,
        Device::Xpu(_) => XPU,
        Device::Meta => META,
    }
}

api! {
    /// The version of the library, for example "0.1.0".
    fn rl_version() -> *const c_char, (std::ptr::null()) {
        concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
    }
    /// The version of this interface; a program compares it with RL_ABI_VERSION.
    fn rl_abi_version() -> u32, (0) {
        ABI_VERSION
    }
    /// The text of this thread's last error, valid until its next one.
    fn rl_last_error() -> *const c_char, (std::ptr::null()) {
        status::message()
    }
    /// Sets this thread's error text, for callbacks that return a status other than RL_OK.
    fn rl_set_error(message: *const c_char) -> (), (()) {
        // SAFETY: a string, as the header says.
        status::set_message(unsafe { text(message, "the message") }.unwrap_or("a message that is not UTF-8"));
    }
    /// The number of devices of a kind (RL_CPU, RL_CUDA, RL_XPU).
    fn rl_device_count(kind: i32) -> usize, (0) {
        let mut engines = rushlight_engines::accelerators();
        match kind {
            CPU => 1,
            _ => engines.find(|e| number(e.device(0)) == kind).and_then(|e| e.count().ok()).unwrap_or(0),
        }
    }
    /// Waits for all work of a device.
    fn rl_synchronize(kind: i32, index: usize) -> rl_status, try {
        rushlight_tensor::synchronize(&of(kind, index)?)
    }
    /// Seeds the generators of all devices.
    fn rl_manual_seed(seed: u64) -> (), (()) {
        rushlight_core::rng::manual_seed(seed);
    }
    /// The number of threads that ops use.
    fn rl_num_threads() -> usize, (0) {
        rushlight_cpu::pool::num_threads()
    }
    /// Sets the number of threads that ops use.
    fn rl_set_num_threads(threads: usize) -> rl_status, try {
        if threads == 0 {
            return Err(Error::value("expected a positive number of threads"));
        }
        rushlight_cpu::pool::set_num_threads(threads);
        Ok(())
    }
    /// The dtype of new tensors for which none is given.
    fn rl_default_dtype() -> i32, (0) {
        dtype::number(dtype::default())
    }
    /// Sets the dtype of new tensors for which none is given.
    fn rl_set_default_dtype(dtype: i32) -> rl_status, try {
        dtype::set_default(dtype::of(dtype)?)
    }
    /// Bytes of an element of a dtype.
    fn rl_dtype_size(dtype: i32, out: *mut usize) -> rl_status, try {
        // SAFETY: a place for the result, as the header says.
        unsafe { put(out, dtype::of(dtype)?.size()) }
    }
}
