//! Convolutions.

use super::{check_channels, check_positive, parameters, unless};
use crate::python::tuple;
use crate::{Forward, Module, Parameter, factory_options, locate};
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::{ConvOptions, Options, PadMode, Padding, Sizes, Tensor};

/// Contents of a convolution's padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The input mirrored at its border, which is not repeated.
    Reflect,
    /// The border.
    Replicate,
    /// The input from its other end.
    Circular,
}

impl PaddingMode {
    /// How the input is padded beforehand; zeros are the convolution's own.
    fn pad_mode(self) -> Option<(PadMode, &'static str)> {
        match self {
            PaddingMode::Zeros => None,
            PaddingMode::Reflect => Some((PadMode::Reflect, "reflect")),
            PaddingMode::Replicate => Some((PadMode::Replicate, "replicate")),
            PaddingMode::Circular => Some((PadMode::Circular, "circular")),
        }
    }
}

/// A convolution over `D` spatial dimensions: [`Conv1d`], [`Conv2d`], [`Conv3d`].
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Conv2d, Forward, Module};
/// use rushlight::Tensor;
/// let conv = Conv2d::builder(3, 8, 3).stride(2).padding(1).build()?;
/// assert_eq!(conv.forward(&Tensor::ones([4, 3, 32, 32])?)?.shape(), [4, 8, 16, 16]);
/// assert_eq!(conv.repr(), "Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1))");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
#[module(type_name = "Self::kind", extra_repr = "Self::settings")]
pub struct ConvNd<const D: usize> {
    /// `[out_channels, in_channels / groups, kernel..]`.
    pub weight: Parameter,
    /// `[out_channels]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    geometry: Geometry<D>,
}

/// A convolution of `[batch, channels, length]`.
pub type Conv1d = ConvNd<1>;
/// A convolution of `[batch, channels, height, width]`.
pub type Conv2d = ConvNd<2>;
/// A convolution of `[batch, channels, depth, height, width]`.
pub type Conv3d = ConvNd<3>;

/// The settings, checked.
#[derive(Clone, Debug)]
struct Geometry<const D: usize> {
    in_channels: usize,
    out_channels: usize,
    kernel_size: [usize; D],
    stride: [usize; D],
    padding: Padding,
    dilation: [usize; D],
    groups: usize,
    padding_mode: PaddingMode,
    /// Arguments of [`Tensor::pad`], for modes other than zeros.
    pads: Vec<isize>,
}

/// The options of a [`ConvNd`].
#[derive(Clone, Debug)]
pub struct ConvNdBuilder<const D: usize> {
    in_channels: usize,
    out_channels: usize,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: usize,
    bias: bool,
    padding_mode: PaddingMode,
    options: Options,
}

impl<const D: usize> ConvNd<D> {
    /// A convolution from `in_channels` to `out_channels`; `kernel_size` is one number or one per dimension.
    pub fn new(in_channels: usize, out_channels: usize, kernel_size: impl Into<Sizes>) -> Result<Self> {
        Self::builder(in_channels, out_channels, kernel_size).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](ConvNdBuilder::build).
    pub fn builder(in_channels: usize, out_channels: usize, kernel_size: impl Into<Sizes>) -> ConvNdBuilder<D> {
        ConvNdBuilder {
            in_channels,
            out_channels,
            kernel_size: kernel_size.into(),
            stride: 1.into(),
            padding: 0.into(),
            dilation: 1.into(),
            groups: 1,
            bias: true,
            padding_mode: PaddingMode::Zeros,
            options: Options::default(),
        }
    }

    fn kind(&self) -> &'static str {
        kind::<D>()
    }

    fn settings(&self) -> String {
        let g = &self.geometry;
        let mut text = format!(
            "{}, {}, kernel_size={}, stride={}",
            g.in_channels,
            g.out_channels,
            tuple(&g.kernel_size),
            tuple(&g.stride)
        );
        text += &match g.padding {
            Padding::Zeros(sizes) if sizes.as_slice().len() == 1 => unless("padding", &[sizes.as_slice()[0]; D], 0),
            Padding::Zeros(sizes) => unless("padding", sizes.as_slice(), 0),
            Padding::Same => ", padding=same".to_owned(),
            Padding::Valid => ", padding=valid".to_owned(),
        };
        text += &unless("dilation", &g.dilation, 1);
        if g.groups != 1 {
            text += &format!(", groups={}", g.groups);
        }
        if self.bias.is_none() {
            text += ", bias=False";
        }
        if let Some((_, name)) = g.padding_mode.pad_mode() {
            text += &format!(", padding_mode={name}");
        }
        text
    }
}

fn kind<const D: usize>() -> &'static str {
    match D {
        1 => "Conv1d",
        2 => "Conv2d",
        _ => "Conv3d",
    }
}

factory_options!(ConvNdBuilder<D>);

impl<const D: usize> ConvNdBuilder<D> {
    setters! {
        /// Steps of the kernel; 1 by default.
        stride: into Sizes;
        /// Padding on both sides: numbers, [`Padding::Same`] or [`Padding::Valid`]; 0 by default.
        padding: into Padding;
        /// Distance between the kernel's taps; 1 by default.
        dilation: into Sizes;
        /// Independent groups of channels; 1 by default.
        groups: usize;
        /// Whether to add a bias; true by default.
        bias: bool;
        /// Contents of the padding; zeros by default.
        padding_mode: PaddingMode;
    }

    /// Makes the layer, with PyTorch's initial values.
    pub fn build(self) -> Result<ConvNd<D>> {
        let name = kind::<D>();
        let kernel_size = self.kernel_size.per_dim::<D>(name, "kernel_size")?;
        let stride = self.stride.per_dim::<D>(name, "stride")?;
        let dilation = self.dilation.per_dim::<D>(name, "dilation")?;
        check_channels(name, self.in_channels, self.out_channels, self.groups)?;
        check_positive(name, &[("kernel_size", &kernel_size), ("stride", &stride), ("dilation", &dilation)])?;
        if self.padding == Padding::Same && stride != [1; D] {
            return Err(Error::value(format!("{name}: padding='same' is not supported for strided convolutions")));
        }
        // Before and after each dimension, the last one first.
        let mut pads = Vec::new();
        for d in (0..D).rev() {
            let (before, after) = match self.padding {
                Padding::Zeros(sizes) => {
                    (sizes.per_dim::<D>(name, "padding")?[d], sizes.per_dim::<D>(name, "padding")?[d])
                }
                Padding::Valid => (0, 0),
                Padding::Same => {
                    let total = dilation[d].saturating_mul(kernel_size[d] - 1);
                    (total / 2, total - total / 2)
                }
            };
            pads.extend([before, after].map(|n| isize::try_from(n).unwrap_or(isize::MAX)));
        }
        let channels = [self.out_channels, self.in_channels / self.groups];
        let (weight, bias) = parameters(channels, &kernel_size, self.bias.then_some(self.out_channels), self.options)?;
        let geometry = Geometry {
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            kernel_size,
            stride,
            padding: self.padding,
            dilation,
            groups: self.groups,
            padding_mode: self.padding_mode,
            pads,
        };
        Ok(ConvNd { weight, bias, geometry })
    }
}

impl<const D: usize> Forward for ConvNd<D> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        locate(self, || {
            let g = &self.geometry;
            let options = ConvOptions::default().stride(g.stride).dilation(g.dilation).groups(g.groups);
            let (padded, options) = match g.padding_mode.pad_mode() {
                None => (input.clone(), options.padding(g.padding)),
                Some((mode, _)) => (input.pad(&g.pads, mode).map_err(|e| e.within(kind::<D>()))?, options),
            };
            let (weight, bias) = (&self.weight, self.bias.as_deref());
            match D {
                1 => padded.conv1d(weight, bias, options),
                2 => padded.conv2d(weight, bias, options),
                _ => padded.conv3d(weight, bias, options),
            }
        })
    }
}
