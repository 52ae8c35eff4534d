//! Implementation of the `Backend` trait: dispatches to each family's module.

use crate::{
    alloc, attention, batch_norm, complex, copy, cross_entropy, distance, fft, flip, gather, histogram, index, linalg,
    lstm, pad, pointwise, pool2d, product, random, reduce, resample, row_norm, scan, softmax, sort, update,
};
use rushlight_core::backend::*;
use rushlight_core::sync::SendPtr;
use rushlight_core::{Device, Error, Result};
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
        let to = SendPtr::new(dst.ptr());
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

    fn pack_weight(&self, weight: View, rows: usize) -> Result<Option<Packed>> {
        product::pack_weight(weight, rows)
    }

    fn pack_conv(&self, spec: &Conv, weight: View) -> Result<Option<Packed>> {
        product::pack_conv(spec, weight)
    }

    unsafe fn run(&self, call: &Call<View>) -> Result<Outcome> {
        // Small tensors pay for the registers that the other families' calls save.
        match call {
            Call::Pointwise(c) => {
                pointwise::pointwise(c.op, c.compute, &c.inputs, &c.params, c.out).map(|()| Outcome::Done)
            }
            _ => self.run_family(call),
        }
    }
}

impl Cpu {
    #[inline(never)]
    fn run_family(&self, call: &Call<View>) -> Result<Outcome> {
        match call {
            Call::Fill(c) => copy::fill(c.value, c.out)?,
            Call::Arange(c) => copy::arange(c.start, c.step, c.out)?,
            Call::Copy(c) => copy::copy(c.src, c.out)?,
            Call::Random(c) => random::random(c.distribution, c.stream, c.out)?,
            Call::Permutation(c) => return random::permutation(c.stream, c.out).map(Outcome::from),
            Call::Pointwise(c) => pointwise::pointwise(c.op, c.compute, &c.inputs, &c.params, c.out)?,
            Call::PointwiseGrad(c) => {
                pointwise::pointwise_grad(c.op, c.wrt, c.compute, c.values, &c.params, c.out)?;
            }
            Call::Select(c) => pointwise::select(c.condition, c.a, c.b, c.out)?,
            Call::Fused(c) => return pointwise::fused(c).map(Outcome::from),
            Call::Dropout(c) => random::dropout(c.x, c.p, c.stream, c.out)?,
            Call::Reduce(c) => reduce::reduce(c.op, c.x, &c.reduced, c.out)?,
            Call::ArgReduce(c) => reduce::arg_reduce(c.op, c.x, c.dim, c.values, c.indices)?,
            Call::Scan(c) => scan::scan(c.op, c.x, c.dim, c.out, c.indices)?,
            Call::Sort(c) => sort::sort(c.x, c.dim, c.descending, c.values, c.indices)?,
            Call::TopK(c) => sort::topk(c.x, c.dim, c.largest, c.values, c.indices)?,
            Call::Kth(c) => return sort::kth(c.x, c.dim, c.rank, c.values, c.indices).map(Outcome::from),
            Call::SearchSorted(c) => sort::searchsorted(c.sorted, c.values, c.right, c.out)?,
            Call::Histogram(c) => return histogram::histogram(c.x, c.low, c.high, c.out).map(Outcome::from),
            Call::IntRange(c) => histogram::int_range(c.x, c.out)?,
            Call::PadFrom(c) => return pad::pad_from(c.x, &c.sources, c.out).map(Outcome::from),
            Call::Flip(c) => return flip::flip(c.x, &c.flipped, c.out).map(Outcome::from),
            Call::Resample(c) => return resample::resample(&c.spec, c.x, c.y).map(Outcome::from),
            Call::ResampleBackward(c) => {
                return resample::resample_backward(&c.spec, c.dy, c.dx).map(Outcome::from);
            }
            Call::Distances(c) => return distance::distances(c.p, c.a, c.b, c.out).map(Outcome::from),
            Call::Euclidean(c) => return distance::euclidean(c.a, c.b, c.out).map(Outcome::from),
            Call::Index(c) => index::index(c.x, &c.indices, c.out)?,
            Call::IndexPut(c) => index::index_put(&c.indices, c.values, c.accumulate, c.out)?,
            Call::Gather(c) => gather::gather(c.x, c.dim, c.index, c.out)?,
            Call::Scatter(c) => gather::scatter(c.op, c.dim, c.index, c.src, c.out)?,
            Call::NonZero(c) => index::nonzero(c.x, c.out)?,
            Call::Complex(c) => return complex::complex(c.op, c.a, c.b, c.out).map(Outcome::from),
            Call::Fft(c) if c.dims > 1 => return Ok(Outcome::Declined),
            Call::Fft(c) => fft::fft(c.op, c.scale, c.x, c.out)?,
            Call::MatMul(c) => product::matmul(c)?,
            Call::PackedMatMul(c) => product::packed_matmul(c)?,
            Call::ConvForward(c) => product::conv_forward(&c.spec, c.x, c.w, c.bias, c.y)?,
            Call::ConvPacked(c) => product::conv_packed(c)?,
            Call::ConvBackwardInput(c) if c.accumulate => return Ok(Outcome::Declined),
            Call::ConvBackwardInput(c) => product::conv_backward_input(&c.spec, c.dy, c.w, c.dx)?,
            Call::ConvBackwardWeight(c) => product::conv_backward_weight(&c.spec, c.x, c.dy, c.dw)?,
            Call::MaxPool(c) => pool2d::max_pool(&c.spec, c.x, c.y, c.indices)?,
            Call::MaxPoolBackward(c) => pool2d::max_pool_backward(&c.spec, c.dy, c.indices, c.dx)?,
            Call::AvgPool(c) => pool2d::avg_pool(&c.spec, c.x, c.y)?,
            Call::AvgPoolBackward(c) => pool2d::avg_pool_backward(&c.spec, c.dy, c.dx)?,
            Call::Softmax(c) => softmax::softmax(c.log, c.dims, c.x, c.y)?,
            Call::SoftmaxBackward(c) => softmax::softmax_backward(c.log, c.dims, c.dy, c.y, c.dx)?,
            Call::RowNorm(c) if c.low.is_some() => return Ok(Outcome::Declined),
            Call::RowNorm(c) => row_norm::row_norm(c)?,
            Call::RowNormBackward(c) if c.low.is_some() || c.dy.dtype() != c.x.dtype() => return Ok(Outcome::Declined),
            Call::RowNormBackward(c) => row_norm::row_norm_backward(c)?,
            Call::BatchNorm(c) => batch_norm::batch_norm(c)?,
            Call::BatchNormBackward(c) if c.relu => return Ok(Outcome::Declined),
            Call::BatchNormBackward(c) => batch_norm::batch_norm_backward(c)?,
            Call::CrossEntropy(c) => cross_entropy::cross_entropy(&c.of, c.loss, c.row_weight, c.lse)?,
            Call::CrossEntropyBackward(c) => {
                cross_entropy::cross_entropy_backward(&c.of, c.lse, c.dloss, c.dlogits)?;
            }
            Call::Attention(c) => attention::attention(c)?,
            Call::AttentionBackward(c) => attention::attention_backward(c)?,
            Call::LstmCell(c) => return lstm::lstm_cell(c.gates, c.before, c.c, c.h).map(Outcome::from),
            Call::LstmCellBackward(c) => return lstm::lstm_cell_backward(c).map(Outcome::from),
            Call::Update(c) if c.live.is_empty() => update::update(&c.updates, c.grad_scale)?,
            Call::ForeachNorm(c) => reduce::foreach_norm(c.p, &c.xs, c.out)?,
            Call::ForeachScale(c) => update::foreach_scale(c.factor, &c.xs, c.found_inf)?,
            Call::Linalg(c) => linalg::linalg(c.op, &c.inputs, &c.outputs)?,
            Call::FusedReduce(_)
            | Call::FusedRows(_)
            | Call::MatMulGelu(_)
            | Call::MatMulGeluBackward(_)
            | Call::BatchNormRunning(_)
            | Call::Update(_)
            | Call::ForeachCopy(_)
            | Call::Ctc(_)
            | Call::Unique(_)
            | Call::CtcBackward(_) => return Ok(Outcome::Declined),
        }
        Ok(Outcome::Done)
    }
}
