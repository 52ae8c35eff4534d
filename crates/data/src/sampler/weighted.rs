//! Indices drawn by weight.

use super::{Indices, Sampler};
use crate::rng::{SampleRng, draw_seed};
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Generator, Result};
use std::sync::Arc;

/// Indices drawn with probabilities proportional to weights, which need not add up to one.
#[derive(Clone, Debug)]
pub struct WeightedRandomSampler {
    weights: Arc<[f64]>,
    /// Sums of the weights up to and including each.
    sums: Arc<[f64]>,
    num_samples: usize,
    replacement: bool,
    seed: u64,
}

impl WeightedRandomSampler {
    /// A sampler that draws `num_samples` indices an epoch.
    pub fn new(weights: impl Into<Arc<[f64]>>, num_samples: usize, replacement: bool) -> Result<Self> {
        let weights = weights.into();
        if let Some((i, w)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite() || **w < 0.0) {
            return Err(Error::value(format!(
                "WeightedRandomSampler: weights must be finite and not negative, but weight {i} is {w}"
            )));
        }
        let sums: Arc<[f64]> = weights
            .iter()
            .scan(0.0, |sum, w| {
                *sum += w;
                Some(*sum)
            })
            .collect();
        let positive = weights.iter().filter(|w| **w > 0.0).count();
        if num_samples == 0 || positive == 0 || sums.last().is_none_or(|s| !s.is_finite()) {
            return Err(Error::value(
                "WeightedRandomSampler: needs a positive number of samples and weights with a positive, finite sum",
            ));
        }
        if !replacement && num_samples > positive {
            return Err(Error::value(format!(
                "WeightedRandomSampler: cannot draw {num_samples} samples without replacement from {positive} with positive weight"
            )));
        }
        Ok(Self { weights, sums, num_samples, replacement, seed: draw_seed(default_generator()) })
    }

    /// Sets the seed, which is otherwise drawn from the process-wide generator.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Draws the seed from a generator, now.
    pub fn generator(self, generator: &Generator) -> Self {
        self.seed(draw_seed(generator))
    }
}

impl Sampler for WeightedRandomSampler {
    type Item = usize;

    fn len(&self) -> usize {
        self.num_samples
    }

    fn iter(&self, epoch: u64) -> Result<Indices<usize>> {
        let mut rng = SampleRng::new(self.seed.wrapping_add(epoch));
        if self.replacement {
            let sums = self.sums.clone();
            let total = sums.last().copied().unwrap_or(0.0);
            // Rounding may reach the total: the first sum that equals it belongs to the last positive weight.
            let last = sums.partition_point(|s| *s < total);
            let draw = move |_| {
                let at = rng.uniform() * total;
                sums.partition_point(|s| *s <= at).min(last)
            };
            return Ok(Box::new((0..self.num_samples).map(draw)));
        }
        // Waiting times with the weights as rates: the earliest is drawn first.
        let mut times: Vec<(f64, usize)> = self
            .weights
            .iter()
            .enumerate()
            .map(|(i, w)| (-(1.0 - rng.uniform()).ln() / w, i))
            .filter(|&(_, i)| self.weights[i] > 0.0)
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        times.truncate(self.num_samples);
        Ok(Box::new(times.into_iter().map(|(_, i)| i)))
    }

    fn order_seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn set_order_seed(&mut self, seed: u64) {
        self.seed = seed;
    }
}
