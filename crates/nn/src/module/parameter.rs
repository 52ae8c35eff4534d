//! What modules hold: learned tensors, kept tensors, and the training switch.

use rushlight_core::Result;
use rushlight_tensor::Tensor;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A tensor that a module learns. Clones are the same tensor, which ties weights.
#[derive(Clone)]
pub struct Parameter(Tensor);

impl Parameter {
    /// A parameter with the tensor's values; it requires gradients.
    pub fn new(values: &Tensor) -> Result<Self> {
        Ok(Self(values.detach().requires_grad_(true)?))
    }

    /// A tensor that is a parameter already (of another module), recording or frozen as it is.
    pub(crate) fn from_leaf(tensor: Tensor) -> Self {
        Self(tensor)
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }
}

impl Deref for Parameter {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.0
    }
}

/// A tensor that a module keeps but does not learn, such as running statistics.
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

    /// A buffer that moves with the module but is not saved: masks and tables that are made anew.
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

/// The switch between training and evaluation, on at first. A module that behaves differently in the two has one as a field.
#[derive(Debug)]
pub struct Training(AtomicBool);

impl Training {
    /// Whether the module is training.
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Switches.
    pub fn set(&self, training: bool) {
        self.0.store(training, Relaxed);
    }
}

impl Default for Training {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl Clone for Training {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.get()))
    }
}
