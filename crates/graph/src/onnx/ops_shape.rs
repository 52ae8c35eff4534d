//! ONNX's operators on shapes and positions.

use super::ops::*;
use crate::IValue;
use crate::ops::Args;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::{IndexItem, Tensor};

fn wrap(axis: i64, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|&at| at <= rank)
        .ok_or_else(|| Error::shape(format!("axis {axis} of a tensor with {rank} dimensions")))
}

fn reshape(a: &Args) -> Found {
    let x = t(a, 0)?;
    let mut shape = ints_at(a, 1, "shape")?.ok_or_else(|| Error::value("Reshape without a shape"))?;
    if int(a, "allowzero", 0)? == 0 {
        for (at, size) in shape.iter_mut().enumerate() {
            if *size == 0 {
                *size = x.size(at as isize)? as i64;
            }
        }
    }
    some(x.reshape(&shape[..])?)
}

fn squeeze(a: &Args) -> Found {
    let x = t(a, 0)?;
    some(match ints_at(a, 1, "axes")? {
        None => op("squeeze", vec![x.into()])?,
        Some(axes) => op("squeeze", vec![x.into(), list(&axes)])?,
    })
}

fn unsqueeze(a: &Args) -> Found {
    let mut x = t(a, 0)?;
    let axes = ints_at(a, 1, "axes")?.unwrap_or_default();
    let rank = x.rank() + axes.len();
    let mut axes = axes.iter().map(|&d| wrap(d, rank)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    for axis in axes {
        x = x.unsqueeze(axis as isize)?;
    }
    some(x)
}

fn expand(a: &Args) -> Found {
    let (x, shape) = (t(a, 0)?, ints_at(a, 1, "shape")?.unwrap_or_default());
    let ones = Tensor::ones(shape.iter().map(|&n| n.max(0) as usize).collect::<Vec<_>>())?.to_dtype(x.dtype())?;
    if x.dtype() == DType::Bool {
        return some(op("logical_and", vec![x.into(), ones.into()])?);
    }
    some(op("mul", vec![x.into(), ones.into()])?)
}

/// Slices; a negative step goes backwards.
fn slice(a: &Args) -> Found {
    let mut x = t(a, 0)?;
    let starts = ints_at(a, 1, "starts")?.unwrap_or_default();
    let ends = ints_at(a, 2, "ends")?.unwrap_or_default();
    let axes = ints_at(a, 3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = ints_at(a, 4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return Err(Error::value("Slice: starts, ends, axes and steps have different lengths"));
    }
    for at in 0..starts.len() {
        let axis = wrap(axes[at], x.rank())?;
        let n = x.size(axis as isize)? as i64;
        let step = steps[at];
        let index: Vec<i64> = if step > 0 {
            let clip = |v: i64| (if v < 0 { v.saturating_add(n) } else { v }).clamp(0, n);
            let (start, end) = (clip(starts[at]), clip(ends[at]));
            if step == 1 {
                x = x.narrow(axis as isize, start as isize, (end - start).max(0) as usize)?;
                continue;
            }
            (start..end).step_by(step as usize).collect()
        } else if step < 0 {
            let start = (if starts[at] < 0 { starts[at].saturating_add(n) } else { starts[at] }).clamp(-1, n - 1);
            let end = (if ends[at] < 0 { ends[at].saturating_add(n) } else { ends[at] }).clamp(-1, n - 1);
            (end + 1..=start).rev().step_by(step.unsigned_abs() as usize).collect()
        } else {
            return Err(Error::value("Slice: a step of zero"));
        };
        x = x.index_select(axis as isize, &Tensor::new_with(&index[..], DType::I64)?)?;
    }
    some(x)
}

fn split(a: &Args) -> Found {
    let (x, axis) = (t(a, 0)?, int(a, "axis", 0)? as isize);
    let sizes = match ints_at(a, 1, "split")? {
        Some(sizes) => sizes,
        None => {
            let n = x.size(axis)? as i64;
            let parts = int(a, "num_outputs", int(a, "_outputs", 1)?)?.max(1);
            let each = (n + parts - 1) / parts;
            (0..parts).map(|i| (n - i * each).clamp(0, each)).collect()
        }
    };
    let sizes = sizes.iter().map(|&n| usize::try_from(n)).collect::<Result<Vec<_>, _>>();
    let sizes = sizes.map_err(|_| Error::shape("Split: a negative size"))?;
    let parts = x.split_with_sizes(&sizes, axis)?;
    Ok(Some(IValue::tuple(parts.into_iter().map(IValue::Tensor))))
}

/// Indices without negative ones.
fn positive(index: Tensor, size: usize) -> Result<Tensor> {
    let index = index.to_dtype(DType::I64)?;
    let below = op("lt", vec![index.clone().into(), 0i64.into()])?;
    let moved = op("add", vec![index.clone().into(), (size as i64).into()])?;
    op("where", vec![below.into(), moved.into(), index.into()])
}

fn gather(a: &Args) -> Found {
    let x = t(a, 0)?;
    let axis = wrap(int(a, "axis", 0)?, x.rank())?;
    let index = positive(t(a, 1)?, x.size(axis as isize)?)?;
    let mut shape = x.shape()[..axis].to_vec();
    shape.extend(index.shape());
    shape.extend(&x.shape()[axis + 1..]);
    let flat = index.reshape([index.numel()])?;
    some(x.index_select(axis as isize, &flat)?.reshape(&shape[..])?)
}

/// Indices of each dimension, of the last dimension of an index tensor.
fn columns(index: &Tensor, shape: &[usize]) -> Result<Vec<IndexItem>> {
    let count = index.size(-1)?;
    (0..count)
        .map(|d| {
            let size = shape.get(d).copied().ok_or_else(|| Error::shape("more indices than dimensions"))?;
            Ok(IndexItem::Tensor(positive(index.select(-1, d as isize)?, size)?))
        })
        .collect()
}

fn gather_nd(a: &Args) -> Found {
    let (x, index, batch) = (t(a, 0)?, t(a, 1)?, int(a, "batch_dims", 0)?.max(0) as usize);
    if batch == 0 {
        let items = columns(&index, x.shape())?;
        return some(x.index(&items[..])?);
    }
    let lead: usize = x.shape()[..batch].iter().product();
    let join = |t: &Tensor| -> Result<Tensor> {
        let mut shape = vec![lead];
        shape.extend(&t.shape()[batch..]);
        t.reshape(&shape[..])
    };
    let (flat, at) = (join(&x)?, join(&index)?);
    let mut parts = Vec::new();
    for i in 0..lead {
        let part = flat.select(0, i as isize)?;
        let items = columns(&at.select(0, i as isize)?, part.shape())?;
        parts.push(part.index(&items[..])?);
    }
    let all = rushlight_tensor::stack(&parts.iter().collect::<Vec<_>>(), 0)?;
    let mut shape = x.shape()[..batch].to_vec();
    shape.extend(&all.shape()[1..]);
    some(all.reshape(&shape[..])?)
}

fn scatter(a: &Args) -> Found {
    let (x, updates) = (t(a, 0)?, t(a, 2)?);
    let axis = int(a, "axis", 0)?;
    let index = positive(t(a, 1)?, x.size(axis as isize)?)?;
    let how = match text(a, "reduction", "none")?.as_str() {
        "none" => return some(op("scatter", vec![x.into(), axis.into(), index.into(), updates.into()])?),
        "add" => "sum",
        "mul" => "prod",
        "max" => "amax",
        "min" => "amin",
        other => return Err(Error::unsupported(format!("the reduction '{other}'"))),
    };
    some(op("scatter_reduce", vec![x.into(), axis.into(), index.into(), updates.into(), how.into()])?)
}

fn scatter_nd(a: &Args) -> Found {
    let (x, index, updates) = (t(a, 0)?, t(a, 1)?, t(a, 2)?);
    let items = columns(&index, x.shape())?;
    match text(a, "reduction", "none")?.as_str() {
        "none" => some(x.index_put(&items[..], &updates, false)?),
        "add" => some(x.index_put(&items[..], &updates, true)?),
        other => Err(Error::unsupported(format!("ScatterND with the reduction '{other}'"))),
    }
}

fn pad(a: &Args) -> Found {
    let x = t(a, 0)?;
    let pads = ints_at(a, 1, "pads")?.unwrap_or_default();
    let value = opt(a, 2).map(|t| t.item::<f64>()).transpose()?.unwrap_or(float(a, "value", 0.0)?);
    let axes = ints_at(a, 3, "axes")?.unwrap_or_else(|| (0..x.rank() as i64).collect());
    if pads.len() != 2 * axes.len() {
        return Err(Error::value("Pad: two numbers per axis are needed"));
    }
    let mode = match text(a, "mode", "constant")?.as_str() {
        "constant" => "constant",
        "reflect" => "reflect",
        "edge" => "replicate",
        "wrap" => "circular",
        other => return Err(Error::unsupported(format!("Pad's mode '{other}'"))),
    };
    let mut out = x;
    for (at, &axis) in axes.iter().enumerate() {
        let (axis, before, after) = (wrap(axis, out.rank())? as isize, pads[at], pads[at + axes.len()]);
        if before == 0 && after == 0 {
            continue;
        }
        let dtype = out.dtype();
        // The padding of one dimension, which becomes the last of three.
        let moved = out.movedim([axis], [-1])?;
        let lead = moved.shape().to_vec();
        let flat = moved.reshape([
            1,
            moved.numel() / lead.last().copied().unwrap_or(1).max(1),
            lead.last().copied().unwrap_or(0),
        ])?;
        let flat = if dtype.is_float() { flat } else { flat.to_dtype(DType::F64)? };
        let args = vec![flat.into(), list(&[before, after]), mode.into()];
        let padded = match mode {
            "constant" => op("nn.functional.pad", [args, vec![value.into()]].concat())?,
            _ => op("nn.functional.pad", args)?,
        };
        let mut shape = lead;
        let last = shape.len() - 1;
        shape[last] = padded.size(-1)?;
        out = padded.to_dtype(dtype)?.reshape(&shape[..])?.movedim([-1], [axis])?;
    }
    some(out)
}

fn constant(a: &Args) -> Found {
    // The name says the kind, so that one is always asked for.
    a.asked.borrow_mut().extend(a.keywords.iter().take(1).map(|(name, _)| name.clone()));
    let (name, value) = a.keywords.first().ok_or_else(|| Error::value("Constant without a value"))?;
    match (name.as_str(), value) {
        ("value", IValue::Tensor(t)) => some(t.clone()),
        ("value_int", v) => some(Tensor::scalar(v.to_int()?)?),
        ("value_float", v) => some(Tensor::scalar(v.to_float()?)?.to_dtype(DType::F32)?),
        ("value_ints", v) => some(Tensor::new_with(&v.ints()?[..], DType::I64)?),
        ("value_floats", v) => {
            let all = v.items()?.iter().map(IValue::to_float).collect::<Result<Vec<_>>>()?;
            some(Tensor::new_with(&all[..], DType::F32)?)
        }
        _ => Err(Error::unsupported(format!("Constant with '{name}'"))),
    }
}

fn shape(a: &Args) -> Found {
    let x = t(a, 0)?;
    let rank = x.rank() as i64;
    let clip = |v: i64| (if v < 0 { v + rank } else { v }).clamp(0, rank);
    let (start, end) = (clip(int(a, "start", 0)?), clip(int(a, "end", rank)?));
    let sizes: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
    some(Tensor::new_with(sizes.get(start as usize..end as usize).unwrap_or_default(), DType::I64)?)
}

fn one_hot(a: &Args) -> Found {
    let (index, depth, values) = (t(a, 0)?, t(a, 1)?, t(a, 2)?);
    let depth = depth.reshape([depth.numel()])?.to_dtype(DType::I64)?.to_vec::<i64>()?.first().copied().unwrap_or(0);
    let axis = wrap(int(a, "axis", -1)?, index.rank() + 1)?;
    let axis = if int(a, "axis", -1)? < 0 { (index.rank() as i64 + 1 + int(a, "axis", -1)?) as usize } else { axis };
    let index = positive(index, depth.max(0) as usize)?;
    let classes = op("arange", vec![depth.into()])?;
    let hot = op("eq", vec![index.unsqueeze(-1)?.into(), classes.into()])?.movedim([-1], [axis as isize])?;
    let (off, on) = (values.select(0, 0)?, values.select(0, 1)?);
    some(op("where", vec![hot.into(), on.into(), off.into()])?)
}

fn depth_to_space(a: &Args) -> Found {
    let (x, b) = (t(a, 0)?, int(a, "blocksize", 1)?.max(1) as usize);
    let [n, c, h, w] = *x.shape() else { return Err(Error::shape("DepthToSpace takes four dimensions")) };
    let d = c / (b * b);
    some(if text(a, "mode", "DCR")? == "DCR" {
        x.reshape([n, b, b, d, h, w])?.permute([0, 3, 4, 1, 5, 2])?.reshape([n, d, h * b, w * b])?
    } else {
        x.reshape([n, d, b, b, h, w])?.permute([0, 1, 4, 2, 5, 3])?.reshape([n, d, h * b, w * b])?
    })
}

fn space_to_depth(a: &Args) -> Found {
    let (x, b) = (t(a, 0)?, int(a, "blocksize", 1)?.max(1) as usize);
    let [n, c, h, w] = *x.shape() else { return Err(Error::shape("SpaceToDepth takes four dimensions")) };
    let order = if text(a, "mode", "DCR")? == "DCR" { [0, 3, 5, 1, 2, 4] } else { [0, 1, 3, 5, 2, 4] };
    some(x.reshape([n, c, h / b, b, w / b, b])?.permute(order)?.reshape([n, c * b * b, h / b, w / b])?)
}

fn top_k(a: &Args) -> Found {
    let x = t(a, 0)?;
    // Sorted results are also right where any order is.
    int(a, "sorted", 1)?;
    let k = ints_at(a, 1, "k")?.and_then(|v| v.first().copied()).unwrap_or(1);
    let args: Vec<IValue> =
        vec![x.into(), k.into(), int(a, "axis", -1)?.into(), (int(a, "largest", 1)? != 0).into(), true.into()];
    let out = crate::ops::call("topk", args)?;
    Ok(Some(if int(a, "_outputs", 1)? > 1 { out } else { out.items()?.swap_remove(0) }))
}

fn cumulate(a: &Args) -> Found {
    let mut x = t(a, 0)?;
    let axis = ints_at(a, 1, "axis")?.and_then(|v| v.first().copied()).unwrap_or(0);
    let (reverse, exclusive) = (int(a, "reverse", 0)? != 0, int(a, "exclusive", 0)? != 0);
    let dtype = x.dtype();
    if reverse {
        x = op("flip", vec![x.into(), list(&[axis])])?;
    }
    let mut out = op("cumsum", vec![x.clone().into(), axis.into()])?.to_dtype(dtype)?;
    if exclusive {
        out = op("sub", vec![out.into(), x.into()])?;
    }
    some(if reverse { op("flip", vec![out.into(), list(&[axis])])? } else { out })
}

/// An operator by name.
pub(super) fn find(name: &str) -> Option<fn(&Args) -> Found> {
    Some(match name {
        "Reshape" => reshape,
        "Transpose" => |a| {
            let x = t(a, 0)?;
            let order = ints(a, "perm")?.unwrap_or_else(|| (0..x.rank() as i64).rev().collect());
            some(x.permute(order.iter().map(|&d| d as isize).collect::<Vec<_>>())?)
        },
        "Flatten" => |a| {
            let x = t(a, 0)?;
            let axis = wrap(int(a, "axis", 1)?, x.rank())?;
            let lead: usize = x.shape()[..axis].iter().product();
            let rest: usize = x.shape()[axis..].iter().product();
            some(x.reshape([lead, rest])?)
        },
        "Squeeze" => squeeze,
        "Unsqueeze" => unsqueeze,
        "Expand" => expand,
        "Tile" => |a| {
            let repeats = ints_at(a, 1, "repeats")?.unwrap_or_default();
            some(op("Tensor.repeat", vec![t(a, 0)?.into(), list(&repeats)])?)
        },
        "Slice" => slice,
        "Split" => split,
        "Concat" => |a| {
            let parts = a.list.iter().map(IValue::to_tensor).collect::<Result<Vec<_>>>()?;
            some(rushlight_tensor::cat(&parts.iter().collect::<Vec<_>>(), int(a, "axis", 0)? as isize)?)
        },
        "Gather" => gather,
        "GatherElements" => |a| {
            let (x, axis) = (t(a, 0)?, int(a, "axis", 0)?);
            let index = positive(t(a, 1)?, x.size(axis as isize)?)?;
            some(op("gather", vec![x.into(), axis.into(), index.into()])?)
        },
        "GatherND" => gather_nd,
        "ScatterElements" | "Scatter" => scatter,
        "ScatterND" => scatter_nd,
        "Pad" => pad,
        "Constant" => constant,
        "ConstantOfShape" => |a| {
            let sizes = ints_at(a, 0, "shape")?.unwrap_or_default();
            let sizes: Vec<usize> = sizes.iter().map(|&n| n.max(0) as usize).collect();
            some(match attr(a, "value") {
                Some(IValue::Tensor(v)) => op(
                    "Tensor.expand",
                    vec![v.reshape([1usize; 0])?.into(), list(&sizes.iter().map(|&n| n as i64).collect::<Vec<_>>())],
                )?,
                _ => Tensor::zeros(&sizes[..])?,
            })
        },
        "Shape" => shape,
        "Size" => |a| some(Tensor::scalar(t(a, 0)?.numel() as i64)?),
        "Range" => |a| {
            let (start, end, step) = (t(a, 0)?, t(a, 1)?, t(a, 2)?);
            let dtype = start.dtype();
            let args: Vec<IValue> = if dtype.is_float() {
                [&start, &end, &step].iter().map(|t| t.item::<f64>().map(IValue::Float)).collect::<Result<_>>()?
            } else {
                [&start, &end, &step].iter().map(|t| t.item::<i64>().map(IValue::Int)).collect::<Result<_>>()?
            };
            some(op("arange", args)?.to_dtype(dtype)?)
        },
        "OneHot" => one_hot,
        "TopK" => top_k,
        "NonZero" => |a| some(op("nonzero", vec![t(a, 0)?.into()])?.t()?),
        "DepthToSpace" => depth_to_space,
        "SpaceToDepth" => space_to_depth,
        "Trilu" => |a| {
            let k = opt(a, 1).map(|t| t.item::<i64>()).transpose()?.unwrap_or(0);
            some(op(if int(a, "upper", 1)? != 0 { "triu" } else { "tril" }, vec![t(a, 0)?.into(), k.into()])?)
        },
        "CumSum" => cumulate,
        "Compress" => |a| {
            let (x, mask) = (t(a, 0)?, t(a, 1)?);
            let x = if attr(a, "axis").is_none() { x.reshape([x.numel()])? } else { x };
            let kept = mask
                .to_vec::<bool>()?
                .iter()
                .enumerate()
                .filter(|(_, b)| **b)
                .map(|(i, _)| i as i64)
                .collect::<Vec<_>>();
            some(x.index_select(int(a, "axis", 0)? as isize, &Tensor::new_with(&kept[..], DType::I64)?)?)
        },
        "EyeLike" => |a| {
            let x = t(a, 0)?;
            let [rows, columns] = *x.shape() else { return Err(Error::shape("EyeLike takes a matrix")) };
            let dtype = match attr(a, "dtype") {
                Some(v) => super::proto::dtype(v.to_int()?)?,
                None => x.dtype(),
            };
            let (i, j) = (op("arange", vec![(rows as i64).into()])?, op("arange", vec![(columns as i64).into()])?);
            let i = op("add", vec![i.unsqueeze(1)?.into(), int(a, "k", 0)?.into()])?;
            some(op("eq", vec![i.into(), j.into()])?.to_dtype(dtype)?)
        },
        _ => return None,
    })
}
