//! Rushlight's half of the GPU benchmark: times kernels and training steps on a CUDA device and prints one line each.
//! `bench/gpu` runs it and PyTorch on the same machine and shows the figures side by side.
//!
//! Usage: `gpu [FILTER] [--first | --profile]`; only cases whose name contains the filter are run. With `--first` it
//! measures only the time from the start of the process to the end of the first step; `--profile` prints a profile of
//! uncaptured steps.

use rushlight::nn::models::{Gpt, resnet18_cifar};
use rushlight::prelude::*;
use rushlight::profile::Profiler;
use std::time::Instant;

const DEVICE: Device = Device::Cuda(0);

/// Seconds of one call, device work included.
fn seconds(warm: usize, repeats: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..warm {
        call()?;
    }
    synchronize(&DEVICE)?;
    let start = Instant::now();
    for _ in 0..repeats {
        call()?;
    }
    synchronize(&DEVICE)?;
    Ok(start.elapsed().as_secs_f64() / repeats as f64)
}

fn randn(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::randn_with(shape, (DType::F32, DEVICE))?.to_dtype(dtype)
}

/// The inputs of a training step.
type Batch = [Tensor; 2];

/// One case: its name and its output.
struct Report {
    filter: String,
    first: bool,
    profile: bool,
}

/// Seconds since this process began.
fn since_start() -> Result<f64> {
    // The kernel reports process times in hundredths of a second.
    let read = |path: &str| std::fs::read_to_string(path).map_err(|e| Error::io(format!("{path}: {e}")));
    let (stat, uptime) = (read("/proc/self/stat")?, read("/proc/uptime")?);
    let began = stat.rsplit(')').next().and_then(|s| s.split_whitespace().nth(19)).and_then(|t| t.parse::<f64>().ok());
    let now = uptime.split_whitespace().next().and_then(|t| t.parse::<f64>().ok());
    now.zip(began).map(|(now, began)| now - began / 100.0).ok_or_else(|| Error::io("/proc/self/stat has another form"))
}

impl Report {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// A kernel that moves `bytes`.
    fn bandwidth(&self, name: &str, bytes: f64, call: impl FnMut() -> Result<()>) -> Result<()> {
        if self.wants(name) {
            let s = seconds(10, 50, call)?;
            println!("{name} {:.1} us {:.3} TB/s", s * 1e6, bytes / s / 1e12);
        }
        Ok(())
    }

    /// A kernel that does `operations`.
    fn rate(&self, name: &str, operations: f64, call: impl FnMut() -> Result<()>) -> Result<()> {
        if self.wants(name) {
            let s = seconds(5, 20, call)?;
            println!("{name} {:.1} us {:.1} TFLOP/s", s * 1e6, operations / s / 1e12);
        }
        Ok(())
    }

    /// A training step, uncaptured and captured. The first step includes loading libraries and compiling kernels.
    fn step<F: FnMut(&Batch) -> Result<Tensor>>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<(Batch, F)>,
    ) -> Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        empty_cache(&DEVICE)?;
        reset_peak_memory(&DEVICE)?;
        let peak = || memory_stats(&DEVICE).map(|m| m.peak as f64 / (1 << 20) as f64);
        let start = Instant::now();
        let (batch, mut call) = make()?;
        call(&batch)?;
        synchronize(&DEVICE)?;
        let first = start.elapsed().as_secs_f64();
        if self.first {
            println!("{name} {:.2}", since_start()?);
            return Ok(());
        }
        if self.profile {
            seconds(8, 1, || call(&batch).map(drop))?;
            let mut profiler = Profiler::new();
            profiler.start().map_err(Error::value)?;
            seconds(0, 3, || call(&batch).map(drop))?;
            println!("{name}, three steps\n{}", profiler.stop().table("self_device_time_total", 50));
            return Ok(());
        }
        let s = seconds(8, 30, || call(&batch).map(drop))?;
        println!("{name}_uncaptured {:.1} us peak {:.0} MiB first {first:.2} s", s * 1e6, peak()?);
        reset_peak_memory(&DEVICE)?;
        let mut capture = Capture::new();
        // Short steps need more repetitions for a stable time.
        let repeats = if s < 1e-3 { 2000 } else { 30 };
        let s = seconds(8, repeats, || capture.run(&batch, &mut call).map(drop))?;
        println!("{name} {:.1} us peak {:.0} MiB", s * 1e6, peak()?);
        Ok(())
    }
}

fn kernels(report: &Report) -> Result<()> {
    let x = randn(&[16_384, 4096], DType::F32)?;
    let z = randn(&[16_384, 4096], DType::F32)?;
    let n = x.numel() as f64 * 4.0;
    report.bandwidth("copy", 2.0 * n, || x.copy().map(drop))?;
    report.bandwidth("add", 3.0 * n, || x.add(&z).map(drop))?;
    report.bandwidth("gelu", 2.0 * n, || x.gelu().map(drop))?;
    report.bandwidth("softmax", 2.0 * n, || x.softmax(-1).map(drop))?;
    report.bandwidth("layernorm", 2.0 * n, || x.layer_norm(&[4096], None, None, 1e-5).map(drop))?;
    report.bandwidth("sum_rows", n, || x.sum(-1).map(drop))?;
    report.bandwidth("sum_all", n, || x.sum(..).map(drop))?;
    report.bandwidth("sum_columns", n, || x.sum(0).map(drop))?;
    report.bandwidth("transpose", 2.0 * n, || x.t()?.contiguous().map(drop))?;
    drop((x, z));
    for (name, dtype, tf32) in [("bf16", DType::BF16, false), ("f32", DType::F32, false), ("tf32", DType::F32, true)] {
        rushlight::set_allow_tf32(tf32);
        for size in [1024usize, 4096, 8192] {
            let (a, b) = (randn(&[size, size], dtype)?, randn(&[size, size], dtype)?);
            let operations = 2.0 * (size as f64).powi(3);
            report.rate(&format!("matmul_{name}_{size}"), operations, || a.matmul(&b).map(drop))?;
        }
    }
    rushlight::set_allow_tf32(false);
    attention(report)?;
    let (a, b) = (randn(&[8], DType::F32)?, randn(&[8], DType::F32)?);
    report.bandwidth("small_add", 96.0, || a.add(&b).map(drop))
}

/// Heads of 64 and 128, causal and full.
fn attention(report: &Report) -> Result<()> {
    for (name, heads, size) in [("attention", 12, 64), ("attention_d128", 6, 128)] {
        let shape = [16, heads, 1024, size];
        let make = || randn(&shape, DType::BF16)?.requires_grad_(true);
        let (q, k, v, g) = (make()?, make()?, make()?, randn(&shape, DType::BF16)?);
        for causal in [true, false] {
            let name = format!("{name}{}", if causal { "" } else { "_full" });
            let operations = 4.0 * 16.0 * 12.0 * 1024.0 * 1024.0 * 64.0 / if causal { 2.0 } else { 1.0 };
            let options = AttentionOptions::default().is_causal(causal);
            let attend = || q.scaled_dot_product_attention(&k, &v, &options);
            report.rate(&name, operations, || no_grad(attend).map(drop))?;
            report.rate(&format!("{name}_backward"), 3.5 * operations, || {
                for t in [&q, &k, &v] {
                    t.set_grad(None)?;
                }
                attend()?.backward_with(Backward::default().gradient(&g))
            })?;
        }
    }
    Ok(())
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

/// One step: forward and loss in the given precision, backward, update.
fn step(optimizer: &mut dyn Optimizer, lower: Option<DType>, loss: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    optimizer.zero_grad();
    let loss = {
        let _precision = set_autocast(lower)?;
        loss()?
    };
    loss.backward()?;
    optimizer.step()?;
    Ok(loss)
}

fn transformer(lower: Option<DType>) -> Result<(Batch, impl FnMut(&Batch) -> Result<Tensor>)> {
    let batch = [
        Tensor::rand_with([32, 1, 512], (DType::F32, DEVICE))?,
        Tensor::rand_with([32, 20, 512], (DType::F32, DEVICE))?,
    ];
    let model = Transformer::builder().batch_first(true).build()?.to(DEVICE)?;
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    Ok((batch, move |[src, tgt]: &Batch| step(&mut optimizer, lower, || model.forward(src, tgt)?.cross_entropy(tgt))))
}

fn gpt(
    vocabulary: usize,
    length: usize,
    batch: usize,
    lower: Option<DType>,
) -> Result<(Batch, impl FnMut(&Batch) -> Result<Tensor>)> {
    let shape = Gpt::builder(vocabulary).n_layer(12).n_head(12).n_embd(768).block_size(length);
    let model = shape.tie_weights(true).build()?.to(DEVICE)?;
    let mut optimizer = AdamW::new(model.parameters(), 3e-4)?;
    let tokens = || Tensor::randint_with(0, vocabulary as i64, [batch, length], (DType::I64, DEVICE));
    let batch = [tokens()?, tokens()?.reshape([batch * length])?];
    let step = move |[x, y]: &Batch| {
        optimizer.zero_grad();
        let loss = {
            let _precision = set_autocast(lower)?;
            model.forward(x)?.flatten(0, 1)?.cross_entropy(y)?
        };
        loss.backward()?;
        clip_grad_norm_(model.parameters(), 1.0)?;
        optimizer.step()?;
        Ok(loss)
    };
    Ok((batch, step))
}

fn images(
    model: impl Forward,
    batch: usize,
    size: usize,
    lower: Option<DType>,
    channels_last: bool,
) -> Result<(Batch, impl FnMut(&Batch) -> Result<Tensor>)> {
    let images = if channels_last {
        Tensor::rand_with([batch, size, size, 3], (DType::F32, DEVICE))?.permute([0, 3, 1, 2])?
    } else {
        Tensor::rand_with([batch, 3, size, size], (DType::F32, DEVICE))?
    };
    let batch = [images, Tensor::randint_with(0, 10, [batch], (DType::I64, DEVICE))?];
    let mut optimizer = Sgd::builder(model.parameters()).lr(0.01).momentum(0.9).build()?;
    Ok((batch, move |[x, y]: &Batch| step(&mut optimizer, lower, || model.forward(x)?.cross_entropy(y))))
}

/// A block of ResNet-50: 1×1, 3×3 and 1×1 convolutions around a shortcut.
#[derive(Module)]
struct Bottleneck {
    convs: Vec<Conv2d>,
    norms: Vec<BatchNorm2d>,
    shortcut: Option<Sequential>,
}

impl Bottleneck {
    fn new(inputs: usize, width: usize, stride: usize) -> Result<Self> {
        let outputs = 4 * width;
        let conv = |inputs, outputs, kernel: usize, stride: usize| {
            Conv2d::builder(inputs, outputs, kernel).stride(stride).padding(kernel / 2).bias(false).build()
        };
        let norm = |channels| BatchNorm2d::new(channels);
        let shortcut = match stride == 1 && inputs == outputs {
            true => None,
            false => Some(Sequential::new().append(conv(inputs, outputs, 1, stride)?).append(norm(outputs)?)),
        };
        let convs = vec![conv(inputs, width, 1, 1)?, conv(width, width, 3, stride)?, conv(width, outputs, 1, 1)?];
        Ok(Self { convs, norms: vec![norm(width)?, norm(width)?, norm(outputs)?], shortcut })
    }
}

impl Forward for Bottleneck {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norms[0].forward(&self.convs[0].forward(x)?)?.relu()?;
        let y = self.norms[1].forward(&self.convs[1].forward(&y)?)?.relu()?;
        let y = self.norms[2].forward(&self.convs[2].forward(&y)?)?;
        match &self.shortcut {
            Some(shortcut) => y.add(&shortcut.forward(x)?)?.relu(),
            None => y.add(x)?.relu(),
        }
    }
}

#[derive(Module)]
struct ResNet50 {
    conv: Conv2d,
    norm: BatchNorm2d,
    blocks: Sequential,
    head: Linear,
}

impl ResNet50 {
    fn new() -> Result<Self> {
        let (mut blocks, mut inputs) = (Sequential::new(), 64);
        for (width, count, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
            for i in 0..count {
                blocks = blocks.append(Bottleneck::new(inputs, width, if i == 0 { stride } else { 1 })?);
                inputs = 4 * width;
            }
        }
        let conv = Conv2d::builder(3, 64, 7).stride(2).padding(3).bias(false).build()?;
        Self { conv, norm: BatchNorm2d::new(64)?, blocks, head: Linear::new(2048, 1000)? }.to(DEVICE)
    }
}

impl Forward for ResNet50 {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.norm.forward(&self.conv.forward(x)?)?.relu()?;
        let x = self.blocks.forward(&x.max_pool2d(MaxPool::new(3).stride(2).padding(1))?)?;
        self.head.forward(&x.mean([2, 3])?)
    }
}

/// A language model of two layers of 650, as in the LSTM's usual example, over 35 steps of 32 sequences.
#[derive(Module)]
struct LanguageModel {
    embedding: Embedding,
    lstm: LSTM,
    head: Linear,
}

fn language() -> Result<(Batch, impl FnMut(&Batch) -> Result<Tensor>)> {
    const WORDS: usize = 10_000;
    let model = LanguageModel {
        embedding: Embedding::new(WORDS, 650)?,
        lstm: LSTM::builder(650, 650).num_layers(2).dropout(0.5).build()?,
        head: Linear::new(650, WORDS)?,
    };
    let model = model.to(DEVICE)?;
    let mut optimizer = Sgd::new(model.parameters(), 1.0)?;
    let tokens = || Tensor::randint_with(0, WORDS as i64, [35, 32], (DType::I64, DEVICE));
    let batch = [tokens()?, tokens()?.reshape([35 * 32])?];
    let step = move |[x, y]: &Batch| {
        optimizer.zero_grad();
        let x = model.embedding.forward(x)?.dropout(0.5, true)?;
        let y_hat = model.lstm.forward(&x, None)?.0.dropout(0.5, true)?;
        let loss = model.head.forward(&y_hat)?.flatten(0, 1)?.cross_entropy(y)?;
        loss.backward()?;
        clip_grad_norm_(model.parameters(), 0.25)?;
        optimizer.step()?;
        Ok(loss)
    };
    Ok((batch, step))
}

/// A small encoder that classifies sequences.
#[derive(Module)]
struct Classifier {
    encoder: TransformerEncoder,
    head: Linear,
}

fn encoder() -> Result<(Batch, impl FnMut(&Batch) -> Result<Tensor>)> {
    let layer = TransformerEncoderLayer::builder(256, 4).dim_feedforward(1024).batch_first(true).build()?;
    let model = Classifier { encoder: TransformerEncoder::new(layer, 4)?, head: Linear::new(256, 10)? };
    let model = model.to(DEVICE)?;
    let mut optimizer = AdamW::new(model.parameters(), 1e-3)?;
    let batch = [randn(&[16, 64, 256], DType::F32)?, Tensor::randint_with(0, 10, [16], (DType::I64, DEVICE))?];
    let step = move |[x, y]: &Batch| {
        step(&mut optimizer, None, || model.head.forward(&model.encoder.forward(x)?.mean(1)?)?.cross_entropy(y))
    };
    Ok((batch, step))
}

/// A block of minGPT, as in most public code: attention and activation are composed of single ops.
#[derive(Module)]
struct WrittenBlock {
    norms: Vec<LayerNorm>,
    qkv: Linear,
    projection: Linear,
    up: Linear,
    down: Linear,
    heads: usize,
}

impl WrittenBlock {
    fn new(width: usize, heads: usize) -> Result<Self> {
        let norm = || LayerNorm::new([width]);
        Ok(Self {
            norms: vec![norm()?, norm()?],
            qkv: Linear::new(width, 3 * width)?,
            projection: Linear::new(width, width)?,
            up: Linear::new(width, 4 * width)?,
            down: Linear::new(4 * width, width)?,
            heads,
        })
    }

    fn attend(&self, x: &Tensor, hidden: &Tensor) -> Result<Tensor> {
        let &[batch, length, width] = x.shape() else { return Err(Error::shape("three dimensions")) };
        let size = width / self.heads;
        let parts = self.qkv.forward(x)?.split(width, 2)?;
        let heads = |i: usize| parts[i].view([batch, length, self.heads, size])?.transpose(1, 2);
        let scores = heads(0)?.matmul(&heads(1)?.transpose(-2, -1)?)?.mul(1.0 / (size as f64).sqrt())?;
        let weights = scores.masked_fill(hidden, f64::NEG_INFINITY)?.softmax(-1)?.dropout(0.1, true)?;
        let y = weights.matmul(&heads(2)?)?.transpose(1, 2)?.contiguous()?.view([batch, length, width])?;
        self.projection.forward(&y)?.dropout(0.1, true)
    }

    fn forward(&self, x: &Tensor, hidden: &Tensor) -> Result<Tensor> {
        let x = x.add(&self.attend(&self.norms[0].forward(x)?, hidden)?)?;
        let y = self.up.forward(&self.norms[1].forward(&x)?)?;
        let inner = y.add(&y.pow(3.0)?.mul(0.044715)?)?.mul((2.0 / std::f64::consts::PI).sqrt())?;
        let y = y.mul(0.5)?.mul(&inner.tanh()?.add(1.0)?)?;
        x.add(&self.down.forward(&y)?.dropout(0.1, true)?)
    }
}

/// minGPT by its sizes: layers, heads, width, vocabulary, length, batch.
#[derive(Module)]
struct WrittenGpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<WrittenBlock>,
    norm: LayerNorm,
    head: Linear,
}

fn written(
    [layers, heads, width, vocabulary, length, batch]: [usize; 6],
) -> Result<(Batch, impl FnMut(&Batch) -> Result<Tensor>)> {
    let model = WrittenGpt {
        tokens: Embedding::new(vocabulary, width)?,
        positions: Embedding::new(length, width)?,
        blocks: (0..layers).map(|_| WrittenBlock::new(width, heads)).collect::<Result<_>>()?,
        norm: LayerNorm::new([width])?,
        head: Linear::builder(width, vocabulary).bias(false).build()?,
    };
    let model = model.to(DEVICE)?;
    let mut optimizer = AdamW::builder(model.parameters()).lr(5e-4).betas((0.9, 0.95)).weight_decay(0.1).build()?;
    let hidden = Tensor::ones_with([length, length], (DType::F32, DEVICE))?.tril(0)?.eq(0.0)?;
    let hidden = hidden.view([1, 1, length, length])?;
    let tokens = || Tensor::randint_with(0, vocabulary as i64, [batch, length], (DType::I64, DEVICE));
    let batch = [tokens()?, tokens()?.reshape([batch * length])?];
    let step = move |[tokens, y]: &Batch| {
        optimizer.zero_grad();
        let places = Tensor::arange_with(0, length as i64, 1, (DType::I64, DEVICE))?.unsqueeze(0)?;
        let mut x = model.tokens.forward(tokens)?.add(&model.positions.forward(&places)?)?.dropout(0.1, true)?;
        for block in &model.blocks {
            x = block.forward(&x, &hidden)?;
        }
        let loss = model.head.forward(&model.norm.forward(&x)?)?.flatten(0, 1)?.cross_entropy(y)?;
        loss.backward()?;
        clip_grad_norm_(model.parameters(), 1.0)?;
        optimizer.step()?;
        Ok(loss)
    };
    Ok((batch, step))
}

fn net() -> Result<Net> {
    Net {
        conv1: Conv2d::new(3, 6, 5)?,
        conv2: Conv2d::new(6, 16, 5)?,
        fc1: Linear::new(400, 120)?,
        fc2: Linear::new(120, 84)?,
        fc3: Linear::new(84, 10)?,
    }
    .to(DEVICE)
}

fn linear() -> Result<(Batch, impl FnMut(&Batch) -> Result<Tensor>)> {
    let model = Linear::builder(20, 1).device(DEVICE).build()?;
    let batch = [Tensor::rand_with([32, 20], (DType::F32, DEVICE))?, Tensor::rand_with([32, 1], (DType::F32, DEVICE))?];
    let mut optimizer = Sgd::new(model.parameters(), 1e-3)?;
    Ok((batch, move |[x, y]: &Batch| step(&mut optimizer, None, || model.forward(x)?.mse_loss(y, Reduction::Mean))))
}

fn main() -> Result<()> {
    let (options, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    let filter = words.into_iter().next().unwrap_or_default();
    let asked = |name: &str| options.iter().any(|o| o == name);
    let report = Report { filter, first: asked("--first"), profile: asked("--profile") };
    let engine = rushlight::engines::accelerator().ok_or_else(|| Error::device("this machine has no GPU"))?;
    let p = engine.properties(0)?;
    println!("# {} {:?}, driver {}", p.name, p.capability, p.driver);
    manual_seed(0);
    if !report.first && !report.profile {
        kernels(&report)?;
    }
    let bf16 = Some(DType::BF16);
    report.step("train_linear", linear)?;
    report.step("train_transformer_f32", || transformer(None))?;
    rushlight::set_allow_tf32(true);
    report.step("train_transformer_tf32", || transformer(None))?;
    rushlight::set_allow_tf32(false);
    report.step("train_transformer_bf16", || transformer(bf16))?;
    report.step("train_encoder_f32", encoder)?;
    report.step("train_chargpt_bf16", || gpt(65, 128, 16, bf16))?;
    report.step("train_chargpt_f32", || gpt(65, 128, 16, None))?;
    report.step("train_gpt2_bf16", || gpt(50_304, 1024, 16, bf16))?;
    report.step("train_cnn_f32", || images(net()?, 512, 32, None, false))?;
    report.step("train_resnet18_f32", || images(resnet18_cifar(10)?.to(DEVICE)?, 512, 32, None, false))?;
    report.step("train_resnet18_bf16", || images(resnet18_cifar(10)?.to(DEVICE)?, 512, 32, bf16, true))?;
    report.step("train_resnet50_f32", || images(ResNet50::new()?, 64, 224, None, true))?;
    report.step("train_resnet50_bf16", || images(ResNet50::new()?, 128, 224, bf16, true))?;
    report.step("train_lstm_f32", language)?;
    report.step("train_mingpt_nano_f32", || written([3, 3, 48, 3, 11, 64]))?;
    report.step("train_mingpt_mini_f32", || written([6, 6, 192, 65, 128, 64]))
}
