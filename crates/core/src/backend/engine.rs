//! An engine: all devices of one kind, before one of them is started.

use super::Backend;
use crate::{Device, Result};
use std::any::Any;
use std::ptr::NonNull;

/// A device as its vendor describes it.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    /// The vendor's name of the model.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
    /// Multiprocessors, compute units or cores.
    pub multiprocessors: usize,
    /// NVIDIA's compute capability, such as (9, 0); the first two numbers of the architecture elsewhere.
    pub capability: (i32, i32),
    /// Version of the driver, such as "13.0".
    pub driver: String,
    /// Version of the run-time compiler; empty where it is missing.
    pub runtime: String,
}

/// A vendor's library that was found.
#[derive(Clone, Debug)]
pub struct Library {
    /// Where.
    pub path: &'static str,
    /// Its version, as its makers write it.
    pub version: String,
}

/// Pinned host memory: devices copy from and to it asynchronously.
pub struct Pinned {
    /// The first byte.
    pub ptr: NonNull<u8>,
    /// The size.
    pub bytes: usize,
    /// Returns the memory when dropped.
    pub owner: Box<dyn Any + Send + Sync>,
}

/// Optional: allocator of pinned host memory for all devices of an engine.
pub trait PinnedMemory: Send + Sync {
    /// Uninitialised pinned memory.
    fn alloc(&self, bytes: usize) -> Result<Pinned>;
    /// Whether an address is in memory of [`alloc`](PinnedMemory::alloc). Starts no device.
    fn contains(&self, address: *const u8) -> bool;
    /// Returns unused pinned memory to the system.
    fn empty_cache(&self) -> Result<()>;
}

/// One kind of device: an entry in the list of compiled-in engines.
pub trait Engine: Send + Sync + 'static {
    /// The device type, as PyTorch spells it: `cpu`, `cuda`.
    fn name(&self) -> &'static str;
    /// The name of a device.
    fn device(&self, index: usize) -> Device;
    /// Number of devices; the error says why none can be used, such as a missing driver.
    fn count(&self) -> Result<usize>;
    /// Describes a device without starting it.
    fn properties(&self, index: usize) -> Result<Properties>;
    /// A device, started on first use.
    fn backend(&self, index: usize) -> Result<&'static dyn Backend>;
    /// Vendor libraries that the engine can use: name, and version and path or the reason why it is missing.
    fn libraries(&self) -> Vec<(&'static str, Result<Library>)> {
        Vec::new()
    }
    /// Pinned host memory.
    fn pinned_memory(&self) -> Option<&'static dyn PinnedMemory> {
        None
    }
}
