//! Samples per second of the loader: `cargo bench -p rushlight-data`. PyTorch's figure for the same rows comes from its `DataLoader` over a
//! `TensorDataset`.

use rushlight_core::{DType, Result};
use rushlight_data::transform::{Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor};
use rushlight_data::vision::Cifar10;
use rushlight_data::{DataLoader, Dataset, TensorDataset};
use rushlight_tensor::Tensor;
use std::time::Instant;

const ROWS: usize = 2048;

/// Reads some epochs and prints the best rate.
fn measure<B: Send + 'static>(name: &str, samples: usize, loader: &DataLoader<B>) -> Result<()> {
    let mut best = 0f64;
    for epoch in 0..10 {
        let start = Instant::now();
        for batch in loader.epoch(epoch) {
            batch?;
        }
        best = best.max(samples as f64 / start.elapsed().as_secs_f64());
    }
    println!("{name:<28} {best:>12.0} samples/s");
    Ok(())
}

fn main() -> Result<()> {
    let (x, y) = (Tensor::randn([ROWS, 20, 512], DType::F32)?, Tensor::randn([ROWS, 1, 512], DType::F32)?);
    for workers in [0, 1, 2] {
        for shuffle in [false, true] {
            let data = TensorDataset::new((x.clone(), y.clone()))?;
            let loader = DataLoader::new(data).batch_size(32).shuffle(shuffle).workers(workers).seed(0).build()?;
            let order = if shuffle { "shuffled" } else { "in order" };
            measure(&format!("rows, {workers} workers, {order}"), ROWS, &loader)?;
        }
    }
    for workers in [0, 1, 2] {
        let augment = Compose::new()
            .then(RandomCrop::new(32).padding(4))
            .then(RandomHorizontalFlip::default())
            .then(ToTensor::default())
            .then(Normalize::new([0.49, 0.48, 0.45], [0.25, 0.24, 0.26])?);
        let data = Cifar10::synthetic(ROWS, 0)?.transform(augment);
        let loader = DataLoader::new(data).batch_size(128).shuffle(true).workers(workers).seed(0).build()?;
        measure(&format!("augmented images, {workers} workers"), ROWS, &loader)?;
    }
    Ok(())
}
