//! Fifty steps of each example program against PyTorch's losses, from weights and batches that a hash makes alike in
//! both.

use rushlight::nn::models::{Gpt, resnet18_cifar};
use rushlight::prelude::*;

/// The device to test on: `RUSHLIGHT_TEST_DEVICE`, else the CPU. The named device must exist.
fn device() -> Device {
    // The answers have full precision.
    rushlight::set_allow_tf32_conv(false);
    match std::env::var("RUSHLIGHT_TEST_DEVICE") {
        Ok(name) => name.parse().expect("RUSHLIGHT_TEST_DEVICE names a device"),
        Err(_) => Device::Cpu,
    }
}

/// Uniform in [-1, 1): the same numbers as `hashed` in tests/goldens/models.py.
fn hashed(stream: u32, shape: &[usize]) -> Result<Tensor> {
    let values: Vec<f32> = (0..shape.iter().product::<usize>() as u32)
        .map(|i| {
            let mut h = i.wrapping_mul(2_654_435_761).wrapping_add(stream.wrapping_mul(40_503).wrapping_add(12_345));
            h ^= h >> 16;
            h = h.wrapping_mul(0x85EB_CA6B);
            h ^= h >> 13;
            h = h.wrapping_mul(0xC2B2_AE35);
            h ^= h >> 16;
            (f64::from(h >> 8) / f64::from(1 << 23) - 1.0) as f32
        })
        .collect();
    Tensor::from_slice(&values, shape)?.to(device())
}

/// Uniform in [0, 1).
fn positive(stream: u32, shape: &[usize]) -> Result<Tensor> {
    hashed(stream, shape)?.add(1.0)?.div(2.0)
}

fn tokens(stream: u32, shape: &[usize], count: i64) -> Result<Tensor> {
    let unit = hashed(stream, shape)?.to_dtype(DType::F64)?.add(1.0)?.div(2.0)?;
    unit.mul(count as f64)?.to_dtype(DType::I64)?.clamp_max(count - 1)
}

/// Weights from the hash, in the order of the state dict.
fn fill(model: &dyn Module) -> Result<()> {
    for (i, (name, p)) in model.named_parameters().into_iter().enumerate() {
        let u = hashed(1000 + i as u32, p.shape())?;
        let values = if p.rank() >= 2 {
            let fan_in: usize = p.shape()[1..].iter().product();
            let gain = if name.contains("wte") || name.contains("wpe") { 0.1 } else { 0.5 };
            u.mul((3.0 / fan_in as f64).sqrt())?.mul(gain)?
        } else if name.ends_with("weight") {
            u.mul(0.1)?.add(1.0)?
        } else {
            u.mul(0.1)?
        };
        no_grad(|| p.copy_(&values).map(|_| ()))?;
    }
    Ok(())
}

/// How far a loss may be from PyTorch's, as a share of it.
///
/// ResNet's runs part after some ten steps: a rounding moves a value across ReLU's bend, which changes gradients by a
/// thousandth. Measured against a run of PyTorch in `f64`, the largest distance of a loss up to step 10 and after it:
///
/// | run in `f32`                                              | to step 10       | later            |
/// |-----------------------------------------------------------|------------------|------------------|
/// | PyTorch, whose losses these are                           | 0.7e-6           | 1.1e-4           |
/// | PyTorch: two threads, without oneDNN, channels last       | 0.4e-6 to 1.9e-6 | 0.8e-4 to 1.4e-4 |
/// | PyTorch, 12 runs with weights changed in the last bit     | 0.3e-6 to 2.1e-6 | 1.2e-4 to 2.7e-4 |
/// | the CPU engine                                            | 1.7e-6           | 1.5e-4           |
/// | the xpu engine on PoCL                                    | 0.5e-6           | 3.8e-4           |
/// | the xpu engine on Intel's run time                        | 1.9e-6           | 1.7e-4           |
///
/// The late distance says nothing of an engine's exactness: the gradients of the first step are 1.5e-6 from `f64` on
/// PoCL and 1.3e-6 or 1.5e-6 (without oneDNN) in PyTorch, in the geometric mean over parameters. So a late loss may be
/// as far off as the farthest run and PyTorch's are from `f64` together, an early one five times the farthest.
fn tolerance(name: &str, step: usize) -> f64 {
    match (name, step) {
        ("cifar10_resnet18", 0..=10) => 1e-5,
        ("cifar10_resnet18", _) => 5e-4,
        _ => 1e-4,
    }
}

/// Trains for as many steps as PyTorch did, and compares the losses.
fn compare(
    name: &str,
    model: &dyn Module,
    optimizer: &mut dyn Optimizer,
    mut loss_of: impl FnMut(usize) -> Result<Tensor>,
) -> Result<()> {
    let text = include_str!("../../../../tests/goldens/data/training.json");
    let answers: serde_json::Value = serde_json::from_str(text).unwrap();
    for (step, expected) in answers[name].as_array().unwrap().iter().enumerate() {
        optimizer.zero_grad();
        let loss = loss_of(step)?;
        loss.backward()?;
        if name == "chargpt" {
            clip_grad_norm_(model.parameters(), 1.0)?;
        }
        optimizer.step()?;
        let (got, expected) = (loss.item::<f64>()?, expected.as_f64().unwrap());
        let most = tolerance(name, step) * expected.abs();
        assert!((got - expected).abs() <= most, "{name}, step {step}: {got}, PyTorch {expected}");
    }
    Ok(())
}

#[test]
fn transformer() -> Result<()> {
    let model = Transformer::builder()
        .d_model(32)
        .nhead(4)
        .num_encoder_layers(2)
        .num_decoder_layers(2)
        .dim_feedforward(64)
        .dropout(0.0)
        .batch_first(true)
        .build()?
        .to(device())?;
    fill(&model)?;
    let (src, tgt) = (positive(1, &[8, 1, 32])?, positive(2, &[8, 5, 32])?);
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    compare("transformer", &model, &mut optimizer, |_| model.forward(&src, &tgt)?.cross_entropy(&tgt))
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

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(x)?.relu()?.max_pool2d(2)?;
        let x = self.conv2.forward(&x)?.relu()?.max_pool2d(2)?.flatten(1, -1)?;
        self.fc3.forward(&self.fc2.forward(&self.fc1.forward(&x)?.relu()?)?.relu()?)
    }
}

fn images(name: &str, model: &dyn Forward, batch: usize, lr: f64) -> Result<()> {
    fill(model)?;
    let (x, y) = (hashed(1, &[batch, 3, 32, 32])?, tokens(2, &[batch], 10)?);
    let mut optimizer = Sgd::builder(model.parameters()).lr(lr).momentum(0.9).build()?;
    compare(name, model, &mut optimizer, |_| model.forward(&x)?.cross_entropy(&y))
}

#[test]
fn cifar10_cnn() -> Result<()> {
    let net = Net {
        conv1: Conv2d::new(3, 6, 5)?,
        conv2: Conv2d::new(6, 16, 5)?,
        fc1: Linear::new(400, 120)?,
        fc2: Linear::new(120, 84)?,
        fc3: Linear::new(84, 10)?,
    }
    .to(device())?;
    images("cifar10_cnn", &net, 16, 1e-2)
}

#[test]
fn cifar10_resnet18() -> Result<()> {
    images("cifar10_resnet18", &resnet18_cifar(10)?.to(device())?, 4, 1e-5)
}

#[test]
fn snapshot() -> Result<()> {
    let model = Linear::new(20, 1)?.to(device())?;
    fill(&model)?;
    let (x, y) = (positive(1, &[32, 20])?, positive(2, &[32, 1])?);
    let mut optimizer = Sgd::new(model.parameters(), 1e-3)?;
    compare("snapshot", &model, &mut optimizer, |_| model.forward(&x)?.mse_loss(&y, Reduction::Mean))
}

#[test]
fn chargpt() -> Result<()> {
    let model = Gpt::builder(65).n_layer(2).n_head(2).n_embd(32).block_size(16).build()?.to(device())?;
    fill(&model)?;
    let mut optimizer = AdamW::builder(model.parameters()).lr(3e-3).weight_decay(0.1).betas((0.9, 0.95)).build()?;
    compare("chargpt", &model, &mut optimizer, |step| {
        let x = tokens(10 + step as u32 % 5, &[4, 17], 65)?;
        let logits = model.forward(&x.narrow(1, 0, 16)?)?.flatten(0, 1)?;
        logits.cross_entropy(&x.narrow(1, 1, 16)?.reshape([64])?)
    })
}
