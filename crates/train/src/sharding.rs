//! Strategies that shard a model's training state: ZeRO's stages and FSDP.

use crate::optimizers::Optimizers;
use crate::ranks::Ranks;
use rushlight_core::{Error, Result};
use rushlight_dist::{DeviceMesh, FullyShard, InPlace, ProcessGroup, ReduceOp, World, ZeroStage};
use rushlight_nn::Module;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::{Dict, Key, StateDict, Value};
use std::sync::Arc;

/// A model's parameters, sharded over the processes of a run while it is trained.
pub(crate) struct Sharding {
    parameters: InPlace,
    group: Arc<dyn ProcessGroup>,
}

impl Sharding {
    pub(crate) fn new<M: Module>(model: &mut M, world: &World, stage: ZeroStage, offload: bool) -> Result<Self> {
        let mesh = DeviceMesh::new(world, &[world.size()], &["dp"])?;
        let parameters = FullyShard::new(&mesh)?.stage(stage).offload(offload).in_place(model)?;
        Ok(Self { parameters, group: world.group().clone() })
    }

    pub(crate) fn parameters(&self) -> &InPlace {
        &self.parameters
    }

    pub(crate) fn into_parameters(self) -> InPlace {
        self.parameters
    }

    /// Clips gradients by their norm over all processes.
    pub(crate) fn clip(&self, params: &[Tensor], max_norm: f64) -> Result<f64> {
        rushlight_dist::clip_grad_norm_(params, max_norm, &*self.group)
    }

    /// If gradients overflowed on one process, they do on all: all skip the step.
    pub(crate) fn share_overflow(&self, params: &[Tensor]) -> Result<()> {
        no_grad(|| {
            let grads: Vec<Tensor> = params.iter().filter_map(Tensor::grad).filter(|g| g.numel() > 0).collect();
            let mut finite = true;
            for grad in &grads {
                finite &= grad.sum(..)?.to_scalar()?.to_f64().is_finite();
            }
            let flag = Tensor::full([1], if finite { 0.0f32 } else { 1.0 })?;
            self.group.all_reduce(&flag, ReduceOp::Max)?;
            if finite && flag.item::<f32>()? > 0.0 {
                grads.first().map_or(Ok(()), |grad| grad.fill_(f64::INFINITY).map(drop))?;
            }
            Ok(())
        })
    }

    pub(crate) fn state_dict(&self, model: &dyn Module) -> Result<StateDict> {
        self.parameters.state_dict(model)
    }

    /// The optimizers' states with the shards of all processes put together.
    pub(crate) fn assembled(&self, states: &Value, optimizers: &Optimizers, ranks: &Ranks) -> Result<Value> {
        let own = entries(states, optimizers, &self.parameters)?;
        // A process without rows of a parameter may have no state of it: rank 0's list counts.
        let listed: Vec<String> = own.iter().map(|e| format!("{}\t{}\t{}", e.optimizer, e.param, e.key)).collect();
        let first = ranks.gather(listed.join("\n").as_bytes())?.into_iter().next().unwrap_or_default();
        let first = String::from_utf8(first).map_err(|_| Error::value("the list of states is no text"))?;
        let mut result = states.clone();
        for line in first.lines() {
            let mut words = line.split('\t');
            let mut number = || words.next().and_then(|w| w.parse::<usize>().ok());
            let (Some(optimizer), Some(param)) = (number(), number()) else { continue };
            let key = words.next().unwrap_or_default();
            let found = own.iter().find(|e| (e.optimizer, e.param, &e.key[..]) == (optimizer, param, key));
            let tensor = optimizers.get(optimizer)?.params().get(param).cloned();
            let Some(tensor) = tensor else { continue };
            let Some(index) = self.parameters.index_of(&tensor) else { continue };
            let group = self.parameters.group();
            let shard = match found {
                Some(entry) => entry.tensor.clone(),
                None => tensor.detach().zeros_like()?,
            };
            let whole = group.assemble(index, &shard)?;
            set(&mut result, optimizer, param, key, Value::Tensor(whole))?;
        }
        Ok(result)
    }

    /// The optimizers' states with this process's shards of whole tensors.
    pub(crate) fn cut(&self, states: &Value, optimizers: &Optimizers) -> Result<Value> {
        let mut result = states.clone();
        for (optimizer, state) in states.as_list()?.iter().enumerate() {
            let params = optimizers.get(optimizer)?.params();
            for (param, key, tensor) in tensors(state)? {
                let Some(index) = params.get(param).and_then(|t| self.parameters.index_of(t)) else { continue };
                let group = self.parameters.group();
                if tensor.shape() == group.shape(index) && tensor.rank() > 0 {
                    set(&mut result, optimizer, param, &key, Value::Tensor(group.cut(index, &tensor)?))?;
                }
            }
        }
        Ok(result)
    }
}

/// A tensor of an optimizer's state that has a shard's shape.
struct Entry {
    optimizer: usize,
    param: usize,
    key: String,
    tensor: Tensor,
}

fn entries(states: &Value, optimizers: &Optimizers, parameters: &InPlace) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for (optimizer, state) in states.as_list()?.iter().enumerate() {
        let params = optimizers.get(optimizer)?.params();
        for (param, key, tensor) in tensors(state)? {
            let Some(index) = params.get(param).and_then(|t| parameters.index_of(t)) else { continue };
            let group = parameters.group();
            if !group.shape(index).is_empty() && tensor.shape() == group.shard_shape(index) {
                found.push(Entry { optimizer, param, key, tensor });
            }
        }
    }
    Ok(found)
}

/// The tensors of an optimizer's state: the parameter's number, the name, the tensor.
fn tensors(state: &Value) -> Result<Vec<(usize, String, Tensor)>> {
    let mut found = Vec::new();
    let Ok(all) = state.get("state") else { return Ok(found) };
    for (param, values) in all.as_dict()? {
        let Ok(param) = param.to_string().parse::<usize>() else { continue };
        let Value::Dict(values) = values else { continue };
        for (key, value) in values {
            if let Value::Tensor(tensor) = value {
                found.push((param, key.to_string(), tensor.clone()));
            }
        }
    }
    Ok(found)
}

/// Replaces a value of an optimizer's state.
fn set(states: &mut Value, optimizer: usize, param: usize, key: &str, value: Value) -> Result<()> {
    let wrong = || Error::value("the state of an optimizer is malformed");
    let Value::List(list) = states else { return Err(wrong()) };
    let Some(Value::Dict(state)) = list.get_mut(optimizer) else { return Err(wrong()) };
    let Some(Value::Dict(all)) = state.get_mut(&Key::from("state")) else { return Err(wrong()) };
    let number = Key::from(param as i64);
    if !all.contains_key(&number) {
        all.insert(number.clone(), Value::Dict(Dict::new()));
    }
    let Some(Value::Dict(values)) = all.get_mut(&number) else { return Err(wrong()) };
    values.insert(Key::from(key), value);
    Ok(())
}
