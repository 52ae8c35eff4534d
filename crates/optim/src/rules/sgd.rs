//! Stochastic gradient descent.

use crate::group::{Algorithm, Factors, Fused, GroupOptimizer, Params, Scalars, SkipCondition, fused_step};
use crate::options::{options, require};
use rushlight_core::backend::UpdateRule;
use rushlight_core::{Error, Result};
use rushlight_tensor::Arg;
use rushlight_tensor::state::Value;

/// Stochastic gradient descent, optionally with momentum.
pub type Sgd = GroupOptimizer<SgdOptions>;

options! {
    /// Options of [`Sgd`].
    pub struct SgdOptions for "SGD" {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Share of the last update that continues.
        momentum: f64 = 0.0,
        /// Share of the gradient that momentum leaves out.
        dampening: f64 = 0.0,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// Nesterov's momentum: looks ahead by one update.
        nesterov: bool = false,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { foreach: Value::None, differentiable: Value::Bool(false), fused: Value::None }
}

impl Algorithm for SgdOptions {
    const SCALARS: &'static [&'static str] = &[];
    const TENSORS: &'static [&'static str] = &["momentum_buffer"];

    fn validate(&self) -> Result<()> {
        require(self.lr >= 0.0, "learning rate", self.lr)?;
        require(self.momentum >= 0.0, "momentum value", self.momentum)?;
        require(self.weight_decay >= 0.0, "weight_decay value", self.weight_decay)?;
        if self.nesterov && (self.momentum <= 0.0 || self.dampening != 0.0) {
            return Err(Error::value("Nesterov momentum requires a momentum and zero dampening"));
        }
        Ok(())
    }

    fn keeps(&self) -> [bool; 3] {
        [self.momentum != 0.0, false, false]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for SgdOptions {
    fn advance(&self, _: &mut Scalars, first: bool) -> Factors {
        // The first gradient goes into the buffer whole.
        let (decay, gain) = if first { (0.0, 1.0) } else { (self.momentum, 1.0 - self.dampening) };
        let (step, grad_step) = match (self.momentum != 0.0, self.nesterov) {
            (false, _) => (0.0, self.lr),
            (true, false) => (self.lr, 0.0),
            (true, true) => (self.lr * self.momentum, self.lr),
        };
        Factors {
            maximize: self.maximize,
            weight_decay: self.weight_decay,
            shrink: 1.0,
            rule: UpdateRule::Sgd { decay, gain, step, grad_step },
        }
    }
}
