//! Work over lists of tensors in one call: what optimizers, gradient clipping and loss scaling are made of.

use crate::error::{IntoPyResult, value_error};
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rushlight_core::Scalar;
use rushlight_core::backend::UpdateRule;
use rushlight_tensor::{Arg, Tensor, foreach};

fn handles(tensors: &[Bound<'_, PyTensor>]) -> Vec<Tensor> {
    tensors.iter().map(|t| t.get().tensor()).collect()
}

/// A number, or a tensor of one.
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

fn rule(name: &str, factors: &[f64]) -> PyResult<UpdateRule> {
    Ok(match (name, factors) {
        ("sgd", &[decay, gain, step, grad_step]) => UpdateRule::Sgd { decay, gain, step, grad_step },
        ("adam", &[beta1, beta2, eps, root, step, grad_step]) => {
            UpdateRule::Adam { beta1, beta2, eps, root, step, grad_step }
        }
        ("adamax", &[beta1, beta2, eps, step]) => UpdateRule::Adamax { beta1, beta2, eps, step },
        ("rmsprop", &[decay, gain, eps, momentum, step]) => UpdateRule::RmsProp { decay, gain, eps, momentum, step },
        ("adadelta", &[rho, eps, step]) => UpdateRule::Adadelta { rho, eps, step },
        _ => {
            return Err(value_error(format!(
                "_foreach_update: '{name}' with {} factors is no rule; there are sgd(decay, gain, step, grad_step), \
                 adam(beta1, beta2, eps, root, step, grad_step), adamax(beta1, beta2, eps, step), \
                 rmsprop(decay, gain, eps, momentum, step), adadelta(rho, eps, step)",
                factors.len()
            )));
        }
    })
}

/// One optimizer step over a list of parameters, in one pass and without recording. `rule` names one of the engine's update rules, `factors`
/// are its numbers in the order of its fields (one tuple for all, or a list with one per parameter); what they mean is said at `UpdateRule`.
/// `states` holds up to three lists of contiguous tensors. Gradients are the parameters' own unless given, times `grad_scale`.
#[pyfunction]
#[pyo3(signature = (rule, params, states, factors, *, grads=None, maximize=false, weight_decay=0.0, shrink=1.0, grad_scale=None))]
#[allow(clippy::too_many_arguments)]
fn _foreach_update(
    py: Python<'_>,
    rule: &str,
    params: Vec<Bound<'_, PyTensor>>,
    states: Vec<Vec<Bound<'_, PyTensor>>>,
    factors: &Bound<'_, PyAny>,
    grads: Option<Vec<Bound<'_, PyTensor>>>,
    maximize: bool,
    weight_decay: f64,
    shrink: f64,
    grad_scale: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let params = handles(&params);
    let states: Vec<Vec<Tensor>> = states.iter().map(|s| handles(s)).collect();
    if states.len() > 3 || states.iter().any(|s| s.len() != params.len()) {
        return Err(value_error("_foreach_update: states are up to three lists with one tensor per parameter"));
    }
    let rules: Vec<UpdateRule> = if factors.is_instance_of::<PyTuple>() {
        vec![self::rule(rule, &factors.extract::<Vec<f64>>()?)?]
    } else {
        factors.try_iter()?.map(|f| self::rule(rule, &f?.extract::<Vec<f64>>()?)).collect::<PyResult<_>>()?
    };
    if rules.len() != 1 && rules.len() != params.len() {
        return Err(value_error("_foreach_update: factors are one tuple, or a list with one per parameter"));
    }
    let grads: Vec<Tensor> = match grads {
        Some(grads) if grads.len() == params.len() => handles(&grads),
        Some(_) => return Err(value_error("_foreach_update: there is one gradient per parameter")),
        None => params
            .iter()
            .map(|p| p.grad().ok_or_else(|| value_error("_foreach_update: a parameter has no gradient")))
            .collect::<PyResult<_>>()?,
    };
    let scale = grad_scale.map_or(Ok(Factor::Number(1.0)), Factor::read)?;
    let updates: Vec<foreach::Update> = params
        .iter()
        .zip(&grads)
        .enumerate()
        .map(|(i, (param, grad))| foreach::Update {
            param,
            grad,
            state: std::array::from_fn(|k| states.get(k).map(|s| &s[i])),
            maximize,
            weight_decay,
            shrink,
            rule: rules[if rules.len() == 1 { 0 } else { i }],
        })
        .collect();
    if params.iter().map(Tensor::numel).sum::<usize>() < 8192 {
        return foreach::update(&updates, scale.arg()).py();
    }
    py.detach(|| foreach::update(&updates, scale.arg())).py()
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

/// All tensors times a number (or a tensor of one), in place.
#[pyfunction]
fn _foreach_scale_(py: Python<'_>, tensors: Vec<Bound<'_, PyTensor>>, factor: &Bound<'_, PyAny>) -> PyResult<()> {
    let (tensors, factor) = (handles(&tensors), Factor::read(factor)?);
    py.detach(|| foreach::scale_(&tensors.iter().collect::<Vec<_>>(), factor.arg())).py()
}

/// All tensors times a factor, in place; `found_inf` becomes one if an element is not finite.
#[pyfunction]
fn _foreach_unscale_(
    py: Python<'_>,
    tensors: Vec<Bound<'_, PyTensor>>,
    factor: &Bound<'_, PyAny>,
    found_inf: &Bound<'_, PyTensor>,
) -> PyResult<()> {
    let (tensors, factor, found) = (handles(&tensors), Factor::read(factor)?, found_inf.get().tensor());
    py.detach(|| foreach::unscale_(&tensors.iter().collect::<Vec<_>>(), factor.arg(), &found)).py()
}

/// Clips the norm of parameters' gradients as `nn.utils.clip_grad_norm_` does; returns the norm.
#[pyfunction]
#[pyo3(signature = (parameters, max_norm, norm_type=2.0, error_if_nonfinite=false))]
fn _clip_grad_norm_<'py>(
    py: Python<'py>,
    parameters: Vec<Bound<'py, PyTensor>>,
    max_norm: f64,
    norm_type: f64,
    error_if_nonfinite: bool,
) -> PyResult<Bound<'py, PyTensor>> {
    let parameters = handles(&parameters);
    let options = rushlight_tensor::NormOptions::default().norm_type(norm_type).error_if_nonfinite(error_if_nonfinite);
    wrap(py, py.detach(|| rushlight_tensor::clip_grad_norm_with(&parameters, max_norm, options)).py()?)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_foreach_update, module)?)?;
    module.add_function(wrap_pyfunction!(_foreach_total_norm, module)?)?;
    module.add_function(wrap_pyfunction!(_foreach_scale_, module)?)?;
    module.add_function(wrap_pyfunction!(_foreach_unscale_, module)?)?;
    module.add_function(wrap_pyfunction!(_clip_grad_norm_, module)?)?;
    Ok(())
}
