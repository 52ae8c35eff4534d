//! Filling parameters with first values: PyTorch's `nn.init`.

use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;

/// Which side of a weight keeps its variance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanMode {
    /// Of the forward pass.
    #[default]
    FanIn,
    /// Of the backward pass.
    FanOut,
}

/// What follows a layer; decides the recommended gain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// Linear layers, convolutions, sigmoid: gain 1.
    Linear,
    /// Sigmoid: gain 1.
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

/// He et al.'s uniform: what `Linear` and convolutions start from, with `Nonlinearity::LeakyRelu(√5)`.
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
