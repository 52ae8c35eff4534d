//! Packing buffers that each thread reuses between products.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;

const HUGE_PAGE: usize = 2 << 20;
/// Buffers from this size on use huge pages, to avoid TLB misses on repeated reads.
const LARGE: usize = 256 << 10;
/// Larger buffers are freed after use.
const KEEP: usize = 64 << 20;

/// An uninitialised block of memory, aligned for vector and tile loads.
pub(super) struct Buffer {
    ptr: *mut u8,
    layout: Option<Layout>,
}

impl Buffer {
    const EMPTY: Buffer = Buffer { ptr: std::ptr::null_mut(), layout: None };

    fn layout(bytes: usize) -> Layout {
        let align = if bytes >= LARGE && !cfg!(rushlight_exact_alloc) { HUGE_PAGE } else { 64 };
        // A buffer that needs more than one huge page ends in small ones: packed weights are kept.
        let unit = if bytes > HUGE_PAGE { 64 } else { align };
        Layout::from_size_align(bytes.max(1).next_multiple_of(unit), align)
            .expect("a packing buffer is never larger than an operand")
    }

    /// A buffer of at least this size; `None` if there is not enough memory.
    fn new(bytes: usize) -> Option<Self> {
        let layout = Self::layout(bytes);
        // SAFETY: the size is not zero.
        let ptr = unsafe { alloc(layout) };
        if ptr.is_null() {
            return None;
        }
        #[cfg(target_os = "linux")]
        if layout.align() == HUGE_PAGE {
            // SAFETY: the range is ours. A refusal only costs speed.
            unsafe { libc::madvise(ptr.cast(), layout.size() / HUGE_PAGE * HUGE_PAGE, libc::MADV_HUGEPAGE) };
        }
        Some(Buffer { ptr, layout: Some(layout) })
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// This thread's buffer for `purpose`, at least this large. While it is out, others get a fresh one. `None` if
    /// there is not enough memory.
    pub(super) fn take(purpose: Use, bytes: usize) -> Option<Self> {
        let kept = BUFFERS.try_with(|all| all[purpose as usize].replace(Buffer::EMPTY)).ok();
        match kept.filter(|kept| kept.capacity() >= bytes) {
            Some(kept) => Some(kept),
            None => Buffer::new(bytes),
        }
    }

    /// Keeps the buffer for this thread's next use, unless it is very large.
    pub(super) fn give_back(self, purpose: Use) {
        if self.capacity() <= KEEP {
            // Fails only when the thread ends.
            let _ = BUFFERS.try_with(|all| all[purpose as usize].set(self));
        }
    }

    fn capacity(&self) -> usize {
        self.layout.map_or(0, |l| l.size())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: allocated with this layout, and given up here.
            unsafe { dealloc(self.ptr, layout) };
        }
    }
}

/// The purpose of a buffer; a thread may hold one of each kind.
#[derive(Clone, Copy)]
pub(super) enum Use {
    PackedA,
    PackedB,
    Columns,
    Sums,
    Partials,
    /// An operand that outlives its first product.
    Right,
    /// Operands and sums of small integers, as `i32`.
    WideA,
    WideB,
    WideC,
    WidePart,
}

thread_local! {
    static BUFFERS: [Cell<Buffer>; 10] = const {
        [const { Cell::new(Buffer::EMPTY) }; 10]
    };
}

/// This thread's buffer for `purpose`, as [`Buffer::take`] gives it.
fn take(purpose: Use, bytes: usize) -> Buffer {
    Buffer::take(purpose, bytes).unwrap_or_else(|| handle_alloc_error(Buffer::layout(bytes)))
}

/// Calls `f` with this thread's buffer for `purpose`, at least `len` elements large and not initialised.
pub(super) fn with_buffer<T, R>(purpose: Use, len: usize, f: impl FnOnce(*mut T) -> R) -> R {
    let buffer = take(purpose, len.saturating_mul(size_of::<T>()).max(1));
    let result = f(buffer.ptr.cast());
    buffer.give_back(purpose);
    result
}
