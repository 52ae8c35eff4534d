//! The loader: batches of a dataset, read ahead by threads, in an order that does not depend on their number.

mod builder;
mod fetch;
mod order;
mod streams;
mod workers;

pub use builder::{DataLoaderBuilder, IterableLoaderBuilder};
use rushlight_core::sync::lock;

use crate::dataset::WorkerInfo;
use crate::progress::Progress;
use crate::rng::derive_seed;
use crate::sampler::{Indices, Sampler, Share, seed_from_value, seed_to_value};
use fetch::{Fetch, Job, catch_panic};
use order::Order;
use rushlight_core::{Error, Result};
use rushlight_tensor::profile;
use rushlight_tensor::state::{Dict, Key, Stateful, Value};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use streams::{BatchStream, Open, Streams};
use workers::WorkerPool;

/// Batches of a dataset, epoch by epoch.
///
/// ```
/// # mod rushlight {
/// #     pub use rushlight_core::DType;
/// #     pub use rushlight_tensor::*;
/// #     pub use rushlight_data as data;
/// # }
/// use rushlight::data::{DataLoader, TensorDataset};
/// use rushlight::Tensor;
/// let data = TensorDataset::new((Tensor::randn([100, 8])?, Tensor::arange(0, 100, 1)?))?;
/// let loader = DataLoader::builder(data).batch_size(32).shuffle(true).workers(2).seed(1).build()?;
/// assert_eq!(loader.len(), Some(4));
/// for epoch in 0..2 {
///     for batch in loader.epoch(epoch) {
///         let (x, y) = batch?;
///         assert_eq!(x.shape()[0], y.shape()[0]);
///     }
/// }
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// The order of an epoch depends on the seed and the epoch's number; random transforms depend also on the sample's
/// index and position. So any number of workers yields the same batches. As [`Stateful`] it saves the epoch
/// and the number of batches yielded, and an iteration after [`Stateful::load_state`] continues with the
/// next one. A loader that reads a process's share continues with another number of processes too: they share the
/// rest of the epoch, so that each sample is read once. All processes must have read the same number of batches.
pub struct DataLoader<B> {
    source: Source<B>,
    workers: usize,
    prefetch: usize,
    seed: u64,
    /// How batches are made of a dataset; `None` for a sampler of the user's own and for streams.
    order: Option<Order>,
    place: Mutex<Place>,
}

enum Source<B> {
    Indexed { fetch: Fetch<B>, batches: Box<dyn Sampler<Item = Vec<usize>>> },
    Streamed(Open<B>),
}

/// How far a loader has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    epoch: u64,
    /// Batches handed out in this epoch.
    batches: usize,
    /// Whether the next iteration continues from here, rather than starting an epoch.
    resume: bool,
    /// The iteration that moves this place: the one started last.
    iteration: u64,
}

impl<B: Send + 'static> DataLoader<B> {
    /// The number of batches in an epoch; `None` for streams, whose length is unknown.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> Option<usize> {
        match &self.source {
            Source::Indexed { batches, .. } => Some(batches.len()),
            Source::Streamed(_) => None,
        }
    }

    /// The epoch that [`DataLoader::iter`] reads next: 0 at first, the saved one after a restored state.
    pub fn next_epoch(&self) -> u64 {
        let place = self.place();
        // An epoch that was left in the middle is over.
        if place.resume || place.batches == 0 { place.epoch } else { place.epoch.wrapping_add(1) }
    }

    /// The next epoch's batches, or the rest of the saved epoch's after a restored state.
    pub fn iter(&self) -> LoaderIter<'_, B> {
        self.epoch(self.next_epoch())
    }

    /// An epoch's batches; after a restored state, those that are left if it is the saved epoch.
    pub fn epoch(&self, epoch: u64) -> LoaderIter<'_, B> {
        let place = {
            let mut place = self.place();
            let batches = if place.resume && place.epoch == epoch { place.batches } else { 0 };
            *place = Place { epoch, batches, resume: false, iteration: place.iteration.wrapping_add(1) };
            *place
        };
        let reader = self.open(epoch, place.batches).unwrap_or_else(|e| Reader::Failed(Some(e)));
        LoaderIter { loader: self, place, reader }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        lock(&self.place)
    }

    fn open(&self, epoch: u64, skip: usize) -> Result<Reader<B>> {
        match &self.source {
            Source::Indexed { fetch, batches } => {
                let mut jobs = Jobs { batches: batches.iter(epoch)?, seed: self.seed, epoch, place: 0 };
                jobs.by_ref().take(skip).for_each(drop);
                if self.workers == 0 {
                    return Ok(Reader::Inline(jobs, fetch.clone()));
                }
                let mut pool = WorkerPool::new(self.workers, fetch)?;
                let ahead = (self.workers as u64).saturating_mul(self.prefetch as u64);
                top_up(&mut pool, &mut jobs, ahead);
                Ok(Reader::Pooled { pool, jobs, ahead })
            }
            Source::Streamed(open) => {
                let count = self.workers.max(1);
                let epoch_seed = derive_seed(self.seed, epoch);
                let info = |id| WorkerInfo { id, count, seed: derive_seed(epoch_seed, id as u64), epoch };
                let mut batches: BatchStream<B> = match self.workers {
                    0 => catch_panic(|| open(&info(0)))?,
                    _ => Box::new(Streams::new(open, (0..count).map(info).collect(), self.prefetch)?),
                };
                // A stream cannot be entered in the middle: skip the batches read before.
                for batch in batches.by_ref().take(skip) {
                    batch?;
                }
                Ok(Reader::Streamed(Some(batches)))
            }
        }
    }
}

fn saved_share(state: &Value) -> Result<Option<(Share, usize)>> {
    let saved = state.as_dict()?;
    let count = |name: &str| saved.get(&Key::from(name)).map(Value::as_usize).transpose();
    Ok(match (count("samples")?, count("replicas")?, count("start")?, count("taken")?) {
        (Some(samples), Some(replicas), Some(start), Some(taken)) => Some((Share { samples, replicas, start }, taken)),
        _ => None,
    })
}

impl<B> Stateful for DataLoader<B> {
    fn state(&self) -> Result<Value> {
        let place = *lock(&self.place);
        let (len, sampler_seed, share) = match &self.source {
            Source::Indexed { batches, .. } => (Some(batches.len()), batches.order_seed(), batches.share(place.epoch)),
            Source::Streamed(_) => (None, None, None),
        };
        let taken = match &self.source {
            Source::Indexed { batches, .. } => batches.taken(place.epoch, place.batches),
            Source::Streamed(_) => None,
        };
        let mut state = Dict::new();
        state.insert("epoch".into(), Value::Int(place.epoch as i64));
        state.insert("batches".into(), place.batches.into());
        state.insert("len".into(), len.into());
        state.insert("seed".into(), seed_to_value(self.seed));
        state.insert("sampler_seed".into(), sampler_seed.map_or(Value::None, seed_to_value));
        if let (Some(share), Some(taken)) = (share, taken) {
            for (name, count) in
                [("samples", share.samples), ("replicas", share.replicas), ("start", share.start), ("taken", taken)]
            {
                state.insert(name.into(), count.into());
            }
        }
        Ok(state.into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let epoch = state.get("epoch")?.as_usize()? as u64;
        let batches = state.get("batches")?.as_usize()?;
        let seed = seed_from_value(state.get("seed")?)?
            .ok_or_else(|| Error::value("DataLoader: the state has no seed; is it the state of something else?"))?;
        let sampler_seed = seed_from_value(state.get("sampler_seed")?)?;
        let saved_len = match state.get("len")? {
            Value::None => None,
            len => Some(len.as_usize()?),
        };
        let mut batches = batches;
        if let Source::Indexed { batches: sampler, .. } = &mut self.source {
            let len = sampler.len();
            if let (Some(own), Some((saved, taken))) = (sampler.share(epoch), saved_share(state)?) {
                if own.samples != saved.samples {
                    return Err(Error::value(format!(
                        "DataLoader: the state was saved with a dataset of {} samples, this one has {}; resume with the same dataset",
                        saved.samples, own.samples
                    )));
                }
                sampler.resume(epoch, saved.start);
                if own.replicas != saved.replicas || sampler.taken(epoch, batches) != Some(taken) {
                    // Other processes, or other batches: they share the rest of the epoch.
                    sampler.resume(epoch, taken);
                    batches = 0;
                }
            } else if batches > 0 && saved_len != Some(len) {
                return Err(Error::value(format!(
                    "DataLoader: the state was saved after {batches} of {} batches, but an epoch now has {len}; resume with the same \
                     dataset, batch size and number of processes, or from the end of an epoch",
                    saved_len.map_or("an unknown number of".into(), |n| n.to_string())
                )));
            }
            if let Some(seed) = sampler_seed {
                sampler.set_order_seed(seed);
            }
        }
        self.seed = seed;
        *self.place.get_mut().unwrap_or_else(PoisonError::into_inner) =
            Place { epoch, batches, resume: true, iteration: 0 };
        Ok(())
    }
}

impl<'a, B: Send + 'static> IntoIterator for &'a DataLoader<B> {
    type Item = Result<B>;
    type IntoIter = LoaderIter<'a, B>;
    fn into_iter(self) -> LoaderIter<'a, B> {
        self.iter()
    }
}

/// An epoch's batches as jobs.
struct Jobs {
    batches: Indices<Vec<usize>>,
    seed: u64,
    epoch: u64,
    place: u64,
}

impl Iterator for Jobs {
    type Item = Job;
    fn next(&mut self) -> Option<Job> {
        let indices = self.batches.next()?;
        let place = self.place;
        self.place += indices.len() as u64;
        Some(Job { indices, seed: self.seed, epoch: self.epoch, place })
    }
}

fn top_up<B: Send + 'static>(pool: &mut WorkerPool<B>, jobs: &mut Jobs, ahead: u64) {
    while pool.outstanding() < ahead {
        match jobs.next() {
            Some(job) => pool.ask(job),
            None => return,
        }
    }
}

enum Reader<B> {
    Inline(Jobs, Fetch<B>),
    Pooled {
        pool: WorkerPool<B>,
        jobs: Jobs,
        ahead: u64,
    },
    Streamed(Option<BatchStream<B>>),
    /// The epoch could not be opened: the error comes once.
    Failed(Option<Error>),
}

impl<B: Send + 'static> Reader<B> {
    fn next(&mut self) -> Option<Result<B>> {
        match self {
            Reader::Inline(jobs, fetch) => jobs.next().map(|job| fetch(&job, &AtomicBool::new(false))),
            Reader::Pooled { pool, jobs, ahead } => {
                let batch = pool.take()?;
                top_up(pool, jobs, *ahead);
                Some(batch)
            }
            Reader::Streamed(stream) => match catch_panic(|| Ok(stream.as_mut().and_then(Iterator::next))) {
                Ok(batch) => batch,
                Err(panicked) => {
                    *stream = None;
                    Some(Err(panicked.within("DataLoader")))
                }
            },
            Reader::Failed(error) => error.take().map(Err),
        }
    }
}

/// The batches of one epoch. Dropping it stops the workers.
pub struct LoaderIter<'a, B: Send + 'static> {
    loader: &'a DataLoader<B>,
    place: Place,
    reader: Reader<B>,
}

impl<B: Send + 'static> LoaderIter<'_, B> {
    /// With a progress bar on standard error, if that is a terminal.
    pub fn progress(self) -> Progress<Self> {
        let Place { epoch, batches, .. } = self.place;
        let total = self.loader.len();
        Progress::new(self, total).title(format!("epoch {epoch}")).done(batches)
    }

    /// Notes how far the loader has been read, unless another iteration has been started since.
    fn note(&self, epoch: u64, batches: usize) {
        let mut place = self.loader.place();
        if place.iteration == self.place.iteration {
            (place.epoch, place.batches) = (epoch, batches);
        }
    }
}

impl<B: Send + 'static> Iterator for LoaderIter<'_, B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let waits = profile::span(profile::Category::Annotation, || "enumerate(DataLoader)#next");
        let batch = self.reader.next();
        drop(waits);
        let Place { epoch, batches, .. } = self.place;
        match &batch {
            Some(result) => {
                self.place.batches = batches.saturating_add(1);
                // A batch that failed has not been used: a run that ends here starts with it again.
                if result.is_ok() {
                    self.note(epoch, self.place.batches);
                }
            }
            None if !matches!(self.reader, Reader::Failed(_)) => self.note(epoch.wrapping_add(1), 0),
            None => {}
        }
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // A batch may still fail to come.
        (0, self.loader.len().map(|len| len.saturating_sub(self.place.batches)))
    }
}
