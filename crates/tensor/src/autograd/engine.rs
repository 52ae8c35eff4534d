//! Walks the tape from the roots, every node after all its consumers.

use super::graph::{GradientEdge, NodeHooks};
use super::node::{Ctx, Edge, Grads, Kind, Node};
use super::{callback, foreign, mode};
use crate::{Tensor, amp, capture, profile};
use rushlight_core::backend::in_recurrent_layer;
use rushlight_core::smallvec::smallvec;
use rushlight_core::sync::lock;
use rushlight_core::{Device, Error, Layout, Result};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex};

/// How a backward pass is run; the defaults are PyTorch's.
#[derive(Clone, Default)]
pub struct Backward {
    gradient: Option<Tensor>,
    retain_graph: Option<bool>,
    create_graph: bool,
    allow_unused: bool,
}

impl Backward {
    /// The gradient to start from; needed for a root that is not a scalar.
    pub fn gradient(mut self, gradient: &Tensor) -> Self {
        self.gradient = Some(gradient.clone());
        self
    }

    /// Keeps saved values for another backward; by default as `create_graph`.
    pub fn retain_graph(mut self, retain: bool) -> Self {
        self.retain_graph = Some(retain);
        self
    }

    /// Records the backward itself, so that gradients can be differentiated.
    pub fn create_graph(mut self, create: bool) -> Self {
        self.create_graph = create;
        self
    }

    /// For [`grad`]: an input the outputs do not depend on gets `None` instead of an error.
    pub fn allow_unused(mut self, allow: bool) -> Self {
        self.allow_unused = allow;
        self
    }
}

pub(super) fn backward(root: &Tensor, options: Backward) -> Result<()> {
    let start = start(root, options.gradient.as_ref(), "backward")?;
    callback::around(|| run(vec![start], &options, None).map(drop))
}

/// Gradients of `outputs` by `inputs`, returned instead of added to `.grad`. `None` appears only with
/// [`Backward::allow_unused`]. The gradient option applies to the first output.
///
/// ```
/// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
/// use rushlight::{Tensor, autograd::{Backward, grad}};
/// let x = Tensor::new_with(2.0, rushlight::DType::F64)?.requires_grad_(true)?;
/// let y = x.pow(3)?;
/// let dy = grad(&[&y], &[&x], Backward::default().create_graph(true))?.remove(0).unwrap();
/// let ddy = grad(&[&dy], &[&x], Backward::default())?.remove(0).unwrap();
/// assert_eq!((dy.item::<f64>()?, ddy.item::<f64>()?), (12.0, 12.0));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn grad(outputs: &[&Tensor], inputs: &[&Tensor], options: Backward) -> Result<Vec<Option<Tensor>>> {
    let mut roots = Vec::new();
    for (i, out) in outputs.iter().enumerate() {
        roots.push(start(out, options.gradient.as_ref().filter(|_| i == 0), "grad")?);
    }
    let mut wanted = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        wanted.push(input.edge().ok_or_else(|| {
            Error::autograd(format!(
                "grad: input {i} does not require grad; call requires_grad_(true) on it before the forward"
            ))
        })?);
    }
    let found = run(roots, &options, Some(&wanted))?;
    if options.allow_unused { Ok(found) } else { all_used(found) }
}

fn all_used(found: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
    match found.iter().position(Option::is_none) {
        None => Ok(found),
        Some(i) => Err(Error::autograd(format!(
            "grad: one of the differentiated tensors (input {i}) appears to not have been used in the graph. Set allow_unused(true) if \
             this is the desired behavior."
        ))),
    }
}

/// A root of a backward pass: where `output`'s gradient arrives, and the gradient to start from. Without one, `output`
/// must be a scalar.
pub fn root(output: &Tensor, gradient: Option<&Tensor>) -> Result<(GradientEdge, Tensor)> {
    start(output, gradient, "backward").map(|(edge, gradient)| (GradientEdge(edge), gradient))
}

/// A backward pass from several roots. Without `inputs` it adds to the leaves' `.grad` and returns nothing; with them
/// it returns the gradients that arrive there, and `None` for those that the roots do not depend on.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, autograd::{Backward, backward_from, root}};
/// let x = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
/// let (a, b) = (x.mul(2.0)?.sum(..)?, x.mul(3.0)?);
/// let roots = vec![root(&a, None)?, root(&b, Some(&Tensor::new([1.0f32, 0.0])?))?];
/// backward_from(roots, Backward::default(), None)?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [5.0, 2.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn backward_from(
    roots: Vec<(GradientEdge, Tensor)>,
    options: Backward,
    inputs: Option<&[GradientEdge]>,
) -> Result<Vec<Option<Tensor>>> {
    let roots = roots.into_iter().map(|(edge, gradient)| (edge.0, gradient)).collect();
    let Some(inputs) = inputs else {
        return callback::around(|| run(roots, &options, None).map(drop)).map(|()| Vec::new());
    };
    let wanted: Vec<Edge> = inputs.iter().map(|edge| edge.0.clone()).collect();
    let found = run(roots, &options, Some(&wanted))?;
    if options.allow_unused { Ok(found) } else { all_used(found) }
}

/// The leaves that a backward pass from `outputs` would add to.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, autograd::leaves};
/// let (x, w) = (Tensor::ones([2])?, Tensor::ones([2])?.requires_grad_(true)?);
/// assert_eq!(leaves(&[&x.mul(&w)?.exp()?]).len(), 1);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn leaves(outputs: &[&Tensor]) -> Vec<Tensor> {
    let mut stack: Vec<Arc<Node>> = outputs.iter().filter_map(|t| t.edge()).map(|edge| edge.node).collect();
    let mut seen: HashSet<usize, BuildHasherDefault<AddressHasher>> = HashSet::default();
    let mut found = Vec::new();
    while let Some(node) = stack.pop() {
        if !seen.insert(key(&node)) {
            continue;
        }
        match &node.kind {
            Kind::Accumulate(leaf, _) => found.push(leaf.clone()),
            Kind::Op(_) => stack.extend(node.inputs.iter().flatten().map(|edge| edge.node.clone())),
        }
    }
    found
}

fn start(root: &Tensor, gradient: Option<&Tensor>, call: &str) -> Result<(Edge, Tensor)> {
    let edge = root.edge().ok_or_else(|| {
        Error::autograd(format!(
            "{call}: element 0 of tensors does not require grad and does not have a grad_fn; nothing it was made from requires gradients, \
             or it was made under no_grad"
        ))
    })?;
    let gradient = match gradient {
        Some(g) if g.shape() != root.shape() => {
            return Err(Error::shape(format!(
                "{call}: mismatch in shape: the gradient has shape {:?} and the output has shape {:?}",
                g.shape(),
                root.shape()
            )));
        }
        // A front end's own tensors have no device here.
        Some(g) if g.device() != root.device() && root.device() != Device::Meta => {
            return Err(Error::device(format!(
                "{call}: the gradient is on {}, the output on {}",
                g.device(),
                root.device()
            )));
        }
        Some(g) => g.to_dtype(root.dtype())?,
        None if root.numel() != 1 => {
            return Err(Error::autograd(format!(
                "{call}: grad can be implicitly created only for scalar outputs, this one has shape {:?}; reduce it with sum() or mean(), \
                 or pass Backward::gradient",
                root.shape()
            )));
        }
        None if root.is_complex() => {
            return Err(Error::autograd(format!(
                "{call}: grad can be implicitly created only for real scalar outputs but got {}; take the loss of its \
                 real part or magnitude",
                root.dtype()
            )));
        }
        None => mode::no_grad(|| root.ones_like())?,
    };
    Ok((edge, gradient))
}

/// Node addresses are their own hash.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_usize(&mut self, address: usize) {
        self.0 = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

fn key(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

/// State of a node during one pass.
struct Pending {
    /// Consumers that have not run yet.
    waiting: usize,
    grads: Grads,
    /// Where this is not positive, the gradient counts as zero.
    mask: Option<Tensor>,
}

struct Ready(Arc<Node>);

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.0.sequence == other.0.sequence
    }
}
impl Eq for Ready {}
impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ready {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.sequence.cmp(&other.0.sequence)
    }
}

/// Runs the graph under `roots`. With `wanted`, returns the gradients arriving at those edges and leaves every `.grad`
/// alone.
fn run(roots: Vec<(Edge, Tensor)>, options: &Backward, wanted: Option<&[Edge]>) -> Result<Vec<Option<Tensor>>> {
    let retain = options.retain_graph.unwrap_or(options.create_graph);
    let _pass = mode::PassGuard::new(wanted.is_some());
    let _mode = mode::set_grad_enabled(options.create_graph);
    // Backward runs in the dtypes that forward chose; converted parameters lose their graph here.
    let _precision = amp::suspend();
    let mut pending = count_consumers(&roots);
    let needed = wanted.map(|w| needed_nodes(&roots, w));
    let mut captured: Vec<Option<Tensor>> = vec![None; wanted.map_or(0, <[Edge]>::len)];
    let mut ready = BinaryHeap::new();
    for (edge, gradient) in roots {
        deliver(&mut pending, &mut ready, edge, Some(gradient))?;
    }
    while let Some(Ready(node)) = ready.pop() {
        let Some(Pending { mut grads, mask, .. }) = pending.remove(&key(&node)) else { continue };
        let is_needed = needed.as_ref().is_none_or(|n| n.contains(&key(&node)));
        let is_wanted = wanted.is_some_and(|w| w.iter().any(|edge| Arc::ptr_eq(&edge.node, &node)));
        if !is_needed && !is_wanted {
            // No requested gradient needs this node, and its hooks do not run; still count down its inputs'
            // dependencies.
            for edge in node.inputs.iter().flatten() {
                deliver(&mut pending, &mut ready, edge.clone(), None)?;
            }
            continue;
        }
        if let Kind::Accumulate(leaf, _) = &node.kind
            && let Some(slot) = grads.first_mut()
            && let Some(gradient) = slot.take()
        {
            *slot = Some(leaf.in_grad_dtype(gradient)?);
        }
        let own = run_hooks(&node, &mut grads)?;
        if let Some(wanted) = wanted {
            for (slot, out) in wanted.iter().zip(&mut captured) {
                if Arc::ptr_eq(&slot.node, &node) {
                    *out = grads.get(slot.slot).cloned().flatten();
                }
            }
        }
        if !is_needed {
            for edge in node.inputs.iter().flatten() {
                deliver(&mut pending, &mut ready, edge.clone(), None)?;
            }
            continue;
        }
        let _span = profile::span(profile::Category::Op, || match &node.kind {
            Kind::Accumulate(..) => "torch::autograd::AccumulateGrad".to_string(),
            Kind::Op(_) => format!("autograd::engine::evaluate_function: {}", node.display_name()),
        });
        if let Some(own) = &own {
            own.run_before(&node, &mut grads)?;
        }
        let seen_after = own.filter(|own| own.has_after()).map(|own| (own, grads.clone()));
        let mut produced = match &node.kind {
            Kind::Accumulate(leaf, turn) => {
                if wanted.is_none()
                    && let Some(g) = grads.pop().flatten()
                {
                    leaf.add_to_grad(turn, g, Share::Copied)?;
                    leaf.run_post_accumulate_grad_hooks()?;
                }
                if let Some((own, grads)) = seen_after {
                    own.run_after(&node, &mut Grads::new(), &grads)?;
                }
                continue;
            }
            Kind::Op(backward) => {
                let sums = RefCell::new(&mut pending);
                let take_sum = |edge: &Edge, suits: &dyn Fn(&Tensor) -> bool| {
                    let mut sums = sums.borrow_mut();
                    let slot = sums.get_mut(&key(&edge.node))?.grads.get_mut(edge.slot)?;
                    if slot.as_ref().is_some_and(suits) { slot.take() } else { None }
                };
                let home = |edge: &Edge| {
                    let sums = sums.borrow();
                    let mut behind = &edge.node;
                    loop {
                        let entry = sums.get(&key(behind))?;
                        // Only one that nobody else adds to, and that `.grad` alone will see.
                        if wanted.is_some() || entry.waiting != 1 || entry.grads.iter().any(Option::is_some) {
                            return None;
                        }
                        match &behind.kind {
                            Kind::Accumulate(leaf, _) => return leaf.empty_grad_home(),
                            // Autocast's conversions pass on gradients that come in the leaf's dtype.
                            Kind::Op(_) if behind.source.is_some() && is_unobserved(behind) => {
                                behind = &behind.inputs.first()?.as_ref()?.node;
                            }
                            Kind::Op(_) => return None,
                        }
                    }
                };
                let offer_mask = |edge: &Edge, mask: &Tensor| {
                    let mut sums = sums.borrow_mut();
                    let Some(entry) = sums.get_mut(&key(&edge.node)) else { return false };
                    let is_wanted = wanted.is_some_and(|w| w.iter().any(|other| Arc::ptr_eq(&other.node, &edge.node)));
                    // Nobody but that node sees the gradient, and nothing is added to it.
                    let alone = entry.waiting == 1 && entry.grads.iter().all(Option::is_none);
                    let unseen = !is_wanted && !mode::is_anomaly_enabled() && is_unobserved(&edge.node);
                    let taken = edge.node.takes_mask && alone && unseen;
                    if taken {
                        entry.mask = Some(mask.clone());
                    }
                    taken
                };
                let mask = mask.as_ref();
                let wants = |edge: &Edge| match (&needed, wanted) {
                    (Some(needed), Some(wanted)) => {
                        needed.contains(&key(&edge.node)) || wanted.iter().any(|w| Arc::ptr_eq(&w.node, &edge.node))
                    }
                    _ => true,
                };
                let ctx =
                    Ctx { node: &node, take_sum: &take_sum, home: &home, offer_mask: &offer_mask, mask, wants: &wants };
                apply(&ctx, lock(backward), grads, retain)?
            }
        };
        if mode::is_anomaly_enabled() {
            check_anomaly(&node, &produced)?;
        }
        if let Some((own, grads)) = seen_after {
            own.run_after(&node, &mut produced, &grads)?;
        }
        let mut produced = produced.into_iter();
        for edge in &node.inputs {
            let gradient = produced.next().flatten();
            if let Some(edge) = edge {
                deliver(&mut pending, &mut ready, edge.clone(), gradient)?;
            }
        }
    }
    Ok(captured)
}

/// Calls a node's backward function; without `retain` the function and its saved tensors are dropped afterwards.
pub(super) fn apply(
    ctx: &Ctx,
    mut slot: std::sync::MutexGuard<'_, Option<super::node::BackwardFn>>,
    grads: Grads,
    retain: bool,
) -> Result<Grads> {
    let node = ctx.node;
    // Nothing is freed of a node that saved nothing: it can run again, as in PyTorch.
    let taken = if retain || node.saves_nothing() { slot.clone() } else { slot.take() };
    let Some(f) = taken else {
        return Err(Error::autograd(format!(
            "trying to backward through the graph a second time: the values saved by {} have already been freed. Pass \
             Backward::default().retain_graph(true) to the first backward, or run the forward again.",
            node.display_name()
        )));
    };
    drop(slot);
    if grads.iter().all(|g| g.is_none()) {
        return Ok(smallvec![None; node.inputs.len()]);
    }
    if !node.custom {
        foreign::refuse(|| node.display_name(), &grads)?;
    }
    let result = if node.in_recurrent_layer { in_recurrent_layer(|| f(ctx, grads)) } else { f(ctx, grads) }?;
    if node.custom && !retain {
        // Dropped without the lock: a destructor may be the user's code.
        let freed = lock(&node.hooks).saved.take();
        drop(freed);
    }
    debug_assert!(
        result.is_empty() || result.len() == node.inputs.len(),
        "{} returned {} gradients",
        node.name,
        result.len()
    );
    Ok(result)
}

/// Adds a gradient to a node's pending sum; `None` only counts down its dependencies.
fn deliver(
    pending: &mut ByAddress<Pending>,
    ready: &mut BinaryHeap<Ready>,
    edge: Edge,
    gradient: Option<Tensor>,
) -> Result<()> {
    let Some(entry) = pending.get_mut(&key(&edge.node)) else { return Ok(()) };
    if let Some(g) = gradient {
        if entry.grads.is_empty() {
            entry.grads = smallvec![None; edge.node.outputs];
        }
        let slot = &mut entry.grads[edge.slot];
        *slot = Some(match slot.take() {
            None => g,
            Some(sum) => add_up(sum, g)?,
        });
    }
    entry.waiting -= 1;
    if entry.waiting == 0 {
        if entry.grads.is_empty() {
            entry.grads = smallvec![None; edge.node.outputs];
        }
        ready.push(Ready(edge.node));
    }
    Ok(())
}

/// The sum of two gradients, in place if no one else holds one of them.
fn add_up(a: Tensor, b: Tensor) -> Result<Tensor> {
    if let Some(sum) = foreign::add(&a, &b) {
        return sum;
    }
    if !mode::is_grad_enabled() {
        if a.is_sole_owner() && a.shape() == b.shape() {
            a.add_(&b)?;
            return Ok(a);
        }
        if b.is_sole_owner() && a.shape() == b.shape() {
            b.add_(&a)?;
            return Ok(b);
        }
    }
    a.add(&b)
}

/// How many edges lead to each node reachable from the roots, the roots' own included. Iterative: graphs may be deep.
fn count_consumers(roots: &[(Edge, Tensor)]) -> ByAddress<Pending> {
    let mut pending: ByAddress<Pending> = ByAddress::default();
    let mut stack: Vec<&Arc<Node>> = Vec::new();
    let mut visit = |node: &'_ Arc<Node>| -> bool {
        let entry = pending.entry(key(node)).or_insert_with(|| Pending { waiting: 0, grads: Grads::new(), mask: None });
        entry.waiting += 1;
        entry.waiting == 1
    };
    for (edge, _) in roots {
        if visit(&edge.node) {
            stack.push(&edge.node);
        }
    }
    while let Some(node) = stack.pop() {
        for edge in node.inputs.iter().flatten() {
            if visit(&edge.node) {
                stack.push(&edge.node);
            }
        }
    }
    pending
}

/// The nodes through which a wanted edge can be reached. Nodes are decided producers first, in order of creation.
fn needed_nodes(roots: &[(Edge, Tensor)], wanted: &[Edge]) -> HashSet<usize, BuildHasherDefault<AddressHasher>> {
    let mut seen: HashSet<usize, BuildHasherDefault<AddressHasher>> = HashSet::default();
    let mut nodes: Vec<&Arc<Node>> = Vec::new();
    let mut stack: Vec<&Arc<Node>> = roots.iter().map(|(e, _)| &e.node).collect();
    while let Some(node) = stack.pop() {
        if seen.insert(key(node)) {
            nodes.push(node);
            stack.extend(node.inputs.iter().flatten().map(|e| &e.node));
        }
    }
    nodes.sort_by_key(|n| if matches!(n.kind, Kind::Accumulate(..)) { 0 } else { n.sequence + 1 });
    let targets: HashSet<usize, BuildHasherDefault<AddressHasher>> = wanted.iter().map(|e| key(&e.node)).collect();
    let mut needed: HashSet<usize, BuildHasherDefault<AddressHasher>> = HashSet::default();
    for node in nodes {
        // A target node itself need not run, unless another target depends on it.
        if node.inputs.iter().flatten().any(|e| targets.contains(&key(&e.node)) || needed.contains(&key(&e.node))) {
            needed.insert(key(node));
        }
    }
    needed
}

/// Lets the hooks of a node's outputs see the gradients, then stores retained ones. Returns the hooks of the node
/// itself.
fn run_hooks(node: &Arc<Node>, grads: &mut Grads) -> Result<Option<Arc<NodeHooks>>> {
    let mut retained = Vec::new();
    let own;
    let hooks = match &node.kind {
        Kind::Accumulate(leaf, _) => {
            own = lock(&node.hooks).own.clone();
            let meta = leaf.meta();
            match &meta.extra {
                Some(extra) => extra.hooks.iter().map(|(_, h)| (0, h.clone())).collect(),
                None => Vec::new(),
            }
        }
        Kind::Op(_) => {
            let hooks = lock(&node.hooks);
            own = hooks.own.clone();
            retained.extend(hooks.retained.iter().map(|r| (r.slot, r.tensor.clone(), r.turn.clone())));
            hooks.outputs.iter().map(|(_, slot, h)| (*slot, h.clone())).collect::<Vec<_>>()
        }
    };
    for (slot, hook) in hooks {
        if let Some(g) = grads.get(slot).cloned().flatten()
            && let Some(replacement) = hook(&g)?
        {
            if replacement.shape() != g.shape() || replacement.dtype() != g.dtype() {
                return Err(Error::autograd(format!(
                    "a hook on the output of {} returned a gradient of {} {:?}, expected {} {:?}",
                    node.display_name(),
                    replacement.dtype(),
                    replacement.shape(),
                    g.dtype(),
                    g.shape()
                )));
            }
            grads[slot] = Some(replacement);
        }
    }
    for (slot, tensor, turn) in retained {
        if let (Some(inner), Some(g)) = (tensor.upgrade(), grads.get(slot).cloned().flatten()) {
            // Each element of a gradient that is kept has its own memory.
            let g = if g.layout().overlaps() { g.contiguous_copy()? } else { g };
            Tensor(inner).add_to_grad(&turn, g, Share::Kept)?;
        }
    }
    Ok(own)
}

/// Whether no hook and no `.grad` sees the gradients that arrive at a node.
fn is_unobserved(node: &Node) -> bool {
    lock(&node.hooks).is_empty()
}

fn check_anomaly(node: &Arc<Node>, produced: &Grads) -> Result<()> {
    for (i, g) in produced.iter().enumerate() {
        let Some(g) = g else { continue };
        let bad = mode::no_grad(|| g.isnan()?.any(..)?.item::<bool>())?;
        if bad {
            if let Some(sites) = mode::call_sites() {
                (sites.report)(&node.display_name(), node.forward_call.as_deref());
            }
            let place = match &node.forward_call {
                _ if mode::call_sites().is_some() => String::new(),
                Some(trace) => format!(" Its forward was called here:\n{trace}"),
                None => " Switch anomaly detection on before the forward to see where it was called.".to_string(),
            };
            return Err(Error::autograd(format!(
                "Function '{}' returned nan values in its {i}th output.{place}",
                node.display_name()
            )));
        }
    }
    Ok(())
}

/// How to store a first gradient that other owners share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// The tensor keeps a copy and later adds to it in place.
    Copied,
    /// The tensor keeps it and later replaces it.
    Kept,
}

impl Tensor {
    /// Whether this handle is the only way to reach the elements, each of which exists once.
    pub(crate) fn is_sole_owner(&self) -> bool {
        let sole = Arc::strong_count(&self.0) == 1
            && Arc::strong_count(&self.0.storage) == 1
            && !self.0.layout.overlaps()
            && self.meta().base().is_none();
        // The counts are read with relaxed ordering; the fence orders earlier owners' accesses before ours.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        sole
    }

    /// Adds to `.grad`. Passes that hold `turn` come one after another, so none is lost; who sets or clears `.grad`
    /// meanwhile comes before or after the whole addition. On an error `.grad` stays as it was.
    pub(super) fn add_to_grad(&self, turn: &Mutex<()>, incoming: Tensor, share: Share) -> Result<()> {
        // Dropped after the lock is released: a destructor may be the user's code.
        let (mut old, mut new);
        let recording = mode::is_grad_enabled();
        let in_place = !recording && share == Share::Copied;
        let _turn = lock(turn);
        // The tensor's own lock is not held during the arithmetic, in which the tensor may take part itself.
        loop {
            old = self.meta().grad.clone();
            if capture::is_recording() {
                capture::note_grad(self, old.as_ref());
            }
            let is_foreign = incoming.carried_object().is_some();
            new = match &old {
                Some(old) if is_foreign || old.carried_object().is_some() => add_up(old.clone(), incoming.clone())?,
                None if is_foreign => incoming.clone(),
                Some(old) if in_place => {
                    // If `.grad` is another one by now, it was replaced after this addition.
                    old.add_(&incoming)?;
                    return Ok(());
                }
                Some(old) => old.add(&incoming)?,
                None if !in_place => incoming.clone(),
                None if self.is_grad_home(&incoming) => incoming.detach(),
                None if incoming.is_sole_owner() && self.has_order_of(&incoming) => incoming.detach(),
                None => {
                    // A gradient has the memory order of its leaf, or is row-major where that has gaps.
                    let incoming = incoming.detach();
                    let whole = if self.layout().is_dense() {
                        self.layout().clone()
                    } else {
                        Layout::contiguous(self.shape())?
                    };
                    let out = incoming.uninit_in(whole, incoming.dtype())?;
                    incoming.copy_to(&out)?;
                    out
                }
            };
            let mut meta = self.meta();
            let unchanged = match (&meta.grad, &old) {
                (Some(now), Some(old)) => now.is_same(old),
                (None, None) => true,
                _ => false,
            };
            if unchanged {
                meta.grad = Some(new.clone());
                return Ok(());
            }
        }
    }

    /// Whether an incoming gradient has this leaf's memory order, so that it can be stored without a copy.
    fn has_order_of(&self, incoming: &Tensor) -> bool {
        if self.is_contiguous() || !self.layout().is_dense() {
            return incoming.is_contiguous();
        }
        self.shape() == incoming.shape() && self.strides() == incoming.strides()
    }

    /// Calls this leaf's post-accumulate-grad hooks, for code that sets gradients by itself.
    pub fn run_post_accumulate_grad_hooks(&self) -> Result<()> {
        let hooks: Option<Vec<_>> =
            self.meta().extra.as_ref().map(|e| e.post_hooks.iter().map(|(_, h)| h.clone()).collect());
        hooks.into_iter().flatten().try_for_each(|hook| hook(self))
    }
}
