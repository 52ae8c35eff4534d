//! `LBFGS.step`: the minimiser of `rushlight-optim` over parameters, options and state owned by Python.

use crate::error::{IntoPyResult, from_py, type_error};
use crate::optim::{read_options, value};
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rushlight_core::Result;
use rushlight_optim::rule::Options;
use rushlight_optim::{Lbfgs, LbfgsOptions, Optimizer};
use rushlight_tensor::Tensor;
use rushlight_tensor::capture;
use rushlight_tensor::state::{Dict, Key, Value};

/// Names of the minimiser's state; other entries are ignored.
const KEPT: [&str; 10] =
    ["func_evals", "n_iter", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss"];

/// A value of the state, with tensors unchanged.
fn state_value(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Some(tensor) = as_tensor(object) {
        return Ok((&tensor.get().tensor()).into());
    }
    if let Ok(list) = object.cast::<PyList>() {
        return Ok(Value::List(list.iter().map(|item| state_value(&item)).collect::<PyResult<_>>()?));
    }
    value(object)?.ok_or_else(|| type_error("LBFGS: the state holds a value that is neither a number nor a tensor"))
}

fn state_object<'py>(py: Python<'py>, value: Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Tensor(tensor) => wrap(py, tensor)?.into_any(),
        Value::Int(i) => i.into_pyobject(py)?.into_any(),
        Value::Float(f) => f.into_pyobject(py)?.into_any(),
        Value::List(items) => {
            let items = items.into_iter().map(|item| state_object(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        _ => py.None().into_bound(py),
    })
}

/// One step over `params`. `group` holds the options, `kept` the state, both by PyTorch's names. Returns the
/// closure's first result.
#[pyfunction]
fn _lbfgs_step<'py>(
    py: Python<'py>,
    params: Vec<Bound<'py, PyTensor>>,
    group: &Bound<'py, PyDict>,
    kept: &Bound<'py, PyDict>,
    closure: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    capture::refuse_host("LBFGS.step").py()?;
    let names: Vec<String> = LbfgsOptions::default().to_dict().keys().map(Key::to_string).collect();
    let options: LbfgsOptions = read_options(group, names.iter().map(|name| (name.as_str(), name.as_str())))?;
    let mut state = Dict::new();
    for key in KEPT {
        if let Some(object) = kept.get_item(key)? {
            state.insert(key.into(), state_value(&object)?);
        }
    }
    let params = params.iter().map(|p| p.get().tensor()).collect();
    let mut lbfgs = Lbfgs::resume(params, options, &state.into()).py()?;
    let mut first: Option<Py<PyAny>> = None;
    let stepped = py.detach(|| {
        lbfgs.step_closure(&mut || -> Result<Tensor> {
            Python::attach(|py| {
                let loss = closure.call0(py)?;
                let tensor = match as_tensor(loss.bind(py)) {
                    Some(tensor) => tensor.get().tensor(),
                    None => Tensor::scalar(loss.extract::<f64>(py)?).py()?,
                };
                first.get_or_insert(loss);
                Ok(tensor)
            })
            .map_err(from_py)
        })
    });
    for (key, value) in lbfgs.kept() {
        kept.set_item(key.to_string(), state_object(py, value)?)?;
    }
    stepped.py()?;
    Ok(first.unwrap_or_else(|| py.None()).into_bound(py))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_lbfgs_step, module)?)
}
