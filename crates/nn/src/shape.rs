//! Layers that only rearrange.

use crate::python::tuple;
use crate::{Forward, Module};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;

/// Gives its input.
#[derive(Clone, Copy, Default, Module)]
pub struct Identity;

impl Identity {
    /// The layer, which is also the value `Identity`.
    pub fn new() -> Self {
        Self
    }
}

impl Forward for Identity {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(input.clone())
    }
}

/// Merges dimensions into one; all but the batch's by default.
#[derive(Clone, Copy, Module)]
#[module(extra_repr = "Self::settings")]
pub struct Flatten {
    start_dim: isize,
    end_dim: isize,
}

impl Flatten {
    /// Dimensions from the second to the last.
    pub fn new() -> Self {
        Self { start_dim: 1, end_dim: -1 }
    }

    /// The first dimension to merge; 1 by default.
    pub fn start_dim(mut self, start_dim: isize) -> Self {
        self.start_dim = start_dim;
        self
    }

    /// The last dimension to merge; -1 by default.
    pub fn end_dim(mut self, end_dim: isize) -> Self {
        self.end_dim = end_dim;
        self
    }

    fn settings(&self) -> String {
        format!("start_dim={}, end_dim={}", self.start_dim, self.end_dim)
    }
}

impl Default for Flatten {
    fn default() -> Self {
        Self::new()
    }
}

impl Forward for Flatten {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.flatten(self.start_dim, self.end_dim)
    }
}

/// Splits a dimension into several.
#[derive(Clone, Module)]
#[module(extra_repr = "Self::settings")]
pub struct Unflatten {
    dim: isize,
    unflattened_size: Vec<isize>,
}

impl Unflatten {
    /// `dim` becomes dimensions of these sizes, one of which may be -1.
    pub fn new(dim: isize, unflattened_size: impl Into<Vec<isize>>) -> Self {
        Self { dim, unflattened_size: unflattened_size.into() }
    }

    fn settings(&self) -> String {
        format!("dim={}, unflattened_size={}", self.dim, tuple(&self.unflattened_size))
    }
}

impl Forward for Unflatten {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.unflatten(self.dim, self.unflattened_size.as_slice())
    }
}

/// Channels, height and width of an image tensor, for the layers that trade one for the others.
fn image_sizes(name: &str, input: &Tensor) -> Result<[usize; 3]> {
    match input.shape() {
        [.., channels, height, width] => Ok([*channels, *height, *width]),
        shape => {
            Err(Error::shape(format!("{name}: expected input to have at least 3 dimensions, got shape {shape:?}")))
        }
    }
}

/// The leading sizes of an image tensor followed by these.
fn with_lead(input: &Tensor, sizes: &[usize]) -> Vec<usize> {
    let lead = input.rank().saturating_sub(3);
    [&input.shape()[..lead], sizes].concat()
}

/// The order that leaves the leading dimensions and puts the last ones in `order`.
fn reordered(rank: usize, order: &[usize]) -> Vec<isize> {
    let lead = rank - order.len();
    (0..lead).chain(order.iter().map(|o| lead + o)).map(|d| d as isize).collect()
}

/// `[.., channels · r², height, width]` as `[.., channels, height · r, width · r]`.
#[derive(Clone, Copy, Module)]
#[module(extra_repr = "Self::settings")]
pub struct PixelShuffle {
    upscale_factor: usize,
}

impl PixelShuffle {
    /// The layer for a factor.
    pub fn new(upscale_factor: usize) -> Self {
        Self { upscale_factor }
    }

    fn settings(&self) -> String {
        format!("upscale_factor={}", self.upscale_factor)
    }
}

impl Forward for PixelShuffle {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let [channels, height, width] = image_sizes("PixelShuffle", input)?;
        let r = self.upscale_factor;
        let square = r.checked_mul(r).filter(|&square| square > 0 && channels.is_multiple_of(square));
        let Some(square) = square else {
            return Err(Error::shape(format!(
                "PixelShuffle: expected the channels to be divisible by the square of upscale_factor {r}, got input of shape {:?}",
                input.shape()
            )));
        };
        let out = channels / square;
        let parts = input.reshape(&with_lead(input, &[out, r, r, height, width]))?;
        let parts = parts.permute(reordered(parts.rank(), &[0, 3, 1, 4, 2]))?;
        parts.reshape(&with_lead(input, &[out, height.saturating_mul(r), width.saturating_mul(r)]))
    }
}

/// The reverse of [`PixelShuffle`].
#[derive(Clone, Copy, Module)]
#[module(extra_repr = "Self::settings")]
pub struct PixelUnshuffle {
    downscale_factor: usize,
}

impl PixelUnshuffle {
    /// The layer for a factor.
    pub fn new(downscale_factor: usize) -> Self {
        Self { downscale_factor }
    }

    fn settings(&self) -> String {
        format!("downscale_factor={}", self.downscale_factor)
    }
}

impl Forward for PixelUnshuffle {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let [channels, height, width] = image_sizes("PixelUnshuffle", input)?;
        let r = self.downscale_factor;
        if r == 0 || !height.is_multiple_of(r) || !width.is_multiple_of(r) {
            return Err(Error::shape(format!(
                "PixelUnshuffle: expected height and width to be divisible by downscale_factor {r}, got input of shape {:?}",
                input.shape()
            )));
        }
        let (height, width) = (height / r, width / r);
        let parts = input.reshape(&with_lead(input, &[channels, height, r, width, r]))?;
        let parts = parts.permute(reordered(parts.rank(), &[0, 2, 4, 1, 3]))?;
        parts.reshape(&with_lead(input, &[channels.saturating_mul(r * r), height, width]))
    }
}

/// Takes the channels of `[batch, channels, ..]` in turn from each of several groups.
#[derive(Clone, Copy, Module)]
#[module(extra_repr = "Self::settings")]
pub struct ChannelShuffle {
    groups: usize,
}

impl ChannelShuffle {
    /// The layer for a number of groups.
    pub fn new(groups: usize) -> Self {
        Self { groups }
    }

    fn settings(&self) -> String {
        format!("groups={}", self.groups)
    }
}

impl Forward for ChannelShuffle {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let [batch, channels, space @ ..] = input.shape() else {
            return Err(Error::shape(format!(
                "ChannelShuffle: expected input with at least 2 dimensions, got shape {:?}",
                input.shape()
            )));
        };
        if self.groups == 0 || !channels.is_multiple_of(self.groups) {
            return Err(Error::shape(format!(
                "ChannelShuffle: the number of channels must be divisible by groups {}, got {channels} channels",
                self.groups
            )));
        }
        let grouped = [&[*batch, self.groups, channels / self.groups][..], space].concat();
        input.reshape(&grouped)?.transpose(1, 2)?.reshape(input.shape())
    }
}
