//! A group's collectives over MPI.

mod messages;

use super::Runtime;
use super::abi::{Handle, Status};
use crate::comm::{Call, Limit, ReduceOp, Reduction, Signature, Span, Transfer, Transport};
use rushlight_core::{DType, Error, Result};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Maximum bytes per MPI call; MPI counts in 32 bits. RUSHLIGHT_MPI_CHUNK sets another limit.
const CHUNK: usize = 256 << 20;
/// Concurrent messages of an all-to-all, in each direction.
const WINDOW: usize = 16;
/// The tag of messages within collectives. Tags of sends are one higher than the program's.
const INTERNAL: c_int = 0;
/// Polls before a wait yields its processor, and before it sleeps between polls.
const SPINS: u32 = 500;
const YIELDS: u32 = 20_000;
/// How long a collective may continue after a rank of its group has left.
const GRACE: Duration = Duration::from_secs(2);

/// One rank's end of a group over MPI.
pub(crate) struct MpiTransport {
    runtime: Arc<Runtime>,
    comm: Handle,
    rank: usize,
    size: usize,
    /// The group's ranks in the world.
    ranks: Vec<usize>,
    scratch: Vec<u64>,
    chunk: usize,
}

/// Contiguous spans.
fn joined(spans: &[Span]) -> Option<Span> {
    let first = spans.iter().find(|span| span.len > 0)?;
    let mut end = first.ptr;
    let mut total = 0;
    for span in spans.iter().filter(|span| span.len > 0) {
        if span.ptr != end {
            return None;
        }
        end = end.wrapping_add(span.len);
        total += span.len;
    }
    Some(Span { ptr: first.ptr, len: total })
}

fn overlap(a: Span, b: Span) -> bool {
    let (a_at, b_at) = (a.ptr as usize, b.ptr as usize);
    a_at < b_at + b.len && b_at < a_at + a.len
}

/// Lengths and offsets from the first, in units of `unit` bytes.
fn places(spans: &[Span], unit: usize) -> (Vec<c_int>, Vec<c_int>) {
    let counts: Vec<c_int> = spans.iter().map(|span| (span.len / unit) as c_int).collect();
    let mut displacements = Vec::with_capacity(counts.len());
    let mut at = 0;
    for n in &counts {
        displacements.push(at);
        at += n;
    }
    (counts, displacements)
}

impl MpiTransport {
    /// The group of all ranks of MPI_COMM_WORLD; this process is `rank`.
    pub(crate) fn world(runtime: &Arc<Runtime>, rank: usize, limit: &Limit) -> Result<Self> {
        let shared = runtime.clone();
        let made = runtime.blocking("MPI_Comm_split", limit, move || {
            let mut comm: Handle = 0;
            let (f, c) = (&shared.mpi.functions, &shared.mpi.constants);
            // SAFETY: a collective over all ranks, each of which comes here once for each world.
            let code = unsafe { (f.comm_split)(c.comm_world, 0, rank as c_int, &mut comm) };
            shared.check("MPI_Comm_split", code).map(|()| comm)
        })?;
        let (mut found, size) = (0, runtime.size);
        // SAFETY: the communicator was just made.
        runtime.check("MPI_Comm_rank", unsafe { (runtime.mpi.functions.comm_rank)(made, &mut found) })?;
        if found as usize != rank {
            return Err(Error::value(format!(
                "init_process_group: rank {rank} is rank {found} in MPI's order: another process says that it is rank {rank} too"
            )));
        }
        Self::new(runtime, made, rank, (0..size).collect())
    }

    /// A group of some ranks of this one. Only they call this.
    pub(crate) fn subgroup(
        world: Handle,
        runtime: &Arc<Runtime>,
        id: u64,
        rank: usize,
        ranks: &[usize],
        limit: &Limit,
    ) -> Result<Self> {
        let (shared, list) = (runtime.clone(), ranks.iter().map(|r| *r as c_int).collect::<Vec<_>>());
        // The tag separates groups that threads of the same ranks make concurrently.
        let tag = (id % 32768) as c_int;
        let made = runtime.blocking("MPI_Comm_create_group", limit, move || {
            let f = &shared.mpi.functions;
            let (mut all, mut group, mut comm): (Handle, Handle, Handle) = (0, 0, 0);
            // SAFETY: valid handles; a collective over the members, each of which comes here.
            unsafe {
                shared.check("MPI_Comm_group", (f.comm_group)(world, &mut all))?;
                let code = (f.group_incl)(all, list.len() as c_int, list.as_ptr(), &mut group);
                shared.check("MPI_Group_incl", code)?;
                shared.check("MPI_Comm_create_group", (f.comm_create_group)(world, group, tag, &mut comm))?;
                (f.group_free)(&mut group);
                (f.group_free)(&mut all);
            }
            Ok(comm)
        })?;
        if made == runtime.mpi.constants.comm_null {
            return Err(Error::io("MPI_Comm_create_group: this rank is not a member of the group"));
        }
        Self::new(runtime, made, rank, ranks.to_vec())
    }

    fn new(runtime: &Arc<Runtime>, comm: Handle, rank: usize, ranks: Vec<usize>) -> Result<Self> {
        let (f, c) = (&runtime.mpi.functions, &runtime.mpi.constants);
        // SAFETY: the communicator was just made.
        let code = unsafe { (f.comm_set_errhandler)(comm, c.errors_return) };
        runtime.check("MPI_Comm_set_errhandler", code)?;
        let chunk = std::env::var("RUSHLIGHT_MPI_CHUNK").ok().and_then(|text| text.parse::<usize>().ok());
        let chunk = chunk.unwrap_or(CHUNK).clamp(64, 1 << 30) / 64 * 64;
        let size = ranks.len();
        Ok(Self { runtime: runtime.clone(), comm, rank, size, ranks, scratch: Vec::new(), chunk })
    }

    /// The communicator, for groups made of its ranks.
    pub(crate) fn handle(&self) -> Handle {
        self.comm
    }

    /// A buffer of bytes, aligned for every dtype.
    fn scratch(&mut self, len: usize) -> Span {
        self.scratch.resize(self.scratch.len().max(len.div_ceil(8)), 0);
        Span { ptr: self.scratch.as_mut_ptr().cast(), len }
    }

    /// Polls a request until it is done.
    ///
    /// # Safety
    /// The request is active and its memory stays valid until this returns; after an error, for
    /// ever ([`Transport::holds_memory`]).
    unsafe fn wait(&self, request: &mut Handle, name: &str, call: &Call) -> Result<Status> {
        let test = self.runtime.mpi.functions.test;
        let mut polls = 0u32;
        let mut left: Option<(usize, Instant)> = None;
        let result = loop {
            let (mut done, mut status) = (0, Status::default());
            // SAFETY: by contract.
            let code = unsafe { test(request, &mut done, &mut status) };
            if let Err(e) = self.runtime.check(name, code) {
                break Err(e);
            }
            if done != 0 {
                return Ok(status);
            }
            polls = polls.saturating_add(1);
            if polls < SPINS {
                std::hint::spin_loop();
                continue;
            }
            if polls < YIELDS {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
            if !polls.is_multiple_of(16) {
                continue;
            }
            if let Err(e) = call.limit.check(|| format!("the other ranks, in {name}")) {
                break Err(e);
            }
            // MPI does not report that a rank has left. Its earlier messages may still arrive.
            match left {
                None => {
                    let gone = self.ranks.iter().find(|&&r| call.limit.abort.has_departed(r));
                    left = gone.map(|&r| (r, Instant::now() + GRACE));
                }
                Some((rank, until)) if Instant::now() > until => {
                    break Err(Error::io(format!("rank {rank} has left the job")));
                }
                Some(_) => {}
            }
        };
        self.runtime.failed.store(true, Relaxed);
        result
    }

    /// Starts an MPI call and waits for it. `start` gets the request to fill.
    ///
    /// # Safety
    /// As for [`MpiTransport::wait`].
    unsafe fn run(&self, name: &str, call: &Call, start: impl FnOnce(*mut Handle) -> c_int) -> Result<Status> {
        let mut request: Handle = 0;
        let code = start(&mut request);
        if let Err(e) = self.runtime.check(name, code) {
            self.runtime.failed.store(true, Relaxed);
            return Err(e);
        }
        // SAFETY: by contract.
        unsafe { self.wait(&mut request, name, call) }
    }

    /// Datatype and operation of a reduction. MPI's own sums are used if they have our semantics.
    fn reduction(&self, how: Reduction) -> Result<(Handle, Handle)> {
        let c = &self.runtime.mpi.constants;
        let op = how.partial().op;
        Ok(match (how.dtype, op) {
            (DType::F32, ReduceOp::Sum) => (c.float, c.sum),
            (DType::F64, ReduceOp::Sum) => (c.double, c.sum),
            (DType::I32, ReduceOp::Sum) => (c.int32, c.sum),
            (DType::I64, ReduceOp::Sum) => (c.int64, c.sum),
            (dtype, op) => {
                let carrier = match dtype.size() {
                    1 => c.byte,
                    2 => c.int16,
                    4 => c.int32,
                    _ => c.int64,
                };
                (carrier, self.runtime.op(dtype, op)?)
            }
        })
    }

    /// Rounds of a collective whose longest part is `longest`, staged in at most [`MpiTransport::chunk`] bytes: the
    /// bytes of each part in a round, and how many rounds.
    fn rounds(&self, longest: usize) -> (usize, usize) {
        let share = (self.chunk / self.size / 64 * 64).max(64);
        (share, longest.div_ceil(share))
    }

    /// All ranks' signatures, after a mismatch was detected.
    fn mismatch(&mut self, call: &Call) -> Error {
        let mut all = vec![[0u8; Signature::BYTES]; self.size];
        all[self.rank] = call.signature.to_bytes();
        let (f, c) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants);
        let n = Signature::BYTES as c_int;
        // SAFETY: the list has a signature for each rank.
        let result = unsafe {
            self.run("MPI_Iallgather", call, |request| {
                (f.iallgather)(c.in_place, 0, c.byte, all.as_mut_ptr().cast(), n, c.byte, self.comm, request)
            })
        };
        if let Err(e) = result {
            // MPI may still write to it.
            std::mem::forget(all);
            return e;
        }
        let told =
            |index: usize| format!("rank {} called {}", self.ranks[index], Signature::from_bytes(&all[index]).text());
        // The first few ranks, and every rank whose call differs from the first.
        let first = Signature::from_bytes(&all[0]);
        let odd = |index: &usize| *index < 4 || !Signature::from_bytes(&all[*index]).matches(&first);
        let list: Vec<String> = (0..self.size).filter(odd).take(16).map(told).collect();
        self.runtime.failed.store(true, Relaxed);
        Error::value(format!("the ranks called different collectives: {}", list.join("; ")))
    }
}

// All methods: spans are valid and used by nothing else until the method returns; after an error, if
// `holds_memory`, for ever. Pointers given to MPI are into them, or into memory of this transport, which is kept too.
impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        "mpi"
    }

    fn holds_memory(&self) -> bool {
        self.runtime.failed.load(Relaxed)
    }

    /// Compares the ranks' calls first: after a mismatch MPI would hang or write out of bounds.
    fn begin(&mut self, call: &Call) -> Result<()> {
        let hash = call.signature.hash() as i64;
        let mut extremes = Box::new([hash, !hash]);
        let (f, c) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants);
        // SAFETY: two integers, kept below if the call fails.
        let result = unsafe {
            self.run("MPI_Iallreduce", call, |request| {
                (f.iallreduce)(c.in_place, extremes.as_mut_ptr().cast(), 2, c.int64, c.max, self.comm, request)
            })
        };
        if let Err(e) = result {
            std::mem::forget(extremes);
            return Err(e);
        }
        // Equal if the largest and the smallest are the same.
        if extremes[0] == !extremes[1] { Ok(()) } else { Err(self.mismatch(call)) }
    }

    unsafe fn all_reduce(&mut self, data: Span, how: Reduction, call: &Call) -> Result<()> {
        let (datatype, op) = self.reduction(how)?;
        let (f, c) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants);
        for start in (0..data.len).step_by(self.chunk) {
            let part = data.part(start, self.chunk);
            let n = (part.len / how.dtype.size()) as c_int;
            // SAFETY: see above the impl.
            unsafe {
                self.run("MPI_Iallreduce", call, |request| {
                    (f.iallreduce)(c.in_place, part.ptr.cast(), n, datatype, op, self.comm, request)
                })?
            };
        }
        // SAFETY: see above the impl.
        unsafe { how.finish(data, self.size) };
        Ok(())
    }

    unsafe fn broadcast(&mut self, data: Span, root: usize, call: &Call) -> Result<()> {
        let (f, c) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants);
        for start in (0..data.len).step_by(self.chunk) {
            let part = data.part(start, self.chunk);
            // SAFETY: see above the impl.
            unsafe {
                self.run("MPI_Ibcast", call, |request| {
                    (f.ibcast)(part.ptr.cast(), part.len as c_int, c.byte, root as c_int, self.comm, request)
                })?
            };
        }
        Ok(())
    }

    unsafe fn reduce(&mut self, data: Span, how: Reduction, root: usize, call: &Call) -> Result<()> {
        let (datatype, op) = self.reduction(how)?;
        let (f, c) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants);
        for start in (0..data.len).step_by(self.chunk) {
            let part = data.part(start, self.chunk);
            let n = (part.len / how.dtype.size()) as c_int;
            let (input, output): (*const c_void, *mut c_void) = match self.rank == root {
                true => (c.in_place, part.ptr.cast()),
                false => (part.ptr.cast(), std::ptr::null_mut()),
            };
            // SAFETY: see above the impl.
            unsafe {
                self.run("MPI_Ireduce", call, |request| {
                    (f.ireduce)(input, output, n, datatype, op, root as c_int, self.comm, request)
                })?
            };
        }
        if self.rank == root {
            // SAFETY: see above the impl.
            unsafe { how.finish(data, self.size) };
        }
        Ok(())
    }

    unsafe fn all_gather(&mut self, input: Span, outputs: &[Span], call: &Call) -> Result<()> {
        // SAFETY: see above the impl, here and below.
        unsafe { outputs[self.rank].copy_from(input) };
        if let Some(whole) = joined(outputs).filter(|whole| whole.len <= self.chunk) {
            return unsafe { self.all_gather_joined(whole, outputs, call) };
        }
        let longest = outputs.iter().map(|span| span.len).max().unwrap_or(0);
        let (share, rounds) = self.rounds(longest);
        for round in 0..rounds {
            let parts: Vec<Span> = outputs.iter().map(|span| span.part(round * share, share)).collect();
            let staged = self.stage(&parts);
            unsafe {
                staged[self.rank].copy_from(parts[self.rank]);
                if let Some(whole) = joined(&staged) {
                    self.all_gather_joined(whole, &staged, call)?;
                }
                for (index, part) in parts.iter().enumerate().filter(|(index, _)| *index != self.rank) {
                    part.copy_from(staged[index]);
                }
            }
        }
        Ok(())
    }

    unsafe fn reduce_scatter(&mut self, inputs: &[Span], output: Span, how: Reduction, call: &Call) -> Result<()> {
        let (datatype, op) = self.reduction(how)?;
        let longest = inputs.iter().map(|span| span.len).max().unwrap_or(0);
        // MPI does not allow the result to alias an input.
        let whole = joined(inputs).filter(|whole| whole.len <= self.chunk && !overlap(*whole, output));
        let (share, rounds) = if whole.is_some() { (longest, 1) } else { self.rounds(longest) };
        for round in 0..rounds {
            let parts: Vec<Span> = inputs.iter().map(|span| span.part(round * share, share)).collect();
            let from = match whole {
                Some(whole) => whole.ptr,
                None => {
                    let staged = self.stage(&parts);
                    for (place, part) in staged.iter().zip(&parts) {
                        // SAFETY: see above the impl.
                        unsafe { place.copy_from(*part) };
                    }
                    self.scratch.as_mut_ptr().cast()
                }
            };
            let (counts, _) = places(&parts, how.dtype.size());
            let into = output.part(round * share, share);
            let (f, comm) = (&self.runtime.mpi.functions, self.comm);
            // SAFETY: see above the impl; the counts are kept if the call fails.
            let result = unsafe {
                self.run("MPI_Ireduce_scatter", call, |request| {
                    (f.ireduce_scatter)(from.cast(), into.ptr.cast(), counts.as_ptr(), datatype, op, comm, request)
                })
            };
            if let Err(e) = result {
                std::mem::forget(counts);
                return Err(e);
            }
        }
        // SAFETY: see above the impl.
        unsafe { how.finish(output, self.size) };
        Ok(())
    }

    unsafe fn all_to_all(&mut self, inputs: &[Span], outputs: &[Span], call: &Call) -> Result<()> {
        let (n, at) = (self.size, self.rank);
        // SAFETY: see above the impl.
        unsafe { outputs[at].copy_from(inputs[at]) };
        // Only the two ranks of a pair know their sizes, so no MPI collective applies.
        for first in (1..n).step_by(WINDOW) {
            let mut messages = Vec::new();
            for step in first..n.min(first + WINDOW) {
                let (to, from) = ((at + step) % n, (at + n - step) % n);
                messages.push((from, INTERNAL, outputs[from], false));
                messages.push((to, INTERNAL, inputs[to], true));
            }
            // SAFETY: see above the impl.
            unsafe { self.messages(&messages, call)? };
        }
        Ok(())
    }

    unsafe fn gather(&mut self, input: Span, outputs: &[Span], root: usize, call: &Call) -> Result<()> {
        let is_root = self.rank == root;
        let (share, rounds) = self.rounds(input.len);
        for round in 0..rounds {
            let own = input.part(round * share, share);
            let parts: Vec<Span> = outputs.iter().map(|span| span.part(round * share, share)).collect();
            let staged = self.stage(&parts);
            let into: *mut c_void = if is_root { self.scratch.as_mut_ptr().cast() } else { std::ptr::null_mut() };
            let (f, c, n) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants, own.len as c_int);
            // SAFETY: see above the impl.
            unsafe {
                self.run("MPI_Igather", call, |request| {
                    (f.igather)(own.ptr.cast(), n, c.byte, into, n, c.byte, root as c_int, self.comm, request)
                })?;
                for (part, place) in parts.iter().zip(&staged) {
                    part.copy_from(*place);
                }
            }
        }
        Ok(())
    }

    unsafe fn scatter(&mut self, inputs: &[Span], output: Span, root: usize, call: &Call) -> Result<()> {
        let is_root = self.rank == root;
        let (share, rounds) = self.rounds(output.len);
        for round in 0..rounds {
            let own = output.part(round * share, share);
            let parts: Vec<Span> = inputs.iter().map(|span| span.part(round * share, share)).collect();
            let staged = self.stage(&parts);
            for (place, part) in staged.iter().zip(&parts) {
                // SAFETY: see above the impl.
                unsafe { place.copy_from(*part) };
            }
            let from: *const c_void = if is_root { self.scratch.as_ptr().cast() } else { std::ptr::null() };
            let (f, c, n) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants, own.len as c_int);
            // SAFETY: see above the impl.
            unsafe {
                self.run("MPI_Iscatter", call, |request| {
                    (f.iscatter)(from, n, c.byte, own.ptr.cast(), n, c.byte, root as c_int, self.comm, request)
                })?
            };
        }
        Ok(())
    }

    unsafe fn exchange(&mut self, transfers: &mut [Transfer], call: &Call) -> Result<()> {
        let messages = transfers
            .iter()
            .map(|t| Ok((t.peer(), self.tag(t.tag())?, t.span(), t.is_send())))
            .collect::<Result<Vec<(usize, c_int, Span, bool)>>>()?;
        // SAFETY: see above the impl.
        if messages.iter().all(|message| message.3) {
            messages.iter().try_for_each(|&(to, tag, data, _)| unsafe { self.send_copy(to, tag, data, call) })
        } else {
            unsafe { self.messages(&messages, call) }
        }
    }

    fn probe(&mut self, tag: u32, call: &Call) -> Result<usize> {
        self.probe_all(self.tag(tag)?, call)
    }

    /// The comparison before it has waited for all ranks.
    fn barrier(&mut self, _: &Call) -> Result<()> {
        Ok(())
    }
}

impl MpiTransport {
    /// Slots for parts, contiguous in memory of this transport.
    fn stage(&mut self, parts: &[Span]) -> Vec<Span> {
        let mut rest = self.scratch(parts.iter().map(|part| part.len).sum::<usize>().max(8));
        let places = parts.iter().map(|part| {
            let place = rest.part(0, part.len);
            rest = rest.part(part.len, rest.len);
            place
        });
        places.collect()
    }

    /// # Safety
    /// As for the methods of [`Transport`]; `outputs` are the parts of `whole`.
    unsafe fn all_gather_joined(&self, whole: Span, outputs: &[Span], call: &Call) -> Result<()> {
        let (f, c) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants);
        let into = whole.ptr.cast();
        let n = outputs[0].len;
        if outputs.iter().all(|span| span.len == n) {
            // SAFETY: by contract.
            return unsafe {
                self.run("MPI_Iallgather", call, |request| {
                    (f.iallgather)(c.in_place, 0, c.byte, into, n as c_int, c.byte, self.comm, request)
                })
                .map(drop)
            };
        }
        let (counts, displacements) = places(outputs, 1);
        let (n, at) = (counts.as_ptr(), displacements.as_ptr());
        // SAFETY: by contract; counts and displacements are kept if the call fails.
        let result = unsafe {
            self.run("MPI_Iallgatherv", call, |request| {
                (f.iallgatherv)(c.in_place, 0, c.byte, into, n, at, c.byte, self.comm, request)
            })
        };
        if result.is_err() {
            std::mem::forget((counts, displacements));
        }
        result.map(drop)
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        if self.runtime.failed.load(Relaxed) {
            // MPI may still write to it.
            std::mem::forget(std::mem::take(&mut self.scratch));
            return;
        }
        let (runtime, mut comm) = (self.runtime.clone(), self.comm);
        self.runtime.owner.submit(move || {
            let mut finalised = 0;
            // SAFETY: no call uses this communicator any more; pending sends complete by themselves.
            unsafe {
                (runtime.mpi.functions.finalized)(&mut finalised);
                if finalised == 0 {
                    (runtime.mpi.functions.comm_free)(&mut comm);
                }
            }
        });
    }
}
