//! Resizing of bytes by PyTorch's integer weights: a dimension after the other, the last first, each rounded to bytes.

use crate::Tensor;
use rushlight_core::backend::ResampleAxis;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Result};
use std::f64::consts::PI;

/// Weights of 16 bits for the positions of one dimension.
struct Weights {
    /// Inputs of each output.
    count: usize,
    /// `count` positions per output.
    places: Vec<i64>,
    /// Their weights, as multiples of `2^-precision`.
    weights: Vec<i32>,
    precision: u32,
}

/// A curve by which neighbours are weighted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    Linear,
    Cubic,
    /// A sinc of three lobes, windowed by a wider one.
    Lanczos,
}

impl Filter {
    /// Distance beyond which weights are zero.
    pub(super) fn reach(self) -> f64 {
        match self {
            Filter::Linear => 1.0,
            Filter::Cubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    /// The weight at a distance; `slope` is the cubic's at neighbours.
    fn at(self, x: f64, slope: f64) -> f64 {
        let x = x.abs();
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        match (self, x) {
            (Filter::Linear, 0.0..1.0) => 1.0 - x,
            (Filter::Cubic, 0.0..1.0) => ((slope + 2.0) * x - (slope + 3.0)) * x * x + 1.0,
            (Filter::Cubic, 1.0..2.0) => (((x - 5.0) * x + 8.0) * x - 4.0) * slope,
            (Filter::Lanczos, 0.0..3.0) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}

/// The first position and the weights of output `i` of a filter that widens with the step between outputs, at most
/// `count`: PyTorch's `antialias`, which is PIL's way to shrink. PIL's cubic has another slope than the one without.
pub(super) fn widened(axis: &ResampleAxis, filter: Filter, i: usize, count: usize) -> (usize, Vec<f64>) {
    let widening = axis.ratio.max(1.0);
    let support = filter.reach() * widening;
    let centre = axis.ratio * (i as f64 + 0.5);
    let first = ((centre - support + 0.5).max(0.0) as usize).min(axis.input - 1);
    let end = ((centre + support + 0.5).max(0.0) as usize).min(axis.input);
    let mut weights: Vec<f64> = (first..end.max(first).min(first + count))
        .map(|j| filter.at((j as f64 - centre + 0.5) * (1.0 / widening), -0.5))
        .collect();
    let total: f64 = weights.iter().sum();
    if total != 0.0 {
        weights.iter_mut().for_each(|w| *w /= total);
    }
    (first, weights)
}

/// The same of the two or four neighbours; those beyond the edge count as the edge.
fn neighbours(axis: &ResampleAxis, filter: Filter, i: usize, count: usize) -> (usize, Vec<f64>) {
    let at = if axis.aligned { axis.ratio * i as f64 } else { axis.ratio * (i as f64 + 0.5) - 0.5 };
    let at = if filter == Filter::Cubic || axis.aligned { at } else { at.max(0.0) };
    let below = (at.floor() as i64).min(axis.input as i64 - 1);
    let t = (at - below as f64).clamp(0.0, 1.0);
    let half = (count / 2) as i64;
    let (low, high) = (below - half + 1, below + half + 1);
    let first = low.max(0);
    let mut weights = vec![0.0; (high.min(axis.input as i64) - first).max(1) as usize];
    for j in 0..count as i64 {
        let place = (low + j).clamp(first, first + weights.len() as i64 - 1);
        weights[(place - first) as usize] += filter.at((j + 1 - half) as f64 - t, -0.75);
    }
    (first as usize, weights)
}

impl Weights {
    fn new(axis: &ResampleAxis, filter: Filter, antialias: bool) -> Self {
        let count = match antialias {
            true => (filter.reach() * axis.ratio.max(1.0)).ceil() as usize * 2 + 1,
            false => filter.reach() as usize * 2,
        };
        let rows: Vec<(usize, Vec<f64>)> = (0..axis.output)
            .map(|i| if antialias { widened(axis, filter, i, count) } else { neighbours(axis, filter, i, count) })
            .collect();
        let largest = rows.iter().flat_map(|(_, weights)| weights).fold(0.0f64, |m, &w| m.max(w));
        let fits = |precision: u32| ((0.5 + largest * f64::from(1u32 << precision)) as i64) < 1 << 15;
        let precision = (0..22).find(|p| !fits(p + 1)).unwrap_or(22);
        let scale = f64::from(1u32 << precision);
        let count = rows.iter().map(|(_, weights)| weights.len()).max().unwrap_or(1).max(1);
        let mut made = Self { count, places: Vec::new(), weights: Vec::new(), precision };
        for (first, weights) in &rows {
            for j in 0..count {
                made.places.push((first + j).min(axis.input - 1) as i64);
                let weight = weights.get(j).copied().unwrap_or(0.0) * scale;
                made.weights.push(if weight < 0.0 { (weight - 0.5) as i32 } else { (weight + 0.5) as i32 });
            }
        }
        made
    }
}

impl Tensor {
    /// Bytes resized along their last dimensions.
    pub(super) fn resample_bytes(&self, axes: &[ResampleAxis], filter: Filter, antialias: bool) -> Result<Tensor> {
        let first = self.rank() - axes.len();
        let mut x = self.to_dtype(DType::I32)?;
        for (i, axis) in axes.iter().enumerate().rev() {
            let dim = first + i;
            let taps = Weights::new(axis, filter, antialias);
            let shape = [axis.output, taps.count];
            let places = Tensor::from_slice(&taps.places, shape)?.to(self.device())?;
            let weights = Tensor::from_slice(&taps.weights, shape)?.to(self.device())?;
            let mut spread: Dims = smallvec![1; self.rank() - dim];
            spread[0] = axis.output;
            // Half a unit, so that the shift rounds.
            let half = 1i64 << taps.precision >> 1;
            let mut sum: Option<Tensor> = None;
            for k in 0..taps.count as isize {
                let term = x.index_select(dim as isize, &places.select(1, k)?.contiguous()?)?;
                let term = term.mul(&weights.select(1, k)?.reshape(&spread)?)?;
                sum = Some(match sum {
                    None => term.add(half)?,
                    Some(sum) => sum.add(&term)?,
                });
            }
            x = sum.unwrap_or(x).bitwise_right_shift(i64::from(taps.precision))?.clamp(0, 255)?;
        }
        x.to_dtype(DType::U8)
    }
}
