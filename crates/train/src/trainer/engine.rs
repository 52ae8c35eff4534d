//! One training step: forward, backward, clipping and update, captured if the device supports it.

use super::options::{ClipAlgorithm, Options};
use crate::batch::Batch;
use crate::callbacks::Callback;
use crate::metrics::Metric;
use crate::module::TrainModule;
use crate::optimizers::Optimizers;
use crate::precision::Precision;
use crate::ranks::Parallel;
use crate::step::{LogSpec, LogValue, Manual, Place, StepContext, StepLog};
use rushlight_core::{Device, Error, Result};
use rushlight_optim::GradScaler;
use rushlight_tensor::capture::{Tensors, recording_id};
use rushlight_tensor::{Capture, StepOutput, Tensor, clip_grad_value_};
use std::ops::Range;
use std::sync::Arc;

/// A step's actions besides computing gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    /// Whether gradients are cleared first.
    pub clears: bool,
    /// Whether the optimizers step.
    pub steps: bool,
}

/// Runs steps.
pub(super) struct Engine {
    capture: Capture,
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

impl Outcome {
    fn new(loss: Tensor, log: StepLog) -> Self {
        Self { loss, logged: log.specs.into_iter().zip(log.values).collect() }
    }
}

/// A step's tensors are its loss and the logged ones. Replays log the same names and metrics.
impl StepOutput for Outcome {
    type Form = Vec<(LogSpec, LogForm)>;

    fn into_parts(self) -> (Tensors, Self::Form) {
        let mut tensors = Tensors::from_iter([self.loss]);
        let form = |(spec, value): (LogSpec, LogValue)| {
            let form = match value {
                LogValue::Number(number) => LogForm::Number(number),
                LogValue::Metric(metric) => LogForm::Metric(metric),
                LogValue::Tensor(tensor) => {
                    tensors.push(tensor);
                    LogForm::Tensor
                }
            };
            (spec, form)
        };
        let form = self.logged.into_iter().map(form).collect();
        (tensors, form)
    }

    fn from_parts(tensors: Tensors, form: &Self::Form) -> Result<Self> {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().ok_or_else(|| Error::value("Trainer: a step returned too few tensors"));
        let loss = next()?;
        let value = |(spec, form): &(LogSpec, LogForm)| {
            let value = match form {
                LogForm::Number(number) => LogValue::Number(*number),
                LogForm::Metric(metric) => LogValue::Metric(metric.clone()),
                LogForm::Tensor => LogValue::Tensor(next()?),
            };
            Ok::<_, Error>((spec.clone(), value))
        };
        let logged = form.iter().map(value).collect::<Result<_>>()?;
        Ok(Self { loss, logged })
    }
}

/// A logged value, if it is no tensor.
pub(super) enum LogForm {
    Number(f64),
    Metric(Arc<dyn Metric>),
    Tensor,
}

impl Engine {
    pub(super) fn new(options: &Options, accumulate: u64, device: Device) -> Self {
        Self {
            capture: Capture::new().device(device).enabled(options.capture && !options.detect_anomaly),
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
        let kind = (work.phase, work.turn.start);
        let mut recorded = false;
        let first = self.capture.run_kind(kind, &inputs, |tensors| {
            recorded = recording_id().is_some();
            work.run(batch, tensors, self.precision, self.clip, self.accumulate)
        });
        let outcome: Outcome = match first {
            Err(e) if recorded => {
                // A failed recording has no effect: run the step without capture.
                self.without_capture(device, &format!("{e}"));
                self.capture.run_kind(kind, &inputs, |tensors| {
                    work.run(batch, tensors, self.precision, self.clip, self.accumulate)
                })?
            }
            other => other?,
        };
        if self.detects_anomalies {
            let value = outcome.loss.item::<f64>()?;
            if !value.is_finite() {
                let Place { epoch, batch_idx, .. } = work.place;
                return Err(Error::numerical(format!("the loss is {value} in epoch {epoch}, batch {batch_idx}")));
            }
        }
        Ok(outcome)
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
        precision: Precision,
        clip: Option<(f64, ClipAlgorithm)>,
        accumulate: u64,
    ) -> Result<Outcome> {
        let mut log = StepLog::default();
        let mut next = tensors.iter();
        let batch = batch.map(&mut |own| precision.convert(next.next().unwrap_or(own)))?;
        if !self.model.automatic_optimization() {
            let loss = {
                let _precision = precision.enter()?;
                let manual = Some(Manual { optimizers: self.optimizers, scaler: self.scaler.as_mut() });
                let mut step = StepContext { place: self.place, log: &mut log, manual };
                self.parallel.call(&mut *self.model, |model| model.training_step(&batch, &mut step))?
            };
            return Ok(Outcome::new(loss, log));
        }
        let local = (!self.phase.steps).then(|| self.parallel.local());
        if self.phase.clears {
            for i in self.turn.clone() {
                self.optimizers.get_mut(i)?.zero_grad();
            }
        }
        let mut step = StepContext { place: self.place, log: &mut log, manual: None };
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
        Ok(Outcome::new(loss, log))
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
