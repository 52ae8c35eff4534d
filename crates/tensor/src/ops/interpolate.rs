//! Resizing of images by interpolation, one spatial dimension after the other.

use super::norm::wide;
use super::sizes::Sizes;
use crate::Tensor;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Error, Result};

/// How values between positions are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterpolateMode {
    /// The position below, by PyTorch's `nearest`.
    #[default]
    Nearest,
    /// The nearest centre, by PyTorch's `nearest-exact`.
    NearestExact,
    /// A straight line between two neighbours, for `[batch, channels, length]`.
    Linear,
    /// The same in both dimensions, for `[batch, channels, height, width]`.
    Bilinear,
    /// The same in three dimensions, for `[batch, channels, depth, height, width]`.
    Trilinear,
    /// A cubic through four neighbours in both dimensions, for `[batch, channels, height, width]`.
    Bicubic,
}

/// Where an interpolation goes and how: the output's size or a factor, and optional arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterpolateOptions {
    size: Option<Sizes>,
    scale_factor: Option<SmallVec<[f64; 2]>>,
    mode: InterpolateMode,
    align_corners: Option<bool>,
    recompute_scale_factor: bool,
}

impl InterpolateOptions {
    /// An output of a size.
    pub fn size(size: impl Into<Sizes>) -> Self {
        Self { size: Some(size.into()), ..Self::default() }
    }

    /// An output larger by a factor, or one per dimension.
    pub fn scale_factor(factors: impl AsRef<[f64]>) -> Self {
        Self { scale_factor: Some(SmallVec::from_slice(factors.as_ref())), ..Self::default() }
    }

    /// How values between positions are found; [`InterpolateMode::Nearest`] unless set.
    pub fn mode(mut self, mode: InterpolateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether the centres of the corners, not their edges, lie on each other; for the modes other than nearest.
    pub fn align_corners(mut self, align: impl Into<Option<bool>>) -> Self {
        self.align_corners = align.into();
        self
    }

    /// Whether positions follow from the sizes alone and not from the factor.
    pub fn recompute_scale_factor(mut self, recompute: bool) -> Self {
        self.recompute_scale_factor = recompute;
        self
    }
}

/// One dimension's change of size.
struct Axis {
    dim: usize,
    input: usize,
    output: usize,
    /// Input positions per output position, where a factor was given to say so.
    step: Option<f64>,
}

impl Axis {
    /// Input positions per output position.
    fn ratio(&self) -> f64 {
        self.step.unwrap_or(self.input as f64 / self.output as f64)
    }

    /// Room for a value per output position; sizes follow from a user's factors and may be absurd.
    fn room<T>(&self) -> Result<Vec<T>> {
        let mut out = Vec::new();
        match out.try_reserve_exact(self.output) {
            Ok(()) => Ok(out),
            Err(_) => Err(Error::value(format!(
                "interpolate: an output of size {} is more than memory can hold",
                self.output
            ))),
        }
    }

    /// The input position of each output position. PyTorch computes these in `f32`, and so they are here.
    fn nearest(&self, shift: f32) -> Result<Vec<i64>> {
        let ratio = self.ratio() as f32;
        let mut out = self.room()?;
        out.extend(
            (0..self.output).map(|i| (((i as f32 + shift) * ratio).floor() as usize).min(self.input - 1) as i64),
        );
        Ok(out)
    }

    /// The input position, between elements, of each output position, in `f64` or rounded to `f32` at each step.
    fn positions(&self, align_corners: bool, exact: bool) -> Result<Vec<f64>> {
        let round = rounding(exact);
        let ratio = round(match (align_corners, self.output) {
            (true, 0 | 1) => 0.0,
            (true, n) => (self.input - 1) as f64 / (n - 1) as f64,
            (false, _) => self.ratio(),
        });
        let mut out = self.room()?;
        out.extend((0..self.output).map(|i| match align_corners {
            true => round(ratio * i as f64),
            false => round(round(ratio * (i as f64 + 0.5)) - 0.5),
        }));
        Ok(out)
    }

    /// The two neighbours of each output position and the weight of the second.
    fn neighbours(&self, align_corners: bool, exact: bool) -> Result<(Vec<i64>, Vec<i64>, Vec<f64>)> {
        let round = rounding(exact);
        let (mut low, mut high, mut weights) = (self.room()?, self.room()?, self.room()?);
        for at in self.positions(align_corners, exact)? {
            let at = at.max(0.0);
            let first = (at as usize).min(self.input - 1);
            low.push(first as i64);
            high.push((first + 1).min(self.input - 1) as i64);
            weights.push(round(at - first as f64).clamp(0.0, 1.0));
        }
        Ok((low, high, weights))
    }

    /// Four neighbours of each output position and their weights: neighbour `k` of all positions, then the next.
    fn cubic_neighbours(&self, align_corners: bool, exact: bool) -> Result<[(Vec<i64>, Vec<f64>); 4]> {
        /// The slope at neighbours that PyTorch has chosen.
        const A: f64 = -0.75;
        let near = |t: f64| ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0;
        let far = |t: f64| ((A * t - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A;
        let round = rounding(exact);
        let positions = self.positions(align_corners, exact)?;
        let mut out = [const { (Vec::new(), Vec::new()) }; 4];
        for (k, (places, weights)) in out.iter_mut().enumerate() {
            (*places, *weights) = (self.room()?, self.room()?);
            for &at in &positions {
                let t = round(at - at.floor());
                weights.push([far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)][k]);
                places.push((at.floor() as i64).saturating_add(k as i64 - 1).clamp(0, self.input as i64 - 1));
            }
        }
        Ok(out)
    }
}

/// Positions are computed in the tensor's precision, as PyTorch does.
fn rounding(exact: bool) -> impl Fn(f64) -> f64 {
    move |v| if exact { v } else { v as f32 as f64 }
}

impl InterpolateOptions {
    fn axes(&self, x: &Tensor, dims: usize) -> Result<Vec<Axis>> {
        let name = "interpolate";
        let input = &x.shape()[2..];
        let (outputs, steps): (Vec<usize>, Vec<Option<f64>>) = match (&self.size, &self.scale_factor) {
            (None, None) => return Err(Error::value(format!("{name}: either size or scale_factor should be defined"))),
            (Some(_), Some(_)) => {
                return Err(Error::value(format!("{name}: only one of size or scale_factor should be defined")));
            }
            (Some(_), None) if self.recompute_scale_factor => {
                return Err(Error::value(format!(
                    "{name}: recompute_scale_factor is not meaningful with an explicit size"
                )));
            }
            (Some(size), None) => (size.spread(name, "size", dims, 1)?[3 - dims..].to_vec(), vec![None; dims]),
            (None, Some(factors)) => {
                let factor = |i: usize| if factors.len() == 1 { factors[0] } else { factors[i] };
                if factors.len() != 1 && factors.len() != dims {
                    return Err(Error::value(format!(
                        "{name}: input and scale_factor must have the same number of spatial dimensions, but got {dims} and {}",
                        factors.len()
                    )));
                }
                let sizes = (0..dims).map(|i| (input[i] as f64 * factor(i)).floor() as usize).collect();
                let step = |i| (!self.recompute_scale_factor && factor(i) > 0.0).then(|| 1.0 / factor(i));
                (sizes, (0..dims).map(step).collect())
            }
        };
        if outputs.contains(&0) || input.contains(&0) {
            return Err(Error::shape(format!(
                "{name}: input and output sizes should be greater than 0, but got input {input:?} and output {outputs:?}"
            )));
        }
        let axis =
            |(i, (output, step)): (usize, (usize, Option<f64>))| Axis { dim: i + 2, input: input[i], output, step };
        Ok(outputs.into_iter().zip(steps).enumerate().map(axis).collect())
    }
}

impl Tensor {
    /// Resized over its spatial dimensions, those after batch and channels.
    ///
    /// ```
    /// # use rushlight_tensor::{InterpolateMode, InterpolateOptions, Tensor};
    /// let x = Tensor::new([[[0.0f32, 1.0]]])?;
    /// let options = InterpolateOptions::size(3).mode(InterpolateMode::Linear).align_corners(true);
    /// assert_eq!(x.interpolate(&options)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn interpolate(&self, options: &InterpolateOptions) -> Result<Tensor> {
        let name = "interpolate";
        self.needs_float(name)?;
        use InterpolateMode::*;
        let dims = match (options.mode, self.rank()) {
            (Nearest | NearestExact | Linear, 3) => 1,
            (Nearest | NearestExact | Bilinear | Bicubic, 4) => 2,
            (Nearest | NearestExact | Trilinear, 5) => 3,
            (mode, rank) => {
                return Err(Error::unsupported(format!(
                    "{name}: got {rank}D input, but {mode:?} takes [batch, channels, length] (linear, nearest), [batch, channels, height, \
                     width] (bilinear, bicubic, nearest) or [batch, channels, depth, height, width] (trilinear, nearest)"
                )));
            }
        };
        let nearest = matches!(options.mode, Nearest | NearestExact);
        if options.align_corners.is_some() && nearest {
            return Err(Error::value(format!(
                "{name}: align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
            )));
        }
        let axes = options.axes(self, dims)?;
        let device = self.device();
        let positions = |v: &[i64]| Tensor::from_slice(v, [v.len()])?.to(&device);
        if nearest {
            let shift = if options.mode == NearestExact { 0.5 } else { 0.0 };
            return axes.iter().try_fold(self.clone(), |x, axis| {
                x.index_select(axis.dim as isize, &positions(&axis.nearest(shift)?)?)
            });
        }
        // Half types are rounded once, at the end.
        let compute = wide(self.dtype());
        let (align, exact) = (options.align_corners == Some(true), compute == DType::F64);
        let mut x = self.to_dtype(compute)?;
        for axis in &axes {
            let mut shape: Dims = smallvec![1; self.rank() - axis.dim];
            shape[0] = axis.output;
            let weigh = |weights: &[f64]| {
                Tensor::from_slice(weights, [weights.len()])?.to_dtype(compute)?.to(&device)?.reshape(&shape)
            };
            let at = |places: &[i64]| x.index_select(axis.dim as isize, &positions(places)?);
            x = if options.mode == Bicubic {
                let [first, rest @ ..] = axis.cubic_neighbours(align, exact)?;
                rest.iter().try_fold(at(&first.0)?.mul(&weigh(&first.1)?)?, |sum, (places, weights)| {
                    sum.add(&at(places)?.mul(&weigh(weights)?)?)
                })?
            } else {
                let (low, high, weights) = axis.neighbours(align, exact)?;
                at(&low)?.lerp(&at(&high)?, &weigh(&weights)?)?
            };
        }
        x.to_dtype(self.dtype())
    }
}
