//! ONNX's larger operators: attention, losses, norms over one dimension, sampling.

use super::ops::*;
use crate::IValue;
use crate::ops::{Args, call_with};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

/// The outputs that a node has.
fn outputs(a: &Args, mut all: Vec<Tensor>) -> Found {
    let wanted = int(a, "_outputs", 1)?.clamp(1, all.len() as i64) as usize;
    all.truncate(wanted);
    Ok(Some(if wanted == 1 { all.swap_remove(0).into() } else { IValue::tuple(all.into_iter().map(IValue::Tensor)) }))
}

fn mul(x: &Tensor, y: impl Into<IValue>) -> Result<Tensor> {
    op("mul", vec![x.into(), y.into()])
}

fn reduction(a: &Args) -> Result<IValue> {
    Ok(text(a, "reduction", "mean")?.as_str().into())
}

fn ignored(a: &Args) -> Result<IValue> {
    Ok(int(a, "ignore_index", -100)?.into())
}

fn nll(a: &Args) -> Found {
    let weight = opt(a, 2).map_or(IValue::None, IValue::Tensor);
    let args = vec![t(a, 0)?.into(), t(a, 1)?.to_dtype(DType::I64)?.into()];
    let named = [("weight", weight), ("ignore_index", ignored(a)?), ("reduction", reduction(a)?)];
    some(call_with("nn.functional.nll_loss", args, &named)?.to_tensor()?)
}

fn cross_entropy(a: &Args) -> Found {
    let logs = call_with("nn.functional.log_softmax", vec![t(a, 0)?.into()], &[("dim", 1i64.into())])?.to_tensor()?;
    let weight = opt(a, 2).map_or(IValue::None, IValue::Tensor);
    let args = vec![logs.clone().into(), t(a, 1)?.to_dtype(DType::I64)?.into()];
    let named = [("weight", weight), ("ignore_index", ignored(a)?), ("reduction", reduction(a)?)];
    outputs(a, vec![call_with("nn.functional.nll_loss", args, &named)?.to_tensor()?, logs])
}

fn last_axes(a: &Args, x: &Tensor) -> Result<Vec<i64>> {
    let axis = int(a, "axis", -1)?;
    let first = if axis < 0 { axis + x.rank() as i64 } else { axis };
    Ok((first.max(0)..x.rank() as i64).collect())
}

fn rms_norm(a: &Args) -> Found {
    let x = t(a, 0)?;
    let wide = if x.dtype() == DType::F64 { x.clone() } else { x.to_dtype(DType::F32)? };
    let mean = op("mean", vec![wide.square()?.into(), list(&last_axes(a, &x)?), true.into()])?;
    let scale = op("rsqrt", vec![op("add", vec![mean.into(), float(a, "epsilon", 1e-5)?.into()])?.into()])?;
    some(mul(&mul(&wide, scale)?.to_dtype(x.dtype())?, t(a, 1)?)?)
}

/// Layer normalisation with its mean and inverse deviation.
fn layer_norm(a: &Args) -> Found {
    let x = t(a, 0)?;
    let wide = if x.dtype() == DType::F64 { x.clone() } else { x.to_dtype(DType::F32)? };
    let axes = last_axes(a, &x)?;
    let mean = op("mean", vec![wide.clone().into(), list(&axes), true.into()])?;
    let centred = op("sub", vec![wide.into(), mean.clone().into()])?;
    let variance = op("mean", vec![centred.square()?.into(), list(&axes), true.into()])?;
    let scale = op("rsqrt", vec![op("add", vec![variance.into(), float(a, "epsilon", 1e-5)?.into()])?.into()])?;
    let mut y = mul(&mul(&centred, scale.clone())?.to_dtype(x.dtype())?, t(a, 1)?)?;
    if let Some(bias) = opt(a, 2) {
        y = op("add", vec![y.into(), bias.into()])?;
    }
    outputs(a, vec![y, mean, scale])
}

/// `(batch, heads, length, width)` of a tensor that may have its heads joined.
fn heads(x: Tensor, count: i64) -> Result<Tensor> {
    if x.rank() != 3 {
        return Ok(x);
    }
    let (batch, length, width) = (x.size(0)?, x.size(1)?, x.size(2)?);
    let count = usize::try_from(count)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| Error::value("Attention without numbers of heads"))?;
    x.reshape([batch, length, count, width / count])?.transpose(1, 2)
}

fn attention(a: &Args) -> Found {
    let joined = t(a, 0)?.rank() == 3;
    if opt(a, 6).is_some() || attr(a, "softmax_precision").is_some() {
        return Err(Error::unsupported("Attention with lengths of sequences or a precision of its softmax"));
    }
    let q = heads(t(a, 0)?, int(a, "q_num_heads", 0)?)?;
    let mut k = heads(t(a, 1)?, int(a, "kv_num_heads", 0)?)?;
    let mut v = heads(t(a, 2)?, int(a, "kv_num_heads", 0)?)?;
    let mut past = 0;
    if let (Some(key), Some(value)) = (opt(a, 4), opt(a, 5)) {
        past = key.size(2)?;
        k = rushlight_tensor::cat(&[&key, &k], 2)?;
        v = rushlight_tensor::cat(&[&value, &v], 2)?;
    }
    let (present_k, present_v) = (k.clone(), v.clone());
    let groups = q.size(1)? / k.size(1)?.max(1);
    if groups > 1 {
        k = op("repeat_interleave", vec![k.into(), (groups as i64).into(), 1i64.into()])?;
        v = op("repeat_interleave", vec![v.into(), (groups as i64).into(), 1i64.into()])?;
    }
    let scale = float(a, "scale", 1.0 / (q.size(3)? as f64).sqrt())?;
    let root = scale.sqrt();
    let raw = op("matmul", vec![mul(&q, root)?.into(), mul(&k.transpose(-2, -1)?, root)?.into()])?;
    let softcap = float(a, "softcap", 0.0)?;
    let capped =
        if softcap > 0.0 { mul(&op("tanh", vec![mul(&raw, 1.0 / softcap)?.into()])?, softcap)? } else { raw.clone() };
    let (length, total) = (q.size(2)?, k.size(2)?);
    let mut scores = capped.clone();
    if let Some(mask) = opt(a, 3) {
        let missing = total as i64 - mask.size(-1)? as i64;
        let bias = if mask.dtype() == DType::Bool {
            let zeros = Tensor::zeros(mask.shape())?.to_dtype(q.dtype())?;
            op("masked_fill", vec![zeros.into(), mask.logical_not()?.into(), f64::NEG_INFINITY.into()])?
        } else {
            mask
        };
        let bias = if missing > 0 {
            op(
                "nn.functional.pad",
                vec![bias.into(), list(&[0, missing]), "constant".into(), f64::NEG_INFINITY.into()],
            )?
        } else {
            bias
        };
        scores = op("add", vec![scores.into(), bias.into()])?;
    }
    if int(a, "is_causal", 0)? != 0 {
        let seen = op("tril", vec![Tensor::ones([length, total])?.into(), (past as i64).into()])?;
        let hidden = op("eq", vec![seen.into(), 0i64.into()])?;
        scores = op("masked_fill", vec![scores.into(), hidden.into(), f64::NEG_INFINITY.into()])?;
    }
    let weights =
        call_with("nn.functional.softmax", vec![scores.clone().into()], &[("dim", (-1i64).into())])?.to_tensor()?;
    // Rows that see nothing are zero.
    let weights =
        op("masked_fill", vec![weights.clone().into(), op("isnan", vec![weights.into()])?.into(), 0i64.into()])?;
    let mut y = op("matmul", vec![weights.clone().into(), v.into()])?;
    if joined {
        let (batch, count, width) = (y.size(0)?, y.size(1)?, y.size(3)?);
        y = y.transpose(1, 2)?.reshape([batch, length, count * width])?;
    }
    let kept = match int(a, "qk_matmul_output_mode", 0)? {
        0 => raw,
        1 => capped,
        2 => scores,
        _ => weights,
    };
    outputs(a, vec![y, present_k, present_v, kept])
}

fn grid_sample(a: &Args) -> Found {
    let mode = match text(a, "mode", "linear")?.as_str() {
        "linear" | "bilinear" => "bilinear",
        "cubic" | "bicubic" => "bicubic",
        _ => "nearest",
    };
    let (padding, aligned) = (text(a, "padding_mode", "zeros")?, int(a, "align_corners", 0)? != 0);
    let args = vec![t(a, 0)?.into(), t(a, 1)?.into(), mode.into(), padding.as_str().into(), aligned.into()];
    some(op("nn.functional._grid_sample", args)?)
}

/// An operator by name.
pub(super) fn find(name: &str) -> Option<fn(&Args) -> Found> {
    Some(match name {
        "NegativeLogLikelihoodLoss" => nll,
        "SoftmaxCrossEntropyLoss" => cross_entropy,
        "RMSNormalization" => rms_norm,
        "LayerNormalization" => layer_norm,
        "Attention" => attention,
        "GridSample" => grid_sample,
        "Resize" => super::resize::resize,
        "LpNormalization" => |a| {
            let (x, axis) = (t(a, 0)?, int(a, "axis", -1)?);
            let size = if int(a, "p", 2)? == 1 { x.abs()? } else { x.square()? };
            let size = op("sum", vec![size.into(), list(&[axis]), true.into()])?;
            let size = if int(a, "p", 2)? == 1 { size } else { size.sqrt()? };
            let empty = op("eq", vec![size.clone().into(), 0i64.into()])?;
            let size = op("masked_fill", vec![size.into(), empty.into(), 1i64.into()])?;
            some(op("div", vec![x.into(), size.into()])?)
        },
        "Hardmax" => |a| {
            let x = t(a, 0)?;
            let axis = int(a, "axis", if attr(a, "_flat").is_some() { 1 } else { -1 })?;
            let best = op("argmax", vec![x.clone().into(), axis.into(), true.into()])?;
            let zeros = Tensor::zeros(x.shape())?.to_dtype(x.dtype())?;
            some(op("scatter", vec![zeros.into(), axis.into(), best.into(), 1i64.into()])?)
        },
        "CumProd" => |a| {
            let x = t(a, 0)?;
            let axis = ints_at(a, 1, "axis")?.and_then(|v| v.first().copied()).unwrap_or(0);
            let turned = |x: Tensor| op("flip", vec![x.into(), list(&[axis])]);
            let reverse = int(a, "reverse", 0)? != 0;
            let mut y = if reverse { turned(x.clone())? } else { x.clone() };
            if int(a, "exclusive", 0)? != 0 {
                let n = y.size(axis as isize)?;
                let one = op("Tensor.fill_", vec![y.narrow(axis as isize, 0, 1)?.copy()?.into(), 1i64.into()])?;
                y = rushlight_tensor::cat(&[&one, &y.narrow(axis as isize, 0, n - 1)?], axis as isize)?;
            }
            let y = op("cumprod", vec![y.into(), axis.into()])?.to_dtype(x.dtype())?;
            some(if reverse { turned(y)? } else { y })
        },
        "Dropout" => |a| {
            let x = t(a, 0)?;
            let training = opt(a, 2).map(|t| t.item::<bool>()).transpose()?.unwrap_or(false);
            let ratio = opt(a, 1).map(|t| t.item::<f64>()).transpose()?.unwrap_or(float(a, "ratio", 0.5)?);
            if training && ratio != 0.0 {
                return Err(Error::unsupported("Dropout in training mode"));
            }
            outputs(a, vec![x.clone(), Tensor::ones(x.shape())?.to_dtype(DType::Bool)?])
        },
        _ => return None,
    })
}
