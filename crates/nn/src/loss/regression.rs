//! Losses of predicted numbers and distributions.

use super::losses;
use crate::Module;
use rushlight_core::Result;
use rushlight_tensor::{Reduction, Tensor};

losses! {
    /// Squared error.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
    /// use rushlight::nn::MSELoss;
    /// use rushlight::{Reduction, Tensor};
    /// let (x, y) = (Tensor::new([1.0f32, 2.0])?, Tensor::new([1.0f32, 4.0])?);
    /// assert_eq!(MSELoss::new().forward(&x, &y)?.item::<f32>()?, 2.0);
    /// assert_eq!(MSELoss::new().reduction(Reduction::Sum).forward(&x, &y)?.item::<f32>()?, 4.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    MSELoss {}
    |l, input, target| input.mse_loss(target, l.reduction);

    /// Absolute error.
    L1Loss {}
    |l, input, target| input.l1_loss(target, l.reduction);

    /// Squared error below `beta`, absolute beyond.
    SmoothL1Loss {
        /// Threshold between the quadratic and the linear part; 1 by default.
        beta: f64 = 1.0,
    }
    |l, input, target| input.smooth_l1_loss(target, l.beta, l.reduction);

    /// Squared error below `delta`, `delta` times the absolute one beyond.
    HuberLoss {
        /// Threshold between the quadratic and the linear part; 1 by default.
        delta: f64 = 1.0,
    }
    |l, input, target| input.huber_loss(target, l.delta, l.reduction);

    /// Kullback-Leibler divergence of log-probabilities from the target's distribution. [`Reduction::BatchMean`] is the
    /// mathematical definition's mean.
    KLDivLoss {
        /// Whether the target holds log-probabilities too; false by default.
        log_target: bool = false,
    }
    |l, input, target| input.kl_div(target, l.log_target, l.reduction);

    /// Negative log-likelihood of counts under Poisson distributions.
    PoissonNLLLoss {
        /// Whether the input is the logarithm of the rate, true by default.
        log_input: bool = true,
        /// Whether to add Stirling's term; false by default.
        full: bool = false,
        /// Keeps the logarithm of a rate of zero finite; 1e-8 by default.
        eps: f64 = 1e-8,
    }
    |l, input, target| input.poisson_nll_loss(target, l.log_input, l.full, l.eps, l.reduction);

    /// Negative log-likelihood of targets under normal distributions with means and variances;
    /// `forward(input, target, var)`.
    GaussianNLLLoss {
        /// Whether to add the constant term; false by default.
        full: bool = false,
        /// The smallest variance; 1e-6 by default.
        eps: f64 = 1e-6,
    }
    |l, input, target, var| input.gaussian_nll_loss(target, var, l.full, l.eps, l.reduction);
}
