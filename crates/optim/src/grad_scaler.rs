//! Loss scaling for training in float16.

use crate::Optimizer;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::state::{Dict, Stateful, Value};
use rushlight_tensor::{Tensor, foreach};

/// Multiplies the loss by a scale so that small gradients do not vanish in float16, and takes it off again before the step. A step whose
/// gradients are not finite is left out and the scale reduced; after many good steps it grows.
///
/// ```
/// use rushlight_optim::{GradScaler, Optimizer, Sgd};
/// use rushlight_tensor::{Tensor, clip_grad_norm_};
/// let w = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
/// let mut optimizer = Sgd::new([w.clone()]).lr(0.1).build()?;
/// let mut scaler = GradScaler::new();
/// let loss = (&w * &w)?.sum()?;
/// scaler.scale(&loss)?.backward()?;
/// scaler.unscale_(&mut optimizer)?; // only to look at the gradients, or to clip them
/// clip_grad_norm_([&w], 1.0)?;
/// scaler.step(&mut optimizer)?;
/// scaler.update()?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Debug)]
pub struct GradScaler {
    enabled: bool,
    scale: f64,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: usize,
    growth_tracker: usize,
    /// What was done with which optimizer since the last update.
    stages: Vec<(OptimizerId, Stage)>,
}

/// An optimizer is told from others by its first parameter's memory: it may be moved, and none shares its parameters.
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
        Self {
            enabled: true,
            scale: 65_536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            growth_tracker: 0,
            stages: Vec::new(),
        }
    }

    /// The first scale.
    pub fn init_scale(mut self, init_scale: f64) -> Self {
        self.scale = init_scale;
        self
    }

    /// What the scale is multiplied by after `growth_interval` good steps.
    pub fn growth_factor(mut self, growth_factor: f64) -> Result<Self> {
        if growth_factor > 1.0 {
            self.growth_factor = growth_factor;
            return Ok(self);
        }
        Err(Error::value("The growth factor must be > 1.0."))
    }

    /// What the scale is multiplied by after a bad step.
    pub fn backoff_factor(mut self, backoff_factor: f64) -> Result<Self> {
        if backoff_factor < 1.0 {
            self.backoff_factor = backoff_factor;
            return Ok(self);
        }
        Err(Error::value("The backoff factor must be < 1.0."))
    }

    /// Good steps in a row after which the scale grows.
    pub fn growth_interval(mut self, growth_interval: usize) -> Self {
        self.growth_interval = growth_interval;
        self
    }

    /// Whether it does anything: a scaler that is off leaves losses alone and steps always.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Whether it does anything.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The scale now; 1 if off.
    pub fn get_scale(&self) -> f64 {
        if self.enabled { self.scale } else { 1.0 }
    }

    /// The loss times the scale: call `backward` on it.
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        if self.enabled { loss.mul(self.scale) } else { Ok(loss.clone()) }
    }

    /// Takes the scale off an optimizer's gradients, to look at them or to clip them before the step.
    pub fn unscale_(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let id = id(optimizer)?;
        match self.stage(id) {
            Some(Stage { stepped: true, .. }) => return Err(Error::value("unscale_() is being called after step().")),
            Some(_) => {
                return Err(Error::value(
                    "unscale_() has already been called on this optimizer since the last update().",
                ));
            }
            None => {}
        }
        let grads = grads(optimizer)?;
        let found_inf = Tensor::zeros([])?;
        foreach::unscale_(&grads.iter().collect::<Vec<_>>(), 1.0 / self.scale, &found_inf)?;
        self.stages.push((id, Stage { found_inf: found_inf.item::<f32>()? != 0.0, stepped: false }));
        Ok(())
    }

    /// Steps the optimizer unless a gradient is not finite; whether it did. Gradients that still carry the scale have it taken off
    /// within the step.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        if !self.enabled {
            return optimizer.step().map(|()| true);
        }
        let id = id(optimizer)?;
        let stage = self.stage(id);
        if let Some(Stage { stepped: true, .. }) = stage {
            return Err(Error::value("step() has already been called since the last update()."));
        }
        let found_inf = match stage {
            Some(stage) => stage.found_inf,
            None => {
                let found_inf = Tensor::zeros([])?;
                foreach::check_finite(&grads(optimizer)?.iter().collect::<Vec<_>>(), &found_inf)?;
                found_inf.item::<f32>()? != 0.0
            }
        };
        if !found_inf {
            match stage {
                Some(_) => optimizer.step()?,
                None => optimizer.step_scaled(&Tensor::full([], 1.0 / self.scale)?)?,
            }
        }
        self.stages.retain(|(other, _)| *other != id);
        self.stages.push((id, Stage { found_inf, stepped: true }));
        Ok(!found_inf)
    }

    /// Changes the scale by what the steps since the last update have found.
    pub fn update(&mut self) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        if self.stages.is_empty() {
            return Err(Error::value("No inf checks were recorded prior to update."));
        }
        if self.stages.iter().any(|(_, stage)| stage.found_inf) {
            self.scale *= self.backoff_factor;
            self.growth_tracker = 0;
        } else {
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
        self.stages.clear();
        Ok(())
    }

    /// Sets the scale and forgets what the steps since the last update have found.
    pub fn update_to(&mut self, new_scale: f64) {
        self.scale = new_scale;
        self.stages.clear();
    }

    fn stage(&self, id: OptimizerId) -> Option<Stage> {
        self.stages.iter().find(|(other, _)| *other == id).map(|(_, stage)| *stage)
    }
}

fn id(optimizer: &dyn Optimizer) -> Result<OptimizerId> {
    let params = optimizer.params();
    let first = params.first().ok_or_else(|| Error::value("GradScaler: the optimizer has no parameters"))?;
    Ok(std::ptr::from_ref(&**first.storage()) as usize)
}

fn grads(optimizer: &dyn Optimizer) -> Result<Vec<Tensor>> {
    let grads: Vec<Tensor> = optimizer.params().iter().filter_map(Tensor::grad).collect();
    if grads.is_empty() {
        return Err(Error::value("No inf checks were recorded for this optimizer: it has no gradients."));
    }
    if grads.iter().any(|g| g.dtype() == DType::F16) {
        return Err(Error::value(
            "Attempting to unscale FP16 gradients: keep the parameters in float32 and compute in float16.",
        ));
    }
    Ok(grads)
}

impl Stateful for GradScaler {
    fn state(&self) -> Result<Value> {
        if !self.enabled {
            return Ok(Dict::new().into());
        }
        let entries: [(&str, Value); 5] = [
            ("scale", self.scale.into()),
            ("growth_factor", self.growth_factor.into()),
            ("backoff_factor", self.backoff_factor.into()),
            ("growth_interval", self.growth_interval.into()),
            ("_growth_tracker", self.growth_tracker.into()),
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
        (self.scale, self.growth_factor, self.backoff_factor) = (scale, growth, backoff);
        (self.growth_interval, self.growth_tracker) = (interval, tracker);
        self.stages.clear();
        Ok(())
    }
}
