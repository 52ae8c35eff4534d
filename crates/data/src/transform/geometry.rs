//! Crops, flips and borders.

use super::{Size2d, Transform, check_probability, image_size};
use crate::rng::SampleRng;
use rushlight_core::{Error, Result};
use rushlight_tensor::{PadMode, Tensor};

/// The part of an image of a size, from `top` and `left` on.
pub fn crop(image: &Tensor, top: usize, left: usize, size: impl Into<Size2d>) -> Result<Tensor> {
    let (size, (_, height, width)) = (size.into(), image_size("crop", image)?);
    let fits = |start: usize, length: usize, all: usize| start.checked_add(length).is_some_and(|end| end <= all);
    if !fits(top, size.height, height) || !fits(left, size.width, width) {
        return Err(Error::value(format!(
            "crop: {} x {} from ({top}, {left}) on is not within an image of {height} x {width}; pad it first",
            size.height, size.width
        )));
    }
    image.narrow(1, top as isize, size.height)?.narrow(2, left as isize, size.width)
}

/// The image mirrored left to right.
pub fn hflip(image: &Tensor) -> Result<Tensor> {
    image_size("hflip", image)?;
    image.flip([-1])
}

/// The image mirrored top to bottom.
pub fn vflip(image: &Tensor) -> Result<Tensor> {
    image_size("vflip", image)?;
    image.flip([-2])
}

/// The middle of an image; smaller images get a border of zeros first.
pub fn center_crop(image: &Tensor, size: impl Into<Size2d>) -> Result<Tensor> {
    let (size, (_, height, width)) = (size.into(), image_size("center_crop", image)?);
    let (missing_h, missing_w) = (size.height.saturating_sub(height), size.width.saturating_sub(width));
    if missing_h > 0 || missing_w > 0 {
        let border = Border {
            left: missing_w / 2,
            right: missing_w.div_ceil(2),
            top: missing_h / 2,
            bottom: missing_h.div_ceil(2),
        };
        return center_crop(&border.put("center_crop", image, PadMode::default())?, size);
    }
    // torchvision rounds halves to even.
    let middle = |all: usize, part: usize| ((all - part) as f64 / 2.0).round_ties_even() as usize;
    crop(image, middle(height, size.height), middle(width, size.width), size)
}

/// Pixels around an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Border {
    left: usize,
    right: usize,
    top: usize,
    bottom: usize,
}

impl Border {
    fn all(pixels: usize) -> Self {
        Self { left: pixels, right: pixels, top: pixels, bottom: pixels }
    }

    fn put(&self, call: &str, image: &Tensor, mode: PadMode) -> Result<Tensor> {
        let sides = [self.left, self.right, self.top, self.bottom].map(isize::try_from);
        match sides {
            [Ok(left), Ok(right), Ok(top), Ok(bottom)] => {
                image.pad(&[left, right, top, bottom], mode).map_err(|e| e.within(call))
            }
            _ => Err(Error::value(format!("{call}: a border of {self:?} is more than memory can hold"))),
        }
    }
}

/// A border around the image.
#[derive(Clone, Copy, Debug)]
pub struct Pad {
    border: Border,
    mode: PadMode,
}

impl Pad {
    /// A border of zeros on all sides.
    pub fn new(padding: usize) -> Self {
        Self { border: Border::all(padding), mode: PadMode::default() }
    }

    /// A border of zeros with a width for each side.
    pub fn sides(left: usize, top: usize, right: usize, bottom: usize) -> Self {
        Self { border: Border { left, right, top, bottom }, mode: PadMode::default() }
    }

    /// Contents of the border.
    pub fn mode(mut self, mode: PadMode) -> Self {
        self.mode = mode;
        self
    }
}

impl Transform for Pad {
    fn apply(&self, image: &Tensor, _rng: &mut SampleRng) -> Result<Tensor> {
        image_size("Pad", image)?;
        self.border.put("Pad", image, self.mode)
    }
}

/// The middle of the image: see [`center_crop`].
#[derive(Clone, Copy, Debug)]
pub struct CenterCrop(Size2d);

impl CenterCrop {
    /// Crops to a size.
    pub fn new(size: impl Into<Size2d>) -> Self {
        Self(size.into())
    }
}

impl Transform for CenterCrop {
    fn apply(&self, image: &Tensor, _rng: &mut SampleRng) -> Result<Tensor> {
        center_crop(image, self.0)
    }
}

/// A part of the image at a random place.
#[derive(Clone, Copy, Debug)]
pub struct RandomCrop {
    size: Size2d,
    border: Border,
    mode: PadMode,
    pad_if_needed: bool,
}

impl RandomCrop {
    /// Crops to a size.
    pub fn new(size: impl Into<Size2d>) -> Self {
        Self { size: size.into(), border: Border::default(), mode: PadMode::default(), pad_if_needed: false }
    }

    /// A border put around the image first.
    pub fn padding(mut self, padding: usize) -> Self {
        self.border = Border::all(padding);
        self
    }

    /// Contents of the border; zeros by default.
    pub fn padding_mode(mut self, mode: PadMode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether images smaller than the crop get a border as wide as needed, rather than an error.
    pub fn pad_if_needed(mut self, pad: bool) -> Self {
        self.pad_if_needed = pad;
        self
    }
}

impl Transform for RandomCrop {
    fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        let call = "RandomCrop";
        let mut image = image.clone();
        if self.border != Border::default() {
            image_size(call, &image)?;
            image = self.border.put(call, &image, self.mode)?;
        }
        let (_, height, width) = image_size(call, &image)?;
        if self.pad_if_needed {
            let (h, w) = (self.size.height.saturating_sub(height), self.size.width.saturating_sub(width));
            if h > 0 || w > 0 {
                image = Border { left: w, right: w, top: h, bottom: h }.put(call, &image, self.mode)?;
            }
        }
        let (_, height, width) = image_size(call, &image)?;
        match (height.checked_sub(self.size.height), width.checked_sub(self.size.width)) {
            (Some(h), Some(w)) => {
                let (top, left) = (rng.scaled(h + 1), rng.scaled(w + 1));
                crop(&image, top, left, self.size)
            }
            _ => Err(Error::value(format!(
                "RandomCrop: required crop size {} x {} is larger than the image of {height} x {width}; use padding or pad_if_needed",
                self.size.height, self.size.width
            ))),
        }
    }
}

macro_rules! random_flip {
    ($name:ident, $flip:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            p: f64,
        }

        impl $name {
            /// Mirrors with probability `p`.
            pub fn new(p: f64) -> Result<Self> {
                Ok(Self { p: check_probability(stringify!($name), p)? })
            }
        }

        impl Default for $name {
            /// Every other image.
            fn default() -> Self {
                Self { p: 0.5 }
            }
        }

        impl Transform for $name {
            fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
                if rng.bernoulli(self.p) { $flip(image) } else { Ok(image.clone()) }
            }
        }
    };
}
random_flip!(RandomHorizontalFlip, hflip, "Mirrors the image left to right, or not.");
random_flip!(RandomVerticalFlip, vflip, "Mirrors the image top to bottom, or not.");
