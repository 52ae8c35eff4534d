//! Tensors saved for backward, with a check that they were not modified.

use super::Meta;
use super::node::Node;
use super::saved_hooks::{self, Packed};
use crate::Tensor;
use rushlight_core::sync::{Seldom, lock};
use rushlight_core::{Error, Result};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A tensor kept for backward.
pub(crate) struct Saved {
    kept: Kept,
    version: u32,
    /// The slot, if this is an output of the node that keeps it: kept without its node, which would be a cycle.
    output: Option<usize>,
}

enum Kept {
    Tensor(Tensor),
    /// Under [`saved_tensors_hooks`](super::saved_tensors_hooks).
    Packed(Box<Packed>),
}

/// A tensor that a step keeps for its backward: see [`GraphNode::saved_values`](super::GraphNode::saved_values).
#[derive(Clone)]
pub struct SavedValue {
    /// The tensor, with its place in the graph.
    pub tensor: Tensor,
    /// Which output of the step it is; `None` for inputs and for values in between.
    pub output: Option<usize>,
    /// Its place in the step.
    pub(super) key: usize,
}

static IS_READING: Seldom<bool> = Seldom::new(false, &OWN_IS_READING);

thread_local! {
    /// What backward functions have read of their saved tensors, while somebody asks.
    static READ: RefCell<Vec<SavedValue>> = const { RefCell::new(Vec::new()) };
    static OWN_IS_READING: Cell<bool> = const { Cell::new(false) };
    /// Tensors saved by this thread since its last node: they belong to the node that is recorded next.
    static SAVED: Cell<usize> = const { Cell::new(0) };
}

/// The number of tensors saved for the node that is being made.
pub(crate) fn take_saved_count() -> usize {
    SAVED.replace(0)
}

fn count_saved() {
    SAVED.set(SAVED.get() + 1);
}

impl Saved {
    /// An input of the op.
    pub(crate) fn input(tensor: &Tensor) -> Self {
        count_saved();
        let version = tensor.graph_version();
        match saved_hooks::current() {
            None => Self { kept: Kept::Tensor(tensor.clone()), version, output: None },
            Some(hooks) => {
                Self { kept: Kept::Packed(Packed::new(hooks, tensor, tensor.edge())), version, output: None }
            }
        }
    }

    /// An output of the op, by slot.
    pub(crate) fn output(tensor: &Tensor, slot: usize) -> Self {
        count_saved();
        let kept = match saved_hooks::current() {
            None => Kept::Tensor(tensor.alias()),
            Some(hooks) => Kept::Packed(Packed::new(hooks, tensor, None)),
        };
        Self { kept, version: tensor.graph_version(), output: Some(slot) }
    }

    /// An input that the op is about to overwrite: its value is copied, under its present history.
    pub(crate) fn overwritten(tensor: &Tensor) -> Result<Self> {
        let copy = super::mode::no_grad(|| tensor.copy())?;
        if let Some(edge) = tensor.edge() {
            copy.attach(&edge.node, edge.slot);
        }
        Ok(Self::input(&copy))
    }

    pub(crate) fn unpack(&self, node: &Arc<Node>) -> Result<Tensor> {
        let tensor = self.restore(node)?;
        if IS_READING.get() {
            let (key, output) = (self.key(), self.output);
            READ.with_borrow_mut(|read| {
                if read.iter().all(|other| other.key != key) {
                    read.push(SavedValue { tensor: tensor.clone(), output, key });
                }
            });
        }
        Ok(tensor)
    }

    /// A step's function does not move, and neither does what it keeps.
    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn restore(&self, node: &Arc<Node>) -> Result<Tensor> {
        let restored = |packed: &Packed| -> Result<Tensor> {
            let tensor = packed.unpack(node)?;
            if let (Some(edge), true) = (&packed.edge, super::mode::is_grad_enabled()) {
                tensor.attach(&edge.node, edge.slot);
            }
            Ok(tensor)
        };
        let packed_later = match node.has_packed.load(Relaxed) {
            true => lock(&node.hooks).packed.iter().find(|(key, _)| *key == self.key()).map(|(_, p)| p.clone()),
            false => None,
        };
        let tensor = match (&packed_later, &self.kept) {
            (Some(packed), _) => restored(packed)?,
            (None, Kept::Packed(packed)) => restored(packed)?,
            (None, Kept::Tensor(tensor)) => {
                self.check_version(tensor, node)?;
                tensor.clone()
            }
        };
        let Some(slot) = self.output else { return Ok(tensor) };
        if !super::mode::is_grad_enabled() {
            return Ok(tensor);
        }
        let tensor = tensor.alias();
        tensor.attach(node, slot);
        Ok(tensor)
    }

    fn check_version(&self, tensor: &Tensor, node: &Node) -> Result<()> {
        if tensor.graph_version() == self.version {
            return Ok(());
        }
        Err(Error::autograd(format!(
            "one of the variables needed for gradient computation has been modified by an inplace operation: \
             [{} {:?}], saved by {}, is at version {}; expected version {} instead. Clone it before the in-place change, or use \
             the op without the underscore.",
            tensor.dtype(),
            tensor.shape(),
            node.display_name(),
            tensor.graph_version(),
            self.version
        )))
    }
}

/// What the backward functions that `run` calls keep.
pub(super) fn reading<T>(run: impl FnOnce() -> T) -> (T, Vec<SavedValue>) {
    let (outer, before) = (IS_READING.replace(true), READ.take());
    let made = run();
    IS_READING.set(outer);
    (made, READ.replace(before))
}

impl Tensor {
    /// A new tensor over the same elements with no history and no link to this one's graph.
    pub(crate) fn alias(&self) -> Tensor {
        self.over_same_memory(self.0.layout.clone(), self.0.dtype, Meta::default())
    }
}
