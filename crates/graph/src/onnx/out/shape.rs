//! Ops that move elements or make tensors, as ONNX nodes.

use super::super::proto::Attribute::{Int, Ints, Str, Tensor as Constant};
use super::call::{Call, tensor, wrap};
use super::graph::{Exporter, Val};
use super::pointwise::{Names, one};
use crate::ivalue::IValue;
use rushlight_core::{DType, Result, Scalar};
use rushlight_tensor::Tensor;
use std::rc::Rc;

pub(super) fn emit(x: &mut Exporter, c: &Call) -> Names {
    if let Some(found) = views(x, c)? {
        return one(found);
    }
    if let Some(found) = parts(x, c)? {
        return Ok(Some(found));
    }
    if let Some(found) = picks(x, c)? {
        return one(found);
    }
    makes(x, c)
}

/// A reshape to sizes, of which one dynamic one may stay open.
pub(super) fn reshape(x: &mut Exporter, name: &str, sizes: &[Val]) -> Result<String> {
    let is_open = |v: &Val| matches!(v, Val::Plain(IValue::Int(-1)));
    let is_empty = |v: &Val| matches!(v, Val::Plain(IValue::Int(0)));
    let mut sizes = sizes.to_vec();
    if !sizes.iter().any(|v| is_open(v) || is_empty(v)) && sizes.iter().filter(|v| v.has_dynamic()).count() == 1 {
        sizes.iter_mut().filter(|v| v.has_dynamic()).for_each(|v| *v = Val::int(-1));
    }
    let zero = i64::from(sizes.iter().any(|v| is_empty(v) || v.has_dynamic()) && !sizes.iter().any(is_open));
    let shape = x.sizes(&sizes)?;
    Ok(x.node("Reshape", &[name, &shape], vec![("allowzero", Int(zero))]))
}

fn permute(x: &mut Exporter, name: &str, order: Vec<i64>) -> String {
    x.node("Transpose", &[name], vec![("perm", Ints(order))])
}

/// Views and copies of the whole tensor.
fn views(x: &mut Exporter, c: &Call) -> Result<Option<String>> {
    let Ok(input) = c.input() else { return Ok(None) };
    let rank = input[0].rank();
    Ok(Some(match c.name.as_str() {
        "view" | "reshape" => {
            let Some(sizes) = c.get("shape") else { return c.refuse("another dtype of the same bytes") };
            let sizes = sizes.items().unwrap_or_else(|| vec![sizes.clone()]);
            let name = x.name(&input)?;
            reshape(x, &name, &sizes)?
        }
        "view_as" | "reshape_as" => {
            let other = tensor(c.need("other")?)?;
            let (name, sizes) = (x.name(&input)?, x.shape_of(&other)?);
            reshape(x, &name, &sizes)?
        }
        "flatten" => {
            let name = x.name(&input)?;
            if rank == 0 {
                return reshape(x, &name, &[Val::int(1)]).map(Some);
            }
            let (start, end) = (c.dim("start_dim", 0, rank)?, c.dim("end_dim", -1, rank)?);
            let mut sizes = x.shape_of(&input)?;
            sizes.splice(start..=end, [Val::int(-1)]);
            reshape(x, &name, &sizes)?
        }
        "unflatten" => {
            let (name, dim) = (x.name(&input)?, c.dim("dim", 0, rank)?);
            let mut sizes = x.shape_of(&input)?;
            sizes.splice(dim..=dim, c.sizes("sizes")?);
            reshape(x, &name, &sizes)?
        }
        "unsqueeze" => {
            let (name, dim) = (x.name(&input)?, wrap(c.int("dim", 0)?, rank + 1)?);
            let axes = x.ints(&[dim as i64])?;
            x.op("Unsqueeze", &[&name, &axes])
        }
        "squeeze" => {
            let name = x.name(&input)?;
            let given = match c.ints("dim", 0)? {
                Some(dims) => dims.iter().map(|&d| wrap(d, rank)).collect::<Result<Vec<_>>>()?,
                None => (0..rank).collect(),
            };
            let axes: Vec<i64> =
                given.iter().filter(|&&d| input[0].shape().get(d) == Some(&1)).map(|&d| d as i64).collect();
            if axes.is_empty() {
                return Ok(Some(name));
            }
            let axes = x.ints(&axes)?;
            x.op("Squeeze", &[&name, &axes])
        }
        "transpose" | "swapaxes" | "swapdims" | "t" | "adjoint" | "numpy_T" | "permute" | "movedim" | "moveaxis" => {
            let name = x.name(&input)?;
            permute(x, &name, order(c, rank)?)
        }
        "expand" | "broadcast_to" => {
            let name = x.name(&input)?;
            let open = |v: &Val| matches!(v, Val::Plain(IValue::Int(-1)));
            let sizes: Vec<Val> =
                c.sizes("size")?.into_iter().map(|v| if open(&v) { Val::int(1) } else { v }).collect();
            let shape = x.sizes(&sizes)?;
            x.op("Expand", &[&name, &shape])
        }
        "expand_as" => {
            let name = x.name(&input)?;
            let sizes = x.shape_of(&tensor(c.need("other")?)?)?;
            let shape = x.sizes(&sizes)?;
            x.op("Expand", &[&name, &shape])
        }
        "repeat" | "tile" => {
            let mut name = x.name(&input)?;
            let mut counts = c.sizes(if c.name == "repeat" { "repeats" } else { "dims" })?;
            while counts.len() < rank {
                counts.insert(0, Val::int(1));
            }
            if counts.len() > rank {
                let axes = x.ints(&(0..(counts.len() - rank) as i64).collect::<Vec<_>>())?;
                name = x.op("Unsqueeze", &[&name, &axes]);
            }
            let counts = x.sizes(&counts)?;
            x.op("Tile", &[&name, &counts])
        }
        "repeat_interleave" => {
            let (Some(Val::Plain(IValue::Int(n))), Some(_)) = (c.get("repeats"), c.get("dim")) else {
                return c.refuse("repeats that are a tensor, or without a dimension");
            };
            let (name, dim) = (x.name(&input)?, c.dim("dim", 0, rank)?);
            let axes = x.ints(&[dim as i64 + 1])?;
            let name = x.op("Unsqueeze", &[&name, &axes]);
            let mut counts = vec![1; rank + 1];
            counts[dim + 1] = *n;
            let counts = x.ints(&counts)?;
            let name = x.op("Tile", &[&name, &counts]);
            let mut sizes = x.shape_of(&input)?;
            sizes[dim] = x.combine("Mul", &sizes[dim].clone(), &Val::int(*n))?;
            reshape(x, &name, &sizes)?
        }
        "flip" => {
            let mut name = x.name(&input)?;
            let dims = c.ints("dims", 0)?.unwrap_or_default();
            let dims = dims.iter().map(|&d| wrap(d, rank).map(|d| d as i64)).collect::<Result<Vec<_>>>()?;
            let (from, to) = (x.ints(&vec![-1; dims.len()])?, x.ints(&vec![i64::MIN; dims.len()])?);
            let (axes, steps) = (x.ints(&dims)?, x.ints(&vec![-1; dims.len()])?);
            name = x.op("Slice", &[&name, &from, &to, &axes, &steps]);
            name
        }
        "roll" => {
            let Some(dims) = c.ints("dims", 0)? else { return c.refuse("all elements as one dimension; pass dims") };
            let shifts = c.ints("shifts", dims.len())?.unwrap_or_default();
            let mut name = x.name(&input)?;
            for (&dim, &shift) in dims.iter().zip(&shifts) {
                let dim = wrap(dim, rank)?;
                let zero = x.ints(&[0])?;
                let (cut, end, axes) = (x.ints(&[-shift])?, x.ints(&[i64::MAX])?, x.ints(&[dim as i64])?);
                let tail = x.op("Slice", &[&name, &cut, &end, &axes]);
                let head = x.op("Slice", &[&name, &zero, &cut, &axes]);
                name = x.node("Concat", &[&tail, &head], vec![("axis", Int(dim as i64))]);
            }
            name
        }
        "pad" | "constant_pad_nd" => pad(x, c, rank)?,
        "tril" | "triu" => {
            let (name, k) = (x.name(&input)?, x.scalar(Scalar::Int(c.int("diagonal", 0)?), DType::I64)?);
            x.node("Trilu", &[&name, &k], vec![("upper", Int(i64::from(c.name == "triu")))])
        }
        "diff" => {
            let (dim, dtype) = (c.dim("dim", -1, rank)?, c.dtype()?);
            if c.int("n", 1)? != 1 || dtype == DType::Bool {
                return c.refuse("n above one, or bools");
            }
            let mut parts = Vec::new();
            for part in [c.get("prepend"), Some(c.first()?), c.get("append")].into_iter().flatten() {
                parts.push(x.operand(part, dtype)?);
            }
            let mut name = parts[0].clone();
            if parts.len() > 1 {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                name = x.node("Concat", &parts, vec![("axis", Int(dim as i64))]);
            }
            let (zero, one, last, end) = (x.ints(&[0])?, x.ints(&[1])?, x.ints(&[-1])?, x.ints(&[i64::MAX])?);
            let axes = x.ints(&[dim as i64])?;
            let (later, sooner) =
                (x.op("Slice", &[&name, &one, &end, &axes]), x.op("Slice", &[&name, &zero, &last, &axes]));
            x.op("Sub", &[&later, &sooner])
        }
        "pixel_shuffle" => {
            let name = x.name(&input)?;
            let factor = c.int("upscale_factor", 1)?;
            x.node("DepthToSpace", &[&name], vec![("blocksize", Int(factor)), ("mode", Str("CRD".into()))])
        }
        "pixel_unshuffle" => {
            let name = x.name(&input)?;
            let n = c.int("downscale_factor", 1)?;
            let s = x.shape_of(&input)?;
            if rank != 4 {
                return c.refuse("an input that has not four dimensions");
            }
            let [b, ch, h, w] = [0, 1, 2, 3].map(|d| s[d].clone());
            let small = |x: &mut Exporter, v: &Val| -> Result<Val> {
                match v {
                    Val::Int(all, _) => {
                        x.arithmetic("Div", &[v.clone(), Val::int(n)], all.iter().map(|i| i / n).collect())
                    }
                    other => Ok(Val::int(other.on(0).to_int()? / n)),
                }
            };
            let (h, w) = (small(x, &h)?, small(x, &w)?);
            let k = Val::int(n);
            let split = reshape(x, &name, &[b.clone(), ch.clone(), h.clone(), k.clone(), w.clone(), k])?;
            let moved = permute(x, &split, vec![0, 1, 3, 5, 2, 4]);
            let channels = x.combine("Mul", &ch, &Val::int(n * n))?;
            reshape(x, &moved, &[b, channels, h, w])?
        }
        _ => return Ok(None),
    }))
}

/// The order of dimensions of an op that permutes them.
fn order(c: &Call, rank: usize) -> Result<Vec<i64>> {
    let mut out: Vec<i64> = (0..rank as i64).collect();
    match c.name.as_str() {
        "numpy_T" => out.reverse(),
        "t" | "adjoint" => {
            if rank > 1 {
                out.swap(rank - 2, rank - 1);
            }
        }
        "permute" => {
            let dims = c.ints("dims", 0)?.unwrap_or_default();
            out = dims.iter().map(|&d| wrap(d, rank).map(|d| d as i64)).collect::<Result<_>>()?;
        }
        "movedim" | "moveaxis" => {
            let wrapped = |name: &str| -> Result<Vec<usize>> {
                c.ints(name, 0)?.unwrap_or_default().iter().map(|&d| wrap(d, rank)).collect()
            };
            let (from, to) = (wrapped("source")?, wrapped("destination")?);
            let mut rest = (0..rank).filter(|d| !from.contains(d));
            out = (0..rank)
                .map(|at| match to.iter().position(|&t| t == at) {
                    Some(i) => from.get(i).copied().unwrap_or(at) as i64,
                    None => rest.next().unwrap_or(at) as i64,
                })
                .collect();
        }
        _ => {
            let names = [("dim0", "dim1"), ("axis0", "axis1")];
            for (p, q) in names {
                if c.get(p).is_some() {
                    out.swap(c.dim(p, 0, rank)?, c.dim(q, 0, rank)?);
                }
            }
        }
    }
    Ok(out)
}

fn pad(x: &mut Exporter, c: &Call, rank: usize) -> Result<String> {
    let (name, dtype) = (x.name(&c.input()?)?, c.dtype()?);
    let given = c.sizes("pad")?;
    let mut all = vec![Val::int(0); 2 * rank];
    for (at, pair) in given.chunks(2).enumerate() {
        let ([before, after], Some(dim)) = (pair, rank.checked_sub(1 + at)) else { return c.refuse("these sizes") };
        (all[dim], all[rank + dim]) = (before.clone(), after.clone());
    }
    let mode = match c.text("mode", "constant")?.as_str() {
        "constant" => "constant",
        "reflect" => "reflect",
        "replicate" => "edge",
        "circular" if x.opset >= 19 => "wrap",
        other => return c.refuse(&format!("mode '{other}' in opset {}", x.opset)),
    };
    let pads = x.sizes(&all)?;
    let attributes = vec![("mode", Str(mode.into()))];
    if mode != "constant" {
        return Ok(x.node("Pad", &[&name, &pads], attributes));
    }
    let value = x.float(c.float("value", 0.0)?, dtype)?;
    Ok(x.node("Pad", &[&name, &pads, &value], attributes))
}

/// Ops that take tensors apart or put them together.
fn parts(x: &mut Exporter, c: &Call) -> Names {
    match c.name.as_str() {
        "cat" | "concat" | "concatenate" | "stack" => {
            let items = c.first()?.items().unwrap_or_default();
            let out = c.result()?;
            let rank = out[0].rank();
            let dim = wrap(c.int("dim", 0)?, rank)?;
            let axes = x.ints(&[dim as i64])?;
            let mut names = Vec::new();
            for item in &items {
                let all = tensor(item)?;
                // PyTorch skips empty tensors of one dimension.
                if c.name != "stack" && all[0].rank() != rank && all[0].numel() == 0 {
                    continue;
                }
                let name = x.operand(item, out[0].dtype())?;
                names.push(if c.name == "stack" { x.op("Unsqueeze", &[&name, &axes]) } else { name });
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(Some(vec![x.node("Concat", &names, vec![("axis", Int(dim as i64))])]))
        }
        "split" | "chunk" | "split_with_sizes" | "tensor_split" | "unsafe_chunk" | "unsafe_split" => {
            let input = c.input()?;
            let dim = c.dim("dim", 0, input[0].rank())?;
            let mut made = Vec::new();
            c.out.tensors(&mut made);
            let size = |t: &Rc<[Tensor]>| t.iter().map(|t| t.shape()[dim]).collect::<Vec<_>>();
            if made.iter().map(size).any(|s| s.iter().any(|&n| n != s[0])) {
                return c.refuse("parts of a dynamic size");
            }
            let sizes: Vec<i64> = made.iter().map(|t| t[0].shape()[dim] as i64).collect();
            let name = x.name(&input)?;
            if sizes.len() == 1 {
                return Ok(Some(vec![name]));
            }
            let sizes = x.ints(&sizes)?;
            Ok(Some(x.nodes("Split", &[&name, &sizes], vec![("axis", Int(dim as i64))], made.len())))
        }
        "unbind" => {
            let input = c.input()?;
            let dim = c.dim("dim", 0, input[0].rank())?;
            let name = x.name(&input)?;
            let mut made = Vec::new();
            c.out.tensors(&mut made);
            let mut out = Vec::new();
            for at in 0..made.len() {
                let at = x.scalar(Scalar::Int(at as i64), DType::I64)?;
                out.push(x.node("Gather", &[&name, &at], vec![("axis", Int(dim as i64))]));
            }
            Ok(Some(out))
        }
        _ => Ok(None),
    }
}

/// Ops that pick elements.
fn picks(x: &mut Exporter, c: &Call) -> Result<Option<String>> {
    let names = [
        "select",
        "narrow",
        "slice",
        "slice_copy",
        "index_select",
        "gather",
        "take_along_dim",
        "scatter",
        "scatter_add",
        "index",
        "embedding",
        "index_put",
    ];
    if !names.contains(&c.name.as_str()) {
        return Ok(None);
    }
    let input = c.input()?;
    let rank = input[0].rank();
    let dim = if c.get("dim").is_some() { c.dim("dim", 0, rank)? } else { 0 };
    let axis = vec![("axis", Int(dim as i64))];
    let cut = |x: &mut Exporter, start: &Val, end: &Val, step: i64| -> Result<String> {
        let name = x.name(&input)?;
        let (start, end) = (x.sizes(std::slice::from_ref(start))?, x.sizes(std::slice::from_ref(end))?);
        let (axes, steps) = (x.ints(&[dim as i64])?, x.ints(&[step])?);
        Ok(x.op("Slice", &[&name, &start, &end, &axes, &steps]))
    };
    Ok(Some(match c.name.as_str() {
        "select" => {
            let (name, at) = (x.name(&input)?, x.size(c.need("index")?)?);
            x.node("Gather", &[&name, &at], axis)
        }
        "narrow" => {
            let start = c.need("start")?.clone();
            let end = x.combine("Add", &start, c.need("length")?)?;
            cut(x, &start, &end, 1)?
        }
        "slice" | "slice_copy" => {
            let start = c.get("start").cloned().unwrap_or(Val::int(0));
            let end = c.get("end").cloned().unwrap_or(Val::int(i64::MAX));
            cut(x, &start, &end, c.int("step", 1)?)?
        }
        "embedding" => {
            if c.get("max_norm").is_some() {
                return c.refuse("max_norm");
            }
            let (table, at) = (x.name(&tensor(c.need("weight")?)?)?, x.name(&tensor(c.need("input")?)?)?);
            x.node("Gather", &[&table, &at], vec![("axis", Int(0))])
        }
        "index_select" => {
            let (name, at) = (x.name(&input)?, x.operand(c.need("index")?, DType::I64)?);
            x.node("Gather", &[&name, &at], axis)
        }
        "gather" => {
            let (name, at) = (x.name(&input)?, x.operand(c.need("index")?, DType::I64)?);
            x.node("GatherElements", &[&name, &at], axis)
        }
        "scatter" | "scatter_add" => {
            let (name, index) = (x.name(&input)?, tensor(c.need("index")?)?);
            let at = x.operand(c.need("index")?, DType::I64)?;
            if c.get("reduce").is_some() {
                return c.refuse("reduce");
            }
            let dtype = input[0].dtype();
            let source = match c.get("src").or(c.get("value")) {
                Some(Val::Tensor(all)) => {
                    if all[0].shape() != index[0].shape() {
                        return c.refuse("a source larger than the index");
                    }
                    x.name(all)?
                }
                Some(number) => {
                    let (value, sizes) = (x.operand(number, dtype)?, x.shape_of(&index)?);
                    let shape = x.sizes(&sizes)?;
                    x.op("Expand", &[&value, &shape])
                }
                None => return c.refuse("these arguments"),
            };
            let mut attributes = axis;
            if c.name == "scatter_add" {
                attributes.push(("reduction", Str("add".into())));
            }
            x.node("ScatterElements", &[&name, &at, &source], attributes)
        }
        "index" => index(x, c, &input)?,
        _ => return Ok(None),
    }))
}

/// `x[i, :, j]` with tensors as indices.
fn index(x: &mut Exporter, c: &Call, input: &Rc<[Tensor]>) -> Result<String> {
    let items = c.sizes("indices")?;
    let mut dims = Vec::new();
    for (dim, item) in items.iter().enumerate().filter(|(_, v)| !v.is_none()) {
        dims.push((dim, tensor(item)?));
    }
    let name = x.name(input)?;
    let rank = input[0].rank();
    if let [(dim, mask)] = &dims[..]
        && mask[0].dtype() == DType::Bool
    {
        if *dim != 0 {
            return c.refuse("a mask of inner dimensions");
        }
        let mask = x.name(mask)?;
        let places = x.op("NonZero", &[&mask]);
        let places = permute(x, &places, vec![1, 0]);
        return Ok(x.op("GatherND", &[&name, &places]));
    }
    if dims.iter().any(|(_, t)| t[0].dtype() == DType::Bool) {
        return c.refuse("several masks");
    }
    if let [(dim, at)] = &dims[..] {
        let at = x.operand(&Val::Tensor(at.clone()), DType::I64)?;
        return Ok(x.node("Gather", &[&name, &at], vec![("axis", Int(*dim as i64))]));
    }
    // Several indices: the indexed dimensions come first and are picked together.
    let picked: Vec<usize> = dims.iter().map(|(d, _)| *d).collect();
    let rest: Vec<usize> = (0..rank).filter(|d| !picked.contains(d)).collect();
    let front = permute(x, &name, picked.iter().chain(&rest).map(|&d| d as i64).collect());
    let zero = x.scalar(Scalar::Int(0), DType::I64)?;
    let mut names = Vec::new();
    for (_, at) in &dims {
        names.push(x.operand(&Val::Tensor(at.clone()), DType::I64)?);
    }
    // The sum of all, times zero, has the shape that the indices have together.
    let mut shaped = names[0].clone();
    for other in &names[1..] {
        shaped = x.op("Add", &[&shaped, other]);
    }
    let shaped = x.op("Mul", &[&shaped, &zero]);
    let last = x.ints(&[-1])?;
    let mut columns = Vec::new();
    for at in &names {
        let at = x.op("Add", &[at, &shaped]);
        columns.push(x.op("Unsqueeze", &[&at, &last]));
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let places = x.node("Concat", &columns, vec![("axis", Int(-1))]);
    let out = x.op("GatherND", &[&front, &places]);
    let is_adjacent = picked.windows(2).all(|w| w[1] == w[0] + 1);
    if !is_adjacent || picked[0] == 0 {
        return Ok(out);
    }
    let width = dims.iter().map(|(_, t)| t[0].rank()).max().unwrap_or(0);
    let before = picked[0];
    let order = (width..width + before).chain(0..width).chain(width + before..width + rest.len());
    Ok(permute(x, &out, order.map(|d| d as i64).collect()))
}

/// Ops that make tensors of dynamic sizes.
fn makes(x: &mut Exporter, c: &Call) -> Names {
    let Ok(out) = c.result() else { return Ok(None) };
    let dtype = out[0].dtype();
    let value = match c.name.as_str() {
        "zeros" | "zeros_like" | "new_zeros" | "empty" | "empty_like" | "new_empty" => Scalar::Int(0),
        "ones" | "ones_like" | "new_ones" => Scalar::Int(1),
        "full" | "full_like" | "new_full" => match c.need("fill_value")? {
            Val::Plain(IValue::Float(v)) => Scalar::Float(*v),
            Val::Plain(v) => Scalar::Int(v.to_int()?),
            _ => return c.refuse("a value that is a tensor"),
        },
        "arange" => {
            let start = c.get("start").cloned().unwrap_or(Val::int(0));
            let step = c.get("step").cloned().unwrap_or(Val::int(1));
            // Half floats have no Range.
            let wide = if dtype.is_float() { DType::F32 } else { dtype };
            let (start, end) = (x.operand(&start, wide)?, x.operand(c.need("end")?, wide)?);
            let step = x.operand(&step, wide)?;
            let name = x.op("Range", &[&start, &end, &step]);
            return one(if wide == dtype { name } else { x.cast(&name, dtype)? });
        }
        "tensor" | "scalar_tensor" | "NumToTensor" => {
            let data = c.first()?;
            let name = match data.items() {
                Some(items) => x.sizes(&items)?,
                None => x.size(data)?,
            };
            return one(if dtype == DType::I64 { name } else { x.cast(&name, dtype)? });
        }
        _ => return Ok(None),
    };
    let shape = if c.name.ends_with("_like") {
        let sizes = x.shape_of(&c.input()?)?;
        x.sizes(&sizes)?
    } else {
        let sizes = c.sizes("size")?;
        x.sizes(&sizes)?
    };
    let filler = match value {
        Scalar::Float(v) => Tensor::new_with([v], DType::F64)?,
        other => Tensor::new_with([other.to_i64()], DType::I64)?,
    };
    one(x.node("ConstantOfShape", &[&shape], vec![("value", Constant(filler.to_dtype(dtype)?))]))
}
