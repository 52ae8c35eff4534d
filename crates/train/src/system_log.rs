//! Statistics of the process and its device during training: `system/rank-N.jsonl` in the run's directory.
//!
//! A thread samples them, so that neither a slow management library nor a slow disk delays training. Every rank has its
//! own file: `rushlight ui` uses them to compare ranks.

use crate::loggers::{json_number, now};
use crate::system::{cpu_time, resident};
use rushlight_core::Device;
use rushlight_core::sync::lock;
use rushlight_monitor::{Gpu, Monitor};
use serde_json::{Map, Value as Json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first sample comes early, so that short runs have some.
const FIRST: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(5);
/// The interval doubles after each multiple of this number of rows, so files of long runs stay small.
const ROWS: u64 = 1000;
const LONGEST: Duration = Duration::from_secs(300);

/// Values shared by the loop, the thread and the progress display.
#[derive(Default)]
pub(crate) struct Figures {
    step: AtomicU64,
    samples: AtomicU64,
    /// Microseconds spent waiting for data.
    waited: AtomicU64,
    /// The GPU's utilisation in per cent, plus one; 0 if unknown.
    gpu: AtomicU64,
    ended: Mutex<bool>,
    wake: Condvar,
}

impl Figures {
    /// Records the position of the run.
    #[inline]
    pub(crate) fn note(&self, step: u64, samples: u64, waited: Duration) {
        self.step.store(step, Relaxed);
        self.samples.store(samples, Relaxed);
        self.waited.store(waited.as_micros() as u64, Relaxed);
    }

    /// The last sample of the GPU's utilisation in per cent.
    pub(crate) fn gpu_utilisation(&self) -> Option<u64> {
        self.gpu.load(Relaxed).checked_sub(1)
    }
}

/// The thread; it ends when this is dropped.
pub(crate) struct SystemLog {
    figures: Arc<Figures>,
    thread: Option<JoinHandle<()>>,
}

impl SystemLog {
    /// Starts to log. Training continues if the file or thread cannot be created.
    pub(crate) fn start(directory: &Path, rank: usize, device: Device) -> Option<Self> {
        let directory = directory.join("system");
        std::fs::create_dir_all(&directory).ok()?;
        let path = directory.join(format!("rank-{rank}.jsonl"));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path).ok()?;
        let figures = Arc::new(Figures::default());
        let mut writer = Writer::new(figures.clone(), file, device);
        let thread = std::thread::Builder::new().name("rushlight-system".into()).spawn(move || writer.run()).ok()?;
        Some(Self { figures, thread: Some(thread) })
    }

    pub(crate) fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }
}

impl Drop for SystemLog {
    fn drop(&mut self) {
        *lock(&self.figures.ended) = true;
        self.figures.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Counters at the time of a row.
struct Mark {
    at: Instant,
    cpu: Duration,
    step: u64,
    samples: u64,
    waited: u64,
}

struct Writer {
    figures: Arc<Figures>,
    file: File,
    device: Device,
    monitor: Monitor,
    mark: Mark,
}

impl Writer {
    fn new(figures: Arc<Figures>, file: File, device: Device) -> Self {
        let mark = Mark { at: Instant::now(), cpu: cpu_time(), step: 0, samples: 0, waited: 0 };
        Self { figures, file, device, monitor: Monitor::new(), mark }
    }

    fn run(&mut self) {
        // Rates of some GPUs, and of the processors, need a first sample.
        self.monitor.host();
        let _ = self.gpu();
        let (mut interval, mut rows) = (FIRST, 0);
        loop {
            let guard = lock(&self.figures.ended);
            let waited = self.figures.wake.wait_timeout_while(guard, interval, |ended| !*ended);
            let ended = *waited.unwrap_or_else(|e| e.into_inner()).0;
            // A full disk may have space later.
            let _ = self.row();
            if ended {
                return;
            }
            rows += 1;
            interval = INTERVAL.saturating_mul(1 << (rows / ROWS).min(10)).min(LONGEST);
        }
    }

    fn gpu(&mut self) -> Option<Gpu> {
        if self.device.is_cpu() {
            return None;
        }
        self.monitor.gpu(self.device).ok()
    }

    fn row(&mut self) -> std::io::Result<()> {
        let figures = &self.figures;
        let mark = Mark {
            at: Instant::now(),
            cpu: cpu_time(),
            step: figures.step.load(Relaxed),
            samples: figures.samples.load(Relaxed),
            waited: figures.waited.load(Relaxed),
        };
        let before = std::mem::replace(&mut self.mark, mark);
        let now_ = &self.mark;
        let seconds = (now_.at - before.at).as_secs_f64();
        let mut values: Vec<(&str, Option<f64>)> = Vec::new();
        if seconds > 0.05 {
            // A resumed run begins with the steps of the previous run.
            let per_second = |now: u64, then: u64| (then > 0).then(|| now.saturating_sub(then) as f64 / seconds);
            values.push(("cpu_percent", Some((now_.cpu.saturating_sub(before.cpu)).as_secs_f64() / seconds * 100.0)));
            values.push(("steps_per_second", per_second(now_.step, before.step)));
            values.push(("samples_per_second", per_second(now_.samples, before.samples)));
            let waited = now_.waited.saturating_sub(before.waited) as f64 / 1e6 / seconds * 100.0;
            values.push(("data_wait_percent", Some(waited.min(100.0)).filter(|_| now_.step > 0)));
        }
        values.push(("resident_bytes", resident().map(|bytes| bytes as f64)));
        let host = self.monitor.host();
        values.push(("host_cpu_percent", host.utilisation()));
        values.push(("host_memory_bytes", host.memory_used.map(|bytes| bytes as f64)));
        if let Some(gpu) = self.gpu() {
            let utilisation = gpu.utilisation.map_or(0, |percent| percent.clamp(0.0, 100.0) as u64 + 1);
            self.figures.gpu.store(utilisation, Relaxed);
            values.push(("gpu_percent", gpu.utilisation));
            values.push(("gpu_memory_bytes", gpu.memory_used.map(|bytes| bytes as f64)));
            values.push(("gpu_power_watts", gpu.power));
            values.push(("gpu_celsius", gpu.temperature));
            values.push(("gpu_clock_mhz", gpu.clock));
        }
        let mut row = Map::new();
        row.insert("step".into(), self.mark.step.into());
        row.insert("time".into(), json_number((now() * 1e3).round() / 1e3));
        let known =
            values.into_iter().filter_map(|(name, value)| Some((format!("system/{name}"), json_number(value?))));
        row.extend(known);
        // One write per line, so that concurrent readers see complete lines.
        self.file.write_all(format!("{}\n", Json::Object(row)).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_a_row() {
        let root = std::env::temp_dir().join(format!("rushlight-system-{}", std::process::id()));
        let log = SystemLog::start(&root, 3, Device::Cpu).unwrap();
        log.figures().note(7, 70, Duration::from_millis(5));
        assert_eq!(log.figures().gpu_utilisation(), None);
        drop(log);
        let text = std::fs::read_to_string(root.join("system/rank-3.jsonl")).unwrap();
        let row: Json = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(row["step"], 7);
        assert!(
            row["time"].as_f64().unwrap() > 1e9 && !cfg!(target_os = "linux")
                || row["system/resident_bytes"].as_f64() > Some(0.0)
        );
        std::fs::remove_dir_all(root).unwrap();
    }
}
