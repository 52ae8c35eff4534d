//! Memory that tensors share.

use super::Backend;
use crate::{DType, Device, Layout, Result, Scalar};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A run of bytes on a device, with the count of in-place changes made to it.
///
/// Engines write through a shared reference, as tensors that share a storage must see each other's changes. Changing a tensor from
/// one thread while another uses it needs the caller's own synchronisation; without it values may be torn, so engines check
/// every index they read from memory at the moment they use it.
pub struct Storage {
    ptr: NonNull<u8>,
    bytes: usize,
    backend: &'static dyn Backend,
    version: AtomicU32,
    /// Keeps memory alive that the backend did not allocate.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: a storage is an address and a length; who may touch the bytes is the engines' affair (see above).
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

impl Storage {
    /// Memory that `backend` allocated and will free.
    ///
    /// # Safety
    /// `ptr` is an allocation of `backend` of at least `bytes` bytes that nothing else frees.
    pub unsafe fn from_backend(backend: &'static dyn Backend, ptr: NonNull<u8>, bytes: usize) -> Self {
        Self { ptr, bytes, backend, version: AtomicU32::new(0), owner: None }
    }

    /// Memory that `owner` keeps alive.
    ///
    /// # Safety
    /// `ptr` is valid for reads and writes of `bytes` bytes on the backend's device for as long as `owner` lives.
    pub unsafe fn from_owner(
        backend: &'static dyn Backend,
        ptr: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { ptr, bytes, backend, version: AtomicU32::new(0), owner: Some(owner) }
    }

    /// The first byte, on the device.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Length in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The engine that owns the device.
    #[inline]
    pub fn backend(&self) -> &'static dyn Backend {
        self.backend
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> Device {
        self.backend.device()
    }

    /// How often the contents were changed in place.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.load(Relaxed)
    }

    /// Counts an in-place change.
    #[inline]
    pub fn bump_version(&self) {
        self.version.fetch_add(1, Relaxed);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if self.owner.is_none() {
            // SAFETY: by the contract of `from_backend` this is ours to free, once.
            unsafe { self.backend.free(self.ptr, self.bytes) }
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({} bytes on {})", self.bytes, self.device())
    }
}

/// A tensor as an engine sees it. Its layout lies within the storage: whoever makes a view has checked that.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The memory.
    pub storage: &'a Storage,
    /// Which elements of it, in which order.
    pub layout: &'a Layout,
    /// Their type.
    pub dtype: DType,
}

impl<'a> View<'a> {
    /// A view, if its layout fits the storage.
    pub fn new(storage: &'a Storage, layout: &'a Layout, dtype: DType) -> Result<Self> {
        let end = layout.span()?;
        if layout.numel() > 0 && end * dtype.size() > storage.bytes() {
            return Err(crate::Error::value(format!(
                "a view of shape {:?}, strides {:?}, offset {} needs {} bytes of storage, which has {}",
                layout.shape(),
                layout.strides(),
                layout.offset(),
                end * dtype.size(),
                storage.bytes()
            )));
        }
        Ok(Self { storage, layout, dtype })
    }

    /// Sizes.
    #[inline]
    pub fn shape(&self) -> &'a [usize] {
        self.layout.shape()
    }

    /// Strides in elements.
    #[inline]
    pub fn strides(&self) -> &'a [usize] {
        self.layout.strides()
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// Address of the first element.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        self.storage.ptr().wrapping_add(self.layout.offset() * self.dtype.size())
    }
}

/// An input of a pointwise op.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A tensor of the output's shape (expanded where it broadcasts).
    Tensor(View<'a>),
    /// A number.
    Scalar(Scalar),
}
