//! A sequence-to-sequence transformer on random data: 44 million parameters, 64 batches an epoch.

mod machine;

use clap::Parser;
use rushlight::prelude::*;
use std::time::Instant;

/// Trains a Transformer (512 wide, 8 heads, 6 + 6 layers) with Adam and times each epoch
///
/// Example: transformer --epochs 2 --precision bf16
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// Passes over the data
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    /// Samples of the data
    #[arg(long, default_value_t = 2048)]
    samples: usize,
    /// Samples of a batch
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// f32, or bf16 for mixed precision
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16"])]
    precision: String,
    #[command(flatten)]
    machine: machine::Machine,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let device = arguments.machine.prepare()?;
    let lower = (arguments.precision == "bf16").then_some(DType::BF16);

    let data = TensorDataset::new((
        Tensor::rand([arguments.samples, 1, 512], (DType::F32, device))?,
        Tensor::rand([arguments.samples, 20, 512], (DType::F32, device))?,
    ))?;
    let loader = DataLoader::new(data).batch_size(arguments.batch_size).shuffle(true).build()?;
    let model = Transformer::new().batch_first(true).build()?.to(device)?;
    let mut optimizer = Adam::new(model.parameters()).lr(1e-3).build()?;
    println!("{} parameters on {device}, {} threads", model.num_parameters(), rushlight::num_threads());

    for epoch in 0..arguments.epochs {
        let (start, mut total, mut steps) = (Instant::now(), 0.0, 0);
        let batches = loader.epoch(epoch).progress().title(format!("epoch {epoch}"));
        let display = batches.handle();
        for batch in batches {
            let (source, target) = batch?;
            let loss = {
                let _precision = set_autocast(lower)?;
                model.forward(&source, &target)?.cross_entropy(&target)?
            };
            optimizer.zero_grad();
            loss.backward()?;
            optimizer.step()?;
            let loss = loss.item::<f64>()?;
            display.message(format!("loss {loss:.3}"));
            (total, steps) = (total + loss, steps + 1);
        }
        println!("epoch {epoch}: loss {:.4}, {:.2} s", total / f64::from(steps.max(1)), start.elapsed().as_secs_f64());
    }
    Ok(())
}
