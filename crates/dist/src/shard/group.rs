//! A group of parameters that is gathered and freed together.

use super::layout::FlatLayout;
use super::reduce::{self, Pending};
use crate::group::{Collective, ProcessGroup, Work};
use rushlight_core::{DType, Device, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Context, Function, apply, no_grad};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// How much of the training state each rank keeps whole: ZeRO's stages. Every stage shards optimizer states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroStage {
    /// Gathered parameters stay until an optimizer has changed the shards.
    One,
    /// Gathered parameters stay until the backward pass has used them.
    Two,
    /// Gathered parameters are freed after a block's forward pass and gathered again for its backward pass.
    Three,
}

/// Options of a [`ShardGroup`].
#[derive(Clone)]
pub struct ShardOptions {
    /// When gathered parameters are freed.
    pub stage: ZeroStage,
    /// The dtype in which parameters are gathered and used; that of the shards if `None`.
    pub param_dtype: Option<DType>,
    /// The dtype in which gradients are reduced; that of the gathered parameters if `None`.
    pub reduce_dtype: Option<DType>,
    /// Where blocks run. The shards may be elsewhere: on the CPU if they are offloaded.
    pub device: Device,
    /// The divisor of gradient sums, instead of the number of ranks.
    pub divide_by: Option<f64>,
}

impl Default for ShardOptions {
    fn default() -> Self {
        Self { stage: ZeroStage::Three, param_dtype: None, reduce_dtype: None, device: Device::Cpu, divide_by: None }
    }
}

/// The parameters of a block, of one dtype, each sharded by rows over the ranks of a group.
pub struct ShardGroup {
    pub(super) layout: FlatLayout,
    pub(super) ranks: Arc<dyn ProcessGroup>,
    /// Ranks that hold the same shards: hybrid sharding.
    pub(super) replicas: Option<Arc<dyn ProcessGroup>>,
    pub(super) dtype: DType,
    pub(super) options: Mutex<ShardOptions>,
    pub(super) state: Mutex<State>,
    /// Number of gathers so far.
    gathers: AtomicUsize,
}

#[derive(Default)]
pub(super) struct State {
    /// The buffer of whole parameters, while it is gathered.
    pub(super) whole: Option<Tensor>,
    /// A gather under way: the handle and the destination.
    under_way: Option<(Work, Tensor)>,
    /// The shards that were gathered last, and their versions.
    pub(super) shards: Vec<Tensor>,
    versions: Vec<u32>,
    /// Whole gradients that no rank has been told of yet.
    pub(super) unsynced: Vec<Option<Tensor>>,
    /// Flat gradients that other replicas have not been told of yet.
    pub(super) unreplicated: Option<Tensor>,
    /// Reductions that are under way.
    pub(super) pending: Vec<Pending>,
    /// Whether backward passes reduce gradients.
    pub(super) silent: bool,
    /// Whether they combine those of replicas.
    pub(super) local_only: bool,
    /// Groups to gather early: in forward passes after this one, in backward passes.
    next: Vec<Weak<ShardGroup>>,
    pub(super) previous: Vec<Weak<ShardGroup>>,
    /// Whether the end of the current backward pass knows this group.
    pub(super) awaited: bool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl ShardGroup {
    /// A group of parameters of these shapes, in order, and one dtype.
    pub fn new(
        shapes: &[Vec<usize>],
        dtype: DType,
        ranks: Arc<dyn ProcessGroup>,
        replicas: Option<Arc<dyn ProcessGroup>>,
        options: ShardOptions,
    ) -> Result<Arc<Self>> {
        for dtype in [Some(dtype), options.param_dtype, options.reduce_dtype].into_iter().flatten() {
            if !dtype.is_float() {
                return Err(Error::dtype(format!("shard: parameters of {dtype} cannot be trained")));
            }
        }
        let layout = FlatLayout::new(shapes, ranks.size(), ranks.rank());
        let state = State { unsynced: vec![None; shapes.len()], ..State::default() };
        Ok(Arc::new(Self {
            layout,
            ranks,
            replicas,
            dtype,
            options: Mutex::new(options),
            state: Mutex::new(state),
            gathers: AtomicUsize::new(0),
        }))
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.layout.slots.len()
    }

    /// Whether it has no parameters.
    pub fn is_empty(&self) -> bool {
        self.layout.slots.is_empty()
    }

    /// This rank's shard of a whole parameter, copied.
    pub fn cut(&self, index: usize, whole: &Tensor) -> Result<Tensor> {
        self.layout.cut(index, whole)
    }

    /// The shape of this rank's shard of a parameter.
    pub fn shard_shape(&self, index: usize) -> Vec<usize> {
        self.layout.shard_shape(index)
    }

    /// Changes an option.
    pub fn configure(&self, change: impl FnOnce(&mut ShardOptions)) {
        change(&mut lock(&self.options));
    }

    /// Sets whether backward passes reduce gradients; without, they add up on this rank.
    pub fn set_sync(&self, sync: bool) {
        lock(&self.state).silent = !sync;
    }

    /// Sets whether backward passes combine the gradients of replicas; without, reduced shards add up.
    pub fn set_all_reduce(&self, all_reduce: bool) {
        lock(&self.state).local_only = !all_reduce;
    }

    /// Groups whose gather starts when a forward pass has gathered this one, and when a backward pass has.
    pub fn set_prefetch(&self, forward: Option<&[Arc<ShardGroup>]>, backward: Option<&[Arc<ShardGroup>]>) {
        let weak = |all: &[Arc<ShardGroup>]| all.iter().map(Arc::downgrade).collect();
        let mut state = lock(&self.state);
        if let Some(forward) = forward {
            state.next = weak(forward);
        }
        if let Some(backward) = backward {
            state.previous = weak(backward);
        }
    }

    /// Whether the whole parameters are in memory.
    pub fn is_gathered(&self) -> bool {
        lock(&self.state).whole.is_some()
    }

    /// Number of gathers so far.
    pub fn gathers(&self) -> usize {
        self.gathers.load(Relaxed)
    }

    /// Bytes of the gathered parameters.
    pub fn gathered_bytes(&self) -> usize {
        lock(&self.state).whole.as_ref().map_or(0, |w| w.numel() * w.dtype().size())
    }

    /// Starts to gather in the background, unless the parameters are there or on their way.
    pub fn prefetch(&self, shards: &[Tensor]) -> Result<()> {
        let mut state = lock(&self.state);
        self.start(&mut state, shards)
    }

    fn start(&self, state: &mut State, shards: &[Tensor]) -> Result<()> {
        self.forget_if_changed(state, shards)?;
        if state.whole.is_some() || state.under_way.is_some() {
            return Ok(());
        }
        if shards.len() != self.len() {
            return Err(Error::value(format!("shard: {} shards for {} parameters", shards.len(), self.len())));
        }
        let (dtype, device) = {
            let options = lock(&self.options);
            (options.param_dtype.unwrap_or(self.dtype), options.device)
        };
        no_grad(|| {
            let input = self.layout.flatten(shards, dtype, device)?;
            let gathered = Tensor::empty_with([self.layout.shard * self.layout.ranks], (dtype, device))?;
            let size = self.layout.shard as isize;
            let outputs = (0..self.layout.ranks)
                .map(|rank| gathered.narrow(0, rank as isize * size, size as usize))
                .collect::<Result<Vec<_>>>()?;
            let work = self.ranks.submit(Collective::AllGather { outputs, input }, true)?;
            state.under_way = Some((work, gathered));
            Ok::<_, Error>(())
        })?;
        self.gathers.fetch_add(1, Relaxed);
        state.versions = shards.iter().map(Tensor::version).collect();
        state.shards = shards.to_vec();
        Ok(())
    }

    /// Frees gathered parameters of shards that have changed since.
    fn forget_if_changed(&self, state: &mut State, shards: &[Tensor]) -> Result<()> {
        let same = state.shards.len() == shards.len()
            && state.shards.iter().zip(shards).zip(&state.versions).all(|((old, new), version)| {
                old.shares_storage(new) && old.layout() == new.layout() && new.version() == *version
            });
        if !same {
            if let Some((work, _)) = state.under_way.take() {
                work.wait()?;
            }
            state.whole = None;
        }
        Ok(())
    }

    /// The buffer of whole parameters. The gathers of `ahead` start once this one's data is here.
    fn gather(&self, shards: &[Tensor], ahead: &[Weak<ShardGroup>]) -> Result<Tensor> {
        let mut state = lock(&self.state);
        self.start(&mut state, shards)?;
        if let Some((work, gathered)) = state.under_way.take() {
            work.wait()?;
            let whole = no_grad(|| {
                let whole = Tensor::empty_with([self.layout.whole()], (gathered.dtype(), gathered.device()))?;
                self.layout.unflatten(&gathered, &whole)?;
                Ok::<_, Error>(whole)
            })?;
            state.whole = Some(whole);
        }
        let Some(whole) = state.whole.clone() else {
            return Err(Error::value("shard: the parameters were freed while they were gathered"));
        };
        drop(state);
        for other in ahead.iter().filter_map(Weak::upgrade) {
            let shards = lock(&other.state).shards.clone();
            // A group that has not run yet has no known shards: it gathers by itself.
            if !shards.is_empty() {
                other.prefetch(&shards)?;
            }
        }
        Ok(whole)
    }

    /// The buffer of whole parameters in a backward pass, from the shards of the last forward pass.
    pub(super) fn gather_again(self: &Arc<Self>) -> Result<Tensor> {
        let (shards, previous) = {
            let state = lock(&self.state);
            (state.shards.clone(), state.previous.clone())
        };
        reduce::await_end(self)?;
        self.gather(&shards, &previous)
    }

    /// The whole parameters, gathered if need be. Recorded: gradients return to the shards as means over the ranks.
    pub fn unshard(self: &Arc<Self>, shards: &[Tensor]) -> Result<Vec<Tensor>> {
        let next = lock(&self.state).next.clone();
        let whole = self.gather(shards, &next)?;
        let step = Unshard { group: self.clone(), shards: shards.to_vec(), whole: Mutex::new(Some(whole)) };
        let mut parameters = apply(step, &shards.iter().collect::<Vec<_>>())?;
        for parameter in parameters.iter_mut().zip(shards).filter(|(_, s)| !s.requires_grad()).map(|(p, _)| p) {
            *parameter = parameter.detach();
        }
        Ok(parameters)
    }

    /// Frees the gathered parameters.
    pub fn reshard(&self) {
        lock(&self.state).whole = None;
    }

    /// Frees the gathered parameters, and those on their way.
    pub(super) fn drop_gathered(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.whole = None;
        match state.under_way.take() {
            Some((work, _)) => work.wait(),
            None => Ok(()),
        }
    }

    /// Frees the gathered parameters after a forward pass, if the stage says so.
    pub fn after_forward(&self) {
        if lock(&self.options).stage == ZeroStage::Three {
            self.reshard();
        }
    }

    /// A view of the gathered parameters, for reading and in-place initialisation.
    pub fn parameters(&self) -> Result<Option<Vec<Tensor>>> {
        let whole = lock(&self.state).whole.clone();
        whole.map(|whole| (0..self.len()).map(|i| self.layout.parameter(i, &whole)).collect()).transpose()
    }
}

struct Unshard {
    group: Arc<ShardGroup>,
    shards: Vec<Tensor>,
    /// Taken by the forward pass: the graph does not keep the memory.
    whole: Mutex<Option<Tensor>>,
}

impl Function for Unshard {
    fn forward(&self, _ctx: &mut Context, _inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let Some(whole) = lock(&self.whole).take() else {
            return Err(Error::value("unshard: the forward pass ran twice"));
        };
        (0..self.group.len()).map(|i| self.group.layout.parameter(i, &whole)).collect()
    }

    fn backward(&self, _saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        reduce::reduce(&self.group, &self.shards, grads)?;
        // The reduction sets the gradients of the shards when it is done.
        Ok(vec![None; self.shards.len()])
    }

    fn name(&self) -> &'static str {
        "unshard"
    }
}
