//! Optimizers, learning-rate schedules, gradient scaling.
//!
//! Names, options, defaults and state dicts are PyTorch's. An optimizer is made by a builder and used through the trait
//! [`Optimizer`]:
//!
//! ```
//! # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
//! use rushlight::optim::{AdamW, Optimizer};
//! use rushlight::{Tensor, clip_grad_norm_};
//! let w = Tensor::new([[1.0f32, -2.0]])?.requires_grad_(true)?;
//! let mut optimizer = AdamW::builder([w.clone()]).lr(3e-4).weight_decay(0.1).build()?;
//! (&w * &w).sum(..)?.backward()?;
//! clip_grad_norm_([&w], 1.0)?;
//! optimizer.step()?;
//! optimizer.zero_grad();
//! # Ok::<(), rushlight_core::Error>(())
//! ```

mod ema;
mod grad_scaler;
mod group;
mod lbfgs;
pub mod lr_scheduler;
mod optimizer;
mod options;
mod own;
mod pass;
mod rules;

pub use ema::Ema;
pub use grad_scaler::GradScaler;
pub use group::{Builder, GroupOptimizer};
pub use lbfgs::{Lbfgs, LbfgsOptions, LineSearch};
pub use optimizer::{Group, Optimizer, ParamGroup};
pub use own::{Rule, State};
pub use rules::*;

/// The parts of a rule, for front ends that keep parameters, options and state themselves.
pub mod rule {
    pub use crate::ema::Averaging;
    pub use crate::grad_scaler::RecordedStep;
    pub use crate::group::{Algorithm, Composed, Factors, Fused, Scalars};
    pub use crate::options::{Field as OptionValue, Options};
    pub use crate::pass::{FactorSet, FactorSets, Member};
    pub use rushlight_core::Result;
    pub use rushlight_tensor::state::{Dict, Value};
}
