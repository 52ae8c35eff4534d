//! Default bodies of the engine's fused families, composed of its primitives.
//!
//! They let a new engine run whole models before it has a fused kernel, and are the reference that its fused kernels
//! are tested against. They aim at few lines and exact semantics, not at speed: every step is a pass over memory.
//! Scratch memory comes from the engine that owns the output. Intermediates larger than the operands are cut into
//! blocks of about four million elements.
//!
//! An engine's tests call these functions directly to get the reference of a family that the engine overrides.
//!
//! Half types are computed in `f32` and rounded once, when the result is stored.

mod array;
mod attention;
mod conv;
mod cross_entropy;
mod foreach;
mod indexing;
mod norm;
mod order;
mod pooling;
mod random;
mod scan;
mod softmax;
mod update;

pub use attention::{attention, attention_backward};
pub use conv::{conv_backward_input, conv_backward_weight, conv_forward};
pub use cross_entropy::{cross_entropy, cross_entropy_backward};
pub use foreach::{foreach_norm, foreach_scale};
pub use indexing::{arange, count_nonzero, gather, nonzero};
pub use norm::{batch_norm, batch_norm_backward, row_norm, row_norm_backward};
pub use order::{arg_reduce, searchsorted, sort, topk};
pub use pooling::{avg_pool, avg_pool_backward, max_pool, max_pool_backward};
pub use random::dropout;
pub use scan::scan;
pub use softmax::{softmax, softmax_backward};
pub use update::update;

/// Maximum elements of an intermediate; a single row or image may need more.
const BLOCK: usize = 1 << 22;

/// Number of units of `unit` elements per block; at least one, at most `count`.
fn per_block(count: usize, unit: usize) -> usize {
    (BLOCK / unit.max(1)).clamp(1, count.max(1))
}
