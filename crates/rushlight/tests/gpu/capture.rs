//! Captured steps give the same results as steps without capture.

use super::{device, turn};
use rushlight::capture::GraphRecording;
use rushlight::nn::models::{Gpt, resnet18_cifar};
use rushlight::optim::lr_scheduler::{CosineAnnealingLR, LrScheduler};
use rushlight::prelude::*;
use rushlight::{capture, default_generator, state::Value};

/// A network with typical parts of a step: dropout, norms with running statistics, an embedding.
#[derive(Module)]
struct Net {
    embedding: Embedding,
    first: Linear,
    norm: BatchNorm1d,
    dropout: Dropout,
    last: Linear,
}

impl Net {
    fn new(device: Device) -> Result<Self> {
        Self {
            embedding: Embedding::new(11, 24)?,
            first: Linear::new(24, 32)?,
            norm: BatchNorm1d::new(32)?,
            dropout: Dropout::new(0.3)?,
            last: Linear::new(32, 5)?,
        }
        .to(device)
    }

    fn loss(&self, tokens: &Tensor, classes: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(&self.embedding.forward(tokens)?)?;
        let x = self.dropout.forward(&self.norm.forward(&x)?.gelu()?)?;
        self.last.forward(&x)?.cross_entropy(classes)
    }
}

fn batch(step: usize, size: usize, device: Device) -> Result<[Tensor; 2]> {
    let numbers = |salt: usize, below: usize| {
        Tensor::from_iter((0..size).map(|i| ((i * 7 + step * 13 + salt) % below) as i64))?.to(device)
    };
    Ok([numbers(1, 11)?, numbers(5, 5)?])
}

/// The results of a run: losses, parameters, the optimizer's state, the generator's.
#[derive(PartialEq, Debug)]
pub struct Trace {
    losses: Vec<u32>,
    parameters: Vec<Vec<f32>>,
    state: Vec<f64>,
    random: (u64, u64),
}

/// All numbers of a state dict.
fn flat(value: &Value, out: &mut Vec<f64>) -> Result<()> {
    match value {
        Value::Tensor(t) => out.extend(t.to_vec::<f64>()?),
        Value::Float(x) => out.push(*x),
        Value::Int(x) => out.push(*x as f64),
        Value::Dict(entries) => entries.values().try_for_each(|v| flat(v, out))?,
        Value::List(items) | Value::Tuple(items) => items.iter().try_for_each(|v| flat(v, out))?,
        _ => {}
    }
    Ok(())
}

fn trace(losses: Vec<Tensor>, net: &Net, optimizer: &dyn Optimizer) -> Result<Trace> {
    let mut state = Vec::new();
    flat(&optimizer.state_dict()?, &mut state)?;
    let random = default_generator().state();
    Ok(Trace {
        losses: losses.iter().map(|l| Ok(l.item::<f32>()?.to_bits())).collect::<Result<_>>()?,
        parameters: net.state_dict().values().map(|t| t.to_vec::<f32>()).collect::<Result<_>>()?,
        state,
        random: (random.seed, random.offset),
    })
}

pub type Make = fn(Vec<Tensor>) -> Result<Box<dyn Optimizer>>;

/// Twenty steps with clipping and a schedule outside.
pub fn train(device: Device, make: Make, lower: Option<DType>, enabled: bool, expect_graphs: usize) -> Result<Trace> {
    manual_seed(5);
    let net = Net::new(device)?;
    let mut optimizer = make(net.parameters())?;
    let mut schedule = CosineAnnealingLR::new(&mut *optimizer, 20)?;
    let mut capture = Capture::new().enabled(enabled);
    let mut losses = Vec::new();
    for step in 0..20 {
        losses.push(capture.run(&batch(step, 16, device)?, |[tokens, classes]| {
            let loss = {
                let _precision = set_autocast(lower)?;
                net.loss(tokens, classes)?
            };
            optimizer.zero_grad();
            loss.backward()?;
            clip_grad_norm_(net.parameters(), 0.5)?;
            optimizer.step()?;
            Ok(loss)
        })?);
        schedule.step(&mut *optimizer)?;
    }
    if !device.is_cpu() {
        assert_eq!(capture.graphs(), expect_graphs);
    }
    trace(losses, &net, &*optimizer)
}

#[test]
fn captured_steps_are_like_others() -> Result<()> {
    let _turn = turn();
    let device = device();
    let optimizers: [(&str, Make); 8] = [
        ("AdamW", |p| Ok(Box::new(AdamW::new(p, 1e-2)?))),
        ("SGD", |p| Ok(Box::new(Sgd::new(p, 1e-2)?))),
        ("SGD with momentum", |p| Ok(Box::new(Sgd::builder(p).lr(1e-2).momentum(0.9).nesterov(true).build()?))),
        ("NAdam", |p| Ok(Box::new(NAdam::new(p, 1e-2)?))),
        ("RAdam", |p| Ok(Box::new(RAdam::new(p, 1e-2)?))),
        ("Adagrad", |p| Ok(Box::new(Adagrad::new(p, 1e-2)?))),
        ("RMSprop", |p| Ok(Box::new(RmsProp::builder(p).lr(1e-3).momentum(0.5).centered(true).build()?))),
        ("groups", |p| {
            let (a, b) = p.split_at(p.len() / 2);
            let groups = [ParamGroup::new(a.to_vec()), ParamGroup::new(b.to_vec()).lr(3e-3).weight_decay(0.0)];
            Ok(Box::new(AdamW::groups(groups).lr(1e-2).build()?))
        }),
    ];
    for (name, make) in optimizers {
        for lower in [None, Some(DType::BF16)] {
            let plain = train(device, make, lower, false, 0)?;
            let captured = train(device, make, lower, true, 1)?;
            assert_eq!(plain, captured, "{name} {lower:?}");
        }
    }
    Ok(())
}

#[test]
fn shapes_are_captured_apart() -> Result<()> {
    let _turn = turn();
    let device = device();
    let run = |enabled: bool| -> Result<Trace> {
        manual_seed(6);
        let net = Net::new(device)?;
        let mut optimizer = Adam::new(net.parameters(), 1e-2)?;
        let mut step = capture(|[tokens, classes]: &[Tensor; 2]| {
            optimizer.zero_grad();
            let loss = net.loss(tokens, classes)?;
            loss.backward()?;
            optimizer.step()?;
            Ok(loss)
        })
        .with(Capture::new().enabled(enabled).max_graphs(2));
        let sizes = [16, 16, 16, 16, 8, 8, 8, 8, 16, 8, 4, 4, 4, 16, 8];
        let losses: Vec<Tensor> =
            sizes.iter().enumerate().map(|(i, &size)| step.run(&batch(i, size, device)?)).collect::<Result<_>>()?;
        if enabled && !device.is_cpu() {
            assert_eq!(step.capture().graphs(), 2);
        }
        drop(step);
        trace(losses, &net, &optimizer)
    };
    assert_eq!(run(false)?, run(true)?);
    Ok(())
}

/// Attention over one joint projection, whose gradients have its layout.
#[test]
fn attention_is_captured() -> Result<()> {
    let _turn = turn();
    let device = device();
    let run = |enabled: bool, causal: bool, size: usize| -> Result<Vec<Vec<f32>>> {
        manual_seed(3);
        let joint = Tensor::randn_with([2, 256, 3, 4, size], (DType::F32, device))?.requires_grad_(true)?;
        let mut optimizer = Sgd::new([joint.clone()], 0.5)?;
        let mut capture = Capture::new().enabled(enabled);
        let mut seen = Vec::new();
        for i in 0..6 {
            let factor = Tensor::full_with([1], 1.0 + i as f64, (DType::F32, device))?;
            let loss = capture.run(std::array::from_ref(&factor), |[factor]| {
                let low = joint.to_dtype(DType::BF16)?;
                let [q, k, v] = [0, 1, 2].map(|part| low.select(2, part)?.transpose(1, 2));
                let options = AttentionOptions::default().is_causal(causal);
                let y = q?.scaled_dot_product_attention(&k?, &v?, &options)?.to_dtype(DType::F32)?;
                let loss = y.mul(factor)?.square()?.mean(..)?;
                optimizer.zero_grad();
                loss.backward()?;
                optimizer.step()?;
                Ok(loss)
            })?;
            seen.push(vec![loss.item::<f32>()?]);
        }
        seen.push(joint.to_vec()?);
        Ok(seen)
    };
    for (causal, size) in [(false, 64), (true, 64), (false, 128), (true, 128)] {
        assert_eq!(run(false, causal, size)?, run(true, causal, size)?, "causal {causal}, heads of {size}");
    }
    Ok(())
}

#[test]
fn gradients_add_up_and_can_be_read() -> Result<()> {
    let _turn = turn();
    let device = device();
    let run = |enabled: bool| -> Result<(Trace, Vec<Vec<f32>>)> {
        manual_seed(7);
        let net = Net::new(device)?;
        let mut optimizer = AdamW::new(net.parameters(), 1e-2)?;
        let mut capture = Capture::new().enabled(enabled);
        let (mut losses, mut grads) = (Vec::new(), Vec::new());
        for i in 0..12 {
            losses.push(capture.run(&batch(i, 16, device)?, |[tokens, classes]| {
                let loss = net.loss(tokens, classes)?;
                loss.backward()?;
                Ok(loss)
            })?);
            grads.push(net.last.weight.grad().expect("backward has run").to_vec::<f32>()?);
            if i % 2 == 1 {
                optimizer.step()?;
                optimizer.zero_grad();
            }
        }
        if enabled && !device.is_cpu() {
            assert_eq!(capture.graphs(), 2, "steps that begin gradients, and steps that add to them");
        }
        Ok((trace(losses, &net, &optimizer)?, grads))
    };
    assert_eq!(run(false)?, run(true)?);
    Ok(())
}

#[test]
fn what_cannot_be_captured_is_named_and_harmless() -> Result<()> {
    let _turn = turn();
    let device = device();
    let run = |reading: bool| -> Result<Trace> {
        manual_seed(8);
        let net = Net::new(device)?;
        let mut optimizer = AdamW::new(net.parameters(), 1e-2)?;
        let mut capture = Capture::new();
        let mut losses = Vec::new();
        for i in 0..8 {
            let mut step = |capture: &mut Capture| {
                capture.run(&batch(i, 16, device)?, |[tokens, classes]| {
                    optimizer.zero_grad();
                    let loss = net.loss(tokens, classes)?;
                    loss.backward()?;
                    optimizer.step()?;
                    if reading {
                        loss.item::<f32>()?;
                    }
                    Ok(loss)
                })
            };
            losses.push(match step(&mut capture) {
                Err(e) if reading && !device.is_cpu() => {
                    assert!(i == 2 && e.to_string().starts_with("item: cannot be part of a captured step"), "{i}: {e}");
                    capture.set_enabled(false);
                    step(&mut capture)?
                }
                other => other?,
            });
        }
        trace(losses, &net, &optimizer)
    };
    assert_eq!(run(false)?, run(true)?);
    if !device.is_cpu() {
        let x = Tensor::ones([4])?.to(device)?;
        let calls: [(&str, fn(&Tensor) -> Result<Tensor>); 5] = [
            ("to_vec", |x| x.to_vec::<f32>().and(Ok(x.clone()))),
            ("to", |x| x.to(Device::Cpu)),
            ("nonzero", |x| x.nonzero()),
            ("to", |x| Tensor::new([1.0f32])?.to(x.device())),
            ("synchronize", |x| synchronize(&x.device()).and(Ok(x.clone()))),
        ];
        for (name, call) in calls {
            let mut capture = Capture::new().warmup(1);
            capture.run(std::array::from_ref(&x), |[x]| call(x))?;
            let error = capture.run(std::array::from_ref(&x), |[x]| call(x)).expect_err(name);
            assert!(error.to_string().starts_with(name) && error.to_string().contains("captured step"), "{error}");
            assert_eq!(x.add(1.0)?.to_vec::<f32>()?, [2.0; 4], "the engine works on");
        }
    }
    Ok(())
}

#[test]
fn loaded_optimizers_are_captured_anew() -> Result<()> {
    let _turn = turn();
    let device = device();
    let run = |enabled: bool| -> Result<Trace> {
        manual_seed(9);
        let net = Net::new(device)?;
        let mut optimizer = AdamW::new(net.parameters(), 1e-2)?;
        let mut capture = Capture::new().enabled(enabled);
        let mut losses = Vec::new();
        for i in 0..14 {
            losses.push(capture.run(&batch(i, 16, device)?, |[tokens, classes]| {
                optimizer.zero_grad();
                let loss = net.loss(tokens, classes)?;
                loss.backward()?;
                optimizer.step()?;
                Ok(loss)
            })?);
            if i == 6 {
                let state = optimizer.state_dict()?;
                optimizer.load_state_dict(&state)?;
            }
            if i == 10 {
                optimizer.set_lr(1e-3)?;
            }
        }
        if enabled && !device.is_cpu() {
            assert_eq!(capture.graphs(), 1);
        }
        trace(losses, &net, &optimizer)
    };
    assert_eq!(run(false)?, run(true)?);
    Ok(())
}

#[test]
fn graphs_are_recorded_between_two_calls() -> Result<()> {
    let _turn = turn();
    let device = device();
    if device.is_cpu() {
        let error = capture::graph_pool(device).err().expect("the CPU records nothing");
        assert!(error.to_string().starts_with("capture: work of cpu"), "{error}");
        return Ok(());
    }
    let run = |graphed: bool| -> Result<Trace> {
        manual_seed(12);
        let net = Net::new(device)?;
        let mut optimizer = AdamW::new(net.parameters(), 1e-2)?;
        let inputs = batch(0, 16, device)?;
        let mut step = |inputs: &[Tensor; 2]| {
            optimizer.zero_grad();
            let loss = net.loss(&inputs[0], &inputs[1])?;
            loss.backward()?;
            optimizer.step()?;
            Ok::<Tensor, Error>(loss)
        };
        step(&inputs)?;
        let pool = capture::graph_pool(device)?;
        let mut graph = None;
        if graphed {
            let recording = GraphRecording::begin(device, &pool)?;
            assert!(GraphRecording::begin(device, &pool).is_err(), "not within another");
            let loss = step(&inputs)?;
            graph = Some((recording.end()?, loss));
        }
        let mut losses = Vec::new();
        for i in 1..6 {
            let new = batch(i, 16, device)?;
            inputs.iter().zip(&new).try_for_each(|(to, from)| to.copy_(from).map(drop))?;
            losses.push(match &mut graph {
                Some((graph, loss)) => {
                    graph.replay()?;
                    loss.detach().copy()?
                }
                None => step(&inputs)?.detach(),
            });
        }
        trace(losses, &net, &optimizer)
    };
    assert_eq!(run(false)?, run(true)?);
    Ok(())
}

#[test]
fn recordings_give_their_memory_back() -> Result<()> {
    let _turn = turn();
    let device = device();
    let w = Tensor::ones_with([256, 256], device)?.requires_grad_(true)?;
    let x = Tensor::ones_with([64, 256], device)?;
    let before = memory_stats(&device)?.allocated;
    let mut capture = Capture::new();
    let mut sums = Vec::new();
    for i in 0..6 {
        let scale = Tensor::full([1], f64::from(i))?.to(device)?;
        sums.push(capture.run(&[x.clone(), scale], |[x, scale]| {
            w.zero_grad();
            let y = x.matmul(&w)?.mul(scale)?.sum(..)?;
            y.backward()?;
            Ok(y)
        })?);
    }
    // Each call has its own output.
    for (i, sum) in sums.iter().enumerate() {
        assert_eq!(sum.item::<f32>()?, (64 * 256 * 256 * i) as f32);
    }
    drop((capture, sums));
    w.zero_grad();
    assert_eq!(memory_stats(&device)?.allocated, before);
    Ok(())
}

#[test]
fn scaled_steps_are_left_out_by_the_device_itself() -> Result<()> {
    let _turn = turn();
    let device = device();
    for unscale in [false, true] {
        let run = |enabled: bool| -> Result<(Trace, Vec<f64>)> {
            manual_seed(10);
            let net = Net::new(device)?;
            let mut optimizer = AdamW::new(net.parameters(), 1e-2)?;
            let mut scaler = GradScaler::new().init_scale(2f64.powi(23)).growth_interval(3);
            let mut capture = Capture::new().enabled(enabled);
            let (mut losses, mut scales) = (Vec::new(), Vec::new());
            for i in 0..24 {
                losses.push(capture.run(&batch(i, 16, device)?, |[tokens, classes]| {
                    optimizer.zero_grad();
                    let loss = autocast(DType::F16, || net.loss(tokens, classes))?;
                    scaler.scale(&loss)?.backward()?;
                    if unscale {
                        scaler.unscale_(&mut optimizer)?;
                        clip_grad_norm_(net.parameters(), 0.5)?;
                    }
                    scaler.step(&mut optimizer)?;
                    scaler.update()?;
                    Ok(loss)
                })?);
                if i % 5 == 0 {
                    scales.push(scaler.get_scale());
                }
            }
            if enabled && !device.is_cpu() {
                assert_eq!(capture.graphs(), 1);
            }
            scales.push(scaler.get_scale());
            Ok((trace(losses, &net, &optimizer)?, scales))
        };
        let (plain, captured) = (run(false)?, run(true)?);
        assert!(plain.1.windows(2).any(|w| w[1] < w[0]), "some step must fail: {:?}", plain.1);
        assert_eq!(plain, captured);
    }
    Ok(())
}

/// Steps of a whole model, with its own dropout and clipping, captured and not.
fn whole_model<M: Module>(
    what: &str,
    device: Device,
    lower: Option<DType>,
    make: impl Fn() -> Result<M>,
    inputs: impl Fn(usize) -> Result<[Tensor; 2]>,
    loss_of: impl Fn(&M, &[Tensor; 2]) -> Result<Tensor>,
) -> Result<()> {
    let run = |enabled: bool| -> Result<Vec<f32>> {
        manual_seed(11);
        let model = make()?.to(device)?;
        let mut optimizer = AdamW::new(model.parameters(), 1e-3)?;
        let mut capture = Capture::new().enabled(enabled);
        let mut losses = Vec::new();
        for i in 0..7 {
            losses.push(capture.run(&inputs(i)?, |batch| {
                let loss = {
                    let _precision = set_autocast(lower)?;
                    loss_of(&model, batch)?
                };
                optimizer.zero_grad();
                loss.backward()?;
                clip_grad_norm_(model.parameters(), 1.0)?;
                optimizer.step()?;
                Ok(loss)
            })?);
        }
        assert!(!enabled || device.is_cpu() || capture.graphs() == 1);
        losses.iter().map(|l| l.item::<f32>()).collect()
    };
    let (eager, captured) = (run(false)?, run(true)?);
    // A captured step is recorded anew from its program, whose fused sums add up in another order.
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * a.abs();
    assert!(eager.iter().zip(&captured).all(close), "{what} {lower:?}: {eager:?}, captured {captured:?}");
    Ok(())
}

#[test]
fn whole_models_are_captured() -> Result<()> {
    let _turn = turn();
    let device = device();
    let tokens = |i: usize, shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        Tensor::from_iter((0..count).map(|j| ((j * 31 + i * 17) % 19) as i64))?.reshape(shape)?.to(device)
    };
    for lower in [None, Some(DType::BF16)] {
        let gpt = || Gpt::builder(19).n_layer(2).n_head(2).n_embd(64).block_size(32).dropout(0.2).build();
        let batch = |i: usize| Ok([tokens(i, &[3, 32])?, tokens(i + 1, &[96])?]);
        whole_model("GPT", device, lower, gpt, batch, |m, [x, y]| m.forward(x)?.flatten(0, 1)?.cross_entropy(y))?;
        let transformer = || Transformer::builder().d_model(32).nhead(4).dim_feedforward(64).batch_first(true).build();
        let batch = |i: usize| {
            let x =
                Tensor::arange(0, 4 * 6 * 32, 1)?.add(i as i64)?.to_dtype(DType::F32)?.sin()?.reshape([4, 6, 32])?;
            Ok([x.to(device)?, x.cos()?.to(device)?])
        };
        whole_model("Transformer", device, lower, transformer, batch, |m, [x, y]| {
            m.forward(x, y)?.mse_loss(y, Reduction::Mean)
        })?;
        if !device.is_cpu() {
            let batch = |i: usize| {
                let count = 4 * 3 * 32 * 32;
                let x = Tensor::arange(0, count, 1)?.add(i as i64)?.to_dtype(DType::F32)?.sin()?;
                Ok([x.reshape([4, 3, 32, 32])?.to(device)?, tokens(i, &[4])?])
            };
            whole_model(
                "ResNet",
                device,
                lower,
                || resnet18_cifar(19),
                batch,
                |m, [x, y]| m.forward(x)?.cross_entropy(y),
            )?;
        }
    }
    Ok(())
}
