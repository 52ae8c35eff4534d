//! One training step: forward, backward, clipping and update, captured if the device supports it.

use super::options::{ClipAlgorithm, Options};
use crate::batch::Batch;
use crate::callbacks::Callback;
use crate::module::TrainModule;
use crate::optimizers::Optimizers;
use crate::precision::Precision;
use crate::ranks::Parallel;
use crate::step::{LogSpec, LogValue, Manual, Place, StepContext, StepLog};
use rushlight_core::{DType, Device, Error, Result};
use rushlight_optim::GradScaler;
use rushlight_tensor::capture::recording_id;
use rushlight_tensor::{Capture, Tensor, clip_grad_value_};
use std::ops::Range;

/// A step's actions besides computing gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    /// Whether gradients are cleared first.
    pub clears: bool,
    /// Whether the optimizers step.
    pub steps: bool,
}

/// Names logged by a captured step while it was recorded; replays log the same names.
struct Recorded {
    kind: u64,
    inputs: Vec<(DType, Vec<usize>)>,
    specs: Vec<LogSpec>,
}

/// Runs steps.
pub(super) struct Engine {
    capture: Capture,
    recorded: Vec<Recorded>,
    precision: Precision,
    clip: Option<(f64, ClipAlgorithm)>,
    accumulate: u64,
    detects_anomalies: bool,
    /// Whether the reason for not capturing has been printed.
    told: bool,
}

/// The inputs of a step.
pub(super) struct Work<'a, M: TrainModule> {
    pub model: &'a mut M,
    pub optimizers: &'a mut Optimizers,
    pub scaler: &'a mut Option<GradScaler>,
    pub callbacks: &'a mut [Box<dyn Callback>],
    pub parallel: &'a Parallel,
    pub named: &'a [(String, Tensor)],
    pub place: Place,
    pub turn: Range<usize>,
    pub phase: Phase,
}

/// The loss and the log of a step.
pub(super) struct Outcome {
    pub loss: Tensor,
    pub logged: Vec<(LogSpec, LogValue)>,
}

impl Engine {
    pub(super) fn new(options: &Options, accumulate: u64, device: Device) -> Self {
        Self {
            capture: Capture::new().device(device).enabled(options.capture && !options.detect_anomaly),
            recorded: Vec::new(),
            precision: options.precision,
            clip: options.gradient_clip_val.filter(|v| *v > 0.0).map(|v| (v, options.gradient_clip_algorithm)),
            accumulate,
            detects_anomalies: options.detect_anomaly,
            told: false,
        }
    }

    /// Prints once why steps are not captured.
    fn without_capture(&mut self, device: Device, why: &str) {
        self.capture.set_enabled(false);
        if !device.is_cpu() && !std::mem::replace(&mut self.told, true) {
            rushlight_core::warn!("steps are not captured: {why}");
        }
    }

    pub(super) fn step<M: TrainModule>(
        &mut self,
        work: &mut Work<M>,
        batch: &M::Batch,
        device: Device,
    ) -> Result<Outcome> {
        if work.parallel.is_sharded() {
            self.without_capture(device, "the strategy gathers parameters anew in each step");
        }
        if !M::Batch::ONLY_TENSORS {
            self.without_capture(device, "the batch holds values that are no tensors");
        }
        let mut inputs = Vec::new();
        batch.visit(&mut |t| inputs.push(t.clone()));
        let kind = u64::from(work.phase.clears) | u64::from(work.phase.steps) << 1 | (work.turn.start as u64) << 2;
        let mut log = StepLog::default();
        let (mut ran, mut recorded) = (false, false);
        let first = self.capture.run_kind(kind, &inputs, |tensors| {
            (ran, recorded) = (true, recording_id().is_some());
            work.run(batch, tensors, &mut log, self.precision, self.clip, self.accumulate)
        });
        let outputs = match first {
            Err(e) if recorded => {
                // A failed recording has no effect: run the step without capture.
                self.without_capture(device, &format!("{e}"));
                (recorded, log) = (false, StepLog::default());
                self.capture.run_kind(kind, &inputs, |tensors| {
                    work.run(batch, tensors, &mut log, self.precision, self.clip, self.accumulate)
                })?
            }
            other => other?,
        };
        let mut outputs = outputs.into_iter();
        let loss = outputs.next().ok_or_else(|| Error::value("Trainer: a step gave no loss"))?;
        if self.detects_anomalies {
            let value = loss.item::<f64>()?;
            if !value.is_finite() {
                let Place { epoch, batch_idx, .. } = work.place;
                return Err(Error::numerical(format!("the loss is {value} in epoch {epoch}, batch {batch_idx}")));
            }
        }
        let fits = |r: &Recorded| {
            r.kind == kind
                && r.inputs.iter().map(|(d, s)| (*d, &s[..])).eq(inputs.iter().map(|t| (t.dtype(), t.shape())))
        };
        if !ran {
            let specs = self.recorded.iter().find(|r| fits(r)).map(|r| r.specs.clone()).unwrap_or_default();
            let value = |spec: &LogSpec| match &spec.metric {
                Some(metric) => Some(LogValue::Metric(metric.clone())),
                None => outputs.next().map(LogValue::Tensor),
            };
            let values: Vec<Option<LogValue>> = specs.iter().map(value).collect();
            let logged = specs.into_iter().zip(values).filter_map(|(spec, value)| Some((spec, value?))).collect();
            return Ok(Outcome { loss, logged });
        }
        if recorded {
            self.recorded.retain(|r| !fits(r));
            let inputs = inputs.iter().map(|t| (t.dtype(), t.shape().to_vec())).collect();
            self.recorded.push(Recorded { kind, inputs, specs: log.specs.clone() });
        }
        let value = |value: LogValue| match value {
            LogValue::Tensor(own) => LogValue::Tensor(outputs.next().unwrap_or(own)),
            other => other,
        };
        let values: Vec<LogValue> = log.values.into_iter().map(value).collect();
        Ok(Outcome { loss, logged: log.specs.into_iter().zip(values).collect() })
    }

    /// Steps the optimizers with the current gradients: an epoch of unknown length has ended between two steps.
    pub(super) fn finish_accumulation<M: TrainModule>(&mut self, work: &mut Work<M>) -> Result<()> {
        let mut log = StepLog::default();
        let mut step = StepContext { place: work.place, log: &mut log, manual: None };
        work.update(self.clip, &mut step)
    }
}

impl<M: TrainModule> Work<'_, M> {
    fn run(
        &mut self,
        batch: &M::Batch,
        tensors: &[Tensor],
        log: &mut StepLog,
        precision: Precision,
        clip: Option<(f64, ClipAlgorithm)>,
        accumulate: u64,
    ) -> Result<Vec<Tensor>> {
        let mut next = tensors.iter();
        let batch = batch.map(&mut |own| precision.convert(next.next().unwrap_or(own)))?;
        if !self.model.automatic_optimization() {
            let loss = {
                let _precision = precision.enter()?;
                let manual = Some(Manual { optimizers: self.optimizers, scaler: self.scaler.as_mut() });
                let mut step = StepContext { place: self.place, log, manual };
                self.parallel.call(&mut *self.model, |model| model.training_step(&batch, &mut step))?
            };
            return Ok(outputs(loss, log));
        }
        let local = (!self.phase.steps).then(|| self.parallel.local());
        if self.phase.clears {
            for i in self.turn.clone() {
                self.optimizers.get_mut(i)?.zero_grad();
            }
        }
        let mut step = StepContext { place: self.place, log, manual: None };
        let loss = {
            let _precision = precision.enter()?;
            self.parallel.call(&mut *self.model, |model| model.training_step(&batch, &mut step))?
        };
        if loss.numel() != 1 {
            return Err(Error::shape(format!(
                "training_step: the loss has shape {:?}; it must be one number, such as the mean",
                loss.shape()
            )));
        }
        let part = if accumulate > 1 { loss.div(accumulate as f64)? } else { loss.clone() };
        match &self.scaler {
            Some(scaler) => scaler.scale(&part)?.backward()?,
            None => part.backward()?,
        }
        drop(local);
        if self.phase.steps {
            self.update(clip, &mut step)?;
        }
        Ok(outputs(loss, log))
    }

    /// Inspects gradients, clips them and steps.
    fn update(&mut self, clip: Option<(f64, ClipAlgorithm)>, step: &mut StepContext) -> Result<()> {
        let inspected = self.callbacks.iter().any(|callback| callback.wants_gradients());
        for i in self.turn.clone() {
            let optimizer = self.optimizers.get_mut(i)?;
            if let Some(scaler) = self.scaler {
                self.parallel.share_overflow(&optimizer.params())?;
                if clip.is_some() || inspected {
                    scaler.unscale_(optimizer)?;
                }
            }
        }
        for callback in self.callbacks.iter_mut().filter(|callback| callback.wants_gradients()) {
            callback.on_gradients(self.named, step)?;
        }
        for i in self.turn.clone() {
            let optimizer = self.optimizers.get_mut(i)?;
            match clip {
                Some((value, ClipAlgorithm::Norm)) => self.parallel.clip_norm(optimizer.params(), value)?,
                Some((value, ClipAlgorithm::Value)) => clip_grad_value_(optimizer.params(), value)?,
                None => {}
            }
            match self.scaler {
                Some(scaler) => drop(scaler.step(optimizer)?),
                None => optimizer.step()?,
            }
        }
        self.scaler.as_mut().map_or(Ok(()), GradScaler::update)
    }
}

/// The tensors of a step: the loss and the logged values.
fn outputs(loss: Tensor, log: &StepLog) -> Vec<Tensor> {
    let logged =
        log.values.iter().filter_map(|value| if let LogValue::Tensor(t) = value { Some(t.clone()) } else { None });
    std::iter::once(loss).chain(logged).collect()
}
