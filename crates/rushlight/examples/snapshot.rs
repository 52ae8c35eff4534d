//! A linear model whose training survives being stopped: start it, kill it, start it again, and it goes on from its snapshot.

mod machine;

use clap::Parser;
use rushlight::prelude::*;
use rushlight::{data::TensorDataset, io};
use std::path::PathBuf;

/// Trains Linear(20, 1) on random data and saves a snapshot every few epochs
///
/// Example: snapshot 50 10 --batch-size 64
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// Epochs to train in all
    total_epochs: i64,
    /// Epochs between snapshots
    save_every: i64,
    /// Samples of a batch
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// The snapshot; `torch.load` reads it too
    #[arg(long, default_value = "snapshot.pt")]
    snapshot_path: PathBuf,
    #[command(flatten)]
    machine: machine::Machine,
}

struct Trainer {
    model: Linear,
    optimizer: Sgd,
    loader: DataLoader<(Tensor, Tensor)>,
    epochs_run: i64,
    arguments: Arguments,
}

impl Trainer {
    fn load_snapshot(&mut self) -> Result<()> {
        let snapshot = io::load(&self.arguments.snapshot_path)?;
        self.model.load_state_dict(&snapshot.get("MODEL_STATE")?.to_state_dict()?)?;
        self.optimizer.load_state_dict(snapshot.get("OPTIMIZER_STATE")?)?;
        self.epochs_run = snapshot.get("EPOCHS_RUN")?.as_int()?;
        println!("Resuming training from snapshot at Epoch {}", self.epochs_run);
        Ok(())
    }

    fn save_snapshot(&self, epoch: i64) -> Result<()> {
        let entries = [
            ("MODEL_STATE", self.model.state_dict().into()),
            ("OPTIMIZER_STATE", self.optimizer.state_dict()?),
            ("EPOCHS_RUN", epoch.into()),
        ];
        let snapshot: rushlight::state::Dict = entries.into_iter().map(|(k, v)| (k.into(), v)).collect();
        io::save(&snapshot.into(), &self.arguments.snapshot_path)?;
        println!("Epoch {} | Training snapshot saved at {}", epoch - 1, self.arguments.snapshot_path.display());
        Ok(())
    }

    fn run_batch(&mut self, source: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.optimizer.zero_grad();
        let loss = self.model.forward(source)?.mse_loss(targets, Reduction::Mean)?;
        loss.backward()?;
        self.optimizer.step()?;
        Ok(loss.detach())
    }

    fn run_epoch(&mut self, epoch: i64) -> Result<()> {
        let mut total = 0.0;
        let batches: Vec<_> = self.loader.epoch(epoch as u64).collect::<Result<_>>()?;
        for (source, targets) in &batches {
            total += self.run_batch(source, targets)?.item::<f64>()?;
        }
        let (size, steps) = (self.arguments.batch_size, batches.len());
        println!("Epoch {epoch} | Batchsize: {size} | Steps: {steps} | Loss: {:.5}", total / steps.max(1) as f64);
        Ok(())
    }

    fn train(&mut self) -> Result<()> {
        for epoch in self.epochs_run..self.arguments.total_epochs {
            self.run_epoch(epoch)?;
            if (epoch + 1) % self.arguments.save_every.max(1) == 0 {
                self.save_snapshot(epoch + 1)?;
            }
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let device = arguments.machine.prepare()?;
    let data = TensorDataset::new((
        Tensor::rand([2048, 20], (DType::F32, device))?,
        Tensor::rand([2048, 1], (DType::F32, device))?,
    ))?;
    let model = Linear::new(20, 1).device(device).build()?;
    let optimizer = Sgd::new(model.parameters()).lr(1e-3).build()?;
    let loader = DataLoader::new(data).batch_size(arguments.batch_size).build()?;
    let mut trainer = Trainer { model, optimizer, loader, epochs_run: 0, arguments };
    if trainer.arguments.snapshot_path.exists() {
        println!("Loading snapshot");
        trainer.load_snapshot()?;
    }
    trainer.train()
}
