//! A linear model whose training survives being stopped: start it, kill it, start it again, and it continues from its
//! snapshot. Under `rushlight run --nproc-per-node 2 snapshot …` two processes train it together, and continue with
//! more or fewer.

#[macro_use]
mod machine;

use clap::{ArgMatches, arg, value_parser};
use machine::{count, get, option};
use rushlight::dist::{self, DistributedDataParallel, LrScaling};
use rushlight::prelude::*;
use rushlight::train::Preemption;
use rushlight::{data::TensorDataset, io};

const EXAMPLE: &str = "snapshot 50 10 --batch-size 64";

fn arguments() -> ArgMatches {
    machine::command("snapshot", "Trains Linear(20, 1) on random data, saving a snapshot every few epochs", EXAMPLE)
        .arg(arg!(<total_epochs> "Epochs to train in all").value_parser(value_parser!(u64)))
        .arg(arg!(<save_every> "Epochs between snapshots").value_parser(value_parser!(u64).range(1..)))
        .arg(count("batch-size", "32", "Samples of a batch of each rank"))
        .arg(option("lr-scaling", "none", "How the learning rate follows the number of ranks: none, linear or sqrt"))
        .arg(machine::no_capture())
        .arg(option("snapshot-path", "snapshots", "The folder of snapshots"))
        .arg(option("export", "", "Where the weights go at the end: a .pt or .safetensors file"))
        .get_matches()
}

/// Trains to the end, or until the scheduler wants the nodes back. Returns the exit code.
fn train(arguments: &ArgMatches) -> Result<i32> {
    let device = machine::prepare(arguments)?;
    // The rank and the world that the launcher says; alone without one.
    let world = dist::init()?;
    let prints = world.rank() == 0;
    let batch_size: usize = get(arguments, "batch-size");
    let data = TensorDataset::new((
        Tensor::rand_with([2048, 20], (DType::F32, device))?,
        Tensor::rand_with([2048, 1], (DType::F32, device))?,
    ))?;
    let lr = world.scale_lr(1e-3, get::<String>(arguments, "lr-scaling").parse::<LrScaling>()?);
    let mut model =
        DistributedDataParallel::new(Linear::builder(20, 1).device(device).build()?, world.group().clone())?;
    let mut optimizer = Sgd::new(model.parameters(), lr)?;
    let mut loader =
        DataLoader::builder(data).batch_size(batch_size).distributed(world.rank(), world.size()).build()?;
    // This program captures the step of a lone rank only.
    let mut capture =
        machine::capture(arguments, device).enabled(world.size() == 1 && !arguments.get_flag("no-capture"));
    let folder: String = get(arguments, "snapshot-path");
    let mut checkpoints = Checkpoints::builder(&folder).world(&world).background(true).tolerate(3).build()?;
    let mut preemption = Preemption::watch(&world)?.or_interrupt()?;

    let mut position = Position::default();
    let restored =
        checkpoints.restore(&mut [("model", &mut model), ("optimizer", &mut optimizer), ("loader", &mut loader)])?;
    if let Some(restored) = restored {
        position = restored.position;
        if prints {
            say!("Resuming training from snapshot at Epoch {}, step {}", position.epoch, position.step);
        }
    }
    let (total_epochs, save_every): (u64, u64) = (get(arguments, "total_epochs"), get(arguments, "save_every"));
    while position.epoch < total_epochs {
        let (mut total, mut steps) = (0.0, 0);
        for batch in loader.epoch(position.epoch) {
            let (source, targets) = batch?;
            let loss = capture.run(&[source, targets], |[source, targets]| {
                optimizer.zero_grad();
                let loss = model.forward(source)?.mse_loss(targets, Reduction::Mean)?;
                loss.backward()?;
                optimizer.step()?;
                Ok(loss)
            })?;
            total += loss.item::<f64>()?;
            steps += 1;
            position.step += 1;
            if preemption.agreed()? {
                checkpoints.save(position, &[("model", &model), ("optimizer", &optimizer), ("loader", &loader)])?;
                checkpoints.finish()?;
                if prints {
                    let signal = preemption.signal().unwrap_or("a signal to another rank");
                    say!("Epoch {} | Stopped by {signal} after step {}", position.epoch, position.step);
                }
                return Ok(preemption.requeue());
            }
        }
        if prints {
            let loss = total / steps.max(1) as f64;
            say!("Epoch {} | Batchsize: {batch_size} | Steps: {steps} | Loss: {loss:.5}", position.epoch);
        }
        position.epoch += 1;
        if position.epoch % save_every == 0 || position.epoch == total_epochs {
            checkpoints.save(position, &[("model", &model), ("optimizer", &optimizer), ("loader", &loader)])?;
            if prints {
                say!("Epoch {} | Training snapshot saved at {folder}", position.epoch - 1);
            }
        }
    }
    checkpoints.finish()?;
    let export: String = get(arguments, "export");
    if prints && !export.is_empty() {
        io::save(&model.state()?, &export)?;
    }
    Ok(0)
}

fn main() -> Result<()> {
    let code = train(&arguments())?;
    std::process::exit(code)
}
