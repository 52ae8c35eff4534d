//! The choice of a row of a sharding rule for each dimension of a mesh.

use super::redistribute::{redistribute, regrade};
use super::rules::{Linearity, Rule, Signature};
use super::{Placement, local_shape};
use crate::comm::ReduceOp;
use crate::mesh::DeviceMesh;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// An input of an op.
#[derive(Clone, Debug)]
pub struct Input {
    /// The global shape.
    pub shape: Vec<usize>,
    /// A placement for each dimension of the mesh.
    pub placements: Vec<Placement>,
}

/// How an op runs on local parts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The placements that each input must have.
    pub inputs: Vec<Vec<Placement>>,
    /// The placements of the result.
    pub output: Vec<Placement>,
    /// The global shape of the result.
    pub shape: Vec<usize>,
    /// The shape of the result's local part.
    pub local: Vec<usize>,
    /// Dimensions of the result whose size the op decides; zero in both shapes.
    pub open: Vec<usize>,
}

impl Plan {
    /// The global shape of a result whose local part has a shape.
    pub fn whole(&self, name: &str, local: &[usize]) -> Result<Vec<usize>> {
        if local.len() != self.shape.len() {
            return Err(Error::shape(format!(
                "{name}: the sharding rule gives {} dimensions, the op {local:?}",
                self.shape.len()
            )));
        }
        let mut shape = self.shape.clone();
        self.open.iter().for_each(|&dim| shape[dim] = local[dim]);
        Ok(shape)
    }

    /// An input's local part as the op needs it. If the input is replicated along a mesh dimension and the result is
    /// not, each rank computes a summand of its gradient, so the summands are added up in the backward pass.
    pub fn prepare(
        &self,
        local: &Tensor,
        mesh: &Arc<DeviceMesh>,
        shape: &[usize],
        from: &[Placement],
        to: &[Placement],
    ) -> Result<Tensor> {
        let moved = redistribute(local, mesh, shape, from, to)?;
        if !moved.requires_grad() {
            return Ok(moved);
        }
        let complete: Vec<Placement> = to.iter().map(|p| p.of_gradient()).collect();
        let comes = to.iter().zip(&self.output).zip(&complete).map(|((to, out), gradient)| {
            let splits = *to == Placement::Replicate && *out != Placement::Replicate;
            if splits { Placement::Partial(ReduceOp::Sum) } else { *gradient }
        });
        regrade(&moved, mesh, shape, &comes.collect::<Vec<_>>(), &complete)
    }
}

/// The cheapest row of a rule for each mesh dimension.
pub fn plan(name: &str, rule: &Rule, inputs: &[Input], mesh: &DeviceMesh) -> Result<Plan> {
    if let Some(same) = unchanged(rule, inputs) {
        let (output, shape) = (same.placements.clone(), same.shape.clone());
        let local = local_shape(&shape, mesh, &output)?;
        return Ok(Plan { inputs: vec![output.clone(); inputs.len()], output, shape, local, open: Vec::new() });
    }
    let shapes: Vec<&[usize]> = inputs.iter().map(|i| &i.shape[..]).collect();
    let signature = rule.signature(name, &shapes)?;
    let (mut chosen, mut output) = (vec![Vec::new(); inputs.len()], Vec::new());
    for dim in 0..mesh.ndim() {
        let rows = rows(&signature, inputs.len(), mesh.shape()[dim]);
        let cost = |row: &(Vec<Placement>, Placement)| -> f64 {
            row.0.iter().zip(inputs).map(|(to, input)| cost(input.placements[dim], *to, &input.shape)).sum()
        };
        let best = rows.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).ok_or_else(|| {
            let placed: Vec<String> = inputs.iter().map(|i| format!("{:?}", i.placements)).collect();
            Error::unsupported(format!("{name}: no sharding rule for inputs placed {}", placed.join(", ")))
        })?;
        chosen.iter_mut().zip(&best.0).for_each(|(to, placement)| to.push(*placement));
        output.push(best.1);
    }
    let local = local_shape(&signature.shape, mesh, &output)?;
    Ok(Plan { inputs: chosen, output, shape: signature.shape, local, open: signature.open })
}

/// A pointwise op of inputs that lie alike: its result lies as they do.
fn unchanged<'a>(rule: &Rule, inputs: &'a [Input]) -> Option<&'a Input> {
    let first = inputs.first()?;
    let Rule::Pointwise(linearity) = rule else { return None };
    let alike = inputs.iter().all(|i| i.shape == first.shape && i.placements == first.placements);
    let partial = first.placements.iter().any(|p| matches!(p, Placement::Partial(_)));
    let kept = !partial || *linearity == Linearity::Sum;
    (alike && kept).then_some(first)
}

/// All placements along one mesh dimension that an op can compute on.
fn rows(s: &Signature, inputs: usize, ranks: usize) -> Vec<(Vec<Placement>, Placement)> {
    let mut rows = vec![(vec![Placement::Replicate; inputs], Placement::Replicate)];
    for (number, label) in s.labels.iter().enumerate() {
        let shardable = label.size >= ranks && label.even.iter().all(|n| n.is_multiple_of(ranks));
        let filled = !label.filled || label.size.div_ceil(ranks) * (ranks - 1) < label.size;
        if !shardable || !filled || !(label.kept || label.reduced.is_some()) {
            continue;
        }
        let at = |labels: &[Option<usize>]| labels.iter().position(|l| *l == Some(number));
        let output = match (at(&s.output), label.reduced) {
            (Some(dim), _) => Placement::Shard(dim),
            (None, Some(op)) => Placement::Partial(op),
            (None, None) => continue,
        };
        let mut row: Vec<Placement> =
            s.inputs.iter().map(|labels| at(labels).map_or(Placement::Replicate, Placement::Shard)).collect();
        // A bias is added once: the ranks add summands of it.
        if let Placement::Partial(_) = output {
            s.added.iter().for_each(|&i| row[i] = output);
        }
        rows.push((row, output));
    }
    rows.extend(s.partial.iter().cloned());
    rows
}

/// What a change of placement costs, in elements sent; slices count a little, so that they are not made in vain.
fn cost(from: Placement, to: Placement, shape: &[usize]) -> f64 {
    let size = shape.iter().product::<usize>().max(1) as f64;
    match (from, to) {
        _ if from == to => 0.0,
        (Placement::Replicate, _) => 0.001 * size,
        (Placement::Partial(_), Placement::Shard(_) | Placement::StridedShard(_)) => size,
        (Placement::Partial(_), _) => 2.0 * size,
        (_, Placement::Replicate) => size,
        // Gathered, then cut.
        _ => 1.001 * size,
    }
}
