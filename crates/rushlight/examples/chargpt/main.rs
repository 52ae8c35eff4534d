//! A GPT over characters: trains on any text, then writes some of its own.

#[path = "../machine/mod.rs"]
mod machine;
mod own_text;

use clap::{ArgMatches, arg};
use machine::{count, get, number, option};
use rushlight::data::text::{CharTokenizer, TokenWindows, Tokenizer};
use rushlight::nn::models::{Generate, Gpt};
use rushlight::optim::lr_scheduler::{CosineAnnealingLR, LinearLR, LrScheduler, SequentialLR};
use rushlight::prelude::*;
use std::time::Instant;

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
        .arg(count("generate", "600", "Characters to write at the end"))
        .arg(option("prompt", "//! ", "What the writing starts with"))
        .arg(number("temperature", "0.8", "Below 1 the writing is safer, above 1 wilder"))
        .arg(count("top-k", "20", "Choose among this many characters"))
        .get_matches()
}

fn main() -> Result<()> {
    let arguments = arguments();
    let device = machine::prepare(&arguments)?;
    let lower = machine::lower(&arguments);
    let size = |name: &str| get::<usize>(&arguments, name);

    let text = match arguments.get_one::<String>("text") {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|e| Error::io(format!("cannot read '{path}' as text: {e}")))?
        }
        None => own_text::all(),
    };
    let tokenizer = CharTokenizer::new(&text);
    let windows = TokenWindows::new(tokenizer.encode(&text)?, size("block-size"))?.stride(size("block-size"))?;
    let loader = DataLoader::new(windows).batch_size(size("batch-size")).shuffle(true).drop_last(true).build()?;

    let model = Gpt::new(tokenizer.vocab_size())
        .n_layer(size("n-layer"))
        .n_head(size("n-head"))
        .n_embd(size("n-embd"))
        .block_size(size("block-size"))
        .dropout(get(&arguments, "dropout"))
        .build()?
        .to(device)?;
    let (decayed, others) = model.decay_groups();
    let groups = [ParamGroup::new(decayed).weight_decay(0.1), ParamGroup::new(others).weight_decay(0.0)];
    let mut optimizer = AdamW::groups(groups).lr(get(&arguments, "learning-rate")).betas((0.9, 0.95)).build()?;
    let steps = loader.len().unwrap_or(0) * size("max-epochs");
    let mut schedule = warm_up_then_decay(&mut optimizer, steps)?;
    println!(
        "{} characters, {} kinds; {} parameters on {device}, {} threads",
        text.chars().count(),
        tokenizer.vocab_size(),
        model.num_parameters(),
        rushlight::num_threads()
    );

    let mut capture = machine::capture(&arguments, device);
    for epoch in 0..size("max-epochs") {
        let (start, mut total, mut count) = (Instant::now(), 0.0, 0);
        let batches = loader.epoch(epoch as u64).progress().title(format!("epoch {epoch}"));
        let display = batches.handle();
        for batch in batches {
            let (x, y) = batch?;
            let loss = capture.run(&[x, y], |[x, y]| {
                let loss = {
                    let _precision = set_autocast(lower)?;
                    model.forward(x)?.flatten(0, 1)?.cross_entropy(&y.flatten(0, 1)?)?
                };
                optimizer.zero_grad();
                loss.backward()?;
                clip_grad_norm_(model.parameters(), 1.0)?;
                optimizer.step()?;
                Ok(loss)
            })?;
            schedule.step(&mut optimizer)?;
            let loss = loss.item::<f64>()?;
            display.message(format!("loss {loss:.3}"));
            (total, count) = (total + loss, count + 1);
        }
        println!(
            "epoch {epoch}: loss {:.4}, {:.2} s, peak memory {:.0} MiB",
            total / f64::from(count.max(1)),
            start.elapsed().as_secs_f64(),
            rushlight::memory_stats(&device)?.peak as f64 / (1 << 20) as f64
        );
    }

    model.eval();
    let known = tokenizer.encode(&get::<String>(&arguments, "prompt")).or_else(|_| tokenizer.encode("\n"))?;
    let start = Tensor::from_iter(known.into_iter().map(i64::from))?.unsqueeze(0)?.to(&device)?;
    let options = Generate::new(size("generate")).temperature(get(&arguments, "temperature")).top_k(size("top-k"));
    let written: Vec<u32> = model.generate(&start, &options)?.to_vec::<i64>()?.into_iter().map(|t| t as u32).collect();
    println!("{}\n{}", "-".repeat(60), tokenizer.decode(&written)?);
    Ok(())
}

fn warm_up_then_decay(optimizer: &mut AdamW, steps: usize) -> Result<SequentialLR> {
    let warm_up = (steps / 20).clamp(1, 200);
    let up = LinearLR::new().start_factor(0.1).total_iters(warm_up).build(optimizer)?;
    let down =
        CosineAnnealingLR::new(steps.saturating_sub(warm_up).max(1)).eta_min(optimizer.lr() / 20.0).build(optimizer)?;
    SequentialLR::new(optimizer, vec![Box::new(up), Box::new(down)], vec![warm_up])
}
