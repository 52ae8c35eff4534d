//! Placements, and the parts that they give to ranks.

use crate::comm::ReduceOp;
use crate::mesh::DeviceMesh;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::fmt;

/// How a tensor lies along one dimension of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each rank has a chunk of a dimension of the tensor: the chunks of `Tensor::chunk`, so the last ones may be
    /// smaller or empty.
    Shard(usize),
    /// A shard of what all [`Placement::Shard`]s have left: sharded data parallelism splits the parts of tensor
    /// parallelism, though its mesh dimension comes first.
    StridedShard(usize),
    /// Each rank has the whole.
    Replicate,
    /// Each rank has a summand, or an operand of another reduction.
    Partial(ReduceOp),
}

impl Placement {
    /// The dimension that is sharded.
    pub fn shard_dim(self) -> Option<usize> {
        match self {
            Placement::Shard(dim) | Placement::StridedShard(dim) => Some(dim),
            _ => None,
        }
    }

    /// The placement of a tensor's gradient.
    pub fn of_gradient(self) -> Self {
        match self {
            Placement::Partial(_) => Placement::Replicate,
            other => other,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Shard(dim) => write!(f, "Shard({dim})"),
            Placement::StridedShard(dim) => write!(f, "StridedShard({dim})"),
            Placement::Replicate => write!(f, "Replicate()"),
            Placement::Partial(op) => write!(f, "Partial({op})"),
        }
    }
}

/// Start and length of chunk `index` of `length` elements.
pub(super) fn chunk(length: usize, parts: usize, index: usize) -> (usize, usize) {
    let size = length.div_ceil(parts.max(1));
    let start = (size * index).min(length);
    (start, size.min(length - start))
}

/// Mesh dimensions in the order in which they split a tensor: strided shards last.
pub(super) fn order(placements: &[Placement]) -> Vec<usize> {
    let is_strided = |i: &usize| matches!(placements[*i], Placement::StridedShard(_));
    let all = 0..placements.len();
    all.clone().filter(|i| !is_strided(i)).chain(all.filter(is_strided)).collect()
}

pub(super) fn check(call: &str, shape: &[usize], mesh: &DeviceMesh, placements: &[Placement]) -> Result<()> {
    if placements.len() != mesh.ndim() {
        return Err(Error::value(format!(
            "{call}: {} placements for a mesh of {} dimensions",
            placements.len(),
            mesh.ndim()
        )));
    }
    match placements.iter().find(|p| p.shard_dim().is_some_and(|dim| dim >= shape.len())) {
        Some(placement) => Err(Error::value(format!("{call}: {placement} of a tensor of shape {shape:?}"))),
        None => Ok(()),
    }
}

/// Offset and size of this rank's part along each dimension. With strided shards the offset is within the part of the
/// other shards.
pub fn local_part(shape: &[usize], mesh: &DeviceMesh, placements: &[Placement]) -> Result<Vec<(usize, usize)>> {
    check("DTensor", shape, mesh, placements)?;
    let mut part: Vec<(usize, usize)> = shape.iter().map(|&n| (0, n)).collect();
    for i in order(placements) {
        if let Some(dim) = placements[i].shard_dim() {
            let (start, length) = chunk(part[dim].1, mesh.shape()[i], mesh.group(i)?.rank());
            part[dim] = (part[dim].0 + start, length);
        }
    }
    Ok(part)
}

/// The shape of this rank's part.
pub fn local_shape(shape: &[usize], mesh: &DeviceMesh, placements: &[Placement]) -> Result<Vec<usize>> {
    Ok(local_part(shape, mesh, placements)?.into_iter().map(|(_, n)| n).collect())
}

/// This rank's chunk of a dimension.
pub(super) fn own_chunk(tensor: &Tensor, dim: usize, parts: usize, index: usize) -> Result<Tensor> {
    let (start, length) = chunk(tensor.shape()[dim], parts, index);
    tensor.narrow(dim as isize, start as isize, length)
}
