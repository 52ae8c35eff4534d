//! Builder of loaders.

use super::fetch::{Fetch, custom_fetch, default_fetch};
use super::order::{Order, Share};
use super::streams::{BatchStream, Batches, Open};
use super::{DataLoader, Place, Source};
use crate::collate::Collate;
use crate::dataset::{Dataset, IterableDataset, WorkerInfo};
use crate::pin::PinMemory;
use crate::rng::draw_seed;
use crate::sampler::{BatchSampler, Sampler};
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Generator, Result};
use std::sync::{Arc, Mutex};

/// More threads than any machine has are a mistake, and would end the process.
const MAX_WORKERS: usize = 1024;

/// Options of both kinds of loaders.
#[derive(Clone, Copy, Debug)]
struct Common {
    batch_size: Option<usize>,
    drop_last: bool,
    workers: usize,
    prefetch: usize,
    seed: Option<u64>,
}

impl Default for Common {
    fn default() -> Self {
        Self { batch_size: None, drop_last: false, workers: 0, prefetch: 2, seed: None }
    }
}

impl Common {
    fn checked_batch_size(&self) -> Result<usize> {
        match self.batch_size.unwrap_or(1) {
            0 => Err(Error::value("DataLoader: batch_size should be a positive integer, but got 0")),
            size => Ok(size),
        }
    }

    fn build<B>(self, source: Source<B>, seed: u64, order: Option<Order>) -> Result<DataLoader<B>> {
        if self.workers > MAX_WORKERS {
            return Err(Error::value(format!(
                "DataLoader: {} workers are more than the {MAX_WORKERS} allowed",
                self.workers
            )));
        }
        if self.prefetch == 0 {
            return Err(Error::value("DataLoader: prefetch should be a positive number of batches per worker"));
        }
        Ok(DataLoader {
            source,
            workers: self.workers,
            prefetch: self.prefetch,
            seed,
            order,
            place: Mutex::new(Place::default()),
        })
    }
}

macro_rules! common_options {
    () => {
        /// Samples in a batch; 1 by default.
        pub fn batch_size(mut self, batch_size: usize) -> Self {
            self.common.batch_size = Some(batch_size);
            self
        }

        /// Whether a last batch that is not full is left out.
        pub fn drop_last(mut self, drop_last: bool) -> Self {
            self.common.drop_last = drop_last;
            self
        }

        /// Threads that read batches ahead; 0, reading in the calling thread, by default.
        #[doc(alias = "num_workers")]
        pub fn workers(mut self, workers: usize) -> Self {
            self.common.workers = workers;
            self
        }

        /// Batches each worker may be ahead; 2 by default.
        pub fn prefetch(mut self, prefetch: usize) -> Self {
            self.common.prefetch = prefetch;
            self
        }

        /// The seed of the order and of random transforms; drawn from the process-wide generator by default.
        pub fn seed(mut self, seed: u64) -> Self {
            self.common.seed = Some(seed);
            self
        }

        /// Draws the seed from a generator, now.
        pub fn generator(self, generator: &Generator) -> Self {
            self.seed(draw_seed(generator))
        }
    };
}

/// Options of a loader for a [`Dataset`]; see [`DataLoader::builder`].
pub struct DataLoaderBuilder<D, B> {
    dataset: Arc<D>,
    fetch: Fetch<B>,
    common: Common,
    shuffle: Option<bool>,
    sampler: Option<Box<dyn Sampler<Item = usize>>>,
    batch_sampler: Option<Box<dyn Sampler<Item = Vec<usize>>>>,
    /// Rank and number of processes.
    share: Option<(usize, usize)>,
}

impl DataLoader<()> {
    /// A loader of batches, in order, for a dataset whose samples [`Collate`] can put together. Pass an `Arc` to keep
    /// the dataset at hand.
    pub fn new<D>(dataset: D, batch_size: usize) -> Result<DataLoader<<D::Item as Collate>::Batch>>
    where
        D: Dataset + 'static,
        D::Item: Collate,
    {
        Self::builder(dataset).batch_size(batch_size).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](DataLoaderBuilder::build).
    pub fn builder<D>(dataset: D) -> DataLoaderBuilder<D, <D::Item as Collate>::Batch>
    where
        D: Dataset + 'static,
        D::Item: Collate,
    {
        let dataset = Arc::new(dataset);
        DataLoaderBuilder::over(dataset.clone(), default_fetch(dataset))
    }

    /// A loader for any dataset, with a function that puts samples together.
    pub fn with_collate<D, B: Send + 'static>(
        dataset: D,
        collate: impl Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
    ) -> DataLoaderBuilder<D, B>
    where
        D: Dataset + 'static,
    {
        let dataset = Arc::new(dataset);
        DataLoaderBuilder::over(dataset.clone(), custom_fetch(dataset, collate))
    }

    /// A loader for a dataset that is read from front to back. With several workers, batches come from them in turn, so
    /// that their order depends on the number of workers.
    pub fn iterable<D>(dataset: D) -> IterableLoaderBuilder<D>
    where
        D: IterableDataset + 'static,
    {
        IterableLoaderBuilder { dataset, common: Common::default() }
    }
}

impl<D: Dataset + 'static, B: Send + 'static> DataLoaderBuilder<D, B> {
    fn over(dataset: Arc<D>, fetch: Fetch<B>) -> Self {
        Self {
            dataset,
            fetch,
            common: Common::default(),
            shuffle: None,
            sampler: None,
            batch_sampler: None,
            share: None,
        }
    }

    common_options!();

    /// Whether the order is random and changes every epoch.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = Some(shuffle);
        self
    }

    /// The order in which samples are read.
    pub fn sampler(mut self, sampler: impl Sampler<Item = usize> + 'static) -> Self {
        self.sampler = Some(Box::new(sampler));
        self
    }

    /// The batches that are read.
    pub fn batch_sampler(mut self, sampler: impl Sampler<Item = Vec<usize>> + 'static) -> Self {
        self.batch_sampler = Some(Box::new(sampler));
        self
    }

    /// Reads only this process's share, by a [`DistributedSampler`](crate::sampler::DistributedSampler) with this
    /// loader's `shuffle`, `drop_last` and seed. The seed is 0 by default: it must be the same in all processes.
    pub fn distributed(mut self, rank: usize, num_replicas: usize) -> Self {
        self.share = Some((rank, num_replicas));
        self
    }

    /// A function that puts samples together, instead of [`Collate`]. The dataset's [`Dataset::get_batch`] is then not
    /// used.
    pub fn collate<C: Send + 'static>(
        self,
        collate: impl Fn(Vec<D::Item>) -> Result<C> + Send + Sync + 'static,
    ) -> DataLoaderBuilder<D, C> {
        DataLoaderBuilder {
            fetch: custom_fetch(self.dataset.clone(), collate),
            dataset: self.dataset,
            common: self.common,
            shuffle: self.shuffle,
            sampler: self.sampler,
            batch_sampler: self.batch_sampler,
            share: self.share,
        }
    }

    /// Puts batches into pinned memory, where they are read: [`Tensor::to_with`](rushlight_tensor::Tensor::to_with)
    /// then copies them to a GPU without waiting. Where there is no GPU, reading a batch is an error.
    pub fn pin_memory(mut self) -> Self
    where
        B: PinMemory,
    {
        let fetch = self.fetch;
        self.fetch = Arc::new(move |job, stop| fetch(job, stop)?.pin_memory());
        self
    }

    /// The loader.
    pub fn build(self) -> Result<DataLoader<B>> {
        let default_seed = || if self.share.is_some() { 0 } else { draw_seed(default_generator()) };
        let seed = self.common.seed.unwrap_or_else(default_seed);
        let orders = [self.shuffle == Some(true), self.sampler.is_some(), self.batch_sampler.is_some()];
        let shared = self.share.is_some() && (self.sampler.is_some() || self.batch_sampler.is_some());
        if orders.iter().filter(|&&given| given).count() > 1 || shared {
            return Err(Error::value(
                "DataLoader: shuffle, sampler and batch_sampler exclude each other, and distributed excludes the samplers; use a \
                 DistributedSampler of one's own",
            ));
        }
        let common = self.common;
        let mut order = None;
        let batches: Box<dyn Sampler<Item = Vec<usize>>> = match (self.batch_sampler, self.sampler, self.share) {
            (Some(_), ..) if common.batch_size.is_some() || common.drop_last => {
                return Err(Error::value("DataLoader: batch_sampler excludes batch_size and drop_last"));
            }
            (Some(batches), ..) => batches,
            (None, Some(sampler), _) => {
                Box::new(BatchSampler::new(sampler, common.checked_batch_size()?, common.drop_last)?)
            }
            (None, None, share) => {
                let plan = Order {
                    len: self.dataset.len(),
                    shuffle: self.shuffle == Some(true),
                    batch_size: common.checked_batch_size()?,
                    drop_last: common.drop_last,
                    share: share.map(|(rank, replicas)| Share { rank, replicas, padded: true }),
                };
                order = Some(plan);
                plan.batches(seed)?
            }
        };
        common.build(Source::Indexed { fetch: self.fetch, batches }, seed, order)
    }
}

/// Options of a loader for an [`IterableDataset`]; see [`DataLoader::iterable`].
pub struct IterableLoaderBuilder<D> {
    dataset: D,
    common: Common,
}

impl<D: IterableDataset + 'static> IterableLoaderBuilder<D> {
    common_options!();

    /// The loader.
    pub fn build(self) -> Result<DataLoader<<D::Item as Collate>::Batch>>
    where
        D::Item: Collate + 'static,
    {
        self.build_with(Collate::collate)
    }

    /// The loader, with a function that puts samples together.
    pub fn build_with<B: Send + 'static>(
        self,
        collate: impl Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
    ) -> Result<DataLoader<B>>
    where
        D::Item: 'static,
    {
        let (common, dataset, collate) = (self.common, self.dataset, Arc::new(collate));
        let batch_size = common.checked_batch_size()?;
        let open: Open<B> = Arc::new(move |worker: &WorkerInfo| {
            let samples = dataset.stream(worker)?;
            let batches = Batches { samples, batch_size, drop_last: common.drop_last, collate: collate.clone() };
            Ok(Box::new(batches) as BatchStream<B>)
        });
        let seed = common.seed.unwrap_or_else(|| draw_seed(default_generator()));
        common.build(Source::Streamed(open), seed, None)
    }
}
