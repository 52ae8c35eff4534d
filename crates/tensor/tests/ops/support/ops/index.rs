//! Reading and writing by index.

use crate::support::args::Args;
use rushlight_core::{Error, Result};
use rushlight_tensor::{IndexItem, ScatterReduce, Tensor};

/// A list of optional tensors as an index; `None` is a whole dimension.
fn items(a: &Args, at: usize) -> Result<Vec<IndexItem>> {
    Ok(a.list(at)?.into_iter().map(|t| t.map_or_else(|| (..).into(), IndexItem::from)).collect())
}

fn scatter_reduce(a: &Args) -> Result<Tensor> {
    let reduce = match a.text(4, "reduce") {
        Some("sum") => ScatterReduce::Sum,
        Some("prod") => ScatterReduce::Prod,
        Some("mean") => ScatterReduce::Mean,
        Some("amax") => ScatterReduce::Amax,
        Some("amin") => ScatterReduce::Amin,
        other => return Err(Error::value(format!("scatter_reduce: {other:?}"))),
    };
    a.t(0)?.scatter_reduce(a.dim(1, "dim", 0)?, a.t(2)?, a.t(3)?, reduce, a.flag(5, "include_self", true)?)
}

fn nonzero(a: &Args) -> Result<Vec<Tensor>> {
    match a.flag(1, "as_tuple", false)? {
        true => a.t(0)?.nonzero_tuple(),
        false => Ok(vec![a.t(0)?.nonzero()?]),
    }
}

super::ops! {
    "gather" => |a| a.t(0)?.gather(a.dim(1, "dim", 0)?, a.t(2)?);
    "take_along_dim" => |a| a.t(0)?.take_along_dim(a.t(1)?, a.opt_dim(2, "dim")?);
    "index_select" => |a| a.t(0)?.index_select(a.dim(1, "dim", 0)?, a.t(2)?);
    "take" => |a| a.t(0)?.take(a.t(1)?);
    "masked_select" => |a| a.t(0)?.masked_select(a.t(1)?);
    "nonzero" => |a| nonzero(a);
    "index" => |a| a.t(0)?.index(items(a, 1)?);
    "embedding" => |a| a.t(1)?.embedding(a.t(0)?, a.opt_dim(2, "padding_idx")?, a.flag(3, "scale_grad_by_freq", false)?);
    "one_hot" => |a| match a.has(1, "num_classes") {
        true => a.t(0)?.one_hot(Some(a.size(1, "num_classes", 0)?)),
        false => a.t(0)?.one_hot(None),
    };
    "scatter" => |a| a.t(0)?.scatter(a.dim(1, "dim", 0)?, a.t(2)?, a.arg(3)?);
    "scatter_add" => |a| a.t(0)?.scatter_add(a.dim(1, "dim", 0)?, a.t(2)?, a.t(3)?);
    "scatter_reduce" => |a| scatter_reduce(a);
    "index_add" => |a| a.t(0)?.index_add(a.dim(1, "dim", 0)?, a.t(2)?, a.t(3)?, a.scalar_or(4, "alpha", 1)?);
    "index_copy" => |a| a.t(0)?.index_copy(a.dim(1, "dim", 0)?, a.t(2)?, a.t(3)?);
    "index_fill" => |a| a.t(0)?.index_fill(a.dim(1, "dim", 0)?, a.t(2)?, a.arg(3)?);
    "index_put" => |a| a.t(0)?.index_put(items(a, 1)?, a.t(2)?, a.flag(3, "accumulate", false)?);
    "masked_scatter" => |a| a.t(0)?.masked_scatter(a.t(1)?, a.t(2)?);
}
