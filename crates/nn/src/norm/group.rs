//! Group normalisation.

use super::affine;
use crate::python::{boolean, float};
use crate::{Forward, InModule, Module, Parameter, factory_options};
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::{Options, Tensor};

/// Normalises groups of channels of each sample, then scales and shifts by channel.
#[derive(Module)]
#[module(extra_repr = "Self::settings")]
pub struct GroupNorm {
    /// Scale by channel.
    pub weight: Option<Parameter>,
    /// Shift by channel.
    pub bias: Option<Parameter>,
    num_groups: usize,
    num_channels: usize,
    eps: f64,
}

/// The options of a [`GroupNorm`].
#[derive(Clone, Debug)]
pub struct GroupNormBuilder {
    num_groups: usize,
    num_channels: usize,
    eps: f64,
    affine: bool,
    bias: bool,
    options: Options,
}

impl GroupNorm {
    /// A norm of `num_channels` channels in `num_groups` groups.
    pub fn new(num_groups: usize, num_channels: usize) -> Result<Self> {
        Self::builder(num_groups, num_channels).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](GroupNormBuilder::build).
    pub fn builder(num_groups: usize, num_channels: usize) -> GroupNormBuilder {
        GroupNormBuilder { num_groups, num_channels, eps: 1e-5, affine: true, bias: true, options: Options::default() }
    }

    fn settings(&self) -> String {
        format!(
            "{}, {}, eps={}, affine={}, bias={}",
            self.num_groups,
            self.num_channels,
            float(self.eps),
            boolean(self.weight.is_some()),
            boolean(self.bias.is_some())
        )
    }
}

factory_options!(GroupNormBuilder);

impl GroupNormBuilder {
    setters! {
        /// Added to the variance; 1e-5 by default.
        eps: f64;
        /// Whether to scale and shift; true by default.
        affine: bool;
        /// Whether to shift if it scales; true by default.
        bias: bool;
    }

    /// Makes the layer.
    pub fn build(self) -> Result<GroupNorm> {
        if self.num_groups == 0 || !self.num_channels.is_multiple_of(self.num_groups) {
            return Err(Error::value(format!(
                "GroupNorm: num_channels ({}) must be divisible by num_groups ({})",
                self.num_channels, self.num_groups
            )));
        }
        let (weight, bias) = affine(&[self.num_channels], self.affine, self.affine && self.bias, self.options)?;
        Ok(GroupNorm { weight, bias, num_groups: self.num_groups, num_channels: self.num_channels, eps: self.eps })
    }
}

impl Forward for GroupNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.group_norm(self.num_groups, self.weight.as_deref(), self.bias.as_deref(), self.eps).in_module(self)
    }
}
