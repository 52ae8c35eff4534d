//! Optimizer steps: the formulas of `rushlight-optim` on parameters, groups and state that Python keeps.

use crate::convert::scalar;
use crate::error::{IntoPyResult, type_error};
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Scalar};
use rushlight_optim::rule::{Factors, Fused, Scalars};
use rushlight_optim::{
    AdadeltaOptions, AdagradOptions, AdamOptions, AdamWOptions, AdamaxOptions, NAdamOptions, RAdamOptions,
    RmsPropOptions, SgdOptions,
};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::Value;
use rushlight_tensor::{Tensor, foreach};

/// Below so many elements a step is done sooner than the interpreter's lock is given away and taken back.
const SMALL: usize = 8192;

/// The names an optimizer looks up, as Python objects made once.
struct Names {
    options: Vec<(Py<PyString>, String)>,
    scalars: Vec<Py<PyString>>,
    tensors: Vec<Py<PyString>>,
}

impl Names {
    fn of<A: Fused>(py: Python<'_>) -> Names {
        let interned = |name: &str| PyString::intern(py, name).unbind();
        Names {
            options: A::default().to_dict().keys().map(|k| (interned(&k.to_string()), k.to_string())).collect(),
            scalars: A::SCALARS.iter().map(|n| interned(n)).collect(),
            tensors: A::TENSORS.iter().map(|n| interned(n)).collect(),
        }
    }
}

/// One parameter's share of a step.
struct Work {
    param: Tensor,
    grad: Tensor,
    tensors: [Option<Tensor>; 3],
    factors: Factors,
}

fn value(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    if object.is_none() {
        return Ok(Some(Value::None));
    }
    if object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>() {
        let items = object.try_iter()?.map(|item| value(&item?)).collect::<PyResult<Option<Vec<_>>>>()?;
        return Ok(items.map(Value::Tuple));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Some(Value::Str(text.to_string_lossy().into_owned())));
    }
    Ok(scalar(object)?.map(|s| match s {
        Scalar::Bool(b) => Value::Bool(b),
        Scalar::Int(i) => Value::Int(i),
        Scalar::Float(f) => Value::Float(f),
    }))
}

fn options<A: Fused>(group: &Bound<'_, PyDict>, names: &Names) -> PyResult<A> {
    let mut options = A::default();
    for (key, name) in &names.options {
        let Some(object) = group.get_item(key)? else { continue };
        let Some(value) = value(&object)? else {
            return Err(type_error(format!("{}: {name} cannot be a {}", A::NAME, object.get_type().name()?)));
        };
        options.set(name, &value).py()?;
    }
    Ok(options)
}

/// The numbers kept for a parameter, and the tensors that hold them, made where missing.
fn read_scalars<A: Fused>(kept: &Bound<'_, PyDict>, names: &Names) -> PyResult<(Scalars, SmallVec<[Tensor; 2]>)> {
    let (mut scalars, mut holders) = (A::START, SmallVec::new());
    for (value, key) in scalars.iter_mut().zip(&names.scalars) {
        let object = kept.get_item(key)?;
        if let Some(object) = &object
            && let Some(number) = scalar(object)?
        {
            *value = number.to_f64();
        }
        holders.push(match object.as_ref().and_then(as_tensor) {
            Some(tensor) => tensor.get().tensor(),
            None => {
                let holder = Tensor::full_with([], *value, DType::F32).py()?;
                kept.set_item(key, wrap(kept.py(), holder.clone())?)?;
                holder
            }
        });
    }
    Ok((scalars, holders))
}

/// The tensors kept for a parameter, made where missing; whether one was.
fn state_tensors<A: Fused>(
    kept: &Bound<'_, PyDict>,
    names: &Names,
    options: &A,
    param: &Tensor,
) -> PyResult<([Option<Tensor>; 3], bool)> {
    let (mut tensors, mut first) = ([None, None, None], false);
    for ((slot, wanted), key) in tensors.iter_mut().zip(options.keeps()).zip(&names.tensors) {
        if !wanted {
            continue;
        }
        let object = kept.get_item(key)?;
        *slot = Some(match object.as_ref().and_then(as_tensor).map(|t| t.get().tensor()) {
            Some(tensor) if tensor.is_contiguous() => tensor,
            Some(tensor) => {
                let tensor = no_grad(|| tensor.contiguous()).py()?;
                kept.set_item(key, wrap(kept.py(), tensor.clone())?)?;
                tensor
            }
            None => {
                first = true;
                let tensor = no_grad(|| param.detach().full_like(options.initial())).py()?;
                kept.set_item(key, wrap(kept.py(), tensor.clone())?)?;
                tensor
            }
        });
    }
    Ok((tensors, first))
}

fn step<A: Fused>(groups: &Bound<'_, PyList>, state: &Bound<'_, PyDict>, names: &Names) -> PyResult<()> {
    let py = groups.py();
    let mut work: SmallVec<[Work; 4]> = SmallVec::new();
    let mut elements = 0;
    for group in groups.iter() {
        let group = group.cast_into::<PyDict>()?;
        let options: A = options(&group, names)?;
        let Some(params) = group.get_item(pyo3::intern!(py, "params"))? else { continue };
        let stateful = !names.scalars.is_empty() || options.keeps().contains(&true);
        // Most parameters have taken as many steps as the one before: the powers are computed once.
        let mut last: Option<(Scalars, bool, Scalars, Factors)> = None;
        for object in params.try_iter()? {
            let object = object?.cast_into::<PyTensor>()?;
            let param = object.get().tensor();
            let Some(grad) = param.grad() else { continue };
            let kept = match stateful {
                false => None,
                true => Some(match state.get_item(&object)? {
                    Some(kept) => kept.cast_into::<PyDict>()?,
                    None => {
                        let kept = PyDict::new(py);
                        state.set_item(&object, &kept)?;
                        kept
                    }
                }),
            };
            let (mut scalars, mut holders, mut tensors, mut first) =
                (A::START, SmallVec::new(), [None, None, None], false);
            if let Some(kept) = &kept {
                (scalars, holders) = read_scalars::<A>(kept, names)?;
                (tensors, first) = state_tensors(kept, names, &options, &param)?;
            }
            let factors = match last {
                Some((before, was_first, after, factors)) if before == scalars && was_first == first => {
                    scalars = after;
                    factors
                }
                _ => {
                    let before = scalars;
                    let factors = options.advance(&mut scalars, first);
                    last = Some((before, first, scalars, factors));
                    factors
                }
            };
            for (holder, value) in holders.iter().zip(scalars) {
                no_grad(|| holder.fill_(value).map(drop)).py()?;
            }
            elements += param.numel();
            work.push(Work { param, grad, tensors, factors });
        }
    }
    let update = || {
        let updates: SmallVec<[foreach::Update; 4]> = work
            .iter()
            .map(|w| {
                let Factors { maximize, weight_decay, shrink, rule } = w.factors;
                let state = w.tensors.each_ref().map(|t| t.as_ref());
                foreach::Update { param: &w.param, grad: &w.grad, state, maximize, weight_decay, shrink, rule }
            })
            .collect();
        foreach::update(&updates, 1.0)
    };
    if elements < SMALL { update().py() } else { py.detach(update).py() }
}

/// A step of the optimizer of that name over its parameter groups, in one pass. Groups hold options by PyTorch's names; `state` holds a dict
/// per parameter, where what is missing is made.
#[pyfunction]
fn _optim_step(name: &str, groups: &Bound<'_, PyList>, state: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = groups.py();
    macro_rules! by_name {
        ($($optimizer:literal => $options:ident),* $(,)?) => {
            match name {
                $($optimizer => {
                    static NAMES: PyOnceLock<Names> = PyOnceLock::new();
                    step::<$options>(groups, state, NAMES.get_or_init(py, || Names::of::<$options>(py)))
                })*
                _ => Err(type_error(format!("_optim_step: '{name}' is no optimizer with a formula of its own"))),
            }
        };
    }
    by_name! {
        "SGD" => SgdOptions, "Adam" => AdamOptions, "AdamW" => AdamWOptions, "NAdam" => NAdamOptions, "RAdam" => RAdamOptions,
        "Adamax" => AdamaxOptions, "Adagrad" => AdagradOptions, "Adadelta" => AdadeltaOptions, "RMSprop" => RmsPropOptions,
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_optim_step, module)?)
}
