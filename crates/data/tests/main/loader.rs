//! The loader: order, errors, workers.

use rushlight_core::{Error, Result};
use rushlight_data::sampler::SequentialSampler;
use rushlight_data::{
    DataLoader, Dataset, IterableDataset, SampleRng, TensorDataset, VecDataset, WorkerInfo, random_split,
};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Stateful, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Samples that contain their index and what they drew.
struct Random(usize);

impl Dataset for Random {
    type Item = (i64, f64);
    fn len(&self) -> usize {
        self.0
    }
    fn get(&self, index: usize) -> Result<(i64, f64)> {
        Ok((index as i64, 0.0))
    }
    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<(i64, f64)> {
        // Later samples are faster, so that workers finish out of order.
        std::thread::sleep(Duration::from_micros(200 * (self.0 - index) as u64 / self.0 as u64));
        Ok((index as i64, rng.uniform()))
    }
}

fn read(loader: &DataLoader<(Tensor, Tensor)>, epoch: u64) -> Vec<(Vec<i64>, Vec<f64>)> {
    let parts = |(x, y): (Tensor, Tensor)| (x.to_vec().unwrap(), y.to_vec().unwrap());
    loader.epoch(epoch).map(|batch| parts(batch.unwrap())).collect()
}

#[test]
fn any_number_of_workers_gives_the_same_batches() {
    let loader = |workers| {
        DataLoader::builder(Random(50))
            .batch_size(7)
            .shuffle(true)
            .seed(3)
            .workers(workers)
            .prefetch(3)
            .build()
            .unwrap()
    };
    let (alone, several) = (loader(0), [loader(1), loader(2), loader(5)]);
    for epoch in 0..3 {
        let expected = read(&alone, epoch);
        assert_eq!(expected.len(), alone.len().unwrap());
        for other in &several {
            assert_eq!(read(other, epoch), expected);
        }
    }
    assert_ne!(read(&alone, 0), read(&alone, 1));
}

#[test]
fn tensor_rows_in_order() {
    let x = Tensor::arange(0, 20, 1).unwrap().reshape([10, 2]).unwrap();
    for workers in [0, 2] {
        let data = TensorDataset::new((x.clone(), Tensor::arange(0, 10, 1).unwrap())).unwrap();
        let loader = DataLoader::builder(data).batch_size(4).drop_last(true).workers(workers).build().unwrap();
        let batches: Vec<(Tensor, Tensor)> = loader.iter().collect::<Result<_>>().unwrap();
        assert_eq!((batches.len(), loader.len()), (2, Some(2)));
        assert_eq!(batches[1].0.to_vec::<i64>().unwrap(), (8..16).collect::<Vec<_>>());
        assert_eq!(batches[1].1.to_vec::<i64>().unwrap(), [4, 5, 6, 7]);
    }
}

#[test]
fn own_collate_and_samplers() {
    let data = Arc::new(VecDataset::new(vec!["a", "b", "c"]));
    let loader = DataLoader::with_collate(data.clone(), |items: Vec<&str>| Ok(items.concat()))
        .sampler(SequentialSampler::new(2))
        .batch_size(2)
        .build()
        .unwrap();
    assert_eq!(loader.iter().collect::<Result<Vec<_>>>().unwrap(), ["ab"]);
    let joined = DataLoader::builder(data.clone()).collate(|items| Ok(items.len())).batch_size(2).build().unwrap();
    assert_eq!(joined.iter().collect::<Result<Vec<_>>>().unwrap(), [2, 1]);
    let [part, _] = random_split(data, [2usize, 1], None).unwrap();
    assert_eq!(DataLoader::builder(part).build().unwrap().iter().count(), 2);
}

#[test]
fn processes_share_the_samples() {
    let mut seen: Vec<i64> = Vec::new();
    for rank in 0..2 {
        let loader = DataLoader::builder(Random(8)).batch_size(4).shuffle(true).distributed(rank, 2).build().unwrap();
        seen.extend(read(&loader, 1).into_iter().flat_map(|(indices, _)| indices));
    }
    seen.sort();
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
}

#[test]
fn options_that_exclude_each_other() {
    let loader = || DataLoader::builder(VecDataset::new(vec![1i64]));
    let sampler = || SequentialSampler::new(1);
    let batches = || rushlight_data::sampler::BatchSampler::new(sampler(), 1, false).unwrap();
    assert!(loader().batch_size(0).build().is_err());
    assert!(loader().shuffle(true).sampler(sampler()).build().is_err());
    assert!(loader().shuffle(true).batch_sampler(batches()).build().is_err());
    assert!(loader().batch_size(1).batch_sampler(batches()).build().is_err());
    assert!(loader().sampler(sampler()).distributed(0, 1).build().is_err());
    assert!(loader().distributed(1, 1).build().is_err());
    assert!(loader().prefetch(0).build().is_err());
    assert!(loader().workers(1 << 40).build().is_err());
    assert!(loader().batch_sampler(batches()).build().is_ok());
    assert!(loader().shuffle(false).sampler(sampler()).build().is_ok());
}

/// Sample 5 fails, sample 9 panics.
struct Faulty;

impl Dataset for Faulty {
    type Item = i64;
    fn len(&self) -> usize {
        12
    }
    fn get(&self, index: usize) -> Result<i64> {
        match index {
            5 => Err(Error::io("disk on fire")),
            9 => std::panic::resume_unwind(Box::new("out of cheese")),
            i => Ok(i as i64),
        }
    }
}

#[test]
fn errors_and_panics_name_the_sample() {
    for workers in [0, 3] {
        let loader = DataLoader::builder(Faulty).batch_size(4).workers(workers).build().unwrap();
        let batches: Vec<Result<Tensor>> = loader.iter().collect();
        assert!(batches[0].is_ok());
        assert_eq!(batches[1].as_ref().err().unwrap().to_string(), "DataLoader: sample 5: disk on fire");
        assert_eq!(batches[2].as_ref().err().unwrap().to_string(), "DataLoader: sample 9: panicked: out of cheese");
        assert_eq!(batches.len(), 3);
        let collate = |_: Vec<i64>| -> Result<()> { std::panic::resume_unwind(Box::new(String::from("no"))) };
        let loader = DataLoader::builder(Faulty).collate(collate).batch_size(2).workers(workers).build().unwrap();
        let error = loader.iter().next().unwrap().err().unwrap().to_string();
        assert_eq!(error, "DataLoader: samples [0, 1]: panicked: no");
    }
}

/// Counts how many samples are read.
struct Counted(Arc<AtomicUsize>);

impl Dataset for Counted {
    type Item = i64;
    fn len(&self) -> usize {
        1_000_000
    }
    fn get(&self, index: usize) -> Result<i64> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(index as i64)
    }
}

#[test]
fn leaving_early_stops_the_workers() {
    for taken in [0, 1, 5] {
        let count = Arc::new(AtomicUsize::new(0));
        let loader = DataLoader::builder(Counted(count.clone())).batch_size(10).workers(2).prefetch(2).build().unwrap();
        assert_eq!(loader.iter().take(taken).filter(|b| b.is_ok()).count(), taken);
        // The iterator is dropped, and with it the workers, which were at most four batches ahead.
        let read = count.load(Ordering::Relaxed);
        assert!(read <= 10 * (taken + 4), "{read} samples read for {taken} batches");
        drop(loader);
        assert_eq!(Arc::strong_count(&count), 1);
    }
}

/// The numbers below a bound, each worker its own; worker-dependent failures on request.
struct Numbers {
    end: i64,
    bad: Option<i64>,
}

impl IterableDataset for Numbers {
    type Item = i64;
    type Stream = Box<dyn Iterator<Item = Result<i64>> + Send>;
    fn stream(&self, worker: &WorkerInfo) -> Result<Self::Stream> {
        let bad = self.bad;
        let check = move |i| match bad {
            Some(b) if b == i => std::panic::resume_unwind(Box::new("bad number")),
            _ => Ok(i),
        };
        Ok(Box::new((0..self.end).skip(worker.id).step_by(worker.count).map(check)))
    }
}

#[test]
fn streams_in_turn() {
    let batches = |workers, drop_last| -> Vec<Vec<i64>> {
        let loader = DataLoader::iterable(Numbers { end: 9, bad: None });
        let loader = loader.batch_size(2).workers(workers).drop_last(drop_last).build().unwrap();
        assert_eq!(loader.len(), None);
        loader.iter().map(|b| b.unwrap().to_vec().unwrap()).collect()
    };
    assert_eq!(batches(0, false), [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7], vec![8]]);
    assert_eq!(batches(2, false), [vec![0, 2], vec![1, 3], vec![4, 6], vec![5, 7], vec![8]]);
    assert_eq!(batches(2, true).len(), 4);
    for workers in [0, 2] {
        let loader = DataLoader::iterable(Numbers { end: 9, bad: Some(4) }).workers(workers).build().unwrap();
        let errors: Vec<String> = loader.iter().filter_map(|b| b.err()).map(|e| e.to_string()).collect();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("panicked: bad number"), "{}", errors[0]);
        // An endless stream that is never read to the end.
        let endless = DataLoader::iterable(Numbers { end: i64::MAX, bad: None }).workers(workers).build().unwrap();
        assert_eq!(endless.iter().take(3).count(), 3);
    }
}

#[test]
fn progress_passes_items_on() {
    let loader = DataLoader::builder(VecDataset::new(vec![1i64, 2, 3])).build().unwrap();
    let bar = loader.epoch(0).progress();
    let handle = bar.handle();
    assert_eq!(bar.inspect(|_| handle.message("loss 0")).count(), 3);
}

/// Reads `count` batches of a job's loaders of one epoch. Returns the samples and the first loader's state.
fn read_share(
    (replicas, batch): (usize, usize),
    epoch: u64,
    count: usize,
    saved: Option<&Value>,
    drop_last: bool,
) -> (Vec<i64>, Value) {
    let (mut samples, mut states) = (Vec::new(), Vec::new());
    for rank in 0..replicas {
        let data = TensorDataset::new(Tensor::arange(0, 50, 1).unwrap()).unwrap();
        let loader = DataLoader::builder(data).batch_size(batch).shuffle(true).seed(7).drop_last(drop_last);
        let mut loader = loader.distributed(rank, replicas).build().unwrap();
        if let Some(saved) = saved {
            loader.load_state(saved).unwrap();
        }
        for taken in loader.epoch(epoch).take(count) {
            samples.extend(taken.unwrap().to_vec::<i64>().unwrap());
        }
        states.push(loader.state().unwrap());
    }
    assert!(states.iter().all(|state| format!("{state:?}") == format!("{:?}", states[0])), "one state for all ranks");
    (samples, states.swap_remove(0))
}

#[test]
fn a_job_of_another_size_reads_what_is_left_of_an_epoch() {
    let all: Vec<i64> = (0..50).collect();
    // Processes and batch sizes of the parts of an epoch.
    for parts in
        [vec![(4, 3), (3, 3)], vec![(2, 4), (2, 4), (5, 2), (1, 3)], vec![(3, 2), (1, 9)], vec![(1, 3), (7, 2)]]
    {
        let (mut seen, mut saved) = (Vec::new(), None);
        for (i, &part) in parts.iter().enumerate() {
            let count = if i + 1 == parts.len() { usize::MAX } else { 2 };
            let (samples, state) = read_share(part, 3, count, saved.as_ref(), false);
            seen.extend(samples);
            saved = Some(state);
        }
        let repeated = seen.len() - all.len();
        let most = parts.iter().map(|part| part.0).max().unwrap_or(1);
        assert!(repeated < most, "{parts:?}: {repeated} samples were repeated to divide evenly");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, all, "{parts:?}");
        // The next epoch is complete again.
        let (mut next, _) = read_share(parts[parts.len() - 1], 4, usize::MAX, saved.as_ref(), false);
        next.sort_unstable();
        next.dedup();
        assert_eq!(next, all);
    }
    // With the same size the order is the one of a run that was never stopped.
    let (whole, _) = read_share((2, 4), 0, usize::MAX, None, true);
    let (_, saved) = read_share((2, 4), 0, 3, None, true);
    let (rest, _) = read_share((2, 4), 0, usize::MAX, Some(&saved), true);
    assert_eq!(rest[..12], whole[12..24]);
    // Another dataset is refused.
    let data = TensorDataset::new(Tensor::arange(0, 49, 1).unwrap()).unwrap();
    let mut other = DataLoader::builder(data).batch_size(4).distributed(0, 2).build().unwrap();
    let message = other.load_state(&saved).unwrap_err().to_string();
    assert!(message.contains("50 samples") && message.contains("49"), "{message}");
}
