//! Accuracy.

use super::sums::{Sums, metric};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{Tensor, stack, where_};

/// The fraction of samples whose predicted class is right, or whose class is among the `k` with the highest scores.
#[derive(Clone, Debug)]
pub struct Accuracy {
    top_k: usize,
    ignore_index: Option<i64>,
    sums: Sums,
}

impl Default for Accuracy {
    fn default() -> Self {
        Self::new()
    }
}

impl Accuracy {
    /// Accuracy of the class with the highest score.
    pub fn new() -> Self {
        Self { top_k: 1, ignore_index: None, sums: Sums::default() }
    }

    /// Counts a sample as right if its class is among the `k` with the highest scores.
    pub fn top_k(mut self, k: usize) -> Self {
        self.top_k = k.max(1);
        self
    }

    /// Ignores samples of this class.
    pub fn ignore_index(mut self, class: i64) -> Self {
        self.ignore_index = Some(class);
        self
    }

    /// Adds a batch. `predictions` are scores of shape `[N, C, …]` for classes of shape `[N, …]`; classes of the
    /// targets' shape; or probabilities (or logits) of that shape, with a threshold of one half.
    pub fn update(&self, predictions: &Tensor, target: &Tensor) -> Result<()> {
        no_grad(|| {
            let right = if self.top_k > 1 {
                if predictions.rank() != target.rank() + 1 {
                    return Err(shapes("Accuracy", predictions, target));
                }
                let (_, best) = predictions.topk(self.top_k, 1, true)?;
                let target = target.unsqueeze(1)?;
                best.eq(&target)?.to_dtype(DType::F64)?.sum(1)?
            } else {
                labels("Accuracy", predictions, target)?.eq(target)?.to_dtype(DType::F64)?
            };
            let counted = match self.ignore_index {
                Some(class) => target.ne(class as f64)?.to_dtype(DType::F64)?,
                None => Tensor::ones_with(target.shape(), (DType::F64, target.device()))?,
            };
            let right = right.mul(&counted)?.sum(..)?;
            self.sums.add(&stack(&[&right, &counted.sum(..)?], 0)?)
        })
    }
}

metric!(Accuracy, sums, |this, ranks| {
    let sums = this.sums.read(2, ranks)?;
    Ok(if sums[1] > 0.0 { sums[0] / sums[1] } else { 0.0 })
});

pub(super) fn shapes(metric: &str, predictions: &Tensor, target: &Tensor) -> Error {
    Error::shape(format!(
        "{metric}: predictions of shape {:?} do not fit targets of shape {:?}; scores have one dimension more, the classes, after the first",
        predictions.shape(),
        target.shape()
    ))
}

/// Predicted classes in the targets' shape.
pub(super) fn labels(metric: &str, predictions: &Tensor, target: &Tensor) -> Result<Tensor> {
    if predictions.rank() == target.rank() + 1 && predictions.shape().len() > 1 {
        return predictions.argmax(1);
    }
    if predictions.shape() != target.shape() {
        return Err(shapes(metric, predictions, target));
    }
    if !predictions.is_floating_point() {
        return Ok(predictions.clone());
    }
    probabilities(predictions)?.gt(0.5)?.to_dtype(target.dtype())
}

/// Scores as probabilities: logits, recognised by values outside of 0 to 1, go through a sigmoid.
pub(super) fn probabilities(scores: &Tensor) -> Result<Tensor> {
    let outside = scores.lt(0.0)?.logical_or(&scores.gt(1.0)?)?.any(..)?;
    where_(&outside, &scores.sigmoid()?, scores)
}
