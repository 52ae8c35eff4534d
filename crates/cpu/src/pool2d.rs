//! Maximum and average pooling over planes.
//!
//! Windows are separable: the rows of a window are combined first (averages) or visited tap by tap (`max`), each in one
//! branch-free pass over a row of outputs.

mod max;

use crate::float::{Float, expect, load_row, narrow, with_float};
use crate::multiversion;
use crate::pool::parallel_ranges;
use crate::simd::{Real, Simd, Vectors, sweep};
use rushlight_core::backend::{Pool, Window};
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Error, Result, View};
use std::ops::Range;

/// Minimum window positions per task.
const GRAIN: usize = 1 << 14;

/// Maximum over windows and its position within the plane (`i64`), the first of equals; NaN wins. A window that is
/// entirely in the padding (possible with dilation) gives negative infinity and position -1.
pub fn max_pool(spec: &Pool, x: View, y: View, indices: View) -> Result<()> {
    let geometry = Geometry::new("max_pool", spec)?;
    expect("max_pool", "x", &x, x.dtype(), geometry.inputs())?;
    expect("max_pool", "y", &y, x.dtype(), geometry.outputs())?;
    expect("max_pool", "indices", &indices, DType::I64, geometry.outputs())?;
    with_float!("max_pool", x.dtype(), T => {
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe { max::forward::<T>(&geometry, x.ptr().cast(), y.ptr().cast(), indices.ptr().cast()) };
        Ok(())
    })
}

/// Adds each gradient at the position of its maximum; writes all of `dx`.
pub fn max_pool_backward(spec: &Pool, dy: View, indices: View, dx: View) -> Result<()> {
    let geometry = Geometry::new("max_pool_backward", spec)?;
    expect("max_pool_backward", "dy", &dy, dx.dtype(), geometry.outputs())?;
    expect("max_pool_backward", "indices", &indices, DType::I64, geometry.outputs())?;
    expect("max_pool_backward", "dx", &dx, dx.dtype(), geometry.inputs())?;
    with_float!("max_pool_backward", dx.dtype(), T => {
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe { max::backward::<T>(&geometry, dy.ptr().cast(), indices.ptr().cast(), dx.ptr().cast()) }
    })
}

/// Average over windows.
pub fn avg_pool(spec: &Pool, x: View, y: View) -> Result<()> {
    let geometry = Geometry::new("avg_pool", spec)?;
    expect("avg_pool", "x", &x, x.dtype(), geometry.inputs())?;
    expect("avg_pool", "y", &y, x.dtype(), geometry.outputs())?;
    with_float!("avg_pool", x.dtype(), T => {
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe { avg_forward::<T>(&geometry, x.ptr().cast(), y.ptr().cast()) };
        Ok(())
    })
}

/// Gradient of `avg_pool`; writes all of `dx`.
pub fn avg_pool_backward(spec: &Pool, dy: View, dx: View) -> Result<()> {
    let geometry = Geometry::new("avg_pool_backward", spec)?;
    expect("avg_pool_backward", "dy", &dy, dx.dtype(), geometry.outputs())?;
    expect("avg_pool_backward", "dx", &dx, dx.dtype(), geometry.inputs())?;
    with_float!("avg_pool_backward", dx.dtype(), T => {
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe { avg_backward::<T>(&geometry, dy.ptr().cast(), dx.ptr().cast()) };
        Ok(())
    })
}

/// One dimension of the windows: the input range of each output position.
struct Axis {
    size: usize,
    /// For each output: first input position, number of taps within the input.
    spans: Vec<(usize, usize)>,
    /// Dilation.
    dilation: usize,
    /// Number of positions in each average, with padding if the op counts it.
    counts: Vec<usize>,
    /// Geometry, if the windows are uniform.
    fixed: Option<Fixed>,
}

#[derive(Clone, Copy)]
struct Fixed {
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Axis {
    fn new(op: &str, spec: &Pool, dim: usize) -> Result<Self> {
        let (size, outputs) = (spec.input[dim], spec.output[dim]);
        match spec.window {
            Window::Adaptive => {
                let span = |i: usize| {
                    let (start, end) = (i * size / outputs, ((i + 1) * size).div_ceil(outputs));
                    (start, end - start)
                };
                let spans: Vec<_> = (0..outputs).map(span).collect();
                let counts = spans.iter().map(|s| s.1).collect();
                Ok(Self { size, spans, dilation: 1, counts, fixed: None })
            }
            Window::Fixed { kernel, stride, padding, dilation, count_include_pad, .. } => {
                let (kernel, stride, padding, dilation) = (kernel[dim], stride[dim], padding[dim], dilation[dim]);
                if kernel == 0 || stride == 0 || dilation == 0 {
                    return Err(Error::value(format!(
                        "{op}: kernel size, stride and dilation must be greater than zero"
                    )));
                }
                let (mut spans, mut counts) = (Vec::with_capacity(outputs), Vec::with_capacity(outputs));
                for i in 0..outputs {
                    let at = i * stride;
                    // Taps before the input are skipped, taps past it cut off.
                    let skipped = padding.saturating_sub(at).div_ceil(dilation).min(kernel);
                    let start = at + skipped * dilation - padding.min(at + skipped * dilation);
                    let taps = if start < size { (kernel - skipped).min((size - start).div_ceil(dilation)) } else { 0 };
                    spans.push((start.min(size), taps));
                    // A window may extend past the padding; that part does not count.
                    counts.push(if count_include_pad {
                        kernel.min((size + 2 * padding).saturating_sub(at))
                    } else {
                        taps
                    });
                }
                Ok(Self { size, spans, dilation, counts, fixed: Some(Fixed { kernel, stride, padding }) })
            }
        }
    }

    /// Outputs whose tap `tap` is in the input, and the input position of the first of them.
    fn outputs_of_tap(&self, fixed: Fixed, tap: usize) -> (Range<usize>, usize) {
        let offset = tap * self.dilation;
        let first = fixed.padding.saturating_sub(offset).div_ceil(fixed.stride);
        let end = (self.size + fixed.padding).saturating_sub(offset).div_ceil(fixed.stride).min(self.spans.len());
        (first..end.max(first), first * fixed.stride + offset - fixed.padding.min(first * fixed.stride + offset))
    }
}

struct Geometry {
    planes: usize,
    rows: Axis,
    cols: Axis,
    divisor: Option<usize>,
}

impl Geometry {
    fn new(op: &str, spec: &Pool) -> Result<Self> {
        let divisor = match spec.window {
            Window::Fixed { divisor_override, .. } => divisor_override,
            Window::Adaptive => None,
        };
        if divisor == Some(0) {
            return Err(Error::value(format!("{op}: divisor must be not zero")));
        }
        Ok(Self { planes: spec.planes, rows: Axis::new(op, spec, 0)?, cols: Axis::new(op, spec, 1)?, divisor })
    }

    fn in_plane(&self) -> usize {
        self.rows.size * self.cols.size
    }
    fn out_plane(&self) -> usize {
        self.rows.spans.len() * self.cols.spans.len()
    }
    fn inputs(&self) -> usize {
        self.planes * self.in_plane()
    }
    fn outputs(&self) -> usize {
        self.planes * self.out_plane()
    }
    /// Output rows per task.
    fn row_grain(&self) -> usize {
        let taps = self.rows.spans.first().map_or(1, |s| s.1.max(1));
        (GRAIN / (self.cols.size * taps).max(1)).max(1)
    }
    fn plane_grain(&self) -> usize {
        (GRAIN / self.in_plane().max(1)).max(1)
    }
    /// Reciprocal of the divisor of output `(i, j)`.
    fn factor(&self, i: usize, j: usize) -> f64 {
        let count = self.divisor.unwrap_or(self.rows.counts[i] * self.cols.counts[j]);
        // Avoids a division by zero for empty windows.
        1.0 / count.max(1) as f64
    }
}

/// # Safety
/// The geometry's inputs at `x` and outputs at `y`, which do not overlap.
unsafe fn avg_forward<T: Float>(g: &Geometry, x: *const T, y: *mut T) {
    let (heights, width) = (g.rows.spans.len(), g.cols.spans.len());
    let (xs, ys) = (SendPtr::new(x.cast_mut()), SendPtr::new(y));
    parallel_ranges(g.planes * heights, g.row_grain(), |from, to| {
        let mut sums = vec![T::Acc::ZERO; g.cols.size];
        let mut out = vec![T::Acc::ZERO; width];
        let mut scratch = vec![T::Acc::ZERO; if T::WIDE { 0 } else { g.cols.size }];
        for row in from..to {
            let (plane, i) = (row / heights, row % heights);
            // SAFETY: the row is within the outputs and is this task's; its window is within the plane.
            unsafe {
                avg_row::<T>(g, i, xs.at(plane * g.in_plane()), &mut sums, &mut out, &mut scratch);
                narrow(out.as_ptr(), ys.at(row * width), width);
            }
        }
    });
}

/// `to += from`.
#[inline(always)]
unsafe fn add<R: Real, I: Vectors>(to: *mut R, from: *const R, n: usize) {
    // SAFETY: `n` elements by the caller's contract.
    sweep!(R::V<I>, n, i, m => {
        unsafe { (R::V::<I>::get(to.add(i), m, R::ZERO) + R::V::<I>::get(from.add(i), m, R::ZERO)).put(to.add(i), m) }
    });
}

#[inline(always)]
unsafe fn avg_row_kernel<T: Float, I: Vectors>(
    g: &Geometry,
    i: usize,
    x: *const T,
    sums: &mut [T::Acc],
    out: &mut [T::Acc],
    scratch: &mut [T::Acc],
) {
    let (start, taps) = g.rows.spans[i];
    // The rows of the window are added up first, then each output adds its columns.
    sums.fill(T::Acc::ZERO);
    for tap in 0..taps {
        let h = start + tap * g.rows.dilation;
        // SAFETY: row `h` is within the plane.
        unsafe {
            let x = load_row::<T, I>(x.add(h * g.cols.size), scratch.as_mut_ptr(), g.cols.size);
            add::<T::Acc, I>(sums.as_mut_ptr(), x, g.cols.size);
        }
    }
    out.fill(T::Acc::ZERO);
    if let Some(fixed) = g.cols.fixed {
        for tap in 0..fixed.kernel {
            let (outputs, first) = g.cols.outputs_of_tap(fixed, tap);
            let out = &mut out[outputs];
            if !out.is_empty() {
                let sums = &sums[first..];
                match fixed.stride {
                    1 => out.iter_mut().zip(sums).for_each(|(o, s)| *o = *o + *s),
                    2 => out.iter_mut().zip(sums.iter().step_by(2)).for_each(|(o, s)| *o = *o + *s),
                    stride => out.iter_mut().zip(sums.iter().step_by(stride)).for_each(|(o, s)| *o = *o + *s),
                }
            }
        }
    } else {
        for (out, &(start, taps)) in out.iter_mut().zip(&g.cols.spans) {
            for &s in &sums[start..start + taps] {
                *out = *out + s;
            }
        }
    }
    for (j, out) in out.iter_mut().enumerate() {
        *out = *out * T::Acc::lit(g.factor(i, j));
    }
}
multiversion! {
    /// Output row `i` of a plane.
    ///
    /// # Safety
    /// A plane at `x`; as many elements in `sums` (and in scratch unless `T` is wide) as an input row, in `out` as an
    /// output row.
    unsafe fn avg_row<T: Float>(
        g: &Geometry, i: usize, x: *const T, sums: &mut [T::Acc], out: &mut [T::Acc], scratch: &mut [T::Acc],
    ) = avg_row_kernel;
}

/// # Safety
/// The geometry's outputs at `dy`, inputs at `dx`, which do not overlap.
unsafe fn avg_backward<T: Float>(g: &Geometry, dy: *const T, dx: *mut T) {
    let (dys, dxs) = (SendPtr::new(dy.cast_mut()), SendPtr::new(dx));
    parallel_ranges(g.planes, g.plane_grain(), |from, to| {
        let mut row = vec![T::Acc::ZERO; g.cols.size];
        let mut scratch = vec![T::Acc::ZERO; if T::WIDE { 0 } else { g.in_plane() }];
        for plane in from..to {
            // SAFETY: the plane is this task's.
            unsafe {
                let dx = dxs.at(plane * g.in_plane());
                let sums: *mut T::Acc = if T::WIDE { dx.cast() } else { scratch.as_mut_ptr() };
                avg_plane_backward::<T>(g, dys.at(plane * g.out_plane()), sums, &mut row);
                if !T::WIDE {
                    narrow(scratch.as_ptr(), dx, g.in_plane());
                }
            }
        }
    });
}

#[inline(always)]
unsafe fn avg_plane_backward_kernel<T: Float, I: Vectors>(
    g: &Geometry,
    dy: *const T,
    dx: *mut T::Acc,
    row: &mut [T::Acc],
) {
    let width = g.cols.spans.len();
    // SAFETY: one plane of `dx`, all rows of `dy` and of the windows within it.
    unsafe {
        std::slice::from_raw_parts_mut(dx, g.in_plane()).fill(T::Acc::ZERO);
        for (i, &(start, taps)) in g.rows.spans.iter().enumerate() {
            // One row of gradients, spread over its columns, is added to every row of the window.
            row.fill(T::Acc::ZERO);
            for (j, &(start, taps)) in g.cols.spans.iter().enumerate() {
                let share = T::Acc::lit((*dy.add(i * width + j)).to_f64() * g.factor(i, j));
                for tap in 0..taps {
                    let sum = &mut row[start + tap * g.cols.dilation];
                    *sum = *sum + share;
                }
            }
            for tap in 0..taps {
                let h = start + tap * g.rows.dilation;
                add::<T::Acc, I>(dx.add(h * g.cols.size), row.as_ptr(), g.cols.size);
            }
        }
    }
}
multiversion! {
    /// One plane.
    ///
    /// # Safety
    /// An output plane at `dy`, an input plane at `dx`, a row of it in `row`.
    unsafe fn avg_plane_backward<T: Float>(
        g: &Geometry, dy: *const T, dx: *mut T::Acc, row: &mut [T::Acc],
    ) = avg_plane_backward_kernel;
}
