//! Functions that are recorded once for each kind of inputs and then run as programs, forward and backward.

use crate::autograd::{Backward, Context, Function, Meta, apply, backward_from, leaves, mode, no_grad, root};
use crate::program::{Noting, Program, Runner, Slot, is_noting};
use crate::recordings::{Form, Placed, Recordings, StepOutput, Tensors, array, replayed};
use crate::{Tensor, amp};
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Philox, Result, Storage};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

/// A function's recordings: [`compile`] makes one with its function.
///
/// The first call with inputs of a kind (dtypes, layouts, devices, gradients, grad mode, autocast) runs the function
/// and notes the engine's calls, and those of the backward pass. Passes fuse and thin them out
/// ([`passes`](crate::program::passes)). Later calls run the program instead of the function: without the tape, without
/// checks. Results have a history, so a compiled model trains as any other. Memory that the function uses besides its
/// inputs, such as parameters, is that of the recording; a new recording is made where nobody else refers to it any
/// more.
///
/// A function that reads values on the host, returns its inputs' memory, or changes an input that needs a gradient,
/// cannot be held as a program: it simply runs, and [`reasons`](Compile::reasons) says why.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, compile};
/// let w = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
/// let mut f = compile(|[x]: &[Tensor; 1]| w.mul(x)?.tanh()?.sum(..));
/// for i in 0..3 {
///     let x = Tensor::full([2], i as f64)?;
///     w.zero_grad();
///     f.run(&[x.clone()])?.backward()?;
///     let ours = w.grad().unwrap().to_vec::<f32>()?;
///     w.zero_grad();
///     w.mul(&x)?.tanh()?.sum(..)?.backward()?;
///     assert_eq!(ours, w.grad().unwrap().to_vec::<f32>()?);
/// }
/// assert_eq!(f.compiled().recordings(), 1);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Compile {
    max: usize,
    enabled: bool,
    constant: bool,
    kinds: Recordings<Placed, State>,
}

impl Default for Compile {
    fn default() -> Self {
        Self { max: 8, enabled: true, constant: false, kinds: Recordings::default() }
    }
}

enum State {
    Recorded(Arc<Joint>, Form),
    /// The function runs, for this reason.
    Plain(String),
}

impl Compile {
    /// Most recordings; inputs of further kinds run the function. 8 by default.
    pub fn max_recordings(mut self, count: usize) -> Self {
        self.max = count;
        self
    }

    /// Whether memory that the function uses besides its inputs stays as it is: engines then keep weights in their own
    /// layout. A change makes a new recording. No by default.
    pub fn constant(mut self, constant: bool) -> Self {
        self.constant = constant;
        self
    }

    /// Whether calls are recorded.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// How many recordings there are.
    pub fn recordings(&self) -> usize {
        self.joints().count()
    }

    fn joints(&self) -> impl Iterator<Item = &Joint> {
        self.kinds.values().filter_map(|state| match state {
            State::Recorded(joint, _) => Some(&**joint),
            State::Plain(_) => None,
        })
    }

    /// Why inputs of some kinds run the function.
    pub fn reasons(&self) -> Vec<String> {
        let reason = |state: &State| match state {
            State::Plain(reason) => Some(reason.clone()),
            State::Recorded(..) => None,
        };
        self.kinds.values().filter_map(reason).collect()
    }

    /// The programs of all recordings, forward then backward.
    pub fn programs(&self) -> Vec<&Program> {
        self.joints()
            .flat_map(|joint| std::iter::once(&joint.forward).chain(&joint.backward).map(Runner::program))
            .collect()
    }

    /// Why the function runs for inputs of this kind, if that is so.
    pub fn reason<K: PartialEq + Send + 'static>(&self, kind: &K, inputs: &[Tensor]) -> Option<&str> {
        match &self.kinds[self.kinds.find(kind, inputs)?] {
            State::Plain(reason) => Some(reason),
            State::Recorded(..) => None,
        }
    }

    /// From now on the function runs for inputs of this kind.
    pub fn refuse<K: PartialEq + Send + 'static>(&mut self, kind: K, inputs: &[Tensor], reason: &str) {
        let state = State::Plain(reason.into());
        match self.kinds.find(&kind, inputs) {
            Some(at) => self.kinds[at] = state,
            None => {
                self.kinds.add(kind, inputs, state);
            }
        }
    }

    /// Forgets all recordings.
    pub fn clear(&mut self) {
        self.kinds.clear();
    }

    /// Calls `f` on the inputs, or runs its recording. Each kind, a value of any type, has recordings of its own.
    pub fn run_kind<K: PartialEq + Send + 'static, O: StepOutput>(
        &mut self,
        kind: K,
        inputs: &[Tensor],
        f: impl FnOnce(&[Tensor]) -> Result<O>,
    ) -> Result<O> {
        // Within a recording its calls are part of that one.
        if !self.enabled || is_noting() {
            return f(inputs);
        }
        let mut known = self.kinds.find(&kind, inputs);
        if let Some(at) = known
            && let State::Recorded(joint, _) = &self.kinds[at]
            && !joint.is_current()
        {
            self.kinds.remove(at);
            known = None;
        }
        match known.map(|at| &self.kinds[at]) {
            Some(State::Recorded(joint, form)) => return replayed(joint.clone().call(inputs)?, form),
            Some(State::Plain(_)) => return f(inputs),
            None => {}
        }
        if self.kinds.count() >= self.max {
            return f(inputs);
        }
        let shared = inputs.iter().enumerate().any(|(i, t)| inputs[..i].iter().any(|other| other.shares_storage(t)));
        if shared {
            self.kinds.add(kind, inputs, State::Plain("two inputs share memory".into()));
            return f(inputs);
        }
        let (joint, outputs, form) = record(inputs, self.constant, f)?;
        let output = O::from_parts(outputs, &form);
        let state = match joint {
            Ok(joint) => State::Recorded(joint, Box::new(form)),
            Err(reason) => State::Plain(reason),
        };
        self.kinds.add(kind, inputs, state);
        output
    }
}

/// A function with its recordings: made by [`compile`].
pub struct Compiled<F> {
    compiled: Compile,
    function: F,
}

/// Compiles a function of tensors: see [`Compile`].
pub fn compile<const N: usize, O: StepOutput, F: FnMut(&[Tensor; N]) -> Result<O>>(function: F) -> Compiled<F> {
    Compiled { compiled: Compile::default(), function }
}

impl<F> Compiled<F> {
    /// The recordings.
    pub fn compiled(&mut self) -> &mut Compile {
        &mut self.compiled
    }

    /// Calls the function, or its recording.
    pub fn run<const N: usize, O: StepOutput>(&mut self, inputs: &[Tensor; N]) -> Result<O>
    where
        F: FnMut(&[Tensor; N]) -> Result<O>,
    {
        let Self { compiled, function } = self;
        compiled.run_kind((), inputs, |own| function(&array(own.iter().cloned().collect())?))
    }
}

/// Within a function that is being recorded: it cannot be held as a program, for this reason.
pub fn break_graph(reason: &str) {
    crate::program::note_break(|| reason.to_string());
}

/// The programs of a function: forward, and backward where a gradient is needed.
struct Joint {
    forward: Runner,
    backward: Option<Runner>,
    /// The buffer of each input, if the function uses it.
    inputs: Vec<Option<usize>>,
    /// Whether a gradient flows to each input.
    wanted: Vec<bool>,
    /// Parameters and other leaves that gradients flow to.
    leaves: Vec<Tensor>,
    /// Other memory from outside.
    held: Vec<(usize, Arc<Storage>)>,
    /// Of the held memory, that which was made before the recording: a tensor outside refers to it.
    foreign: Vec<Arc<Storage>>,
    /// Of the held memory, that whose changes make the recording void: its version, if it is such.
    versions: Vec<Option<u32>>,
    outputs: Vec<Slot>,
    /// Forward's own buffers that backward reads.
    saved: Vec<usize>,
    /// Memory from outside that backward reads, whose changes are errors.
    watched: Vec<usize>,
    /// Buffers from outside that forward writes.
    changed: Vec<usize>,
    /// Of each output: the buffer of its gradient.
    gradients: Vec<Option<usize>>,
    /// Gradients of the wanted inputs, then of the leaves.
    results: Vec<Option<Slot>>,
    start: Philox,
    blocks: u64,
}

/// The programs, or why the function cannot be held as programs.
type Held = std::result::Result<Arc<Joint>, String>;

/// Runs a function, notes its calls and makes programs of them.
fn record<O: StepOutput>(
    inputs: &[Tensor],
    constant: bool,
    f: impl FnOnce(&[Tensor]) -> Result<O>,
) -> Result<(Held, Tensors, O::Form)> {
    let grad = mode::is_grad_enabled();
    let own = inputs
        .iter()
        .map(|t| if t.requires_grad() && grad { t.detach().requires_grad_(true) } else { Ok(t.detach()) })
        .collect::<Result<Vec<_>>>()?;
    amp::forget_casts();
    let start = default_generator().state();
    let noting = Noting::begin_holding();
    let (outputs, form) = f(&own)?.into_parts();
    amp::forget_casts();
    let blocks = default_generator().state().offset.wrapping_sub(start.offset);
    let forward_calls = noting.len();
    let needs: Vec<bool> = outputs.iter().map(|t| grad && t.requires_grad()).collect();
    let roots: Vec<&Tensor> = outputs.iter().zip(&needs).filter(|(_, needs)| **needs).map(|(t, _)| t).collect();
    let reached = leaves(&roots);
    let is_input = |t: &Tensor| own.iter().any(|input| input.is_same(t));
    let wanted: Vec<bool> = own.iter().map(|t| reached.iter().any(|leaf| leaf.is_same(t))).collect();
    let leaves: Vec<Tensor> = reached.into_iter().filter(|t| !is_input(t)).collect();
    let mut gradients: Vec<Option<Tensor>> = Vec::new();
    let mut found = Vec::new();
    if !roots.is_empty() {
        let ones = |(t, needs): (&Tensor, &bool)| {
            if *needs {
                crate::program::unnoted(|| no_grad(|| t.detach().ones_like()?.contiguous())).map(Some)
            } else {
                Ok(None)
            }
        };
        gradients = outputs.iter().zip(&needs).map(ones).collect::<Result<_>>()?;
        let edges: Vec<_> = own
            .iter()
            .zip(&wanted)
            .filter(|(_, wanted)| **wanted)
            .map(|(t, _)| t)
            .chain(&leaves)
            .filter_map(Tensor::gradient_edge)
            .collect();
        // A copy is the program's own: backward may add to it, and pass it on as a result.
        let mut starts = Vec::new();
        for (t, gradient) in outputs.iter().zip(&gradients) {
            if let Some(gradient) = gradient {
                starts.push(root(t, Some(&no_grad(|| gradient.copy())?))?);
            }
        }
        let options = Backward::default().retain_graph(true).allow_unused(true);
        found = backward_from(starts, options, Some(&edges))?;
    }
    let noted = noting.end();
    drop(noting);
    let plain = |reason: String, outputs: &Tensors, form: O::Form| -> Result<(Held, Tensors, O::Form)> {
        // The results of this call need their history: that of the own inputs leads to the caller's.
        let outputs =
            if wanted.iter().any(|w| *w) { connect(inputs, &own, &wanted, outputs)? } else { outputs.clone() };
        Ok((Err(reason), outputs, form))
    };
    if let Some(call) = noted.broken {
        return plain(call, &outputs, form);
    }
    let program = noted.program;
    let buffer_of = |t: &Tensor| program.buffer_at(t.storage().ptr() as usize);
    let slot = |t: &Tensor| {
        let buffer = buffer_of(t).filter(|b| !program.buffers()[*b].outside)?;
        Some(Slot { buffer, layout: t.layout().clone(), dtype: t.dtype() })
    };
    let Some(slots) = outputs.iter().map(slot).collect::<Option<Vec<_>>>() else {
        return plain("it returns memory of an input, a parameter or a constant".into(), &outputs, form);
    };
    let mut results = Vec::new();
    for gradient in &found {
        results.push(gradient.as_ref().and_then(slot));
        if gradient.is_some() && results.last().is_some_and(Option::is_none) {
            return plain("a gradient is memory of an input or a constant".into(), &outputs, form);
        }
    }
    let input_buffers: Vec<Option<usize>> = own.iter().map(buffer_of).collect();
    let gradient_buffers: Vec<Option<usize>> =
        (0..outputs.len()).map(|i| gradients.get(i).and_then(|g| buffer_of(g.as_ref()?))).collect();
    let (first, second) = program.calls().split_at(forward_calls);
    let touched = |calls: &[_], writes: bool| -> HashSet<usize> {
        let mut found = HashSet::new();
        for call in calls {
            let call: &rushlight_core::backend::Call<Slot> = call;
            let slots = if writes { call.outputs() } else { call.inputs() };
            found.extend(slots.iter().map(|slot| slot.buffer));
        }
        found
    };
    let (made, read) = (touched(first, true), touched(second, false));
    let is_outside = |b: &usize| program.buffers()[*b].outside;
    let changed: Vec<usize> = made.iter().copied().filter(is_outside).collect();
    let changes_input = |b: &usize| wanted.iter().zip(&input_buffers).any(|(w, input)| *w && *input == Some(*b));
    if changed.iter().any(changes_input) || touched(second, true).iter().any(is_outside) {
        return plain("it changes an input that needs a gradient".into(), &outputs, form);
    }
    let saved: Vec<usize> = read.iter().copied().filter(|b| made.contains(b) && !is_outside(b)).collect();
    let watched: Vec<usize> =
        read.iter().copied().filter(|b| is_outside(b) && !gradient_buffers.contains(&Some(*b))).collect();
    let kept = slots.iter().map(|slot| slot.buffer).chain(saved.iter().copied());
    let forward = program.with_calls(first.to_vec()).with_results(kept).unplaced();
    let made_backward = (!roots.is_empty()).then(|| {
        let mut backward = program.with_calls(second.to_vec());
        saved.iter().for_each(|b| backward.set_outside(*b));
        backward.with_results(results.iter().flatten().map(|slot| slot.buffer)).unplaced()
    });
    let bound = |b: &usize| input_buffers.contains(&Some(*b)) || gradient_buffers.contains(&Some(*b));
    let held: Vec<(usize, Arc<Storage>)> = noted.held.into_iter().filter(|(b, _)| !bound(b)).collect();
    // Where a backward pass follows, weights are trained.
    let is_constant = |b: &usize| constant && made_backward.is_none() && !changed.contains(b);
    let constants: Vec<(usize, Arc<Storage>)> = held.iter().filter(|(b, _)| is_constant(b)).cloned().collect();
    let versions = held.iter().map(|(b, s)| is_constant(b).then(|| s.version())).collect();
    let runner = |program: Program| Ok::<_, Error>(Runner::with_constants(&program, &constants)?.random_from(start));
    let runners = runner(forward).and_then(|f| Ok((f, made_backward.map(runner).transpose()?)));
    let (forward, backward) = match runners {
        Ok(runners) => runners,
        Err(e) => return plain(e.to_string(), &outputs, form),
    };
    let memory: Vec<Arc<Storage>> = saved.iter().filter_map(|b| noted.alive.get(b).cloned()).collect();
    if memory.len() != saved.len() {
        return plain("backward uses memory that was freed".into(), &outputs, form);
    }
    drop((found, gradients, noted.alive, constants));
    // What only the recording refers to is a constant; the rest belongs to somebody who may replace it.
    let foreign = held.iter().map(|(_, s)| s).filter(|s| Arc::strong_count(s) > 1).cloned().collect();
    let joint = Arc::new(Joint {
        forward,
        backward,
        inputs: input_buffers,
        wanted: wanted.clone(),
        leaves,
        held,
        foreign,
        versions,
        outputs: slots,
        saved,
        watched,
        changed,
        gradients: gradient_buffers,
        results,
        start,
        blocks,
    });
    let values = Values { outputs: outputs.iter().map(Tensor::detach).collect(), saved: memory, stream: start };
    drop(outputs);
    let outputs = joint.clone().connect(inputs, values, &needs)?;
    Ok((Ok(joint), outputs, form))
}

/// The results of a function of `own` as results of `inputs`: their gradients flow on.
fn connect(inputs: &[Tensor], own: &[Tensor], wanted: &[bool], outputs: &Tensors) -> Result<Tensors> {
    struct Through {
        own: Vec<Tensor>,
        outputs: Vec<Tensor>,
    }
    impl Function for Through {
        fn forward(&self, _: &mut Context, _: &[&Tensor]) -> Result<Vec<Tensor>> {
            Ok(self.outputs.iter().map(Tensor::detach).collect())
        }
        fn backward(&self, _: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            let mut roots = Vec::new();
            for (t, gradient) in self.outputs.iter().zip(grads) {
                if let (true, Some(gradient)) = (t.requires_grad(), gradient) {
                    roots.push(root(t, Some(gradient))?);
                }
            }
            // Leaves other than the inputs get theirs on the way.
            self.own.iter().for_each(Tensor::zero_grad);
            backward_from(roots, Backward::default().retain_graph(true), None)?;
            Ok(self.own.iter().map(Tensor::grad).collect())
        }
    }
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for ((t, own), _) in inputs.iter().zip(own).zip(wanted).filter(|(_, wanted)| **wanted) {
        from.push(own.clone());
        to.push(t);
    }
    Ok(apply(Through { own: from, outputs: outputs.to_vec() }, &to)?.into_iter().collect())
}

/// What a run of the forward program leaves.
struct Values {
    outputs: Vec<Tensor>,
    saved: Vec<Arc<Storage>>,
    stream: Philox,
}

impl Joint {
    /// Whether somebody else still refers to the memory that was there before the recording.
    fn is_current(&self) -> bool {
        let same = |leaf: &Tensor| leaf.requires_grad() && Arc::strong_count(&leaf.0) > 1;
        let unchanged =
            |((_, s), version): (&(usize, Arc<Storage>), &Option<u32>)| version.is_none_or(|v| v == s.version());
        // Two references are ours: in `held` and in `foreign`.
        self.foreign.iter().all(|s| Arc::strong_count(s) > 2)
            && self.leaves.iter().all(same)
            && self.held.iter().zip(&self.versions).all(unchanged)
    }

    /// Memory from outside, with the inputs'.
    fn bound(&self, inputs: &[Tensor]) -> Vec<(usize, Arc<Storage>)> {
        let inputs = self.inputs.iter().zip(inputs).filter_map(|(b, t)| Some(((*b)?, t.storage().clone())));
        inputs.chain(self.held.iter().cloned()).collect()
    }

    fn call(self: Arc<Self>, inputs: &[Tensor]) -> Result<Tensors> {
        let stream = match self.blocks {
            0 => self.start,
            blocks => default_generator().reserve(blocks.saturating_mul(4)),
        };
        let bound = self.bound(inputs);
        let own: Vec<usize> = self.outputs.iter().map(|s| s.buffer).chain(self.saved.iter().copied()).collect();
        let mut memory = self.forward.run_at(&bound, &own, Some(stream))?;
        let saved = memory.split_off(self.outputs.len());
        bound.iter().filter(|(b, _)| self.changed.contains(b)).for_each(|(_, storage)| storage.bump_version());
        let outputs = self
            .outputs
            .iter()
            .zip(memory)
            .map(|(slot, s)| Tensor::from_parts(s, slot.layout.clone(), slot.dtype, Meta::default()))
            .collect();
        let needs: Vec<bool> = self.gradients.iter().map(Option::is_some).collect();
        self.connect(inputs, Values { outputs, saved, stream }, &needs)
    }

    /// Gives results their history.
    fn connect(self: Arc<Self>, inputs: &[Tensor], values: Values, needs: &[bool]) -> Result<Tensors> {
        if self.backward.is_none() {
            return Ok(values.outputs.into_iter().collect());
        }
        let bound = self.bound(inputs);
        let versions = self
            .watched
            .iter()
            .filter_map(|b| bound.iter().find(|(of, _)| of == b))
            .map(|(_, storage)| (storage.clone(), storage.version()))
            .collect();
        let wanted = inputs.iter().zip(&self.wanted).filter(|(_, wanted)| **wanted).map(|(t, _)| t);
        let from: Vec<Tensor> = wanted.chain(&self.leaves).cloned().collect();
        let Values { outputs, saved, stream } = values;
        let node = Node { joint: self, outputs, bound, saved: Mutex::new(saved), stream, versions };
        let made = apply(node, &from.iter().collect::<Vec<_>>())?;
        // A result that did not depend on what needs a gradient has none.
        Ok(made.into_iter().zip(needs).map(|(t, needs)| if *needs { t } else { t.detach() }).collect())
    }
}

/// The backward pass of one call.
struct Node {
    joint: Arc<Joint>,
    outputs: Vec<Tensor>,
    bound: Vec<(usize, Arc<Storage>)>,
    saved: Mutex<Vec<Arc<Storage>>>,
    stream: Philox,
    /// Memory that backward reads, and its version.
    versions: Vec<(Arc<Storage>, u32)>,
}

impl Node {
    fn saved(&self) -> MutexGuard<'_, Vec<Arc<Storage>>> {
        self.saved.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Function for Node {
    fn forward(&self, _: &mut Context, _: &[&Tensor]) -> Result<Vec<Tensor>> {
        Ok(self.outputs.iter().map(Tensor::detach).collect())
    }

    fn backward(&self, _: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        if mode::is_grad_enabled() {
            return Err(Error::unsupported(
                "compile: a compiled function can be differentiated once; run it without compile for create_graph",
            ));
        }
        if self.versions.iter().any(|(storage, version)| storage.version() != *version) {
            return Err(Error::autograd(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a compiled function's \
                 input or parameter was changed between its forward and its backward",
            ));
        }
        let Some(runner) = &self.joint.backward else { return Ok(Vec::new()) };
        let mut bound = self.bound.clone();
        for (i, buffer) in self.joint.gradients.iter().enumerate() {
            let Some(buffer) = buffer else { continue };
            let gradient = match grads.get(i).and_then(Option::as_ref) {
                Some(gradient) => gradient.contiguous()?,
                None => self.outputs[i].zeros_like()?.contiguous()?,
            };
            let whole = gradient.layout().offset() == 0;
            let gradient = if whole { gradient } else { gradient.copy()? };
            bound.push((*buffer, gradient.storage().clone()));
        }
        bound.extend(self.joint.saved.iter().copied().zip(self.saved().iter().cloned()));
        let own: Vec<usize> = self.joint.results.iter().flatten().map(|slot| slot.buffer).collect();
        let mut memory = runner.run_at(&bound, &own, Some(self.stream))?.into_iter();
        let tensor = |slot: &Option<Slot>| {
            let slot = slot.as_ref()?;
            Some(Tensor::from_parts(memory.next()?, slot.layout.clone(), slot.dtype, Meta::default()))
        };
        Ok(self.joint.results.iter().map(tensor).collect())
    }

    fn name(&self) -> &'static str {
        "CompiledFunction"
    }
}
