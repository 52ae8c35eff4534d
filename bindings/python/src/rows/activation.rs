//! `torch.nn.functional`: activations, dropout, softmax.

use crate::dispatch::original;
use crate::value::Out;
use crate::{error, rows};
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::{Tensor, where_};

/// The result of `f`; with `inplace` it overwrites the input.
fn place(input: &Tensor, inplace: bool, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Out> {
    if !inplace {
        return f(input).map(Out::Tensor);
    }
    input.copy_(&f(&original(input)?)?)?;
    Ok(Out::First)
}

fn relu(input: &Tensor, inplace: bool) -> Result<Out> {
    match inplace {
        false => input.relu().map(Out::Tensor),
        true => input.relu_().map(|_| Out::First),
    }
}

/// PyTorch's default dimension if none is given; PyTorch warns about it.
fn implicit(dim: Option<i64>, input: &Tensor) -> isize {
    match dim {
        Some(dim) => dim as isize,
        None if matches!(input.rank(), 0 | 1 | 3) => 0,
        None => 1,
    }
}

fn softmax(input: &Tensor, dim: isize, dtype: Option<DType>) -> Result<Tensor> {
    dtype.map_or_else(|| input.softmax(dim), |d| input.softmax_with(dim, d))
}

fn log_softmax(input: &Tensor, dim: isize, dtype: Option<DType>) -> Result<Tensor> {
    dtype.map_or_else(|| input.log_softmax(dim), |d| input.log_softmax_with(dim, d))
}

fn gelu(input: &Tensor, approximate: &str) -> Result<Tensor> {
    match approximate {
        "none" => input.gelu(),
        "tanh" => input.gelu_tanh(),
        other => Err(Error::value(format!("approximate argument must be either none or tanh, not {other}"))),
    }
}

fn glu(input: &Tensor, dim: isize) -> Result<Tensor> {
    input.glu(dim)
}

fn probability(call: &str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(error::value(format!("{call}: dropout probability has to be between 0 and 1, but got {p}")))
}

/// Drops whole channels, per sample if there is a batch.
fn channel_dropout(call: &str, input: &Tensor, p: f64, training: bool, batched: bool) -> Result<Tensor> {
    probability(call, p)?;
    if !training || p == 0.0 {
        return Ok(input.clone());
    }
    let kept = if batched { 2 } else { 1 };
    let shape: Vec<usize> = input.shape().iter().enumerate().map(|(i, &n)| if i < kept { n } else { 1 }).collect();
    let mask = Tensor::ones_with(&shape, (input.dtype(), input.device()))?.dropout(p, true)?;
    input.mul(&mask)
}

/// Dropout that preserves the mean and variance of self-normalising activations.
fn alpha_dropout(call: &str, input: &Tensor, p: f64, training: bool, channels: bool) -> Result<Tensor> {
    probability(call, p)?;
    if !training || p == 0.0 {
        return Ok(input.clone());
    }
    if p == 1.0 {
        return input.mul(0.0);
    }
    const ALPHA: f64 = 1.758_099_340_847_376_6;
    let a = ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt().recip();
    let shape: Vec<usize> =
        input.shape().iter().enumerate().map(|(i, &n)| if !channels || i < 2 { n } else { 1 }).collect();
    let keep = Tensor::rand_with(&shape, (DType::F32, input.device()))?.ge(p)?;
    let dropped = where_(&keep, input, -ALPHA)?;
    dropped.mul(a)?.add(a * ALPHA * p)?.to_dtype(input.dtype())
}

/// PyTorch's `ValueError` for a lower limit above the upper one.
fn ordered(low: Scalar, high: Scalar) -> Result<()> {
    if low.to_f64() > high.to_f64() {
        return Err(crate::error::value("min_val cannot be greater than max_val"));
    }
    Ok(())
}

fn rrelu(input: &Tensor, lower: f64, upper: f64, training: bool) -> Result<Tensor> {
    if lower > upper {
        return Err(Error::value(format!(
            "rrelu: Lower bound should be less than or equal to the upper bound, got {lower} and {upper}"
        )));
    }
    if !training {
        return input.leaky_relu((lower + upper) / 2.0);
    }
    let slope = Tensor::rand_with(input.shape(), (input.dtype(), input.device()))?.mul(upper - lower)?.add(lower)?;
    where_(&input.ge(0)?, input, &input.mul(&slope)?)
}

fn gumbel(logits: &Tensor, tau: f64, hard: bool, dim: isize) -> Result<Tensor> {
    // Gumbel noise is minus the logarithm of exponential noise; the uniform numbers must not be zero.
    let uniform = Tensor::rand_with(logits.shape(), (DType::F64, logits.device()))?.rsub(1.0)?;
    let noise = uniform.log()?.neg()?.log()?.neg()?.to_dtype(logits.dtype())?;
    let soft = logits.add(&noise)?.div(tau)?.softmax(dim)?;
    if !hard {
        return Ok(soft);
    }
    let index = soft.argmax_dim(dim, true)?;
    let chosen = soft.detach().zeros_like()?.scatter(dim, &index, 1.0)?;
    chosen.sub(&soft.detach())?.add(&soft)
}

rows! { ROWS:
    /// The positive part.
    relu [Functional] "relu(Tensor input, bool inplace=False)" |input: &Tensor, inplace: bool| relu(input, inplace);
    /// The positive part, in place.
    relu_ [Functional] "relu_(Tensor input)" |input: &Tensor| input.relu_();
    /// Clamps to 0..6.
    relu6 [Functional] "relu6(Tensor input, bool inplace=False)" |input: &Tensor, inplace: bool| place(input, inplace, |x| x.relu6());
    /// `x`, or a fraction of it below zero.
    leaky_relu [Functional] "leaky_relu(Tensor input, float negative_slope=0.01, bool inplace=False)" |input: &Tensor, slope: f64, inplace: bool|
        place(input, inplace, |x| x.leaky_relu(slope));
    /// `leaky_relu` in place.
    leaky_relu_ [Functional] "leaky_relu_(Tensor input, float negative_slope=0.01)" |input: &Tensor, slope: f64| place(input, true, |x| x.leaky_relu(slope));
    /// `x`, or a random fraction of it below zero.
    rrelu [Functional] "rrelu(Tensor input, float lower=0.125, float upper=0.3333333333333333, bool training=False, bool inplace=False)"
        |input: &Tensor, lower: f64, upper: f64, training: bool, inplace: bool| place(input, inplace, |x| rrelu(x, lower, upper, training));
    /// `rrelu` in place.
    rrelu_ [Functional] "rrelu_(Tensor input, float lower=0.125, float upper=0.3333333333333333, bool training=False)"
        |input: &Tensor, lower: f64, upper: f64, training: bool| place(input, true, |x| rrelu(x, lower, upper, training));
    /// `x`, or `alpha * (exp(x) - 1)` below zero.
    elu [Functional] "elu(Tensor input, float alpha=1.0, bool inplace=False)" |input: &Tensor, alpha: f64, inplace: bool| place(input, inplace, |x| x.elu(alpha));
    /// `elu` in place.
    elu_ [Functional] "elu_(Tensor input, float alpha=1.0)" |input: &Tensor, alpha: f64| place(input, true, |x| x.elu(alpha));
    /// The self-normalising `elu`.
    selu [Functional] "selu(Tensor input, bool inplace=False)" |input: &Tensor, inplace: bool| place(input, inplace, |x| x.selu());
    /// `selu` in place.
    selu_ [Functional] "selu_(Tensor input)" |input: &Tensor| place(input, true, |x| x.selu());
    /// The continuously differentiable `elu`.
    celu [Functional] "celu(Tensor input, float alpha=1.0, bool inplace=False)" |input: &Tensor, alpha: f64, inplace: bool| place(input, inplace, |x| x.celu(alpha));
    /// `celu` in place.
    celu_ [Functional] "celu_(Tensor input, float alpha=1.0)" |input: &Tensor, alpha: f64| place(input, true, |x| x.celu(alpha));
    /// `x * Phi(x)`, exact or approximated with tanh.
    gelu [Functional] "gelu(Tensor input, *, str approximate='none')" |input: &Tensor, approximate: &str| gelu(input, approximate);
    /// `x * sigmoid(x)`.
    silu [Functional] "silu(Tensor input, bool inplace=False)" |input: &Tensor, inplace: bool| place(input, inplace, |x| x.silu());
    /// `x * tanh(softplus(x))`.
    mish [Functional] "mish(Tensor input, bool inplace=False)" |input: &Tensor, inplace: bool| place(input, inplace, |x| x.mish());
    /// `x * relu6(x + 3) / 6`.
    hardswish [Functional] "hardswish(Tensor input, bool inplace=False)" |input: &Tensor, inplace: bool| place(input, inplace, |x| x.hardswish());
    /// `relu6(x + 3) / 6`.
    hardsigmoid [Functional] "hardsigmoid(Tensor input, bool inplace=False)" |input: &Tensor, inplace: bool| place(input, inplace, |x| x.hardsigmoid());
    /// Clamps between two numbers.
    hardtanh [Functional] "hardtanh(Tensor input, Number min_val=-1.0, Number max_val=1.0, bool inplace=False)" |input: &Tensor, low: Scalar, high: Scalar, inplace: bool|
        ordered(low, high).and_then(|()| place(input, inplace, |x| x.hardtanh(low, high)));
    /// `hardtanh` in place.
    hardtanh_ [Functional] "hardtanh_(Tensor input, Number min_val=-1.0, Number max_val=1.0)" |input: &Tensor, low: Scalar, high: Scalar|
        ordered(low, high).and_then(|()| place(input, true, |x| x.hardtanh(low, high)));
    /// `log(1 + exp(beta x)) / beta`.
    softplus [Functional] "softplus(Tensor input, float beta=1.0, float threshold=20.0)" |input: &Tensor, beta: f64, threshold: f64| input.softplus(beta, threshold);
    /// Shrinks towards zero by `lambd`; zero within it.
    softshrink [Functional] "softshrink(Tensor input, float lambd=0.5)" |input: &Tensor, lambd: f64| input.softshrink(lambd);
    /// `x / (1 + |x|)`.
    softsign [Functional] "softsign(Tensor input)" |input: &Tensor| input.softsign();
    /// `x - tanh(x)`.
    tanhshrink [Functional] "tanhshrink(Tensor input)" |input: &Tensor| input.tanhshrink();
    /// `x` above a threshold, else a value.
    threshold [Functional] "threshold(Tensor input, Number threshold, Number value, bool inplace=False)" |input: &Tensor, threshold: Scalar, value: Scalar, inplace: bool|
        place(input, inplace, |x| x.threshold(threshold, value));
    /// `threshold` in place.
    threshold_ [Functional] "threshold_(Tensor input, Number threshold, Number value)" |input: &Tensor, threshold: Scalar, value: Scalar|
        place(input, true, |x| x.threshold(threshold, value));
    /// The first half times the logistic function of the second.
    glu [Functional] "glu(Tensor input, int dim=-1)" |input: &Tensor, dim: isize| glu(input, dim);
    /// Exponentials that sum to one.
    softmax [Functional] "softmax(Tensor input, int? dim=None, int _stacklevel=3, dtype? dtype=None)" |input: &Tensor, dim: Option<i64>, _level: i64, dtype: Option<DType>|
        softmax(input, implicit(dim, input), dtype);
    /// Logarithm of `softmax`.
    log_softmax [Functional] "log_softmax(Tensor input, int? dim=None, int _stacklevel=3, dtype? dtype=None)"
        |input: &Tensor, dim: Option<i64>, _level: i64, dtype: Option<DType>| log_softmax(input, implicit(dim, input), dtype);
    /// `softmax` of the negative.
    softmin [Functional] "softmin(Tensor input, int? dim=None, int _stacklevel=3, dtype? dtype=None)"
        |input: &Tensor, dim: Option<i64>, _level: i64, dtype: Option<DType>| softmax(&input.neg()?, implicit(dim, input), dtype);
    /// Samples of a relaxed categorical distribution.
    gumbel_softmax [Functional] "gumbel_softmax(Tensor logits, float tau=1, bool hard=False, float eps=1e-10, int dim=-1)"
        |logits: &Tensor, tau: f64, hard: bool, _eps: f64, dim: isize| gumbel(logits, tau, hard, dim);
    /// Zeroes elements at random and scales up the others.
    dropout [Functional] "dropout(Tensor input, float p=0.5, bool training=True, bool inplace=False)" |input: &Tensor, p: f64, training: bool, inplace: bool|
        place(input, inplace, |x| { probability("dropout", p)?; x.dropout(p, training) });
    /// Zeroes channels of sequences at random.
    dropout1d [Functional] "dropout1d(Tensor input, float p=0.5, bool training=True, bool inplace=False)" |input: &Tensor, p: f64, training: bool, inplace: bool|
        place(input, inplace, |x| channel_dropout("dropout1d", x, p, training, x.rank() != 2));
    /// Zeroes channels of images at random.
    dropout2d [Functional] "dropout2d(Tensor input, float p=0.5, bool training=True, bool inplace=False)" |input: &Tensor, p: f64, training: bool, inplace: bool|
        place(input, inplace, |x| channel_dropout("dropout2d", x, p, training, true));
    /// Zeroes channels of volumes at random.
    dropout3d [Functional] "dropout3d(Tensor input, float p=0.5, bool training=True, bool inplace=False)" |input: &Tensor, p: f64, training: bool, inplace: bool|
        place(input, inplace, |x| channel_dropout("dropout3d", x, p, training, x.rank() != 4));
    /// Dropout for self-normalising networks.
    alpha_dropout [Functional] "alpha_dropout(Tensor input, float p=0.5, bool training=False, bool inplace=False)" |input: &Tensor, p: f64, training: bool, inplace: bool|
        place(input, inplace, |x| alpha_dropout("alpha_dropout", x, p, training, false));
    /// `alpha_dropout` of whole channels.
    feature_alpha_dropout [Functional] "feature_alpha_dropout(Tensor input, float p=0.5, bool training=False, bool inplace=False)"
        |input: &Tensor, p: f64, training: bool, inplace: bool| place(input, inplace, |x| alpha_dropout("feature_alpha_dropout", x, p, training, true));
}

rows! { TORCH:
    /// Exponentials that sum to one.
    softmax [Torch Method Special] "softmax(Tensor input, int dim, dtype? dtype=None)" |input: &Tensor, dim: isize, dtype: Option<DType>| softmax(input, dim, dtype);
    /// Logarithm of `softmax`.
    log_softmax [Torch Method Special] "log_softmax(Tensor input, int dim, dtype? dtype=None)" |input: &Tensor, dim: isize, dtype: Option<DType>| log_softmax(input, dim, dtype);
    /// Zeroes elements at random and scales up the others.
    dropout [Torch] "dropout(Tensor input, float p, bool train)" |input: &Tensor, p: f64, train: bool| { probability("dropout", p)?; input.dropout(p, train) };
}
