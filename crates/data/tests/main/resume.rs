//! Runs that are killed and continue.

use rushlight_core::{Generator, Result};
use rushlight_data::sampler::RandomSampler;
use rushlight_data::{DataLoader, Dataset, IterableDataset, SampleRng, WorkerInfo};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Stateful, Value};

struct Noise;

impl Dataset for Noise {
    type Item = (i64, f64);
    fn len(&self) -> usize {
        20
    }
    fn get(&self, index: usize) -> Result<(i64, f64)> {
        Ok((index as i64, 0.0))
    }
    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<(i64, f64)> {
        Ok((index as i64, rng.uniform()))
    }
}

type Loader = DataLoader<(Tensor, Tensor)>;

fn loader(workers: usize, generator: &Generator) -> Loader {
    DataLoader::builder(Noise).batch_size(3).shuffle(true).generator(generator).workers(workers).build().unwrap()
}

fn parts(batch: Result<(Tensor, Tensor)>) -> (Vec<i64>, Vec<f64>) {
    let (x, y) = batch.unwrap();
    (x.to_vec().unwrap(), y.to_vec().unwrap())
}

#[test]
fn goes_on_after_the_last_batch() {
    for (workers, consumed) in [(0, 4), (2, 4), (2, 1), (0, 6)] {
        let first = loader(workers, &Generator::new(1));
        assert_eq!(first.epoch(0).count(), 7);
        let mut iter = first.epoch(1);
        iter.by_ref().take(consumed).for_each(drop);
        let saved = first.state().unwrap();
        let mut expected: Vec<_> = iter.map(parts).collect();
        expected.extend(first.epoch(2).map(parts));
        // A fresh process with another seed and another number of workers.
        let mut second = loader(2 - workers, &Generator::new(99));
        second.load_state(&saved).unwrap();
        assert_eq!(second.next_epoch(), 1);
        let mut found: Vec<_> = second.epoch(1).map(parts).collect();
        found.extend(second.iter().map(parts));
        assert_eq!(found, expected);
    }
}

#[test]
fn epochs_follow_each_other() {
    let loader = loader(1, &Generator::new(1));
    assert_eq!(loader.next_epoch(), 0);
    loader.iter().for_each(drop);
    assert_eq!(loader.next_epoch(), 1);
    loader.iter().take(2).for_each(drop);
    assert_eq!(loader.next_epoch(), 2, "an epoch left in the middle is over");
    loader.epoch(7).for_each(drop);
    assert_eq!(loader.next_epoch(), 8);
    assert_eq!(loader.state().unwrap().get("batches").unwrap().as_int().unwrap(), 0);
}

#[test]
fn only_the_latest_iteration_counts() {
    let loader = loader(0, &Generator::new(1));
    let mut old = loader.epoch(0);
    old.next();
    let mut new = loader.epoch(5);
    new.next();
    new.next();
    old.next();
    let state = loader.state().unwrap();
    assert_eq!(
        (state.get("epoch").unwrap().as_int().unwrap(), state.get("batches").unwrap().as_int().unwrap()),
        (5, 2)
    );
}

#[test]
fn a_batch_that_failed_is_not_consumed() {
    let data = Noise.map(|(i, _)| if i == 7 { Err(rushlight_core::Error::io("gone")) } else { Ok(i) });
    let loader = DataLoader::new(data, 3).unwrap();
    assert!(loader.iter().any(|batch| batch.is_err()));
    assert_eq!(loader.state().unwrap().get("batches").unwrap().as_int().unwrap(), 2);
}

#[test]
fn states_that_do_not_fit() {
    let mut loader = loader(0, &Generator::new(1));
    loader.iter().take(3).for_each(drop);
    let saved = loader.state().unwrap();
    let mut other = DataLoader::new(Noise, 4).unwrap();
    let error = other.load_state(&saved).unwrap_err().to_string();
    assert!(error.contains("3 of 7 batches"), "{error}");
    assert_eq!(other.next_epoch(), 0);
    assert!(loader.load_state(&Value::None).is_err());
    let Value::Dict(mut fields) = saved else { panic!("a dictionary") };
    fields.insert("batches".into(), (-1i64).into());
    assert!(loader.load_state(&fields.into()).is_err());
}

#[test]
fn own_samplers_keep_their_seed() {
    let make = || DataLoader::builder(Noise).sampler(RandomSampler::new(20)).batch_size(5).build().unwrap();
    let (first, mut second) = (make(), make());
    first.iter().take(1).for_each(drop);
    second.load_state(&first.state().unwrap()).unwrap();
    let expected: Vec<_> = first.epoch(0).skip(1).map(parts).collect();
    assert_eq!(second.epoch(0).map(parts).collect::<Vec<_>>(), expected);
}

struct Count;

impl IterableDataset for Count {
    type Item = i64;
    type Stream = Box<dyn Iterator<Item = Result<i64>> + Send>;
    fn stream(&self, worker: &WorkerInfo) -> Result<Self::Stream> {
        Ok(Box::new((0..10).skip(worker.id).step_by(worker.count).map(Ok)))
    }
}

#[test]
fn streams_go_on_too() {
    for workers in [0, 2] {
        let make = || DataLoader::iterable(Count).batch_size(2).workers(workers).build().unwrap();
        let (first, mut second) = (make(), make());
        let mut iter = first.iter();
        iter.by_ref().take(2).for_each(drop);
        second.load_state(&first.state().unwrap()).unwrap();
        let rest: Vec<Vec<i64>> = iter.map(|b| b.unwrap().to_vec().unwrap()).collect();
        assert_eq!(second.iter().map(|b| b.unwrap().to_vec::<i64>().unwrap()).collect::<Vec<_>>(), rest);
    }
}
