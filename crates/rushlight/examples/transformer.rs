//! A sequence-to-sequence transformer on random data: 44 million parameters, 64 batches an epoch.

mod machine;

use machine::{count, get};
use rushlight::prelude::*;
use std::time::Instant;

const ABOUT: &str =
    "Trains a Transformer (512 wide, 8 heads, 6 + 6 layers) with Adam on random data and times each epoch";

fn main() -> Result<()> {
    let arguments = machine::command("transformer", ABOUT, "transformer --epochs 2 --precision bf16")
        .arg(count("epochs", "10", "Passes over the data"))
        .arg(count("samples", "2048", "Samples of the data"))
        .arg(count("batch-size", "32", "Samples of a batch"))
        .arg(machine::precision())
        .arg(machine::no_capture())
        .get_matches();
    let device = machine::prepare(&arguments)?;
    let (lower, samples) = (machine::lower(&arguments), get::<usize>(&arguments, "samples"));

    let data = TensorDataset::new((
        Tensor::rand([samples, 1, 512], (DType::F32, device))?,
        Tensor::rand([samples, 20, 512], (DType::F32, device))?,
    ))?;
    let loader = DataLoader::new(data).batch_size(get(&arguments, "batch-size")).shuffle(true).build()?;
    let model = Transformer::new().batch_first(true).build()?.to(device)?;
    let mut optimizer = Adam::new(model.parameters()).lr(1e-3).build()?;
    let mut capture = machine::capture(&arguments, device);
    println!("{} parameters on {device}, {} threads", model.num_parameters(), rushlight::num_threads());

    for epoch in 0..get::<usize>(&arguments, "epochs") {
        let (start, mut total, mut steps) = (Instant::now(), 0.0, 0);
        let batches = loader.epoch(epoch as u64).progress().title(format!("epoch {epoch}"));
        let display = batches.handle();
        for batch in batches {
            let (source, target) = batch?;
            let loss = capture.run(&[source, target], |[source, target]| {
                let loss = {
                    let _precision = set_autocast(lower)?;
                    model.forward(source, target)?.cross_entropy(target)?
                };
                optimizer.zero_grad();
                loss.backward()?;
                optimizer.step()?;
                Ok(loss)
            })?;
            let loss = loss.item::<f64>()?;
            display.message(format!("loss {loss:.3}"));
            (total, steps) = (total + loss, steps + 1);
        }
        println!("epoch {epoch}: loss {:.4}, {:.2} s", total / f64::from(steps.max(1)), start.elapsed().as_secs_f64());
    }
    Ok(())
}
