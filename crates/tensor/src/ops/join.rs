//! Joining tensors: `cat`, `stack` and relatives.

use super::carried;
use super::pad::PadMode;
use crate::Tensor;
use crate::announce::announced;
use crate::arg::{Arg, result_type};
use crate::autograd::{Grads, record, recording};
use crate::program::is_noting;
use rushlight_core::backend::call;
use rushlight_core::{Dims, Error, Layout, Result};

/// PyTorch's functions of lists under the tensor's name as well: `Tensor::cat(&[&a, &b], 0)?`.
impl Tensor {
    /// [`cat`]: tensors joined along a dimension they have.
    #[doc(alias("concat", "concatenate"))]
    pub fn cat(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
        cat(tensors, dim)
    }

    /// [`stack`]: tensors of one shape joined along a new dimension.
    pub fn stack(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
        stack(tensors, dim)
    }
}

/// Tensors joined along a dimension they have; the other sizes must be equal.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, cat};
/// let x = Tensor::ones([2, 3])?;
/// assert_eq!(cat(&[&x, &x], 0)?.shape(), [4, 3]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[doc(alias("concat", "concatenate"))]
pub fn cat(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::value("cat: expected a non-empty list of tensors"));
    };
    // PyTorch passes over empty one-dimensional tensors.
    let skip = |t: &Tensor| t.shape() == [0];
    let like = tensors.iter().find(|t| !skip(t)).unwrap_or(first);
    if like.rank() == 0 {
        return Err(Error::shape("cat: zero-dimensional tensors cannot be concatenated; use stack"));
    }
    let dim = like.wrap_dim("cat", dim)?;
    let mut shape = Dims::from_slice(like.shape());
    shape[dim] = 0;
    for (i, t) in tensors.iter().enumerate().filter(|(_, t)| !skip(t) || like.shape() == [0]) {
        like.same_device(t, "cat")?;
        let fits = t.rank() == like.rank() && (0..t.rank()).all(|d| d == dim || t.shape()[d] == shape[d]);
        if !fits {
            return Err(Error::shape(format!(
                "cat: sizes of tensors must match except in dimension {dim}: tensor {i} has shape {:?}, the first {:?}",
                t.shape(),
                like.shape()
            )));
        }
        shape[dim] += t.shape()[dim];
    }
    announced!("torch.cat", [tensors, dim]; cat(tensors, dim as isize));
    let args: Vec<Arg> = tensors.iter().map(|t| Arg::Tensor(t)).collect();
    if carried::involved(&args) {
        carried::check_promotion(&args)?;
    }
    let dtype = result_type(&args);
    let channels_last = tensors.iter().filter(|t| !skip(t)).all(|t| t.suggests_channels_last());
    let out = if channels_last {
        first.uninit_in(Layout::channels_last(&shape)?, dtype)?
    } else {
        first.uninit_like(&shape, dtype)?
    };
    let mut start = 0;
    let mut parts = Vec::with_capacity(tensors.len());
    for t in tensors.iter().filter(|t| t.numel() > 0) {
        let size = t.shape()[dim];
        parts.push((*t, t.layout().clone(), out.layout().slice(dim, start, size, 1)));
        start += size;
    }
    copy_parts(&out, &parts)?;
    if dtype.is_differentiable() && recording(tensors) {
        let parts: Vec<_> = tensors.iter().map(|t| (Dims::from_slice(t.shape()), t.dtype(), skip(t))).collect();
        record("cat", tensors, &out, move |ctx, dy| {
            let mut start = 0;
            let mut grads = Grads::new();
            for (i, (shape, dtype, skipped)) in parts.iter().enumerate() {
                if *skipped {
                    grads.push(if ctx.needs(i) {
                        Some(Tensor::zeros_with(shape, (*dtype, dy.device()))?)
                    } else {
                        None
                    });
                    continue;
                }
                let part = dy.narrow(dim as isize, start as isize, shape[dim])?;
                start += shape[dim];
                grads.push(if ctx.needs(i) { Some(part.to_dtype(*dtype)?) } else { None });
            }
            Ok(grads)
        })?;
    }
    Ok(out)
}

/// Copies parts of tensors to parts of a new one: tensors, layouts in their memory, layouts in the new one's. Where
/// calls are launches in one, if all are contiguous.
pub(super) fn copy_parts(out: &Tensor, parts: &[(&Tensor, Layout, Layout)]) -> Result<()> {
    let dtype = out.dtype();
    // Passes know what copies do, not what copies of lists do.
    let lists = out.backend().features().launches && !dtype.is_carried() && !is_noting();
    let simple = |(t, from, to): &(&Tensor, Layout, Layout)| t.dtype() == dtype && from.is_contiguous() && in_rows(to);
    if lists && parts.len() > 1 && parts.iter().all(simple) {
        let from: Vec<_> = parts.iter().map(|(t, from, _)| t.view_as(from)).collect();
        let to: Vec<_> = parts.iter().map(|(.., to)| out.view_as(to)).collect();
        return out.run(call::ForeachCopy { from: call::List::from_slice(&from), to: call::List::from_slice(&to) });
    }
    for (t, from, to) in parts {
        out.run_with(t, call::Copy { src: t.view_as(from), out: out.view_as(to) })?;
    }
    Ok(())
}

/// Whether a layout is contiguous but for one stride: rows with gaps between them.
fn in_rows(layout: &Layout) -> bool {
    let dims: Dims = (0..layout.rank()).filter(|&d| layout.shape()[d] > 1).collect();
    let (shape, strides) = (layout.shape(), layout.strides());
    let gaps = dims.windows(2).filter(|d| strides[d[0]] != shape[d[1]] * strides[d[1]]).count();
    gaps <= 1 && dims.last().is_none_or(|&last| strides[last] == 1)
}

/// Tensors of one shape joined along a new dimension.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, stack};
/// let x = Tensor::ones([3])?;
/// assert_eq!(stack(&[&x, &x], 1)?.shape(), [3, 2]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn stack(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::value("stack: expected a non-empty list of tensors"));
    };
    if let Some((i, t)) = tensors.iter().enumerate().find(|(_, t)| t.shape() != first.shape()) {
        return Err(Error::shape(format!(
            "stack expects each tensor to be equal size, but got {:?} at entry 0 and {:?} at entry {i}",
            first.shape(),
            t.shape()
        )));
    }
    let dim = rushlight_core::layout::wrap_dim(dim, first.rank() + 1).map_err(|e| e.within("stack"))? as isize;
    announced!("torch.stack", [tensors, dim]; stack(tensors, dim));
    let parts = tensors.iter().map(|t| t.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
    cat(&parts.iter().collect::<Vec<_>>(), dim)
}

/// Each tensor with at least `rank` dimensions, as `torch.atleast_1d` and its kin make them.
fn at_least(tensors: &[&Tensor], rank: usize) -> Result<Vec<Tensor>> {
    tensors
        .iter()
        .map(|t| {
            let mut t = t.at_least_1d()?;
            if t.rank() == 1 && rank >= 2 {
                t = t.unsqueeze(0)?;
            }
            if t.rank() == 2 && rank >= 3 {
                t = t.unsqueeze(2)?;
            }
            Ok(t)
        })
        .collect()
}

fn cat_all(tensors: &[Tensor], dim: isize) -> Result<Tensor> {
    cat(&tensors.iter().collect::<Vec<_>>(), dim)
}

/// Tensors joined side by side: vectors end to end, others along dimension 1.
pub fn hstack(tensors: &[&Tensor]) -> Result<Tensor> {
    let parts = at_least(tensors, 1)?;
    let dim = parts.first().is_some_and(|t| t.rank() > 1) as isize;
    cat_all(&parts, dim).map_err(|e| e.within("hstack"))
}

/// Tensors joined on top of each other: vectors as rows, others along dimension 0.
pub fn vstack(tensors: &[&Tensor]) -> Result<Tensor> {
    cat_all(&at_least(tensors, 2)?, 0).map_err(|e| e.within("vstack"))
}

/// Tensors joined behind each other, along dimension 2.
pub fn dstack(tensors: &[&Tensor]) -> Result<Tensor> {
    cat_all(&at_least(tensors, 3)?, 2).map_err(|e| e.within("dstack"))
}

/// Which of two grids' dimensions come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indexing {
    /// The first vector runs along dimension 0: matrix order.
    #[default]
    Ij,
    /// The first vector runs along dimension 1: picture order.
    Xy,
}

/// Vectors stretched to a grid: one tensor per vector, each varying along its own dimension. Views.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Indexing, Tensor, meshgrid};
/// let (x, y) = (Tensor::arange(0, 3, 1)?, Tensor::arange(0, 2, 1)?);
/// let grid = meshgrid(&[&x, &y], Indexing::Xy)?;
/// assert_eq!(grid[0].shape(), [2, 3]);
/// assert_eq!(grid[1].to_vec::<i64>()?, [0, 0, 0, 1, 1, 1]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn meshgrid(tensors: &[&Tensor], indexing: Indexing) -> Result<Vec<Tensor>> {
    let Some(first) = tensors.first() else {
        return Err(Error::value("meshgrid: expects a non-empty list of tensors"));
    };
    if let Some(t) = tensors.iter().find(|t| t.rank() > 1) {
        return Err(Error::shape(format!(
            "meshgrid: expected scalar or 1D tensors in the list, but got shape {:?}",
            t.shape()
        )));
    }
    if let Some(t) = tensors.iter().find(|t| t.dtype() != first.dtype()) {
        return Err(Error::dtype(format!(
            "meshgrid: expects all tensors to have the same dtype, but got {} and {}",
            first.dtype(),
            t.dtype()
        )));
    }
    let shape: Dims = tensors.iter().map(|t| t.numel()).collect();
    let swap = indexing == Indexing::Xy && tensors.len() > 1;
    let mut grids = Vec::with_capacity(tensors.len());
    for (i, t) in tensors.iter().enumerate() {
        let mut own: Dims = shape.iter().map(|_| 1).collect();
        own[i] = t.numel();
        let grid = t.reshape(&own)?.expand(&shape)?;
        grids.push(if swap { grid.transpose(0, 1)? } else { grid });
    }
    Ok(grids)
}

/// All combinations of the vectors' elements, one per row; of one vector, itself.
pub fn cartesian_prod(tensors: &[&Tensor]) -> Result<Tensor> {
    if let Some(t) = tensors.iter().find(|t| t.rank() != 1) {
        return Err(Error::shape(format!("cartesian_prod: expects 1D tensors, but got shape {:?}", t.shape())));
    }
    if let [only] = tensors {
        return Ok((*only).clone());
    }
    let grids = meshgrid(tensors, Indexing::Ij).map_err(|e| e.within("cartesian_prod"))?;
    let columns = grids.iter().map(|g| g.reshape([-1isize])).collect::<Result<Vec<_>>>()?;
    stack(&columns.iter().collect::<Vec<_>>(), 1)
}

/// Matrices (vectors as rows, numbers as one by one) along the diagonal of a matrix of zeros.
pub fn block_diag(tensors: &[&Tensor]) -> Result<Tensor> {
    if let Some(t) = tensors.iter().find(|t| t.rank() > 2) {
        return Err(Error::shape(format!(
            "block_diag: expects tensors of at most 2 dimensions, but got shape {:?}",
            t.shape()
        )));
    }
    let blocks = at_least(tensors, 2)?;
    let total: usize = blocks.iter().map(|b| b.shape()[1]).sum();
    let mut before = 0;
    let mut rows = Vec::with_capacity(blocks.len());
    for block in &blocks {
        let width = block.shape()[1];
        rows.push(block.pad(&[before as isize, (total - before - width) as isize], PadMode::default())?);
        before += width;
    }
    cat_all(&rows, 0).map_err(|e| e.within("block_diag"))
}

impl Tensor {
    /// The Kronecker product: every element times the whole of `other`.
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let (mut a, mut b, mut merged) = (Dims::new(), Dims::new(), Dims::new());
        for i in 0..rank {
            let size = |t: &Tensor| (i + t.rank()).checked_sub(rank).map_or(1, |d| t.shape()[d]);
            let (m, n) = (size(self), size(other));
            a.extend_from_slice(&[m, 1]);
            b.extend_from_slice(&[1, n]);
            merged.push(
                m.checked_mul(n).ok_or_else(|| Error::value("kron: the result is larger than memory can address"))?,
            );
        }
        self.reshape(&a)?.mul(&other.reshape(&b)?)?.reshape(&merged)
    }
}
