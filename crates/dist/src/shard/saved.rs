//! Gathered parameters that ops keep for the backward pass: their place in the group is kept, not their memory.

use super::group::{ShardGroup, lock};
use rushlight_core::{DType, Error, Layout, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{
    SavedTensorsGuard, SavedTensorsHooks, current_saved_tensors_hooks, saved_tensors_hooks,
};
use std::any::Any;
use std::sync::Arc;

struct Places {
    group: Arc<ShardGroup>,
    /// The hooks around these, for all other tensors: those of activation checkpointing.
    outer: Option<Arc<dyn SavedTensorsHooks>>,
}

enum Packed {
    /// A view of a gathered parameter.
    Place {
        layout: Layout,
        dtype: DType,
    },
    Kept {
        tensor: Tensor,
        version: u32,
    },
    Outer(Box<dyn Any + Send + Sync>),
}

impl ShardGroup {
    /// While the guard lives, ops of this thread keep no memory of this group's gathered parameters.
    pub fn keep_places(self: &Arc<Self>) -> SavedTensorsGuard {
        saved_tensors_hooks(self.places())
    }

    /// The hooks of [`ShardGroup::keep_places`].
    pub fn places(self: &Arc<Self>) -> Arc<dyn SavedTensorsHooks> {
        Arc::new(Places { group: self.clone(), outer: current_saved_tensors_hooks() })
    }
}

impl SavedTensorsHooks for Places {
    fn pack(&self, tensor: &Tensor) -> Result<Box<dyn Any + Send + Sync>> {
        let is_ours = lock(&self.group.state).whole.as_ref().is_some_and(|whole| whole.shares_storage(tensor));
        Ok(Box::new(match &self.outer {
            _ if is_ours => Packed::Place { layout: tensor.layout().clone(), dtype: tensor.dtype() },
            Some(outer) => Packed::Outer(outer.pack(tensor)?),
            None => Packed::Kept { version: tensor.version(), tensor: tensor.clone() },
        }))
    }

    fn unpack(&self, packed: &(dyn Any + Send + Sync)) -> Result<Tensor> {
        match (packed.downcast_ref::<Packed>(), &self.outer) {
            (Some(Packed::Place { layout, dtype }), _) => {
                let whole = self.group.gather_again()?;
                if whole.dtype() != *dtype {
                    return Err(Error::dtype(
                        "shard: the dtype of gathered parameters changed before the backward pass",
                    ));
                }
                whole.as_strided(layout.shape(), layout.strides(), layout.offset())
            }
            (Some(Packed::Kept { tensor, version }), _) if tensor.version() == *version => Ok(tensor.clone()),
            (Some(Packed::Kept { tensor, .. }), _) => Err(Error::autograd(format!(
                "one of the variables needed for gradient computation has been modified by an inplace operation: [{} {:?}]",
                tensor.dtype(),
                tensor.shape()
            ))),
            (Some(Packed::Outer(value)), Some(outer)) => outer.unpack(&**value),
            _ => Err(Error::value("shard: the object to unpack was not made by pack")),
        }
    }
}
