//! One process's share of a dataset.

use super::{Indices, Sampler, Share, permutation};
use rushlight_core::{Error, Result, setters};

/// The part of a dataset that one of several processes reads, by the rules of PyTorch's class of this name.
///
/// The order of epoch `e` is PyTorch's own for `seed + e` ([`permutation`]): a program continues in either where the
/// other stopped. The order is padded with indices from the front, or cut at the end, to a multiple of the number of
/// processes; process `rank` reads every `num_replicas`-th index from `rank` on. All processes need the same seed.
///
/// A job that continues with another number of processes in the middle of an epoch shares out the rest of that
/// epoch's order ([`Sampler::resume`]), so that each sample is still read once. A `DataLoader` does so when it loads
/// its state.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::sampler::{DistributedSampler, Sampler};
/// let rank1 = DistributedSampler::new(5, 2, 1)?.shuffle(false);
/// assert_eq!(rank1.iter(0)?.collect::<Vec<_>>(), [1, 3, 0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DistributedSampler {
    len: usize,
    num_replicas: usize,
    rank: usize,
    shuffle: bool,
    seed: u64,
    drop_last: bool,
    padded: bool,
    /// An epoch, and how many samples of its order were read before.
    resumed: Option<(u64, usize)>,
}

impl DistributedSampler {
    /// A sampler for a dataset of `len` samples, for process `rank` of `num_replicas`; shuffled with seed 0.
    pub fn new(len: usize, num_replicas: usize, rank: usize) -> Result<Self> {
        if rank >= num_replicas {
            return Err(Error::value(format!(
                "DistributedSampler: invalid rank {rank}, rank should be in the interval [0, {num_replicas})"
            )));
        }
        Ok(Self { len, num_replicas, rank, shuffle: true, seed: 0, drop_last: false, padded: true, resumed: None })
    }

    setters! {
        /// Whether the order is random.
        shuffle: bool;
        /// Sets the seed, which must be the same in all processes.
        seed: u64;
        /// Whether samples that do not divide evenly are left out, rather than some repeated.
        drop_last: bool;
        /// Whether processes read equally many samples, which training needs. Without, every sample is read exactly
        /// once and the first processes may read one more than the others: exact evaluation needs this. PyTorch always
        /// pads or drops.
        padded: bool;
    }

    /// Where an epoch begins.
    fn start(&self, epoch: u64) -> usize {
        self.resumed.filter(|(resumed, _)| *resumed == epoch).map_or(0, |(_, start)| start)
    }

    /// How many of `samples` fall to each process.
    fn each(&self, samples: usize) -> usize {
        match (self.padded, self.drop_last) {
            (false, _) => samples.saturating_sub(self.rank).div_ceil(self.num_replicas),
            (true, true) => samples / self.num_replicas,
            (true, false) => samples.div_ceil(self.num_replicas),
        }
    }
}

impl Sampler for DistributedSampler {
    type Item = usize;

    fn len(&self) -> usize {
        self.each(self.len)
    }

    fn iter(&self, epoch: u64) -> Result<Indices<usize>> {
        let start = self.start(epoch);
        let (len, step, count) = (self.len, self.num_replicas, self.each(self.len - start));
        let order = self.shuffle.then(|| permutation(len, self.seed.wrapping_add(epoch)));
        // Places past the end, which only padding has, start over at the front.
        let places = (start + self.rank..).step_by(step).take(count).map(move |place| place % len.max(1));
        Ok(match order {
            Some(order) => Box::new(places.map(move |place| order[place])),
            None => Box::new(places),
        })
    }

    fn order_seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn set_order_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    fn share(&self, epoch: u64) -> Option<Share> {
        let start = self.start(epoch);
        Some(Share { samples: self.len, replicas: self.num_replicas, start })
    }

    fn taken(&self, epoch: u64, items: usize) -> Option<usize> {
        Some(items.saturating_mul(self.num_replicas).saturating_add(self.start(epoch)).min(self.len))
    }

    fn resume(&mut self, epoch: u64, start: usize) {
        self.resumed = Some((epoch, start.min(self.len)));
    }
}
