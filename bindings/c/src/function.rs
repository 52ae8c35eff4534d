//! Functions whose backward the caller writes.

use crate::autograd::Context as Held;
use crate::handle::{all, borrow, give, put, rl_tensor, take};
use crate::status::{self, rl_status, text};
use crate::tensor::rl_deleter;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{self, Context, Function};
use std::ffi::{c_char, c_void};
use std::sync::Mutex;

/// A forward pass in progress: what it saves and returns.
#[derive(Default)]
pub struct rl_frame {
    saved: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

/// Computes outputs: reports them, and what backward needs, to the frame. Its ops are not recorded.
pub type rl_forward = Option<unsafe extern "C" fn(context: *mut c_void, frame: *mut rl_frame) -> rl_status>;

/// Computes one gradient per input (null is zero) from one per output (null is zero) and the saved tensors.
pub type rl_backward_function = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        saved: *const *mut rl_tensor,
        saved_count: usize,
        gradients: *const *mut rl_tensor,
        gradients_count: usize,
        found: *mut *mut rl_tensor,
        inputs_count: usize,
    ) -> rl_status,
>;

struct Custom {
    name: &'static str,
    forward: unsafe extern "C" fn(*mut c_void, *mut rl_frame) -> rl_status,
    backward: unsafe extern "C" fn(
        *mut c_void,
        *const *mut rl_tensor,
        usize,
        *const *mut rl_tensor,
        usize,
        *mut *mut rl_tensor,
        usize,
    ) -> rl_status,
    held: Held,
    inputs: usize,
}

/// References that are freed together.
struct Handles(Vec<*mut rl_tensor>);

impl Drop for Handles {
    fn drop(&mut self) {
        for &handle in self.0.iter().filter(|h| !h.is_null()) {
            // SAFETY: made by `give`, or by the callback as a reference of its own.
            drop(unsafe { take(handle) });
        }
    }
}

impl Function for Custom {
    fn forward(&self, ctx: &mut Context, _inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut frame = rl_frame::default();
        // SAFETY: the callback with its context.
        match unsafe { (self.forward)(self.held.context, &mut frame) } {
            0 => {
                ctx.save_for_backward(&frame.saved.iter().collect::<Vec<_>>());
                Ok(frame.outputs)
            }
            code => Err(status::reported(code)),
        }
    }

    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let saved = Handles(saved.iter().cloned().map(give).collect());
        let grads = Handles(grads.iter().map(|g| g.clone().map_or(std::ptr::null_mut(), give)).collect());
        let mut found = Handles(vec![std::ptr::null_mut(); self.inputs]);
        // SAFETY: the callback with its context, and arrays of these lengths.
        let code = unsafe {
            let (saved, grads) = (&saved.0, &grads.0);
            let out = found.0.as_mut_ptr();
            (self.backward)(
                self.held.context,
                saved.as_ptr(),
                saved.len(),
                grads.as_ptr(),
                grads.len(),
                out,
                self.inputs,
            )
        };
        if code != 0 {
            return Err(status::reported(code));
        }
        let handles = std::mem::take(&mut found.0);
        // SAFETY: references that the callback has made.
        Ok(handles.into_iter().map(|h| (!h.is_null()).then(|| unsafe { take(h) })).collect())
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

/// Names of functions are leaked; a program has few.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = lock(&NAMES);
    match names.iter().find(|n| **n == name) {
        Some(known) => known,
        None => {
            let new: &'static str = Box::leak(name.to_string().into_boxed_str());
            names.push(new);
            new
        }
    }
}

api! {
    /// Runs `forward` and records it with `backward`; returns its outputs, which rl_value_free frees. `free` is called
    /// with `context` when the graph is.
    fn rl_function_apply(
        name: *const c_char, inputs: *const *mut rl_tensor, count: usize, forward: rl_forward,
        backward: rl_backward_function, context: *mut c_void, free: rl_deleter, out: *mut crate::values::rl_value,
    ) -> rl_status, try {
        let held = Held { context, free };
        // SAFETY: a string and an array of handles, as the header says.
        let (name, inputs) = unsafe { (intern(text(name, "the function's name")?), all(inputs, count)?) };
        let (Some(forward), Some(backward)) = (forward, backward) else {
            return Err(Error::value("function_apply: forward and backward must not be null"));
        };
        let function = Custom { name, forward, backward, held, inputs: count };
        let outputs = autograd::apply(function, &inputs.iter().collect::<Vec<_>>())?;
        // SAFETY: a place for the result.
        unsafe { put(out, crate::call::tensors(outputs)) }
    }
    /// Keeps a tensor for backward. In-place changes until then make backward an error.
    fn rl_frame_save(frame: *mut rl_frame, tensor: *const rl_tensor) -> rl_status, try {
        // SAFETY: the frame that `forward` was called with.
        let frame = unsafe { frame.as_mut() }.ok_or_else(|| Error::value("the frame is null"))?;
        // SAFETY: a live handle.
        frame.saved.push(unsafe { borrow(tensor)? }.clone());
        Ok(())
    }
    /// Adds an output.
    fn rl_frame_return(frame: *mut rl_frame, tensor: *const rl_tensor) -> rl_status, try {
        // SAFETY: as above.
        let frame = unsafe { frame.as_mut() }.ok_or_else(|| Error::value("the frame is null"))?;
        // SAFETY: as above.
        frame.outputs.push(unsafe { borrow(tensor)? }.clone());
        Ok(())
    }
}
