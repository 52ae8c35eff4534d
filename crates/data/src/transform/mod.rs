//! Image transforms, with the names and rules of `torchvision.transforms`.
//!
//! An image is a tensor `[channels, height, width]` of `uint8` in `0..=255` or `float32` in `[0, 1]`. Random transforms
//! draw from the sample's own stream, so a loader gives the same batches with any number of workers.

mod color;
mod convert;
mod geometry;
mod hue;
mod random_area;
mod resize;

pub use color::{ColorJitter, Grayscale, adjust_brightness, adjust_contrast, adjust_saturation, rgb_to_grayscale};
pub use convert::{Normalize, ToTensor};
pub use geometry::{
    CenterCrop, Pad, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip, center_crop, crop, hflip, vflip,
};
pub use hue::adjust_hue;
pub use random_area::{RandomErasing, RandomResizedCrop};
pub use resize::{Resize, resize};

use crate::rng::SampleRng;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// A change made to an image.
pub trait Transform: Send + Sync {
    /// The transformed image. Random transforms draw from `rng`.
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor>;
}

impl<T: Transform + ?Sized> Transform for Box<T> {
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        (**self).apply(image, rng)
    }
}

impl<T: Transform + ?Sized> Transform for Arc<T> {
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        (**self).apply(image, rng)
    }
}

/// Transforms one after the other.
///
/// ```
/// # mod rushlight {
/// #     pub use rushlight_core::DType;
/// #     pub use rushlight_tensor::*;
/// #     pub use rushlight_data as data;
/// # }
/// use rushlight::data::SampleRng;
/// use rushlight::data::transform::{Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor, Transform};
/// use rushlight::DType;
/// use rushlight::Tensor;
/// let augment = Compose::new()
///     .then(RandomCrop::new(32).padding(4))
///     .then(RandomHorizontalFlip::default())
///     .then(ToTensor::default())
///     .then(Normalize::new([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])?);
/// let image = Tensor::zeros_with([3, 32, 32], DType::U8)?;
/// let x = augment.apply(&image, &mut SampleRng::new(0))?;
/// assert_eq!((x.shape(), x.dtype()), (&[3, 32, 32][..], DType::F32));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Default)]
pub struct Compose(Vec<Box<dyn Transform>>);

impl Compose {
    /// No transform.
    pub fn new() -> Self {
        Self::default()
    }

    /// These, then another.
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.push(transform);
        self
    }

    /// Adds a transform at the end.
    pub fn push(&mut self, transform: impl Transform + 'static) {
        self.0.push(Box::new(transform));
    }
}

impl Transform for Compose {
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        self.0.iter().try_fold(image.clone(), |image, transform| transform.apply(&image, rng))
    }
}

/// A function as a transform.
pub struct Lambda<F>(F);

impl<F: Fn(&Tensor, &mut SampleRng) -> Result<Tensor> + Send + Sync> Lambda<F> {
    /// The function gets the image and the sample's random numbers.
    pub fn new(function: F) -> Self {
        Self(function)
    }
}

impl<F: Fn(&Tensor, &mut SampleRng) -> Result<Tensor> + Send + Sync> Transform for Lambda<F> {
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        (self.0)(image, rng)
    }
}

/// Channels, height and width of an image.
fn image_size(call: &str, image: &Tensor) -> Result<(usize, usize, usize)> {
    match (image.shape(), image.dtype()) {
        (&[c, h, w], DType::U8 | DType::F32) => Ok((c, h, w)),
        (shape, dtype) => Err(Error::shape(format!(
            "{call}: expects an image [channels, height, width] of uint8 or float32, got shape {shape:?} of {dtype}"
        ))),
    }
}

/// A height and a width, or one number for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size2d {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl From<usize> for Size2d {
    fn from(side: usize) -> Self {
        Self { height: side, width: side }
    }
}

impl From<[usize; 2]> for Size2d {
    fn from([height, width]: [usize; 2]) -> Self {
        Self { height, width }
    }
}

/// Largest value of an image of a dtype.
fn bound(image: &Tensor) -> f64 {
    if image.dtype() == DType::U8 { 255.0 } else { 1.0 }
}

/// A probability, checked when it is used.
fn check_probability(call: &str, p: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&p) {
        Ok(p)
    } else {
        Err(Error::value(format!("{call}: the probability must be between 0 and 1, got {p}")))
    }
}
