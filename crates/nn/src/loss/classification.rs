//! Losses of classes and yes-or-no answers.

use super::losses;
use crate::Module;
use rushlight_core::Result;
use rushlight_tensor::{CrossEntropyOptions, Reduction, Tensor};

losses! {
    /// Cross-entropy of logits `[batch, classes, ..]` with class indices `[batch, ..]` or probabilities of the logits'
    /// shape.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
    /// use rushlight::nn::CrossEntropyLoss;
    /// use rushlight::Tensor;
    /// let logits = Tensor::new([[0.0f32, 0.0], [0.0, 0.0]])?;
    /// let loss = CrossEntropyLoss::new().label_smoothing(0.1).forward(&logits, &Tensor::new([0i64, 1])?)?;
    /// assert!((loss.item::<f32>()? - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    CrossEntropyLoss [
        /// A weight per class.
        weight,
    ] {
        /// The class index to ignore; -100 by default.
        ignore_index: i64 = -100,
        /// Label smoothing: the share of the target spread over all classes, from 0 to 1; 0 by default.
        label_smoothing: f64 = 0.0,
    }
    |l, input, target| {
        let options = CrossEntropyOptions::default()
            .weight(l.weight.as_deref())
            .ignore_index(l.ignore_index)
            .label_smoothing(l.label_smoothing)
            .reduction(l.reduction);
        input.cross_entropy_with(target, &options)
    };

    /// Negative log-likelihood of class indices, from log-probabilities `[batch, classes, ..]`.
    NLLLoss [
        /// A weight per class.
        weight,
    ] {
        /// The class index to ignore; -100 by default.
        ignore_index: i64 = -100,
    }
    |l, input, target| {
        let options = CrossEntropyOptions::default()
            .weight(l.weight.as_deref())
            .ignore_index(l.ignore_index)
            .reduction(l.reduction);
        input.nll_loss(target, &options)
    };

    /// Cross-entropy of probabilities with targets between 0 and 1.
    BCELoss [
        /// A weight per element, broadcast.
        weight,
    ] {}
    |l, input, target| input.binary_cross_entropy(target, l.weight.as_deref(), l.reduction);

    /// Cross-entropy of logits with targets between 0 and 1.
    BCEWithLogitsLoss [
        /// A weight per element, broadcast.
        weight,
        /// A weight of positive targets, broadcast.
        pos_weight,
    ] {}
    |l, input, target| {
        input.binary_cross_entropy_with_logits(target, l.weight.as_deref(), l.pos_weight.as_deref(), l.reduction)
    };
}
