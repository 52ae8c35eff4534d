//! Loss scaling for training in float16.

use crate::Optimizer;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Device, Error, Result};
use rushlight_tensor::capture::{Readback, ReplayNumbers, live_numbers, recording_id};
use rushlight_tensor::state::{Dict, Stateful, Value};
use rushlight_tensor::{Tensor, foreach};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// Multiplies the loss by a scale so that small gradients do not vanish in float16, and takes it off again before the
/// step. A step whose gradients are not finite is left out and the scale reduced; after many good steps it grows.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::{GradScaler, Optimizer, Sgd};
/// use rushlight::{Tensor, clip_grad_norm_};
/// let w = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
/// let mut optimizer = Sgd::new([w.clone()], 0.1)?;
/// let mut scaler = GradScaler::new();
/// let loss = (&w * &w).sum(..)?;
/// scaler.scale(&loss)?.backward()?;
/// scaler.unscale_(&mut optimizer)?; // only to look at the gradients, or to clip them
/// clip_grad_norm_([&w], 1.0)?;
/// scaler.step(&mut optimizer)?;
/// scaler.update()?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// In a captured step ([`Capture`](rushlight_tensor::Capture)) all of `scale`, `unscale_`, `step` and `update` belong
/// inside, with one optimizer. The device then decides whether to step; the host learns of it when it needs to know, at
/// the latest before the next step. The device reports it before the optimizer's work, so that work overlaps with the
/// launch of the next step.
pub struct GradScaler {
    enabled: bool,
    scaling: Arc<Mutex<Scaling>>,
    /// Stage of each optimizer since the last update.
    stages: Vec<(OptimizerId, Stage)>,
}

/// An optimizer's step within a captured step: the device skips it where `found_inf` is not zero.
pub struct RecordedStep {
    /// One `f32` on the device.
    pub found_inf: Tensor,
    /// How the host learns of it.
    pub readback: Arc<Readback>,
    /// Factor that unscales the gradients; `None` if they are unscaled already.
    pub grad_scale: Option<Tensor>,
}

/// The scale and how it changes. Captured steps hold it too.
struct Scaling {
    scale: f64,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: usize,
    growth_tracker: usize,
    /// The overflow check of the captured step launched last.
    pending: Option<Arc<Readback>>,
    recorded: Option<Recorded>,
}

/// The scaler's tensors of a step being recorded.
struct Recorded {
    /// The recording.
    id: u64,
    scale: Tensor,
    inverse: Tensor,
    readback: Arc<Readback>,
    /// Set once gradients were looked at, and whether they carry the scale no longer.
    found_inf: Option<(Tensor, bool)>,
    /// Whether the step writes `found_inf` to the host already.
    reported: bool,
    stepped: bool,
    updates: Arc<AtomicBool>,
}

impl Recorded {
    /// Has the step write `found_inf` to the host.
    fn report(&mut self) -> Result<()> {
        match &self.found_inf {
            Some((found_inf, _)) if !self.reported => {
                self.reported = true;
                self.readback.tensor(found_inf.device())?.copy_(found_inf).map(drop)
            }
            _ => Ok(()),
        }
    }
}

impl Scaling {
    fn update(&mut self, found_inf: bool) {
        if found_inf {
            self.scale *= self.backoff_factor;
            self.growth_tracker = 0;
            return;
        }
        self.growth_tracker += 1;
        if self.growth_tracker >= self.growth_interval {
            let grown = self.scale * self.growth_factor;
            // It is used as a float32.
            if (grown as f32).is_finite() {
                self.scale = grown;
            }
            self.growth_tracker = 0;
        }
    }
}

/// Locks the scale after the last captured step's overflow check has arrived.
fn settled(scaling: &Mutex<Scaling>) -> MutexGuard<'_, Scaling> {
    let mut scaling = lock(scaling);
    if let Some(found_inf) = scaling.pending.take().and_then(|readback| readback.wait().ok()) {
        scaling.update(found_inf != 0.0);
    }
    scaling
}

/// A captured step's share of the scale.
struct Captured {
    scaling: Arc<Mutex<Scaling>>,
    readback: Arc<Readback>,
    /// Whether the step holds an update.
    updates: Arc<AtomicBool>,
}

impl ReplayNumbers for Captured {
    fn fits(&self) -> bool {
        true
    }

    fn renew(&mut self, write: &mut dyn FnMut(f64)) {
        let scale = settled(&self.scaling).scale;
        self.readback.prepare();
        write(scale);
        write(1.0 / scale);
    }

    fn launched(&mut self) {
        self.readback.launched();
        if self.updates.load(Relaxed) {
            lock(&self.scaling).pending = Some(self.readback.clone());
        }
    }

    fn undo(&mut self) {
        settled(&self.scaling).recorded = None;
    }
}

impl fmt::Debug for GradScaler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GradScaler").field("enabled", &self.enabled).field("scale", &self.get_scale()).finish()
    }
}

/// An optimizer is identified by its first parameter's memory: it may be moved, and no other shares its parameters.
type OptimizerId = usize;

#[derive(Clone, Copy, Debug)]
struct Stage {
    found_inf: bool,
    stepped: bool,
}

impl Default for GradScaler {
    fn default() -> Self {
        Self::new()
    }
}

impl GradScaler {
    /// A scaler with PyTorch's defaults: a scale of 65,536, doubled after 2,000 good steps, halved after a bad one.
    pub fn new() -> Self {
        let scaling = Scaling {
            scale: 65_536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            growth_tracker: 0,
            pending: None,
            recorded: None,
        };
        Self { enabled: true, scaling: Arc::new(Mutex::new(scaling)), stages: Vec::new() }
    }

    /// The first scale.
    pub fn init_scale(self, init_scale: f64) -> Self {
        settled(&self.scaling).scale = init_scale;
        self
    }

    /// Factor of the scale after `growth_interval` good steps.
    pub fn growth_factor(self, growth_factor: f64) -> Result<Self> {
        if growth_factor > 1.0 {
            settled(&self.scaling).growth_factor = growth_factor;
            return Ok(self);
        }
        Err(Error::value("The growth factor must be > 1.0."))
    }

    /// Factor of the scale after a step with infinite or NaN gradients.
    pub fn backoff_factor(self, backoff_factor: f64) -> Result<Self> {
        if backoff_factor < 1.0 {
            settled(&self.scaling).backoff_factor = backoff_factor;
            return Ok(self);
        }
        Err(Error::value("The backoff factor must be < 1.0."))
    }

    /// Good steps in a row after which the scale grows.
    pub fn growth_interval(self, growth_interval: usize) -> Self {
        settled(&self.scaling).growth_interval = growth_interval;
        self
    }

    /// Whether it does anything: a scaler that is off leaves losses alone and steps always.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// The growth factor, the backoff factor, the growth interval and the good steps since the scale changed.
    pub fn growth(&self) -> (f64, f64, usize, usize) {
        let now = settled(&self.scaling);
        (now.growth_factor, now.backoff_factor, now.growth_interval, now.growth_tracker)
    }

    /// Sets the growth factor, the backoff factor and the growth interval, unchecked as PyTorch's setters are.
    pub fn set_growth(&mut self, growth_factor: f64, backoff_factor: f64, growth_interval: usize) {
        let mut now = settled(&self.scaling);
        (now.growth_factor, now.backoff_factor, now.growth_interval) = (growth_factor, backoff_factor, growth_interval);
    }

    /// Whether it does anything.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The scale now; 1 if off.
    pub fn get_scale(&self) -> f64 {
        if self.enabled { settled(&self.scaling).scale } else { 1.0 }
    }

    /// The loss times the scale: call `backward` on it.
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        if !self.enabled {
            return Ok(loss.clone());
        }
        match self.recorded(loss.device(), |r| Ok(r.scale.clone()))? {
            // In float32, as float16 does not reach that far.
            Some(scale) => loss.to_dtype(wide(loss.dtype()))?.mul(&scale)?.to_dtype(loss.dtype()),
            None => loss.mul(self.get_scale()),
        }
    }

    /// Divides an optimizer's gradients by the scale, to inspect or clip them before the step.
    pub fn unscale_(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        self.unscale_grads(id(optimizer)?, &grads(optimizer)?)
    }

    /// [`unscale_`](Self::unscale_) for front ends that keep optimizers themselves: `id` tells optimizers apart.
    pub fn unscale_grads(&mut self, id: usize, grads: &[Tensor]) -> Result<()> {
        match self.stage(id) {
            Some(Stage { stepped: true, .. }) => return Err(Error::value("unscale_() is being called after step().")),
            Some(_) => return Err(unscaled_already()),
            None => {}
        }
        let device = checked(grads)?;
        let found_inf = Tensor::zeros_with([], device)?;
        let all = grads.iter().collect::<Vec<_>>();
        let captured = self.recorded(device, |r| {
            if r.found_inf.is_some() {
                return Err(unscaled_already());
            }
            foreach::unscale_(&all, &r.inverse, &found_inf)?;
            r.found_inf = Some((found_inf.clone(), true));
            Ok(())
        })?;
        if captured.is_none() {
            foreach::unscale_(&all, 1.0 / self.get_scale(), &found_inf)?;
            self.stages.push((id, Stage { found_inf: found_inf.item::<f32>()? != 0.0, stepped: false }));
        }
        Ok(())
    }

    /// Steps the optimizer unless a gradient is not finite; returns whether it did. Gradients that still carry the
    /// scale are unscaled within the step. In a captured step the device decides, and this returns true.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        if !self.enabled {
            return optimizer.step().map(|()| true);
        }
        let (id, grads) = (id(optimizer)?, grads(optimizer)?);
        if let Some(step) = self.recorded_step(id, &grads)? {
            optimizer.step_unless(&step.found_inf, &step.readback, step.grad_scale.as_ref())?;
            return Ok(true);
        }
        let stage = self.stage(id);
        let found_inf = match stage {
            Some(stage) => stage.found_inf,
            None => found_inf(&grads)?.item::<f32>()? != 0.0,
        };
        if !found_inf {
            match stage {
                Some(_) => optimizer.step()?,
                None => optimizer.step_scaled(&Tensor::full_with([], 1.0 / self.get_scale(), checked(&grads)?)?)?,
            }
        }
        self.set_stepped(id, found_inf);
        Ok(!found_inf)
    }

    /// Whether a gradient is not finite, for front ends that step optimizers themselves. Unscales the gradients if that
    /// has not been done; [`set_stepped`](Self::set_stepped) belongs after the step.
    pub fn unscaled_found_inf(&mut self, id: usize, grads: &[Tensor]) -> Result<bool> {
        self.refuse_second_step(id)?;
        if self.stage(id).is_none() {
            self.unscale_grads(id, grads)?;
        }
        Ok(self.stage(id).is_some_and(|stage| stage.found_inf))
    }

    /// Notes that an optimizer has stepped, or was left out.
    pub fn set_stepped(&mut self, id: usize, found_inf: bool) {
        self.stages.retain(|(other, _)| *other != id);
        self.stages.push((id, Stage { found_inf, stepped: true }));
    }

    /// The tensors that the optimizer's step needs within a captured step; `None` if no step is being recorded.
    pub fn recorded_step(&mut self, id: usize, grads: &[Tensor]) -> Result<Option<RecordedStep>> {
        self.refuse_second_step(id)?;
        let device = checked(grads)?;
        self.recorded(device, |r| {
            if std::mem::replace(&mut r.stepped, true) {
                return Err(Error::unsupported(
                    "GradScaler: a captured step supports one optimizer; run without capture",
                ));
            }
            let (found_inf, unscaled) = match &r.found_inf {
                Some(found) => found.clone(),
                None => (found_inf(grads)?, false),
            };
            r.found_inf = Some((found_inf.clone(), unscaled));
            r.report()?;
            let grad_scale = (!unscaled).then(|| r.inverse.clone());
            Ok(RecordedStep { found_inf, readback: r.readback.clone(), grad_scale })
        })
    }

    fn refuse_second_step(&self, id: usize) -> Result<()> {
        match self.stage(id) {
            Some(Stage { stepped: true, .. }) => {
                Err(Error::value("step() has already been called since the last update()."))
            }
            _ => Ok(()),
        }
    }

    /// Whether gradients were checked since the last update.
    pub fn has_checks(&self) -> bool {
        !self.stages.is_empty() || settled(&self.scaling).recorded.as_ref().is_some_and(|r| r.found_inf.is_some())
    }

    /// Adjusts the scale by the overflow checks since the last update.
    pub fn update(&mut self) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let none = || Error::value("No inf checks were recorded prior to update.");
        if recording_id().is_some() {
            let mut scaling = settled(&self.scaling);
            let mut recorded = scaling.recorded.take().filter(|r| r.found_inf.is_some()).ok_or_else(none)?;
            recorded.updates.store(true, Relaxed);
            return recorded.report();
        }
        if self.stages.is_empty() {
            return Err(none());
        }
        settled(&self.scaling).update(self.stages.iter().any(|(_, stage)| stage.found_inf));
        self.stages.clear();
        Ok(())
    }

    /// Sets the scale and discards the overflow checks since the last update.
    pub fn update_to(&mut self, new_scale: f64) {
        settled(&self.scaling).scale = new_scale;
        self.stages.clear();
    }

    /// Calls `f` with this scaler's tensors of the step being recorded on `device`; `None` if no step is.
    fn recorded<T>(&self, device: Device, f: impl FnOnce(&mut Recorded) -> Result<T>) -> Result<Option<T>> {
        let Some(id) = recording_id() else { return Ok(None) };
        let mut scaling = settled(&self.scaling);
        if scaling.recorded.as_ref().is_none_or(|r| r.id != id) {
            let Some(readback) = Readback::new(device)? else { return Ok(None) };
            let updates = Arc::new(AtomicBool::new(false));
            let captured =
                Captured { scaling: self.scaling.clone(), readback: readback.clone(), updates: updates.clone() };
            let now = [scaling.scale, 1.0 / scaling.scale];
            let Some(numbers) = live_numbers(device, now, Box::new(captured))? else { return Ok(None) };
            let [scale, inverse] = numbers.map(|number| number.to_dtype(DType::F32));
            let (scale, inverse) = (scale?, inverse?);
            scaling.recorded = Some(Recorded {
                id,
                scale,
                inverse,
                readback,
                found_inf: None,
                reported: false,
                stepped: false,
                updates,
            });
        }
        scaling.recorded.as_mut().map(f).transpose()
    }

    fn stage(&self, id: OptimizerId) -> Option<Stage> {
        self.stages.iter().find(|(other, _)| *other == id).map(|(_, stage)| *stage)
    }
}

fn unscaled_already() -> Error {
    Error::value("unscale_() has already been called on this optimizer since the last update().")
}

/// The dtype a loss is scaled in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { dtype } else { DType::F32 }
}

fn id(optimizer: &dyn Optimizer) -> Result<OptimizerId> {
    let params = optimizer.params();
    let first = params.first().ok_or_else(|| Error::value("GradScaler: the optimizer has no parameters"))?;
    Ok(std::ptr::from_ref(&**first.storage()) as usize)
}

fn grads(optimizer: &dyn Optimizer) -> Result<Vec<Tensor>> {
    let grads: Vec<Tensor> = optimizer.params().iter().filter_map(Tensor::grad).collect();
    checked(&grads)?;
    Ok(grads)
}

/// The device of gradients that can be unscaled.
fn checked(grads: &[Tensor]) -> Result<Device> {
    let Some(first) = grads.first() else {
        return Err(Error::value("No inf checks were recorded for this optimizer: it has no gradients."));
    };
    if grads.iter().any(|g| g.dtype() == DType::F16) {
        return Err(Error::value(
            "Attempting to unscale FP16 gradients: keep the parameters in float32 and compute in float16.",
        ));
    }
    Ok(first.device())
}

/// One `f32`: 1 if a gradient is not finite.
fn found_inf(grads: &[Tensor]) -> Result<Tensor> {
    let found_inf = Tensor::zeros_with([], checked(grads)?)?;
    foreach::check_finite(&grads.iter().collect::<Vec<_>>(), &found_inf)?;
    Ok(found_inf)
}

impl Stateful for GradScaler {
    fn state(&self) -> Result<Value> {
        if !self.enabled {
            return Ok(Dict::new().into());
        }
        let now = settled(&self.scaling);
        let entries: [(&str, Value); 5] = [
            ("scale", now.scale.into()),
            ("growth_factor", now.growth_factor.into()),
            ("backoff_factor", now.backoff_factor.into()),
            ("growth_interval", now.growth_interval.into()),
            ("_growth_tracker", now.growth_tracker.into()),
        ];
        Ok(entries.into_iter().map(|(k, v)| (k.into(), v)).collect::<Dict>().into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        if state.as_dict()?.is_empty() {
            return Err(Error::value(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.",
            ));
        }
        let (scale, growth, backoff) = (
            state.get("scale")?.as_float()?,
            state.get("growth_factor")?.as_float()?,
            state.get("backoff_factor")?.as_float()?,
        );
        let (interval, tracker) =
            (state.get("growth_interval")?.as_usize()?, state.get("_growth_tracker")?.as_usize()?);
        let mut now = settled(&self.scaling);
        (now.scale, now.growth_factor, now.backoff_factor) = (scale, growth, backoff);
        (now.growth_interval, now.growth_tracker) = (interval, tracker);
        drop(now);
        self.stages.clear();
        Ok(())
    }
}
