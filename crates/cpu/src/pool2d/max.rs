//! Maximum pooling. Outputs of a row are vector lanes.
//!
//! Columns with equal remainder modulo the stride are made adjacent first, so that a tap of adjacent outputs is one
//! vector. Positions outside the input are negative infinity, which never wins.

use super::{Axis, Fixed, Geometry};
use crate::float::{Float, load_row, narrow, out_row, store_row};
use crate::multiversion;
use crate::pool::parallel_ranges;
use crate::simd::{Real, Simd, Vectors};
use rushlight_core::sync::SendPtr;
use rushlight_core::{Element, Error, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum taps: below this a tap's number is exact in every compute type, and is stored with its value.
const MAX_TAPS: usize = 1 << 24;
/// Extra cells that a task may use.
const SPARE_CELLS: usize = 1 << 16;
/// A register of the compute type.
type Vector<T, I> = <<T as Float>::Acc as Real>::V<I>;
/// At least as many lanes as any vector has.
const MAX_LANES: usize = 16;

/// # Safety
/// The geometry's inputs at `x` and outputs at `y` and `indices`, which do not overlap.
pub(super) unsafe fn forward<T: Float>(g: &Geometry, x: *const T, y: *mut T, indices: *mut i64) {
    let columns = Columns::new(g);
    let (xs, ys, places) = (SendPtr::new(x.cast_mut()), SendPtr::new(y), SendPtr::new(indices));
    parallel_ranges(g.planes * g.rows.spans.len(), g.row_grain(), |from, to| {
        // SAFETY: the rows are within the outputs and are this task's.
        unsafe {
            let (x, y, places) = (xs.at(0).cast_const(), ys.at(0), places.at(0));
            match &columns {
                Some(columns) => rows_in_lanes::<T>(g, columns, from..to, x, y, places),
                None => rows_one_by_one::<T>(g, from..to, x, y, places),
            }
        }
    });
}

/// Assignment of columns to lanes for uniform windows.
struct Columns {
    fixed: Fixed,
    /// Number of cells of columns with equal remainder modulo the stride.
    length: usize,
    /// Positions of the first output's taps among the cells of a row.
    taps: Vec<usize>,
    /// Positions of a window's taps, relative to its first row and the column of its first tap.
    places: Vec<isize>,
}

impl Columns {
    fn new(g: &Geometry) -> Option<Self> {
        let rows = g.rows.spans.iter().map(|s| s.1).max()?;
        let Axis { size, dilation, .. } = g.cols;
        let fixed = g.cols.fixed.filter(|fixed| fixed.kernel.saturating_mul(rows) <= MAX_TAPS)?;
        let reach = (fixed.kernel - 1) * dilation / fixed.stride + 1;
        let outputs = g.cols.spans.len().next_multiple_of(MAX_LANES);
        let length = (outputs + reach).max((fixed.padding + size) / fixed.stride + 1);
        // Strides far beyond the input would need empty cells.
        let cells = rows.saturating_mul(fixed.stride).saturating_mul(length);
        if cells > 4 * g.in_plane() + SPARE_CELLS {
            return None;
        }
        let column = |tap: usize| (tap * dilation % fixed.stride) * length + tap * dilation / fixed.stride;
        let place = |row: usize, tap: usize| (row * g.rows.dilation * size + tap * dilation) as isize;
        Some(Self {
            fixed,
            length,
            taps: (0..fixed.kernel).map(column).collect(),
            places: (0..rows).flat_map(|row| (0..fixed.kernel).map(move |tap| place(row, tap))).collect(),
        })
    }

    /// Cells of one input row.
    fn row(&self) -> usize {
        self.fixed.stride * self.length
    }

    /// Copies an input row into its cells. Padding cells are not written.
    fn spread<R: Real>(&self, row: &[R], cells: &mut [R]) {
        let (stride, padding) = (self.fixed.stride, self.fixed.padding);
        if stride == 1 {
            return cells[padding..padding + row.len()].copy_from_slice(row);
        }
        for (remainder, cells) in cells.chunks_exact_mut(self.length).enumerate() {
            let first = (remainder + stride - padding % stride) % stride;
            let from = row.get(first..).unwrap_or(&[]);
            let cells = &mut cells[(padding + first) / stride..];
            match stride {
                2 => cells.iter_mut().zip(from.iter().step_by(2)).for_each(|(cell, &v)| *cell = v),
                _ => cells.iter_mut().zip(from.iter().step_by(stride)).for_each(|(cell, &v)| *cell = v),
            }
        }
    }
}

#[inline(always)]
unsafe fn rows_in_lanes_kernel<T: Float, I: Vectors>(
    g: &Geometry,
    columns: &Columns,
    rows: Range<usize>,
    x: *const T,
    y: *mut T,
    places: *mut i64,
) {
    let Fixed { stride, padding, .. } = columns.fixed;
    let (heights, width, across) = (g.rows.spans.len(), g.cols.spans.len(), g.cols.size);
    let max_rows = columns.places.len() / columns.taps.len();
    let mut cells = vec![T::Acc::NEG_INFINITY; max_rows * columns.row()];
    let mut scratch = vec![T::Acc::ZERO; if T::WIDE { 0 } else { across.max(width) }];
    let (one, mut numbers) = (T::Acc::lit(1.0), [T::Acc::ZERO; MAX_LANES]);
    for row in rows {
        let (start, taps) = g.rows.spans[row % heights];
        for (tap, cells) in cells.chunks_exact_mut(columns.row()).enumerate().take(taps) {
            let at = row / heights * g.in_plane() + (start + tap * g.rows.dilation) * across;
            // SAFETY: the input row is within its plane.
            let from = unsafe {
                std::slice::from_raw_parts(load_row::<T, I>(x.add(at), scratch.as_mut_ptr(), across), across)
            };
            columns.spread(from, cells);
        }
        // SAFETY: an output row of this task.
        let (y, places) =
            unsafe { (y.add(row * width), std::slice::from_raw_parts_mut(places.add(row * width), width)) };
        let out = out_row(y, scratch.as_mut_ptr());
        for (block, places) in places.chunks_mut(Vector::<T, I>::N).enumerate() {
            let j = block * Vector::<T, I>::N;
            let mut best = Vector::<T, I>::splat(T::Acc::NEG_INFINITY);
            let mut place = Vector::<T, I>::splat(T::Acc::ZERO - one);
            let mut number = T::Acc::ZERO;
            for cells in cells.chunks_exact(columns.row()).take(taps) {
                for &tap in &columns.taps {
                    // SAFETY: there are cells for every tap of all lanes; as many outputs as places.
                    let v = unsafe { Vector::<T, I>::load(cells.as_ptr().add(tap + j)) };
                    best.take_larger(&mut place, v, Vector::<T, I>::splat(number));
                    number = number + one;
                }
            }
            // SAFETY: as many outputs as places; the numbers of a vector.
            unsafe {
                best.put(out.add(j), places.len());
                place.store(numbers.as_mut_ptr());
            }
            for (l, (place, number)) in places.iter_mut().zip(numbers).enumerate() {
                let number = number.to_f64();
                *place = if number >= 0.0 {
                    let corner = (start * across + (j + l) * stride) as isize - padding as isize;
                    (corner + columns.places[number as usize]) as i64
                } else {
                    first_place(g, (start, taps), j + l)
                };
            }
        }
        // SAFETY: a row of outputs.
        unsafe { store_row::<T, I>(out, y, width) };
    }
}
multiversion! {
    /// Computes output rows, numbered over all planes.
    ///
    /// # Safety
    /// As for [`forward`]; the rows are among the outputs'.
    unsafe fn rows_in_lanes<T: Float>(
        g: &Geometry, columns: &Columns, rows: Range<usize>, x: *const T, y: *mut T, places: *mut i64,
    ) = rows_in_lanes_kernel;
}

/// Position of the maximum in a window with only negative infinities: its first position, or -1 if it is empty.
fn first_place(g: &Geometry, (start, taps): (usize, usize), j: usize) -> i64 {
    let (first, count) = g.cols.spans[j];
    if taps > 0 && count > 0 { (start * g.cols.size + first) as i64 } else { -1 }
}

/// Computes output rows, numbered over all planes, for windows that are not uniform, very large or far apart.
///
/// # Safety
/// As for [`forward`]; the rows are among the outputs'.
unsafe fn rows_one_by_one<T: Float>(g: &Geometry, rows: Range<usize>, x: *const T, y: *mut T, places: *mut i64) {
    let (heights, width, across) = (g.rows.spans.len(), g.cols.spans.len(), g.cols.size);
    let mut best = vec![T::Acc::ZERO; width];
    for row in rows {
        let (start, taps) = g.rows.spans[row % heights];
        for (j, (best, &(first, count))) in best.iter_mut().zip(&g.cols.spans).enumerate() {
            let (mut largest, mut place) = (f64::NEG_INFINITY, first_place(g, (start, taps), j));
            for h in (0..taps).map(|tap| start + tap * g.rows.dilation) {
                for at in (0..count).map(|tap| h * across + first + tap * g.cols.dilation) {
                    // SAFETY: the window is within its plane.
                    let v = unsafe { *x.add(row / heights * g.in_plane() + at) }.to_f64();
                    if v > largest || v.is_nan() {
                        (largest, place) = (v, at as i64);
                    }
                }
            }
            *best = T::Acc::lit(largest);
            // SAFETY: an output of this task.
            unsafe { *places.add(row * width + j) = place };
        }
        // SAFETY: an output row of this task.
        unsafe { narrow(best.as_ptr(), y.add(row * width), width) };
    }
}

/// # Safety
/// The geometry's outputs at `dy` and `indices`, inputs at `dx`, which overlaps nothing.
pub(super) unsafe fn backward<T: Float>(g: &Geometry, dy: *const T, indices: *const i64, dx: *mut T) -> Result<()> {
    let (dys, places, dxs) = (SendPtr::new(dy.cast_mut()), SendPtr::new(indices.cast_mut()), SendPtr::new(dx));
    let (inside, outside) = (g.in_plane(), g.out_plane());
    let out_of_range = AtomicBool::new(false);
    parallel_ranges(g.planes, g.plane_grain(), |from, to| {
        let mut scratch = vec![T::Acc::ZERO; if T::WIDE { 0 } else { inside }];
        for plane in from..to {
            // SAFETY: the plane is this task's; every index is checked.
            unsafe {
                let dx = dxs.at(plane * inside);
                let sums: *mut T::Acc = if T::WIDE { dx.cast() } else { scratch.as_mut_ptr() };
                let sums = std::slice::from_raw_parts_mut(sums, inside);
                sums.fill(T::Acc::ZERO);
                for o in plane * outside..(plane + 1) * outside {
                    let place = crate::index::read_index(places.at(o));
                    match usize::try_from(place).ok().and_then(|p| sums.get_mut(p)) {
                        Some(sum) => *sum = *sum + T::Acc::lit(rushlight_core::Element::to_f64(*dys.at(o))),
                        // Position -1 marks an empty window.
                        None if place == -1 => {}
                        None => out_of_range.store(true, Relaxed),
                    }
                }
                if !T::WIDE {
                    narrow(scratch.as_ptr(), dx, inside);
                }
            }
        }
    });
    if out_of_range.into_inner() {
        return Err(Error::index("max_pool_backward: an index is outside its plane"));
    }
    Ok(())
}
