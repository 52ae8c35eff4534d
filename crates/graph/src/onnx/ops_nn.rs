//! ONNX's operators of networks: convolution, pooling, normalisation, recurrent layers.

use super::ops::*;
use crate::IValue;
use crate::ops::{Args, call_with};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;

/// Paddings before and after each spatial dimension.
fn paddings(a: &Args, x: &Tensor, kernel: &[i64], stride: &[i64], dilation: &[i64]) -> Result<Vec<(i64, i64)>> {
    let n = kernel.len();
    let auto = text(a, "auto_pad", "NOTSET")?;
    if auto == "SAME_UPPER" || auto == "SAME_LOWER" {
        return Ok((0..n)
            .map(|d| {
                let size = x.shape()[d + 2] as i64;
                let out = (size + stride[d] - 1) / stride[d];
                let total = ((out - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1 - size).max(0);
                let less = total / 2;
                if auto == "SAME_UPPER" { (less, total - less) } else { (total - less, less) }
            })
            .collect());
    }
    let pads = ints(a, "pads")?.unwrap_or_else(|| vec![0; 2 * n]);
    if auto == "VALID" {
        return Ok(vec![(0, 0); n]);
    }
    if pads.len() != 2 * n {
        return Err(Error::value(format!("{} paddings for {n} dimensions", pads.len())));
    }
    Ok((0..n).map(|d| (pads[d], pads[d + n])).collect())
}

/// The input padded by a value.
fn padded(x: &Tensor, pads: &[(i64, i64)], value: f64) -> Result<Tensor> {
    if pads.iter().all(|p| *p == (0, 0)) {
        return Ok(x.clone());
    }
    let flat: Vec<i64> = pads.iter().rev().flat_map(|&(b, e)| [b, e]).collect();
    op("nn.functional.pad", vec![x.into(), list(&flat), "constant".into(), value.into()])
}

fn spatial(kernel: &[i64]) -> Result<usize> {
    let n = kernel.len();
    if (1..=3).contains(&n) { Ok(n) } else { Err(Error::unsupported(format!("windows of {n} dimensions"))) }
}

pub(super) fn conv(a: &Args) -> Found {
    let (x, w, b) = (t(a, 0)?, t(a, 1)?, opt(a, 2));
    let kernel: Vec<i64> = w.shape().iter().skip(2).map(|&n| n as i64).collect();
    let n = spatial(&kernel)?;
    let stride = ints(a, "strides")?.unwrap_or_else(|| vec![1; n]);
    let dilation = ints(a, "dilations")?.unwrap_or_else(|| vec![1; n]);
    let pads = paddings(a, &x, &kernel, &stride, &dilation)?;
    // Paddings that are the same on both sides are the convolution's own.
    let (x, own) = if pads.iter().all(|(b, e)| b == e) {
        (x, pads.iter().map(|p| p.0).collect())
    } else {
        (padded(&x, &pads, 0.0)?, vec![0; n])
    };
    let bias = b.map_or(IValue::None, IValue::Tensor);
    let args = vec![x.into(), w.into(), bias, list(&stride), list(&own), list(&dilation), int(a, "group", 1)?.into()];
    some(op(&format!("nn.functional.conv{n}d"), args)?)
}

fn conv_transpose(a: &Args) -> Found {
    let (x, w, b) = (t(a, 0)?, t(a, 1)?, opt(a, 2));
    let kernel: Vec<i64> = w.shape().iter().skip(2).map(|&n| n as i64).collect();
    let n = spatial(&kernel)?;
    let stride = ints(a, "strides")?.unwrap_or_else(|| vec![1; n]);
    let dilation = ints(a, "dilations")?.unwrap_or_else(|| vec![1; n]);
    let mut extra = ints(a, "output_padding")?.unwrap_or_else(|| vec![0; n]);
    let full =
        |d: usize, extra: i64| (x.shape()[d + 2] as i64 - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1 + extra;
    let auto = text(a, "auto_pad", "NOTSET")?;
    let shape = match ints(a, "output_shape")? {
        Some(shape) => Some(shape[shape.len().saturating_sub(n)..].to_vec()),
        None if auto.starts_with("SAME") => Some((0..n).map(|d| x.shape()[d + 2] as i64 * stride[d]).collect()),
        None => None,
    };
    let pads: Vec<(i64, i64)> = match shape {
        Some(shape) => (0..n)
            .map(|d| {
                let total = full(d, extra[d]) - shape[d];
                if total < 0 {
                    extra[d] -= total;
                    return (0, 0);
                }
                let less = total / 2;
                if auto == "SAME_UPPER" { (less, total - less) } else { (total - less, less) }
            })
            .collect(),
        None => {
            let pads = ints(a, "pads")?.unwrap_or_else(|| vec![0; 2 * n]);
            (0..n).map(|d| (pads[d], pads[d + n])).collect()
        }
    };
    // The whole result, whose borders are cut off: output padding beyond the kernel's reach is zeros of the bias.
    let group = int(a, "group", 1)?;
    let args = vec![
        x.clone().into(),
        w.into(),
        IValue::None,
        list(&stride),
        list(&vec![0; n]),
        list(&vec![0; n]),
        group.into(),
        list(&dilation),
    ];
    let y = op(&format!("nn.functional.conv_transpose{n}d"), args)?;
    let y = padded(&y, &extra.iter().map(|&e| (0, e)).collect::<Vec<_>>(), 0.0)?;
    let mut y = padded(&y, &pads.iter().map(|&(b, e)| (-b, -e)).collect::<Vec<_>>(), 0.0)?;
    if let Some(b) = b {
        let mut shape = vec![1; n + 2];
        shape[1] = b.numel();
        y = op("add", vec![y.into(), b.reshape(&shape[..])?.into()])?;
    }
    some(y)
}

/// Paddings at the end that make `ceil_mode`'s last window whole.
fn ceiled(
    a: &Args,
    x: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    dilation: &[i64],
    pads: &mut [(i64, i64)],
) -> Result<Vec<i64>> {
    let mut extra = vec![0; kernel.len()];
    if int(a, "ceil_mode", 0)? != 0 {
        for d in 0..kernel.len() {
            let size = x.shape()[d + 2] as i64 + pads[d].0 + pads[d].1;
            let window = (kernel[d] - 1) * dilation[d] + 1;
            let steps = (size - window + stride[d] - 1) / stride[d];
            // A window that would start in the padding is left out.
            let steps = if steps * stride[d] >= x.shape()[d + 2] as i64 + pads[d].0 { steps - 1 } else { steps };
            extra[d] = (steps * stride[d] + window - size).max(0);
            pads[d].1 += extra[d];
        }
    }
    Ok(extra)
}

fn max_pool(a: &Args) -> Found {
    if int(a, "_outputs", 1)? > 1 || int(a, "storage_order", 0)? != 0 {
        return Err(Error::unsupported("MaxPool with indices"));
    }
    let x = t(a, 0)?;
    let kernel = ints(a, "kernel_shape")?.unwrap_or_default();
    let n = spatial(&kernel)?;
    let stride = ints(a, "strides")?.unwrap_or_else(|| vec![1; n]);
    let dilation = ints(a, "dilations")?.unwrap_or_else(|| vec![1; n]);
    let mut pads = paddings(a, &x, &kernel, &stride, &dilation)?;
    ceiled(a, &x, &kernel, &stride, &dilation, &mut pads)?;
    let dtype = x.dtype();
    let wide = if dtype.is_float() { x } else { x.to_dtype(rushlight_core::DType::F32)? };
    let x = padded(&wide, &pads, f64::NEG_INFINITY)?;
    let args = vec![x.into(), list(&kernel), list(&stride), list(&vec![0; n]), list(&dilation)];
    some(op(&format!("nn.functional.max_pool{n}d"), args)?.to_dtype(dtype)?)
}

/// Sums of windows.
fn window_sum(t: &Tensor, kernel: &[i64], stride: &[i64], dilation: &[i64]) -> Result<Tensor> {
    let (n, channels) = (kernel.len(), t.size(1)?);
    let window: Vec<usize> = kernel.iter().map(|&k| k as usize).collect();
    let weight = Tensor::ones([&[channels, 1], &window[..]].concat())?.to_dtype(t.dtype())?;
    let args = vec![
        t.into(),
        weight.into(),
        IValue::None,
        list(stride),
        list(&vec![0; n]),
        list(dilation),
        (channels as i64).into(),
    ];
    op(&format!("nn.functional.conv{n}d"), args)
}

/// Norms of windows: the root of the sum of powers.
fn lp_pool(a: &Args) -> Found {
    let (x, p) = (t(a, 0)?, int(a, "p", 2)? as f64);
    let kernel = ints(a, "kernel_shape")?.unwrap_or_default();
    let n = spatial(&kernel)?;
    let stride = ints(a, "strides")?.unwrap_or_else(|| vec![1; n]);
    let dilation = ints(a, "dilations")?.unwrap_or_else(|| vec![1; n]);
    let mut pads = paddings(a, &x, &kernel, &stride, &dilation)?;
    ceiled(a, &x, &kernel, &stride, &dilation, &mut pads)?;
    let powers = op("pow", vec![x.abs()?.into(), p.into()])?;
    let total = window_sum(&padded(&powers, &pads, 0.0)?, &kernel, &stride, &dilation)?;
    some(op("pow", vec![total.into(), (1.0 / p).into()])?)
}

/// Averages: sums of windows by the number of elements counted.
fn average_pool(a: &Args) -> Found {
    let x = t(a, 0)?;
    let kernel = ints(a, "kernel_shape")?.unwrap_or_default();
    let n = spatial(&kernel)?;
    let stride = ints(a, "strides")?.unwrap_or_else(|| vec![1; n]);
    let dilation = ints(a, "dilations")?.unwrap_or_else(|| vec![1; n]);
    let mut pads = paddings(a, &x, &kernel, &stride, &dilation)?;
    let inner = pads.clone();
    let extra = ceiled(a, &x, &kernel, &stride, &dilation, &mut pads)?;
    let summed = |t: &Tensor| window_sum(t, &kernel, &stride, &dilation);
    let ones = x.ones_like()?;
    let counted = if int(a, "count_include_pad", 0)? != 0 {
        padded(&padded(&ones, &inner, 1.0)?, &extra.iter().map(|&e| (0, e)).collect::<Vec<_>>(), 0.0)?
    } else {
        padded(&ones, &pads, 0.0)?
    };
    some(op("div", vec![summed(&padded(&x, &pads, 0.0)?)?.into(), summed(&counted)?.into()])?)
}

fn spatial_axes(x: &Tensor) -> IValue {
    list(&(2..x.rank() as i64).collect::<Vec<_>>())
}

fn batch_norm(a: &Args) -> Found {
    if int(a, "training_mode", 0)? != 0 || int(a, "_outputs", 1)? > 1 {
        return Err(Error::unsupported("BatchNormalization in training mode"));
    }
    let args = vec![
        t(a, 0)?.into(),
        t(a, 3)?.into(),
        t(a, 4)?.into(),
        t(a, 1)?.into(),
        t(a, 2)?.into(),
        false.into(),
        0.1.into(),
        float(a, "epsilon", 1e-5)?.into(),
    ];
    some(op("nn.functional.batch_norm", args)?)
}

/// Softmax; before version 13 over all dimensions from the axis on.
fn softmax(a: &Args, name: &str) -> Found {
    let x = t(a, 0)?;
    if attr(a, "_flat").is_none() {
        return some(call_with(name, vec![x.into()], &[("dim", int(a, "axis", -1)?.into())])?.to_tensor()?);
    }
    let axis = int(a, "axis", 1)?;
    let axis = if axis < 0 { axis + x.rank() as i64 } else { axis } as usize;
    let lead: usize = x.shape()[..axis.min(x.rank())].iter().product();
    let flat = x.reshape([lead as i64, -1])?;
    some(call_with(name, vec![flat.into()], &[("dim", 1i64.into())])?.to_tensor()?.reshape(x.shape())?)
}

fn gemm(a: &Args) -> Found {
    let turned = |t: Tensor, name: &str| if int(a, name, 0)? != 0 { t.t() } else { Ok(t) };
    let product = op("matmul", vec![turned(t(a, 0)?, "transA")?.into(), turned(t(a, 1)?, "transB")?.into()])?;
    let scaled = |t: Tensor, factor: f64| if factor == 1.0 { Ok(t) } else { op("mul", vec![t.into(), factor.into()]) };
    let (alpha, beta) = (float(a, "alpha", 1.0)?, float(a, "beta", 1.0)?);
    let y = scaled(product, alpha)?;
    some(match opt(a, 2) {
        Some(c) => op("add", vec![y.into(), scaled(c, beta)?.into()])?,
        None => y,
    })
}

/// Blocks of rows in another order: ONNX's gates and PyTorch's differ.
fn gates(w: &Tensor, order: &[usize]) -> Result<Tensor> {
    let parts = w.chunk(order.len(), 0)?;
    rushlight_tensor::cat(&order.iter().map(|&i| &parts[i]).collect::<Vec<_>>(), 0)
}

/// LSTM, GRU and RNN with the standard activations.
fn recurrent(a: &Args, kind: &str, order: &[usize]) -> Found {
    for name in ["activations", "clip", "input_forget"] {
        if attr(a, name).is_some() && !(name == "activations" && is_standard(a, kind)?) {
            return Err(Error::unsupported(format!("{kind} with '{name}'")));
        }
    }
    if kind == "gru" && int(a, "linear_before_reset", 0)? == 0 {
        return Err(Error::unsupported(
            "GRU whose reset gate is applied before the product; export with linear_before_reset=1",
        ));
    }
    if opt(a, 4).is_some() || opt(a, 7).is_some() || int(a, "layout", 0)? != 0 {
        return Err(Error::unsupported(format!("{kind} with lengths of sequences, peepholes or batches first")));
    }
    let (mut x, w, r) = (t(a, 0)?, t(a, 1)?, t(a, 2)?);
    let direction = text(a, "direction", "forward")?;
    let (directions, hidden) = (w.size(0)?, r.size(-1)?);
    if direction == "reverse" {
        x = op("flip", vec![x.into(), list(&[0])])?;
    }
    let mut params = Vec::new();
    for d in 0..directions {
        let one = |t: &Tensor| t.select(0, d as isize);
        params.push(gates(&one(&w)?, order)?.into());
        params.push(gates(&one(&r)?, order)?.into());
        let b = match opt(a, 3) {
            Some(b) => one(&b)?,
            None => op("zeros_like", vec![one(&w)?.select(1, 0)?.into()])?.repeat(&[2])?,
        };
        let halves = b.chunk(2, 0)?;
        params.push(gates(&halves[0], order)?.into());
        params.push(gates(&halves[1], order)?.into());
    }
    let state = |at: usize| match opt(a, at) {
        Some(t) => Ok(t),
        None => Tensor::zeros([directions, x.size(1)?, hidden])?.to_dtype(x.dtype()),
    };
    let start = if kind == "lstm" { IValue::list([state(5)?.into(), state(6)?.into()]) } else { state(5)?.into() };
    let name = if kind == "rnn" { "rnn_tanh" } else { kind };
    let args = vec![
        x.clone().into(),
        start,
        IValue::list(params),
        true.into(),
        1i64.into(),
        0.0.into(),
        false.into(),
        (directions == 2).into(),
        false.into(),
    ];
    let mut out = crate::ops::call(name, args)?.items()?;
    let (length, batch) = (x.size(0)?, x.size(1)?);
    let mut y = out[0].to_tensor()?.reshape([length, batch, directions, hidden])?.transpose(1, 2)?;
    if direction == "reverse" {
        y = op("flip", vec![y.into(), list(&[0])])?;
    }
    out[0] = y.into();
    let wanted = int(a, "_outputs", 1)?.clamp(1, out.len() as i64) as usize;
    out.truncate(wanted);
    Ok(Some(if wanted == 1 { out.swap_remove(0) } else { IValue::tuple(out) }))
}

fn is_standard(a: &Args, kind: &str) -> Result<bool> {
    let standard: &[&str] = match kind {
        "lstm" => &["Sigmoid", "Tanh", "Tanh"],
        "gru" => &["Sigmoid", "Tanh"],
        _ => &["Tanh"],
    };
    let found = attr(a, "activations").map_or(Ok(Vec::new()), IValue::items)?;
    Ok(found.iter().enumerate().all(|(i, v)| v.to_string() == standard[i % standard.len()]))
}

/// An operator by name.
pub(super) fn find(name: &str) -> Option<fn(&Args) -> Found> {
    Some(match name {
        "Conv" => conv,
        "ConvTranspose" => conv_transpose,
        "MaxPool" => max_pool,
        "LpPool" => lp_pool,
        "AveragePool" => average_pool,
        "GlobalAveragePool" => |a| {
            let x = t(a, 0)?;
            some(op("mean", vec![x.clone().into(), spatial_axes(&x), true.into()])?)
        },
        "GlobalMaxPool" => |a| {
            let x = t(a, 0)?;
            some(op("amax", vec![x.clone().into(), spatial_axes(&x), true.into()])?)
        },
        "BatchNormalization" => batch_norm,
        "InstanceNormalization" => |a| {
            let args = vec![t(a, 0)?.into(), IValue::None, IValue::None, t(a, 1)?.into(), t(a, 2)?.into()];
            some(
                call_with("nn.functional.instance_norm", args, &[("eps", float(a, "epsilon", 1e-5)?.into())])?
                    .to_tensor()?,
            )
        },
        "GroupNormalization" => |a| {
            let args = vec![
                t(a, 0)?.into(),
                int(a, "num_groups", 1)?.into(),
                t(a, 1)?.into(),
                t(a, 2)?.into(),
                float(a, "epsilon", 1e-5)?.into(),
            ];
            some(op("nn.functional.group_norm", args)?)
        },
        "LRN" => |a| {
            let args = vec![
                t(a, 0)?.into(),
                int(a, "size", 1)?.into(),
                float(a, "alpha", 1e-4)?.into(),
                float(a, "beta", 0.75)?.into(),
                float(a, "bias", 1.0)?.into(),
            ];
            some(op("nn.functional.local_response_norm", args)?)
        },
        "Softmax" => |a| softmax(a, "nn.functional.softmax"),
        "LogSoftmax" => |a| softmax(a, "nn.functional.log_softmax"),
        "Gemm" => gemm,
        "LSTM" => |a| recurrent(a, "lstm", &[0, 2, 3, 1]),
        "GRU" => |a| recurrent(a, "gru", &[1, 0, 2]),
        "RNN" => |a| recurrent(a, "rnn", &[0]),
        _ => return None,
    })
}
