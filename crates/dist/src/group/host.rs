//! Groups of the engines that work on the CPU's memory (`tcp`, `mpi`): a transport, its queue and its thread.

use super::staging::{Staged, spans, written};
use super::{Collective, FlightRecord, ObjectSeal, ProcessGroup, Work};
use crate::comm::{Call, Channel, Limit, Reduction, Signature, Transfer, Transport};
use crate::job::Job;
use rushlight_core::sync::lock;
use rushlight_core::{Error, ErrorKind, Result};
use rushlight_tensor::{Tensor, profile};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A group over a [`Transport`].
pub(crate) struct HostGroup {
    shared: Arc<Inner>,
}

struct Inner {
    name: String,
    rank: usize,
    size: usize,
    timeout: Mutex<Duration>,
    job: Arc<Job>,
    /// Held while a collective runs.
    transport: Mutex<Box<dyn Transport>>,
    backend: &'static str,
    queue: Mutex<Queue>,
    changed: Condvar,
    record: Arc<Mutex<FlightRecord>>,
    ranks: Vec<usize>,
    /// Number of collectives of all ranks so far; equal on all of them.
    collectives: AtomicU64,
    object_seal: Option<ObjectSeal>,
}

#[derive(Default)]
struct Queue {
    sequence: u64,
    waiting: VecDeque<(u64, Task, Work)>,
    /// Whether the thread runs a collective now.
    busy: bool,
    has_thread: bool,
    closed: bool,
}

/// A task of the thread.
enum Task {
    Run(Collective),
    /// Compares this call with the other ranks'; another engine moves the data.
    Compare(String),
}

impl Task {
    fn describe(&self) -> String {
        match self {
            Task::Run(collective) => collective.describe(),
            Task::Compare(description) => description.clone(),
        }
    }
}

impl HostGroup {
    pub(crate) fn new(
        name: &str,
        ranks: Vec<usize>,
        transport: Box<dyn Transport>,
        job: Arc<Job>,
        timeout: Duration,
    ) -> Self {
        let record = Arc::new(Mutex::new(FlightRecord::new(name, job.rank)));
        job.register(&record);
        let object_seal = job.network.as_ref().map(|network| ObjectSeal::new(network.store.secret(), name));
        let shared = Arc::new(Inner {
            object_seal,
            name: name.into(),
            ranks,
            rank: transport.rank(),
            size: transport.size(),
            backend: transport.backend(),
            timeout: Mutex::new(timeout),
            record,
            job,
            transport: Mutex::new(transport),
            queue: Mutex::default(),
            changed: Condvar::new(),
            collectives: AtomicU64::new(0),
        });
        Self { shared }
    }

    /// Compares this rank's call with the other ranks', in the background. A rank that calls
    /// another collective, or none, ends the job. Returns the call's number in the record, whose times are those of the
    /// engine that moves the data.
    pub(crate) fn compare(&self, description: &str) -> Result<u64> {
        let inner = &self.shared;
        inner.job.abort.check()?;
        let mut queue = lock(&inner.queue);
        queue.sequence += 1;
        let sequence = queue.sequence;
        lock(&inner.record).call(sequence, description.to_owned());
        drop(inner.enqueue(queue, sequence, Task::Compare(description.to_owned()))?);
        Ok(sequence)
    }

    /// Records a call that no other engine compares. Returns its number.
    pub(crate) fn note(&self, description: &str) -> u64 {
        let mut queue = lock(&self.shared.queue);
        queue.sequence += 1;
        lock(&self.shared.record).call(queue.sequence, description.to_owned());
        queue.sequence
    }

    pub(crate) fn record(&self) -> &Arc<Mutex<FlightRecord>> {
        &self.shared.record
    }
}

impl Drop for HostGroup {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.changed.notify_all();
    }
}

impl ProcessGroup for HostGroup {
    fn rank(&self) -> usize {
        self.shared.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    fn name(&self) -> &str {
        &self.shared.name
    }

    fn backend(&self) -> &'static str {
        self.shared.backend
    }

    fn ranks(&self) -> &[usize] {
        &self.shared.ranks
    }

    fn timeout(&self) -> Duration {
        *lock(&self.shared.timeout)
    }

    fn set_timeout(&self, timeout: Duration) {
        *lock(&self.shared.timeout) = timeout;
    }

    fn submit(&self, collective: Collective, background: bool) -> Result<Work> {
        let inner = &self.shared;
        collective.check(inner.rank, inner.size)?;
        inner.job.abort.check()?;
        let mut queue = lock(&inner.queue);
        queue.sequence += 1;
        let sequence = queue.sequence;
        lock(&inner.record).call(sequence, collective.describe());
        if !background && queue.waiting.is_empty() && !queue.busy {
            // The queue is empty: run here and avoid the switch to the other thread and back. The transport is locked
            // first, so that nothing overtakes.
            let mut transport = lock(&inner.transport);
            drop(queue);
            return Ok(Work::finished(inner.perform(&mut **transport, sequence, &Task::Run(collective), false)));
        }
        inner.enqueue(queue, sequence, Task::Run(collective))
    }

    fn flight_record(&self) -> FlightRecord {
        lock(&self.shared.record).clone()
    }

    fn object_seal(&self) -> Option<&ObjectSeal> {
        self.shared.object_seal.as_ref()
    }
}

impl Inner {
    fn enqueue(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>, sequence: u64, task: Task) -> Result<Work> {
        if !queue.has_thread {
            let shared = self.clone();
            std::thread::Builder::new().name(format!("rushlight-{}", self.name)).spawn(move || shared.serve())?;
            queue.has_thread = true;
        }
        let work = Work::pending();
        queue.waiting.push_back((sequence, task, work.clone()));
        drop(queue);
        self.changed.notify_all();
        Ok(work)
    }

    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            while let Some((sequence, task, work)) = queue.waiting.pop_front() {
                queue.busy = true;
                drop(queue);
                let result = self.perform(&mut **lock(&self.transport), sequence, &task, true);
                // Drop the tensors before the handle completes: then the caller owns their memory again.
                drop(task);
                queue = lock(&self.queue);
                queue.busy = false;
                work.finish(result);
            }
            if queue.closed {
                return;
            }
            queue = self.changed.wait(queue).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Runs a collective. A failure ends the job: the other ranks are notified, or they would wait.
    fn perform(&self, transport: &mut dyn Transport, sequence: u64, task: &Task, background: bool) -> Result<()> {
        let description = task.describe();
        // Another engine records the times of a call that is only compared.
        let runs = matches!(task, Task::Run(_));
        if runs {
            lock(&self.record).start(sequence);
        }
        let _spans = if profile::is_on() { self.spans(task) } else { Vec::new() };
        let timeout = *lock(&self.timeout);
        let limit = Limit { background, ..Limit::new(&self.job.abort, timeout) };
        let mut signature = Signature::new(&description);
        if !matches!(task, Task::Run(collective) if collective.is_message()) {
            signature.number = self.collectives.fetch_add(1, Relaxed) + 1;
        }
        let call = Call { signature, limit };
        let result = self.job.abort.check().and_then(|()| match task {
            Task::Run(collective) => execute(transport, collective, &call),
            Task::Compare(_) => transport.barrier(&call),
        });
        if runs || result.is_err() {
            lock(&self.record).end(sequence, result.is_ok());
        }
        result.map_err(|e| {
            let aborted = self.job.abort.is_raised();
            let mut reason = e.to_string();
            if !aborted && e.kind() == ErrorKind::Timeout {
                // The rank we wait for may itself be waiting: query all ranks to find the missing one.
                if let Some(late) = self.job.roll_call(&self.name, &self.ranks, sequence) {
                    reason = format!("timed out after {} s: not here: {late}", timeout.as_secs_f32());
                }
                let seconds = timeout.as_secs_f32();
                reason = format!("{description} {reason} (the group's timeout is {seconds} s)");
            }
            let reason = self.job.fail(&reason, e.kind());
            if !aborted {
                // Only the rank that detected the failure prints it.
                let text = format!("rushlight: {}", lock(&self.record));
                // In a single write: other ranks may share the terminal.
                eprint!("{text}");
            }
            self.job.write_records();
            Error::new(
                e.kind(),
                format!("{description} (collective {sequence} of group {}, rank {}): {reason}", self.name, self.rank),
            )
        })
    }
}

impl Inner {
    /// The profiler's spans of a task, by PyTorch's names: `gloo:all_reduce`, and one for each send and receive.
    #[cold]
    fn spans(&self, task: &Task) -> Vec<profile::Span> {
        // PyTorch's engine for host memory is Gloo, and programs look for its name.
        let gloo = if self.backend == "tcp" { "gloo" } else { self.backend };
        let one = |backend: &str, description: &str, inputs: &[&Tensor]| {
            let name = || format!("{backend}:{}", call_name(description));
            let mut span = profile::span(profile::Category::Annotation, name);
            if profile::shapes_wanted() {
                span.describe(|details| {
                    details.shapes = inputs.iter().map(|t| t.shape().to_vec()).collect();
                    details.dtypes = inputs.iter().map(|t| t.dtype().name()).collect();
                });
            }
            span
        };
        match task {
            Task::Run(Collective::P2p(all)) => {
                let name = |p: &super::P2p| if p.sends { "send" } else { "recv" };
                all.iter().map(|p| one(gloo, name(p), &[&p.tensor])).collect()
            }
            Task::Run(collective) => vec![one(gloo, &collective.describe(), &collective.inputs())],
            // The data moves by another engine, which has its own spans.
            Task::Compare(description) => vec![one(self.backend, description, &[])],
        }
    }
}

/// A collective's name without its arguments.
pub(super) fn call_name(description: &str) -> &str {
    description.split(['(', ' ']).next().unwrap_or(description)
}

/// Returns the staged memory after a call. Memory that a failed call may still use is never freed.
fn after<T>(c: &dyn Transport, result: Result<()>, staged: T) -> Result<T> {
    match result {
        Ok(()) => Ok(staged),
        Err(e) => {
            if c.holds_memory() {
                std::mem::forget(staged);
            }
            Err(e)
        }
    }
}

fn execute(c: &mut dyn Transport, collective: &Collective, call: &Call) -> Result<()> {
    if !collective.is_message() {
        c.begin(call)?;
    }
    transfer(c, collective, call)
}

fn transfer(c: &mut dyn Transport, collective: &Collective, call: &Call) -> Result<()> {
    // SAFETY, for all calls below: the staged tensors keep the bytes alive until the call returns, and longer if the
    // transport needs that. By the contract of `Work` the caller does not use them meanwhile.
    match collective {
        Collective::AllReduce { tensors, op } => {
            for tensor in tensors {
                let how = Reduction { dtype: tensor.dtype(), op: *op };
                let data = Staged::operand(tensor, how, c.size())?;
                let result = unsafe { c.all_reduce(data.span(), how, call) };
                after(c, result, data)?.written()?;
            }
            Ok(())
        }
        Collective::Broadcast { tensors, root } => {
            for tensor in tensors {
                let data = Staged::new(tensor)?;
                let result = unsafe { c.broadcast(data.span(), *root, call) };
                let data = after(c, result, data)?;
                if c.rank() != *root {
                    data.written()?;
                }
            }
            Ok(())
        }
        Collective::Reduce { tensor, op, root } => {
            let how = Reduction { dtype: tensor.dtype(), op: *op };
            let data = Staged::operand(tensor, how, c.size())?;
            let result = unsafe { c.reduce(data.span(), how, *root, call) };
            let data = after(c, result, data)?;
            if c.rank() == *root { data.written() } else { Ok(()) }
        }
        Collective::AllGather { outputs, input } => {
            let (input, outputs) = (Staged::new(input)?, Staged::all(outputs)?);
            let result = unsafe { c.all_gather(input.span(), &spans(&outputs), call) };
            written(after(c, result, (input, outputs))?.1)
        }
        Collective::ReduceScatter { output, inputs, op } => {
            let how = Reduction { dtype: output.dtype(), op: *op };
            let operand = |tensor| Staged::operand(tensor, how, c.size());
            let inputs = inputs.iter().map(operand).collect::<Result<Vec<_>>>()?;
            let staged = Staged::new(output)?;
            let result = unsafe { c.reduce_scatter(&spans(&inputs), staged.span(), how, call) };
            after(c, result, (inputs, staged))?.1.written()
        }
        Collective::AllToAll { outputs, inputs } => {
            let (inputs, outputs) = (Staged::all(inputs)?, Staged::all(outputs)?);
            let result = unsafe { c.all_to_all(&spans(&inputs), &spans(&outputs), call) };
            written(after(c, result, (inputs, outputs))?.1)
        }
        Collective::Gather { input, outputs, root } => {
            let (input, outputs) = (Staged::new(input)?, Staged::all(outputs)?);
            let result = unsafe { c.gather(input.span(), &spans(&outputs), *root, call) };
            written(after(c, result, (input, outputs))?.1)
        }
        Collective::Scatter { output, inputs, root } => {
            let (inputs, output) = (Staged::all(inputs)?, Staged::new(output)?);
            let result = unsafe { c.scatter(&spans(&inputs), output.span(), *root, call) };
            after(c, result, (inputs, output))?.1.written()
        }
        Collective::P2p(all) => {
            let staged = all.iter().map(|p| Staged::new(&p.tensor)).collect::<Result<Vec<_>>>()?;
            let mut transfers: Vec<Transfer> = all
                .iter()
                .zip(&staged)
                .map(|(p, s)| match p.sends {
                    true => Transfer::send(p.peer, Channel::tagged(p.tag), s.span()),
                    false => Transfer::receive(p.peer, Channel::tagged(p.tag), s.span()),
                })
                .collect();
            let result = unsafe { c.exchange(&mut transfers, call) };
            let staged = after(c, result, staged)?;
            all.iter().zip(staged).filter(|(p, _)| !p.sends).try_for_each(|(_, s)| s.written())
        }
        Collective::RecvAny { tensor, tag, from } => {
            let peer = c.probe(*tag, call)?;
            let staged = Staged::new(tensor)?;
            let mut transfer = [Transfer::receive(peer, Channel::tagged(*tag), staged.span())];
            let result = unsafe { c.exchange(&mut transfer, call) };
            after(c, result, staged)?.written()?;
            from.store(peer, Relaxed);
            Ok(())
        }
        Collective::Several(all) => all.iter().try_for_each(|one| transfer(c, one, call)),
        Collective::Barrier => c.barrier(call),
    }
}
