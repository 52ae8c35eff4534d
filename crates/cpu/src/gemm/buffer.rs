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

    fn grow(&mut self, bytes: usize) {
        if self.capacity() >= bytes {
            return;
        }
        let align = if bytes >= LARGE && !cfg!(rushlight_exact_alloc) { HUGE_PAGE } else { 64 };
        let layout = Layout::from_size_align(bytes.next_multiple_of(align), align)
            .expect("a packing buffer is never larger than an operand");
        *self = Buffer::EMPTY;
        // SAFETY: the size is not zero: capacity was below `bytes`.
        let ptr = unsafe { alloc(layout) };
        if ptr.is_null() {
            handle_alloc_error(layout);
        }
        #[cfg(target_os = "linux")]
        if align == HUGE_PAGE {
            // SAFETY: the range is ours. A refusal only costs speed.
            unsafe { libc::madvise(ptr.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        *self = Buffer { ptr, layout: Some(layout) };
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
    /// Operands and sums of small integers, as `i32`.
    WideA,
    WideB,
    WideC,
    WidePart,
}

thread_local! {
    static BUFFERS: [Cell<Buffer>; 9] = const {
        [const { Cell::new(Buffer::EMPTY) }; 9]
    };
}

/// Calls `f` with this thread's buffer for `purpose`, at least `len` elements large and not initialised.
pub(super) fn with_buffer<T, R>(purpose: Use, len: usize, f: impl FnOnce(*mut T) -> R) -> R {
    let bytes = len.saturating_mul(size_of::<T>()).max(1);
    // Taken out while in use: a nested product on the same thread gets a fresh one.
    let mut buffer = BUFFERS.with(|all| all[purpose as usize].replace(Buffer::EMPTY));
    buffer.grow(bytes);
    let result = f(buffer.ptr.cast());
    if buffer.capacity() <= KEEP {
        BUFFERS.with(|all| all[purpose as usize].set(buffer));
    }
    result
}
