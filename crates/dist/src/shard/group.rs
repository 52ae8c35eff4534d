//! A group of parameters that is gathered and freed together.

use super::layout::FlatLayout;
use super::reduce::{self, Pending};
use crate::group::{Collective, ProcessGroup, Work};
use rushlight_core::{DType, Device, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Context, Function, apply, is_grad_enabled, no_grad};
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
    /// Some of the ranks, as those of a node: in stage 3 they keep the parameters between the passes, each a part, so
    /// that the gathers of backward passes stay among them. None: nothing is kept.
    pub keep_among: Option<Arc<dyn ProcessGroup>>,
}

impl Default for ShardOptions {
    fn default() -> Self {
        Self {
            stage: ZeroStage::Three,
            param_dtype: None,
            reduce_dtype: None,
            device: Device::Cpu,
            divide_by: None,
            keep_among: None,
        }
    }
}

/// The parameters of a block, of one dtype, each sharded over the ranks of a group: by rows unless told otherwise.
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

/// A gather: the handle, the destination, and whether it has the layout of whole parameters.
struct Gather {
    work: Work,
    gathered: Tensor,
    of_parts: bool,
}

#[derive(Default)]
pub(super) struct State {
    /// The buffer of whole parameters, while it is gathered.
    pub(super) whole: Option<Tensor>,
    /// A gather under way.
    under_way: Option<Gather>,
    /// This rank's part of the buffer of whole parameters, kept since the forward pass (`keep_among`).
    part: Option<Tensor>,
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
        Self::along(shapes, &vec![0; shapes.len()], dtype, ranks, replicas, options)
    }

    /// [`ShardGroup::new`] with the dimension along which each parameter is split. A dimension other than the first
    /// must be a multiple of the number of ranks.
    pub fn along(
        shapes: &[Vec<usize>],
        dims: &[usize],
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
        if dims.len() != shapes.len() {
            return Err(Error::value(format!("shard: {} dimensions for {} parameters", dims.len(), shapes.len())));
        }
        let layout = FlatLayout::new(shapes, dims, ranks.size(), ranks.rank())?;
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

    /// The shape of a whole parameter.
    pub fn shape(&self, index: usize) -> &[usize] {
        &self.layout.slots[index].shape
    }

    /// A whole tensor of every rank's shard of a parameter or of something of its shape, such as an optimizer's state.
    /// All ranks must call it.
    pub fn assemble(&self, index: usize, shard: &Tensor) -> Result<Tensor> {
        let layout = self.layout.only(index)?;
        if shard.shape() != layout.shard_shape(0) {
            let expected = layout.shard_shape(0);
            return Err(Error::shape(format!("shard: a shard of shape {:?} for {expected:?}", shard.shape())));
        }
        no_grad(|| {
            let (dtype, device) = (shard.dtype(), shard.device());
            let input = layout.flatten(std::slice::from_ref(shard), dtype, device)?;
            let (gathered, outputs) = buffer(layout.shard, layout.ranks, dtype, device)?;
            self.ranks.submit(Collective::AllGather { outputs, input }, true)?.wait()?;
            let whole = Tensor::empty_with([layout.whole()], (dtype, device))?;
            layout.unflatten(&gathered, &whole)?;
            layout.parameter(0, &whole)?.copy()
        })
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
        let (dtype, device, among) = {
            let options = lock(&self.options);
            (options.param_dtype.unwrap_or(self.dtype), options.device, options.keep_among.clone())
        };
        if let (Some(part), Some(among)) = (&state.part, &among) {
            let (gathered, outputs) = buffer(part.numel(), among.size(), dtype, device)?;
            let work = among.submit(Collective::AllGather { outputs, input: part.clone() }, true)?;
            state.under_way = Some(Gather { work, gathered, of_parts: true });
            self.gathers.fetch_add(1, Relaxed);
            return Ok(());
        }
        no_grad(|| {
            let input = self.layout.flatten(shards, dtype, device)?;
            let (gathered, outputs) = buffer(self.layout.shard, self.layout.ranks, dtype, device)?;
            let work = self.ranks.submit(Collective::AllGather { outputs, input }, true)?;
            state.under_way = Some(Gather { work, gathered, of_parts: false });
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
            if let Some(gather) = state.under_way.take() {
                gather.work.wait()?;
            }
            (state.whole, state.part) = (None, None);
        }
        Ok(())
    }

    /// The buffer of whole parameters. The gathers of `ahead` start once this one's data is here.
    fn gather(&self, shards: &[Tensor], ahead: &[Weak<ShardGroup>]) -> Result<Tensor> {
        let mut state = lock(&self.state);
        self.start(&mut state, shards)?;
        if let Some(Gather { work, gathered, of_parts }) = state.under_way.take() {
            work.wait()?;
            let whole = if of_parts {
                gathered
            } else {
                let parts = lock(&self.options).keep_among.as_ref().map_or(1, |among| among.size());
                no_grad(|| {
                    let size = self.layout.whole().next_multiple_of(parts);
                    let whole = Tensor::empty_with([size], (gathered.dtype(), gathered.device()))?;
                    self.layout.unflatten(&gathered, &whole)?;
                    Ok::<_, Error>(whole)
                })?
            };
            (state.whole, state.part) = (Some(whole), None);
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
        reduce::await_end(self);
        self.gather(&shards, &previous)
    }

    /// The whole parameters, gathered if need be. Recorded: gradients return to the shards as means over the ranks.
    pub fn unshard(self: &Arc<Self>, shards: &[Tensor]) -> Result<Vec<Tensor>> {
        // A forward pass that a backward pass runs again is followed by the one before it.
        let is_again = reduce::await_end(self);
        let ahead = {
            let state = lock(&self.state);
            if is_again { state.previous.clone() } else { state.next.clone() }
        };
        let whole = self.gather(shards, &ahead)?;
        let step = Unshard { group: self.clone(), shards: shards.to_vec(), whole: Mutex::new(Some(whole)) };
        let mut parameters = apply(step, &shards.iter().collect::<Vec<_>>())?;
        for parameter in parameters.iter_mut().zip(shards).filter(|(_, s)| !s.requires_grad()).map(|(p, _)| p) {
            *parameter = parameter.detach();
        }
        Ok(parameters)
    }

    /// Frees the gathered parameters.
    pub fn reshard(&self) {
        let mut state = lock(&self.state);
        (state.whole, state.part) = (None, None);
    }

    /// Frees the gathered parameters, and those on their way.
    pub(super) fn drop_gathered(&self) -> Result<()> {
        let mut state = lock(&self.state);
        (state.whole, state.part) = (None, None);
        match state.under_way.take() {
            Some(gather) => gather.work.wait(),
            None => Ok(()),
        }
    }

    /// Frees the gathered parameters after a forward pass, if the stage says so; a part may be kept for the backward
    /// pass.
    pub fn after_forward(&self) -> Result<()> {
        let (stage, among) = {
            let options = lock(&self.options);
            (options.stage, options.keep_among.clone())
        };
        if stage != ZeroStage::Three {
            return Ok(());
        }
        let mut state = lock(&self.state);
        if state.awaited {
            // The backward pass that runs it again needs the parameters at once; the reduction frees them.
            return Ok(());
        }
        let whole = state.whole.take();
        if let (Some(whole), Some(among), true) = (whole, among, is_grad_enabled()) {
            let size = whole.numel() / among.size();
            let own = no_grad(|| whole.narrow(0, (among.rank() * size) as isize, size)?.copy())?;
            state.part = Some(own);
        }
        Ok(())
    }

    /// A view of the gathered parameters, for reading and in-place initialisation.
    pub fn parameters(&self) -> Result<Option<Vec<Tensor>>> {
        let whole = lock(&self.state).whole.clone();
        whole.map(|whole| (0..self.len()).map(|i| self.layout.parameter(i, &whole)).collect()).transpose()
    }
}

/// A buffer for the equal parts of some ranks, and its parts.
fn buffer(size: usize, ranks: usize, dtype: DType, device: Device) -> Result<(Tensor, Vec<Tensor>)> {
    let gathered = Tensor::empty_with([size * ranks], (dtype, device))?;
    let parts = (0..ranks).map(|rank| gathered.narrow(0, (rank * size) as isize, size)).collect::<Result<_>>()?;
    Ok((gathered, parts))
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
