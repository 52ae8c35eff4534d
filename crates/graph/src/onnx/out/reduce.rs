//! Reductions and sorting as ONNX nodes.

use super::super::proto::Attribute::Int;
use super::call::{Call, wrap};
use super::graph::{Exporter, Val};
use super::pointwise::{Names, one};
use rushlight_core::{DType, Result, Scalar};

/// The dimensions of a reduction; `None` for all.
fn dims(c: &Call, rank: usize) -> Result<Option<Vec<i64>>> {
    let given = c.ints("dim", 0)?.filter(|d| !d.is_empty());
    given.map(|dims| dims.iter().map(|&d| wrap(d, rank).map(|d| d as i64)).collect()).transpose()
}

/// Adds a reduction. Axes are an input since opset 18.
pub(super) fn reduce(
    x: &mut Exporter,
    op: &'static str,
    name: &str,
    dims: Option<&[i64]>,
    keep: bool,
) -> Result<String> {
    let attributes = vec![("keepdims", Int(i64::from(keep)))];
    Ok(match dims {
        Some(dims) => {
            let axes = x.ints(dims)?;
            x.node(op, &[name, &axes], attributes)
        }
        None => x.node(op, &[name], attributes),
    })
}

pub(super) fn emit(x: &mut Exporter, c: &Call) -> Names {
    let Ok(input) = c.input() else { return Ok(None) };
    let rank = input[0].rank();
    let keep = c.flag("keepdim").unwrap_or(false);
    let Ok(out) = c.result() else { return Ok(None) };
    let dtype = out[0].dtype();
    match c.name.as_str() {
        "sum" | "mean" | "prod" | "amax" | "amin" | "logsumexp" => {
            let op = match c.name.as_str() {
                "sum" => "ReduceSum",
                "mean" => "ReduceMean",
                "prod" => "ReduceProd",
                "amax" => "ReduceMax",
                "amin" => "ReduceMin",
                _ => "ReduceLogSumExp",
            };
            let name = x.operand(c.first()?, dtype)?;
            if rank == 0 {
                return one(name);
            }
            one(reduce(x, op, &name, dims(c, rank)?.as_deref(), keep)?)
        }
        "any" | "all" => {
            let flags = x.operand(c.first()?, DType::Bool)?;
            let name = x.cast(&flags, DType::I32)?;
            let op = if c.name == "any" { "ReduceMax" } else { "ReduceMin" };
            let out = reduce(x, op, &name, dims(c, rank)?.as_deref(), keep)?;
            one(x.cast(&out, DType::Bool)?)
        }
        "max" | "min" => {
            let is_max = c.name == "max";
            if let Some(other) = c.get("other") {
                let (a, b) = (x.operand(c.first()?, dtype)?, x.operand(other, dtype)?);
                return one(x.op(if is_max { "Max" } else { "Min" }, &[&a, &b]));
            }
            let name = x.name(&input)?;
            let op = if is_max { "ReduceMax" } else { "ReduceMin" };
            let Some(dims) = dims(c, rank)? else { return one(reduce(x, op, &name, None, false)?) };
            let values = reduce(x, op, &name, Some(&dims), keep)?;
            let attributes = vec![("axis", Int(dims[0])), ("keepdims", Int(i64::from(keep)))];
            let at = x.node(if is_max { "ArgMax" } else { "ArgMin" }, &[&name], attributes);
            Ok(Some(vec![values, at]))
        }
        "argmax" | "argmin" => {
            let mut name = x.name(&input)?;
            let axis = match dims(c, rank)? {
                Some(dims) => dims[0],
                None => {
                    name = super::shape::reshape(x, &name, &[Val::int(-1)])?;
                    0
                }
            };
            let op = if c.name == "argmax" { "ArgMax" } else { "ArgMin" };
            one(x.node(op, &[&name], vec![("axis", Int(axis)), ("keepdims", Int(i64::from(keep)))]))
        }
        "var" | "std" | "var_mean" | "std_mean" => variance(x, c, keep),
        "norm" | "vector_norm" => {
            let p = if c.get("p").is_some() { c.float("p", 2.0)? } else { c.float("ord", 2.0)? };
            let op = norm(c, p)?;
            let name = x.operand(c.first()?, dtype)?;
            one(reduce(x, op, &name, dims(c, rank)?.as_deref(), keep)?)
        }
        "normalize" => {
            let op = norm(c, c.float("p", 2.0)?)?;
            let name = x.name(&input)?;
            let dim = c.dim("dim", 1, rank)? as i64;
            let size = reduce(x, op, &name, Some(&[dim]), true)?;
            let least = x.float(c.float("eps", 1e-12)?, dtype)?;
            let size = x.op("Max", &[&size, &least]);
            one(x.op("Div", &[&name, &size]))
        }
        "topk" | "sort" | "argsort" => {
            let name = x.name(&input)?;
            let axis = c.dim("dim", -1, rank)?;
            let count = if c.name == "topk" { c.need("k")?.clone() } else { x.size_of(&input, axis)? };
            let count = x.sizes(&[count])?;
            let largest = if c.name == "topk" { c.flag("largest")? } else { c.flag("descending")? };
            let attributes = vec![("axis", Int(axis as i64)), ("largest", Int(i64::from(largest)))];
            let mut both = x.nodes("TopK", &[&name, &count], attributes, 2);
            Ok(Some(if c.name == "argsort" { vec![both.swap_remove(1)] } else { both }))
        }
        // The last of the k smallest.
        "kthvalue" => {
            let name = x.name(&input)?;
            let (axis, k) = (c.dim("dim", -1, rank)?, c.int("k", 1)?);
            let count = x.ints(&[k])?;
            let attributes = vec![("axis", Int(axis as i64)), ("largest", Int(0))];
            let both = x.nodes("TopK", &[&name, &count], attributes, 2);
            let last = match c.flag("keepdim")? {
                true => x.ints(&[k - 1])?,
                false => x.scalar(Scalar::Int(k - 1), DType::I64)?,
            };
            let at = |n: &String| x.node("Gather", &[n, &last], vec![("axis", Int(axis as i64))]);
            Ok(Some(both.iter().map(at).collect()))
        }
        _ => Ok(None),
    }
}

fn norm(c: &Call, p: f64) -> Result<&'static str> {
    match p {
        2.0 => Ok("ReduceL2"),
        1.0 => Ok("ReduceL1"),
        p => c.refuse(&format!("p = {p}")),
    }
}

fn variance(x: &mut Exporter, c: &Call, keep: bool) -> Names {
    let input = c.input()?;
    let rank = input[0].rank();
    let dtype = input[0].dtype();
    let dims = dims(c, rank)?.unwrap_or_else(|| (0..rank as i64).collect());
    let correction = match (c.get("unbiased"), c.get("correction")) {
        (Some(_), _) => f64::from(u8::from(c.flag("unbiased")?)),
        (None, Some(_)) => c.float("correction", 1.0)?,
        (None, None) => 1.0,
    };
    let name = x.name(&input)?;
    let mean = reduce(x, "ReduceMean", &name, Some(&dims), true)?;
    let d = x.op("Sub", &[&name, &mean]);
    let d = x.op("Mul", &[&d, &d]);
    let total = reduce(x, "ReduceSum", &d, Some(&dims), keep)?;
    let mut count = Val::int(1);
    for &dim in &dims {
        let size = x.size_of(&input, dim as usize)?;
        count = x.combine("Mul", &count, &size)?;
    }
    let count = x.operand(&count, dtype)?;
    let less = x.float(correction, dtype)?;
    let count = x.op("Sub", &[&count, &less]);
    let mut out = x.op("Div", &[&total, &count]);
    if c.name.starts_with("std") {
        out = x.op("Sqrt", &[&out]);
    }
    if !c.name.ends_with("_mean") {
        return one(out);
    }
    let mean = reduce(x, "ReduceMean", &name, Some(&dims), keep)?;
    Ok(Some(vec![out, mean]))
}
