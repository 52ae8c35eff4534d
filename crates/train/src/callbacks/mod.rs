//! Callbacks: extensions of a training run.

mod averaging;
mod checkpoint;
mod early_stopping;
mod monitors;
mod summary;

pub use averaging::{EmaWeights, StochasticWeightAveraging};
pub use checkpoint::ModelCheckpoint;
pub use early_stopping::EarlyStopping;
pub use monitors::{DeviceStatsMonitor, GradientNorm, LearningRateMonitor, ThroughputMonitor, Timer};
pub use summary::ModelSummary;

use crate::run::Run;
use crate::step::StepContext;
use rushlight_core::{Error, Result};
use rushlight_nn::Module;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::Value;

/// Whether a watched value should fall or rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Lower is better.
    Min,
    /// Higher is better.
    Max,
}

impl Mode {
    /// Whether `new` is better than `old` by more than `margin`.
    pub fn better(self, new: f64, old: f64, margin: f64) -> bool {
        match self {
            Mode::Min => new < old - margin,
            Mode::Max => new > old + margin,
        }
    }

    /// The initial value, worse than any other.
    pub fn worst(self) -> f64 {
        match self {
            Mode::Min => f64::INFINITY,
            Mode::Max => f64::NEG_INFINITY,
        }
    }
}

/// Extension of a training run. Every process of a run calls the same callbacks.
///
/// ```
/// # mod rushlight {
/// #     pub use rushlight_core::Result;
/// #     pub use rushlight_nn as nn;
/// #     pub use rushlight_train as train;
/// # }
/// use rushlight::Result;
/// use rushlight::nn::Module;
/// use rushlight::train::{Callback, Run};
///
/// /// Ends a run whose loss has become good enough.
/// struct GoodEnough(f64);
///
/// impl Callback for GoodEnough {
///     fn name(&self) -> &str {
///         "GoodEnough"
///     }
///
///     fn on_validation_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
///         if run.metric("val_loss").is_some_and(|loss| loss < self.0) {
///             run.stop("good enough");
///         }
///         Ok(())
///     }
/// }
/// ```
#[allow(unused_variables)]
pub trait Callback: Send {
    /// The name under which checkpoints store its state, and the name in messages.
    fn name(&self) -> &str;

    /// Before the first batch, when model, optimizers and loggers are ready and a checkpoint was restored.
    fn on_fit_start(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// After the last batch.
    fn on_fit_end(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// At the beginning of an epoch.
    fn on_train_epoch_start(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// Before a batch.
    fn on_train_batch_start(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// Whether [`Run::learning_rates`] must be current when this step's batch ends. It always is when values are
    /// logged, and at the end of epochs.
    fn wants_learning_rates(&self, step: u64) -> bool {
        false
    }

    /// Whether [`Callback::on_gradients`] must be called.
    fn wants_gradients(&self) -> bool {
        false
    }

    /// Within the step, when gradients are complete and before they are clipped. It runs while a step is captured: it
    /// may compute tensors and log them, not read them.
    fn on_gradients(&mut self, parameters: &[(String, Tensor)], step: &mut StepContext) -> Result<()> {
        Ok(())
    }

    /// After a batch.
    fn on_train_batch_end(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// At the end of an epoch, when its values are known and schedules have stepped.
    fn on_train_epoch_end(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// Before validation.
    fn on_validation_start(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// After validation, when its values are known.
    fn on_validation_end(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// Before a test.
    fn on_test_start(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// After a test.
    fn on_test_end(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        Ok(())
    }

    /// Training ends with an error.
    fn on_exception(&mut self, run: &mut Run, model: &dyn Module, error: &Error) -> Result<()> {
        Ok(())
    }

    /// State that checkpoints save.
    fn state(&self) -> Result<Value> {
        Ok(Value::None)
    }

    /// Restores a state of [`Callback::state`].
    fn load_state(&mut self, state: &Value) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn best_of(mode: Mode) -> crate::checkpoint::Best {
    match mode {
        Mode::Min => crate::checkpoint::Best::Lowest,
        Mode::Max => crate::checkpoint::Best::Highest,
    }
}
