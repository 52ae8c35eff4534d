//! Callbacks that log: learning rates, gradient norms, throughput, the device, the time.

use super::Callback;
use crate::progress::clock;
use crate::run::Run;
use crate::step::{LogOptions, StepContext};
use crate::system::{cpu_time, resident};
use rushlight_core::{Error, Result};
use rushlight_monitor::Monitor;
use rushlight_nn::Module;
use rushlight_tensor::state::{Dict, Value};
use rushlight_tensor::{NormOptions, Tensor, get_total_norm, memory_stats};
use std::time::{Duration, Instant};

/// Steps between two logged values: a callback's own number, or the trainer's `log_every_n_steps`.
fn interval(own: Option<u64>, run: &Run) -> u64 {
    own.unwrap_or(run.log_every_n_steps)
}

/// Logs learning rates, every N steps: `lr-0`, and `lr-0/pg1` and so on for optimizers with several groups.
#[derive(Clone, Debug)]
pub struct LearningRateMonitor {
    every: Option<u64>,
    last: Option<u64>,
}

impl Default for LearningRateMonitor {
    fn default() -> Self {
        Self::new()
    }
}

impl LearningRateMonitor {
    /// As often as the trainer logs (`log_every_n_steps`).
    pub fn new() -> Self {
        Self { every: None, last: None }
    }

    /// Logs every `steps` steps.
    pub fn every_n_steps(mut self, steps: u64) -> Self {
        self.every = Some(steps.max(1));
        self
    }
}

impl Callback for LearningRateMonitor {
    fn name(&self) -> &str {
        "LearningRateMonitor"
    }

    fn wants_learning_rates(&self, step: u64) -> bool {
        self.every.is_some_and(|every| step.is_multiple_of(every))
    }

    fn on_train_batch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        let step = run.global_step();
        if !step.is_multiple_of(interval(self.every, run)) || self.last.replace(step) == Some(step) {
            return Ok(());
        }
        run.log_all(run.learning_rates().to_vec())
    }
}

/// Logs the norm of all gradients before clipping, as `grad_norm`, and optionally of each parameter.
#[derive(Clone, Debug)]
pub struct GradientNorm {
    norm_type: f64,
    each: bool,
}

impl Default for GradientNorm {
    fn default() -> Self {
        Self::new()
    }
}

impl GradientNorm {
    /// The 2-norm of all gradients together.
    pub fn new() -> Self {
        Self { norm_type: 2.0, each: false }
    }

    /// The order of the norm; may be infinite.
    pub fn norm_type(mut self, norm_type: f64) -> Self {
        self.norm_type = norm_type;
        self
    }

    /// Logs the norm of each parameter's gradient too, as `grad_norm/NAME`.
    pub fn each_parameter(mut self, each: bool) -> Self {
        self.each = each;
        self
    }
}

impl Callback for GradientNorm {
    fn name(&self) -> &str {
        "GradientNorm"
    }

    fn wants_gradients(&self) -> bool {
        true
    }

    fn on_gradients(&mut self, parameters: &[(String, Tensor)], step: &mut StepContext) -> Result<()> {
        let options = NormOptions::default().norm_type(self.norm_type);
        let with: Vec<(&String, Tensor)> = parameters.iter().filter_map(|(n, p)| Some((n, p.grad()?))).collect();
        if with.is_empty() {
            return Ok(());
        }
        step.log("grad_norm", get_total_norm(with.iter().map(|(_, grad)| grad), options)?)?;
        if self.each {
            for (name, grad) in &with {
                step.log_with(&format!("grad_norm/{name}"), get_total_norm([grad], options)?, LogOptions::new())?;
            }
        }
        Ok(())
    }
}

/// Logs samples and batches per second, the fraction of time spent waiting for data, and, if the operations of a sample
/// are known, operations per second.
#[derive(Clone, Debug)]
pub struct ThroughputMonitor {
    every: Option<u64>,
    flops_per_sample: Option<f64>,
    peak_flops: Option<f64>,
    /// The end of the last measured batch, or of the validation after it.
    mark: Option<Mark>,
    /// Work since the last logged value, without validation.
    done: Work,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    step: u64,
    samples: u64,
    waited: Duration,
}

impl Mark {
    fn now(run: &Run) -> Self {
        Self { at: Instant::now(), step: run.global_step(), samples: run.samples(), waited: run.waited() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Work {
    seconds: f64,
    steps: u64,
    samples: u64,
    waited: f64,
}

impl Work {
    fn add(&mut self, from: &Mark, to: &Mark) {
        self.seconds += (to.at - from.at).as_secs_f64();
        self.steps += to.step - from.step;
        self.samples += to.samples - from.samples;
        self.waited += (to.waited - from.waited).as_secs_f64();
    }
}

impl Default for ThroughputMonitor {
    fn default() -> Self {
        Self::new()
    }
}

impl ThroughputMonitor {
    /// As often as the trainer logs (`log_every_n_steps`).
    pub fn new() -> Self {
        Self { every: None, flops_per_sample: None, peak_flops: None, mark: None, done: Work::default() }
    }

    /// Logs every `steps` steps.
    pub fn every_n_steps(mut self, steps: u64) -> Self {
        self.every = Some(steps.max(1));
        self
    }

    /// Floating-point operations of a training step on one sample, forward and backward.
    pub fn flops_per_sample(mut self, flops: f64) -> Self {
        self.flops_per_sample = Some(flops);
        self
    }

    /// Peak operations per second of the device. The achieved fraction is then logged as `throughput/utilisation`.
    pub fn peak_flops(mut self, flops: f64) -> Self {
        self.peak_flops = Some(flops);
        self
    }
}

impl Callback for ThroughputMonitor {
    fn name(&self) -> &str {
        "ThroughputMonitor"
    }

    fn on_train_batch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        let now = Mark::now(run);
        // The first step is not measured: it compiles and allocates.
        let Some(mark) = self.mark.replace(now) else { return Ok(()) };
        self.done.add(&mark, &now);
        if self.done.steps < interval(self.every, run) {
            return Ok(());
        }
        let done = std::mem::take(&mut self.done);
        let seconds = done.seconds.max(1e-9);
        let world = run.world_size() as f64;
        let rate = done.samples as f64 / seconds;
        let mut values = vec![
            ("throughput/samples_per_s".to_owned(), rate * world),
            ("throughput/steps_per_s".to_owned(), done.steps as f64 / seconds),
            ("throughput/data_wait_fraction".to_owned(), done.waited / seconds),
        ];
        if let Some(flops) = self.flops_per_sample {
            values.push(("throughput/flops_per_s".to_owned(), flops * rate * world));
            if let Some(peak) = self.peak_flops {
                values.push(("throughput/utilisation".to_owned(), flops * rate / peak));
            }
        }
        run.log_all(values)
    }

    fn on_validation_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        // Excludes the time of validation. The sanity check comes before the first step.
        if self.mark.is_some() {
            self.mark = Some(Mark::now(run));
        }
        Ok(())
    }
}

/// Logs memory of the device, resident memory and processor use of the process, and of a GPU utilisation, power and
/// temperature. Loggers get them as values of their steps; without this callback they are in `system/rank-N.jsonl`
/// only.
#[derive(Clone, Debug)]
pub struct DeviceStatsMonitor {
    every: Option<u64>,
    monitor: Monitor,
    since: Option<(Instant, Duration)>,
    last: Option<u64>,
}

impl Default for DeviceStatsMonitor {
    fn default() -> Self {
        Self::new()
    }
}

impl DeviceStatsMonitor {
    /// As often as the trainer logs (`log_every_n_steps`).
    pub fn new() -> Self {
        Self { every: None, monitor: Monitor::new(), since: None, last: None }
    }

    /// Logs every `steps` steps.
    pub fn every_n_steps(mut self, steps: u64) -> Self {
        self.every = Some(steps.max(1));
        self
    }
}

impl Callback for DeviceStatsMonitor {
    fn name(&self) -> &str {
        "DeviceStatsMonitor"
    }

    fn on_train_batch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        let step = run.global_step();
        if !step.is_multiple_of(interval(self.every, run)) || self.last.replace(step) == Some(step) {
            return Ok(());
        }
        let mut values = Vec::new();
        if let Ok(memory) = memory_stats(&run.device()) {
            let device = run.device();
            for (name, bytes) in [("allocated", memory.allocated), ("reserved", memory.reserved), ("peak", memory.peak)]
            {
                values.push((format!("system/{device}/memory_{name}_bytes"), bytes as f64));
            }
        }
        if !run.device().is_cpu()
            && let Ok(gpu) = self.monitor.gpu(run.device())
        {
            let device = run.device();
            let figures =
                [("utilisation_percent", gpu.utilisation), ("power_watts", gpu.power), ("celsius", gpu.temperature)];
            let known =
                figures.into_iter().filter_map(|(name, value)| Some((format!("system/{device}/{name}"), value?)));
            values.extend(known);
        }
        if let Some(bytes) = resident() {
            values.push(("system/host/resident_bytes".into(), bytes as f64));
        }
        let now = (Instant::now(), cpu_time());
        if let Some((at, cpu)) = self.since.replace(now) {
            let share = (now.1.saturating_sub(cpu)).as_secs_f64() / (now.0 - at).as_secs_f64().max(1e-9);
            values.push(("system/host/cpu_percent".into(), share * 100.0));
        }
        run.log_all(values)
    }
}

/// Ends a run after a training time, which includes earlier processes of the run.
#[derive(Clone, Debug)]
pub struct Timer {
    duration: Duration,
    before: Duration,
    start: Option<Instant>,
}

impl Timer {
    /// Training ends after this time.
    pub fn new(duration: Duration) -> Self {
        Self { duration, before: Duration::ZERO, start: None }
    }

    /// Time spent training.
    pub fn elapsed(&self) -> Duration {
        self.before + self.start.map_or(Duration::ZERO, |start| start.elapsed())
    }
}

impl Callback for Timer {
    fn name(&self) -> &str {
        "Timer"
    }

    fn on_fit_start(&mut self, _: &mut Run, _: &dyn Module) -> Result<()> {
        self.start = Some(Instant::now());
        Ok(())
    }

    fn on_train_batch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        if self.elapsed() >= self.duration {
            run.stop(format!("the timer's {} are over", clock(self.duration.as_secs_f64())));
        }
        Ok(())
    }

    fn state(&self) -> Result<Value> {
        Ok(Dict::from_iter([("elapsed".into(), self.elapsed().as_secs_f64().into())]).into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let seconds = state.get("elapsed")?.as_float()?;
        self.before = Duration::try_from_secs_f64(seconds)
            .map_err(|e| Error::value(format!("Timer: {seconds} s of training time: {e}")))?;
        Ok(())
    }
}
