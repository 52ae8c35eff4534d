//! Implementation of the `Backend` trait: dispatches to each family's module.

use crate::{
    alloc, attention, batch_norm, copy, cross_entropy, distance, flip, gather, histogram, index, linalg, lstm, pad,
    pointwise, pool2d, product, random, reduce, resample, row_norm, scan, softmax, sort, update,
};
use rushlight_core::backend::*;
use rushlight_core::rng::Distribution;
use rushlight_core::{DType, Device, Error, Philox, Pointwise, Result, Scalar};
use std::ptr::NonNull;
use std::sync::LazyLock;

/// The host's engine.
pub(crate) struct Cpu;

pub(crate) static CPU: Cpu = Cpu;

/// The CPU engine; with `RUSHLIGHT_CPU_COMPOSED=1`, which tests set, the engine of [`composed`](crate::composed()).
pub fn backend() -> &'static dyn Backend {
    static ENGINE: LazyLock<&'static dyn Backend> = LazyLock::new(|| {
        let composed = std::env::var_os("RUSHLIGHT_CPU_COMPOSED").is_some_and(|v| v == "1");
        if composed { crate::composed() } else { &CPU }
    });
    *ENGINE
}

/// Checks that the byte range of a copy is within the storage.
fn check_range(call: &str, storage: &Storage, offset: usize, len: usize) -> Result<()> {
    // An empty view may have any address.
    if len == 0 || offset.checked_add(len).is_some_and(|end| end <= storage.bytes()) {
        return Ok(());
    }
    Err(Error::value(format!(
        "{call}: {len} bytes from byte {offset} do not fit a storage of {} bytes",
        storage.bytes()
    )))
}

/// This engine writes no second copy: only engines with [`Features::wide_outputs`] have to.
fn one_dtype(call: &str, low: Option<View>) -> Result<()> {
    match low {
        None => Ok(()),
        Some(low) => {
            Err(Error::unsupported(format!("{call}: a second result as {} on the CPU; convert the first", low.dtype)))
        }
    }
}

impl CachingAllocator for Cpu {
    fn stats(&self) -> MemoryStats {
        alloc::memory_stats()
    }

    fn reset_peak(&self) {
        alloc::reset_peak_memory();
    }

    fn empty_cache(&self) {
        alloc::empty_cache();
    }
}

impl Backend for Cpu {
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn features(&self) -> Features {
        Features { bytes_per_call: 16 << 10, ..Features::default() }
    }

    fn alloc(&'static self, bytes: usize) -> Result<Storage> {
        let ptr = alloc::alloc(bytes)?;
        // SAFETY: just allocated with this size; `free` gives it back to the same allocator.
        Ok(unsafe { Storage::from_backend(self, ptr, bytes) })
    }

    unsafe fn free(&self, ptr: NonNull<u8>, bytes: usize) {
        // SAFETY: by the caller's promise.
        unsafe { alloc::free(ptr, bytes) }
    }

    fn upload(&self, src: &[u8], dst: &Storage, offset: usize) -> Result<()> {
        check_range("upload", dst, offset, src.len())?;
        let to = crate::float::Shared::new(dst.ptr());
        // Split like later ops, because a page is placed on the NUMA node of the thread that first writes to it.
        let grain = src.len().div_ceil(4 * crate::pool::num_threads()).next_multiple_of(4096).max(1 << 20);
        crate::pool::parallel_ranges(src.len(), grain, |from, until| {
            let part = &src[from..until];
            // SAFETY: the range was checked, and a fresh borrow of `src` cannot overlap memory of the allocator.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to.at(offset + from), part.len()) };
        });
        Ok(())
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [u8]) -> Result<()> {
        check_range("download", src, offset, dst.len())?;
        // SAFETY: as in `upload`.
        unsafe { std::ptr::copy_nonoverlapping(src.ptr().add(offset), dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        Some(self)
    }

    fn fill(&self, value: Scalar, out: View) -> Result<()> {
        copy::fill(value, out)
    }

    fn arange(&self, start: Scalar, step: Scalar, out: View) -> Result<()> {
        copy::arange(start, step, out)
    }

    fn copy(&self, src: View, out: View) -> Result<()> {
        copy::copy(src, out)
    }

    fn random(&self, distribution: Distribution, stream: Philox, out: View) -> Result<()> {
        random::random(distribution, stream, out)
    }

    fn pointwise(&self, op: Pointwise, compute: DType, inputs: &[Operand], params: &[f64], out: View) -> Result<()> {
        pointwise::pointwise(op, compute, inputs, params, out)
    }

    fn pointwise_grad(
        &self,
        op: Pointwise,
        wrt: usize,
        compute: DType,
        values: [Option<Operand>; 5],
        params: &[f64],
        out: View,
    ) -> Result<()> {
        pointwise::pointwise_grad(op, wrt, compute, values, params, out)
    }

    fn select(&self, condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
        pointwise::select(condition, a, b, out)
    }

    fn dropout(&self, x: View, p: f64, stream: Philox, out: View) -> Result<()> {
        random::dropout(x, p, stream, out)
    }

    fn reduce(&self, op: Reduce, x: View, reduced: &[bool], out: View) -> Result<()> {
        reduce::reduce(op, x, reduced, out)
    }

    fn arg_reduce(&self, op: ArgReduce, x: View, dim: usize, values: View, indices: View) -> Result<()> {
        reduce::arg_reduce(op, x, dim, values, indices)
    }

    fn scan(&self, op: Scan, x: View, dim: usize, out: View, indices: Option<View>) -> Result<()> {
        scan::scan(op, x, dim, out, indices)
    }

    fn sort(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        sort::sort(x, dim, descending, values, indices)
    }

    fn topk(&self, x: View, dim: usize, largest: bool, values: View, indices: View) -> Result<()> {
        sort::topk(x, dim, largest, values, indices)
    }

    fn kth(&self, x: View, dim: usize, rank: Rank, values: View, indices: View) -> Result<bool> {
        sort::kth(x, dim, rank, values, indices)
    }

    fn histogram(&self, x: View, low: f64, high: f64, out: View) -> Result<bool> {
        histogram::histogram(x, low, high, out)
    }

    fn permutation(&self, stream: Philox, out: View) -> Result<bool> {
        random::permutation(stream, out)
    }

    fn euclidean(&self, a: View, b: View, out: View) -> Result<bool> {
        distance::euclidean(a, b, out)
    }

    fn int_range(&self, x: View) -> Result<Option<[i64; 2]>> {
        histogram::int_range(x)
    }

    fn pad_from(&self, x: View, sources: &[Vec<usize>], out: View) -> Result<bool> {
        pad::pad_from(x, sources, out)
    }

    fn flip(&self, x: View, flipped: &[bool], out: View) -> Result<bool> {
        flip::flip(x, flipped, out)
    }

    fn resample(&self, spec: &Resample, x: View, y: View) -> Result<bool> {
        resample::resample(spec, x, y)
    }

    fn resample_backward(&self, spec: &Resample, dy: View, dx: View) -> Result<bool> {
        resample::resample_backward(spec, dy, dx)
    }

    fn distances(&self, p: f64, a: View, b: View, out: View) -> Result<bool> {
        distance::distances(p, a, b, out)
    }

    fn searchsorted(&self, sorted: View, values: View, right: bool, out: View) -> Result<()> {
        sort::searchsorted(sorted, values, right, out)
    }

    fn index(&self, x: View, indices: &[View], out: View) -> Result<()> {
        index::index(x, indices, out)
    }

    fn index_put(&self, indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
        index::index_put(indices, values, accumulate, out)
    }

    fn refuses_negative_indices(&self) -> bool {
        true
    }

    fn gather(&self, x: View, dim: usize, index: View, out: View) -> Result<()> {
        gather::gather(x, dim, index, out)
    }

    fn scatter(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        gather::scatter(op, dim, index, src, out)
    }

    fn count_nonzero(&self, x: View) -> Result<usize> {
        index::count_nonzero(x)
    }

    fn nonzero(&self, x: View, out: View) -> Result<()> {
        index::nonzero(x, out)
    }

    fn matmul(&self, spec: &MatMul) -> Result<()> {
        product::matmul(spec)
    }

    fn conv_forward(&self, spec: &Conv, x: View, w: View, bias: Option<View>, y: View) -> Result<()> {
        product::conv_forward(spec, x, w, bias, y)
    }

    fn conv_backward_input(&self, spec: &Conv, dy: View, w: View, dx: View) -> Result<()> {
        product::conv_backward_input(spec, dy, w, dx)
    }

    fn conv_backward_weight(&self, spec: &Conv, x: View, dy: View, dw: View) -> Result<()> {
        product::conv_backward_weight(spec, x, dy, dw)
    }

    fn max_pool(&self, spec: &Pool, x: View, y: View, indices: View) -> Result<()> {
        pool2d::max_pool(spec, x, y, indices)
    }

    fn max_pool_backward(&self, spec: &Pool, dy: View, indices: View, dx: View) -> Result<()> {
        pool2d::max_pool_backward(spec, dy, indices, dx)
    }

    fn avg_pool(&self, spec: &Pool, x: View, y: View) -> Result<()> {
        pool2d::avg_pool(spec, x, y)
    }

    fn avg_pool_backward(&self, spec: &Pool, dy: View, dx: View) -> Result<()> {
        pool2d::avg_pool_backward(spec, dy, dx)
    }

    fn softmax(&self, log: bool, dims: [usize; 3], x: View, y: View) -> Result<()> {
        softmax::softmax(log, dims, x, y)
    }

    fn softmax_backward(&self, log: bool, dims: [usize; 3], dy: View, y: View, dx: View) -> Result<()> {
        softmax::softmax_backward(log, dims, dy, y, dx)
    }

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
        one_dtype("row_norm", low)?;
        row_norm::row_norm(spec, x, weight, bias, y, mean, rstd)
    }

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
        one_dtype("row_norm_backward", low)?;
        row_norm::row_norm_backward(spec, dy, x, weight, mean, rstd, so_far, dx, dweight, dbias)
    }

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
        batch_norm::batch_norm(spec, x, weight, bias, y, mean, rstd)
    }

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
        batch_norm::batch_norm_backward(spec, dy, x, weight, mean, rstd, dx, dweight, dbias)
    }

    fn cross_entropy(&self, spec: &CrossEntropy, loss: View, row_weight: View, lse: View) -> Result<()> {
        cross_entropy::cross_entropy(spec, loss, row_weight, lse)
    }

    fn cross_entropy_backward(&self, spec: &CrossEntropy, lse: View, dloss: View, dlogits: View) -> Result<()> {
        cross_entropy::cross_entropy_backward(spec, lse, dloss, dlogits)
    }

    fn attention(&self, spec: &Attention, out: View, lse: View) -> Result<()> {
        attention::attention(spec, out, lse)
    }

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
        attention::attention_backward(spec, out, lse, dout, dq, dk, dv)
    }

    fn pack_weight(&self, weight: View, rows: usize) -> Result<Option<Box<dyn PackedWeight>>> {
        product::pack_weight(weight, rows)
    }

    fn lstm_cell(&self, gates: View, before: View, c: View, h: View) -> Result<bool> {
        lstm::lstm_cell(gates, before, c, h)
    }

    fn lstm_cell_backward(&self, step: &LstmStep, dc: View, dgates: View) -> Result<bool> {
        lstm::lstm_cell_backward(step, dc, dgates)
    }

    fn update(&self, updates: &[ParamUpdate], grad_scale: Operand) -> Result<()> {
        update::update(updates, grad_scale)
    }

    fn foreach_norm(&self, p: f64, xs: &[View], out: View) -> Result<()> {
        reduce::foreach_norm(p, xs, out)
    }

    fn foreach_scale(&self, factor: Option<Operand>, xs: &[View], found_inf: Option<View>) -> Result<()> {
        update::foreach_scale(factor, xs, found_inf)
    }

    fn linalg(&self, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
        linalg::linalg(op, inputs, outputs)
    }
}
