//! The optimizers of a run and their schedules.

use rushlight_core::{Error, Result};
use rushlight_optim::Optimizer;
use rushlight_optim::lr_scheduler::{LrScheduler, ReduceLROnPlateau};
use rushlight_tensor::state::{Stateful, Value};

/// When a schedule steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// After each optimizer step.
    Step,
    /// At the end of each epoch.
    Epoch,
}

enum Schedule {
    Formula(Box<dyn LrScheduler>),
    Plateau(Box<ReduceLROnPlateau>, String),
}

struct Scheduled {
    schedule: Schedule,
    interval: Interval,
    frequency: u64,
}

struct Entry {
    optimizer: Box<dyn Optimizer>,
    schedules: Vec<Scheduled>,
}

/// The result of [`TrainModule::configure_optimizers`](crate::TrainModule::configure_optimizers): one optimizer or
/// several, each with schedules.
///
/// ```
/// # mod rushlight { pub use rushlight_optim as optim; pub use rushlight_train as train; }
/// use rushlight::optim::lr_scheduler::{CosineAnnealingLR, ReduceLROnPlateau};
/// use rushlight::optim::{AdamW, Sgd};
/// use rushlight::train::{Interval, Optimizers};
/// # use rushlight_tensor::Tensor;
/// # let (w, b) = (Tensor::ones([2])?.requires_grad_(true)?, Tensor::ones([2])?.requires_grad_(true)?);
/// let mut adam = AdamW::new([w], 1e-3)?;
/// let cosine = CosineAnnealingLR::new(&mut adam, 1000)?;
/// let mut sgd = Sgd::new([b], 0.1)?;
/// let plateau = ReduceLROnPlateau::new(&mut sgd)?;
/// let optimizers = Optimizers::new(adam).schedule(cosine, Interval::Step).and(sgd).plateau(plateau, "val_loss");
/// # assert_eq!(optimizers.len(), 2);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Optimizers {
    entries: Vec<Entry>,
    alternating: bool,
}

impl Optimizers {
    /// One optimizer.
    pub fn new(optimizer: impl Optimizer + 'static) -> Self {
        Self::boxed(Box::new(optimizer))
    }

    /// [`Optimizers::new`] for a boxed optimizer.
    pub fn boxed(optimizer: Box<dyn Optimizer>) -> Self {
        Self { entries: vec![Entry { optimizer, schedules: Vec::new() }], alternating: false }
    }

    /// Adds an optimizer, for other parameters.
    pub fn and(mut self, optimizer: impl Optimizer + 'static) -> Self {
        self.entries.push(Entry { optimizer: Box::new(optimizer), schedules: Vec::new() });
        self
    }

    /// Gives each optimizer its own loss: `training_step` is called once for each, and
    /// [`StepContext::optimizer_idx`](crate::StepContext::optimizer_idx) tells which. Without it, all optimizers use
    /// the gradients of one loss.
    pub fn alternating(mut self) -> Self {
        self.alternating = true;
        self
    }

    /// Adds a schedule to the optimizer added last.
    pub fn schedule(self, schedule: impl LrScheduler + 'static, interval: Interval) -> Self {
        self.schedule_every(schedule, interval, 1)
    }

    /// [`Optimizers::schedule`] that steps every `frequency` steps or epochs; 0 counts as 1.
    pub fn schedule_every(self, schedule: impl LrScheduler + 'static, interval: Interval, frequency: u64) -> Self {
        self.add(Schedule::Formula(Box::new(schedule)), interval, frequency)
    }

    /// Adds a schedule to the optimizer added last that watches a logged value, at the end of each epoch.
    pub fn plateau(self, schedule: ReduceLROnPlateau, monitor: impl Into<String>) -> Self {
        self.add(Schedule::Plateau(Box::new(schedule), monitor.into()), Interval::Epoch, 1)
    }

    fn add(mut self, schedule: Schedule, interval: Interval, frequency: u64) -> Self {
        if let Some(entry) = self.entries.last_mut() {
            entry.schedules.push(Scheduled { schedule, interval, frequency: frequency.max(1) });
        }
        self
    }

    /// Number of optimizers: at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// An optimizer by index.
    pub fn get_mut(&mut self, index: usize) -> Result<&mut dyn Optimizer> {
        let count = self.entries.len();
        match self.entries.get_mut(index) {
            Some(entry) => Ok(&mut *entry.optimizer),
            None => Err(Error::index(format!("there is no optimizer {index}: the run has {count}"))),
        }
    }

    /// An optimizer by index, to read.
    pub(crate) fn get(&self, index: usize) -> Result<&dyn Optimizer> {
        let entry = self.entries.get(index);
        entry
            .map(|entry| &*entry.optimizer)
            .ok_or_else(|| Error::index(format!("there is no optimizer {index}: the run has {}", self.entries.len())))
    }

    /// The groups of optimizers that step together: their indices.
    pub(crate) fn turns(&self) -> Vec<std::ops::Range<usize>> {
        match self.alternating {
            true => (0..self.len()).map(|i| i..i + 1).collect(),
            false => std::iter::once(0..self.len()).collect(),
        }
    }

    /// Steps the schedules that are due after `count` steps or epochs. `metric` returns logged values.
    pub(crate) fn step_schedules(
        &mut self,
        interval: Interval,
        count: u64,
        metric: &dyn Fn(&str) -> Option<f64>,
    ) -> Result<()> {
        for Entry { optimizer, schedules } in &mut self.entries {
            for s in schedules.iter_mut().filter(|s| s.interval == interval && count.is_multiple_of(s.frequency)) {
                match &mut s.schedule {
                    Schedule::Formula(schedule) => schedule.step(&mut **optimizer)?,
                    Schedule::Plateau(schedule, name) => {
                        let value = metric(name).ok_or_else(|| {
                            Error::value(format!(
                                "ReduceLROnPlateau watches '{name}', which no step has logged; log it in validation_step, or in \
                                 training_step with on_epoch"
                            ))
                        })?;
                        schedule.step(value, &mut **optimizer)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Learning rates, named as Lightning's monitor names them: `lr-0`, and `lr-0/pg1` for further groups.
    pub fn learning_rates(&self) -> Vec<(String, f64)> {
        let mut rates = Vec::new();
        for (i, entry) in self.entries.iter().enumerate() {
            let groups = entry.optimizer.param_groups();
            for (g, group) in groups.iter().enumerate() {
                let name = if groups.len() == 1 { format!("lr-{i}") } else { format!("lr-{i}/pg{}", g + 1) };
                rates.push((name, group.lr()));
            }
        }
        rates
    }

    pub(crate) fn states(&self) -> Result<(Value, Value)> {
        let (mut optimizers, mut schedules) = (Vec::new(), Vec::new());
        for entry in &self.entries {
            optimizers.push(entry.optimizer.state()?);
            for s in &entry.schedules {
                schedules.push(match &s.schedule {
                    Schedule::Formula(schedule) => schedule.state()?,
                    Schedule::Plateau(schedule, _) => schedule.state()?,
                });
            }
        }
        Ok((optimizers.into(), schedules.into()))
    }

    pub(crate) fn load_states(&mut self, optimizers: &Value, schedules: &Value) -> Result<()> {
        let (optimizers, schedules) = (optimizers.as_list()?, schedules.as_list()?);
        let own: usize = self.entries.iter().map(|entry| entry.schedules.len()).sum();
        if optimizers.len() != self.entries.len() || schedules.len() != own {
            return Err(Error::value(format!(
                "the checkpoint has {} optimizers and {} schedules, the run {} and {own}",
                optimizers.len(),
                schedules.len(),
                self.entries.len()
            )));
        }
        let mut schedules = schedules.iter();
        for (entry, state) in self.entries.iter_mut().zip(optimizers) {
            entry.optimizer.load_state(state)?;
            for s in &mut entry.schedules {
                let Some(state) = schedules.next() else { break };
                match &mut s.schedule {
                    Schedule::Formula(schedule) => schedule.load_state(state)?,
                    Schedule::Plateau(schedule, _) => schedule.load_state(state)?,
                }
            }
        }
        Ok(())
    }
}
