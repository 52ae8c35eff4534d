//! Bilinear resizing with antialiasing, as `torchvision`'s `resize` does for tensors.

use super::{Size2d, Transform, image_size};
use crate::rng::SampleRng;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::{InterpolateMode, InterpolateOptions, Tensor};

/// The image resized to exactly a size. With `antialias`, as by default in torchvision, pixels are averaged over the
/// area that shrinks into one.
///
/// Bytes are computed as `float32` and rounded.
pub fn resize(image: &Tensor, size: impl Into<Size2d>, antialias: bool) -> Result<Tensor> {
    let (size, (channels, height, width)) = (size.into(), image_size("resize", image)?);
    if size.height == 0 || size.width == 0 || height == 0 || width == 0 {
        return Err(Error::value(format!(
            "resize: sizes must be positive, got an image of {height} x {width} and a size of {} x {}",
            size.height, size.width
        )));
    }
    if (size.height, size.width) == (height, width) {
        return Ok(image.clone());
    }
    let floats = image.to_dtype(DType::F32)?;
    let out = if antialias {
        let pixels = floats.to_vec::<f32>()?;
        let wide = Filter::new(width, size.width)?.rows(&pixels, channels * height);
        let tall = Filter::new(height, size.height)?.columns(&wide, channels, size.width);
        Tensor::from_slice(&tall, [channels, size.height, size.width])?
    } else {
        let options =
            InterpolateOptions::size([size.height, size.width]).mode(InterpolateMode::Bilinear).align_corners(false);
        floats.unsqueeze(0)?.interpolate(&options)?.squeeze(0)?
    };
    match image.dtype() {
        DType::U8 => out.round()?.clamp(0.0, 255.0)?.to_dtype(DType::U8),
        _ => Ok(out),
    }
}

/// For each output position, where the input positions start that add to it, and their weights: a triangle as wide as
/// the change of size.
struct Filter {
    input: usize,
    taps: Vec<(usize, Vec<f32>)>,
}

impl Filter {
    fn new(input: usize, output: usize) -> Result<Self> {
        let scale = input as f32 / output as f32;
        let (support, inverse) = if scale >= 1.0 { (scale, 1.0 / scale) } else { (1.0, 1.0) };
        let mut taps = Vec::new();
        taps.try_reserve_exact(output)
            .map_err(|_| Error::out_of_memory(format!("resize: no memory for a side of {output} pixels")))?;
        for i in 0..output {
            let centre = scale * (i as f32 + 0.5);
            let first = ((centre - support + 0.5).max(0.0) as usize).min(input - 1);
            let end = ((centre + support + 0.5) as usize).clamp(first + 1, input);
            let mut weights: Vec<f32> =
                (first..end).map(|j| (1.0 - ((j as f32 - centre + 0.5) * inverse).abs()).max(0.0)).collect();
            let total: f32 = weights.iter().sum();
            if total != 0.0 {
                weights.iter_mut().for_each(|w| *w /= total);
            }
            taps.push((first, weights));
        }
        Ok(Self { input, taps })
    }

    /// Every row brought to the new width.
    fn rows(&self, pixels: &[f32], rows: usize) -> Vec<f32> {
        let mut out = Vec::with_capacity(rows * self.taps.len());
        for row in pixels.chunks_exact(self.input) {
            for (first, weights) in &self.taps {
                out.push(row[*first..].iter().zip(weights).map(|(p, w)| p * w).sum());
            }
        }
        out
    }

    /// Every column of each channel brought to the new height.
    fn columns(&self, pixels: &[f32], channels: usize, width: usize) -> Vec<f32> {
        let mut out = vec![0.0f32; channels * self.taps.len() * width];
        let planes = pixels.chunks_exact(self.input * width);
        for (plane, result) in planes.zip(out.chunks_exact_mut(self.taps.len() * width)) {
            for ((first, weights), row) in self.taps.iter().zip(result.chunks_exact_mut(width)) {
                for (source, weight) in plane[first * width..].chunks_exact(width).zip(weights) {
                    for (r, s) in row.iter_mut().zip(source) {
                        *r += s * weight;
                    }
                }
            }
        }
        out
    }
}

/// Resizes the image: see [`resize()`].
#[derive(Clone, Copy, Debug)]
pub struct Resize {
    target: Target,
    max_size: Option<usize>,
    antialias: bool,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    ShorterSide(usize),
    Exactly(Size2d),
}

impl Resize {
    /// Brings the shorter side to a size and keeps the shape.
    pub fn new(shorter_side: usize) -> Self {
        Self { target: Target::ShorterSide(shorter_side), max_size: None, antialias: true }
    }

    /// Brings the image to exactly a height and width.
    pub fn exactly(size: impl Into<Size2d>) -> Self {
        Self { target: Target::Exactly(size.into()), max_size: None, antialias: true }
    }

    /// A limit for the longer side, where only the shorter is given.
    pub fn max_size(mut self, max_size: usize) -> Self {
        self.max_size = Some(max_size);
        self
    }

    /// Whether pixels are averaged when shrinking; true by default.
    pub fn antialias(mut self, antialias: bool) -> Self {
        self.antialias = antialias;
        self
    }

    fn size_for(&self, height: usize, width: usize) -> Result<Size2d> {
        let side = match self.target {
            Target::Exactly(_) if self.max_size.is_some() => {
                return Err(Error::value("Resize: max_size goes with a shorter side, not with an exact size"));
            }
            Target::Exactly(size) => return Ok(size),
            Target::ShorterSide(side) => side,
        };
        let (short, long) = (height.min(width), height.max(width));
        let mut new_short = side;
        let mut new_long = (side as f64 * long as f64 / short.max(1) as f64) as usize;
        if let Some(limit) = self.max_size {
            if limit <= side {
                return Err(Error::value(format!(
                    "Resize: max_size {limit} must be greater than the shorter side {side}"
                )));
            }
            if new_long > limit {
                new_short = (limit as f64 * new_short as f64 / new_long as f64) as usize;
                new_long = limit;
            }
        }
        let (height, width) = if height <= width { (new_short, new_long) } else { (new_long, new_short) };
        Ok(Size2d { height, width })
    }
}

impl Transform for Resize {
    fn apply(&self, image: &Tensor, _rng: &mut SampleRng) -> Result<Tensor> {
        let (_, height, width) = image_size("Resize", image)?;
        resize(image, self.size_for(height, width)?, self.antialias)
    }
}
