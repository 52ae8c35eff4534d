//! Tensors saved for backward, with a check that they were not modified.

use super::Meta;
use super::node::Node;
use super::saved_hooks::{self, Packed};
use crate::Tensor;
use rushlight_core::{Error, Result};
use std::cell::Cell;
use std::sync::Arc;

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

thread_local! {
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
        let tensor = match &self.kept {
            Kept::Packed(packed) => {
                let tensor = packed.unpack(node)?;
                if let (Some(edge), true) = (&packed.edge, super::mode::is_grad_enabled()) {
                    tensor.attach(&edge.node, edge.slot);
                }
                tensor
            }
            Kept::Tensor(tensor) => {
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

impl Tensor {
    /// A new tensor over the same elements with no history and no link to this one's graph.
    pub(crate) fn alias(&self) -> Tensor {
        self.over_same_memory(self.0.layout.clone(), self.0.dtype, Meta::default())
    }
}
