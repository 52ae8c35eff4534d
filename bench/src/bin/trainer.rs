//! The overhead of the Trainer over a hand-written loop: both train the same GPT in turns; prints the ratios of their
//! times.
//!
//!     cargo run --release -p rushlight-bench --bin trainer [ROUNDS] [--gpu] [--no-capture] [--chargpt] [--json]
//!
//! On a GPU both loops capture their step, train for two epochs, and the second is compared. `bench/trainer`
//! compares with Lightning.

use rushlight::nn::models::Gpt;
use rushlight::prelude::*;
use rushlight::train::Callback;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const STEPS: usize = 100;
const LOG_EVERY: usize = 10;

/// The options of a measurement.
#[derive(Clone, Copy)]
struct Case {
    device: Device,
    capture: bool,
    /// Uses the example's model instead of a small one.
    chargpt: bool,
    epochs: u64,
    steps: usize,
}

/// Seconds of a whole run, and of its last epoch.
type Times = (f64, f64);

impl Case {
    fn length(self) -> usize {
        if self.chargpt { 256 } else { 64 }
    }

    fn loader(self) -> Result<DataLoader<(Tensor, Tensor)>> {
        let (count, length) = (self.steps * 16 * self.length(), self.length() as i64);
        let tokens = |seed: i64| Tensor::arange(0, count as i64, 1)?.mul(seed)?.remainder(65)?.reshape([-1, length]);
        DataLoader::builder(TensorDataset::new((tokens(7)?, tokens(11)?))?).batch_size(16).seed(1).shuffle(true).build()
    }
}

#[derive(Module)]
struct Model {
    gpt: Gpt,
}

impl Model {
    fn new(case: Case) -> Result<Self> {
        manual_seed(0);
        let gpt = Gpt::builder(65).block_size(case.length());
        let gpt = match case.chargpt {
            true => gpt.n_layer(6).n_head(6).n_embd(384),
            false => gpt.n_layer(2).n_head(4).n_embd(128),
        };
        let mut model = Self { gpt: gpt.build()? };
        model.to_(case.device.into())?;
        Ok(model)
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        self.gpt.forward(x)?.flatten(0, 1)?.cross_entropy(&y.flatten(0, 1)?)
    }

    fn optimizer(&self) -> Result<AdamW> {
        AdamW::new(self.parameters(), 1e-3)
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

/// Times the last epoch of a run; it ends after the loss is read.
struct Clock {
    start: Instant,
    seconds: Arc<Mutex<f64>>,
}

impl Callback for Clock {
    fn name(&self) -> &str {
        "Clock"
    }

    fn on_train_epoch_start(&mut self, _: &mut Run, _: &dyn Module) -> Result<()> {
        self.start = Instant::now();
        Ok(())
    }

    fn on_train_epoch_end(&mut self, _: &mut Run, _: &dyn Module) -> Result<()> {
        if let Ok(mut seconds) = self.seconds.lock() {
            *seconds = self.start.elapsed().as_secs_f64();
        }
        Ok(())
    }
}

fn by_hand(case: Case) -> Result<Times> {
    let (model, loader) = (Model::new(case)?, case.loader()?);
    let mut optimizer = model.optimizer()?;
    let mut capture = Capture::new().device(case.device).enabled(case.capture);
    let (start, mut last) = (Instant::now(), 0.0);
    for epoch in 0..case.epochs {
        let begun = Instant::now();
        let (mut losses, mut total) = (Vec::with_capacity(LOG_EVERY), 0.0);
        for batch in loader.epoch(epoch) {
            let (x, y) = batch?;
            let loss = capture.run(&[x, y], |[x, y]| {
                optimizer.zero_grad();
                let loss = model.loss(x, y)?;
                loss.backward()?;
                clip_grad_norm_(model.parameters(), 1.0)?;
                optimizer.step()?;
                Ok(loss)
            })?;
            losses.push(loss);
            if losses.len() == LOG_EVERY {
                for loss in losses.drain(..) {
                    total += loss.item::<f64>()?;
                }
            }
        }
        last = begun.elapsed().as_secs_f64();
        if !total.is_finite() {
            return Err(Error::numerical(format!("the loss is {total}")));
        }
    }
    Ok((start.elapsed().as_secs_f64(), last))
}

/// The same with the Trainer's log and checkpoint.
fn by_trainer(case: Case, root: &Path) -> Result<Times> {
    let (mut model, mut loader) = (Model::new(case)?, case.loader()?);
    let seconds = Arc::new(Mutex::new(0.0));
    let start = Instant::now();
    let mut trainer = Trainer::builder()
        .device(case.device)
        .capture(case.capture)
        .max_epochs(case.epochs)
        .gradient_clip_val(1.0)
        .log_every_n_steps(LOG_EVERY as u64)
        .run_directory(Some(root.into()))
        .progress(false)
        .callback(Clock { start, seconds: seconds.clone() })
        .build()?;
    trainer.fit(&mut model, &mut loader, None)?;
    let whole = start.elapsed().as_secs_f64();
    let last = seconds.lock().map_or(f64::NAN, |seconds| *seconds);
    Ok((whole, last))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let rounds = arguments.iter().find_map(|n| n.parse().ok()).unwrap_or(9usize).max(1);
    let gpu = has("--gpu");
    let device = if gpu { Device::best() } else { Device::Cpu };
    if gpu && device.is_cpu() {
        return Err(Error::device("--gpu: this machine has no GPU"));
    }
    let (epochs, steps) = if gpu { (2, 4 * STEPS) } else { (1, STEPS) };
    let case = Case { device, capture: !has("--no-capture"), chargpt: has("--chargpt"), epochs, steps };
    let root = std::env::temp_dir().join(format!("rushlight-bench-trainer-{}", std::process::id()));
    by_hand(case)?;
    by_trainer(case, &root)?;
    let mut rows: Vec<(Times, Times)> = Vec::with_capacity(rounds);
    for round in 0..rounds {
        // The order alternates from round to round.
        rows.push(match round % 2 {
            0 => (by_hand(case)?, by_trainer(case, &root)?),
            _ => {
                let trainer = by_trainer(case, &root)?;
                (by_hand(case)?, trainer)
            }
        });
    }
    std::fs::remove_dir_all(&root)?;
    if has("--json") {
        let row = |((_, hand), (whole, last)): &(Times, Times)| format!("[{hand}, {whole}, {last}]");
        println!("{{\"rows\": [{}]}}", rows.iter().map(row).collect::<Vec<_>>().join(", "));
        return Ok(());
    }
    let each = |seconds: f64| seconds / steps as f64 * 1e3;
    println!(
        "{device}: by hand {:.4} ms a step, Trainer {:.4} ms: ratio {:.4}; with start, log and checkpoint: ratio {:.4}",
        each(median(rows.iter().map(|(hand, _)| hand.1))),
        each(median(rows.iter().map(|(_, trainer)| trainer.1))),
        median(rows.iter().map(|(hand, trainer)| trainer.1 / hand.1)),
        median(rows.iter().map(|(hand, trainer)| trainer.0 / hand.0)),
    );
    Ok(())
}
