//! The context of a step: its position, and its log.

use crate::metrics::Metric;
use crate::optimizers::Optimizers;
use rushlight_core::{Error, Result};
use rushlight_optim::{GradScaler, Optimizer};
use rushlight_tensor::Tensor;
use rushlight_tensor::capture::recording_id;
use std::sync::Arc;

/// The stage of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Training.
    #[default]
    Train,
    /// The few validation batches before training that find mistakes early. Nothing is logged.
    SanityCheck,
    /// Validation.
    Validate,
    /// Testing.
    Test,
    /// Predicting.
    Predict,
}

impl Stage {
    /// Lowercase, for messages and names.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Train => "train",
            Stage::SanityCheck => "sanity check",
            Stage::Validate => "validation",
            Stage::Test => "test",
            Stage::Predict => "predict",
        }
    }
}

/// How the values of an epoch are reduced to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReduceFx {
    /// The mean, weighted by the number of samples.
    #[default]
    Mean,
    /// The sum.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

/// How a value is logged; the defaults are Lightning's, except that epoch values cover all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOptions {
    pub(crate) on_step: Option<bool>,
    pub(crate) on_epoch: Option<bool>,
    pub(crate) prog_bar: bool,
    pub(crate) no_logger: bool,
    pub(crate) reduce_fx: ReduceFx,
    pub(crate) sync_dist: Option<bool>,
    pub(crate) batch_size: Option<usize>,
}

impl LogOptions {
    /// The defaults: training values by step, others by epoch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the value of the step is logged. Values that are logged by step and by epoch get `_step` and `_epoch`
    /// after their name.
    pub fn on_step(mut self, on_step: bool) -> Self {
        self.on_step = Some(on_step);
        self
    }

    /// Whether the value of the epoch is logged.
    pub fn on_epoch(mut self, on_epoch: bool) -> Self {
        self.on_epoch = Some(on_epoch);
        self
    }

    /// Whether the progress display shows the value.
    pub fn prog_bar(mut self, prog_bar: bool) -> Self {
        self.prog_bar = prog_bar;
        self
    }

    /// Whether loggers get the value; callbacks always do.
    pub fn logger(mut self, logger: bool) -> Self {
        self.no_logger = !logger;
        self
    }

    /// How the values of an epoch are reduced to one.
    pub fn reduce_fx(mut self, reduce_fx: ReduceFx) -> Self {
        self.reduce_fx = reduce_fx;
        self
    }

    /// Whether the epoch's value covers all ranks; true by default. Values of steps are rank 0's.
    pub fn sync_dist(mut self, sync_dist: bool) -> Self {
        self.sync_dist = Some(sync_dist);
        self
    }

    /// The number of samples the value covers; the batch's by default.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = Some(batch_size);
        self
    }
}

/// A loggable value: a number, a tensor of one element, a metric.
#[derive(Clone)]
pub enum LogValue {
    /// A number on the host.
    Number(f64),
    /// A one-element tensor; it is read when needed.
    Tensor(Tensor),
    /// A metric, whose value is computed over the epoch and all ranks.
    Metric(Arc<dyn Metric>),
}

impl From<f64> for LogValue {
    fn from(value: f64) -> Self {
        LogValue::Number(value)
    }
}

impl From<Tensor> for LogValue {
    fn from(value: Tensor) -> Self {
        LogValue::Tensor(value)
    }
}

impl From<&Tensor> for LogValue {
    fn from(value: &Tensor) -> Self {
        LogValue::Tensor(value.clone())
    }
}

impl<M: Metric + Clone + 'static> From<&M> for LogValue {
    fn from(value: &M) -> Self {
        LogValue::Metric(Arc::new(value.clone()))
    }
}

/// A name and how its value is logged.
#[derive(Clone)]
pub(crate) struct LogSpec {
    pub name: String,
    pub options: LogOptions,
    /// Set for metrics, which have no value of the step.
    pub metric: Option<Arc<dyn Metric>>,
}

/// The values logged by a step.
#[derive(Default)]
pub(crate) struct StepLog {
    pub specs: Vec<LogSpec>,
    pub values: Vec<LogValue>,
}

impl StepLog {
    pub(crate) fn clear(&mut self) {
        self.specs.clear();
        self.values.clear();
    }
}

/// Position of a step in its run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub stage: Stage,
    pub epoch: u64,
    pub batch_idx: u64,
    pub global_step: u64,
    pub dataloader_idx: usize,
    pub optimizer_idx: usize,
}

/// The context passed to a step with its batch.
pub struct StepContext<'a> {
    pub(crate) place: Place,
    pub(crate) log: &'a mut StepLog,
    /// Present with manual optimization.
    pub(crate) manual: Option<Manual<'a>>,
}

pub(crate) struct Manual<'a> {
    pub optimizers: &'a mut Optimizers,
    pub scaler: Option<&'a mut GradScaler>,
}

impl StepContext<'_> {
    /// The run's stage.
    pub fn stage(&self) -> Stage {
        self.place.stage
    }

    /// The epoch, from 0 on.
    pub fn epoch(&self) -> u64 {
        self.place.epoch
    }

    /// The batch in the epoch, from 0 on.
    pub fn batch_idx(&self) -> u64 {
        self.place.batch_idx
    }

    /// Optimizer steps done.
    pub fn global_step(&self) -> u64 {
        self.place.global_step
    }

    /// Index of the validation or test loader that the batch comes from.
    pub fn dataloader_idx(&self) -> usize {
        self.place.dataloader_idx
    }

    /// Index of the optimizer whose loss is requested, with [`Optimizers::alternating`].
    pub fn optimizer_idx(&self) -> usize {
        self.place.optimizer_idx
    }

    /// Logs a value: by step in training, by epoch elsewhere.
    pub fn log(&mut self, name: &str, value: impl Into<LogValue>) -> Result<()> {
        self.log_with(name, value, LogOptions::default())
    }

    /// Logs several values.
    pub fn log_dict<N: AsRef<str>, V: Into<LogValue>>(
        &mut self,
        values: impl IntoIterator<Item = (N, V)>,
        options: LogOptions,
    ) -> Result<()> {
        values.into_iter().try_for_each(|(name, value)| self.log_with(name.as_ref(), value, options))
    }

    /// [`StepContext::log`] with options.
    pub fn log_with(&mut self, name: &str, value: impl Into<LogValue>, options: LogOptions) -> Result<()> {
        let mut value = value.into();
        let bad = |what: &str| Err(Error::value(format!("log('{name}'): {what}")));
        if name.is_empty() {
            return bad("a value needs a name");
        }
        if self.log.specs.iter().any(|spec| spec.name == name) {
            return bad("this step has logged a value of this name already");
        }
        let mut metric = None;
        match &mut value {
            LogValue::Tensor(t) if t.numel() != 1 => {
                return bad(&format!("a tensor of shape {:?} is not one value; reduce it first", t.shape()));
            }
            LogValue::Tensor(t) => *t = t.detach(),
            LogValue::Number(_) if recording_id().is_some() => {
                return bad("a number of the host would stay the same in a captured step; log a tensor");
            }
            LogValue::Number(_) => {}
            LogValue::Metric(m) => metric = Some(m.clone()),
        }
        self.log.specs.push(LogSpec { name: name.into(), options, metric });
        self.log.values.push(value);
        Ok(())
    }

    /// Manual optimization: computes gradients, of the scaled loss if the precision needs it.
    pub fn backward(&mut self, loss: &Tensor) -> Result<()> {
        match &self.manual {
            Some(Manual { scaler: Some(scaler), .. }) => scaler.scale(loss)?.backward(),
            Some(_) => loss.backward(),
            None => Err(automatic("backward")),
        }
    }

    /// Manual optimization: an optimizer.
    pub fn optimizer(&mut self, index: usize) -> Result<&mut dyn Optimizer> {
        match &mut self.manual {
            Some(manual) => manual.optimizers.get_mut(index),
            None => Err(automatic("optimizer")),
        }
    }

    /// Manual optimization: steps an optimizer and clears its gradients. Under `16-mixed` a step with non-finite
    /// gradients is skipped.
    pub fn optimizer_step(&mut self, index: usize) -> Result<()> {
        let Some(manual) = &mut self.manual else { return Err(automatic("optimizer_step")) };
        let optimizer = manual.optimizers.get_mut(index)?;
        match &mut manual.scaler {
            Some(scaler) => {
                scaler.step(optimizer)?;
                scaler.update()?;
            }
            None => optimizer.step()?,
        }
        optimizer.zero_grad();
        Ok(())
    }
}

fn automatic(call: &str) -> Error {
    Error::value(format!(
        "StepContext::{call}: the Trainer calls backward and steps; return false from TrainModule::automatic_optimization to do it in training_step"
    ))
}
