//! The CPU engine restricted to the primitives that every engine must run; it declines all other calls, so their
//! default bodies run.
//!
//! It shows that the primitives are enough, and runs the op suite against the default bodies.

use crate::alloc;
use crate::backend::CPU;
use rushlight_core::backend::*;
use rushlight_core::{Device, Result};
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

    unsafe fn run(&self, call: &Call<View>) -> Result<Outcome> {
        match call {
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
            // Not primitives: other engines use this one for transforms and factorisations.
            | Call::Fft(_)
            | Call::Linalg(_) => {
                // SAFETY: the caller's promise; both engines have the host's memory.
                unsafe { CPU.run(call) }
            }
            _ => Ok(Outcome::Declined),
        }
    }
}
