//! Losses that compare a prediction with a target element by element.

use super::compare::where_;
use crate::autograd::no_grad;
use crate::{Tensor, amp};
use rushlight_core::backend::Reduce;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{Error, Pointwise, Result, setters};
use std::f64::consts::TAU;

/// How the elements' losses are reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// No reduction: one loss per element.
    None,
    /// Their mean is given.
    #[default]
    Mean,
    /// Their sum is given.
    Sum,
    /// Their sum over the size of the first dimension is given; for [`Tensor::kl_div`] alone.
    BatchMean,
}

impl Reduction {
    /// Applied to the losses of an op.
    pub(crate) fn apply(self, name: &str, loss: Tensor) -> Result<Tensor> {
        match self {
            Reduction::None => Ok(loss),
            Reduction::Sum => loss.sum(..),
            Reduction::Mean => loss.mean(..),
            Reduction::BatchMean => Err(Error::value(format!("{name}: batchmean is not a valid value for reduction"))),
        }
    }
}

fn same_size(name: &str, input: &Tensor, target: &Tensor) -> Result<()> {
    if input.shape() == target.shape() {
        return Ok(());
    }
    Err(Error::shape(format!(
        "{name}: using a target size ({:?}) that is different to the input size ({:?}); please ensure they have the same size",
        target.shape(),
        input.shape()
    )))
}

impl Tensor {
    fn row_loss(&self, op: Pointwise, target: &Tensor, params: &[f64], reduction: Reduction) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.row_loss(op, &cast.of(target)?, params, reduction));
        }
        reduction.apply(op.name(), self.row(op, target, params)?)
    }

    /// Squared error.
    ///
    /// ```
    /// # use rushlight_tensor::{Reduction, Tensor};
    /// let (x, y) = (Tensor::new([1.0f32, 2.0])?, Tensor::new([1.0f32, 4.0])?);
    /// assert_eq!(x.mse_loss(&y, Reduction::Mean)?.item::<f32>()?, 2.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        self.row_loss(Pointwise::MseLoss, target, &[], reduction)
    }

    /// Absolute error.
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        if self.is_complex() || target.is_complex() {
            let losses = self.sub(target)?.abs()?;
            return match reduction {
                Reduction::None => Ok(losses),
                Reduction::Mean | Reduction::BatchMean => losses.mean(..),
                Reduction::Sum => losses.sum(..),
            };
        }
        self.row_loss(Pointwise::L1Loss, target, &[], reduction)
    }

    /// Squared error below `beta`, absolute beyond; PyTorch's default is 1.
    pub fn smooth_l1_loss(&self, target: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
        if beta < 0.0 {
            return Err(Error::value("smooth_l1_loss does not support negative values for beta."));
        }
        if beta == 0.0 {
            return self.l1_loss(target, reduction);
        }
        self.row_loss(Pointwise::SmoothL1Loss, target, &[beta], reduction)
    }

    /// Squared error below `delta`, `delta` times the absolute one beyond; PyTorch's default is 1.
    pub fn huber_loss(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
        if delta.is_nan() || delta <= 0.0 {
            return Err(Error::value("huber_loss does not support non-positive values for delta."));
        }
        self.row_loss(Pointwise::HuberLoss, target, &[delta], reduction)
    }

    /// Cross-entropy of probabilities with targets between 0 and 1; `weight` broadcasts.
    pub fn binary_cross_entropy(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| {
                cast.of(self)?.binary_cross_entropy(&cast.of(target)?, cast.of_option(weight)?.as_ref(), reduction)
            });
        }
        let name = "binary_cross_entropy";
        self.needs_float(name)?;
        same_size(name, self, target)?;
        if self.numel() > 0 && crate::capture::may_read(self.device()) {
            let mask: SmallVec<[bool; 6]> = smallvec![true; self.rank()];
            let extreme = |op| self.reduce_keep(op, &mask, self.dtype())?.item::<f64>();
            // Written so that NaN fails.
            if !(extreme(Reduce::Min)? >= 0.0 && extreme(Reduce::Max)? <= 1.0) {
                return Err(Error::value(format!("{name}: all elements of input should be between 0 and 1")));
            }
        }
        let loss = self.row(Pointwise::BinaryCrossEntropy, target, &[])?;
        let loss = weight.map_or(Ok(loss.clone()), |w| loss.mul(w))?;
        reduction.apply(name, loss)
    }

    /// Cross-entropy of logits with targets between 0 and 1; `weight` and `pos_weight` (for positive targets)
    /// broadcast.
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        pos_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            let (weight, pos_weight) = (cast.of_option(weight)?, cast.of_option(pos_weight)?);
            return cast.run(|| {
                let (x, target) = (cast.of(self)?, cast.of(target)?);
                x.binary_cross_entropy_with_logits(&target, weight.as_ref(), pos_weight.as_ref(), reduction)
            });
        }
        let name = "binary_cross_entropy_with_logits";
        if self.shape() != target.shape() {
            return Err(Error::shape(format!(
                "{name}: target size ({:?}) must be the same as input size ({:?})",
                target.shape(),
                self.shape()
            )));
        }
        let loss = match pos_weight {
            None => self.row(Pointwise::BinaryCrossEntropyWithLogits, target, &[])?,
            Some(pos_weight) => {
                let log_weight = pos_weight.sub(1)?.mul(target)?.add(1)?;
                target.rsub(1)?.mul(self)?.sub(&log_weight.mul(&self.logsigmoid()?)?)?
            }
        };
        let loss = weight.map_or(Ok(loss.clone()), |w| loss.mul(w))?;
        reduction.apply(name, loss)
    }

    /// Kullback-Leibler divergence of the log-probabilities `self` from the probabilities `target`, or, with
    /// `log_target`, from log-probabilities. [`Reduction::BatchMean`] is the mathematical definition's mean.
    pub fn kl_div(&self, target: &Tensor, log_target: bool, reduction: Reduction) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.kl_div(&cast.of(target)?, log_target, reduction));
        }
        let op = if log_target { Pointwise::KlDivLog } else { Pointwise::KlDiv };
        let loss = self.row(op, target, &[])?;
        if reduction == Reduction::BatchMean {
            let batch = self.shape().first().copied().unwrap_or(1);
            return loss.sum(..)?.div(batch as f64);
        }
        reduction.apply("kl_div", loss)
    }

    /// Negative log-likelihood of `target` under normal distributions with means `self` and variances `var`, which may
    /// have size one in the last dimension or lack it. PyTorch's defaults are `full` false and `eps` 1e-6.
    pub fn gaussian_nll_loss(
        &self,
        target: &Tensor,
        var: &Tensor,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let name = "gaussian_nll_loss";
        let rank = self.rank();
        let lead = &self.shape()[..rank.saturating_sub(1)];
        let var = if var.shape() == self.shape() {
            var.clone()
        } else if rank > 0 && var.shape() == lead {
            var.unsqueeze(-1)?
        } else if rank > 0 && var.rank() == rank && var.shape()[..rank - 1] == *lead && var.shape()[rank - 1] == 1 {
            var.clone()
        } else {
            return Err(Error::shape(format!(
                "{name}: var is of incorrect size {:?} for input {:?}",
                var.shape(),
                self.shape()
            )));
        };
        if crate::capture::may_read(var.device()) && no_grad(|| var.lt(0.0)?.any(..)?.item::<bool>())? {
            return Err(Error::value(format!("{name}: var has negative entry/entries")));
        }
        // Kept away from zero without changing its gradient.
        let var = var.copy()?;
        no_grad(|| var.clamp_(eps, f64::INFINITY).map(|_| ()))?;
        let mut loss = self.sub(target)?.square()?.div(&var)?.add(&var.log()?)?.mul(0.5)?;
        if full {
            loss = loss.add(0.5 * TAU.ln())?;
        }
        reduction.apply(name, loss)
    }

    /// Negative log-likelihood of counts `target` under Poisson distributions whose rates, or with `log_input` their
    /// logarithms, are `self`. `full` adds Stirling's term. PyTorch's defaults are `log_input` true, `full` false and
    /// `eps` 1e-8.
    pub fn poisson_nll_loss(
        &self,
        target: &Tensor,
        log_input: bool,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.poisson_nll_loss(&cast.of(target)?, log_input, full, eps, reduction));
        }
        let mut loss = if log_input {
            self.exp()?.sub(&target.mul(self)?)?
        } else {
            self.sub(&target.mul(&self.add(eps)?.log()?)?)?
        };
        if full {
            // Targets up to one have no such term; the logarithm uses one in their place.
            let large = target.gt(1)?;
            let safe = where_(&large, target, 1.0)?;
            let stirling = safe.mul(&safe.log()?)?.sub(&safe)?.add(&safe.mul(TAU)?.log()?.mul(0.5)?)?;
            loss = loss.add(&where_(&large, &stirling, 0.0)?)?;
        }
        reduction.apply("poisson_nll_loss", loss)
    }

    /// `log(1 + exp(-target * self))` for targets of 1 and -1.
    pub fn soft_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.soft_margin_loss(&cast.of(target)?, reduction));
        }
        if crate::autograd::recording(&[target]) {
            return Err(Error::autograd(
                "soft_margin_loss is not differentiable with respect to argument 'target'. This input cannot have requires_grad True: \
                 detach the target",
            ));
        }
        reduction.apply("soft_margin_loss", target.mul(self)?.logsigmoid()?.neg()?)
    }

    /// `max(0, -target * (self - other) + margin)` for targets of 1 and -1; PyTorch's default margin is 0.
    pub fn margin_ranking_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast
                .run(|| cast.of(self)?.margin_ranking_loss(&cast.of(other)?, &cast.of(target)?, margin, reduction));
        }
        let loss = target.neg()?.mul(&self.sub(other)?)?.add(margin)?.clamp_min(0.0)?;
        reduction.apply("margin_ranking_loss", loss)
    }

    /// `self` for targets of 1, `max(0, margin - self)` for targets of -1; PyTorch's default margin is 1.
    pub fn hinge_embedding_loss(&self, target: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.hinge_embedding_loss(&cast.of(target)?, margin, reduction));
        }
        let far = where_(&target.ne(1)?, &self.rsub(margin)?.clamp_min(0.0)?, 0.0)?;
        let near = where_(&target.ne(-1)?, self, 0.0)?;
        reduction.apply("hinge_embedding_loss", far.add(&near)?)
    }

    /// One minus the cosine of the angle to `other` for targets of 1, `max(0, cosine - margin)` for targets of -1;
    /// PyTorch's default margin is 0. Inputs are `[batch, size]` with targets `[batch]`, or `[size]` with a zero-dim
    /// target.
    pub fn cosine_embedding_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast
                .run(|| cast.of(self)?.cosine_embedding_loss(&cast.of(other)?, &cast.of(target)?, margin, reduction));
        }
        let name = "cosine_embedding_loss";
        let rank = target.rank();
        if rank > 1 || self.rank() != rank + 1 || other.rank() != rank + 1 {
            return Err(Error::shape(format!(
                "{name}: {rank}D target tensor expects {}D input tensors, but found inputs with sizes {:?} and {:?}",
                rank + 1,
                self.shape(),
                other.shape()
            )));
        }
        const EPSILON: f64 = 1e-12;
        let over = [rank as isize];
        let squares = |t: &Tensor| t.square()?.sum(over)?.add(EPSILON);
        let product = self.mul(other)?.sum(over)?;
        let cosine = product.div(&squares(self)?.mul(&squares(other)?)?.sqrt()?)?;
        let near = where_(&target.eq(1)?, &cosine.rsub(1.0)?, 0.0)?;
        let far = where_(&target.eq(-1)?, &cosine.sub(margin)?.clamp_min(0.0)?, 0.0)?;
        reduction.apply(name, near.add(&far)?)
    }

    /// `max(0, margin + |self - positive| - |self - negative|)` by the distance of [`Tensor::pairwise_distance`].
    pub fn triplet_margin_loss(
        &self,
        positive: &Tensor,
        negative: &Tensor,
        options: TripletMargin,
        reduction: Reduction,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| {
                cast.of(self)?.triplet_margin_loss(&cast.of(positive)?, &cast.of(negative)?, options, reduction)
            });
        }
        let name = "triplet_margin_loss";
        if self.rank() != positive.rank() || self.rank() != negative.rank() {
            return Err(Error::shape(format!(
                "{name}: the anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor {}D, \
                 positive {}D, and negative {}D inputs",
                self.rank(),
                positive.rank(),
                negative.rank()
            )));
        }
        let distance = |a: &Tensor, b: &Tensor| a.pairwise_distance(b, options.p, options.eps, false);
        let near = distance(self, positive)?;
        let mut far = distance(self, negative)?;
        if options.swap {
            far = far.minimum(&distance(positive, negative)?)?;
        }
        reduction.apply(name, near.sub(&far)?.add(options.margin)?.clamp_min(0.0)?)
    }
}

/// The optional arguments of [`Tensor::triplet_margin_loss`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripletMargin {
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
}

impl Default for TripletMargin {
    fn default() -> Self {
        Self { margin: 1.0, p: 2.0, eps: 1e-6, swap: false }
    }
}

impl TripletMargin {
    setters! {
        /// By how much the positive must be nearer; 1 by default.
        margin: f64;
        /// The norm distances are measured in; 2 by default.
        p: f64;
        /// Added to differences; 1e-6 by default.
        eps: f64;
        /// Whether the distance of positive and negative is used if it is smaller than that of anchor and negative.
        swap: bool;
    }
}
