//! Copies between any strides and dtypes, constant fills and ranges.

use crate::pointwise::convert::converter;
use crate::pointwise::produce::produce;
use crate::pointwise::walk::{Strided, by_output_stride, offset};
use crate::pointwise::{PARALLEL_FROM, scalar_bits, transpose};
use crate::pool;
use rushlight_core::layout::Nest;
use rushlight_core::{DType, Dims, Result, Scalar, View};

/// Minimum elements per task.
const GRAIN: usize = 16_384;

/// Copies `src` to `out` (see `call::Copy`).
pub fn copy(src: View, out: View) -> Result<()> {
    let same = src.ptr() == out.ptr() && src.dtype() == out.dtype() && src.strides() == out.strides();
    if out.numel() > 0 && !same {
        let nest = by_output_stride(out.shape(), [src.strides(), out.strides()]);
        let convert = converter(src.dtype(), out.dtype());
        let words = src.dtype() == out.dtype() && out.dtype().size() == 4;
        let src = Strided { ptr: src.ptr(), size: src.dtype().size(), convert };
        let out = Strided { ptr: out.ptr(), size: out.dtype().size(), convert };
        // SAFETY: the views describe elements of the nest's shape, and overlap only if they are the same.
        unsafe { run(&nest, src, out, words) };
    }
    Ok(())
}

/// Sets every element (see `call::Fill`).
pub fn fill(value: Scalar, out: View) -> Result<()> {
    if out.numel() > 0 {
        let mut bits = scalar_bits(value, out.dtype());
        let still = Dims::from_elem(0, out.shape().len());
        let nest = by_output_stride(out.shape(), [&still, out.strides()]);
        let convert = converter(out.dtype(), out.dtype());
        let size = out.dtype().size();
        // SAFETY: the source is one element seen everywhere, the output a view's.
        unsafe {
            let src = Strided { ptr: (&raw mut bits).cast(), size, convert };
            run(&nest, src, Strided { ptr: out.ptr(), size, convert }, false);
        }
    }
    Ok(())
}

/// `out[i] = start + i * step` in row-major order (see `call::Arange`).
pub fn arange(start: Scalar, step: Scalar, out: View) -> Result<()> {
    if out.dtype().is_float() {
        let (start, step) = (start.to_f64(), step.to_f64());
        produce(out, DType::F64, PARALLEL_FROM, |first, len, chunk| {
            for i in 0..len {
                // SAFETY: the chunk has room for `len` elements.
                unsafe { chunk.cast::<f64>().add(i).write(start + (first + i) as f64 * step) }
            }
        });
    } else {
        let (start, step) = (start.to_i64(), step.to_i64());
        produce(out, DType::I64, PARALLEL_FROM, |first, len, chunk| {
            for i in 0..len {
                let value = start.wrapping_add(((first + i) as i64).wrapping_mul(step));
                // SAFETY: the chunk has room for `len` elements.
                unsafe { chunk.cast::<i64>().add(i).write(value) }
            }
        });
    }
    Ok(())
}

/// Copies every position of the nest from operand 0 to operand 1; `words` are 32-bit elements copied without
/// conversion.
///
/// # Safety
/// The operands describe elements of the nest's shape; they do not overlap, or are the same without a conversion.
unsafe fn run(nest: &Nest<2>, src: Strided, out: Strided, words: bool) {
    let rank = nest.shape.len();
    let cols = nest.shape[rank - 1];
    let numel = nest.numel();
    // SAFETY (all calls below): blocks are within the nest and are disjoint.
    if rank == 1 {
        let (from, to) = (nest.strides[0][0], nest.strides[1][0]);
        pool::parallel_ranges(cols, share(numel, 1), |a, b| {
            let (src, out) = (&src, &out);
            unsafe {
                (src.convert)(
                    1,
                    b - a,
                    src.ptr.add(a * from * src.size),
                    [0, from],
                    out.ptr.add(a * to * out.size),
                    [0, to],
                )
            }
        });
        return;
    }
    if let Some(plane) = Plane::of(nest) {
        return unsafe { plane.run(src, out, words, numel) };
    }
    if let Some(thin) = Thin::of(nest).filter(|_| words) {
        return unsafe { thin.run(src, out, numel) };
    }
    // Rows of the second-last dimension are evenly spaced; outer dimensions are enumerated.
    let rows = nest.shape[rank - 2];
    let strides = |i: usize| [nest.strides[i][rank - 2], nest.strides[i][rank - 1]];
    let (from, to) = (strides(0), strides(1));
    pool::parallel_ranges(numel / cols, share(numel, cols), |mut row, end| {
        let (src, out) = (&src, &out);
        while row < end {
            let run = (rows - row % rows).min(end - row);
            let at = row * cols;
            unsafe {
                let s = src.ptr.add(offset(nest, 0, at) * src.size);
                let d = out.ptr.add(offset(nest, 1, at) * out.size);
                (src.convert)(run, cols, s, from, d, to);
            }
            row += run;
        }
    });
}

/// Units of `unit` elements per task.
fn share(numel: usize, unit: usize) -> usize {
    let per_task = if numel < PARALLEL_FROM { numel } else { numel.div_ceil(pool::num_threads() * 4).max(GRAIN) };
    per_task.div_ceil(unit)
}

/// A copy whose source is dense along another dimension than its output: computed in square tiles of these two.
struct Plane {
    /// The other dimensions.
    outer: Nest<2>,
    /// Sizes of the source's and of the output's dense dimension.
    size: [usize; 2],
    /// Strides of the source along both; it is dense along the first.
    src: [usize; 2],
    /// Strides of the output along both; it is dense along the second.
    out: [usize; 2],
}

impl Plane {
    /// The plane of a nest, if there is one worth tiling.
    fn of(nest: &Nest<2>) -> Option<Plane> {
        let last = nest.shape.len() - 1;
        let (src, out) = (&nest.strides[0], &nest.strides[1]);
        let run = (0..last).filter(|&d| src[d] > 0).min_by_key(|&d| src[d])?;
        let worth = nest.shape[run] >= 8 && nest.shape[last] >= 8 && src[run] < src[last];
        worth.then(|| {
            let others = |from: &Dims| -> Dims { (0..last).filter(|&d| d != run).map(|d| from[d]).collect() };
            Plane {
                outer: Nest::new(&others(&nest.shape), [&others(src), &others(out)]),
                size: [nest.shape[run], nest.shape[last]],
                src: [src[run], src[last]],
                out: [out[run], out[last]],
            }
        })
    }

    /// # Safety
    /// As [`run`] says.
    unsafe fn run(&self, src: Strided, out: Strided, words: bool, numel: usize) {
        const TILE: usize = transpose::TILE;
        let [high, wide] = self.size.map(|n| n.div_ceil(TILE));
        let planes = numel / (self.size[0] * self.size[1]);
        pool::parallel_ranges(planes * high, share(numel, TILE * self.size[1]), |first, last| {
            let (src, out) = (&src, &out);
            for band in first..last {
                let (plane, r) = (band / high, band % high * TILE);
                let [from, to] = self.outer.offsets(plane);
                let rows = TILE.min(self.size[0] - r);
                for c in (0..wide).map(|c| c * TILE) {
                    let cols = TILE.min(self.size[1] - c);
                    // SAFETY: the tile is within the plane.
                    unsafe {
                        let s = src.ptr.add((from + r * self.src[0] + c * self.src[1]) * src.size);
                        let d = out.ptr.add((to + r * self.out[0] + c * self.out[1]) * out.size);
                        if words && self.src[0] == 1 && self.out[1] == 1 {
                            transpose::words(rows, cols, s.cast(), self.src[1], d.cast(), self.out[0]);
                        } else {
                            (src.convert)(rows, cols, s, self.src, d, self.out);
                        }
                    }
                }
            }
        });
    }
}

/// Interleaves a few long rows, or the reverse: too thin for the tiles of [`Plane`].
struct Thin {
    /// The other dimensions.
    outer: Nest<2>,
    /// Number and length of the rows.
    count: usize,
    len: usize,
    /// Row stride in elements.
    pitch: usize,
    /// Whether the rows are the source.
    joins: bool,
}

impl Thin {
    /// The rows of a nest, if it has that form.
    fn of(nest: &Nest<2>) -> Option<Thin> {
        let last = nest.shape.len() - 1;
        let [src, out] = [0, 1].map(|i| [nest.strides[i][last - 1], nest.strides[i][last]]);
        let sizes = [nest.shape[last - 1], nest.shape[last]];
        let others = |from: &Dims| -> Dims { from[..last - 1].iter().copied().collect() };
        let thin = |count: usize, len: usize, pitch: usize, joins: bool| Thin {
            outer: Nest::new(&others(&nest.shape), [&others(&nest.strides[0]), &others(&nest.strides[1])]),
            count,
            len,
            pitch,
            joins,
        };
        if src[0] == 1 && out == [sizes[1], 1] && (2..8).contains(&sizes[1]) && sizes[0] >= 64 {
            Some(thin(sizes[1], sizes[0], src[1], true))
        } else if out[1] == 1 && src == [1, sizes[0]] && (2..8).contains(&sizes[0]) && sizes[1] >= 64 {
            Some(thin(sizes[0], sizes[1], out[0], false))
        } else {
            None
        }
    }

    /// # Safety
    /// As [`run`] says, for elements of 32 bits.
    unsafe fn run(&self, src: Strided, out: Strided, numel: usize) {
        const PIECE: usize = 2048;
        let (count, len, pitch) = (self.count, self.len, self.pitch);
        let pieces = len.div_ceil(PIECE);
        pool::parallel_ranges(numel / (count * len) * pieces, share(numel, count * PIECE), |first, last| {
            let (src, out) = (&src, &out);
            for (at, start) in (first..last).map(|i| (i / pieces, i % pieces * PIECE)) {
                let [from, to] = self.outer.offsets(at);
                let n = PIECE.min(len - start);
                // SAFETY: the piece is within the nest.
                unsafe {
                    let (src, out) = (src.ptr.cast::<u32>().add(from), out.ptr.cast::<u32>().add(to));
                    if self.joins {
                        transpose::join(count, n, src.add(start), pitch, out.add(start * count));
                    } else {
                        transpose::split(count, n, src.add(start * count), out.add(start), pitch);
                    }
                }
            }
        });
    }
}
