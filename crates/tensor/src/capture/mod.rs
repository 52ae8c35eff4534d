//! Training steps that are recorded once and replayed as one graph of the device.

mod better;
mod graph;
mod recorder;

pub use graph::{Graph, GraphRecording, graph_pool};
pub use recorder::{Readback, ReplayNumbers, live_numbers, outside, recording_id, refuse_host, without_host};
pub(crate) use recorder::{
    is_recording, may_read, note_cleared, note_grad, note_use, random_stream, refuse, refuse_elements, register,
};
pub use rushlight_core::backend::StepPool;

use crate::Tensor;
use crate::program::Program;
use crate::recordings::{Form, Recordings, Shaped, array, replayed};
pub use crate::recordings::{StepOutput, Tensors};
use crate::tensor::backend;
use recorder::Recorded;
use rushlight_core::{Device, Result};

/// Steps that are recorded once for each shape of their inputs and then replayed.
///
/// On a GPU the launches of a small step cost more than their work. A `Capture` runs a step normally a few times,
/// which are steps like any other and make optimizer state, kernels and plans; then it records one: forward, backward,
/// clipping, the optimizer, all that the closure does. From then on a call copies the inputs to where the recorded step
/// reads them and launches the whole step at once, without running the closure. On the CPU the closure simply runs.
///
/// ```
/// # use rushlight_tensor::{Capture, Tensor};
/// let w = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
/// let mut capture = Capture::new();
/// for i in 0..5 {
///     let x = Tensor::full([2], i as f64)?;
///     let loss = capture.run(&[x], |[x]| {
///         w.zero_grad();
///         let loss = w.mul(x)?.sum(..)?;
///         loss.backward()?;
///         Ok(loss)
///     })?;
///     assert_eq!(loss.item::<f32>()?, 3.0 * i as f32);
///     assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [i as f32; 2]);
/// }
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// A replay repeats the work on the device. These things are new at every call: the inputs; random numbers (the
/// default generator continues as if the step had run); and an optimizer's learning rate,
/// options and number of steps. So losses equal those of steps without capture, state dicts and schedules work as
/// ever, and a schedule's `step` belongs after [`run`](Capture::run), outside the closure. Everything else that the
/// closure computes on the host happens only while it is recorded: branches, Python-like counters, numbers that
/// multiply a loss. Pass changing values as inputs.
///
/// - Inputs are data: no gradient flows to them.
/// - Outputs are new tensors at every call, without autograd history. Gradients (`.grad`) of a
///   replayed step are the recorded tensors, with new values.
/// - Inputs of another shape or dtype, another grad mode or `autocast` get another recording, up to
///   [`max_graphs`](Capture::max_graphs); more run without capture. Recordings share memory. A model's `train()` and
///   `eval()` need a `Capture` each.
/// - Calls that wait for the device or read values (`item`, `to_vec`, printing, `nonzero`, copies from and to the
///   host) cannot be recorded: `run` returns an error that names the call and leaves everything unchanged;
///   [`set_enabled(false)`](Capture::set_enabled) continues without capture.
/// - Tensors that a recorded step uses are kept until the `Capture` is dropped or [`clear`](Capture::clear)ed.
pub struct Capture {
    device: Option<Device>,
    enabled: bool,
    warmup: usize,
    max_graphs: usize,
    kinds: Recordings<Shaped, Steps>,
    pool: Option<StepPool>,
    told: bool,
}

impl Default for Capture {
    fn default() -> Self {
        Self::new()
    }
}

/// Steps with one kind of inputs.
#[derive(Default)]
struct Steps {
    /// Those that ran before one was recorded.
    runs: usize,
    /// Those that find gradients to add to, and those that find none, for example.
    recorded: Vec<(Recorded, Form)>,
}

impl Capture {
    /// Nothing is recorded yet.
    pub fn new() -> Self {
        Self {
            device: None,
            enabled: true,
            warmup: 2,
            max_graphs: 8,
            kinds: Recordings::default(),
            pool: None,
            told: false,
        }
    }

    /// Where steps run; inputs are moved there, those in pinned memory without waiting for the copy. If not said, where
    /// the first input is.
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Whether steps are recorded; if not, closures simply run.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Number of calls per kind of inputs that run normally before one is recorded: 2 by default, at least 1.
    pub fn warmup(mut self, calls: usize) -> Self {
        self.warmup = calls.max(1);
        self
    }

    /// Most recordings that are kept: 8.
    pub fn max_graphs(mut self, count: usize) -> Self {
        self.max_graphs = count;
        self
    }

    /// Changes [`enabled`](Capture::enabled).
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// How many recordings there are.
    pub fn graphs(&self) -> usize {
        self.kinds.values().map(|steps| steps.recorded.len()).sum()
    }

    /// The calls of each recorded step, over numbered buffers.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.kinds.values().flat_map(|steps| &steps.recorded).map(|(recorded, _)| recorded.program())
    }

    /// Forgets all recordings; the next calls make new ones.
    pub fn clear(&mut self) {
        self.kinds.clear();
        self.pool = None;
    }

    /// Runs a step: calls `step`, records it, or replays its recording.
    pub fn run<const N: usize, O: StepOutput>(
        &mut self,
        inputs: &[Tensor; N],
        step: impl FnOnce(&[Tensor; N]) -> Result<O>,
    ) -> Result<O> {
        self.run_kind((), inputs, |own| step(&array(own.iter().cloned().collect())?))
    }

    /// [`run`](Capture::run) for a number of inputs not known at compile time and for several kinds of steps. Kinds are
    /// values of any type; they are recorded separately and share memory.
    pub fn run_kind<K: PartialEq + Send + 'static, O: StepOutput>(
        &mut self,
        kind: K,
        inputs: &[Tensor],
        step: impl FnOnce(&[Tensor]) -> Result<O>,
    ) -> Result<O> {
        let device = self.device.or_else(|| inputs.first().map(Tensor::device)).unwrap_or_default();
        let can_record = || -> Result<bool> { Ok(backend(device)?.capture().is_some()) };
        if !self.enabled || is_recording() || !can_record()? {
            return plain(inputs, device, step);
        }
        let at = match self.kinds.find(&kind, inputs) {
            Some(at) => at,
            None => self.kinds.add(kind, inputs, Steps::default()),
        };
        let steps = &mut self.kinds[at];
        // An optimizer that was loaded has other state than its recordings.
        if steps.recorded.iter().any(|(recorded, _)| !recorded.is_current()) {
            steps.recorded.retain(|(recorded, _)| recorded.is_current());
            steps.runs = steps.runs.min(self.warmup - 1);
        }
        if let Some((recorded, form)) = steps.recorded.iter_mut().find(|(recorded, _)| recorded.finds_gradients()) {
            return replayed(recorded.replay(inputs)?, form);
        }
        if steps.runs < self.warmup {
            steps.runs += 1;
            return plain(inputs, device, step);
        }
        if self.graphs() >= self.max_graphs {
            if !std::mem::replace(&mut self.told, true) {
                rushlight_core::warn!(
                    "{} kinds of steps are captured, more run without; raise Capture::max_graphs, or pad inputs to fewer shapes",
                    self.max_graphs
                );
            }
            return plain(inputs, device, step);
        }
        let pool = match &self.pool {
            Some(pool) if pool.device == device => pool.clone(),
            _ => self.pool.insert(graph_pool(device)?).clone(),
        };
        let (recorded, outputs, form) = Recorded::record(backend(device)?, &pool, inputs, step)?;
        let output = O::from_parts(outputs, &form);
        self.kinds[at].recorded.push((recorded, Box::new(form)));
        output
    }
}

/// Runs a step without capture, with the inputs and outputs of a recorded one.
fn plain<O: StepOutput>(inputs: &[Tensor], device: Device, step: impl FnOnce(&[Tensor]) -> Result<O>) -> Result<O> {
    let own = inputs.iter().map(|t| Ok(t.to(device)?.detach())).collect::<Result<Tensors>>()?;
    let (outputs, form) = step(&own)?.into_parts();
    O::from_parts(outputs.iter().map(Tensor::detach).collect(), &form)
}

/// A step with its [`Capture`]: made by [`capture`].
pub struct Step<F> {
    capture: Capture,
    step: F,
}

/// Captures a step: the first calls of [`Step::run`] run the closure, one records it, later ones replay it with new
/// inputs. [`Capture`] documents the rules; it takes a closure at each call, for steps that borrow variables used
/// between calls.
///
/// ```
/// # use rushlight_tensor::{Tensor, capture};
/// let w = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
/// let mut step = capture(|[x]: &[Tensor; 1]| w.mul(x)?.sum(..));
/// assert_eq!(step.run(&[Tensor::new([1.0f32, 1.0])?])?.item::<f32>()?, 3.0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn capture<const N: usize, O: StepOutput, F: FnMut(&[Tensor; N]) -> Result<O>>(step: F) -> Step<F> {
    Step { capture: Capture::new(), step }
}

impl<F> Step<F> {
    /// With other settings.
    pub fn with(mut self, capture: Capture) -> Self {
        self.capture = capture;
        self
    }

    /// The settings and recordings.
    pub fn capture(&mut self) -> &mut Capture {
        &mut self.capture
    }

    /// A step with these inputs.
    pub fn run<const N: usize, O: StepOutput>(&mut self, inputs: &[Tensor; N]) -> Result<O>
    where
        F: FnMut(&[Tensor; N]) -> Result<O>,
    {
        self.capture.run(inputs, &mut self.step)
    }
}
