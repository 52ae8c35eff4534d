//! A linear model whose training survives being stopped: start it, kill it, start it again, and it goes on from its snapshot.
//!
//! Alone or under any launcher (`rushlight run`, `srun`, `mpiexec`, `torchrun`): each rank trains on its share of the data, rank 0 prints
//! and saves.

mod machine;

use clap::{ArgMatches, arg, value_parser};
use machine::{count, get, option};
use rushlight::dist::{self, DistributedDataParallel, LrScaling, World};
use rushlight::prelude::*;
use rushlight::{data::TensorDataset, io};

const EXAMPLE: &str = "snapshot 50 10 --batch-size 64";

fn arguments() -> ArgMatches {
    machine::command("snapshot", "Trains Linear(20, 1) on random data, saving a snapshot every few epochs", EXAMPLE)
        .arg(arg!(<total_epochs> "Epochs to train in all").value_parser(value_parser!(u64)))
        .arg(arg!(<save_every> "Epochs between snapshots").value_parser(value_parser!(u64).range(1..)))
        .arg(count("batch-size", "32", "Samples of a batch of each rank"))
        .arg(option("lr-scaling", "none", "How the learning rate follows the number of ranks: none, linear or sqrt"))
        .arg(machine::no_capture())
        .arg(option("snapshot-path", "snapshot.pt", "The snapshot; torch.load reads it too"))
        .get_matches()
}

struct Trainer {
    world: World,
    model: DistributedDataParallel<Linear>,
    optimizer: Sgd,
    loader: DataLoader<(Tensor, Tensor)>,
    capture: Capture,
    epochs_run: u64,
    batch_size: usize,
    save_every: u64,
    snapshot_path: String,
}

impl Trainer {
    fn load_snapshot(&mut self) -> Result<()> {
        let snapshot = io::load(&self.snapshot_path)?;
        self.model.module().load_state_dict(&snapshot.get("MODEL_STATE")?.to_state_dict()?)?;
        self.optimizer.load_state_dict(snapshot.get("OPTIMIZER_STATE")?)?;
        self.epochs_run = snapshot.get("EPOCHS_RUN")?.as_usize()? as u64;
        self.world.print(format_args!("Resuming training from snapshot at Epoch {}", self.epochs_run));
        Ok(())
    }

    fn save_snapshot(&self, epochs_run: u64) -> Result<()> {
        let entries = [
            ("MODEL_STATE", self.model.module().state_dict().into()),
            ("OPTIMIZER_STATE", self.optimizer.state_dict()?),
            ("EPOCHS_RUN", (epochs_run as usize).into()),
        ];
        let snapshot: rushlight::state::Dict = entries.into_iter().map(|(k, v)| (k.into(), v)).collect();
        self.world.on_main(|| io::save(&snapshot.into(), &self.snapshot_path))?;
        let (epoch, path) = (epochs_run - 1, &self.snapshot_path);
        self.world.print(format_args!("Epoch {epoch} | Training snapshot saved at {path}"));
        Ok(())
    }

    fn run_batch(&mut self, batch: &[Tensor; 2]) -> Result<Tensor> {
        self.capture.run(batch, |[source, targets]| {
            self.optimizer.zero_grad();
            let loss = self.model.forward(source)?.mse_loss(targets, Reduction::Mean)?;
            loss.backward()?;
            self.optimizer.step()?;
            Ok(loss)
        })
    }

    fn run_epoch(&mut self, epoch: u64) -> Result<()> {
        let mut total = 0.0;
        let batches: Vec<_> = self.loader.epoch(epoch).collect::<Result<_>>()?;
        for (source, targets) in &batches {
            total += self.run_batch(&[source.clone(), targets.clone()])?.item::<f64>()?;
        }
        let (size, steps) = (self.batch_size, batches.len());
        let loss = self.world.mean(total / steps.max(1) as f64)?;
        self.world.print(format_args!("Epoch {epoch} | Batchsize: {size} | Steps: {steps} | Loss: {loss:.5}"));
        Ok(())
    }

    fn train(&mut self, total_epochs: u64) -> Result<()> {
        for epoch in self.epochs_run..total_epochs {
            self.run_epoch(epoch)?;
            if (epoch + 1) % self.save_every == 0 {
                self.save_snapshot(epoch + 1)?;
            }
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let arguments = arguments();
    let device = machine::prepare(&arguments)?;
    let world = dist::init()?;
    let batch_size = get(&arguments, "batch-size");
    // The same data on every rank: all have the same seed.
    let data = TensorDataset::new((
        Tensor::rand([2048, 20], (DType::F32, device))?,
        Tensor::rand([2048, 1], (DType::F32, device))?,
    ))?;
    let lr = world.scale_lr(1e-3, get::<String>(&arguments, "lr-scaling").parse::<LrScaling>()?);
    let model = Linear::new(20, 1).device(device).build()?;
    let model = DistributedDataParallel::new(model, world.group().clone()).build()?;
    let optimizer = Sgd::new(model.parameters()).lr(lr).build()?;
    let loader = DataLoader::new(data).batch_size(batch_size);
    let loader = if world.size() > 1 { loader.shuffle(true).distributed(world.rank(), world.size()) } else { loader };
    let loader = loader.build()?;
    let (save_every, snapshot_path) = (get(&arguments, "save_every"), get::<String>(&arguments, "snapshot-path"));
    let capture = machine::capture(&arguments, device);
    let mut trainer =
        Trainer { world, model, optimizer, loader, capture, epochs_run: 0, batch_size, save_every, snapshot_path };
    if std::path::Path::new(&trainer.snapshot_path).exists() {
        trainer.world.print("Loading snapshot");
        trainer.load_snapshot()?;
    }
    trainer.train(get(&arguments, "total_epochs"))
}
