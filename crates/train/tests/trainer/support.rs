//! A small model and its data.

use rushlight_core::rng::manual_seed;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Device, Result};
use rushlight_data::{DataLoader, TensorDataset};
use rushlight_nn::{Dropout, Forward, Linear, Module};
use rushlight_optim::lr_scheduler::StepLR;
use rushlight_optim::{AdamW, Optimizer};
use rushlight_tensor::{Reduction, Tensor};
use rushlight_train::{Interval, LogOptions, Optimizers, Run, StepContext, TrainModule, Trainer, TrainerBuilder};
use std::path::PathBuf;
use std::sync::Mutex;

pub type Loader = DataLoader<(Tensor, Tensor)>;

#[derive(Module)]
pub struct Net {
    first: Linear,
    drop: Dropout,
    second: Linear,
    /// Events, in order.
    #[module(skip)]
    pub events: Mutex<Vec<String>>,
}

impl Net {
    pub fn new() -> Result<Self> {
        Ok(Self {
            first: Linear::new(8, 32)?,
            drop: Dropout::new(0.2)?,
            second: Linear::new(32, 1)?,
            events: Mutex::default(),
        })
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.second.forward(&self.drop.forward(&self.first.forward(x)?.relu()?)?)
    }

    pub fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        self.forward(x)?.mse_loss(y, Reduction::Mean)
    }

    pub fn note(&self, event: impl Into<String>) {
        self.events.lock().unwrap().push(event.into());
    }

    pub fn count(&self, event: &str) -> usize {
        self.events.lock().unwrap().iter().filter(|e| *e == event).count()
    }

    pub fn optimizer(&self) -> Result<(impl Optimizer + use<>, StepLR)> {
        let mut optimizer = AdamW::new(self.parameters(), 1e-2)?;
        let schedule = StepLR::builder(5).gamma(0.9).build(&mut optimizer)?;
        Ok((optimizer, schedule))
    }

    pub fn bits(&self) -> Result<Vec<u32>> {
        let mut bits = Vec::new();
        for p in self.parameters() {
            bits.extend(p.to_dtype(DType::F32)?.to_vec::<f32>()?.iter().map(|v| v.to_bits()));
        }
        Ok(bits)
    }
}

impl TrainModule for Net {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<Tensor> {
        self.note("train");
        let loss = self.loss(x, y)?;
        step.log_with("train_mse", &loss, LogOptions::new().on_step(true).on_epoch(true).prog_bar(true))?;
        Ok(loss)
    }

    fn validation_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<()> {
        self.note("val");
        step.log("val_loss", self.loss(x, y)?)
    }

    fn test_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<()> {
        step.log("test_loss", self.loss(x, y)?)
    }

    fn predict_step(&self, (x, _): &Self::Batch, _: &mut StepContext) -> Result<rushlight_tensor::state::Value> {
        Ok(self.forward(x)?.into())
    }

    fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
        let (optimizer, schedule) = self.optimizer()?;
        Ok(Optimizers::new(optimizer).schedule(schedule, Interval::Step))
    }

    fn on_train_epoch_start(&mut self, _: &mut Run) -> Result<()> {
        self.note("epoch");
        Ok(())
    }

    fn on_validation_start(&mut self, _: &mut Run) -> Result<()> {
        self.note("validation");
        Ok(())
    }
}

/// A directory of its own for a test, empty.
pub fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rushlight-trainer-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The same numbers in every test, whatever others draw from the default generator meanwhile.
pub fn data(samples: usize) -> Result<TensorDataset<(Tensor, Tensor)>> {
    let value = |i: usize, k: usize| ((i * 31 + k * 17) as f32 * 0.61).sin();
    let x: Vec<f32> = (0..samples * 8).map(|i| value(i / 8, i % 8)).collect();
    let y: Vec<f32> = (0..samples).map(|i| value(i, 0) - 0.5 * value(i, 3) + 0.1).collect();
    TensorDataset::new((Tensor::from_slice(&x, [samples, 8])?, Tensor::from_slice(&y, [samples, 1])?))
}

pub fn loader(samples: usize, shuffle: bool) -> Result<Loader> {
    DataLoader::builder(data(samples)?).batch_size(8).shuffle(shuffle).seed(3).build()
}

/// Tests of one process share the random generator: those that compare bits take turns.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = lock(&TURN);
    manual_seed(7);
    turn
}

/// The device to test on: `RUSHLIGHT_TEST_DEVICE`, else the CPU. The named device must exist.
pub fn device() -> Device {
    std::env::var("RUSHLIGHT_TEST_DEVICE")
        .map_or(Device::Cpu, |name| name.parse().expect("RUSHLIGHT_TEST_DEVICE names a device"))
}

/// A Trainer without output.
pub fn quiet() -> TrainerBuilder {
    Trainer::builder().run_directory(None).progress(false).device(device())
}
