//! Reading one batch, in a worker or in the calling thread.

use crate::collate::Collate;
use crate::dataset::Dataset;
use crate::rng::SampleRng;
use rushlight_core::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A batch to be read.
pub(super) struct Job {
    pub indices: Vec<usize>,
    pub seed: u64,
    pub epoch: u64,
    /// How many samples of the epoch come before this batch.
    pub place: u64,
}

/// How a loader reads a batch. Gives up between two samples when the flag is set.
pub(super) type Fetch<B> = Arc<dyn Fn(&Job, &AtomicBool) -> Result<B> + Send + Sync>;

/// Runs a user's code; a panic becomes an error.
pub(super) fn catch_panic<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|s| s.to_string())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "without a message".into());
        Err(Error::value(format!("panicked: {text}")))
    })
}

/// The samples of a batch as a person reads them in an error.
fn named(indices: &[usize]) -> String {
    match indices {
        [one] => format!("DataLoader: sample {one}"),
        few if few.len() <= 8 => format!("DataLoader: samples {few:?}"),
        many => format!("DataLoader: {} samples from {:?} on", many.len(), &many[..4]),
    }
}

fn read_samples<D: Dataset>(dataset: &D, job: &Job, stop: &AtomicBool) -> Result<Vec<D::Item>> {
    let mut samples = Vec::with_capacity(job.indices.len());
    for (place, &index) in (job.place..).zip(&job.indices) {
        if stop.load(Relaxed) {
            return Err(Error::value("DataLoader: stopped"));
        }
        let mut rng = SampleRng::for_sample(job.seed, job.epoch, index, place);
        let sample = catch_panic(|| dataset.get_with(index, &mut rng));
        samples.push(sample.map_err(|e| e.within(&named(&[index])))?);
    }
    Ok(samples)
}

/// Reads batches as the dataset and [`Collate`] say.
pub(super) fn default_fetch<D>(dataset: Arc<D>) -> Fetch<<D::Item as Collate>::Batch>
where
    D: Dataset + 'static,
    D::Item: Collate,
{
    Arc::new(move |job, stop| {
        let at_once = catch_panic(|| dataset.get_batch(&job.indices)).map_err(|e| e.within(&named(&job.indices)))?;
        if let Some(batch) = at_once {
            return Ok(batch);
        }
        let samples = read_samples(&*dataset, job, stop)?;
        catch_panic(|| Collate::collate(samples)).map_err(|e| e.within(&named(&job.indices)))
    })
}

/// Reads samples and puts them together by a user's function.
pub(super) fn custom_fetch<D, B, F>(dataset: Arc<D>, collate: F) -> Fetch<B>
where
    D: Dataset + 'static,
    F: Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
{
    Arc::new(move |job, stop| {
        let samples = read_samples(&*dataset, job, stop)?;
        catch_panic(|| collate(samples)).map_err(|e| e.within(&named(&job.indices)))
    })
}
