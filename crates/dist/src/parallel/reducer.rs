//! The reducer: sends gradients in buckets while backward runs.
//!
//! Hooks of the parameters signal that a gradient is complete. Backward writes most gradients directly to their slices
//! of the buckets (`Tensor::set_grad_home`); the others are copied when the bucket is sent, and become views of it.
//! Full buckets are sent in order, the same on all ranks. A callback at the end of backward waits for them. After the
//! first iteration the buckets are rebuilt in the order in which gradients arrived on rank 0.

use super::buckets::{self, Bucket};
use super::hook::{BucketHook, CommHook, GradBucket, Sent};
use super::power_sgd::{PowerSgd, PowerSgdMemory};
use crate::comm::ReduceOp;
use crate::group::{Collective, ProcessGroup, Work};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::{HookHandle, leaves, no_grad, queue_callback};
use rushlight_tensor::{Tensor, foreach};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Options of a [`Reducer`].
pub struct Settings {
    /// Bytes of a bucket. The first has 1 MiB at most, so that communication starts early.
    pub bucket_bytes: usize,
    /// Whether each forward pass searches for parameters that its outputs do not depend on.
    pub find_unused: bool,
    /// Whether every pass uses the same parameters, equally often.
    pub static_graph: bool,
    /// Compression.
    pub hook: CommHook,
    /// From this iteration on gradients are averaged over these ranks only, or not at all.
    pub local: Option<(usize, Option<Arc<dyn ProcessGroup>>)>,
    /// Whether gradients become views of the buckets; otherwise the means are copied to them.
    pub as_views: bool,
    /// Whether gradients follow each other in a bucket without gaps for alignment, as hooks expect.
    pub packed: bool,
    /// Whether a missing gradient counts as zeros instead of an error.
    pub zero_missing: bool,
    /// Whether a rank by itself, without a hook, does nothing.
    pub idle_alone: bool,
    /// Converts the errors of a pass.
    pub convert_error: fn(Error) -> Error,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bucket_bytes: 25 << 20,
            find_unused: false,
            static_graph: false,
            hook: CommHook::AllReduce,
            local: None,
            as_views: true,
            packed: false,
            zero_missing: false,
            idle_alone: false,
            convert_error: std::convert::identity,
        }
    }
}

/// Averages the gradients of parameters over the ranks of a group while backward runs, for
/// [`DistributedDataParallel`](super::DistributedDataParallel) and other front ends.
pub struct Reducer {
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
    sent: Vec<Sent>,
    /// Number of iterations that have communicated.
    iterations: usize,
    /// PowerSGD's state of each bucket.
    memories: Vec<PowerSgdMemory>,
    /// Whether the first iteration is over and the buckets have their final order.
    settled: bool,
    /// Whether ranks may run out of data.
    joins: bool,
    static_graph: bool,
    /// Sends buckets instead of the group.
    hook: Option<Arc<dyn BucketHook>>,
    /// What sums are divided by, if not by all ranks.
    divisor: Option<usize>,
    /// Decides at a pass's first gradient whether the pass communicates.
    decides: Option<Decision>,
    /// Whether it has decided for this pass.
    decided: bool,
}

/// Whether the pass that begins communicates.
pub type Decision = Arc<dyn Fn() -> Result<bool> + Send + Sync>;

impl Reducer {
    /// Begins to watch the gradients of parameters, by name.
    pub fn new(
        parameters: Vec<(String, Tensor)>,
        group: Arc<dyn ProcessGroup>,
        settings: Settings,
    ) -> Result<Arc<Self>> {
        let n = parameters.len();
        // Gradients arrive roughly in the reverse order of the forward pass.
        let order: Vec<usize> = (0..n).rev().collect();
        let buckets = buckets::divide(&order, &parameters, &settings)?;
        if settings.as_views {
            give_homes(&buckets, &parameters)?;
        }
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
            static_graph: settings.static_graph,
            hook: None,
            divisor: None,
            decides: None,
            decided: false,
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
                Some(reducer) => no_grad(|| reducer.gradient_ready(index)).map_err(reducer.settings.convert_error),
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

    /// Has a hook send buckets.
    pub fn set_hook(&self, hook: Arc<dyn BucketHook>) {
        lock(&self.state).hook = Some(hook);
    }

    /// Divides sums by a number of ranks, or by all.
    pub fn set_divisor(&self, ranks: Option<usize>) {
        lock(&self.state).divisor = ranks;
    }

    /// Promises that every pass uses the same parameters, equally often.
    pub fn set_static_graph(&self) {
        lock(&self.state).static_graph = true;
    }

    /// Has a function decide at the first gradient of each pass whether the pass communicates.
    pub fn set_decision(&self, decides: Decision) {
        lock(&self.state).decides = Some(decides);
    }

    /// Begins an iteration that communicates or not, and drops the state of a failed earlier one.
    pub fn begin(&self, sync: bool) {
        let mut state = lock(&self.state);
        state.drain();
        state.sync = sync;
        state.begin();
    }

    pub(super) fn before_forward(&self) -> Result<()> {
        self.begin(self.silent.load(Relaxed) == 0);
        let state = lock(&self.state);
        let joins = state.joins && state.sync;
        drop(state);
        if joins {
            // Tells ranks that have run out of data that others have not.
            super::join::count_active(&*self.group, true)?;
        }
        Ok(())
    }

    /// Finds the parameters that outputs do not depend on, if that is wanted.
    pub fn after_forward(&self, outputs: &[&Tensor]) -> Result<()> {
        if !self.settings.find_unused {
            return Ok(());
        }
        let mut state = lock(&self.state);
        if !state.sync || state.static_graph {
            return Ok(());
        }
        let used: HashSet<usize> = leaves(outputs).iter().map(Tensor::id).collect();
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
        if let Some(decides) = state.decides.clone()
            && !std::mem::replace(&mut state.decided, true)
        {
            state.sync = decides()?;
            let reducer = self.clone();
            queue_callback(move || {
                lock(&reducer.state).decided = false;
                Ok(())
            })?;
        }
        let idle = self.settings.idle_alone && self.group.size() == 1 && state.hook.is_none();
        if !state.sync || idle {
            return Ok(());
        }
        if !state.under_way {
            state.under_way = true;
            state.drain();
            let reducer = self.clone();
            queue_callback(move || no_grad(|| reducer.finish()).map_err(reducer.settings.convert_error))?;
            // Unused parameters count as arrived.
            for unused in (0..state.unused.len()).filter(|&i| state.unused[i]).collect::<Vec<_>>() {
                self.complete(state, unused)?;
            }
        }
        state.arrived[index] += 1;
        if state.arrived[index] == 1 {
            state.order.push(index);
        }
        if (state.static_graph && !state.settled) || state.arrived[index] < state.expected[index] {
            return Ok(());
        }
        if state.arrived[index] > state.expected[index] || state.unused[index] {
            return Err(Error::autograd(format!(
                "Expected to mark a variable ready only once: the gradient of {} came more than once in one backward pass, or it came \
                 although the forward pass did not use the parameter. Return everything the loss is made of from forward, or promise a \
                 static graph (static_graph=True)",
                self.parameters[index].0
            )));
        }
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
                    if self.settings.as_views && !state.unused[*index] {
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
                    state.sent.push(Sent::InPlace(Work::finished(Ok(()))));
                    return Ok(());
                }
            },
            _ => &self.group,
        };
        let Bucket { flat, members, .. } = &state.buckets[next];
        if let Some(hook) = &state.hook {
            let bucket = GradBucket { index: next, is_last: last, buffer: flat, gradients: members };
            state.sent.push(Sent::Hooked(hook.send(&bucket)?));
            return Ok(());
        }
        let lower = match self.settings.hook {
            CommHook::PowerSgd { rank, start_iteration } if state.iterations >= start_iteration => {
                state.memories.resize_with(state.buckets.len(), Default::default);
                let gradients: Vec<&Tensor> = members.iter().map(|(_, gradient)| gradient).collect();
                let power = PowerSgd { rank, ..Default::default() };
                power.reduce(flat, &gradients, &mut state.memories[next], &**group)?;
                state.sent.push(Sent::InPlace(Work::finished(Ok(()))));
                return Ok(());
            }
            CommHook::AllReduce | CommHook::PowerSgd { .. } => None,
            CommHook::Fp16 => Some(DType::F16),
            CommHook::Bf16 => Some(DType::BF16),
        };
        let submit =
            |tensor: &Tensor, op| group.submit(Collective::AllReduce { tensors: vec![tensor.clone()], op }, !last);
        let lowered = lower.filter(|d| d.size() < flat.dtype().size()).map(|d| flat.to_dtype(d)).transpose()?;
        let sent = match (lowered, state.divisor) {
            // Divided first, as PyTorch's hook: the sum over many ranks would overflow half precision.
            (Some(lowered), divisor) => {
                lowered.div_(divisor.unwrap_or(group.size()) as f64)?;
                Sent::Lowered(submit(&lowered, ReduceOp::Sum)?, lowered)
            }
            (None, Some(divisor)) => Sent::Divided(submit(flat, ReduceOp::Sum)?, divisor),
            (None, None) => Sent::InPlace(submit(flat, ReduceOp::Mean)?),
        };
        state.sent.push(sent);
        Ok(())
    }

    /// The end of backward.
    fn finish(&self) -> Result<()> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.static_graph && !state.settled {
            for index in 0..self.parameters.len() {
                state.expected[index] = state.arrived[index].max(1);
                state.unused[index] = state.arrived[index] == 0;
            }
            for index in 0..self.parameters.len() {
                self.complete(state, index)?;
            }
        }
        if self.settings.zero_missing {
            for missing in (0..self.parameters.len()).filter(|&i| state.arrived[i] == 0).collect::<Vec<_>>() {
                self.complete(state, missing)?;
            }
        }
        if state.next < state.buckets.len() {
            let missing: Vec<&str> = (0..self.parameters.len())
                .filter(|&i| state.arrived[i] < state.expected[i] && !state.unused[i])
                .map(|i| self.parameters[i].0.as_str())
                .collect();
            state.begin();
            return Err(Error::autograd(format!(
                "Expected to have finished reduction in the prior iteration: these parameters had no part in the loss: {}. Every rank \
                 waits for their gradients: make all outputs of forward part of the loss, or have unused parameters searched for \
                 (find_unused_parameters=True)",
                missing.join(", ")
            )));
        }
        self.receive(state)?;
        self.give_back(state)?;
        state.used.fill(false);
        self.settle(state)?;
        state.begin();
        Ok(())
    }

    /// Waits for the buckets.
    fn receive(&self, state: &mut State) -> Result<()> {
        for (bucket, sent) in state.buckets.iter().zip(&state.sent) {
            // A failed wait leaves the list to `drain`.
            sent.receive(bucket)?;
        }
        state.sent.clear();
        state.iterations += 1;
        Ok(())
    }

    /// Gives the means to the parameters. One that no rank used keeps its gradient.
    fn give_back(&self, state: &State) -> Result<()> {
        let used = match self.settings.find_unused || state.static_graph {
            true => {
                let used: Vec<u8> = state.used.iter().map(|&used| used as u8).collect();
                let used = Tensor::from_slice(&used, [used.len()])?;
                self.group.all_reduce(&used, ReduceOp::Max)?;
                Some(used.to_vec::<u8>()?)
            }
            false => None,
        };
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for (index, place) in state.buckets.iter().flat_map(|bucket| &bucket.members) {
            if used.as_ref().is_some_and(|used| used[*index] == 0) {
                continue;
            }
            let parameter = &self.parameters[*index].1;
            match parameter.grad() {
                Some(grad) if is_at(&grad, place) => {}
                _ if self.settings.as_views => parameter.set_grad(Some(place.clone()))?,
                Some(grad) => {
                    to.push(grad.detach());
                    from.push(place);
                }
                None => parameter.set_grad(Some(place.copy()?))?,
            }
        }
        foreach::copy_(&from, &to.iter().collect::<Vec<_>>())
    }

    /// After the first iteration: buckets in the order of arrival on rank 0. If unused parameters are searched for each
    /// time, that order means little.
    fn settle(&self, state: &mut State) -> Result<()> {
        if state.settled {
            return Ok(());
        }
        state.settled = true;
        if self.settings.find_unused && !state.static_graph {
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
        let buckets = buckets::divide(&order, &self.parameters, &self.settings)?;
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
        if self.settings.as_views {
            give_homes(&buckets, &self.parameters)?;
        }
        state.places = places(&buckets, n);
        state.buckets = buckets;
        // The first iteration's approximation errors are dropped with their buckets.
        state.memories.clear();
        Ok(())
    }

    /// An iteration of a rank without data: takes part in the all-reduces with zero gradients.
    pub fn shadow(&self) -> Result<()> {
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
        if self.settings.find_unused || state.static_graph {
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
        std::mem::take(&mut self.sent).iter().for_each(Sent::drain);
    }

    /// Resets to the state before the first gradient.
    fn begin(&mut self) {
        self.under_way = false;
        self.decided = false;
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
        for (_, parameter) in self.parameters.iter().filter(|_| self.settings.as_views) {
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
