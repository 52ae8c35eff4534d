//! ONNX's operators of signals, detection and newer models.

use super::ops::*;
use crate::IValue;
use crate::ops::Args;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

fn mul(x: &Tensor, y: impl Into<IValue>) -> Result<Tensor> {
    op("mul", vec![x.into(), y.into()])
}

fn cat(parts: Vec<Tensor>, dim: i64) -> Result<Tensor> {
    op("cat", vec![IValue::list(parts.into_iter().map(IValue::Tensor)), dim.into()])
}

/// A window of cosines with these factors.
fn window(a: &Args, factors: [f64; 3]) -> Found {
    let size = t(a, 0)?.item::<i64>()?.max(0);
    if size > 1 << 24 {
        return Err(Error::value("a window of more than 16 million elements"));
    }
    let length = if int(a, "periodic", 1)? != 0 { size } else { size - 1 };
    let step = 2.0 * std::f64::consts::PI / length.max(1) as f64;
    let value = |n: i64| factors[0] - factors[1] * (step * n as f64).cos() + factors[2] * (2.0 * step * n as f64).cos();
    let all: Vec<f64> = (0..size).map(value).collect();
    some(Tensor::new_with(&all[..], DType::F64)?.to_dtype(super::proto::dtype(int(a, "output_datatype", 1)?)?)?)
}

fn rotary(a: &Args) -> Found {
    let input = t(a, 0)?;
    let shape = input.shape().to_vec();
    // As [batch, length, heads, width].
    let x = match shape[..] {
        [_, _, _, _] => input.transpose(1, 2)?,
        [batch, length, width] => {
            let heads = usize::try_from(int(a, "num_heads", 0)?).ok().filter(|&h| h > 0);
            let heads = heads.ok_or_else(|| Error::value("RotaryEmbedding of three dimensions needs num_heads"))?;
            input.reshape([batch, length, heads, width / heads])?
        }
        _ => return Err(Error::shape("RotaryEmbedding takes three or four dimensions")),
    };
    int(a, "num_heads", 0)?;
    let width = x.size(3)?;
    let part = match int(a, "rotary_embedding_dim", 0)? {
        0 => width,
        n => (n.max(0) as usize).min(width),
    };
    let pick = |cache: Tensor| -> Result<Tensor> {
        let rows = match opt(a, 3) {
            Some(at) => op("nn.functional.embedding", vec![at.into(), cache.into()])?,
            None => cache,
        };
        rows.narrow(-1, 0, part / 2)?.unsqueeze(2)
    };
    let (cos, sin) = (pick(t(a, 1)?)?, pick(t(a, 2)?)?);
    let turned = x.narrow(3, 0, part)?;
    let interleaved = int(a, "interleaved", 0)? != 0;
    let (p, q) = if interleaved {
        let pairs = turned.reshape([x.size(0)?, x.size(1)?, x.size(2)?, part / 2, 2])?;
        (pairs.select(4, 0)?, pairs.select(4, 1)?)
    } else {
        (turned.narrow(3, 0, part / 2)?, turned.narrow(3, (part / 2) as isize, part / 2)?)
    };
    let real = op("sub", vec![mul(&p, cos.clone())?.into(), mul(&q, sin.clone())?.into()])?;
    let imaginary = op("add", vec![mul(&p, sin)?.into(), mul(&q, cos)?.into()])?;
    let mut y = if interleaved {
        cat(vec![real.unsqueeze(4)?, imaginary.unsqueeze(4)?], 4)?.reshape(turned.shape())?
    } else {
        cat(vec![real, imaginary], 3)?
    };
    if part < width {
        y = cat(vec![y, x.narrow(3, part as isize, width - part)?], 3)?;
    }
    let y = if shape.len() == 4 { y.transpose(1, 2)? } else { y.reshape(&shape[..])? };
    some(y.contiguous()?)
}

/// Corners of a box: smaller and larger coordinates.
fn corners(b: &[f32], centred: bool) -> [f32; 4] {
    if centred {
        return [b[0] - b[2] / 2.0, b[1] - b[3] / 2.0, b[0] + b[2] / 2.0, b[1] + b[3] / 2.0];
    }
    [b[0].min(b[2]), b[1].min(b[3]), b[0].max(b[2]), b[1].max(b[3])]
}

fn overlap(a: [f32; 4], b: [f32; 4]) -> f32 {
    let area = |c: [f32; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let side = |i: usize| (a[i + 2].min(b[i + 2]) - a[i].max(b[i])).max(0.0);
    let inner = side(0) * side(1);
    let union = area(a) + area(b) - inner;
    if union > 0.0 { inner / union } else { 0.0 }
}

fn suppress(a: &Args) -> Found {
    let (boxes, scores) = (t(a, 0)?, t(a, 1)?);
    let number = |at: usize| opt(a, at).map(|t| t.to_dtype(DType::F64)?.reshape([1])?.item::<f64>()).transpose();
    let most = number(2)?.unwrap_or(0.0).max(0.0) as usize;
    let (limit, least) = (number(3)?.unwrap_or(0.0) as f32, number(4)?);
    let centred = int(a, "center_point_box", 0)? != 0;
    let (&[batches, count, 4], &[score_batches, classes, per_class]) = (boxes.shape(), scores.shape()) else {
        return Err(Error::shape("NonMaxSuppression takes boxes [batch, n, 4] and scores [batch, classes, n]"));
    };
    if score_batches != batches || per_class != count {
        return Err(Error::shape("NonMaxSuppression: boxes and scores do not fit"));
    }
    let places = boxes.to_dtype(DType::F32)?.to_vec::<f32>()?;
    let values = scores.to_dtype(DType::F32)?.to_vec::<f32>()?;
    let mut out: Vec<i64> = Vec::new();
    for batch in 0..batches {
        let place = |i: usize| corners(&places[(batch * count + i) * 4..][..4], centred);
        for class in 0..classes {
            let score = |i: usize| values[(batch * classes + class) * count + i];
            let mut order: Vec<usize> = (0..count).filter(|&i| least.is_none_or(|l| f64::from(score(i)) > l)).collect();
            order.sort_by(|&i, &j| score(j).total_cmp(&score(i)));
            let mut kept: Vec<usize> = Vec::new();
            for i in order {
                if kept.len() >= most {
                    break;
                }
                if kept.iter().all(|&k| overlap(place(k), place(i)) <= limit) {
                    kept.push(i);
                }
            }
            kept.iter().for_each(|&i| out.extend([batch as i64, class as i64, i as i64]));
        }
    }
    some(Tensor::new_with(&out[..], DType::I64)?.reshape([out.len() / 3, 3])?)
}

fn centre(a: &Args) -> Found {
    let (x, target) = (t(a, 0)?, t(a, 1)?.to_dtype(DType::I64)?.to_vec::<i64>()?);
    let rank = x.rank() as i64;
    let axes = ints(a, "axes")?.unwrap_or_else(|| (0..rank).collect());
    let mut pads = vec![0; 2 * x.rank()];
    for (&axis, &size) in axes.iter().zip(&target) {
        let axis = (if axis < 0 { axis + rank } else { axis }) as usize;
        let have = *x.shape().get(axis).ok_or_else(|| Error::shape("CenterCropPad: an axis out of range"))? as i64;
        // Of an odd difference, the end has the larger part.
        let total = size - have;
        let before = if total < 0 { -((-total) / 2) } else { total / 2 };
        let at = 2 * (x.rank() - 1 - axis);
        (pads[at], pads[at + 1]) = (before, total - before);
    }
    some(op("nn.functional.pad", vec![x.into(), list(&pads), "constant".into(), 0.0.into()])?)
}

fn causal_conv(a: &Args) -> Found {
    let (x, w) = (t(a, 0)?, t(a, 1)?);
    let (&[batch, channels, _], &[_, _, kernel]) = (x.shape(), w.shape()) else {
        return Err(Error::shape("CausalConvWithState takes an input and a weight of three dimensions"));
    };
    let past = match opt(a, 3) {
        Some(past) => past,
        None => Tensor::zeros([batch, channels, kernel.saturating_sub(1)])?.to_dtype(x.dtype())?,
    };
    let whole = cat(vec![past, x.clone()], 2)?;
    let bias = opt(a, 2).map_or(IValue::None, IValue::Tensor);
    let one = list(&[1]);
    let args = vec![(&whole).into(), w.into(), bias, one.clone(), list(&[0]), one, (channels as i64).into()];
    let mut y = op("nn.functional.conv1d", args)?;
    if text(a, "activation", "none")? != "none" {
        let wide = y.to_dtype(DType::F32)?;
        y = op("nn.functional.silu", vec![wide.into()])?.to_dtype(x.dtype())?;
    }
    let kept = kernel.saturating_sub(1);
    let state = whole.narrow(2, (whole.size(2)? - kept) as isize, kept)?;
    Ok(Some(if int(a, "_outputs", 1)? > 1 { IValue::tuple([y.into(), state.into()]) } else { y.into() }))
}

fn tensor_scatter(a: &Args) -> Found {
    let (past, update) = (t(a, 0)?, t(a, 1)?);
    let rank = past.rank() as i64;
    let axis = int(a, "axis", -2)?;
    let axis = (if axis < 0 { axis + rank } else { axis }) as usize;
    if axis == 0 || axis >= past.rank() || update.rank() != past.rank() {
        return Err(Error::shape("TensorScatter: the axis must come after the batch"));
    }
    let (batch, length, room) = (past.size(0)?, update.size(axis as isize)?, past.size(axis as isize)? as i64);
    let starts = match opt(a, 2) {
        Some(t) => t.to_dtype(DType::I64)?.to_vec::<i64>()?,
        None => vec![0; batch],
    };
    let is_circular = text(a, "mode", "linear")? == "circular";
    let mut places = Vec::with_capacity(batch * length);
    for &start in &starts {
        places.extend(
            (0..length as i64).map(|i| if is_circular { (start + i).rem_euclid(room.max(1)) } else { start + i }),
        );
    }
    let mut shape = vec![1; past.rank()];
    (shape[0], shape[axis]) = (starts.len(), length);
    let index = Tensor::new_with(&places[..], DType::I64)?.reshape(&shape[..])?;
    let index =
        op("Tensor.expand", vec![index.into(), list(&update.shape().iter().map(|&n| n as i64).collect::<Vec<_>>())])?;
    some(op("scatter", vec![past.into(), (axis as i64).into(), index.into(), update.into()])?)
}

fn reverse_sequence(a: &Args) -> Found {
    let (x, lengths) = (t(a, 0)?, t(a, 1)?.to_dtype(DType::I64)?.to_vec::<i64>()?);
    let (batch, time) = (int(a, "batch_axis", 1)? as isize, int(a, "time_axis", 0)? as isize);
    let mut rows = Vec::new();
    for (at, &length) in lengths.iter().enumerate() {
        let row = x.select(batch, at as isize)?;
        let dim = if time > batch { time - 1 } else { time };
        let length = length.clamp(0, row.size(dim)? as i64) as usize;
        let turned = op("flip", vec![row.narrow(dim, 0, length)?.into(), list(&[dim as i64])])?;
        let rest = row.narrow(dim, length as isize, row.size(dim)? - length)?;
        rows.push(cat(vec![turned, rest], dim as i64)?);
    }
    some(op("stack", vec![IValue::list(rows.into_iter().map(IValue::Tensor)), (batch as i64).into()])?)
}

fn normalise(a: &Args) -> Found {
    let x = t(a, 0)?;
    let axes = ints(a, "axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let mean = |t: &Tensor| op("mean", vec![t.into(), list(&axes), true.into()]);
    let centred = op("sub", vec![(&x).into(), mean(&x)?.into()])?;
    let deviation = op("sub", vec![mean(&x.square()?)?.into(), mean(&x)?.square()?.into()])?.sqrt()?;
    some(op("div", vec![centred.into(), op("add", vec![deviation.into(), 1e-9.into()])?.into()])?)
}

pub(super) fn find(name: &str) -> Option<fn(&Args) -> Found> {
    Some(match name {
        "HannWindow" => |a| window(a, [0.5, 0.5, 0.0]),
        "HammingWindow" => |a| window(a, [25.0 / 46.0, 21.0 / 46.0, 0.0]),
        "BlackmanWindow" => |a| window(a, [0.42, 0.5, 0.08]),
        "RotaryEmbedding" => rotary,
        "NonMaxSuppression" => suppress,
        "CenterCropPad" => centre,
        "CausalConvWithState" => causal_conv,
        "TensorScatter" => tensor_scatter,
        "ReverseSequence" => reverse_sequence,
        "MeanVarianceNormalization" => normalise,
        "BitCast" => |a| {
            let to = super::proto::dtype(int(a, "to", 1)?)?;
            some(op("Tensor.view", vec![t(a, 0)?.into(), IValue::DType(to)])?)
        },
        "SwiGLU" => |a| {
            let x = t(a, 0)?;
            let gate = op("sigmoid", vec![mul(&x, float(a, "alpha", 1.0)?)?.into()])?;
            some(mul(&mul(&x, gate)?, t(a, 1)?)?)
        },
        "Optional" | "OptionalGetElement" => |a| some(t(a, 0)?),
        "OptionalHasElement" => |a| some(Tensor::scalar(opt(a, 0).is_some())?),
        _ => return None,
    })
}
