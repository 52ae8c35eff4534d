//! Implementation of the `Backend` trait: dispatches to each family's module.

use crate::batch_norm::After;
use crate::device::Gpu;
use crate::driver::{Handle, Opened};
use crate::matmul::Gelu;
use crate::stream::Event;
use rushlight_core::backend::*;
use rushlight_core::rng::Distribution;
use rushlight_core::{DType, Device, Error, Philox, Pointwise, Result, Scalar};
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
        let _turn = self.starting.lock().unwrap_or_else(|e| e.into_inner());
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
        if crate::host::is_pinned(src.as_ptr()) { Event::at(gpu, gpu.lane().stream)?.synchronize() } else { Ok(()) }
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
        }
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
        unsafe { crate::host::upload_pinned(src, bytes, dst, offset) }
    }

    fn copy_from_peer(&self, src: &Storage, src_offset: usize, dst: &Storage, bytes: usize) -> Result<bool> {
        if Gpu::of("copy_from_peer", src).is_err() {
            return Ok(false);
        }
        crate::host::copy_between(src, src_offset, dst, bytes).map(|()| true)
    }

    fn fill(&self, value: Scalar, out: View) -> Result<()> {
        self.0.fill(value, out)
    }

    fn arange(&self, start: Scalar, step: Scalar, out: View) -> Result<()> {
        self.0.arange(start, step, out)
    }

    fn copy(&self, src: View, out: View) -> Result<()> {
        self.0.copy(src, out)
    }

    fn random(&self, distribution: Distribution, stream: Philox, out: View) -> Result<()> {
        self.0.random(distribution, stream, out)
    }

    fn pointwise(&self, op: Pointwise, compute: DType, inputs: &[Operand], params: &[f64], out: View) -> Result<()> {
        self.0.pointwise(op, compute, inputs, params, out)
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
        self.0.pointwise_grad(op, wrt, compute, values, params, out)
    }

    fn select(&self, condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
        self.0.select(condition, a, b, out)
    }

    fn dropout(&self, x: View, p: f64, stream: Philox, out: View) -> Result<()> {
        self.0.dropout(x, p, stream, out)
    }

    fn reduce(&self, op: Reduce, x: View, reduced: &[bool], out: View) -> Result<()> {
        self.0.reduce(op, x, reduced, out)
    }

    fn arg_reduce(&self, op: ArgReduce, x: View, dim: usize, values: View, indices: View) -> Result<()> {
        self.0.arg_reduce(op, x, dim, values, indices)
    }

    fn scan(&self, op: Scan, x: View, dim: usize, out: View, indices: Option<View>) -> Result<()> {
        self.0.scan(op, x, dim, out, indices)
    }

    fn sort(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        self.0.sort(x, dim, descending, values, indices)
    }

    fn topk(&self, x: View, dim: usize, largest: bool, values: View, indices: View) -> Result<()> {
        self.0.topk(x, dim, largest, values, indices)
    }

    fn searchsorted(&self, sorted: View, values: View, right: bool, out: View) -> Result<()> {
        self.0.searchsorted(sorted, values, right, out)
    }

    fn index(&self, x: View, indices: &[View], out: View) -> Result<()> {
        self.0.index(x, indices, out)
    }

    fn index_put(&self, indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
        self.0.index_put(indices, values, accumulate, out)
    }

    fn gather(&self, x: View, dim: usize, index: View, out: View) -> Result<()> {
        self.0.gather(x, dim, index, out)
    }

    fn scatter(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        self.0.scatter(op, dim, index, src, out)
    }

    fn count_nonzero(&self, x: View) -> Result<usize> {
        self.0.count_nonzero(x)
    }

    fn nonzero(&self, x: View, out: View) -> Result<()> {
        self.0.nonzero(x, out)
    }

    fn matmul(&self, spec: &MatMul) -> Result<()> {
        self.0.matmul(spec)
    }

    fn matmul_gelu(&self, spec: &MatMul, kept: View) -> Result<bool> {
        self.0.matmul_gelu(spec, Gelu::Keep(kept.ptr() as u64))
    }

    fn matmul_gelu_backward(&self, spec: &MatMul, kept: View, sums: View) -> Result<bool> {
        if !self.0.matmul_gelu(spec, Gelu::Backward(kept.ptr() as u64))? {
            return Ok(false);
        }
        self.0.reduce(Reduce::Sum, spec.out, &[true, true, false], sums)?;
        Ok(true)
    }

    fn conv_forward(&self, spec: &Conv, x: View, w: View, bias: Option<View>, y: View) -> Result<()> {
        self.0.conv_forward(spec, x, w, bias, y)
    }

    fn conv_backward_input(&self, spec: &Conv, dy: View, w: View, dx: View) -> Result<()> {
        self.0.conv_backward_input(spec, dy, w, dx)
    }

    fn conv_backward_input_add(&self, spec: &Conv, dy: View, w: View, dx: View) -> Result<bool> {
        self.0.conv_backward_input_add(spec, dy, w, dx)
    }

    fn conv_backward_weight(&self, spec: &Conv, x: View, dy: View, dw: View) -> Result<()> {
        self.0.conv_backward_weight(spec, x, dy, dw)
    }

    fn max_pool(&self, spec: &Pool, x: View, y: View, indices: View) -> Result<()> {
        self.0.max_pool(spec, x, y, indices)
    }

    fn max_pool_backward(&self, spec: &Pool, dy: View, indices: View, dx: View) -> Result<()> {
        self.0.max_pool_backward(spec, dy, indices, dx)
    }

    fn avg_pool(&self, spec: &Pool, x: View, y: View) -> Result<()> {
        self.0.avg_pool(spec, x, y)
    }

    fn avg_pool_backward(&self, spec: &Pool, dy: View, dx: View) -> Result<()> {
        self.0.avg_pool_backward(spec, dy, dx)
    }

    fn softmax(&self, log: bool, dims: [usize; 3], x: View, y: View) -> Result<()> {
        self.0.softmax(log, dims, x, y)
    }

    fn softmax_backward(&self, log: bool, dims: [usize; 3], dy: View, y: View, dx: View) -> Result<()> {
        self.0.softmax_backward(log, dims, dy, y, dx)
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
        self.0.row_norm(spec, x, weight, bias, y, low, mean, rstd)
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
        self.0.row_norm_backward(spec, dy, x, weight, mean, rstd, so_far, dx, low, dweight, dbias)
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
        self.0.batch_norm(spec, x, weight, bias, y, mean, rstd)
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
        self.0.batch_norm_backward(spec, dy, x, weight, mean, rstd, dx, dweight, dbias, After::Nothing)
    }

    fn batch_norm_relu_backward(
        &self,
        spec: &BatchNorm,
        dy: View,
        x: View,
        weight: Option<View>,
        bias: Option<View>,
        mean: View,
        rstd: View,
        dx: Option<View>,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        let after = After::Relu(bias);
        self.0.batch_norm_backward(spec, dy, x, weight, mean, rstd, dx, dweight, dbias, after)
    }

    fn batch_norm_running(
        &self,
        spec: &BatchNorm,
        momentum: f64,
        mean: View,
        rstd: View,
        running: [View; 2],
    ) -> Result<bool> {
        self.0.batch_norm_running(spec, momentum, mean, rstd, running)
    }

    fn cross_entropy(&self, spec: &CrossEntropy, loss: View, row_weight: View, lse: View) -> Result<()> {
        self.0.cross_entropy(spec, loss, row_weight, lse)
    }

    fn cross_entropy_backward(&self, spec: &CrossEntropy, lse: View, dloss: View, dlogits: View) -> Result<()> {
        self.0.cross_entropy_backward(spec, lse, dloss, dlogits)
    }

    fn attention(&self, spec: &Attention, out: View, lse: View) -> Result<()> {
        self.0.attention(spec, out, lse)
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
        self.0.attention_backward(spec, out, lse, dout, dq, dk, dv)
    }

    fn lstm_cell(&self, gates: View, before: View, c: View, h: View) -> Result<bool> {
        self.0.lstm_cell(gates, before, c, h)
    }

    fn lstm_cell_backward(&self, step: &LstmStep, dc: View, dgates: View) -> Result<bool> {
        self.0.lstm_cell_backward(step, dc, dgates)
    }

    fn update(&self, updates: &[ParamUpdate], grad_scale: Operand) -> Result<()> {
        self.0.update_parameters(updates, &[], grad_scale, None)
    }

    fn foreach_norm(&self, p: f64, xs: &[View], out: View) -> Result<()> {
        self.0.foreach_norm(p, xs, out)
    }

    fn foreach_scale(&self, factor: Option<Operand>, xs: &[View], found_inf: Option<View>) -> Result<()> {
        self.0.foreach_scale(factor, xs, found_inf)
    }

    fn foreach_copy(&self, from: &[View], to: &[View]) -> Result<()> {
        self.0.foreach_copy(from, to)
    }

    fn linalg(&self, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
        let gpu = &self.0;
        gpu.enter()?;
        let new = || gpu.driver.relaxed(|| gpu.libraries.factorisations());
        match gpu.factorisations.get_or_init(new) {
            Ok(library) => library.linalg(gpu, op, inputs, outputs),
            Err(e) => Err(Error::unsupported(format!("{op:?} is computed on the CPU: {e}"))),
        }
    }
}
