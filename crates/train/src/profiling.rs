//! The Trainer's profilers: the time of its actions, or a trace of some steps.

use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use rushlight_tensor::profile::{Profiler, Schedule};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The profiler of a Trainer; see [`TrainerBuilder::profiler`](crate::TrainerBuilder::profiler).
///
/// ```
/// # mod rushlight { pub use rushlight_train as train; }
/// use rushlight::train::RunProfiler;
/// assert_eq!("simple".parse::<RunProfiler>()?, RunProfiler::Simple);
/// assert_eq!("trace".parse::<RunProfiler>()?, RunProfiler::trace());
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunProfiler {
    /// Time and count of the Trainer's actions: batches, steps, validations, checkpoints, each callback. The table is
    /// printed at the end and written to `profile/simple-rank-N.txt`. GPU work is asynchronous, so its time appears
    /// where the host waits for it.
    Simple,
    /// A trace of some steps with ops, kernels, loader and communication: `profile/trace-rank-N.json` for
    /// `chrome://tracing`, Perfetto and `rushlight trace`, and a table of ops in `profile/trace-rank-N.txt`.
    Trace {
        /// Steps before.
        wait: usize,
        /// Warm-up steps that are recorded and discarded.
        warmup: usize,
        /// Steps that are kept.
        active: usize,
    },
}

impl RunProfiler {
    /// A trace of three steps after five others: by then a GPU's steps are captured and replayed.
    pub fn trace() -> Self {
        RunProfiler::Trace { wait: 4, warmup: 1, active: 3 }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            RunProfiler::Simple => "simple",
            RunProfiler::Trace { .. } => "trace",
        }
    }
}

impl FromStr for RunProfiler {
    type Err = Error;

    /// `simple`, or `trace` (Lightning's `pytorch`).
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "simple" => Ok(RunProfiler::Simple),
            "trace" | "pytorch" => Ok(RunProfiler::trace()),
            "advanced" => Err(Error::unsupported(
                "Trainer: profiler 'advanced' shows calls of Python functions, which a Rust program has none of; use 'trace'",
            )),
            other => Err(Error::value(format!("Trainer: unknown profiler '{other}'; known are simple and trace"))),
        }
    }
}

/// A running profiler of a Trainer.
pub(crate) enum Profiling {
    Off,
    Simple(Actions),
    Trace(Box<Profiler>),
}

/// Time and count of actions, by name.
pub(crate) struct Actions {
    began: Instant,
    rows: IndexMap<String, (u64, Duration)>,
}

impl Profiling {
    /// Starts to measure.
    pub(crate) fn start(profiler: Option<RunProfiler>) -> Result<Self> {
        match profiler {
            None => Ok(Profiling::Off),
            Some(RunProfiler::Simple) => {
                Ok(Profiling::Simple(Actions { began: Instant::now(), rows: IndexMap::new() }))
            }
            Some(RunProfiler::Trace { wait, warmup, active }) => {
                let schedule = Schedule { wait, warmup, active, repeat: 1, skip_first: 0 };
                let mut profiler = Profiler::new().record_shapes(true).profile_memory(true).schedule(schedule);
                profiler.start().map_err(|e| Error::value(format!("Trainer: profiler 'trace': {e}")))?;
                Ok(Profiling::Trace(Box::new(profiler)))
            }
        }
    }

    /// Start of an action; `None` if actions are not timed.
    pub(crate) fn begin(&self) -> Option<Instant> {
        matches!(self, Profiling::Simple(_)).then(Instant::now)
    }

    /// Ends an action that began at `start`.
    pub(crate) fn end(&mut self, name: &str, start: Option<Instant>) {
        let (Profiling::Simple(actions), Some(start)) = (self, start) else { return };
        let spent = start.elapsed();
        match actions.rows.get_mut(name) {
            Some((count, total)) => (*count, *total) = (*count + 1, *total + spent),
            None => drop(actions.rows.insert(name.to_owned(), (1, spent))),
        }
    }

    /// Called after an optimizer step.
    pub(crate) fn step(&mut self) {
        if let Profiling::Trace(profiler) = self {
            profiler.step();
        }
    }

    /// Ends the measurement, writes it to the run's directory and returns its summary.
    pub(crate) fn finish(&mut self, directory: Option<&Path>, rank: usize) -> Result<Option<String>> {
        let folder = directory.map(|directory| directory.join("profile"));
        let write = |name: String, text: &str| -> Result<()> {
            let Some(folder) = &folder else { return Ok(()) };
            std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(folder.join(name), text))
                .map_err(|e| Error::io(format!("cannot write '{}': {e}", folder.display())))
        };
        match std::mem::replace(self, Profiling::Off) {
            Profiling::Off => Ok(None),
            Profiling::Simple(actions) => {
                let table = actions.table();
                write(format!("simple-rank-{rank}.txt"), &table)?;
                Ok(Some(table))
            }
            Profiling::Trace(mut profiler) => {
                let trace = profiler.stop();
                if trace.events.is_empty() {
                    return Ok(Some("the run ended before the steps that its profiler was to record".into()));
                }
                let table = trace.table("self_cpu_time_total", 30);
                write(format!("trace-rank-{rank}.txt"), &table)?;
                let Some(folder) = &folder else { return Ok(Some(table)) };
                let path = folder.join(format!("trace-rank-{rank}.json"));
                trace
                    .export_chrome_trace(&path)
                    .map_err(|e| Error::io(format!("cannot write '{}': {e}", path.display())))?;
                Ok(Some(format!("trace of {} events: rushlight trace {}", trace.events.len(), path.display())))
            }
        }
    }
}

impl Actions {
    /// Sorted by time, with their fraction of the whole run.
    fn table(&self) -> String {
        let whole = self.began.elapsed().as_secs_f64();
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(_, (_, total))| std::cmp::Reverse(*total));
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max("action".len());
        let mut lines = vec![
            format!("{:<width$}  {:>9}  {:>11}  {:>10}  {:>6}", "action", "calls", "mean, ms", "total, s", "%"),
            "─".repeat(width + 44),
        ];
        let share = |seconds: f64| 100.0 * seconds / whole.max(1e-9);
        lines.extend(rows.iter().map(|(name, (count, total))| {
            let total = total.as_secs_f64();
            let mean = total / *count as f64 * 1e3;
            format!("{name:<width$}  {count:>9}  {mean:>11.3}  {total:>10.3}  {:>6.1}", share(total))
        }));
        let known: f64 = rows.iter().map(|(_, (_, total))| total.as_secs_f64()).sum();
        let rest = (whole - known).max(0.0);
        lines.push(format!("{:<width$}  {:>9}  {:>11}  {rest:>10.3}  {:>6.1}", "other", "", "", share(rest)));
        lines.push(format!("{:<width$}  {:>9}  {:>11}  {whole:>10.3}  {:>6.1}", "whole run", "", "", 100.0));
        lines.join("\n")
    }
}
