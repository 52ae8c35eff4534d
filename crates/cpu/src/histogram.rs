//! Histograms: counts of elements in bins of equal width, and the range of integers to be counted.

use crate::float::expect;
use crate::isa::Isa;
use crate::multiversion;
use crate::pool;
use rushlight_core::layout::Nest;
use rushlight_core::sync::SendPtr;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result, View};
use std::sync::Mutex;

/// Elements whose bins are computed before they are counted.
const CHUNK: usize = 512;
/// Minimum elements of a task: each task has its own counters.
const TASK: usize = 1 << 18;

trait Number: Copy + Send + Sync + 'static {
    fn of(value: f64) -> Self;
    /// The bin's number as a float; the last bin for the upper limit, `bins` for values outside.
    fn bin(self, low: Self, high: Self, bins: Self, last: u32) -> u32;
}

macro_rules! number {
    ($($t:ty)*) => {$(
        impl Number for $t {
            fn of(value: f64) -> $t {
                value as $t
            }
            #[inline(always)]
            fn bin(self, low: $t, high: $t, bins: $t, last: u32) -> u32 {
                // In this order, as PyTorch rounds it.
                let place = (self - low) * bins / (high - low);
                let inside = (self >= low) & (self <= high);
                let bin = (place as i32).clamp(0, last as i32) as u32;
                if inside { bin } else { last + 1 }
            }
        }
    )*};
}
number!(f32 f64);

/// See `call::Histogram`.
pub fn histogram(x: View, low: f64, high: f64, out: View) -> Result<bool> {
    let bins = out.numel();
    let sensible = low < high && out.dtype() == DType::I64 && out.layout().is_contiguous();
    if bins == 0 || !sensible {
        return Err(Error::value(format!("histogram: {bins} {} bins from {low} to {high}", out.dtype())));
    }
    // Bin numbers have 31 bits.
    if bins >= 1 << 30 {
        return Ok(false);
    }
    match x.dtype() {
        DType::F32 => count::<f32>(x, low, high, bins, out),
        DType::F64 => count::<f64>(x, low, high, bins, out),
        _ => return Ok(false),
    }
    Ok(true)
}

fn count<T: Number>(x: View, low: f64, high: f64, bins: usize, out: View) {
    let nest = Nest::new(x.shape(), [x.strides()]);
    let (inner, step) = (nest.shape.last().copied().unwrap_or(1).max(1), nest.strides[0].last().copied().unwrap_or(1));
    let src = SendPtr::new(x.ptr().cast::<T>());
    // SAFETY: the output is contiguous.
    let total = unsafe { std::slice::from_raw_parts_mut(out.ptr().cast::<i64>(), bins) };
    total.fill(0);
    let total = Mutex::new(total);
    pool::parallel_ranges(x.numel(), TASK.max(4 * bins), |from, to| {
        // The last counter is for values outside the range.
        let mut counts = vec![0i64; bins + 1];
        let (mut values, mut places) = ([T::of(0.0); CHUNK], [0u32; CHUNK]);
        let mut i = from;
        while i < to {
            let [start] = nest.offsets(i);
            let run = (inner - i % inner).min(to - i).min(CHUNK);
            for (k, value) in values[..run].iter_mut().enumerate() {
                // SAFETY: the position is within the view.
                *value = unsafe { *src.at(start + k * step) };
            }
            // SAFETY: no precondition but the machine's level.
            unsafe { places_of(&values[..run], low, high, bins, &mut places) };
            for &place in &places[..run] {
                counts[place as usize] += 1;
            }
            i += run;
        }
        // Sums of integers do not depend on their order.
        let mut total = lock(&total);
        total.iter_mut().zip(&counts).for_each(|(total, count)| *total += count);
    });
}

multiversion! {
    /// Computes bins; the number of bins stands for values outside.
    ///
    /// # Safety
    /// No precondition but the machine's level.
    unsafe fn places_of<T: Number>(
        values: &[T], low: f64, high: f64, bins: usize, places: &mut [u32; CHUNK],
    ) = places_of_kernel;
}

#[inline(always)]
unsafe fn places_of_kernel<T: Number, I: Isa>(
    values: &[T],
    low: f64,
    high: f64,
    bins: usize,
    places: &mut [u32; CHUNK],
) {
    let (low, high, count, last) = (T::of(low), T::of(high), T::of(bins as f64), bins as u32 - 1);
    for (place, &value) in places.iter_mut().zip(values) {
        *place = value.bin(low, high, count, last);
    }
}

/// See `call::IntRange`.
pub fn int_range(x: View, out: View) -> Result<()> {
    let n = x.numel();
    expect("int_range", "x", &x, DType::I64, n)?;
    expect("int_range", "out", &out, DType::I64, 2)?;
    let values = SendPtr::new(x.ptr().cast::<i64>());
    let total = Mutex::new([i64::MAX, i64::MIN]);
    pool::parallel_ranges(n, TASK, |from, to| {
        // SAFETY: the positions are within the contiguous view.
        let [low, high] = unsafe { range_of(std::slice::from_raw_parts(values.at(from), to - from)) };
        let mut total = lock(&total);
        *total = [total[0].min(low), total[1].max(high)];
    });
    let total = total.into_inner().unwrap_or_else(|e| e.into_inner());
    // SAFETY: contiguous, of two `i64`.
    unsafe { out.ptr().cast::<[i64; 2]>().write_unaligned(total) };
    Ok(())
}

multiversion! {
    /// The least and the greatest value.
    ///
    /// # Safety
    /// No precondition but the machine's level.
    unsafe fn range_of(values: &[i64]) -> [i64; 2] = range_of_kernel;
}

#[inline(always)]
unsafe fn range_of_kernel<I: Isa>(values: &[i64]) -> [i64; 2] {
    const LANES: usize = 32;
    let (mut low, mut high) = ([i64::MAX; LANES], [i64::MIN; LANES]);
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for l in 0..LANES {
            low[l] = low[l].min(chunk[l]);
            high[l] = high[l].max(chunk[l]);
        }
    }
    for (l, &value) in rest.iter().enumerate() {
        low[l] = low[l].min(value);
        high[l] = high[l].max(value);
    }
    [low.into_iter().fold(i64::MAX, i64::min), high.into_iter().fold(i64::MIN, i64::max)]
}
