//! The schedule of stochastic weight averaging.

use super::cycle::PerGroup;
use super::formula::{self, Anneal};
use super::{At, Group, Plan, Policy, Scheduler, number};
use crate::Optimizer;
use rushlight_core::{Error, Result};
use rushlight_tensor::state::{Dict, Value};

/// Anneals the rate to `swa_lr` in `anneal_epochs` steps and keeps it there, for averaging weights with
/// [`Ema`](crate::Ema). PyTorch has it in `torch.optim.swa_utils`.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::lr_scheduler::{Anneal, LrScheduler, SWALR};
/// use rushlight::optim::{Optimizer, Sgd};
/// use rushlight::Tensor;
/// let mut optimizer = Sgd::new([Tensor::ones([2])?.requires_grad_(true)?], 0.5)?;
/// let mut scheduler = SWALR::builder(0.1).anneal_epochs(2).anneal_strategy(Anneal::Linear).build(&mut optimizer)?;
/// scheduler.step(&mut optimizer)?;
/// assert!((optimizer.lr() - 0.3).abs() < 1e-12);
/// scheduler.step(&mut optimizer)?;
/// scheduler.step(&mut optimizer)?;
/// assert_eq!(optimizer.lr(), 0.1);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub type SWALR = Scheduler<SWALROptions>;

/// Options of [`SWALR`].
#[derive(Clone, Debug)]
pub struct SWALROptions {
    swa_lr: PerGroup,
    anneal_epochs: usize,
    anneal_strategy: Anneal,
}

impl SWALR {
    /// A schedule that ends at `swa_lr`, one rate for all groups or one for each.
    pub fn new(optimizer: &mut dyn Optimizer, swa_lr: impl Into<PerGroup>) -> Result<Self> {
        Self::builder(swa_lr).build(optimizer)
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](Plan::build).
    pub fn builder(swa_lr: impl Into<PerGroup>) -> Plan<SWALROptions> {
        Plan(SWALROptions { swa_lr: swa_lr.into(), anneal_epochs: 10, anneal_strategy: Anneal::Cos })
    }
}

impl Plan<SWALROptions> {
    /// Steps from the current rate to `swa_lr`, 10 by default.
    pub fn anneal_epochs(mut self, anneal_epochs: usize) -> Self {
        self.0.anneal_epochs = anneal_epochs;
        self
    }

    /// The curve, a cosine by default.
    pub fn anneal_strategy(mut self, anneal_strategy: Anneal) -> Self {
        self.0.anneal_strategy = anneal_strategy;
        self
    }
}

impl Policy for SWALROptions {
    fn prepare(&mut self, groups: &mut [&mut dyn Group]) -> Result<()> {
        let swa_lrs = self.swa_lr.expand("swa_lr", groups.len())?;
        groups.iter_mut().zip(swa_lrs).try_for_each(|(group, swa_lr)| group.set("swa_lr", swa_lr.into()))
    }

    fn lrs(&mut self, at: At, groups: &mut [&mut dyn Group]) -> Result<Vec<f64>> {
        let (step, epochs) = (at.count as f64, self.anneal_epochs as f64);
        let lr = |group: &&mut dyn Group| -> Result<f64> {
            Ok(formula::swa(step, epochs, self.anneal_strategy, number(&**group, "swa_lr")?, group.lr()))
        };
        groups.iter().map(lr).collect()
    }

    fn save(&self, state: &mut Dict) {
        state.insert("_anneal_strategy".into(), self.anneal_strategy.name().into());
        state.insert("anneal_epochs".into(), self.anneal_epochs.into());
    }

    fn load(&mut self, state: &Value) -> Result<()> {
        let (strategy, epochs) = (state.get("_anneal_strategy")?.as_str()?, state.get("anneal_epochs")?.as_usize()?);
        let anneal = Anneal::named(strategy)
            .ok_or_else(|| Error::value(format!("SWALR: unknown anneal strategy '{strategy}'; use cos or linear")))?;
        (self.anneal_strategy, self.anneal_epochs) = (anneal, epochs);
        Ok(())
    }
}
