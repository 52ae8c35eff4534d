//! Gradients divided by the root of their squares: RMSprop, Adagrad, Adadelta.

use crate::group::{Algorithm, Factors, Fused, GroupOptimizer, Params, Scalars, SkipCondition, fused_step};
use crate::options::{options, require};
use rushlight_core::Result;
use rushlight_core::backend::UpdateRule;
use rushlight_tensor::Arg;
use rushlight_tensor::state::Value;

/// RMSprop: divides by a running root mean square.
pub type RmsProp = GroupOptimizer<RmsPropOptions>;
/// Adagrad: divides by the root of the sum of all squares.
pub type Adagrad = GroupOptimizer<AdagradOptions>;
/// Adadelta: scales by the ratio of past updates to past gradients.
pub type Adadelta = GroupOptimizer<AdadeltaOptions>;

options! {
    /// Options of [`RmsProp`].
    pub struct RmsPropOptions for "RMSprop" {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// Share of the average square that stays.
        alpha: f64 = 0.99,
        /// Added to the divisor.
        eps: f64 = 1e-8,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// Share of the last update that continues.
        momentum: f64 = 0.0,
        /// Takes the mean off: divides by the standard deviation.
        centered: bool = false,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { capturable: Value::Bool(false), foreach: Value::None, differentiable: Value::Bool(false) }
}

options! {
    /// Options of [`Adagrad`].
    pub struct AdagradOptions for "Adagrad" {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// How fast the learning rate falls.
        lr_decay: f64 = 0.0,
        /// Added to the divisor.
        eps: f64 = 1e-10,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// Initial value of the sum of squares.
        initial_accumulator_value: f64 = 0.0,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { foreach: Value::None, differentiable: Value::Bool(false), fused: Value::None }
}

options! {
    /// Options of [`Adadelta`].
    pub struct AdadeltaOptions for "Adadelta" {
        /// Factor of the update.
        lr: f64 = 1.0,
        /// Share of the averages that stays.
        rho: f64 = 0.9,
        /// Added under the roots.
        eps: f64 = 1e-6,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { capturable: Value::Bool(false), foreach: Value::None, differentiable: Value::Bool(false) }
}

impl Algorithm for RmsPropOptions {
    const TENSORS: &'static [&'static str] = &["square_avg", "grad_avg", "momentum_buffer"];

    fn validate(&self) -> Result<()> {
        require(self.lr >= 0.0, "learning rate", self.lr)?;
        require(self.eps >= 0.0, "epsilon value", self.eps)?;
        require(self.momentum >= 0.0, "momentum value", self.momentum)?;
        require(self.weight_decay >= 0.0, "weight_decay value", self.weight_decay)?;
        require(self.alpha >= 0.0, "alpha value", self.alpha)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, self.centered, self.momentum > 0.0]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for RmsPropOptions {
    fn advance(&self, [t, ..]: &mut Scalars, _: bool) -> Factors {
        *t += 1.0;
        let (decay, gain) = (self.alpha, 1.0 - self.alpha);
        Factors {
            maximize: self.maximize,
            weight_decay: self.weight_decay,
            shrink: 1.0,
            rule: UpdateRule::RmsProp { decay, gain, eps: self.eps, momentum: self.momentum, step: self.lr },
        }
    }
}

impl Algorithm for AdagradOptions {
    const TENSORS: &'static [&'static str] = &["sum"];
    const EAGER: bool = true;

    fn validate(&self) -> Result<()> {
        require(self.lr >= 0.0, "learning rate", self.lr)?;
        require(self.lr_decay >= 0.0, "lr_decay value", self.lr_decay)?;
        require(self.weight_decay >= 0.0, "weight_decay value", self.weight_decay)?;
        let initial = self.initial_accumulator_value;
        require(initial >= 0.0, "initial_accumulator_value value", initial)?;
        require(self.eps >= 0.0, "epsilon value", self.eps)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, false, false]
    }

    fn initial(&self, _: usize) -> f64 {
        self.initial_accumulator_value
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for AdagradOptions {
    fn advance(&self, [t, ..]: &mut Scalars, _: bool) -> Factors {
        *t += 1.0;
        let step = self.lr / (1.0 + (*t - 1.0) * self.lr_decay);
        Factors {
            maximize: self.maximize,
            weight_decay: self.weight_decay,
            shrink: 1.0,
            rule: UpdateRule::RmsProp { decay: 1.0, gain: 1.0, eps: self.eps, momentum: 0.0, step },
        }
    }
}

impl Algorithm for AdadeltaOptions {
    const TENSORS: &'static [&'static str] = &["square_avg", "acc_delta"];

    fn validate(&self) -> Result<()> {
        require(self.lr >= 0.0, "learning rate", self.lr)?;
        require((0.0..=1.0).contains(&self.rho), "rho value", self.rho)?;
        require(self.eps >= 0.0, "epsilon value", self.eps)?;
        require(self.weight_decay >= 0.0, "weight_decay value", self.weight_decay)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, true, false]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for AdadeltaOptions {
    fn advance(&self, [t, ..]: &mut Scalars, _: bool) -> Factors {
        *t += 1.0;
        Factors {
            maximize: self.maximize,
            weight_decay: self.weight_decay,
            shrink: 1.0,
            rule: UpdateRule::Adadelta { rho: self.rho, eps: self.eps, step: self.lr },
        }
    }
}
