//! The tape: one node per recorded op, edges to the nodes its inputs came from.

use super::graph::{NodeHooks, Retained};
use super::saved::{Saved, take_saved_count};
use super::saved_hooks::Packed;
use super::{Meta, mode};
use crate::Tensor;
use crate::tensor::Inner;
use rushlight_core::backend::is_in_recurrent_layer;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// Gradients, one per input or output of a node; `None` is zero.
pub type Grads = SmallVec<[Option<Tensor>; 3]>;

/// Shared, so that several threads may run a retained graph at once.
pub(crate) type BackwardFn = Arc<dyn Fn(&Ctx, Grads) -> Result<Grads> + Send + Sync>;
/// Sees a gradient and may replace it.
pub(crate) type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;
/// Runs after a leaf's gradient has been added up.
pub(crate) type PostHook = Arc<dyn Fn(&Tensor) -> Result<()> + Send + Sync>;

/// Where a tensor came from: a node and which of its outputs.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) slot: usize,
}

/// The name of nodes of bases that were changed through a view.
pub(super) const COPY_SLICES: &str = "copy_slices";

pub(crate) enum Kind {
    /// Adds incoming gradients to a leaf's `.grad`, one pass at a time. A leaf has at most one such node at any moment.
    Accumulate(Tensor, Mutex<()>),
    /// A recorded op; `None` once its saved values were freed.
    Op(Mutex<Option<BackwardFn>>),
}

pub(crate) struct Node {
    pub(crate) name: &'static str,
    /// Later ops have higher numbers, so consumers always outnumber producers. Leaves come first of all that is ready.
    pub(crate) sequence: u64,
    pub(crate) inputs: SmallVec<[Option<Edge>; 3]>,
    pub(crate) outputs: usize,
    /// For autocast's conversions, which only ops see: the source dtype, in which gradients may arrive.
    pub(crate) source: Option<DType>,
    /// Whether its one gradient may come with a mask ([`Ctx::mask`]).
    pub(crate) takes_mask: bool,
    /// Whether a recurrent layer recorded it: its backward may then use that layer's precision.
    pub(crate) in_recurrent_layer: bool,
    /// Whether the backward function holds no saved tensor.
    saves_nothing: bool,
    /// Whether the user defined the function.
    pub(crate) custom: bool,
    pub(crate) kind: Kind,
    pub(crate) hooks: Mutex<Hooks>,
    /// Whether `hooks` has packed values.
    pub(crate) has_packed: AtomicBool,
    pub(crate) forward_call: Option<Box<str>>,
}

/// Hooks of a node.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Hooks of its outputs' gradients, with their numbers and slots.
    pub(crate) outputs: Vec<(u64, usize, Hook)>,
    /// Outputs that keep their gradient. They see it after all hooks.
    pub(crate) retained: Vec<Retained>,
    /// Hooks of the node itself.
    pub(crate) own: Option<Arc<NodeHooks>>,
    /// What a function of the user's keeps for its backward.
    pub(crate) saved: Option<Arc<Vec<Saved>>>,
    /// Saved tensors that hooks have packed since the step was recorded, by their keys.
    pub(crate) packed: Vec<(usize, Arc<Packed>)>,
}

impl Hooks {
    pub(crate) fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.retained.is_empty() && self.own.is_none()
    }
}

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

impl Node {
    pub(crate) fn new(
        name: &'static str,
        inputs: SmallVec<[Option<Edge>; 3]>,
        outputs: usize,
        backward: BackwardFn,
    ) -> Arc<Self> {
        Self::with_source(name, inputs, outputs, backward, None)
    }

    fn with_source(
        name: &'static str,
        inputs: SmallVec<[Option<Edge>; 3]>,
        outputs: usize,
        backward: BackwardFn,
        source: Option<DType>,
    ) -> Arc<Self> {
        Arc::new(Self::op(name, inputs, outputs, backward, source))
    }

    pub(super) fn op(
        name: &'static str,
        inputs: SmallVec<[Option<Edge>; 3]>,
        outputs: usize,
        backward: BackwardFn,
        source: Option<DType>,
    ) -> Self {
        Self {
            name,
            sequence: SEQUENCE.fetch_add(1, Relaxed),
            inputs,
            outputs,
            source,
            takes_mask: false,
            in_recurrent_layer: is_in_recurrent_layer(),
            saves_nothing: take_saved_count() == 0,
            custom: false,
            kind: Kind::Op(Mutex::new(Some(backward))),
            hooks: Mutex::default(),
            has_packed: AtomicBool::new(false),
            forward_call: mode::forward_call(),
        }
    }

    fn accumulate(leaf: &Tensor) -> Arc<Self> {
        Arc::new(Self {
            name: "accumulate_grad",
            sequence: u64::MAX,
            inputs: SmallVec::new(),
            outputs: 1,
            source: None,
            takes_mask: false,
            in_recurrent_layer: false,
            saves_nothing: true,
            custom: false,
            kind: Kind::Accumulate(leaf.clone(), Mutex::new(())),
            hooks: Mutex::default(),
            has_packed: AtomicBool::new(false),
            forward_call: None,
        })
    }

    /// The name as PyTorch prints it: `exp` is `ExpBackward0`, a function of the user's `CubeBackward`.
    pub(crate) fn display_name(&self) -> String {
        if let Kind::Accumulate(..) = self.kind {
            return "AccumulateGrad".into();
        }
        if self.name == COPY_SLICES {
            return "CopySlices".into();
        }
        let mut out = String::new();
        for part in self.name.split('_').filter(|p| !p.is_empty()) {
            let mut chars = part.chars();
            out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
            out.push_str(chars.as_str());
        }
        out + if self.custom { "Backward" } else { "Backward0" }
    }

    /// A node of a function of the user's, which keeps `saved`.
    pub(super) fn custom(
        name: &'static str,
        inputs: SmallVec<[Option<Edge>; 3]>,
        outputs: usize,
        backward: BackwardFn,
        saved: Arc<Vec<Saved>>,
    ) -> Self {
        let mut node = Self::op(name, inputs, outputs, backward, None);
        node.keep(saved);
        node
    }

    /// Makes this the node of a function of the user's, which keeps `saved`.
    pub(super) fn keep(&mut self, saved: Arc<Vec<Saved>>) {
        self.custom = true;
        self.hooks.get_mut().unwrap_or_else(|e| e.into_inner()).saved = Some(saved);
    }

    /// Whether it saves no tensor, so that a backward pass frees nothing and may be repeated.
    pub(crate) fn saves_nothing(&self) -> bool {
        self.saves_nothing && !self.custom
    }

    pub(crate) fn add_hook(&self, id: u64, slot: usize, hook: Hook) {
        lock(&self.hooks).outputs.push((id, slot, hook));
    }
}

/// Arguments of a backward function besides the gradients.
pub(crate) struct Ctx<'a> {
    pub(crate) node: &'a Arc<Node>,
    /// Takes the gradient accumulated for an edge, if the predicate accepts it.
    pub(crate) take_sum: &'a dyn Fn(&Edge, &dyn Fn(&Tensor) -> bool) -> Option<Tensor>,
    /// Where the whole gradient of a leaf behind an edge should be written.
    pub(crate) home: &'a dyn Fn(&Edge) -> Option<Tensor>,
    /// Offers a mask to the node behind an edge; says whether it takes it.
    pub(crate) offer_mask: &'a dyn Fn(&Edge, &Tensor) -> bool,
    /// Where this tensor is not positive, the gradient counts as zero.
    pub(crate) mask: Option<&'a Tensor>,
    /// Whether this pass needs the gradient of an edge.
    pub(crate) wants: &'a dyn Fn(&Edge) -> bool,
}

impl Ctx<'_> {
    /// Whether input `i` needs a gradient.
    pub(crate) fn needs(&self, i: usize) -> bool {
        self.node.inputs.get(i).is_some_and(|e| e.as_ref().is_some_and(self.wants))
    }

    /// A saved tensor, if it was not modified since.
    pub(crate) fn get(&self, saved: &Saved) -> Result<Tensor> {
        saved.unpack(self.node)
    }

    /// The dtype in which input `i` would rather have its gradient, where that is not its own.
    pub(crate) fn wanted_dtype(&self, i: usize) -> Option<DType> {
        self.node.inputs.get(i)?.as_ref()?.node.source
    }

    /// Takes the gradient accumulated so far for input `i`, if `suits` accepts it. The caller returns the sum of it and
    /// its own contribution.
    pub(crate) fn take_sum(&self, i: usize, suits: impl Fn(&Tensor) -> bool) -> Option<Tensor> {
        (self.take_sum)(self.node.inputs.get(i)?.as_ref()?, &suits)
    }

    /// Whether the op that made input `i` accepts a gradient that counts as zero where `mask` is not positive, and
    /// nobody else reads that gradient. If so, the caller returns the gradient without applying the mask.
    pub(crate) fn offer_mask(&self, i: usize, mask: &Tensor) -> bool {
        self.node.inputs.get(i).and_then(Option::as_ref).is_some_and(|edge| (self.offer_mask)(edge, mask))
    }

    /// Memory for the gradient of input `i`: the leaf's own place for it ([`Tensor::set_grad_home`]) where this
    /// gradient is the leaf's whole.
    pub(crate) fn gradient_memory(&self, i: usize, like: &Tensor, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let edge = self.node.inputs.get(i).and_then(Option::as_ref);
        match edge.and_then(|edge| (self.home)(edge)).filter(|h| h.shape() == shape && h.dtype() == dtype) {
            Some(home) => Ok(home),
            None => like.uninit_like(shape, dtype),
        }
    }

    /// Whether the backward itself is recorded: derivatives must then be made of recorded ops.
    pub(crate) fn recording(&self) -> bool {
        mode::is_grad_enabled()
    }
}

impl Drop for Node {
    /// A long chain must not be dropped recursively: contents go to a queue that the outermost drop on this thread
    /// empties.
    fn drop(&mut self) {
        type Contents = (SmallVec<[Option<Edge>; 3]>, Option<BackwardFn>);
        thread_local! {
            static QUEUE: RefCell<Option<Vec<Contents>>> = const { RefCell::new(None) };
        }
        let backward = match &mut self.kind {
            Kind::Op(f) => f.get_mut().unwrap_or_else(|e| e.into_inner()).take(),
            Kind::Accumulate(..) => None,
        };
        let contents = (std::mem::take(&mut self.inputs), backward);
        let outermost = QUEUE.try_with(|q| {
            let mut queue = q.borrow_mut();
            match queue.as_mut() {
                Some(waiting) => {
                    waiting.push(contents);
                    false
                }
                None => {
                    *queue = Some(vec![contents]);
                    true
                }
            }
        });
        if outermost == Ok(true) {
            while let Some(next) = QUEUE.with(|q| q.borrow_mut().as_mut().and_then(|w| w.pop())) {
                drop(next);
            }
            QUEUE.with(|q| *q.borrow_mut() = None);
        }
    }
}

impl Tensor {
    /// The edge a recorded op gets to this tensor; `None` if it does not require grad.
    pub(crate) fn edge(&self) -> Option<Edge> {
        if !self.requires_grad() {
            return None;
        }
        self.refresh_view();
        let mut meta = self.meta();
        if let Some(node) = &meta.node {
            return Some(Edge { node: node.clone(), slot: meta.slot });
        }
        if let Some(node) = meta.accumulate.upgrade() {
            return Some(Edge { node, slot: 0 });
        }
        let node = Node::accumulate(self);
        meta.accumulate = Arc::downgrade(&node);
        Some(Edge { node, slot: 0 })
    }

    /// Makes this tensor an output of a node. A gradient that it retains is the one that arrives there from now on.
    pub(crate) fn attach(&self, node: &Arc<Node>, slot: usize) {
        self.0.requires_grad.store(true, Relaxed);
        // Dropped after the lock is released: a destructor may be the user's code.
        let old;
        let mut meta = self.meta();
        old = meta.node.replace(node.clone());
        meta.slot = slot;
        if let Some(old) = &old
            && meta.extra.as_ref().is_some_and(|extra| extra.retains_grad)
        {
            move_retained(&self.0, old, node, slot);
        }
    }
}

/// Moves the entry of a tensor that retains its gradient from one node to another.
pub(crate) fn move_retained(tensor: &Arc<Inner>, from: &Node, to: &Node, slot: usize) {
    let entry = {
        let mut hooks = lock(&from.hooks);
        let at = hooks.retained.iter().position(|r| std::ptr::eq(r.tensor.as_ptr(), Arc::as_ptr(tensor)));
        at.map(|at| hooks.retained.remove(at))
    };
    if let Some(entry) = entry {
        lock(&to.hooks).retained.push(Retained { slot, ..entry });
    }
}

/// Whether autograd records an op over these inputs.
#[inline]
pub(crate) fn recording(inputs: &[&Tensor]) -> bool {
    mode::is_grad_enabled() && inputs.iter().any(|t| t.requires_grad())
}

/// Edges to the inputs, or an error for one that may not enter a graph.
pub(crate) fn edges(inputs: &[&Tensor]) -> Result<SmallVec<[Option<Edge>; 3]>> {
    if inputs.iter().any(|t| t.0.inference) {
        return Err(Error::autograd(
            "a tensor made under inference_mode cannot take part in a graph: use no_grad instead, or take a copy outside inference_mode (x.copy()? in Rust, x.clone() in Python)",
        ));
    }
    for view in inputs.iter().filter(|t| t.is_view()) {
        view.check_custom_view()?;
    }
    Ok(inputs.iter().map(|t| t.edge()).collect())
}

/// Records `out` as made from `inputs`. `backward` gets the gradient of `out` and returns one gradient per input. Call
/// only if [`recording`] returns true; the caller saves the values it needs.
pub(crate) fn record(
    name: &'static str,
    inputs: &[&Tensor],
    out: &Tensor,
    backward: impl Fn(&Ctx, &Tensor) -> Result<Grads> + Send + Sync + 'static,
) -> Result<()> {
    record_node(name, inputs, &[out], Arc::new(move |ctx: &Ctx, grads| with_only(grads, |dy| backward(ctx, dy))), false)
}

/// [`record`] of an op whose backward heeds [`Ctx::mask`] if `takes_mask`.
pub(crate) fn record_masked(
    takes_mask: bool,
    name: &'static str,
    inputs: &[&Tensor],
    out: &Tensor,
    backward: impl Fn(&Ctx, &Tensor) -> Result<Grads> + Send + Sync + 'static,
) -> Result<()> {
    let backward = Arc::new(move |ctx: &Ctx, grads| with_only(grads, |dy| backward(ctx, dy)));
    record_node(name, inputs, &[out], backward, takes_mask)
}

/// [`record`] of a conversion that only ops see.
pub(crate) fn record_conversion(
    input: &Tensor,
    out: &Tensor,
    backward: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<()> {
    let backward = move |_: &Ctx, grads| with_only(grads, |dy| Ok(smallvec![Some(backward(dy)?)]));
    out.attach(&Node::with_source("to", edges(&[input])?, 1, Arc::new(backward), Some(input.dtype())), 0);
    Ok(())
}

/// [`record`] for several outputs, of which those that are not floats take no part. Gradients may be `None`, not all of
/// them.
pub(crate) fn record_many(
    name: &'static str,
    inputs: &[&Tensor],
    outs: &[&Tensor],
    backward: impl Fn(&Ctx, Grads) -> Result<Grads> + Send + Sync + 'static,
) -> Result<()> {
    record_node(name, inputs, outs, Arc::new(backward), false)
}

/// Calls a backward function with the gradient of an op's one output, if there is one.
fn with_only(grads: Grads, backward: impl FnOnce(&Tensor) -> Result<Grads>) -> Result<Grads> {
    match only(grads) {
        Some(dy) => backward(&dy),
        None => Ok(Grads::new()),
    }
}

fn only(mut grads: Grads) -> Option<Tensor> {
    grads.pop().flatten()
}

/// What recording does for every op: not generic, as there is a backward function for each.
fn record_node(
    name: &'static str,
    inputs: &[&Tensor],
    outs: &[&Tensor],
    backward: BackwardFn,
    takes_mask: bool,
) -> Result<()> {
    super::saved_hooks::take_failure()?;
    let mut node = Node::op(name, edges(inputs)?, outs.len(), backward, None);
    node.takes_mask = takes_mask;
    let node = Arc::new(node);
    for (slot, out) in outs.iter().enumerate() {
        if out.dtype().is_differentiable() {
            out.attach(&node, slot);
        }
    }
    Ok(())
}

impl Default for Meta {
    fn default() -> Self {
        Self { grad: None, node: None, slot: 0, accumulate: Weak::new(), epoch: 0, extra: None }
    }
}
