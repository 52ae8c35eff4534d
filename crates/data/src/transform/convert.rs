//! From bytes to normalised floats.

use super::{Transform, image_size};
use crate::rng::SampleRng;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

/// Bytes to floats in `[0, 1]`; floats are unchanged.
///
/// The images of this crate are `[channels, height, width]` already; [`ToTensor::hwc`] takes
/// `[height, width, channels]`, as decoders and NumPy have them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToTensor {
    hwc: bool,
}

impl ToTensor {
    /// For images with the channels last.
    pub fn hwc() -> Self {
        Self { hwc: true }
    }
}

impl Transform for ToTensor {
    fn apply(&self, image: &Tensor, _rng: &mut SampleRng) -> Result<Tensor> {
        image_size("ToTensor", image)?;
        let image = if self.hwc { image.permute([2, 0, 1])?.contiguous()? } else { image.clone() };
        match image.dtype() {
            DType::U8 => image.to_dtype(DType::F32)?.div(255.0),
            _ => Ok(image),
        }
    }
}

/// `(x - mean) / std`, channel by channel.
#[derive(Clone)]
pub struct Normalize {
    mean: Tensor,
    std: Tensor,
}

impl Normalize {
    /// Means and standard deviations, one per channel.
    pub fn new(mean: impl AsRef<[f64]>, std: impl AsRef<[f64]>) -> Result<Self> {
        let (mean, std) = (mean.as_ref(), std.as_ref());
        if mean.len() != std.len() || mean.is_empty() {
            return Err(Error::value(format!(
                "Normalize: needs as many means as standard deviations, at least one; got {} and {}",
                mean.len(),
                std.len()
            )));
        }
        let zero = |s: &&f64| (**s as f32) == 0.0 || !s.is_finite();
        if let Some(bad) = std.iter().find(zero) {
            return Err(Error::value(format!("Normalize: a standard deviation of {bad} leads to division by zero")));
        }
        let column = |v: &[f64]| {
            let v: Vec<f32> = v.iter().map(|&x| x as f32).collect();
            Tensor::from_slice(&v, [v.len(), 1, 1])
        };
        Ok(Self { mean: column(mean)?, std: column(std)? })
    }
}

impl Transform for Normalize {
    fn apply(&self, image: &Tensor, _rng: &mut SampleRng) -> Result<Tensor> {
        let (channels, ..) = image_size("Normalize", image)?;
        if image.dtype() != DType::F32 {
            return Err(Error::dtype(format!(
                "Normalize: expects a float image, got {}; put ToTensor before it",
                image.dtype()
            )));
        }
        let given = self.mean.shape()[0];
        if given != 1 && given != channels {
            return Err(Error::shape(format!("Normalize: {given} means for an image of {channels} channels")));
        }
        let out = image.sub(&self.mean)?;
        out.div_(&self.std)?;
        Ok(out)
    }
}
