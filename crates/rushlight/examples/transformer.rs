//! A sequence-to-sequence transformer on random data: 44 million parameters, 64 batches an epoch.

#[macro_use]
mod machine;

use machine::{count, get};
use rushlight::prelude::*;

const ABOUT: &str =
    "Trains a Transformer (512 wide, 8 heads, 6 + 6 layers) with Adam on random data and times each epoch";

#[derive(Module)]
struct Model {
    transformer: Transformer,
}

impl TrainModule for Model {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (source, target): &Self::Batch, _: &mut StepContext) -> Result<Tensor> {
        self.transformer.forward(source, target)?.cross_entropy(target)
    }

    fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
        Ok(Optimizers::new(Adam::new(self.parameters(), 1e-3)?))
    }
}

fn main() -> Result<()> {
    let arguments = machine::command("transformer", ABOUT, "transformer --epochs 2 --precision bf16")
        .arg(count("epochs", "10", "Passes over the data"))
        .arg(count("samples", "2048", "Samples of the data"))
        .arg(count("batch-size", "32", "Samples of a batch"))
        .arg(machine::precision())
        .arg(machine::no_capture())
        .args(machine::runs())
        .get_matches();
    let device = machine::prepare(&arguments)?;
    let samples: usize = get(&arguments, "samples");

    let data = TensorDataset::new((
        Tensor::rand_with([samples, 1, 512], (DType::F32, device))?,
        Tensor::rand_with([samples, 20, 512], (DType::F32, device))?,
    ))?;
    let mut loader = DataLoader::builder(data).batch_size(get(&arguments, "batch-size")).shuffle(true).build()?;
    let mut model = Model { transformer: Transformer::builder().batch_first(true).build()? };
    say!("{} parameters on {device}, {} threads", model.num_parameters(), rushlight::num_threads());

    // A checkpoint has half a gigabyte: only a run that is to be resumed saves them.
    let mut trainer = machine::trainer(&arguments, "transformer", device)?
        .max_epochs(get::<usize>(&arguments, "epochs") as u64)
        .enable_checkpointing(arguments.get_flag("resume"))
        .build()?;
    trainer.fit(&mut model, &mut loader, None)?;
    machine::exit_if_preempted(trainer);
    Ok(())
}
