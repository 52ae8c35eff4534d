//! Adam and its relatives: averages of the gradient and of its square.

use crate::group::{Algorithm, Factors, Fused, GroupOptimizer, Params, Scalars, SkipCondition, fused_step};
use crate::options::{options, require, require_adam};
use rushlight_core::Result;
use rushlight_core::backend::UpdateRule;
use rushlight_tensor::Arg;
use rushlight_tensor::state::Value;

/// Adam. Weight decay is part of the gradient unless decoupled.
pub type Adam = GroupOptimizer<AdamOptions>;
/// Adam with decoupled weight decay.
pub type AdamW = GroupOptimizer<AdamWOptions>;
/// Adam with Nesterov's momentum.
pub type NAdam = GroupOptimizer<NAdamOptions>;
/// Adam whose first steps are rectified for the few squares seen.
pub type RAdam = GroupOptimizer<RAdamOptions>;
/// Adam with the infinity norm in place of squares.
pub type Adamax = GroupOptimizer<AdamaxOptions>;

options! {
    /// Options of [`Adam`].
    pub struct AdamOptions for "Adam" {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Decay of the averages of the gradient and of its square.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the divisor.
        eps: f64 = 1e-8,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// Divides by the largest average so far.
        amsgrad: bool = false,
        /// Goes up the gradient.
        maximize: bool = false,
        /// Shrinks the parameter itself instead, as [`AdamW`] does.
        decoupled_weight_decay: bool = false,
    }
    fixed {
        foreach: Value::None, capturable: Value::Bool(false), differentiable: Value::Bool(false), fused: Value::None,
    }
}

options! {
    /// Options of [`AdamW`].
    pub struct AdamWOptions for "AdamW" {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Decay of the averages of the gradient and of its square.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the divisor.
        eps: f64 = 1e-8,
        /// How fast parameters shrink, relative to the learning rate.
        weight_decay: f64 = 1e-2,
        /// Divides by the largest average so far.
        amsgrad: bool = false,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed {
        foreach: Value::None, capturable: Value::Bool(false), differentiable: Value::Bool(false), fused: Value::None,
        decoupled_weight_decay: Value::Bool(true),
    }
}

options! {
    /// Options of [`NAdam`].
    pub struct NAdamOptions for "NAdam" {
        /// Learning rate.
        lr: f64 = 2e-3,
        /// Decay of the averages of the gradient and of its square.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the divisor.
        eps: f64 = 1e-8,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// How fast momentum grows to its full size.
        momentum_decay: f64 = 4e-3,
        /// Shrinks the parameter itself instead.
        decoupled_weight_decay: bool = false,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { foreach: Value::None, capturable: Value::Bool(false), differentiable: Value::Bool(false) }
}

options! {
    /// Options of [`RAdam`].
    pub struct RAdamOptions for "RAdam" {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Decay of the averages of the gradient and of its square.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the divisor.
        eps: f64 = 1e-8,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// Shrinks the parameter itself instead.
        decoupled_weight_decay: bool = false,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { foreach: Value::None, capturable: Value::Bool(false), differentiable: Value::Bool(false) }
}

options! {
    /// Options of [`Adamax`].
    pub struct AdamaxOptions for "Adamax" {
        /// Learning rate.
        lr: f64 = 2e-3,
        /// Decay of the average of the gradient and of its largest size.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the gradient's size.
        eps: f64 = 1e-8,
        /// Part of the parameter added to its gradient.
        weight_decay: f64 = 0.0,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { foreach: Value::None, capturable: Value::Bool(false), differentiable: Value::Bool(false) }
}

/// Weight decay in the gradient, or of the parameter itself.
fn decay(lr: f64, weight_decay: f64, decoupled: bool) -> (f64, f64) {
    if decoupled { (0.0, 1.0 - lr * weight_decay) } else { (weight_decay, 1.0) }
}

/// Adam's step `t`.
fn adam(lr: f64, (beta1, beta2): (f64, f64), eps: f64, t: f64) -> UpdateRule {
    let (correction1, correction2) = (1.0 - beta1.powf(t), 1.0 - beta2.powf(t));
    UpdateRule::Adam { beta1, beta2, eps, root: 1.0 / correction2.sqrt(), step: lr / correction1, grad_step: 0.0 }
}

impl Algorithm for AdamOptions {
    const TENSORS: &'static [&'static str] = &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];

    fn validate(&self) -> Result<()> {
        require_adam(self.lr, self.betas, self.eps, self.weight_decay)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, true, self.amsgrad]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for AdamOptions {
    fn advance(&self, [t, ..]: &mut Scalars, _: bool) -> Factors {
        *t += 1.0;
        let (weight_decay, shrink) = decay(self.lr, self.weight_decay, self.decoupled_weight_decay);
        Factors { maximize: self.maximize, weight_decay, shrink, rule: adam(self.lr, self.betas, self.eps, *t) }
    }
}

impl Algorithm for AdamWOptions {
    const TENSORS: &'static [&'static str] = AdamOptions::TENSORS;

    fn validate(&self) -> Result<()> {
        require_adam(self.lr, self.betas, self.eps, self.weight_decay)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, true, self.amsgrad]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for AdamWOptions {
    fn advance(&self, [t, ..]: &mut Scalars, _: bool) -> Factors {
        *t += 1.0;
        let (weight_decay, shrink) = decay(self.lr, self.weight_decay, true);
        Factors { maximize: self.maximize, weight_decay, shrink, rule: adam(self.lr, self.betas, self.eps, *t) }
    }
}

impl Algorithm for NAdamOptions {
    const SCALARS: &'static [&'static str] = &["step", "mu_product"];
    const START: Scalars = [0.0, 1.0, 0.0];
    const TENSORS: &'static [&'static str] = &["exp_avg", "exp_avg_sq"];

    fn validate(&self) -> Result<()> {
        require_adam(self.lr, self.betas, self.eps, self.weight_decay)?;
        require(self.momentum_decay >= 0.0, "momentum_decay value", self.momentum_decay)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, true, false]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for NAdamOptions {
    fn advance(&self, [t, mu_product, _]: &mut Scalars, _: bool) -> Factors {
        *t += 1.0;
        let (beta1, beta2) = self.betas;
        let mu = |t: f64| beta1 * (1.0 - 0.5 * 0.96f64.powf(t * self.momentum_decay));
        let (now, next) = (mu(*t), mu(*t + 1.0));
        // Kept in single precision, as PyTorch does.
        *mu_product = f64::from((*mu_product * now) as f32);
        let rule = UpdateRule::Adam {
            beta1,
            beta2,
            eps: self.eps,
            root: 1.0 / (1.0 - beta2.powf(*t)).sqrt(),
            step: self.lr * next / (1.0 - *mu_product * next),
            grad_step: self.lr * (1.0 - now) / (1.0 - *mu_product),
        };
        let (weight_decay, shrink) = decay(self.lr, self.weight_decay, self.decoupled_weight_decay);
        Factors { maximize: self.maximize, weight_decay, shrink, rule }
    }
}

impl Algorithm for RAdamOptions {
    const TENSORS: &'static [&'static str] = &["exp_avg", "exp_avg_sq"];

    fn validate(&self) -> Result<()> {
        require_adam(self.lr, self.betas, self.eps, self.weight_decay)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, true, false]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for RAdamOptions {
    fn advance(&self, [t, ..]: &mut Scalars, _: bool) -> Factors {
        *t += 1.0;
        let (beta1, beta2) = self.betas;
        let (power, step) = (beta2.powf(*t), self.lr / (1.0 - beta1.powf(*t)));
        let longest = 2.0 / (1.0 - beta2) - 1.0;
        let length = longest - 2.0 * *t * power / (1.0 - power);
        let rule = if length > 5.0 {
            let rectify =
                ((length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)).sqrt();
            let step = step * (1.0 - power).sqrt() * rectify;
            UpdateRule::Adam { beta1, beta2, eps: self.eps, root: 1.0, step, grad_step: 0.0 }
        } else {
            // Too few squares to divide by: by one instead.
            UpdateRule::Adam { beta1, beta2, eps: 1.0, root: 0.0, step, grad_step: 0.0 }
        };
        let (weight_decay, shrink) = decay(self.lr, self.weight_decay, self.decoupled_weight_decay);
        Factors { maximize: self.maximize, weight_decay, shrink, rule }
    }
}

impl Algorithm for AdamaxOptions {
    const TENSORS: &'static [&'static str] = &["exp_avg", "exp_inf"];

    fn validate(&self) -> Result<()> {
        require_adam(self.lr, self.betas, self.eps, self.weight_decay)
    }

    fn keeps(&self) -> [bool; 3] {
        [true, true, false]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        fused_step(groups, grad_scale, skip)
    }
}

impl Fused for AdamaxOptions {
    fn advance(&self, [t, ..]: &mut Scalars, _: bool) -> Factors {
        *t += 1.0;
        let (beta1, beta2) = self.betas;
        let step = self.lr / (1.0 - beta1.powf(*t));
        Factors {
            maximize: self.maximize,
            weight_decay: self.weight_decay,
            shrink: 1.0,
            rule: UpdateRule::Adamax { beta1, beta2, eps: self.eps, step },
        }
    }
}
