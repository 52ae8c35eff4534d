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

    /// Mean and variance of all ranks' batches, and the number of elements per channel.
    fn statistics(&self, x: &Tensor, dims: &[isize]) -> Result<(Tensor, Tensor, Tensor)> {
        let sum = |x: &Tensor| -> Result<Tensor> { Ok(apply(Sum(self.group.clone()), &[x])?.remove(0)) };
        let count = Tensor::full_with([1], (x.numel() / self.features) as f64, (x.dtype(), x.device()))?;
        let first = sum(&rushlight_tensor::cat(&[&x.sum(dims)?, &count], 0)?)?;
        let count = first.narrow(0, self.features as isize, 1)?.detach();
        let mean = first.narrow(0, 0, self.features)?.div(&count)?;
        let apart = x.sub(&self.along_channels(&mean, x.rank())?)?.square()?.sum(dims)?;
        let variance = sum(&apart)?.div(&count)?;
        Ok((mean, variance, count))
    }

    fn along_channels(&self, t: &Tensor, rank: usize) -> Result<Tensor> {
        let mut shape = vec![1; rank];
        shape[1] = self.features;
        t.reshape(&shape)
    }

    fn follow(&self, mean: &Tensor, variance: &Tensor, count: &Tensor) -> Result<()> {
        no_grad(|| {
            let unbiased = variance.detach().mul(&count.div(&count.sub(1)?.clamp_min(1.0)?)?)?;
            for (running, now) in [(&self.running_mean, &mean.detach()), (&self.running_var, &unbiased)] {
                running.mul_(1.0 - self.momentum)?;
                running.add_(&now.to_dtype(running.dtype())?.mul(self.momentum)?)?;
            }
            self.num_batches_tracked.add_(1).map(drop)
        })
    }
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
        // Statistics of half types in single precision.
        let half = matches!(input.dtype(), DType::F16 | DType::BF16);
        let x = if half { input.to_dtype(DType::F32)? } else { input.clone() };
        let dims: Vec<isize> = (0..x.rank() as isize).filter(|&d| d != 1).collect();
        let (mean, variance) = if self.training.get() {
            let (mean, variance, count) = self.statistics(&x, &dims)?;
            self.follow(&mean, &variance, &count)?;
            (mean, variance)
        } else {
            (self.running_mean.tensor().clone(), self.running_var.tensor().clone())
        };
        let wide = |t: &Tensor| self.along_channels(&t.to_dtype(x.dtype())?, x.rank());
        let scale = variance.add(self.eps)?.rsqrt()?;
        let y = x.sub(&wide(&mean)?)?.mul(&wide(&scale)?)?;
        let y = y.mul(&wide(self.weight.tensor())?)?.add(&wide(self.bias.tensor())?)?;
        if half { y.to_dtype(input.dtype()) } else { Ok(y) }
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
