//! Ops of other libraries, by name: what `TORCH_LIBRARY` of the C++ headers registers.

use crate::autograd::Context as Held;
use crate::handle::put;
use crate::model::{argument, result};
use crate::object::rl_object;
use crate::status::{self, rl_status, text};
use crate::tensor::rl_deleter;
use rushlight_core::{Error, Result};
use rushlight_graph::library;
use rushlight_tensor::state::Value;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// Computes an op from its arguments in the order of its schema.
pub type rl_kernel = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        arguments: *const *mut rl_object,
        count: usize,
        out: *mut *mut rl_object,
    ) -> rl_status,
>;

/// Objects that are freed together.
struct Objects(Vec<*mut rl_object>);

impl Drop for Objects {
    fn drop(&mut self) {
        for &object in self.0.iter().filter(|o| !o.is_null()) {
            // SAFETY: made by `Box::into_raw`, here or by the callback through this interface.
            drop(unsafe { Box::from_raw(object) });
        }
    }
}

api! {
    /// Defines an op by its schema in PyTorch's words: "namespace::name(Tensor x, int n=1) -> Tensor". Python has it as
    /// torch.ops.namespace.name, and exported models may call it.
    fn rl_library_define(schema: *const c_char) -> rl_status, try {
        // SAFETY: a string, as the header says.
        library::define(unsafe { text(schema, "the schema")? })
    }
    /// Gives an op a kernel for a dispatch key: "CPU", "CUDA", "XPU", "Meta", "Autograd", "CompositeImplicitAutograd".
    /// `free` is called with `context` when the kernel is replaced.
    fn rl_library_implement(
        name: *const c_char, key: *const c_char, kernel: rl_kernel, context: *mut c_void, free: rl_deleter,
    ) -> rl_status, try {
        let held = Held { context, free };
        // SAFETY: strings, as the header says.
        let (name, key) = unsafe { (text(name, "the op's name")?, text(key, "the dispatch key")?) };
        let Some(kernel) = kernel else { return Err(Error::value("library_implement: the kernel is null")) };
        library::implement(name, key, Arc::new(move |values| {
            let mut arguments = Objects(Vec::with_capacity(values.len()));
            for value in &values {
                arguments.0.push(Box::into_raw(Box::new(rl_object(result(value, 0)?))));
            }
            let mut out = Objects(vec![std::ptr::null_mut()]);
            // SAFETY: the callback with its context, an array of this length, and a place for the result.
            match unsafe { kernel(held.context(), arguments.0.as_ptr(), arguments.0.len(), out.0.as_mut_ptr()) } {
                // SAFETY: null or an object that the callback has made.
                0 => unsafe { out.0[0].as_ref() }.map_or(Ok(rushlight_graph::IValue::None), |o| argument(&o.0, 0)),
                code => Err(status::reported(code)),
            }
        }))
    }
    /// The schema of an op; rl_string_free frees it. Null if there is none of that name.
    fn rl_library_schema(name: *const c_char) -> *mut c_char, (std::ptr::null_mut()) {
        // SAFETY: a string.
        let found = unsafe { text(name, "the op's name") }.ok().and_then(library::find);
        found.map_or(std::ptr::null_mut(), |op| CString::new(op.schema).unwrap_or_default().into_raw())
    }
    /// Calls an op with the entries of a list; rl_object_free frees the result.
    fn rl_library_call(name: *const c_char, arguments: *const rl_object, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: a string and a live object.
        let (name, list) = unsafe { (text(name, "the op's name")?, arguments.as_ref()) };
        let Some(Value::List(items)) = list.map(|o| &o.0) else {
            return Err(Error::value("the arguments of an op are not a list"));
        };
        let args = items.iter().map(|v| argument(v, 0)).collect::<Result<Vec<_>>>()?;
        let value = result(&library::call(name, args, Vec::new())?, 0)?;
        // SAFETY: a place for the result.
        unsafe { put(out, Box::into_raw(Box::new(rl_object(value)))) }
    }
    /// Whether calls of this thread skip kernels of "Autograd"; returns the previous state.
    fn rl_library_below_autograd(below: bool) -> bool, (false) {
        library::set_below_autograd(below)
    }
}
