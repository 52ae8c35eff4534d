//! Samplers: the order in which samples are read.
//!
//! An epoch's order is a function of the sampler's seed and the epoch's number alone, so any epoch can be had again,
//! from any place in it. [`Cursor`] remembers the place.

mod batch;
mod cursor;
mod distributed;
mod permutation;
mod random;
mod weighted;

pub use batch::BatchSampler;
pub use cursor::Cursor;
pub(crate) use cursor::{seed_from_value, seed_to_value};
pub use distributed::DistributedSampler;
pub use permutation::permutation;
pub use random::{RandomSampler, SubsetRandomSampler};
pub use weighted::WeightedRandomSampler;

use rushlight_core::Result;

/// An epoch's indices, or batches of indices.
pub type Indices<T> = Box<dyn Iterator<Item = T> + Send>;

/// The order in which samples, or batches of samples, are read.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::sampler::{RandomSampler, Sampler};
/// let sampler = RandomSampler::new(5).seed(1);
/// let mut first: Vec<usize> = sampler.iter(0)?.collect();
/// assert_eq!(first, sampler.iter(0)?.collect::<Vec<_>>());
/// first.sort();
/// assert_eq!(first, [0, 1, 2, 3, 4]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait Sampler: Send + Sync {
    /// An index, or a batch of them.
    type Item: Send + 'static;

    /// How many items an epoch has.
    fn len(&self) -> usize;

    /// Whether an epoch has no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items of an epoch: the same at each call.
    fn iter(&self, epoch: u64) -> Result<Indices<Self::Item>>;

    /// The seed the order follows from, of samplers that have one. It is all that must be saved to have the same order
    /// again.
    fn order_seed(&self) -> Option<u64> {
        None
    }

    /// Sets the seed, of samplers that have one.
    fn set_order_seed(&mut self, seed: u64) {
        let _ = seed;
    }

    /// How the processes of a job share an epoch, of samplers whose processes do.
    fn share(&self, epoch: u64) -> Option<Share> {
        let _ = epoch;
        None
    }

    /// How many samples of the epoch's order all processes together have taken after `items` items each, of samplers
    /// that share one.
    fn taken(&self, epoch: u64, items: usize) -> Option<usize> {
        let _ = (epoch, items);
        None
    }

    /// Has an epoch begin after the first `start` samples of its order, which were read before, perhaps by another
    /// number of processes. Other epochs are whole.
    fn resume(&mut self, epoch: u64, start: usize) {
        let _ = (epoch, start);
    }

    /// This sampler with a place in it that can be saved and restored.
    fn cursor(self) -> Cursor<Self>
    where
        Self: Sized,
    {
        Cursor::new(self)
    }
}

/// How the processes of a job share an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Samples of the dataset.
    pub samples: usize,
    /// Number of processes.
    pub replicas: usize,
    /// Samples at the front of the epoch that were read before: see [`Sampler::resume`].
    pub start: usize,
}

impl<S: Sampler + ?Sized> Sampler for Box<S> {
    type Item = S::Item;
    fn len(&self) -> usize {
        (**self).len()
    }
    fn iter(&self, epoch: u64) -> Result<Indices<S::Item>> {
        (**self).iter(epoch)
    }
    fn order_seed(&self) -> Option<u64> {
        (**self).order_seed()
    }
    fn set_order_seed(&mut self, seed: u64) {
        (**self).set_order_seed(seed);
    }
    fn share(&self, epoch: u64) -> Option<Share> {
        (**self).share(epoch)
    }
    fn taken(&self, epoch: u64, items: usize) -> Option<usize> {
        (**self).taken(epoch, items)
    }
    fn resume(&mut self, epoch: u64, start: usize) {
        (**self).resume(epoch, start);
    }
}

/// The indices `0..len` in order.
#[derive(Clone, Copy, Debug)]
pub struct SequentialSampler {
    len: usize,
}

impl SequentialSampler {
    /// A sampler for a dataset of `len` samples.
    pub fn new(len: usize) -> Self {
        Self { len }
    }
}

impl Sampler for SequentialSampler {
    type Item = usize;
    fn len(&self) -> usize {
        self.len
    }
    fn iter(&self, _epoch: u64) -> Result<Indices<usize>> {
        Ok(Box::new(0..self.len))
    }
}
