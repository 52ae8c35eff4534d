//! `torch.nn.functional`: losses.

use crate::value::{size, sizes};
use crate::{error, rows};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::{CrossEntropyOptions, Reduction, Tensor, TripletMargin};

/// PyTorch's `ValueError` for a target of another size.
fn same_sizes(input: &Tensor, target: &Tensor) -> Result<()> {
    if input.shape() == target.shape() {
        return Ok(());
    }
    Err(error::value(format!(
        "Using a target size (torch.Size({:?})) that is different to the input size (torch.Size({:?})) is deprecated. Please ensure they have the same size.",
        target.shape(),
        input.shape()
    )))
}

/// `reduction`, or its equivalent in the older `size_average` and `reduce`.
fn reduction(name: &str, size_average: Option<bool>, reduce: Option<bool>) -> Result<Reduction> {
    if size_average.is_some() || reduce.is_some() {
        return Ok(match (size_average.unwrap_or(true), reduce.unwrap_or(true)) {
            (_, false) => Reduction::None,
            (true, true) => Reduction::Mean,
            (false, true) => Reduction::Sum,
        });
    }
    named(name)
}

fn named(name: &str) -> Result<Reduction> {
    Ok(match name {
        "none" => Reduction::None,
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        "batchmean" => Reduction::BatchMean,
        other => return Err(error::value(format!("{other} is not a valid value for reduction"))),
    })
}

fn reduced(loss: Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::None => Ok(loss),
        Reduction::Mean => loss.mean(..),
        Reduction::Sum => loss.sum(..),
        Reduction::BatchMean => Err(Error::value("batchmean is not a valid value for reduction")),
    }
}

fn weighted(loss: Tensor, weight: Option<&Tensor>, how: &str) -> Result<Tensor> {
    match weight {
        None => Ok(loss),
        Some(w) => match named(how)? {
            Reduction::Mean => loss.mul(w)?.sum(..)?.div(&w.expand(loss.shape())?.sum(..)?),
            other => reduced(loss.mul(w)?, other),
        },
    }
}

/// Losses whose mean is divided by the sum of weights, computed without reduction first.
fn with_weight(weight: Option<&Tensor>, how: &str, loss: impl Fn(Reduction) -> Result<Tensor>) -> Result<Tensor> {
    match weight {
        None => loss(named(how)?),
        Some(_) => weighted(loss(Reduction::None)?, weight, how),
    }
}

fn options<'a>(
    weight: Option<&'a Tensor>,
    ignore_index: i64,
    smoothing: f64,
    reduction: Reduction,
) -> CrossEntropyOptions<'a> {
    CrossEntropyOptions::default()
        .weight(weight)
        .ignore_index(ignore_index)
        .label_smoothing(smoothing)
        .reduction(reduction)
}

fn variances(var: &Tensor, input: &Tensor) -> Result<Tensor> {
    // A single variance may lack the last dimension.
    if var.rank() + 1 == input.rank() && var.shape() == &input.shape()[..var.rank()] {
        var.unsqueeze(-1)
    } else {
        Ok(var.clone())
    }
}

/// Per-class margins summed over the last dimension.
fn multi_margin(
    input: &Tensor,
    target: &Tensor,
    p: f64,
    margin: f64,
    weight: Option<&Tensor>,
    how: Reduction,
) -> Result<Tensor> {
    let one = input.rank() <= 1;
    let lifted = input.reshape([-1isize])?;
    let input = if one { &lifted } else { input };
    let (x, y) = if one { (input.unsqueeze(0)?, target.reshape([1usize])?) } else { (input.clone(), target.clone()) };
    let classes = x.size(1)?;
    let index = y.unsqueeze(1)?;
    let mut z = x.sub(&x.gather(1, &index)?)?.add(margin)?.clamp_min(0.0)?;
    if p != 1.0 {
        z = z.pow(p)?;
    }
    if let Some(weight) = weight {
        z = z.mul(&weight.index_select(0, &y)?.unsqueeze(1)?)?;
    }
    let mask = y.one_hot(Some(classes))?.to_dtype(rushlight_core::DType::Bool)?;
    let loss = z.masked_fill(&mask, 0.0)?.sum(1)?.div(classes as f64)?;
    reduced(if one { loss.squeeze(..)? } else { loss }, how)
}

/// PyTorch's `ValueError` for a number of targets that differs from the number of inputs.
/// The checks of `nll_loss`, in PyTorch's order.
fn class_indices(input: &Tensor, target: &Tensor) -> Result<()> {
    if let ([batch, _, ..], [targets, ..]) = (input.shape(), target.shape())
        && batch != targets
    {
        return Err(error::value(format!(
            "Expected input batch_size ({batch}) to match target batch_size ({targets})."
        )));
    }
    match target.dtype() {
        DType::I64 | DType::U8 => Ok(()),
        other => Err(Error::value(format!("expected target dtype to be Long or Byte, but got {other}"))),
    }
}

fn one_target_each(input: &Tensor, target: &Tensor) -> Result<()> {
    match (input.shape(), target.shape()) {
        // PyTorch computes the softmax first, for which integers have no kernel.
        _ if !input.dtype().is_float() && input.numel() > 0 => Ok(()),
        ([batch, _, ..], [targets, ..]) if batch != targets && !target.dtype().is_float() => {
            Err(error::value(format!("Expected input batch_size ({batch}) to match target batch_size ({targets}).")))
        }
        _ => Ok(()),
    }
}

fn multilabel_soft_margin(input: &Tensor, target: &Tensor, weight: Option<&Tensor>, how: Reduction) -> Result<Tensor> {
    let loss = target.mul(&input.logsigmoid()?)?.add(&target.rsub(1)?.mul(&input.neg()?.logsigmoid()?)?)?.neg()?;
    let loss = weight.map_or(Ok(loss.clone()), |w| loss.mul(w))?;
    reduced(loss.mean(-1)?, how)
}

fn lengths(tensor: &Tensor) -> Result<Vec<i64>> {
    tensor.to_vec::<i64>()
}

fn ctc(
    log_probs: &Tensor,
    targets: &Tensor,
    inputs: &[i64],
    target_lengths: &[i64],
    blank: i64,
    how: &str,
    zero_infinity: bool,
) -> Result<Tensor> {
    rushlight_nn::ctc_loss(
        log_probs,
        targets,
        &sizes(inputs)?,
        &sizes(target_lengths)?,
        size(blank, "ctc_loss: blank")?,
        named(how)?,
        zero_infinity,
    )
}

rows! { ROWS:
    /// Mean squared error.
    mse_loss [Functional] "mse_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? weight=None)"
        |input: &Tensor, target: &Tensor, average: Option<bool>, reduce: Option<bool>, how: &str, weight: Option<&Tensor>| match weight {
            None => input.mse_loss(target, reduction(how, average, reduce)?),
            Some(_) => with_weight(weight, how, |r| input.mse_loss(target, r)),
        };
    /// Mean absolute error.
    l1_loss [Functional] "l1_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? weight=None)"
        |input: &Tensor, target: &Tensor, average: Option<bool>, reduce: Option<bool>, how: &str, weight: Option<&Tensor>| match weight {
            None => input.l1_loss(target, reduction(how, average, reduce)?),
            Some(_) => with_weight(weight, how, |r| input.l1_loss(target, r)),
        };
    /// Squared near zero, absolute beyond.
    smooth_l1_loss [Functional] "smooth_l1_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', float beta=1.0)"
        |input: &Tensor, target: &Tensor, average: Option<bool>, reduce: Option<bool>, how: &str, beta: f64|
        input.smooth_l1_loss(target, beta, reduction(how, average, reduce)?);
    /// Squared near zero, absolute beyond, times delta.
    huber_loss [Functional] "huber_loss(Tensor input, Tensor target, str reduction='mean', float delta=1.0, Tensor? weight=None)"
        |input: &Tensor, target: &Tensor, how: &str, delta: f64, weight: Option<&Tensor>| with_weight(weight, how, |r| input.huber_loss(target, delta, r));
    /// Cross-entropy of logits with classes or probabilities.
    cross_entropy [Functional]
        "cross_entropy(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? reduce=None, str reduction='mean', float label_smoothing=0.0)"
        |input: &Tensor, target: &Tensor, weight: Option<&Tensor>, average: Option<bool>, ignore: i64, reduce: Option<bool>, how: &str, smoothing: f64|
        one_target_each(input, target).and_then(|()| input.cross_entropy_with(target, &options(weight, ignore, smoothing, reduction(how, average, reduce)?)));
    /// Negative log-likelihood of classes.
    nll_loss [Functional]
        "nll_loss(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? reduce=None, str reduction='mean')"
        |input: &Tensor, target: &Tensor, weight: Option<&Tensor>, average: Option<bool>, ignore: i64, reduce: Option<bool>, how: &str|
        class_indices(input, target).and_then(|()| input.nll_loss(target, &options(weight, ignore, 0.0, reduction(how, average, reduce)?)));
    /// Cross-entropy of probabilities.
    binary_cross_entropy [Functional]
        "binary_cross_entropy(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |input: &Tensor, target: &Tensor, weight: Option<&Tensor>, average: Option<bool>, reduce: Option<bool>, how: &str|
        same_sizes(input, target).and_then(|()| input.binary_cross_entropy(target, weight, reduction(how, average, reduce)?));
    /// Cross-entropy of logits of two classes.
    binary_cross_entropy_with_logits [Functional]
        "binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? pos_weight=None)"
        |input: &Tensor, target: &Tensor, weight: Option<&Tensor>, average: Option<bool>, reduce: Option<bool>, how: &str, pos_weight: Option<&Tensor>|
        input.binary_cross_entropy_with_logits(target, weight, pos_weight, reduction(how, average, reduce)?);
    /// Kullback-Leibler divergence.
    kl_div [Functional] "kl_div(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', bool log_target=False)"
        |input: &Tensor, target: &Tensor, average: Option<bool>, reduce: Option<bool>, how: &str, log_target: bool|
        input.kl_div(target, log_target, reduction(how, average, reduce)?);
    /// Negative log-likelihood of a normal distribution.
    gaussian_nll_loss [Functional]
        "gaussian_nll_loss(Tensor input, Tensor target, Tensor|Number var, bool full=False, float eps=1e-06, str reduction='mean')"
        |input: &Tensor, target: &Tensor, var: rushlight_tensor::Arg, full: bool, eps: f64, how: &str|
        input.gaussian_nll_loss(target, &match var {
            rushlight_tensor::Arg::Tensor(var) => variances(var, input)?,
            rushlight_tensor::Arg::Scalar(var) => input.detach().full_like(var)?,
        }, full, eps, named(how)?);
    /// Negative log-likelihood of a Poisson distribution.
    poisson_nll_loss [Functional]
        "poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, bool? size_average=None, float eps=1e-08, bool? reduce=None, str reduction='mean')"
        |input: &Tensor, target: &Tensor, log_input: bool, full: bool, average: Option<bool>, eps: f64, reduce: Option<bool>, how: &str|
        input.poisson_nll_loss(target, log_input, full, eps, reduction(how, average, reduce)?);
    /// Logistic loss of signs.
    soft_margin_loss [Functional] "soft_margin_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |input: &Tensor, target: &Tensor, average: Option<bool>, reduce: Option<bool>, how: &str| input.soft_margin_loss(target, reduction(how, average, reduce)?);
    /// Hinge of the difference of two scores.
    margin_ranking_loss [Functional]
        "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |input1: &Tensor, input2: &Tensor, target: &Tensor, margin: f64, average: Option<bool>, reduce: Option<bool>, how: &str|
        input1.margin_ranking_loss(input2, target, margin, reduction(how, average, reduce)?);
    /// Hinge of distances.
    hinge_embedding_loss [Functional]
        "hinge_embedding_loss(Tensor input, Tensor target, float margin=1.0, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |input: &Tensor, target: &Tensor, margin: f64, average: Option<bool>, reduce: Option<bool>, how: &str|
        input.hinge_embedding_loss(target, margin, reduction(how, average, reduce)?);
    /// Cosine of pairs that belong together or not.
    cosine_embedding_loss [Functional]
        "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |input1: &Tensor, input2: &Tensor, target: &Tensor, margin: f64, average: Option<bool>, reduce: Option<bool>, how: &str|
        input1.cosine_embedding_loss(input2, target, margin, reduction(how, average, reduce)?);
    /// Hinge of an anchor's distances to a positive and a negative example.
    triplet_margin_loss [Functional]
        "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float eps=1e-06, bool swap=False, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |anchor: &Tensor, positive: &Tensor, negative: &Tensor, margin: f64, p: f64, eps: f64, swap: bool, average: Option<bool>, reduce: Option<bool>, how: &str|
        anchor.triplet_margin_loss(positive, negative, TripletMargin::default().margin(margin).p(p).eps(eps).swap(swap), reduction(how, average, reduce)?);
    /// Margins between the right class and the others.
    multi_margin_loss [Functional]
        "multi_margin_loss(Tensor input, Tensor target, int p=1, float margin=1.0, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |input: &Tensor, target: &Tensor, p: f64, margin: f64, weight: Option<&Tensor>, average: Option<bool>, reduce: Option<bool>, how: &str|
        multi_margin(input, target, p, margin, weight, reduction(how, average, reduce)?);
    /// Margins between several right classes and the others.
    multilabel_margin_loss [Functional]
        "multilabel_margin_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |input: &Tensor, target: &Tensor, average: Option<bool>, reduce: Option<bool>, how: &str|
        {
            let how = reduction(how, average, reduce)?;
            let loss = rushlight_nn::MultiLabelMarginLoss::new().reduction(how);
            match input.rank() {
                0 => loss.forward(&input.reshape([1usize])?, &target.reshape([1usize])?),
                _ => loss.forward(input, target),
            }
        };
    /// Logistic loss of several classes.
    multilabel_soft_margin_loss [Functional]
        "multilabel_soft_margin_loss(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')"
        |input: &Tensor, target: &Tensor, weight: Option<&Tensor>, average: Option<bool>, reduce: Option<bool>, how: &str|
        multilabel_soft_margin(input, target, weight, reduction(how, average, reduce)?);
    /// Connectionist temporal classification: likelihood of sequences of unknown alignment.
    ctc_loss [Torch Functional]
        "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False)"
            |log_probs: &Tensor, targets: &Tensor, inputs: &Tensor, target_lengths: &Tensor, blank: i64, how: &str, zero: bool|
            ctc(log_probs, targets, &lengths(inputs)?, &lengths(target_lengths)?, blank, how, zero),
        "ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False)"
            |log_probs: &Tensor, targets: &Tensor, inputs: &[i64], target_lengths: &[i64], blank: i64, how: &str, zero: bool|
            ctc(log_probs, targets, inputs, target_lengths, blank, how, zero);
}
