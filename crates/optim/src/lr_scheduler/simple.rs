//! Schedules that are a formula in the number of steps.

use super::formula::{self, Formula};
use super::{At, Group, Policy, schedule};
use crate::options::Field;
use rushlight_core::{Error, Result};
use rushlight_tensor::state::{Dict, Key, Value};
use std::collections::BTreeMap;

schedule! {
    /// Multiplies the rate by `gamma` every `step_size` steps.
    pub struct StepLROptions for StepLR(step_size as "step_size": usize, from usize) {
        /// The factor.
        gamma as "gamma": f64 = 0.1,
    }
}

schedule! {
    /// Multiplies the rate by `gamma` at each milestone.
    pub struct MultiStepLROptions for MultiStepLR(milestones as "milestones": Milestones, from impl IntoIterator<Item = usize>) {
        /// The factor.
        gamma as "gamma": f64 = 0.1,
    }
}

schedule! {
    /// Multiplies the rate by a factor until `total_iters` steps are done.
    pub struct ConstantLROptions for ConstantLR() {
        /// The factor.
        factor as "factor": f64 = 1.0 / 3.0,
        /// Steps at the reduced rate.
        total_iters as "total_iters": usize = 5,
    }
}

schedule! {
    /// Multiplies the rate by a factor that goes linearly from one value to another in `total_iters` steps.
    pub struct LinearLROptions for LinearLR() {
        /// The first factor.
        start_factor as "start_factor": f64 = 1.0 / 3.0,
        /// The last factor.
        end_factor as "end_factor": f64 = 1.0,
        /// Steps from one to the other.
        total_iters as "total_iters": usize = 5,
    }
}

schedule! {
    /// Multiplies the rate by `gamma` at every step.
    pub struct ExponentialLROptions for ExponentialLR(gamma as "gamma": f64, from f64) {}
}

schedule! {
    /// Lets the rate fall to zero in `total_iters` steps, as a power of the fraction left.
    pub struct PolynomialLROptions for PolynomialLR() {
        /// Steps to zero.
        total_iters as "total_iters": usize = 5,
        /// The power.
        power as "power": f64 = 1.0,
    }
}

schedule! {
    /// Lets the rate fall to `eta_min` along half a cosine, in `t_max` steps, then rise again.
    pub struct CosineAnnealingLROptions for CosineAnnealingLR(t_max as "T_max": usize, from usize) {
        /// The lowest rate.
        eta_min as "eta_min": f64 = 0.0,
    }
}

schedule! {
    /// Lets the rate fall to `eta_min` along half a cosine, then starts again at the full rate: first after `t_0`
    /// steps, and each period is `t_mult` times as long as the one before.
    pub struct CosineAnnealingWarmRestartsOptions for CosineAnnealingWarmRestarts(t_0 as "T_0": usize, from usize) {
        /// How much longer each period is than the one before.
        t_mult as "T_mult": usize = 1,
        /// The lowest rate.
        eta_min as "eta_min": f64 = 0.0,
    }
    keeps { t_cur as "T_cur": usize, t_i as "T_i": usize }
}

/// Milestones with their number of occurrences.
#[derive(Clone, Debug)]
pub struct Milestones(BTreeMap<usize, usize>);

impl<I: IntoIterator<Item = usize>> From<I> for Milestones {
    fn from(steps: I) -> Self {
        let mut counts = BTreeMap::new();
        for step in steps {
            *counts.entry(step).or_default() += 1;
        }
        Self(counts)
    }
}

impl Field for Milestones {
    fn to_value(&self) -> Value {
        let entries = self.0.iter().map(|(&step, &count)| (Key::Int(step as i64), Value::from(count)));
        Value::Dict(entries.collect())
    }
    fn from_value(value: &Value) -> Result<Self> {
        let entry = |(key, count): (&Key, &Value)| {
            let step = key.to_string().parse().map_err(|_| Error::value(format!("milestone '{key}' is not a step")))?;
            Ok((step, count.as_usize()?))
        };
        value.as_dict()?.iter().map(entry).collect::<Result<_>>().map(Self)
    }
}

/// A policy whose options are its whole state and whose rates follow from a [`Formula`].
macro_rules! policy {
    ($options:ident, |$check:ident| $valid:expr, |$o:ident, $epoch:ident| $formula:expr) => {
        impl Policy for $options {
            fn prepare(&mut self, _: &mut [&mut dyn Group]) -> Result<()> {
                let $check = &*self;
                $valid
            }
            fn lrs(&mut self, at: At, groups: &mut [&mut dyn Group]) -> Result<Vec<f64>> {
                let ($o, $epoch) = (&*self, at.epoch);
                let formula = $formula;
                let pairs = groups.iter().zip(at.base_lrs);
                Ok(pairs.map(|(group, &base)| formula.chained(at.epoch as f64, at.initial, base, group.lr())).collect())
            }
            fn first(&self, base: f64) -> Option<f64> {
                let ($o, $epoch) = (self, 0i64);
                Some($formula.closed_form($epoch as f64, base))
            }
            fn save(&self, state: &mut Dict) {
                self.save_options(state);
            }
            fn load(&mut self, state: &Value) -> Result<()> {
                self.load_options(state)
            }
        }
    };
}

fn check(ok: bool, message: &str) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::value(message)) }
}

policy!(StepLROptions, |o| check(o.step_size > 0, "StepLR: step_size must be positive"), |o, _epoch| Formula::Step {
    step_size: o.step_size as f64,
    gamma: o.gamma
});

policy!(MultiStepLROptions, |_o| Ok(()), |o, epoch| {
    let at = |epoch: i64| usize::try_from(epoch).unwrap_or(0);
    let hits = o.milestones.0.get(&at(epoch)).copied().unwrap_or(0);
    let passed: usize = o.milestones.0.range(..=at(epoch)).map(|(_, count)| count).sum();
    Formula::MultiStep { gamma: o.gamma, hits: hits as f64, passed: passed as f64 }
});

policy!(
    ConstantLROptions,
    |o| check((0.0..=1.0).contains(&o.factor), "Constant multiplicative factor expected to be between 0 and 1."),
    |o, _epoch| Formula::Constant { factor: o.factor, total_iters: o.total_iters as f64 }
);

policy!(
    LinearLROptions,
    |o| {
        check(
            o.start_factor > 0.0 && o.start_factor <= 1.0,
            "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.",
        )?;
        check((0.0..=1.0).contains(&o.end_factor), "Ending multiplicative factor expected to be between 0 and 1.")
    },
    |o, _epoch| Formula::Linear {
        start_factor: o.start_factor,
        end_factor: o.end_factor,
        total_iters: o.total_iters as f64
    }
);

policy!(ExponentialLROptions, |_o| Ok(()), |o, _epoch| Formula::Exponential { gamma: o.gamma });

policy!(PolynomialLROptions, |_o| Ok(()), |o, _epoch| Formula::Polynomial {
    total_iters: o.total_iters as f64,
    power: o.power
});

policy!(CosineAnnealingLROptions, |o| check(o.t_max > 0, "CosineAnnealingLR: T_max must be positive"), |o, _epoch| {
    Formula::CosineAnnealing { t_max: o.t_max as f64, eta_min: o.eta_min }
});

impl Policy for CosineAnnealingWarmRestartsOptions {
    fn prepare(&mut self, _: &mut [&mut dyn Group]) -> Result<()> {
        check(self.t_0 > 0, "Expected positive integer T_0, but got 0")?;
        check(self.t_mult >= 1, "Expected integer T_mult >= 1, but got 0")?;
        self.t_i = self.t_0;
        Ok(())
    }

    fn lrs(&mut self, at: At, _: &mut [&mut dyn Group]) -> Result<Vec<f64>> {
        if at.epoch <= 0 {
            (self.t_cur, self.t_i) = (0, self.t_0);
        } else {
            let (t_cur, t_i) = formula::restarts_next(self.t_cur as f64, self.t_i as f64, self.t_mult as f64);
            (self.t_cur, self.t_i) = (t_cur as usize, t_i as usize);
        }
        let (t_cur, t_i) = (self.t_cur as f64, self.t_i as f64);
        Ok(at.base_lrs.iter().map(|&base| formula::cosine(base, self.eta_min, t_cur, t_i)).collect())
    }

    fn counts(&self) -> bool {
        false
    }

    fn save(&self, state: &mut Dict) {
        self.save_options(state);
    }

    fn load(&mut self, state: &Value) -> Result<()> {
        self.load_options(state)?;
        check(self.t_0 > 0 && self.t_i > 0, "CosineAnnealingWarmRestarts: T_0 and T_i must be positive")
    }
}
