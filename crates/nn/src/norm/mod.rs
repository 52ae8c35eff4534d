//! Normalisation layers.

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
