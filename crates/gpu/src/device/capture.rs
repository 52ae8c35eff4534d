//! Training steps recorded once and replayed as a graph.
//!
//! A recording thread has its own stream in the driver's capture mode and its own memory pool, which lives as long as
//! the graph: every launch becomes a node, and the addresses in it stay valid. Values that change from step to step are
//! in a block on the device. The graph's first kernel writes them and copies the inputs; its arguments are set at each
//! replay. The last kernel copies the outputs to addresses in the block.

use crate::device::alloc::PoolId;
use crate::device::host::Pinned;
use crate::device::stream::Event;
use crate::device::{Gpu, Lane, LaneGuard};
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch};
use crate::vendor::driver::{DevicePtr, Handle, Launch};
use rushlight_core::backend::{Capture, Graph, Readback, Recording, StepPool};
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result, Storage, View, backend};
use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

/// Changing values of one step, eight bytes each.
const NUMBERS: usize = 4096;
/// Maximum numbers, copies and outputs of one kernel.
const VALUES: usize = 64;
const COPIES: usize = 8;
const OUTPUTS: usize = 64;
const THREADS: usize = 256;
/// Bytes that one block copies.
const PIECE: usize = 32_768;
/// Looks at a reported value between two at the step itself.
const POLLS: usize = 1000;

/// The memory behind a [`StepPool`].
struct PoolMemory {
    gpu: &'static Gpu,
    id: PoolId,
}

impl Drop for PoolMemory {
    fn drop(&mut self) {
        self.gpu.memory().remove_pool(self.id);
    }
}

/// A step that this thread is recording.
struct Recorder {
    gpu: &'static Gpu,
    pool: Arc<PoolMemory>,
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
#[derive(Clone)]
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
    /// Takes as many numbers and copies as one kernel holds.
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
    view.numel() * view.dtype().size()
}

impl Recorder {
    fn begin(pool: &Arc<PoolMemory>) -> Result<Self> {
        let gpu = pool.gpu;
        gpu.refuse_recording("capture")?;
        gpu.enter()?;
        let begin = gpu.function(Key::new(Family::Capture, "step_begin", []), begin_defines)?;
        let block = gpu.memory().alloc(gpu, pool.id, NUMBERS * 8)?;
        let stream = match gpu.driver.stream_create(0) {
            Ok(stream) => stream,
            Err(e) => {
                gpu.give_memory(block);
                return Err(e);
            }
        };
        let mut recording = Self { gpu, pool: pool.clone(), stream, block, used: 0, lane: None };
        recording.enter(begin, block)?;
        Ok(recording)
    }

    /// Ends the stream's capture mode and returns the graph.
    fn end(&mut self) -> Result<Handle> {
        if self.lane.is_none() {
            return Ok(std::ptr::null_mut());
        }
        // A failure is reported when the capture ends.
        _ = self.join_forks();
        self.lane = None;
        // SAFETY: our stream, which this thread has put into capture mode.
        unsafe { self.gpu.driver.capture_end(self.stream) }
    }
}

impl Recorder {
    /// Ends the recording. A graph that the driver refuses is returned with the error, to be destroyed.
    fn instantiate(&mut self) -> Result<(Instance, Result<()>)> {
        let gpu = self.gpu;
        gpu.queue.settle(gpu)?;
        let noted = self.end()?;
        let mut graph = Instance { noted, exec: std::ptr::null_mut(), first: std::ptr::null_mut() };
        // SAFETY: a graph that this thread has just recorded.
        let made = gpu.driver.relaxed(|| unsafe {
            graph.exec = gpu.driver.graph_instantiate(noted)?;
            let several = || Error::unsupported("capture: the step has work that does not come after its inputs");
            graph.first = gpu.driver.graph_root(noted)?.ok_or_else(several)?;
            Ok(())
        });
        Ok((graph, made))
    }

    /// Puts a stream into capture mode and this thread on it; memory comes from the pool.
    fn enter(&mut self, begin: Function, block: DevicePtr) -> Result<()> {
        let gpu = self.gpu;
        // SAFETY: a stream of ours.
        unsafe { gpu.driver.capture_begin(self.stream)? };
        self.lane =
            Some(Lane { device: gpu.device(), stream: self.stream, pool: self.pool.id, recording: true }.enter());
        // The first node: its arguments are set at each replay.
        let work = Begin::new(block, &[], &[]);
        launch!(gpu, begin, work.grid()?; work)
    }

    /// Orders later work after all collectives recorded so far.
    fn join_forks(&self) -> Result<()> {
        let mut forks = lock(&self.gpu.forks);
        for &(_, stream) in forks.iter().filter(|fork| fork.0 == self.stream as usize) {
            let done = Event::at(self.gpu, stream as Handle)?;
            done.wait_by(self.stream)?;
        }
        forks.retain(|fork| fork.0 != self.stream as usize);
        Ok(())
    }
}

impl Recording for Recorder {
    fn numbers(&mut self, count: usize) -> Result<(usize, u64)> {
        let first = self.used;
        if count > NUMBERS - first {
            return Err(Error::unsupported(format!(
                "a captured step can have {NUMBERS} changing numbers; use fewer parameter groups, or run without capture"
            )));
        }
        self.used += count;
        Ok((first, self.block + first as u64 * 8))
    }

    fn owns(&self, storage: &Storage) -> bool {
        storage.bytes() == 0 || self.gpu.memory().owner(storage.ptr() as u64) == Some(self.pool.id)
    }

    fn outside(&self) -> Box<dyn Any> {
        Box::new(self.gpu.main_lane().enter())
    }

    fn finish(mut self: Box<Self>, outputs: &[(View, usize)]) -> Result<Box<dyn Graph>> {
        let gpu = self.gpu;
        self.join_forks()?;
        let begin = gpu.function(Key::new(Family::Capture, "step_begin", []), begin_defines)?;
        let end = gpu.function(Key::new(Family::Capture, "step_end", []), end_defines)?;
        let mut ends = Vec::new();
        for part in outputs.chunks(OUTPUTS) {
            let mut work = End { block: self.block, outputs: part.len(), output: [Output::default(); OUTPUTS] };
            let mut blocks = 0;
            for (out, (view, slot)) in work.output.iter_mut().zip(part) {
                *out = Output { from: view.ptr() as u64, bytes: bytes(view), first: blocks, slot: *slot };
                blocks += out.bytes.div_ceil(PIECE);
            }
            launch!(gpu, end, Grid::line(blocks, THREADS)?; work)?;
            ends.push((work, blocks));
        }
        let (graph, made) = self.instantiate()?;
        let block = std::mem::take(&mut self.block);
        // The step has taken what it needs of the memory that eager steps left: the rest would only add to it.
        gpu.memory().empty_cache(gpu);
        // From here on, dropping the graph cleans up.
        let graph = Replay { gpu, graph, begin, end, ends, block, pool: self.pool.clone(), scratch: None };
        made.map(|()| Box::new(graph) as Box<dyn Graph>)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.gpu.queue.settle_silently(self.gpu);
        let noted = self.end().unwrap_or(std::ptr::null_mut());
        // SAFETY: our own handles, no longer in use.
        self.gpu.driver.relaxed(|| unsafe {
            if !noted.is_null() {
                self.gpu.driver.graph_destroy(noted);
            }
            self.gpu.driver.stream_destroy(self.stream);
        });
        if self.block != 0 {
            self.gpu.give_memory(self.block);
        }
    }
}

/// A graph as noted and as the driver launches it.
struct Instance {
    noted: Handle,
    exec: Handle,
    /// The root kernel of both graphs.
    first: Handle,
}

impl Instance {
    /// Destroys the graph once the device is past it.
    fn destroy(&self, gpu: &Gpu) {
        let (driver, stream) = (gpu.driver, gpu.main_lane().stream);
        gpu.queue.settle_silently(gpu);
        if gpu.enter().is_ok() {
            // SAFETY: a graph of ours, which no longer runs.
            driver.relaxed(|| unsafe {
                _ = driver.stream_synchronize(stream);
                if !self.exec.is_null() {
                    driver.graph_exec_destroy(self.exec);
                }
                driver.graph_destroy(self.noted);
            });
        }
    }
}

/// A recorded step.
struct Replay {
    gpu: &'static Gpu,
    graph: Instance,
    begin: Function,
    end: Function,
    /// The copies of outputs, with their blocks.
    ends: Vec<(End, usize)>,
    block: DevicePtr,
    pool: Arc<PoolMemory>,
    /// Memory of work that was recorded anew.
    scratch: Option<Arc<PoolMemory>>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Replay {}

impl Graph for Replay {
    fn launch(&self, numbers: &[u64], copies: &[(View, View)]) -> Result<()> {
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
        // Copies that do not fit into the first node run before the graph.
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
        let mut node = Launch {
            function: self.begin.load(gpu)?,
            grid: grid.blocks,
            block: [grid.threads[0], 1, 1],
            shared: 0,
            stream: std::ptr::null_mut(),
            overlap: false,
            arguments: &mut arguments,
        };
        // SAFETY: the node belongs to the instantiated graph, its kernel is unchanged, and the arguments match it.
        // Running launches keep their own copies.
        unsafe { gpu.driver.graph_set_kernel(self.graph.exec, self.graph.first, &mut node)? };
        // SAFETY: a graph and a stream of ours; the graph's owner keeps the memory that its nodes address.
        let launch = |gpu: &Gpu, stream: Handle| unsafe { gpu.driver.graph_launch(self.graph.exec, stream) };
        match gpu.is_timed() {
            true => gpu.timed("captured step", [0; 3], [0; 3], launch)?,
            false => launch(gpu, main.stream)?,
        }
        let scratch = self.scratch.as_ref().map_or(self.pool.id, |scratch| scratch.id);
        gpu.memory().replayed(&[self.pool.id, scratch]);
        if other {
            let done = Event::at(gpu, main.stream)?;
            drop(_lane);
            done.wait_on(gpu)?;
        }
        Ok(())
    }

    fn rerecord(&mut self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let gpu = self.gpu;
        gpu.refuse_recording("capture")?;
        gpu.queue.settle(gpu)?;
        gpu.enter()?;
        // Temporary memory of the new work must not be that of the step's tensors, which the allocator takes for free.
        let pool = Arc::new(PoolMemory { gpu, id: gpu.memory().add_pool(true) });
        let stream = gpu.driver.stream_create(0)?;
        // Without a block of its own: the values stay where they are.
        let mut recorder = Recorder { gpu, pool: pool.clone(), stream, block: 0, used: 0, lane: None };
        recorder.enter(self.begin, self.block)?;
        work()?;
        for (end, blocks) in &self.ends {
            launch!(gpu, self.end, Grid::line(*blocks, THREADS)?; *end)?;
        }
        let (graph, made) = recorder.instantiate()?;
        drop(recorder);
        if let Err(e) = made {
            graph.destroy(gpu);
            return Err(e);
        }
        std::mem::replace(&mut self.graph, graph).destroy(gpu);
        self.scratch = Some(pool);
        Ok(())
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.graph.destroy(self.gpu);
        self.gpu.give_memory(self.block);
    }
}

/// A value in pinned memory that the device writes.
struct HostNumber {
    gpu: &'static Gpu,
    memory: Pinned,
    device: DevicePtr,
    last: Mutex<Option<Event>>,
}

impl HostNumber {
    fn new(gpu: &'static Gpu) -> Result<Self> {
        let memory = Pinned::new(gpu, 4)?;
        gpu.enter()?;
        // SAFETY: four bytes of ours; pinned memory is mapped for devices.
        let device = unsafe {
            memory.ptr().cast::<f32>().write_volatile(f32::NAN);
            gpu.driver.host_device_ptr(memory.ptr().cast())?
        };
        Ok(Self { gpu, memory, device, last: Mutex::new(None) })
    }

    /// The value, once the device has written it.
    fn read(&self) -> Option<f32> {
        // SAFETY: four aligned bytes of ours, which the device writes at once.
        let value = unsafe { self.memory.ptr().cast::<f32>().read_volatile() };
        (!value.is_nan()).then_some(value)
    }

    fn last(&self) -> MutexGuard<'_, Option<Event>> {
        lock(&self.last)
    }
}

impl Readback for HostNumber {
    fn address(&self) -> DevicePtr {
        self.device
    }

    fn prepare(&self) {
        // SAFETY: as above; the step that wrote it has reported, or did not run.
        unsafe { self.memory.ptr().cast::<f32>().write_volatile(f32::NAN) };
    }

    fn launched(&self) -> Result<()> {
        *self.last() = Some(Event::at(self.gpu, self.gpu.main_lane().stream)?);
        Ok(())
    }

    fn wait(&self) -> Result<f32> {
        let last = self.last();
        loop {
            for _ in 0..POLLS {
                if let Some(value) = self.read() {
                    return Ok(value);
                }
                std::hint::spin_loop();
            }
            // A step that has ended, or failed, writes no more.
            if last.as_ref().map_or(Ok(true), backend::Event::query)? {
                let missing = || Error::device("capture: the step ended without reporting its value");
                return self.read().ok_or_else(missing);
            }
            std::thread::yield_now();
        }
    }
}

impl Capture for Gpu {
    fn pool(&self) -> Result<StepPool> {
        let gpu = self.this()?;
        let id = gpu.memory().add_pool(true);
        Ok(StepPool { device: gpu.device(), memory: Arc::new(PoolMemory { gpu, id }) })
    }

    fn begin(&self, pool: &StepPool) -> Result<Box<dyn Recording>> {
        let memory =
            pool.memory.clone().downcast::<PoolMemory>().ok().filter(|memory| memory.gpu.device() == self.device());
        let Some(memory) = memory else {
            return Err(Error::device(format!(
                "capture: the pool is of {}, the step of {}; make a pool for this device",
                pool.device,
                self.device()
            )));
        };
        Ok(Box::new(Recorder::begin(&memory)?))
    }

    fn readback(&self) -> Result<Arc<dyn Readback>> {
        Ok(Arc::new(HostNumber::new(self.this()?)?))
    }
}
