//! Where a step's time went, from a Chrome trace: ours, or one that PyTorch wrote.
//!
//! ```
//! # mod rushlight { pub use rushlight_profile as profile; }
//! use rushlight::profile::summary::Summary;
//! let folder = std::env::temp_dir().join(format!("rushlight-summary-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! let path = folder.join("trace.json");
//! std::fs::write(&path, r#"{"traceEvents": [
//!     {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0", "pid": 1, "tid": 1, "ts": 0, "dur": 1000},
//!     {"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#next",
//!      "pid": 1, "tid": 1, "ts": 0, "dur": 600},
//!     {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 600, "dur": 300}]}"#)?;
//! let summary = Summary::read(&path)?;
//! assert_eq!(summary.steps, 1);
//! assert!(summary.to_string().contains("num_workers"));
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod intervals;
mod read;

pub use read::{TraceEvent, read};

use crate::average::time;
use intervals::Intervals;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// Kinds of host time in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Waiting for the data loader.
    Data,
    /// Ops outside the other parts.
    Forward,
    /// The backward pass.
    Backward,
    /// The optimizer, clearing of gradients included.
    Optimizer,
    /// Collectives that the program waits for.
    Communication,
    /// Waiting for the device: synchronisation, reading of values.
    Waiting,
    /// The program itself, between ops.
    Program,
}

impl Part {
    const ALL: [Part; 7] =
        [Part::Data, Part::Forward, Part::Backward, Part::Optimizer, Part::Communication, Part::Waiting, Part::Program];

    fn label(self) -> &'static str {
        match self {
            Part::Data => "data loading",
            Part::Forward => "forward and other ops",
            Part::Backward => "backward",
            Part::Optimizer => "optimizer",
            Part::Communication => "communication",
            Part::Waiting => "waiting for the device",
            Part::Program => "the program, between ops",
        }
    }

    /// The category that a span's name implies, if any.
    fn of(event: &TraceEvent) -> Option<Part> {
        let name = event.name.as_str();
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        if starts(&["enumerate(DataLoader)", "DataLoader"]) {
            Some(Part::Data)
        } else if starts(&["Optimizer.step", "Optimizer.zero_grad", "optimizer_step", "rushlight::update"]) {
            Some(Part::Optimizer)
        } else if is_communication(name) {
            Some(Part::Communication)
        } else if starts(&["aten::item", "aten::_local_scalar_dense", "cudaStreamSynchronize", "cudaDeviceSynchronize"])
            || starts(&["cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"])
            || starts(&[
                "hipStreamSynchronize",
                "hipDeviceSynchronize",
                "rushlight::synchronize",
                "rushlight::download",
            ])
        {
            Some(Part::Waiting)
        } else if starts(&["autograd::engine::evaluate_function", "torch::autograd::AccumulateGrad", "backward"])
            || (name.ends_with("Backward0") && event.category == "cpu_op")
        {
            Some(Part::Backward)
        } else {
            None
        }
    }
}

fn is_communication(name: &str) -> bool {
    ["nccl", "ncclDevKernel", "ncclKernel", "rccl", "gloo:", "c10d::", "mpi:", "shm:", "tcp:", "device:", "ccl:"]
        .iter()
        .any(|p| name.starts_with(p))
}

/// A name, its total time and its number of calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The name.
    pub name: String,
    /// Microseconds in all.
    pub time: f64,
    /// Number of calls.
    pub count: usize,
}

/// Where the time of a trace's steps went. Times are microseconds, of all steps together.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many steps the trace marks; 0 if it marks none, and the whole trace is taken as one.
    pub steps: usize,
    /// Time of the steps.
    pub wall: f64,
    /// Time of the fastest and the slowest step.
    pub range: (f64, f64),
    /// Host time by kind.
    pub parts: HashMap<Part, f64>,
    /// Time in which a device worked; 0 without devices.
    pub device_busy: f64,
    /// Of it, time in which nothing but collectives ran.
    pub exposed_communication: f64,
    /// Time in which a device only copied.
    pub copies: f64,
    /// Whether the trace has work of a device.
    pub has_device: bool,
    /// Kernels, and their time together.
    pub kernels: (usize, f64),
    /// Ops by the time they took themselves.
    pub ops: Vec<Item>,
    /// Kernels by name.
    pub top_kernels: Vec<Item>,
    /// Copies from pageable memory of the host.
    pub pageable_copies: f64,
}

impl Summary {
    /// Reads a trace and sums it up. The error says what is wrong with the file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, String> {
        let events = read(&path)?;
        if events.is_empty() {
            return Err(format!("{}: the trace has no complete events", path.as_ref().display()));
        }
        Ok(Self::of(&events))
    }

    /// Sums up events, which are in the order of their begin.
    pub fn of(events: &[TraceEvent]) -> Self {
        let steps: Vec<&TraceEvent> =
            events.iter().filter(|e| e.name.starts_with("ProfilerStep") && e.category == "user_annotation").collect();
        let windows: Vec<(f64, f64)> = if steps.is_empty() {
            let end = events.iter().map(TraceEvent::end).fold(f64::MIN, f64::max);
            vec![(events.first().map_or(0.0, |e| e.ts), end)]
        } else {
            steps.iter().map(|e| (e.ts, e.end())).collect()
        };
        let inside = |e: &&TraceEvent| {
            let at = windows.partition_point(|(_, end)| *end <= e.ts);
            windows.get(at).is_some_and(|(start, _)| e.end() > *start)
        };
        let mut out = Summary { steps: steps.len(), wall: windows.iter().map(|(a, b)| b - a).sum(), ..Self::default() };
        let lengths = windows.iter().map(|(a, b)| b - a);
        out.range = (lengths.clone().fold(f64::MAX, f64::min), lengths.fold(0.0, f64::max));
        let main = match steps.first() {
            Some(step) => (step.pid.clone(), step.tid.clone()),
            None => busiest_thread(events),
        };
        out.host(events, &windows, &main);
        out.device(events.iter().filter(|e| e.is_device()).filter(inside), &windows);
        out
    }

    /// Sums up the main thread's time and the longest ops of all threads.
    fn host<'a>(&mut self, events: &'a [TraceEvent], windows: &[(f64, f64)], main: &(String, String)) {
        let mut stacks: HashMap<(&str, &str), Vec<Open<'a>>> = HashMap::new();
        let mut ops: HashMap<&str, (f64, usize)> = HashMap::new();
        let mut covered = Vec::new();
        let mut elsewhere = Vec::new();
        let mut parts: HashMap<Part, f64> = HashMap::new();
        let mut finish = |open: Open<'a>, on_main: bool| {
            let own = (open.event.dur - open.children).max(0.0);
            if open.event.category == "cpu_op" {
                let op = ops.entry(&open.event.name).or_default();
                *op = (op.0 + own, op.1 + 1);
            }
            if on_main && let Some(part) = open.part {
                *parts.entry(part).or_default() += own;
            }
        };
        for event in events.iter().filter(|e| !e.is_device() && host_category(&e.category)) {
            let at = windows.partition_point(|(_, end)| *end <= event.ts);
            if event.name.starts_with("ProfilerStep") || windows.get(at).is_none_or(|(start, _)| event.end() <= *start)
            {
                continue;
            }
            let on_main = event.pid == main.0 && event.tid == main.1;
            let stack = stacks.entry((&event.pid, &event.tid)).or_default();
            while let Some(top) = stack.pop() {
                if top.event.end() >= event.end() && top.event.end() > event.ts {
                    stack.push(top);
                    break;
                }
                finish(top, on_main);
            }
            let parent = stack.last_mut().map(|parent| {
                parent.children += event.dur;
                parent.part
            });
            let own = Part::of(event).or(parent.flatten());
            let part = own.or((event.category == "cpu_op").then_some(Part::Forward));
            if on_main && part.is_some() && parent.flatten().is_none() {
                covered.push((event.ts, event.end()));
            }
            if !on_main && part == Some(Part::Backward) && parent.is_none() {
                elsewhere.push((event.ts, event.end()));
            }
            stack.push(Open { event, children: 0.0, part });
        }
        for ((pid, tid), stack) in stacks {
            let on_main = pid == main.0 && tid == main.1;
            for open in stack.into_iter().rev() {
                finish(open, on_main);
            }
        }
        // PyTorch runs the backward pass of a GPU on a separate thread while the program waits.
        let behind = Intervals::union(elsewhere.into_iter()).minus(&Intervals::union(covered.into_iter()));
        let behind: f64 = windows.iter().map(|(a, b)| behind.within(*a, *b)).sum();
        *parts.entry(Part::Backward).or_default() += behind;
        let known: f64 = parts.values().sum();
        parts.insert(Part::Program, (self.wall - known).max(0.0));
        self.parts = parts;
        self.ops = ranked(ops);
    }

    /// Sums up the devices' time.
    fn device<'a>(&mut self, events: impl Iterator<Item = &'a TraceEvent>, windows: &[(f64, f64)]) {
        let (mut compute, mut communication, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        let mut kernels: HashMap<&str, (f64, usize)> = HashMap::new();
        for event in events {
            self.has_device = true;
            let span = (event.ts, event.end());
            if event.category != "kernel" {
                if event.name.contains("Pageable") {
                    self.pageable_copies += event.dur;
                }
                copies.push(span);
                continue;
            }
            let list = if is_communication(&event.name) { &mut communication } else { &mut compute };
            list.push(span);
            self.kernels = (self.kernels.0 + 1, self.kernels.1 + event.dur);
            let kernel = kernels.entry(&event.name).or_default();
            *kernel = (kernel.0 + event.dur, kernel.1 + 1);
        }
        let all = Intervals::union(compute.iter().chain(&communication).chain(&copies).copied());
        let compute = Intervals::union(compute.into_iter());
        let exposed = Intervals::union(communication.iter().copied()).minus(&compute);
        let copies = Intervals::union(copies.into_iter()).minus(&compute).minus(&exposed);
        let total = |set: &Intervals| windows.iter().map(|(a, b)| set.within(*a, *b)).sum::<f64>();
        (self.device_busy, self.exposed_communication, self.copies) = (total(&all), total(&exposed), total(&copies));
        self.top_kernels = ranked(kernels);
    }

    fn share(&self, time: f64) -> f64 {
        // The sum of no times is a negative zero.
        if self.wall > 0.0 { time / self.wall + 0.0 } else { 0.0 }
    }

    /// Advice, the most important first.
    pub fn advice(&self) -> Vec<String> {
        let part = |part: Part| self.share(self.parts.get(&part).copied().unwrap_or(0.0));
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut found: Vec<(f64, String)> = Vec::new();
        let mut advise = |share: f64, least: f64, text: String| {
            if share >= least {
                found.push((share, text));
            }
        };
        advise(
            part(Part::Data),
            0.1,
            format!(
                "{} of the time the program waits for data: raise the loader's num_workers, keep them (persistent_workers), do less in \
                 the dataset's transforms or store their results",
                percent(part(Part::Data))
            ),
        );
        if self.has_device {
            let idle = 1.0 - self.share(self.device_busy);
            let short = self.kernels.0 > 0 && self.kernels.1 / (self.kernels.0 as f64) < 15.0;
            let reason = if part(Part::Data) > 0.5 * idle {
                "it waits for data"
            } else if short {
                "kernels are short, so launching them is what takes the time: capture the step (Capture in Rust, torch.compile or CUDAGraph in \
                 Python), or use larger batches"
            } else {
                "the host does not keep up: look for reads of values (item, print) within the step, and for work between ops"
            };
            advise(idle, 0.15, format!("the device is idle {} of the time: {reason}", percent(idle)));
            let exposed = self.share(self.exposed_communication);
            advise(
                exposed,
                0.1,
                format!(
                    "{} of the time only collectives run: accumulate gradients over several batches (no_sync), use larger buckets or \
                     half-precision gradients, or give each rank more work",
                    percent(exposed)
                ),
            );
            advise(
                self.share(self.copies),
                0.05,
                format!(
                    "{} of the time the device only copies: pin the loader's memory (pin_memory) and copy with non_blocking",
                    percent(self.share(self.copies))
                ),
            );
            advise(
                part(Part::Waiting),
                0.1,
                format!(
                    "{} of the time the program waits for the device: read the loss only every N steps",
                    percent(part(Part::Waiting))
                ),
            );
            let single: f64 = self.top_kernels.iter().filter(|k| is_single_precision(&k.name)).map(|k| k.time).sum();
            advise(
                single / self.kernels.1.max(1.0),
                0.3,
                "products run in single precision without tensor cores: allow TF32 (set_float32_matmul_precision) or use autocast with bf16"
                    .into(),
            );
        } else {
            advise(
                part(Part::Communication),
                0.1,
                format!(
                    "{} of the time the program waits for collectives: accumulate gradients over several batches (no_sync), or give each \
                     rank more work",
                    percent(part(Part::Communication))
                ),
            );
        }
        advise(
            part(Part::Optimizer),
            0.2,
            format!(
                "{} of the time goes to the optimizer: larger batches, or accumulation, need fewer of its steps",
                percent(part(Part::Optimizer))
            ),
        );
        advise(
            part(Part::Program),
            0.25,
            format!(
                "{} of the time passes between ops, in the program itself: many small ops, logging or Python loops; larger batches or a \
                 captured step help",
                percent(part(Part::Program))
            ),
        );
        let uneven = self.range.1 / self.range.0.max(1e-9);
        if self.steps >= 5 && uneven > 1.5 {
            let text = format!("steps take from {} to {}: look at the slow ones", us(self.range.0), us(self.range.1));
            found.push((0.0, text));
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.into_iter().map(|(_, text)| text).collect()
    }
}

struct Open<'a> {
    event: &'a TraceEvent,
    children: f64,
    part: Option<Part>,
}

fn host_category(category: &str) -> bool {
    matches!(category, "cpu_op" | "user_annotation" | "cuda_runtime" | "cuda_driver" | "xpu_runtime" | "hip_runtime")
}

fn is_single_precision(kernel: &str) -> bool {
    kernel.contains("sgemm") || kernel.contains("_simt_") || kernel.contains("s1688gemm_32")
}

/// The thread with most time in ops.
fn busiest_thread(events: &[TraceEvent]) -> (String, String) {
    let mut threads: HashMap<(&str, &str), f64> = HashMap::new();
    for event in events.iter().filter(|e| e.category == "cpu_op") {
        *threads.entry((&event.pid, &event.tid)).or_default() += event.dur;
    }
    let most = threads.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or_else(Default::default, |((pid, tid), _)| (pid.into(), tid.into()))
}

fn ranked(items: HashMap<&str, (f64, usize)>) -> Vec<Item> {
    let mut out: Vec<Item> =
        items.into_iter().map(|(name, (time, count))| Item { name: name.into(), time, count }).collect();
    out.sort_by(|a, b| b.time.total_cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    out
}

fn us(time_us: f64) -> String {
    time((time_us * 1e3) as u64)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.steps {
            0 => writeln!(f, "no steps are marked: the whole trace, {}", us(self.wall))?,
            1 => writeln!(f, "1 step of {}", us(self.wall))?,
            n => writeln!(
                f,
                "{n} steps, {} on average ({} to {})",
                us(self.wall / n as f64),
                us(self.range.0),
                us(self.range.1)
            )?,
        }
        let per_step = self.steps.max(1) as f64;
        writeln!(f, "\nthe host                     a step    share")?;
        for part in Part::ALL {
            let time = self.parts.get(&part).copied().unwrap_or(0.0);
            if time > 0.0 {
                let bar = "#".repeat((self.share(time) * 40.0).round() as usize);
                writeln!(
                    f,
                    "  {:<24} {:>10}  {:>5.1} %  {bar}",
                    part.label(),
                    us(time / per_step),
                    100.0 * self.share(time)
                )?;
            }
        }
        if self.has_device {
            writeln!(f, "\nthe devices                  a step    share")?;
            let rows = [
                ("busy", self.device_busy),
                ("  only collectives", self.exposed_communication),
                ("  only copies", self.copies),
                ("idle", (self.wall - self.device_busy).max(0.0)),
            ];
            for (label, time) in rows {
                writeln!(f, "  {label:<24} {:>10}  {:>5.1} %", us(time / per_step), 100.0 * self.share(time))?;
            }
        }
        let lists = [("ops (own time)", &self.ops), ("kernels", &self.top_kernels)];
        for (title, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            writeln!(f, "\n{title}")?;
            for item in list.iter().take(10) {
                let name: String = item.name.chars().take(60).collect();
                writeln!(f, "  {name:<60} {:>10}  {:>8} calls", us(item.time), item.count)?;
            }
        }
        let advice = self.advice();
        writeln!(f, "\nwhat would help")?;
        if advice.is_empty() {
            writeln!(f, "  no bottleneck found: the ops themselves take the time")?;
        }
        for text in advice {
            writeln!(f, "  - {text}")?;
        }
        Ok(())
    }
}
