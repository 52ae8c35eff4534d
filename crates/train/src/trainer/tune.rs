//! Tuning before a run: learning rate and batch size.

use super::Trainer;
use super::engine::{Engine, Phase, Work};
use crate::module::TrainModule;
use crate::optimizers::Optimizers;
use crate::ranks::Parallel;
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, ErrorKind, Philox, Result};
use rushlight_data::DataLoader;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::{StateDict, Stateful};

/// The result of [`Trainer::lr_find`].
#[derive(Clone, Debug)]
pub struct LrFinding {
    /// Learning rates that were tried, ascending.
    pub lrs: Vec<f64>,
    /// The smoothed loss after each.
    pub losses: Vec<f64>,
    /// The rate at which the loss falls fastest, if it falls at all.
    pub suggestion: Option<f64>,
}

/// Snapshot of a model and the random generator, for restoring.
struct Before {
    state: StateDict,
    random: Philox,
}

impl Before {
    fn of<M: TrainModule>(model: &M) -> Result<Self> {
        let copy = |(name, t): (String, Tensor)| Ok((name, no_grad(|| t.copy())?));
        let state = model.state_dict().into_iter().map(copy).collect::<Result<_>>()?;
        Ok(Self { state, random: default_generator().state() })
    }

    fn restore<M: TrainModule>(&self, model: &M) -> Result<()> {
        model.load_state_dict(&self.state)?;
        model.parameters().iter().for_each(Tensor::zero_grad);
        default_generator().set_state(self.random);
        Ok(())
    }
}

impl Trainer {
    /// Tries learning rates from `min_lr` to `max_lr`, each for one batch, and suggests one. Restores the model and the
    /// loader.
    ///
    /// The rates rise exponentially over `steps` batches; a loss four times the best ends the search. Schedules do not
    /// step.
    pub fn lr_find<M: TrainModule>(
        &mut self,
        model: &mut M,
        train: &mut DataLoader<M::Batch>,
        min_lr: f64,
        max_lr: f64,
        steps: usize,
    ) -> Result<LrFinding> {
        if !(min_lr > 0.0 && max_lr > min_lr && max_lr.is_finite() && steps > 1) {
            return Err(Error::value(format!(
                "lr_find: rates from {min_lr} to {max_lr} in {steps} steps; 0 < min_lr < max_lr and two steps are needed"
            )));
        }
        self.options.precision.prepare(model)?;
        model.to_(self.run.device.into())?;
        let (before, place) = (Before::of(model)?, train.state()?);
        let found = self.try_rates(model, train, min_lr, max_lr, steps);
        train.load_state(&place)?;
        before.restore(model)?;
        found
    }

    fn try_rates<M: TrainModule>(
        &mut self,
        model: &mut M,
        train: &DataLoader<M::Batch>,
        min_lr: f64,
        max_lr: f64,
        steps: usize,
    ) -> Result<LrFinding> {
        const SMOOTHING: f64 = 0.98;
        let mut optimizers = model.configure_optimizers(&self.run)?;
        let (mut lrs, mut losses, mut mean, mut best) = (Vec::new(), Vec::new(), 0.0, f64::INFINITY);
        let mut batches = (0u64..).flat_map(|epoch| train.epoch(epoch));
        for step in 0..steps {
            let lr = min_lr * (max_lr / min_lr).powf(step as f64 / (steps - 1) as f64);
            for i in 0..optimizers.len() {
                optimizers.get_mut(i)?.set_lr(lr)?;
            }
            let batch = batches.next().ok_or_else(|| Error::value("lr_find: the loader has no batches"))??;
            let loss = self.trial(model, &mut optimizers, &batch)?;
            mean = SMOOTHING * mean + (1.0 - SMOOTHING) * loss;
            let smooth = mean / (1.0 - SMOOTHING.powi(step as i32 + 1));
            if !smooth.is_finite() || (step > 1 && smooth > 4.0 * best) {
                break;
            }
            best = best.min(smooth);
            lrs.push(lr);
            losses.push(smooth);
        }
        // The first few are unsettled, the last has diverged.
        let skip = 10.min(losses.len() / 4);
        let steepest = (skip + 1..losses.len().saturating_sub(1))
            .map(|i| (losses[i + 1] - losses[i - 1], i))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(slope, _)| *slope < 0.0);
        let suggestion = steepest.map(|(_, i)| lrs[i]);
        Ok(LrFinding { lrs, losses, suggestion })
    }

    /// Doubles the loader's batch size until a step no longer fits the device's memory or `max` is reached, and sets
    /// the loader to the largest that fits. Restores the model.
    pub fn scale_batch_size<M: TrainModule>(
        &mut self,
        model: &mut M,
        train: &mut DataLoader<M::Batch>,
        max: usize,
    ) -> Result<usize> {
        const STEPS: usize = 3;
        self.options.precision.prepare(model)?;
        model.to_(self.run.device.into())?;
        let none = || Error::unsupported("scale_batch_size: the loader's batches come from a custom sampler");
        let mut size = train.batch_size().ok_or_else(none)?;
        let before = Before::of(model)?;
        let mut fits = None;
        let mut failed = None;
        while size <= max {
            train.set_batch_size(size)?;
            let mut tried = model.configure_optimizers(&self.run).and_then(|mut optimizers| {
                let mut taken = 0;
                for batch in train.epoch(0).take(STEPS) {
                    self.trial(&mut *model, &mut optimizers, &batch?)?;
                    taken += 1;
                }
                Ok(taken)
            });
            if let Ok(0) = tried {
                tried = Err(Error::value("scale_batch_size: the loader has no batches"));
            }
            before.restore(model)?;
            match tried {
                Ok(_) => fits = Some(size),
                Err(e) if e.kind() == ErrorKind::OutOfMemory && fits.is_some() => break,
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
            // One batch has all samples: a larger one would be the same.
            if train.len() == Some(1) {
                break;
            }
            size *= 2;
        }
        if let Some(e) = failed {
            return Err(e.within(&format!("scale_batch_size: a batch of {size}")));
        }
        let size =
            fits.ok_or_else(|| Error::value(format!("scale_batch_size: batches of {size} exceed the most of {max}")))?;
        train.set_batch_size(size)?;
        Ok(size)
    }

    /// A step outside a run; its loss.
    fn trial<M: TrainModule>(&mut self, model: &mut M, optimizers: &mut Optimizers, batch: &M::Batch) -> Result<f64> {
        let mut engine = Engine::new(&self.options, self.options.accumulate_grad_batches, self.run.device);
        let (mut scaler, named, mut loss) = (self.options.precision.scaler(), model.named_parameters(), 0.0);
        for turn in optimizers.turns() {
            let mut work = Work {
                model: &mut *model,
                optimizers,
                scaler: &mut scaler,
                callbacks: &mut [],
                parallel: &Parallel::default(),
                named: &named,
                place: self.place(),
                turn: turn.clone(),
                phase: Phase { clears: true, steps: true },
            };
            let outcome = engine.step(&mut work, batch, self.run.device)?;
            if turn.start == 0 {
                loss = outcome.loss.item::<f64>()?;
            }
        }
        Ok(loss)
    }
}
