//! Metrics of the confusion matrix.

use super::accuracy::labels;
use super::sums::{Sums, metric};
use crate::ranks::Ranks;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{Tensor, where_};

/// How the values of classes are averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// Computed from the counts of all classes together.
    Micro,
    /// The mean over the classes that occur.
    Macro,
    /// The mean over the classes, weighted by their number of samples.
    Weighted,
}

/// Counts of samples by their class (rows) and the predicted one (columns).
#[derive(Clone, Debug)]
pub struct ConfusionMatrix {
    classes: usize,
    ignore_index: Option<i64>,
    sums: Sums,
}

impl ConfusionMatrix {
    /// A matrix for `num_classes` classes.
    pub fn new(num_classes: usize) -> Self {
        Self { classes: num_classes.max(1), ignore_index: None, sums: Sums::default() }
    }

    /// Ignores samples of this class.
    pub fn ignore_index(mut self, class: i64) -> Self {
        self.ignore_index = Some(class);
        self
    }

    /// Adds a batch: scores of shape `[N, C, …]`, classes, or probabilities of two classes.
    pub fn update(&self, predictions: &Tensor, target: &Tensor) -> Result<()> {
        no_grad(|| {
            let predicted = labels("ConfusionMatrix", predictions, target)?.to_dtype(DType::I64)?;
            let target = target.to_dtype(DType::I64)?;
            let classes = self.classes;
            let mut cell = target.mul(classes as f64)?.to_dtype(DType::I64)?.add(&predicted)?;
            if let Some(class) = self.ignore_index {
                // An extra cell collects ignored samples.
                cell = where_(&target.eq(class as f64)?, (classes * classes) as f64, &cell)?.to_dtype(DType::I64)?;
            }
            let cell = cell.reshape([-1])?;
            let ones = Tensor::ones_with(cell.shape(), (DType::F64, cell.device()))?;
            let empty = Tensor::zeros_with([classes * classes + 1], (DType::F64, cell.device()))?;
            let counts = empty
                .scatter_add(0, &cell, &ones)
                .map_err(|e| e.within(&format!("ConfusionMatrix: a class is not between 0 and {}", classes - 1)))?;
            self.sums.add(&counts)
        })
    }

    /// The counts of all processes, row by row.
    pub fn matrix(&self, ranks: &Ranks) -> Result<Vec<Vec<f64>>> {
        let mut counts = self.sums.read(self.classes * self.classes + 1, ranks)?;
        counts.pop();
        Ok(counts.chunks(self.classes).map(<[f64]>::to_vec).collect())
    }

    /// Resets the counts.
    pub fn reset(&self) -> Result<()> {
        self.sums.reset()
    }

    /// True positives, false positives and false negatives of each class.
    fn counts(&self, ranks: &Ranks) -> Result<Vec<[f64; 3]>> {
        let matrix = self.matrix(ranks)?;
        let count = |c: usize| {
            let right = matrix[c][c];
            let predicted: f64 = matrix.iter().map(|row| row[c]).sum();
            [right, predicted - right, matrix[c].iter().sum::<f64>() - right]
        };
        Ok((0..self.classes).map(count).collect())
    }
}

fn divide(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

fn average(counts: &[[f64; 3]], average: Average, figure: fn([f64; 3]) -> f64) -> f64 {
    let weight = |[right, wrong, missed]: [f64; 3]| match average {
        Average::Weighted => right + missed,
        // Classes that neither occur nor are predicted do not count.
        _ => f64::from(u8::from(right + wrong + missed > 0.0)),
    };
    if average == Average::Micro {
        let total = counts.iter().fold([0.0; 3], |t, c| [t[0] + c[0], t[1] + c[1], t[2] + c[2]]);
        return figure(total);
    }
    let total: f64 = counts.iter().map(|c| weight(*c)).sum();
    divide(counts.iter().map(|c| weight(*c) * figure(*c)).sum(), total)
}

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident = |$right:pat_param, $wrong:pat_param, $missed:pat_param| $figure:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            matrix: ConfusionMatrix,
            average: Average,
        }

        impl $name {
            /// For `num_classes` classes; the mean over those that occur. With two classes and [`Average::Micro`] all
            /// samples have equal weight.
            pub fn new(num_classes: usize) -> Self {
                Self { matrix: ConfusionMatrix::new(num_classes), average: Average::Macro }
            }

            /// How the values of classes are averaged.
            pub fn average(mut self, average: Average) -> Self {
                self.average = average;
                self
            }

            /// Ignores samples of this class.
            pub fn ignore_index(mut self, class: i64) -> Self {
                self.matrix = self.matrix.ignore_index(class);
                self
            }

            /// Adds a batch: scores of shape `[N, C, …]`, classes, or probabilities of two classes.
            pub fn update(&self, predictions: &Tensor, target: &Tensor) -> Result<()> {
                self.matrix.update(predictions, target).map_err(|e| e.within(stringify!($name)))
            }

            fn figure([$right, $wrong, $missed]: [f64; 3]) -> f64 {
                $figure
            }

            /// The value of one class, over the batches of this process.
            pub fn of_class(&self, class: usize) -> Result<f64> {
                let counts = self.matrix.counts(&Ranks::alone())?;
                let none = || Error::index(format!("{}: class {class} of {}", stringify!($name), counts.len()));
                counts.get(class).map(|c| Self::figure(*c)).ok_or_else(none)
            }

            fn sums(&self) -> &Sums {
                &self.matrix.sums
            }
        }

        impl super::Metric for $name {
            fn value(&self, ranks: &Ranks) -> Result<f64> {
                Ok(average(&self.matrix.counts(ranks)?, self.average, Self::figure))
            }

            fn reset(&self) -> Result<()> {
                self.sums().reset()
            }

            fn state(&self) -> Result<rushlight_tensor::state::Value> {
                self.sums().state()
            }

            fn merge(&self, state: &rushlight_tensor::state::Value) -> Result<()> {
                self.sums().merge(state)
            }
        }

        impl $name {
            /// The value over the batches of this process since the last reset.
            pub fn compute(&self) -> Result<f64> {
                super::Metric::value(self, &Ranks::alone())
            }
        }
    )*};
}

figures! {
    /// The fraction of a class among the samples predicted to be of it.
    Precision = |right, wrong, _| divide(right, right + wrong);
    /// The fraction of a class's samples that are predicted to be of it.
    Recall = |right, _, missed| divide(right, right + missed);
    /// The harmonic mean of precision and recall.
    F1Score = |right, wrong, missed| divide(2.0 * right, 2.0 * right + wrong + missed);
}

metric!(ConfusionMatrix, sums, |this, ranks| {
    // A single number: the fraction on the diagonal.
    let counts = this.counts(ranks)?;
    Ok(divide(counts.iter().map(|c| c[0]).sum(), counts.iter().map(|c| c[0] + c[2]).sum()))
});
