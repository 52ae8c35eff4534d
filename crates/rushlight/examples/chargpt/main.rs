//! A GPT over characters: trains on any text, then writes some of its own.

#[path = "../machine/mod.rs"]
mod machine;
mod own_text;

use clap::Parser;
use rushlight::data::text::{CharTokenizer, TokenWindows, Tokenizer};
use rushlight::nn::models::{Generate, Gpt};
use rushlight::optim::lr_scheduler::{CosineAnnealingLR, LinearLR, LrScheduler, SequentialLR};
use rushlight::prelude::*;
use std::path::PathBuf;
use std::time::Instant;

/// Trains a character-level GPT on a text file (without one: on this project's own sources) and lets it write
///
/// Example: chargpt --text shakespeare.txt --n-layer 6 --n-head 6 --n-embd 384 --block-size 256 --precision bf16
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// The text to learn
    #[arg(long)]
    text: Option<PathBuf>,
    #[arg(long, default_value_t = 4)]
    n_layer: usize,
    #[arg(long, default_value_t = 4)]
    n_head: usize,
    #[arg(long, default_value_t = 128)]
    n_embd: usize,
    /// Characters the model looks back
    #[arg(long, default_value_t = 64)]
    block_size: usize,
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    #[arg(long, default_value_t = 5)]
    max_epochs: u64,
    #[arg(long, default_value_t = 2e-3)]
    learning_rate: f64,
    #[arg(long, default_value_t = 0.0)]
    dropout: f64,
    /// f32, or bf16 for mixed precision
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16"])]
    precision: String,
    /// Characters to write at the end
    #[arg(long, default_value_t = 600)]
    generate: usize,
    /// What the writing starts with
    #[arg(long, default_value = "//! ")]
    prompt: String,
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    #[arg(long, default_value_t = 20)]
    top_k: usize,
    #[command(flatten)]
    machine: machine::Machine,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let device = arguments.machine.prepare()?;
    let lower = (arguments.precision == "bf16").then_some(DType::BF16);

    let text = match &arguments.text {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| Error::io(format!("cannot read '{}' as text: {e}", path.display())))?,
        None => own_text::all(),
    };
    let tokenizer = CharTokenizer::new(&text);
    let windows = TokenWindows::new(tokenizer.encode(&text)?, arguments.block_size)?.stride(arguments.block_size)?;
    let loader = DataLoader::new(windows).batch_size(arguments.batch_size).shuffle(true).drop_last(true).build()?;

    let model = Gpt::new(tokenizer.vocab_size())
        .n_layer(arguments.n_layer)
        .n_head(arguments.n_head)
        .n_embd(arguments.n_embd)
        .block_size(arguments.block_size)
        .dropout(arguments.dropout)
        .build()?
        .to(device)?;
    let (decayed, others) = model.decay_groups();
    let groups = [ParamGroup::new(decayed).weight_decay(0.1), ParamGroup::new(others).weight_decay(0.0)];
    let mut optimizer = AdamW::groups(groups).lr(arguments.learning_rate).betas((0.9, 0.95)).build()?;
    let steps = loader.len().unwrap_or(0) * arguments.max_epochs as usize;
    let mut schedule = warm_up_then_decay(&mut optimizer, steps)?;
    println!(
        "{} characters, {} kinds; {} parameters on {device}, {} threads",
        text.chars().count(),
        tokenizer.vocab_size(),
        model.num_parameters(),
        rushlight::num_threads()
    );

    for epoch in 0..arguments.max_epochs {
        let (start, mut total, mut count) = (Instant::now(), 0.0, 0);
        let batches = loader.epoch(epoch).progress().title(format!("epoch {epoch}"));
        let display = batches.handle();
        for batch in batches {
            let (x, y) = batch?;
            let loss = {
                let _precision = set_autocast(lower)?;
                let logits = model.forward(&x.to(&device)?)?;
                logits.flatten(0, 1)?.cross_entropy(&y.to(&device)?.flatten(0, 1)?)?
            };
            optimizer.zero_grad();
            loss.backward()?;
            clip_grad_norm_(model.parameters(), 1.0)?;
            optimizer.step()?;
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
    let known = tokenizer.encode(&arguments.prompt).or_else(|_| tokenizer.encode("\n"))?;
    let start = Tensor::from_iter(known.into_iter().map(i64::from))?.unsqueeze(0)?.to(&device)?;
    let options = Generate::new(arguments.generate).temperature(arguments.temperature).top_k(arguments.top_k);
    let written: Vec<u32> = model.generate(&start, &options)?.to_vec::<i64>()?.into_iter().map(|t| t as u32).collect();
    println!("{}\n{}", "-".repeat(60), tokenizer.decode(&written)?);
    Ok(())
}

fn warm_up_then_decay(optimizer: &mut AdamW, steps: usize) -> Result<SequentialLR> {
    let warm_up = (steps / 20).clamp(1, 200);
    let up = LinearLR::new().start_factor(0.1).total_iters(warm_up).build(optimizer)?;
    let down = CosineAnnealingLR::new(steps.saturating_sub(warm_up).max(1)).eta_min(optimizer.lr() / 20.0).build(optimizer)?;
    SequentialLR::new(optimizer, vec![Box::new(up), Box::new(down)], &[warm_up])
}
