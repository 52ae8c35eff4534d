//! Transforms that choose a random area by its size and shape.

use super::{Size2d, Transform, check_probability, crop, image_size, resize};
use crate::rng::SampleRng;
use rushlight_core::{Error, Result, Scalar};
use rushlight_tensor::Tensor;

/// Which parts of the whole area, and which shapes (width by height).
#[derive(Clone, Copy, Debug)]
struct AreaRange {
    scale: (f64, f64),
    ratio: (f64, f64),
}

impl AreaRange {
    fn checked(call: &str, scale: (f64, f64), ratio: (f64, f64)) -> Result<Self> {
        let ordered = |(low, high): (f64, f64)| low >= 0.0 && low <= high && high.is_finite();
        if !ordered(scale) || !ordered(ratio) || ratio.0 <= 0.0 {
            return Err(Error::value(format!(
                "{call}: scale {scale:?} and ratio {ratio:?} must be ranges of positive numbers, the smaller first"
            )));
        }
        Ok(Self { scale, ratio })
    }

    /// The height and width of a random area; it may be larger than the image.
    fn draw(&self, height: usize, width: usize, rng: &mut SampleRng) -> Size2d {
        let area = height as f64 * width as f64 * rng.between(self.scale.0, self.scale.1);
        let ratio = rng.between(self.ratio.0.ln(), self.ratio.1.ln()).exp();
        Size2d {
            height: (area / ratio).sqrt().round_ties_even() as usize,
            width: (area * ratio).sqrt().round_ties_even() as usize,
        }
    }
}

/// Attempts to draw an area before the fallback.
const TRIES: usize = 10;

/// A random area of the image, resized: the usual augmentation for ImageNet.
#[derive(Clone, Copy, Debug)]
pub struct RandomResizedCrop {
    size: Size2d,
    range: AreaRange,
    antialias: bool,
}

impl RandomResizedCrop {
    /// Crops 8% to 100% of the area, in shapes from 3:4 to 4:3, and resizes to `size`.
    pub fn new(size: impl Into<Size2d>) -> Self {
        let range = AreaRange { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) };
        Self { size: size.into(), range, antialias: true }
    }

    /// The parts of the area and the shapes (width by height) to choose from.
    pub fn ranges(mut self, scale: (f64, f64), ratio: (f64, f64)) -> Result<Self> {
        self.range = AreaRange::checked("RandomResizedCrop", scale, ratio)?;
        Ok(self)
    }

    /// Whether pixels are averaged when shrinking; true by default.
    pub fn antialias(mut self, antialias: bool) -> Self {
        self.antialias = antialias;
        self
    }
}

impl Transform for RandomResizedCrop {
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        let (_, height, width) = image_size("RandomResizedCrop", image)?;
        for _ in 0..TRIES {
            let area = self.range.draw(height, width, rng);
            if (1..=height).contains(&area.height) && (1..=width).contains(&area.width) {
                let (top, left) = (rng.scaled(height - area.height + 1), rng.scaled(width - area.width + 1));
                return resize(&crop(image, top, left, area)?, self.size, self.antialias);
            }
        }
        // The middle, in the nearest shape allowed.
        let shape = width as f64 / height.max(1) as f64;
        let (low, high) = self.range.ratio;
        let fitted = |side: f64, whole: usize| (side.round_ties_even() as usize).max(1).min(whole);
        let area = if shape < low {
            Size2d { height: fitted(width as f64 / low, height), width }
        } else if shape > high {
            Size2d { height, width: fitted(height as f64 * high, width) }
        } else {
            Size2d { height, width }
        };
        let middle = crop(image, (height - area.height) / 2, (width - area.width) / 2, area)?;
        resize(&middle, self.size, self.antialias)
    }
}

/// A random area of the image set to one value.
#[derive(Clone, Copy, Debug)]
pub struct RandomErasing {
    p: f64,
    range: AreaRange,
    value: Scalar,
}

impl Default for RandomErasing {
    /// Every other image, 2% to 33% of the area, in shapes from 0.3 to 3.3, to zero.
    fn default() -> Self {
        Self { p: 0.5, range: AreaRange { scale: (0.02, 0.33), ratio: (0.3, 3.3) }, value: Scalar::Float(0.0) }
    }
}

impl RandomErasing {
    /// Erases with probability `p`.
    pub fn new(p: f64) -> Result<Self> {
        Ok(Self { p: check_probability("RandomErasing", p)?, ..Self::default() })
    }

    /// The parts of the area and the shapes (width by height) to choose from.
    pub fn ranges(mut self, scale: (f64, f64), ratio: (f64, f64)) -> Result<Self> {
        if scale.1 > 1.0 {
            return Err(Error::value(format!("RandomErasing: scale {scale:?} should be between 0 and 1")));
        }
        self.range = AreaRange::checked("RandomErasing", scale, ratio)?;
        Ok(self)
    }

    /// The value put in.
    pub fn value(mut self, value: impl Into<Scalar>) -> Self {
        self.value = value.into();
        self
    }
}

impl Transform for RandomErasing {
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        let (_, height, width) = image_size("RandomErasing", image)?;
        if !rng.bernoulli(self.p) {
            return Ok(image.clone());
        }
        for _ in 0..TRIES {
            let area = self.range.draw(height, width, rng);
            if area.height < height && area.width < width {
                let (top, left) = (rng.scaled(height - area.height + 1), rng.scaled(width - area.width + 1));
                let out = image.copy()?;
                crop(&out, top, left, area)?.fill_(self.value)?;
                return Ok(out);
            }
        }
        Ok(image.clone())
    }
}
