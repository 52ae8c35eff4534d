//! Area under the ROC curve.

use super::accuracy::{probabilities, shapes};
use super::sums::{Pairs, metric};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;

/// The area under the receiver operating characteristic, exact: all scores are kept. Binary, or the mean over each
/// class against the others.
#[derive(Clone, Debug)]
pub struct Auroc {
    classes: Option<usize>,
    /// Scores and classes; with several classes, the scores of a sample are adjacent.
    pairs: Pairs,
}

impl Auroc {
    /// Binary, from the score of class 1.
    pub fn binary() -> Self {
        Self { classes: None, pairs: Pairs::default() }
    }

    /// Multiclass, one against the others; the mean over classes that have samples.
    pub fn multiclass(num_classes: usize) -> Self {
        Self { classes: Some(num_classes.max(1)), pairs: Pairs::default() }
    }

    /// Adds a batch: scores of shape `[N]`, or `[N, C]` for several classes, and classes of shape `[N]`.
    pub fn update(&self, scores: &Tensor, target: &Tensor) -> Result<()> {
        no_grad(|| match self.classes {
            None if scores.shape() == target.shape() => {
                self.pairs.add(&probabilities(scores)?.reshape([-1])?, &target.reshape([-1])?)
            }
            Some(classes)
                if scores.rank() == 2 && target.rank() == 1 && scores.shape() == [target.numel(), classes] =>
            {
                self.pairs.add(&scores.reshape([-1])?, target)
            }
            _ => Err(shapes("Auroc", scores, target)),
        })
    }
}

/// The area, from scores and whether they belong to the class; ties count half. `None` without samples on both sides.
fn area(mut scored: Vec<(f64, bool)>) -> Option<f64> {
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positive = scored.iter().filter(|(_, is)| *is).count() as f64;
    let negative = scored.len() as f64 - positive;
    if positive == 0.0 || negative == 0.0 {
        return None;
    }
    // Equal scores get the mean of their ranks.
    let (mut ranks, mut before) = (0.0, 0usize);
    for tied in scored.chunk_by(|a, b| a.0 == b.0) {
        let mean = before as f64 + (tied.len() as f64 + 1.0) / 2.0;
        ranks += mean * tied.iter().filter(|(_, is)| *is).count() as f64;
        before += tied.len();
    }
    Some((ranks - positive * (positive + 1.0) / 2.0) / (positive * negative))
}

metric!(Auroc, pairs, |this, ranks| {
    let (scores, target) = this.pairs.read(ranks)?;
    if scores.iter().any(|s| s.is_nan()) {
        return Err(Error::numerical("Auroc: a score is NaN"));
    }
    match this.classes {
        None => Ok(area(scores.into_iter().zip(target).map(|(s, t)| (s, t > 0.5)).collect()).unwrap_or(0.0)),
        Some(classes) => {
            let of = |c: usize| {
                let own = scores.iter().skip(c).step_by(classes);
                area(own.zip(&target).map(|(s, t)| (*s, *t == c as f64)).collect())
            };
            let areas: Vec<f64> = (0..classes).filter_map(of).collect();
            Ok(if areas.is_empty() { 0.0 } else { areas.iter().sum::<f64>() / areas.len() as f64 })
        }
    }
});
