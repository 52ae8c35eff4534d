//! Tensors put together.

use crate::Tensor;
use crate::arg::{Arg, result_type};
use crate::autograd::{Grads, record, recording};
use rushlight_core::{Dims, Error, Result};

/// Tensors joined along a dimension they have; the other sizes must be equal.
///
/// ```
/// use rushlight_tensor::{Tensor, cat};
/// let x = Tensor::ones([2, 3])?;
/// assert_eq!(cat(&[&x, &x], 0)?.shape(), [4, 3]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
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
    let dim = like.dim(dim).map_err(|e| e.within("cat"))?;
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
    let dtype = result_type(&tensors.iter().map(|t| Arg::Tensor(t)).collect::<Vec<_>>());
    let out = first.uninit_like(&shape, dtype)?;
    let mut start = 0;
    for t in tensors.iter().filter(|t| t.numel() > 0) {
        let size = t.shape()[dim];
        out.backend().copy(t.view(), out.view_as(&out.layout().slice(dim, start, size, 1)))?;
        start += size;
    }
    if dtype.is_float() && recording(tensors) {
        let parts: Vec<_> = tensors.iter().map(|t| (Dims::from_slice(t.shape()), t.dtype(), skip(t))).collect();
        record("cat", tensors, &out, move |ctx, dy| {
            let mut start = 0;
            let mut grads = Grads::new();
            for (i, (shape, dtype, skipped)) in parts.iter().enumerate() {
                if *skipped {
                    grads.push(if ctx.needs(i) { Some(Tensor::zeros_with(shape, (*dtype, dy.device()))?) } else { None });
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

/// Tensors of one shape joined along a new dimension.
///
/// ```
/// use rushlight_tensor::{Tensor, stack};
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
    let parts = tensors.iter().map(|t| t.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
    cat(&parts.iter().collect::<Vec<_>>(), rushlight_core::layout::wrap_dim(dim, first.rank() + 1)? as isize)
}
