//! Schedules by a function of the number of steps.

use super::{At, Group, Plan, Policy, Scheduler};
use crate::Optimizer;
use rushlight_core::{Error, Result};
use rushlight_tensor::state::{Dict, Value};

/// A factor by the number of steps.
type Lambda = Box<dyn Fn(usize) -> f64 + Send>;

/// Sets the rate to its first value times a function of the number of steps.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::lr_scheduler::{LambdaLR, LrScheduler};
/// use rushlight::optim::{Optimizer, Sgd};
/// use rushlight::Tensor;
/// let mut optimizer = Sgd::new([Tensor::ones([2])?.requires_grad_(true)?], 0.1)?;
/// let mut scheduler = LambdaLR::new(&mut optimizer, |step| 1.0 / (1.0 + step as f64))?;
/// scheduler.step(&mut optimizer)?;
/// assert_eq!(optimizer.lr(), 0.05);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub type LambdaLR = Scheduler<LambdaLROptions>;
/// Multiplies the rate at each step by a function of the number of steps.
pub type MultiplicativeLR = Scheduler<MultiplicativeLROptions>;

/// One function for all groups, or one for each.
enum Lambdas {
    Shared(Lambda),
    Each(Vec<Lambda>),
}

impl Lambdas {
    fn check(&self, groups: usize) -> Result<()> {
        match self {
            Lambdas::Each(each) if each.len() != groups => {
                Err(Error::value(format!("Expected {groups} lr_lambdas, but got {}", each.len())))
            }
            _ => Ok(()),
        }
    }

    fn factor(&self, group: usize, epoch: i64) -> f64 {
        let epoch = usize::try_from(epoch).unwrap_or(0);
        match self {
            Lambdas::Shared(f) => f(epoch),
            // Checked when the schedule was built; a group added since keeps its rate.
            Lambdas::Each(each) => each.get(group).map_or(1.0, |f| f(epoch)),
        }
    }
}

macro_rules! by_lambda {
    ($options:ident, $name:literal, |$lambdas:ident, $at:ident, $groups:ident| $lrs:expr) => {
        #[doc = concat!("The functions of [`", $name, "`].")]
        pub struct $options {
            lambdas: Lambdas,
            groups: usize,
        }

        impl Scheduler<$options> {
            /// One function for all groups.
            pub fn new(
                optimizer: &mut dyn Optimizer,
                lr_lambda: impl Fn(usize) -> f64 + Send + 'static,
            ) -> Result<Self> {
                Self::builder(lr_lambda).build(optimizer)
            }

            /// [`new`](Self::new), to be followed by [`build`](Plan::build).
            pub fn builder(lr_lambda: impl Fn(usize) -> f64 + Send + 'static) -> Plan<$options> {
                Plan($options { lambdas: Lambdas::Shared(Box::new(lr_lambda)), groups: 0 })
            }

            /// A function for each group.
            pub fn each(lr_lambdas: impl IntoIterator<Item = Box<dyn Fn(usize) -> f64 + Send>>) -> Plan<$options> {
                Plan($options { lambdas: Lambdas::Each(lr_lambdas.into_iter().collect()), groups: 0 })
            }
        }

        impl Policy for $options {
            fn prepare(&mut self, groups: &mut [&mut dyn Group]) -> Result<()> {
                self.groups = groups.len();
                self.lambdas.check(groups.len())
            }

            fn lrs(&mut self, $at: At, $groups: &mut [&mut dyn Group]) -> Result<Vec<f64>> {
                let $lambdas = &self.lambdas;
                Ok($lrs)
            }

            /// Functions are not saved, as PyTorch does not save them either.
            fn save(&self, state: &mut Dict) {
                state.insert("lr_lambdas".into(), vec![Value::None; self.groups].into());
            }

            fn load(&mut self, _: &Value) -> Result<()> {
                Ok(())
            }
        }
    };
}

by_lambda!(LambdaLROptions, "LambdaLR", |lambdas, at, _groups| {
    at.base_lrs.iter().enumerate().map(|(i, base)| base * lambdas.factor(i, at.epoch)).collect()
});
by_lambda!(MultiplicativeLROptions, "MultiplicativeLR", |lambdas, at, groups| {
    let factor = |i: usize| if at.initial { 1.0 } else { lambdas.factor(i, at.epoch) };
    groups.iter().enumerate().map(|(i, group)| group.lr() * factor(i)).collect()
});
