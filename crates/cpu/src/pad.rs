//! Padding by the tensor's own elements (reflect, replicate, circular): every row of the result is a row of the source
//! with a few elements added at either end, written in one pass.

use crate::index::with_size;
use crate::pool;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::SendPtr;
use rushlight_core::{Error, Result, View};

/// Minimum bytes per task.
const TASK_BYTES: usize = 64 << 10;

/// The source of a row: a contiguous run copied at once, and single elements around it.
struct Row<'a> {
    /// Destination, source start and length of the contiguous run.
    body: (usize, usize, usize),
    sources: &'a [usize],
}

impl<'a> Row<'a> {
    fn new(sources: &'a [usize]) -> Self {
        // The run around the middle, in chunks that are compared as vectors.
        const CHUNK: usize = 64;
        let middle = sources.len() / 2;
        let base = sources.get(middle).map_or(0, |place| place.wrapping_sub(middle));
        let breaks = |start: usize, end: usize| {
            (start..end).zip(&sources[start..end]).fold(0, |all, (i, place)| all | (place.wrapping_sub(i) ^ base))
        };
        let (mut start, mut end) = (middle, middle);
        while end + CHUNK <= sources.len() && breaks(end, end + CHUNK) == 0 {
            end += CHUNK;
        }
        while end < sources.len() && breaks(end, end + 1) == 0 {
            end += 1;
        }
        while start >= CHUNK && breaks(start - CHUNK, start) == 0 {
            start -= CHUNK;
        }
        while start > 0 && breaks(start - 1, start) == 0 {
            start -= 1;
        }
        Row { body: (start, base.wrapping_add(start), end - start), sources }
    }

    /// # Safety
    /// `from` is readable at the sources times `step`, `to` is writable for as many elements as there are sources.
    unsafe fn copy<U: Copy>(&self, from: *const U, step: usize, to: *mut U) {
        let (at, first, n) = self.body;
        // SAFETY: the caller's promise.
        unsafe {
            if step == 1 {
                std::ptr::copy_nonoverlapping(from.add(first), to.add(at), n);
            } else {
                (0..n).for_each(|k| *to.add(at + k) = *from.add((first + k) * step));
            }
            for i in (0..at).chain(at + n..self.sources.len()) {
                *to.add(i) = *from.add(self.sources[i] * step);
            }
        }
    }
}

/// See `call::PadFrom`.
pub fn pad_from(x: View, sources: &[Vec<usize>], out: View) -> Result<bool> {
    let (rank, lead) = (x.shape().len(), x.shape().len().saturating_sub(sources.len()));
    let fits = out.shape().len() == rank
        && sources.len() <= rank
        && x.shape()[..lead] == out.shape()[..lead]
        && (lead..rank).all(|d| {
            let places = &sources[d - lead];
            // Without an early end, so that the comparison is one of vectors.
            let outside = places.iter().fold(false, |any, &place| any | (place >= x.shape()[d]));
            places.len() == out.shape()[d] && !outside
        });
    if !fits || x.dtype() != out.dtype() || !out.layout().is_contiguous() {
        return Err(Error::shape(format!(
            "pad_from: shape {:?} does not map to {:?} by the index lists of {} dimensions",
            x.shape(),
            out.shape(),
            sources.len()
        )));
    }
    let Some((last, outer)) = sources.split_last() else { return Ok(false) };
    if out.numel() == 0 {
        return Ok(true);
    }
    let (row, width, step) = (Row::new(last), last.len(), x.strides()[rank - 1]);
    let (shape, strides) = (&out.shape()[..rank - 1], x.strides());
    let place = |d: usize, i: usize| if d < lead { i } else { outer[d - lead][i] };
    with_size!(x.dtype(), U => {
        let (src, dst) = (SendPtr::new(x.ptr().cast::<U>()), SendPtr::new(out.ptr().cast::<U>()));
        let grain = TASK_BYTES.div_ceil(width * size_of::<U>());
        pool::parallel_ranges(out.numel() / width, grain, |first, end| {
            // Coordinates of the row within the output.
            let mut at: SmallVec<[usize; 6]> = SmallVec::from_elem(0, shape.len());
            let mut rest = first;
            for d in (0..shape.len()).rev() {
                (at[d], rest) = (rest % shape[d], rest / shape[d]);
            }
            for index in first..end {
                let start: usize = (0..shape.len()).map(|d| place(d, at[d]) * strides[d]).sum();
                // SAFETY: all sources are within the view, and rows of the output do not overlap.
                unsafe { row.copy(src.at(start).cast_const(), step, dst.at(index * width)) };
                for d in (0..shape.len()).rev() {
                    at[d] += 1;
                    if at[d] < shape[d] {
                        break;
                    }
                    at[d] = 0;
                }
            }
        });
    });
    Ok(true)
}
