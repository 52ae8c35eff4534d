//! Scratch memory that is reused across calls: fresh pages would cost more than the arithmetic.

use std::cell::RefCell;
use std::ptr::NonNull;

/// Buffers start on a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

thread_local! {
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer with initialised but arbitrary bytes, returned to its thread when dropped.
pub(crate) struct Scratch(Vec<Line>);

impl Scratch {
    /// Room for `len` elements of `E`, one of the float types.
    pub(crate) fn new<E: Copy>(len: usize) -> Self {
        let lines = (len * size_of::<E>()).div_ceil(64);
        let reused = FREE.with_borrow_mut(|free| {
            // Takes the smallest buffer that fits; if none does, replaces the largest by a larger one.
            let fits = (0..free.len()).filter(|&i| free[i].len() >= lines).min_by_key(|&i| free[i].len());
            let choice = fits.or_else(|| (0..free.len()).max_by_key(|&i| free[i].len()))?;
            Some(free.swap_remove(choice))
        });
        match reused {
            Some(buffer) if buffer.len() >= lines => Self(buffer),
            outgrown => {
                drop(outgrown);
                Self(vec![Line { _bytes: [0; 64] }; lines])
            }
        }
    }

    /// The start of the buffer.
    pub(crate) fn ptr<E>(&mut self) -> *mut E {
        self.0.as_mut_ptr().cast()
    }
}

/// Memory of `f32` that is written once and kept: on the engine's pages, which are large.
pub(super) struct Kept {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: after it was written the memory is only read.
unsafe impl Send for Kept {}
// SAFETY: as above.
unsafe impl Sync for Kept {}

impl Kept {
    /// Room for `len` elements; `None` without memory for them.
    pub(super) fn new(len: usize) -> Option<Self> {
        let bytes = (len * size_of::<f32>()).max(64);
        Some(Self { start: crate::alloc::alloc(bytes).ok()?, bytes })
    }

    pub(super) fn ptr(&self) -> *mut f32 {
        self.start.as_ptr().cast()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: allocated with this size.
        unsafe { crate::alloc::free(self.start, self.bytes) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A buffer larger than requested would hide accesses beyond its end.
        if cfg!(rushlight_exact_alloc) {
            return;
        }
        let buffer = std::mem::take(&mut self.0);
        // If the thread is ending, its list is gone.
        let _ = FREE.try_with(|free| free.borrow_mut().push(buffer));
    }
}
