//! Compiled functions: `torch.compile`.

use crate::error::{IntoPyResult, from_py};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rushlight_tensor::{Compile, Tensor, compile};
use std::sync::{Mutex, TryLockError};

/// The engine's `Compile` over Python functions.
#[pyclass(name = "_Compile", module = "rushlight._C", frozen)]
struct PyCompile(Mutex<Compile>);

impl PyCompile {
    fn with<T>(&self, f: impl FnOnce(&mut Compile) -> T) -> Option<T> {
        match self.0.try_lock() {
            Ok(mut guard) => Some(f(&mut guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(f(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Calls a Python function with tensors and converts its results.
fn call(step: &Bound<'_, PyAny>, inputs: &[Tensor]) -> PyResult<Vec<Tensor>> {
    let py = step.py();
    let inputs = inputs.iter().map(|t| wrap(py, t.clone())).collect::<PyResult<Vec<_>>>()?;
    let outputs: Vec<Bound<'_, PyTensor>> = step.call1(PyTuple::new(py, inputs)?)?.extract()?;
    Ok(outputs.iter().map(|t| t.get().tensor()).collect())
}

#[pymethods]
impl PyCompile {
    #[new]
    fn new(max_recordings: usize) -> Self {
        Self(Mutex::new(Compile::default().max_recordings(max_recordings)))
    }

    /// Runs or records a function of a kind: `step(*inputs)` returns a list of tensors. One that runs already, in
    /// itself or in another thread, is called.
    fn run<'py>(
        &self,
        kind: u64,
        inputs: Vec<Bound<'py, PyTensor>>,
        step: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyTensor>>> {
        let py = step.py();
        let inputs: Vec<Tensor> = inputs.iter().map(|t| t.get().tensor()).collect();
        let run = |compiled: &mut Compile| compiled.run_kind(kind, &inputs, |own| call(step, own).map_err(from_py));
        let outputs: Vec<Tensor> = match self.with(run) {
            Some(outputs) => outputs.py()?,
            None => call(step, &inputs)?,
        };
        outputs.into_iter().map(|t| wrap(py, t)).collect()
    }

    #[getter]
    fn recordings(&self) -> usize {
        self.with(|compiled| compiled.recordings()).unwrap_or(0)
    }

    #[getter]
    fn reasons(&self) -> Vec<String> {
        self.with(|compiled| compiled.reasons()).unwrap_or_default()
    }

    /// The programs, as text.
    #[getter]
    fn programs(&self) -> Vec<String> {
        self.with(|compiled| compiled.programs().iter().map(|p| p.to_string()).collect()).unwrap_or_default()
    }

    fn clear(&self) {
        self.with(Compile::clear);
    }
}

/// Notes that the function being recorded cannot be held as a program.
#[pyfunction]
fn _compile_break(reason: &str) {
    compile::break_graph(reason);
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCompile>()?;
    module.add_function(wrap_pyfunction!(_compile_break, module)?)
}
