//! Changes of placement, and their derivatives.

use super::Placement;
use super::placement::{check, chunk, local_shape, order, own_chunk};
use crate::comm::ReduceOp;
use crate::group::ProcessGroup;
use crate::mesh::DeviceMesh;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Context, Function, apply};
use std::sync::Arc;

/// A local part under other placements. Recorded: the gradient goes the other way.
pub fn redistribute(
    local: &Tensor,
    mesh: &Arc<DeviceMesh>,
    shape: &[usize],
    from: &[Placement],
    to: &[Placement],
) -> Result<Tensor> {
    if from == to {
        return Ok(local.clone());
    }
    let step = Redistribute { mesh: mesh.clone(), shape: shape.to_vec(), from: from.to_vec(), to: to.to_vec() };
    one(apply(step, &[local])?)
}

/// The same local part, whose gradient comes with the placements `from` and is brought to `to`.
pub fn regrade(
    local: &Tensor,
    mesh: &Arc<DeviceMesh>,
    shape: &[usize],
    from: &[Placement],
    to: &[Placement],
) -> Result<Tensor> {
    if from == to {
        return Ok(local.clone());
    }
    let step = Regrade { mesh: mesh.clone(), shape: shape.to_vec(), from: from.to_vec(), to: to.to_vec() };
    one(apply(step, &[local])?)
}

fn one(outputs: Vec<Tensor>) -> Result<Tensor> {
    outputs.into_iter().next().ok_or_else(|| Error::value("redistribute: no output"))
}

struct Redistribute {
    mesh: Arc<DeviceMesh>,
    shape: Vec<usize>,
    from: Vec<Placement>,
    to: Vec<Placement>,
}

impl Function for Redistribute {
    fn forward(&self, _ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![transform(inputs[0], &self.mesh, &self.shape, &self.from, &self.to)?])
    }

    fn backward(&self, _saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let Some(grad) = &grads[0] else { return Ok(vec![None]) };
        let gradient = |all: &[Placement]| all.iter().map(|p| p.of_gradient()).collect::<Vec<_>>();
        let moved = redistribute(grad, &self.mesh, &self.shape, &gradient(&self.to), &gradient(&self.from))?;
        // Each rank's part of a mean counts once in as many ranks.
        let is_mean = |p: &Placement| *p == Placement::Partial(ReduceOp::Mean);
        let ranks = |all: &[Placement]| -> f64 {
            all.iter().zip(self.mesh.shape()).filter(|(p, _)| is_mean(p)).map(|(_, n)| *n as f64).product()
        };
        let scale = ranks(&self.to) / ranks(&self.from);
        Ok(vec![Some(if scale == 1.0 { moved } else { moved.mul(scale)? })])
    }

    fn name(&self) -> &'static str {
        "redistribute"
    }
}

struct Regrade {
    mesh: Arc<DeviceMesh>,
    shape: Vec<usize>,
    from: Vec<Placement>,
    to: Vec<Placement>,
}

impl Function for Regrade {
    fn forward(&self, _ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let Some(grad) = &grads[0] else { return Ok(vec![None]) };
        Ok(vec![Some(redistribute(grad, &self.mesh, &self.shape, &self.from, &self.to)?)])
    }

    fn name(&self) -> &'static str {
        "regrade"
    }
}

/// Brings a local part from one placement to another, without recording.
fn transform(
    local: &Tensor,
    mesh: &DeviceMesh,
    shape: &[usize],
    from: &[Placement],
    to: &[Placement],
) -> Result<Tensor> {
    check("redistribute", shape, mesh, from)?;
    check("redistribute", shape, mesh, to)?;
    let expected = local_shape(shape, mesh, from)?;
    if local.shape() != expected {
        return Err(Error::shape(format!(
            "redistribute: the local part of shape {:?} should have {expected:?}: {shape:?} placed {from:?}",
            local.shape()
        )));
    }
    let (undone, mut now) = (order(from), from.to_vec());
    let changes = changed(&undone, from, to);
    let mut t = local.clone();
    for &i in undone.iter().rev().filter(|i| changes[**i]) {
        let group = mesh.group(i)?;
        (t, now[i]) = match (now[i], to[i]) {
            (Placement::Partial(op), Placement::Shard(dim)) if can_scatter(&t, dim, group.size(), op, &changes) => {
                (reduce_scatter(&t, dim, op, &**group)?, to[i])
            }
            (Placement::Partial(op), _) => (all_reduce(&t, op, &**group)?, Placement::Replicate),
            (Placement::Shard(dim) | Placement::StridedShard(dim), _) => {
                // The size before this mesh dimension split it.
                let mut before = now.clone();
                before[i] = Placement::Replicate;
                let length = local_shape(shape, mesh, &before)?[dim];
                (all_gather(&t, dim, length, &**group)?, Placement::Replicate)
            }
            (Placement::Replicate, _) => (t, Placement::Replicate),
        };
    }
    for i in order(to) {
        if now[i] == to[i] {
            continue;
        }
        let group = mesh.group(i)?;
        t = match to[i] {
            Placement::Shard(dim) | Placement::StridedShard(dim) => {
                own_chunk(&t, dim, group.size(), group.rank())?.contiguous()?
            }
            Placement::Partial(ReduceOp::Sum) => t.div(group.size() as f64)?,
            Placement::Partial(ReduceOp::Product | ReduceOp::BitXor) => {
                return Err(Error::unsupported(format!("redistribute: a replicated tensor cannot become {}", to[i])));
            }
            // Means, extrema and bitwise reductions of equal operands are the operand.
            Placement::Partial(_) | Placement::Replicate => t,
        };
    }
    Ok(t)
}

/// The mesh dimensions to undo: those whose placement changes, and those that split a part of one of these further.
fn changed(order: &[usize], from: &[Placement], to: &[Placement]) -> Vec<bool> {
    let mut changes: Vec<bool> = from.iter().zip(to).map(|(a, b)| a != b).collect();
    for (at, &i) in order.iter().enumerate() {
        if changes[i] {
            for &later in &order[at + 1..] {
                let Some(dim) = from[later].shard_dim() else { continue };
                changes[later] |= from[i].shard_dim() == Some(dim) || to[i].shard_dim() == Some(dim);
            }
        }
    }
    changes
}

/// Whether a partial tensor becomes a shard by one reduce-scatter: no other mesh dimension changes, and it divides.
fn can_scatter(t: &Tensor, dim: usize, parts: usize, op: ReduceOp, changes: &[bool]) -> bool {
    changes.iter().filter(|c| **c).count() == 1
        && t.shape()[dim].is_multiple_of(parts)
        && matches!(op, ReduceOp::Sum | ReduceOp::Mean)
}

fn all_reduce(t: &Tensor, op: ReduceOp, group: &dyn ProcessGroup) -> Result<Tensor> {
    let total = t.detach().contiguous()?;
    let total = if total.shares_storage(t) { total.copy()? } else { total };
    group.all_reduce(&total, op)?;
    Ok(total)
}

fn reduce_scatter(t: &Tensor, dim: usize, op: ReduceOp, group: &dyn ProcessGroup) -> Result<Tensor> {
    let parts = (0..group.size())
        .map(|i| own_chunk(&t.detach(), dim, group.size(), i)?.contiguous())
        .collect::<Result<Vec<_>>>()?;
    let out = Tensor::empty_with(parts[0].shape(), (t.dtype(), t.device()))?;
    group.reduce_scatter(&out, &parts, op)?;
    Ok(out)
}

fn all_gather(t: &Tensor, dim: usize, length: usize, group: &dyn ProcessGroup) -> Result<Tensor> {
    let outputs = (0..group.size())
        .map(|i| {
            let mut shape = t.shape().to_vec();
            shape[dim] = chunk(length, group.size(), i).1;
            Tensor::empty_with(shape, (t.dtype(), t.device()))
        })
        .collect::<Result<Vec<_>>>()?;
    group.all_gather(&outputs, &t.detach().contiguous()?)?;
    Tensor::cat(&outputs.iter().collect::<Vec<_>>(), dim as isize)
}
