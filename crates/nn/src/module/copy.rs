//! Deep copies of modules: `Module::deepcopy`.

use super::{Buffer, Module, Parameter};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::any::Any;
use std::collections::HashMap;

/// The tensors that a deep copy has made so far, so that weights which were tied are tied in the copy too.
#[derive(Default)]
pub struct Memo {
    /// Copies by the identity of the original, which is kept so that no other tensor gets its identity.
    copies: HashMap<usize, (Tensor, Tensor)>,
    /// Whether copies hold the tensors of the original.
    sharing: bool,
}

impl Memo {
    /// For copies of modules that hold the original's tensors.
    pub(crate) fn sharing() -> Self {
        Self { sharing: true, ..Self::default() }
    }

    /// The copy of a tensor: values in memory of their own, recording or frozen as the original, without its gradient.
    pub fn tensor(&mut self, original: &Tensor) -> Result<Tensor> {
        if self.sharing {
            return Ok(original.clone());
        }
        if let Some((_, copy)) = self.copies.get(&original.id()) {
            return Ok(copy.clone());
        }
        let copy = original.detach().copy()?.requires_grad_(original.requires_grad())?;
        self.copies.insert(original.id(), (original.clone(), copy.clone()));
        Ok(copy)
    }

    pub(crate) fn parameter(&mut self, original: &Parameter) -> Result<Parameter> {
        self.tensor(original.tensor()).map(Parameter::from_leaf)
    }

    pub(super) fn buffer(&mut self, original: &Buffer) -> Result<Buffer> {
        let copy = self.tensor(original.tensor())?;
        Ok(if original.is_persistent() { Buffer::new(copy) } else { Buffer::not_persistent(copy) })
    }

    /// The copy of a module.
    pub fn module<M: Module>(&mut self, original: &M) -> Result<M> {
        let copy = original.deepcopy_any(self)?;
        let copy = copy.downcast::<M>().map_err(|_| foreign(original))?;
        Ok(*copy)
    }

    /// The copy of a module behind a trait object.
    pub(crate) fn boxed<M: Module + ?Sized>(&mut self, original: &M) -> Result<Box<M>> {
        let copy = original.deepcopy_any(self)?;
        if (*copy).type_id() != original.type_id() {
            return Err(foreign(original));
        }
        let data = Box::into_raw(copy).cast::<()>();
        let mut pointer: *const M = original;
        // SAFETY: a pointer to a trait object begins with the address of its data (a pointer to a sized type is nothing
        // else). The copy has the type of the original, as just compared, so the original's table fits it. The box is
        // of the global allocator, owned by nobody else, and the type of `copy` had the same layout when it was made.
        unsafe {
            *(&raw mut pointer).cast::<*mut ()>() = data;
            Ok(Box::from_raw(pointer.cast_mut()))
        }
    }
}

fn foreign<M: Module + ?Sized>(module: &M) -> Error {
    Error::value(format!("deepcopy: deepcopy_any of {} gave a module of another type", module.type_name()))
}

/// The default of [`Module::deepcopy_any`].
pub(super) fn unsupported<M: Module + ?Sized>(module: &M) -> Result<Box<dyn Any>> {
    Err(Error::unsupported(format!(
        "deepcopy: {} implements Module by hand; implement its deepcopy_any as well, or derive Module",
        module.type_name()
    )))
}

/// A field with `#[module(skip)]`, copied if its type is `Clone`. The choice is made at compile time: the
/// compiler finds the method of [`ByClone`] before that of [`ByRefusal`], which needs one more reference.
#[doc(hidden)]
pub struct Setting<'a, T>(pub &'a T);

#[doc(hidden)]
pub trait ByClone<T> {
    fn copied(&self, place: &str) -> Result<T>;
}

impl<T: Clone> ByClone<T> for Setting<'_, T> {
    fn copied(&self, _: &str) -> Result<T> {
        Ok(self.0.clone())
    }
}

#[doc(hidden)]
pub trait ByRefusal<T> {
    fn copied(&self, place: &str) -> Result<T>;
}

impl<T> ByRefusal<T> for &Setting<'_, T> {
    fn copied(&self, place: &str) -> Result<T> {
        Err(Error::unsupported(format!(
            "deepcopy: {place} is skipped by the module and its type does not implement Clone"
        )))
    }
}
