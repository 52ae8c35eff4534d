//! Indices in batches.

use super::{Indices, Sampler, Share};
use rushlight_core::{Error, Result};

/// Another sampler's indices in batches.
#[derive(Clone, Debug)]
pub struct BatchSampler<S> {
    sampler: S,
    batch_size: usize,
    drop_last: bool,
}

impl<S: Sampler<Item = usize>> BatchSampler<S> {
    /// Batches of `batch_size`; the last may be smaller, or is left out.
    pub fn new(sampler: S, batch_size: usize, drop_last: bool) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::value("BatchSampler: batch_size should be a positive integer, but got 0"));
        }
        Ok(Self { sampler, batch_size, drop_last })
    }
}

impl<S: Sampler<Item = usize>> Sampler for BatchSampler<S> {
    type Item = Vec<usize>;

    fn len(&self) -> usize {
        let samples = self.sampler.len();
        if self.drop_last { samples / self.batch_size } else { samples.div_ceil(self.batch_size) }
    }

    fn iter(&self, epoch: u64) -> Result<Indices<Vec<usize>>> {
        let mut indices = self.sampler.iter(epoch)?;
        let (size, drop_last) = (self.batch_size, self.drop_last);
        Ok(Box::new(std::iter::from_fn(move || {
            let batch: Vec<usize> = indices.by_ref().take(size).collect();
            let whole = batch.len() == size || (!drop_last && !batch.is_empty());
            whole.then_some(batch)
        })))
    }

    fn order_seed(&self) -> Option<u64> {
        self.sampler.order_seed()
    }

    fn set_order_seed(&mut self, seed: u64) {
        self.sampler.set_order_seed(seed);
    }

    fn share(&self, epoch: u64) -> Option<Share> {
        self.sampler.share(epoch)
    }

    fn taken(&self, epoch: u64, items: usize) -> Option<usize> {
        self.sampler.taken(epoch, items.saturating_mul(self.batch_size))
    }

    fn resume(&mut self, epoch: u64, start: usize) {
        self.sampler.resume(epoch, start);
    }
}
