//! The meta engine: tensors with shape, dtype and strides but no elements.
//!
//! Every op checks its arguments and makes its outputs as on any device; the engine's share of the work is empty.
//! Models can be built without memory for their weights, and shapes can be found without arithmetic. Whatever needs a
//! value is an error.

use rushlight_core::backend::*;
use rushlight_core::{Device, Error, Result};
use std::ptr::NonNull;

/// The engine of [`Device::Meta`].
pub struct MetaEngine;

/// The entry for the list of engines.
pub static ENGINE: MetaEngine = MetaEngine;

impl Engine for MetaEngine {
    fn name(&self) -> &'static str {
        "meta"
    }

    fn device(&self, _index: usize) -> Device {
        Device::Meta
    }

    fn count(&self) -> Result<usize> {
        Ok(1)
    }

    fn properties(&self, _index: usize) -> Result<Properties> {
        Ok(Properties { name: "meta".to_string(), ..Properties::default() })
    }

    fn backend(&self, _index: usize) -> Result<&'static dyn Backend> {
        Ok(&ENGINE)
    }
}

fn no_data<T>(what: &str) -> Result<T> {
    Err(Error::unsupported(format!(
        "{what} of a meta tensor; no data! Build it on a device, or use to_empty() for a module's parameters"
    )))
}

/// Memory of no byte, at an address that suits every dtype and that nothing reads.
#[repr(align(64))]
struct Nowhere;

impl CachingAllocator for MetaEngine {
    fn stats(&self) -> MemoryStats {
        MemoryStats::default()
    }

    fn reset_peak(&self) {}

    fn empty_cache(&self) {}
}

impl Backend for MetaEngine {
    fn device(&self) -> Device {
        Device::Meta
    }

    fn alloc(&'static self, bytes: usize) -> Result<Storage> {
        // SAFETY: no method of this engine reads or writes through the address, and the tensor layer does so on the CPU
        // only.
        Ok(unsafe { Storage::from_backend(self, NonNull::<Nowhere>::dangling().cast(), bytes) })
    }

    unsafe fn free(&self, _: NonNull<u8>, _: usize) {}

    fn download(&self, _: &Storage, _: usize, _: &mut [u8]) -> Result<()> {
        no_data("Cannot copy out")
    }

    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        Some(self)
    }

    fn upload(&self, _: &[u8], _: &Storage, _: usize) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    unsafe fn run(&self, _: &Call<View>) -> Result<Outcome> {
        Ok(Outcome::Done)
    }
}
