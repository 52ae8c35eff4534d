//! The parameters of a module that stays with its owner, sharded in place.

use super::group::{ShardGroup, ZeroStage};
use super::module::{substitute, visit};
use rushlight_core::{Error, Result};
use rushlight_nn::Module;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{is_grad_enabled, no_grad};
use rushlight_tensor::state::StateDict;
use std::sync::{Arc, Mutex};

/// The sharded parameters of a module that someone else owns, as the Trainer's: the module holds the shards, and the
/// whole parameters while a [`call`](Self::call) runs. Made by [`FullyShard::in_place`](super::FullyShard::in_place).
pub struct InPlace {
    pub(super) group: Arc<ShardGroup>,
    /// Names and shards, in the order of the group.
    pub(super) shards: Vec<(String, Tensor)>,
    /// All names, those of tied parameters included, and what they name.
    pub(super) names: Vec<(String, usize)>,
    /// The whole parameters while the module holds them, and their versions.
    opened: Mutex<Vec<(Tensor, u32)>>,
}

impl InPlace {
    pub(super) fn new(group: Arc<ShardGroup>, shards: Vec<(String, Tensor)>, names: Vec<(String, usize)>) -> Self {
        Self { group, shards, names, opened: Mutex::default() }
    }

    /// The group of the parameters.
    pub fn group(&self) -> &Arc<ShardGroup> {
        &self.group
    }

    /// The shards, in the order of the group.
    pub fn shards(&self) -> Vec<Tensor> {
        self.shards.iter().map(|(_, shard)| shard.clone()).collect()
    }

    /// Whether a tensor is a shard, and which.
    pub fn index_of(&self, tensor: &Tensor) -> Option<usize> {
        self.shards.iter().position(|(_, shard)| shard.is_same(tensor))
    }

    /// A forward pass of the module with the whole parameters in place.
    pub fn call<M: Module, T>(&self, module: &mut M, forward: impl FnOnce(&M) -> Result<T>) -> Result<T> {
        let shards = self.shards();
        let whole = self.group.unshard(&shards)?;
        substitute(module, &shards, &whole);
        let result = {
            let _places = is_grad_enabled().then(|| self.group.keep_places());
            forward(module)
        };
        substitute(module, &whole, &shards);
        drop(whole);
        self.group.after_forward()?;
        result
    }

    /// Puts the whole parameters in the module until [`close`](Self::close), without gradients. All ranks must call it.
    pub fn open<M: Module>(&self, module: &mut M) -> Result<()> {
        let shards = self.shards();
        let whole = self.whole()?;
        substitute(module, &shards, &whole);
        let versions = whole.iter().map(Tensor::version).collect::<Vec<_>>();
        *self.opened() = whole.into_iter().zip(versions).collect();
        Ok(())
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, Vec<(Tensor, u32)>> {
        self.opened.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Puts the shards back. Parameters that were changed meanwhile are cut anew.
    pub fn close<M: Module>(&self, module: &mut M) -> Result<()> {
        let opened = std::mem::take(&mut *self.opened());
        let whole: Vec<Tensor> = opened.iter().map(|(tensor, _)| tensor.clone()).collect();
        substitute(module, &whole, &self.shards());
        no_grad(|| {
            for (i, (tensor, version)) in opened.iter().enumerate() {
                if tensor.version() != *version {
                    let shard = &self.shards[i].1;
                    shard.detach().copy_(&self.group.cut(i, tensor)?.to(shard.device())?)?;
                }
            }
            Ok(())
        })
    }

    /// Copies of the whole parameters, on every rank.
    fn whole(&self) -> Result<Vec<Tensor>> {
        let shards: Vec<Tensor> = self.shards.iter().map(|(_, shard)| shard.detach()).collect();
        no_grad(|| shards.iter().enumerate().map(|(i, shard)| self.group.assemble(i, shard)).collect())
    }

    /// The module's state with whole parameters, on every rank.
    pub fn state_dict(&self, module: &dyn Module) -> Result<StateDict> {
        let mut state = module.state_dict();
        let whole = self.whole()?;
        for (name, index) in &self.names {
            if let Some(value) = state.get_mut(name) {
                *value = whole[*index].clone();
            }
        }
        Ok(state)
    }

    /// Gives the module its whole parameters for good.
    pub fn restore<M: Module>(self, module: &mut M) -> Result<()> {
        let shards = self.shards();
        let mut whole = self.whole()?;
        for (tensor, shard) in whole.iter_mut().zip(&shards) {
            *tensor = tensor.clone().requires_grad_(shard.requires_grad())?;
        }
        self.group.reshard();
        substitute(module, &shards, &whole);
        Ok(())
    }
}

impl super::FullyShard {
    /// Shards the parameters of a module that stays with its owner. Those of [`Sharded`](super::Sharded) modules
    /// within it are theirs.
    pub fn in_place<M: Module>(&self, module: &mut M) -> Result<InPlace> {
        let mut found: Vec<(String, Tensor)> = Vec::new();
        let mut names = Vec::new();
        visit(module, "", &mut |name, parameter| {
            let known = found.iter().position(|(_, t)| t.is_same(parameter.tensor()));
            let index = known.unwrap_or_else(|| {
                found.push((name.to_owned(), parameter.tensor().clone()));
                found.len() - 1
            });
            names.push((name.to_owned(), index));
        });
        let (group, shards) = self.cut(&found)?;
        let originals: Vec<Tensor> = found.iter().map(|(_, t)| t.clone()).collect();
        substitute(module, &originals, &shards);
        let shards = found.into_iter().map(|(name, _)| name).zip(shards).collect();
        Ok(InPlace::new(group, shards, names))
    }
}

impl ZeroStage {
    /// A stage by its number.
    pub fn of(number: usize) -> Result<Self> {
        match number {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            3 => Ok(Self::Three),
            _ => Err(Error::value(format!("ZeRO has no stage {number}"))),
        }
    }
}
