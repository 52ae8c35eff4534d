//! Joining, splitting, repeating, reordering, viewing and padding.

use crate::support::args::Args;
use rushlight_core::{Error, Result};
use rushlight_tensor::{Indexing, PadMode, Tensor, cat, meshgrid, stack};

fn pad_mode(a: &Args) -> Result<PadMode> {
    Ok(match a.text(2, "mode") {
        None | Some("constant") => PadMode::Constant(a.scalar_or(3, "value", 0.0)?),
        Some("reflect") => PadMode::Reflect,
        Some("replicate") => PadMode::Replicate,
        Some("circular") => PadMode::Circular,
        Some(other) => return Err(Error::value(format!("pad: there is no mode {other:?}"))),
    })
}

fn pair(dims: Vec<isize>) -> Result<[isize; 2]> {
    dims.try_into().map_err(|d| Error::value(format!("not two dimensions: {d:?}")))
}

fn split(a: &Args) -> Result<Vec<Tensor>> {
    let dim = a.dim(2, "dim", 0)?;
    match a.is_list(1, "split_size_or_sections") {
        true => a.t(0)?.split_with_sizes(&a.sizes(1, "split_size_or_sections")?, dim),
        false => a.t(0)?.split(a.size(1, "split_size_or_sections", 1)?, dim),
    }
}

super::ops! {
    "cat" => |a| cat(&a.all(0)?, a.dim(1, "dim", 0)?);
    "stack" => |a| stack(&a.all(0)?, a.dim(1, "dim", 0)?);
    "meshgrid" => |a| meshgrid(&a.all(0)?, if a.text(1, "indexing") == Some("xy") { Indexing::Xy } else { Indexing::Ij });
    "kron" => |a| a.t(0)?.kron(a.t(1)?);
    "split" => |a| split(a);
    "chunk" => |a| a.t(0)?.chunk(a.size(1, "chunks", 1)?, a.dim(2, "dim", 0)?);
    "repeat" => |a| a.t(0)?.repeat(&a.sizes(1, "repeats")?);
    "tile" => |a| a.t(0)?.tile(&a.sizes(1, "dims")?);
    "repeat_interleave" => |a| a.t(0)?.repeat_interleave(a.arg(1)?, a.opt_dim(2, "dim")?);
    "roll" => |a| a.t(0)?.roll(&a.dims(1, "shifts")?, &a.dims(2, "dims")?);
    "flip" => |a| a.t(0)?.flip(&a.dims(1, "dims")?);
    "rot90" => |a| a.t(0)?.rot90(a.dim(1, "k", 1)?, pair(a.dims(2, "dims")?)?);
    "tril" => |a| a.t(0)?.tril(a.int(1, "diagonal", 0)?);
    "triu" => |a| a.t(0)?.triu(a.int(1, "diagonal", 0)?);
    "diag" => |a| a.t(0)?.diag(a.dim(1, "diagonal", 0)?);
    "diagonal" => |a| a.t(0)?.diagonal(a.dim(1, "offset", 0)?, a.dim(2, "dim1", 0)?, a.dim(3, "dim2", 1)?);
    "diag_embed" => |a| a.t(0)?.diag_embed(a.dim(1, "offset", 0)?, a.dim(2, "dim1", -2)?, a.dim(3, "dim2", -1)?);
    "trace" => |a| a.t(0)?.trace();
    "movedim" => |a| a.t(0)?.movedim(&a.dims(1, "source")?, &a.dims(2, "destination")?);
    "swapaxes" => |a| a.t(0)?.swapaxes(a.dim(1, "axis0", 0)?, a.dim(2, "axis1", 0)?);
    "transpose" => |a| a.t(0)?.transpose(a.dim(1, "dim0", 0)?, a.dim(2, "dim1", 0)?);
    "permute" => |a| a.t(0)?.permute(&a.dims(1, "dims")?);
    "flatten" => |a| a.t(0)?.flatten(a.dim(1, "start_dim", 0)?, a.dim(2, "end_dim", -1)?);
    "unflatten" => |a| a.t(0)?.unflatten(a.dim(1, "dim", 0)?, &a.dims(2, "sizes")?);
    "expand" => |a| a.t(0)?.expand(&a.dims(1, "size")?);
    "squeeze" => |a| match a.has(1, "dim") {
        true => a.t(0)?.squeeze(&a.dims(1, "dim")?),
        false => a.t(0)?.squeeze(..),
    };
    "unsqueeze" => |a| a.t(0)?.unsqueeze(a.dim(1, "dim", 0)?);
    "narrow" => |a| a.t(0)?.narrow(a.dim(1, "dim", 0)?, a.dim(2, "start", 0)?, a.size(3, "length", 0)?);
    "select" => |a| a.t(0)?.select(a.dim(1, "dim", 0)?, a.dim(2, "index", 0)?);
    "view" => |a| a.t(0)?.view(&a.dims(1, "size")?);
    "reshape" => |a| a.t(0)?.reshape(&a.dims(1, "shape")?);
    "unfold" => |a| a.t(0)?.unfold(a.dim(1, "dimension", 0)?, a.size(2, "size", 1)?, a.size(3, "step", 1)?);
    "as_strided" => |a| a.t(0)?.as_strided(&a.sizes(1, "size")?, &a.sizes(2, "stride")?, a.size(3, "storage_offset", 0)?);
    "pad" => |a| a.t(0)?.pad(&a.dims(1, "pad")?, pad_mode(a)?);
}
