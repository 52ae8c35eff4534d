//! Scans, sorting, searching and counting.

use crate::support::args::Args;
use rushlight_core::{DType, Result};
use rushlight_tensor::{Arg, Tensor, Unique};

/// Sorting is always stable, so the argument has no effect.
fn descending(a: &Args) -> Result<(isize, bool)> {
    a.flag(usize::MAX, "stable", true)?;
    Ok((a.dim(1, "dim", -1)?, a.flag(2, "descending", false)?))
}

fn unique(
    a: &Args,
    plain: impl Fn(&Tensor) -> Result<Tensor>,
    full: impl Fn(&Tensor) -> Result<Unique>,
) -> Result<Vec<Tensor>> {
    a.flag(usize::MAX, "sorted", true)?;
    let (inverse, counts) = (a.flag(usize::MAX, "return_inverse", false)?, a.flag(usize::MAX, "return_counts", false)?);
    if !inverse && !counts {
        return Ok(vec![plain(a.t(0)?)?]);
    }
    let found = full(a.t(0)?)?;
    let mut out = vec![found.values];
    out.extend(inverse.then_some(found.inverse));
    out.extend(counts.then_some(found.counts));
    Ok(out)
}

fn as_int32(a: &Args, places: Tensor) -> Result<Tensor> {
    if a.flag(usize::MAX, "out_int32", false)? { places.to_dtype(DType::I32) } else { Ok(places) }
}

fn searchsorted(a: &Args) -> Result<Tensor> {
    let right = a.flag(usize::MAX, "right", false)? || a.text(usize::MAX, "side") == Some("right");
    let places = match a.opt(usize::MAX, "sorter") {
        Some(sorter) => a.t(0)?.searchsorted_with_sorter(a.arg(1)?, right, sorter)?,
        None => a.t(0)?.searchsorted(a.arg(1)?, right)?,
    };
    as_int32(a, places)
}

fn bucketize(a: &Args) -> Result<Tensor> {
    let right = a.flag(usize::MAX, "right", false)?;
    let places = match a.arg(0)? {
        Arg::Tensor(x) => x.bucketize(a.t(1)?, right)?,
        number => a.t(1)?.searchsorted(number, right)?,
    };
    as_int32(a, places)
}

super::ops! {
    "cumsum" => |a| match a.dtype("dtype")? {
        Some(d) => a.t(0)?.cumsum_as(a.dim(1, "dim", 0)?, d),
        None => a.t(0)?.cumsum(a.dim(1, "dim", 0)?),
    };
    "cumprod" => |a| match a.dtype("dtype")? {
        Some(d) => a.t(0)?.cumprod_as(a.dim(1, "dim", 0)?, d),
        None => a.t(0)?.cumprod(a.dim(1, "dim", 0)?),
    };
    "logcumsumexp" => |a| a.t(0)?.logcumsumexp(a.dim(1, "dim", 0)?);
    "cummax" => |a| a.t(0)?.cummax(a.dim(1, "dim", 0)?);
    "cummin" => |a| a.t(0)?.cummin(a.dim(1, "dim", 0)?);
    "diff" => |a| a.t(0)?.diff(a.size(1, "n", 1)?, a.dim(2, "dim", -1)?, a.opt(3, "prepend"), a.opt(4, "append"));
    "sort" => |a| {
        let (dim, descending) = descending(a)?;
        a.t(0)?.sort(dim, descending)
    };
    "argsort" => |a| {
        let (dim, descending) = descending(a)?;
        a.t(0)?.argsort(dim, descending)
    };
    "topk" => |a| a.t(0)?.topk(a.size(1, "k", 1)?, a.dim(2, "dim", -1)?, a.flag(3, "largest", true)?);
    "kthvalue" => |a| a.t(0)?.kthvalue(a.size(1, "k", 1)?, a.dim(2, "dim", -1)?, a.flag(3, "keepdim", false)?);
    "unique" => |a| match a.has(usize::MAX, "dim") {
        true => {
            let dim = a.dim(usize::MAX, "dim", 0)?;
            unique(a, |x| x.unique_dim(dim), |x| x.unique_dim_full(dim))
        }
        false => unique(a, Tensor::unique, Tensor::unique_full),
    };
    "unique_consecutive" => |a| unique(a, Tensor::unique_consecutive, Tensor::unique_consecutive_full);
    "searchsorted" => |a| searchsorted(a);
    "bucketize" => |a| bucketize(a);
    "bincount" => |a| a.t(0)?.bincount(a.opt(1, "weights"), a.size(2, "minlength", 0)?);
    "histc" => |a| a.t(0)?.histc(a.size(1, "bins", 100)?, a.f64(2, "min", 0.0)?, a.f64(3, "max", 0.0)?);
}
