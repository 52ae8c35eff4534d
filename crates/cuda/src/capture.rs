//! Training steps recorded once and replayed as a graph.
//!
//! A thread that records has a stream of its own in the driver's capture mode and a pool of its own, which lives as long as the graph: whatever it
//! launches becomes a node, and the addresses in it stay valid. Numbers that change from step to step lie in a block on the device. The graph's first
//! kernel writes them and copies the inputs, by arguments that are new at each replay; its last copies the outputs to where the block says.

use crate::alloc::PoolId;
use crate::backend::gpu;
use crate::device::{Gpu, Lane, LaneGuard};
use crate::driver::{DevicePtr, Handle, KernelNode, capture_mode};
use crate::host::Pinned;
use crate::kernel::{Defines, Family, Function, Grid, Key, launch};
use crate::stream::{Event, create};
use rushlight_core::backend::ParamUpdate;
use rushlight_core::{Error, Operand, Philox, Result, Storage, View};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

pub use crate::foreach::{Factors, factors};

/// Numbers of one step, eight bytes each.
const NUMBERS: usize = 4096;
/// Numbers, copies and outputs that one kernel takes.
const VALUES: usize = 64;
const COPIES: usize = 8;
const OUTPUTS: usize = 64;
const THREADS: usize = 256;
/// Bytes that one block copies.
const PIECE: usize = 32_768;

/// Memory of recorded steps: what one of them uses only while it runs, the others use too.
pub struct StepPool {
    gpu: &'static Gpu,
    id: PoolId,
}

impl StepPool {
    /// A pool of a GPU.
    pub fn new(device: usize) -> Result<Arc<Self>> {
        let gpu = gpu(device)?;
        let id = gpu.memory().add_pool(true);
        Ok(Arc::new(Self { gpu, id }))
    }
}

impl Drop for StepPool {
    fn drop(&mut self) {
        self.gpu.memory().remove_pool(self.id);
    }
}

/// A step being recorded by this thread. Dropped before [`finish`](Recording::finish), it leaves nothing behind.
pub struct Recording {
    gpu: &'static Gpu,
    pool: Arc<StepPool>,
    stream: Handle,
    block: DevicePtr,
    used: usize,
    lane: Option<LaneGuard>,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Output {
    from: u64,
    bytes: usize,
    first: usize,
    slot: usize,
}

#[repr(C)]
struct End {
    block: u64,
    outputs: usize,
    output: [Output; OUTPUTS],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Copy {
    from: u64,
    to: u64,
    bytes: usize,
    first: usize,
}

#[repr(C)]
struct Begin {
    block: u64,
    values: u32,
    copies: u32,
    value: [u64; VALUES],
    copy: [Copy; COPIES],
}

impl Begin {
    /// As many numbers and copies as there is room for.
    fn new(block: u64, values: &[u64], inputs: &[(View, View)]) -> Self {
        let mut work = Self {
            block,
            values: values.len() as u32,
            copies: inputs.len() as u32,
            value: [0; VALUES],
            copy: [Copy::default(); COPIES],
        };
        work.value[..values.len()].copy_from_slice(values);
        let mut blocks = 0;
        for (copy, (from, to)) in work.copy.iter_mut().zip(inputs) {
            let bytes = bytes(from).min(bytes(to));
            *copy = Copy { from: from.ptr() as u64, to: to.ptr() as u64, bytes, first: blocks };
            blocks += bytes.div_ceil(PIECE);
        }
        work
    }

    fn grid(&self) -> Result<Grid> {
        let blocks = self.copy.iter().map(|copy| copy.bytes.div_ceil(PIECE)).sum::<usize>();
        Grid::line(blocks.max(1), THREADS)
    }
}

const _: () = assert!(size_of::<Begin>() <= 4000 && size_of::<End>() <= 4000);

pub fn begin_defines() -> Defines {
    Defines::default().define("WIDE", 1).define("BEGIN", 1).define("VALUES", VALUES).define("COPIES", COPIES)
}

pub fn end_defines() -> Defines {
    Defines::default().define("WIDE", 1).define("END", 1).define("OUTPUTS", OUTPUTS)
}

/// Bytes of a contiguous view.
fn bytes(view: &View) -> usize {
    view.numel() * view.dtype.size()
}

impl Recording {
    /// Begins: until it ends, this thread's work on the device is noted and not done.
    pub fn begin(pool: &Arc<StepPool>) -> Result<Self> {
        let gpu = pool.gpu;
        gpu.refuse_recording("capture")?;
        gpu.enter()?;
        let begin = gpu.function(Key::new(Family::Capture, "step_begin", []), begin_defines)?;
        // What the steps before have left would only lie beside the new pool's.
        gpu.memory().empty_cache(gpu);
        let block = gpu.memory().alloc(gpu, pool.id, NUMBERS * 8)?;
        let stream = match create(gpu, 0) {
            Ok(stream) => stream,
            Err(e) => {
                gpu.give_memory(block);
                return Err(e);
            }
        };
        let mut recording = Self { gpu, pool: pool.clone(), stream, block, used: 0, lane: None };
        // SAFETY: a stream of ours.
        let rc = unsafe { (gpu.driver.capture_begin)(stream, capture_mode::THREAD_LOCAL) };
        gpu.driver.check("cuStreamBeginCapture", rc)?;
        recording.lane = Some(Lane { device: gpu.index, stream, pool: pool.id, recording: true }.enter());
        // The first node: what it does is said at each replay.
        let work = Begin::new(block, &[], &[]);
        launch!(gpu, begin, work.grid()?; work)?;
        Ok(recording)
    }

    /// Room for numbers that change from replay to replay: the place of the first among all, and its address.
    pub fn numbers(&mut self, count: usize) -> Result<(usize, u64)> {
        let first = self.used;
        if count > NUMBERS - first {
            return Err(Error::unsupported(format!(
                "a captured step can have {NUMBERS} changing numbers; use fewer parameter groups, or run without capture"
            )));
        }
        self.used += count;
        Ok((first, self.block + first as u64 * 8))
    }

    /// Whether memory was made within this recording or an earlier one of its pool.
    pub fn owns(&self, storage: &Storage) -> bool {
        storage.bytes() == 0 || self.gpu.memory().owner(storage.ptr() as u64) == Some(self.pool.id)
    }

    /// Work that is done at once, before the first replay, until the guard is dropped.
    pub fn outside(&self) -> LaneGuard {
        self.gpu.main_lane().enter()
    }

    /// Ends: each output (contiguous) is copied to the address that its number holds when the step is replayed.
    pub fn finish(mut self, outputs: &[(View, usize)]) -> Result<Graph> {
        let gpu = self.gpu;
        let begin = gpu.function(Key::new(Family::Capture, "step_begin", []), begin_defines)?;
        let end = gpu.function(Key::new(Family::Capture, "step_end", []), end_defines)?;
        for part in outputs.chunks(OUTPUTS) {
            let mut work = End { block: self.block, outputs: part.len(), output: [Output::default(); OUTPUTS] };
            let mut blocks = 0;
            for (out, (view, slot)) in work.output.iter_mut().zip(part) {
                *out = Output { from: view.ptr() as u64, bytes: bytes(view), first: blocks, slot: *slot };
                blocks += out.bytes.div_ceil(PIECE);
            }
            launch!(gpu, end, Grid::line(blocks, THREADS)?; work)?;
        }
        gpu.queue.settle(gpu)?;
        let noted = self.end()?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: a graph that this thread has just recorded; a handle to write to.
        let (mut first, mut count) = (std::ptr::null_mut(), 1);
        let mut made = gpu.driver.relaxed(|| unsafe {
            let rc = (gpu.driver.graph_instantiate)(&mut exec, noted, 0);
            gpu.driver.check("cuGraphInstantiate", rc)?;
            let rc = (gpu.driver.graph_roots)(noted, &mut first, &mut count);
            gpu.driver.check("cuGraphGetRootNodes", rc)
        });
        if made.is_ok() && count != 1 {
            made = Err(Error::unsupported("capture: the step has work that does not come after its inputs"));
        }
        let block = std::mem::take(&mut self.block);
        // From here on the graph cleans up.
        let graph = Graph { gpu, noted, exec, first, begin, block, _pool: self.pool.clone() };
        made.map(|()| graph)
    }

    /// Takes the stream out of its capture mode: what was noted.
    fn end(&mut self) -> Result<Handle> {
        let mut noted = std::ptr::null_mut();
        if self.lane.take().is_some() {
            // SAFETY: our stream, which this thread has put into capture mode; a handle to write to.
            let rc = unsafe { (self.gpu.driver.capture_end)(self.stream, &mut noted) };
            self.gpu.driver.check("cuStreamEndCapture", rc)?;
        }
        Ok(noted)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.gpu.queue.settle_silently(self.gpu);
        let noted = self.end().unwrap_or(std::ptr::null_mut());
        // SAFETY: what is ours and nobody uses any more.
        self.gpu.driver.relaxed(|| unsafe {
            if !noted.is_null() {
                (self.gpu.driver.graph_destroy)(noted);
            }
            (self.gpu.driver.stream_destroy)(self.stream)
        });
        if self.block != 0 {
            self.gpu.give_memory(self.block);
        }
    }
}

/// A recorded step.
pub struct Graph {
    gpu: &'static Gpu,
    noted: Handle,
    exec: Handle,
    /// The kernel that all others wait for, in both graphs.
    first: Handle,
    begin: Function,
    block: DevicePtr,
    _pool: Arc<StepPool>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Graph {}

impl Graph {
    /// Replays the step with these numbers, after copying each first view to the second: contiguous and of one size. Nothing waits for it.
    pub fn launch(&self, numbers: &[u64], copies: &[(View, View)]) -> Result<()> {
        let gpu = self.gpu;
        gpu.refuse_recording("replaying a captured step")?;
        gpu.queue.settle(gpu)?;
        gpu.enter()?;
        let (lane, main) = (gpu.lane(), gpu.main_lane());
        let other = lane.stream != main.stream;
        let _lane = if other {
            let inputs = Event::at(gpu, lane.stream)?;
            let guard = main.enter();
            inputs.wait_on(gpu)?;
            Some(guard)
        } else {
            None
        };
        let (value, values) = numbers.split_at(numbers.len().min(VALUES));
        let (input, inputs) = copies.split_at(copies.len().min(COPIES));
        // What the first node has no room for goes before the graph.
        for (i, value) in values.chunks(VALUES).enumerate() {
            let work = Begin::new(self.block + 8 * ((i + 1) * VALUES) as u64, value, &[]);
            launch!(gpu, self.begin, work.grid()?; work)?;
        }
        for input in inputs.chunks(COPIES) {
            let work = Begin::new(self.block, &[], input);
            launch!(gpu, self.begin, work.grid()?; work)?;
        }
        let work = Begin::new(self.block, value, input);
        let mut arguments = [(&raw const work).cast_mut().cast::<c_void>()];
        let grid = work.grid()?;
        let node = KernelNode {
            function: self.begin.load(gpu)?,
            grid: grid.blocks,
            block: [grid.threads[0], 1, 1],
            shared: 0,
            arguments: arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
        };
        // SAFETY: the node is of the graph that was instantiated, its kernel the same, the arguments as it takes them. Launches under way keep theirs.
        let rc = unsafe { (gpu.driver.graph_set_kernel)(self.exec, self.first, &node) };
        gpu.driver.check("cuGraphExecKernelNodeSetParams", rc)?;
        // SAFETY: a graph and a stream of ours; what its nodes address is kept by whoever keeps the graph.
        gpu.driver.check("cuGraphLaunch", unsafe { (gpu.driver.graph_launch)(self.exec, main.stream) })?;
        if other {
            let done = Event::at(gpu, main.stream)?;
            drop(_lane);
            done.wait_on(gpu)?;
        }
        Ok(())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let (driver, stream) = (self.gpu.driver, self.gpu.main_lane().stream);
        self.gpu.queue.settle_silently(self.gpu);
        if self.gpu.enter().is_ok() {
            // SAFETY: a graph of ours, which no longer runs.
            driver.relaxed(|| unsafe {
                (driver.stream_synchronize)(stream);
                if !self.exec.is_null() {
                    (driver.graph_exec_destroy)(self.exec);
                }
                (driver.graph_destroy)(self.noted)
            });
        }
        self.gpu.give_memory(self.block);
    }
}

/// A number that a recorded step leaves where the host reads it, such as whether a gradient was infinite.
pub struct Verdict {
    gpu: &'static Gpu,
    memory: Pinned,
    device: DevicePtr,
    last: Mutex<Option<Event>>,
}

impl Verdict {
    /// One that no step has given yet.
    pub fn new(device: usize) -> Result<Self> {
        let (gpu, memory) = (gpu(device)?, Pinned::new(4)?);
        gpu.enter()?;
        let mut device = 0;
        // SAFETY: four bytes of ours; pinned memory is mapped for devices.
        let rc = unsafe {
            memory.ptr().cast::<f32>().write_volatile(0.0);
            (gpu.driver.host_device_ptr)(&mut device, memory.ptr().cast(), 0)
        };
        gpu.driver.check("cuMemHostGetDevicePointer", rc)?;
        Ok(Self { gpu, memory, device, last: Mutex::new(None) })
    }

    /// Where the device writes it, one `f32`.
    pub fn address(&self) -> DevicePtr {
        self.device
    }

    fn last(&self) -> MutexGuard<'_, Option<Event>> {
        self.last.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Notes that the step has been launched once more.
    pub fn launched(&self) -> Result<()> {
        *self.last() = Some(Event::at(self.gpu, self.gpu.main_lane().stream)?);
        Ok(())
    }

    /// What the step launched last has found: waits for it.
    pub fn wait(&self) -> Result<f32> {
        if let Some(event) = &*self.last() {
            event.synchronize()?;
        }
        // SAFETY: as above; the step that writes it is done.
        Ok(unsafe { self.memory.ptr().cast::<f32>().read_volatile() })
    }
}

/// A stream of random words that begins, at each replay, `blocks` behind where the seed and offset at `address` say.
pub fn live_stream(address: u64, blocks: u64) -> Philox {
    Philox { seed: address, offset: blocks | LIVE }
}

/// The mark of a stream that lies on the device: offsets do not grow so far.
pub const LIVE: u64 = 1 << 63;

/// [`Backend::update`](rushlight_core::Backend::update) within a recording: each parameter's [`Factors`] lie at an address, and nothing is done
/// where `found_inf`, one `f32`, is not zero.
pub fn update(
    device: usize,
    updates: &[ParamUpdate],
    live: &[u64],
    grad_scale: Operand,
    found_inf: Option<View>,
) -> Result<()> {
    gpu(device)?.update(updates, live, grad_scale, found_inf)
}
