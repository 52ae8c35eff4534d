//! The one place where the tensor layer calls engines: every call passes [`run`], which notes it for the profiler and
//! for a program that is being recorded, and sends carried dtypes to their own code.

use crate::{Tensor, profile, program};
use rushlight_core::backend::{Call, View, execute};
use rushlight_core::{Backend, DType, Result, Storage};
use std::mem::{ManuallyDrop, needs_drop};
use std::sync::Arc;

/// Uninitialised memory for a tensor.
#[inline(always)]
pub(crate) fn allocate(backend: &'static dyn Backend, bytes: usize) -> Result<Arc<Storage>> {
    let storage = Arc::new(backend.alloc(bytes)?);
    if program::is_noting_memory() {
        program::note_memory(&storage);
    }
    Ok(storage)
}

impl Tensor {
    /// The engine of this tensor's device.
    #[inline]
    pub(crate) fn backend(&self) -> &'static dyn Backend {
        self.0.storage.backend()
    }

    /// Runs a call on this tensor's engine. Inlined, so that the call is built where it lies.
    #[inline(always)]
    pub(crate) fn run<'v, C: Into<Call<View<'v>>>>(&self, call: C) -> Result<()> {
        let call = call.into();
        if needs_drop::<C>() {
            return run(self.backend(), self.0.dtype, &call);
        }
        // The compiler would look for what a call of another family holds.
        run(self.backend(), self.0.dtype, &ManuallyDrop::new(call))
    }

    /// Runs a copy between this tensor and another: it converts, if either dtype is carried.
    #[inline]
    pub(crate) fn run_with<'v>(&self, other: &Tensor, call: impl Into<Call<View<'v>>>) -> Result<()> {
        if self.0.dtype.is_carried() { self.run(call) } else { other.run(call) }
    }
}

/// Runs a call on tensors of a dtype.
#[inline]
pub(crate) fn run(backend: &'static dyn Backend, dtype: DType, call: &Call<View>) -> Result<()> {
    if program::is_noting() {
        program::note(call);
    }
    if profile::is_on() {
        profile::noted(backend, call, || perform(backend, dtype, call))
    } else {
        perform(backend, dtype, call)
    }
}

#[inline]
fn perform(backend: &'static dyn Backend, dtype: DType, call: &Call<View>) -> Result<()> {
    // Calls on carried dtypes are refused by the dtype or checked as the calls that they become.
    #[cfg(debug_assertions)]
    if !dtype.is_carried() {
        call.check()?;
    }
    // SAFETY: this function is private to the crate. Every op checks shapes, dtypes and devices before it makes a call,
    // and gives it outputs that it has just allocated or that `check_inplace` has found free of overlap.
    unsafe {
        if dtype.is_carried() { rushlight_engines::run_carried(backend, dtype, call) } else { execute(backend, call) }
    }
}
