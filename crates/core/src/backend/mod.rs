//! The [`Backend`] trait: one method per family of ops.

mod capture;
mod collectives;
pub mod composed;
mod engine;
mod precision;
mod resample;
mod spec;
mod storage;
mod stream;

pub use capture::{Capture, Graph, Recording, StepPool, Verdict};
pub use collectives::{Collectives, DeviceComm, DeviceOp, DeviceWork, MemoryOffer, ReduceOp};
pub use engine::{Engine, Library, Pinned, PinnedMemory, Properties};
pub use precision::{
    allow_tf32, allow_tf32_conv, in_recurrent_layer, is_in_recurrent_layer, set_allow_tf32, set_allow_tf32_conv,
};
pub use resample::{Resample, ResampleAxis, Sampling};
pub use spec::*;
pub use storage::{Operand, Storage, View};
pub use stream::{Event, Stream, Streams};

use crate::rng::Distribution;
use crate::{Device, Error, Philox, Pointwise, Result, Scalar};
use std::ptr::NonNull;

/// Allocator statistics in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// In use by tensors.
    pub allocated: usize,
    /// Taken from the system, in use or kept for reuse.
    pub reserved: usize,
    /// Highest `allocated` since the last reset.
    pub peak: usize,
}

/// Optional: statistics and control of a caching allocator.
pub trait CachingAllocator: Send + Sync {
    /// The allocator's statistics.
    fn stats(&self) -> MemoryStats;
    /// Resets the peak.
    fn reset_peak(&self);
    /// Returns memory kept for reuse to the system.
    fn empty_cache(&self);
}

/// Optional capabilities of an engine. The tensor layer checks a flag before it relies on one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Products and sums of halves can be written as their `f32` accumulators.
    pub wide_outputs: bool,
    /// Convolutions support channels-last images, and are fastest so in half precision.
    pub channels_last: bool,
    /// Attention writes gradients with any strides.
    pub strided_attention_gradients: bool,
    /// Batch norm of halves accepts `f32` weights and biases.
    pub wide_batch_norm_parameters: bool,
    /// There is a `batch_norm_relu_backward`.
    pub batch_norm_relu: bool,
    /// Bytes that the engine copies in the time of one launch: a copy up to this size pays if it saves a launch.
    pub bytes_per_call: usize,
}

/// An engine for one device.
///
/// The tensor layer has checked shapes, dtypes and devices: views passed together have the shapes a method's comment
/// names. Outputs are views too, possibly strided but never overlapping, and uninitialised unless the comment says
/// otherwise. An output never overlaps an input, except that a pointwise op, a select, a copy or a fill may write
/// exactly over one of its inputs. "Contiguous" in a comment means that the tensor layer guarantees it; where nothing
/// is said, any strides must work. Zero-sized views must work everywhere.
///
/// Values read from index tensors are *not* checked by the tensor layer: engines report one out of range as
/// [`Error::index`] and touch nothing outside their views.
///
/// # What an engine must implement
///
/// The methods without a body, which are the primitives:
///
/// - memory: `alloc`, `free`, `upload`, `download`, `synchronize`;
/// - values: `fill`, `copy`, `random`;
/// - elements: `pointwise`, `pointwise_grad`, `select`;
/// - reductions: `reduce`;
/// - indexing: `index`, `index_put`, `scatter`;
/// - products: `matmul`.
///
/// Every other family has a default body made of these (see [`composed`]), so an engine runs whole models with the
/// primitives alone. It overrides a family once it has a kernel for it, and tests the kernel against the default body.
/// The default bodies of `sort`, `topk` and `count_nonzero` read from the device; `linalg` has none and runs on the
/// CPU.
pub trait Backend: Send + Sync + 'static {
    /// The device.
    fn device(&self) -> Device;

    // ---- memory
    /// Uninitialised memory, aligned for any vector load.
    fn alloc(&'static self, bytes: usize) -> Result<Storage>;
    /// Frees memory.
    ///
    /// # Safety
    /// `ptr` came from this engine's `alloc` with the same `bytes`, and is not used afterwards.
    unsafe fn free(&self, ptr: NonNull<u8>, bytes: usize);
    /// Copies from the host to `dst`, from byte `offset` on.
    fn upload(&self, src: &[u8], dst: &Storage, offset: usize) -> Result<()>;
    /// Copies from `src`, from byte `offset` on, to the host.
    fn download(&self, src: &Storage, offset: usize, dst: &mut [u8]) -> Result<()>;
    /// Waits for all work issued so far.
    fn synchronize(&self) -> Result<()>;

    // ---- optional capabilities
    /// The engine's optional capabilities.
    fn features(&self) -> Features {
        Features::default()
    }
    /// The caching allocator, if there is one.
    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        None
    }
    /// Streams and events, if the device works asynchronously.
    fn streams(&self) -> Option<&dyn Streams> {
        None
    }
    /// The recorder of steps, if the device can replay them.
    fn capture(&self) -> Option<&dyn Capture> {
        None
    }
    /// Collectives with devices of other processes, if the device or its vendor's library supports them.
    fn collectives(&self) -> Option<&dyn Collectives> {
        None
    }
    /// [`upload`](Backend::upload) that may return before the copy is done: later work on the calling thread's stream
    /// sees it.
    ///
    /// # Safety
    /// `src` is valid for reads of `bytes` bytes and is not written before the device is past the copy; it is in the
    /// engine's [`PinnedMemory`], which is not reused before then.
    unsafe fn upload_pinned(&self, src: *const u8, bytes: usize, dst: &Storage, offset: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        self.upload(unsafe { std::slice::from_raw_parts(src, bytes) }, dst, offset)
    }
    /// Copies `bytes` from another device's memory to the start of `dst`, after all work both devices were given.
    /// `false`, with nothing done, if the two have no direct path: the tensor layer then copies through the
    /// host.
    fn copy_from_peer(&self, src: &Storage, src_offset: usize, dst: &Storage, bytes: usize) -> Result<bool> {
        let _ = (src, src_offset, dst, bytes);
        Ok(false)
    }

    // ---- filling and copying
    /// Sets every element.
    fn fill(&self, value: Scalar, out: View) -> Result<()>;
    /// `out[i] = start + i * step` in row-major order, computed in `f64` for floats and `i64` for integers.
    fn arange(&self, start: Scalar, step: Scalar, out: View) -> Result<()> {
        composed::arange(start, step, out)
    }
    /// Same shapes, any dtypes.
    fn copy(&self, src: View, out: View) -> Result<()>;
    /// Random values; element `i` in row-major order uses word `i` of the stream, or words `2i` and `2i + 1` where it
    /// needs 64 bits (`f64` and integers). Normals come in pairs: elements `2j` and `2j + 1` from the two uniforms
    /// numbered so.
    fn random(&self, distribution: Distribution, stream: Philox, out: View) -> Result<()>;

    // ---- pointwise
    /// A row of the op table. Inputs have the output's shape and any dtypes: the engine converts each to `compute` (one
    /// of `f32`, `f64`, `i64`, `i32`, `i16`, `i8`, `u8`) and the result to the output's dtype.
    fn pointwise(
        &self,
        op: Pointwise,
        compute: crate::DType,
        inputs: &[Operand],
        params: &[f64],
        out: View,
    ) -> Result<()>;
    /// The derivative of a row by input `wrt`. `values` are the incoming gradient, the three inputs and the output;
    /// those the derivative does not read (see [`Pointwise::grad_reads`]) may be `None`. `compute` is `f32` or `f64`.
    fn pointwise_grad(
        &self,
        op: Pointwise,
        wrt: usize,
        compute: crate::DType,
        values: [Option<Operand>; 5],
        params: &[f64],
        out: View,
    ) -> Result<()>;
    /// `out = condition ? a : b`; `condition` is `bool`, the others are converted to the output's dtype.
    fn select(&self, condition: View, a: Operand, b: Operand, out: View) -> Result<()>;
    /// `out = uniform(word i) >= p ? x / (1 - p) : 0`, elements numbered in row-major order; `p < 1`. Floats.
    fn dropout(&self, x: View, p: f64, stream: Philox, out: View) -> Result<()> {
        composed::dropout(x, p, stream, out)
    }

    // ---- reductions
    /// Reduces the dimensions marked in `reduced` (as long as `x`'s shape); `out` has those at size 1.
    fn reduce(&self, op: Reduce, x: View, reduced: &[bool], out: View) -> Result<()>;
    /// Best value along `dim` and its index (`i64`); both outputs have size 1 there. `dim` is not empty.
    fn arg_reduce(&self, op: ArgReduce, x: View, dim: usize, values: View, indices: View) -> Result<()> {
        composed::arg_reduce(op, x, dim, values, indices)
    }
    /// Running reduction along `dim`, into `x`'s dtype or, from integers and `bool`, `i64`; `indices` is there for
    /// `Max` and `Min`.
    fn scan(&self, op: Scan, x: View, dim: usize, out: View, indices: Option<View>) -> Result<()> {
        composed::scan(op, x, dim, out, indices)
    }

    // ---- order
    /// Sorts along `dim`, stably, NaN as the largest; `indices` is `i64`.
    fn sort(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        composed::sort(x, dim, descending, values, indices)
    }
    /// The `k` largest or smallest along `dim`, in order, NaN as the largest; outputs have size `k` there.
    fn topk(&self, x: View, dim: usize, largest: bool, values: View, indices: View) -> Result<()> {
        composed::topk(x, dim, largest, values, indices)
    }
    /// For each value, where it would go in its row of `sorted` (last dimension; one row, or one per row of `values`).
    fn searchsorted(&self, sorted: View, values: View, right: bool, out: View) -> Result<()> {
        composed::searchsorted(sorted, values, right, out)
    }

    /// The element of the given rank along `dim` and its position (`i64`). Equal elements rank as in a stable sort.
    /// Returns `false` if the engine has no kernel for it, as do the other methods that mention it: nothing is written,
    /// and the tensor layer composes the op from others.
    fn kth(&self, _x: View, _dim: usize, _rank: Rank, _values: View, _indices: View) -> Result<bool> {
        Ok(false)
    }
    /// Counts of elements of `x` (`f32` or `f64`) in each of the bins of equal width from `low` to `high`, both
    /// of them finite; `out` is `i64`, contiguous. `false` as above.
    fn histogram(&self, _x: View, _low: f64, _high: f64, _out: View) -> Result<bool> {
        Ok(false)
    }
    /// The numbers below `out`'s size in the random order that [`rng::permutation`](crate::rng::permutation) gives for
    /// the stream; `out` is `i64`, contiguous. `false` as above.
    fn permutation(&self, _stream: Philox, _out: View) -> Result<bool> {
        Ok(false)
    }
    /// The least and the greatest element of a non-empty contiguous `i64` tensor; `None` if the engine has no fused
    /// kernel for both.
    fn int_range(&self, _x: View) -> Result<Option<[i64; 2]>> {
        Ok(None)
    }

    // ---- rearrangements
    /// `x` padded by its own elements: `sources` has, for each of the last dimensions, the index in `x` of every index
    /// in `out`; leading dimensions are equal. One dtype, `out` contiguous, not overlapping `x`. `false` as above.
    fn pad_from(&self, _x: View, _sources: &[Vec<usize>], _out: View) -> Result<bool> {
        Ok(false)
    }
    /// `x` with the elements of the dimensions that are `flipped` in reverse order; one shape and dtype. `false` as
    /// above.
    fn flip(&self, _x: View, _flipped: &[bool], _out: View) -> Result<bool> {
        Ok(false)
    }
    /// Resizes planes: `x` is `[planes, inputs..]`, `y` `[planes, outputs..]`; `f32` or `f64`, contiguous. `false` as
    /// above.
    fn resample(&self, _spec: &Resample, _x: View, _y: View) -> Result<bool> {
        Ok(false)
    }
    /// The gradient of `resample`: `dx` is written. `false` as above.
    fn resample_backward(&self, _spec: &Resample, _dy: View, _dx: View) -> Result<bool> {
        Ok(false)
    }
    /// Euclidean distances, with the sizes of `distances`, by the product `|x|² - 2 x·y + |y|²`: fast, and inexact for
    /// rows that are close together. `false` as above.
    fn euclidean(&self, _a: View, _b: View, _out: View) -> Result<bool> {
        Ok(false)
    }
    /// The `p`-norms of the differences of every row of `a` (`[batch, n, size]`) and every row of `b`
    /// (`[batch, m, size]`) as `[batch, n, m]`; one of `f32` and `f64`, contiguous. `false` as above.
    fn distances(&self, _p: f64, _a: View, _b: View, _out: View) -> Result<bool> {
        Ok(false)
    }

    // ---- indexing
    /// `out[i.., r..] = x[indices[0][i..], indices[1][i..], …, r..]`: the index tensors (`i64`, one shape) index the
    /// leading dimensions of `x`; negative indices count from the end.
    fn index(&self, x: View, indices: &[View], out: View) -> Result<()>;
    /// `out[indices[0][i..], …, r..] = values[i.., r..]`, or `+=` with `accumulate` (duplicates add up, in order).
    fn index_put(&self, indices: &[View], values: View, accumulate: bool, out: View) -> Result<()>;
    /// `out[.., i, ..] = x[.., index[.., i, ..], ..]` along `dim`; `index` has `out`'s shape, at most `x`'s size
    /// elsewhere.
    fn gather(&self, x: View, dim: usize, index: View, out: View) -> Result<()> {
        composed::gather(x, dim, index, out)
    }
    /// Whether `gather` and `scatter` reject negative indices. Otherwise they count from the end, and the tensor layer
    /// has to check for them.
    fn refuses_negative_indices(&self) -> bool {
        false
    }
    /// The reverse of `gather`: `out[.., index[.., i, ..], ..] op= src[.., i, ..]`; `src` has at least `index`'s sizes.
    fn scatter(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()>;
    /// Number of nonzero elements.
    fn count_nonzero(&self, x: View) -> Result<usize> {
        composed::count_nonzero(x)
    }
    /// Coordinates of the nonzero elements, in row-major order: `out` is `[count, rank]`, `i64`, contiguous.
    fn nonzero(&self, x: View, out: View) -> Result<()> {
        composed::nonzero(x, out)
    }

    // ---- products
    /// A batched matrix product; one dtype, except that a product of halves may be written as `f32` with
    /// [`Features::wide_outputs`].
    fn matmul(&self, spec: &MatMul) -> Result<()>;
    /// `out = gelu_tanh(x)` and `kept = x` of `x = a @ b + bias` in one pass. `false`, with nothing written, if the
    /// engine has no such kernel.
    fn matmul_gelu(&self, _spec: &MatMul, _kept: View) -> Result<bool> {
        Ok(false)
    }
    /// `out = (a @ b) * gelu_tanh'(kept)` in one pass, and the sums of its columns to `sums`. `false` as above.
    fn matmul_gelu_backward(&self, _spec: &MatMul, _kept: View, _sums: View) -> Result<bool> {
        Ok(false)
    }
    /// Convolution; one dtype, contiguous, or with [`Features::channels_last`] images all with their channels
    /// innermost. `bias` is `[out_channels]`.
    fn conv_forward(&self, spec: &Conv, x: View, w: View, bias: Option<View>, y: View) -> Result<()> {
        composed::conv_forward(spec, x, w, bias, y)
    }
    /// Gradient of the convolution with respect to the input; also the forward pass of the transposed convolution.
    fn conv_backward_input(&self, spec: &Conv, dy: View, w: View, dx: View) -> Result<()> {
        composed::conv_backward_input(spec, dy, w, dx)
    }
    /// Adds that gradient to `dx` in one pass; `false`, with nothing done, if it needs more than one.
    fn conv_backward_input_add(&self, _spec: &Conv, _dy: View, _w: View, _dx: View) -> Result<bool> {
        Ok(false)
    }
    /// Gradient of the convolution with respect to the weight.
    fn conv_backward_weight(&self, spec: &Conv, x: View, dy: View, dw: View) -> Result<()> {
        composed::conv_backward_weight(spec, x, dy, dw)
    }

    // ---- pooling: contiguous
    /// Maximum over windows and its position within the plane (`i64`), the first of equals; NaN wins.
    fn max_pool(&self, spec: &Pool, x: View, y: View, indices: View) -> Result<()> {
        composed::max_pool(spec, x, y, indices)
    }
    /// Adds each gradient at the position of its maximum; writes all of `dx`.
    fn max_pool_backward(&self, spec: &Pool, dy: View, indices: View, dx: View) -> Result<()> {
        composed::max_pool_backward(spec, dy, indices, dx)
    }
    /// Average over windows.
    fn avg_pool(&self, spec: &Pool, x: View, y: View) -> Result<()> {
        composed::avg_pool(spec, x, y)
    }
    /// Gradient of `avg_pool`; writes all of `dx`.
    fn avg_pool_backward(&self, spec: &Pool, dy: View, dx: View) -> Result<()> {
        composed::avg_pool_backward(spec, dy, dx)
    }

    // ---- fused families: contiguous by default; statistics are f32 for half types, else of the input's
    // dtype
    /// Softmax, or its logarithm, of contiguous `[outer, n, inner]` over `n`.
    fn softmax(&self, log: bool, dims: [usize; 3], x: View, y: View) -> Result<()> {
        composed::softmax(log, dims, x, y)
    }
    /// Gradient of `softmax`, from the output.
    fn softmax_backward(&self, log: bool, dims: [usize; 3], dy: View, y: View, dx: View) -> Result<()> {
        composed::softmax_backward(log, dims, dy, y, dx)
    }
    /// Rows normalised, scaled and shifted; `mean` (unused for rms) and `rstd` are `[rows]`. `low`, used only with
    /// [`Features::wide_outputs`], receives a half-precision copy of the result of an `f32` input.
    fn row_norm(
        &self,
        spec: &RowNorm,
        x: View,
        weight: Option<View>,
        bias: Option<View>,
        y: View,
        low: Option<View>,
        mean: View,
        rstd: View,
    ) -> Result<()> {
        composed::row_norm(spec, x, weight, bias, y, low, mean, rstd)
    }
    /// Gradients of `row_norm`; unneeded ones are `None`. `so_far`, of the shape of `x`, is added to `dx`. `low`
    /// receives a half-precision copy of `dx`.
    fn row_norm_backward(
        &self,
        spec: &RowNorm,
        dy: View,
        x: View,
        weight: Option<View>,
        mean: View,
        rstd: View,
        so_far: Option<View>,
        dx: Option<View>,
        low: Option<View>,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        composed::row_norm_backward(spec, dy, x, weight, mean, rstd, so_far, dx, low, dweight, dbias)
    }
    /// Channels normalised, scaled and shifted. `mean` and `rstd` (`[channels]`) are written when training (biased
    /// variance), else read.
    fn batch_norm(
        &self,
        spec: &BatchNorm,
        x: View,
        weight: Option<View>,
        bias: Option<View>,
        y: View,
        mean: View,
        rstd: View,
    ) -> Result<()> {
        composed::batch_norm(spec, x, weight, bias, y, mean, rstd)
    }
    /// Gradients of `batch_norm`; unneeded ones are `None`.
    fn batch_norm_backward(
        &self,
        spec: &BatchNorm,
        dy: View,
        x: View,
        weight: Option<View>,
        mean: View,
        rstd: View,
        dx: Option<View>,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        composed::batch_norm_backward(spec, dy, x, weight, mean, rstd, dx, dweight, dbias)
    }
    /// Gradients of a batch norm followed by a ReLU, given the gradient of the ReLU's output. The kernel recomputes
    /// which elements were positive, so `bias` must be the one of the forward pass. Called only with
    /// [`Features::batch_norm_relu`].
    fn batch_norm_relu_backward(
        &self,
        _spec: &BatchNorm,
        _dy: View,
        _x: View,
        _weight: Option<View>,
        _bias: Option<View>,
        _mean: View,
        _rstd: View,
        _dx: Option<View>,
        _dweight: Option<View>,
        _dbias: Option<View>,
    ) -> Result<()> {
        Err(Error::unsupported("batch_norm_relu_backward: this engine has no such kernel"))
    }
    /// Moves running statistics, contiguous and of the statistics' dtype, towards a batch's mean and unbiased variance
    /// by `lerp`; `false`, with nothing done, if there is no kernel for it.
    fn batch_norm_running(
        &self,
        _spec: &BatchNorm,
        _momentum: f64,
        _mean: View,
        _rstd: View,
        _running: [View; 2],
    ) -> Result<bool> {
        Ok(false)
    }
    /// Loss of each row (weighted, zero if ignored), the weight it has in a mean, and the logarithm of the sum of
    /// exponentials, all `[rows]`, statistics' dtype. No probabilities are stored.
    fn cross_entropy(&self, spec: &CrossEntropy, loss: View, row_weight: View, lse: View) -> Result<()> {
        composed::cross_entropy(spec, loss, row_weight, lse)
    }
    /// Gradient with respect to the logits, from the gradient of each row's loss (statistics' dtype).
    fn cross_entropy_backward(&self, spec: &CrossEntropy, lse: View, dloss: View, dlogits: View) -> Result<()> {
        composed::cross_entropy_backward(spec, lse, dloss, dlogits)
    }
    /// Attention without a stored score matrix; `out` is `[batch, heads, l, dv]` of any strides, `lse`
    /// `[batch, heads, l]` contiguous. A row with every key masked out gives zeros.
    fn attention(&self, spec: &Attention, out: View, lse: View) -> Result<()> {
        composed::attention(spec, out, lse)
    }
    /// Gradients of `attention` (contiguous unless [`Features::strided_attention_gradients`]), recomputing
    /// probabilities from `lse`; `dout` may have any strides.
    fn attention_backward(
        &self,
        spec: &Attention,
        out: View,
        lse: View,
        dout: View,
        dq: View,
        dk: View,
        dv: View,
    ) -> Result<()> {
        composed::attention_backward(spec, out, lse, dout, dq, dk, dv)
    }

    // ---- recurrent networks
    /// A copy of the matrix `weight` for many products with at most `rows` rows each. `None` if
    /// [`matmul`](Backend::matmul) is as fast.
    fn pack_weight(&self, _weight: View, _rows: usize) -> Result<Option<Box<dyn PackedWeight>>> {
        Ok(None)
    }
    /// One step of a long short-term memory. `gates` (`[batch, 4 * hidden]`: input, forget, new, output) hold sums and
    /// are activated in place; `c = forget * before + input * new` and `h = output * tanh(c)`. One float dtype,
    /// contiguous. `false` as for [`kth`](Backend::kth).
    fn lstm_cell(&self, _gates: View, _before: View, _c: View, _h: View) -> Result<bool> {
        Ok(false)
    }
    /// The gradient of `lstm_cell`. `gates` are as the forward call left them. The gradient of `h` is `dh`, or `dh +
    /// outer`. `dc` is the gradient of `c` and becomes that of `before`; `dgates` gets the gradient of the sums.
    /// `false` as above.
    fn lstm_cell_backward(&self, _step: &LstmStep, _dc: View, _dgates: View) -> Result<bool> {
        Ok(false)
    }

    // ---- lists of tensors: shapes and floating dtypes may differ
    /// An optimizer's step over all its parameters, gradients multiplied by `grad_scale` (a number or a tensor of one)
    /// first. One pass: each element is read and written once.
    fn update(&self, updates: &[ParamUpdate], grad_scale: Operand) -> Result<()> {
        composed::update(updates, grad_scale)
    }
    /// The p-norm (as [`Reduce::Norm`]) of all elements of all tensors, taken as one vector, to `out`, one float.
    fn foreach_norm(&self, p: f64, xs: &[View], out: View) -> Result<()> {
        composed::foreach_norm(p, xs, out)
    }
    /// `x *= factor` for all, in place; contiguous. Sets `found_inf`, one `f32`, to 1 if an element was not finite
    /// before, otherwise leaves it unchanged. Without a factor only `found_inf` is written.
    fn foreach_scale(&self, factor: Option<Operand>, xs: &[View], found_inf: Option<View>) -> Result<()> {
        composed::foreach_scale(factor, xs, found_inf)
    }
    /// Copies each tensor to its destination, which has as many elements, converting; contiguous.
    fn foreach_copy(&self, from: &[View], to: &[View]) -> Result<()> {
        from.iter().zip(to).try_for_each(|(from, to)| self.copy(*from, *to))
    }

    /// A dense factorisation over the last two dimensions of contiguous `f32` or `f64` tensors; for engines without one
    /// the tensor layer moves the data to the CPU.
    fn linalg(&self, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
        let _ = (inputs, outputs);
        Err(Error::unsupported(format!("{op:?} is not available on {}; use the CPU", self.device())))
    }
}
