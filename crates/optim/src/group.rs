//! The optimizers whose step is a formula per parameter: groups of options, state per parameter, one pass of the
//! engine.

use crate::optimizer::{Group, Optimizer, ParamGroup, check_params};
use crate::options::Options;
use crate::pass::{FactorSet, FactorSets, Member};
use rushlight_core::backend::UpdateRule;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Dims, Error, Result, Scalar};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::capture::{self, Readback, ReplayNumbers};
use rushlight_tensor::foreach;
use rushlight_tensor::state::{Dict, Key, Stateful, Value};
use rushlight_tensor::{Arg, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// One step's update of a parameter; the fields are those of an engine's update call (`call::Update`).
#[derive(Clone, Copy)]
pub struct Factors {
    /// Whether to go up the gradient.
    pub maximize: bool,
    /// Part of the parameter added to its gradient.
    pub weight_decay: f64,
    /// Factor of the parameter itself.
    pub shrink: f64,
    /// How the parameter follows.
    pub rule: UpdateRule,
}

impl Factors {
    /// The numbers as engines keep them on the device.
    pub fn numbers(self) -> impl IntoIterator<Item = f64> {
        foreach::numbers(self.maximize, self.weight_decay, self.shrink, self.rule)
    }
}

/// Numbers kept for each parameter: its step count, then numbers of the rule.
pub type Scalars = [f64; 3];

/// An optimizer's formula.
pub trait Algorithm: Options {
    /// Names of the numbers kept for each parameter, in the order of [`Scalars`].
    const SCALARS: &'static [&'static str] = &["step"];
    /// Their first values.
    const START: Scalars = [0.0; 3];
    /// Names of the tensors kept for each parameter, in the order the engine takes them.
    const TENSORS: &'static [&'static str];
    /// Whether state is made with the optimizer and not with a parameter's first step.
    const EAGER: bool = false;

    /// Checks the options, with PyTorch's messages.
    fn validate(&self) -> Result<()>;
    /// Checks a parameter.
    fn check_param(&self, _param: &Tensor) -> Result<()> {
        Ok(())
    }
    /// Which of the tensors these options need.
    fn keeps(&self) -> [bool; 3];
    /// The shape of a kept tensor, by its place in [`Algorithm::TENSORS`]; `None` if this parameter has none there.
    fn kept_shape(&self, at: usize, param: &Tensor) -> Option<Dims> {
        self.keeps()[at].then(|| Dims::from_slice(param.shape()))
    }
    /// The value a kept tensor begins with, by its place.
    fn initial(&self, _at: usize) -> f64 {
        0.0
    }
    /// A kept tensor as it begins; `None` if this parameter has none there.
    fn fresh(&self, at: usize, param: &Tensor) -> Result<Option<Tensor>> {
        let Some(shape) = self.kept_shape(at, param) else { return Ok(None) };
        no_grad(|| match shape[..] == *param.shape() {
            // In the parameter's memory order.
            true => param.detach().full_like(self.initial(at)).map(Some),
            false => Tensor::full_with(shape, self.initial(at), (param.dtype(), param.device())).map(Some),
        })
    }
    /// Steps all parameters; `skip` is set only within captured steps.
    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()>;
}

/// The condition for skipping a captured step: the device's flag, and the host's copy of it.
#[derive(Clone, Copy)]
pub struct SkipCondition<'a> {
    /// One `f32`.
    pub found_inf: &'a Tensor,
    /// The same, later.
    pub readback: &'a Arc<Readback>,
}

/// A formula that the engine carries out in one pass.
pub trait Fused: Algorithm {
    /// Counts a step and returns its factors. `first`: whether a state tensor is new.
    fn advance(&self, scalars: &mut Scalars, first: bool) -> Factors;
}

/// A formula made of tensor ops, one parameter after the other. It cannot be captured.
pub trait Composed: Algorithm {
    /// Steps one parameter: counts in `scalars`, changes `param` and the tensors kept for it, which are there as
    /// [`Algorithm::kept_shape`] says.
    fn step_one(&self, param: &Tensor, grad: &Tensor, scalars: &mut Scalars, kept: &[Option<Tensor>; 3]) -> Result<()>;
}

/// A parameter and its state.
pub struct Slot {
    pub param: Tensor,
    /// Whether it has state to save.
    started: bool,
    pub tensors: [Option<Tensor>; 3],
}

/// Parameters that share options.
pub struct Params<A> {
    numbers: SharedNumbers<A>,
    pub slots: Vec<Slot>,
    /// Entries of others by name, mostly of schedules.
    extra: Dict,
}

/// Captured steps hold it too: they count steps and look at the options when they are replayed.
type SharedNumbers<A> = Arc<Mutex<Numbers<A>>>;

/// The host's part of a group's state.
struct Numbers<A> {
    options: A,
    /// One for each slot.
    scalars: Vec<Scalars>,
    /// Another one, and steps captured before no longer fit.
    version: u64,
    /// Steps counted by a replay that the device may have skipped.
    unconfirmed: Vec<UnconfirmedStep>,
}

struct UnconfirmedStep {
    readback: Arc<Readback>,
    slots: Arc<[usize]>,
    before: Scalars,
}

/// The numbers, once it is known which steps were left out.
fn lock_settled<A>(numbers: &Mutex<Numbers<A>>) -> MutexGuard<'_, Numbers<A>> {
    let mut numbers = lock(numbers);
    for UnconfirmedStep { readback, slots, before } in std::mem::take(&mut numbers.unconfirmed) {
        // A device that does not answer has not stepped either.
        if readback.wait().is_ok_and(|found_inf| found_inf != 0.0) {
            slots.iter().for_each(|&slot| numbers.scalars[slot] = before);
        }
    }
    numbers
}

impl<A: Algorithm> Params<A> {
    fn new(options: A, slots: Vec<Slot>, scalars: Vec<Scalars>, extra: Dict) -> Self {
        Self {
            numbers: Arc::new(Mutex::new(Numbers { options, scalars, version: 0, unconfirmed: Vec::new() })),
            slots,
            extra,
        }
    }

    /// The current options.
    pub fn options(&self) -> A {
        lock_settled(&self.numbers).options.clone()
    }

    /// Invalidates captured steps: they are recorded again.
    fn changed(&self) {
        lock_settled(&self.numbers).version += 1;
    }
}

/// An optimizer with PyTorch's options and state, made by [`new`](GroupOptimizer::new), or by
/// [`builder`](GroupOptimizer::builder) and [`groups`](GroupOptimizer::groups) with options.
pub struct GroupOptimizer<A: Algorithm> {
    groups: Vec<Params<A>>,
    defaults: A,
}

/// Makes an optimizer: options not set have PyTorch's defaults.
pub struct Builder<A> {
    pub(crate) groups: Vec<ParamGroup>,
    pub(crate) options: A,
}

impl<A: Options> Builder<A> {
    pub(crate) fn new(groups: Vec<ParamGroup>) -> Self {
        Self { groups, options: A::default() }
    }
}

impl<A: Algorithm> GroupOptimizer<A> {
    /// An optimizer of one group of parameters with a learning rate, and PyTorch's defaults for the other options.
    pub fn new(params: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<Self> {
        let mut builder = Self::builder(params);
        builder.options.set_lr(lr);
        builder.build()
    }

    /// Options for one group of parameters, to be followed by [`build`](Builder::build).
    pub fn builder(params: impl IntoIterator<Item = Tensor>) -> Builder<A> {
        Builder::new(vec![ParamGroup::new(params)])
    }

    /// Several groups, whose own options go before those set on the builder.
    pub fn groups(groups: impl IntoIterator<Item = ParamGroup>) -> Builder<A> {
        Builder::new(groups.into_iter().collect())
    }
}

impl<A: Algorithm> Builder<A> {
    /// The optimizer.
    pub fn build(self) -> Result<GroupOptimizer<A>> {
        if self.groups.iter().all(|g| g.params.is_empty()) {
            return Err(Error::value("optimizer got an empty parameter list"));
        }
        self.options.validate()?;
        let mut optimizer = GroupOptimizer { groups: Vec::new(), defaults: self.options };
        self.groups.into_iter().try_for_each(|g| optimizer.add_param_group(g))?;
        Ok(optimizer)
    }
}

impl Slot {
    fn new(param: Tensor) -> Self {
        Self { param, started: false, tensors: [None, None, None] }
    }

    /// Makes the state that is missing; whether there was any.
    pub fn start<A: Algorithm>(&mut self, options: &A) -> Result<bool> {
        self.started = true;
        let mut first = false;
        for (at, tensor) in self.tensors.iter_mut().enumerate().filter(|(_, tensor)| tensor.is_none()) {
            // Made once, also where the step is being captured.
            *tensor = capture::outside(|| options.fresh(at, &self.param))?;
            first |= tensor.is_some();
        }
        Ok(first)
    }

    fn state<A: Algorithm>(&self, scalars: Scalars) -> Result<Dict> {
        let mut dict = Dict::new();
        if !self.started {
            return Ok(dict);
        }
        for (name, value) in A::SCALARS.iter().zip(scalars) {
            dict.insert((*name).into(), Tensor::full_with([], value, DType::F32)?.into());
        }
        for (name, tensor) in A::TENSORS.iter().zip(&self.tensors) {
            if let Some(tensor) = tensor {
                dict.insert((*name).into(), tensor.into());
            }
        }
        Ok(dict)
    }

    /// A slot for the same parameter, and its numbers, with a state read from a dictionary.
    fn with_state<A: Algorithm>(&self, options: &A, state: &Value) -> Result<(Slot, Scalars)> {
        let (mut slot, mut scalars) = (Slot::new(self.param.clone()), A::START);
        slot.started = true;
        for (scalar, name) in scalars.iter_mut().zip(A::SCALARS) {
            *scalar = state.get(*name)?.as_float()?;
        }
        for (key, value) in state.as_dict()? {
            let name = key.to_string();
            let Some(at) = A::TENSORS.iter().position(|t| *t == name) else {
                if A::SCALARS.contains(&name.as_str()) {
                    continue;
                }
                return Err(Error::value(format!("{} keeps no '{name}' for a parameter", A::NAME)));
            };
            if let Value::None = value {
                continue;
            }
            let tensor = value.as_tensor()?;
            // State that these options do not use is kept for others.
            let wanted = options.kept_shape(at, &self.param).unwrap_or_else(|| Dims::from_slice(self.param.shape()));
            if *tensor.shape() != wanted[..] {
                return Err(Error::shape(format!(
                    "'{name}' has shape {:?}, its parameter of shape {:?} needs {:?}",
                    tensor.shape(),
                    self.param.shape(),
                    &wanted[..]
                )));
            }
            let own = match wanted[..] == *self.param.shape() {
                true => self.param.zeros_like()?,
                false => Tensor::zeros_with(&wanted, (self.param.dtype(), self.param.device()))?,
            };
            no_grad(|| own.copy_(tensor).map(drop))?;
            slot.tensors[at] = Some(own);
        }
        Ok((slot, scalars))
    }
}

impl<A: Algorithm> Group for Params<A> {
    fn for_each_param(&self, f: &mut dyn FnMut(&Tensor)) {
        self.slots.iter().for_each(|s| f(&s.param));
    }

    fn lr(&self) -> f64 {
        lock_settled(&self.numbers).options.lr()
    }

    fn set_lr(&mut self, lr: f64) {
        lock_settled(&self.numbers).options.set_lr(lr);
    }

    fn get(&self, name: &str) -> Option<Value> {
        let key = Key::from(name);
        self.extra.get(&key).cloned().or_else(|| self.options().to_dict().swap_remove(&key))
    }

    fn set(&mut self, name: &str, value: Value) -> Result<()> {
        let mut options = self.options();
        if options.set(name, &value)? {
            options.validate()?;
            let mut numbers = lock_settled(&self.numbers);
            // Other tensors are another step; other factors are not.
            numbers.version += (options.keeps() != numbers.options.keeps()) as u64;
            numbers.options = options;
        } else {
            self.extra.insert(name.into(), value);
        }
        Ok(())
    }
}

impl<A: Algorithm> Optimizer for GroupOptimizer<A> {
    fn step(&mut self) -> Result<()> {
        A::step(&mut self.groups, 1.0.into(), None)
    }

    fn step_scaled(&mut self, grad_scale: &Tensor) -> Result<()> {
        A::step(&mut self.groups, grad_scale.into(), None)
    }

    fn step_unless(&mut self, found_inf: &Tensor, readback: &Arc<Readback>, grad_scale: Option<&Tensor>) -> Result<()> {
        let scale = grad_scale.map_or(Arg::from(1.0), Arg::from);
        A::step(&mut self.groups, scale, Some(SkipCondition { found_inf, readback }))
    }

    fn param_groups(&self) -> Vec<&dyn Group> {
        self.groups.iter().map(|g| g as &dyn Group).collect()
    }

    fn param_groups_mut(&mut self) -> Vec<&mut dyn Group> {
        self.groups.iter_mut().map(|g| g as &mut dyn Group).collect()
    }

    fn add_param_group(&mut self, group: ParamGroup) -> Result<()> {
        check_params(self.groups.iter().flat_map(|g| &g.slots).map(|s| &s.param), &group.params)?;
        let mut options = self.defaults.clone();
        for (name, value) in &group.options {
            if !options.set(name, value)? {
                return Err(Error::value(format!("{} has no option '{name}'", A::NAME)));
            }
        }
        options.validate()?;
        group.params.iter().try_for_each(|p| options.check_param(p))?;
        let mut slots: Vec<Slot> = group.params.into_iter().map(Slot::new).collect();
        if A::EAGER {
            slots.iter_mut().try_for_each(|s| s.start(&options).map(drop))?;
        }
        self.groups.iter().for_each(Params::changed);
        let scalars = vec![A::START; slots.len()];
        self.groups.push(Params::new(options, slots, scalars, Dict::new()));
        Ok(())
    }

    fn zero_grad(&self) {
        self.groups.iter().flat_map(|g| &g.slots).for_each(|s| s.param.zero_grad());
    }
}

impl<A: Algorithm> Stateful for GroupOptimizer<A> {
    fn state(&self) -> Result<Value> {
        let (mut state, mut groups) = (Dict::new(), Vec::new());
        let mut index = 0i64;
        for group in &self.groups {
            let (options, scalars) = {
                let numbers = lock_settled(&group.numbers);
                (numbers.options.clone(), numbers.scalars.clone())
            };
            let mut entry = options.to_dict();
            entry.extend(group.extra.clone());
            let mut params = Vec::new();
            for (slot, scalars) in group.slots.iter().zip(scalars) {
                let kept = slot.state::<A>(scalars)?;
                if !kept.is_empty() {
                    state.insert(index.into(), kept.into());
                }
                params.push(Value::Int(index));
                index += 1;
            }
            entry.insert("params".into(), params.into());
            groups.push(Value::Dict(entry));
        }
        Ok(Dict::from_iter([("state".into(), state.into()), ("param_groups".into(), groups.into())]).into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let loaded = state.get("param_groups")?.as_list()?;
        if loaded.len() != self.groups.len() {
            return Err(Error::value(format!(
                "loaded state dict has a different number of parameter groups: {}, the optimizer {}",
                loaded.len(),
                self.groups.len()
            )));
        }
        let by_id: HashMap<&Key, &Value> = state.get("state")?.as_dict()?.iter().collect();
        let mut groups = Vec::with_capacity(loaded.len());
        for (n, (entry, group)) in loaded.iter().zip(&self.groups).enumerate() {
            let ids = entry.get("params")?.as_list()?;
            if ids.len() != group.slots.len() {
                return Err(Error::value(format!(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: group {n} has {} \
                     parameters, the optimizer's {}",
                    ids.len(),
                    group.slots.len()
                )));
            }
            let (mut options, mut extra) = (group.options(), Dict::new());
            for (key, value) in entry.as_dict()? {
                if *key != Key::from("params") && !options.set(&key.to_string(), value)? {
                    extra.insert(key.clone(), value.clone());
                }
            }
            options.validate()?;
            let (mut slots, mut scalars) = (Vec::new(), Vec::new());
            for (id, slot) in ids.iter().zip(&group.slots) {
                let id = id.as_int()?;
                let (slot, own) = match by_id.get(&Key::Int(id)) {
                    Some(kept) => slot
                        .with_state(&options, kept)
                        .map_err(|e| e.within(&format!("load_state_dict: parameter {id}")))?,
                    None => (Slot::new(slot.param.clone()), A::START),
                };
                slots.push(slot);
                scalars.push(own);
            }
            groups.push(Params::new(options, slots, scalars, extra));
        }
        self.groups.iter().for_each(Params::changed);
        self.groups = groups;
        Ok(())
    }
}

/// Who is stepped, and by which of the sets of factors.
struct Work {
    group: usize,
    slot: usize,
    grad: Tensor,
    set: usize,
}

/// A step of all groups by one call of the engine.
pub fn fused_step<A: Fused>(groups: &mut [Params<A>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
    let mut work: SmallVec<[Work; 8]> = SmallVec::new();
    let mut sets = FactorSets::default();
    for (g, group) in groups.iter_mut().enumerate() {
        let numbers = &mut *lock_settled(&group.numbers);
        for (s, (slot, scalars)) in group.slots.iter_mut().zip(&mut numbers.scalars).enumerate() {
            let Some(grad) = slot.param.grad() else { continue };
            let first = slot.start(&numbers.options)?;
            let set = sets.advance(g, &numbers.options, scalars, first);
            work.push(Work { group: g, slot: s, grad, set });
        }
    }
    let members = work.iter().map(|w| {
        let slot = &groups[w.group].slots[w.slot];
        Member { param: &slot.param, grad: &w.grad, state: slot.tensors.each_ref().map(|t| t.as_ref()), set: w.set }
    });
    let readback = skip.map(|skip| skip.readback.clone());
    let captured = || Box::new(Captured::new(groups, &sets, &work, readback)) as Box<dyn ReplayNumbers>;
    sets.update(members, grad_scale, skip.map(|skip| skip.found_inf), Some(captured))
}

/// A step of all groups, parameter by parameter.
pub fn composed_step<A: Composed>(groups: &mut [Params<A>], grad_scale: Arg, _: Option<SkipCondition>) -> Result<()> {
    capture::refuse_host(&format!("a step of {}", A::NAME))?;
    no_grad(|| {
        for group in groups {
            let numbers = &mut *lock_settled(&group.numbers);
            for (slot, scalars) in group.slots.iter_mut().zip(&mut numbers.scalars) {
                let Some(grad) = slot.param.grad() else { continue };
                let grad = match grad_scale {
                    Arg::Scalar(Scalar::Float(1.0)) => grad,
                    factor => grad.mul(factor)?,
                };
                slot.start(&numbers.options)?;
                numbers.options.step_one(&slot.param, &grad, scalars, &slot.tensors)?;
            }
        }
        Ok(())
    })
}

/// A captured step: the counts its replays must advance.
struct Captured<A> {
    sets: Vec<CapturedSet<A>>,
    /// Whether a replay has left the step out, where it may.
    readback: Option<Arc<Readback>>,
}

struct CapturedSet<A> {
    numbers: SharedNumbers<A>,
    version: u64,
    slots: Arc<[usize]>,
    /// Before the step that was counted last.
    before: Scalars,
}

impl<A: Fused> Captured<A> {
    fn new(groups: &[Params<A>], sets: &FactorSets, work: &[Work], readback: Option<Arc<Readback>>) -> Self {
        let set = |(i, set): (usize, &FactorSet)| {
            let numbers = groups[set.group].numbers.clone();
            let version = lock_settled(&numbers).version;
            let slots = work.iter().filter(|w| w.set == i).map(|w| w.slot).collect();
            CapturedSet { numbers, version, slots, before: set.before }
        };
        Self { sets: sets.iter().enumerate().map(set).collect(), readback }
    }
}

impl<A: Fused> ReplayNumbers for Captured<A> {
    fn fits(&self) -> bool {
        self.sets.iter().all(|set| {
            let numbers = lock_settled(&set.numbers);
            let mut scalars = set.slots.iter().map(|&slot| numbers.scalars[slot]);
            let first = scalars.next();
            numbers.version == set.version && scalars.all(|s| Some(s) == first)
        })
    }

    fn renew(&mut self, write: &mut dyn FnMut(f64)) {
        for set in &mut self.sets {
            let mut numbers = lock_settled(&set.numbers);
            let Some(mut scalars) = set.slots.first().map(|&slot| numbers.scalars[slot]) else { continue };
            set.before = scalars;
            let factors = numbers.options.advance(&mut scalars, false);
            set.slots.iter().for_each(|&slot| numbers.scalars[slot] = scalars);
            factors.numbers().into_iter().for_each(&mut *write);
        }
    }

    fn launched(&mut self) {
        let Some(readback) = &self.readback else { return };
        for set in &self.sets {
            let unconfirmed =
                UnconfirmedStep { readback: readback.clone(), slots: set.slots.clone(), before: set.before };
            // Several sets of a group are in doubt together.
            lock(&set.numbers).unconfirmed.push(unconfirmed);
        }
    }

    fn undo(&mut self) {
        for set in &self.sets {
            let mut numbers = lock_settled(&set.numbers);
            set.slots.iter().for_each(|&slot| numbers.scalars[slot] = set.before);
        }
    }
}
