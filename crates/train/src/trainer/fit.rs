//! Training: the loop over epochs and batches.

use super::engine::{Engine, Outcome, Phase, Work};
use super::{Limit, Resume, Trainer};
use crate::batch::Batch;
use crate::loggers::Row;
use crate::module::TrainModule;
use crate::optimizers::{Interval, Optimizers};
use crate::profiling::Profiling;
use crate::progress::{bytes, clock, scaled, short};
use crate::ranks::{Parallel, Watch};
use crate::results::Results;
use crate::run_dir;
use crate::step::{LogOptions, LogSpec, LogValue, Stage};
use rushlight_core::{Error, Result};
use rushlight_data::DataLoader;
use rushlight_tensor::autograd::{is_anomaly_enabled, set_detect_anomaly};
use rushlight_tensor::{Tensor, memory_stats, synchronize};
use std::time::{Duration, Instant};

/// The arguments of a training run besides the Trainer.
struct Fit<'a, 'b, M: TrainModule> {
    model: &'a mut M,
    optimizers: Optimizers,
    parallel: Parallel,
    engine: Engine,
    named: Vec<(String, Tensor)>,
    train: &'a DataLoader<M::Batch>,
    val: &'a mut [&'b mut DataLoader<M::Batch>],
    loss_spec: LogSpec,
    /// Batches between validations within an epoch; `None` to validate only at its end.
    val_every: Option<u64>,
    /// Whether gradients of earlier batches are waiting for a step.
    accumulating: bool,
    step_time: Duration,
    /// Time at which the epoch began or continued, and the samples before.
    epoch_start: (Instant, u64),
}

/// How an epoch ended.
#[derive(PartialEq, Eq)]
enum Ended {
    /// All its batches are done.
    Whole,
    /// Training stopped within it.
    Within,
}

/// Turns anomaly detection on until dropped.
struct Anomalies(bool);

impl Drop for Anomalies {
    fn drop(&mut self) {
        set_detect_anomaly(self.0);
    }
}

impl Trainer {
    /// Trains a model on the batches of a loader, and validates on others.
    ///
    /// The model is moved to the run's device and stays there. An error of any step, callback or hook ends the run and
    /// is returned.
    pub fn fit<'b, M: TrainModule>(
        &mut self,
        model: &mut M,
        train: &mut DataLoader<M::Batch>,
        val: impl IntoIterator<Item = &'b mut DataLoader<M::Batch>>,
    ) -> Result<()> {
        let mut val: Vec<_> = val.into_iter().collect();
        let _anomalies = self.options.detect_anomaly.then(|| {
            let before = Anomalies(is_anomaly_enabled());
            set_detect_anomaly(true);
            before
        });
        let mut result = self.prepare_and_train(model, train, &mut val);
        self.write_status(&result);
        if let Some(size) = self.own_batch_size.take() {
            result = result.and(train.set_batch_size(size));
        }
        self.watch = Watch::default();
        self.system_log = None;
        self.progress.clear();
        let profiled = self.profiling.finish(self.run.directory(), self.ranks.rank());
        if let Err(e) = &result {
            // Errors of callbacks must not hide the original one.
            for callback in &mut self.callbacks {
                let _ = callback.on_exception(&mut self.run, model, e);
            }
            self.progress.print_line(&format!("training ended with an error: {e}"), false);
            self.run.loggers.flush();
            return result;
        }
        if let (Some(text), 0) = (profiled?, self.ranks.rank()) {
            if !self.options.progress {
                eprintln!("{text}");
            }
            self.progress.print_line(&text, true);
        }
        self.checkpoints.iter_mut().try_for_each(|checkpoints| checkpoints.finish())?;
        if self.preempted.is_none() {
            for (policy, checkpoints) in self.policies.iter().zip(&mut self.checkpoints) {
                if policy.only_best() {
                    checkpoints.keep_only_best()?;
                }
            }
        }
        let metrics: Vec<(String, f64)> = self.run.metrics.iter().map(|(k, v)| (k.clone(), *v)).collect();
        self.run.loggers.finish(&metrics);
        Ok(())
    }

    /// Says in the run's directory how it ended.
    fn write_status(&self, result: &Result<()>) {
        let Some(directory) = self.run.directory().filter(|_| self.ranks.rank() == 0) else { return };
        let (state, reason) = match result {
            Err(e) => ("failed", Some(e.to_string())),
            Ok(()) if self.preempted.is_some() => ("preempted", self.run.stop.clone()),
            Ok(()) => ("finished", self.run.stop.clone()),
        };
        if let Err(e) = run_dir::write_status(directory, state, reason.as_deref()) {
            rushlight_core::warn!("the run's status cannot be written: {e}");
        }
    }

    fn prepare_and_train<M: TrainModule>(
        &mut self,
        model: &mut M,
        train: &mut DataLoader<M::Batch>,
        val: &mut [&mut DataLoader<M::Batch>],
    ) -> Result<()> {
        self.options.precision.prepare(model)?;
        model.to_(self.run.device.into())?;
        #[cfg(all(target_os = "linux", feature = "dist"))]
        self.follow_plan(train)?;
        // A run that may grow reads in the order of many processes from the beginning.
        let is_elastic = self.options.elastic_batch.is_some() && train.batch_size().is_some();
        if (self.ranks.size() > 1 || is_elastic) && self.options.use_distributed_sampler {
            self.share_training(train)?;
        }
        if self.ranks.size() > 1 && self.options.use_distributed_sampler {
            self.share_evaluation(val)?;
        }
        let (epoch, step, batch) = (0, 0, 0);
        (self.run.epoch, self.run.global_step, self.run.batch_idx) = (epoch, step, batch);
        (self.run.stage, self.run.stop, self.run.started) = (Stage::Train, None, Instant::now());
        (self.run.samples, self.run.waited, self.run.elapsed_before) = (0, Duration::ZERO, Duration::ZERO);
        (self.results, self.validated) = (Results::new(Stage::Train), None);
        self.run.accumulate = self.options.accumulate_grad_batches;
        self.run.num_training_batches = self.options.limit_train_batches.of(train.len());
        self.scaler = self.options.precision.scaler();
        let parallel = self.ranks.parallel(model, &self.options)?;
        let mut optimizers = model.configure_optimizers(&self.run)?;
        self.open_directory()?;
        self.open_checkpoints()?;
        self.restore(model, &mut optimizers, &parallel, train)?;
        self.open_loggers(model)?;
        if let (Some(path), 0) = (&self.resumed_from, self.ranks.rank()) {
            let line = format!("resumed from '{}' at step {}", path.display(), self.run.global_step);
            self.progress.print_line(&line, true);
        }
        if self.resumed_from.is_none() {
            self.sanity_check(model, &parallel, val)?;
        }
        self.watch = self.ranks.watch(self.options.resume == Resume::Auto, self.options.save_on_interrupt)?;
        let engine = Engine::new(&self.options, self.run.accumulate, self.run.device);
        let named = model.named_parameters();
        let val_every = match self.options.val_check_interval {
            Limit::Count(count) => Some(count),
            share @ Limit::Share(_) => {
                self.run.num_training_batches.map(|n| share.of(Some(n as usize)).unwrap_or(n).max(1))
            }
        };
        let options = LogOptions::new().on_step(true).on_epoch(true);
        let loss_spec = LogSpec { name: "loss".into(), options, metric: None };
        let mut fit = Fit {
            model,
            optimizers,
            parallel,
            engine,
            named,
            train,
            val,
            loss_spec,
            val_every,
            accumulating: false,
            step_time: Duration::ZERO,
            epoch_start: (Instant::now(), 0),
        };
        self.run.learning_rates = fit.optimizers.learning_rates();
        fit.model.on_fit_start(&mut self.run)?;
        self.each(fit.model, |callback, run, model| callback.on_fit_start(run, model))?;
        self.open_system_log();
        self.profiling = Profiling::start(self.options.profiler)?;
        let trained = self.epochs(&mut fit);
        if let Err(e) = trained {
            self.save_after_error(&fit, &e);
            return Err(e);
        }
        fit.model.on_fit_end(&mut self.run)?;
        self.each(fit.model, |callback, run, model| callback.on_fit_end(run, model))?;
        fit.parallel.finish(fit.model)?;
        if self.options.benchmark {
            self.report_benchmark(&fit);
        }
        if let Some(reason) = self.run.stop.clone() {
            self.progress.print_line(&format!("training ended: {reason}"), true);
        }
        Ok(())
    }

    /// Makes each process read its own part of the training set.
    pub(super) fn share_training<B: Batch>(&self, train: &mut DataLoader<B>) -> Result<()> {
        if train.is_distributed() {
            return Ok(());
        }
        let seed = self.ranks.first(train.seed())?;
        train.distribute(self.ranks.rank(), self.ranks.size(), seed, true)
    }

    fn epochs<M: TrainModule>(&mut self, fit: &mut Fit<M>) -> Result<()> {
        if self.run.num_training_batches == Some(0) {
            return Ok(());
        }
        while !self.is_done()? {
            let ended = self.epoch(fit)?;
            if ended == Ended::Within {
                return self.end_within(fit);
            }
            self.end_epoch(fit)?;
        }
        Ok(())
    }

    /// Whether the scheduler takes the job's nodes, or the user pressed Ctrl-C.
    fn is_preempted(&mut self) -> Result<bool> {
        let preempted = self.watch.agreed()?;
        if preempted {
            self.run.stop(match (self.watch.is_interrupted(), self.policies.is_empty()) {
                (false, _) => "the job is preempted; its state was saved, and it continues when it is started again",
                (true, false) => "interrupted; its state was saved",
                (true, true) => "interrupted; the run saves no checkpoints",
            });
            self.preempted = Some(0);
        }
        Ok(preempted)
    }

    /// Ends training within an epoch. The checkpoint is complete: the run can continue from here.
    fn end_within<M: TrainModule>(&mut self, fit: &mut Fit<M>) -> Result<()> {
        if fit.accumulating {
            // Gradients are not part of a checkpoint: the run will continue from the previous one.
            return Ok(());
        }
        self.save_all(fit)?;
        if self.preempted.is_some() {
            self.checkpoints.iter_mut().try_for_each(|checkpoints| checkpoints.finish())?;
            self.preempted = self.watch.requeue();
        }
        Ok(())
    }

    /// Whether training is over: a limit is reached, or a callback requested it and the minimum was done. The same on
    /// all processes.
    fn is_done(&mut self) -> Result<bool> {
        let (run, options) = (&mut self.run, &self.options);
        if options.max_epochs.is_some_and(|max| run.epoch >= max)
            || options.max_steps.is_some_and(|max| run.global_step >= max)
        {
            return Ok(true);
        }
        let enough = run.epoch >= options.min_epochs && run.global_step >= options.min_steps;
        if let Some(max) = options.max_time
            && run.elapsed() >= max
        {
            run.stop(format!("the time of {} is over", clock(max.as_secs_f64())));
        }
        if !enough && run.stop.is_some() {
            run.stop = None;
        }
        let (stops, ranks) = (run.stop.is_some(), self.ranks.clone());
        if ranks.any(stops)? {
            self.run.stop("another process has ended training");
            return Ok(true);
        }
        Ok(false)
    }

    fn epoch<M: TrainModule>(&mut self, fit: &mut Fit<M>) -> Result<Ended> {
        if self.run.batch_idx == 0 {
            fit.model.on_train_epoch_start(&mut self.run)?;
            self.each(fit.model, |callback, run, model| callback.on_train_epoch_start(run, model))?;
        }
        self.progress.start_epoch(self.run.batch_idx, self.run.samples);
        fit.epoch_start = (Instant::now(), self.run.samples);
        let train = fit.train;
        // The batches of an epoch depend on its number: overfitting reads the first ones again and again.
        let order = if self.options.overfit_batches.is_some() { 0 } else { self.run.epoch };
        let mut batches = train.epoch(order);
        loop {
            self.validate_if_due(fit, false)?;
            let whole = self.run.num_training_batches.is_some_and(|all| self.run.batch_idx >= all);
            if whole {
                break;
            }
            if self.is_done()? || (!fit.accumulating && self.is_preempted()?) {
                return Ok(Ended::Within);
            }
            let asked = Instant::now();
            let Some(batch) = batches.next() else { break };
            let batch = batch?;
            let start = Instant::now();
            self.run.waited += start - asked;
            self.profiling.end("load batch", self.profiling.begin().map(|_| asked));
            self.batch(fit, &batch, start)?;
        }
        drop(batches);
        if std::mem::take(&mut fit.accumulating) {
            self.step_leftover(fit)?;
        }
        self.validate_if_due(fit, true)?;
        Ok(Ended::Whole)
    }

    /// One batch: a step, its values, its callbacks, its checkpoint.
    fn batch<M: TrainModule>(&mut self, fit: &mut Fit<M>, batch: &M::Batch, start: Instant) -> Result<()> {
        fit.model.on_train_batch_start(&mut self.run)?;
        self.each(fit.model, |callback, run, model| callback.on_train_batch_start(run, model))?;
        let number = self.run.batch_idx + 1;
        let last = self.run.num_training_batches == Some(number);
        let steps = number.is_multiple_of(self.run.accumulate) || last;
        let phase = Phase { clears: !fit.accumulating, steps };
        let (turns, samples) = (fit.optimizers.turns(), batch.len());
        for turn in turns {
            let mut place = self.place();
            place.optimizer_idx = turn.start;
            let mut work = Work {
                model: &mut *fit.model,
                optimizers: &mut fit.optimizers,
                scaler: &mut self.scaler,
                callbacks: &mut self.callbacks,
                parallel: &fit.parallel,
                named: &fit.named,
                place,
                turn: turn.clone(),
                phase,
            };
            let began = self.profiling.begin();
            let outcome = fit.engine.step(&mut work, batch, self.run.device)?;
            self.profiling.end("training step", began);
            self.take(fit, outcome, turn.start, samples)?;
        }
        fit.accumulating = !steps;
        self.run.batch_idx = number;
        self.run.samples += samples as u64;
        if steps {
            self.run.global_step += 1;
            let metrics = &self.run.metrics;
            fit.optimizers.step_schedules(Interval::Step, self.run.global_step, &|name| metrics.get(name).copied())?;
        }
        if self.options.benchmark {
            synchronize(&self.run.device)?;
        }
        let now = Instant::now();
        fit.step_time += now - start;
        if let Some(log) = &self.system_log {
            log.figures().note(self.run.global_step, self.run.samples, self.run.waited);
        }
        self.after_batch(fit, steps, now)
    }

    fn take<M: TrainModule>(&mut self, fit: &Fit<M>, outcome: Outcome, turn: usize, samples: usize) -> Result<()> {
        let own = outcome.logged.iter().any(|(spec, _)| spec.name == fit.loss_spec.name);
        for (spec, value) in outcome.logged {
            self.results.add(&spec, value, samples)?;
        }
        match (own, turn) {
            (true, _) => Ok(()),
            (false, 0) => self.results.add(&fit.loss_spec, LogValue::Tensor(outcome.loss), samples),
            (false, turn) => {
                let spec = LogSpec { name: format!("loss_{turn}"), ..fit.loss_spec.clone() };
                self.results.add(&spec, LogValue::Tensor(outcome.loss), samples)
            }
        }
    }

    fn after_batch<M: TrainModule>(&mut self, fit: &mut Fit<M>, steps: bool, now: Instant) -> Result<()> {
        let logs = steps && self.run.global_step.is_multiple_of(self.options.log_every_n_steps);
        let due = self.progress.is_due(now);
        if logs || due {
            self.run.loss = self.results.last(&fit.loss_spec.name)?.or(self.run.loss);
        }
        let step = self.run.global_step;
        if logs || self.callbacks.iter().any(|callback| callback.wants_learning_rates(step)) {
            self.run.learning_rates = fit.optimizers.learning_rates();
        }
        if logs {
            let began = self.profiling.begin();
            let (values, shown) = self.results.step_values()?;
            self.run.remember(&values);
            self.run.shown.extend(shown);
            self.run.loggers.log(&Row { step: self.run.global_step, epoch: self.run.epoch, values: &values });
            self.profiling.end("log", began);
        }
        fit.model.on_train_batch_end(&mut self.run)?;
        self.each(fit.model, |callback, run, model| callback.on_train_batch_end(run, model))?;
        if due {
            let shown: Vec<(String, f64)> = self.run.shown.iter().map(|(k, v)| (k.clone(), *v)).collect();
            self.progress.update(&Self::view(&self.run, &shown, None));
        }
        if steps {
            self.save_if_due(fit)?;
            self.profiling.step();
        }
        Ok(())
    }

    /// Steps with the remaining gradients of an epoch of unknown length.
    fn step_leftover<M: TrainModule>(&mut self, fit: &mut Fit<M>) -> Result<()> {
        let place = self.place();
        for turn in fit.optimizers.turns() {
            let mut work = Work {
                model: &mut *fit.model,
                optimizers: &mut fit.optimizers,
                scaler: &mut self.scaler,
                callbacks: &mut self.callbacks,
                parallel: &fit.parallel,
                named: &fit.named,
                place,
                turn,
                phase: Phase { clears: false, steps: true },
            };
            fit.engine.finish_accumulation(&mut work)?;
        }
        self.run.global_step += 1;
        let metrics = &self.run.metrics;
        fit.optimizers.step_schedules(Interval::Step, self.run.global_step, &|name| metrics.get(name).copied())
    }

    /// Validates if it is due and was not done here already, as before a kill.
    fn validate_if_due<M: TrainModule>(&mut self, fit: &mut Fit<M>, at_end: bool) -> Result<()> {
        let (epoch, batch) = (self.run.epoch, self.run.batch_idx);
        if fit.val.is_empty() || batch == 0 || fit.accumulating || self.options.limit_val_batches == Limit::Count(0) {
            return Ok(());
        }
        if !(epoch + 1).is_multiple_of(self.options.check_val_every_n_epoch) || self.validated == Some((epoch, batch)) {
            return Ok(());
        }
        let due = match fit.val_every {
            Some(every) => batch.is_multiple_of(every),
            None => at_end,
        };
        if !due {
            return Ok(());
        }
        let began = self.profiling.begin();
        let limit = self.options.limit_val_batches;
        self.run_validation(Stage::Validate, fit.model, &fit.parallel, fit.val, limit)?;
        self.profiling.end("validation and its callbacks", began);
        self.validated = Some((epoch, batch));
        self.progress.start_epoch(self.run.batch_idx, self.run.samples);
        Ok(())
    }

    /// The end of an epoch: its values, schedules, callbacks, checkpoints.
    fn end_epoch<M: TrainModule>(&mut self, fit: &mut Fit<M>) -> Result<()> {
        fit.model.on_train_epoch_end(&mut self.run)?;
        let mut values = Vec::new();
        for (name, value, logged, shown) in self.results.finish_epoch(&self.ranks)? {
            if shown {
                self.run.shown.insert(name.clone(), value);
            }
            match logged {
                true => values.push((name, value)),
                false => self.run.remember(&[(name, value)]),
            }
        }
        self.run.remember(&values);
        self.run.loggers.log(&Row { step: self.run.global_step, epoch: self.run.epoch, values: &values });
        let metrics = &self.run.metrics;
        fit.optimizers.step_schedules(Interval::Epoch, self.run.epoch + 1, &|name| metrics.get(name).copied())?;
        self.run.learning_rates = fit.optimizers.learning_rates();
        self.each(fit.model, |callback, run, model| callback.on_train_epoch_end(run, model))?;
        self.say_epoch(fit.epoch_start);
        self.run.loggers.flush();
        (self.run.epoch, self.run.batch_idx) = (self.run.epoch + 1, 0);
        let wanted = std::mem::take(&mut self.run.checkpoint_wanted);
        for which in 0..self.policies.len() {
            if wanted || self.policies[which].due_after_epoch(self.run.epoch) {
                self.save(which, &*fit.model, &fit.parallel, &fit.optimizers, fit.train)?;
            }
        }
        Ok(())
    }

    /// A permanent line for the epoch.
    fn say_epoch(&mut self, (start, samples): (Instant, u64)) {
        let run = &self.run;
        let of = run.max_epochs.map_or(String::new(), |all| format!("/{all}"));
        let mut parts = vec![format!("epoch {}{of}", run.epoch + 1)];
        let shown = |name: &str| name == "loss_epoch" || run.shown.contains_key(name) || name.starts_with("val");
        parts.extend(run.metrics.iter().filter(|(name, _)| shown(name)).map(|(name, value)| {
            let name = if name == "loss_epoch" { "loss" } else { name };
            format!("{name} {}", short(*value))
        }));
        let seconds = start.elapsed().as_secs_f64();
        parts.push(if seconds < 100.0 { format!("{seconds:.2} s") } else { clock(seconds) });
        parts.push(format!("{} samples/s", scaled((run.samples - samples) as f64 / seconds.max(1e-9))));
        if let Ok(memory) = memory_stats(&run.device) {
            parts.push(format!("peak {}", bytes(memory.peak as f64)));
        }
        let line = parts.join("  ");
        self.progress.print_line(&line, true);
    }

    fn save_if_due<M: TrainModule>(&mut self, fit: &Fit<M>) -> Result<()> {
        let wanted = std::mem::take(&mut self.run.checkpoint_wanted);
        for which in 0..self.policies.len() {
            if wanted || self.policies[which].due_after_step(self.run.global_step) {
                self.save(which, &*fit.model, &fit.parallel, &fit.optimizers, fit.train)?;
            }
        }
        Ok(())
    }

    fn save_all<M: TrainModule>(&mut self, fit: &Fit<M>) -> Result<()> {
        (0..self.policies.len())
            .try_for_each(|which| self.save(which, &*fit.model, &fit.parallel, &fit.optimizers, fit.train))
    }

    /// Saves a checkpoint after an error, if requested. This process saves alone: others may be gone.
    fn save_after_error<M: TrainModule>(&mut self, fit: &Fit<M>, error: &Error) {
        for which in 0..self.policies.len() {
            if !self.policies[which].on_exception || self.ranks.size() > 1 {
                continue;
            }
            let folder = self.checkpoints[which].directory().join("exception");
            let opened = crate::Checkpoints::builder(folder).keep(1).build();
            let saved = opened.and_then(|other| {
                let own = std::mem::replace(&mut self.checkpoints[which], other);
                let saved = self.save(which, &*fit.model, &fit.parallel, &fit.optimizers, fit.train);
                let finished = self.checkpoints[which].finish();
                self.checkpoints[which] = own;
                saved.and(finished)
            });
            if let Err(e) = saved {
                rushlight_core::warn!("training ended ({error}), and the checkpoint of it was not saved: {e}");
            }
        }
    }

    /// Reports whether training waited for data.
    fn report_benchmark<M: TrainModule>(&mut self, fit: &Fit<M>) {
        let (waited, worked) = (self.run.waited.as_secs_f64(), fit.step_time.as_secs_f64());
        let share = waited / (waited + worked).max(1e-9);
        let advice = match share {
            s if s > 0.1 => "; the loader is the bottleneck: give it more workers",
            _ => "; the loader keeps up",
        };
        let line =
            format!("loader {waited:.2} s, steps {worked:.2} s: {:.1} % waiting for data{advice}", share * 100.0);
        self.progress.print_line(&line, true);
        let _ = self.run.log("data_wait_fraction", share);
    }
}
