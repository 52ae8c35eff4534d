//! Datasets that are read from front to back.

use rushlight_core::Result;

/// Which of the loader's workers reads a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The worker's number, from zero.
    pub id: usize,
    /// The number of workers: one if the loader has no threads.
    pub count: usize,
    /// A seed of this worker's own for this epoch.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
}

/// Samples in the order of a stream: files too large to index, sockets, generators.
///
/// Each worker opens its own stream. The dataset decides by [`WorkerInfo`] which samples it yields,
/// usually every `count`-th. Batches come from the workers in turn.
///
/// ```
/// # mod rushlight { pub use rushlight_core::Result; pub use rushlight_data as data; }
/// use rushlight::Result;
/// use rushlight::data::{DataLoader, IterableDataset, WorkerInfo};
/// struct Counter(i64);
/// impl IterableDataset for Counter {
///     type Item = i64;
///     type Stream = Box<dyn Iterator<Item = Result<i64>> + Send>;
///     fn stream(&self, worker: &WorkerInfo) -> Result<Self::Stream> {
///         Ok(Box::new((0..self.0).skip(worker.id).step_by(worker.count).map(Ok)))
///     }
/// }
/// let loader = DataLoader::iterable(Counter(5)).batch_size(2).build()?;
/// let batches: Result<Vec<_>> = loader.iter().collect();
/// assert_eq!(batches?[2].to_vec::<i64>()?, [4]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait IterableDataset: Send + Sync {
    /// One sample.
    type Item;
    /// The samples one worker reads.
    type Stream: Iterator<Item = Result<Self::Item>> + Send + 'static;
    /// Opens a worker's stream at its beginning.
    fn stream(&self, worker: &WorkerInfo) -> Result<Self::Stream>;
}
