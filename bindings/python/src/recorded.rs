//! Keys and results of Python functions that are recorded: `rushlight.capture`, `torch.compile`.

use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rushlight_core::Result;
use rushlight_tensor::capture::Tensors;
use rushlight_tensor::{StepOutput, Tensor};

/// A hashable Python value that recordings depend on.
pub struct PyKind {
    hash: isize,
    value: Py<PyAny>,
}

impl PyKind {
    /// An error if the value cannot be hashed.
    pub fn new(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { hash: value.hash()?, value: value.clone().unbind() })
    }
}

impl PartialEq for PyKind {
    fn eq(&self, other: &Self) -> bool {
        // A value whose comparison raises is another one.
        self.hash == other.hash && Python::attach(|py| self.value.bind(py).eq(other.value.bind(py))).unwrap_or(false)
    }
}

/// Tensors, and a Python value from which the function's result is made with them.
pub struct PyOutput {
    tensors: Tensors,
    form: Py<PyAny>,
}

impl PyOutput {
    /// Calls `step(*inputs)`, which returns a list of tensors and a form.
    pub fn of(step: &Bound<'_, PyAny>, inputs: &[Tensor]) -> PyResult<Self> {
        let py = step.py();
        let inputs = inputs.iter().map(|t| wrap(py, t.clone())).collect::<PyResult<Vec<_>>>()?;
        let (tensors, form): (Vec<Bound<'_, PyTensor>>, Py<PyAny>) =
            step.call1(PyTuple::new(py, inputs)?)?.extract()?;
        Ok(Self { tensors: tensors.iter().map(|t| t.get().tensor()).collect(), form })
    }

    /// The list of tensors and the form.
    pub fn into_python(self, py: Python<'_>) -> PyResult<(Vec<Bound<'_, PyTensor>>, Py<PyAny>)> {
        Ok((self.tensors.into_iter().map(|t| wrap(py, t)).collect::<PyResult<_>>()?, self.form))
    }
}

impl StepOutput for PyOutput {
    type Form = Py<PyAny>;

    fn into_parts(self) -> (Tensors, Py<PyAny>) {
        (self.tensors, self.form)
    }

    fn from_parts(tensors: Tensors, form: &Py<PyAny>) -> Result<Self> {
        Ok(Self { tensors, form: Python::attach(|py| form.clone_ref(py)) })
    }
}
