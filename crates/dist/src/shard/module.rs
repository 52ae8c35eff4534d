//! Modules with sharded parameters, and clipping of sharded gradients.

use super::group::{ShardGroup, ShardOptions, ZeroStage, lock};
use super::in_place::InPlace;
use crate::comm::ReduceOp;
use crate::group::ProcessGroup;
use crate::mesh::DeviceMesh;
use rushlight_core::{DType, Device, Error, Result};
use rushlight_nn::{Forward, Member, MemberMut, Module, Parameter};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{is_grad_enabled, no_grad};
use rushlight_tensor::state::StateDict;
use std::any::Any;
use std::sync::{Arc, Mutex};

/// A module whose parameters are sharded over the ranks of a mesh: ZeRO and FSDP. Make one of each block, then of the
/// whole model: the outer one takes the parameters that are left.
///
/// Its parameters are this rank's shards, for optimizers. Forward passes go through [`Forward::forward`] or
/// [`Sharded::call`]. All ranks must start from the same values: rank 0's are broadcast.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; pub use rushlight_dist as dist; }
/// use rushlight::dist::{DeviceMesh, FullyShard, ZeroStage};
/// use rushlight::nn::{Forward, Linear, Module, ReLU, Sequential};
/// let world = rushlight::dist::init()?;
/// let mesh = DeviceMesh::new(&world, &[1], &["dp"])?;
/// let shard = FullyShard::new(&mesh)?.stage(ZeroStage::Three);
/// let (first, last) = (Linear::new(4, 8)?, Linear::new(8, 2)?);
/// let net = Sequential::from((shard.apply(first)?, ReLU, shard.apply(last)?));
/// net.forward(&rushlight::Tensor::ones([3, 4])?)?.sum(..)?.backward()?;
/// assert!(net.parameters().iter().all(|p| p.grad().is_some()));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Sharded<M> {
    module: Mutex<M>,
    group: Arc<ShardGroup>,
    /// Names and shards, in the order of the group.
    shards: Vec<(String, Parameter)>,
    buffers: Vec<(String, rushlight_nn::Buffer)>,
    marker: Marker,
    type_name: &'static str,
}

/// Tells an outer module that the parameters beside it are sharded already.
struct Marker;

impl Module for Marker {
    fn type_name(&self) -> &'static str {
        "Sharded"
    }

    fn members<'a>(&'a self, _visit: &mut dyn FnMut(&str, Member<'a>)) {}

    fn members_mut<'a>(&'a mut self, _visit: &mut dyn FnMut(&str, MemberMut<'a>)) {}
}

/// Shards a module over a mesh by one of ZeRO's stages. [`FullyShard`] has the options.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; pub use rushlight_dist as dist; }
/// use rushlight::dist::{DeviceMesh, ZeroStage, shard};
/// use rushlight::nn::{Forward, Linear};
/// let world = rushlight::dist::init()?;
/// let mesh = DeviceMesh::new(&world, &[1], &["dp"])?;
/// let layer = shard(Linear::new(4, 8)?, ZeroStage::Two, &mesh)?;
/// layer.forward(&rushlight::Tensor::ones([3, 4])?)?.sum(..)?.backward()?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn shard<M: Module>(module: M, stage: ZeroStage, mesh: &DeviceMesh) -> Result<Sharded<M>> {
    FullyShard::new(mesh)?.stage(stage).apply(module)
}

/// Shards modules over a mesh of one dimension, or of two: the first then has replicas (hybrid sharding).
#[derive(Clone)]
pub struct FullyShard {
    ranks: Arc<dyn ProcessGroup>,
    replicas: Option<Arc<dyn ProcessGroup>>,
    options: ShardOptions,
    offload: bool,
}

impl FullyShard {
    /// ZeRO's third stage on a mesh.
    pub fn new(mesh: &DeviceMesh) -> Result<Self> {
        let (ranks, replicas) = match mesh.ndim() {
            1 => (mesh.group(0)?.clone(), None),
            2 => (mesh.group(1)?.clone(), Some(mesh.group(0)?.clone())),
            n => return Err(Error::value(format!("shard: a mesh of 1 or 2 dimensions is needed, not {n}"))),
        };
        Ok(Self { ranks, replicas, options: ShardOptions::default(), offload: false })
    }

    /// When gathered parameters are freed.
    pub fn stage(mut self, stage: ZeroStage) -> Self {
        self.options.stage = stage;
        self
    }

    /// The dtype in which parameters are gathered and used.
    pub fn param_dtype(mut self, dtype: DType) -> Self {
        self.options.param_dtype = Some(dtype);
        self
    }

    /// The dtype in which gradients are reduced.
    pub fn reduce_dtype(mut self, dtype: DType) -> Self {
        self.options.reduce_dtype = Some(dtype);
        self
    }

    /// Some of the ranks, as those of a node, that keep the parameters between the passes, each a part: gathers of
    /// backward passes stay among them.
    pub fn keep_among(mut self, ranks: Arc<dyn ProcessGroup>) -> Self {
        self.options.keep_among = Some(ranks);
        self
    }

    /// Keeps shards, their gradients and thus the optimizer's state in the host's memory.
    pub fn offload(mut self, offload: bool) -> Self {
        self.offload = offload;
        self
    }

    /// Shards a module's parameters.
    pub fn apply<M: Module>(&self, mut module: M) -> Result<Sharded<M>> {
        let InPlace { group, shards, .. } = self.in_place(&mut module)?;
        let as_parameter = |(name, shard): (String, Tensor)| {
            let mut parameter = Parameter::new(&shard)?;
            parameter.substitute(shard);
            Ok((name, parameter))
        };
        let shards = shards.into_iter().map(as_parameter).collect::<Result<Vec<_>>>()?;
        let mut buffers = Vec::new();
        own_buffers(&module, "", &mut buffers);
        let type_name = module.type_name();
        Ok(Sharded { module: Mutex::new(module), group, shards, buffers, marker: Marker, type_name })
    }

    /// The group of some parameters, and this rank's shards of rank 0's values.
    pub(super) fn cut(&self, found: &[(String, Tensor)]) -> Result<(Arc<ShardGroup>, Vec<Tensor>)> {
        let Some((_, first)) = found.first() else {
            return Err(Error::value("shard: the module has no parameter of its own that is not sharded yet"));
        };
        let (dtype, device) = (first.dtype(), first.device());
        if let Some((name, other)) = found.iter().find(|(_, t)| t.dtype() != dtype || t.device() != device) {
            return Err(Error::dtype(format!(
                "shard: {name} is {} on {}, {} is {dtype} on {device}; one group has one dtype and device",
                other.dtype(),
                other.device(),
                found[0].0
            )));
        }
        let shapes: Vec<Vec<usize>> = found.iter().map(|(_, t)| t.shape().to_vec()).collect();
        let options = ShardOptions { device, ..self.options.clone() };
        let group = ShardGroup::new(&shapes, dtype, self.ranks.clone(), self.replicas.clone(), options)?;
        let home = if self.offload { Device::Cpu } else { device };
        let mut shards = Vec::new();
        for (i, (_, tensor)) in found.iter().enumerate() {
            let whole = tensor.detach().contiguous()?;
            for ranks in std::iter::once(&self.ranks).chain(&self.replicas) {
                ranks.broadcast(&whole, 0)?;
            }
            shards.push(group.cut(i, &whole)?.to(home)?.requires_grad_(tensor.requires_grad())?);
        }
        Ok((group, shards))
    }
}

/// Visits the parameters that are not sharded yet.
pub(super) fn visit(module: &mut dyn Module, prefix: &str, f: &mut dyn FnMut(&str, &mut Parameter)) {
    if is_sharded(module) {
        return;
    }
    module.members_mut(&mut |name, member| {
        let full = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        match member {
            MemberMut::Parameter(parameter) => f(&full, parameter),
            MemberMut::Module(child) => visit(child, &full, f),
            MemberMut::Buffer(_) => {}
        }
    });
}

fn is_sharded(module: &dyn Module) -> bool {
    module.children().iter().any(|child| (*child as &dyn Any).is::<Marker>())
}

fn own_buffers(module: &dyn Module, prefix: &str, found: &mut Vec<(String, rushlight_nn::Buffer)>) {
    module.members(&mut |name, member| {
        let full = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        match member {
            Member::Buffer(buffer) => found.push((full, buffer.clone())),
            Member::Module(child) => own_buffers(child, &full, found),
            _ => {}
        }
    });
}

/// Replaces each tensor of `from` by the one at its index in `to`.
pub(super) fn substitute(module: &mut dyn Module, from: &[Tensor], to: &[Tensor]) {
    visit(module, "", &mut |_, parameter| {
        if let Some(i) = from.iter().position(|t| t.is_same(parameter.tensor())) {
            parameter.substitute(to[i].clone());
        }
    });
}

impl<M: Module> Sharded<M> {
    /// The group of this module's own parameters.
    pub fn group(&self) -> &Arc<ShardGroup> {
        &self.group
    }

    fn tensors(&self) -> Vec<Tensor> {
        self.shards.iter().map(|(_, p)| p.tensor().clone()).collect()
    }

    /// A forward pass of any signature, with the whole parameters in place.
    pub fn call<T>(&self, forward: impl FnOnce(&M) -> Result<T>) -> Result<T> {
        let shards = self.tensors();
        let whole = self.group.unshard(&shards)?;
        let mut module = self.module.lock().unwrap_or_else(|e| e.into_inner());
        substitute(&mut *module, &shards, &whole);
        let result = {
            let _places = is_grad_enabled().then(|| self.group.keep_places());
            forward(&module)
        };
        substitute(&mut *module, &whole, &shards);
        drop(whole);
        self.group.after_forward()?;
        result
    }

    /// Sets whether backward passes reduce gradients; without, whole gradients add up on each rank.
    pub fn set_requires_gradient_sync(&self, sync: bool) {
        self.group.set_sync(sync);
    }

    /// This module's own parameters, whole, on every rank.
    pub fn full_state_dict(&self) -> Result<StateDict> {
        let shards: Vec<Tensor> = self.tensors().iter().map(Tensor::detach).collect();
        let whole = self.group.unshard(&shards)?;
        let mut state = StateDict::new();
        for ((name, _), tensor) in self.shards.iter().zip(&whole) {
            state.insert(name.clone(), tensor.detach().to_dtype(self.group.dtype)?.copy()?);
        }
        self.group.reshard();
        Ok(state)
    }
}

impl<M: Forward> Forward for Sharded<M> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let input = match lock(&self.group.options).param_dtype {
            Some(dtype) if input.is_floating_point() => input.to_dtype(dtype)?,
            _ => input.clone(),
        };
        self.call(|module| module.forward(&input))
    }
}

/// Parameters are shards, under the module's own names.
impl<M: Module> Module for Sharded<M> {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        for (name, parameter) in &self.shards {
            visit(name, Member::Parameter(parameter));
        }
        for (name, buffer) in &self.buffers {
            visit(name, Member::Buffer(buffer));
        }
        visit("_sharded", Member::Module(&self.marker));
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        for (name, parameter) in &mut self.shards {
            visit(name, MemberMut::Parameter(parameter));
        }
        for (name, buffer) in &mut self.buffers {
            visit(name, MemberMut::Buffer(buffer));
        }
        visit("_sharded", MemberMut::Module(&mut self.marker));
    }
}

/// Scales the gradients of shards down so that the norm over all ranks is at most `max_norm`. Returns the norm before.
pub fn clip_grad_norm_(shards: &[Tensor], max_norm: f64, ranks: &dyn ProcessGroup) -> Result<f64> {
    no_grad(|| {
        let grads: Vec<Tensor> = shards.iter().filter_map(Tensor::grad).collect();
        let mut square = 0.0;
        for grad in &grads {
            square += grad.square()?.sum(..)?.to_scalar()?.to_f64();
        }
        let total = Tensor::full_with([1], square, DType::F64)?;
        ranks.all_reduce(&total, ReduceOp::Sum)?;
        let norm = total.to_vec::<f64>()?.iter().sum::<f64>().sqrt();
        let factor = max_norm / (norm + 1e-6);
        if factor < 1.0 {
            for grad in &grads {
                grad.mul_(factor)?;
            }
        }
        Ok(norm)
    })
}
