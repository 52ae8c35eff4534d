//! Outputs computed from the element index alone.

use super::convert::converter;
use super::driver::CHUNK;
use super::walk::{Strided, is_dense};
use crate::pool;
use rushlight_core::layout::Nest;
use rushlight_core::{DType, View};
use std::mem::MaybeUninit;

/// Fills `out`, of any strides and dtype, from `make(start, len, chunk)`, which writes elements `start..start + len` in
/// row-major order as `dtype`. Chunks start at multiples of [`CHUNK`] and are at most as long; `make` is called from
/// several threads.
pub(crate) fn produce(out: View, dtype: DType, parallel_from: usize, make: impl Fn(usize, usize, *mut u8) + Sync) {
    let numel = out.numel();
    if numel == 0 {
        return;
    }
    let nest = Nest::new(out.shape(), [out.strides()]);
    let direct = out.dtype() == dtype && is_dense(&nest, 0);
    let to = Strided { ptr: out.ptr(), size: out.dtype().size(), convert: converter(dtype, out.dtype()) };
    let chunks = numel.div_ceil(CHUNK);
    let tasks = if numel < parallel_from { 1 } else { pool::num_threads() * 4 };
    pool::parallel_ranges(chunks, chunks.div_ceil(tasks), |first, last| {
        // Borrowed whole, so that the closure takes the operand with its promises rather than the bare pointer.
        let to = &to;
        let mut buffer: [MaybeUninit<u64>; CHUNK] = [MaybeUninit::uninit(); CHUNK];
        for start in (first..last).map(|c| c * CHUNK) {
            let len = CHUNK.min(numel - start);
            if direct {
                make(start, len, to.ptr.wrapping_add(start * to.size));
            } else {
                let chunk = buffer.as_mut_ptr().cast::<u8>();
                make(start, len, chunk);
                // SAFETY: the view describes writable elements, and chunks are disjoint; the buffer holds `len`
                // elements.
                unsafe { to.scatter(&nest, 0, start, len, chunk, dtype.size()) }
            }
        }
    });
}
