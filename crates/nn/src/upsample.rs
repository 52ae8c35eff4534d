//! Resizing.

use crate::python::{float, one_or_tuple};
use crate::{Forward, Module};
use rushlight_core::{Error, Result};
use rushlight_tensor::{InterpolateMode, InterpolateOptions, Sizes, Tensor};

/// Resizes the spatial dimensions to a size or by a factor.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, Upsample};
/// use rushlight::{InterpolateMode, Tensor};
/// let up = Upsample::new().scale_factor([2.0]).mode(InterpolateMode::Bilinear);
/// assert_eq!(up.forward(&Tensor::ones([1, 3, 4, 5])?)?.shape(), [1, 3, 8, 10]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Default, Module)]
#[module(extra_repr = "Self::settings")]
pub struct Upsample {
    #[module(skip)]
    size: Option<Sizes>,
    scale_factor: Vec<f64>,
    #[module(skip)]
    mode: InterpolateMode,
    align_corners: Option<bool>,
    recompute_scale_factor: bool,
}

impl Upsample {
    /// The layer; it needs a [`size`](Upsample::size) or a [`scale_factor`](Upsample::scale_factor).
    pub fn new() -> Self {
        Self::default()
    }

    /// The output's size, one number or one per dimension.
    pub fn size(mut self, size: impl Into<Sizes>) -> Self {
        self.size = Some(size.into());
        self
    }

    /// How many times larger the output is: one number, or one per dimension.
    pub fn scale_factor(mut self, factors: impl AsRef<[f64]>) -> Self {
        self.scale_factor = factors.as_ref().to_vec();
        self
    }

    /// How values between positions are found; [`InterpolateMode::Nearest`] by default.
    pub fn mode(mut self, mode: InterpolateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether corner pixels are aligned by their centres instead of their edges; for the linear modes.
    pub fn align_corners(mut self, align_corners: bool) -> Self {
        self.align_corners = Some(align_corners);
        self
    }

    /// Whether positions follow from the sizes alone and not from the factor; false by default.
    pub fn recompute_scale_factor(mut self, recompute: bool) -> Self {
        self.recompute_scale_factor = recompute;
        self
    }

    fn settings(&self) -> String {
        let target = match self.size {
            Some(size) => format!("size={}", one_or_tuple(size.as_slice())),
            None => {
                let factors: Vec<String> = self.scale_factor.iter().map(|&f| float(f)).collect();
                format!("scale_factor={}", one_or_tuple(&factors))
            }
        };
        let mode = match self.mode {
            InterpolateMode::Nearest => "nearest",
            InterpolateMode::NearestExact => "nearest-exact",
            InterpolateMode::Linear => "linear",
            InterpolateMode::Bilinear => "bilinear",
            InterpolateMode::Bicubic => "bicubic",
            InterpolateMode::Trilinear => "trilinear",
            InterpolateMode::Lanczos => "lanczos",
        };
        format!("{target}, mode='{mode}'")
    }
}

impl Forward for Upsample {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let options = match (self.size, self.scale_factor.as_slice()) {
            (Some(size), []) => InterpolateOptions::size(size),
            (None, factors @ [_, ..]) => InterpolateOptions::scale_factor(factors),
            _ => return Err(Error::value("Upsample: either size or scale_factor must be given, and not both")),
        };
        let options = options.mode(self.mode).align_corners(self.align_corners);
        input
            .interpolate(&options.recompute_scale_factor(self.recompute_scale_factor))
            .map_err(|e| e.within("Upsample"))
    }
}
