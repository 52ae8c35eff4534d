//! The reducer: sends gradients in buckets while backward runs.
//!
//! Hooks of the parameters signal that a gradient is complete. Backward writes most gradients directly to their slices
//! of the buckets (`Tensor::set_grad_home`); the others are copied when the bucket is sent, and become views of it.
//! Full buckets are sent in order, the same on all ranks. A callback at the end of backward waits for them. After the
//! first iteration the buckets are rebuilt in the order in which gradients arrived on rank 0.

use super::buckets::{self, Bucket};
use super::power_sgd;
use crate::comm::ReduceOp;
use crate::group::{Collective, ProcessGroup, Work};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::{HookHandle, leaves, no_grad, queue_callback};
use rushlight_tensor::{Tensor, foreach};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Compression of gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommHook {
    /// Uncompressed.
    AllReduce,
    /// As `float16`, half the bytes of `float32`.
    Fp16,
    /// As `bfloat16`, half the bytes of `float32`.
    Bf16,
    /// Matrices as products of two low-rank factors, by PowerSGD; the approximation error is added to the next
    /// gradients. A captured step does not change mode: record it after `start_iteration`.
    PowerSgd {
        /// Rank of the factors: 1 to 4.
        rank: usize,
        /// Number of initial iterations with uncompressed gradients; the first ones matter most.
        start_iteration: usize,
    },
}

pub(super) struct Settings {
    pub(super) bucket_bytes: usize,
    pub(super) find_unused: bool,
    pub(super) static_graph: bool,
    pub(super) hook: CommHook,
    /// From this iteration on gradients are averaged over these ranks only, or not at all.
    pub(super) local: Option<(usize, Option<Arc<dyn ProcessGroup>>)>,
}

impl Default for Settings {
    fn default() -> Self {
        let hook = CommHook::AllReduce;
        Self { bucket_bytes: 25 << 20, find_unused: false, static_graph: false, hook, local: None }
    }
}

pub(super) struct Reducer {
    parameters: Vec<(String, Tensor)>,
    group: Arc<dyn ProcessGroup>,
    settings: Settings,
    state: Mutex<State>,
    /// Number of living [`NoSync`] guards.
    silent: Arc<AtomicUsize>,
    hooks: Mutex<Vec<HookHandle>>,
}

/// While it lives, gradients stay on their rank.
pub struct NoSync(Arc<AtomicUsize>);

impl Drop for NoSync {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct State {
    buckets: Vec<Bucket>,
    /// Bucket of each parameter, and its index there.
    places: Vec<(usize, usize)>,
    /// Whether this iteration communicates.
    sync: bool,
    /// Whether a gradient has arrived in this iteration.
    under_way: bool,
    /// Number of times each parameter's gradient has arrived in this iteration.
    arrived: Vec<u32>,
    /// Number of arrivals that complete a gradient: 1, except in static graphs.
    expected: Vec<u32>,
    /// Parameters found to be unused in this iteration.
    unused: Vec<bool>,
    /// Parameters whose gradients changed since the last all-reduce, also under [`NoSync`].
    used: Vec<bool>,
    /// Parameters in the order in which their gradients arrived.
    order: Vec<usize>,
    /// The next bucket to send.
    next: usize,
    sent: Vec<(Work, Option<Tensor>)>,
    /// Number of iterations that have communicated.
    iterations: usize,
    /// PowerSGD's state of each bucket.
    memories: Vec<Option<power_sgd::Memory>>,
    /// Whether the first iteration is over and the buckets have their final order.
    settled: bool,
    /// Whether ranks may run out of data.
    joins: bool,
}

impl Reducer {
    pub(super) fn new(
        parameters: Vec<(String, Tensor)>,
        group: Arc<dyn ProcessGroup>,
        settings: Settings,
    ) -> Result<Arc<Self>> {
        let n = parameters.len();
        // Gradients arrive roughly in the reverse order of the forward pass.
        let order: Vec<usize> = (0..n).rev().collect();
        let buckets = buckets::divide(&order, &parameters, settings.bucket_bytes)?;
        give_homes(&buckets, &parameters)?;
        let state = State {
            places: places(&buckets, n),
            buckets,
            sync: true,
            under_way: false,
            arrived: vec![0; n],
            expected: vec![1; n],
            unused: vec![false; n],
            used: vec![false; n],
            order: Vec::new(),
            next: 0,
            sent: Vec::new(),
            iterations: 0,
            memories: Vec::new(),
            settled: false,
            joins: false,
        };
        let reducer = Arc::new(Self {
            parameters,
            group,
            settings,
            state: Mutex::new(state),
            silent: Arc::default(),
            hooks: Mutex::default(),
        });
        for (index, (_, parameter)) in reducer.parameters.iter().enumerate() {
            let weak = Arc::downgrade(&reducer);
            let handle = parameter.register_post_accumulate_grad_hook(move |_| match weak.upgrade() {
                Some(reducer) => no_grad(|| reducer.gradient_ready(index)),
                None => Ok(()),
            })?;
            lock(&reducer.hooks).push(handle);
        }
        Ok(reducer)
    }

    pub(super) fn group(&self) -> &Arc<dyn ProcessGroup> {
        &self.group
    }

    pub(super) fn no_sync(&self) -> NoSync {
        self.silent.fetch_add(1, Relaxed);
        NoSync(self.silent.clone())
    }

    /// Whether the iteration that begins communicates.
    pub(super) fn syncs(&self) -> bool {
        lock(&self.state).sync
    }

    pub(super) fn set_joins(&self, joins: bool) {
        lock(&self.state).joins = joins;
    }

    /// Begins an iteration and drops the state of a failed earlier one.
    pub(super) fn before_forward(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.drain();
        state.sync = self.silent.load(Relaxed) == 0;
        state.begin();
        let joins = state.joins && state.sync;
        drop(state);
        if joins {
            // Tells ranks that have run out of data that others have not.
            super::join::count_active(&*self.group, true)?;
        }
        Ok(())
    }

    pub(super) fn after_forward(self: &Arc<Self>, outputs: &[&Tensor]) -> Result<()> {
        if !self.settings.find_unused || !self.syncs() || self.settings.static_graph {
            return Ok(());
        }
        let used: HashSet<usize> = leaves(outputs).iter().map(Tensor::id).collect();
        let mut state = lock(&self.state);
        for (index, (_, parameter)) in self.parameters.iter().enumerate() {
            state.unused[index] = !used.contains(&parameter.id());
        }
        Ok(())
    }

    /// The hook of a parameter.
    fn gradient_ready(self: &Arc<Self>, index: usize) -> Result<()> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        state.used[index] = true;
        if !state.sync {
            return Ok(());
        }
        if !state.under_way {
            state.under_way = true;
            state.drain();
            let reducer = self.clone();
            queue_callback(move || no_grad(|| reducer.finish()))?;
            // Unused parameters count as arrived.
            for unused in (0..state.unused.len()).filter(|&i| state.unused[i]).collect::<Vec<_>>() {
                self.complete(state, unused)?;
            }
        }
        state.arrived[index] += 1;
        let learning = self.settings.static_graph && !state.settled;
        if learning {
            if state.arrived[index] == 1 {
                state.order.push(index);
            }
            return Ok(());
        }
        if state.arrived[index] < state.expected[index] {
            return Ok(());
        }
        if state.arrived[index] > state.expected[index] || state.unused[index] {
            return Err(Error::autograd(format!(
                "DistributedDataParallel: the gradient of {} came more than once in one backward pass, or it came although the forward pass did not use the \
                 parameter. Pass everything the loss is made of out of the forward pass, or promise static_graph(true)",
                self.parameters[index].0
            )));
        }
        state.order.push(index);
        self.complete(state, index)
    }

    /// Counts a gradient and sends the buckets that are full.
    fn complete(&self, state: &mut State, index: usize) -> Result<()> {
        let (bucket, _) = state.places[index];
        state.buckets[bucket].pending -= 1;
        while state.next < state.buckets.len() && state.buckets[state.next].pending == 0 {
            self.gather(state)?;
            self.send(state)?;
        }
        Ok(())
    }

    /// Copies gradients of the next bucket into it, unless they are stored there already.
    fn gather(&self, state: &State) -> Result<()> {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for (index, place) in &state.buckets[state.next].members {
            let parameter = &self.parameters[*index].1;
            match parameter.grad() {
                Some(grad) if is_at(&grad, place) => {}
                Some(grad) => {
                    from.push(grad.detach());
                    to.push(place);
                    if !state.unused[*index] {
                        parameter.set_grad(Some(place.clone()))?;
                    }
                }
                None => {
                    place.zero_()?;
                }
            }
        }
        foreach::copy_(&from.iter().collect::<Vec<_>>(), &to)
    }

    /// Sends the next bucket: in the background, unless it is the last.
    fn send(&self, state: &mut State) -> Result<()> {
        let last = state.next + 1 == state.buckets.len();
        let next = state.next;
        state.next += 1;
        let group = match &self.settings.local {
            Some((start, local)) if state.iterations >= *start => match local {
                Some(local) => local,
                None => {
                    state.sent.push((Work::finished(Ok(())), None));
                    return Ok(());
                }
            },
            _ => &self.group,
        };
        let flat = &state.buckets[next].flat;
        let lower = match self.settings.hook {
            CommHook::PowerSgd { rank, start_iteration } if state.iterations >= start_iteration => {
                state.memories.resize_with(state.buckets.len(), || None);
                power_sgd::reduce(&state.buckets[next], &mut state.memories[next], rank, &**group)?;
                state.sent.push((Work::finished(Ok(())), None));
                return Ok(());
            }
            CommHook::AllReduce | CommHook::PowerSgd { .. } => None,
            CommHook::Fp16 => Some(DType::F16),
            CommHook::Bf16 => Some(DType::BF16),
        };
        let lowered = lower.filter(|d| d.size() < flat.dtype().size()).map(|d| flat.to_dtype(d)).transpose()?;
        let (tensors, op) = match &lowered {
            // Divided first, as PyTorch's hook: the sum over many ranks would overflow half precision.
            Some(lowered) => {
                lowered.div_(group.size() as f64)?;
                (vec![lowered.clone()], ReduceOp::Sum)
            }
            None => (vec![flat.clone()], ReduceOp::Mean),
        };
        let work = group.submit(Collective::AllReduce { tensors, op }, !last)?;
        state.sent.push((work, lowered));
        Ok(())
    }

    /// The end of backward.
    fn finish(&self) -> Result<()> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if self.settings.static_graph && !state.settled {
            for index in 0..self.parameters.len() {
                state.expected[index] = state.arrived[index].max(1);
                state.unused[index] = state.arrived[index] == 0;
            }
            for index in 0..self.parameters.len() {
                self.complete(state, index)?;
            }
        }
        if state.next < state.buckets.len() {
            let missing: Vec<&str> = (0..self.parameters.len())
                .filter(|&i| state.arrived[i] < state.expected[i] && !state.unused[i])
                .map(|i| self.parameters[i].0.as_str())
                .collect();
            state.begin();
            return Err(Error::autograd(format!(
                "DistributedDataParallel: these parameters had no part in the loss: {}. Every rank waits for their gradients: make all outputs part of the loss, \
                 or pass find_unused_parameters(true)",
                missing.join(", ")
            )));
        }
        self.receive(state)?;
        if self.settings.find_unused || self.settings.static_graph {
            self.restore_unused(state)?;
        }
        state.used.fill(false);
        self.settle(state)?;
        state.begin();
        Ok(())
    }

    /// Waits for the buckets.
    fn receive(&self, state: &mut State) -> Result<()> {
        for (bucket, (work, lowered)) in state.sent.iter().enumerate() {
            // A failed wait leaves the list to `drain`.
            work.wait()?;
            if let Some(lowered) = lowered {
                state.buckets[bucket].flat.copy_(lowered)?;
            }
        }
        state.sent.clear();
        state.iterations += 1;
        Ok(())
    }

    /// A parameter that no rank used keeps its gradient; one that another rank used gets the mean.
    fn restore_unused(&self, state: &mut State) -> Result<()> {
        let used: Vec<u8> = state.used.iter().map(|&used| used as u8).collect();
        let used = Tensor::from_slice(&used, [used.len()])?;
        self.group.all_reduce(&used, ReduceOp::Max)?;
        let used = used.to_vec::<u8>()?;
        for index in (0..used.len()).filter(|&i| state.unused[i] && used[i] == 1) {
            let (bucket, at) = state.places[index];
            self.parameters[index].1.set_grad(Some(state.buckets[bucket].members[at].1.clone()))?;
        }
        Ok(())
    }

    /// After the first iteration: buckets in the order of arrival on rank 0. If unused parameters are searched for each
    /// time, that order means little.
    fn settle(&self, state: &mut State) -> Result<()> {
        if state.settled {
            return Ok(());
        }
        state.settled = true;
        if self.settings.find_unused && !self.settings.static_graph {
            return Ok(());
        }
        let n = self.parameters.len();
        let mut order: Vec<i64> = state.order.iter().map(|&i| i as i64).collect();
        let seen: HashSet<i64> = order.iter().copied().collect();
        order.extend((0..n as i64).rev().filter(|i| !seen.contains(i)));
        let order = Tensor::from_slice(&order, [n])?;
        self.group.broadcast(&order, 0)?;
        let order: Vec<usize> = order.to_vec::<i64>()?.into_iter().map(|i| i as usize).collect();
        if order.iter().collect::<HashSet<_>>().len() != n || order.iter().any(|&i| i >= n) {
            return Err(Error::value(
                "DistributedDataParallel: rank 0 sent a bucket order that does not match this rank's parameters",
            ));
        }
        let old: Vec<usize> = state.buckets.iter().flat_map(|b| b.members.iter().map(|m| m.0)).collect();
        if order == old {
            return Ok(());
        }
        let buckets = buckets::divide(&order, &self.parameters, self.settings.bucket_bytes)?;
        // Gradients move along, so that the old buckets can be freed.
        for (index, place) in buckets.iter().flat_map(|b| &b.members) {
            let parameter = &self.parameters[*index].1;
            if let Some(grad) = parameter.grad()
                && state.buckets[state.places[*index].0].flat.shares_storage(&grad)
            {
                place.copy_(&grad)?;
                parameter.set_grad(Some(place.clone()))?;
            }
        }
        give_homes(&buckets, &self.parameters)?;
        state.places = places(&buckets, n);
        state.buckets = buckets;
        // The first iteration's approximation errors are dropped with their buckets.
        state.memories.clear();
        Ok(())
    }

    /// An iteration of a rank without data: takes part in the all-reduces with zero gradients.
    pub(super) fn shadow(&self) -> Result<()> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.drain();
        state.begin();
        for bucket in &state.buckets {
            bucket.flat.zero_()?;
        }
        while state.next < state.buckets.len() {
            self.send(state)?;
        }
        self.receive(state)?;
        if self.settings.find_unused || self.settings.static_graph {
            let none = Tensor::zeros_with([self.parameters.len()], DType::U8)?;
            self.group.all_reduce(&none, ReduceOp::Max)?;
        }
        self.settle(state)?;
        state.begin();
        Ok(())
    }
}

impl State {
    /// Waits for buckets that a failed pass left in flight: they are about to be reused. That pass has reported the
    /// error.
    fn drain(&mut self) {
        for (work, _) in std::mem::take(&mut self.sent) {
            let _ = work.wait();
        }
    }

    /// Resets to the state before the first gradient.
    fn begin(&mut self) {
        self.under_way = false;
        self.next = 0;
        self.order.clear();
        self.arrived.fill(0);
        for bucket in &mut self.buckets {
            bucket.pending = bucket.members.len();
        }
    }
}

impl Drop for Reducer {
    fn drop(&mut self) {
        lock(&self.hooks).drain(..).for_each(HookHandle::remove);
        for (_, parameter) in &self.parameters {
            // Without a home there is nothing to check.
            let _ = parameter.set_grad_home(None);
        }
    }
}

/// Makes backward write gradients to their slices.
fn give_homes(buckets: &[Bucket], parameters: &[(String, Tensor)]) -> Result<()> {
    buckets.iter().flat_map(|b| &b.members).try_for_each(|(i, place)| parameters[*i].1.set_grad_home(Some(place)))
}

/// Whether a gradient is in its bucket.
fn is_at(grad: &Tensor, place: &Tensor) -> bool {
    grad.shares_storage(place) && grad.layout().offset() == place.layout().offset()
}

fn places(buckets: &[Bucket], n: usize) -> Vec<(usize, usize)> {
    let mut places = vec![(0, 0); n];
    for (b, bucket) in buckets.iter().enumerate() {
        for (at, (index, _)) in bucket.members.iter().enumerate() {
            places[*index] = (b, at);
        }
    }
    places
}
