//! Operations on lists of tensors in one call, for gradient clipping.

use crate::error::IntoPyResult;
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::prelude::*;
use rushlight_core::Scalar;
use rushlight_tensor::{Arg, Tensor, foreach};

fn handles(tensors: &[Bound<'_, PyTensor>]) -> Vec<Tensor> {
    tensors.iter().map(|t| t.get().tensor()).collect()
}

/// A number, or a one-element tensor.
enum Factor {
    Tensor(Tensor),
    Number(f64),
}

impl Factor {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Factor> {
        match as_tensor(object) {
            Some(t) => Ok(Factor::Tensor(t.get().tensor())),
            None => Ok(Factor::Number(object.extract()?)),
        }
    }

    fn arg(&self) -> Arg<'_> {
        match self {
            Factor::Tensor(t) => Arg::Tensor(t),
            Factor::Number(v) => Arg::Scalar(Scalar::Float(*v)),
        }
    }
}

/// The norm of all elements of all tensors.
#[pyfunction]
#[pyo3(signature = (tensors, norm_type=2.0))]
fn _foreach_total_norm<'py>(
    py: Python<'py>,
    tensors: Vec<Bound<'py, PyTensor>>,
    norm_type: f64,
) -> PyResult<Bound<'py, PyTensor>> {
    let tensors = handles(&tensors);
    wrap(py, py.detach(|| foreach::norm(&tensors.iter().collect::<Vec<_>>(), norm_type)).py()?)
}

/// Multiplies all tensors by a number (or a one-element tensor), in place.
#[pyfunction]
fn _foreach_scale_(py: Python<'_>, tensors: Vec<Bound<'_, PyTensor>>, factor: &Bound<'_, PyAny>) -> PyResult<()> {
    let (tensors, factor) = (handles(&tensors), Factor::read(factor)?);
    py.detach(|| foreach::scale_(&tensors.iter().collect::<Vec<_>>(), factor.arg())).py()
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_foreach_total_norm, module)?)?;
    module.add_function(wrap_pyfunction!(_foreach_scale_, module)?)?;
    Ok(())
}
