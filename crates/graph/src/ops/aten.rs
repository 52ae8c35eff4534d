//! Ops whose arguments in PyTorch's schemas differ from those of the Python functions, which the table has.

use super::plain::tensors;
use super::{Args, Own, call, call_with};
use crate::ivalue::IValue;
use rushlight_core::{DType, Device, Error, Result};
use rushlight_tensor::{IndexItem, Tensor};

type Found = Result<Option<IValue>>;

/// The first arguments of a call.
fn first(a: &Args, count: usize) -> Vec<IValue> {
    a.list.iter().take(count).cloned().collect()
}

fn at(a: &Args, index: usize) -> IValue {
    a.list.get(index).cloned().unwrap_or(IValue::None)
}

fn done(value: Result<IValue>) -> Found {
    value.map(Some)
}

fn input(a: &Args) -> Result<Tensor> {
    a.need(0, "self").or_else(|_| a.need(0, "input"))?.to_tensor()
}

fn convolution(a: &Args) -> Found {
    let (x, weight) = (a.need(0, "input")?, a.need(1, "weight")?);
    let spatial = weight.to_tensor()?.rank().saturating_sub(2);
    if !(1..=3).contains(&spatial) {
        return Err(Error::shape(format!("convolution: a weight of {} dimensions", spatial + 2)));
    }
    let (stride, padding, dilation, groups) = (at(a, 3), at(a, 4), at(a, 5), at(a, 8));
    let (x, weight, bias) = (x.clone(), weight.clone(), at(a, 2));
    done(if at(a, 6).truth()? {
        call(
            &format!("nn.functional.conv_transpose{spatial}d"),
            vec![x, weight, bias, stride, padding, at(a, 7), groups, dilation],
        )
    } else {
        call(&format!("nn.functional.conv{spatial}d"), vec![x, weight, bias, stride, padding, dilation, groups])
    })
}

fn slice(a: &Args) -> Found {
    let x = input(a)?;
    let dim = a.get(1, "dim").map_or(Ok(0), IValue::to_int)? as isize;
    let end = |value: Option<&IValue>| match value {
        None | Some(IValue::None) => Ok(None),
        Some(v) => v.to_int().map(Some),
    };
    let (start, stop) = (end(a.get(2, "start"))?, end(a.get(3, "end"))?);
    let step = a.get(4, "step").map_or(Ok(1), IValue::to_int)?;
    if step < 1 {
        return Err(Error::value("slice step must be positive"));
    }
    let n = x.size(dim)? as i64;
    let clip = |v: Option<i64>, otherwise: i64| {
        v.map_or(otherwise, |v| (if v < 0 { v.saturating_add(n) } else { v }).clamp(0, n))
    };
    let (start, stop) = (clip(start, 0), clip(stop, n));
    if step == 1 {
        let part = x.narrow(dim, start as isize, (stop - start).max(0) as usize)?;
        return Ok(Some(part.into()));
    }
    let dim = if dim < 0 { dim + x.rank() as isize } else { dim } as usize;
    let mut items = vec![rushlight_tensor::slice(None, None, 1); dim];
    items.push(rushlight_tensor::slice(start as isize, stop.max(start) as isize, step as usize));
    Ok(Some(x.index(&items[..])?.into()))
}

/// Indices of `x[i, None, j]`, where `None` is a whole dimension.
pub(crate) fn indices(value: &IValue) -> Result<Vec<IndexItem>> {
    value
        .items()?
        .iter()
        .map(|v| match v {
            IValue::None => Ok(rushlight_tensor::slice(None, None, 1)),
            other => other.to_tensor().map(IndexItem::Tensor),
        })
        .collect()
}

fn index_put(a: &Args) -> Result<(Tensor, Vec<IndexItem>, Tensor, bool)> {
    let accumulate = a.get(3, "accumulate").map_or(Ok(false), IValue::truth)?;
    Ok((input(a)?, indices(a.need(1, "indices")?)?, a.need(2, "values")?.to_tensor()?, accumulate))
}

/// `aten::to` in its forms: a dtype, a device, another tensor, or several by name.
fn to(a: &Args) -> Found {
    let x = input(a)?;
    let (mut dtype, mut device, mut copy): (Option<DType>, Option<Device>, bool) = (None, None, false);
    let mut bools = 0;
    let positional = a.list[1..].iter().map(|v| ("", v));
    for (name, value) in positional.chain(a.keywords.iter().map(|(n, v)| (n.as_str(), v))) {
        match (name, value) {
            ("layout" | "memory_format" | "non_blocking", _) | (_, IValue::None) => {}
            ("copy", v) => copy = v.truth()?,
            (_, IValue::Bool(b)) => {
                // Positional: `non_blocking`, then `copy`.
                copy |= bools == 1 && *b;
                bools += 1;
            }
            (_, IValue::Tensor(other)) => (dtype, device) = (Some(other.dtype()), Some(other.device())),
            (_, IValue::DType(d)) => dtype = Some(*d),
            (_, IValue::Int(i)) if bools == 0 => dtype = Some(crate::dtype::of(*i)?),
            (_, IValue::Int(_)) => {}
            (_, IValue::Device(d)) => device = Some(*d),
            (_, IValue::Str(s)) => device = Some(super::bind::device(s)?),
            (_, other) => return Err(Error::value(format!("to() does not take {}", other.kind()))),
        }
    }
    let mut out = x.clone();
    if let Some(device) = device {
        out = out.to(device)?;
    }
    if let Some(dtype) = dtype {
        out = out.to_dtype(dtype)?;
    }
    if copy && out.id() == x.id() {
        out = out.copy()?;
    }
    Ok(Some(out.into()))
}

fn flatten(value: &IValue, shape: &mut Vec<usize>, depth: usize, out: &mut Vec<IValue>) -> Result<()> {
    match value {
        IValue::List(_) | IValue::Tuple(_) => {
            let items = value.items()?;
            match shape.get(depth) {
                None => shape.push(items.len()),
                Some(&n) if n == items.len() => {}
                Some(_) => return Err(Error::shape("a list of lists of different lengths")),
            }
            items.iter().try_for_each(|v| flatten(v, shape, depth + 1, out))
        }
        other => {
            out.push(other.clone());
            Ok(())
        }
    }
}

/// A tensor of numbers in lists.
pub(crate) fn tensor_of(value: &IValue, dtype: Option<DType>) -> Result<Tensor> {
    if let IValue::Tensor(t) = value {
        return match dtype {
            Some(dtype) => t.to_dtype(dtype),
            None => t.copy(),
        };
    }
    let (mut shape, mut numbers) = (Vec::new(), Vec::new());
    flatten(value, &mut shape, 0, &mut numbers)?;
    let kind = match numbers.first() {
        _ if numbers.iter().any(|v| matches!(v, IValue::Float(_))) => DType::F32,
        Some(IValue::Bool(_)) if numbers.iter().all(|v| matches!(v, IValue::Bool(_))) => DType::Bool,
        None => DType::F32,
        _ => DType::I64,
    };
    let made = if kind.is_float() {
        let all = numbers.iter().map(IValue::to_float).collect::<Result<Vec<_>>>()?;
        Tensor::new_with(&all[..], DType::F64)?
    } else {
        let all = numbers.iter().map(IValue::to_int).collect::<Result<Vec<_>>>()?;
        Tensor::new(&all[..])?
    };
    made.reshape(&shape[..])?.to_dtype(dtype.unwrap_or(kind))
}

fn tensor(a: &Args) -> Found {
    let dtype = match a.get(1, "dtype") {
        Some(IValue::Int(i)) => Some(crate::dtype::of(*i)?),
        Some(IValue::DType(d)) => Some(*d),
        _ => None,
    };
    let made = tensor_of(a.need(0, "data")?, dtype)?;
    Ok(Some(match a.get(2, "device") {
        Some(IValue::Device(d)) => made.to(*d)?.into(),
        _ => made.into(),
    }))
}

/// `upsample_…`: sizes, or factors in a list, or factors one by one.
fn upsample(a: &Args, mode: &str, aligns: bool) -> Found {
    let size = at(a, 1);
    let align = if aligns { at(a, 2) } else { IValue::None };
    let factors = match (&size, at(a, 2 + usize::from(aligns))) {
        (IValue::None, list @ IValue::List(_)) => list,
        _ => IValue::None,
    };
    done(call_with(
        "nn.functional.interpolate",
        vec![at(a, 0), size, factors],
        &[("mode", mode.into()), ("align_corners", align)],
    ))
}

fn reduction(value: IValue) -> Result<IValue> {
    Ok(match value {
        IValue::None => "mean".into(),
        other => match other.to_int()? {
            0 => "none".into(),
            1 => "mean".into(),
            _ => "sum".into(),
        },
    })
}

/// Attention of `(batch, length, width)` with packed projections: `[query, key, value]` weights on top of each other.
fn attention(
    x: &Tensor,
    heads: i64,
    qkv: (&IValue, &IValue),
    out: (&IValue, &IValue),
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    let (batch, length, width) = (x.size(0)?, x.size(1)?, x.size(2)?);
    let heads =
        usize::try_from(heads).ok().filter(|&h| h > 0).ok_or_else(|| Error::value("num_heads must be positive"))?;
    let packed = x.linear(&qkv.0.to_tensor()?, Some(&qkv.1.to_tensor()?))?;
    let split = packed.chunk(3, 2)?;
    let part = |t: &Tensor| t.reshape([batch, length, heads, width / heads])?.transpose(1, 2);
    let parts = split.iter().map(part).collect::<Result<Vec<_>>>()?;
    let [q, k, v] = &parts[..] else {
        return Err(Error::shape("attention: the projection has fewer than three parts"));
    };
    let mask = mask.map_or(IValue::None, IValue::from);
    let y =
        call("nn.functional.scaled_dot_product_attention", vec![q.into(), k.into(), v.into(), mask])?.to_tensor()?;
    y.transpose(1, 2)?.reshape([batch, length, width])?.linear(&out.0.to_tensor()?, Some(&out.1.to_tensor()?))
}

/// A mask of PyTorch's fast path: true where nothing is attended. `kind` 0 is `(length, length)`, 1 `(batch,
/// length)`, 2 both.
fn fast_mask(mask: &IValue, kind: &IValue) -> Result<Option<Tensor>> {
    let IValue::Tensor(mask) = mask else { return Ok(None) };
    let mask = if mask.dtype() == DType::Bool { mask.logical_not()? } else { mask.clone() };
    Ok(Some(match (kind, mask.rank()) {
        (IValue::Int(1), 2) => mask.unsqueeze(1)?.unsqueeze(1)?,
        _ => mask,
    }))
}

/// `_transformer_encoder_layer_fwd`: the fused encoder layer of inference.
fn encoder_layer(a: &Args) -> Found {
    let x = input(a)?;
    let heads = at(a, 2).to_int()?;
    let norm = |x: &Tensor, w: usize| {
        let weight = at(a, w).to_tensor()?;
        x.layer_norm(weight.shape(), Some(&weight), Some(&at(a, w + 1).to_tensor()?), at(a, 9).to_float()?)
    };
    let mask = fast_mask(&at(a, 18), &at(a, 19))?;
    let attend = |x: &Tensor| attention(x, heads, (&at(a, 3), &at(a, 4)), (&at(a, 5), &at(a, 6)), mask.as_ref());
    let gelu = at(a, 7).truth()?;
    let feed = |x: &Tensor| {
        let y = x.linear(&at(a, 14).to_tensor()?, Some(&at(a, 15).to_tensor()?))?;
        let name = if gelu { "nn.functional.gelu" } else { "nn.functional.relu" };
        call(name, vec![y.into()])?.to_tensor()?.linear(&at(a, 16).to_tensor()?, Some(&at(a, 17).to_tensor()?))
    };
    let out = if at(a, 8).truth()? {
        let x = x.add(&attend(&norm(&x, 10)?)?)?;
        x.add(&feed(&norm(&x, 12)?)?)?
    } else {
        let x = norm(&x.add(&attend(&x)?)?, 10)?;
        norm(&x.add(&feed(&x)?)?, 12)?
    };
    Ok(Some(out.into()))
}

/// `_native_multi_head_attention(query, key, value, embed_dim, num_heads, …)` of one tensor with itself.
fn native_attention(a: &Args) -> Found {
    let (q, k) = (input(a)?, at(a, 1).to_tensor()?);
    if q.id() != k.id() || at(a, 10).truth()? {
        return Err(Error::unsupported("_native_multi_head_attention with other keys or with its weights"));
    }
    let mask = fast_mask(&at(a, 9), &at(a, 12))?;
    let y = attention(&q, at(a, 4).to_int()?, (&at(a, 5), &at(a, 6)), (&at(a, 7), &at(a, 8)), mask.as_ref())?;
    Ok(Some(IValue::tuple([y.into(), IValue::None])))
}

fn loss(a: &Args, name: &str) -> Found {
    done(call_with(name, first(a, 2), &[("reduction", reduction(at(a, 2))?)]))
}

/// `native_batch_norm(input, weight, bias, running_mean, running_var, …, momentum, eps)`: the output, the batch's
/// mean and inverse deviation, and with `copies` the new statistics, the old ones unchanged. `factors`: the momentum's
/// place.
fn norm(a: &Args, training: bool, factors: usize, copies: bool) -> Found {
    let x = input(a)?;
    let statistic = |i: usize| match at(a, i) {
        IValue::Tensor(t) if copies => t.copy().map(IValue::Tensor),
        other => Ok(other),
    };
    let (mean, var) = (statistic(3)?, statistic(4)?);
    let eps = at(a, factors + 1);
    let order =
        [x.clone().into(), mean.clone(), var.clone(), at(a, 1), at(a, 2), training.into(), at(a, factors), eps.clone()];
    let mut out = vec![call("nn.functional.batch_norm", order.to_vec())?];
    if training {
        let dims: Vec<IValue> = (0..x.rank()).filter(|&d| d != 1).map(|d| IValue::Int(d as i64)).collect();
        out.push(call("mean", vec![x.clone().into(), IValue::list(dims.clone())])?);
        let deviation = call_with("var", vec![x.into(), IValue::list(dims)], &[("correction", IValue::Int(0))])?;
        out.push(call("rsqrt", vec![call("add", vec![deviation, eps])?])?);
    } else {
        let none = Tensor::zeros([0])?;
        out.extend([none.clone().into(), none.into()]);
    }
    if copies {
        out.extend([mean, var]);
    }
    Ok(Some(IValue::tuple(out)))
}

/// Ops by aten's name.
pub(crate) fn find(name: &str) -> Option<Own> {
    Some(match name {
        "batch_norm" => |a| {
            let order = [0, 3, 4, 1, 2, 5, 6, 7];
            done(call("nn.functional.batch_norm", order.iter().map(|&i| at(a, i)).collect()))
        },
        "_native_batch_norm_legit" | "native_batch_norm" => |a| norm(a, at(a, 5).truth()?, 6, false),
        "_native_batch_norm_legit_functional" => |a| norm(a, at(a, 5).truth()?, 6, true),
        "_native_batch_norm_legit_no_training" => |a| norm(a, false, 5, false),
        "instance_norm" => |a| {
            let order = [0, 3, 4, 1, 2, 5, 6, 7];
            done(call("nn.functional.instance_norm", order.iter().map(|&i| at(a, i)).collect()))
        },
        "layer_norm" => |a| {
            if a.keywords.is_empty() { done(call("nn.functional.layer_norm", first(a, 5))) } else { Ok(None) }
        },
        "group_norm" => |a| done(call("nn.functional.group_norm", first(a, 5))),
        "embedding" => |a| {
            let padding = match at(a, 2) {
                IValue::Int(-1) => IValue::None,
                other => other,
            };
            done(call("nn.functional.embedding", vec![at(a, 1), at(a, 0), padding]))
        },
        "_convolution" | "convolution" => convolution,
        "softmax" | "_softmax" => |a| {
            let dtype = a.get(2, "dtype").filter(|v| !matches!(v, IValue::Bool(_))).cloned().unwrap_or(IValue::None);
            done(call_with(
                "nn.functional.softmax",
                vec![at(a, 0)],
                &[("dim", a.need(1, "dim")?.clone()), ("dtype", dtype)],
            ))
        },
        "log_softmax" | "_log_softmax" => |a| {
            let dtype = a.get(2, "dtype").filter(|v| !matches!(v, IValue::Bool(_))).cloned().unwrap_or(IValue::None);
            done(call_with(
                "nn.functional.log_softmax",
                vec![at(a, 0)],
                &[("dim", a.need(1, "dim")?.clone()), ("dtype", dtype)],
            ))
        },
        "dropout_" => |a| {
            let mut list = first(a, 3);
            list.push(true.into());
            done(call("nn.functional.dropout", list))
        },
        "slice" => slice,
        "slice_copy" => slice,
        "index" => |a| {
            let (x, items) = (input(a)?, indices(a.need(1, "indices")?)?);
            Ok(Some(x.index(&items[..])?.into()))
        },
        "index_put_" | "_index_put_impl_" => |a| {
            let (x, items, values, accumulate) = index_put(a)?;
            x.index_put_(&items[..], &values, accumulate)?;
            Ok(Some(x.into()))
        },
        "index_put" => |a| {
            let (x, items, values, accumulate) = index_put(a)?;
            Ok(Some(x.index_put(&items[..], &values, accumulate)?.into()))
        },
        "expand" => |a| done(call("Tensor.expand", first(a, 2))),
        "to" | "_to_copy" => to,
        "type_as" => |a| Ok(Some(input(a)?.to_dtype(at(a, 1).to_tensor()?.dtype())?.into())),
        "tensor" | "scalar_tensor" => tensor,
        "split_with_sizes" => |a| {
            let mut list = first(a, 3);
            list.truncate(3);
            done(call("split", list))
        },
        "upsample_nearest1d" | "upsample_nearest2d" | "upsample_nearest3d" => |a| upsample(a, "nearest", false),
        "upsample_bilinear2d" => |a| upsample(a, "bilinear", true),
        "upsample_linear1d" => |a| upsample(a, "linear", true),
        "upsample_bicubic2d" => |a| upsample(a, "bicubic", true),
        "upsample_trilinear3d" => |a| upsample(a, "trilinear", true),
        "constant_pad_nd" => |a| {
            done(call_with(
                "nn.functional.pad",
                first(a, 2),
                &[("value", a.get(2, "value").cloned().unwrap_or(0i64.into()))],
            ))
        },
        "reflection_pad1d" | "reflection_pad2d" | "reflection_pad3d" => {
            |a| done(call_with("nn.functional.pad", first(a, 2), &[("mode", "reflect".into())]))
        }
        "replication_pad1d" | "replication_pad2d" | "replication_pad3d" => {
            |a| done(call_with("nn.functional.pad", first(a, 2), &[("mode", "replicate".into())]))
        }
        "detach" | "detach_" => |a| Ok(Some(input(a)?.detach().into())),
        "alias" | "lift_fresh" | "lift_fresh_copy" | "_assert_tensor_metadata" | "requires_grad_" => {
            |a| Ok(Some(at(a, 0)))
        }
        "numpy_T" => |a| {
            let x = input(a)?;
            Ok(Some(x.permute((0..x.rank() as isize).rev().collect::<Vec<_>>())?.into()))
        },
        "is_floating_point" => |a| Ok(Some(input(a)?.dtype().is_float().into())),
        "einsum" => |a| {
            let parts = tensors(a.need(1, "tensors")?)?;
            let equation = a.need(0, "equation")?.to_str()?;
            Ok(Some(rushlight_tensor::einsum(&equation, &parts.iter().collect::<Vec<_>>())?.into()))
        },
        "mse_loss" => |a| loss(a, "nn.functional.mse_loss"),
        "l1_loss" => |a| loss(a, "nn.functional.l1_loss"),
        "cross_entropy_loss" => |a| {
            let weight = a.get(2, "weight").cloned().unwrap_or(IValue::None);
            let how = reduction(a.get(3, "reduction").cloned().unwrap_or(IValue::None))?;
            let ignore = a.get(4, "ignore_index").cloned().unwrap_or(IValue::Int(-100));
            let smooth = a.get(5, "label_smoothing").cloned().unwrap_or(IValue::Float(0.0));
            done(call_with(
                "nn.functional.cross_entropy",
                first(a, 2),
                &[("weight", weight), ("reduction", how), ("ignore_index", ignore), ("label_smoothing", smooth)],
            ))
        },
        "nll_loss_nd" => |a| {
            let how = reduction(a.get(3, "reduction").cloned().unwrap_or(IValue::None))?;
            done(call_with("nn.functional.nll_loss", first(a, 2), &[("weight", at(a, 2)), ("reduction", how)]))
        },
        "grid_sampler" | "grid_sampler_2d" => |a| {
            let mode =
                ["bilinear", "nearest", "bicubic"].get(at(a, 2).to_int()? as usize).copied().unwrap_or("bilinear");
            let fill = ["zeros", "border", "reflection"].get(at(a, 3).to_int()? as usize).copied().unwrap_or("zeros");
            done(call("nn.functional._grid_sample", vec![at(a, 0), at(a, 1), mode.into(), fill.into(), at(a, 4)]))
        },
        "_transformer_encoder_layer_fwd" => encoder_layer,
        "_native_multi_head_attention" => native_attention,
        _ => return None,
    })
}
