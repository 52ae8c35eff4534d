//! Default bodies of the engine's fused families, composed of its primitives.
//!
//! They let a new engine run whole models before it has a fused kernel, and are the reference that its fused kernels
//! are tested against. They aim at few lines and exact semantics, not at speed: every step is a pass over memory.
//! Scratch memory comes from the engine that owns the output. Intermediates larger than the operands are cut into
//! blocks of about four million elements.
//!
//! An engine's tests call [`run`] to get the reference of a family that the engine runs itself.
//!
//! Half types are computed in `f32` and rounded once, when the result is stored.

mod array;
mod attention;
mod complex;
mod conv;
mod cross_entropy;
mod distance;
mod foreach;
mod fused;
mod indexing;
mod norm;
mod order;
mod pooling;
mod random;
mod rearrange;
mod recurrent;
mod scan;
mod softmax;
mod update;

use super::{Backend, Call, View};
use crate::{Error, Result};

/// Runs the default body of a call that the engine declined.
///
/// # Safety
/// As for [`Backend::run`].
pub unsafe fn run(engine: &dyn Backend, call: &Call<View>) -> Result<()> {
    match call {
        Call::Arange(c) => indexing::arange(c),
        Call::Permutation(c) => random::permutation(c),
        Call::Dropout(c) => random::dropout(c),
        Call::Fused(c) => fused::fused(c),
        Call::FusedReduce(c) => fused::fused_reduce(c),
        Call::FusedRows(c) => fused::fused_rows(c),
        Call::ArgReduce(c) => order::arg_reduce(c),
        Call::Scan(c) => scan::scan(c),
        Call::Sort(c) => order::sort(c),
        Call::TopK(c) => order::topk(c),
        Call::Kth(c) => order::kth(c),
        Call::SearchSorted(c) => order::searchsorted(c),
        Call::Histogram(c) => rearrange::histogram(c),
        Call::IntRange(c) => rearrange::int_range(c),
        Call::Unique(c) => order::unique(c),
        Call::PadFrom(c) => rearrange::pad_from(c),
        Call::Flip(c) => rearrange::flip(c),
        Call::Resample(c) => rearrange::resample(c),
        Call::ResampleBackward(c) => rearrange::resample_backward(c),
        Call::Distances(c) => distance::distances(c),
        Call::Euclidean(c) => distance::euclidean(c),
        Call::Gather(c) => indexing::gather(c),
        Call::NonZero(c) => indexing::nonzero(c),
        Call::Complex(c) => complex::complex(c),
        Call::MatMulGelu(c) => recurrent::matmul_gelu(c),
        Call::MatMulGeluBackward(c) => recurrent::matmul_gelu_backward(c),
        Call::ConvForward(c) => conv::conv_forward(c),
        Call::ConvBackwardInput(c) => conv::conv_backward_input(c),
        Call::ConvBackwardWeight(c) => conv::conv_backward_weight(c),
        Call::MaxPool(c) => pooling::max_pool(c),
        Call::MaxPoolBackward(c) => pooling::max_pool_backward(c),
        Call::AvgPool(c) => pooling::avg_pool(c),
        Call::AvgPoolBackward(c) => pooling::avg_pool_backward(c),
        Call::Softmax(c) => softmax::softmax(c),
        Call::SoftmaxBackward(c) => softmax::softmax_backward(c),
        Call::RowNorm(c) => norm::row_norm(c),
        Call::RowNormBackward(c) => norm::row_norm_backward(c),
        Call::BatchNorm(c) => norm::batch_norm(c),
        Call::BatchNormBackward(c) => norm::batch_norm_backward(c),
        Call::BatchNormRunning(c) => norm::batch_norm_running(c),
        Call::CrossEntropy(c) => cross_entropy::cross_entropy(c),
        Call::CrossEntropyBackward(c) => cross_entropy::cross_entropy_backward(c),
        Call::Attention(c) => attention::attention(c),
        Call::AttentionBackward(c) => attention::attention_backward(c),
        Call::LstmCell(c) => recurrent::lstm_cell(c),
        Call::LstmCellBackward(c) => recurrent::lstm_cell_backward(c),
        Call::Update(c) => update::update(c),
        Call::ForeachNorm(c) => foreach::foreach_norm(c),
        Call::ForeachScale(c) => foreach::foreach_scale(c),
        Call::ForeachCopy(c) => foreach::foreach_copy(c),
        Call::Fill(_)
        | Call::Copy(_)
        | Call::Random(_)
        | Call::Pointwise(_)
        | Call::PointwiseGrad(_)
        | Call::Select(_)
        | Call::Reduce(_)
        | Call::Index(_)
        | Call::IndexPut(_)
        | Call::Scatter(_)
        | Call::MatMul(_)
        | Call::PackedMatMul(_)
        | Call::ConvPacked(_)
        | Call::Fft(_)
        | Call::Ctc(_)
        | Call::CtcBackward(_)
        | Call::Linalg(_) => {
            Err(Error::unsupported(format!("{}: not available on {}; use the CPU", call.op_name(), engine.device())))
        }
    }
}

/// Runs a call that a default body is made of, on the engine that owns its output.
fn execute<'v>(call: impl Into<Call<View<'v>>>) -> Result<()> {
    let call = call.into();
    let Some(out) = call.output() else { return Ok(()) };
    // SAFETY: the views of a default body come from those of the call it stands for, which keep its contract, and from
    // scratch memory of its own; `Array` checks every layout it makes.
    unsafe { super::execute(out.storage().backend(), &call) }
}

/// Maximum elements of an intermediate; a single row or image may need more.
const BLOCK: usize = 1 << 22;

/// Number of units of `unit` elements per block; at least one, at most `count`.
fn per_block(count: usize, unit: usize) -> usize {
    (BLOCK / unit.max(1)).clamp(1, count.max(1))
}
