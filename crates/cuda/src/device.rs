//! One GPU: its context, streams, memory and compiled kernels.

use crate::alloc::{Fence, MAIN, Memory, PoolId, Source};
use crate::cudnn;
use crate::driver::{self, DevicePtr, Driver, Handle, attribute};
use crate::kernel::Kernels;
use crate::linalg::{Solver, Triangular};
use crate::matmul::Lt;
use crate::nvrtc::Nvrtc;
use crate::queue::Queue;
use crate::stream::{Event, Stream};
use rushlight_core::backend::Properties;
use rushlight_core::{DType, Device, Error, Layout, Result, Storage, View};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// What a kernel leaves when it meets an index out of range; lies in host memory that the device sees.
#[repr(C)]
struct Fault {
    there: u32,
    size: u32,
    index: i64,
    /// A number on the device, not zero once a thread has taken it upon itself to write: not every machine's devices have atomics on host memory.
    taken: DevicePtr,
}

/// A GPU at work.
pub struct Gpu {
    pub index: usize,
    pub driver: &'static Driver,
    pub properties: Properties,
    pub kernels: Kernels,
    /// What waits for kernels, of all streams.
    pub queue: Queue<Gpu>,
    /// Most shared memory a block may ask for.
    pub shared_memory: usize,
    pub context: Handle,
    /// The stream of all threads that have not chosen another.
    main: Handle,
    memory: Mutex<Memory>,
    fault: *mut Fault,
    fault_device: DevicePtr,
    pub lt: OnceLock<Result<&'static Lt>>,
    pub cudnn: OnceLock<Option<&'static cudnn::Library>>,
    pub solver: OnceLock<Result<&'static Solver>>,
    pub triangular: OnceLock<Result<&'static Triangular>>,
}

// SAFETY: handles of the driver may be used from any thread that made the context current; the fault is read with volatile loads.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

thread_local! {
    /// The device whose context this thread uses.
    static CURRENT: Cell<usize> = const { Cell::new(usize::MAX) };
    static LANES: RefCell<Lanes> = const { RefCell::new(Lanes { chosen: Vec::new(), scopes: Vec::new() }) };
}

/// Where a thread's work goes: to the innermost scope of the device, else to the stream it has chosen, else to the main one.
struct Lanes {
    /// One for each device at most.
    chosen: Vec<(Lane, Stream)>,
    scopes: Vec<(Lane, Option<Stream>)>,
}

/// Where a thread's work on a device goes.
#[derive(Clone, Copy)]
pub struct Lane {
    pub device: usize,
    pub stream: Handle,
    pub pool: PoolId,
    /// Whether the stream notes work for later and does not do it.
    pub recording: bool,
}

/// A stream that work which waits will go to.
#[derive(Clone, Copy)]
pub struct Place(pub Handle);

// SAFETY: streams may be used from any thread.
unsafe impl Send for Place {}

impl Place {
    pub fn handle(self) -> Handle {
        self.0
    }
}

/// Puts a thread's former stream back when dropped.
pub struct LaneGuard(std::marker::PhantomData<*const ()>);

impl Lane {
    /// Sends this thread's work there until the guard is dropped.
    pub fn enter(self) -> LaneGuard {
        self.enter_as(None)
    }

    /// [`enter`](Lane::enter) for a stream that programs know.
    pub fn enter_as(self, stream: Option<Stream>) -> LaneGuard {
        LANES.with_borrow_mut(|lanes| lanes.scopes.push((self, stream)));
        LaneGuard(std::marker::PhantomData)
    }

    /// Sends this thread's work there from now on.
    pub fn choose(self, stream: Stream) {
        let former = LANES.with_borrow_mut(|lanes| {
            let at = lanes.chosen.iter().position(|(lane, _)| lane.device == self.device);
            let former = at.map(|at| lanes.chosen.swap_remove(at));
            lanes.chosen.push((self, stream));
            former
        });
        // May be the last to know its stream, whose end is work.
        drop(former);
    }

    /// The stream that this thread's work on a device goes to, if it has named one.
    pub fn chosen(device: usize) -> Option<Stream> {
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

/// How many GPUs there are.
pub fn count() -> Result<usize> {
    let driver = started()?;
    let mut count: c_int = 0;
    // SAFETY: an integer to write to.
    driver.check("cuDeviceGetCount", unsafe { (driver.device_count)(&mut count) })?;
    Ok(count as usize)
}

/// The driver, initialised. A failure is not kept: the next call tries again.
fn started() -> Result<&'static Driver> {
    static DONE: OnceLock<()> = OnceLock::new();
    let driver = Driver::get()?;
    if DONE.get().is_none() {
        // SAFETY: no precondition.
        driver.check("cuInit", unsafe { (driver.init)(0) })?;
        DONE.get_or_init(|| ());
    }
    Ok(driver)
}

/// What a GPU is, without starting work on it.
pub fn properties(index: usize) -> Result<Properties> {
    let driver = started()?;
    let count = count()?;
    if index >= count {
        return Err(Error::device(format!("cuda:{index} is not there: this machine has {count} CUDA device(s)")));
    }
    let (mut device, mut memory) = (0, 0usize);
    let mut name = [0 as std::ffi::c_char; 128];
    // SAFETY: each call writes to what is passed, and the name's length is passed with it.
    let get = |which: i32, device: c_int| unsafe {
        let mut value = 0;
        driver.check("cuDeviceGetAttribute", (driver.device_attribute)(&mut value, which, device)).map(|()| value)
    };
    // SAFETY: as above.
    unsafe {
        driver.check("cuDeviceGet", (driver.device_get)(&mut device, index as c_int))?;
        driver.check("cuDeviceGetName", (driver.device_name)(name.as_mut_ptr(), 128, device))?;
        driver.check("cuDeviceTotalMem", (driver.device_memory)(&mut memory, device))?;
    }
    let name: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    Ok(Properties {
        name: String::from_utf8_lossy(&name).into_owned(),
        memory,
        multiprocessors: get(attribute::MULTIPROCESSORS, device)? as usize,
        capability: (get(attribute::CAPABILITY_MAJOR, device)?, get(attribute::CAPABILITY_MINOR, device)?),
        driver: crate::cuda_version(driver.number()),
        runtime: Nvrtc::get()
            .and_then(|nvrtc| nvrtc.number())
            .map_or(String::new(), |(major, minor)| format!("{major}.{minor}")),
    })
}

impl Gpu {
    /// Starts work on a GPU.
    pub fn open(index: usize) -> Result<Gpu> {
        let properties = properties(index)?;
        let driver = started()?;
        let (major, minor) = properties.capability;
        if major < 7 {
            return Err(Error::device(format!(
                "cuda:{index} ({}) has compute capability {major}.{minor}; 7.0 or newer is needed",
                properties.name
            )));
        }
        let (mut device, mut context, mut stream, mut shared) = (0, std::ptr::null_mut(), std::ptr::null_mut(), 0);
        let (mut host, mut fault_device, mut taken) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: every call writes to what is passed. The primary context is kept for the life of the process.
        unsafe {
            driver.check("cuDeviceGet", (driver.device_get)(&mut device, index as c_int))?;
            driver.check("cuDevicePrimaryCtxRetain", (driver.context_retain)(&mut context, device))?;
            driver.check("cuCtxSetCurrent", (driver.context_set)(context))?;
            CURRENT.set(index);
            driver.check("cuStreamCreate", (driver.stream_create)(&mut stream, driver::STREAM_NON_BLOCKING, 0))?;
            driver.check(
                "cuDeviceGetAttribute",
                (driver.device_attribute)(&mut shared, attribute::MAX_SHARED_MEMORY, device),
            )?;
            driver.check("cuMemHostAlloc", (driver.host_alloc)(&mut host, 64, driver::HOST_MAPPED))?;
            driver.check("cuMemAlloc", (driver.alloc)(&mut taken, size_of::<u32>()))?;
            host.cast::<Fault>().write(Fault { there: 0, size: 0, index: 0, taken });
            driver.check("cuMemHostGetDevicePointer", (driver.host_device_ptr)(&mut fault_device, host, 0))?;
        }
        // Only under this name do Hopper's own instructions (wgmma) exist.
        let arch = format!("sm_{major}{minor}{}", if (major, minor) == (9, 0) { "a" } else { "" });
        // Graphs know of kernels that overlap since CUDA 12.3.
        let wanted = std::env::var_os("RUSHLIGHT_CUDA_OVERLAP").is_none_or(|v| v != "0");
        let overlap = wanted && major >= 9 && driver.number() >= 12_030;
        let gpu = Gpu {
            index,
            driver,
            kernels: Kernels::new(&arch, overlap)?,
            queue: Queue::default(),
            properties,
            shared_memory: shared as usize,
            context,
            main: stream,
            memory: Mutex::default(),
            fault: host.cast(),
            fault_device,
            lt: OnceLock::new(),
            cudnn: OnceLock::new(),
            solver: OnceLock::new(),
            triangular: OnceLock::new(),
        };
        gpu.expect_faults()?;
        Ok(gpu)
    }

    /// Its name.
    pub fn device(&self) -> Device {
        Device::Cuda(self.index)
    }

    /// Makes this thread's calls go to this device.
    #[inline]
    pub fn enter(&self) -> Result<()> {
        if CURRENT.get() == self.index {
            return Ok(());
        }
        // SAFETY: the context lives as long as the process.
        self.driver.check("cuCtxSetCurrent", unsafe { (self.driver.context_set)(self.context) })?;
        CURRENT.set(self.index);
        Ok(())
    }

    /// Where this thread's work goes.
    #[inline]
    pub fn lane(&self) -> Lane {
        LANES
            .with_borrow(|lanes| {
                let scope = lanes.scopes.iter().rev().map(|(lane, _)| lane).find(|lane| lane.device == self.index);
                scope
                    .or_else(|| lanes.chosen.iter().map(|(lane, _)| lane).find(|lane| lane.device == self.index))
                    .copied()
            })
            .unwrap_or(self.main_lane())
    }

    /// Where work goes unless a thread says otherwise.
    #[inline]
    pub fn main_lane(&self) -> Lane {
        Lane { device: self.index, stream: self.main, pool: MAIN, recording: false }
    }

    /// The stream this thread's work goes to, with nothing waiting before it.
    #[inline]
    pub fn stream(&self) -> Result<Handle> {
        self.queue.settle(self)?;
        Ok(self.lane().stream)
    }

    /// Gives this thread's stream work that is no kernel of ours: at once, or after launches that wait for their kernels.
    #[inline]
    pub fn submit(&self, work: impl FnOnce(&Gpu, Handle) -> Result<()> + Send + 'static) -> Result<()> {
        let stream = Place(self.lane().stream);
        self.queue.submit(self, move |gpu| {
            gpu.enter()?;
            work(gpu, stream.handle())
        })
    }

    /// An error if this thread records a step: `call` has to wait for the device, or moves data between it and the host, which a replay
    /// could not repeat.
    #[inline]
    pub fn refuse_recording(&self, call: &str) -> Result<()> {
        if self.lane().recording { Err(cannot_record(call)) } else { Ok(()) }
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Memory for `bytes` (not zero).
    pub fn take_memory(&self, bytes: usize) -> Result<DevicePtr> {
        self.enter()?;
        let pool = self.lane().pool;
        self.memory().alloc(self, pool, bytes)
    }

    /// Takes memory back: at once, or when the other streams that were said to use it are past it.
    pub fn give_memory(&self, ptr: DevicePtr) {
        let mut memory = self.memory();
        let Some(users) = memory.take_users(ptr) else { return memory.free(ptr) };
        let fences: Result<Vec<Box<dyn Fence>>> = users
            .into_iter()
            .map(|stream| Event::at(self, stream as Handle).map(|event| Box::new(event) as Box<dyn Fence>))
            .collect();
        // Without a fence nobody can say when the others are done: the block stays away.
        if let Ok(fences) = fences {
            memory.free_after(ptr, fences);
        }
    }

    /// Memory that a call needs for itself. Work issued before it is dropped may still use it: what comes after runs after.
    pub fn scratch(&self, bytes: usize) -> Result<Scratch<'_>> {
        Ok(Scratch { gpu: self, ptr: self.take_memory(bytes.max(1))? })
    }

    /// Waits for all work this thread has issued so far, and reports an index out of range that it met.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_recording("synchronize")?;
        self.enter()?;
        // SAFETY: our stream.
        self.driver.check("cuStreamSynchronize", unsafe { (self.driver.stream_synchronize)(self.stream()?) })?;
        self.report_fault()
    }

    /// Waits for all work of the device, of all threads and streams, and reports an index out of range that it met.
    pub fn synchronize_all(&self) -> Result<()> {
        self.refuse_recording("synchronize")?;
        self.queue.settle(self)?;
        self.enter()?;
        // SAFETY: this thread's context is the device's.
        self.driver.check("cuCtxSynchronize", unsafe { (self.driver.context_synchronize)() })?;
        self.report_fault()
    }

    /// Where kernels leave an index out of range.
    #[inline]
    pub fn fault(&self) -> DevicePtr {
        self.fault_device
    }

    /// Lets kernels write a fault again.
    fn expect_faults(&self) -> Result<()> {
        let (none, stream) = (0u32, self.lane().stream);
        // SAFETY: our own memory; no kernel writes to it that this thread does not know of, or its report is as good as another's.
        let rc = unsafe {
            (&raw mut (*self.fault).there).write_volatile(0);
            (self.driver.copy_to_device)((*self.fault).taken, (&raw const none).cast(), size_of::<u32>(), stream)
        };
        self.driver.check("cuMemcpyHtoDAsync", rc)?;
        // SAFETY: our stream.
        self.driver.check("cuStreamSynchronize", unsafe { (self.driver.stream_synchronize)(stream) })
    }

    fn report_fault(&self) -> Result<()> {
        // SAFETY: our own mapped memory; no kernel is writing, as the stream is idle or another thread's report is as good as ours.
        let fault = unsafe { self.fault.read_volatile() };
        if fault.there == 0 {
            return Ok(());
        }
        self.expect_faults()?;
        Err(Error::index(format!(
            "index {} is out of bounds for a dimension with size {} (found on cuda:{} in an earlier call; \
             set RUSHLIGHT_CUDA_SYNC=1 to have the call itself report it)",
            fault.index, fault.size, self.index
        )))
    }
}

impl Source for Gpu {
    fn take(&self, bytes: usize) -> Result<Option<u64>> {
        let mut ptr = 0;
        // SAFETY: an address to write to.
        match self.driver.relaxed(|| unsafe { (self.driver.alloc)(&mut ptr, bytes) }) {
            0 => Ok(Some(ptr)),
            driver::OUT_OF_MEMORY => Ok(None),
            code => self.driver.check("cuMemAlloc", code).map(|()| None),
        }
    }

    fn give(&self, ptr: u64) {
        // What waits may use it, though nobody holds it any more.
        self.queue.settle_silently(self);
        // SAFETY: from `take`; the driver waits for work that uses it. An error would be an earlier one's, reported elsewhere.
        self.driver.relaxed(|| unsafe { (self.driver.free)(ptr) });
    }

    fn available(&self) -> (usize, usize) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two sizes to write to.
        unsafe { (self.driver.memory_info)(&mut free, &mut total) };
        (free, total)
    }
}

/// What is said of a call that a recorded step cannot hold.
#[cold]
pub fn cannot_record(call: &str) -> Error {
    Error::unsupported(format!(
        "{call}: cannot be part of a captured step, as it has to wait for the device or moves data between it and the host; do it outside \
         the step (on what the step returns, or on its inputs), or run without capture"
    ))
}

/// A contiguous tensor that a call needs for itself.
pub struct Temporary {
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

impl Temporary {
    pub fn view(&self) -> View<'_> {
        View { storage: &self.storage, layout: &self.layout, dtype: self.dtype }
    }
}

impl Gpu {
    /// A contiguous tensor with whatever values the memory holds.
    pub fn temporary(&self, shape: &[usize], dtype: DType) -> Result<Temporary> {
        let layout = Layout::contiguous(shape)?;
        let storage = crate::backend(self.index)?.alloc(layout.numel() * dtype.size())?;
        Ok(Temporary { storage, layout, dtype })
    }

    /// The same elements in row-major order.
    pub fn packed(&self, x: View) -> Result<Temporary> {
        let out = self.temporary(x.shape(), x.dtype)?;
        self.copy(x, out.view())?;
        Ok(out)
    }
}

/// Memory of a call, back in the pool when dropped.
pub struct Scratch<'a> {
    gpu: &'a Gpu,
    pub ptr: DevicePtr,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.gpu.give_memory(self.ptr);
    }
}
