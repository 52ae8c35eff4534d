//! The cases, named as their PyTorch counterparts in `compare.py`.

use crate::{ops, training};
use rushlight::prelude::*;
use rushlight::{num_threads, set_num_threads};
use std::sync::LazyLock;

/// Threads of all cases but single ops.
static THREADS: LazyLock<usize> = LazyLock::new(num_threads);

/// One run of a case.
pub type Case = Box<dyn FnMut() -> Result<()>>;

/// Every case, for `list`; [`prepare`] parses the names.
pub const NAMES: &[&str] = &[
    "matmul_f32_256x256x256",
    "matmul_f32_512x512x512",
    "matmul_f32_1024x1024x1024",
    "matmul_f32_2048x2048x2048",
    "matmul_f32_640x512x2048",
    "linear_f32_32x512x2048",
    "linear_f32_64x2048x1000",
    "matmul_bf16_256x256x256",
    "matmul_bf16_512x512x512",
    "matmul_bf16_1024x1024x1024",
    "matmul_bf16_2048x2048x2048",
    "matmul_bf16_640x512x2048",
    "add_1M",
    "add_16M",
    "add_backward_1M",
    "add_backward_16M",
    "exp_1M",
    "exp_16M",
    "exp_backward_1M",
    "exp_backward_16M",
    "gelu_1M",
    "gelu_16M",
    "gelu_backward_1M",
    "gelu_backward_16M",
    "softmax_1M",
    "softmax_16M",
    "softmax_backward_1M",
    "softmax_backward_16M",
    "layer_norm_1M",
    "layer_norm_16M",
    "layer_norm_backward_1M",
    "layer_norm_backward_16M",
    "sum_1M",
    "sum_16M",
    "sum_backward_1M",
    "sum_backward_16M",
    "small_add_8",
    "small_chain_100",
    "rand_1M",
    "randn_1M",
    "dropout_1M",
    "attention_16x6x256x64",
    "conv_64x64x64_32_3_1",
    "conv_64x64x128_32_3_2",
    "conv_64x128x128_16_3_1",
    "conv_64x128x256_16_3_2",
    "conv_64x256x256_8_3_1",
    "conv_64x256x512_8_3_2",
    "conv_64x512x512_4_3_1",
    "conv_512x3x6_32_5_0",
    "memory_chain",
];

fn leaf(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(shape)?.requires_grad_(true)
}

fn grads(y: &Tensor, inputs: &[&Tensor], dy: &Tensor) -> Result<()> {
    grad(&[y], inputs, Backward::default().gradient(dy)).map(|_| ())
}

fn numbers(text: &str, separator: char) -> Result<Vec<usize>> {
    text.split(separator)
        .map(|n| n.parse().map_err(|_| Error::value(format!("'{n}' in a case name is not a number"))))
        .collect()
}

/// Creates the tensors of a case.
pub fn prepare(name: &str) -> Result<Case> {
    manual_seed(0);
    // Single ops run on one thread.
    let threads = *THREADS;
    set_num_threads(if name.starts_with("op_") { 1 } else { threads });
    if let Some(case) = ops::prepare(name)? {
        return Ok(case);
    }
    if let Some(case) = training::prepare(name)? {
        return Ok(case);
    }
    let unknown = || Error::value(format!("unknown case '{name}'"));
    let (family, rest) = name.split_once('_').ok_or_else(unknown)?;
    match family {
        "matmul" | "linear" => {
            let (dtype, sizes) = rest.split_once('_').ok_or_else(unknown)?;
            let dtype = if dtype == "bf16" { DType::BF16 } else { DType::F32 };
            let [m, k, n] = numbers(sizes, 'x')?[..] else { return Err(unknown()) };
            let a = Tensor::randn([m, k])?.to_dtype(dtype)?;
            if family == "linear" {
                let w = Tensor::randn([n, k])?.to_dtype(dtype)?;
                return Ok(Box::new(move || a.linear(&w, None).map(|_| ())));
            }
            let b = Tensor::randn([k, n])?.to_dtype(dtype)?;
            Ok(Box::new(move || a.matmul(&b).map(|_| ())))
        }
        "conv" => convolution(rest),
        "attention" => {
            let [b, h, t, d] = numbers(rest, 'x')?[..] else { return Err(unknown()) };
            let (q, k, v) = (leaf(&[b, h, t, d])?, leaf(&[b, h, t, d])?, leaf(&[b, h, t, d])?);
            let dy = Tensor::randn([b, h, t, d])?;
            Ok(Box::new(move || {
                let y = q.scaled_dot_product_attention(&k, &v, &AttentionOptions::default().is_causal(true))?;
                grads(&y, &[&q, &k, &v], &dy)
            }))
        }
        "small" => small(rest),
        "memory" => memory_chain(),
        _ => memory_bound(name),
    }
}

/// `conv_BATCHxINxOUT_SIZE_KERNEL_STRIDE`, forward and backward; stride 0 means an unpadded convolution.
fn convolution(rest: &str) -> Result<Case> {
    let parts: Vec<&str> = rest.split('_').collect();
    let [channels, size, kernel, stride] = parts[..] else { return Err(Error::value("a conv case has four parts")) };
    let [batch, input, output] = numbers(channels, 'x')?[..] else {
        return Err(Error::value("a conv case names three sizes"));
    };
    let [size, kernel, stride] = [size, kernel, stride].map(|n| n.parse::<usize>().unwrap_or(1));
    let options =
        if stride == 0 { ConvOptions::default() } else { ConvOptions::default().stride(stride).padding(kernel / 2) };
    let x = leaf(&[batch, input, size, size])?;
    let w = leaf(&[output, input, kernel, kernel])?;
    let dy = x.conv2d(&w, None, options)?.randn_like()?;
    Ok(Box::new(move || {
        let y = x.conv2d(&w, None, options)?;
        grads(&y, &[&x, &w], &dy)
    }))
}

/// The overhead per op: tensors so small that nothing else matters.
fn small(rest: &str) -> Result<Case> {
    let (a, b) = (Tensor::rand([8])?, Tensor::rand([8])?);
    if rest == "add_8" {
        return Ok(Box::new(move || a.add(&b).map(|_| ())));
    }
    let w = Tensor::rand([8])?.requires_grad_(true)?;
    Ok(Box::new(move || {
        let mut z = w.clone();
        for _ in 0..50 {
            z = z.mul(&a)?.add(&b)?;
        }
        w.zero_grad();
        z.sum(..)?.backward()
    }))
}

/// `OP_1M` and `OP_16M`: forward without recording, or forward and backward.
fn memory_bound(name: &str) -> Result<Case> {
    let (op, size) = name.rsplit_once('_').ok_or_else(|| Error::value(format!("unknown case '{name}'")))?;
    let rows = if size == "1M" { 512 } else { 8192 };
    let shape = [rows, 2048];
    let (forward, backward) = match op.strip_suffix("_backward") {
        Some(op) => (op, true),
        None => (op, false),
    };
    let weight = leaf(&[2048])?;
    let bias = leaf(&[2048])?;
    let other = leaf(&shape)?;
    let apply: Box<dyn Fn(&Tensor) -> Result<Tensor>> = match forward {
        "add" => Box::new(move |x| x.add(&other)),
        "exp" => Box::new(|x| x.exp()),
        "gelu" => Box::new(|x| x.gelu()),
        "softmax" => Box::new(|x| x.softmax(-1)),
        "layer_norm" => Box::new(move |x| x.layer_norm(&[2048], Some(&weight), Some(&bias), 1e-5)),
        "sum" => Box::new(|x| x.sum(..)),
        "rand" => return Ok(Box::new(move || Tensor::rand(shape).map(|_| ()))),
        "randn" => return Ok(Box::new(move || Tensor::randn(shape).map(|_| ()))),
        "dropout" => Box::new(|x| x.dropout(0.1, true)),
        _ => return Err(Error::value(format!("unknown case '{name}'"))),
    };
    let x = leaf(&shape)?;
    if !backward {
        return Ok(Box::new(move || no_grad(|| apply(&x)).map(|_| ())));
    }
    let dy = apply(&x)?.ones_like()?;
    Ok(Box::new(move || grads(&apply(&x)?, &[&x], &dy)))
}

/// Twenty ops on tensors of 16 MiB, forward and backward.
fn memory_chain() -> Result<Case> {
    let x = leaf(&[2048, 2048])?;
    Ok(Box::new(move || {
        let mut y = x.clone();
        for _ in 0..5 {
            y = y.mul(0.5)?.sin()?.add(&x)?.gelu()?;
        }
        y.sum(..)?.backward()
    }))
}
