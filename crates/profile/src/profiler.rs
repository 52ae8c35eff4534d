//! [`Profiler`]: PyTorch's `torch.profiler.profile`.

use crate::record::{self, Category, Options, Trace, add_span, clock};

/// What a step of a schedule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Nothing is recorded.
    None,
    /// Recorded and thrown away: the first recorded steps cost more than later ones.
    Warmup,
    /// Recorded.
    Record,
    /// Recorded; the trace is ready at the end of the step.
    RecordAndSave,
}

/// Which steps are recorded: cycles of `wait`, `warmup` and `active` steps.
///
/// ```
/// # mod rushlight { pub use rushlight_profile as profile; }
/// use rushlight::profile::{Action, Schedule};
/// let schedule = Schedule { wait: 1, warmup: 1, active: 2, repeat: 1, skip_first: 0 };
/// let actions: Vec<Action> = (0..5).map(|step| schedule.action(step)).collect();
/// assert_eq!(actions, [Action::None, Action::Warmup, Action::Record, Action::RecordAndSave, Action::None]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Steps of a cycle that are not recorded.
    pub wait: usize,
    /// Steps after them that are recorded and thrown away.
    pub warmup: usize,
    /// Steps after them that are kept; at least one.
    pub active: usize,
    /// Number of cycles; 0: no end.
    pub repeat: usize,
    /// Steps before the first cycle.
    pub skip_first: usize,
}

impl Schedule {
    /// The action of a step.
    pub fn action(&self, step: usize) -> Action {
        let Some(step) = step.checked_sub(self.skip_first) else { return Action::None };
        let cycle = (self.wait + self.warmup + self.active).max(1);
        if self.repeat > 0 && step / cycle >= self.repeat {
            return Action::None;
        }
        match step % cycle {
            at if at < self.wait => Action::None,
            at if at < self.wait + self.warmup => Action::Warmup,
            at if at + 1 == cycle => Action::RecordAndSave,
            _ => Action::Record,
        }
    }
}

/// Records a program, or some of its steps. One profiler records at a time.
pub struct Profiler {
    options: Options,
    schedule: Option<Schedule>,
    ready: Option<Box<dyn FnMut(&Trace) + Send>>,
    step: usize,
    step_begin: u64,
    action: Action,
    last: Trace,
}

impl Default for Profiler {
    fn default() -> Self {
        Self::new()
    }
}

impl Profiler {
    /// Records everything from [`start`](Profiler::start) to [`stop`](Profiler::stop), work of devices included.
    pub fn new() -> Self {
        Self {
            options: Options { devices: true, ..Options::default() },
            schedule: None,
            ready: None,
            step: 0,
            step_begin: 0,
            action: Action::None,
            last: Trace::default(),
        }
    }

    /// Records shapes of inputs.
    pub fn record_shapes(mut self, on: bool) -> Self {
        self.options.shapes = on;
        self
    }

    /// Records memory in use.
    pub fn profile_memory(mut self, on: bool) -> Self {
        self.options.memory = on;
        self
    }

    /// Records work of devices; on unless turned off.
    pub fn devices(mut self, on: bool) -> Self {
        self.options.devices = on;
        self
    }

    /// Records the steps that a schedule says.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Sees the trace of each cycle.
    pub fn on_trace_ready(mut self, f: impl FnMut(&Trace) + Send + 'static) -> Self {
        self.ready = Some(Box::new(f));
        self
    }

    /// Begins. The error says that another profiler is at work.
    pub fn start(&mut self) -> Result<(), String> {
        self.step_begin = clock();
        let action = self.scheduled();
        self.enter(action)
    }

    fn scheduled(&self) -> Action {
        self.schedule.map_or(Action::Record, |schedule| schedule.action(self.step))
    }

    fn enter(&mut self, action: Action) -> Result<(), String> {
        let (before, records) = (self.action, action > Action::None);
        // A cycle's records restart: after the warm-up, or where a cycle follows another without one.
        let fresh = before == Action::RecordAndSave || (before == Action::Warmup && action > Action::Warmup);
        if before > Action::None && (fresh || !records) {
            let trace = record::stop();
            if before == Action::RecordAndSave {
                self.keep(trace);
            }
        }
        if records && (fresh || before == Action::None) {
            record::start(self.options)?;
        }
        self.action = action;
        Ok(())
    }

    fn keep(&mut self, trace: Trace) {
        self.last = trace;
        if let Some(ready) = &mut self.ready {
            ready(&self.last);
        }
    }

    /// Says that a step of the program is done. An error of another profiler that has begun meanwhile ends this one.
    pub fn step(&mut self) {
        let now = clock();
        if self.action >= Action::Record {
            add_span(Category::Annotation, format!("ProfilerStep#{}", self.step), self.step_begin, now, None);
        }
        self.step += 1;
        if self.schedule.is_some() {
            let action = self.scheduled();
            if self.enter(action).is_err() {
                self.action = Action::None;
            }
        }
        self.step_begin = clock();
    }

    /// Ends recording and returns the current cycle's trace, or the last cycle's if none is active.
    pub fn stop(&mut self) -> &Trace {
        if self.action > Action::None {
            let trace = record::stop();
            if self.action >= Action::Record {
                self.keep(trace);
            }
            self.action = Action::None;
        }
        &self.last
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if self.action > Action::None {
            record::stop();
        }
    }
}
