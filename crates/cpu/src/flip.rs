//! Reversing dimensions: a copy whose source is walked backwards along some of them.

use crate::index::with_size;
use crate::isa::Isa;
use crate::multiversion;
use crate::pool;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::SendPtr;
use rushlight_core::{Result, View};

/// Minimum bytes per task.
const TASK_BYTES: usize = 64 << 10;

/// A dimension of the copy: its size, and the steps of source and output.
#[derive(Clone, Copy)]
struct Dim {
    size: usize,
    from: isize,
    to: isize,
}

/// See `call::Flip`.
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
            // The outer dimension continues where this one ends, so they merge.
            Some(last) if last.from == from * size as isize && last.to == to * size as isize => {
                *last = Dim { size: last.size * size, from, to };
            }
            _ => dims.push(Dim { size, from, to }),
        }
    }
    let unit = Dim { size: 1, from: 1, to: 1 };
    let last = dims.pop().unwrap_or(unit);
    // The kernel also handles the second-last dimension.
    let near = dims.pop().unwrap_or(unit);
    let rows = near.size * dims.iter().map(|d| d.size).product::<usize>();
    with_size!(x.dtype(), U => {
        let (src, dst) = (SendPtr::new(x.ptr().cast::<U>().wrapping_offset(start)), SendPtr::new(out.ptr().cast::<U>()));
        pool::parallel_ranges(rows, TASK_BYTES.div_ceil(last.size * size_of::<U>()), |first, end| {
            let mut row = first;
            while row < end {
                let i = row % near.size;
                let mut rest = row / near.size;
                let (mut from, mut to) = (i as isize * near.from, i as isize * near.to);
                for d in dims.iter().rev() {
                    let i = (rest % d.size) as isize;
                    rest /= d.size;
                    from += i * d.from;
                    to += i * d.to;
                }
                let n = (near.size - i).min(end - row);
                // SAFETY: all positions of the rows are within the views, and rows do not overlap.
                unsafe { copy_rows(src.at(0).offset(from), dst.at(0).offset(to), Dim { size: n, ..near }, last) };
                row += n;
            }
        });
    });
    Ok(true)
}

multiversion! {
    /// Copies rows with these sizes and steps.
    ///
    /// # Safety
    /// Both are valid for the elements that the dimensions name and do not overlap.
    unsafe fn copy_rows<U: Copy>(src: *const U, dst: *mut U, rows: Dim, row: Dim) = copy_rows_kernel;
}

#[inline(always)]
unsafe fn copy_rows_kernel<U: Copy, I: Isa>(src: *const U, dst: *mut U, rows: Dim, row: Dim) {
    for i in 0..rows.size as isize {
        // SAFETY: the caller's promise.
        unsafe { copy_row(src.offset(i * rows.from), row.from, dst.offset(i * rows.to), row.to, row.size) };
    }
}

#[inline(always)]
unsafe fn copy_row<U: Copy>(src: *const U, from: isize, dst: *mut U, to: isize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match (from, to) {
            (1, 1) => std::ptr::copy_nonoverlapping(src, dst, n),
            (-1, 1) => {
                // Blocks are reversed in registers. The source is read forwards, which the prefetcher expects.
                const BLOCK: usize = 16;
                let (first, whole) = (src.sub(n - 1), n / BLOCK * BLOCK);
                for k in (0..whole).step_by(BLOCK) {
                    let mut block = first.add(k).cast::<[U; BLOCK]>().read_unaligned();
                    block.reverse();
                    dst.add(n - BLOCK - k).cast::<[U; BLOCK]>().write_unaligned(block);
                }
                for k in whole..n {
                    *dst.add(n - 1 - k) = *first.add(k);
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
