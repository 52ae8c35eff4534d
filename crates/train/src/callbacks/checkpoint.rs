//! When a run saves checkpoints, and which it keeps.

use super::Mode;
use crate::checkpoint::CheckpointsBuilder;
use rushlight_core::setters;
use std::path::PathBuf;

/// When a run saves a checkpoint, and how many it keeps; options are Lightning's. Pass it to
/// [`TrainerBuilder::checkpoint`](crate::TrainerBuilder::checkpoint).
///
/// Default: after every epoch, keeping the three newest. A checkpoint is complete: the run continues from any of them
/// as if it had never stopped.
///
/// ```
/// # mod rushlight { pub use rushlight_train as train; }
/// use rushlight::train::{ModelCheckpoint, Mode, Trainer};
/// let best = ModelCheckpoint::new().monitor("val_accuracy", Mode::Max).save_top_k(2);
/// let trainer = Trainer::builder().checkpoint(best.every_n_train_steps(500));
/// ```
#[derive(Clone, Debug)]
pub struct ModelCheckpoint {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) monitor: Option<(String, Mode)>,
    pub(crate) top_k: Option<usize>,
    pub(crate) keep_last: Option<usize>,
    pub(crate) every_n_train_steps: Option<u64>,
    pub(crate) every_n_epochs: Option<u64>,
    pub(crate) on_exception: bool,
    pub(crate) background: bool,
    pub(crate) tolerate: usize,
}

impl Default for ModelCheckpoint {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelCheckpoint {
    /// After every epoch, keeping the three newest.
    pub fn new() -> Self {
        Self {
            directory: None,
            monitor: None,
            top_k: None,
            keep_last: None,
            every_n_train_steps: None,
            every_n_epochs: None,
            on_exception: false,
            background: true,
            tolerate: 0,
        }
    }

    /// Directory of checkpoints; `checkpoints` in the run's directory by default.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// The logged value that determines the best checkpoints.
    pub fn monitor(mut self, name: impl Into<String>, mode: Mode) -> Self {
        self.monitor = Some((name.into(), mode));
        self
    }

    /// Number of best checkpoints to keep: 1 by default. Needs [`ModelCheckpoint::monitor`]. Unless
    /// [`ModelCheckpoint::keep_last`] is set, the newest checkpoint is kept too until training is complete, so that a
    /// run that was stopped can continue.
    pub fn save_top_k(mut self, k: usize) -> Self {
        self.top_k = Some(k);
        self
    }

    /// Number of newest checkpoints to keep, at least 1. By default 3; with [`ModelCheckpoint::save_top_k`] only the
    /// best are kept.
    pub fn keep_last(mut self, keep: usize) -> Self {
        self.keep_last = Some(keep);
        self
    }

    /// Saves after every `steps` optimizer steps, and at the end of epochs only if that is set too.
    pub fn every_n_train_steps(mut self, steps: u64) -> Self {
        self.every_n_train_steps = Some(steps.max(1));
        self
    }

    /// Saves after every `epochs` epochs, after validation.
    pub fn every_n_epochs(mut self, epochs: u64) -> Self {
        self.every_n_epochs = Some(epochs.max(1));
        self
    }

    setters! {
        /// Saves the current state when training ends with an error. The state may be faulty, so the checkpoint goes to
        /// a separate directory `exception`.
        on_exception: bool;
        /// Whether files are written while training continues; true by default.
        background: bool;
        /// Number of consecutive failed saves that training tolerates.
        tolerate: usize;
    }

    pub(crate) fn due_after_step(&self, step: u64) -> bool {
        self.every_n_train_steps.is_some_and(|n| step.is_multiple_of(n))
    }

    pub(crate) fn due_after_epoch(&self, epochs: u64) -> bool {
        match (self.every_n_epochs, self.every_n_train_steps) {
            (Some(n), _) => epochs.is_multiple_of(n),
            (None, Some(_)) => false,
            (None, None) => true,
        }
    }

    /// Whether only the best checkpoints stay when training is complete.
    pub(crate) fn only_best(&self) -> bool {
        self.monitor.is_some() && self.top_k.is_some() && self.keep_last.is_none()
    }

    pub(crate) fn builder(&self, directory: PathBuf) -> CheckpointsBuilder {
        let newest = self.keep_last.unwrap_or(if self.only_best() { 1 } else { 3 });
        let builder =
            crate::Checkpoints::builder(directory).keep(newest).background(self.background).tolerate(self.tolerate);
        match &self.monitor {
            Some((_, mode)) => builder.keep_best(self.top_k.unwrap_or(1), super::best_of(*mode)),
            None => builder,
        }
    }
}
