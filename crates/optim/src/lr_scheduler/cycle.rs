//! Schedules that move the rate up and down, and momentum the other way.

use super::formula::{self, Anneal};
use super::{At, Group, Plan, Policy, Scheduler, number};
use crate::Optimizer;
use crate::options::Field;
use rushlight_core::{Error, Result};
use rushlight_tensor::state::{Dict, Value};

/// One number for all groups, or one for each.
#[derive(Clone, Debug)]
pub enum PerGroup {
    /// For all.
    Shared(f64),
    /// For each.
    Each(Vec<f64>),
}

impl From<f64> for PerGroup {
    fn from(x: f64) -> Self {
        PerGroup::Shared(x)
    }
}

impl From<Vec<f64>> for PerGroup {
    fn from(x: Vec<f64>) -> Self {
        PerGroup::Each(x)
    }
}

impl PerGroup {
    pub(super) fn expand(&self, name: &str, groups: usize) -> Result<Vec<f64>> {
        match self {
            PerGroup::Shared(x) => Ok(vec![*x; groups]),
            PerGroup::Each(x) if x.len() == groups => Ok(x.clone()),
            PerGroup::Each(x) => Err(Error::value(format!(
                "{name} must have the same length as optimizer.param_groups: {} for {groups}",
                x.len()
            ))),
        }
    }
}

/// Whether momentum is the first of `betas`.
fn uses_beta1(groups: &[&mut dyn Group]) -> Result<bool> {
    let has = |name: &str| groups.first().is_some_and(|g| g.get(name).is_some());
    if has("betas") {
        Ok(true)
    } else if has("momentum") {
        Ok(false)
    } else {
        Err(Error::value("optimizer must support momentum or beta1 with `cycle_momentum` option enabled"))
    }
}

fn set_momentum(group: &mut dyn Group, use_beta1: bool, momentum: f64) -> Result<()> {
    if !use_beta1 {
        return group.set("momentum", momentum.into());
    }
    let betas = group.get("betas").map(|b| <(f64, f64)>::from_value(&b)).transpose()?;
    let beta2 = betas.map_or(0.0, |(_, beta2)| beta2);
    group.set("betas", (momentum, beta2).to_value())
}

/// Notes the bounds of momentum with the groups and sets it to the larger.
fn start_momentum(groups: &mut [&mut dyn Group], use_beta1: bool, base: &[f64], max: &[f64]) -> Result<()> {
    for ((group, &base), &max) in groups.iter_mut().zip(base).zip(max) {
        set_momentum(&mut **group, use_beta1, max)?;
        group.set("max_momentum", max.into())?;
        group.set("base_momentum", base.into())?;
    }
    Ok(())
}

/// The rate from low to `max_lr` and down to next to nothing, once: the 1cycle policy. Momentum goes the other way.
pub type OneCycleLR = Scheduler<OneCycleLROptions>;

/// Options of [`OneCycleLR`].
#[derive(Clone, Debug)]
pub struct OneCycleLROptions {
    max_lr: PerGroup,
    total_steps: usize,
    pct_start: f64,
    anneal_strategy: Anneal,
    cycle_momentum: bool,
    base_momentum: PerGroup,
    max_momentum: PerGroup,
    div_factor: f64,
    final_div_factor: f64,
    three_phase: bool,
    use_beta1: bool,
    phases: Vec<Phase>,
}

/// Part of a cycle: its last step, and the names of the values it goes between.
#[derive(Clone, Debug)]
struct Phase {
    end_step: f64,
    lr: [&'static str; 2],
    momentum: [&'static str; 2],
}

impl Scheduler<OneCycleLROptions> {
    /// A cycle of `total_steps` steps (`epochs * steps_per_epoch`) with the highest rate `max_lr`, for all groups or
    /// for each.
    pub fn new(optimizer: &mut dyn Optimizer, max_lr: impl Into<PerGroup>, total_steps: usize) -> Result<Self> {
        Self::builder(max_lr, total_steps).build(optimizer)
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](Plan::build).
    pub fn builder(max_lr: impl Into<PerGroup>, total_steps: usize) -> Plan<OneCycleLROptions> {
        Plan(OneCycleLROptions {
            max_lr: max_lr.into(),
            total_steps,
            pct_start: 0.3,
            anneal_strategy: Anneal::Cos,
            cycle_momentum: true,
            base_momentum: 0.85.into(),
            max_momentum: 0.95.into(),
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
            use_beta1: false,
            phases: Vec::new(),
        })
    }
}

impl Plan<OneCycleLROptions> {
    /// The part of the cycle in which the rate rises, 0.3 by default.
    pub fn pct_start(mut self, pct_start: f64) -> Self {
        self.0.pct_start = pct_start;
        self
    }

    /// The form of rise and fall, a cosine by default.
    pub fn anneal_strategy(mut self, anneal_strategy: Anneal) -> Self {
        self.0.anneal_strategy = anneal_strategy;
        self
    }

    /// Whether momentum (or the first of `betas`) moves, too; true by default.
    pub fn cycle_momentum(mut self, cycle_momentum: bool) -> Self {
        self.0.cycle_momentum = cycle_momentum;
        self
    }

    /// The lowest momentum, 0.85 by default.
    pub fn base_momentum(mut self, base_momentum: impl Into<PerGroup>) -> Self {
        self.0.base_momentum = base_momentum.into();
        self
    }

    /// The highest momentum, 0.95 by default.
    pub fn max_momentum(mut self, max_momentum: impl Into<PerGroup>) -> Self {
        self.0.max_momentum = max_momentum.into();
        self
    }

    /// The first rate is `max_lr / div_factor`; 25 by default.
    pub fn div_factor(mut self, div_factor: f64) -> Self {
        self.0.div_factor = div_factor;
        self
    }

    /// The last rate is the first divided by `final_div_factor`; 10,000 by default.
    pub fn final_div_factor(mut self, final_div_factor: f64) -> Self {
        self.0.final_div_factor = final_div_factor;
        self
    }

    /// Falls back to the first rate before it falls to the last.
    pub fn three_phase(mut self, three_phase: bool) -> Self {
        self.0.three_phase = three_phase;
        self
    }
}

impl OneCycleLROptions {
    fn phases(&self) -> Vec<Phase> {
        let (steps, last) = (self.total_steps as f64, self.total_steps as f64 - 1.0);
        let rise = Phase {
            end_step: self.pct_start * steps - 1.0,
            lr: ["initial_lr", "max_lr"],
            momentum: ["max_momentum", "base_momentum"],
        };
        let fall = |end_step: f64, end_lr| Phase {
            end_step,
            lr: ["max_lr", end_lr],
            momentum: ["base_momentum", "max_momentum"],
        };
        if self.three_phase {
            let vanish =
                Phase { end_step: last, lr: ["initial_lr", "min_lr"], momentum: ["max_momentum", "max_momentum"] };
            vec![rise, fall(2.0 * self.pct_start * steps - 2.0, "initial_lr"), vanish]
        } else {
            vec![rise, fall(last, "min_lr")]
        }
    }
}

impl Policy for OneCycleLROptions {
    fn prepare(&mut self, groups: &mut [&mut dyn Group]) -> Result<()> {
        if self.total_steps == 0 {
            return Err(Error::value("Expected positive integer total_steps, but got 0"));
        }
        if !(0.0..=1.0).contains(&self.pct_start) {
            return Err(Error::value(format!("Expected float between 0 and 1 pct_start, but got {}", self.pct_start)));
        }
        self.phases = self.phases();
        let max_lrs = self.max_lr.expand("max_lr", groups.len())?;
        for (group, max_lr) in groups.iter_mut().zip(max_lrs) {
            let initial_lr = max_lr / self.div_factor;
            group.set("initial_lr", initial_lr.into())?;
            group.set("max_lr", max_lr.into())?;
            group.set("min_lr", (initial_lr / self.final_div_factor).into())?;
        }
        if self.cycle_momentum {
            self.use_beta1 = uses_beta1(groups)?;
            let max = self.max_momentum.expand("max_momentum", groups.len())?;
            let base = self.base_momentum.expand("base_momentum", groups.len())?;
            start_momentum(groups, self.use_beta1, &base, &max)?;
        }
        Ok(())
    }

    fn lrs(&mut self, at: At, groups: &mut [&mut dyn Group]) -> Result<Vec<f64>> {
        let step = at.epoch as f64;
        if at.epoch > self.total_steps as i64 {
            return Err(Error::value(format!(
                "Tried to step {} times. The specified number of total steps is {}",
                at.epoch, self.total_steps
            )));
        }
        let ends: Vec<f64> = self.phases.iter().map(|p| p.end_step).collect();
        let Some((phase, part)) = formula::phase(step, &ends) else {
            return Err(Error::value("OneCycleLR: the schedule has no phases"));
        };
        let phase = &self.phases[phase];
        let mut lrs = Vec::with_capacity(groups.len());
        for group in groups {
            let between = |group: &dyn Group, names: [&str; 2]| -> Result<f64> {
                Ok(self.anneal_strategy.between(number(group, names[0])?, number(group, names[1])?, part))
            };
            lrs.push(between(&**group, phase.lr)?);
            if self.cycle_momentum {
                let momentum = between(&**group, phase.momentum)?;
                set_momentum(&mut **group, self.use_beta1, momentum)?;
            }
        }
        Ok(lrs)
    }

    fn save(&self, state: &mut Dict) {
        let phase = |p: &Phase| {
            let entries: [(&str, Value); 5] = [
                ("end_step", p.end_step.into()),
                ("start_lr", p.lr[0].into()),
                ("end_lr", p.lr[1].into()),
                ("start_momentum", p.momentum[0].into()),
                ("end_momentum", p.momentum[1].into()),
            ];
            Value::Dict(entries.into_iter().map(|(k, v)| (k.into(), v)).collect())
        };
        state.insert("total_steps".into(), self.total_steps.into());
        state.insert("_schedule_phases".into(), self.phases.iter().map(phase).collect::<Vec<_>>().into());
        state.insert("_anneal_func_type".into(), self.anneal_strategy.name().into());
        state.insert("cycle_momentum".into(), self.cycle_momentum.into());
        if self.cycle_momentum {
            state.insert("use_beta1".into(), self.use_beta1.into());
        }
    }

    fn load(&mut self, state: &Value) -> Result<()> {
        let mut new = self.clone();
        new.total_steps = state.get("total_steps")?.as_usize()?;
        let strategy = state.get("_anneal_func_type")?.as_str()?;
        new.anneal_strategy = Anneal::named(strategy)
            .ok_or_else(|| Error::value(format!("OneCycleLR: unknown anneal strategy '{strategy}'")))?;
        new.cycle_momentum = state.get("cycle_momentum")?.as_bool()?;
        if new.cycle_momentum {
            new.use_beta1 = state.get("use_beta1")?.as_bool()?;
        }
        let phases = state.get("_schedule_phases")?.as_list()?;
        new.three_phase = phases.len() == 3;
        new.phases = new.phases();
        for (phase, saved) in new.phases.iter_mut().zip(phases) {
            phase.end_step = saved.get("end_step")?.as_float()?;
        }
        *self = new;
        Ok(())
    }
}

/// The rate between two bounds, up and down again and again.
pub type CyclicLR = Scheduler<CyclicLROptions>;

/// How the height of the cycles changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CyclicMode {
    /// It stays.
    Triangular,
    /// It halves with each cycle.
    Triangular2,
    /// It shrinks by `gamma` with each step.
    ExpRange,
}

impl CyclicMode {
    const NAMES: [(CyclicMode, &'static str); 3] = [
        (CyclicMode::Triangular, "triangular"),
        (CyclicMode::Triangular2, "triangular2"),
        (CyclicMode::ExpRange, "exp_range"),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(mode, _)| *mode == self).map_or("", |(_, name)| name)
    }

    /// By PyTorch's name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, own)| *own == name).map(|(mode, _)| *mode)
    }

    /// The height of cycle `x`, or of step `x` for [`ExpRange`](CyclicMode::ExpRange).
    pub fn scale(self, x: f64, gamma: f64) -> f64 {
        match self {
            CyclicMode::Triangular => 1.0,
            CyclicMode::Triangular2 => 1.0 / 2f64.powf(x - 1.0),
            CyclicMode::ExpRange => gamma.powf(x),
        }
    }
}

/// Options of [`CyclicLR`].
#[derive(Clone, Debug)]
pub struct CyclicLROptions {
    base_lr: PerGroup,
    max_lr: PerGroup,
    step_size_up: usize,
    step_size_down: Option<usize>,
    mode: CyclicMode,
    gamma: f64,
    cycle_momentum: bool,
    base_momentum: PerGroup,
    max_momentum: PerGroup,
    cycle: Cycle,
}

/// The parameters of a built cycle.
#[derive(Clone, Debug, Default)]
struct Cycle {
    base_lrs: Vec<f64>,
    max_lrs: Vec<f64>,
    total_size: f64,
    step_ratio: f64,
    use_beta1: bool,
    base_momentums: Vec<f64>,
    max_momentums: Vec<f64>,
}

impl Scheduler<CyclicLROptions> {
    /// Cycles between `base_lr` and `max_lr`, for all groups or for each.
    pub fn new(
        optimizer: &mut dyn Optimizer,
        base_lr: impl Into<PerGroup>,
        max_lr: impl Into<PerGroup>,
    ) -> Result<Self> {
        Self::builder(base_lr, max_lr).build(optimizer)
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](Plan::build).
    pub fn builder(base_lr: impl Into<PerGroup>, max_lr: impl Into<PerGroup>) -> Plan<CyclicLROptions> {
        Plan(CyclicLROptions {
            base_lr: base_lr.into(),
            max_lr: max_lr.into(),
            step_size_up: 2000,
            step_size_down: None,
            mode: CyclicMode::Triangular,
            gamma: 1.0,
            cycle_momentum: true,
            base_momentum: 0.8.into(),
            max_momentum: 0.9.into(),
            cycle: Cycle::default(),
        })
    }
}

impl Plan<CyclicLROptions> {
    /// Steps up, 2,000 by default.
    pub fn step_size_up(mut self, step_size_up: usize) -> Self {
        self.0.step_size_up = step_size_up;
        self
    }

    /// Steps down, by default as many as up.
    pub fn step_size_down(mut self, step_size_down: usize) -> Self {
        self.0.step_size_down = Some(step_size_down);
        self
    }

    /// How the height of the cycles changes.
    pub fn mode(mut self, mode: CyclicMode) -> Self {
        self.0.mode = mode;
        self
    }

    /// The factor of [`CyclicMode::ExpRange`].
    pub fn gamma(mut self, gamma: f64) -> Self {
        self.0.gamma = gamma;
        self
    }

    /// Whether momentum (or the first of `betas`) moves, too; true by default.
    pub fn cycle_momentum(mut self, cycle_momentum: bool) -> Self {
        self.0.cycle_momentum = cycle_momentum;
        self
    }

    /// The lowest momentum, 0.8 by default.
    pub fn base_momentum(mut self, base_momentum: impl Into<PerGroup>) -> Self {
        self.0.base_momentum = base_momentum.into();
        self
    }

    /// The highest momentum, 0.9 by default.
    pub fn max_momentum(mut self, max_momentum: impl Into<PerGroup>) -> Self {
        self.0.max_momentum = max_momentum.into();
        self
    }
}

impl Policy for CyclicLROptions {
    fn prepare(&mut self, groups: &mut [&mut dyn Group]) -> Result<()> {
        let (n, up) = (groups.len(), self.step_size_up as f64);
        let total_size = up + self.step_size_down.map_or(up, |down| down as f64);
        if total_size <= 0.0 {
            return Err(Error::value("CyclicLR: a cycle must have steps"));
        }
        self.cycle = Cycle {
            base_lrs: self.base_lr.expand("base_lr", n)?,
            max_lrs: self.max_lr.expand("max_lr", n)?,
            total_size,
            step_ratio: up / total_size,
            ..Cycle::default()
        };
        for (group, &lr) in groups.iter_mut().zip(&self.cycle.base_lrs) {
            group.set_lr(lr);
        }
        if self.cycle_momentum {
            self.cycle.use_beta1 = uses_beta1(groups)?;
            self.cycle.base_momentums = self.base_momentum.expand("base_momentum", n)?;
            self.cycle.max_momentums = self.max_momentum.expand("max_momentum", n)?;
            start_momentum(groups, self.cycle.use_beta1, &self.cycle.base_momentums, &self.cycle.max_momentums)?;
        }
        Ok(())
    }

    fn base_lrs(&self) -> Option<Vec<f64>> {
        Some(self.cycle.base_lrs.clone())
    }

    fn lrs(&mut self, at: At, groups: &mut [&mut dyn Group]) -> Result<Vec<f64>> {
        let (c, step) = (&self.cycle, at.epoch as f64);
        let (number, height) = formula::cycle(step, c.total_size, c.step_ratio);
        let scale = self.mode.scale(if self.mode == CyclicMode::ExpRange { step } else { number }, self.gamma);
        if self.cycle_momentum {
            for ((group, base), max) in groups.iter_mut().zip(&c.base_momentums).zip(&c.max_momentums) {
                set_momentum(&mut **group, c.use_beta1, max - (max - base) * height * scale)?;
            }
        }
        Ok(c.base_lrs.iter().zip(&c.max_lrs).map(|(base, max)| base + (max - base) * height * scale).collect())
    }

    fn save(&self, state: &mut Dict) {
        let c = &self.cycle;
        state.insert("max_lrs".into(), c.max_lrs.to_value());
        state.insert("total_size".into(), c.total_size.into());
        state.insert("step_ratio".into(), c.step_ratio.into());
        state.insert("mode".into(), self.mode.name().into());
        state.insert("gamma".into(), self.gamma.into());
        let scale_mode = if self.mode == CyclicMode::ExpRange { "iterations" } else { "cycle" };
        state.insert("scale_mode".into(), scale_mode.into());
        state.insert("cycle_momentum".into(), self.cycle_momentum.into());
        if self.cycle_momentum {
            state.insert("use_beta1".into(), c.use_beta1.into());
            state.insert("base_momentums".into(), c.base_momentums.to_value());
            state.insert("max_momentums".into(), c.max_momentums.to_value());
        }
        state.insert("_scale_fn_custom".into(), Value::None);
    }

    fn load(&mut self, state: &Value) -> Result<()> {
        let mut new = self.clone();
        let mode = state.get("mode")?.as_str()?;
        new.mode = CyclicMode::named(mode).ok_or_else(|| Error::value(format!("CyclicLR: unknown mode '{mode}'")))?;
        new.gamma = state.get("gamma")?.as_float()?;
        new.cycle_momentum = state.get("cycle_momentum")?.as_bool()?;
        new.cycle.base_lrs = Vec::from_value(state.get("base_lrs")?)?;
        new.cycle.max_lrs = Vec::from_value(state.get("max_lrs")?)?;
        new.cycle.total_size = state.get("total_size")?.as_float()?;
        new.cycle.step_ratio = state.get("step_ratio")?.as_float()?;
        if new.cycle_momentum {
            new.cycle.use_beta1 = state.get("use_beta1")?.as_bool()?;
            new.cycle.base_momentums = Vec::from_value(state.get("base_momentums")?)?;
            new.cycle.max_momentums = Vec::from_value(state.get("max_momentums")?)?;
        }
        *self = new;
        Ok(())
    }
}
