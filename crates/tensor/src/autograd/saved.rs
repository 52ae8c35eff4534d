//! Values kept for backward, with a check that nobody changed them.

use super::Meta;
use super::node::Node;
use crate::Tensor;
use rushlight_core::{Error, Result};
use std::sync::Arc;

/// A tensor kept for backward.
pub(crate) struct Saved {
    tensor: Tensor,
    version: u32,
    /// The slot, if this is an output of the node that keeps it: kept without its node, which would be a cycle.
    output: Option<usize>,
}

impl Saved {
    /// An input of the op.
    pub(crate) fn input(tensor: &Tensor) -> Self {
        Self { tensor: tensor.clone(), version: tensor.graph_version(), output: None }
    }

    /// An output of the op, by slot.
    pub(crate) fn output(tensor: &Tensor, slot: usize) -> Self {
        Self { tensor: tensor.alias(), version: tensor.graph_version(), output: Some(slot) }
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
        if self.tensor.graph_version() != self.version {
            return Err(Error::autograd(format!(
                "one of the variables needed for gradient computation has been modified by an inplace operation: \
                 [{} {:?}], saved by {}, is at version {}; expected version {} instead. Clone it before the in-place change, or use \
                 the op without the underscore.",
                self.tensor.dtype(),
                self.tensor.shape(),
                node.display_name(),
                self.tensor.graph_version(),
                self.version
            )));
        }
        let Some(slot) = self.output else { return Ok(self.tensor.clone()) };
        if !super::mode::is_grad_enabled() {
            return Ok(self.tensor.clone());
        }
        let tensor = self.tensor.alias();
        tensor.attach(node, slot);
        Ok(tensor)
    }
}

impl Tensor {
    /// A new tensor over the same elements with no history and no link to this one's graph.
    pub(crate) fn alias(&self) -> Tensor {
        Tensor::from_parts(self.0.storage.clone(), self.0.layout.clone(), self.0.dtype, Meta::default())
    }
}
