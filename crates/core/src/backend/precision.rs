//! Whether engines may compute `f32` products with reduced precision. Process-wide settings, as in PyTorch.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A switch initialised from an environment variable.
struct Switch {
    /// 0 before the first use, 1 off, 2 on.
    state: AtomicU8,
    variable: &'static str,
    default: bool,
}

impl Switch {
    fn get(&self) -> bool {
        match self.state.load(Relaxed) {
            0 => {
                let on = match std::env::var(self.variable).as_deref() {
                    Ok("1") => true,
                    Ok("0") => false,
                    _ => self.default,
                };
                self.set(on);
                on
            }
            state => state == 2,
        }
    }

    fn set(&self, on: bool) {
        self.state.store(1 + on as u8, Relaxed);
    }
}

static PRODUCTS: Switch = Switch { state: AtomicU8::new(0), variable: "RUSHLIGHT_CUDA_TF32", default: false };
static CONVOLUTIONS: Switch = Switch { state: AtomicU8::new(0), variable: "RUSHLIGHT_CUDA_CONV_TF32", default: true };

/// Whether `f32` matrix products may round their inputs to TF32 (ten bits). Off by default.
pub fn allow_tf32() -> bool {
    PRODUCTS.get()
}

/// Lets `f32` matrix products round their inputs to TF32, or not.
pub fn set_allow_tf32(allow: bool) {
    PRODUCTS.set(allow);
}

/// Whether `f32` convolutions may round their inputs to TF32. On by default.
pub fn allow_tf32_conv() -> bool {
    CONVOLUTIONS.get()
}

/// Lets `f32` convolutions round their inputs to TF32, or not.
pub fn set_allow_tf32_conv(allow: bool) {
    CONVOLUTIONS.set(allow);
}
