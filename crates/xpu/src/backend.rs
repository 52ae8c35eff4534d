//! Implementation of the `Backend` trait: dispatches to each family's module.

use crate::device::Xpu;
use rushlight_core::backend::*;
use rushlight_core::{Device, Error, Result};
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

    unsafe fn run(&self, call: &Call<View>) -> Result<Outcome> {
        let xpu = &self.0;
        match call {
            Call::Fill(c) => xpu.fill(c.value, c.out)?,
            Call::Copy(c) => xpu.copy(c.src, c.out)?,
            Call::Random(c) => xpu.random(c.distribution, c.stream, c.out)?,
            Call::Pointwise(c) => xpu.pointwise(c.op, c.compute, &c.inputs, &c.params, c.out)?,
            Call::PointwiseGrad(c) => xpu.pointwise_grad(c.op, c.wrt, c.compute, c.values, &c.params, c.out)?,
            Call::Select(c) => xpu.select(c.condition, c.a, c.b, c.out)?,
            Call::Dropout(c) => xpu.dropout(c.x, c.p, c.stream, c.out)?,
            Call::Reduce(c) => xpu.reduce(c.op, c.x, &c.reduced, c.out)?,
            Call::ArgReduce(c) => xpu.arg_reduce(c.op, c.x, c.dim, c.values, c.indices)?,
            Call::Index(c) => xpu.index(c.x, &c.indices, c.out)?,
            Call::IndexPut(c) => xpu.index_put(&c.indices, c.values, c.accumulate, c.out)?,
            Call::Gather(c) => xpu.gather(c.x, c.dim, c.index, c.out)?,
            Call::Scatter(c) => xpu.scatter(c.op, c.dim, c.index, c.src, c.out)?,
            Call::MatMul(c) => xpu.matmul(c)?,
            Call::Softmax(c) => xpu.softmax(c.log, c.dims, c.x, c.y)?,
            Call::SoftmaxBackward(c) => xpu.softmax_backward(c.log, c.dims, c.dy, c.y, c.dx)?,
            Call::RowNorm(c) => xpu.row_norm(&c.spec, c.x, [c.weight, c.bias], c.y, c.low, c.mean, c.rstd)?,
            Call::RowNormBackward(c) if c.dy.dtype() == c.x.dtype() && (c.dx.is_some() || c.low.is_none()) => {
                let saved = [c.dy, c.x, c.mean, c.rstd];
                xpu.row_norm_backward(&c.spec, saved, c.weight, c.so_far, [c.dx, c.low], [c.dweight, c.dbias])?;
            }
            Call::CrossEntropy(c) if !c.of.log_probabilities => {
                xpu.cross_entropy(&c.of, c.loss, c.row_weight, c.lse)?
            }
            Call::CrossEntropyBackward(c) if !c.of.log_probabilities => {
                xpu.cross_entropy_backward(&c.of, c.lse, c.dloss, c.dlogits)?
            }
            Call::Attention(c) => xpu.attention(&c.of, c.out, c.lse)?,
            Call::AttentionBackward(c) => {
                xpu.attention_backward(&c.of, c.out, c.lse, c.dout, [c.dq, c.dk, c.dv])?;
            }
            Call::Update(c) if c.live.is_empty() => xpu.update(&c.updates, c.grad_scale)?,
            _ => return Ok(Outcome::Declined),
        }
        Ok(Outcome::Done)
    }
}
