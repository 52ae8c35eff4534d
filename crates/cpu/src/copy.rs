//! Copies between any strides and dtypes, constant fills and ranges.

use crate::pointwise::convert::converter;
use crate::pointwise::produce::produce;
use crate::pointwise::walk::{Strided, by_output_stride, offset};
use crate::pointwise::{PARALLEL_FROM, scalar_bits, transpose};
use crate::pool;
use rushlight_core::layout::Nest;
use rushlight_core::{DType, Dims, Result, Scalar, View};

/// Elements a task copies at least.
const GRAIN: usize = 16_384;

/// Copies `src` to `out` (see `Backend::copy`).
pub fn copy(src: View, out: View) -> Result<()> {
    let same = src.ptr() == out.ptr() && src.dtype == out.dtype && src.strides() == out.strides();
    if out.numel() > 0 && !same {
        let nest = by_output_stride(out.shape(), [src.strides(), out.strides()]);
        let convert = converter(src.dtype, out.dtype);
        let words = src.dtype == out.dtype && out.dtype.size() == 4;
        let src = Strided { ptr: src.ptr(), size: src.dtype.size(), convert };
        let out = Strided { ptr: out.ptr(), size: out.dtype.size(), convert };
        // SAFETY: the views describe elements of the nest's shape, and overlap only if they are the same.
        unsafe { run(&nest, src, out, words) };
    }
    Ok(())
}

/// Sets every element (see `Backend::fill`).
pub fn fill(value: Scalar, out: View) -> Result<()> {
    if out.numel() > 0 {
        let mut bits = scalar_bits(value, out.dtype);
        let still = Dims::from_elem(0, out.shape().len());
        let nest = by_output_stride(out.shape(), [&still, out.strides()]);
        let convert = converter(out.dtype, out.dtype);
        let size = out.dtype.size();
        // SAFETY: the source is one element seen everywhere, the output a view's.
        unsafe {
            let src = Strided { ptr: (&raw mut bits).cast(), size, convert };
            run(&nest, src, Strided { ptr: out.ptr(), size, convert }, false);
        }
    }
    Ok(())
}

/// `out[i] = start + i * step` in row-major order (see `Backend::arange`).
pub fn arange(start: Scalar, step: Scalar, out: View) -> Result<()> {
    if out.dtype.is_float() {
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

/// Copies every position of the nest from operand 0 to operand 1; `words` are 32-bit elements copied as they are.
///
/// # Safety
/// The operands describe elements of the nest's shape; they do not overlap, or are the same without a conversion.
unsafe fn run(nest: &Nest<2>, src: Strided, out: Strided, words: bool) {
    let rank = nest.shape.len();
    let cols = nest.shape[rank - 1];
    let numel = nest.numel();
    // SAFETY (all calls below): blocks lie within the nest and are disjoint.
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
    // Rows of the second dimension from the right are evenly spaced; the dimensions before it are counted off.
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

/// How many units of `unit` elements a task takes.
fn share(numel: usize, unit: usize) -> usize {
    let per_task = if numel < PARALLEL_FROM { numel } else { numel.div_ceil(pool::num_threads() * 4).max(GRAIN) };
    per_task.div_ceil(unit)
}

/// A copy whose source runs along another dimension than its output: worked in square tiles of these two.
struct Plane {
    /// The dimensions besides the two.
    outer: Nest<2>,
    /// Sizes along the source's and the output's run.
    size: [usize; 2],
    /// Strides of the source along both; the first is its run.
    src: [usize; 2],
    /// Strides of the output along both; the second is its run.
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
                    // SAFETY: the tile lies within the plane.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Array;
    use rushlight_core::Layout;

    #[test]
    fn every_pair_of_dtypes() {
        for from in DType::ALL {
            for to in DType::ALL {
                let src = Array::new(from, &[2, 70], |i| i as f64 * 0.75 - 40.0);
                let out = Array::new(to, &[2, 70], |_| 1.0);
                copy(src.view(), out.view()).unwrap();
                for i in 0..140 {
                    let want = Array::new(to, &[1], |_| src.get(i)).get(0);
                    assert_eq!(out.get(i), want, "{from} to {to}: {}", src.get(i));
                }
            }
        }
    }

    #[test]
    fn floats_out_of_range_become_what_the_cast_gives() {
        let src = Array::new(DType::F32, &[4], |i| [f64::NAN, 1e30, -1e30, 300.7][i]);
        let out = Array::new(DType::U8, &[4], |_| 0.0);
        copy(src.view(), out.view()).unwrap();
        assert_eq!(out.to_f64(), [0.0, 255.0, 0.0, 44.0]);
    }

    #[test]
    fn transposes_and_other_orders() {
        for (shape, order) in [
            (vec![100, 70], vec![1, 0]),
            (vec![8, 8], vec![1, 0]),
            (vec![3, 65, 40], vec![0, 2, 1]),
            (vec![9, 3, 33, 17], vec![3, 1, 0, 2]),
            (vec![5, 2, 3], vec![2, 0, 1]),
            (vec![300, 257], vec![1, 0]),
        ] {
            for dtype in [DType::F32, DType::F64, DType::U8, DType::BF16] {
                let src = Array::new(dtype, &shape, |i| (i % 251) as f64);
                let permuted = src.layout().permute(&order);
                for to in [dtype, DType::I64] {
                    let out = Array::new(to, permuted.shape(), |_| 0.0);
                    copy(src.view_as(&permuted), out.view()).unwrap();
                    let nest = Nest::new(permuted.shape(), [permuted.strides()]);
                    for i in 0..permuted.numel() {
                        assert_eq!(out.get(i), (nest.offsets(i)[0] % 251) as f64, "{shape:?} {order:?} {dtype} {to}");
                    }
                }
            }
        }
    }

    #[test]
    fn gaps_are_left_alone() {
        let out = Array::new(DType::F32, &[6, 4], |_| 7.0);
        let every_second = out.layout().slice(1, 0, 2, 2);
        fill(Scalar::Int(1), out.view_as(&every_second)).unwrap();
        let row = Array::new(DType::F64, &[2], |i| i as f64);
        let rows = row.layout().expand(&[3, 2]).unwrap();
        copy(row.view_as(&rows), out.view_as(&every_second.slice(0, 0, 3, 1))).unwrap();
        assert_eq!(out.to_f64()[..8], [0.0, 7.0, 1.0, 7.0, 0.0, 7.0, 1.0, 7.0]);
        assert_eq!(out.to_f64()[16..], [1.0, 7.0, 1.0, 7.0, 1.0, 7.0, 1.0, 7.0]);
    }

    #[test]
    fn large_empty_and_zero_dim() {
        let src = Array::new(DType::F32, &[100_001], |i| i as f64);
        let out = Array::new(DType::F32, &[100_001], |_| 0.0);
        copy(src.view(), out.view()).unwrap();
        assert_eq!(out.to_f64(), src.to_f64());
        fill(Scalar::Float(2.5), out.view()).unwrap();
        assert!(out.to_f64().iter().all(|&v| v == 2.5));
        for shape in [&[][..], &[0], &[3, 0]] {
            let (a, b) = (Array::new(DType::I8, shape, |_| 3.0), Array::new(DType::F64, shape, |_| 0.0));
            copy(a.view(), b.view()).unwrap();
            assert_eq!(b.to_f64(), a.to_f64());
            fill(Scalar::Bool(true), b.view()).unwrap();
        }
    }

    #[test]
    fn ranges() {
        let out = Array::with_layout(DType::F32, Layout::strided(&[3, 2], &[1, 5], 1).unwrap(), |_| 0.0);
        arange(Scalar::Float(1.0), Scalar::Float(0.5), out.view()).unwrap();
        assert_eq!(out.to_f64(), [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
        let out = Array::new(DType::I64, &[5000], |_| 0.0);
        arange(Scalar::Int(1 << 60), Scalar::Int(-3), out.view()).unwrap();
        assert!((0..5000).all(|i| out.int(i) == (1 << 60) - 3 * i as i64));
    }
}
