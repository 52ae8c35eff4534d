//! Collectives between processes, on a separate stream.
//!
//! A communicator has two streams: one for immediate work, one for recorded work. Operations wait for the work that
//! the calling thread's stream holds, and run concurrently with its later work. In a recording the second stream
//! branches off the recording's and is joined again by [`DeviceWork::join`], or at the recording's end at the latest.

use crate::comm::shared_memory;
use crate::device::stream::{Event, Stream};
use crate::device::{Gpu, Lane, Scratch};
use crate::launch::kernel::{Defines, Family, Grid, Key, launch, wide_type};
use crate::vendor::driver::Handle;
use crate::vendor::nccl::{NcclComm, RawOp, reduction};
use rushlight_core::backend::{Collectives, DeviceComm, DeviceOp, DeviceWork, MemoryOffer, ReduceOp};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result, View};
use std::sync::{Arc, Mutex};

/// Maximum ranks that one kernel combines, as in `collective.cu`.
pub const MAX_RANKS: usize = 16;
/// Bytes of each rank that are combined at a time for reductions the library lacks.
const GATHERED: usize = 4 << 20;

/// Memory that operations use until they are done.
pub type Kept = Vec<Scratch<'static>>;

/// The transport.
pub trait Transport: Send + Sync {
    /// For messages.
    fn name(&self) -> String;
    /// Issues operations on the calling thread's stream.
    fn run(&self, gpu: &'static Gpu, ops: &[DeviceOp]) -> Result<Kept>;
    /// The error of a background failure.
    fn error(&self) -> Result<()>;
    /// Aborts running operations.
    fn abort(&self);
}

/// A communicator.
pub struct Comm {
    gpu: &'static Gpu,
    stream: Stream,
    /// Stream of recorded work.
    branch: Stream,
    transport: Box<dyn Transport>,
    /// Held while operations are issued: all ranks must issue them in one order.
    turn: Mutex<()>,
}

impl Comm {
    pub fn new(gpu: &'static Gpu, transport: Box<dyn Transport>) -> Result<Self> {
        // Higher priority than compute work: other ranks wait for this rank's data.
        let stream = || gpu.driver.relaxed(|| Stream::create(gpu, -1));
        Ok(Self { gpu, stream: stream()?, branch: stream()?, transport, turn: Mutex::new(()) })
    }
}

/// The storages of an operation.
fn views<'a>(op: &DeviceOp<'a>) -> [Option<View<'a>>; 2] {
    match *op {
        DeviceOp::AllReduce { data, .. }
        | DeviceOp::Broadcast { data, .. }
        | DeviceOp::Reduce { data, .. }
        | DeviceOp::Send { data, .. }
        | DeviceOp::Recv { data, .. } => [Some(data), None],
        DeviceOp::AllGather { input, output } | DeviceOp::ReduceScatter { input, output, .. } => {
            [Some(input), Some(output)]
        }
    }
}

impl DeviceComm for Comm {
    fn name(&self) -> String {
        self.transport.name()
    }

    fn start(&self, ops: &[DeviceOp]) -> Result<Arc<dyn DeviceWork>> {
        let gpu = self.gpu;
        for view in ops.iter().flat_map(views).flatten() {
            if view.storage().device() != gpu.device() || !view.layout().is_contiguous() {
                return Err(Error::device(format!(
                    "a collective of {}: tensors must be contiguous and on that device",
                    gpu.device()
                )));
            }
        }
        let _turn = lock(&self.turn);
        let here = gpu.lane();
        let own = if here.recording { self.branch.lane() } else { self.stream.lane() };
        // The graph owns memory of a recording.
        let own = if here.recording { Lane { pool: here.pool, recording: true, ..own } } else { own };
        if here.recording {
            let mut forks = lock(&gpu.forks);
            let fork = (here.stream as usize, own.stream as usize);
            if !forks.contains(&fork) {
                forks.push(fork);
            }
        }
        Event::at(gpu, here.stream)?.wait_by(own.stream)?;
        let kept = {
            let _lane = own.enter();
            self.transport.run(gpu, ops)?
        };
        let done = Event::at(gpu, own.stream)?;
        if !here.recording {
            let mut memory = gpu.memory();
            for view in ops.iter().flat_map(views).flatten().filter(|view| view.storage().bytes() > 0) {
                memory.note_user(view.storage().ptr() as u64, own.stream as u64);
            }
        }
        let recording = here.recording.then_some(here.stream as usize);
        Ok(Arc::new(Started { gpu, done, recording, _kept: kept }))
    }

    fn error(&self) -> Result<()> {
        self.gpu.enter()?;
        self.transport.error()
    }

    fn abort(&self) {
        if self.gpu.enter().is_ok() {
            self.transport.abort();
        }
    }
}

/// Operations in progress.
struct Started {
    gpu: &'static Gpu,
    done: Event,
    /// The stream of the recording that contains them.
    recording: Option<usize>,
    _kept: Kept,
}

impl Started {
    /// Whether the calling thread makes the recording that contains the operations.
    fn is_recorded_here(&self) -> bool {
        let lane = self.gpu.lane();
        lane.recording && self.recording == Some(lane.stream as usize)
    }
}

impl DeviceWork for Started {
    fn join(&self) -> Result<()> {
        let lane = self.gpu.lane();
        match self.recording {
            // The end of the recording has joined them.
            Some(_) if !self.is_recorded_here() => Ok(()),
            None if lane.recording => Err(Error::unsupported(
                "Work::wait: a collective that was started outside a captured step cannot be waited for within it; wait before the step",
            )),
            _ => self.done.wait_by(lane.stream),
        }
    }

    fn query(&self) -> Result<bool> {
        if self.recording.is_some() { Ok(true) } else { rushlight_core::backend::Event::query(&self.done) }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A recording reuses freed memory at once, so later work must be ordered after this.
        if self.is_recorded_here() {
            _ = self.done.wait_by(self.gpu.lane().stream);
        }
    }
}

impl Collectives for Gpu {
    fn identity(&self) -> Result<Vec<u8>> {
        self.enter()?;
        self.driver.identity()
    }

    fn library(&self) -> Result<String> {
        self.libraries.collectives()?.title()
    }

    fn unique_id(&self) -> Result<Vec<u8>> {
        self.enter()?;
        self.libraries.collectives()?.unique_id()
    }

    fn join(&self, id: &[u8], rank: usize, size: usize) -> Result<Arc<dyn DeviceComm>> {
        let gpu = self.this()?;
        gpu.enter()?;
        let library = gpu.libraries.collectives()?;
        let comm = gpu.driver.relaxed(|| library.join(id, rank, size))?;
        Ok(Arc::new(Comm::new(gpu, Box::new(comm))?))
    }

    fn offer_memory(&self, rank: usize, size: usize) -> Result<MemoryOffer> {
        shared_memory::offer(self.this()?, rank, size)
    }
}

/// Bytes of a contiguous view.
pub fn bytes(view: View) -> usize {
    view.numel() * view.dtype().size()
}

pub fn combine_defines(dtype: DType, op: ReduceOp) -> Defines {
    Defines::default().define("COMBINE", 1).define("OP", op as u8).dtype("T", dtype).define("W", wide_type(dtype))
}

impl Gpu {
    /// Combines the data at several addresses, in their order; `out` may be one of them.
    pub fn combine(&self, dtype: DType, op: ReduceOp, from: &[u64], out: u64, count: usize) -> Result<()> {
        #[repr(C)]
        struct Sources {
            ranks: u64,
            x: [u64; MAX_RANKS],
        }
        let mut sources = Sources { ranks: from.len() as u64, x: [0; MAX_RANKS] };
        let Some(places) = sources.x.get_mut(..from.len()) else {
            return Err(Error::unsupported(format!(
                "{op} of {dtype} on {}: {} ranks are more than the {MAX_RANKS} that one kernel combines; use the tcp engine",
                self.device(),
                from.len()
            )));
        };
        places.copy_from_slice(from);
        let key = Key::new(Family::Collective, "combine", [dtype as u16, op as u16]);
        let function = self.function(key, || combine_defines(dtype, op))?;
        let blocks = count.div_ceil(256).min(4 * self.properties.multiprocessors.max(1));
        launch!(self, function, Grid::line(blocks, 256)?; sources, out, count)
    }

    /// Copies within the device, in the order of the calling thread's work.
    pub fn copy_bytes(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 || to == from {
            return Ok(());
        }
        self.submit(move |gpu, stream| {
            // SAFETY: the caller's ranges, which views or regions of ours hold.
            unsafe { gpu.driver.copy_on_device(to, from, bytes, stream) }
        })
    }
}

/// The mean over one rank is the sum. The library would scale the data in a pass over memory, but does nothing for a
/// sum in place.
fn of_ranks(op: ReduceOp, ranks: usize) -> ReduceOp {
    if ranks == 1 && op == ReduceOp::Mean { ReduceOp::Sum } else { op }
}

/// The library takes all ops of a call at a time, but for reductions it lacks: those go by gathering and a kernel of
/// ours.
impl Transport for NcclComm {
    fn name(&self) -> String {
        self.name()
    }

    fn run(&self, gpu: &'static Gpu, ops: &[DeviceOp]) -> Result<Kept> {
        let (mut raw, mut kept) = (Vec::with_capacity(ops.len()), Kept::new());
        let reduction = |dtype, op| reduction(dtype, of_ranks(op, self.size));
        for op in ops {
            match *op {
                DeviceOp::AllReduce { data, op } => match reduction(data.dtype(), op) {
                    Some((dtype, op)) => {
                        raw.push(RawOp::AllReduce { data: data.ptr() as u64, count: data.numel(), dtype, op })
                    }
                    None => self.gathered(gpu, data, op, None, &mut kept)?,
                },
                DeviceOp::Reduce { data, op, root } => match reduction(data.dtype(), op) {
                    Some((dtype, op)) => {
                        raw.push(RawOp::Reduce { data: data.ptr() as u64, count: data.numel(), dtype, op, root })
                    }
                    None => self.gathered(gpu, data, op, Some(root), &mut kept)?,
                },
                DeviceOp::ReduceScatter { input, output, op } => match reduction(output.dtype(), op) {
                    Some((dtype, op)) => {
                        let (input, out) = (input.ptr() as u64, output.ptr() as u64);
                        raw.push(RawOp::ReduceScatter { input, output: out, count: output.numel(), dtype, op });
                    }
                    None => self.scattered(gpu, input, output, op, &mut kept)?,
                },
                DeviceOp::Broadcast { data, root } => {
                    raw.push(RawOp::Broadcast { data: data.ptr() as u64, bytes: bytes(data), root });
                }
                DeviceOp::AllGather { input, output } => raw.push(RawOp::AllGather {
                    input: input.ptr() as u64,
                    output: output.ptr() as u64,
                    bytes: bytes(input),
                }),
                DeviceOp::Send { data, peer } => {
                    raw.push(RawOp::Send { data: data.ptr() as u64, bytes: bytes(data), peer });
                }
                DeviceOp::Recv { data, peer } => {
                    raw.push(RawOp::Recv { data: data.ptr() as u64, bytes: bytes(data), peer });
                }
            }
        }
        if !raw.is_empty() {
            self.give_all(gpu, &raw)?;
        }
        Ok(kept)
    }

    fn error(&self) -> Result<()> {
        self.error()
    }

    fn abort(&self) {
        self.abort();
    }
}

impl NcclComm {
    fn give_all(&self, gpu: &Gpu, ops: &[RawOp]) -> Result<()> {
        let stream: Handle = gpu.stream()?;
        gpu.enter()?;
        // SAFETY: addresses of views, or of scratch memory, which are kept until the stream is past the operations.
        unsafe { self.run(ops, stream, gpu.lane().recording) }
    }

    /// A reduction that the library lacks: every rank collects all data, a piece at a time, and combines it; `root`
    /// is the only rank that keeps the result.
    fn gathered(
        &self,
        gpu: &'static Gpu,
        data: View,
        op: ReduceOp,
        root: Option<usize>,
        kept: &mut Kept,
    ) -> Result<()> {
        let (whole, unit) = (bytes(data), data.dtype().size());
        let piece = whole.min(GATHERED);
        let scratch = gpu.scratch(piece * (self.size + 1))?;
        let unused = scratch.ptr + (piece * self.size) as u64;
        for start in (0..whole).step_by(GATHERED) {
            let (at, len) = (data.ptr() as u64 + start as u64, GATHERED.min(whole - start));
            self.give_all(gpu, &[RawOp::AllGather { input: at, output: scratch.ptr, bytes: len }])?;
            let parts: Vec<u64> = (0..self.size).map(|r| scratch.ptr + (r * len) as u64).collect();
            let keeps = root.is_none_or(|root| root == self.rank());
            gpu.combine(data.dtype(), op, &parts, if keeps { at } else { unused }, len / unit)?;
            gpu.queue.settle(gpu)?;
        }
        kept.push(scratch);
        Ok(())
    }

    fn scattered(&self, gpu: &'static Gpu, input: View, output: View, op: ReduceOp, kept: &mut Kept) -> Result<()> {
        let (part, unit) = (bytes(output), output.dtype().size());
        let scratch = gpu.scratch(part.min(GATHERED) * self.size)?;
        for start in (0..part).step_by(GATHERED) {
            let len = GATHERED.min(part - start);
            let place = |r: usize| scratch.ptr + (r * len) as u64;
            let piece = |r: usize| input.ptr() as u64 + (r * part + start) as u64;
            let others: Vec<usize> = (0..self.size).filter(|&r| r != self.rank()).collect();
            let mut ops = Vec::new();
            for &peer in &others {
                ops.push(RawOp::Send { data: piece(peer), bytes: len, peer });
                ops.push(RawOp::Recv { data: place(peer), bytes: len, peer });
            }
            if !ops.is_empty() {
                self.give_all(gpu, &ops)?;
            }
            gpu.copy_bytes(place(self.rank()), piece(self.rank()), len)?;
            let parts: Vec<u64> = (0..self.size).map(place).collect();
            gpu.combine(output.dtype(), op, &parts, output.ptr() as u64 + start as u64, len / unit)?;
            gpu.queue.settle(gpu)?;
        }
        kept.push(scratch);
        Ok(())
    }
}
