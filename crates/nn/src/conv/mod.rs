//! Convolutions and their transposes, over one to three spatial dimensions.

mod plain;
mod transpose;

pub use plain::{Conv1d, Conv2d, Conv3d, ConvNd, ConvNdBuilder, PaddingMode};
pub use transpose::{ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeNd, ConvTransposeNdBuilder};

use crate::Parameter;
use crate::init::{self, FanMode, Nonlinearity};
use crate::python::tuple;
use rushlight_core::{Error, Result};
use rushlight_tensor::{Options, Tensor};

/// Sizes must split evenly into groups.
fn check_channels(name: &str, in_channels: usize, out_channels: usize, groups: usize) -> Result<()> {
    if groups == 0 {
        return Err(Error::value(format!("{name}: groups must be a positive integer")));
    }
    for (what, channels) in [("in_channels", in_channels), ("out_channels", out_channels)] {
        if !channels.is_multiple_of(groups) {
            return Err(Error::value(format!("{name}: {what} {channels} must be divisible by groups {groups}")));
        }
    }
    Ok(())
}

/// Kernels, strides and dilations of zero mean nothing.
fn check_positive(name: &str, sizes: &[(&str, &[usize])]) -> Result<()> {
    match sizes.iter().find(|(_, values)| values.contains(&0)) {
        Some((what, values)) => Err(Error::value(format!("{name}: {what} must not be zero, got {values:?}"))),
        None => Ok(()),
    }
}

/// A weight and perhaps a bias with PyTorch's first values.
fn parameters(
    channels: [usize; 2],
    kernel_size: &[usize],
    bias: Option<usize>,
    options: Options,
) -> Result<(Parameter, Option<Parameter>)> {
    let weight = Parameter::new(&Tensor::empty_with([&channels[..], kernel_size].concat(), options)?)?;
    init::kaiming_uniform_(&weight, FanMode::FanIn, Nonlinearity::LeakyRelu(5f64.sqrt()))?;
    let bias = bias.map(|len| init::bias_for(&weight, len)).transpose()?;
    Ok((weight, bias))
}

/// `, what=(…)` unless all are `default`.
fn unless(what: &str, values: &[usize], default: usize) -> String {
    if values.iter().all(|&v| v == default) { String::new() } else { format!(", {what}={}", tuple(values)) }
}
