//! Compiled functions: `torch.compile`.

use crate::error::{IntoPyResult, from_py};
use crate::recorded::{PyKind, PyOutput};
use crate::tensor::PyTensor;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use rushlight_core::Philox;
use rushlight_core::rng::default_generator;
use rushlight_core::sync::lock;
use rushlight_tensor::{Compile, Tensor, compile};
use std::sync::{Mutex, TryLockError};

/// The engine's `Compile` over Python functions.
#[pyclass(name = "_Compile", module = "rushlight._C", frozen)]
struct PyCompile {
    compiled: Mutex<Compile>,
    /// The random state before the last run, for [`PyCompile::rewind`].
    before: Mutex<Philox>,
}

impl PyCompile {
    fn with<T>(&self, f: impl FnOnce(&mut Compile) -> T) -> Option<T> {
        match self.compiled.try_lock() {
            Ok(mut guard) => Some(f(&mut guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(f(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn tensors(inputs: &[Bound<'_, PyTensor>]) -> Vec<Tensor> {
    inputs.iter().map(|t| t.get().tensor()).collect()
}

#[pymethods]
impl PyCompile {
    #[new]
    fn new(max_recordings: usize) -> Self {
        let compiled = Mutex::new(Compile::default().max_recordings(max_recordings));
        Self { compiled, before: Mutex::new(default_generator().state()) }
    }

    /// Runs or records a function of a kind: `step(*inputs)` returns a list of tensors and a form; runs of a recording
    /// return the form that was recorded. A function that runs already, in itself or in another thread, is called.
    /// Where it is known that the function cannot be held as a program, the reason is returned.
    fn run<'py>(
        &self,
        kind: &Bound<'py, PyAny>,
        inputs: Vec<Bound<'py, PyTensor>>,
        step: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = step.py();
        *lock(&self.before) = default_generator().state();
        let kind = PyKind::new(kind)?;
        let inputs = tensors(&inputs);
        let call = |own: &[Tensor]| PyOutput::of(step, own);
        let run = |compiled: &mut Compile| match compiled.reason(&kind, &inputs) {
            Some(reason) => Err(reason.to_string()),
            None => Ok(compiled.run_kind(kind, &inputs, |own| call(own).map_err(from_py))),
        };
        let output = match self.with(run) {
            Some(Ok(output)) => output.py()?,
            Some(Err(reason)) => return reason.into_bound_py_any(py),
            None => call(&inputs)?,
        };
        output.into_python(py)?.into_bound_py_any(py)
    }

    /// Sets random numbers back to where the last run began: its results are not used.
    fn rewind(&self) {
        default_generator().set_state(*lock(&self.before));
    }

    /// From now on the function itself runs for arguments of this kind.
    fn refuse(&self, kind: &Bound<'_, PyAny>, inputs: Vec<Bound<'_, PyTensor>>, reason: &str) -> PyResult<()> {
        let kind = PyKind::new(kind)?;
        self.with(|compiled| compiled.refuse(kind, &tensors(&inputs), reason));
        Ok(())
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
