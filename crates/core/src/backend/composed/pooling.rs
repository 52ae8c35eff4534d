//! Maximum and average pooling, by indexing.
//!
//! Each dimension gets a table of the input positions that every output covers. Planes get one more row and column,
//! which represent everything outside; shorter lists are padded with it.

use super::array::{Array, apply};
use super::execute;
use super::per_block;
use crate::backend::{Operand, Pool, Reduce, Scatter, View, Window, call};
use crate::{DType, Error, Pointwise, Result};

/// One dimension of the windows.
struct Axis {
    /// Input positions of each output, `[outputs, taps]`; the input's size means outside.
    places: Vec<i64>,
    taps: usize,
    /// Number of positions in each average, with padding if the op counts it.
    counts: Vec<usize>,
}

impl Axis {
    fn new(op: &str, spec: &Pool, dim: usize) -> Result<Self> {
        let (size, outputs) = (spec.input[dim], spec.output[dim]);
        let (mut lists, mut counts) = (Vec::with_capacity(outputs), Vec::with_capacity(outputs));
        for i in 0..outputs {
            let (list, count) = match spec.window {
                Window::Adaptive => {
                    let list: Vec<usize> = (i * size / outputs..((i + 1) * size).div_ceil(outputs)).collect();
                    let count = list.len();
                    (list, count)
                }
                Window::Fixed { kernel, stride, padding, dilation, count_include_pad, .. } => {
                    let (kernel, stride, padding, dilation) = (kernel[dim], stride[dim], padding[dim], dilation[dim]);
                    if kernel == 0 || stride == 0 || dilation == 0 {
                        return Err(Error::value(format!(
                            "{op}: kernel size, stride and dilation must be greater than zero"
                        )));
                    }
                    let start = i * stride;
                    let first = padding.saturating_sub(start).div_ceil(dilation);
                    let places = (first..kernel).map(|tap| start + tap * dilation - padding);
                    let list: Vec<usize> = places.take_while(|&place| place < size).collect();
                    // A window may extend past the padding; that part does not count.
                    let whole = kernel.min((size + 2 * padding).saturating_sub(start));
                    let count = if count_include_pad { whole } else { list.len() };
                    (list, count)
                }
            };
            lists.push(list);
            counts.push(count);
        }
        let taps = lists.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let filled = |list: Vec<usize>| list.into_iter().chain(std::iter::repeat(size)).take(taps);
        let places = lists.into_iter().flat_map(filled).map(|place| place as i64).collect();
        Ok(Self { places, taps, counts })
    }
}

struct Windows {
    spec: Pool,
    /// Row and column of every position of every window, both `[out rows, out columns, row taps, column taps]`.
    places: [Array<'static>; 2],
    counts: [Vec<usize>; 2],
    divisor: Option<usize>,
}

impl Windows {
    fn new(op: &str, spec: &Pool, like: &Array) -> Result<Self> {
        let divisor = match spec.window {
            Window::Fixed { divisor_override, .. } => divisor_override,
            Window::Adaptive => None,
        };
        if divisor == Some(0) {
            return Err(Error::value(format!("{op}: divisor must be not zero")));
        }
        let (rows, columns) = (Axis::new(op, spec, 0)?, Axis::new(op, spec, 1)?);
        let [height, width] = spec.output;
        let shape = [height, width, rows.taps, columns.taps];
        let places = [
            like.uploaded(&[height, 1, rows.taps, 1], &rows.places)?.expand(&shape)?,
            like.uploaded(&[1, width, 1, columns.taps], &columns.places)?.expand(&shape)?,
        ];
        Ok(Self { spec: *spec, places, counts: [rows.counts, columns.counts], divisor })
    }

    /// Calls `f` with the first and the number of the planes of each block.
    fn each_block(&self, mut f: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        let step = per_block(self.spec.planes, self.places[0].numel());
        (0..self.spec.planes).step_by(step).try_for_each(|first| f(first, step.min(self.spec.planes - first)))
    }

    /// Memory for some planes, `[rows + 1, columns + 1, planes]`, filled with one value, and the part that is not
    /// outside.
    fn planes(&self, like: &Array, planes: usize, value: f64) -> Result<[Array<'static>; 2]> {
        let [height, width] = self.spec.input;
        let whole = like.full(&[height + 1, width + 1, planes], like.dtype().compute(), value)?;
        Ok([whole.clone(), whole.slice(0, 0, height).slice(1, 0, width)])
    }

    /// The elements of every window, `[out rows, out columns, row taps, column taps, planes]`; positions outside
    /// the input have the value `outside`.
    fn elements(&self, x: &Array, outside: f64) -> Result<Array<'static>> {
        let [planes, inner] = self.planes(x, x.shape()[0], outside)?;
        planes_last(x).copy_to(&inner)?;
        let mut shape = self.places[0].shape().to_vec();
        shape.push(x.shape()[0]);
        let out = x.uninit(&shape, planes.dtype())?;
        let [rows, columns] = &self.places;
        execute(call::Index {
            x: planes.view(),
            indices: call::List::from_slice(&[rows.view(), columns.view()]),
            out: out.view(),
        })?;
        Ok(out)
    }

    /// Factors of the averages, `[out rows, out columns, 1]`.
    fn factors(&self, like: &Array) -> Result<Array<'static>> {
        let [height, width] = self.spec.output;
        let count = |i: usize, j: usize| self.divisor.unwrap_or(self.counts[0][i] * self.counts[1][j]);
        // Avoids a division by zero for empty windows.
        let counts: Vec<i64> =
            (0..height * width).map(|at| count(at / width.max(1), at % width.max(1)).max(1) as i64).collect();
        like.full(&[1, 1, 1], like.dtype().compute(), 1.0)?.div(&like.uploaded(&[height, width, 1], &counts)?)
    }
}

/// `[planes, rows, columns]` as `[rows, columns, planes]`.
fn planes_last<'a>(x: &Array<'a>) -> Array<'a> {
    x.permute(&[1, 2, 0])
}

/// The planes of a contiguous view.
fn planes<'a>(view: View<'a>, spec: &Pool, [height, width]: [usize; 2]) -> Result<Array<'a>> {
    Array::dense(view, &[spec.planes, height, width])
}

/// `[out rows, out columns, 1, 1, planes]` without the taps.
fn without_taps<'a>(x: &Array<'a>) -> Array<'a> {
    x.select(2, 0).select(2, 0)
}

/// Default body of [`MaxPool`](call::MaxPool).
pub fn max_pool(c: &call::MaxPool<View>) -> Result<()> {
    let call::MaxPool { ref spec, x, y, indices } = *c;
    let (x, y) = (planes(x, spec, spec.input)?, planes(y, spec, spec.output)?);
    let indices = planes(indices, spec, spec.output)?;
    let windows = Windows::new("max_pool", spec, &x)?;
    let [rows, columns] = &windows.places;
    let [height, width] = spec.input.map(|size| size as i64);
    let outside = rows.eq(height)?.or(&columns.eq(width)?)?;
    let last = i64::MAX;
    // Positions within the plane, `[.., 1]`; those outside come after all others, or before.
    let place = rows.mul(width)?.add(columns)?;
    let after = outside.choose(last, &place, DType::I64)?.unsqueeze(4);
    let before = outside.choose(-1i64, &place, DType::I64)?.unsqueeze(4);
    windows.each_block(|first, count| {
        let elements = windows.elements(&x.slice(0, first, count), f64::NEG_INFINITY)?;
        let best = elements.reduce(Reduce::Max, &[2, 3])?;
        // The first of equal elements, but the last of several NaN.
        let found = elements.eq(&best)?.choose(&after, last, DType::I64)?.reduce(Reduce::Min, &[2, 3])?;
        let nan = elements.isnan()?.choose(&before, -1i64, DType::I64)?.reduce(Reduce::Max, &[2, 3])?;
        let found = found.eq(last)?.choose(-1i64, &found, DType::I64)?;
        let found = nan.lt(0i64)?.choose(&found, &nan, DType::I64)?;
        without_taps(&best).copy_to(&planes_last(&y.slice(0, first, count)))?;
        without_taps(&found).copy_to(&planes_last(&indices.slice(0, first, count)))
    })
}

/// Default body of [`MaxPoolBackward`](call::MaxPoolBackward).
pub fn max_pool_backward(c: &call::MaxPoolBackward<View>) -> Result<()> {
    let call::MaxPoolBackward { ref spec, dy, indices, dx } = *c;
    let (inside, outside) = (spec.input.iter().product::<usize>(), spec.output.iter().product::<usize>());
    let dy = Array::dense(dy, &[spec.planes, outside])?.wide()?;
    let indices = Array::dense(indices, &[spec.planes, outside])?;
    // An empty window, position -1, adds to an element past the plane. Other positions outside the plane are mapped
    // beyond that, so that the engine reports them.
    let wrong = indices.lt(-1i64)?.or(&indices.ge(inside as i64)?)?;
    let checked = wrong.choose(inside as i64 + 1, &indices, DType::I64)?;
    let place = indices.eq(-1i64)?.choose(inside as i64, &checked, DType::I64)?;
    let sums = dy.full(&[spec.planes, inside + 1], dy.dtype(), 0.0)?;
    execute(call::Scatter {
        op: Scatter::Add,
        dim: 1,
        index: place.view(),
        src: Operand::Tensor(dy.view()),
        out: sums.view(),
    })?;
    sums.slice(1, 0, inside).copy_to(&Array::dense(dx, &[spec.planes, inside])?)
}

/// Default body of [`AvgPool`](call::AvgPool).
pub fn avg_pool(c: &call::AvgPool<View>) -> Result<()> {
    let call::AvgPool { ref spec, x, y } = *c;
    let (x, y) = (planes(x, spec, spec.input)?, planes(y, spec, spec.output)?);
    let windows = Windows::new("avg_pool", spec, &x)?;
    let factors = windows.factors(&x)?;
    windows.each_block(|first, count| {
        let sums = without_taps(&windows.elements(&x.slice(0, first, count), 0.0)?.sum(&[2, 3])?);
        apply(Pointwise::Mul, &[(&sums).into(), (&factors).into()], &planes_last(&y.slice(0, first, count)))
    })
}

/// Default body of [`AvgPoolBackward`](call::AvgPoolBackward).
pub fn avg_pool_backward(c: &call::AvgPoolBackward<View>) -> Result<()> {
    let call::AvgPoolBackward { ref spec, dy, dx } = *c;
    let (dy, dx) = (planes(dy, spec, spec.output)?, planes(dx, spec, spec.input)?);
    let windows = Windows::new("avg_pool_backward", spec, &dy)?;
    let factors = windows.factors(&dy)?;
    windows.each_block(|first, count| {
        let shares = planes_last(&dy.slice(0, first, count)).mul(&factors)?.unsqueeze(2).unsqueeze(2);
        let mut shape = windows.places[0].shape().to_vec();
        shape.push(count);
        let [sums, inner] = windows.planes(&dy, count, 0.0)?;
        let [rows, columns] = &windows.places;
        let shares = shares.expand(&shape)?;
        execute(call::IndexPut {
            indices: call::List::from_slice(&[rows.view(), columns.view()]),
            values: shares.view(),
            accumulate: true,
            out: sums.view(),
        })?;
        inner.copy_to(&planes_last(&dx.slice(0, first, count)))
    })
}
