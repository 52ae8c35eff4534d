//! Early stopping.

use super::{Callback, Mode};
use crate::progress::short;
use crate::run::Run;
use crate::step::Stage;
use rushlight_core::{Error, Result};
use rushlight_nn::Module;
use rushlight_tensor::state::{Dict, Value};

/// Ends a run when a logged value has not improved for some validations; options and defaults are Lightning's.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    monitor: String,
    mode: Mode,
    patience: u64,
    min_delta: f64,
    check_finite: bool,
    stopping_threshold: Option<f64>,
    divergence_threshold: Option<f64>,
    on_train_epoch_end: bool,
    best: f64,
    wait: u64,
}

impl EarlyStopping {
    /// Watches a logged value, which should fall; the patience is three validations.
    pub fn new(monitor: impl Into<String>) -> Self {
        Self {
            monitor: monitor.into(),
            mode: Mode::Min,
            patience: 3,
            min_delta: 0.0,
            check_finite: true,
            stopping_threshold: None,
            divergence_threshold: None,
            on_train_epoch_end: false,
            best: f64::INFINITY,
            wait: 0,
        }
    }

    /// Whether the value should fall or rise.
    pub fn mode(mut self, mode: Mode) -> Self {
        (self.mode, self.best) = (mode, mode.worst());
        self
    }

    /// Patience: checks without improvement after which the run ends.
    pub fn patience(mut self, patience: u64) -> Self {
        self.patience = patience;
        self
    }

    /// Minimum improvement that counts.
    pub fn min_delta(mut self, min_delta: f64) -> Self {
        self.min_delta = min_delta.abs();
        self
    }

    /// Whether a non-finite value ends the run at once; true by default.
    pub fn check_finite(mut self, check_finite: bool) -> Self {
        self.check_finite = check_finite;
        self
    }

    /// Ends the run when the value is better than this.
    pub fn stopping_threshold(mut self, threshold: f64) -> Self {
        self.stopping_threshold = Some(threshold);
        self
    }

    /// Ends the run when the value is worse than this.
    pub fn divergence_threshold(mut self, threshold: f64) -> Self {
        self.divergence_threshold = Some(threshold);
        self
    }

    /// Checks at the end of training epochs instead of validations.
    pub fn check_on_train_epoch_end(mut self, check: bool) -> Self {
        self.on_train_epoch_end = check;
        self
    }

    /// The best value so far.
    pub fn best_score(&self) -> f64 {
        self.best
    }

    fn check(&mut self, run: &mut Run) -> Result<()> {
        let Some(value) = run.metric(&self.monitor) else {
            let known: Vec<&str> = run.metrics().keys().map(String::as_str).collect();
            return Err(Error::value(format!(
                "EarlyStopping: no step has logged '{}'; logged are {}",
                self.monitor,
                known.join(", ")
            )));
        };
        let name = &self.monitor;
        if self.check_finite && !value.is_finite() {
            run.stop(format!("{name} is {value}"));
        } else if self.stopping_threshold.is_some_and(|limit| self.mode.better(value, limit, 0.0)) {
            run.stop(format!("{name} = {} has reached its threshold", short(value)));
        } else if self.divergence_threshold.is_some_and(|limit| self.mode.better(limit, value, 0.0)) {
            run.stop(format!("{name} = {} has diverged", short(value)));
        } else if self.mode.better(value, self.best, self.min_delta) {
            (self.best, self.wait) = (value, 0);
        } else {
            self.wait += 1;
            if self.wait >= self.patience {
                run.stop(format!("{name} has not been better than {} for {} checks", short(self.best), self.wait));
            }
        }
        Ok(())
    }
}

impl Callback for EarlyStopping {
    fn name(&self) -> &str {
        "EarlyStopping"
    }

    fn on_validation_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        if self.on_train_epoch_end || run.stage() == Stage::SanityCheck { Ok(()) } else { self.check(run) }
    }

    fn on_train_epoch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        if self.on_train_epoch_end { self.check(run) } else { Ok(()) }
    }

    fn state(&self) -> Result<Value> {
        let wait = Value::Int(self.wait as i64);
        Ok(Dict::from_iter([("wait_count".into(), wait), ("best_score".into(), self.best.into())]).into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let wait = state.get("wait_count")?.as_usize()? as u64;
        (self.best, self.wait) = (state.get("best_score")?.as_float()?, wait);
        Ok(())
    }
}
