//! The contents of a run's checkpoint, and resuming from one.

use super::elastic::{self, Meant, Share};
use super::{ElasticBatch, Resume, Trainer};
use crate::batch::Batch;
use crate::checkpoint::{Position, SaveOptions, load_checkpoint};
use crate::loggers::Resumed;
use crate::module::TrainModule;
use crate::optimizers::Optimizers;
use crate::ranks::Parallel;
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Philox, Result};
use rushlight_data::DataLoader;
use rushlight_tensor::state::{Dict, Key, Stateful, Value};
use std::path::Path;
use std::time::Duration;

/// A state that is stored without interpretation.
struct Held(Value);

impl Stateful for Held {
    fn state(&self) -> Result<Value> {
        Ok(self.0.clone())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        self.0 = state.clone();
        Ok(())
    }
}

/// The parts of a checkpoint.
const PARTS: [&str; 7] = ["model", "extra", "optimizers", "schedules", "scaler", "loader", "trainer"];

fn bits(number: u64) -> Value {
    Value::Int(number as i64)
}

impl Trainer {
    /// Saves by one of the policies, with the value it watches.
    pub(super) fn save<M: TrainModule>(
        &mut self,
        which: usize,
        model: &M,
        parallel: &Parallel,
        optimizers: &Optimizers,
        loader: &DataLoader<M::Batch>,
    ) -> Result<()> {
        let began = self.profiling.begin();
        let results = self.results.state()?;
        let parts = self.parts(model, parallel, optimizers, loader)?;
        let parts: Vec<(&str, &dyn Stateful)> =
            PARTS.iter().zip(&parts).map(|(name, part)| (*name, part as &dyn Stateful)).collect();
        let own = Held(results);
        let sharded: [(&str, &dyn Stateful); 1] = [("rank", &own)];
        let mut options = SaveOptions::new().sharded(&sharded);
        if let Some((name, _)) = &self.policies[which].monitor
            && let Some(value) = self.run.metric(name)
        {
            options = options.metric(value);
        }
        let position = Position { epoch: self.run.epoch, step: self.run.global_step };
        let saved = self.checkpoints[which].save_with(position, &parts, options);
        self.profiling.end("save checkpoint", began);
        saved
    }

    fn parts<M: TrainModule>(
        &mut self,
        model: &M,
        parallel: &Parallel,
        optimizers: &Optimizers,
        loader: &DataLoader<M::Batch>,
    ) -> Result<[Held; 7]> {
        let (states, schedules) = optimizers.states()?;
        let optimizers = parallel.assembled(states, optimizers, &self.ranks)?;
        let scaler = self.scaler.as_ref().map_or(Ok(Value::None), Stateful::state)?;
        let mut callbacks = Dict::new();
        for callback in &self.callbacks {
            let key = unique(&callbacks, callback.name());
            callbacks.insert(key.into(), callback.state()?);
        }
        let random = default_generator().state();
        let validated = self.validated.map_or(Value::None, |(e, b)| Value::List(vec![bits(e), bits(b)]));
        let metrics: Dict = self.run.metrics.iter().map(|(k, v)| (k.as_str().into(), (*v).into())).collect();
        let entries: [(&str, Value); 15] = [
            ("logged_rows", bits(self.run.loggers.rows())),
            ("epoch", bits(self.run.epoch)),
            ("batch_idx", bits(self.run.batch_idx)),
            ("global_step", bits(self.run.global_step)),
            ("samples", bits(self.run.samples)),
            ("elapsed", self.run.elapsed().as_secs_f64().into()),
            ("validated", validated),
            ("callbacks", callbacks.into()),
            ("metrics", metrics.into()),
            ("results", self.results.state()?),
            ("world_size", self.ranks.size().into()),
            ("batch_ranks", self.meant.batch.into()),
            ("rate_ranks", self.meant.rate.into()),
            ("batch_size", loader.batch_size().map_or(Value::None, Value::from)),
            ("random", Value::List(vec![bits(random.seed), bits(random.offset)])),
        ];
        let trainer: Dict = entries.into_iter().map(|(k, v)| (k.into(), v)).collect();
        let model_state = parallel.state_dict(model)?.into();
        let parts = [model_state, model.extra_state()?, optimizers, schedules, scaler, loader.state()?, trainer.into()];
        Ok(parts.map(Held))
    }

    /// Resumes from a checkpoint, if the options request it and one exists.
    pub(super) fn restore<M: TrainModule>(
        &mut self,
        model: &mut M,
        optimizers: &mut Optimizers,
        parallel: &Parallel,
        loader: &mut DataLoader<M::Batch>,
    ) -> Result<()> {
        let resume = self.options.resume.clone();
        match resume {
            Resume::Never => Ok(()),
            Resume::From(path) => self.restore_from(&path, model, optimizers, parallel, loader),
            Resume::Auto => {
                let Some(checkpoints) = self.checkpoints.first_mut() else {
                    return Err(Error::value(
                        "Trainer: Resume::Auto needs checkpoints: a run directory, and enable_checkpointing(true)",
                    ));
                };
                let mut held = PARTS.map(|_| Held(Value::None));
                let mut parts: Vec<(&str, &mut dyn Stateful)> =
                    PARTS.iter().zip(&mut held).map(|(name, part)| (*name, part as &mut dyn Stateful)).collect();
                let Some(restored) = checkpoints.restore(&mut parts)? else {
                    // Killed before its first checkpoint: its log is discarded.
                    self.resumed = Some(Resumed { step: 0, rows: 0 });
                    return Ok(());
                };
                for (path, why) in &restored.skipped {
                    rushlight_core::warn!("the checkpoint '{}' is damaged and was passed over: {why}", path.display());
                }
                let mut own = Held(Value::None);
                let random = default_generator().state();
                // An epoch's sums belong to the ranks that computed them: another number of ranks starts new sums.
                if restored.world_size == self.ranks.size() {
                    restored.load_sharded("rank", &mut own)?;
                }
                let within = |e: Error| e.within(&format!("resume from '{}'", restored.path.display()));
                let rows = held[6].0.get("logged_rows")?.as_int()? as u64;
                self.apply(held, own.0, model, optimizers, parallel, loader).map_err(within)?;
                self.resumed = Some(Resumed { step: self.run.global_step, rows });
                default_generator().set_state(random);
                self.resumed_from = Some(restored.path);
                Ok(())
            }
        }
    }

    fn restore_from<M: TrainModule>(
        &mut self,
        path: &Path,
        model: &mut M,
        optimizers: &mut Optimizers,
        parallel: &Parallel,
        loader: &mut DataLoader<M::Batch>,
    ) -> Result<()> {
        let state = load_checkpoint(path)?;
        let within = |e: Error| e.within(&format!("resume from '{}'", path.display()));
        let part = |name: &str| state.get(name).map(|v| Held(v.clone())).map_err(within);
        let mut held = Vec::with_capacity(PARTS.len());
        for name in PARTS {
            held.push(part(name)?);
        }
        let Ok(held) = <[Held; 7]>::try_from(held) else { return Err(Error::value("a checkpoint lost a part")) };
        let trainer = held[6].0.clone();
        let alone = self.ranks.size() == 1 && trainer.get("world_size")?.as_usize()? == 1;
        let results = if alone { trainer.get("results")?.clone() } else { Value::None };
        self.apply(held, results, model, optimizers, parallel, loader).map_err(within)?;
        let [seed, offset] = trainer.get("random")?.as_list()? else {
            return Err(within(Error::value("the random state is malformed")));
        };
        let seed = seed.as_int()? as u64 ^ (self.ranks.rank() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        default_generator().set_state(Philox { seed, offset: offset.as_int()? as u64 });
        self.resumed_from = Some(path.to_owned());
        Ok(())
    }

    fn apply<M: TrainModule>(
        &mut self,
        [model_state, extra, mut optimizer_states, mut schedules, scaler, place, trainer]: [Held; 7],
        results: Value,
        model: &mut M,
        optimizers: &mut Optimizers,
        parallel: &Parallel,
        loader: &mut DataLoader<M::Batch>,
    ) -> Result<()> {
        let trainer = trainer.0;
        let number = |key: &str| -> Result<u64> { Ok(trainer.get(key)?.as_int()? as u64) };
        let (epoch, global_step, samples) = (number("epoch")?, number("global_step")?, number("samples")?);
        let factor = self.adapt(&trainer, &place.0, loader)?;
        if factor != 1.0 {
            elastic::scale_rates(&mut optimizer_states.0, factor);
            elastic::scale_rates(&mut schedules.0, factor);
        }
        let batch_idx = self.place_in_epoch(&trainer, loader)?;
        let validated = match trainer.get("validated")? {
            Value::None => None,
            value => match value.as_list()? {
                [epoch, batch] => Some((epoch.as_int()? as u64, batch.as_int()? as u64)),
                _ => return Err(Error::value("the place of the last validation is malformed")),
            },
        };
        let model_state = model_state.0.to_state_dict()?;
        parallel.whole(model, |model| model.load_state_dict(&model_state))?;
        model.load_extra_state(&extra.0)?;
        let states = parallel.cut(&optimizer_states.0, optimizers)?;
        optimizers.load_states(&states, &schedules.0)?;
        match (&mut self.scaler, &scaler.0) {
            (Some(own), state @ Value::Dict(_)) => own.load_state(state)?,
            (None, Value::None) => {}
            _ => return Err(Error::value("the run was saved with another precision; resume with the same")),
        }
        loader.load_state(&place.0)?;
        let mut seen = Dict::new();
        let states = trainer.get("callbacks")?.as_dict()?;
        for callback in &mut self.callbacks {
            let key = unique(&seen, callback.name());
            seen.insert(key.as_str().into(), Value::None);
            // A callback that is new to the run starts fresh.
            match states.get(&Key::from(key.as_str())) {
                None | Some(Value::None) => {}
                Some(state) => callback.load_state(state).map_err(|e| e.within(&format!("callback {key}")))?,
            }
        }
        self.run.metrics.clear();
        for (name, value) in trainer.get("metrics")?.as_dict()? {
            self.run.metrics.insert(name.to_string(), value.as_float()?);
        }
        if !matches!(results, Value::None) {
            self.results.load_state(&results)?;
        }
        self.run.elapsed_before = Duration::try_from_secs_f64(trainer.get("elapsed")?.as_float()?).unwrap_or_default();
        (self.run.epoch, self.run.batch_idx, self.run.global_step, self.run.samples) =
            (epoch, batch_idx, global_step, samples);
        self.validated = validated;
        Ok(())
    }

    /// Adapts the run to its number of processes by its policy. Returns the factor of the learning rates.
    fn adapt<B: Batch>(&mut self, trainer: &Value, place: &Value, loader: &mut DataLoader<B>) -> Result<f64> {
        let (ranks, saved) = (self.ranks.size(), trainer.get("world_size")?.as_usize()?);
        // Checkpoints of older versions were not adapted.
        let ranks_of = |key: &str| trainer.get(key).map_or(Ok(saved), Value::as_usize);
        self.meant = Meant { batch: ranks_of("batch_ranks")?.max(1), rate: ranks_of("rate_ranks")?.max(1) };
        if self.options.use_distributed_sampler && place.get("replicas").is_ok() && loader.batch_size().is_some() {
            self.share_training(loader)?;
        }
        let own = Share { batch_size: loader.batch_size(), accumulate: self.options.accumulate_grad_batches };
        let change = elastic::change(self.options.elastic_batch, self.meant, own, ranks);
        if let (Some(before), Some(size)) = (own.batch_size, change.share.batch_size)
            && before != size
        {
            loader.set_batch_size(size)?;
            self.own_batch_size.get_or_insert(before);
        }
        self.run.accumulate = change.share.accumulate;
        self.run.num_training_batches = self.options.limit_train_batches.of(loader.len());
        if self.options.elastic_batch == Some(ElasticBatch::Scale) {
            self.meant.rate = ranks;
        }
        if let (Some(text), 0) = (&change.text, self.ranks.rank()) {
            rushlight_core::warn!("{text}");
        }
        Ok(change.factor)
    }

    /// Batches of the epoch that are done, in batches of this process. Another number of processes or another batch
    /// size splits the rest of the epoch into more or fewer batches; the loader ends it.
    fn place_in_epoch<B: Batch>(&self, trainer: &Value, loader: &DataLoader<B>) -> Result<u64> {
        let number = |key: &str| -> Result<u64> { Ok(trainer.get(key)?.as_int()? as u64) };
        let (batches, ranks) = (number("batch_idx")?, self.ranks.size() as u64);
        let now = loader.batch_size().map_or(1, |size| size as u64).max(1);
        let saved = match trainer.get("batch_size") {
            Ok(Value::Int(size)) => *size as u64,
            _ => now,
        };
        let saved_ranks = number("world_size")?;
        if (saved_ranks, saved) == (ranks, now) {
            return Ok(batches);
        }
        let done = batches * saved_ranks * saved / (ranks * now);
        // A checkpoint is between two steps.
        Ok(done - done % self.run.accumulate.max(1))
    }
}

/// A callback's name, with a number appended if it is not unique.
fn unique(taken: &Dict, name: &str) -> String {
    let mut key = name.to_owned();
    let mut n = 2;
    while taken.contains_key(&Key::from(key.as_str())) {
        key = format!("{name}-{n}");
        n += 1;
    }
    key
}
