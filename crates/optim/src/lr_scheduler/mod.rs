//! Learning-rate schedules, with PyTorch's names and values.
//!
//! A schedule does not hold the optimizer: it is built for one and given it at each step, after the optimizer's own.
//!
//! ```
//! # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
//! use rushlight::optim::lr_scheduler::{LrScheduler, StepLR};
//! use rushlight::optim::{Optimizer, Sgd};
//! use rushlight::Tensor;
//! let mut optimizer = Sgd::new([Tensor::ones([2])?.requires_grad_(true)?], 1.0)?;
//! let mut scheduler = StepLR::builder(2).gamma(0.5).build(&mut optimizer)?;
//! for _epoch in 0..4 {
//!     optimizer.step()?;
//!     scheduler.step(&mut optimizer)?;
//! }
//! assert_eq!(optimizer.lr(), 0.25);
//! # Ok::<(), rushlight_core::Error>(())
//! ```
//!
//! Building a schedule sets the learning rate of its first step. To resume, build optimizer and schedule as at the
//! beginning, then load the state of both. Most schedules multiply the rate the optimizer has, as PyTorch's do, so that
//! they can be chained.

mod composed;
mod cycle;
pub mod formula;
mod lambda;
mod plateau;
mod simple;
mod swa;

pub use composed::{ChainedScheduler, SequentialLR};
pub use cycle::{CyclicLR, CyclicLROptions, CyclicMode, OneCycleLR, OneCycleLROptions, PerGroup};
pub use formula::Anneal;
pub use lambda::{LambdaLR, LambdaLROptions, MultiplicativeLR, MultiplicativeLROptions};
pub use plateau::{PlateauMode, ReduceLROnPlateau, ReduceLROnPlateauBuilder, ThresholdMode};
pub use simple::{
    ConstantLR, ConstantLROptions, CosineAnnealingLR, CosineAnnealingLROptions, CosineAnnealingWarmRestarts,
    CosineAnnealingWarmRestartsOptions, ExponentialLR, ExponentialLROptions, LinearLR, LinearLROptions, MultiStepLR,
    MultiStepLROptions, PolynomialLR, PolynomialLROptions, StepLR, StepLROptions,
};
pub use swa::{SWALR, SWALROptions};

use crate::options::Field;
use crate::{Group, Optimizer};
use rushlight_core::{Error, Result};
use rushlight_tensor::capture::refuse_host;
use rushlight_tensor::state::{Dict, Stateful, Value};

/// Changes the learning rates of an optimizer's groups step by step.
pub trait LrScheduler: Stateful + Send {
    /// Sets the next learning rates; call it after the optimizer's step.
    fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()>;

    /// The learning rates set last, one for each group.
    fn get_last_lr(&self) -> &[f64];

    /// State with PyTorch's keys.
    fn state_dict(&self) -> Result<Value> {
        self.state()
    }

    /// Goes back to a state, this library's or PyTorch's. Nothing changes if the state does not fit.
    fn load_state_dict(&mut self, state_dict: &Value) -> Result<()> {
        self.load_state(state_dict)
    }

    /// Undoes one step's count and changes nothing else: a sequence prepares its parts with it.
    #[doc(hidden)]
    fn undo(&mut self);

    /// The first step once more, at the rates the optimizer has.
    #[doc(hidden)]
    fn begin(&mut self, optimizer: &mut dyn Optimizer) -> Result<()>;

    /// Sets the rates the schedule begins with, whatever the optimizer has now.
    #[doc(hidden)]
    fn restart(&mut self, optimizer: &mut dyn Optimizer) -> Result<()>;
}

/// Where a schedule is.
pub struct At<'a> {
    /// Steps taken.
    pub epoch: i64,
    /// Steps counted before this one. In a sequence of schedules it differs from `epoch`, as in PyTorch.
    pub count: i64,
    /// Whether the schedule is being built.
    pub initial: bool,
    /// The groups' rates at the beginning.
    pub base_lrs: &'a [f64],
}

/// A schedule's formula.
pub trait Policy: Send + 'static {
    /// Checks the options, with PyTorch's messages, and prepares the groups.
    fn prepare(&mut self, groups: &mut [&mut dyn Group]) -> Result<()>;
    /// The rates at a step, one for each group.
    fn lrs(&mut self, at: At, groups: &mut [&mut dyn Group]) -> Result<Vec<f64>>;
    /// The first rate from a group's base rate, for formulas that have one whatever the rate is now.
    fn first(&self, _base_lr: f64) -> Option<f64> {
        None
    }
    /// The base rates if they differ from the groups' rates.
    fn base_lrs(&self) -> Option<Vec<f64>> {
        None
    }
    /// Whether PyTorch counts the steps of this schedule.
    fn counts(&self) -> bool {
        true
    }
    /// The options by PyTorch's names.
    fn save(&self, state: &mut Dict);
    /// The options from a state.
    fn load(&mut self, state: &Value) -> Result<()>;
}

/// A schedule by formula, made by its `new`, or by its `builder` and [`build`](Plan::build).
pub struct Scheduler<P> {
    policy: P,
    base_lrs: Vec<f64>,
    last_epoch: i64,
    step_count: i64,
    last_lr: Vec<f64>,
}

/// Makes a schedule: options not set have PyTorch's defaults.
pub struct Plan<P>(pub(crate) P);

impl<P: Policy> Plan<P> {
    /// The schedule for an optimizer, whose learning rates are set to their first values.
    pub fn build(self, optimizer: &mut dyn Optimizer) -> Result<Scheduler<P>> {
        let mut policy = self.0;
        let mut groups = optimizer.param_groups_mut();
        policy.prepare(&mut groups)?;
        let mut base_lrs = Vec::with_capacity(groups.len());
        for group in &mut groups {
            if group.get("initial_lr").is_none() {
                let lr = group.lr();
                group.set("initial_lr", lr.into())?;
            }
            base_lrs.push(number(&**group, "initial_lr")?);
        }
        let mut scheduler = Scheduler { policy, base_lrs, last_epoch: -1, step_count: 0, last_lr: Vec::new() };
        scheduler.begin(optimizer)?;
        Ok(scheduler)
    }
}

/// A number kept with a group.
fn number(group: &dyn Group, name: &str) -> Result<f64> {
    match group.get(name) {
        Some(value) => value.as_float(),
        None => Err(Error::value(format!("a parameter group has no '{name}'; build the schedule for this optimizer"))),
    }
}

fn set_lrs(groups: &mut [&mut dyn Group], lrs: &[f64]) -> Result<()> {
    if groups.len() != lrs.len() {
        return Err(Error::value(format!(
            "the schedule was built for {} parameter groups, the optimizer has {}",
            lrs.len(),
            groups.len()
        )));
    }
    groups.iter_mut().zip(lrs).for_each(|(group, &lr)| group.set_lr(lr));
    Ok(())
}

impl<P: Policy> Scheduler<P> {
    fn advance(&mut self, optimizer: &mut dyn Optimizer, initial: bool) -> Result<()> {
        let mut groups = optimizer.param_groups_mut();
        let at = At { epoch: self.last_epoch + 1, count: self.step_count, initial, base_lrs: &self.base_lrs };
        let lrs = self.policy.lrs(at, &mut groups)?;
        set_lrs(&mut groups, &lrs)?;
        self.last_epoch += 1;
        self.step_count += i64::from(self.policy.counts());
        self.last_lr = lrs;
        Ok(())
    }
}

impl<P: Policy> LrScheduler for Scheduler<P> {
    fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        refuse_host("a schedule's step")?;
        self.advance(optimizer, false)
    }

    fn get_last_lr(&self) -> &[f64] {
        &self.last_lr
    }

    fn undo(&mut self) {
        self.last_epoch -= 1;
    }

    fn begin(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.step_count = 0;
        self.advance(optimizer, true)?;
        if let Some(base_lrs) = self.policy.base_lrs() {
            self.base_lrs = base_lrs;
        }
        Ok(())
    }

    fn restart(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        let mut groups = optimizer.param_groups_mut();
        let first: Option<Vec<f64>> = self.base_lrs.iter().map(|&base| self.policy.first(base)).collect();
        let lrs = match first {
            Some(lrs) => lrs,
            None => {
                let at = At { epoch: 0, count: self.step_count, initial: false, base_lrs: &self.base_lrs };
                self.policy.lrs(at, &mut groups)?
            }
        };
        set_lrs(&mut groups, &lrs)?;
        self.last_epoch = 0;
        self.last_lr = lrs;
        Ok(())
    }
}

impl<P: Policy> Stateful for Scheduler<P> {
    fn state(&self) -> Result<Value> {
        let mut state = Dict::new();
        self.policy.save(&mut state);
        state.insert("base_lrs".into(), self.base_lrs.to_value());
        state.insert("last_epoch".into(), self.last_epoch.into());
        state.insert("_step_count".into(), self.step_count.into());
        state.insert("_is_initial".into(), false.into());
        state.insert("_get_lr_called_within_step".into(), false.into());
        state.insert("_last_lr".into(), self.last_lr.to_value());
        Ok(state.into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let base_lrs = Vec::from_value(state.get("base_lrs")?)?;
        let last_epoch = state.get("last_epoch")?.as_int()?;
        let step_count = state.get("_step_count")?.as_int()?;
        let last_lr = Vec::from_value(state.get("_last_lr")?)?;
        if base_lrs.len() != self.base_lrs.len() {
            return Err(Error::value(format!(
                "the state is for {} parameter groups, the schedule for {}",
                base_lrs.len(),
                self.base_lrs.len()
            )));
        }
        self.policy.load(state)?;
        (self.base_lrs, self.last_epoch, self.step_count, self.last_lr) = (base_lrs, last_epoch, step_count, last_lr);
        Ok(())
    }
}

/// Defines a schedule's options: one that `new` may take, those with a default and a setter, and the state between
/// steps. The names in PyTorch's state dict follow `as`.
macro_rules! schedule {
    (
        $(#[$meta:meta])*
        pub struct $options:ident for $scheduler:ident($($need:ident as $need_name:literal: $need_type:ty, from $arg:ty)?) {
            $($(#[$doc:meta])* $field:ident as $name:literal: $type:ty = $default:expr,)*
        }
        $(keeps { $($kept:ident as $kept_name:literal: $kept_type:ty),* })?
    ) => {
        $(#[$meta])*
        pub type $scheduler = $crate::lr_scheduler::Scheduler<$options>;

        #[doc = concat!("Options of [`", stringify!($scheduler), "`].")]
        #[derive(Clone, Debug)]
        pub struct $options {
            $($need: $need_type,)?
            $($field: $type,)*
            $($($kept: $kept_type,)*)?
        }

        impl $crate::lr_scheduler::Scheduler<$options> {
            /// The schedule for an optimizer, with PyTorch's defaults.
            pub fn new(
                optimizer: &mut dyn $crate::Optimizer,
                $($need: $arg)?
            ) -> rushlight_core::Result<Self> {
                Self::builder($($need)?).build(optimizer)
            }

            /// The schedule's options, to be followed by [`build`]($crate::lr_scheduler::Plan::build).
            pub fn builder($($need: $arg)?) -> $crate::lr_scheduler::Plan<$options> {
                $crate::lr_scheduler::Plan($options {
                    $($need: <$need_type>::from($need),)?
                    $($field: $default,)*
                    $($($kept: Default::default(),)*)?
                })
            }
        }

        impl $crate::lr_scheduler::Plan<$options> {
            $(
                $(#[$doc])*
                pub fn $field(mut self, $field: $type) -> Self {
                    self.0.$field = $field;
                    self
                }
            )*
        }

        impl $options {
            fn save_options(&self, state: &mut rushlight_tensor::state::Dict) {
                $(state.insert($need_name.into(), $crate::options::Field::to_value(&self.$need));)?
                $(state.insert($name.into(), $crate::options::Field::to_value(&self.$field));)*
                $($(state.insert($kept_name.into(), $crate::options::Field::to_value(&self.$kept));)*)?
            }

            fn load_options(&mut self, state: &rushlight_tensor::state::Value) -> rushlight_core::Result<()> {
                *self = Self {
                    $($need: $crate::options::Field::from_value(state.get($need_name)?)?,)?
                    $($field: $crate::options::Field::from_value(state.get($name)?)?,)*
                    $($($kept: $crate::options::Field::from_value(state.get($kept_name)?)?,)*)?
                };
                Ok(())
            }
        }
    };
}
pub(crate) use schedule;
