//! Schedules that are a formula in the number of steps.

use super::{At, Group, Policy, schedule};
use crate::options::Field;
use rushlight_core::{Error, Result};
use rushlight_tensor::state::{Dict, Key, Value};
use std::collections::BTreeMap;
use std::f64::consts::PI;

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
    /// Lets the rate fall to zero in `total_iters` steps, as a power of what is left of them.
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
    /// Lets the rate fall to `eta_min` along half a cosine, then starts again at the full rate: first after `t_0` steps, then
    /// after `t_mult` times as many as before.
    pub struct CosineAnnealingWarmRestartsOptions for CosineAnnealingWarmRestarts(t_0 as "T_0": usize, from usize) {
        /// How much longer each period is than the one before.
        t_mult as "T_mult": usize = 1,
        /// The lowest rate.
        eta_min as "eta_min": f64 = 0.0,
    }
    keeps { t_cur as "T_cur": usize, t_i as "T_i": usize }
}

/// Steps, each with how often it was named.
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

fn current(groups: &[&mut dyn Group]) -> Vec<f64> {
    groups.iter().map(|g| g.lr()).collect()
}

fn times(groups: &[&mut dyn Group], factor: f64) -> Vec<f64> {
    groups.iter().map(|g| g.lr() * factor).collect()
}

/// A policy whose options are its whole state.
macro_rules! policy {
    ($options:ident, |$check:ident| $valid:expr, |$o:ident, $at:ident, $groups:ident| $lrs:expr, |$p:ident, $base:ident| $first:expr) => {
        impl Policy for $options {
            fn prepare(&mut self, _: &mut [&mut dyn Group]) -> Result<()> {
                let $check = &*self;
                $valid
            }
            fn lrs(&mut self, $at: At, $groups: &mut [&mut dyn Group]) -> Result<Vec<f64>> {
                let $o = &*self;
                Ok($lrs)
            }
            fn first(&self, $base: f64) -> Option<f64> {
                let $p = self;
                Some($first)
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

policy!(
    StepLROptions,
    |o| check(o.step_size > 0, "StepLR: step_size must be positive"),
    |o, at, groups| {
        let turn = at.epoch != 0 && at.epoch % o.step_size as i64 == 0;
        if turn { times(groups, o.gamma) } else { current(groups) }
    },
    |_o, base| base
);

policy!(
    MultiStepLROptions,
    |_o| Ok(()),
    |o, at, groups| match usize::try_from(at.epoch).ok().and_then(|e| o.milestones.0.get(&e)) {
        Some(&count) => times(groups, o.gamma.powf(count as f64)),
        None => current(groups),
    },
    |o, base| base * o.gamma.powf(o.milestones.0.get(&0).copied().unwrap_or(0) as f64)
);

policy!(
    ConstantLROptions,
    |o| check((0.0..=1.0).contains(&o.factor), "Constant multiplicative factor expected to be between 0 and 1."),
    |o, at, groups| match at.epoch {
        0 => times(groups, o.factor),
        e if e == o.total_iters as i64 => times(groups, 1.0 / o.factor),
        _ => current(groups),
    },
    |o, base| base * (o.factor + f64::from(u8::from(o.total_iters == 0)) * (1.0 - o.factor))
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
    |o, at, groups| match at.epoch {
        0 => times(groups, o.start_factor),
        e if at.initial || e > o.total_iters as i64 => current(groups),
        e => {
            let rise = o.end_factor - o.start_factor;
            times(groups, 1.0 + rise / (o.total_iters as f64 * o.start_factor + (e - 1) as f64 * rise))
        }
    },
    |o, base| base * o.start_factor
);

policy!(
    ExponentialLROptions,
    |_o| Ok(()),
    |o, at, groups| if at.initial { current(groups) } else { times(groups, o.gamma) },
    |_o, base| base
);

policy!(
    PolynomialLROptions,
    |_o| Ok(()),
    |o, at, groups| {
        if at.initial || at.epoch > o.total_iters as i64 {
            current(groups)
        } else {
            let left = |epoch: i64| 1.0 - epoch as f64 / o.total_iters as f64;
            times(groups, (left(at.epoch) / left(at.epoch - 1)).powf(o.power))
        }
    },
    |_o, base| base
);

policy!(
    CosineAnnealingLROptions,
    |o| check(o.t_max > 0, "CosineAnnealingLR: T_max must be positive"),
    |o, at, groups| {
        let period = o.t_max as f64;
        let height = |epoch: i64| 1.0 + (PI * epoch as f64 / period).cos();
        if at.initial {
            current(groups)
        } else if (at.epoch - 1 - o.t_max as i64) % (2 * o.t_max as i64) == 0 {
            // The step before was at the bottom, from where no factor leads up.
            let rise = (1.0 - (PI / period).cos()) / 2.0;
            let pairs = groups.iter().zip(at.base_lrs);
            pairs.map(|(group, base)| group.lr() + (base - o.eta_min) * rise).collect()
        } else {
            let factor = height(at.epoch) / height(at.epoch - 1);
            groups.iter().map(|group| factor * (group.lr() - o.eta_min) + o.eta_min).collect()
        }
    },
    |o, base| o.eta_min + (base - o.eta_min) * 2.0 / 2.0
);

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
            self.t_cur += 1;
            if self.t_cur >= self.t_i {
                self.t_cur %= self.t_i;
                self.t_i = self.t_i.saturating_mul(self.t_mult);
            }
        }
        let height = (1.0 + (PI * self.t_cur as f64 / self.t_i as f64).cos()) / 2.0;
        Ok(at.base_lrs.iter().map(|base| self.eta_min + (base - self.eta_min) * height).collect())
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
