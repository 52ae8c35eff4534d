//! Memory shared by tensors.

use super::Backend;
use crate::{DType, Device, Layout, Result};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A byte range on a device, with a count of in-place changes.
///
/// # Threads
///
/// Engines write through a shared reference, as tensors that share a storage must see each other's changes. The
/// contract is PyTorch's:
///
/// - Any number of threads may read a storage at the same time, and write to parts of it that do not overlap.
/// - A thread that changes elements while another reads or changes the same ones must synchronise with it (a lock, a
///   channel, a join). This is the only rule that safe code can break. By Rust's memory model breaking it is a data
///   race, which a library whose views share memory cannot rule out without a lock or an atomic access for every
///   element.
/// - Engines limit such a race to wrong values: they read elements through raw pointers, and hold slices only
///   of the parts of outputs that one task writes, of copies, or of bytes on their way to a file; a shape, a stride or
///   an offset is never read from a storage; an index that is read from one is read once and checked before it is
///   used; any bytes are a valid element, but for `bool`, where engines write 0 and 1 only.
/// - Everything else about a tensor is atomic: the version here, `.grad`, hooks, the tape, random streams, the
///   allocator's and the engines' caches.
pub struct Storage {
    ptr: NonNull<u8>,
    bytes: usize,
    backend: &'static dyn Backend,
    version: AtomicU32,
    /// Keeps memory alive that the backend did not allocate.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: an address, a length and an atomic; the bytes are accessed through the address only, by the rules above.
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

    /// Version: the number of in-place changes.
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

/// Engine-level view of a tensor: elements within a storage. [`View::new`] checks that they are.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    storage: &'a Storage,
    layout: &'a Layout,
    dtype: DType,
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

    /// The same without the check.
    ///
    /// # Safety
    /// The layout is within the storage, as [`View::new`] checks.
    #[inline]
    pub unsafe fn new_unchecked(storage: &'a Storage, layout: &'a Layout, dtype: DType) -> Self {
        debug_assert!(Self::new(storage, layout, dtype).is_ok());
        Self { storage, layout, dtype }
    }

    /// The same memory under another layout, if it fits.
    pub fn with_layout<'b>(self, layout: &'b Layout) -> Result<View<'b>>
    where
        'a: 'b,
    {
        View::new(self.storage, layout, self.dtype)
    }

    /// The memory.
    #[inline]
    pub fn storage(&self) -> &'a Storage {
        self.storage
    }

    /// The elements and their order.
    #[inline]
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The elements' type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The elements' bits as the integers that carry them; a view of a computed dtype is unchanged.
    #[inline]
    pub fn as_carrier(self) -> Self {
        Self { dtype: self.dtype.carrier(), ..self }
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

/// An input of an engine call: a view or a number.
pub type Operand<'a> = super::call::Operand<View<'a>>;
