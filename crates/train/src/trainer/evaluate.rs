//! Validation, tests and predictions.

use super::{Limit, Trainer};
use crate::batch::Batch;
use crate::module::TrainModule;
use crate::ranks::Parallel;
use crate::results::{Named, Results};
use crate::step::{LogSpec, Place, Stage, StepContext, StepLog};
use rushlight_core::Result;
use rushlight_core::rng::default_generator;
use rushlight_data::DataLoader;
use rushlight_nn::{Member, Module};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::Value;
use std::time::Instant;

/// The training flags of a model, to be restored: a frozen part may be in evaluation mode all along.
struct Switches(Vec<bool>);

impl Switches {
    fn evaluate(model: &dyn Module) -> Self {
        let mut all = Vec::new();
        each_switch(model, &mut |on| {
            all.push(on);
            false
        });
        Self(all)
    }

    fn restore(self, model: &dyn Module) {
        let mut all = self.0.into_iter();
        each_switch(model, &mut |on| all.next().unwrap_or(on));
    }
}

fn each_switch(module: &dyn Module, change: &mut dyn FnMut(bool) -> bool) {
    module.members(&mut |_, member| match member {
        Member::Training(switch) => switch.set(change(switch.get())),
        Member::Module(child) => each_switch(child, change),
        _ => {}
    });
}

impl Trainer {
    /// Runs validation; returns the values of the epoch, which [`Trainer::metrics`] has too.
    pub fn validate<'a, M: TrainModule>(
        &mut self,
        model: &mut M,
        loaders: impl IntoIterator<Item = &'a mut DataLoader<M::Batch>>,
    ) -> Result<Vec<(String, f64)>> {
        let mut loaders: Vec<_> = loaders.into_iter().collect();
        self.prepare_evaluation(model, &mut loaders)?;
        let values = self.run_validation(
            Stage::Validate,
            model,
            &Parallel::default(),
            &mut loaders,
            self.options.limit_val_batches,
        )?;
        self.report("validation", &values);
        Ok(values)
    }

    /// Runs a test; returns the values of the epoch, which [`Trainer::metrics`] has too.
    pub fn test<'a, M: TrainModule>(
        &mut self,
        model: &mut M,
        loaders: impl IntoIterator<Item = &'a mut DataLoader<M::Batch>>,
    ) -> Result<Vec<(String, f64)>> {
        let mut loaders: Vec<_> = loaders.into_iter().collect();
        self.prepare_evaluation(model, &mut loaders)?;
        self.each(model, |callback, run, model| callback.on_test_start(run, model))?;
        let values = self.evaluate(Stage::Test, model, &mut loaders, self.options.limit_test_batches)?;
        self.each(model, |callback, run, model| callback.on_test_end(run, model))?;
        self.report("test", &values);
        Ok(values)
    }

    /// The model's outputs for the batches of a loader, in order. Under a launcher each process returns its own
    /// share.
    pub fn predict<M: TrainModule>(&mut self, model: &mut M, loader: &mut DataLoader<M::Batch>) -> Result<Vec<Value>> {
        self.prepare_evaluation(model, &mut [loader])?;
        let switches = Switches::evaluate(model);
        let limit = self.options.limit_predict_batches.of(loader.len());
        let predictions = no_grad(|| {
            let mut predictions = Vec::new();
            for (batch_idx, batch) in loader.epoch(0).enumerate().take(limit.unwrap_or(u64::MAX) as usize) {
                let batch = self.moved(&batch?)?;
                let place = Place { stage: Stage::Predict, batch_idx: batch_idx as u64, ..self.place() };
                let mut log = StepLog::default();
                let mut step = StepContext { place, log: &mut log, manual: None };
                let _precision = self.options.precision.enter()?;
                predictions.push(model.predict_step(&batch, &mut step)?);
            }
            Ok(predictions)
        });
        switches.restore(model);
        predictions
    }

    fn prepare_evaluation<M: TrainModule>(
        &mut self,
        model: &mut M,
        loaders: &mut [&mut DataLoader<M::Batch>],
    ) -> Result<()> {
        self.options.precision.prepare(model)?;
        model.to_(self.run.device.into())?;
        self.share_evaluation(loaders)?;
        self.open_directory()?;
        self.open_loggers(model)
    }

    /// Each sample goes to exactly one process.
    pub(super) fn share_evaluation<B>(&self, loaders: &mut [&mut DataLoader<B>]) -> Result<()> {
        if self.ranks.size() == 1 || !self.options.use_distributed_sampler {
            return Ok(());
        }
        for loader in loaders.iter_mut().filter(|loader| !loader.is_distributed()) {
            let seed = self.ranks.first(loader.seed())?;
            loader.distribute(self.ranks.rank(), self.ranks.size(), seed, false)?;
        }
        Ok(())
    }

    /// Validates within a run, with its hooks.
    pub(super) fn run_validation<M: TrainModule>(
        &mut self,
        stage: Stage,
        model: &mut M,
        parallel: &Parallel,
        loaders: &mut [&mut DataLoader<M::Batch>],
        limit: Limit,
    ) -> Result<Named> {
        let before = self.run.stage;
        self.run.stage = stage;
        model.on_validation_start(&mut self.run)?;
        self.each(model, |callback, run, model| callback.on_validation_start(run, model))?;
        let result = parallel.whole(model, |model| self.evaluate(stage, model, loaders, limit));
        // Averages that a callback has copied to the model are removed even after an error.
        let values = match result {
            Ok(values) => values,
            Err(e) => {
                let _ = self.each(model, |callback, run, model| callback.on_validation_end(run, model));
                self.run.stage = before;
                return Err(e);
            }
        };
        model.on_validation_end(&mut self.run)?;
        self.each(model, |callback, run, model| callback.on_validation_end(run, model))?;
        self.run.stage = before;
        Ok(values)
    }

    /// The sanity check before training. Random numbers continue as if it had not run.
    pub(super) fn sanity_check<M: TrainModule>(
        &mut self,
        model: &mut M,
        parallel: &Parallel,
        loaders: &mut [&mut DataLoader<M::Batch>],
    ) -> Result<()> {
        let steps = self.options.num_sanity_val_steps;
        if steps == 0 || loaders.is_empty() || self.options.limit_val_batches == Limit::Count(0) {
            return Ok(());
        }
        let random = default_generator().state();
        let metrics = self.run.metrics.clone();
        self.run_validation(Stage::SanityCheck, model, parallel, loaders, Limit::Count(steps))
            .map_err(|e| e.within("the sanity check before training"))?;
        self.run.metrics = metrics;
        default_generator().set_state(random);
        Ok(())
    }

    /// Loops over loaders; returns the values of the epoch.
    fn evaluate<M: TrainModule>(
        &mut self,
        stage: Stage,
        model: &M,
        loaders: &mut [&mut DataLoader<M::Batch>],
        limit: Limit,
    ) -> Result<Named> {
        let switches = Switches::evaluate(model);
        let values = no_grad(|| self.go_over(stage, model, loaders, limit));
        switches.restore(model);
        let values = values?;
        self.run.remember(&values);
        if stage != Stage::SanityCheck {
            let row = crate::loggers::Row { step: self.run.global_step, epoch: self.run.epoch, values: &values };
            self.run.loggers.log(&row);
        }
        Ok(values)
    }

    fn go_over<M: TrainModule>(
        &mut self,
        stage: Stage,
        model: &M,
        loaders: &mut [&mut DataLoader<M::Batch>],
        limit: Limit,
    ) -> Result<Named> {
        let several = loaders.len() > 1;
        let mut all = Vec::new();
        for (dataloader_idx, loader) in loaders.iter().enumerate() {
            let mut results = Results::new(stage);
            let batches = limit.of(loader.len());
            self.progress.start_epoch(0, 0);
            let mut log = StepLog::default();
            for (batch_idx, batch) in loader.epoch(0).enumerate().take(batches.unwrap_or(u64::MAX) as usize) {
                let batch = self.moved(&batch?)?;
                let samples = batch.len();
                log.clear();
                let place = Place { stage, batch_idx: batch_idx as u64, dataloader_idx, ..self.place() };
                let mut step = StepContext { place, log: &mut log, manual: None };
                {
                    let _precision = self.options.precision.enter()?;
                    match stage {
                        Stage::Test => model.test_step(&batch, &mut step)?,
                        _ => model.validation_step(&batch, &mut step)?,
                    }
                }
                for (spec, value) in log.specs.drain(..).zip(log.values.drain(..)) {
                    let spec = if several { named(spec, dataloader_idx) } else { spec };
                    results.add(&spec, value, samples)?;
                }
                if self.progress.is_due(Instant::now()) {
                    let mut view = Self::view(&self.run, &[], Some(stage.name()));
                    (view.batch, view.batches) = (batch_idx as u64 + 1, batches);
                    self.progress.update(&view);
                }
            }
            for (name, value, logged, shown) in results.finish_epoch(&self.ranks)? {
                if shown {
                    self.run.shown.insert(name.clone(), value);
                }
                if logged {
                    all.push((name, value));
                } else {
                    self.run.remember(&[(name, value)]);
                }
            }
        }
        Ok(all)
    }

    /// A batch on the device, in the run's precision.
    fn moved<B: Batch>(&self, batch: &B) -> Result<B> {
        let (device, precision) = (self.run.device, self.options.precision);
        batch.map(&mut |t| precision.convert(&t.to(device)?))
    }

    pub(super) fn place(&self) -> Place {
        Place {
            stage: self.run.stage,
            epoch: self.run.epoch,
            batch_idx: self.run.batch_idx,
            global_step: self.run.global_step,
            ..Place::default()
        }
    }

    /// Prints the results of a separate validation or test.
    fn report(&mut self, what: &str, values: &[(String, f64)]) {
        let text: Vec<String> =
            values.iter().map(|(name, value)| format!("{name} {}", crate::progress::short(*value))).collect();
        self.progress.print_line(&format!("{what}: {}", text.join(", ")), true);
        self.run.loggers.flush();
    }
}

/// Values of several loaders get Lightning's suffixes.
fn named(mut spec: LogSpec, dataloader_idx: usize) -> LogSpec {
    spec.name = format!("{}/dataloader_idx_{dataloader_idx}", spec.name);
    spec
}
