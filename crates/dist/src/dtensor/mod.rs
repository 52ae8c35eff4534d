//! Distributed tensors: a global shape, the local part of this rank, and a placement for each dimension of a mesh.
//!
//! A local part is an ordinary tensor, so autograd records ops on it as usual. Gradients follow one convention: that of
//! a replicated tensor is complete and equal on all ranks, that of a shard is the shard's, that of a partial tensor is
//! the replicated gradient of the sum. [`redistribute`] and [`regrade`] keep it.

mod labels;
mod placement;
mod plan;
mod redistribute;
mod rules;
mod view;

pub use labels::Labels;
pub use placement::{Placement, local_part, local_shape};
pub use plan::{Input, Plan, plan};
pub use redistribute::{redistribute, regrade};
pub use rules::{Linearity, Reduction, Rule};

use crate::comm::ReduceOp;
use crate::mesh::DeviceMesh;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// A tensor that the ranks of a mesh hold together.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_dist as dist; }
/// use rushlight::Tensor;
/// use rushlight::dist::{DTensor, DeviceMesh, Placement};
/// use std::sync::Arc;
/// let world = rushlight::dist::init()?;
/// let mesh = Arc::new(DeviceMesh::new(&world, &[1], &["tp"])?);
/// let x = DTensor::distribute(&Tensor::ones([4, 2])?, &mesh, &[Placement::Shard(0)])?;
/// let w = DTensor::distribute(&Tensor::ones([2, 3])?, &mesh, &[Placement::Replicate])?;
/// let y = x.matmul(&w)?;
/// assert_eq!(y.placements(), [Placement::Shard(0)]);
/// assert_eq!(y.full_tensor()?.shape(), [4, 3]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct DTensor {
    local: Tensor,
    mesh: Arc<DeviceMesh>,
    shape: Vec<usize>,
    placements: Vec<Placement>,
}

impl DTensor {
    /// The parts of a tensor that all ranks have. Rank 0 of each mesh dimension has the values that count: they are
    /// broadcast first.
    pub fn distribute(tensor: &Tensor, mesh: &Arc<DeviceMesh>, placements: &[Placement]) -> Result<Self> {
        placement::check("distribute_tensor", tensor.shape(), mesh, placements)?;
        let whole = tensor.detach().contiguous()?;
        let whole = if whole.shares_storage(tensor) && mesh.size() > 1 { whole.copy()? } else { whole };
        for dim in 0..mesh.ndim() {
            mesh.group(dim)?.broadcast(&whole, 0)?;
        }
        let replicated = vec![Placement::Replicate; mesh.ndim()];
        let local = redistribute(&whole, mesh, tensor.shape(), &replicated, placements)?;
        let local = local.contiguous()?.detach().requires_grad_(tensor.requires_grad())?;
        Ok(Self { local, mesh: mesh.clone(), shape: tensor.shape().to_vec(), placements: placements.to_vec() })
    }

    /// A tensor of local parts, of equal size along sharded dimensions.
    pub fn from_local(local: &Tensor, mesh: &Arc<DeviceMesh>, placements: &[Placement]) -> Result<Self> {
        let mut shape = local.shape().to_vec();
        for (placement, n) in placements.iter().zip(mesh.shape()) {
            if let Some(dim) = placement.shard_dim() {
                let rank = shape.len();
                *shape.get_mut(dim).ok_or_else(|| {
                    Error::value(format!("DTensor.from_local: {placement} of a tensor of {rank} dimensions"))
                })? *= n;
            }
        }
        Self::from_parts(local, mesh, &shape, placements)
    }

    /// A tensor of local parts with a known global shape.
    pub fn from_parts(
        local: &Tensor,
        mesh: &Arc<DeviceMesh>,
        shape: &[usize],
        placements: &[Placement],
    ) -> Result<Self> {
        placement::check("DTensor", shape, mesh, placements)?;
        let expected = local_shape(shape, mesh, placements)?;
        if expected != local.shape() {
            return Err(Error::shape(format!(
                "DTensor: the local part of shape {:?} should have {expected:?}: {shape:?} placed {placements:?}",
                local.shape()
            )));
        }
        Ok(Self { local: local.clone(), mesh: mesh.clone(), shape: shape.to_vec(), placements: placements.to_vec() })
    }

    /// This rank's part, with its history.
    pub fn to_local(&self) -> &Tensor {
        &self.local
    }

    /// The global shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The mesh.
    pub fn mesh(&self) -> &Arc<DeviceMesh> {
        &self.mesh
    }

    /// A placement for each dimension of the mesh.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// The same values, placed differently. Recorded.
    pub fn redistribute(&self, placements: &[Placement]) -> Result<Self> {
        let local = redistribute(&self.local, &self.mesh, &self.shape, &self.placements, placements)?;
        Ok(Self { local, mesh: self.mesh.clone(), shape: self.shape.clone(), placements: placements.to_vec() })
    }

    /// The whole tensor, on every rank. Recorded.
    pub fn full_tensor(&self) -> Result<Tensor> {
        Ok(self.redistribute(&vec![Placement::Replicate; self.mesh.ndim()])?.local)
    }

    /// Runs an op by its sharding rule: brings the inputs to the placements of the cheapest row, then runs `op` on the
    /// local parts.
    pub fn apply(
        name: &str,
        rule: &Rule,
        inputs: &[&DTensor],
        op: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    ) -> Result<Self> {
        let Some(first) = inputs.first() else {
            return Err(Error::value(format!("{name}: a distributed tensor is needed")));
        };
        let described: Vec<Input> =
            inputs.iter().map(|t| Input { shape: t.shape.clone(), placements: t.placements.clone() }).collect();
        let plan = plan(name, rule, &described, &first.mesh)?;
        let locals = inputs
            .iter()
            .zip(&plan.inputs)
            .map(|(t, to)| plan.prepare(&t.local, &first.mesh, &t.shape, &t.placements, to))
            .collect::<Result<Vec<_>>>()?;
        let local = op(&locals)?;
        Self::from_parts(&local, &first.mesh, &plan.whole(name, local.shape())?, &plan.output)
    }

    /// Matrix product.
    pub fn matmul(&self, other: &DTensor) -> Result<Self> {
        Self::apply("matmul", &Rule::MatMul, &[self, other], |l| l[0].matmul(&l[1]))
    }

    /// Sum of two tensors.
    pub fn add(&self, other: &DTensor) -> Result<Self> {
        Self::apply("add", &Rule::Pointwise(Linearity::Sum), &[self, other], |l| l[0].add(&l[1]))
    }

    /// Product of the elements.
    pub fn mul(&self, other: &DTensor) -> Result<Self> {
        Self::apply("mul", &Rule::Pointwise(Linearity::Product), &[self, other], |l| l[0].mul(&l[1]))
    }

    /// The larger of each element and zero.
    pub fn relu(&self) -> Result<Self> {
        Self::apply("relu", &Rule::Pointwise(Linearity::None), &[self], |l| l[0].relu())
    }

    /// The sum of all elements.
    pub fn sum(&self) -> Result<Self> {
        let dims = (0..self.shape.len()).collect();
        let rule = Rule::Reduce { dims, keepdim: false, how: Reduction::Sum };
        Self::apply("sum", &rule, &[self], |l| l[0].sum(..))
    }

    /// The 2-norm of all elements, on every rank.
    pub fn norm(&self) -> Result<f64> {
        let square = self.local.detach().square()?.sum(..)?;
        for (dim, placement) in self.placements.iter().enumerate() {
            match placement {
                Placement::Shard(_) | Placement::StridedShard(_) => {
                    self.mesh.group(dim)?.all_reduce(&square, ReduceOp::Sum)?;
                }
                Placement::Replicate => {}
                Placement::Partial(_) => {
                    return Err(Error::unsupported("DTensor.norm: redistribute a partial tensor first"));
                }
            }
        }
        Ok(square.sqrt()?.to_scalar()?.to_f64())
    }
}
