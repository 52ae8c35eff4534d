//! The CPU engine restricted to the primitives that every engine must implement; all other methods are the trait's
//! default bodies.
//!
//! It shows that the primitives are enough, and runs the op suite against the default bodies.

use crate::backend::CPU;
use crate::{alloc, linalg};
use rushlight_core::backend::*;
use rushlight_core::rng::Distribution;
use rushlight_core::{DType, Device, Philox, Pointwise, Result, Scalar};
use std::ptr::NonNull;

struct Composed;

static COMPOSED: Composed = Composed;

/// The CPU engine without its fused kernels: primitives and the default bodies of [`Backend`]. A reference for tests,
/// and slow.
pub fn composed() -> &'static dyn Backend {
    &COMPOSED
}

impl Backend for Composed {
    fn device(&self) -> Device {
        CPU.device()
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
        CPU.upload(src, dst, offset)
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [u8]) -> Result<()> {
        CPU.download(src, offset, dst)
    }

    fn synchronize(&self) -> Result<()> {
        CPU.synchronize()
    }

    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        CPU.allocator()
    }

    fn fill(&self, value: Scalar, out: View) -> Result<()> {
        CPU.fill(value, out)
    }

    fn copy(&self, src: View, out: View) -> Result<()> {
        CPU.copy(src, out)
    }

    fn random(&self, distribution: Distribution, stream: Philox, out: View) -> Result<()> {
        CPU.random(distribution, stream, out)
    }

    fn pointwise(&self, op: Pointwise, compute: DType, inputs: &[Operand], params: &[f64], out: View) -> Result<()> {
        CPU.pointwise(op, compute, inputs, params, out)
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
        CPU.pointwise_grad(op, wrt, compute, values, params, out)
    }

    fn select(&self, condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
        CPU.select(condition, a, b, out)
    }

    fn reduce(&self, op: Reduce, x: View, reduced: &[bool], out: View) -> Result<()> {
        CPU.reduce(op, x, reduced, out)
    }

    fn index(&self, x: View, indices: &[View], out: View) -> Result<()> {
        CPU.index(x, indices, out)
    }

    fn index_put(&self, indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
        CPU.index_put(indices, values, accumulate, out)
    }

    fn scatter(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        CPU.scatter(op, dim, index, src, out)
    }

    fn matmul(&self, spec: &MatMul) -> Result<()> {
        CPU.matmul(spec)
    }

    /// Not a primitive: other engines use this one for factorisations.
    fn linalg(&self, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
        linalg::linalg(op, inputs, outputs)
    }
}
