//! The options of a Trainer, with Lightning's names and defaults.

use super::{ElasticBatch, Trainer};
use crate::callbacks::{Callback, ModelCheckpoint};
use crate::loggers::{Hparams, JsonLinesLogger, Logger, TensorBoardLogger};
use crate::precision::Precision;
use crate::profiling::RunProfiler;
use crate::ranks::check_strategy;
use crate::run_dir::check_name;
use rushlight_core::{Device, Error, Result};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::time::Duration;

/// A number of batches of an epoch: a count, or a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A number.
    Count(u64),
    /// A fraction from 0 to 1.
    Share(f64),
}

impl From<u64> for Limit {
    fn from(count: u64) -> Self {
        Limit::Count(count)
    }
}

impl From<f64> for Limit {
    fn from(share: f64) -> Self {
        Limit::Share(share)
    }
}

impl Limit {
    pub(crate) const ALL: Limit = Limit::Share(1.0);

    /// The number of batches of an epoch of `len`; `None` for no limit.
    pub(crate) fn of(self, len: Option<usize>) -> Option<u64> {
        match (self, len) {
            (Limit::Count(count), Some(len)) => Some(count.min(len as u64)),
            (Limit::Count(count), None) => Some(count),
            (Limit::Share(share), Some(len)) => Some((len as f64 * share) as u64),
            (Limit::Share(_), None) => None,
        }
    }

    fn check(self, option: &str) -> Result<()> {
        match self {
            Limit::Share(share) if !(0.0..=1.0).contains(&share) => Err(Error::value(format!(
                "Trainer: {option} is {share}; a share is between 0 and 1, a count is an integer"
            ))),
            _ => Ok(()),
        }
    }

    fn to_json(self) -> Json {
        match self {
            Limit::Count(count) => count.into(),
            Limit::Share(share) => share.into(),
        }
    }
}

/// How gradients are clipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClipAlgorithm {
    /// By the norm of all gradients together.
    #[default]
    Norm,
    /// Each element by itself.
    Value,
}

/// Where a run starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// From the beginning, in a new directory.
    #[default]
    Never,
    /// At the newest complete checkpoint of the run of this name, or at the beginning without one. For jobs that may
    /// be killed.
    Auto,
    /// From this checkpoint.
    From(PathBuf),
}

/// The device of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accelerator {
    /// The accelerator of this machine, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The accelerator; an error if there is none.
    Gpu,
    /// This device.
    Device(Device),
}

pub(crate) struct Options {
    pub max_epochs: Option<u64>,
    pub min_epochs: u64,
    pub max_steps: Option<u64>,
    pub min_steps: u64,
    pub max_time: Option<Duration>,
    pub precision: Precision,
    pub gradient_clip_val: Option<f64>,
    pub gradient_clip_algorithm: ClipAlgorithm,
    pub accumulate_grad_batches: u64,
    pub elastic_batch: Option<ElasticBatch>,
    pub accelerator: Accelerator,
    pub devices: Option<usize>,
    pub strategy: String,
    #[cfg(all(target_os = "linux", feature = "dist"))]
    pub plan: Option<rushlight_dist::plan::Configuration>,
    pub find_unused_parameters: bool,
    pub use_distributed_sampler: bool,
    pub limit_train_batches: Limit,
    pub limit_val_batches: Limit,
    pub limit_test_batches: Limit,
    pub limit_predict_batches: Limit,
    pub val_check_interval: Limit,
    pub check_val_every_n_epoch: u64,
    pub fast_dev_run: Option<u64>,
    pub overfit_batches: Option<Limit>,
    pub num_sanity_val_steps: u64,
    pub log_every_n_steps: u64,
    pub deterministic: bool,
    pub detect_anomaly: bool,
    pub benchmark: bool,
    pub profiler: Option<RunProfiler>,
    pub capture: bool,
    pub seed: Option<u64>,
    pub root: Option<PathBuf>,
    pub run_name: Option<String>,
    pub resume: Resume,
    pub save_on_interrupt: bool,
    pub checkpointing: bool,
    pub progress: bool,
    pub system_metrics: bool,
    pub hparams: Hparams,
}

/// Makes a [`Trainer`]: options not set have Lightning's defaults.
pub struct TrainerBuilder {
    options: Options,
    checkpoints: Vec<ModelCheckpoint>,
    callbacks: Vec<Box<dyn Callback>>,
    loggers: Option<Vec<Box<dyn Logger>>>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty, |$x:ident| $value:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $x: $type) -> Self {
            self.options.$name = $value;
            self
        }
    )*};
}

impl TrainerBuilder {
    pub(super) fn new() -> Self {
        let options = Options {
            max_epochs: None,
            min_epochs: 0,
            max_steps: None,
            min_steps: 0,
            max_time: None,
            precision: Precision::F32,
            gradient_clip_val: None,
            gradient_clip_algorithm: ClipAlgorithm::Norm,
            accumulate_grad_batches: 1,
            elastic_batch: None,
            accelerator: Accelerator::Auto,
            devices: None,
            strategy: "auto".into(),
            #[cfg(all(target_os = "linux", feature = "dist"))]
            plan: None,
            find_unused_parameters: false,
            use_distributed_sampler: true,
            limit_train_batches: Limit::ALL,
            limit_val_batches: Limit::ALL,
            limit_test_batches: Limit::ALL,
            limit_predict_batches: Limit::ALL,
            val_check_interval: Limit::ALL,
            check_val_every_n_epoch: 1,
            fast_dev_run: None,
            overfit_batches: None,
            num_sanity_val_steps: 2,
            log_every_n_steps: 50,
            deterministic: false,
            detect_anomaly: false,
            benchmark: false,
            profiler: None,
            capture: true,
            seed: None,
            root: Some("runs".into()),
            run_name: None,
            resume: Resume::Never,
            save_on_interrupt: false,
            checkpointing: true,
            progress: true,
            system_metrics: true,
            hparams: Hparams::new(),
        };
        Self { options, checkpoints: Vec::new(), callbacks: Vec::new(), loggers: None }
    }

    setters! {
        /// Epochs to train for; 1000 unless steps or time are limited.
        max_epochs: u64, |x| Some(x);
        /// Epochs that are trained even if a callback requests the end.
        min_epochs: u64, |x| x;
        /// Optimizer steps to train for.
        max_steps: u64, |x| Some(x);
        /// Optimizer steps that are trained even if a callback requests the end.
        min_steps: u64, |x| x;
        /// Time to train for, including earlier processes of the run.
        max_time: Duration, |x| Some(x);
        /// The numeric precision of the run.
        precision: Precision, |x| x;
        /// Clips gradients to this norm, or with [`TrainerBuilder::gradient_clip_algorithm`] their elements to this
        /// value.
        gradient_clip_val: f64, |x| Some(x);
        /// How gradients are clipped: by norm by default.
        gradient_clip_algorithm: ClipAlgorithm, |x| x;
        /// Batches whose gradients are accumulated before an optimizer step.
        accumulate_grad_batches: u64, |x| x;
        /// What the batch and the learning rate do when the run continues with another number of processes. The default
        /// is that of `rushlight run --elastic-batch`: nothing unless it is given.
        elastic_batch: ElasticBatch, |x| Some(x);
        /// The device of the run: an accelerator if there is one.
        accelerator: Accelerator, |x| x;
        /// Whether parameters may be unused in a loss; data parallelism then searches for them at each step.
        find_unused_parameters: bool, |x| x;
        /// Whether loaders are shared among processes; true by default. Those that are shared already are
        /// left alone.
        use_distributed_sampler: bool, |x| x;
        /// Validates after every N epochs.
        check_val_every_n_epoch: u64, |x| x;
        /// Validation batches before training, to find mistakes early: 2 by default.
        num_sanity_val_steps: u64, |x| x;
        /// Values of steps are logged every N steps; 50 by default.
        log_every_n_steps: u64, |x| x;
        /// Requires a reproducible run: a missing [`TrainerBuilder::seed`] is an error. The engines themselves are
        /// always deterministic.
        deterministic: bool, |x| x;
        /// Names the op whose gradient is not finite; a loss that is not finite is an error. Slow, and without capture.
        detect_anomaly: bool, |x| x;
        /// Reports at the end whether training waited for the loader. Steps are then timed one by one, synchronously.
        benchmark: bool, |x| x;
        /// Profiles training: by the Trainer's actions, or as a trace of some steps.
        profiler: RunProfiler, |x| Some(x);
        /// Whether steps on a GPU are recorded and replayed; true by default. Where a step cannot be, that is
        /// said once.
        capture: bool, |x| x;
        /// Seeds all random numbers when the Trainer is built.
        seed: u64, |x| Some(x);
        /// Where the run starts: from the beginning by default.
        resume: Resume, |x| x;
        /// Whether Ctrl-C (SIGINT) ends training after the current step with a checkpoint, if the run saves any. A
        /// second Ctrl-C ends the process at once. [`Trainer::preempted`] is then 130.
        save_on_interrupt: bool, |x| x;
        /// Whether progress is shown; true by default. On a terminal one line is redrawn, elsewhere a line is printed
        /// periodically.
        progress: bool, |x| x;
    }

    /// Whether checkpoints are saved; true by default, if the run has a directory.
    pub fn enable_checkpointing(mut self, enable: bool) -> Self {
        self.options.checkpointing = enable;
        self
    }

    /// Computes on this device.
    pub fn device(self, device: Device) -> Self {
        self.accelerator(Accelerator::Device(device))
    }

    /// Devices of this node. A process uses one: more devices need as many processes, which `rushlight run` starts. The
    /// number is checked against theirs.
    pub fn devices(mut self, devices: usize) -> Self {
        self.options.devices = Some(devices);
        self
    }

    /// How several processes train together: `auto` or `ddp`, where each has the whole model; or with its training
    /// state sharded, by ZeRO's stages: `zero1`, `zero2`, `fsdp` (`zero3`), and as Lightning names them `deepspeed`
    /// (stage 2), `deepspeed_stage_1` to `3`. The parameters outside of steps are then shards, which
    /// `configure_optimizers` and callbacks see; validation, checkpoints and the model after training have them whole,
    /// so a run may be continued with another strategy. Blocks that the model has wrapped by
    /// [`rushlight_dist::FullyShard`] are gathered one by one, all other parameters together. Optimizers that mix the
    /// elements of a parameter (Muon, Adafactor, LAMB) would see shards: use `ddp` for them.
    pub fn strategy(mut self, strategy: impl Into<String>) -> Self {
        self.options.strategy = strategy.into();
        self
    }

    /// Follows a file of `rushlight plan --write`: strategy, offload, precision, the samples of a batch and the batches
    /// that are accumulated, so none of these is set beside it; the loader's batch size is the plan's during `fit`.
    /// Recomputing blocks is the model's own affair. Without this call it is the file of `rushlight run --plan`, if one
    /// is given.
    #[cfg(all(target_os = "linux", feature = "dist"))]
    pub fn plan(mut self, plan: rushlight_dist::plan::Configuration) -> Self {
        self.options.plan = Some(plan);
        self
    }

    /// Batches of a training epoch: a count, or a fraction.
    pub fn limit_train_batches(mut self, limit: impl Into<Limit>) -> Self {
        self.options.limit_train_batches = limit.into();
        self
    }

    /// Batches of a validation.
    pub fn limit_val_batches(mut self, limit: impl Into<Limit>) -> Self {
        self.options.limit_val_batches = limit.into();
        self
    }

    /// Batches of a test.
    pub fn limit_test_batches(mut self, limit: impl Into<Limit>) -> Self {
        self.options.limit_test_batches = limit.into();
        self
    }

    /// Batches to predict.
    pub fn limit_predict_batches(mut self, limit: impl Into<Limit>) -> Self {
        self.options.limit_predict_batches = limit.into();
        self
    }

    /// Validates after every N batches of an epoch, or after a fraction of it; at its end by
    /// default.
    pub fn val_check_interval(mut self, interval: impl Into<Limit>) -> Self {
        self.options.val_check_interval = interval.into();
        self
    }

    /// A trial run with `batches` batches of each kind: one epoch, without loggers and checkpoints.
    pub fn fast_dev_run(mut self, batches: u64) -> Self {
        self.options.fast_dev_run = (batches > 0).then_some(batches);
        self
    }

    /// Trains on the same few batches again and again: a model that cannot learn them by heart has a mistake.
    pub fn overfit_batches(mut self, limit: impl Into<Limit>) -> Self {
        self.options.overfit_batches = Some(limit.into());
        self
    }

    /// Root of the run directories: `runs` by default. `None`: the run has no directory, no loggers and no checkpoints.
    pub fn run_directory(mut self, root: Option<PathBuf>) -> Self {
        self.options.root = root;
        self
    }

    /// The run's name, and its directory's name; the start time by default.
    pub fn run_name(mut self, name: impl Into<String>) -> Self {
        self.options.run_name = Some(name.into());
        self
    }

    /// Whether every process writes figures of the process and its device (processor, memory, GPU, steps per second) to
    /// `system/rank-N.jsonl` of the run's directory, where `rushlight ui` shows them. A thread does so every few
    /// seconds.
    pub fn system_metrics(mut self, system_metrics: bool) -> Self {
        self.options.system_metrics = system_metrics;
        self
    }

    /// Hyperparameters for `config.json` and TensorBoard's comparison of runs.
    pub fn hparams<N: Into<String>, V: Into<Json>>(mut self, hparams: impl IntoIterator<Item = (N, V)>) -> Self {
        self.options.hparams.extend(hparams.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Adds a checkpoint policy, in place of the default one.
    pub fn checkpoint(mut self, checkpoint: ModelCheckpoint) -> Self {
        self.checkpoints.push(checkpoint);
        self
    }

    /// Adds a callback.
    pub fn callback(mut self, callback: impl Callback + 'static) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Adds a logger, in place of the default ones (JSON lines and TensorBoard).
    pub fn logger(mut self, logger: impl Logger + 'static) -> Self {
        self.loggers.get_or_insert_default().push(Box::new(logger));
        self
    }

    /// Disables loggers.
    pub fn no_loggers(mut self) -> Self {
        self.loggers = Some(Vec::new());
        self
    }

    /// Builds the Trainer. Under a launcher it joins the other processes of the run here.
    pub fn build(self) -> Result<Trainer> {
        let Self { mut options, mut checkpoints, callbacks, loggers } = self;
        #[cfg(all(target_os = "linux", feature = "dist"))]
        super::planned::follow(&mut options)?;
        check_strategy(&options.strategy)?;
        if let Some(name) = &options.run_name {
            check_name(name)?;
        }
        if options.elastic_batch.is_none() {
            options.elastic_batch = ElasticBatch::of_launcher()?;
        }
        let limits = [
            ("limit_train_batches", options.limit_train_batches),
            ("limit_val_batches", options.limit_val_batches),
            ("limit_test_batches", options.limit_test_batches),
            ("limit_predict_batches", options.limit_predict_batches),
            ("val_check_interval", options.val_check_interval),
            ("overfit_batches", options.overfit_batches.unwrap_or(Limit::ALL)),
        ];
        limits.iter().try_for_each(|(name, limit)| limit.check(name))?;
        let positive = [
            ("accumulate_grad_batches", options.accumulate_grad_batches),
            ("check_val_every_n_epoch", options.check_val_every_n_epoch),
            ("log_every_n_steps", options.log_every_n_steps),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::value(format!("Trainer: {name} must be at least 1")));
        }
        if matches!(options.val_check_interval, Limit::Count(0) | Limit::Share(0.0)) {
            return Err(Error::value(
                "Trainer: val_check_interval must not be 0; limit_val_batches(0) leaves validation out",
            ));
        }
        if options.gradient_clip_val.is_some_and(|v| v.is_nan() || v < 0.0) {
            return Err(Error::value("Trainer: gradient_clip_val must not be negative"));
        }
        if let Some(RunProfiler::Trace { active: 0, .. }) = options.profiler {
            return Err(Error::value("Trainer: a trace needs at least one active step"));
        }
        if options.deterministic && options.seed.is_none() {
            return Err(Error::value(
                "Trainer: deterministic(true) needs a seed; call seed(…) too, before the model is made",
            ));
        }
        if options.max_epochs.is_none() && options.max_steps.is_none() && options.max_time.is_none() {
            options.max_epochs = Some(1000);
        }
        if let Some(limit) = options.overfit_batches {
            (options.limit_train_batches, options.limit_val_batches) = (limit, limit);
        }
        let mut loggers = loggers.unwrap_or_else(|| {
            vec![Box::new(JsonLinesLogger::new()) as Box<dyn Logger>, Box::new(TensorBoardLogger::new())]
        });
        if let Some(batches) = options.fast_dev_run {
            let limit = Limit::Count(batches);
            (options.limit_train_batches, options.limit_val_batches) = (limit, limit);
            (options.limit_test_batches, options.limit_predict_batches) = (limit, limit);
            (options.max_epochs, options.max_steps) = (Some(1), Some(batches));
            (options.num_sanity_val_steps, options.val_check_interval) = (0, Limit::ALL);
            (options.root, options.checkpointing) = (None, false);
        }
        if options.root.is_none() {
            loggers.clear();
        }
        let own = checkpoints.iter().any(|c| c.directory.is_some());
        if !options.checkpointing || (options.root.is_none() && !own) {
            checkpoints.clear();
        } else if checkpoints.is_empty() {
            checkpoints.push(ModelCheckpoint::new());
        }
        Trainer::build(options, checkpoints, callbacks, loggers)
    }
}

impl Options {
    /// Whether shards are in the host's memory.
    pub(crate) fn offload(&self) -> bool {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        return self.plan.as_ref().is_some_and(|plan| plan.offload);
        #[cfg(not(all(target_os = "linux", feature = "dist")))]
        false
    }

    /// The options in `config.json`.
    pub(crate) fn to_json(&self) -> Json {
        json!({
            "max_epochs": self.max_epochs,
            "min_epochs": self.min_epochs,
            "max_steps": self.max_steps,
            "min_steps": self.min_steps,
            "max_time_s": self.max_time.map(|t| t.as_secs_f64()),
            "precision": self.precision.to_string(),
            "gradient_clip_val": self.gradient_clip_val,
            "gradient_clip_algorithm": if self.gradient_clip_algorithm == ClipAlgorithm::Norm { "norm" } else { "value" },
            "accumulate_grad_batches": self.accumulate_grad_batches,
            "elastic_batch": self.elastic_batch.map(ElasticBatch::name),
            "strategy": self.strategy,
            "offload": self.offload(),
            "limit_train_batches": self.limit_train_batches.to_json(),
            "limit_val_batches": self.limit_val_batches.to_json(),
            "val_check_interval": self.val_check_interval.to_json(),
            "check_val_every_n_epoch": self.check_val_every_n_epoch,
            "overfit_batches": self.overfit_batches.map(Limit::to_json),
            "log_every_n_steps": self.log_every_n_steps,
            "deterministic": self.deterministic,
            "detect_anomaly": self.detect_anomaly,
            "capture": self.capture,
            "profiler": self.profiler.map(RunProfiler::name),
            "seed": self.seed,
        })
    }
}
