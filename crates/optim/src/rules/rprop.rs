//! Rprop: steps by the gradient's sign.

use crate::group::{Algorithm, Composed, GroupOptimizer, Params, Scalars, SkipCondition, composed_step};
use crate::options::{options, require};
use rushlight_core::{Error, Result};
use rushlight_tensor::state::Value;
use rushlight_tensor::{Arg, Tensor};

/// Resilient backpropagation: every element has its own step size, which grows while the gradient keeps its sign
/// and shrinks when that changes. For whole batches; gradients of small ones change sign by chance.
pub type Rprop = GroupOptimizer<RpropOptions>;

options! {
    /// Options of [`Rprop`].
    pub struct RpropOptions for "Rprop" {
        /// First step size.
        lr: f64 = 1e-2,
        /// Factors of a step size that shrinks and of one that grows.
        etas: (f64, f64) = (0.5, 1.2),
        /// Smallest and largest step size.
        step_sizes: (f64, f64) = (1e-6, 50.0),
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { foreach: Value::None, differentiable: Value::Bool(false), capturable: Value::Bool(false) }
}

impl Algorithm for RpropOptions {
    const TENSORS: &'static [&'static str] = &["prev", "step_size"];

    fn validate(&self) -> Result<()> {
        require(self.lr >= 0.0, "learning rate", self.lr)?;
        let (shrink, grow) = self.etas;
        if !(0.0 < shrink && shrink < 1.0 && 1.0 < grow) {
            return Err(Error::value(format!("Invalid eta values: {shrink}, {grow}")));
        }
        Ok(())
    }

    fn keeps(&self) -> [bool; 3] {
        [true, true, false]
    }

    fn initial(&self, at: usize) -> f64 {
        if at == 1 { self.lr } else { 0.0 }
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        composed_step(groups, grad_scale, skip)
    }
}

impl Composed for RpropOptions {
    fn step_one(&self, param: &Tensor, grad: &Tensor, scalars: &mut Scalars, kept: &[Option<Tensor>; 3]) -> Result<()> {
        let [Some(prev), Some(step_size), _] = kept else { return Err(Error::value("Rprop: state is missing")) };
        scalars[0] += 1.0;
        let grad = if self.maximize { grad.neg()? } else { grad.clone() };
        let agreement = grad.mul(prev)?;
        let (kept_sign, changed_sign) = (agreement.gt(0)?, agreement.lt(0)?);
        let factor = grad.ones_like()?.masked_fill(&kept_sign, self.etas.1)?.masked_fill(&changed_sign, self.etas.0)?;
        step_size.mul_(&factor)?.clamp_(self.step_sizes.0, self.step_sizes.1)?;
        // Where the sign has changed the element waits for one step.
        let grad = grad.masked_fill(&changed_sign, 0)?;
        param.sub_(&grad.sign()?.mul(step_size)?)?;
        prev.copy_(&grad)?;
        Ok(())
    }
}
