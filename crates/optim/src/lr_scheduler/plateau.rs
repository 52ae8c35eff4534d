//! A schedule that follows a measure of progress.

use super::formula::{self, Patience};
use super::set_lrs;
use crate::Optimizer;
use crate::lr_scheduler::PerGroup;
use crate::options::Field;
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::capture::refuse_host;
use rushlight_tensor::state::{Dict, Stateful, Value};

/// Whether less or more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlateauMode {
    /// Less, as for losses.
    Min,
    /// More, as for accuracies.
    Max,
}

/// How an improvement is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdMode {
    /// As a part of the best so far.
    Rel,
    /// As a difference.
    Abs,
}

/// Reduces the rate when a measure has stopped improving. Its `step` takes the measure, so it is no
/// [`LrScheduler`](super::LrScheduler).
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::lr_scheduler::ReduceLROnPlateau;
/// use rushlight::optim::{Optimizer, Sgd};
/// use rushlight::Tensor;
/// let mut optimizer = Sgd::new([Tensor::ones([2])?.requires_grad_(true)?], 1.0)?;
/// let mut scheduler = ReduceLROnPlateau::builder().patience(1).build(&mut optimizer)?;
/// for loss in [1.0, 1.0, 1.0] {
///     scheduler.step(loss, &mut optimizer)?;
/// }
/// assert_eq!(optimizer.lr(), 0.1);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReduceLROnPlateau {
    options: ReduceLROnPlateauBuilder,
    min_lrs: Vec<f64>,
    best: f64,
    counts: Patience,
    last_epoch: i64,
    last_lr: Vec<f64>,
}

/// Makes a [`ReduceLROnPlateau`]: options not set have PyTorch's defaults.
#[derive(Clone, Debug)]
pub struct ReduceLROnPlateauBuilder {
    mode: PlateauMode,
    factor: f64,
    patience: usize,
    threshold: f64,
    threshold_mode: ThresholdMode,
    cooldown: usize,
    min_lr: PerGroup,
    eps: f64,
}

impl ReduceLROnPlateauBuilder {
    setters! {
        /// Whether less (the default) or more is better.
        mode: PlateauMode;
        /// Factor of a reduction, 0.1 by default.
        factor: f64;
        /// Steps without improvement that are allowed, 10 by default.
        patience: usize;
        /// The least change that is an improvement, 1e-4 by default.
        threshold: f64;
        /// How an improvement is measured, relatively by default.
        threshold_mode: ThresholdMode;
        /// Steps to wait after a reduction, none by default.
        cooldown: usize;
        /// The lowest rate, for all groups or for each; 0 by default.
        min_lr: into PerGroup;
        /// Smaller reductions are not made, 1e-8 by default.
        eps: f64;
    }

    /// The schedule for an optimizer.
    pub fn build(self, optimizer: &mut dyn Optimizer) -> Result<ReduceLROnPlateau> {
        if self.factor >= 1.0 {
            return Err(Error::value("Factor should be < 1.0."));
        }
        let last_lr: Vec<f64> = optimizer.param_groups().iter().map(|g| g.lr()).collect();
        let min_lrs = self.min_lr.expand("min_lr", last_lr.len())?;
        let best = self.worst();
        Ok(ReduceLROnPlateau { options: self, min_lrs, best, counts: Patience::default(), last_epoch: 0, last_lr })
    }

    fn worst(&self) -> f64 {
        match self.mode {
            PlateauMode::Min => f64::INFINITY,
            PlateauMode::Max => f64::NEG_INFINITY,
        }
    }

    fn is_better(&self, a: f64, best: f64) -> bool {
        let (minimize, relative) = (self.mode == PlateauMode::Min, self.threshold_mode == ThresholdMode::Rel);
        formula::is_better(minimize, relative, self.threshold, a, best)
    }
}

impl ReduceLROnPlateau {
    /// A schedule with PyTorch's defaults.
    pub fn new(optimizer: &mut dyn Optimizer) -> Result<Self> {
        Self::builder().build(optimizer)
    }

    /// The schedule's options, to be followed by [`build`](ReduceLROnPlateauBuilder::build).
    pub fn builder() -> ReduceLROnPlateauBuilder {
        ReduceLROnPlateauBuilder {
            mode: PlateauMode::Min,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_lr: 0.0.into(),
            eps: 1e-8,
        }
    }

    /// Takes note of a measure and reduces the rates if it is time.
    pub fn step(&mut self, metrics: f64, optimizer: &mut dyn Optimizer) -> Result<()> {
        refuse_host("a schedule's step")?;
        let mut groups = optimizer.param_groups_mut();
        let mut lrs: Vec<f64> = groups.iter().map(|g| g.lr()).collect();
        if lrs.len() != self.min_lrs.len() {
            self.min_lrs = self.options.min_lr.expand("min_lr", lrs.len())?;
        }
        self.last_epoch += 1;
        let better = self.options.is_better(metrics, self.best);
        if better {
            self.best = metrics;
        }
        if self.counts.count(better, self.options.patience, self.options.cooldown) {
            for (lr, &min) in lrs.iter_mut().zip(&self.min_lrs) {
                *lr = formula::reduced(*lr, self.options.factor, min, self.options.eps);
            }
            set_lrs(&mut groups, &lrs)?;
        }
        self.last_lr = lrs;
        Ok(())
    }

    /// The learning rates set last, one for each group.
    pub fn get_last_lr(&self) -> &[f64] {
        &self.last_lr
    }
}

impl Stateful for ReduceLROnPlateau {
    fn state(&self) -> Result<Value> {
        let o = &self.options;
        let (mode, threshold_mode) = (
            if o.mode == PlateauMode::Min { "min" } else { "max" },
            if o.threshold_mode == ThresholdMode::Rel { "rel" } else { "abs" },
        );
        let default_min_lr = if let PerGroup::Shared(min) = o.min_lr { Value::Float(min) } else { Value::None };
        let entries: [(&str, Value); 15] = [
            ("factor", o.factor.into()),
            ("default_min_lr", default_min_lr),
            ("min_lrs", self.min_lrs.to_value()),
            ("patience", o.patience.into()),
            ("cooldown", o.cooldown.into()),
            ("eps", o.eps.into()),
            ("last_epoch", self.last_epoch.into()),
            ("_last_lr", self.last_lr.to_value()),
            ("mode_worse", o.worst().into()),
            ("mode", mode.into()),
            ("threshold", o.threshold.into()),
            ("threshold_mode", threshold_mode.into()),
            ("best", self.best.into()),
            ("cooldown_counter", self.counts.cooldown_counter.into()),
            ("num_bad_epochs", self.counts.num_bad_epochs.into()),
        ];
        Ok(entries.into_iter().map(|(k, v)| (k.into(), v)).collect::<Dict>().into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let unknown = |what: &str, name: &str| Error::value(format!("{what} {name} is unknown!"));
        let mode = match state.get("mode")?.as_str()? {
            "min" => PlateauMode::Min,
            "max" => PlateauMode::Max,
            other => return Err(unknown("mode", other)),
        };
        let threshold_mode = match state.get("threshold_mode")?.as_str()? {
            "rel" => ThresholdMode::Rel,
            "abs" => ThresholdMode::Abs,
            other => return Err(unknown("threshold mode", other)),
        };
        let min_lrs = Vec::from_value(state.get("min_lrs")?)?;
        let min_lr = match state.get("default_min_lr")? {
            Value::None => PerGroup::Each(min_lrs.clone()),
            shared => PerGroup::Shared(shared.as_float()?),
        };
        *self = Self {
            options: ReduceLROnPlateauBuilder {
                mode,
                factor: state.get("factor")?.as_float()?,
                patience: state.get("patience")?.as_usize()?,
                threshold: state.get("threshold")?.as_float()?,
                threshold_mode,
                cooldown: state.get("cooldown")?.as_usize()?,
                min_lr,
                eps: state.get("eps")?.as_float()?,
            },
            min_lrs,
            best: state.get("best")?.as_float()?,
            counts: Patience {
                num_bad_epochs: state.get("num_bad_epochs")?.as_usize()?,
                cooldown_counter: state.get("cooldown_counter")?.as_usize()?,
            },
            last_epoch: state.get("last_epoch")?.as_int()?,
            last_lr: Vec::from_value(state.get("_last_lr")?)?,
        };
        Ok(())
    }
}
