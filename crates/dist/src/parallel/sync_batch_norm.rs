//! Batch normalisation by the statistics of all ranks' batches.

use crate::comm::ReduceOp;
use crate::group::ProcessGroup;
use rushlight_core::{DType, Error, Result};
use rushlight_nn::{Buffer, Forward, Member, MemberMut, Module, Parameter, Training};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Context, Function, apply, no_grad};
use std::sync::Arc;

/// The sum over all ranks, whose derivative is the sum over all ranks too.
struct Sum(Arc<dyn ProcessGroup>);

impl Sum {
    fn of(&self, x: &Tensor) -> Result<Tensor> {
        let out = x.detach().copy()?;
        self.0.all_reduce(&out, ReduceOp::Sum)?;
        Ok(out)
    }
}

impl Function for Sum {
    fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![self.of(inputs[0])?])
    }

    fn backward(&self, _: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![grads[0].as_ref().map(|dy| no_grad(|| self.of(dy))).transpose()?])
    }

    fn name(&self) -> &'static str {
        "all_reduce"
    }
}

/// Normalises each channel over the batches of all ranks of a group and all spatial dimensions.
///
/// Training uses the statistics of all ranks and updates the running ones; evaluation uses the running ones, as
/// `BatchNorm1d` to `BatchNorm3d` do, whose state dicts it shares. Ranks may have batches of different sizes.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; pub use rushlight_dist as dist; }
/// use rushlight::dist::SyncBatchNorm;
/// use rushlight::nn::Forward;
/// let world = rushlight::dist::init()?;
/// let norm = SyncBatchNorm::new(3, world.group().clone())?;
/// let y = norm.forward(&rushlight::Tensor::ones([4, 3, 8, 8])?)?;
/// assert_eq!(y.shape(), [4, 3, 8, 8]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct SyncBatchNorm {
    /// Scale by channel.
    pub weight: Parameter,
    /// Shift by channel.
    pub bias: Parameter,
    /// The mean by channel, over batches.
    pub running_mean: Buffer,
    /// The variance by channel, over batches.
    pub running_var: Buffer,
    /// Number of batches seen.
    pub num_batches_tracked: Buffer,
    group: Arc<dyn ProcessGroup>,
    features: usize,
    eps: f64,
    momentum: f64,
    training: Training,
}

impl SyncBatchNorm {
    /// A norm of `num_features` channels, with PyTorch's defaults: an `eps` of 1e-5, a momentum of 0.1.
    pub fn new(num_features: usize, group: Arc<dyn ProcessGroup>) -> Result<Self> {
        Ok(Self {
            weight: Parameter::new(&Tensor::ones([num_features])?)?,
            bias: Parameter::new(&Tensor::zeros([num_features])?)?,
            running_mean: Buffer::new(Tensor::zeros([num_features])?),
            running_var: Buffer::new(Tensor::ones([num_features])?),
            num_batches_tracked: Buffer::new(Tensor::zeros_with([], DType::I64)?),
            group,
            features: num_features,
            eps: 1e-5,
            momentum: 0.1,
            training: Training::default(),
        })
    }

    /// Added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// A batch's weight in the running statistics.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }
}

/// The running mean and variance of a batch norm, and a batch's weight in them.
type Running<'a> = (&'a Tensor, &'a Tensor, f64);

/// Half types are normalised in single precision.
fn widened(input: &Tensor) -> Result<Tensor> {
    match input.dtype() {
        DType::F16 | DType::BF16 => input.to_dtype(DType::F32),
        _ => Ok(input.clone()),
    }
}

/// A value for each channel, of the rank of `x`.
fn along_channels(t: &Tensor, x: &Tensor) -> Result<Tensor> {
    let mut shape = vec![1; x.rank()];
    shape[1] = t.numel();
    t.to_dtype(x.dtype())?.reshape(&shape)
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias`, from `centred`, which is `x - mean`.
fn scaled(
    centred: &Tensor,
    variance: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let mut y = centred.mul(&along_channels(&variance.add(eps)?.rsqrt()?, centred)?)?;
    if let Some(weight) = weight {
        y = y.mul(&along_channels(weight, centred)?)?;
    }
    if let Some(bias) = bias {
        y = y.add(&along_channels(bias, centred)?)?;
    }
    Ok(y)
}

/// Normalises each channel by the statistics of all ranks' batches, which `running` follows. Ranks may have batches of
/// different sizes.
pub fn sync_batch_norm(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running: Option<Running>,
    eps: f64,
    group: &Arc<dyn ProcessGroup>,
) -> Result<Tensor> {
    if input.rank() < 2 {
        return Err(Error::shape(format!("expected at least 2D input (got {}D input)", input.rank())));
    }
    let (x, channels) = (widened(input)?, input.shape()[1]);
    let dims: Vec<isize> = (0..x.rank() as isize).filter(|&d| d != 1).collect();
    let sum = |x: &Tensor| -> Result<Tensor> { Ok(apply(Sum(group.clone()), &[x])?.remove(0)) };
    let own = Tensor::full_with([1], (x.numel() / channels.max(1)) as f64, (x.dtype(), x.device()))?;
    let first = sum(&rushlight_tensor::cat(&[&x.sum(&dims[..])?, &own], 0)?)?;
    let count = first.narrow(0, channels as isize, 1)?.detach();
    let mean = first.narrow(0, 0, channels)?.div(&count)?;
    let centred = x.sub(&along_channels(&mean, &x)?)?;
    let variance = sum(&centred.square()?.sum(&dims[..])?)?.div(&count)?;
    if let Some((running_mean, running_var, momentum)) = running {
        no_grad(|| {
            let unbiased = variance.detach().mul(&count.div(&count.sub(1)?.clamp_min(1.0)?)?)?;
            for (running, now) in [(running_mean, &mean.detach()), (running_var, &unbiased)] {
                running.mul_(1.0 - momentum)?;
                running.add_(&now.to_dtype(running.dtype())?.mul(momentum)?)?;
            }
            Ok(())
        })?;
    }
    scaled(&centred, &variance, weight, bias, eps)?.to_dtype(input.dtype())
}

impl Forward for SyncBatchNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if input.rank() < 2 || input.shape()[1] != self.features {
            return Err(Error::shape(format!(
                "SyncBatchNorm: expected at least 2 dimensions with {} channels, got shape {:?}",
                self.features,
                input.shape()
            )));
        }
        let (weight, bias) = (Some(self.weight.tensor()), Some(self.bias.tensor()));
        let (mean, var) = (self.running_mean.tensor(), self.running_var.tensor());
        if self.training.get() {
            no_grad(|| self.num_batches_tracked.add_(1).map(drop))?;
            return sync_batch_norm(input, weight, bias, Some((mean, var, self.momentum)), self.eps, &self.group);
        }
        let x = widened(input)?;
        scaled(&x.sub(&along_channels(mean, &x)?)?, var, weight, bias, self.eps)?.to_dtype(input.dtype())
    }
}

impl Module for SyncBatchNorm {
    fn type_name(&self) -> &'static str {
        "SyncBatchNorm"
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        visit("weight", Member::Parameter(&self.weight));
        visit("bias", Member::Parameter(&self.bias));
        visit("running_mean", Member::Buffer(&self.running_mean));
        visit("running_var", Member::Buffer(&self.running_var));
        visit("num_batches_tracked", Member::Buffer(&self.num_batches_tracked));
        visit("training", Member::Training(&self.training));
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        visit("weight", MemberMut::Parameter(&mut self.weight));
        visit("bias", MemberMut::Parameter(&mut self.bias));
        visit("running_mean", MemberMut::Buffer(&mut self.running_mean));
        visit("running_var", MemberMut::Buffer(&mut self.running_var));
        visit("num_batches_tracked", MemberMut::Buffer(&mut self.num_batches_tracked));
    }
}
