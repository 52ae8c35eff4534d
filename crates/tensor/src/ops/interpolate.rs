//! Resizing of images by interpolation, one spatial dimension after the other.

use super::norm::wide;
use super::pixels::{Filter, widened};
use super::sizes::Sizes;
use crate::Tensor;
use crate::announce::{Value, announced};
use crate::autograd::{record, recording};
use rushlight_core::backend::{Resample, ResampleAxis, Sampling, call};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Device, Dims, Error, Result, setters};

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
    /// A windowed sinc over six neighbours in both dimensions, for `[batch, channels, height, width]`; with
    /// [`InterpolateOptions::antialias`] only.
    Lanczos,
}

/// Where an interpolation goes and how: the output's size or a factor, and optional arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterpolateOptions {
    size: Option<Sizes>,
    scale_factor: Option<SmallVec<[f64; 2]>>,
    mode: InterpolateMode,
    align_corners: Option<bool>,
    recompute_scale_factor: bool,
    antialias: bool,
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

    setters! {
        /// How values between positions are found; [`InterpolateMode::Nearest`] by default.
        mode: InterpolateMode;
        /// Whether the centres of the corner elements are aligned instead of their edges; for the modes other than
        /// nearest.
        align_corners: into Option<bool>;
        /// Whether positions follow from the sizes alone and not from the factor.
        recompute_scale_factor: bool;
        /// Whether shrinking averages over all inputs that an output covers; for bilinear, bicubic and lanczos.
        antialias: bool;
    }
}

impl InterpolateMode {
    fn sampling(self) -> Sampling {
        match self {
            InterpolateMode::Nearest => Sampling::Nearest { shift: 0.0 },
            InterpolateMode::NearestExact => Sampling::Nearest { shift: 0.5 },
            InterpolateMode::Bicubic => Sampling::Cubic,
            // Lanczos is always a filter, which has no sampling.
            InterpolateMode::Linear
            | InterpolateMode::Bilinear
            | InterpolateMode::Trilinear
            | InterpolateMode::Lanczos => Sampling::Linear,
        }
    }

    /// The filter of images, where there is one.
    fn filter(self) -> Option<Filter> {
        match self {
            InterpolateMode::Bilinear => Some(Filter::Linear),
            InterpolateMode::Bicubic => Some(Filter::Cubic),
            InterpolateMode::Lanczos => Some(Filter::Lanczos),
            _ => None,
        }
    }
}

/// The inputs that each output position along a dimension is made of, and their weights: vectors on a device, made
/// there, so that a captured step may interpolate. `compute` is `f32` or `f64`.
fn taps(axis: &ResampleAxis, sampling: Sampling, compute: DType, device: Device) -> Result<Vec<(Tensor, Tensor)>> {
    let last = axis.input as i64 - 1;
    let count = |dtype| Tensor::arange_with(0, axis.output, 1, (dtype, device));
    let at = match sampling {
        // PyTorch computes these in `f32` whatever the tensor is.
        Sampling::Nearest { shift } => {
            let place = count(DType::F32)?.add(shift as f64)?.mul(axis.ratio as f32 as f64)?.floor()?;
            let place = place.to_dtype(DType::I64)?.clamp(0, last)?;
            return Ok(vec![(place, Tensor::ones_with([axis.output], (compute, device))?)]);
        }
        _ if axis.aligned => count(compute)?.mul(axis.ratio)?,
        _ => count(compute)?.add(0.5)?.mul(axis.ratio)?.sub(0.5)?,
    };
    if sampling == Sampling::Linear {
        let at = at.clamp_min(0.0)?;
        let low = at.floor()?.clamp_max(last as f64)?;
        let weight = at.sub(&low)?.clamp(0.0, 1.0)?;
        let first = low.to_dtype(DType::I64)?;
        let second = first.add(1)?.clamp_max(last)?;
        return Ok(vec![(first, weight.rsub(1.0)?), (second, weight)]);
    }
    /// The slope at neighbours that PyTorch has chosen.
    const A: f64 = -0.75;
    let near = |t: &Tensor| t.mul(A + 2.0)?.sub(A + 3.0)?.mul(t)?.mul(t)?.add(1.0);
    let far = |t: &Tensor| t.mul(A)?.sub(5.0 * A)?.mul(t)?.add(8.0 * A)?.mul(t)?.sub(4.0 * A);
    let below = at.floor()?;
    let t = at.sub(&below)?;
    let weights = [far(&t.add(1.0)?)?, near(&t)?, near(&t.rsub(1.0)?)?, far(&t.rsub(2.0)?)?];
    let place = |k: usize| below.to_dtype(DType::I64)?.add(k as i64 - 1)?.clamp(0, last);
    weights.into_iter().enumerate().map(|(k, weight)| Ok((place(k)?, weight))).collect()
}

/// The weight of each input, by column, in each output, by row, of a filter that widens with the step between outputs.
fn filter_matrix(axis: &ResampleAxis, filter: Filter) -> Vec<f64> {
    let mut matrix = vec![0.0; axis.output * axis.input];
    for (i, row) in matrix.chunks_exact_mut(axis.input).enumerate() {
        let (first, weights) = widened(axis, filter, i, axis.input);
        row[first..first + weights.len()].copy_from_slice(&weights);
    }
    matrix
}

impl InterpolateOptions {
    fn axes(&self, x: &Tensor, dims: usize) -> Result<Vec<ResampleAxis>> {
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
        let aligned = self.align_corners == Some(true);
        let axis = |(i, (output, step)): (usize, (usize, Option<f64>))| {
            let input: usize = input[i];
            let ratio = match (aligned, output) {
                (true, 0 | 1) => 0.0,
                (true, n) => (input - 1) as f64 / (n - 1) as f64,
                (false, _) => step.unwrap_or(input as f64 / output as f64),
            };
            ResampleAxis { input, output, ratio, aligned }
        };
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
        use InterpolateMode::*;
        let mode = match options.mode {
            Nearest => "nearest",
            NearestExact => "nearest-exact",
            Linear => "linear",
            Bilinear => "bilinear",
            Trilinear => "trilinear",
            Bicubic => "bicubic",
            Lanczos => "lanczos",
        };
        let list = |sizes: Sizes| Value::from(sizes.as_slice());
        let factors = |all: &SmallVec<[f64; 2]>| Value::List(all.iter().map(|&f| f.into()).collect());
        announced!(
            "nn.functional.interpolate",
            [self, options.size.map(list), options.scale_factor.as_ref().map(factors), mode, options.align_corners,
                options.recompute_scale_factor, options.antialias];
            self.interpolate(options)
        );
        let filter = options.mode.filter().filter(|_| self.rank() == 4);
        if options.antialias && filter.is_none() {
            return Err(Error::value(format!(
                "{name}: Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
            )));
        }
        if options.mode == Lanczos && options.align_corners == Some(true) {
            return Err(Error::value(format!("{name}: Lanczos mode does not support align_corners=True")));
        }
        if options.mode == Lanczos && !options.antialias && self.rank() == 4 {
            return Err(Error::value(format!("{name}: Lanczos mode requires antialias=True")));
        }
        // Of the integers PyTorch has kernels for pixels.
        if self.dtype() == DType::U8 {
            return match (options.mode, filter) {
                (Nearest | NearestExact, _) => self.to_dtype(DType::F32)?.interpolate(options)?.to_dtype(DType::U8),
                (_, Some(filter)) => {
                    self.resample_bytes(&options.axes(self, 2)?, filter, options.antialias)?.in_format_of(self)
                }
                _ => self.to_dtype(DType::F32)?.interpolate(options)?.round()?.clamp(0.0, 255.0)?.to_dtype(DType::U8),
            };
        }
        self.needs_float(name)?;
        let dims = match (options.mode, self.rank()) {
            (Nearest | NearestExact | Linear, 3) => 1,
            (Nearest | NearestExact | Bilinear | Bicubic | Lanczos, 4) => 2,
            (Nearest | NearestExact | Trilinear, 5) => 3,
            (mode, rank) => {
                return Err(Error::unsupported(format!(
                    "{name}: got {rank}D input, but {mode:?} takes [batch, channels, length] (linear, nearest), [batch, channels, height, \
                     width] (bilinear, bicubic, lanczos, nearest) or [batch, channels, depth, height, width] (trilinear, nearest)"
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
        let sampling = options.mode.sampling();
        // Half types are rounded once, at the end; picking elements rounds nothing.
        let compute = if nearest { self.dtype() } else { wide(self.dtype()) };
        let x = self.to_dtype(compute)?;
        if let (true, Some(filter)) = (options.antialias, filter) {
            return x.resample_by_filter(&axes, filter)?.to_dtype(self.dtype())?.in_format_of(self);
        }
        let mut spec = Resample { sampling, axes: [ResampleAxis::unchanged(1); 3] };
        spec.axes[3 - dims..].copy_from_slice(&axes);
        match x.resample(&spec, dims)? {
            Some(out) => out,
            None => x.resample_by_index(&axes, sampling)?,
        }
        .to_dtype(self.dtype())?
        .in_format_of(self)
    }

    /// Resized by the engine's kernel over the last `dims` dimensions; nothing where it has none.
    fn resample(&self, spec: &Resample, dims: usize) -> Result<Option<Tensor>> {
        if !matches!(self.dtype(), DType::F32 | DType::F64) {
            return Ok(None);
        }
        let mut shape = Dims::from_slice(self.shape());
        let lead = shape.len() - dims;
        shape.truncate(lead);
        shape.extend(spec.axes[3 - dims..].iter().map(|axis| axis.output));
        let (x, out) = (self.contiguous()?, self.uninit_like(&shape, self.dtype())?);
        if out.numel() > 0 {
            out.run(call::Resample { spec: *spec, x: x.engine_view(), y: out.engine_view() })?;
        }
        if recording(&[self]) {
            let (spec, input) = (*spec, Dims::from_slice(self.shape()));
            record("interpolate", &[self], &out, move |ctx, dy| {
                Ok(smallvec![Some(dy.resample_backward(&spec, &input, dims, ctx.recording())?)])
            })?;
        }
        Ok(Some(out))
    }

    /// The gradient of [`resample`](Tensor::resample), itself linear in `self`.
    fn resample_backward(&self, spec: &Resample, input: &[usize], dims: usize, tape: bool) -> Result<Tensor> {
        let (dy, dx) = (self.contiguous()?, self.uninit_like(input, self.dtype())?);
        if dx.numel() > 0 {
            dx.run(call::ResampleBackward { spec: *spec, dy: dy.engine_view(), dx: dx.engine_view() })?;
        }
        if tape && recording(&[self]) {
            let spec = *spec;
            record("interpolate_backward", &[self], &dx, move |_, ddx| match ddx.resample(&spec, dims)? {
                Some(out) => Ok(smallvec![Some(out)]),
                None => Err(Error::unsupported("interpolate: no kernel for the second derivative")),
            })?;
        }
        Ok(dx)
    }

    /// Resized by a product with a matrix of weights along each dimension, the last first.
    fn resample_by_filter(&self, axes: &[ResampleAxis], filter: Filter) -> Result<Tensor> {
        let first = self.rank() - axes.len();
        let mut x = self.clone();
        for (i, axis) in axes.iter().enumerate().rev() {
            let weights = Tensor::from_slice(&filter_matrix(axis, filter), [axis.output, axis.input])?;
            let weights = weights.to_dtype(self.dtype())?.to(self.device())?;
            let dim = (first + i) as isize;
            x = x.movedim([dim], [-1])?.matmul(&weights.t()?)?.movedim([-1], [dim])?.contiguous()?;
        }
        Ok(x)
    }

    /// Resized with index tensors, one dimension after the other.
    fn resample_by_index(&self, axes: &[ResampleAxis], sampling: Sampling) -> Result<Tensor> {
        let first = self.rank() - axes.len();
        let mut x = self.clone();
        for (i, axis) in axes.iter().enumerate().rev() {
            let dim = first + i;
            let mut shape: Dims = smallvec![1; self.rank() - dim];
            shape[0] = axis.output;
            let compute = if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            let taps = taps(axis, sampling, compute, self.device())?;
            if let [(places, _)] = &taps[..] {
                x = x.index_select(dim as isize, places)?;
                continue;
            }
            let term = |(places, weights): &(Tensor, Tensor)| {
                x.index_select(dim as isize, places)?.mul(&weights.reshape(&shape)?)
            };
            let (head, rest) = taps.split_first().ok_or_else(|| Error::value("interpolate: no taps"))?;
            x = rest.iter().try_fold(term(head)?, |sum, tap| sum.add(&term(tap)?))?;
        }
        Ok(x)
    }
}
