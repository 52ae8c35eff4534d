//! The order of a loader without a sampler of the user's own: it can be shared among processes, or get another batch
//! size, later.

use super::{DataLoader, Source};
use crate::sampler::{BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler};
use rushlight_core::{Error, Result};

/// How batches are made of a dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub len: usize,
    pub shuffle: bool,
    pub batch_size: usize,
    pub drop_last: bool,
    pub share: Option<Share>,
}

/// One process's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub rank: usize,
    pub replicas: usize,
    /// Whether all processes read equally many samples.
    pub padded: bool,
}

impl Order {
    pub(super) fn batches(&self, seed: u64) -> Result<Box<dyn Sampler<Item = Vec<usize>>>> {
        let sampler: Box<dyn Sampler<Item = usize>> = match self.share {
            Some(share) => Box::new(
                DistributedSampler::new(self.len, share.replicas, share.rank)?
                    .shuffle(self.shuffle)
                    .seed(seed)
                    .drop_last(self.drop_last)
                    .padded(share.padded),
            ),
            None if self.shuffle => Box::new(RandomSampler::new(self.len).seed(seed)),
            None => Box::new(SequentialSampler::new(self.len)),
        };
        Ok(Box::new(BatchSampler::new(sampler, self.batch_size, self.drop_last)?))
    }
}

impl<B> DataLoader<B> {
    /// The seed of the order and of random transforms.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Samples in a batch; `None` where a batch sampler of the user's own or a stream decides.
    pub fn batch_size(&self) -> Option<usize> {
        self.order.map(|order| order.batch_size)
    }

    /// Whether each process reads only its own part already.
    pub fn is_distributed(&self) -> bool {
        self.order.is_some_and(|order| order.share.is_some())
    }

    /// Reads from now on only the part of process `rank` of `replicas`, in the order of `seed`, which must be the same
    /// in all processes. With `padded` all processes read equally many samples, some twice, as training needs; without,
    /// each sample is read by exactly one process, as evaluation needs.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_data as data; }
    /// use rushlight::data::{DataLoader, TensorDataset};
    /// # use rushlight_tensor::Tensor;
    /// let data = TensorDataset::new((Tensor::arange(0, 5, 1)?, Tensor::arange(0, 5, 1)?))?;
    /// let mut loader = DataLoader::new(data, 2)?;
    /// loader.distribute(1, 2, 0, false)?;
    /// let (x, _) = loader.iter().next().unwrap()?;
    /// assert_eq!(x.to_vec::<i64>()?, [1, 3]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn distribute(&mut self, rank: usize, replicas: usize, seed: u64, padded: bool) -> Result<()> {
        let order = self.own_order("distribute", "make the sampler a DistributedSampler")?;
        let order = Order { share: Some(Share { rank, replicas, padded }), ..order };
        self.reorder(order, seed)
    }

    /// Makes batches of another size from now on.
    pub fn set_batch_size(&mut self, batch_size: usize) -> Result<()> {
        let order = self.own_order("set_batch_size", "build the loader with the batch size it should have")?;
        self.reorder(Order { batch_size, ..order }, self.seed)
    }

    fn own_order(&self, call: &str, instead: &str) -> Result<Order> {
        let reason = match self.source {
            Source::Streamed(_) => "an iterable dataset",
            Source::Indexed { .. } => "a sampler of its own",
        };
        self.order.ok_or_else(|| Error::unsupported(format!("DataLoader: {call}: the loader has {reason}; {instead}")))
    }

    fn reorder(&mut self, order: Order, seed: u64) -> Result<()> {
        let new = order.batches(seed)?;
        if let Source::Indexed { batches, .. } = &mut self.source {
            *batches = new;
        }
        (self.order, self.seed) = (Some(order), seed);
        Ok(())
    }
}
