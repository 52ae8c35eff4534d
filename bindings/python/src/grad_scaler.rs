//! `GradScaler`: loss scaling of `rushlight-optim` for optimizers owned by Python.

use crate::error::{IntoPyResult, runtime_error, value_error};
use crate::optim;
use crate::tensor::{PyTensor, wrap};
use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use rushlight_core::DType;
use rushlight_core::sync::lock;
use rushlight_optim::GradScaler;
use rushlight_tensor::Tensor;
use rushlight_tensor::capture::recording_id;
use rushlight_tensor::state::{Dict, Stateful, Value};
use std::sync::{Mutex, MutexGuard};

/// The scaler behind `torch.amp.GradScaler`. Optimizers are identified by Python's `id`.
#[pyclass(name = "_GradScaler", module = "rushlight._C", frozen)]
struct PyGradScaler(Mutex<GradScaler>);

impl PyGradScaler {
    fn lock(&self) -> MutexGuard<'_, GradScaler> {
        lock(&self.0)
    }
}

/// Gradients as tensors, with PyTorch's errors.
fn checked(grads: &[Bound<'_, PyTensor>]) -> PyResult<Vec<Tensor>> {
    let grads: Vec<Tensor> = grads.iter().map(|g| g.get().tensor()).collect();
    if grads.is_empty() {
        return Err(PyAssertionError::new_err("No inf checks were recorded for this optimizer."));
    }
    if grads.iter().any(|g| g.dtype() == DType::F16) {
        return Err(value_error("Attempting to unscale FP16 gradients."));
    }
    Ok(grads)
}

#[pymethods]
impl PyGradScaler {
    #[new]
    fn new(init_scale: f64, growth_factor: f64, backoff_factor: f64, growth_interval: usize) -> Self {
        let mut scaler = GradScaler::new().init_scale(init_scale);
        scaler.set_growth(growth_factor, backoff_factor, growth_interval);
        Self(Mutex::new(scaler))
    }

    /// A tensor times the scale; in a recorded step, the scale at each replay.
    fn scale<'py>(&self, py: Python<'py>, output: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTensor>> {
        let scaled = self.lock().scale(&output.get().tensor()).py()?;
        wrap(py, scaled)
    }

    fn unscale_(&self, id: usize, grads: Vec<Bound<'_, PyTensor>>) -> PyResult<()> {
        self.lock().unscale_grads(id, &checked(&grads)?).py()
    }

    /// Calls `step` unless a gradient is not finite, and returns its result. In a recorded step the device
    /// decides at each replay.
    fn step<'py>(
        &self,
        py: Python<'py>,
        id: usize,
        grads: Vec<Bound<'py, PyTensor>>,
        step: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let grads = checked(&grads)?;
        let recorded = match recording_id() {
            Some(_) => self.lock().recorded_step(id, &grads).py()?,
            None => None,
        };
        if let Some(recorded) = recorded {
            return optim::with_recorded_step(recorded, || step.call0());
        }
        let found_inf = self.lock().unscaled_found_inf(id, &grads).py()?;
        let result = if found_inf { py.None().into_bound(py) } else { step.call0()? };
        self.lock().set_stepped(id, found_inf);
        Ok(result)
    }

    fn update(&self, new_scale: Option<f64>) -> PyResult<()> {
        let mut scaler = self.lock();
        match new_scale {
            Some(_) if recording_id().is_some() => {
                Err(runtime_error("GradScaler.update: a captured step cannot set the scale; set it outside"))
            }
            Some(new_scale) => {
                scaler.update_to(new_scale);
                Ok(())
            }
            None if !scaler.has_checks() => {
                Err(PyAssertionError::new_err("No inf checks were recorded prior to update."))
            }
            None => scaler.update().py(),
        }
    }

    fn get_scale(&self) -> f64 {
        self.lock().get_scale()
    }

    /// Growth factor, backoff factor, growth interval and growth tracker.
    fn growth(&self) -> (f64, f64, usize, usize) {
        self.lock().growth()
    }

    fn set_growth(&self, growth_factor: f64, backoff_factor: f64, growth_interval: usize) {
        self.lock().set_growth(growth_factor, backoff_factor, growth_interval);
    }

    fn load(&self, scale: f64, growth: (f64, f64, usize, usize)) -> PyResult<()> {
        let (growth_factor, backoff_factor, growth_interval, tracker) = growth;
        let entries: [(&str, Value); 5] = [
            ("scale", scale.into()),
            ("growth_factor", growth_factor.into()),
            ("backoff_factor", backoff_factor.into()),
            ("growth_interval", growth_interval.into()),
            ("_growth_tracker", tracker.into()),
        ];
        let state: Dict = entries.into_iter().map(|(k, v)| (k.into(), v)).collect();
        self.lock().load_state(&state.into()).py()
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyGradScaler>()
}
