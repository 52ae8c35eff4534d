//! The recorded graph as the user sees it: nodes, their inputs, and hooks on nodes.

use super::hooks::{HookHandle, next_id};
use super::node::{Ctx, Edge, Grads, Kind, Node};
use super::saved::SavedValue;
use super::saved_hooks::{Packed, SavedTensorsHooks};
use crate::Tensor;
use crate::tensor::Inner;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::any::Any;
use std::sync::{Arc, Mutex, Weak};

/// An output that keeps its gradient: [`Tensor::retain_grad`].
pub(crate) struct Retained {
    pub(crate) slot: usize,
    pub(crate) tensor: Weak<Inner>,
    pub(crate) turn: Arc<Mutex<()>>,
}

type List = Vec<Option<Tensor>>;
type PreHook = Arc<dyn Fn(&[Option<Tensor>]) -> Result<Option<List>> + Send + Sync>;
type NodeHook = Arc<dyn Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Result<Option<List>> + Send + Sync>;

/// Hooks of one node, and a value that a front end attached to it.
#[derive(Clone, Default)]
pub(crate) struct NodeHooks {
    before: Vec<(u64, PreHook)>,
    after: Vec<(u64, NodeHook)>,
    attachment: Option<Arc<dyn Any + Send + Sync>>,
}

impl NodeHooks {
    /// The same without the hook of that number; `None` if nothing is left.
    pub(super) fn without(&self, id: u64) -> Option<Arc<NodeHooks>> {
        let mut left = self.clone();
        left.before.retain(|(other, _)| *other != id);
        left.after.retain(|(other, _)| *other != id);
        let is_empty = left.before.is_empty() && left.after.is_empty() && left.attachment.is_none();
        (!is_empty).then(|| Arc::new(left))
    }

    /// Lets the hooks see, and replace, the gradients of the node's outputs.
    pub(super) fn run_before(&self, node: &Node, grads: &mut Grads) -> Result<()> {
        for (_, hook) in &self.before {
            if let Some(new) = hook(grads)? {
                *grads = replaced(node, "pre-hook", grads, new)?;
            }
        }
        Ok(())
    }

    pub(super) fn has_after(&self) -> bool {
        !self.after.is_empty()
    }

    /// Lets the hooks see, and replace, the gradients of the node's inputs.
    pub(super) fn run_after(&self, node: &Node, produced: &mut Grads, grads: &Grads) -> Result<()> {
        if produced.is_empty() {
            produced.resize(node.inputs.len(), None);
        }
        for (_, hook) in &self.after {
            if let Some(new) = hook(produced, grads)? {
                *produced = replaced(node, "hook", produced, new)?;
            }
        }
        Ok(())
    }
}

/// Gradients that a hook returned, as many and of the same kind as before.
fn replaced(node: &Node, kind: &str, old: &Grads, new: List) -> Result<Grads> {
    if old.len() != new.len() {
        return Err(Error::autograd(format!(
            "a {kind} of {} returned an incorrect number of gradients (got {}, but expected {})",
            node.display_name(),
            new.len(),
            old.len()
        )));
    }
    for (old, new) in old.iter().zip(&new) {
        if let (Some(old), Some(new)) = (old, new)
            && (old.shape() != new.shape() || old.dtype() != new.dtype() || old.device() != new.device())
        {
            return Err(Error::autograd(format!(
                "a {kind} of {} returned a gradient of {} {:?} on {}, expected {} {:?} on {}",
                node.display_name(),
                new.dtype(),
                new.shape(),
                new.device(),
                old.dtype(),
                old.shape(),
                old.device()
            )));
        }
    }
    Ok(new.into_iter().collect())
}

/// A node of the recorded graph: an op, or the accumulation of a leaf's gradient. Holding one keeps its part of the
/// graph alive.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::Tensor;
/// let x = Tensor::new([1.0f32])?.requires_grad_(true)?;
/// let node = x.exp()?.grad_node().unwrap();
/// assert_eq!(node.name(), "ExpBackward0");
/// let (accumulate, _) = node.next_functions().remove(0).unwrap();
/// assert!(accumulate.variable().unwrap().is_same(&x));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct GraphNode(pub(crate) Arc<Node>);

impl GraphNode {
    /// The name as PyTorch prints it.
    pub fn name(&self) -> String {
        self.0.display_name()
    }

    /// A number that no other living node has.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// The node's place in the order of recording. Accumulations have the highest number.
    pub fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.0.outputs
    }

    /// The nodes that made the inputs, each with the number of its output; `None` for inputs without gradients.
    pub fn next_functions(&self) -> Vec<Option<(GraphNode, usize)>> {
        self.0.inputs.iter().map(|edge| edge.as_ref().map(|e| (GraphNode(e.node.clone()), e.slot))).collect()
    }

    /// The leaf whose gradient this node accumulates.
    pub fn variable(&self) -> Option<Tensor> {
        match &self.0.kind {
            Kind::Accumulate(leaf, _) => Some(leaf.clone()),
            Kind::Op(_) => None,
        }
    }

    /// What a function of the user's keeps for its backward; `None` for other nodes, and once it was freed.
    pub fn saved_tensors(&self) -> Result<Option<Vec<Tensor>>> {
        let saved = lock(&self.0.hooks).saved.clone();
        saved.map(|saved| saved.iter().map(|s| s.unpack(&self.0)).collect()).transpose()
    }

    /// What a step keeps for its backward, in the order in which the backward reads it. `grads` are gradients of its
    /// outputs, of their sizes: the backward runs once, and its result is dropped. `None` gradients count as zero.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::Tensor;
    /// let x = Tensor::new([2.0f32])?.requires_grad_(true)?;
    /// let y = x.exp()?;
    /// let kept = y.grad_node().unwrap().saved_values(vec![Some(Tensor::zeros([1])?)])?;
    /// assert_eq!(kept[0].output, Some(0));
    /// assert_eq!(kept[0].tensor.to_vec::<f32>()?, y.to_vec::<f32>()?);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn saved_values(&self, grads: Vec<Option<Tensor>>) -> Result<Vec<SavedValue>> {
        let (run, values) = super::saved::reading(|| super::mode::enable_grad(|| self.call(grads)));
        match run {
            Err(error) if values.is_empty() => Err(error),
            _ => Ok(values),
        }
    }

    /// Lets `hooks` store a value of [`saved_values`](GraphNode::saved_values) in another form.
    pub fn pack_saved(&self, value: &SavedValue, hooks: Arc<dyn SavedTensorsHooks>) -> Result<()> {
        let has_hooks = || lock(&self.0.hooks).packed.iter().any(|(key, _)| *key == value.key);
        if has_hooks() {
            return Err(Error::autograd(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is allowed at a time.",
            ));
        }
        let edge = if value.output.is_some() { None } else { value.tensor.edge() };
        let packed = Packed::later(hooks, &value.tensor, edge)?;
        lock(&self.0.hooks).packed.push((value.key, Arc::new(packed)));
        self.0.has_packed.store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// A handle that does not keep the graph alive.
    pub fn downgrade(&self) -> WeakGraphNode {
        WeakGraphNode(Arc::downgrade(&self.0))
    }

    /// Calls `hook` with the gradients of the node's outputs before its backward function runs. Returned gradients
    /// replace them.
    pub fn register_prehook(
        &self,
        hook: impl Fn(&[Option<Tensor>]) -> Result<Option<List>> + Send + Sync + 'static,
    ) -> HookHandle {
        self.add(|own, id| own.before.push((id, Arc::new(hook))))
    }

    /// Calls `hook` with the gradients of the node's inputs and of its outputs after its backward function has run.
    /// Returned gradients replace those of the inputs.
    pub fn register_hook(
        &self,
        hook: impl Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Result<Option<List>> + Send + Sync + 'static,
    ) -> HookHandle {
        self.add(|own, id| own.after.push((id, Arc::new(hook))))
    }

    fn add(&self, change: impl FnOnce(&mut NodeHooks, u64)) -> HookHandle {
        let id = next_id();
        let mut hooks = lock(&self.0.hooks);
        let mut own = hooks.own.as_deref().cloned().unwrap_or_default();
        change(&mut own, id);
        hooks.own = Some(Arc::new(own));
        HookHandle { id, tensor: Weak::new(), node: Arc::downgrade(&self.0) }
    }

    /// The value that a front end attached to this node.
    pub fn attachment(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        lock(&self.0.hooks).own.as_ref()?.attachment.clone()
    }

    /// Attaches a value to this node, for a front end.
    pub fn attach(&self, value: Arc<dyn Any + Send + Sync>) {
        let old;
        let mut hooks = lock(&self.0.hooks);
        let mut own = hooks.own.as_deref().cloned().unwrap_or_default();
        own.attachment = Some(value);
        old = hooks.own.replace(Arc::new(own));
        // Dropped without the lock: a destructor may be the user's code.
        drop(hooks);
        drop(old);
    }

    /// Runs the node's backward function alone: from gradients of its outputs to those of its inputs. Hooks do not run.
    pub fn call(&self, grads: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        let node = &self.0;
        if grads.len() != node.outputs {
            return Err(Error::autograd(format!(
                "{}: expected {} gradients, got {}",
                node.display_name(),
                node.outputs,
                grads.len()
            )));
        }
        match &node.kind {
            Kind::Accumulate(leaf, turn) => {
                if let Some(gradient) = grads.into_iter().next().flatten() {
                    leaf.add_to_grad(turn, gradient, super::engine::Share::Copied)?;
                }
                Ok(Vec::new())
            }
            Kind::Op(backward) => {
                let ctx = Ctx {
                    node,
                    take_sum: &|_, _| None,
                    home: &|_| None,
                    offer_mask: &|_, _| false,
                    mask: None,
                    wants: &|_| true,
                };
                let mut found = super::engine::apply(&ctx, lock(backward), grads.into_iter().collect(), true)?;
                found.resize(node.inputs.len(), None);
                Ok(found.into_vec())
            }
        }
    }
}

/// A [`GraphNode`] that may be gone.
#[derive(Clone)]
pub struct WeakGraphNode(Weak<Node>);

impl WeakGraphNode {
    /// The node, if it is still part of a graph.
    pub fn upgrade(&self) -> Option<GraphNode> {
        self.0.upgrade().map(GraphNode)
    }
}

/// A place in the graph where a gradient arrives: a node and one of its outputs.
#[derive(Clone)]
pub struct GradientEdge(pub(crate) Edge);

impl GradientEdge {
    /// The edge to an output of a node.
    pub fn new(node: &GraphNode, output: usize) -> Result<Self> {
        if output >= node.0.outputs {
            return Err(Error::index(format!(
                "GradientEdge: {} has {} outputs, there is no output {output}",
                node.name(),
                node.0.outputs
            )));
        }
        Ok(Self(Edge { node: node.0.clone(), slot: output }))
    }

    /// The node.
    pub fn node(&self) -> GraphNode {
        GraphNode(self.0.node.clone())
    }

    /// The number of the output.
    pub fn output(&self) -> usize {
        self.0.slot
    }
}

impl Tensor {
    /// The node that made this tensor; `None` for leaves.
    pub fn grad_node(&self) -> Option<GraphNode> {
        self.refresh_view();
        self.meta().node.clone().map(GraphNode)
    }

    /// Where this tensor's gradient arrives; `None` if it requires none.
    pub fn gradient_edge(&self) -> Option<GradientEdge> {
        self.edge().map(GradientEdge)
    }

    /// The tensor this one is a view of.
    pub fn base(&self) -> Option<Tensor> {
        self.meta().base().cloned()
    }
}
