//! Data parallelism in Horovod's manner: the optimizer, not the module, averages gradients.

use super::CommHook;
use crate::comm::ReduceOp;
use crate::group::{Collective, ProcessGroup, Work};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{HookHandle, no_grad};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};

/// Copies the tensors of rank `root` to all ranks: a module's parameters and buffers, or an optimizer's state.
///
/// ```
/// # mod rushlight { pub use rushlight_nn as nn; pub use rushlight_dist as dist; }
/// use rushlight::nn::{Linear, Module};
/// let world = rushlight::dist::init()?;
/// let model = Linear::new(20, 1)?;
/// rushlight::dist::broadcast_parameters(&model.parameters(), &**world.group(), 0)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn broadcast_parameters(tensors: &[Tensor], group: &dyn ProcessGroup, root: usize) -> Result<()> {
    // A collective takes tensors of one device.
    let mut devices: Vec<_> = tensors.iter().map(Tensor::device).collect();
    devices.dedup();
    devices.sort_by_key(|d| d.to_string());
    devices.dedup();
    for device in devices {
        let tensors = tensors.iter().filter(|t| t.device() == device).map(Tensor::detach).collect();
        group.run(Collective::Broadcast { tensors, root })?;
    }
    Ok(())
}

/// All-reduce into a new tensor.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_dist as dist; }
/// use rushlight::dist::ReduceOp;
/// let world = rushlight::dist::init()?;
/// let loss = rushlight::Tensor::new(0.5f32)?;
/// let mean = rushlight::dist::allreduce(&loss, &**world.group(), ReduceOp::Mean)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn allreduce(tensor: &Tensor, group: &dyn ProcessGroup, op: ReduceOp) -> Result<Tensor> {
    let out = no_grad(|| tensor.detach().contiguous()?.copy())?;
    group.all_reduce(&out, op)?;
    Ok(out)
}

/// An optimizer that averages gradients over all ranks before its step.
///
/// Gradients are sent while backward runs, several parameters at a time. Unlike with
/// [`DistributedDataParallel`](super::DistributedDataParallel) the module is not wrapped; call [`broadcast_parameters`]
/// first. Backward passes must produce gradients in the same order on all ranks.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; pub use rushlight_dist as dist; }
/// use rushlight::dist::DistributedOptimizer;
/// use rushlight::nn::{Forward, Linear, Module};
/// use rushlight::Tensor;
/// # struct Sgd(Vec<Tensor>);
/// # impl Sgd { fn step(&mut self) -> rushlight_core::Result<()> { Ok(()) } }
/// let world = rushlight::dist::init()?;
/// let model = Linear::new(20, 1)?;
/// let sgd = Sgd(model.parameters());
/// let mut optimizer = DistributedOptimizer::new(sgd, model.named_parameters(), world.group().clone())?;
/// model.forward(&Tensor::ones([4, 20])?)?.sum(..)?.backward()?;
/// optimizer.step_with(|sgd| sgd.step())?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct DistributedOptimizer<O> {
    optimizer: O,
    exchange: Arc<Exchange>,
    hooks: Vec<HookHandle>,
}

/// Options of a [`DistributedOptimizer`].
pub struct DistributedOptimizerBuilder<O> {
    optimizer: O,
    exchange: Exchange,
}

struct Exchange {
    parameters: Vec<(String, Tensor)>,
    group: Arc<dyn ProcessGroup>,
    op: ReduceOp,
    compression: CommHook,
    passes: u32,
    bucket_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Backward passes since the last step, by parameter.
    arrived: Vec<u32>,
    /// Gradients pending to be sent, and their bytes.
    waiting: Vec<usize>,
    bytes: usize,
    /// Running all-reduces: each gradient's parameter and the tensor sent.
    sent: Vec<(Work, Vec<(usize, Tensor)>)>,
}

impl<O> DistributedOptimizer<O> {
    /// Options for an optimizer of these parameters.
    pub fn new(optimizer: O, named_parameters: Vec<(String, Tensor)>, group: Arc<dyn ProcessGroup>) -> Result<Self> {
        Self::builder(optimizer, named_parameters, group).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](DistributedOptimizerBuilder::build).
    pub fn builder(
        optimizer: O,
        named_parameters: Vec<(String, Tensor)>,
        group: Arc<dyn ProcessGroup>,
    ) -> DistributedOptimizerBuilder<O> {
        let parameters = named_parameters.into_iter().filter(|(_, p)| p.requires_grad()).collect();
        let exchange = Exchange {
            parameters,
            group,
            op: ReduceOp::Mean,
            compression: CommHook::AllReduce,
            passes: 1,
            bucket_bytes: 25 << 20,
            state: Mutex::default(),
        };
        DistributedOptimizerBuilder { optimizer, exchange }
    }

    /// Waits until all gradients are averaged. A parameter without a gradient contributes zeros.
    pub fn synchronize(&self) -> Result<()> {
        no_grad(|| self.exchange.synchronize())
    }

    /// [`synchronize`](DistributedOptimizer::synchronize), then the optimizer's own step.
    pub fn step_with<T>(&mut self, step: impl FnOnce(&mut O) -> Result<T>) -> Result<T> {
        self.synchronize()?;
        step(&mut self.optimizer)
    }
}

impl<O> DistributedOptimizerBuilder<O> {
    /// How gradients are combined: their mean by default, or their sum.
    pub fn op(mut self, op: ReduceOp) -> Self {
        self.exchange.op = op;
        self
    }

    /// The dtype in which gradients are sent.
    pub fn compression(mut self, compression: CommHook) -> Self {
        self.exchange.compression = compression;
        self
    }

    /// Backward passes whose gradients are accumulated before they are sent; 1 by default.
    pub fn backward_passes_per_step(mut self, passes: u32) -> Self {
        self.exchange.passes = passes;
        self
    }

    /// Registers hooks on the parameters.
    pub fn build(self) -> Result<DistributedOptimizer<O>> {
        let Self { optimizer, mut exchange } = self;
        if exchange.passes == 0 {
            return Err(Error::value("DistributedOptimizer: backward_passes_per_step must be at least 1"));
        }
        if matches!(exchange.compression, CommHook::PowerSgd { .. }) {
            return Err(Error::unsupported(
                "DistributedOptimizer: PowerSGD needs buckets; use DistributedDataParallel, or fp16 or bf16 here",
            ));
        }
        if !matches!(exchange.op, ReduceOp::Mean | ReduceOp::Sum) {
            return Err(Error::value(format!(
                "DistributedOptimizer: gradients are averaged or summed, not {}",
                exchange.op
            )));
        }
        let n = exchange.parameters.len();
        exchange.state = Mutex::new(State { arrived: vec![0; n], ..State::default() });
        let exchange = Arc::new(exchange);
        let mut hooks = Vec::with_capacity(n);
        for (index, (_, parameter)) in exchange.parameters.iter().enumerate() {
            let weak = Arc::downgrade(&exchange);
            hooks.push(parameter.register_post_accumulate_grad_hook(move |_| match weak.upgrade() {
                Some(exchange) => no_grad(|| exchange.gradient_ready(index)),
                None => Ok(()),
            })?);
        }
        Ok(DistributedOptimizer { optimizer, exchange, hooks })
    }
}

impl Exchange {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn gradient_ready(&self, index: usize) -> Result<()> {
        let mut state = self.state();
        state.arrived[index] += 1;
        if state.arrived[index] > self.passes {
            return Err(Error::autograd(format!(
                "DistributedOptimizer: the gradient of {} came {} times since the last step; step after each backward pass, or set \
                 backward_passes_per_step",
                self.parameters[index].0, state.arrived[index]
            )));
        }
        if state.arrived[index] == self.passes { self.add(&mut state, index) } else { Ok(()) }
    }

    /// Queues a gradient, and sends all queued ones once there are enough.
    fn add(&self, state: &mut State, index: usize) -> Result<()> {
        let parameter = &self.parameters[index].1;
        let first = state.waiting.first().map(|&i| &self.parameters[i].1);
        if first.is_some_and(|first| first.device() != parameter.device()) {
            self.flush(state)?;
        }
        state.waiting.push(index);
        state.bytes += parameter.numel() * parameter.dtype().size();
        if state.bytes >= self.bucket_bytes { self.flush(state) } else { Ok(()) }
    }

    fn flush(&self, state: &mut State) -> Result<()> {
        let waiting = std::mem::take(&mut state.waiting);
        state.bytes = 0;
        if waiting.is_empty() {
            return Ok(());
        }
        let lower = match self.compression {
            CommHook::Fp16 => Some(DType::F16),
            CommHook::Bf16 => Some(DType::BF16),
            CommHook::AllReduce | CommHook::PowerSgd { .. } => None,
        };
        let mut list = Vec::with_capacity(waiting.len());
        for index in waiting {
            let parameter = &self.parameters[index].1;
            let grad = match parameter.grad() {
                Some(grad) => grad.detach(),
                None => {
                    let zeros = parameter.detach().zeros_like()?;
                    parameter.set_grad(Some(zeros.clone()))?;
                    zeros
                }
            };
            let travels = match lower.filter(|d| d.size() < grad.dtype().size()) {
                Some(lower) => grad.to_dtype(lower)?,
                None => grad,
            };
            list.push((index, travels));
        }
        let tensors = list.iter().map(|(_, t)| t.clone()).collect();
        let work = self.group.submit(Collective::AllReduce { tensors, op: self.op }, true)?;
        state.sent.push((work, list));
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        for index in 0..self.parameters.len() {
            // Gradients with missing passes are sent as they are.
            if state.arrived[index] < self.passes {
                self.add(state, index)?;
            }
        }
        self.flush(state)?;
        state.arrived.fill(0);
        for (work, list) in std::mem::take(&mut state.sent) {
            work.wait()?;
            for (index, travels) in list {
                if let Some(grad) = self.parameters[index].1.grad().filter(|grad| grad.dtype() != travels.dtype()) {
                    grad.detach().copy_(&travels)?;
                }
            }
        }
        Ok(())
    }
}

impl<O> Drop for DistributedOptimizer<O> {
    fn drop(&mut self) {
        self.hooks.drain(..).for_each(HookHandle::remove);
    }
}

impl<O> Deref for DistributedOptimizer<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.optimizer
    }
}

impl<O> DerefMut for DistributedOptimizer<O> {
    fn deref_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }
}
