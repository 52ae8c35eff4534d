//! Margin losses.

use super::define::{losses, reduce};
use crate::Module;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::{Reduction, Tensor, TripletMargin, where_};

losses! {
    /// One minus the cosine for targets of 1, `max(0, cosine - margin)` for targets of -1;
    /// `forward(input1, input2, target)`.
    CosineEmbeddingLoss {
        /// The cosine that unlike inputs may have; 0 by default.
        margin: f64 = 0.0,
    }
    |l, input1, input2, target| input1.cosine_embedding_loss(input2, target, l.margin, l.reduction);

    /// `max(0, -target · (input1 - input2) + margin)` for targets of 1 and -1; `forward(input1, input2, target)`.
    MarginRankingLoss {
        /// By how much the one must be larger; 0 by default.
        margin: f64 = 0.0,
    }
    |l, input1, input2, target| input1.margin_ranking_loss(input2, target, l.margin, l.reduction);

    /// The input for targets of 1, `max(0, margin - input)` for targets of -1.
    HingeEmbeddingLoss {
        /// The distance that unlike inputs must have; 1 by default.
        margin: f64 = 1.0,
    }
    |l, input, target| input.hinge_embedding_loss(target, l.margin, l.reduction);

    /// `log(1 + exp(-target · input))` for targets of 1 and -1.
    SoftMarginLoss {}
    |l, input, target| input.soft_margin_loss(target, l.reduction);

    /// `max(0, margin + distance to the positive - distance to the negative)`; `forward(anchor, positive, negative)`.
    TripletMarginLoss {
        /// By how much the positive must be nearer; 1 by default.
        margin: f64 = 1.0,
        /// The norm of distances; 2 by default.
        p: f64 = 2.0,
        /// Added to differences; 1e-6 by default.
        eps: f64 = 1e-6,
        /// Whether the distance of positive and negative is used if it is smaller than that of anchor and negative;
        /// false by default.
        swap: bool = false,
    }
    |l, anchor, positive, negative| {
        let options = TripletMargin::default().margin(l.margin).p(l.p).eps(l.eps).swap(l.swap);
        anchor.triplet_margin_loss(positive, negative, options, l.reduction)
    };

    /// The mean amount by which scores `[batch, classes]` of wrong classes come within a margin of the right class's
    /// score.
    MultiMarginLoss [
        /// A weight per class.
        weight,
    ] {
        /// The power of the shortfall, 1 or 2; 1 by default.
        p: u32 = 1,
        /// By how much the right class must be ahead; 1 by default.
        margin: f64 = 1.0,
    }
    |l, input, target| {
        let name = "MultiMarginLoss";
        if l.p != 1 && l.p != 2 {
            return Err(Error::value(format!("{name}: only p == 1 and p == 2 are supported, got {}", l.p)));
        }
        let (scores, classes) = rows(name, input)?;
        let target = match (input.rank(), target.shape()) {
            (1, [] | [1]) => target.reshape([1, 1])?,
            (2, [batch]) if *batch == input.shape()[0] => target.unsqueeze(1)?,
            (_, shape) => return Err(Error::shape(format!(
                "{name}: expected a class index per row of the input {:?}, got target of shape {shape:?}",
                input.shape()
            ))),
        };
        let right = scores.gather(1, &target)?;
        let mut short = scores.sub(&right)?.add(l.margin)?.clamp_min(0.0)?;
        if l.p == 2 {
            short = short.square()?;
        }
        if let Some(weight) = &l.weight {
            short = short.mul(&weight.tensor().index_select(0, &target.reshape([-1isize])?)?.unsqueeze(1)?)?;
        }
        let wrong = target.one_hot(Some(classes))?.reshape(scores.shape())?.eq(0)?;
        let loss = where_(&wrong, &short, 0.0)?.sum(1)?.div(classes as f64)?;
        reduce(name, as_given(loss, input)?, l.reduction)
    };

    /// The amount by which scores of wrong classes come within one of the right classes' scores. A row of the target
    /// lists the right classes, up to the first -1.
    MultiLabelMarginLoss {}
    |l, input, target| {
        let name = "MultiLabelMarginLoss";
        let (scores, classes) = rows(name, input)?;
        if target.shape() != input.shape() {
            return Err(Error::shape(format!(
                "{name}: inconsistent target size {:?} for input of size {:?}", target.shape(), input.shape()
            )));
        }
        let target = target.to_dtype(DType::I64)?.reshape(scores.shape())?;
        let listed = target.lt(0)?.to_dtype(DType::I64)?.cumsum(1)?.eq(0)?;
        let places = where_(&listed, &target, 0)?;
        let right = Tensor::zeros_with(scores.shape(), (DType::I64, scores.device()))?
            .scatter_add(1, &places, &listed.to_dtype(DType::I64)?)?;
        // By row: each listed class against each class.
        let short = scores.unsqueeze(1)?.sub(&scores.gather(1, &places)?.unsqueeze(2)?)?.add(1.0)?.clamp_min(0.0)?;
        let counts = listed.unsqueeze(2)?.logical_and(&right.eq(0)?.unsqueeze(1)?)?;
        let loss = where_(&counts, &short, 0.0)?.sum([1, 2])?.div(classes as f64)?;
        reduce(name, as_given(loss, input)?, l.reduction)
    };

    /// Cross-entropy of logits `[batch, classes]` with targets of 0 and 1, averaged over the classes.
    MultiLabelSoftMarginLoss [
        /// A weight per class.
        weight,
    ] {}
    |l, input, target| {
        let mut loss = input.binary_cross_entropy_with_logits(target, None, None, Reduction::None)?;
        if let Some(weight) = &l.weight {
            loss = loss.mul(weight.tensor())?;
        }
        reduce("MultiLabelSoftMarginLoss", loss.mean(-1)?, l.reduction)
    };
}

/// Scores as `[batch, classes]`, and the number of classes.
fn rows(name: &str, input: &Tensor) -> Result<(Tensor, usize)> {
    match input.shape() {
        &[classes] if classes > 0 => Ok((input.unsqueeze(0)?, classes)),
        &[_, classes] if classes > 0 => Ok((input.clone(), classes)),
        shape => {
            Err(Error::shape(format!("{name}: expected input [batch, classes] or [classes], got shape {shape:?}")))
        }
    }
}

/// Losses by row; one without a batch has none.
fn as_given(loss: Tensor, input: &Tensor) -> Result<Tensor> {
    if input.rank() == 1 { loss.squeeze(0) } else { Ok(loss) }
}
