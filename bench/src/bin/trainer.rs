//! What the Trainer costs over a loop written by hand: both train the same small GPT in turns, and the ratio of their times is printed.
//!
//!     cargo run --release -p rushlight-bench --bin trainer [ROUNDS]

use rushlight::nn::models::Gpt;
use rushlight::prelude::*;
use std::time::Instant;

const STEPS: usize = 40;

#[derive(Module)]
struct Model {
    gpt: Gpt,
}

impl Model {
    fn new() -> Result<Self> {
        manual_seed(0);
        Ok(Self { gpt: Gpt::new(65).n_layer(2).n_head(4).n_embd(128).block_size(64).build()? })
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        self.gpt.forward(x)?.flatten(0, 1)?.cross_entropy(&y.flatten(0, 1)?)
    }

    fn optimizer(&self) -> Result<AdamW> {
        AdamW::new(self.parameters()).lr(1e-3).build()
    }
}

impl TrainModule for Model {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (x, y): &Self::Batch, _: &mut StepContext) -> Result<Tensor> {
        self.loss(x, y)
    }

    fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
        Ok(Optimizers::new(self.optimizer()?))
    }
}

fn loader() -> Result<DataLoader<(Tensor, Tensor)>> {
    let tokens =
        |seed: i64| Tensor::arange(0, (STEPS * 16 * 64) as i64, 1)?.mul(seed)?.remainder(65)?.reshape([-1, 64]);
    DataLoader::new(TensorDataset::new((tokens(7)?, tokens(11)?))?).batch_size(16).seed(1).shuffle(true).build()
}

/// Seconds of an epoch by hand.
fn by_hand() -> Result<f64> {
    let (model, loader) = (Model::new()?, loader()?);
    let mut optimizer = model.optimizer()?;
    let (mut total, start) = (0.0, Instant::now());
    for batch in loader.epoch(0) {
        let (x, y) = batch?;
        optimizer.zero_grad();
        let loss = model.loss(&x, &y)?;
        loss.backward()?;
        clip_grad_norm_(model.parameters(), 1.0)?;
        optimizer.step()?;
        total += loss.item::<f64>()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!(total.is_finite());
    Ok(seconds)
}

/// Seconds of an epoch by the Trainer, with its log and its checkpoint.
fn by_trainer(root: &std::path::Path) -> Result<f64> {
    let (mut model, mut loader) = (Model::new()?, loader()?);
    let start = Instant::now();
    let mut trainer = Trainer::new()
        .device(Device::Cpu)
        .max_epochs(1)
        .gradient_clip_val(1.0)
        .log_every_n_steps(10)
        .run_directory(Some(root.into()))
        .progress(false)
        .build()?;
    trainer.fit(&mut model, &mut loader, None)?;
    Ok(start.elapsed().as_secs_f64())
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(11usize).max(1);
    let root = std::env::temp_dir().join(format!("rushlight-bench-trainer-{}", std::process::id()));
    by_hand()?;
    by_trainer(&root)?;
    let mut rows: Vec<(f64, f64)> = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        rows.push((by_hand()?, by_trainer(&root)?));
    }
    std::fs::remove_dir_all(&root)?;
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (hand, trainer) = (median(rows.iter().map(|r| r.0).collect()), median(rows.iter().map(|r| r.1).collect()));
    let ratio = median(rows.iter().map(|r| r.1 / r.0).collect());
    println!(
        "by hand {:.3} ms a step, Trainer {:.3} ms (log and checkpoint included): ratio {ratio:.4}",
        hand / STEPS as f64 * 1e3,
        trainer / STEPS as f64 * 1e3
    );
    Ok(())
}
