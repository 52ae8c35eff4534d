//! Work over lists of tensors in one call of the engine: optimizer steps, the norm of many tensors, scaling with a
//! check.

use crate::autograd::mode::no_grad;
use crate::capture::{self, ReplayNumbers};
use crate::{Arg, Tensor};
use rushlight_core::backend::{Operand, ParamUpdate, UPDATE_NUMBERS, UpdateRule, call};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Device, Error, Layout, Result, View};

/// One parameter's share of an optimizer step; [`ParamUpdate`] documents the fields.
#[derive(Clone, Copy)]
pub struct Update<'a> {
    /// The parameter.
    pub param: &'a Tensor,
    /// Its gradient.
    pub grad: &'a Tensor,
    /// The rule's state tensors, contiguous.
    pub state: [Option<&'a Tensor>; 3],
    /// Whether to go up the gradient.
    pub maximize: bool,
    /// Part of the parameter added to its gradient.
    pub weight_decay: f64,
    /// Factor of the parameter itself.
    pub shrink: f64,
    /// How the parameter follows.
    pub rule: UpdateRule,
}

fn operand(arg: Arg) -> Operand {
    match arg {
        Arg::Tensor(t) => Operand::Tensor(t.engine_view()),
        Arg::Scalar(s) => Operand::Scalar(s),
    }
}

fn same_device(op: &str, tensors: &[&Tensor], arg: Option<Arg>) -> Result<()> {
    let mut all = tensors.iter().copied().chain(arg.and_then(Arg::tensor));
    match all.next() {
        Some(first) => all.try_for_each(|t| first.same_device(t, op)),
        None => Ok(()),
    }
}

/// Changes parameters and their state in one pass, gradients multiplied by `grad_scale` (a number or a tensor of one)
/// first. Nothing is recorded: steps are never differentiated.
///
/// ```
/// use rushlight_core::backend::UpdateRule;
/// use rushlight_tensor::{Tensor, foreach};
/// let (param, grad) = (Tensor::new([1.0f32, 2.0])?, Tensor::new([10.0f32, 20.0])?);
/// let rule = UpdateRule::Sgd { decay: 0.0, gain: 0.0, step: 0.0, grad_step: 0.1 };
/// let (state, maximize, weight_decay, shrink) = ([None; 3], false, 0.0, 1.0);
/// let update = foreach::Update { param: &param, grad: &grad, state, maximize, weight_decay, shrink, rule };
/// foreach::update(&[update], 0.5)?;
/// assert_eq!(param.to_vec::<f32>()?, [0.5, 1.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn update<'a>(updates: &[Update], grad_scale: impl Into<Arg<'a>>) -> Result<()> {
    step(updates, grad_scale.into(), None, |_| Ok(Addresses::new()))
}

/// [`update`] that can be part of a captured step, where its numbers are new at each replay: `sets` says which set of
/// numbers each update has, counted from 0 in order of appearance, and `renew` writes those sets, each as [`numbers`]
/// gives it. There, nothing is done where `found_inf`, one `f32`, is not zero.
pub fn update_renewed<'a>(
    updates: &[Update],
    sets: &[usize],
    grad_scale: impl Into<Arg<'a>>,
    found_inf: Option<&Tensor>,
    renew: impl FnOnce() -> Box<dyn ReplayNumbers>,
) -> Result<()> {
    step(updates, grad_scale.into(), found_inf, |device| {
        if !capture::is_recording() {
            return Ok(Addresses::new());
        }
        let mut now: Vec<f64> = Vec::new();
        for (u, &set) in updates.iter().zip(sets) {
            if now.len() == set * SET {
                now.extend(numbers(u.maximize, u.weight_decay, u.shrink, u.rule));
            }
        }
        let Some(address) = capture::register(device, &now, renew())? else { return Ok(Addresses::new()) };
        Ok(sets.iter().map(|set| address + (set * SET * size_of::<f64>()) as u64).collect())
    })
}

/// Numbers of a set.
const SET: usize = UPDATE_NUMBERS;

/// The numbers of an update as engines keep them on the device.
pub fn numbers(maximize: bool, weight_decay: f64, shrink: f64, rule: UpdateRule) -> [f64; SET] {
    ParamUpdate::numbers_of(maximize, weight_decay, shrink, rule)
}

/// Device addresses of each update's numbers; empty if the numbers are passed with the call.
type Addresses = SmallVec<[u64; 8]>;

fn step(
    updates: &[Update],
    grad_scale: Arg,
    found_inf: Option<&Tensor>,
    addresses: impl FnOnce(Device) -> Result<Addresses>,
) -> Result<()> {
    let Some(first) = updates.first() else { return Ok(()) };
    for u in updates {
        check(first, u)?;
    }
    same_device("update", &[first.param], Some(grad_scale))?;
    let row_major = |t: &Tensor| t.is_contiguous();
    let all_row_major =
        |u: &Update| row_major(u.param) && row_major(u.grad) && u.state.iter().flatten().all(|s| row_major(s));
    let aligned: SmallVec<[Aligned; 8]> = if updates.iter().all(all_row_major) {
        SmallVec::new()
    } else {
        updates.iter().map(Aligned::new).collect::<Result<_>>()?
    };
    let views: Vec<ParamUpdate> = updates
        .iter()
        .enumerate()
        .map(|(i, u)| ParamUpdate {
            param: aligned.get(i).map_or_else(|| u.param.engine_view(), |a| a.tensors[0].view_as(&a.layouts[0])),
            grad: aligned.get(i).map_or_else(|| u.grad.engine_view(), |a| a.tensors[1].view_as(&a.layouts[1])),
            state: match aligned.get(i) {
                Some(a) => a.states(u),
                None => u.state.map(|s| s.map(|s| s.engine_view())),
            },
            maximize: u.maximize,
            weight_decay: u.weight_decay,
            shrink: u.shrink,
            rule: u.rule,
        })
        .collect();
    let live = addresses(first.param.device())?;
    if live.is_empty() && found_inf.is_some() {
        return Err(Error::unsupported("update: steps are left out by a tensor's value only in captured steps"));
    }
    let (grad_scale, found_inf) = (operand(grad_scale), found_inf.map(|t| t.engine_view()));
    first.param.run(call::Update { live: live.to_vec(), updates: views, grad_scale, found_inf })?;
    for (i, u) in updates.iter().enumerate() {
        u.state.iter().flatten().for_each(|s| s.changed_unrecorded());
        u.param.changed_unrecorded();
        if let Some(aligned) = aligned.get(i) {
            no_grad(|| aligned.write_back(u))?;
        }
    }
    Ok(())
}

/// The tensors of an update in one memory order, which engines treat as row-major. Tensors of another order are
/// copied. Parameter, gradient and states, in this order.
struct Aligned {
    tensors: SmallVec<[Tensor; 5]>,
    layouts: SmallVec<[Layout; 5]>,
}

impl Aligned {
    fn new(u: &Update) -> Result<Self> {
        let whole = u.param.layout().preserved();
        let order = whole.memory_order();
        let all = [u.param, u.grad].into_iter().chain(u.state.into_iter().flatten());
        let tensors: SmallVec<[Tensor; 5]> =
            all.map(|t| no_grad(|| t.detach().in_layout(&whole))).collect::<Result<_>>()?;
        let layouts = tensors.iter().map(|t| t.layout().permute(&order)).collect();
        Ok(Self { tensors, layouts })
    }

    fn states(&self, u: &Update) -> [Option<View<'_>>; 3] {
        let mut views = (2..self.tensors.len()).map(|i| self.tensors[i].view_as(&self.layouts[i]));
        u.state.map(|s| s.and_then(|_| views.next()))
    }

    /// Writes the copies back to their tensors.
    fn write_back(&self, u: &Update) -> Result<()> {
        let changed = [u.param].into_iter().chain(u.state.into_iter().flatten());
        let own = self.tensors.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, t)| t);
        changed.zip(own).filter(|(t, own)| !t.shares_storage(own)).try_for_each(|(t, own)| t.copy_(own).map(drop))
    }
}

fn check(first: &Update, u: &Update) -> Result<()> {
    first.param.same_device(u.param, "update")?;
    for t in [u.grad].into_iter().chain(u.state.into_iter().flatten()) {
        u.param.same_device(t, "update")?;
        if t.shape() != u.param.shape() || t.dtype() != u.param.dtype() {
            return Err(Error::shape(format!(
                "update: a gradient or state of shape {:?} and dtype {} does not fit its parameter of shape {:?} and dtype {}",
                t.shape(),
                t.dtype(),
                u.param.shape(),
                u.param.dtype()
            )));
        }
    }
    Ok(())
}

/// The p-norm of all elements of all tensors taken as one vector, accumulated in `f64`: zero-dim, `f64` if a tensor is,
/// else `f32`.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, foreach};
/// let tensors = [Tensor::new([3.0f32])?, Tensor::new([[4.0f32, 0.0]])?];
/// assert_eq!(foreach::norm(&[&tensors[0], &tensors[1]], 2.0)?.item::<f32>()?, 5.0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn norm(tensors: &[&Tensor], norm_type: f64) -> Result<Tensor> {
    let dtype = if tensors.iter().any(|t| t.dtype() == DType::F64) { DType::F64 } else { DType::F32 };
    let Some(first) = tensors.first() else { return Tensor::zeros_with([], dtype) };
    same_device("norm", tensors, None)?;
    if norm_type == 0.0 {
        // The norm of the tensors' norms: how many have an element that is not zero.
        let some = tensors.iter().map(|t| t.ne(0)?.any(..)).collect::<Result<SmallVec<[Tensor; 16]>>>()?;
        return crate::stack(&some.iter().collect::<SmallVec<[&Tensor; 16]>>(), 0)?.sum(..)?.to_dtype(dtype);
    }
    let out = first.uninit_like(&[], dtype)?;
    let views: SmallVec<[View; 16]> = tensors.iter().map(|t| t.engine_view()).collect();
    first.run(call::ForeachNorm { p: norm_type, xs: call::List::from_slice(&views), out: out.engine_view() })?;
    Ok(out)
}

/// Copies each tensor to the one in its place, which has its number of elements, converting dtypes; without recording.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, foreach};
/// let (x, y) = (Tensor::new([1.0f32, 2.0])?, Tensor::zeros([2])?);
/// foreach::copy_(&[&x], &[&y])?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn copy_(from: &[&Tensor], to: &[&Tensor]) -> Result<()> {
    if from.len() != to.len() {
        return Err(Error::value(format!("foreach copy: {} tensors to {} others", from.len(), to.len())));
    }
    same_device("foreach copy", from, None)?;
    let (mut sources, mut places) = (Vec::new(), Vec::new());
    for (x, y) in from.iter().zip(to) {
        if x.numel() != y.numel() {
            return Err(Error::shape(format!("foreach copy: {:?} does not fit {:?}", x.shape(), y.shape())));
        }
        x.same_device(y, "foreach copy")?;
        if x.is_contiguous() && y.is_contiguous() && x.dtype().is_float() && y.dtype().is_float() {
            if x.numel() > 0 {
                sources.push(x.engine_view());
                places.push(y.engine_view());
            }
        } else {
            no_grad(|| y.copy_(&x.reshape(y.shape())?).map(drop))?;
        }
    }
    if let Some(first) = from.first().filter(|_| !sources.is_empty()) {
        first.run(call::ForeachCopy { from: call::List::from_slice(&sources), to: call::List::from_slice(&places) })?;
    }
    to.iter().for_each(|t| t.changed_unrecorded());
    Ok(())
}

/// Multiplies all tensors by a factor (a number or a tensor of one), in place and without recording.
pub fn scale_<'a>(tensors: &[&Tensor], factor: impl Into<Arg<'a>>) -> Result<()> {
    scale(tensors, Some(factor.into()), None)
}

/// [`scale_`], with a check: `found_inf`, one `f32`, becomes 1 if an element was infinite or NaN before, else it is
/// unchanged.
pub fn unscale_<'a>(tensors: &[&Tensor], factor: impl Into<Arg<'a>>, found_inf: &Tensor) -> Result<()> {
    scale(tensors, Some(factor.into()), Some(found_inf))
}

/// Sets `found_inf`, one `f32`, to 1 if an element of a tensor is infinite or NaN, otherwise leaves it unchanged.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, foreach};
/// let found_inf = Tensor::new(0.0f32)?;
/// foreach::check_finite(&[&Tensor::new([1.0f32, f32::NAN])?], &found_inf)?;
/// assert_eq!(found_inf.item::<f32>()?, 1.0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn check_finite(tensors: &[&Tensor], found_inf: &Tensor) -> Result<()> {
    scale(tensors, None, Some(found_inf))
}

fn scale(tensors: &[&Tensor], factor: Option<Arg>, found_inf: Option<&Tensor>) -> Result<()> {
    let Some(first) = tensors.first() else { return Ok(()) };
    same_device("scale_", tensors, factor)?;
    if let Some(found) = found_inf {
        first.same_device(found, "scale_")?;
        if found.dtype() != DType::F32 || found.numel() != 1 {
            return Err(Error::dtype(format!(
                "scale_: found_inf must be one float32, not {:?} of {}",
                found.shape(),
                found.dtype()
            )));
        }
    }
    let copies: SmallVec<[Option<Tensor>; 16]> = tensors
        .iter()
        .map(|t| {
            if factor.is_some() && t.layout().overlaps() {
                return Err(Error::value(
                    "scale_: more than one element of a tensor refers to a single memory location; change a copy of it: x.copy()? in Rust, x.clone() in Python",
                ));
            }
            if t.layout().is_dense() { Ok(None) } else { no_grad(|| t.contiguous()).map(Some) }
        })
        .collect::<Result<_>>()?;
    // In whatever order of dimensions: engines go through memory.
    let layouts: SmallVec<[Layout; 16]> = tensors
        .iter()
        .zip(&copies)
        .map(|(t, c)| c.as_ref().unwrap_or(t).layout())
        .map(|l| if l.is_contiguous() { l.clone() } else { l.permute(&l.memory_order()) })
        .collect();
    let views: SmallVec<[View; 16]> = tensors
        .iter()
        .zip(&copies)
        .zip(&layouts)
        .map(|((t, c), layout)| c.as_ref().unwrap_or(t).view_as(layout))
        .collect();
    first.run(call::ForeachScale {
        factor: factor.map(operand),
        xs: call::List::from_slice(&views),
        found_inf: found_inf.map(|f| f.engine_view()),
    })?;
    if factor.is_some() {
        for (t, copy) in tensors.iter().zip(&copies) {
            match copy {
                Some(copy) => no_grad(|| t.copy_(copy).map(drop))?,
                None => t.changed_unrecorded(),
            }
        }
    }
    if let Some(found) = found_inf {
        found.changed_unrecorded();
    }
    Ok(())
}
