//! State of a thread that records a step, and the state that replays keep.

use super::better::Better;
use super::{StepOutput, Tensors};
use crate::autograd::{Meta, no_grad};
use crate::program::{self, Noting, Program};
use crate::{Tensor, amp};
use rushlight_core::backend::{self, Graph, Recording, StepPool, call};
use rushlight_core::rng::default_generator;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::Seldom;
use rushlight_core::{Backend, DType, Device, Error, Generator, Layout, Philox, Result, Storage, View};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Whether this thread records; read at every view of a tensor.
static ON: Seldom<bool> = Seldom::new(false, &OWN_ON);
/// Whether this thread refuses calls that cannot be recorded, although it records nothing.
static HOSTLESS: Seldom<bool> = Seldom::new(false, &OWN_HOSTLESS);

thread_local! {
    static OWN_ON: Cell<bool> = const { Cell::new(false) };
    static OWN_HOSTLESS: Cell<bool> = const { Cell::new(false) };
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Runs `f`, in which everything that needs elements on the host, or moves them from there, is refused as in a captured
/// step, whatever the device. Tests find out with it which ops can be captured, on machines that record nothing.
#[doc(hidden)]
pub fn without_host<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            HOSTLESS.set(self.0);
        }
    }
    let _restore = Restore(HOSTLESS.replace(true));
    f()
}

/// Whether an op may look at values on a device: not while its work is recorded. Ops then leave out checks of values,
/// as PyTorch does on a GPU, or take the way that suits all values.
#[inline]
pub(crate) fn may_read(device: Device) -> bool {
    !HOSTLESS.get() && with(|r| r.device == device) != Some(true) && !program::is_holding()
}

/// An error within [`without_host`]: `call` makes a tensor of elements on the host.
#[inline]
pub(crate) fn refuse_elements(call: &str) -> Result<()> {
    if HOSTLESS.get() { Err(refused(call, Device::Cpu)) } else { Ok(()) }
}

#[cold]
fn refused(call: &str, device: Device) -> Error {
    Error::unsupported(format!(
        "{call}: cannot be part of a captured step, as it has to wait for {device} or moves data between it and the host; do it outside \
         the step (on what the step returns, or on its inputs), or run without capture"
    ))
}

/// Numbers of a recorded step that change at each replay. Their owner counts the step and provides the new values.
pub trait ReplayNumbers: Send {
    /// Whether the recording still matches the step: `false` discards it.
    fn fits(&self) -> bool;
    /// Counts a step and writes its numbers, as many and in the same order as when it was recorded.
    fn renew(&mut self, write: &mut dyn FnMut(f64));
    /// The step has been launched with these numbers.
    fn launched(&mut self) {}
    /// Undoes the counting done while recording, if recording fails.
    fn undo(&mut self);
}

/// A range of a step's numbers and who knows them.
struct Source {
    first: usize,
    numbers: Box<dyn ReplayNumbers>,
}

struct Recorder {
    /// No other recording of the process has it.
    id: u64,
    device: Device,
    recording: Box<dyn Recording>,
    /// Notes the calls of the step.
    noting: Noting,
    /// By address: memory that the step uses and did not make.
    held: HashMap<usize, Arc<Storage>>,
    /// Ids of the leaves.
    noted: HashSet<usize>,
    /// The numbers of this step; the first two are the random stream's.
    numbers: Vec<u64>,
    random: u64,
    host: Host,
}

/// A step's effects on the host.
struct Host {
    leaves: Vec<Leaf>,
    sources: Vec<Source>,
    /// The default generator before it.
    start: Philox,
}

/// A leaf whose gradient the step uses.
struct Leaf {
    tensor: Tensor,
    before: Before,
    after: Option<Tensor>,
}

/// A leaf's gradient when the step first used it.
enum Before {
    /// The step cleared or replaced it: it may have been anything.
    Any,
    /// This one, or none.
    Same(Option<Tensor>),
}

fn same(a: Option<&Tensor>, b: Option<&Tensor>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.is_same(b),
        (None, None) => true,
        _ => false,
    }
}

/// Whether this thread records a step.
#[inline]
pub(crate) fn is_recording() -> bool {
    ON.get()
}

fn with<T>(f: impl FnOnce(&mut Recorder) -> T) -> Option<T> {
    if ON.get() { RECORDER.with_borrow_mut(|r| r.as_mut().map(f)) } else { None }
}

/// An error if this thread records a step of `device`, which `call` cannot be part of.
#[inline]
pub(crate) fn refuse(call: &str, device: Device) -> Result<()> {
    if HOSTLESS.get() {
        return Err(refused(call, device));
    }
    program::note_host(call);
    match with(|r| r.device == device) {
        Some(true) => Err(refused(call, device)),
        _ => Ok(()),
    }
}

/// An error if this thread records a step: `call` changes host memory, which a replay would not repeat.
#[inline]
pub fn refuse_host(call: &str) -> Result<()> {
    program::note_host(call);
    if !ON.get() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{call}: cannot be part of a captured step, as it works on the host and would not be done again; call it outside the step, or run \
         without capture"
    )))
}

/// Notes that the step being recorded uses a tensor's memory.
#[cold]
pub(crate) fn note_use(storage: &Arc<Storage>) {
    with(|r| {
        if storage.device() == r.device && !r.recording.owns(storage) {
            r.held.entry(Arc::as_ptr(storage) as usize).or_insert_with(|| storage.clone());
        }
    });
}

fn note_leaf(leaf: &Tensor, before: impl FnOnce() -> Before) {
    with(|r| {
        // Leaves made within the step are not visible afterwards.
        let outer = leaf.device() == r.device && !r.recording.owns(leaf.storage());
        if outer && r.noted.insert(leaf.id()) {
            r.host.leaves.push(Leaf { tensor: leaf.clone(), before: before(), after: None });
        }
    });
}

/// Notes that the step being recorded replaces a leaf's gradient.
#[cold]
pub(crate) fn note_cleared(leaf: &Tensor) {
    note_leaf(leaf, || Before::Any);
}

/// Notes that the step being recorded uses a leaf's current gradient.
#[cold]
pub(crate) fn note_grad(leaf: &Tensor, grad: Option<&Tensor>) {
    note_leaf(leaf, || Before::Same(grad.cloned()));
}

/// Does work at once that belongs to no step although one is being recorded: state that is made on first use.
pub fn outside<T>(f: impl FnOnce() -> T) -> T {
    let Some(_lane) = with(|r| r.recording.outside()) else { return f() };
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            ON.set(true);
        }
    }
    let _again = Again;
    ON.set(false);
    // Not part of the step, so not of its program either.
    program::unnoted(f)
}

/// A stream of random words for work on `device`: in a recorded step, one that continues from replay to replay.
pub(crate) fn random_stream(generator: &Generator, words: u64, device: Device) -> Result<Philox> {
    let stream = generator.reserve(words);
    if device.is_cpu() {
        return Ok(stream);
    }
    if stream.offset >= Philox::LIVE {
        return Err(Error::value("the generator is exhausted: its offset exceeds 2^63; call manual_seed again"));
    }
    let live = with(|r| {
        if r.device != device {
            return Ok(stream);
        }
        if !std::ptr::eq(generator, default_generator()) {
            return Err(Error::unsupported(
                "random numbers of a generator of one's own cannot be part of a captured step; use the default generator, or run without \
                 capture",
            ));
        }
        if stream.seed != r.host.start.seed || stream.offset < r.host.start.offset {
            return Err(Error::unsupported(
                "manual_seed: cannot be part of a captured step; call it outside the step, or run without capture",
            ));
        }
        Ok(Philox::live(r.random, stream.offset - r.host.start.offset))
    });
    live.unwrap_or(Ok(stream))
}

/// Reserves memory for numbers that change. It holds `now` at first, and at each replay the values of `renew`.
/// `None` if nothing is being recorded on `device`.
pub(crate) fn register(device: Device, now: &[f64], numbers: Box<dyn ReplayNumbers>) -> Result<Option<u64>> {
    let done = with(|r| {
        if r.device != device {
            return Ok(None);
        }
        let (first, address) = r.recording.numbers(now.len())?;
        r.numbers.resize(first, 0);
        r.numbers.extend(now.iter().map(|x| x.to_bits()));
        r.host.sources.push(Source { first, numbers });
        Ok(Some(address))
    });
    done.unwrap_or(Ok(None))
}

/// Numbers that change from replay to replay, as tensors of the step being recorded. They hold `now` at first, later
/// the values of `renew`. `None` if no step of `device` is being recorded.
pub fn live_numbers<const N: usize>(
    device: Device,
    now: [f64; N],
    numbers: Box<dyn ReplayNumbers>,
) -> Result<Option<[Tensor; N]>> {
    let Some(address) = register(device, &now, numbers)? else { return Ok(None) };
    let numbers = (0..N).map(|i| on_device(device, address + 8 * i as u64, DType::F64, Box::new(())));
    super::array(numbers.collect::<Result<Tensors>>()?).map(Some)
}

/// One element at an address of a device that `owner` keeps.
fn on_device(device: Device, address: u64, dtype: DType, owner: Box<dyn Any + Send + Sync>) -> Result<Tensor> {
    let Some(ptr) = NonNull::new(address as *mut u8) else { return Err(Error::value("capture: no address")) };
    // SAFETY: an address of the device that the owner, or the recording whose step uses the tensor, keeps.
    let storage = unsafe { Storage::from_owner(rushlight_engines::backend(device)?, ptr, dtype.size(), owner) };
    Ok(Tensor::from_parts(Arc::new(storage), Layout::contiguous(&[])?, dtype, Meta::default()))
}

/// A number that a captured step finds out and the host reads later.
pub struct Readback(Arc<dyn backend::Readback>);

impl Readback {
    /// One for steps of a device; `None` where no step of it is being recorded.
    pub fn new(device: Device) -> Result<Option<Arc<Self>>> {
        match with(|r| r.device == device) {
            Some(true) => Ok(Some(Arc::new(Self(recorder_of(device)?.readback()?)))),
            _ => Ok(None),
        }
    }

    /// Where the step writes it: one `f32`.
    pub fn tensor(&self, device: Device) -> Result<Tensor> {
        on_device(device, self.0.address(), DType::F32, Box::new(self.0.clone()))
    }

    /// To be called before the step is launched.
    pub fn prepare(&self) {
        self.0.prepare();
    }

    /// To be called when the step has been launched.
    pub fn launched(&self) {
        // If the event fails, `wait` may return an error although the step runs.
        let _ = self.0.launched();
    }

    /// The number of the step launched last; waits until the step has written it.
    pub fn wait(&self) -> Result<f32> {
        self.0.wait()
    }
}

/// The engine's half of recording. An error says that the device cannot.
pub(super) fn recorder_of(device: Device) -> Result<&'static dyn backend::Capture> {
    rushlight_engines::backend(device)?.capture().ok_or_else(|| {
        Error::device(format!(
            "capture: work of {device} cannot be recorded as a graph; Capture runs it without recording"
        ))
    })
}

/// Which recording this thread makes, if any.
pub fn recording_id() -> Option<u64> {
    with(|r| r.id)
}

/// Ends this thread's recording, also when the step panics.
pub(super) struct Installed(PhantomData<*const ()>);

impl Installed {
    /// From now on this thread's work on a device is noted.
    pub fn begin(device: Device, pool: &StepPool) -> Result<Self> {
        // Parameters that were converted before would not be converted in replays.
        amp::forget_casts();
        let start = default_generator().state();
        let mut recording = recorder_of(device)?.begin(pool)?;
        let (_, random) = recording.numbers(2)?;
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let recorder = Recorder {
            id: COUNT.fetch_add(1, Relaxed),
            device,
            recording,
            noting: Noting::begin(Some(device)),
            held: HashMap::new(),
            noted: HashSet::new(),
            numbers: vec![start.seed, start.offset],
            random,
            host: Host { leaves: Vec::new(), sources: Vec::new(), start },
        };
        RECORDER.with_borrow_mut(|r| *r = Some(recorder));
        ON.set(true);
        Ok(Self(PhantomData))
    }

    /// Ends recording and returns the recorder, or undoes its counting on failure.
    fn end(self) -> Option<Recorder> {
        ON.set(false);
        RECORDER.with_borrow_mut(Option::take)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        ON.set(false);
        if let Some(recorder) = RECORDER.with_borrow_mut(Option::take) {
            // Drop the driver's recording first: undoing may free memory.
            drop(recorder.recording);
            recorder.host.undo();
        }
    }
}

impl Host {
    /// The step was not recorded after all.
    fn undo(mut self) {
        self.sources.iter_mut().rev().for_each(|r| r.numbers.undo());
        for leaf in &self.leaves {
            leaf.tensor.meta().grad = match &leaf.before {
                Before::Any => None,
                Before::Same(grad) => grad.clone(),
            };
        }
        default_generator().set_state(self.start);
    }
}

/// An output of a step.
struct Output {
    shape: SmallVec<[usize; 4]>,
    dtype: DType,
    slot: usize,
}

/// A step that can be replayed.
pub(super) struct Recorded {
    backend: &'static dyn Backend,
    graph: Box<dyn Graph>,
    inputs: Tensors,
    outputs: Vec<Output>,
    leaves: Vec<Leaf>,
    sources: Vec<Source>,
    numbers: Vec<u64>,
    program: Program,
    /// Until its kernels are compiled.
    better: Option<Better>,
    /// How far a step moves the default generator.
    random_blocks: u64,
    /// Memory that the graph's nodes address and that is not of its pool.
    _held: Vec<Arc<Storage>>,
}

impl Recorded {
    /// Records a step and does it once.
    pub fn record<O: StepOutput>(
        backend: &'static dyn Backend,
        pool: &StepPool,
        inputs: &[Tensor],
        step: impl FnOnce(&[Tensor]) -> Result<O>,
    ) -> Result<(Self, Tensors, O::Form)> {
        let installed = Installed::begin(backend.device(), pool)?;
        // In the inputs' own memory order, which ops and their results follow.
        let own = |t: &Tensor| {
            let layout = t.layout().preserved().with_offset(0);
            let storage = backend.alloc(layout.numel() * t.dtype().size())?;
            Ok(Tensor::from_parts(Arc::new(storage), layout, t.dtype(), Meta::default()))
        };
        let own = inputs.iter().map(own).collect::<Result<Tensors>>()?;
        let (outputs, form) = step(&own)?.into_parts();
        let mut recorded = Self::finish(backend, installed, own, outputs)?;
        let outputs = recorded.launch(inputs)?;
        Ok((recorded, outputs, form))
    }

    /// Ends a recording: a step that reads `inputs` and leaves `outputs`.
    pub fn finish(
        backend: &'static dyn Backend,
        installed: Installed,
        inputs: Tensors,
        outputs: Tensors,
    ) -> Result<Self> {
        amp::forget_casts();
        let outputs: Tensors = no_grad(|| outputs.iter().map(|t| t.detach().contiguous()).collect::<Result<_>>())?;
        if let Some(out) = outputs.iter().find(|t| t.device() != backend.device()) {
            return Err(Error::device(format!(
                "capture: the step runs on {}, but returned a tensor on {}; compute it outside the step",
                backend.device(),
                out.device()
            )));
        }
        outputs.iter().for_each(|t| note_use(t.storage()));
        let Some(recorder) = installed.end() else { return Err(Error::value("capture: the recording was lost")) };
        let Recorder { mut recording, noting, held, mut numbers, host, .. } = recorder;
        let program = noting.take();
        drop(noting);
        program::log("recorded", &program);
        let finish = || -> Result<(Box<dyn Graph>, Vec<Output>)> {
            let (first, _) = recording.numbers(outputs.len())?;
            let places: Vec<(View, usize)> =
                outputs.iter().enumerate().map(|(i, t)| (t.engine_view(), first + i)).collect();
            let output =
                |(view, slot): &(View, usize)| Output { shape: view.shape().into(), dtype: view.dtype(), slot: *slot };
            Ok((recording.finish(&places)?, places.iter().map(output).collect()))
        };
        let (graph, places) = match finish() {
            Ok(done) => done,
            Err(e) => {
                host.undo();
                return Err(e);
            }
        };
        drop(outputs);
        let Host { mut leaves, sources, start } = host;
        // Leaves that the step has made of others' memory are seen by nobody else.
        leaves.retain(|leaf| Arc::strong_count(&leaf.tensor.0) > 1);
        leaves.iter_mut().for_each(|leaf| leaf.after = leaf.tensor.grad());
        let better = Better::new(backend, &program);
        numbers.resize(numbers.len().max(places.last().map_or(0, |p| p.slot + 1)), 0);
        Ok(Self {
            backend,
            graph,
            inputs,
            outputs: places,
            leaves,
            sources,
            numbers,
            program,
            better,
            random_blocks: default_generator().state().offset.wrapping_sub(start.offset),
            _held: held.into_values().collect(),
        })
    }

    /// The step's calls.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Undoes the counting done while recording, for a step that is not run at once. Gradients remain those of the
    /// recording.
    pub fn uncount(&mut self) {
        self.sources.iter_mut().rev().for_each(|r| r.numbers.undo());
        if self.random_blocks > 0 {
            let Philox { seed, offset } = default_generator().state();
            default_generator().set_state(Philox { seed, offset: offset.wrapping_sub(self.random_blocks) });
        }
    }

    /// Whether the optimizers whose numbers the step reads still have the state that it was recorded with.
    pub fn is_current(&self) -> bool {
        self.sources.iter().all(|r| r.numbers.fits())
    }

    /// Whether the gradients that it begins with are there.
    pub fn finds_gradients(&self) -> bool {
        self.leaves.iter().all(|leaf| match &leaf.before {
            Before::Any => true,
            Before::Same(grad) => same(grad.as_ref(), leaf.tensor.meta().grad.as_ref()),
        })
    }

    /// The step once more.
    pub fn replay(&mut self, inputs: &[Tensor]) -> Result<Tensors> {
        for Source { first, numbers } in &mut self.sources {
            let mut at = *first;
            numbers.renew(&mut |x| {
                if let Some(number) = self.numbers.get_mut(at) {
                    *number = x.to_bits();
                }
                at += 1;
            });
        }
        if self.random_blocks > 0 {
            let stream = default_generator().reserve(self.random_blocks.saturating_mul(4));
            self.numbers[..2].copy_from_slice(&[stream.seed, stream.offset]);
        }
        let outputs = self.launch(inputs)?;
        for leaf in &self.leaves {
            let mut meta = leaf.tensor.meta();
            if !same(meta.grad.as_ref(), leaf.after.as_ref()) {
                let old = std::mem::replace(&mut meta.grad, leaf.after.clone());
                drop((meta, old));
            }
        }
        Ok(outputs)
    }

    /// Replays the optimized program from now on, if its kernels are compiled.
    fn improve(&mut self) {
        let Some(better) = &self.better else { return };
        match better.is_ready(self.backend) {
            Ok(true) => {}
            Ok(false) => return,
            Err(e) => {
                rushlight_core::info!("capture: the step is not fused: {e}");
                self.better = None;
                return;
            }
        }
        let Some(better) = self.better.take() else { return };
        // The step is as it was where this fails.
        match better.record(self.backend, &mut *self.graph) {
            Ok(program) => {
                program::log("optimized", &program);
                self.program = program;
            }
            Err(e) => rushlight_core::info!("capture: the fused step was not recorded: {e}"),
        }
    }

    fn launch(&mut self, inputs: &[Tensor]) -> Result<Tensors> {
        self.improve();
        let device = self.backend.device();
        let mut copies: SmallVec<[(View, View); 4]> = SmallVec::new();
        for (from, to) in inputs.iter().zip(&self.inputs) {
            if from.numel() == 0 {
                continue;
            }
            match from.device() {
                own if own == device && from.lies_as(to) => copies.push((from.engine_view(), to.engine_view())),
                own if own == device => to.run(call::Copy { src: from.engine_view(), out: to.engine_view() })?,
                Device::Cpu => no_grad(|| from.in_layout(to.layout()))?.upload_to(to, true)?,
                _ => {
                    let from = no_grad(|| from.to(device))?;
                    to.run(call::Copy { src: from.engine_view(), out: to.engine_view() })?;
                }
            }
        }
        let mut outputs = Tensors::new();
        for Output { shape, dtype, slot } in &self.outputs {
            let out = Tensor::uninit(self.backend, shape, *dtype)?;
            self.numbers[*slot] = out.0.storage.ptr() as u64;
            outputs.push(out);
        }
        self.graph.launch(&self.numbers, &copies)?;
        self.sources.iter_mut().for_each(|r| r.numbers.launched());
        Ok(outputs)
    }
}
