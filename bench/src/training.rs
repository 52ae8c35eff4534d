//! Whole training steps, optimizer updates, data loading, files.

use crate::cases::Case;
use rushlight::io;
use rushlight::nn::models::{Gpt, resnet18_cifar};
use rushlight::prelude::*;
use rushlight::state::{StateDict, Value};

/// Every case, for `list`; `train_` cases also report their peak memory.
pub const NAMES: &[&str] = &[
    "train_transformer_f32",
    "train_transformer_bf16",
    "train_chargpt_f32",
    "train_chargpt_bf16",
    "train_gpt768_f32",
    "train_gpt768_bf16",
    "train_cnn_f32",
    "train_resnet18_f32",
    "train_resnet18_bf16",
    "train_linear_f32",
    "lstm_forward_64x32x512",
    "lstm_64x32x512",
    "lstm_128x64x256",
    "gru_forward_64x32x512",
    "gru_64x32x512",
    "adam_44M",
    "loader_2048x20x512",
    "loader_workers_2048x20x512",
    "file_create_500MB",
    "file_save_500MB",
    "file_load_500MB",
];

pub fn prepare(name: &str) -> Result<Option<Case>> {
    let lower = if name.ends_with("bf16") { Some(DType::BF16) } else { None };
    Ok(Some(match name.rsplit_once('_').map_or(name, |(start, _)| start) {
        "train_transformer" => transformer(lower)?,
        "train_chargpt" => gpt(Gpt::builder(65).n_layer(6).n_head(6).n_embd(384).block_size(256).build()?, 16, lower)?,
        "train_gpt768" => gpt(Gpt::builder(65).block_size(128).build()?, 4, lower)?,
        "train_cnn" => images(Net::new()?, 512, lower)?,
        "train_resnet18" => images(resnet18_cifar(10)?, 64, lower)?,
        "train_linear" => linear()?,
        "lstm" | "lstm_forward" | "gru" | "gru_forward" => recurrent(name)?,
        "adam" => adam()?,
        "loader" => loader(0)?,
        "loader_workers" => loader(2)?,
        "file_create" => create()?,
        "file_save" => save()?,
        "file_load" => load()?,
        _ => return Ok(None),
    }))
}

/// One step: forward and loss in the given precision, backward, update.
fn step(optimizer: &mut dyn Optimizer, lower: Option<DType>, loss: impl FnOnce() -> Result<Tensor>) -> Result<()> {
    optimizer.zero_grad();
    let loss = {
        let _precision = set_autocast(lower)?;
        loss()?
    };
    loss.backward()?;
    optimizer.step()?;
    loss.item::<f32>().map(|_| ())
}

fn transformer(lower: Option<DType>) -> Result<Case> {
    let (src, tgt) = (Tensor::rand([32, 1, 512])?, Tensor::rand([32, 20, 512])?);
    let model = Transformer::builder().batch_first(true).build()?;
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    Ok(Box::new(move || step(&mut optimizer, lower, || model.forward(&src, &tgt)?.cross_entropy(&tgt))))
}

fn gpt(model: Gpt, batch: usize, lower: Option<DType>) -> Result<Case> {
    let shape = [batch, model.block_size()];
    let (x, y) = (Tensor::randint(0, 65, shape)?, Tensor::randint(0, 65, shape)?.flatten(0, 1)?);
    let mut optimizer = AdamW::new(model.parameters(), 3e-4)?;
    Ok(Box::new(move || step(&mut optimizer, lower, || model.forward(&x)?.flatten(0, 1)?.cross_entropy(&y))))
}

/// The tutorial's network for CIFAR-10.
#[derive(Module)]
struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Net {
    fn new() -> Result<Self> {
        Ok(Self {
            conv1: Conv2d::new(3, 6, 5)?,
            conv2: Conv2d::new(6, 16, 5)?,
            fc1: Linear::new(400, 120)?,
            fc2: Linear::new(120, 84)?,
            fc3: Linear::new(84, 10)?,
        })
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(x)?.relu()?.max_pool2d(2)?;
        let x = self.conv2.forward(&x)?.relu()?.max_pool2d(2)?.flatten(1, -1)?;
        self.fc3.forward(&self.fc2.forward(&self.fc1.forward(&x)?.relu()?)?.relu()?)
    }
}

fn images(model: impl Forward, batch: usize, lower: Option<DType>) -> Result<Case> {
    let (x, y) = (Tensor::randn([batch, 3, 32, 32])?, Tensor::randint(0, 10, [batch])?);
    let mut optimizer = Sgd::builder(model.parameters()).lr(1e-3).momentum(0.9).build()?;
    Ok(Box::new(move || step(&mut optimizer, lower, || model.forward(&x)?.cross_entropy(&y))))
}

fn linear() -> Result<Case> {
    let (x, y) = (Tensor::rand([32, 20])?, Tensor::rand([32, 1])?);
    let model = Linear::new(20, 1)?;
    let mut optimizer = Sgd::new(model.parameters(), 1e-3)?;
    Ok(Box::new(move || {
        optimizer.zero_grad();
        model.forward(&x)?.mse_loss(&y, Reduction::Mean)?.backward()?;
        optimizer.step()
    }))
}

/// Two layers over `steps x batch x features`, forward alone or with backward.
fn recurrent(name: &str) -> Result<Case> {
    let sizes: Vec<usize> = name.rsplit('_').next().unwrap_or_default().split('x').flat_map(str::parse).collect();
    let &[steps, batch, features] = &sizes[..] else {
        return Err(Error::value(format!("'{name}' does not end in steps x batch x features")));
    };
    let x = Tensor::randn([steps, batch, features])?;
    let forward: Box<dyn Fn() -> Result<(Tensor, Vec<Tensor>)>> = if name.starts_with("lstm") {
        let model = LSTM::builder(features, features).num_layers(2).build()?;
        Box::new(move || Ok((model.forward(&x, None)?.0, model.parameters())))
    } else {
        let model = GRU::builder(features, features).num_layers(2).build()?;
        Box::new(move || Ok((model.forward(&x, None)?.0, model.parameters())))
    };
    if name.contains("forward") {
        return Ok(Box::new(move || no_grad(|| forward().map(|_| ()))));
    }
    Ok(Box::new(move || {
        let (output, parameters) = forward()?;
        parameters.iter().for_each(Tensor::zero_grad);
        output.sum(..)?.backward()
    }))
}

/// An update of the transformer's parameters.
fn adam() -> Result<Case> {
    let model = Transformer::new()?;
    for p in model.parameters() {
        p.set_grad(Some(p.detach().mul(1e-3)?))?;
    }
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    Ok(Box::new(move || optimizer.step()))
}

/// One epoch over the transformer's data, shuffled, in batches of 32.
fn loader(workers: usize) -> Result<Case> {
    let data = TensorDataset::new((Tensor::rand([2048, 1, 512])?, Tensor::rand([2048, 20, 512])?))?;
    let loader = DataLoader::builder(data).batch_size(32).shuffle(true).workers(workers).build()?;
    Ok(Box::new(move || loader.epoch(0).try_for_each(|batch| batch.map(|_| ()))))
}

fn weights() -> Result<StateDict> {
    (0..20).map(|i| Ok((format!("l{i}.w"), Tensor::randn([2500, 2500])?))).collect()
}

fn scratch() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("rushlight-bench-{}.pt", std::process::id()))
}

/// A file that is removed when the case is dropped.
struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a new file.
fn create() -> Result<Case> {
    let (state, file) = (Value::from(weights()?), Scratch(scratch()));
    Ok(Box::new(move || {
        drop(Scratch(file.0.clone()));
        io::save(&state, &file.0)
    }))
}

/// Overwrites a file.
fn save() -> Result<Case> {
    let (state, file) = (Value::from(weights()?), Scratch(scratch()));
    Ok(Box::new(move || io::save(&state, &file.0)))
}

/// Loads a file and reads every value once.
fn load() -> Result<Case> {
    let file = Scratch(scratch());
    io::save(weights()?, &file.0)?;
    Ok(Box::new(move || {
        for (_, t) in io::load(&file.0)?.to_state_dict()? {
            t.sum(..)?;
        }
        Ok(())
    }))
}
