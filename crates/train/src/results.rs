//! Logged values: of the last step and of the current epoch.

use crate::metrics::Metric;
use crate::ranks::Ranks;
use crate::step::{LogOptions, LogSpec, LogValue, ReduceFx, Stage};
use indexmap::IndexMap;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::{Dict, Value};
use rushlight_tensor::{Tensor, stack};
use std::sync::Arc;

/// Device values are read together once this many are pending, or when one is needed.
const MAX_PENDING: usize = 256;

/// A value of the run with its name.
pub(crate) type Named = Vec<(String, f64)>;

struct Slot {
    options: LogOptions,
    on_step: bool,
    on_epoch: bool,
    /// The last value, if it is newer than the last query.
    last: Option<f64>,
    /// The epoch's values so far, and their weight.
    total: f64,
    weight: f64,
    metric: Option<Arc<dyn Metric>>,
}

/// The values of a stage.
pub(crate) struct Results {
    stage: Stage,
    slots: IndexMap<String, Slot>,
    pending: Vec<(usize, Tensor, f64)>,
    /// States of metrics from a checkpoint, for those that have not been logged yet.
    restored: IndexMap<String, Value>,
}

impl Results {
    pub(crate) fn new(stage: Stage) -> Self {
        Self { stage, slots: IndexMap::new(), pending: Vec::new(), restored: IndexMap::new() }
    }

    fn slot(&mut self, spec: &LogSpec) -> Result<usize> {
        if let Some(index) = self.slots.get_index_of(&spec.name) {
            return Ok(index);
        }
        let training = self.stage == Stage::Train;
        let on_step = spec.options.on_step.unwrap_or(training && spec.metric.is_none());
        let on_epoch = spec.options.on_epoch.unwrap_or(!training || spec.metric.is_some());
        let slot = Slot {
            options: spec.options,
            on_step,
            on_epoch,
            last: None,
            total: start(spec.options.reduce_fx),
            weight: 0.0,
            metric: spec.metric.clone(),
        };
        if let (Some(metric), Some(state)) = (&spec.metric, self.restored.shift_remove(&spec.name)) {
            metric.merge(&state)?;
        }
        Ok(self.slots.insert_full(spec.name.clone(), slot).0)
    }

    /// Adds a value of a batch of `samples` samples.
    pub(crate) fn add(&mut self, spec: &LogSpec, value: LogValue, samples: usize) -> Result<()> {
        let index = self.slot(spec)?;
        let weight = spec.options.batch_size.unwrap_or(samples) as f64;
        match value {
            LogValue::Number(number) => {
                // In order: the sum of an epoch must not depend on when values are read.
                self.flush()?;
                self.fold(index, number, weight);
            }
            LogValue::Tensor(tensor) if tensor.device().is_cpu() => {
                self.flush()?;
                self.fold(index, tensor.item::<f64>()?, weight);
            }
            LogValue::Tensor(tensor) => {
                self.pending.push((index, tensor, weight));
                if self.pending.len() >= MAX_PENDING {
                    self.flush()?;
                }
            }
            LogValue::Metric(_) => {}
        }
        Ok(())
    }

    fn fold(&mut self, index: usize, value: f64, weight: f64) {
        let slot = &mut self.slots[index];
        slot.last = Some(value);
        if !slot.on_epoch {
            return;
        }
        match slot.options.reduce_fx {
            ReduceFx::Mean => {
                slot.total += value * weight;
                slot.weight += weight;
            }
            ReduceFx::Sum => slot.total += value,
            ReduceFx::Min => slot.total = slot.total.min(value),
            ReduceFx::Max => slot.total = slot.total.max(value),
        }
    }

    /// Reads all pending device values at once.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let values = no_grad(|| -> Result<Vec<f64>> {
            let flat: Vec<Tensor> =
                pending.iter().map(|(_, t, _)| t.reshape([1])?.to_dtype(DType::F64)).collect::<Result<_>>()?;
            stack(&flat.iter().collect::<Vec<_>>(), 0)?.reshape([-1])?.to_vec()
        })?;
        for ((index, _, weight), value) in pending.into_iter().zip(values) {
            self.fold(index, value, weight);
        }
        Ok(())
    }

    /// The values of the last step, each once; first those for loggers, then those for the progress display.
    pub(crate) fn step_values(&mut self) -> Result<(Named, Named)> {
        self.flush()?;
        let (mut logged, mut shown) = (Vec::new(), Vec::new());
        for (name, slot) in &mut self.slots {
            if !slot.on_step {
                continue;
            }
            if let Some(value) = slot.last.take() {
                let name = if slot.on_epoch { format!("{name}_step") } else { name.clone() };
                if slot.options.prog_bar {
                    shown.push((name.clone(), value));
                }
                if !slot.options.no_logger {
                    logged.push((name, value));
                }
            }
        }
        Ok((logged, shown))
    }

    /// The last value of one name.
    pub(crate) fn last(&mut self, name: &str) -> Result<Option<f64>> {
        self.flush()?;
        Ok(self.slots.get(name).and_then(|slot| slot.last))
    }

    /// Ends the epoch and returns its values over all ranks. Each has flags: whether loggers get it, whether the
    /// display shows it.
    pub(crate) fn finish_epoch(&mut self, ranks: &Ranks) -> Result<Vec<(String, f64, bool, bool)>> {
        self.flush()?;
        let synced = |slot: &Slot| slot.on_epoch && slot.metric.is_none() && slot.options.sync_dist != Some(false);
        for fx in [ReduceFx::Mean, ReduceFx::Sum, ReduceFx::Min, ReduceFx::Max] {
            let mut slots: Vec<&mut Slot> =
                self.slots.values_mut().filter(|slot| synced(slot) && slot.options.reduce_fx == fx).collect();
            let mut values: Vec<f64> = slots.iter().flat_map(|slot| [slot.total, slot.weight]).collect();
            ranks.reduce(&mut values, fx)?;
            for (slot, pair) in slots.iter_mut().zip(values.chunks_exact(2)) {
                (slot.total, slot.weight) = (pair[0], pair[1]);
            }
        }
        let mut values = Vec::new();
        for (name, slot) in &mut self.slots {
            if !slot.on_epoch {
                continue;
            }
            let name = if slot.on_step { format!("{name}_epoch") } else { name.clone() };
            let value = match (&slot.metric, slot.options.reduce_fx) {
                (Some(metric), _) => {
                    let value = metric.value(ranks).map_err(|e| e.within(&format!("metric '{name}'")))?;
                    metric.reset()?;
                    value
                }
                (None, ReduceFx::Mean) => slot.total / slot.weight,
                (None, _) => slot.total,
            };
            values.push((name, value, !slot.options.no_logger, slot.options.prog_bar));
            (slot.last, slot.total, slot.weight) = (None, start(slot.options.reduce_fx), 0.0);
        }
        Ok(values)
    }

    pub(crate) fn state(&mut self) -> Result<Value> {
        self.flush()?;
        let mut state = Dict::new();
        for (name, slot) in &self.slots {
            let entry = match &slot.metric {
                Some(metric) => metric.state()?,
                None => Value::List(vec![
                    slot.total.into(),
                    slot.weight.into(),
                    slot.last.into(),
                    slot.on_step.into(),
                    slot.on_epoch.into(),
                    slot.options.prog_bar.into(),
                    slot.options.no_logger.into(),
                    (slot.options.reduce_fx as i64).into(),
                    (slot.options.sync_dist != Some(false)).into(),
                ]),
            };
            state.insert(name.as_str().into(), entry);
        }
        Ok(state.into())
    }

    pub(crate) fn load_state(&mut self, state: &Value) -> Result<()> {
        let (mut slots, mut restored) = (IndexMap::new(), IndexMap::new());
        for (name, entry) in state.as_dict()? {
            let Value::List(parts) = entry else {
                restored.insert(name.to_string(), entry.clone());
                continue;
            };
            let [total, weight, last, on_step, on_epoch, prog_bar, no_logger, reduce_fx, sync] = &parts[..] else {
                return Err(Error::value(format!("the logged value '{name}' of a checkpoint is malformed")));
            };
            let reduce_fx = match reduce_fx.as_int()? {
                0 => ReduceFx::Mean,
                1 => ReduceFx::Sum,
                2 => ReduceFx::Min,
                3 => ReduceFx::Max,
                other => {
                    return Err(Error::value(format!("the logged value '{name}' has an unknown reduction {other}")));
                }
            };
            let options = LogOptions {
                prog_bar: prog_bar.as_bool()?,
                no_logger: no_logger.as_bool()?,
                reduce_fx,
                sync_dist: Some(sync.as_bool()?),
                ..LogOptions::default()
            };
            let last = if let Value::None = last { None } else { Some(last.as_float()?) };
            let slot = Slot {
                options,
                on_step: on_step.as_bool()?,
                on_epoch: on_epoch.as_bool()?,
                last,
                total: total.as_float()?,
                weight: weight.as_float()?,
                metric: None,
            };
            slots.insert(name.to_string(), slot);
        }
        (self.slots, self.restored) = (slots, restored);
        self.pending.clear();
        Ok(())
    }
}

fn start(fx: ReduceFx) -> f64 {
    match fx {
        ReduceFx::Mean | ReduceFx::Sum => 0.0,
        ReduceFx::Min => f64::INFINITY,
        ReduceFx::Max => f64::NEG_INFINITY,
    }
}
