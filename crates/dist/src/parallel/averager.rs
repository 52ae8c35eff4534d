//! Periodic model averaging: ranks train separately between averages.

use crate::comm::ReduceOp;
use crate::group::{Collective, ProcessGroup};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// Averages parameters over all ranks every N steps: the second half of post-local SGD, whose first half is
/// [`Builder::post_local_sgd`](super::Builder::post_local_sgd).
///
/// ```
/// # mod rushlight { pub use rushlight_nn as nn; pub use rushlight_dist as dist; }
/// use rushlight::dist::PeriodicModelAverager;
/// use rushlight::nn::{Linear, Module};
/// let world = rushlight::dist::init()?;
/// let model = Linear::new(20, 1)?;
/// let mut averager = PeriodicModelAverager::new(world.group().clone(), 4)?.warmup_steps(100);
/// // After each step of the optimizer:
/// averager.average_parameters(&model.parameters())?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct PeriodicModelAverager {
    group: Arc<dyn ProcessGroup>,
    period: usize,
    warmup: usize,
    step: usize,
}

impl PeriodicModelAverager {
    /// One that averages every `period` steps.
    pub fn new(group: Arc<dyn ProcessGroup>, period: usize) -> Result<Self> {
        match period {
            0 => Err(Error::value("PeriodicModelAverager: the period must be at least 1")),
            _ => Ok(Self { group, period, warmup: 0, step: 0 }),
        }
    }

    /// Number of initial steps without averaging, while gradients are still averaged.
    pub fn warmup_steps(mut self, steps: usize) -> Self {
        self.warmup = steps;
        self
    }

    /// Counts a step; averages parameters if it is due. Returns whether it did.
    pub fn average_parameters(&mut self, parameters: &[Tensor]) -> Result<bool> {
        let step = self.step;
        self.step += 1;
        if step < self.warmup || !(step - self.warmup).is_multiple_of(self.period) || self.group.size() == 1 {
            return Ok(false);
        }
        let tensors: Vec<Tensor> = parameters.iter().map(Tensor::detach).collect();
        if !tensors.is_empty() {
            self.group.run(Collective::AllReduce { tensors, op: ReduceOp::Mean })?;
        }
        Ok(true)
    }
}
