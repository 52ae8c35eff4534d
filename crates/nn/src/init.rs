//! Filling parameters with first values: PyTorch's `nn.init`.

use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use std::f64::consts::SQRT_2;

/// Which side of a weight keeps its variance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanMode {
    /// Of the forward pass.
    #[default]
    FanIn,
    /// Of the backward pass.
    FanOut,
}

/// The nonlinearity after a layer; decides the recommended gain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// Nothing: gain 1.
    Linear,
    /// Gain 1.
    Sigmoid,
    /// Gain 5/3.
    Tanh,
    /// Gain √2.
    Relu,
    /// Gain √(2 / (1 + slope²)).
    LeakyRelu(f64),
    /// Gain 3/4.
    Selu,
}

/// The recommended gain for a nonlinearity.
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::Relu => 2f64.sqrt(),
        Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::Selu => 0.75,
    }
}

/// How many inputs and outputs an element of a weight connects.
pub fn fan_in_and_fan_out(tensor: &Tensor) -> Result<(usize, usize)> {
    let [outputs, inputs, receptive @ ..] = tensor.shape() else {
        return Err(Error::value(format!(
            "init: fan in and fan out can not be computed for a tensor with fewer than 2 dimensions (shape {:?})",
            tensor.shape()
        )));
    };
    // A tensor without elements may have sizes whose product no number holds.
    let with_field = |n: usize| receptive.iter().fold(n, |product, &size| product.saturating_mul(size));
    Ok((with_field(*inputs), with_field(*outputs)))
}

/// All zeros.
pub fn zeros_(tensor: &Tensor) -> Result<()> {
    constant_(tensor, 0.0)
}

/// All ones.
pub fn ones_(tensor: &Tensor) -> Result<()> {
    constant_(tensor, 1.0)
}

/// All `value`.
pub fn constant_(tensor: &Tensor, value: f64) -> Result<()> {
    no_grad(|| tensor.fill_(value).map(|_| ()))
}

/// Uniform in `[low, high)`.
pub fn uniform_(tensor: &Tensor, low: f64, high: f64) -> Result<()> {
    no_grad(|| tensor.uniform_(low, high).map(|_| ()))
}

/// Normal.
pub fn normal_(tensor: &Tensor, mean: f64, std: f64) -> Result<()> {
    no_grad(|| tensor.normal_(mean, std).map(|_| ()))
}

/// Glorot and Bengio's uniform: keeps the variance in both directions on average.
pub fn xavier_uniform_(tensor: &Tensor, gain: f64) -> Result<()> {
    let bound = 3f64.sqrt() * xavier_std(tensor, gain)?;
    uniform_(tensor, -bound, bound)
}

/// Glorot and Bengio's normal.
pub fn xavier_normal_(tensor: &Tensor, gain: f64) -> Result<()> {
    normal_(tensor, 0.0, xavier_std(tensor, gain)?)
}

fn xavier_std(tensor: &Tensor, gain: f64) -> Result<f64> {
    let (fan_in, fan_out) = fan_in_and_fan_out(tensor)?;
    // A tensor without elements has no fans, and takes any deviation.
    Ok(gain * (2.0 / fan_in.saturating_add(fan_out).max(1) as f64).sqrt())
}

/// He et al.'s uniform: the initialisation of `Linear` and convolutions, with `Nonlinearity::LeakyRelu(√5)`.
pub fn kaiming_uniform_(tensor: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<()> {
    let bound = 3f64.sqrt() * kaiming_std(tensor, mode, nonlinearity)?;
    uniform_(tensor, -bound, bound)
}

/// He et al.'s normal.
pub fn kaiming_normal_(tensor: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<()> {
    normal_(tensor, 0.0, kaiming_std(tensor, mode, nonlinearity)?)
}

fn kaiming_std(tensor: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<f64> {
    let (fan_in, fan_out) = fan_in_and_fan_out(tensor)?;
    let fan = if mode == FanMode::FanIn { fan_in } else { fan_out };
    // A tensor without elements may have no fan, and takes any deviation.
    Ok(calculate_gain(nonlinearity) / (fan.max(1) as f64).sqrt())
}

/// Normal, truncated to `[a, b]` by drawing again. PyTorch's defaults are 0, 1, -2 and 2.
pub fn trunc_normal_(tensor: &Tensor, mean: f64, std: f64, a: f64, b: f64) -> Result<()> {
    // Written so that NaN fails.
    if !(std > 0.0 && a < b) {
        return Err(Error::value(format!(
            "trunc_normal_: std must be positive and a below b, got std {std}, a {a} and b {b}"
        )));
    }
    no_grad(|| {
        let erf = |x: f64| Tensor::scalar(x)?.to_dtype(DType::F64)?.erf()?.item::<f64>();
        // Between the values that the error function has at the bounds, its inverse is the truncated normal.
        let (low, high) = (erf((a - mean) / std / SQRT_2)?, erf((b - mean) / std / SQRT_2)?);
        let draws = in_float(tensor)?;
        draws.uniform_(low, high)?;
        tensor.copy_(&draws.erfinv()?.mul(std * SQRT_2)?.add(mean)?.clamp(a, b)?).map(|_| ())
    })
}

/// Ones on the diagonal of a matrix, zeros elsewhere.
pub fn eye_(tensor: &Tensor) -> Result<()> {
    let &[rows, columns] = tensor.shape() else {
        return Err(Error::shape(format!("eye_: expected a matrix, got shape {:?}", tensor.shape())));
    };
    no_grad(|| tensor.copy_(&Tensor::eye_with(rows, columns, (tensor.dtype(), tensor.device()))?).map(|_| ()))
}

/// The weight of a convolution that gives its input, in each of `groups` groups, as far as there are channels.
pub fn dirac_(tensor: &Tensor, groups: usize) -> Result<()> {
    let ([outputs, inputs, kernel @ ..], 3..=5) = (tensor.shape(), tensor.rank()) else {
        return Err(Error::shape(format!("dirac_: expected 3, 4 or 5 dimensions, got shape {:?}", tensor.shape())));
    };
    if groups == 0 || !outputs.is_multiple_of(groups) {
        return Err(Error::value(format!("dirac_: dimension 0 ({outputs}) must be divisible by groups ({groups})")));
    }
    let per_group = outputs / groups;
    no_grad(|| {
        tensor.zero_()?;
        if tensor.numel() == 0 {
            return Ok(());
        }
        for (group, channel) in (0..groups).flat_map(|g| (0..per_group.min(*inputs)).map(move |c| (g, c))) {
            let mut place = tensor.select(0, (group * per_group + channel) as isize)?.select(0, channel as isize)?;
            for size in kernel {
                place = place.select(0, (size / 2) as isize)?;
            }
            place.fill_(1.0)?;
        }
        Ok(())
    })
}

/// Rows (or columns, if these are fewer) at right angles and of length `gain`, the dimensions after the first taken as
/// one.
pub fn orthogonal_(tensor: &Tensor, gain: f64) -> Result<()> {
    if tensor.rank() < 2 {
        return Err(Error::shape(format!(
            "orthogonal_: expected 2 or more dimensions, got shape {:?}",
            tensor.shape()
        )));
    }
    if tensor.numel() == 0 {
        return Ok(());
    }
    no_grad(|| {
        let rows = tensor.shape()[0];
        let (rows, columns) = (rows, tensor.numel() / rows);
        let draws = in_float(tensor)?;
        draws.normal_(0.0, 1.0)?;
        let tall =
            if rows < columns { draws.reshape([rows, columns])?.t()? } else { draws.reshape([rows, columns])? };
        let (q, r) = tall.qr(false)?;
        // Signs that make the factorisation unique, and so the result uniform.
        let q = q.mul(&r.diagonal(0, 0, 1)?.sign()?)?;
        let q = if rows < columns { q.t()? } else { q };
        tensor.copy_(&q.reshape(tensor.shape())?.mul(gain)?).map(|_| ())
    })
}

/// Normal, with a fraction `sparsity` of each column of the matrix at zero. PyTorch's default deviation is 0.01.
pub fn sparse_(tensor: &Tensor, sparsity: f64, std: f64) -> Result<()> {
    let &[rows, columns] = tensor.shape() else {
        return Err(Error::shape(format!("sparse_: expected a matrix, got shape {:?}", tensor.shape())));
    };
    if !(0.0..=1.0).contains(&sparsity) {
        return Err(Error::value(format!("sparse_: sparsity must be between 0 and 1, got {sparsity}")));
    }
    let zeros = ((sparsity * rows as f64).ceil() as usize).min(rows);
    no_grad(|| {
        tensor.normal_(0.0, std)?;
        let order = Tensor::rand_with([rows, columns], (DType::F32, tensor.device()))?.argsort(0, false)?;
        tensor.scatter_(0, &order.narrow(0, 0, zeros)?, 0.0).map(|_| ())
    })
}

/// Room to compute for a tensor, in a dtype exact enough.
fn in_float(tensor: &Tensor) -> Result<Tensor> {
    let dtype = if tensor.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    Tensor::empty_with(tensor.shape(), (dtype, tensor.device()))
}

/// A bias of `len` elements as linear and convolutional layers start: uniform within 1/√(fan in of the weight).
pub(crate) fn bias_for(weight: &Tensor, len: usize) -> Result<crate::Parameter> {
    let bias = crate::Parameter::new(&Tensor::zeros_with([len], (weight.dtype(), weight.device()))?)?;
    let (fan_in, _) = fan_in_and_fan_out(weight)?;
    if fan_in > 0 {
        let bound = 1.0 / (fan_in as f64).sqrt();
        uniform_(&bias, -bound, bound)?;
    }
    Ok(bias)
}
