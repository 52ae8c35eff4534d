//! Recording and differentiation.

use crate::handle::{all, borrow, give, optional, put, rl_tensor, slice};
use crate::status::{self, rl_status};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{self, Backward};
use std::ffi::{CString, c_char, c_void};

/// Called with a gradient; `*replacement` may be set to a reference that takes its place.
pub type rl_hook = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        gradient: *const rl_tensor,
        replacement: *mut *mut rl_tensor,
    ) -> rl_status,
>;

/// A callback's context, freed with the callback.
pub struct Context {
    pub context: *mut c_void,
    pub free: crate::tensor::rl_deleter,
}

// SAFETY: the context is only passed to callbacks, which the header requires to be callable from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The context; a closure that calls this holds the whole callback.
    pub fn context(&self) -> *mut c_void {
        self.context
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: once, with the context it was given with.
            unsafe { free(self.context) }
        }
    }
}

/// Several outputs with their gradients as one root: the sum of their products has the same derivatives.
fn root(outputs: &[Tensor], gradients: &[Option<Tensor>]) -> Result<Tensor> {
    let mut total: Option<Tensor> = None;
    for (i, output) in outputs.iter().enumerate() {
        let part = match gradients.get(i).and_then(Option::as_ref) {
            Some(g) if g.shape() != output.shape() => {
                return Err(Error::shape(format!(
                    "Mismatch in shape: grad_output[{i}] has a shape of {:?} and output[{i}] has a shape of {:?}.",
                    g.shape(),
                    output.shape()
                )));
            }
            Some(g) => output.mul(g)?.sum(..)?,
            None if output.numel() != 1 => {
                return Err(Error::autograd("grad can be implicitly created only for scalar outputs"));
            }
            None => output.sum(..)?,
        };
        total = Some(match total {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    total.ok_or_else(|| Error::value("grad requires non-empty inputs."))
}

/// The root and the options of a backward pass.
fn prepare(outputs: &[Tensor], gradients: &[Option<Tensor>], mut options: Backward) -> Result<(Tensor, Backward)> {
    let root = match (outputs, gradients) {
        ([one], [] | [None]) => one.clone(),
        ([one], [Some(gradient)]) => {
            options = options.gradient(gradient);
            one.clone()
        }
        _ => root(outputs, gradients)?,
    };
    Ok((root, options))
}

fn options(retain_graph: i32, create_graph: bool) -> Backward {
    let options = Backward::default().create_graph(create_graph);
    if retain_graph < 0 { options } else { options.retain_graph(retain_graph != 0) }
}

api! {
    /// Whether this thread records ops.
    fn rl_grad_enabled() -> bool, (false) {
        autograd::is_grad_enabled()
    }
    /// Turns recording of this thread on or off; returns the previous state.
    fn rl_set_grad_enabled(enabled: bool) -> bool, (false) {
        let before = autograd::is_grad_enabled();
        // The caller restores the state.
        std::mem::forget(autograd::set_grad_enabled(enabled));
        before
    }
    /// Whether a backward pass checks for numbers that are not a number.
    fn rl_detect_anomaly() -> bool, (false) {
        autograd::is_anomaly_enabled()
    }
    /// Turns that check on or off for the whole process; the error names the op. Returns the previous state.
    fn rl_set_detect_anomaly(enabled: bool) -> bool, (false) {
        let before = autograd::is_anomaly_enabled();
        autograd::set_detect_anomaly(enabled);
        before
    }
    /// Turns inference mode of this thread on or off; returns the previous state.
    fn rl_set_inference_mode(enabled: bool) -> bool, (false) {
        let before = autograd::is_inference_mode_enabled();
        // As above.
        std::mem::forget(autograd::set_inference_mode(enabled));
        before
    }
    /// Whether ops on the tensor are recorded.
    fn rl_tensor_requires_grad(tensor: *const rl_tensor) -> bool, (false) {
        // SAFETY: null or a live handle.
        unsafe { borrow(tensor) }.is_ok_and(|t| t.requires_grad())
    }
    /// Sets whether ops on a leaf are recorded.
    fn rl_tensor_set_requires_grad(tensor: *const rl_tensor, requires_grad: bool) -> rl_status, try {
        // SAFETY: as above.
        unsafe { borrow(tensor)? }.clone().requires_grad_(requires_grad).map(drop)
    }
    /// Whether the tensor was not computed by a recorded op.
    fn rl_tensor_is_leaf(tensor: *const rl_tensor) -> bool, (true) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.map_or(true, |t| t.is_leaf())
    }
    /// The name of the recorded op that made the tensor, or null; rl_string_free frees it.
    fn rl_tensor_grad_fn(tensor: *const rl_tensor) -> *mut c_char, (std::ptr::null_mut()) {
        // SAFETY: as above.
        let name = unsafe { borrow(tensor) }.ok().and_then(|t| t.grad_fn());
        name.map_or(std::ptr::null_mut(), |name| CString::new(name).unwrap_or_default().into_raw())
    }
    /// The gradient, or null; a new reference.
    fn rl_tensor_grad(tensor: *const rl_tensor) -> *mut rl_tensor, (std::ptr::null_mut()) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.ok().and_then(|t| t.grad()).map_or(std::ptr::null_mut(), give)
    }
    /// Sets the gradient; null clears it.
    fn rl_tensor_set_grad(tensor: *const rl_tensor, grad: *const rl_tensor) -> rl_status, try {
        // SAFETY: as above.
        unsafe { borrow(tensor)?.set_grad(optional(grad)) }
    }
    /// Keeps the gradient of a tensor that is not a leaf.
    fn rl_tensor_retain_grad(tensor: *const rl_tensor) -> rl_status, try {
        // SAFETY: as above.
        unsafe { borrow(tensor)? }.retain_grad()
    }
    /// Clears the gradients of tensors.
    fn rl_zero_grad(tensors: *const *mut rl_tensor, count: usize) -> rl_status, try {
        // SAFETY: an array of live handles.
        unsafe { slice(tensors, count).iter().try_for_each(|&t| borrow(t).map(|t| t.zero_grad())) }
    }
    /// The same memory without history.
    fn rl_tensor_detach(tensor: *const rl_tensor, out: *mut *mut rl_tensor) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, give(borrow(tensor)?.detach())) }
    }
    /// The same memory without history and without a count of changes: Python's `.data`.
    fn rl_tensor_untracked(tensor: *const rl_tensor, out: *mut *mut rl_tensor) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, give(borrow(tensor)?.data())) }
    }
    /// Adds the gradients of `outputs` to the leaves they depend on, or only to `inputs` if there are any. `gradients`
    /// is null or has one for each output, which may be null. `retain_graph` is -1 for the default, as `create_graph`
    /// says.
    fn rl_backward(
        outputs: *const *mut rl_tensor, count: usize, gradients: *const *mut rl_tensor, retain_graph: i32,
        create_graph: bool, inputs: *const *mut rl_tensor, inputs_count: usize,
    ) -> rl_status, try {
        // SAFETY: arrays of handles, as the header says.
        let (outputs, inputs) = unsafe { (all(outputs, count)?, all(inputs, inputs_count)?) };
        let count = if gradients.is_null() { 0 } else { count };
        // SAFETY: as above.
        let gradients: Vec<_> = unsafe { slice(gradients, count).iter().map(|&g| optional(g)).collect() };
        let _recording = autograd::set_grad_enabled(true);
        let (root, options) = prepare(&outputs, &gradients, options(retain_graph, create_graph))?;
        if inputs.is_empty() {
            return root.backward_with(options);
        }
        let found = autograd::grad(&[&root], &inputs.iter().collect::<Vec<_>>(), options.allow_unused(true))?;
        for (input, gradient) in inputs.iter().zip(found) {
            let Some(gradient) = gradient else { continue };
            let sum = match input.grad() {
                Some(old) => old.add(&gradient)?,
                None => gradient,
            };
            input.set_grad(Some(sum))?;
        }
        Ok(())
    }
    /// The gradients of `outputs` by `inputs`, written to `found`; null for those that are not used.
    fn rl_grad(
        outputs: *const *mut rl_tensor, count: usize, inputs: *const *mut rl_tensor, inputs_count: usize,
        gradients: *const *mut rl_tensor, retain_graph: i32, create_graph: bool, allow_unused: bool,
        found: *mut *mut rl_tensor,
    ) -> rl_status, try {
        // SAFETY: as above.
        let (outputs, inputs) = unsafe { (all(outputs, count)?, all(inputs, inputs_count)?) };
        let count = if gradients.is_null() { 0 } else { count };
        // SAFETY: as above.
        let gradients: Vec<_> = unsafe { slice(gradients, count).iter().map(|&g| optional(g)).collect() };
        let _recording = autograd::set_grad_enabled(true);
        let options = options(retain_graph, create_graph).allow_unused(allow_unused);
        let (root, options) = prepare(&outputs, &gradients, options)?;
        let grads = autograd::grad(&[&root], &inputs.iter().collect::<Vec<_>>(), options)?;
        for (at, gradient) in grads.into_iter().enumerate() {
            // SAFETY: a place for as many as there are inputs.
            unsafe { put(found.add(at), gradient.map_or(std::ptr::null_mut(), give))? };
        }
        Ok(())
    }
    /// Calls `hook` when the tensor's gradient is computed. `free` is called with `context` when the hook is dropped.
    fn rl_tensor_register_hook(
        tensor: *const rl_tensor, hook: rl_hook, context: *mut c_void, free: crate::tensor::rl_deleter,
    ) -> rl_status, try {
        let held = Context { context, free };
        let hook = hook.ok_or_else(|| Error::value("register_hook: the hook is null"))?;
        // SAFETY: as above.
        let tensor = unsafe { borrow(tensor)? };
        tensor.register_hook(move |gradient| {
            let held = &held;
            let (handle, mut replacement) = (give(gradient.clone()), std::ptr::null_mut());
            // SAFETY: the callback and its context, which the header requires to be callable from any thread; the
            // reference is given for the call and taken back.
            unsafe {
                let code = hook(held.context, handle, &mut replacement);
                drop(crate::handle::take(handle));
                match code {
                    0 if replacement.is_null() => Ok(None),
                    0 => Ok(Some(crate::handle::take(replacement))),
                    code => Err(status::reported(code)),
                }
            }
        })?;
        Ok(())
    }
}
