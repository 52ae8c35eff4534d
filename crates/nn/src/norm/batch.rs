//! Batch normalisation.

use super::{Running, affine, channel_norm_settings};
use crate::{Buffer, Forward, Module, Parameter, Training, factory_options, locate};
use rushlight_core::{Error, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{BatchNormOptions, Options, Tensor};

/// Normalises each channel over the batch and `D` spatial dimensions: [`BatchNorm1d`], [`BatchNorm2d`],
/// [`BatchNorm3d`].
///
/// In training by the batch's own statistics, which running ones follow; in evaluation by the running ones.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{BatchNorm2d, Forward, Module};
/// use rushlight::Tensor;
/// let norm = BatchNorm2d::new(3)?;
/// norm.forward(&Tensor::ones([4, 3, 8, 8])?)?;
/// assert_eq!(norm.num_batches_tracked.as_ref().unwrap().item::<i64>()?, 1);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
#[module(type_name = "Self::kind", extra_repr = "Self::settings")]
pub struct BatchNormNd<const D: usize> {
    /// Scale by channel.
    pub weight: Option<Parameter>,
    /// Shift by channel.
    pub bias: Option<Parameter>,
    /// The mean by channel, over batches.
    pub running_mean: Option<Buffer>,
    /// The variance by channel, over batches.
    pub running_var: Option<Buffer>,
    /// How many batches were seen.
    pub num_batches_tracked: Option<Buffer>,
    num_features: usize,
    eps: f64,
    momentum: Option<f64>,
    training: Training,
}

/// Batch norm of `[batch, channels]` or `[batch, channels, length]`.
pub type BatchNorm1d = BatchNormNd<1>;
/// Batch norm of `[batch, channels, height, width]`.
pub type BatchNorm2d = BatchNormNd<2>;
/// Batch norm of `[batch, channels, depth, height, width]`.
pub type BatchNorm3d = BatchNormNd<3>;

/// The options of a [`BatchNormNd`].
#[derive(Clone, Debug)]
pub struct BatchNormNdBuilder<const D: usize> {
    num_features: usize,
    eps: f64,
    momentum: Option<f64>,
    affine: bool,
    bias: bool,
    track_running_stats: bool,
    options: Options,
}

impl<const D: usize> BatchNormNd<D> {
    /// A norm of `num_features` channels.
    pub fn new(num_features: usize) -> Result<Self> {
        Self::builder(num_features).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](BatchNormNdBuilder::build).
    pub fn builder(num_features: usize) -> BatchNormNdBuilder<D> {
        BatchNormNdBuilder {
            num_features,
            eps: 1e-5,
            momentum: Some(0.1),
            affine: true,
            bias: true,
            track_running_stats: true,
            options: Options::default(),
        }
    }

    fn kind(&self) -> &'static str {
        match D {
            1 => "BatchNorm1d",
            2 => "BatchNorm2d",
            _ => "BatchNorm3d",
        }
    }

    fn settings(&self) -> String {
        let flags = [self.weight.is_some(), self.bias.is_some(), self.running_mean.is_some()];
        channel_norm_settings(self.num_features, self.eps, self.momentum, flags)
    }

    /// The batch's weight in the running statistics, the batch being seen now included.
    fn momentum_now(&self) -> Result<f64> {
        match (self.momentum, &self.num_batches_tracked) {
            (Some(momentum), _) => Ok(momentum),
            (None, Some(seen)) => Ok(1.0 / (seen.item::<i64>()?.max(0) as f64 + 1.0)),
            (None, None) => Ok(0.0),
        }
    }
}

channel_norm_builder!(BatchNormNdBuilder for BatchNormNd {
    momentum: "A batch's weight in the running statistics; 0.1 by default. With `None` all batches weigh the same.",
    affine: "Whether to scale and shift; true by default.",
    track_running_stats: "Whether to keep running statistics; true by default. Without them evaluation uses the batch's.",
});

impl<const D: usize> Forward for BatchNormNd<D> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        locate(self, || {
            let rank = input.rank();
            if rank != D + 2 && !(D == 1 && rank == 2) {
                let expected = if D == 1 { "2D or 3D".to_owned() } else { format!("{}D", D + 2) };
                return Err(Error::shape(format!(
                    "{}: expected {expected} input, got shape {:?}",
                    self.kind(),
                    input.shape()
                )));
            }
            let training = self.training.get();
            let options = BatchNormOptions::default()
                .running_mean(self.running_mean.as_deref())
                .running_var(self.running_var.as_deref())
                .weight(self.weight.as_deref())
                .bias(self.bias.as_deref())
                .training(training || self.running_mean.is_none())
                .eps(self.eps);
            if !training {
                return input.batch_norm(&options);
            }
            let output = input.batch_norm(&options.momentum(self.momentum_now()?))?;
            if let Some(seen) = &self.num_batches_tracked {
                no_grad(|| seen.add_(1).map(|_| ()))?;
            }
            Ok(output)
        })
    }
}
