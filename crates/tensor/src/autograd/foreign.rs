//! Gradients whose elements a front end keeps in objects of its own.
//!
//! A front end may have tensors that are not computed here: their ops run in the user's code. Such ops are recorded as
//! custom functions, and their gradients pass through the engine as tensors without elements that carry the front end's
//! object. The engine adds them up by the object, and refuses to compute with them.

use super::{Extra, Meta};
use crate::Tensor;
use rushlight_core::{Error, Result};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// An object of a front end that has the elements of a gradient.
pub trait Foreign: Any + Send + Sync {
    /// The sum of two gradients, of which one or both carry an object.
    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor>;

    /// The object itself.
    fn as_any(&self) -> &dyn Any;
}

/// Whether a tensor ever carried an object.
static ANY: AtomicBool = AtomicBool::new(false);

impl Tensor {
    /// This tensor's sizes and dtype, carrying an object that has the elements.
    pub fn carrying(&self, object: Arc<dyn Foreign>) -> Tensor {
        ANY.store(true, Relaxed);
        let extra = Extra { foreign: Some(object), ..Extra::default() };
        let meta = Meta { extra: Some(Box::new(extra)), ..Meta::default() };
        self.over_same_memory(self.0.layout.clone(), self.0.dtype, meta)
    }

    /// Adds to `.grad`, as a backward pass does.
    pub fn add_gradient(&self, gradient: &Tensor) -> Result<()> {
        let sum = match self.grad() {
            Some(old) => match add(&old, gradient) {
                Some(sum) => sum?,
                None => old.add(gradient)?,
            },
            None => gradient.clone(),
        };
        if sum.carried_object().is_some() {
            self.meta().grad = Some(sum);
            return Ok(());
        }
        self.set_grad(Some(sum))
    }

    /// The object that this tensor carries.
    pub fn carried_object(&self) -> Option<Arc<dyn Foreign>> {
        if !ANY.load(Relaxed) {
            return None;
        }
        self.meta().extra.as_ref().and_then(|extra| extra.foreign.clone())
    }
}

/// The sum of two gradients if one of them carries an object.
pub(super) fn add(a: &Tensor, b: &Tensor) -> Option<Result<Tensor>> {
    let object = a.carried_object().or_else(|| b.carried_object())?;
    Some(object.add(a, b))
}

/// An error for a gradient that carries an object and reached a backward function of this crate.
pub(super) fn refuse(name: impl FnOnce() -> String, grads: &[Option<Tensor>]) -> Result<()> {
    if !ANY.load(Relaxed) || grads.iter().flatten().all(|g| g.carried_object().is_none()) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{}: the gradient is of a class that handles ops by __torch_dispatch__, but this step computed with plain tensors; make it an \
         op on that class",
        name()
    )))
}
