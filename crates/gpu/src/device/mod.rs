//! One GPU: its context, streams, memory and compiled kernels.

#[doc(hidden)]
pub mod alloc;
pub(crate) mod capture;
pub(crate) mod host;
pub(crate) mod stream;
pub mod timing;

use crate::backend::GpuBackend;
use crate::device::alloc::{Fence, MAIN, Memory, PoolId, Source};
use crate::device::stream::{Event, Stream};
use crate::families::chain::Slot;
use crate::launch::kernel::Kernels;
use crate::launch::queue::Queue;
use crate::vendor::driver::{
    Convolutions, DevicePtr, Driver, Factorisations, Handle, Libraries, MatrixUnits, Opened, Products,
};
use rushlight_core::backend::Properties;
use rushlight_core::sync::lock;
use rushlight_core::{Backend, DType, Device, Error, Layout, Result, Storage, View};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::sync::{Mutex, MutexGuard, OnceLock, RwLock};

/// All devices in use, of any vendor.
static STARTED: RwLock<Vec<&'static Gpu>> = RwLock::new(Vec::new());

/// Fault record that a kernel writes for an index out of range, in mapped host memory.
#[repr(C)]
struct Fault {
    there: u32,
    size: u32,
    index: i64,
    /// Lock on the device: the first thread that sets it writes the record. Not every machine has device atomics on
    /// host memory.
    taken: DevicePtr,
}

/// A started GPU.
pub struct Gpu {
    device: Device,
    own: OnceLock<&'static GpuBackend>,
    pub driver: &'static dyn Driver,
    pub libraries: &'static dyn Libraries,
    pub properties: Properties,
    pub kernels: Kernels,
    /// Launch queue of all streams.
    pub queue: Queue<Gpu>,
    /// Maximum shared memory of a block.
    pub shared_memory: usize,
    /// Tensor-core instructions available to attention.
    pub matrix_units: MatrixUnits,
    pub context: Handle,
    /// Stream of all threads that have not chosen another.
    main: Handle,
    memory: Mutex<Memory>,
    fault: *mut Fault,
    fault_device: DevicePtr,
    pub products: OnceLock<Result<&'static dyn Products>>,
    pub convolutions: OnceLock<Option<&'static dyn Convolutions>>,
    pub factorisations: OnceLock<Result<&'static dyn Factorisations>>,
    pub fft_plans: crate::vendor::fft::Plans,
    /// Deferred work.
    pub chain: Mutex<Option<Slot>>,
    /// Memory that was freed while deferred work reads it, and whether there is any.
    pub kept: Mutex<Vec<(Slot, DevicePtr)>>,
    pub keeps: AtomicBool,
    /// Streams of collectives that belong to a recording, by the recording's stream.
    pub forks: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: handles of the driver may be used from any thread that made the context current; the fault is read with
// volatile loads.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

thread_local! {
    /// The device whose context this thread uses.
    static CURRENT: Cell<Option<Device>> = const { Cell::new(None) };
    static LANES: RefCell<Lanes> = const { RefCell::new(Lanes { chosen: Vec::new(), scopes: Vec::new() }) };
}

/// Destination of a thread's work: the innermost scope of the device, else the stream it has chosen, else the
/// main one.
struct Lanes {
    /// At most one per device.
    chosen: Vec<(Lane, Stream)>,
    scopes: Vec<(Lane, Option<Stream>)>,
}

/// Stream and pool that a thread uses on a device.
#[derive(Clone, Copy)]
pub struct Lane {
    pub device: Device,
    pub stream: Handle,
    pub pool: PoolId,
    /// Whether the stream is in capture mode.
    pub recording: bool,
}

/// A stream for queued work, kept alive until the work is issued.
#[derive(Clone, Copy)]
pub struct Place(pub Handle);

// SAFETY: streams may be used from any thread.
unsafe impl Send for Place {}

impl Place {
    pub fn handle(self) -> Handle {
        self.0
    }
}

/// Restores the thread's previous stream when dropped.
pub struct LaneGuard(std::marker::PhantomData<*const ()>);

impl Lane {
    /// Redirects this thread's work to this lane until the guard is dropped.
    pub fn enter(self) -> LaneGuard {
        self.enter_as(None)
    }

    /// [`enter`](Lane::enter) for a stream that the program created.
    pub fn enter_as(self, stream: Option<Stream>) -> LaneGuard {
        LANES.with_borrow_mut(|lanes| lanes.scopes.push((self, stream)));
        LaneGuard(std::marker::PhantomData)
    }

    /// Redirects this thread's work to this lane.
    pub fn choose(self, stream: Stream) {
        let former = LANES.with_borrow_mut(|lanes| {
            let at = lanes.chosen.iter().position(|(lane, _)| lane.device == self.device);
            let former = at.map(|at| lanes.chosen.swap_remove(at));
            lanes.chosen.push((self, stream));
            former
        });
        // May drop the last reference to the stream, which issues work.
        drop(former);
    }

    /// The stream that this thread has chosen on a device, if any.
    pub fn chosen(device: Device) -> Option<Stream> {
        LANES.with_borrow(|lanes| {
            let scope = lanes.scopes.iter().rev().filter(|(lane, _)| lane.device == device);
            let chosen = lanes.chosen.iter().find(|(lane, _)| lane.device == device);
            scope.filter_map(|(_, stream)| stream.as_ref()).next().or(chosen.map(|(_, stream)| stream)).cloned()
        })
    }
}

impl Drop for LaneGuard {
    fn drop(&mut self) {
        let former = LANES.with_borrow_mut(|lanes| lanes.scopes.pop());
        drop(former);
    }
}

impl Gpu {
    /// Starts a device that its vendor has opened.
    pub fn start(opened: Opened) -> Result<&'static GpuBackend> {
        let Opened {
            device,
            driver,
            compiler,
            libraries,
            context,
            properties,
            shared_memory,
            arch,
            matrix_units,
            overlap,
        } = opened;
        CURRENT.set(Some(device));
        let main = driver.stream_create(0)?;
        let full =
            || Error::out_of_memory(format!("{device}: there is no memory to start with; other programs hold it"));
        let host = driver.host_alloc(64)?.ok_or_else(full)?;
        let taken = driver.alloc(size_of::<u32>())?.ok_or_else(full)?;
        // SAFETY: memory of ours, large and aligned enough.
        let fault_device = unsafe {
            host.cast::<Fault>().write(Fault { there: 0, size: 0, index: 0, taken });
            driver.host_device_ptr(host)?
        };
        let gpu = Gpu {
            device,
            own: OnceLock::new(),
            driver,
            libraries,
            kernels: Kernels::new(compiler, &arch, overlap),
            queue: Queue::default(),
            properties,
            shared_memory,
            matrix_units,
            context,
            main,
            memory: Mutex::default(),
            fault: host.cast(),
            fault_device,
            products: OnceLock::new(),
            convolutions: OnceLock::new(),
            factorisations: OnceLock::new(),
            fft_plans: Default::default(),
            chain: Mutex::default(),
            kept: Mutex::default(),
            keeps: AtomicBool::new(false),
            forks: Mutex::default(),
        };
        gpu.expect_faults()?;
        let started: &'static GpuBackend = Box::leak(Box::new(GpuBackend(gpu)));
        _ = started.0.own.set(started);
        STARTED.write().unwrap_or_else(|e| e.into_inner()).push(&started.0);
        rushlight_profile::register_source(libraries.activity());
        Ok(started)
    }

    /// All devices in use.
    pub(crate) fn all_started() -> Vec<&'static Gpu> {
        STARTED.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// The started device that holds a storage.
    pub fn of(call: &str, storage: &Storage) -> Result<&'static Gpu> {
        let device = storage.device();
        let started = STARTED.read().unwrap_or_else(|e| e.into_inner());
        let found = started.iter().find(|gpu| gpu.device == device).copied();
        found.ok_or_else(|| Error::device(format!("{call}: the memory is on {device}, which is not a GPU in use")))
    }

    /// The engine, which lives as long as the process.
    pub fn engine(&self) -> Result<&'static GpuBackend> {
        self.own.get().copied().ok_or_else(|| Error::device(format!("{} is still starting", self.device)))
    }

    /// The device, which lives as long as the process.
    pub fn this(&self) -> Result<&'static Gpu> {
        self.engine().map(|engine| &engine.0)
    }

    /// Its name.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Makes this the current device of the calling thread.
    #[inline]
    pub fn enter(&self) -> Result<()> {
        if CURRENT.get() == Some(self.device) {
            return Ok(());
        }
        // SAFETY: the context lives as long as the process.
        unsafe { self.driver.enter(self.context)? };
        CURRENT.set(Some(self.device));
        Ok(())
    }

    /// Current lane of this thread.
    #[inline]
    pub fn lane(&self) -> Lane {
        LANES
            .with_borrow(|lanes| {
                let scope = lanes.scopes.iter().rev().map(|(lane, _)| lane).find(|lane| lane.device == self.device);
                scope
                    .or_else(|| lanes.chosen.iter().map(|(lane, _)| lane).find(|lane| lane.device == self.device))
                    .copied()
            })
            .unwrap_or(self.main_lane())
    }

    /// Default lane of threads that have not chosen another.
    #[inline]
    pub fn main_lane(&self) -> Lane {
        Lane { device: self.device, stream: self.main, pool: MAIN, recording: false }
    }

    /// The current stream of this thread, after draining the launch queue.
    #[inline]
    pub fn stream(&self) -> Result<Handle> {
        self.queue.settle(self)?;
        Ok(self.lane().stream)
    }

    /// Gives this thread's stream work that is no kernel of ours: at once, or after launches that wait for their
    /// kernels.
    #[inline]
    pub fn submit(&self, work: impl FnOnce(&Gpu, Handle) -> Result<()> + Send + 'static) -> Result<()> {
        if self.is_timed() {
            return self.timed("library call or copy", [0; 3], [0; 3], work);
        }
        let stream = Place(self.lane().stream);
        self.queue.submit(self, move |gpu| {
            gpu.enter()?;
            work(gpu, stream.handle())
        })
    }

    /// Returns an error if this thread records a step: `call` has to wait for the device, or moves data between it and
    /// the host, which a replay cannot repeat.
    #[inline]
    pub fn refuse_recording(&self, call: &str) -> Result<()> {
        if self.lane().recording { Err(cannot_record(call)) } else { Ok(()) }
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// Allocates `bytes` (not zero).
    pub fn take_memory(&self, bytes: usize) -> Result<DevicePtr> {
        self.enter()?;
        if self.keeps.load(Acquire) {
            self.give_kept();
        }
        let pool = self.lane().pool;
        self.memory().alloc(self, pool, bytes)
    }

    /// Frees memory: at once, or after the other streams registered as users have passed it.
    pub fn give_memory(&self, ptr: DevicePtr) {
        if self.keeps.load(Acquire) {
            self.give_kept();
        }
        if self.queue.has_pending() && self.is_kept_for_held(ptr) {
            return;
        }
        self.give_now(ptr);
    }

    /// Frees memory that was kept for work which has been issued since.
    #[cold]
    fn give_kept(&self) {
        self.no_longer_kept().into_iter().for_each(|ptr| self.give_now(ptr));
    }

    fn give_now(&self, ptr: DevicePtr) {
        let mut memory = self.memory();
        let Some(users) = memory.take_users(ptr) else { return memory.free(ptr) };
        let fences: Result<Vec<Box<dyn Fence>>> = users
            .into_iter()
            .map(|stream| Event::at(self, stream as Handle).map(|event| Box::new(event) as Box<dyn Fence>))
            .collect();
        // Without a fence the end of the other streams' use is unknown, so the block is leaked.
        if let Ok(fences) = fences {
            memory.free_after(ptr, fences);
        }
    }

    /// Scratch memory of a call. Work issued before it is dropped may still use it: later work runs
    /// after.
    pub fn scratch(&self, bytes: usize) -> Result<Scratch<'_>> {
        Ok(Scratch { gpu: self, ptr: self.take_memory(bytes.max(1))? })
    }

    /// Waits for all work that this thread has issued, and reports an index out of range.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_recording("synchronize")?;
        self.enter()?;
        // SAFETY: our stream.
        unsafe { self.driver.stream_synchronize(self.stream()?)? };
        self.report_fault()
    }

    /// Waits for all work of the device, of all threads and streams, and reports an index out of range.
    pub fn synchronize_all(&self) -> Result<()> {
        self.refuse_recording("synchronize")?;
        self.queue.settle(self)?;
        self.enter()?;
        self.driver.synchronize()?;
        self.report_fault()
    }

    /// Address of the fault record.
    #[inline]
    pub fn fault(&self) -> DevicePtr {
        self.fault_device
    }

    /// Clears the fault record.
    fn expect_faults(&self) -> Result<()> {
        let (none, stream) = (0u32, self.lane().stream);
        // SAFETY: our own memory; no kernel writes to it that this thread does not know of, or its report is as good as
        // another's.
        unsafe {
            (&raw mut (*self.fault).there).write_volatile(0);
            let taken = (*self.fault).taken;
            self.driver.copy_to_device(taken, (&raw const none).cast(), size_of::<u32>(), stream)?;
            self.driver.stream_synchronize(stream)
        }
    }

    fn report_fault(&self) -> Result<()> {
        // SAFETY: our own mapped memory; no kernel is writing, as the stream is idle or another thread's report is as
        // good as ours.
        let fault = unsafe { self.fault.read_volatile() };
        if fault.there == 0 {
            return Ok(());
        }
        self.expect_faults()?;
        Err(Error::index(format!(
            "index {} is out of bounds for a dimension with size {} (found on {} in an earlier call; \
             set RUSHLIGHT_CUDA_SYNC=1 to have the call itself report it)",
            fault.index, fault.size, self.device
        )))
    }
}

impl Source for Gpu {
    fn take(&self, bytes: usize) -> Result<Option<u64>> {
        self.driver.relaxed(|| self.driver.alloc(bytes))
    }

    fn give(&self, ptr: u64) {
        // Pending launches may still use it after its owner is dropped.
        self.queue.settle_silently(self);
        // SAFETY: from `take`; the driver waits for work that uses it.
        self.driver.relaxed(|| unsafe { self.driver.free(ptr) });
    }

    fn available(&self) -> (usize, usize) {
        self.driver.memory_info()
    }
}

/// The error for a call that cannot be recorded.
#[cold]
pub fn cannot_record(call: &str) -> Error {
    Error::unsupported(format!(
        "{call}: cannot be part of a captured step, as it has to wait for the device or moves data between it and the host; do it outside \
         the step (on what the step returns, or on its inputs), or run without capture"
    ))
}

/// A contiguous scratch tensor.
pub struct Temporary {
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

impl Temporary {
    pub fn view(&self) -> View<'_> {
        // SAFETY: contiguous, and the storage was allocated for it.
        unsafe { View::new_unchecked(&self.storage, &self.layout, self.dtype) }
    }
}

impl Gpu {
    /// An uninitialised contiguous tensor.
    pub fn temporary(&self, shape: &[usize], dtype: DType) -> Result<Temporary> {
        let layout = Layout::contiguous(shape)?;
        let storage = self.engine()?.alloc(layout.numel() * dtype.size())?;
        Ok(Temporary { storage, layout, dtype })
    }

    /// A row-major copy.
    pub fn packed(&self, x: View) -> Result<Temporary> {
        let out = self.temporary(x.shape(), x.dtype())?;
        self.copy(x, out.view())?;
        Ok(out)
    }
}

/// Scratch memory of a call, returned to the pool when dropped.
pub struct Scratch<'a> {
    gpu: &'a Gpu,
    pub ptr: DevicePtr,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.gpu.give_memory(self.ptr);
    }
}
