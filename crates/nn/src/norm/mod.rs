//! Normalisation layers.

/// The builder of a channel-wise norm. Batch and instance norm differ in their defaults, which the docs name.
macro_rules! channel_norm_builder {
    ($builder:ident for $layer:ident { momentum: $momentum:literal, affine: $affine:literal, track_running_stats: $track:literal, }) => {
        factory_options!($builder<D>);

        impl<const D: usize> $builder<D> {
            /// Added to the variance; 1e-5 by default.
            pub fn eps(mut self, eps: f64) -> Self {
                self.eps = eps;
                self
            }

            #[doc = $momentum]
            pub fn momentum(mut self, momentum: impl Into<Option<f64>>) -> Self {
                self.momentum = momentum.into();
                self
            }

            #[doc = $affine]
            pub fn affine(mut self, affine: bool) -> Self {
                self.affine = affine;
                self
            }

            /// Whether to shift if it scales; true by default.
            pub fn bias(mut self, bias: bool) -> Self {
                self.bias = bias;
                self
            }

            #[doc = $track]
            pub fn track_running_stats(mut self, track_running_stats: bool) -> Self {
                self.track_running_stats = track_running_stats;
                self
            }

            /// Makes the layer.
            pub fn build(self) -> Result<$layer<D>> {
                let (weight, bias) = affine(&[self.num_features], self.affine, self.affine && self.bias, self.options)?;
                let running =
                    if self.track_running_stats { Some(Running::new(self.num_features, self.options)?) } else { None };
                let (mean, var, batches) =
                    running.map_or((None, None, None), |r| (Some(r.mean), Some(r.var), Some(r.batches)));
                Ok($layer {
                    weight,
                    bias,
                    running_mean: mean,
                    running_var: var,
                    num_batches_tracked: batches,
                    num_features: self.num_features,
                    eps: self.eps,
                    momentum: self.momentum,
                    training: Training::default(),
                })
            }
        }
    };
}

mod batch;
mod group;
mod instance;
mod layer;

pub use batch::{BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormNd, BatchNormNdBuilder};
pub use group::{GroupNorm, GroupNormBuilder};
pub use instance::{InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, InstanceNormNd, InstanceNormNdBuilder};
pub use layer::{LayerNorm, LayerNormBuilder, NormalizedShape, RMSNorm, RMSNormBuilder};

use crate::python::{boolean, float, optional_float};
use crate::{Buffer, Parameter};
use rushlight_core::{DType, Result};
use rushlight_tensor::{Options, Tensor};

/// Ones and zeros to scale and shift with.
fn affine(
    shape: &[usize],
    weight: bool,
    bias: bool,
    options: Options,
) -> Result<(Option<Parameter>, Option<Parameter>)> {
    let weight = if weight { Some(Parameter::new(&Tensor::ones_with(shape, options)?)?) } else { None };
    let bias = if bias { Some(Parameter::new(&Tensor::zeros_with(shape, options)?)?) } else { None };
    Ok((weight, bias))
}

/// The statistics of a channel-wise norm over time.
#[derive(Clone)]
struct Running {
    mean: Buffer,
    var: Buffer,
    batches: Buffer,
}

impl Running {
    fn new(num_features: usize, options: Options) -> Result<Self> {
        let mean = Tensor::zeros_with([num_features], options)?;
        let batches = Tensor::zeros_with([0usize; 0], (DType::I64, mean.device()))?;
        Ok(Self {
            var: Buffer::new(Tensor::ones_with([num_features], options)?),
            mean: Buffer::new(mean),
            batches: Buffer::new(batches),
        })
    }
}

/// Printed settings of batch and instance norm.
fn channel_norm_settings(
    num_features: usize,
    eps: f64,
    momentum: Option<f64>,
    [affine, bias, track]: [bool; 3],
) -> String {
    format!(
        "{num_features}, eps={}, momentum={}, affine={}, bias={}, track_running_stats={}",
        float(eps),
        optional_float(momentum),
        boolean(affine),
        boolean(bias),
        boolean(track)
    )
}
