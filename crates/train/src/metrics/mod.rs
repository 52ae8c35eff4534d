//! Metrics: figures over an epoch that are right for batches of different sizes and for several processes.

use crate::ranks::Ranks;
use rushlight_core::Result;
use rushlight_tensor::state::Value;

/// A figure that is computed over many batches.
///
/// A metric adds up what it needs, batch by batch; its value is computed from the sums of all processes. Clones share their state, so a model keeps
/// one, updates it in its step and passes it to [`StepContext::log`](crate::StepContext::log): the Trainer computes it at the end of the epoch, resets it
/// and saves it with checkpoints.
pub trait Metric: Send + Sync {
    /// The value over all batches of all processes since the last reset.
    fn value(&self, ranks: &Ranks) -> Result<f64>;

    /// Forgets all batches.
    fn reset(&self) -> Result<()>;

    /// What has been added up: a dictionary.
    fn state(&self) -> Result<Value>;

    /// Adds what another metric of the same kind has added up, as if its batches had come before.
    fn merge(&self, state: &Value) -> Result<()>;
}
