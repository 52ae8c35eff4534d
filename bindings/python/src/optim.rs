//! Optimizer steps: the formulas of `rushlight-optim` on parameters, groups and state owned by Python.

use crate::convert::scalar;
use crate::error::{IntoPyResult, type_error};
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Result, Scalar};
use rushlight_optim::rule::{Algorithm, Composed, FactorSets, Fused, Member, Options, RecordedStep, Scalars};
use rushlight_optim::{
    AdadeltaOptions, AdafactorOptions, AdagradOptions, AdamOptions, AdamWOptions, AdamaxOptions, AsgdOptions,
    MuonOptions, NAdamOptions, RAdamOptions, RmsPropOptions, RpropOptions, SgdOptions,
};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::capture::{self, Readback, ReplayNumbers};
use rushlight_tensor::profile;
use rushlight_tensor::state::Value;
use rushlight_tensor::{Arg, Tensor};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

/// Below this number of elements a step is faster than releasing and reacquiring the GIL.
const SMALL: usize = 8192;

/// The names that an optimizer looks up, as Python objects made once.
struct Names {
    options: Vec<(Py<PyString>, String)>,
    scalars: Vec<Py<PyString>>,
    tensors: Vec<Py<PyString>>,
}

impl Names {
    fn of<A: Algorithm>(py: Python<'_>) -> Names {
        let interned = |name: &str| PyString::intern(py, name).unbind();
        Names {
            options: A::default().to_dict().keys().map(|k| (interned(&k.to_string()), k.to_string())).collect(),
            scalars: A::SCALARS.iter().map(|n| interned(n)).collect(),
            tensors: A::TENSORS.iter().map(|n| interned(n)).collect(),
        }
    }
}

/// One parameter's part of a step.
struct Work {
    param: Tensor,
    grad: Tensor,
    tensors: [Option<Tensor>; 3],
    /// The tensors of its numbers.
    holders: SmallVec<[Tensor; 2]>,
    set: usize,
}

/// A plain value of a group; `None` for values that cannot be an option.
pub fn value(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
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
    // A learning rate may be a tensor with one element, of any rank.
    if let Some(tensor) = as_tensor(object).map(|t| t.get().tensor()).filter(|t| t.rank() > 0 && t.numel() == 1) {
        return Ok(Some(Value::Float(tensor.to_scalar().py()?.to_f64())));
    }
    Ok(scalar(object)?.map(|s| match s {
        Scalar::Bool(b) => Value::Bool(b),
        Scalar::Int(i) => Value::Int(i),
        other => Value::Float(other.to_f64()),
    }))
}

fn options<A: Algorithm>(group: &Bound<'_, PyDict>, names: &Names) -> PyResult<A> {
    read_options(group, names.options.iter().map(|(key, name)| (key, name.as_str())))
}

/// The options that a group holds, each by its key and name.
pub fn read_options<'py, 'n, O: Options, K: IntoPyObject<'py>>(
    group: &Bound<'py, PyDict>,
    names: impl Iterator<Item = (K, &'n str)>,
) -> PyResult<O> {
    let mut options = O::default();
    for (key, name) in names {
        let Some(object) = group.get_item(key)? else { continue };
        let Some(value) = value(&object)? else {
            return Err(type_error(format!("{}: {name} cannot be a {}", O::NAME, object.get_type().name()?)));
        };
        options.set(name, &value).py()?;
    }
    Ok(options)
}

/// A parameter's state, created if missing.
fn state_of<'py>(state: &Bound<'py, PyDict>, param: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyDict>> {
    if let Some(kept) = state.get_item(param)? {
        return Ok(kept.cast_into::<PyDict>()?);
    }
    let kept = PyDict::new(state.py());
    state.set_item(param, &kept)?;
    Ok(kept)
}

/// The numbers of a parameter's state, and the tensors that hold them, created if missing.
fn read_scalars<A: Algorithm>(kept: &Bound<'_, PyDict>, names: &Names) -> PyResult<(Scalars, SmallVec<[Tensor; 2]>)> {
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

/// The tensors of a parameter's state, created if missing; whether one was.
fn state_tensors<A: Algorithm>(
    kept: &Bound<'_, PyDict>,
    names: &Names,
    options: &A,
    param: &Tensor,
) -> PyResult<([Option<Tensor>; 3], bool)> {
    let (mut tensors, mut first) = ([None, None, None], false);
    for (at, (slot, key)) in tensors.iter_mut().zip(&names.tensors).enumerate() {
        if options.kept_shape(at, param).is_none() {
            continue;
        }
        let object = kept.get_item(key)?;
        *slot = match object.as_ref().and_then(as_tensor).map(|t| t.get().tensor()) {
            Some(tensor) => Some(tensor),
            None => {
                first = true;
                // Created once, also while the step is being recorded.
                let tensor = capture::outside(|| options.fresh(at, param)).py()?;
                if let Some(tensor) = &tensor {
                    kept.set_item(key, wrap(kept.py(), tensor.clone())?)?;
                }
                tensor
            }
        };
    }
    Ok((tensors, first))
}

fn count(holders: &[Tensor], scalars: Scalars) -> Result<()> {
    holders.iter().zip(scalars).try_for_each(|(holder, value)| no_grad(|| holder.fill_(value).map(drop)))
}

thread_local! {
    /// The scaled step that this thread records, until an optimizer uses it.
    static RECORDED_STEP: RefCell<Option<RecordedStep>> = const { RefCell::new(None) };
}

/// Runs an optimizer's step within a recorded step; the device skips it at replays whose gradients are not finite.
pub fn with_recorded_step<T>(recorded: RecordedStep, step: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    RECORDED_STEP.set(Some(recorded));
    let result = step();
    let left = RECORDED_STEP.take();
    let result = result?;
    match left {
        None => Ok(result),
        Some(_) => Err(PyNotImplementedError::new_err(
            "GradScaler: this optimizer cannot be part of a captured step; run without capture, or use a fused optimizer such as AdamW",
        )),
    }
}

/// A replayed step that the device may have skipped: its counts before it, for restoring.
struct UnconfirmedStep {
    readback: Arc<Readback>,
    holders: Vec<SmallVec<[Tensor; 2]>>,
    before: Scalars,
}

static UNCONFIRMED: Mutex<Vec<UnconfirmedStep>> = Mutex::new(Vec::new());

/// Reverts the counts of steps that the device has skipped. Waits for those steps.
fn settle() {
    let steps = std::mem::take(&mut *lock(&UNCONFIRMED));
    for step in steps {
        if step.readback.wait().is_ok_and(|found| found != 0.0) {
            // Writing a number on the CPU cannot fail.
            let _ = step.holders.iter().try_for_each(|holders| count(holders, step.before));
        }
    }
}

/// [`settle`] for readers of the state.
#[pyfunction]
fn _settle_steps(py: Python<'_>) {
    py.detach(settle);
}

fn step<A: Fused>(
    groups: &Bound<'_, PyList>,
    state: &Bound<'_, PyDict>,
    optimizer: &Bound<'_, PyAny>,
    names: &'static Names,
) -> PyResult<()> {
    let py = groups.py();
    settle();
    let unless = RECORDED_STEP.take();
    let mut work: SmallVec<[Work; 4]> = SmallVec::new();
    let mut sets = FactorSets::default();
    let (recording, mut objects) = (capture::recording_id().is_some(), Vec::new());
    let mut elements = 0;
    for (number, group) in groups.iter().enumerate() {
        let group = group.cast_into::<PyDict>()?;
        let options: A = options(&group, names)?;
        let Some(params) = group.get_item(pyo3::intern!(py, "params"))? else { continue };
        let stateful = !names.scalars.is_empty() || options.keeps().contains(&true);
        for object in params.try_iter()? {
            let object = object?.cast_into::<PyTensor>()?;
            let param = object.get().tensor();
            let Some(grad) = param.grad() else { continue };
            let kept = match stateful {
                false => None,
                true => Some(state_of(state, &object)?),
            };
            let (mut scalars, mut holders, mut tensors, mut first) =
                (A::START, SmallVec::new(), [None, None, None], false);
            if let Some(kept) = &kept {
                (scalars, holders) = read_scalars::<A>(kept, names)?;
                (tensors, first) = state_tensors(kept, names, &options, &param)?;
            }
            let set = sets.advance(number, &options, &mut scalars, first);
            count(&holders, scalars).py()?;
            elements += param.numel();
            work.push(Work { param, grad, tensors, holders, set });
            if recording {
                objects.push(object.unbind());
            }
        }
    }
    let recorded = match recording {
        true => {
            let mut recorded = Recorded::<A>::new(groups, state, optimizer, names, &sets, &work, objects)?;
            recorded.readback = unless.as_ref().map(|u| u.readback.clone());
            Some(recorded)
        }
        false => None,
    };
    let update = move || {
        let members = work.iter().map(|w| Member {
            param: &w.param,
            grad: &w.grad,
            state: w.tensors.each_ref().map(|t| t.as_ref()),
            set: w.set,
        });
        let scale = unless.as_ref().and_then(|u| u.grad_scale.as_ref()).map_or(Arg::from(1.0), Arg::from);
        let recorded = recorded.map(|recorded| || Box::new(recorded) as Box<dyn ReplayNumbers>);
        sets.update(members, scale, unless.as_ref().map(|u| &u.found_inf), recorded)
    };
    if elements < SMALL || recording { update().py() } else { py.detach(update).py() }
}

/// A step of a formula composed of tensor ops, parameter by parameter.
fn composed_step<A: Composed>(groups: &Bound<'_, PyList>, state: &Bound<'_, PyDict>, names: &Names) -> PyResult<()> {
    let py = groups.py();
    capture::refuse_host(&format!("{}.step", A::NAME)).py()?;
    for group in groups.iter() {
        let group = group.cast_into::<PyDict>()?;
        let options: A = options(&group, names)?;
        let Some(params) = group.get_item(pyo3::intern!(py, "params"))? else { continue };
        for object in params.try_iter()? {
            let object = object?.cast_into::<PyTensor>()?;
            let param = object.get().tensor();
            let Some(grad) = param.grad() else { continue };
            let kept = state_of(state, &object)?;
            let (mut scalars, holders) = read_scalars::<A>(&kept, names)?;
            let (tensors, _) = state_tensors(&kept, names, &options, &param)?;
            let mut step = || no_grad(|| options.step_one(&param, &grad, &mut scalars, &tensors));
            if param.numel() < SMALL {
                step().py()?
            } else {
                py.detach(step).py()?
            }
            count(&holders, scalars).py()?;
        }
    }
    Ok(())
}

/// A recorded step: the counts that its replays must advance in Python's groups and state.
struct Recorded<A> {
    optimizer: Py<PyAny>,
    groups: Py<PyList>,
    state: Py<PyDict>,
    members: usize,
    names: &'static Names,
    sets: Vec<RecordedSet<A>>,
    /// Whether a replay has skipped the step, where it may.
    readback: Option<Arc<Readback>>,
}

struct RecordedSet<A> {
    group: Py<PyDict>,
    options: A,
    params: Vec<RecordedParam>,
    /// State before the step that was counted last.
    before: Scalars,
    /// Whether the next replay is the first step of these parameters, because the recorded one was not run.
    first: bool,
}

struct RecordedParam {
    object: Py<PyTensor>,
    param: Tensor,
    holders: SmallVec<[Tensor; 2]>,
    /// Values of the holders at our last write.
    versions: SmallVec<[u32; 2]>,
}

fn numbers_in<A: Fused>(holders: &[Tensor]) -> Result<Scalars> {
    let mut scalars = A::START;
    scalars.iter_mut().zip(holders).try_for_each(|(value, holder)| holder.item::<f64>().map(|found| *value = found))?;
    Ok(scalars)
}

impl RecordedParam {
    fn count(&mut self, scalars: Scalars) {
        // Writing a number on the CPU cannot fail.
        if count(&self.holders, scalars).is_ok() {
            self.versions = self.holders.iter().map(Tensor::version).collect();
        }
    }
}

impl<A: Fused> Recorded<A> {
    fn new(
        groups: &Bound<'_, PyList>,
        state: &Bound<'_, PyDict>,
        optimizer: &Bound<'_, PyAny>,
        names: &'static Names,
        sets: &FactorSets,
        work: &[Work],
        objects: Vec<Py<PyTensor>>,
    ) -> PyResult<Self> {
        let mut recorded = Vec::new();
        for set in sets.iter() {
            let group = groups.get_item(set.group)?.cast_into::<PyDict>()?;
            let options = options(&group, names)?;
            let (group, params) = (group.unbind(), Vec::new());
            recorded.push(RecordedSet { group, options, params, before: set.before, first: set.first });
        }
        for (w, object) in work.iter().zip(objects) {
            let versions = w.holders.iter().map(Tensor::version).collect();
            let param = RecordedParam { object, param: w.param.clone(), holders: w.holders.clone(), versions };
            recorded[w.set].params.push(param);
        }
        Ok(Self {
            optimizer: optimizer.clone().unbind(),
            groups: groups.clone().unbind(),
            state: state.clone().unbind(),
            members: groups.len(),
            names,
            sets: recorded,
            readback: None,
        })
    }

    /// Whether the optimizer still has these groups, with the same tensors; numeric options may change.
    fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        let (groups, state, optimizer) = (self.groups.bind(py), self.state.bind(py), self.optimizer.bind(py));
        if !optimizer.getattr(pyo3::intern!(py, "param_groups"))?.is(groups)
            || !optimizer.getattr(pyo3::intern!(py, "state"))?.is(state)
            || groups.len() != self.members
        {
            return Ok(false);
        }
        for set in &self.sets {
            let now: A = options(set.group.bind(py), self.names)?;
            let moved = |p: &RecordedParam| !p.object.get().with(|t| t.is_same(&p.param));
            if now.keeps() != set.options.keeps() || set.params.iter().any(moved) {
                return Ok(false);
            }
            let written = |p: &RecordedParam| p.holders.iter().zip(&p.versions).any(|(h, v)| h.version() != *v);
            if set.params.iter().any(written) {
                let all = set.params.iter().map(|p| numbers_in::<A>(&p.holders)).collect::<Result<Vec<_>>>().py()?;
                if all.windows(2).any(|pair| pair[0] != pair[1]) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl<A: Fused> ReplayNumbers for Recorded<A> {
    fn fits(&self) -> bool {
        settle();
        Python::attach(|py| self.holds(py)).unwrap_or(false)
    }

    fn renew(&mut self, write: &mut dyn FnMut(f64)) {
        for set in &mut self.sets {
            // `fits` has read both before.
            if let Ok(now) = Python::attach(|py| options(set.group.bind(py), self.names)) {
                set.options = now;
            }
            let Some(Ok(mut scalars)) = set.params.first().map(|p| numbers_in::<A>(&p.holders)) else { continue };
            set.before = scalars;
            let factors = set.options.advance(&mut scalars, std::mem::take(&mut set.first));
            set.params.iter_mut().for_each(|p| p.count(scalars));
            factors.numbers().into_iter().for_each(&mut *write);
        }
    }

    fn launched(&mut self) {
        self.sets.iter_mut().for_each(|set| set.first = false);
        let Some(readback) = &self.readback else { return };
        let step = |set: &RecordedSet<A>| {
            let holders = set.params.iter().map(|p| p.holders.clone()).collect();
            UnconfirmedStep { readback: readback.clone(), holders, before: set.before }
        };
        lock(&UNCONFIRMED).extend(self.sets.iter().map(step));
    }

    fn undo(&mut self) {
        for set in &mut self.sets {
            let before = set.before;
            set.params.iter_mut().for_each(|p| p.count(before));
        }
    }
}

/// Steps the optimizer of that name over its parameter groups, in one pass. Groups hold options by PyTorch's names;
/// `state` holds a dict per parameter, in which missing entries are created. A recorded step checks with `optimizer`
/// that they are unchanged.
#[pyfunction]
fn _optim_step(
    name: &str,
    groups: &Bound<'_, PyList>,
    state: &Bound<'_, PyDict>,
    optimizer: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = groups.py();
    let _span = record_function_of(optimizer);
    macro_rules! by_name {
        ($($optimizer:literal => $options:ident),* $(,)?; $($composed:literal => $composed_options:ident),* $(,)?) => {
            match name {
                $($optimizer => {
                    static NAMES: PyOnceLock<Names> = PyOnceLock::new();
                    step::<$options>(groups, state, optimizer, NAMES.get_or_init(py, || Names::of::<$options>(py)))
                })*
                $($composed => {
                    static NAMES: PyOnceLock<Names> = PyOnceLock::new();
                    let names = NAMES.get_or_init(py, || Names::of::<$composed_options>(py));
                    composed_step::<$composed_options>(groups, state, names)
                })*
                _ => Err(type_error(format!("_optim_step: '{name}' is not an optimizer with an update rule"))),
            }
        };
    }
    by_name! {
        "SGD" => SgdOptions, "Adam" => AdamOptions, "AdamW" => AdamWOptions, "NAdam" => NAdamOptions, "RAdam" => RAdamOptions,
        "Adamax" => AdamaxOptions, "Adagrad" => AdagradOptions, "Adadelta" => AdadeltaOptions, "RMSprop" => RmsPropOptions;
        "ASGD" => AsgdOptions, "Adafactor" => AdafactorOptions, "Muon" => MuonOptions, "Rprop" => RpropOptions,
    }
}

/// The span of a step, by PyTorch's name for it.
fn record_function_of(optimizer: &Bound<'_, PyAny>) -> profile::Span {
    profile::span(profile::Category::Annotation, || {
        let class = optimizer.get_type().name().map_or_else(|_| "Optimizer".into(), |name| name.to_string());
        format!("Optimizer.step#{class}.step")
    })
}

/// Sets the gradients of all parameters of the groups to `None`.
#[pyfunction]
fn _forget_grads(groups: &Bound<'_, PyList>) -> PyResult<()> {
    let _span = profile::span(profile::Category::Annotation, || "Optimizer.zero_grad");
    for group in groups.iter() {
        let Some(params) = group.cast_into::<PyDict>()?.get_item(pyo3::intern!(groups.py(), "params"))? else {
            continue;
        };
        for object in params.try_iter()? {
            object?.cast_into::<PyTensor>()?.get().forget_grad().py()?;
        }
    }
    Ok(())
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_settle_steps, module)?)?;
    module.add_function(wrap_pyfunction!(_forget_grads, module)?)?;
    module.add_function(wrap_pyfunction!(_optim_step, module)?)
}
