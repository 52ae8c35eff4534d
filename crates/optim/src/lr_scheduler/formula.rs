//! The schedules' formulas for one parameter group, as plain functions. The schedules of this crate and of the
//! Python front call the same ones; steps are `f64`, since PyTorch allows fractions of epochs.

use std::f64::consts::PI;

/// A schedule whose learning rate follows from the step, the base rate and the current rate.
///
/// PyTorch defines most schedules twice: as a factor of the current rate ([`chained`](Formula::chained)), so that
/// several schedules can act on one optimizer, and as a function of the base rate
/// ([`closed_form`](Formula::closed_form)).
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The fields have the names of PyTorch's options.
pub enum Formula {
    /// `StepLR`.
    Step { step_size: f64, gamma: f64 },
    /// `MultiStepLR`. `hits`: how many times this step is listed as a milestone; `passed`: milestones up to this step.
    MultiStep { gamma: f64, hits: f64, passed: f64 },
    /// `ConstantLR`.
    Constant { factor: f64, total_iters: f64 },
    /// `LinearLR`.
    Linear { start_factor: f64, end_factor: f64, total_iters: f64 },
    /// `ExponentialLR`.
    Exponential { gamma: f64 },
    /// `PolynomialLR`.
    Polynomial { total_iters: f64, power: f64 },
    /// `CosineAnnealingLR`.
    CosineAnnealing { t_max: f64, eta_min: f64 },
}

impl Formula {
    /// The rate at step `epoch` from the rate `lr` of the step before. `initial`: whether the schedule is being built.
    pub fn chained(&self, epoch: f64, initial: bool, base_lr: f64, lr: f64) -> f64 {
        match *self {
            Formula::Step { step_size, gamma } => {
                if epoch != 0.0 && epoch.rem_euclid(step_size) == 0.0 {
                    lr * gamma
                } else {
                    lr
                }
            }
            Formula::MultiStep { hits: 0.0, .. } => lr,
            Formula::MultiStep { gamma, hits, .. } => lr * gamma.powf(hits),
            Formula::Constant { factor, .. } if epoch == 0.0 => lr * factor,
            Formula::Constant { factor, total_iters } if epoch == total_iters => lr * (1.0 / factor),
            Formula::Constant { .. } => lr,
            Formula::Linear { start_factor, .. } if epoch == 0.0 => lr * start_factor,
            Formula::Linear { total_iters, .. } if initial || epoch > total_iters => lr,
            Formula::Linear { start_factor, end_factor, total_iters } => {
                let rise = end_factor - start_factor;
                lr * (1.0 + rise / (total_iters * start_factor + (epoch - 1.0) * rise))
            }
            Formula::Exponential { gamma } => {
                if initial {
                    lr
                } else {
                    lr * gamma
                }
            }
            Formula::Polynomial { total_iters, .. } if initial || epoch > total_iters => lr,
            Formula::Polynomial { total_iters, power } => {
                let left = |epoch: f64| 1.0 - epoch / total_iters;
                lr * (left(epoch) / left(epoch - 1.0)).powf(power)
            }
            Formula::CosineAnnealing { .. } if initial => lr,
            Formula::CosineAnnealing { t_max, eta_min } if (epoch - 1.0 - t_max) % (2.0 * t_max) == 0.0 => {
                // The step before was at the minimum, where the quotient below would divide by zero.
                lr + (base_lr - eta_min) * (1.0 - (PI / t_max).cos()) / 2.0
            }
            Formula::CosineAnnealing { t_max, eta_min } => {
                let height = |epoch: f64| 1.0 + (PI * epoch / t_max).cos();
                height(epoch) / height(epoch - 1.0) * (lr - eta_min) + eta_min
            }
        }
    }

    /// The rate at step `epoch`, whatever other schedules have done to the current one.
    pub fn closed_form(&self, epoch: f64, base_lr: f64) -> f64 {
        match *self {
            Formula::Step { step_size, gamma } => base_lr * gamma.powf((epoch / step_size).floor()),
            Formula::MultiStep { gamma, passed, .. } => base_lr * gamma.powf(passed),
            Formula::Constant { factor, total_iters } => {
                base_lr * (factor + f64::from(u8::from(epoch >= total_iters)) * (1.0 - factor))
            }
            Formula::Linear { start_factor, .. } if epoch == 0.0 => base_lr * start_factor,
            Formula::Linear { start_factor, end_factor, total_iters } => {
                base_lr * (start_factor + (end_factor - start_factor) * total_iters.min(epoch) / total_iters)
            }
            Formula::Exponential { gamma } => base_lr * gamma.powf(epoch),
            Formula::Polynomial { .. } if epoch == 0.0 => base_lr,
            Formula::Polynomial { total_iters, power } => {
                base_lr * (1.0 - total_iters.min(epoch) / total_iters).powf(power)
            }
            Formula::CosineAnnealing { t_max, eta_min } => cosine(base_lr, eta_min, epoch, t_max),
        }
    }
}

/// `eta_min + (base - eta_min) * (1 + cos(π t / period)) / 2`.
pub fn cosine(base_lr: f64, eta_min: f64, t: f64, period: f64) -> f64 {
    eta_min + (base_lr - eta_min) * (1.0 + (PI * t / period).cos()) / 2.0
}

/// `CosineAnnealingWarmRestarts`: the position in a period and its length, one step later.
pub fn restarts_next(t_cur: f64, t_i: f64, t_mult: f64) -> (f64, f64) {
    let next = t_cur + 1.0;
    if next >= t_i { (next % t_i, t_i * t_mult) } else { (next, t_i) }
}

/// `CosineAnnealingWarmRestarts`: the position in a period and its length at any step.
pub fn restarts_at(epoch: f64, t_0: f64, t_mult: f64) -> (f64, f64) {
    if epoch < t_0 {
        (epoch, t_0)
    } else if t_mult == 1.0 {
        (epoch % t_0, t_0)
    } else {
        let n = (epoch / t_0 * (t_mult - 1.0) + 1.0).log(t_mult).floor();
        (epoch - t_0 * (t_mult.powf(n) - 1.0) / (t_mult - 1.0), t_0 * t_mult.powf(n))
    }
}

/// `CyclicLR`: which cycle a step belongs to, from 1 on, and the height in it, from 0 to 1 and back.
pub fn cycle(epoch: f64, total_size: f64, step_ratio: f64) -> (f64, f64) {
    let number = (1.0 + epoch / total_size).floor();
    let part = 1.0 + epoch / total_size - number;
    (number, if part <= step_ratio { part / step_ratio } else { (part - 1.0) / (step_ratio - 1.0) })
}

/// How a rate goes from one value to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anneal {
    /// Along half a cosine.
    Cos,
    /// Along a line.
    Linear,
}

impl Anneal {
    /// The value a part of the way from `start` to `end`.
    pub fn between(self, start: f64, end: f64, part: f64) -> f64 {
        match self {
            Anneal::Cos => end + (start - end) / 2.0 * ((PI * part).cos() + 1.0),
            Anneal::Linear => (end - start) * part + start,
        }
    }

    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            Anneal::Cos => "cos",
            Anneal::Linear => "linear",
        }
    }

    /// By PyTorch's name.
    pub fn named(name: &str) -> Option<Self> {
        [Anneal::Cos, Anneal::Linear].into_iter().find(|a| a.name() == name)
    }
}

/// `OneCycleLR`: which of the phases a step belongs to, given their last steps, and which part of it is done.
pub fn phase(epoch: f64, ends: &[f64]) -> Option<(usize, f64)> {
    let last = ends.len().checked_sub(1)?;
    let at = ends.iter().position(|&end| epoch <= end).unwrap_or(last);
    let start = if at == 0 { 0.0 } else { ends[at - 1] };
    Some((at, (epoch - start) / (ends[at] - start)))
}

/// `SWALR`: the rate at `step`, on the way from the rate at the start to `swa_lr` in `anneal_epochs` steps.
pub fn swa(step: f64, anneal_epochs: f64, anneal: Anneal, swa_lr: f64, lr: f64) -> f64 {
    let step = if anneal_epochs == 0.0 { step.max(1.0) } else { step };
    let share = |step: f64| {
        let part = (step / anneal_epochs.max(1.0)).clamp(0.0, 1.0);
        if anneal == Anneal::Cos { (1.0 - (PI * part).cos()) / 2.0 } else { part }
    };
    let (before, now) = (share(step - 1.0), share(step));
    // The rate at the start follows from the current one.
    let start = if before == 1.0 { swa_lr } else { (lr - before * swa_lr) / (1.0 - before) };
    swa_lr * now + start * (1.0 - now)
}

/// `ReduceLROnPlateau`: whether a measure improves on the best so far.
pub fn is_better(minimize: bool, relative: bool, threshold: f64, a: f64, best: f64) -> bool {
    match (minimize, relative) {
        (true, true) => a < best * (1.0 - threshold),
        (true, false) => a < best - threshold,
        (false, true) => a > best * (threshold + 1.0),
        (false, false) => a > best + threshold,
    }
}

/// The counters of `ReduceLROnPlateau`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// Steps without improvement.
    pub num_bad_epochs: usize,
    /// Steps until bad ones count again.
    pub cooldown_counter: usize,
}

impl Patience {
    /// Counts a step; whether to reduce the rate.
    pub fn count(&mut self, better: bool, patience: usize, cooldown: usize) -> bool {
        self.num_bad_epochs = if better { 0 } else { self.num_bad_epochs + 1 };
        if self.cooldown_counter > 0 {
            self.cooldown_counter -= 1;
            self.num_bad_epochs = 0;
        }
        let reduce = self.num_bad_epochs > patience;
        if reduce {
            *self = Patience { num_bad_epochs: 0, cooldown_counter: cooldown };
        }
        reduce
    }
}

/// `ReduceLROnPlateau`: the reduced rate; the same one if the change would be `eps` at most.
pub fn reduced(lr: f64, factor: f64, min_lr: f64, eps: f64) -> f64 {
    let new = (lr * factor).max(min_lr);
    if lr - new > eps { new } else { lr }
}
