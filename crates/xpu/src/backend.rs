//! Implementation of the `Backend` trait: dispatches to each family's module.

use crate::device::Xpu;
use rushlight_core::backend::*;
use rushlight_core::rng::Distribution;
use rushlight_core::{DType, Device, Error, Philox, Pointwise, Result, Scalar};
use std::ptr::NonNull;

/// The engine of one device.
pub struct XpuBackend(pub Xpu);

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

impl CachingAllocator for Xpu {
    fn stats(&self) -> MemoryStats {
        self.memory().stats()
    }

    fn reset_peak(&self) {
        self.memory().reset_peak();
    }

    fn empty_cache(&self) {
        self.memory().empty_cache(self);
    }
}

impl Backend for XpuBackend {
    fn device(&self) -> Device {
        self.0.device
    }

    fn alloc(&'static self, bytes: usize) -> Result<Storage> {
        let address = if bytes == 0 { None } else { NonNull::new(self.0.take_memory(bytes)? as *mut u8) };
        // SAFETY: just allocated with this size; `free` gives it back to the same pool. Nothing is read through an
        // empty storage's address.
        Ok(unsafe { Storage::from_backend(self, address.unwrap_or(NonNull::dangling()), bytes) })
    }

    unsafe fn free(&self, ptr: NonNull<u8>, bytes: usize) {
        if bytes > 0 {
            self.0.give_memory(ptr.as_ptr() as u64);
        }
    }

    fn upload(&self, src: &[u8], dst: &Storage, offset: usize) -> Result<()> {
        check_range("upload", dst, offset, src.len())?;
        self.0.write(src, dst.ptr() as u64 + offset as u64)
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [u8]) -> Result<()> {
        check_range("download", src, offset, dst.len())?;
        self.0.read(src.ptr() as u64 + offset as u64, dst)
    }

    unsafe fn upload_pinned(&self, src: *const u8, bytes: usize, dst: &Storage, offset: usize) -> Result<()> {
        check_range("upload", dst, offset, bytes)?;
        // SAFETY: the caller's promise; the range was checked.
        unsafe { self.copy_pinned(src, bytes, dst, offset) }
    }

    fn synchronize(&self) -> Result<()> {
        self.0.synchronize_all()
    }

    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        Some(&self.0)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(&self.0)
    }

    fn fill(&self, value: Scalar, out: View) -> Result<()> {
        self.0.fill(value, out)
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

    fn matmul(&self, spec: &MatMul) -> Result<()> {
        self.0.matmul(spec)
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
        self.0.row_norm(spec, x, [weight, bias], y, low, mean, rstd)
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
        self.0.row_norm_backward(spec, [dy, x, mean, rstd], weight, so_far, [dx, low], [dweight, dbias])
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
        self.0.attention_backward(spec, out, lse, dout, [dq, dk, dv])
    }

    fn update(&self, updates: &[ParamUpdate], grad_scale: Operand) -> Result<()> {
        self.0.update(updates, grad_scale)
    }
}
