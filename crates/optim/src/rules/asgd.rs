//! Averaged stochastic gradient descent.

use crate::group::{Algorithm, Composed, GroupOptimizer, Params, Scalars, SkipCondition, composed_step};
use crate::options::{options, require};
use rushlight_core::{Error, Result};
use rushlight_tensor::state::Value;
use rushlight_tensor::{Arg, Tensor};

/// Averaged stochastic gradient descent: the result is the parameters' average over time, `ax` in the state.
pub type Asgd = GroupOptimizer<AsgdOptions>;

options! {
    /// Options of [`Asgd`].
    pub struct AsgdOptions for "ASGD" {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// How fast parameters and the learning rate shrink.
        lambd: f64 = 1e-4,
        /// Power by which the learning rate falls.
        alpha: f64 = 0.75,
        /// Step at which averaging starts.
        t0: f64 = 1e6,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { foreach: Value::None, differentiable: Value::Bool(false), capturable: Value::Bool(false) }
}

impl Algorithm for AsgdOptions {
    const SCALARS: &'static [&'static str] = &["step", "eta", "mu"];
    const START: Scalars = [0.0, 0.0, 1.0];
    const TENSORS: &'static [&'static str] = &["ax"];

    fn validate(&self) -> Result<()> {
        require(self.lr >= 0.0, "learning rate", self.lr)?;
        require(self.weight_decay >= 0.0, "weight_decay value", self.weight_decay)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, false, false]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        composed_step(groups, grad_scale, skip)
    }
}

impl Composed for AsgdOptions {
    fn step_one(&self, param: &Tensor, grad: &Tensor, scalars: &mut Scalars, kept: &[Option<Tensor>; 3]) -> Result<()> {
        let [Some(ax), ..] = kept else { return Err(Error::value("ASGD: state is missing")) };
        let [step, eta, mu] = scalars;
        if *step == 0.0 {
            *eta = self.lr as f32 as f64;
        }
        let mut grad = if self.maximize { grad.neg()? } else { grad.clone() };
        if self.weight_decay != 0.0 {
            grad = grad.add_scaled(param, self.weight_decay)?;
        }
        param.mul_(1.0 - self.lambd * *eta)?;
        param.add_scaled_(&grad, -*eta)?;
        if *mu == 1.0 {
            ax.copy_(param)?;
        } else {
            ax.lerp_(param, *mu)?;
        }
        *step += 1.0;
        // Kept as `float32`, as PyTorch does.
        *eta = (self.lr / (1.0 + self.lambd * self.lr * *step).powf(self.alpha)) as f32 as f64;
        *mu = (1.0 / (*step - self.t0).max(1.0)) as f32 as f64;
        Ok(())
    }
}
