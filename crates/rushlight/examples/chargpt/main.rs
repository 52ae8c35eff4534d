//! A GPT over characters: trains on any text, then writes some of its own.

#[path = "../machine/mod.rs"]
#[macro_use]
mod machine;
mod own_text;

use clap::{ArgMatches, arg};
use machine::{count, get, number, option};
use rushlight::data::text::{CharTokenizer, TokenWindows, Tokenizer};
use rushlight::nn::models::{Generate, Gpt};
use rushlight::optim::lr_scheduler::{CosineAnnealingLR, LinearLR, SequentialLR};
use rushlight::prelude::*;

const ABOUT: &str =
    "Trains a character-level GPT on a text file (without one: on this project's own sources) and lets it write";
const EXAMPLE: &str =
    "chargpt --text shakespeare.txt --n-layer 6 --n-head 6 --n-embd 384 --block-size 256 --precision bf16";

fn arguments() -> ArgMatches {
    machine::command("chargpt", ABOUT, EXAMPLE)
        .arg(arg!(--text <FILE> "The text to learn"))
        .arg(count("n-layer", "4", "Blocks of the model"))
        .arg(count("n-head", "4", "Attention heads of a block"))
        .arg(count("n-embd", "128", "Size of a character's vector"))
        .arg(count("block-size", "64", "Characters the model looks back"))
        .arg(count("batch-size", "32", "Sequences of a batch"))
        .arg(count("max-epochs", "7", "Passes over the text"))
        .arg(number("learning-rate", "0.002", "Highest learning rate"))
        .arg(number("dropout", "0", "Probability of dropping while training"))
        .arg(machine::precision())
        .arg(machine::no_capture())
        .args(machine::runs())
        .arg(count("generate", "600", "Characters to write at the end"))
        .arg(option("prompt", "//! ", "What the writing starts with"))
        .arg(number("temperature", "0.8", "Below 1 the writing is safer, above 1 wilder"))
        .arg(count("top-k", "20", "Choose among this many characters"))
        .get_matches()
}

#[derive(Module)]
struct CharGpt {
    gpt: Gpt,
    learning_rate: f64,
}

impl TrainModule for CharGpt {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (x, y): &Self::Batch, _: &mut StepContext) -> Result<Tensor> {
        self.gpt.forward(x)?.flatten(0, 1)?.cross_entropy(&y.flatten(0, 1)?)
    }

    fn configure_optimizers(&self, run: &Run) -> Result<Optimizers> {
        let (decayed, others) = self.gpt.decay_groups();
        let groups = [ParamGroup::new(decayed).weight_decay(0.1), ParamGroup::new(others).weight_decay(0.0)];
        let mut optimizer = AdamW::groups(groups).lr(self.learning_rate).betas((0.9, 0.95)).build()?;
        let schedule = warm_up_then_decay(&mut optimizer, run.estimated_stepping_batches().unwrap_or(0) as usize)?;
        Ok(Optimizers::new(optimizer).schedule(schedule, Interval::Step))
    }
}

fn main() -> Result<()> {
    let arguments = arguments();
    let device = machine::prepare(&arguments)?;
    let size = |name: &str| get::<usize>(&arguments, name);

    let text = match arguments.get_one::<String>("text") {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|e| Error::io(format!("cannot read '{path}' as text: {e}")))?
        }
        None => own_text::all(),
    };
    let tokenizer = CharTokenizer::new(&text);
    let windows = TokenWindows::new(tokenizer.encode(&text)?, size("block-size"))?.stride(size("block-size"))?;
    let mut loader =
        DataLoader::builder(windows).batch_size(size("batch-size")).shuffle(true).drop_last(true).build()?;

    let gpt = Gpt::builder(tokenizer.vocab_size())
        .n_layer(size("n-layer"))
        .n_head(size("n-head"))
        .n_embd(size("n-embd"))
        .block_size(size("block-size"))
        .dropout(get(&arguments, "dropout"))
        .build()?;
    let mut model = CharGpt { gpt, learning_rate: get(&arguments, "learning-rate") };
    say!(
        "{} characters, {} kinds; {} parameters on {device}, {} threads",
        text.chars().count(),
        tokenizer.vocab_size(),
        model.num_parameters(),
        rushlight::num_threads()
    );

    let mut trainer = machine::trainer(&arguments, "chargpt", device)?
        .max_epochs(size("max-epochs") as u64)
        .gradient_clip_val(1.0)
        .hparams(["n-layer", "n-head", "n-embd", "block-size", "batch-size"].map(|name| (name, size(name))))
        .build()?;
    trainer.fit(&mut model, &mut loader, None)?;
    machine::exit_if_preempted(trainer);

    model.eval();
    let known = tokenizer.encode(&get::<String>(&arguments, "prompt")).or_else(|_| tokenizer.encode("\n"))?;
    let start = Tensor::from_iter(known.into_iter().map(i64::from))?.unsqueeze(0)?.to(device)?;
    let options = Generate::new(size("generate")).temperature(get(&arguments, "temperature")).top_k(size("top-k"));
    let written: Vec<u32> =
        model.gpt.generate(&start, &options)?.to_vec::<i64>()?.into_iter().map(|t| t as u32).collect();
    say!("{}\n{}", "-".repeat(60), tokenizer.decode(&written)?);
    Ok(())
}

fn warm_up_then_decay(optimizer: &mut AdamW, steps: usize) -> Result<SequentialLR> {
    let warm_up = (steps / 20).clamp(1, 200);
    let up = LinearLR::builder().start_factor(0.1).total_iters(warm_up).build(optimizer)?;
    let down = CosineAnnealingLR::builder(steps.saturating_sub(warm_up).max(1))
        .eta_min(optimizer.lr() / 20.0)
        .build(optimizer)?;
    SequentialLR::new(optimizer, vec![Box::new(up), Box::new(down)], vec![warm_up])
}
