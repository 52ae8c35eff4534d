//! Instance normalisation.

use super::{Running, affine, channel_norm_settings};
use crate::{Buffer, Forward, Module, Parameter, Training, factory_options, locate};
use rushlight_core::{Error, Result};
use rushlight_tensor::{InstanceNormOptions, Options, Tensor};

/// Normalises each channel of each sample over `D` spatial dimensions: [`InstanceNorm1d`], [`InstanceNorm2d`],
/// [`InstanceNorm3d`].
#[derive(Module)]
#[module(type_name = "Self::kind", extra_repr = "Self::settings")]
pub struct InstanceNormNd<const D: usize> {
    /// Scale by channel.
    pub weight: Option<Parameter>,
    /// Shift by channel.
    pub bias: Option<Parameter>,
    /// The mean by channel, over batches.
    pub running_mean: Option<Buffer>,
    /// The variance by channel, over batches.
    pub running_var: Option<Buffer>,
    /// Kept for PyTorch's state dicts; never counted, as there.
    pub num_batches_tracked: Option<Buffer>,
    num_features: usize,
    eps: f64,
    momentum: Option<f64>,
    training: Training,
}

/// Instance norm of `[batch, channels, length]`; the batch may be missing.
pub type InstanceNorm1d = InstanceNormNd<1>;
/// Instance norm of `[batch, channels, height, width]`; the batch may be missing.
pub type InstanceNorm2d = InstanceNormNd<2>;
/// Instance norm of `[batch, channels, depth, height, width]`; the batch may be missing.
pub type InstanceNorm3d = InstanceNormNd<3>;

/// The options of an [`InstanceNormNd`].
#[derive(Clone, Debug)]
pub struct InstanceNormNdBuilder<const D: usize> {
    num_features: usize,
    eps: f64,
    momentum: Option<f64>,
    affine: bool,
    bias: bool,
    track_running_stats: bool,
    options: Options,
}

impl<const D: usize> InstanceNormNd<D> {
    /// A norm of `num_features` channels.
    pub fn new(num_features: usize) -> Result<Self> {
        Self::builder(num_features).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](InstanceNormNdBuilder::build).
    pub fn builder(num_features: usize) -> InstanceNormNdBuilder<D> {
        InstanceNormNdBuilder {
            num_features,
            eps: 1e-5,
            momentum: Some(0.1),
            affine: false,
            bias: true,
            track_running_stats: false,
            options: Options::default(),
        }
    }

    fn kind(&self) -> &'static str {
        match D {
            1 => "InstanceNorm1d",
            2 => "InstanceNorm2d",
            _ => "InstanceNorm3d",
        }
    }

    fn settings(&self) -> String {
        let flags = [self.weight.is_some(), self.bias.is_some(), self.running_mean.is_some()];
        channel_norm_settings(self.num_features, self.eps, self.momentum, flags)
    }
}

channel_norm_builder!(InstanceNormNdBuilder for InstanceNormNd {
    momentum: "A batch's weight in the running statistics; 0.1 by default. With `None` they do not change.",
    affine: "Whether to scale and shift; false by default.",
    track_running_stats: "Whether to keep running statistics and evaluate with them; false by default.",
});

impl<const D: usize> Forward for InstanceNormNd<D> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        locate(self, || {
            let (name, rank) = (self.kind(), input.rank());
            if rank != D + 1 && rank != D + 2 {
                return Err(Error::shape(format!(
                    "{name}: expected {}D or {}D input, got shape {:?}",
                    D + 1,
                    D + 2,
                    input.shape()
                )));
            }
            let batched = rank == D + 2;
            if self.weight.is_some() && input.shape()[rank - D - 1] != self.num_features {
                return Err(Error::shape(format!(
                    "{name}: expected {} channels, got input of shape {:?}",
                    self.num_features,
                    input.shape()
                )));
            }
            let options = InstanceNormOptions::default()
                .running_mean(self.running_mean.as_deref())
                .running_var(self.running_var.as_deref())
                .weight(self.weight.as_deref())
                .bias(self.bias.as_deref())
                .use_input_stats(self.training.get() || self.running_mean.is_none())
                .momentum(self.momentum.unwrap_or(0.0))
                .eps(self.eps);
            if batched {
                return input.instance_norm(&options);
            }
            input.unsqueeze(0)?.instance_norm(&options)?.squeeze(0)
        })
    }
}
