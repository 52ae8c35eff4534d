//! The table of engine calls.
//!
//! Contracts that hold for every call: the tensor layer has checked shapes, dtypes and devices. Views may have any
//! strides, unless a comment says *contiguous*; outputs never overlap themselves. An output never overlaps an input,
//! except that a pointwise row, a select, a copy or a fill may write exactly over one of its inputs. Views may be
//! empty. Values in index tensors are *not* checked: the engine reports one out of range as
//! [`Error::index`](crate::Error::index) and touches nothing outside its views.

use super::{Access, Marks, Numbers, calls};
use crate::backend::spec::{self, Activation, Conv, Packed, Pool, Rank};
use crate::backend::{Resample as ResampleSpec, Steps, View};
use crate::rng::Distribution;
use crate::{DType, Philox, Pointwise as Op, Scalar};
use std::sync::Arc;

calls! {
    // ---- filling and copying

    /// Sets every element.
    fill Fill: Copy { params { value: Scalar } writes { out: one } }

    /// `out[i] = start + i * step` in row-major order, computed in `f64` for floats and `i64` for integers.
    arange Arange: Copy { params { start: Scalar, step: Scalar } writes { out: one } }

    /// Copies and converts; one shape, any dtypes.
    copy Copy: Copy { reads { src: one } writes { out: one } }

    /// Random values; element `i` in row-major order uses word `i` of the stream, or words `2i` and `2i + 1` where it
    /// needs 64 bits (`f64` and integers). Normals come in pairs: elements `2j` and `2j + 1` from the two uniforms
    /// numbered so.
    random Random: Copy { params { distribution: Distribution, stream: Philox } writes { out: one } }

    /// The numbers below `out`'s size in the random order that [`rng::permutation`](crate::rng::permutation) gives for
    /// the stream; `out` is `i64`, contiguous.
    permutation Permutation: Copy { params { stream: Philox } writes { out: one } }

    // ---- elements

    /// A row of the op table. Inputs have the output's shape and any dtypes: the engine converts each to `compute` (one
    /// of `f32`, `f64`, `i64`, `i32`, `i16`, `i8`, `u8`) and the result to the output's dtype.
    pointwise Pointwise: Copy {
        params { op: Op, compute: DType, params: Numbers }
        reads { inputs: operands }
        writes { out: one }
    }

    /// The derivative of a row by input `wrt`. `values` are the incoming gradient, the three inputs and the output;
    /// those the derivative does not read (see [`Op::grad_reads`]) may be `None`. `compute` is `f32` or `f64`.
    pointwise_grad PointwiseGrad: Copy {
        params { op: Op, wrt: usize, compute: DType, params: Numbers }
        reads { values: values }
        writes { out: one }
    }

    /// `out = condition ? a : b`; `condition` is `bool`, the others are converted to the output's dtype.
    select Select: Copy { reads { condition: one, a: operand, b: operand } writes { out: one } }

    /// `out = uniform(word i) >= p ? x / (1 - p) : 0`, elements numbered in row-major order; `p < 1`. Floats.
    dropout Dropout: Copy { params { p: f64, stream: Philox } reads { x: one } writes { out: one } }

    /// Pointwise steps in one pass: inputs and outputs have one shape, an output the dtype of its step's value. An
    /// output may lie exactly over an input.
    fused Fused { params { of: Arc<Steps> } reads { inputs: list } writes { outs: list } }

    /// The sum or mean, over the dimensions marked in `reduced`, of the one value that pointwise steps store. Inputs
    /// have one shape; `out` has those dimensions at size 1, and the value's dtype, a float.
    fused_reduce FusedReduce {
        params { of: Arc<Steps>, reduced: Marks, mean: bool }
        reads { inputs: list }
        writes { out: one }
    }

    /// Pointwise steps and reductions of rows in one pass. Inputs have one shape; the dimensions marked in `reduced`,
    /// the last ones, are a row. An output has that shape, or, where its step has one value per row, the shape with
    /// those dimensions at size 1. An output may lie exactly over an input of its shape.
    fused_rows FusedRows { params { of: Arc<Steps>, reduced: Marks } reads { inputs: list } writes { outs: list } }

    // ---- reductions

    /// Reduces the dimensions marked in `reduced` (as long as `x`'s shape); `out` has those at size 1.
    reduce Reduce { params { op: spec::Reduce, reduced: Marks } reads { x: one } writes { out: one } }

    /// Best value along `dim` and its index (`i64`); both outputs have size 1 there. `dim` is not empty.
    arg_reduce ArgReduce: Copy {
        params { op: spec::ArgReduce, dim: usize }
        reads { x: one }
        writes { values: one, indices: one }
    }

    /// Running reduction along `dim`, into `x`'s dtype or, from integers and `bool`, `i64`; `indices` is there for
    /// `Max` and `Min`.
    scan Scan: Copy {
        params { op: spec::Scan, dim: usize }
        reads { x: one }
        writes { out: one, indices: maybe }
    }

    // ---- order

    /// Sorts along `dim`, stably, NaN as the largest; `indices` is `i64`.
    sort Sort: Copy { params { dim: usize, descending: bool } reads { x: one } writes { values: one, indices: one } }

    /// The `k` largest or smallest along `dim`, in order, NaN as the largest; outputs have size `k` there.
    topk TopK: Copy { params { dim: usize, largest: bool } reads { x: one } writes { values: one, indices: one } }

    /// The element of the given rank along `dim` and its position (`i64`). Equal elements rank as in a stable sort.
    kth Kth: Copy { params { dim: usize, rank: Rank } reads { x: one } writes { values: one, indices: one } }

    /// For each value, where it would go in its row of `sorted` (last dimension; one row, or one per row of `values`).
    searchsorted SearchSorted: Copy {
        params { right: bool }
        reads { sorted: one, values: one }
        writes { out: one }
    }

    /// Counts of elements of `x` (`f32` or `f64`) in each of the bins of equal width from `low` to `high`, both of them
    /// finite; `out` is `i64`, contiguous.
    histogram Histogram: Copy { params { low: f64, high: f64 } reads { x: one } writes { out: one } }

    /// The least and the greatest element of a non-empty contiguous `i64` tensor; `out` is `i64`, `[2]`, contiguous.
    int_range IntRange: Copy { reads { x: one } writes { out: one } }

    /// The distinct elements of a contiguous vector of at least one in ascending order, NaN as the largest and each of
    /// its own; for each element its place among them; how often each occurs; and their number, one element. `values`
    /// and `counts` have `x`'s size: what comes after the last distinct element is any. All but `values` are `i64`.
    unique Unique: Copy { reads { x: one } writes { values: one, inverse: one, counts: one, count: one } }

    // ---- rearrangements

    /// `x` padded by its own elements: `sources` has, for each of the last dimensions, the index in `x` of every index
    /// in `out`; leading dimensions are equal. One dtype, `out` contiguous.
    pad_from PadFrom { params { sources: Arc<[Vec<usize>]> } reads { x: one } writes { out: one } }

    /// `x` with the elements of the dimensions that are `flipped` in reverse order; one shape and dtype.
    flip Flip { params { flipped: Marks } reads { x: one } writes { out: one } }

    /// Resizes planes: `x` is `[planes, inputs..]`, `y` `[planes, outputs..]`; `f32` or `f64`, contiguous.
    resample Resample: Copy { params { spec: ResampleSpec } reads { x: one } writes { y: one } }

    /// The gradient of [`Resample`].
    resample_backward ResampleBackward: Copy { params { spec: ResampleSpec } reads { dy: one } writes { dx: one } }

    /// The `p`-norms of the differences of every row of `a` (`[batch, n, size]`) and every row of `b`
    /// (`[batch, m, size]`) as `[batch, n, m]`; one of `f32` and `f64`, contiguous.
    distances Distances: Copy { params { p: f64 } reads { a: one, b: one } writes { out: one } }

    /// Euclidean distances, with the sizes of [`Distances`], by the product `|x|² - 2 x·y + |y|²`: fast, and inexact
    /// for rows that are close together.
    euclidean Euclidean: Copy { reads { a: one, b: one } writes { out: one } }

    // ---- indexing

    /// `out[i.., r..] = x[indices[0][i..], indices[1][i..], …, r..]`: the index tensors (`i64`, one shape) index the
    /// leading dimensions of `x`; negative indices count from the end.
    index Index { reads { x: one, indices: list } writes { out: one } }

    /// `out[indices[0][i..], …, r..] = values[i.., r..]`, or `+=` with `accumulate` (duplicates add up, in order).
    index_put IndexPut { params { accumulate: bool } reads { indices: list, values: one } changes { out: one } }

    /// `out[.., i, ..] = x[.., index[.., i, ..], ..]` along `dim`; `index` has `out`'s shape, at most `x`'s size
    /// elsewhere.
    gather Gather: Copy { params { dim: usize } reads { x: one, index: one } writes { out: one } }

    /// The reverse of [`Gather`]: `out[.., index[.., i, ..], ..] op= src[.., i, ..]`; `src` has at least `index`'s
    /// sizes.
    scatter Scatter: Copy {
        params { op: spec::Scatter, dim: usize }
        reads { index: one, src: operand }
        changes { out: one }
    }

    /// Coordinates of the nonzero elements, in row-major order: `out` is `[count, rank]`, `i64`, in any order.
    nonzero NonZero: Copy { reads { x: one } writes { out: one } }

    // ---- products

    /// `out = activation(alpha * a @ b + beta * out + bias)`, batched. One dtype, except that a product of halves may
    /// be written as `f32` with [`Features::wide_outputs`](crate::backend::Features::wide_outputs).
    matmul MatMul: Copy {
        params {
            /// Factor of the product.
            alpha: f64,
            /// Factor of the previous contents of `out`; with 0 they are not read.
            beta: f64,
            /// Applied last.
            activation: Activation,
        }
        reads {
            /// `[batch, m, k]`.
            a: one,
            /// `[batch, k, n]`.
            b: one,
            /// `[n]`, added to every row.
            bias: maybe,
        }
        changes {
            /// `[batch, m, n]`.
            out: one,
        }
    }

    /// `out = activation(a @ b + beta * out + bias)` of contiguous matrices, with `b` in the engine's own layout
    /// ([`Backend::pack_weight`](crate::Backend::pack_weight)).
    packed_matmul PackedMatMul {
        params { packed: Packed, beta: f64, activation: Activation }
        reads {
            a: one,
            b: one,
            /// `[n]`, added to every row.
            bias: maybe,
        }
        changes { out: one }
    }

    /// `out = gelu_tanh(x)` and `kept = x` of the product `x = a @ b + bias`.
    matmul_gelu MatMulGelu: Copy { reads { product: product } writes { kept: one } }

    /// `out = (a @ b) * gelu_tanh'(kept)`, and the sums of its columns to `sums` (`[1, 1, n]`).
    matmul_gelu_backward MatMulGeluBackward: Copy { reads { product: product, kept: one } writes { sums: one } }

    /// Convolution; one dtype, contiguous, or with
    /// [`Features::channels_last`](crate::backend::Features::channels_last) images all with their channels innermost.
    /// `bias` is `[out_channels]`.
    conv_forward ConvForward: Copy { params { spec: Conv } reads { x: one, w: one, bias: maybe } writes { y: one } }

    /// `y = relu(x ⋆ w + bias + addend)` in `f32`, the ReLU with `relu`, with `w` in the engine's own layout
    /// ([`Backend::pack_conv`](crate::Backend::pack_conv)). Each image is contiguous or has its channels innermost.
    conv_packed ConvPacked {
        params { spec: Conv, packed: Packed, relu: bool }
        reads {
            x: one,
            w: one,
            bias: maybe,
            /// Of the shape of `y`.
            addend: maybe,
        }
        writes { y: one }
    }

    /// Gradient of the convolution with respect to the input, added to `dx` with `accumulate`; also the forward pass of
    /// the transposed convolution.
    conv_backward_input ConvBackwardInput: Copy {
        params { spec: Conv, accumulate: bool }
        reads { dy: one, w: one }
        changes { dx: one }
    }

    /// Gradient of the convolution with respect to the weight.
    conv_backward_weight ConvBackwardWeight: Copy { params { spec: Conv } reads { x: one, dy: one } writes { dw: one } }

    // ---- complex numbers: `f32` or `f64`, contiguous, the parts of a number in a last dimension of two

    /// Products and quotients of complex numbers, `out[i] = a[i] op b[i]`. Either operand may have one number only.
    /// [`spec::Complex::Blocks`] and [`spec::Complex::Product`] have sizes of their own.
    complex Complex: Copy { params { op: spec::Complex } reads { a: one, b: one } writes { out: one } }

    /// Discrete Fourier transforms of rows, or of the last `dims` dimensions, times a factor; [`spec::Fft`] has the
    /// sizes. The tensor layer moves data to the CPU for engines that decline.
    fft Fft: Copy { params { op: spec::Fft, dims: usize, scale: f64 } reads { x: one } writes { out: one } }

    // ---- pooling: contiguous

    /// Maximum over windows and its position within the plane (`i64`), the first of equals; NaN wins.
    max_pool MaxPool: Copy { params { spec: Pool } reads { x: one } writes { y: one, indices: one } }

    /// Adds each gradient at the position of its maximum; writes all of `dx`.
    max_pool_backward MaxPoolBackward: Copy { params { spec: Pool } reads { dy: one, indices: one } writes { dx: one } }

    /// Average over windows.
    avg_pool AvgPool: Copy { params { spec: Pool } reads { x: one } writes { y: one } }

    /// Gradient of [`AvgPool`]; writes all of `dx`.
    avg_pool_backward AvgPoolBackward: Copy { params { spec: Pool } reads { dy: one } writes { dx: one } }

    // ---- fused families: contiguous; statistics are f32 for half types, else of the input's dtype

    /// Softmax, or its logarithm, of `[outer, n, inner]` over `n`.
    softmax Softmax: Copy { params { log: bool, dims: [usize; 3] } reads { x: one } writes { y: one } }

    /// Gradient of [`Softmax`], from the output.
    softmax_backward SoftmaxBackward: Copy {
        params { log: bool, dims: [usize; 3] }
        reads { dy: one, y: one }
        writes { dx: one }
    }

    /// Rows normalised, scaled and shifted.
    row_norm RowNorm: Copy {
        params { spec: spec::RowNorm }
        reads { x: one, weight: maybe, bias: maybe }
        writes {
            y: one,
            /// A half-precision copy of the result of an `f32` input; only with
            /// [`Features::wide_outputs`](crate::backend::Features::wide_outputs).
            low: maybe,
            /// `[rows]`; unused for rms.
            mean: one,
            /// `[rows]`.
            rstd: one,
        }
    }

    /// Gradients of [`RowNorm`]; unneeded ones are `None`.
    row_norm_backward RowNormBackward: Copy {
        params { spec: spec::RowNorm }
        reads {
            /// Of the dtype of `x`, or of a lower one.
            dy: one,
            x: one,
            weight: maybe,
            mean: one,
            rstd: one,
            /// Added to `dx`; of the shape of `x`.
            so_far: maybe,
        }
        writes {
            dx: maybe,
            /// A half-precision copy of `dx`, also where that is not written.
            low: maybe,
            /// On GPUs, written after all of `dy` has been read, whose memory it may be; so is `dbias`.
            dweight: maybe,
            dbias: maybe,
        }
    }

    /// Channels normalised, scaled and shifted. `mean` and `rstd` (`[channels]`) are written when training (biased
    /// variance), else read.
    batch_norm BatchNorm: Copy {
        params { spec: spec::BatchNorm }
        reads { x: one, weight: maybe, bias: maybe }
        writes { y: one }
        changes { mean: one, rstd: one }
    }

    /// Gradients of [`BatchNorm`]; unneeded ones are `None`.
    batch_norm_backward BatchNormBackward: Copy {
        params {
            spec: spec::BatchNorm,
            /// Whether a ReLU followed: `dy` is the gradient of its output, and `bias` that of the forward pass, from
            /// which the engine recomputes which elements were positive.
            relu: bool,
        }
        reads { dy: one, x: one, weight: maybe, bias: maybe, mean: one, rstd: one }
        writes { dx: maybe, dweight: maybe, dbias: maybe }
    }

    /// Moves running statistics, contiguous and of the statistics' dtype, towards a batch's mean and unbiased variance
    /// by `lerp`.
    batch_norm_running BatchNormRunning: Copy {
        params { spec: spec::BatchNorm, momentum: f64 }
        reads { mean: one, rstd: one }
        changes { running_mean: one, running_var: one }
    }

    /// Loss of each row (weighted, zero if ignored), the weight it has in a mean, and the logarithm of the sum of
    /// exponentials, all `[rows]`, statistics' dtype. No probabilities are stored.
    cross_entropy CrossEntropy: Copy { reads { of: entropy } writes { loss: one, row_weight: one, lse: one } }

    /// Gradient with respect to the logits, from the gradient of each row's loss (statistics' dtype).
    cross_entropy_backward CrossEntropyBackward: Copy {
        reads { of: entropy, lse: one, dloss: one }
        writes { dlogits: one }
    }

    /// Losses of connectionist temporal classification, `[batch]`, from log-probabilities `[steps, batch, classes]`,
    /// and what its gradient needs, `[batch, steps, most]`: one of `f32` and `f64`. `states` (`i32`, `[batch, most,
    /// 3]`) has each state's class, the next state of this class or -1, and 1 for the first state of a class that is
    /// not blank; `lengths` (`i32`, `[batch, 2]`) the steps and states of each sequence. All are contiguous. The host
    /// computes it for engines that decline.
    ctc Ctc: Copy { reads { log_probs: one, states: one, lengths: one } writes { alphas: one, loss: one } }

    /// Gradient of [`Ctc`] with respect to the log-probabilities of a `log_softmax`.
    ctc_backward CtcBackward: Copy {
        params { blank: usize, zero_infinity: bool }
        reads { log_probs: one, states: one, lengths: one, alphas: one, loss: one, dloss: one }
        writes { dx: one }
    }

    /// Attention without a stored score matrix; `out` is `[batch, heads, l, dv]` of any strides, `lse`
    /// `[batch, heads, l]` contiguous. A row with every key masked out gives zeros.
    attention Attention: Copy { reads { of: attention } writes { out: one, lse: one } }

    /// Gradients of [`Attention`] (contiguous unless
    /// [`Features::strided_attention_gradients`](crate::backend::Features::strided_attention_gradients)), recomputing
    /// probabilities from `lse`; `dout` may have any strides.
    attention_backward AttentionBackward: Copy {
        reads { of: attention, out: one, lse: one, dout: one }
        writes { dq: one, dk: one, dv: one }
    }

    // ---- recurrent networks

    /// One step of a long short-term memory: `c = forget * before + input * new` and `h = output * tanh(c)`. One float
    /// dtype, contiguous.
    lstm_cell LstmCell: Copy {
        reads {
            /// The cell state before the step, `[batch, hidden]`.
            before: one,
        }
        writes { c: one, h: one }
        changes {
            /// `[batch, 4 * hidden]`: input, forget, new, output; sums, activated in place.
            gates: one,
        }
    }

    /// The gradient of [`LstmCell`].
    lstm_cell_backward LstmCellBackward: Copy {
        reads {
            /// As the forward call left them.
            gates: one,
            before: one,
            /// The cell state after the step.
            c: one,
            /// The gradient of the output, or a part of it.
            dh: one,
            /// The other part.
            outer: maybe,
        }
        writes {
            /// The gradient of the sums.
            dgates: one,
        }
        changes {
            /// The gradient of `c`; becomes that of `before`.
            dc: one,
        }
    }

    // ---- lists of tensors: shapes and floating dtypes may differ

    /// An optimizer's step over all its parameters, gradients multiplied by `grad_scale` (a number or a tensor of one)
    /// first. One pass: each element is read and written once.
    update Update {
        params {
            /// Within a recording: device addresses of each parameter's
            /// [numbers](crate::backend::ParamUpdate::numbers). Empty otherwise.
            live: Vec<u64>,
        }
        reads {
            updates: updates,
            grad_scale: operand,
            /// One `f32`; nothing is done where it is not zero. Within a recording only.
            found_inf: maybe,
        }
    }

    /// The p-norm (as [`spec::Reduce::Norm`]) of all elements of all tensors, taken as one vector, to `out`, one float.
    foreach_norm ForeachNorm { params { p: f64 } reads { xs: list } writes { out: one } }

    /// `x *= factor` for all, in place; contiguous. Sets `found_inf`, one `f32`, to 1 if an element was not finite
    /// before, otherwise leaves it unchanged. Without a factor only `found_inf` is written.
    foreach_scale ForeachScale { reads { factor: maybe_operand } changes { xs: list, found_inf: maybe } }

    /// Copies each tensor to its destination, which has as many elements, converting; contiguous. A destination of the
    /// same shape may lie in rows with gaps between them: its dimensions are contiguous but for one stride.
    foreach_copy ForeachCopy { reads { from: list } writes { to: list } }

    /// A dense factorisation over the last two dimensions of contiguous `f32` or `f64` tensors. The tensor layer moves
    /// data to the CPU for engines that decline.
    linalg Linalg { params { op: spec::Linalg } reads { inputs: list } writes { outputs: list } }
}

impl<'a> MatMul<View<'a>> {
    /// `out = a @ b`.
    pub fn plain(a: View<'a>, b: View<'a>, out: View<'a>) -> Self {
        Self { a, b, out, bias: None, alpha: 1.0, beta: 0.0, activation: Activation::None }
    }
}
