//! Random orders.

use super::{Indices, Sampler};
use crate::rng::{SampleRng, draw_seed, randperm};
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Generator, Result};
use std::sync::Arc;

/// Random indices, by default without replacement.
///
/// Epoch `e` is `randperm` of the generator seeded with `seed + e`. The seed is drawn from the process-wide generator
/// unless given.
#[derive(Clone, Debug)]
pub struct RandomSampler {
    len: usize,
    replacement: bool,
    num_samples: Option<usize>,
    seed: u64,
}

impl RandomSampler {
    /// A sampler for a dataset of `len` samples.
    pub fn new(len: usize) -> Self {
        Self { len, replacement: false, num_samples: None, seed: draw_seed(default_generator()) }
    }

    /// Whether an index may come again before all others have come.
    pub fn replacement(mut self, replacement: bool) -> Self {
        self.replacement = replacement;
        self
    }

    /// How many indices an epoch has; the dataset's length by default. More than that without replacement are several
    /// permutations.
    pub fn num_samples(mut self, num_samples: usize) -> Self {
        self.num_samples = Some(num_samples);
        self
    }

    /// Sets the seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Draws the seed from a generator, now.
    pub fn generator(self, generator: &Generator) -> Self {
        self.seed(draw_seed(generator))
    }
}

impl Sampler for RandomSampler {
    type Item = usize;

    fn len(&self) -> usize {
        self.num_samples.unwrap_or(self.len)
    }

    fn iter(&self, epoch: u64) -> Result<Indices<usize>> {
        let (len, count, seed) = (self.len, Sampler::len(self), self.seed.wrapping_add(epoch));
        if count == 0 {
            return Ok(Box::new(std::iter::empty()));
        }
        if len == 0 {
            return Err(Error::value(format!("RandomSampler: cannot draw {count} samples from an empty dataset")));
        }
        if self.replacement {
            let mut rng = SampleRng::new(seed);
            return Ok(Box::new((0..count).map(move |_| rng.scaled(len))));
        }
        if count <= len {
            let mut order = randperm(seed, len)?;
            order.truncate(count);
            return Ok(Box::new(order.into_iter()));
        }
        // Permutation after permutation, each made when the one before is used up.
        let first = randperm(seed, len)?;
        let later =
            (1u64..).flat_map(move |round| SampleRng::new(crate::rng::derive_seed(seed, round)).permutation(len));
        Ok(Box::new(first.into_iter().chain(later).take(count)))
    }

    fn order_seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn set_order_seed(&mut self, seed: u64) {
        self.seed = seed;
    }
}

/// Given indices in random order.
#[derive(Clone, Debug)]
pub struct SubsetRandomSampler {
    indices: Arc<[usize]>,
    seed: u64,
}

impl SubsetRandomSampler {
    /// A sampler of these indices.
    pub fn new(indices: impl Into<Arc<[usize]>>) -> Self {
        Self { indices: indices.into(), seed: draw_seed(default_generator()) }
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

impl Sampler for SubsetRandomSampler {
    type Item = usize;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn iter(&self, epoch: u64) -> Result<Indices<usize>> {
        let order = randperm(self.seed.wrapping_add(epoch), self.indices.len())?;
        let indices = self.indices.clone();
        Ok(Box::new(order.into_iter().map(move |i| indices[i])))
    }

    fn order_seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn set_order_seed(&mut self, seed: u64) {
        self.seed = seed;
    }
}
