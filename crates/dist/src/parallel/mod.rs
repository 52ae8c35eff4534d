//! Data parallelism: every rank trains a copy of the model on its own part of the data.

mod averager;
mod buckets;
mod hook;
mod horovod;
mod join;
mod power_sgd;
mod reducer;
mod replicas;
mod sync_batch_norm;
mod verify;

pub use averager::PeriodicModelAverager;
pub use hook::{BucketHook, CommHook, GradBucket, SentBucket};
pub use horovod::{DistributedOptimizer, DistributedOptimizerBuilder, allreduce, broadcast_parameters};
pub use power_sgd::{PowerSgd, PowerSgdMemory};
pub use reducer::{NoSync, Reducer, Settings as ReducerSettings};
pub use replicas::DataParallel;
pub use sync_batch_norm::{SyncBatchNorm, sync_batch_norm};

use crate::group::{Collective, ProcessGroup};
use reducer::Settings;
use rushlight_core::{Error, Result};
use rushlight_nn::{Forward, Member, MemberMut, Module};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::is_grad_enabled;
use rushlight_tensor::state::{Stateful, Value};
use std::ops::Deref;
use std::sync::Arc;

/// A module whose gradients are the means over all ranks of a group when `backward` returns.
///
/// Gradients are sent in buckets while backward runs. All ranks start from rank 0's parameters; shapes and dtypes
/// are compared first. Forward passes must go through this wrapper: [`Forward::forward`] or, for modules with other
/// inputs, [`DistributedDataParallel::call`].
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; pub use rushlight_dist as dist; }
/// use rushlight::dist::DistributedDataParallel;
/// use rushlight::nn::{Forward, Linear, Module};
/// let world = rushlight::dist::init()?;
/// let model = DistributedDataParallel::new(Linear::new(20, 1)?, world.group().clone())?;
/// let loss = model.forward(&rushlight::Tensor::ones([4, 20])?)?.sum(..)?;
/// loss.backward()?;
/// assert!(model.parameters().iter().all(|p| p.grad().is_some()));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct DistributedDataParallel<M> {
    module: M,
    reducer: Arc<Reducer>,
    broadcast_buffers: bool,
}

/// Options of a [`DistributedDataParallel`]; the defaults are PyTorch's.
pub struct Builder<M> {
    module: M,
    group: Arc<dyn ProcessGroup>,
    settings: Settings,
    broadcast_buffers: bool,
}

impl<M: Module> Builder<M> {
    /// Bytes of a bucket in MiB, 25 by default. The first bucket has 1 MiB at most, so that communication starts early.
    pub fn bucket_cap_mb(mut self, mib: f64) -> Self {
        self.settings.bucket_bytes = (mib * (1 << 20) as f64) as usize;
        self
    }

    /// Whether parameters may be unused in a loss. Each forward pass then searches the graph for them.
    pub fn find_unused_parameters(mut self, find: bool) -> Self {
        self.settings.find_unused = find;
        self
    }

    /// Promises that every iteration uses the same parameters, equally often. The first iteration finds them.
    pub fn static_graph(mut self, is_static: bool) -> Self {
        self.settings.static_graph = is_static;
        self
    }

    /// Whether rank 0's buffers are copied to all ranks before each forward pass.
    pub fn broadcast_buffers(mut self, broadcast: bool) -> Self {
        self.broadcast_buffers = broadcast;
        self
    }

    /// Compression of gradients.
    pub fn comm_hook(mut self, hook: CommHook) -> Self {
        self.settings.hook = hook;
        self
    }

    /// Post-local SGD: after `start_iteration` iterations gradients are averaged over the ranks of `local` alone (such
    /// as a node's), or not at all, and parameters periodically by a
    /// [`PeriodicModelAverager`]. A captured step does not change mode: record it after that iteration.
    pub fn post_local_sgd(mut self, start_iteration: usize, local: Option<Arc<dyn ProcessGroup>>) -> Self {
        self.settings.local = Some((start_iteration, local));
        self
    }

    /// Compares the module with the other ranks', copies rank 0's values, and makes the buckets.
    pub fn build(self) -> Result<DistributedDataParallel<M>> {
        let Self { module, group, settings, broadcast_buffers } = self;
        if matches!(settings.hook, CommHook::PowerSgd { rank: 0, .. }) {
            return Err(Error::value("DistributedDataParallel: PowerSGD needs a rank of at least 1"));
        }
        if settings.bucket_bytes == 0 {
            return Err(Error::value("DistributedDataParallel: buckets need room for at least one byte"));
        }
        verify::same_everywhere(&module, &*group)?;
        let state: Vec<Tensor> = module.parameters().iter().chain(&module.buffers()).map(Tensor::detach).collect();
        broadcast_parameters(&state, &*group, 0)?;
        let parameters: Vec<(String, Tensor)> =
            module.named_parameters().into_iter().filter(|(_, p)| p.requires_grad()).collect();
        if parameters.is_empty() {
            return Err(Error::value(
                "DistributedDataParallel is not needed when a module has no parameter that requires a gradient",
            ));
        }
        let reducer = Reducer::new(parameters, group, settings)?;
        Ok(DistributedDataParallel { module, reducer, broadcast_buffers })
    }
}

impl<M: Module> DistributedDataParallel<M> {
    /// Options for a module and the group whose ranks train it.
    pub fn new(module: M, group: Arc<dyn ProcessGroup>) -> Result<Self> {
        Self::builder(module, group).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](Builder::build).
    pub fn builder(module: M, group: Arc<dyn ProcessGroup>) -> Builder<M> {
        Builder { module, group, settings: Settings::default(), broadcast_buffers: true }
    }

    /// The module.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// The group.
    pub fn group(&self) -> &Arc<dyn ProcessGroup> {
        self.reducer.group()
    }

    /// A forward pass of any signature. The returned tensors are those that the loss depends on.
    pub fn call<T: Outputs>(&self, forward: impl FnOnce(&M) -> Result<T>) -> Result<T> {
        let records = is_grad_enabled();
        if records {
            self.reducer.before_forward()?;
            if self.broadcast_buffers && self.reducer.syncs() {
                self.share_buffers()?;
            }
        }
        let outputs = forward(&self.module)?;
        if records {
            self.reducer.after_forward(&outputs.tensors())?;
        }
        Ok(outputs)
    }

    fn share_buffers(&self) -> Result<()> {
        let tensors: Vec<Tensor> = self.module.buffers().iter().map(Tensor::detach).collect();
        if tensors.is_empty() || self.group().size() == 1 {
            return Ok(());
        }
        self.group().run(Collective::Broadcast { tensors, root: 0 })
    }

    /// While the guard lives, gradients accumulate on this rank without all-reduce, until a later pass without the
    /// guard.
    ///
    /// ```
    /// # use rushlight_dist::DistributedDataParallel;
    /// # use rushlight_nn::{Forward, Linear};
    /// # let world = rushlight_dist::init()?;
    /// # let x = rushlight_tensor::Tensor::ones([4, 20])?;
    /// let model = DistributedDataParallel::new(Linear::new(20, 1)?, world.group().clone())?;
    /// {
    ///     let _local = model.no_sync();
    ///     model.forward(&x)?.sum(..)?.backward()?;
    /// }
    /// model.forward(&x)?.sum(..)?.backward()?;
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn no_sync(&self) -> NoSync {
        self.reducer.no_sync()
    }

    /// Runs a training loop whose number of iterations differs between ranks. Ranks that finish early keep
    /// communicating, with zero gradients, until the last has finished; then all copy the parameters of the rank that
    /// trained longest.
    pub fn join<T>(&self, training: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let _guard = join::enter(&self.reducer);
        let result = training(self)?;
        let buffers = if self.broadcast_buffers { self.module.buffers() } else { Vec::new() };
        let state: Vec<Tensor> =
            self.module.parameters().iter().chain(&self.module.buffers()).map(Tensor::detach).collect();
        join::shadow(&self.reducer, &buffers, state)?;
        Ok(result)
    }
}

/// The output of a forward pass: a tensor or several.
pub trait Outputs {
    /// The tensors in it.
    fn tensors(&self) -> Vec<&Tensor>;
}

impl Outputs for Tensor {
    fn tensors(&self) -> Vec<&Tensor> {
        vec![self]
    }
}

impl<T: Outputs> Outputs for Vec<T> {
    fn tensors(&self) -> Vec<&Tensor> {
        self.iter().flat_map(Outputs::tensors).collect()
    }
}

impl<A: Outputs, B: Outputs> Outputs for (A, B) {
    fn tensors(&self) -> Vec<&Tensor> {
        [self.0.tensors(), self.1.tensors()].concat()
    }
}

impl<T: Outputs> Outputs for Option<T> {
    fn tensors(&self) -> Vec<&Tensor> {
        self.iter().flat_map(Outputs::tensors).collect()
    }
}

/// State-dict keys begin with `module.`, as in PyTorch.
impl<M: Module> Module for DistributedDataParallel<M> {
    fn type_name(&self) -> &'static str {
        "DistributedDataParallel"
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        visit("module", Member::Module(&self.module));
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        visit("module", MemberMut::Module(&mut self.module));
    }
}

/// The state of the wrapped module, without a prefix: a checkpoint loads with and without data parallelism.
impl<M: Module> Stateful for DistributedDataParallel<M> {
    fn state(&self) -> Result<Value> {
        Ok(self.module.state_dict().into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        self.module.load_state_dict(&state.to_state_dict()?)
    }
}

impl<M: Forward> Forward for DistributedDataParallel<M> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.call(|module| module.forward(input))
    }
}

impl<M> Deref for DistributedDataParallel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}
