//! Reversing dimensions: a copy whose source is walked backwards along some of them.

use crate::float::Shared;
use crate::index::with_size;
use crate::isa::Isa;
use crate::multiversion;
use crate::pool;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{Result, View};

/// Bytes a task should move at least.
const TASK_BYTES: usize = 64 << 10;

/// A dimension of the copy: its size, and the steps of source and output.
#[derive(Clone, Copy)]
struct Dim {
    size: usize,
    from: isize,
    to: isize,
}

/// See `Backend::flip`.
pub fn flip(x: View, flipped: &[bool], out: View) -> Result<bool> {
    if x.numel() == 0 {
        return Ok(true);
    }
    let mut start = 0isize;
    let mut dims: SmallVec<[Dim; 4]> = SmallVec::new();
    for (d, &size) in x.shape().iter().enumerate().filter(|&(_, &size)| size != 1) {
        let (mut from, to) = (x.strides()[d] as isize, out.strides()[d] as isize);
        if flipped.get(d).copied().unwrap_or(false) {
            start += (size as isize - 1) * from;
            from = -from;
        }
        match dims.last_mut() {
            // The dimension before continues where this one ends.
            Some(last) if last.from == from * size as isize && last.to == to * size as isize => {
                *last = Dim { size: last.size * size, from, to };
            }
            _ => dims.push(Dim { size, from, to }),
        }
    }
    let last = dims.pop().unwrap_or(Dim { size: 1, from: 1, to: 1 });
    let rows: usize = dims.iter().map(|d| d.size).product();
    with_size!(x.dtype, U => {
        let (src, dst) = (Shared::new(x.ptr().cast::<U>().wrapping_offset(start)), Shared::new(out.ptr().cast::<U>()));
        pool::parallel_ranges(rows, TASK_BYTES.div_ceil(last.size * size_of::<U>()), |first, end| {
            for row in first..end {
                let (mut rest, mut from, mut to) = (row, 0isize, 0isize);
                for d in dims.iter().rev() {
                    let i = (rest % d.size) as isize;
                    rest /= d.size;
                    from += i * d.from;
                    to += i * d.to;
                }
                // SAFETY: all positions of the row are within the views, and rows do not overlap.
                unsafe { copy_row(src.at(0).offset(from), last.from, dst.at(0).offset(to), last.to, last.size) };
            }
        });
    });
    Ok(true)
}

multiversion! {
    /// Copies `n` elements with these steps.
    ///
    /// # Safety
    /// Both are valid for `n` elements with their steps and do not overlap.
    unsafe fn copy_row<U: Copy>(src: *const U, from: isize, dst: *mut U, to: isize, n: usize) = copy_row_kernel;
}

#[inline(always)]
unsafe fn copy_row_kernel<U: Copy, I: Isa>(src: *const U, from: isize, dst: *mut U, to: isize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match (from, to) {
            (1, 1) => std::ptr::copy_nonoverlapping(src, dst, n),
            (-1, 1) => {
                // Blocks are turned round in registers.
                const BLOCK: usize = 16;
                let whole = n / BLOCK * BLOCK;
                for k in (0..whole).step_by(BLOCK) {
                    let mut block = src.sub(k + BLOCK - 1).cast::<[U; BLOCK]>().read_unaligned();
                    block.reverse();
                    dst.add(k).cast::<[U; BLOCK]>().write_unaligned(block);
                }
                for k in whole..n {
                    *dst.add(k) = *src.sub(k);
                }
            }
            _ => {
                for k in 0..n as isize {
                    *dst.offset(k * to) = *src.offset(k * from);
                }
            }
        }
    }
}
