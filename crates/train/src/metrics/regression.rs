//! Regression metrics.

use super::sums::{Sums, metric};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{Tensor, stack};

/// Predictions and targets as vectors of `f64`.
fn vectors(metric: &str, predictions: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor)> {
    if predictions.shape() != target.shape() {
        return Err(Error::shape(format!(
            "{metric}: predictions of shape {:?}, targets of shape {:?}",
            predictions.shape(),
            target.shape()
        )));
    }
    let flat = |t: &Tensor| t.detach().to_dtype(DType::F64)?.reshape([-1]);
    Ok((flat(predictions)?, flat(target)?))
}

fn count(like: &Tensor) -> Result<Tensor> {
    Tensor::full_with([], like.numel() as f64, (DType::F64, like.device()))
}

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = |$difference:ident| $sum:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        pub struct $name {
            sums: Sums,
        }

        impl $name {
            /// An empty metric.
            pub fn new() -> Self {
                Self::default()
            }

            /// Adds a batch: numbers of any shape, and targets of the same.
            pub fn update(&self, predictions: &Tensor, target: &Tensor) -> Result<()> {
                no_grad(|| {
                    let (predictions, target) = vectors(stringify!($name), predictions, target)?;
                    let $difference = predictions.sub(&target)?;
                    self.sums.add(&stack(&[&$sum, &count(&target)?], 0)?)
                })
            }
        }

        metric!($name, sums, |this, ranks| {
            let sums = this.sums.read(2, ranks)?;
            Ok(sums[0] / sums[1])
        });
    )*};
}

errors! {
    /// The mean of squared differences.
    MeanSquaredError = |difference| difference.mul(&difference)?.sum(..)?;
    /// The mean of absolute differences.
    MeanAbsoluteError = |difference| difference.abs()?.sum(..)?;
}

/// R², the fraction of the targets' variance that the predictions explain.
#[derive(Clone, Debug, Default)]
pub struct R2Score {
    sums: Sums,
}

impl R2Score {
    /// An empty metric.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a batch: numbers of any shape, and targets of the same.
    pub fn update(&self, predictions: &Tensor, target: &Tensor) -> Result<()> {
        no_grad(|| {
            let (predictions, target) = vectors("R2Score", predictions, target)?;
            let residual = target.sub(&predictions)?;
            let sums =
                [target.sum(..)?, target.mul(&target)?.sum(..)?, residual.mul(&residual)?.sum(..)?, count(&target)?];
            self.sums.add(&stack(&sums.iter().collect::<Vec<_>>(), 0)?)
        })
    }
}

metric!(R2Score, sums, |this, ranks| {
    let sums = this.sums.read(4, ranks)?;
    let [sum, squares, residual, count] = sums[..] else { return Err(Error::value("R2Score: malformed sums")) };
    if count < 2.0 {
        return Err(Error::value(format!("R2Score needs at least two samples, {count} were added")));
    }
    Ok(1.0 - residual / (squares - sum * sum / count))
});
