//! Implementation of the `Backend` trait: dispatches to each family's module.

use crate::device::Gpu;
use crate::device::stream::Event;
use crate::families::matmul::Gelu;
use crate::vendor::driver::{Handle, Opened};
use rushlight_core::backend::*;
use rushlight_core::sync::lock;
use rushlight_core::{Device, Error, Result};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

/// The engine of one GPU.
pub struct GpuBackend(pub Gpu);

/// Maximum number of GPUs in a process.
const MAX_DEVICES: usize = 64;

/// A vendor's devices, each started on first use.
pub struct Fleet {
    open: fn(usize) -> Result<Opened>,
    started: [OnceLock<&'static GpuBackend>; MAX_DEVICES],
    /// Serialises device starts.
    starting: Mutex<()>,
}

impl Fleet {
    /// A fleet whose devices `open` opens by index.
    pub const fn new(open: fn(usize) -> Result<Opened>) -> Self {
        Self { open, started: [const { OnceLock::new() }; MAX_DEVICES], starting: Mutex::new(()) }
    }

    /// Device `index`, started if needed. A failed start is retried by the next call: the GPU may have been busy or
    /// full.
    pub fn started(&self, index: usize) -> Result<&'static GpuBackend> {
        let Some(slot) = self.started.get(index) else {
            return Err(Error::device(format!("GPU {index}: at most {MAX_DEVICES} devices are supported")));
        };
        if let Some(started) = slot.get() {
            return Ok(started);
        }
        let _turn = lock(&self.starting);
        if let Some(started) = slot.get() {
            return Ok(started);
        }
        let started = Gpu::start((self.open)(index)?)?;
        Ok(slot.get_or_init(|| started))
    }
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

/// Maximum size of a host buffer that is copied aside, so that its upload can be queued.
const MAX_QUEUED: usize = 256 << 20;

impl Gpu {
    /// Starts a copy to the device; `to` has room for it.
    fn write(&self, src: &[u8], to: u64, stream: Handle) -> Result<()> {
        // SAFETY: the caller has checked the range.
        unsafe { self.driver.copy_to_device(to, src.as_ptr().cast(), src.len(), stream) }
    }

    /// Copies from the device, after all work issued so far.
    pub fn read(&self, ptr: u64, dst: &mut [u8]) -> Result<()> {
        self.refuse_recording("reading values")?;
        self.enter()?;
        // SAFETY: as many bytes are read as the slice has room for; we wait for the copy.
        unsafe { self.driver.copy_to_host(dst.as_mut_ptr().cast(), ptr, dst.len(), self.stream()?)? };
        self.synchronize()
    }
}

impl CachingAllocator for Gpu {
    fn stats(&self) -> MemoryStats {
        self.memory().stats()
    }

    fn reset_peak(&self) {
        self.memory().reset_peak();
    }

    fn empty_cache(&self) {
        if self.enter().is_ok() {
            self.memory().empty_cache(self);
        }
    }
}

impl Backend for GpuBackend {
    fn device(&self) -> Device {
        self.0.device()
    }

    fn alloc(&'static self, bytes: usize) -> Result<Storage> {
        let ptr = if bytes == 0 { None } else { NonNull::new(self.0.take_memory(bytes)? as *mut u8) };
        // SAFETY: just allocated with this size; `free` gives it back to the same pool. Nothing is read through an
        // empty storage's address.
        Ok(unsafe { Storage::from_backend(self, ptr.unwrap_or(NonNull::dangling()), bytes) })
    }

    unsafe fn free(&self, ptr: NonNull<u8>, bytes: usize) {
        if bytes > 0 {
            self.0.give_memory(ptr.as_ptr() as u64);
        }
    }

    fn upload(&self, src: &[u8], dst: &Storage, offset: usize) -> Result<()> {
        check_range("upload", dst, offset, src.len())?;
        if src.is_empty() {
            return Ok(());
        }
        let gpu = &self.0;
        gpu.refuse_recording("copying from the host")?;
        gpu.enter()?;
        let to = dst.ptr() as u64 + offset as u64;
        if gpu.queue.has_pending() && src.len() <= MAX_QUEUED {
            let src = src.to_vec();
            return gpu.submit(move |gpu, stream| gpu.write(&src, to, stream));
        }
        gpu.write(src, to, gpu.stream()?)?;
        // The driver has copied pageable memory when the call returns.
        if crate::device::host::is_pinned(src.as_ptr()) {
            Event::at(gpu, gpu.lane().stream)?.synchronize()
        } else {
            Ok(())
        }
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [u8]) -> Result<()> {
        check_range("download", src, offset, dst.len())?;
        if dst.is_empty() {
            return Ok(());
        }
        self.0.read(src.ptr() as u64 + offset as u64, dst)
    }

    fn synchronize(&self) -> Result<()> {
        self.0.synchronize_all()
    }

    fn features(&self) -> Features {
        Features {
            wide_outputs: true,
            channels_last: true,
            strided_attention_gradients: true,
            wide_batch_norm_parameters: true,
            batch_norm_relu: true,
            bytes_per_call: 4 << 20,
            launches: true,
        }
    }

    fn prepare(&self, call: &Call<View>) -> Result<bool> {
        match call {
            Call::Fused(c) => self.0.prepare_fused(c),
            Call::FusedReduce(c) => self.0.prepare_fused_reduce(c),
            Call::FusedRows(c) => self.0.prepare_fused_rows(c),
            _ => Ok(true),
        }
    }

    fn unneeded(&self, storage: &Storage) {
        self.0.forget_in_chain(storage.ptr() as u64);
    }

    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        Some(&self.0)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(&self.0)
    }

    fn capture(&self) -> Option<&dyn Capture> {
        Some(&self.0)
    }

    fn collectives(&self) -> Option<&dyn Collectives> {
        Some(&self.0)
    }

    unsafe fn upload_pinned(&self, src: *const u8, bytes: usize, dst: &Storage, offset: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { crate::device::host::upload_pinned(src, bytes, dst, offset) }
    }

    fn copy_from_peer(&self, src: &Storage, src_offset: usize, dst: &Storage, bytes: usize) -> Result<Outcome> {
        if Gpu::of("copy_from_peer", src).is_err() {
            return Ok(Outcome::Declined);
        }
        crate::device::host::copy_between(src, src_offset, dst, bytes).map(|()| Outcome::Done)
    }

    unsafe fn run(&self, call: &Call<View>) -> Result<Outcome> {
        let gpu = &self.0;
        match call {
            Call::Fill(c) => gpu.fill(c.value, c.out)?,
            Call::Arange(c) => gpu.arange(c.start, c.step, c.out)?,
            Call::Copy(c) => gpu.copy(c.src, c.out)?,
            Call::Flip(c) => gpu.flip(c.x, &c.flipped, c.out)?,
            Call::Random(c) => gpu.random(c.distribution, c.stream, c.out)?,
            Call::Pointwise(c) => gpu.pointwise(c.op, c.compute, &c.inputs, &c.params, c.out)?,
            Call::PointwiseGrad(c) => gpu.pointwise_grad(c.op, c.wrt, c.compute, c.values, &c.params, c.out)?,
            Call::Select(c) => gpu.select(c.condition, c.a, c.b, c.out)?,
            Call::Fused(c) => return gpu.fused(c).map(Outcome::from),
            Call::FusedReduce(c) => return gpu.fused_reduce(c).map(Outcome::from),
            Call::FusedRows(c) => return gpu.fused_rows(c).map(Outcome::from),
            Call::Dropout(c) => gpu.dropout(c.x, c.p, c.stream, c.out)?,
            Call::Reduce(c) => gpu.reduce(c.op, c.x, &c.reduced, c.out)?,
            Call::ArgReduce(c) => gpu.arg_reduce(c.op, c.x, c.dim, c.values, c.indices)?,
            Call::Scan(c) => gpu.scan(c.op, c.x, c.dim, c.out, c.indices)?,
            Call::Sort(c) => gpu.sort(c.x, c.dim, c.descending, c.values, c.indices)?,
            Call::TopK(c) => gpu.topk(c.x, c.dim, c.largest, c.values, c.indices)?,
            Call::SearchSorted(c) => gpu.searchsorted(c.sorted, c.values, c.right, c.out)?,
            Call::Unique(c) => return gpu.unique(c).map(Outcome::from),
            Call::Histogram(c) => gpu.histogram(c.x, c.low, c.high, c.out)?,
            Call::Index(c) => gpu.index(c.x, &c.indices, c.out)?,
            Call::IndexPut(c) => gpu.index_put(&c.indices, c.values, c.accumulate, c.out)?,
            Call::Gather(c) => gpu.gather(c.x, c.dim, c.index, c.out)?,
            Call::Scatter(c) => gpu.scatter(c.op, c.dim, c.index, c.src, c.out)?,
            Call::NonZero(c) => gpu.nonzero(c.x, c.out)?,
            Call::MatMul(c) => gpu.matmul(c)?,
            Call::MatMulGelu(c) => {
                return gpu.matmul_gelu(&c.product, Gelu::Keep(c.kept.ptr() as u64)).map(Outcome::from);
            }
            Call::MatMulGeluBackward(c) => {
                if !gpu.matmul_gelu(&c.product, Gelu::Backward(c.kept.ptr() as u64))? {
                    return Ok(Outcome::Declined);
                }
                gpu.reduce(Reduce::Sum, c.product.out, &[true, true, false], c.sums)?;
            }
            Call::ConvForward(c) => gpu.conv_forward(&c.spec, c.x, c.w, c.bias, c.y)?,
            Call::ConvBackwardInput(c) if c.accumulate => {
                return gpu.conv_backward_input_add(&c.spec, c.dy, c.w, c.dx).map(Outcome::from);
            }
            Call::ConvBackwardInput(c) => gpu.conv_backward_input(&c.spec, c.dy, c.w, c.dx)?,
            Call::ConvBackwardWeight(c) => gpu.conv_backward_weight(&c.spec, c.x, c.dy, c.dw)?,
            Call::MaxPool(c) => gpu.max_pool(&c.spec, c.x, c.y, c.indices)?,
            Call::MaxPoolBackward(c) => gpu.max_pool_backward(&c.spec, c.dy, c.indices, c.dx)?,
            Call::AvgPool(c) => gpu.avg_pool(&c.spec, c.x, c.y)?,
            Call::AvgPoolBackward(c) => gpu.avg_pool_backward(&c.spec, c.dy, c.dx)?,
            Call::Softmax(c) => gpu.softmax(c.log, c.dims, c.x, c.y)?,
            Call::SoftmaxBackward(c) => gpu.softmax_backward(c.log, c.dims, c.dy, c.y, c.dx)?,
            Call::RowNorm(c) => gpu.row_norm(c)?,
            Call::RowNormBackward(c) => gpu.row_norm_backward(c)?,
            Call::BatchNorm(c) => gpu.batch_norm(c)?,
            Call::BatchNormBackward(c) => gpu.batch_norm_backward(c)?,
            Call::BatchNormRunning(c) => return gpu.batch_norm_running(c).map(Outcome::from),
            Call::CrossEntropy(c) => gpu.cross_entropy(&c.of, c.loss, c.row_weight, c.lse)?,
            Call::CrossEntropyBackward(c) => gpu.cross_entropy_backward(&c.of, c.lse, c.dloss, c.dlogits)?,
            Call::Attention(c) => gpu.attention(&c.of, c.out, c.lse)?,
            Call::AttentionBackward(c) => gpu.attention_backward(c)?,
            Call::LstmCell(c) => return gpu.lstm_cell(c.gates, c.before, c.c, c.h).map(Outcome::from),
            Call::LstmCellBackward(c) => return gpu.lstm_cell_backward(c).map(Outcome::from),
            Call::Update(c) => gpu.update_parameters(&c.updates, &c.live, c.grad_scale, c.found_inf)?,
            Call::ForeachNorm(c) => gpu.foreach_norm(c.p, &c.xs, c.out)?,
            Call::ForeachScale(c) => gpu.foreach_scale(c.factor, &c.xs, c.found_inf)?,
            Call::ForeachCopy(c) => gpu.foreach_copy(&c.from, &c.to)?,
            Call::Linalg(c) => {
                gpu.enter()?;
                let new = || gpu.driver.relaxed(|| gpu.libraries.factorisations());
                match gpu.factorisations.get_or_init(new) {
                    Ok(library) => library.linalg(gpu, c.op, &c.inputs, &c.outputs)?,
                    Err(_) => return Ok(Outcome::Declined),
                }
            }
            Call::Resample(c) => gpu.resample(&c.spec, c.x, c.y, false)?,
            Call::ResampleBackward(c) => gpu.resample(&c.spec, c.dy, c.dx, true)?,
            Call::Ctc(c) => gpu.ctc(c)?,
            Call::CtcBackward(c) => gpu.ctc_backward(c)?,
            Call::Complex(c) => return gpu.complex(c).map(Outcome::from),
            Call::Fft(c) => return gpu.fft(c).map(Outcome::from),
            Call::Permutation(_)
            | Call::Kth(_)
            | Call::IntRange(_)
            | Call::PadFrom(_)
            | Call::Distances(_)
            | Call::Euclidean(_)
            | Call::PackedMatMul(_)
            | Call::ConvPacked(_) => return Ok(Outcome::Declined),
        }
        Ok(Outcome::Done)
    }
}
