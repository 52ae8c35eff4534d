//! Iteration over the elements of strided operands in linear pieces.

use super::convert::Convert;
use rushlight_core::Dims;
use rushlight_core::layout::Nest;

/// Dimensions in descending order of the output's strides, which makes contiguous writes longest.
pub(crate) fn by_output_stride<const N: usize>(shape: &[usize], strides: [&[usize]; N]) -> Nest<N> {
    let out = strides[N - 1];
    if out.is_sorted_by(|a, b| a >= b) {
        return Nest::new(shape, strides);
    }
    let mut order: Dims = (0..shape.len()).collect();
    order.sort_by_key(|&d| std::cmp::Reverse(out[d]));
    let pick = |from: &[usize]| -> Dims { order.iter().map(|&d| from[d]).collect() };
    let permuted = strides.map(pick);
    Nest::new(&pick(shape), permuted.each_ref().map(|s| &s[..]))
}

/// Length of the innermost loop.
pub(crate) fn inner<const N: usize>(nest: &Nest<N>) -> usize {
    nest.shape[nest.shape.len() - 1]
}

/// Stride of operand `i` in the innermost loop.
pub(crate) fn inner_stride<const N: usize>(nest: &Nest<N>, i: usize) -> usize {
    nest.strides[i][nest.shape.len() - 1]
}

/// Whether the linear position is operand `i`'s offset.
pub(crate) fn is_dense<const N: usize>(nest: &Nest<N>, i: usize) -> bool {
    let mut step = 1;
    nest.shape.iter().zip(&nest.strides[i]).rev().all(|(&size, &stride)| {
        let fits = stride == step;
        step *= size;
        fits
    })
}

/// Offset of operand `i` at a linear position.
pub(crate) fn offset<const N: usize>(nest: &Nest<N>, i: usize, mut position: usize) -> usize {
    let mut out = 0;
    for (&size, &stride) in nest.shape.iter().zip(&nest.strides[i]).rev() {
        out += position % size * stride;
        position /= size;
    }
    out
}

/// Splits the positions `start..start + len` into blocks of evenly spaced rows: `f(position, rows, cols)`.
fn blocks<const N: usize>(nest: &Nest<N>, start: usize, len: usize, mut f: impl FnMut(usize, usize, usize)) {
    let rank = nest.shape.len();
    let cols = inner(nest);
    let rows = if rank > 1 { nest.shape[rank - 2] } else { 1 };
    let (mut at, end) = (start, start + len);
    while at < end {
        let (row, col) = (at / cols, at % cols);
        let (r, c) = if col != 0 || end - at < cols {
            (1, (cols - col).min(end - at))
        } else {
            (((end - at) / cols).min(rows - row % rows), cols)
        };
        f(at, r, c);
        at += r * c;
    }
}

/// One operand of a loop nest: its address, and how its elements are copied from or to a contiguous chunk.
#[derive(Clone, Copy)]
pub(crate) struct Strided {
    pub ptr: *mut u8,
    pub size: usize,
    pub convert: Convert,
}

// SAFETY: an address; its user guarantees the accesses.
unsafe impl Sync for Strided {}
// SAFETY: as above.
unsafe impl Send for Strided {}

impl Strided {
    /// Copies the elements at positions `start..start + len` to `chunk`, whose elements take `chunk_size` bytes.
    ///
    /// # Safety
    /// Operand `i` of the nest describes readable elements from `ptr`, and `chunk` has room for `len`.
    pub unsafe fn gather<const N: usize>(
        &self,
        nest: &Nest<N>,
        i: usize,
        start: usize,
        len: usize,
        chunk: *mut u8,
        chunk_size: usize,
    ) {
        let strides = block_strides(nest, i);
        blocks(nest, start, len, |at, rows, cols| {
            // SAFETY: positions are within the nest and, less `start`, within the chunk.
            unsafe {
                let src = self.ptr.add(offset(nest, i, at) * self.size);
                (self.convert)(rows, cols, src, strides, chunk.add((at - start) * chunk_size), [cols, 1])
            }
        });
    }

    /// Copies `chunk` to the elements at positions `start..start + len`.
    ///
    /// # Safety
    /// Operand `i` of the nest describes writable elements from `ptr`, and `chunk` holds `len`.
    pub unsafe fn scatter<const N: usize>(
        &self,
        nest: &Nest<N>,
        i: usize,
        start: usize,
        len: usize,
        chunk: *const u8,
        chunk_size: usize,
    ) {
        let strides = block_strides(nest, i);
        blocks(nest, start, len, |at, rows, cols| {
            // SAFETY: as in `gather`.
            unsafe {
                let dst = self.ptr.add(offset(nest, i, at) * self.size);
                (self.convert)(rows, cols, chunk.add((at - start) * chunk_size), [cols, 1], dst, strides)
            }
        });
    }
}

/// Strides of operand `i` over the rows and columns of a block.
fn block_strides<const N: usize>(nest: &Nest<N>, i: usize) -> [usize; 2] {
    let rank = nest.shape.len();
    [if rank > 1 { nest.strides[i][rank - 2] } else { 0 }, nest.strides[i][rank - 1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_range_once_in_order() {
        let nest = Nest::new(&[3, 4, 5], [&[100, 10, 1]]);
        for (start, len) in [(0, 60), (3, 1), (3, 40), (7, 53), (20, 20), (0, 0)] {
            let mut seen = vec![];
            blocks(&nest, start, len, |at, r, c| seen.extend(at..at + r * c));
            assert_eq!(seen, (start..start + len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn output_order_decides_the_loops() {
        let nest = by_output_stride(&[4, 6], [&[1, 4], &[1, 4]]);
        assert_eq!(&nest.shape[..], [24]);
        assert!(is_dense(&nest, 0));
    }
}
