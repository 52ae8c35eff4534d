//! Resizing of planes, one dimension after the other: along the last from one output to the next, along the others by
//! whole rows.

use crate::isa::Isa;
use crate::multiversion;
use crate::pool;
use rushlight_core::backend::{Resample, ResampleAxis, Sampling, View};
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Error, Result};
use std::ops::{Add, AddAssign, Mul, Range};

/// Minimum output elements per task.
const TASK: usize = 16 << 10;

trait Number: Copy + Default + Send + Sync + Mul<Output = Self> + Add<Output = Self> + AddAssign + 'static {
    const EXACT: bool;
    fn of(value: f64) -> Self;
}

impl Number for f32 {
    const EXACT: bool = false;
    fn of(value: f64) -> f32 {
        value as f32
    }
}

impl Number for f64 {
    const EXACT: bool = true;
    fn of(value: f64) -> f64 {
        value
    }
}

/// Taps of each output along a dimension: tap 0 of all outputs, then tap 1, and so on. All positions are below the
/// input's size.
struct Taps<T> {
    input: usize,
    output: usize,
    places: [Vec<u32>; 4],
    weights: [Vec<T>; 4],
    count: usize,
    /// Whether every output equals the input at its position.
    copy: bool,
}

impl<T: Number> Taps<T> {
    fn new(sampling: Sampling, axis: &ResampleAxis) -> Result<Self> {
        if axis.input == 0 || axis.input > u32::MAX as usize || axis.output > u32::MAX as usize {
            return Err(Error::value(format!("resample: sizes {} and {} are not supported", axis.input, axis.output)));
        }
        let unchanged = *axis == ResampleAxis::unchanged(axis.input);
        let count = if unchanged { 1 } else { sampling.taps() };
        let mut taps = Self {
            input: axis.input,
            output: axis.output,
            places: Default::default(),
            weights: Default::default(),
            count,
            copy: false,
        };
        let room = || Error::out_of_memory(format!("resample: no memory for an output of size {}", axis.output));
        for k in 0..count {
            taps.places[k].try_reserve_exact(axis.output).map_err(|_| room())?;
            taps.weights[k].try_reserve_exact(axis.output).map_err(|_| room())?;
        }
        for i in 0..axis.output {
            let all = if unchanged { [(i, 1.0); 4] } else { axis.taps(sampling, i, T::EXACT) };
            for (k, &(place, weight)) in all[..count].iter().enumerate() {
                taps.places[k].push(place.min(axis.input - 1) as u32);
                taps.weights[k].push(T::of(weight));
            }
        }
        let in_place = |(i, &place): (usize, &u32)| place as usize == i;
        taps.copy = count == 1 && axis.input == axis.output && taps.places[0].iter().enumerate().all(in_place);
        Ok(taps)
    }

    fn of(&self, i: usize) -> impl Iterator<Item = (usize, T)> + '_ {
        (0..self.count).map(move |k| (self.places[k][i] as usize, self.weights[k][i]))
    }

    /// The inputs that some outputs depend on.
    fn used(&self, outputs: Range<usize>) -> Vec<bool> {
        let mut used = vec![false; self.input];
        outputs.for_each(|i| self.of(i).for_each(|(place, _)| used[place] = true));
        used
    }
}

/// The taps of the three dimensions.
struct Plan<T> {
    depth: Taps<T>,
    height: Taps<T>,
    width: Taps<T>,
}

impl<T: Number> Plan<T> {
    fn new(spec: &Resample) -> Result<Self> {
        let [depth, height, width] = &spec.axes;
        let taps = |axis| Taps::new(spec.sampling, axis);
        Ok(Self { depth: taps(depth)?, height: taps(height)?, width: taps(width)? })
    }

    fn inputs(&self) -> usize {
        self.depth.input * self.height.input * self.width.input
    }

    fn outputs(&self) -> usize {
        self.depth.output * self.height.output * self.width.output
    }
}

/// Number of planes; an error if the views do not match.
fn planes<T: Number>(plan: &Plan<T>, x: View, y: View) -> Result<usize> {
    let (inputs, outputs) = (plan.inputs(), plan.outputs());
    let fits = x.dtype() == y.dtype()
        && x.layout().is_contiguous()
        && y.layout().is_contiguous()
        && x.numel().is_multiple_of(inputs)
        && y.numel() == x.numel() / inputs * outputs;
    if !fits {
        return Err(Error::value(format!(
            "resample: operands of {} {:?} and {} {:?} do not fit planes of {inputs} and {outputs} contiguous elements",
            x.dtype(),
            x.shape(),
            y.dtype(),
            y.shape()
        )));
    }
    Ok(x.numel() / inputs)
}

/// See `call::Resample`.
pub fn resample(spec: &Resample, x: View, y: View) -> Result<bool> {
    match x.dtype() {
        DType::F32 => forward::<f32>(spec, x, y),
        DType::F64 => forward::<f64>(spec, x, y),
        _ => Ok(false),
    }
}

/// See `call::ResampleBackward`.
pub fn resample_backward(spec: &Resample, dy: View, dx: View) -> Result<bool> {
    match dy.dtype() {
        DType::F32 => backward::<f32>(spec, dy, dx),
        DType::F64 => backward::<f64>(spec, dy, dx),
        _ => Ok(false),
    }
}

fn forward<T: Number>(spec: &Resample, x: View, y: View) -> Result<bool> {
    let plan = Plan::<T>::new(spec)?;
    let planes = planes(&plan, x, y)?;
    let (src, dst) = (SendPtr::new(x.ptr().cast::<T>()), SendPtr::new(y.ptr().cast::<T>()));
    // A task has several planes, or a band of rows of one.
    let rows = plan.height.output;
    let bands = if plan.depth.output > 1 { 1 } else { (plan.outputs() / TASK).clamp(1, rows) };
    let band = rows.div_ceil(bands);
    let grain = (TASK / plan.outputs().max(1)).max(1);
    pool::parallel_ranges(planes * bands, grain, |from, to| {
        let mut room = [Vec::new(), Vec::new()];
        for task in from..to {
            let (plane, first) = (task / bands, task % bands * band);
            let lines = first..rows.min(first + band);
            if lines.is_empty() {
                continue;
            }
            // SAFETY: the planes are within the contiguous views, and bands of one are disjoint.
            unsafe {
                let x = std::slice::from_raw_parts(src.at(plane * plan.inputs()), plan.inputs());
                let at = plane * plan.outputs() + lines.start * plan.width.output;
                // With several layers there is one band.
                let len = plan.depth.output * lines.len() * plan.width.output;
                resized(&plan, x, lines, std::slice::from_raw_parts_mut(dst.at(at), len), &mut room);
            }
        }
    });
    Ok(true)
}

/// Some rows of every layer of a plane.
fn resized<T: Number>(plan: &Plan<T>, x: &[T], lines: Range<usize>, y: &mut [T], room: &mut [Vec<T>; 2]) {
    let Plan { depth, height, width } = plan;
    let (w, h_in) = (width.output, height.input);
    let (layers, rows) = (depth.used(0..depth.output), height.used(lines.clone()));
    let [wide, high] = room;
    wide.resize(depth.input * h_in * w, T::default());
    let layer_used = |d: usize| layers[d];
    for d in (0..depth.input).filter(|&d| layer_used(d)) {
        for h in (0..h_in).filter(|&h| rows[h]) {
            let at = d * h_in + h;
            let (from, to) = (&x[at * width.input..][..width.input], &mut wide[at * w..][..w]);
            if width.copy {
                to.copy_from_slice(from);
            } else {
                // SAFETY: places are below the row's length, and there are as many as outputs.
                unsafe { along(from, width.count, &width.places, &width.weights, to) };
            }
        }
    }
    let size = lines.len() * w;
    let single = depth.copy;
    if !single {
        high.resize(depth.input * size, T::default());
    }
    for d in (0..depth.input).filter(|&d| layer_used(d)) {
        let from = &wide[d * h_in * w..][..h_in * w];
        let to = if single { &mut y[d * size..][..size] } else { &mut high[d * size..][..size] };
        for (i, to) in lines.clone().zip(to.chunks_exact_mut(w.max(1))) {
            blend_rows(height, i, from, w, to);
        }
    }
    if !single {
        for (d, to) in y.chunks_exact_mut(size.max(1)).enumerate() {
            blend_rows(depth, d, high, size, to);
        }
    }
}

/// One output row: the weighted sum of rows of `size` elements.
fn blend_rows<T: Number>(taps: &Taps<T>, i: usize, from: &[T], size: usize, to: &mut [T]) {
    let mut rows: [(&[T], T); 4] = [(&[], T::default()); 4];
    for (row, (place, weight)) in rows.iter_mut().zip(taps.of(i)) {
        *row = (&from[place * size..][..size], weight);
    }
    // SAFETY: all rows have the output's length.
    unsafe { blend(&rows[..taps.count], to) };
}

fn backward<T: Number>(spec: &Resample, dy: View, dx: View) -> Result<bool> {
    let plan = Plan::<T>::new(spec)?;
    let planes = planes(&plan, dx, dy)?;
    let (src, dst) = (SendPtr::new(dy.ptr().cast::<T>()), SendPtr::new(dx.ptr().cast::<T>()));
    let grain = (TASK / plan.inputs().max(plan.outputs()).max(1)).max(1);
    pool::parallel_ranges(planes, grain, |from, to| {
        let mut room = [Vec::new(), Vec::new()];
        for plane in from..to {
            // SAFETY: planes are within the contiguous views and are disjoint.
            unsafe {
                let dy = std::slice::from_raw_parts(src.at(plane * plan.outputs()), plan.outputs());
                let dx = std::slice::from_raw_parts_mut(dst.at(plane * plan.inputs()), plan.inputs());
                collected(&plan, dy, dx, &mut room);
            }
        }
    });
    Ok(true)
}

/// The gradient of a plane: the transpose of [`resized`].
fn collected<T: Number>(plan: &Plan<T>, dy: &[T], dx: &mut [T], room: &mut [Vec<T>; 2]) {
    let Plan { depth, height, width } = plan;
    let (w, h_in, h_out) = (width.output, height.input, height.output);
    let [wide, high] = room;
    let layers: &[T] = if depth.copy {
        dy
    } else {
        spread_rows(depth, dy, h_out * w, high);
        high
    };
    for d in 0..depth.input {
        spread_rows(height, &layers[d * h_out * w..][..h_out * w], w, wide);
        for (from, to) in wide.chunks_exact(w).zip(dx[d * h_in * width.input..].chunks_exact_mut(width.input)) {
            to.fill(T::default());
            for k in 0..width.count {
                for ((&from, &place), &weight) in from.iter().zip(&width.places[k]).zip(&width.weights[k]) {
                    to[place as usize] += weight * from;
                }
            }
        }
    }
}

/// Adds each output row, weighted, to the input rows it was made of.
fn spread_rows<T: Number>(taps: &Taps<T>, from: &[T], size: usize, to: &mut Vec<T>) {
    to.clear();
    to.resize(taps.input * size, T::default());
    for (i, from) in from.chunks_exact(size.max(1)).enumerate() {
        for (place, weight) in taps.of(i) {
            // SAFETY: both rows have the same length.
            unsafe { add_scaled(from, weight, &mut to[place * size..][..size]) };
        }
    }
}

multiversion! {
    /// `to[i]` is the sum over taps of `weights[k][i] * from[places[k][i]]`.
    ///
    /// # Safety
    /// The first `count` of `places` and `weights` are as long as `to`, and all places are below the length of `from`.
    unsafe fn along<T: Number>(
        from: &[T], count: usize, places: &[Vec<u32>; 4], weights: &[Vec<T>; 4], to: &mut [T],
    ) = along_kernel;
}

#[inline(always)]
unsafe fn along_kernel<T: Number, I: Isa>(
    from: &[T],
    count: usize,
    places: &[Vec<u32>; 4],
    weights: &[Vec<T>; 4],
    to: &mut [T],
) {
    // SAFETY: the caller's promise.
    let tap = |k: usize, i: usize| unsafe {
        *weights.get_unchecked(k).get_unchecked(i)
            * *from.get_unchecked(*places.get_unchecked(k).get_unchecked(i) as usize)
    };
    match count {
        1 => to.iter_mut().enumerate().for_each(|(i, to)| *to = tap(0, i)),
        2 => to.iter_mut().enumerate().for_each(|(i, to)| *to = tap(0, i) + tap(1, i)),
        _ => to.iter_mut().enumerate().for_each(|(i, to)| *to = ((tap(0, i) + tap(1, i)) + tap(2, i)) + tap(3, i)),
    }
}

multiversion! {
    /// The weighted sum of one, two or four rows.
    ///
    /// # Safety
    /// All rows are as long as `to`.
    unsafe fn blend<T: Number>(rows: &[(&[T], T)], to: &mut [T]) = blend_kernel;
}

#[inline(always)]
unsafe fn blend_kernel<T: Number, I: Isa>(rows: &[(&[T], T)], to: &mut [T]) {
    match *rows {
        [(a, wa)] => to.iter_mut().zip(a).for_each(|(to, &a)| *to = wa * a),
        [(a, wa), (b, wb)] => {
            to.iter_mut().zip(a).zip(b).for_each(|((to, &a), &b)| *to = wa * a + wb * b);
        }
        [(a, wa), (b, wb), (c, wc), (d, wd)] => {
            for ((((to, &a), &b), &c), &d) in to.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *to = ((wa * a + wb * b) + wc * c) + wd * d;
            }
        }
        _ => {}
    }
}

multiversion! {
    /// `to += weight * from`.
    ///
    /// # Safety
    /// No precondition but the machine's level.
    unsafe fn add_scaled<T: Number>(from: &[T], weight: T, to: &mut [T]) = add_scaled_kernel;
}

#[inline(always)]
unsafe fn add_scaled_kernel<T: Number, I: Isa>(from: &[T], weight: T, to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to += weight * from);
}
