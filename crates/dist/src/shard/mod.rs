//! Sharded data parallelism: ZeRO's stages and FSDP as one mechanism.
//!
//! A [`ShardGroup`] is the parameters of a block. Each rank keeps a shard of each of them. For a forward pass the group
//! is gathered by a recorded function, whose backward reduces and scatters the gradients. Ops that keep a gathered
//! parameter for the backward pass keep its place in the group instead (`saved.rs`), so the memory is free between the
//! passes and the group is gathered again when the backward pass first needs it.

mod group;
mod in_place;
mod layout;
mod module;
mod reduce;
mod saved;

pub use group::{ShardGroup, ShardOptions, ZeroStage};
pub use in_place::InPlace;
pub use module::{FullyShard, Sharded, clip_grad_norm_, shard};
