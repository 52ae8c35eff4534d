//! A run, the argument of hooks and callbacks.

use crate::loggers::{Loggers, Row};
use crate::ranks::Ranks;
use crate::step::Stage;
use indexmap::IndexMap;
use rushlight_core::{Device, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run's position, its logged values, and requests of callbacks.
pub struct Run {
    pub(crate) stage: Stage,
    pub(crate) epoch: u64,
    /// Batches of the epoch that are done.
    pub(crate) batch_idx: u64,
    pub(crate) global_step: u64,
    /// Samples this rank has trained on since the process started.
    pub(crate) samples: u64,
    pub(crate) device: Device,
    pub(crate) ranks: Arc<Ranks>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) metrics: IndexMap<String, f64>,
    pub(crate) shown: IndexMap<String, f64>,
    pub(crate) learning_rates: Vec<(String, f64)>,
    pub(crate) loss: Option<f64>,
    pub(crate) stop: Option<String>,
    pub(crate) checkpoint_wanted: bool,
    pub(crate) loggers: Loggers,
    pub(crate) max_epochs: Option<u64>,
    pub(crate) max_steps: Option<u64>,
    pub(crate) num_training_batches: Option<u64>,
    pub(crate) accumulate: u64,
    pub(crate) log_every_n_steps: u64,
    /// Training time of earlier processes of this run.
    pub(crate) elapsed_before: Duration,
    pub(crate) started: Instant,
    /// Time spent waiting for the training loader since the process started.
    pub(crate) waited: Duration,
}

impl Run {
    pub(crate) fn new(device: Device, ranks: Arc<Ranks>) -> Self {
        Self {
            stage: Stage::Train,
            epoch: 0,
            batch_idx: 0,
            global_step: 0,
            samples: 0,
            device,
            ranks,
            directory: None,
            metrics: IndexMap::new(),
            shown: IndexMap::new(),
            learning_rates: Vec::new(),
            loss: None,
            stop: None,
            checkpoint_wanted: false,
            loggers: Loggers::default(),
            max_epochs: None,
            max_steps: None,
            num_training_batches: None,
            accumulate: 1,
            log_every_n_steps: 50,
            elapsed_before: Duration::ZERO,
            started: Instant::now(),
            waited: Duration::ZERO,
        }
    }

    /// The run's stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The epoch, from 0 on.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Batches of the epoch that are done.
    pub fn batch_idx(&self) -> u64 {
        self.batch_idx
    }

    /// Optimizer steps done since the run began.
    pub fn global_step(&self) -> u64 {
        self.global_step
    }

    /// Samples this process has trained on.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The run's device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// This process's rank in the run.
    pub fn rank(&self) -> usize {
        self.ranks.rank()
    }

    /// Number of processes.
    pub fn world_size(&self) -> usize {
        self.ranks.size()
    }

    /// Whether this process writes the run's logs and checkpoints.
    pub fn is_global_zero(&self) -> bool {
        self.rank() == 0
    }

    /// The processes of the run.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The run's directory, if it has one.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The values logged last, by name.
    pub fn metrics(&self) -> &IndexMap<String, f64> {
        &self.metrics
    }

    /// A logged value.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }

    /// The last loss that was read. On a GPU it is read occasionally, so that steps do not wait.
    pub fn loss(&self) -> Option<f64> {
        self.loss
    }

    /// Learning rates by name: `lr-0`, and `lr-0/pg1` and so on for optimizers of several groups.
    pub fn learning_rates(&self) -> &[(String, f64)] {
        &self.learning_rates
    }

    /// Batches of a training epoch, if known.
    pub fn num_training_batches(&self) -> Option<u64> {
        self.num_training_batches
    }

    /// The number of epochs to train for, if there is a limit.
    pub fn max_epochs(&self) -> Option<u64> {
        self.max_epochs
    }

    /// Optimizer steps of the whole run, for schedules; `None` if neither epochs nor steps are limited.
    pub fn estimated_stepping_batches(&self) -> Option<u64> {
        let by_epochs = match (self.num_training_batches, self.max_epochs) {
            (Some(batches), Some(epochs)) => Some(batches.div_ceil(self.accumulate.max(1)).saturating_mul(epochs)),
            _ => None,
        };
        match (by_epochs, self.max_steps) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Training time of the run, including earlier processes.
    pub fn elapsed(&self) -> Duration {
        self.elapsed_before + self.started.elapsed()
    }

    /// Time this process has waited for the training loader.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Ends training after this batch, or, if called at the end of an epoch, before the next one.
    pub fn stop(&mut self, reason: impl Into<String>) {
        self.stop.get_or_insert_with(|| reason.into());
    }

    /// The reason why training ends, if it does.
    pub fn stop_reason(&self) -> Option<&str> {
        self.stop.as_deref()
    }

    /// Requests a checkpoint at the end of the current step.
    pub fn save_checkpoint(&mut self) {
        self.checkpoint_wanted = true;
    }

    /// Logs a value now.
    pub fn log(&mut self, name: &str, value: f64) -> Result<()> {
        self.log_all(vec![(name.to_owned(), value)])
    }

    /// Logs values now.
    pub fn log_all(&mut self, values: Vec<(String, f64)>) -> Result<()> {
        self.remember(&values);
        if self.stage != Stage::SanityCheck {
            self.loggers.log(&Row { step: self.global_step, epoch: self.epoch, values: &values });
        }
        Ok(())
    }

    pub(crate) fn remember(&mut self, values: &[(String, f64)]) {
        for (name, value) in values {
            match self.metrics.get_mut(name) {
                Some(known) => *known = *value,
                None => {
                    self.metrics.insert(name.clone(), *value);
                }
            }
        }
    }

    /// The loggers, for histograms, images and text.
    pub fn loggers(&mut self) -> &mut Loggers {
        &mut self.loggers
    }
}
