//! Brightness, contrast, saturation, grey.

use super::{Transform, adjust_hue, bound, image_size};
use crate::rng::SampleRng;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::{Tensor, cat};

fn check_factor(call: &str, factor: f64) -> Result<()> {
    if factor >= 0.0 && factor.is_finite() {
        Ok(())
    } else {
        Err(Error::value(format!("{call}: the factor must not be negative, got {factor}")))
    }
}

/// `ratio * image + (1 - ratio) * other`, kept in range, in the image's dtype.
fn blend(image: &Tensor, other: &Tensor, ratio: f64) -> Result<Tensor> {
    let mixed = image.to_dtype(DType::F32)?.mul(ratio)?.add(&other.to_dtype(DType::F32)?.mul(1.0 - ratio)?)?;
    mixed.clamp(0.0, bound(image))?.to_dtype(image.dtype())
}

fn check_channels(call: &str, channels: usize) -> Result<()> {
    match channels {
        1 | 3 => Ok(()),
        n => Err(Error::shape(format!("{call}: expects an image of 1 or 3 channels, got {n}"))),
    }
}

/// A colour image in grey, `[1, height, width]`, by the weights of ITU-R 601; a grey image is unchanged.
pub fn rgb_to_grayscale(image: &Tensor) -> Result<Tensor> {
    let (channels, ..) = image_size("rgb_to_grayscale", image)?;
    check_channels("rgb_to_grayscale", channels)?;
    if channels == 1 {
        return Ok(image.clone());
    }
    let floats = image.to_dtype(DType::F32)?;
    let part = |channel, weight: f64| floats.narrow(0, channel, 1)?.mul(weight);
    part(0, 0.2989)?.add(&part(1, 0.587)?)?.add(&part(2, 0.114)?)?.to_dtype(image.dtype())
}

/// The image brighter (above 1) or darker (below 1); 0 is black.
pub fn adjust_brightness(image: &Tensor, factor: f64) -> Result<Tensor> {
    image_size("adjust_brightness", image)?;
    check_factor("adjust_brightness", factor)?;
    blend(image, &image.zeros_like()?, factor)
}

/// The image with more (above 1) or less contrast; 0 is all grey.
pub fn adjust_contrast(image: &Tensor, factor: f64) -> Result<Tensor> {
    check_factor("adjust_contrast", factor)?;
    let mean = rgb_to_grayscale(image).map_err(|e| e.within("adjust_contrast"))?.to_dtype(DType::F32)?.mean(..)?;
    blend(image, &mean, factor)
}

/// The image with more (above 1) or less colour; 0 is grey.
pub fn adjust_saturation(image: &Tensor, factor: f64) -> Result<Tensor> {
    check_factor("adjust_saturation", factor)?;
    let grey = rgb_to_grayscale(image).map_err(|e| e.within("adjust_saturation"))?;
    if image.shape()[0] == 1 { Ok(image.clone()) } else { blend(image, &grey, factor) }
}

/// The image in grey, with one or three equal channels.
#[derive(Clone, Copy, Debug)]
pub struct Grayscale {
    channels: usize,
}

impl Grayscale {
    /// Grey with `channels` channels, 1 or 3.
    pub fn new(channels: usize) -> Result<Self> {
        check_channels("Grayscale", channels)?;
        Ok(Self { channels })
    }
}

impl Transform for Grayscale {
    fn apply(&self, image: &Tensor, _rng: &mut SampleRng) -> Result<Tensor> {
        let grey = rgb_to_grayscale(image)?;
        if self.channels == 3 { cat(&[&grey, &grey, &grey], 0) } else { Ok(grey) }
    }
}

/// Brightness, contrast, saturation and hue changed at random, in random order.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColorJitter {
    brightness: Option<(f64, f64)>,
    contrast: Option<(f64, f64)>,
    saturation: Option<(f64, f64)>,
    hue: Option<(f64, f64)>,
}

impl ColorJitter {
    /// Factors between `1 - x` (at least 0) and `1 + x`; for the hue, a shift between `-x` and `x`, at most a half.
    pub fn new(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Result<Self> {
        let around_one = |name: &str, x: f64| match x {
            0.0 => Ok(None),
            x if x > 0.0 && x.is_finite() => Ok(Some(((1.0 - x).max(0.0), 1.0 + x))),
            x => Err(Error::value(format!("ColorJitter: {name} must not be negative, got {x}"))),
        };
        let hue = match hue {
            0.0 => None,
            x if x > 0.0 && x <= 0.5 => Some((-x, x)),
            x => return Err(Error::value(format!("ColorJitter: hue must be between 0 and 0.5, got {x}"))),
        };
        Ok(Self {
            brightness: around_one("brightness", brightness)?,
            contrast: around_one("contrast", contrast)?,
            saturation: around_one("saturation", saturation)?,
            hue,
        })
    }
}

impl Transform for ColorJitter {
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        type Adjust = fn(&Tensor, f64) -> Result<Tensor>;
        let steps: [(Option<(f64, f64)>, Adjust); 4] = [
            (self.brightness, adjust_brightness),
            (self.contrast, adjust_contrast),
            (self.saturation, adjust_saturation),
            (self.hue, adjust_hue),
        ];
        let order = rng.permutation(steps.len());
        let factors = steps.map(|(range, _)| range.map(|(low, high)| rng.between(low, high)));
        order.into_iter().try_fold(image.clone(), |image, i| match factors[i] {
            Some(factor) => steps[i].1(&image, factor),
            None => Ok(image),
        })
    }
}
