//! Members of modules: parameters, buffers, and the training switch.

use super::location::Location;
use rushlight_core::Result;
use rushlight_tensor::{Arg, Expr, Operand, Tensor};
use std::ops::{Add, Deref, Div, Mul, Rem, Sub};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A tensor that a module learns.
///
/// Not `Clone`: [`Parameter::tie`] gives the same parameter to another module,
/// [`Module::deepcopy`](crate::Module::deepcopy) copies a module with its values.
pub struct Parameter {
    tensor: Tensor,
    location: Location,
}

impl Parameter {
    /// A parameter with the tensor's values; it requires gradients.
    pub fn new(values: &Tensor) -> Result<Self> {
        Ok(Self::from_leaf(values.detach().requires_grad_(true)?))
    }

    /// A tensor that is a parameter already (of another module), which keeps its `requires_grad`.
    pub(crate) fn from_leaf(tensor: Tensor) -> Self {
        Self { tensor, location: Location::default() }
    }

    /// The same parameter for another module: both see each other's changes, and optimizers update it once.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_nn as nn; }
    /// use rushlight::nn::{Embedding, Linear};
    /// let wte = Embedding::new(100, 8)?;
    /// let mut head = Linear::builder(8, 100).bias(false).build()?;
    /// head.weight = wte.weight.tie();
    /// assert!(head.weight.is_same(&wte.weight));
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn tie(&self) -> Self {
        Self::from_leaf(self.tensor.clone())
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Puts another tensor, with its history, in the place of this parameter's and returns the old one. Sharded data
    /// parallelism gathers a module's parameters for a forward pass and puts the shards back after it.
    pub fn substitute(&mut self, tensor: Tensor) -> Tensor {
        std::mem::replace(&mut self.tensor, tensor)
    }

    pub(super) fn replace(&mut self, tensor: Tensor) {
        self.tensor = tensor;
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }
}

impl Deref for Parameter {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

/// Operators take parameters and buffers as they take tensors.
macro_rules! operands {
    ($($owner:ty),*; $($trait:ident $method:ident)*) => {
        operands!(@owners $($owner),*; ($($trait $method)*));
    };
    (@owners $($owner:ty),*; $operators:tt) => {$(
        impl Operand for &$owner {
            #[inline]
            fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T> {
                f(Arg::Tensor(self))
            }
        }

        impl<'a> From<&'a $owner> for Arg<'a> {
            fn from(owner: &'a $owner) -> Self {
                Arg::Tensor(owner)
            }
        }

        operands!(@operators $owner; $operators);
    )*};
    (@operators $owner:ty; ($($trait:ident $method:ident)*)) => {$(
        impl<R: Operand> $trait<R> for &$owner {
            type Output = Expr;
            #[inline]
            fn $method(self, other: R) -> Expr {
                $trait::$method(&**self, other)
            }
        }

        impl $trait<&$owner> for f64 {
            type Output = Expr;
            fn $method(self, other: &$owner) -> Expr {
                $trait::$method(self, &**other)
            }
        }
    )*};
}

operands!(Parameter, Buffer; Add add Sub sub Mul mul Div div Rem rem);

/// A tensor that a module keeps but does not learn, such as running statistics. Clones share its memory.
#[derive(Clone)]
pub struct Buffer {
    tensor: Tensor,
    persistent: bool,
}

impl Buffer {
    /// A buffer that is part of the state dict.
    pub fn new(tensor: Tensor) -> Self {
        Self { tensor, persistent: true }
    }

    /// A buffer that moves with the module but is not saved: masks and tables that are made again.
    pub fn not_persistent(tensor: Tensor) -> Self {
        Self { tensor, persistent: false }
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Whether the state dict holds it.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    pub(crate) fn replace(&mut self, tensor: Tensor) {
        self.tensor = tensor;
    }
}

impl Deref for Buffer {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

/// The switch between training and evaluation, on at first. A module that behaves differently in the two has one as a
/// field.
pub struct Training {
    on: AtomicBool,
    location: Location,
}

impl Training {
    /// Whether the module is training.
    pub fn get(&self) -> bool {
        self.on.load(Relaxed)
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    fn at(on: bool) -> Self {
        Self { on: AtomicBool::new(on), location: Location::default() }
    }

    /// Switches.
    pub fn set(&self, training: bool) {
        self.on.store(training, Relaxed);
    }
}

impl std::fmt::Debug for Training {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Training").field(&self.get()).finish()
    }
}

impl Default for Training {
    fn default() -> Self {
        Self::at(true)
    }
}

impl Clone for Training {
    fn clone(&self) -> Self {
        Self::at(self.get())
    }
}
