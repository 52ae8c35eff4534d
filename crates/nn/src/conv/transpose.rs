//! Transposed convolutions.

use super::{check_channels, check_positive, parameters, unless};
use crate::python::tuple;
use crate::{Forward, InModule, Module, Parameter, factory_options, locate};
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::{ConvTransposeOptions, Options, Sizes, Tensor};

/// The transpose of a convolution over `D` spatial dimensions: [`ConvTranspose1d`], [`ConvTranspose2d`],
/// [`ConvTranspose3d`].
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{ConvTranspose2d, Forward};
/// use rushlight::Tensor;
/// let up = ConvTranspose2d::builder(8, 3, 3).stride(2).padding(1).output_padding(1).build()?;
/// assert_eq!(up.forward(&Tensor::ones([4, 8, 16, 16])?)?.shape(), [4, 3, 32, 32]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
#[module(type_name = "Self::kind", extra_repr = "Self::settings")]
pub struct ConvTransposeNd<const D: usize> {
    /// `[in_channels, out_channels / groups, kernel..]`.
    pub weight: Parameter,
    /// `[out_channels]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    geometry: Geometry<D>,
}

/// The transpose of a convolution of `[batch, channels, length]`.
pub type ConvTranspose1d = ConvTransposeNd<1>;
/// The transpose of a convolution of `[batch, channels, height, width]`.
pub type ConvTranspose2d = ConvTransposeNd<2>;
/// The transpose of a convolution of `[batch, channels, depth, height, width]`.
pub type ConvTranspose3d = ConvTransposeNd<3>;

/// The settings, checked.
#[derive(Clone, Debug)]
struct Geometry<const D: usize> {
    in_channels: usize,
    out_channels: usize,
    kernel_size: [usize; D],
    stride: [usize; D],
    padding: [usize; D],
    output_padding: [usize; D],
    dilation: [usize; D],
    groups: usize,
}

/// The options of a [`ConvTransposeNd`].
#[derive(Clone, Debug)]
pub struct ConvTransposeNdBuilder<const D: usize> {
    in_channels: usize,
    out_channels: usize,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    dilation: Sizes,
    groups: usize,
    bias: bool,
    options: Options,
}

impl<const D: usize> ConvTransposeNd<D> {
    /// From `in_channels` to `out_channels`; `kernel_size` is one number or one per dimension.
    pub fn new(in_channels: usize, out_channels: usize, kernel_size: impl Into<Sizes>) -> Result<Self> {
        Self::builder(in_channels, out_channels, kernel_size).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](ConvTransposeNdBuilder::build).
    pub fn builder(
        in_channels: usize,
        out_channels: usize,
        kernel_size: impl Into<Sizes>,
    ) -> ConvTransposeNdBuilder<D> {
        ConvTransposeNdBuilder {
            in_channels,
            out_channels,
            kernel_size: kernel_size.into(),
            stride: 1.into(),
            padding: 0.into(),
            output_padding: 0.into(),
            dilation: 1.into(),
            groups: 1,
            bias: true,
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
        text += &unless("padding", &g.padding, 0);
        text += &unless("dilation", &g.dilation, 1);
        text += &unless("output_padding", &g.output_padding, 0);
        if g.groups != 1 {
            text += &format!(", groups={}", g.groups);
        }
        if self.bias.is_none() {
            text += ", bias=False";
        }
        text
    }

    /// The output with these spatial sizes, of the several that a stride above one allows.
    pub fn forward_to(&self, input: &Tensor, output_size: &[usize]) -> Result<Tensor> {
        locate(self, || {
            let (name, g) = (kind::<D>(), &self.geometry);
            if !(D + 1..=D + 2).contains(&input.rank()) || output_size.len() != D {
                return Err(Error::shape(format!(
                    "{name}: output_size takes {D} numbers for an input of {} or {} dimensions, got {output_size:?} for {:?}",
                    D + 1,
                    D + 2,
                    input.shape()
                )));
            }
            let space = &input.shape()[input.rank() - D..];
            let mut output_padding = [0; D];
            for d in 0..D {
                let reach = g.dilation[d].saturating_mul(g.kernel_size[d] - 1).saturating_add(1);
                let smallest = space[d].saturating_sub(1).saturating_mul(g.stride[d]).saturating_add(reach);
                let smallest = smallest.saturating_sub(g.padding[d].saturating_mul(2));
                let extra = output_size[d].checked_sub(smallest).filter(|&extra| extra < g.stride[d]);
                output_padding[d] = extra.ok_or_else(|| {
                    Error::value(format!(
                        "{name}: requested output size {} of spatial dimension {d}, but valid sizes range from {smallest} to {}",
                        output_size[d],
                        smallest.saturating_add(g.stride[d] - 1)
                    ))
                })?;
            }
            self.run(input, output_padding)
        })
    }

    fn run(&self, input: &Tensor, output_padding: [usize; D]) -> Result<Tensor> {
        let g = &self.geometry;
        let options = ConvTransposeOptions::default()
            .stride(g.stride)
            .padding(g.padding)
            .output_padding(output_padding)
            .dilation(g.dilation)
            .groups(g.groups);
        let (weight, bias) = (&self.weight, self.bias.as_deref());
        match D {
            1 => input.conv_transpose1d(weight, bias, options),
            2 => input.conv_transpose2d(weight, bias, options),
            _ => input.conv_transpose3d(weight, bias, options),
        }
    }
}

fn kind<const D: usize>() -> &'static str {
    match D {
        1 => "ConvTranspose1d",
        2 => "ConvTranspose2d",
        _ => "ConvTranspose3d",
    }
}

factory_options!(ConvTransposeNdBuilder<D>);

impl<const D: usize> ConvTransposeNdBuilder<D> {
    setters! {
        /// Stride: distance between the outputs of two neighbouring inputs; 1 by default.
        stride: into Sizes;
        /// Taken off the output on both sides; 0 by default.
        padding: into Sizes;
        /// Added to the output on one side; 0 by default.
        output_padding: into Sizes;
        /// Distance between the kernel's taps; 1 by default.
        dilation: into Sizes;
        /// Independent groups of channels; 1 by default.
        groups: usize;
        /// Whether to add a bias; true by default.
        bias: bool;
    }

    /// Makes the layer, with PyTorch's initial values.
    pub fn build(self) -> Result<ConvTransposeNd<D>> {
        let name = kind::<D>();
        let geometry = Geometry {
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            kernel_size: self.kernel_size.per_dim::<D>(name, "kernel_size")?,
            stride: self.stride.per_dim::<D>(name, "stride")?,
            padding: self.padding.per_dim::<D>(name, "padding")?,
            output_padding: self.output_padding.per_dim::<D>(name, "output_padding")?,
            dilation: self.dilation.per_dim::<D>(name, "dilation")?,
            groups: self.groups,
        };
        let g = &geometry;
        check_channels(name, g.in_channels, g.out_channels, g.groups)?;
        check_positive(name, &[("kernel_size", &g.kernel_size), ("stride", &g.stride), ("dilation", &g.dilation)])?;
        let channels = [g.in_channels, g.out_channels / g.groups];
        let (weight, bias) = parameters(channels, &g.kernel_size, self.bias.then_some(g.out_channels), self.options)?;
        Ok(ConvTransposeNd { weight, bias, geometry })
    }
}

impl<const D: usize> Forward for ConvTransposeNd<D> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.run(input, self.geometry.output_padding).in_module(self)
    }
}
