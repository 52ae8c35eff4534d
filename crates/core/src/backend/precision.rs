//! Whether engines may compute `f32` products with reduced precision. Process-wide settings, as in PyTorch.

use crate::sync::Seldom;
use std::cell::Cell;
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

static RECURRENT: Seldom<bool> = Seldom::new(false, &OWN_RECURRENT);

thread_local! {
    static OWN_RECURRENT: Cell<bool> = const { Cell::new(false) };
}

/// Whether `f32` matrix products may round their inputs to TF32 (ten bits). Off by default. Within a recurrent layer
/// ([`in_recurrent_layer`]) the switch of convolutions allows it as well.
pub fn allow_tf32() -> bool {
    PRODUCTS.get() || RECURRENT.get() && CONVOLUTIONS.get()
}

/// Lets `f32` matrix products round their inputs to TF32, or not.
pub fn set_allow_tf32(allow: bool) {
    PRODUCTS.set(allow);
}

/// Whether `f32` convolutions and recurrent layers may round their inputs to TF32. On by default.
pub fn allow_tf32_conv() -> bool {
    CONVOLUTIONS.get()
}

/// Lets `f32` convolutions and recurrent layers round their inputs to TF32, or not.
pub fn set_allow_tf32_conv(allow: bool) {
    CONVOLUTIONS.set(allow);
}

/// Runs `f`, whose products on this thread are those of a recurrent layer: PyTorch computes these by the library of the
/// convolutions, so one switch covers both. Autograd runs the backward of ops recorded by `f` the same way.
pub fn in_recurrent_layer<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECURRENT.set(self.0);
        }
    }
    let _restore = Restore(RECURRENT.replace(true));
    f()
}

/// Whether this thread is within [`in_recurrent_layer`].
pub fn is_in_recurrent_layer() -> bool {
    RECURRENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurrent_layers_follow_the_switch_of_convolutions() {
        assert!(allow_tf32_conv() && !allow_tf32());
        in_recurrent_layer(|| {
            assert!(allow_tf32());
            in_recurrent_layer(|| assert!(is_in_recurrent_layer()));
            assert!(is_in_recurrent_layer());
            set_allow_tf32_conv(false);
            assert!(!allow_tf32());
            set_allow_tf32_conv(true);
        });
        assert!(!is_in_recurrent_layer() && !allow_tf32());
        let panicked = std::panic::catch_unwind(|| in_recurrent_layer(|| panic!("within")));
        assert!(panicked.is_err() && !is_in_recurrent_layer());
    }
}
