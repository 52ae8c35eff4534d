//! `rushlight plan --measure`: the constants of this machine.

use rushlight_core::backend::Engine;
use rushlight_core::{DType, Device, Error, Result};
use rushlight_dist::plan::{Machine, Model, Precision, reach};
use rushlight_dist::{ReduceOp, World};
use rushlight_tensor::autograd::Backward;
use rushlight_tensor::{AttentionOptions, Tensor};
use std::time::Instant;

/// The least time to measure something for, in seconds.
const LONG: f64 = 0.3;

/// Measures what a machine's file has, on all ranks of the launcher at once, and returns the file and a text about it;
/// nothing on ranks other than the first. What cannot be measured here is `like`'s: links need ranks, on several nodes
/// for those between nodes.
pub fn measure(like: &Machine, precision: Precision) -> Result<Option<(String, String)>> {
    let world = rushlight_dist::init()?;
    let device = world.device();
    let dtype = match precision {
        Precision::Bf16 => DType::BF16,
        Precision::F32 => DType::F32,
    };
    let on_cpu = device == Device::Cpu;
    let (hidden, sequence) = if on_cpu { (512, 128) } else { (4096, 2048) };
    let peak = slowest(&world, products(if on_cpu { 1024 } else { 8192 }, dtype, device)?)?;
    let block = slowest(&world, block(hidden, sequence, dtype, device)?)?;
    let host = slowest(&world, copies(if on_cpu { 1 << 22 } else { 1 << 26 }, device)?)?;
    let mut found = vec![
        ("devices", world.local_size() as f64),
        ("peak_tflops", peak / 1e12),
        ("reach", reach(block, peak, hidden)),
        ("memory_gb", memory(device, world.local_size())? / 1e9),
        ("host_gb_per_s", host / 1e9),
    ];
    if world.size() > 1 {
        let is_one_node = world.local_size() == world.size();
        let (rate, latency) = sums(&world, device, if on_cpu { 1 << 22 } else { 1 << 26 })?;
        found.push((if is_one_node { "inside_gb_per_s" } else { "between_gb_per_s" }, rate / 1e9));
        found.push(("latency_us", latency * 1e6));
    }
    if world.launch().rank != 0 {
        return Ok(None);
    }
    let lines: Vec<String> = found.iter().map(|(name, value)| format!("  \"{name}\": {}", rounded(*value))).collect();
    let file = format!("{{\n  \"like\": \"{}\",\n{}\n}}\n", like.name, lines.join(",\n"));
    let text =
        format!("{file}\nmeasured on {device}, {} ranks in {dtype}; all else is that of {}", world.size(), like.name);
    Ok(Some((file, text)))
}

/// Three digits, or a whole number.
fn rounded(value: f64) -> String {
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let digits = (2 - value.abs().max(1e-9).log10().floor() as i32).max(0) as usize;
    format!("{value:.digits$}")
}

/// The rate of the slowest rank: a step waits for it.
fn slowest(world: &World, rate: f64) -> Result<f64> {
    let shared = Tensor::full([1], rate)?;
    world.all_reduce(&shared, ReduceOp::Min)?;
    Ok(shared.to_scalar()?.to_f64())
}

/// Seconds of a round, after one that is not counted. `run` returns a tensor whose values are there when it has ended.
fn seconds(mut run: impl FnMut() -> Result<Tensor>) -> Result<f64> {
    let mut wait = |rounds: usize| -> Result<f64> {
        let start = Instant::now();
        let mut last = None;
        for _ in 0..rounds {
            last = Some(run()?);
        }
        if let Some(last) = last {
            last.detach().flatten(0, -1)?.narrow(0, 0, 1)?.to(Device::Cpu)?.to_scalar()?;
        }
        Ok(start.elapsed().as_secs_f64() / rounds as f64)
    };
    wait(1)?;
    let one = wait(1)?.max(1e-6);
    wait(((LONG / one) as usize).clamp(2, 1000))
}

/// Operations per second of a large product.
fn products(n: usize, dtype: DType, device: Device) -> Result<f64> {
    let [a, b] = [0, 1].map(|_| Tensor::randn_with([n, n], device).and_then(|t| t.to_dtype(dtype)));
    let (a, b) = (a?, b?);
    Ok(2.0 * (n as f64).powi(3) / seconds(|| a.matmul(&b))?)
}

/// Operations per second of a transformer's block, forward and backward, counted as the plan counts them.
fn block(hidden: usize, sequence: usize, dtype: DType, device: Device) -> Result<f64> {
    let (heads, rows) = (hidden / 64, 2);
    let weight = |out: usize, inner: usize| {
        let scaled = Tensor::randn_with([out, inner], device)?.mul((inner as f64).powf(-0.5))?;
        scaled.to_dtype(dtype)?.requires_grad_(true)
    };
    let (qkv, out) = (weight(3 * hidden, hidden)?, weight(hidden, hidden)?);
    let (up, down) = (weight(4 * hidden, hidden)?, weight(hidden, 4 * hidden)?);
    let x = Tensor::randn_with([rows, sequence, hidden], device)?.to_dtype(dtype)?.requires_grad_(true)?;
    let causal = AttentionOptions::default().is_causal(true);
    let time = seconds(|| {
        let split = x.layer_norm(&[hidden], None, None, 1e-5)?.linear(&qkv, None)?;
        let split = split.reshape([rows, sequence, 3, heads, 64])?.permute([2, 0, 3, 1, 4])?;
        let [q, k, v] = [0, 1, 2].map(|i| split.select(0, i));
        let mixed = q?.scaled_dot_product_attention(&k?, &v?, &causal)?;
        let mixed = mixed.transpose(1, 2)?.reshape([rows, sequence, hidden])?.linear(&out, None)?;
        let x = x.add(&mixed)?;
        let wide = x.layer_norm(&[hidden], None, None, 1e-5)?.linear(&up, None)?.gelu()?;
        let y = x.add(&wide.linear(&down, None)?)?;
        y.backward_with(Backward::default().gradient(&y.detach()))?;
        qkv.grad().ok_or_else(|| Error::value("plan: a block has no gradient"))
    })?;
    let (ffn, kv_heads) = (4 * hidden, heads);
    let one = Model {
        name: "block",
        layers: 1,
        hidden,
        ffn,
        gated: false,
        tied: true,
        heads,
        kv_heads,
        vocabulary: 0,
        sequence,
    };
    Ok((rows * sequence) as f64 * one.operations() / time)
}

/// Bytes per second from a device to the host's memory and back, or within the host's memory.
fn copies(count: usize, device: Device) -> Result<f64> {
    let (here, there) = (Tensor::zeros([count])?, Tensor::zeros_with([count], device)?);
    let time = seconds(|| {
        there.copy_(&here)?;
        here.copy_(&there).cloned()
    })?;
    Ok(2.0 * 4.0 * count as f64 / time)
}

/// Bytes of memory for a rank.
fn memory(device: Device, ranks: usize) -> Result<f64> {
    let engine = rushlight_engines::accelerator().filter(|_| device != Device::Cpu);
    match engine {
        Some(engine) => Ok(engine.properties(device.index())?.memory as f64),
        None => Ok(rushlight_cpu::ENGINE.properties(0)?.memory as f64 / ranks as f64),
    }
}

/// Bytes per second that a rank sends in an all-reduce of all ranks, and the latency of a small one for each doubling.
fn sums(world: &World, device: Device, count: usize) -> Result<(f64, f64)> {
    let ranks = world.size() as f64;
    let timed = |count: usize, rounds: u32| -> Result<f64> {
        let x = Tensor::zeros_with([count], device)?;
        world.all_reduce(&x, ReduceOp::Sum)?;
        world.barrier()?;
        let start = Instant::now();
        for _ in 0..rounds {
            world.all_reduce(&x, ReduceOp::Sum)?;
        }
        x.narrow(0, 0, 1)?.to(Device::Cpu)?.to_scalar()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(rounds))
    };
    let (large, small) = (timed(count, 5)?, timed(1, 50)?);
    let slowest_of = |time: f64| slowest(world, 1.0 / time).map(|rate| 1.0 / rate);
    let (large, small) = (slowest_of(large)?, slowest_of(small)?);
    Ok((2.0 * (ranks - 1.0) / ranks * 4.0 * count as f64 / large, small / ranks.log2()))
}
