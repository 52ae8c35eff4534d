//! Metrics over an epoch that are exact for batches of different sizes and for several processes.
//!
//! Names and values are torchmetrics'. Each metric accumulates sums, so its value covers all samples together, not a
//! mean of batches.
//!
//! ```
//! # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_train as train; }
//! use rushlight::Tensor;
//! use rushlight::train::metrics::Accuracy;
//! let accuracy = Accuracy::new();
//! accuracy.update(&Tensor::new([[0.1f32, 0.9], [0.8, 0.2]])?, &Tensor::new([1i64, 1])?)?;
//! accuracy.update(&Tensor::new([[0.3f32, 0.7]])?, &Tensor::new([1i64])?)?;
//! assert_eq!(accuracy.compute()?, 2.0 / 3.0);
//! # Ok::<(), rushlight_core::Error>(())
//! ```

mod accuracy;
mod auroc;
mod classes;
mod mean;
mod regression;
mod sums;
mod text;

pub use accuracy::Accuracy;
pub use auroc::Auroc;
pub use classes::{Average, ConfusionMatrix, F1Score, Precision, Recall};
pub use mean::{MeanMetric, RunningMean};
pub use regression::{MeanAbsoluteError, MeanSquaredError, R2Score};
pub use text::{BleuScore, Perplexity};

use crate::ranks::Ranks;
use rushlight_core::Result;
use rushlight_tensor::state::Value;

/// A metric that is computed over many batches.
///
/// A metric accumulates sums batch by batch; its value is computed from the sums of all processes. Clones share
/// their state, so a model keeps one, updates it in its step and passes it to
/// [`StepContext::log`](crate::StepContext::log): the Trainer computes it at the end of the epoch, resets it and saves
/// it with checkpoints.
pub trait Metric: Send + Sync {
    /// The value over all batches of all processes since the last reset.
    fn value(&self, ranks: &Ranks) -> Result<f64>;

    /// Resets the state.
    fn reset(&self) -> Result<()>;

    /// The accumulated state: a dictionary.
    fn state(&self) -> Result<Value>;

    /// Merges the state of another metric of the same kind, as if its batches had come before.
    fn merge(&self, state: &Value) -> Result<()>;
}
