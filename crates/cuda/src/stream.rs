//! Streams and events: work of one device that runs side by side, and points in it to wait for.

use crate::alloc::{Fence, PoolId};
use crate::backend::gpu;
use crate::device::{Gpu, Lane, cannot_record};
use crate::driver::{self, Driver, Handle};
use rushlight_core::{Device, Error, Result, Storage, backend};
use std::any::Any;
use std::sync::Arc;

/// The index of a GPU; the CPU has neither streams nor events.
pub(crate) fn index(call: &str, device: Device) -> Result<usize> {
    match device {
        Device::Cuda(index) => Ok(index),
        other => {
            Err(Error::device(format!("{call}: {other} is not a CUDA device; its work is done when a call returns")))
        }
    }
}

/// A queue of work on a GPU beside its main one.
///
/// What a thread does within [`scope`](Stream::scope) goes to the stream, memory included. Streams do not wait for each other by themselves: before
/// a tensor made on one is used on another, let that one wait ([`wait_stream`](Stream::wait_stream), [`wait_event`](Stream::wait_event)). A tensor that
/// may be dropped while another stream still uses it needs [`record_stream`].
///
/// ```
/// use rushlight_core::Device;
/// // Where there is no GPU, this is an error that says why.
/// if let Ok(side) = rushlight_cuda::Stream::new(Device::Cuda(0)) {
///     let event = side.record_event()?;
///     event.synchronize()?;
///     assert!(event.query()?);
/// }
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream(Arc<Own>);

struct Own {
    gpu: &'static Gpu,
    handle: Handle,
    pool: PoolId,
    /// Whether it is the device's main stream, which lives as long as the process.
    main: bool,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

impl Drop for Own {
    fn drop(&mut self) {
        if self.main {
            return;
        }
        // Its memory goes over to the main stream, so its work must be done. Errors have been told, or will be, by calls that can.
        self.gpu.queue.settle_silently(self.gpu);
        if self.gpu.enter().is_ok() {
            let driver = self.gpu.driver;
            // SAFETY: a stream of ours, used by nobody any more.
            driver.relaxed(|| unsafe {
                (driver.stream_synchronize)(self.handle);
                (driver.stream_destroy)(self.handle)
            });
        }
        let mut memory = self.gpu.memory();
        memory.remove_user(self.handle as u64);
        memory.remove_pool(self.pool);
    }
}

/// A new stream that does not wait for others.
pub(crate) fn create(gpu: &Gpu, priority: i32) -> Result<Handle> {
    let mut handle = std::ptr::null_mut();
    // SAFETY: a handle to write to.
    let rc = unsafe { (gpu.driver.stream_create)(&mut handle, driver::STREAM_NON_BLOCKING, priority) };
    gpu.driver.check("cuStreamCreateWithPriority", rc)?;
    Ok(handle)
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.0.gpu.index == other.0.gpu.index && self.0.handle == other.0.handle
    }
}

impl Eq for Stream {}

impl Stream {
    /// A new stream of a GPU.
    pub fn new(device: Device) -> Result<Self> {
        Self::with_priority(device, 0)
    }

    /// A new stream of a GPU, whose work goes before that of streams with a higher number; the driver takes the nearest it knows.
    pub fn with_priority(device: Device, priority: i32) -> Result<Self> {
        let gpu = gpu(index("Stream::new", device)?)?;
        gpu.refuse_recording("Stream::new")?;
        gpu.enter()?;
        let handle = create(gpu, priority)?;
        Ok(Self(Arc::new(Own { gpu, handle, pool: gpu.memory().add_pool(false), main: false })))
    }

    /// The stream of a GPU that work goes to where no other is chosen.
    pub fn main(device: Device) -> Result<Self> {
        let gpu = gpu(index("Stream::main", device)?)?;
        let lane = gpu.main_lane();
        Ok(Self(Arc::new(Own { gpu, handle: lane.stream, pool: lane.pool, main: true })))
    }

    /// The stream that this thread's work on a GPU goes to; where the thread records a step, the one it went to before.
    pub fn current(device: Device) -> Result<Self> {
        match Lane::chosen(index("Stream::current", device)?) {
            Some(stream) => Ok(stream),
            None => Self::main(device),
        }
    }

    /// Sends what this thread does on the device from now on to this stream.
    pub fn set_current(&self) -> Result<()> {
        self.0.gpu.refuse_recording("Stream::set_current")?;
        self.lane().choose(self.clone());
        Ok(())
    }

    /// The driver's handle, for other libraries: valid as long as the stream. What they give the stream comes after what it has been given here: from now
    /// on the program waits for kernels that have to be compiled.
    pub fn handle(&self) -> Result<usize> {
        self.0.gpu.queue.close(self.0.gpu)?;
        Ok(self.0.handle as usize)
    }

    fn lane(&self) -> Lane {
        Lane { device: self.0.gpu.index, stream: self.0.handle, pool: self.0.pool, recording: false }
    }

    /// The device.
    pub fn device(&self) -> Device {
        Device::Cuda(self.0.gpu.index)
    }

    /// Sends what this thread does on the device within `f` to this stream.
    pub fn scope<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.0.gpu.refuse_recording("Stream::scope")?;
        let _guard = self.lane().enter_as(Some(self.clone()));
        f()
    }

    /// Waits until all work of this stream is done.
    pub fn synchronize(&self) -> Result<()> {
        self.scope(|| self.0.gpu.synchronize())
    }

    /// Whether all work of this stream is done.
    pub fn query(&self) -> Result<bool> {
        let gpu = self.0.gpu;
        gpu.enter()?;
        if !gpu.queue.advance(gpu)? {
            return Ok(false);
        }
        // SAFETY: a stream of ours.
        ready(gpu.driver, "cuStreamQuery", gpu.driver.relaxed(|| unsafe { (gpu.driver.stream_query)(self.0.handle) }))
    }

    /// What comes next on this stream waits for the event.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        self.scope(|| event.wait())
    }

    /// What comes next on this stream waits for all that `other` has been given.
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        self.wait_event(&other.record_event()?)
    }

    /// An event behind all that this stream has been given.
    pub fn record_event(&self) -> Result<Event> {
        Event::at(self.0.gpu, self.0.handle)
    }
}

fn ready(driver: &Driver, call: &str, code: i32) -> Result<bool> {
    if code == driver::NOT_READY { Ok(false) } else { driver.check(call, code).map(|()| true) }
}

/// A point in a stream's work.
pub struct Event {
    gpu: &'static Gpu,
    handle: Handle,
    timed: bool,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: an event of ours; the driver keeps it as long as work waits for it.
        unsafe { (self.gpu.driver.event_destroy)(self.handle) };
    }
}

impl Fence for Event {
    fn passed(&self) -> bool {
        // An error is a device that has stopped: nothing uses memory there.
        self.query().unwrap_or(true)
    }
}

impl Event {
    fn create(gpu: &Gpu, timed: bool) -> Result<Self> {
        let gpu = crate::backend::gpu(gpu.index)?;
        gpu.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = if timed { 0 } else { driver::EVENT_WITHOUT_TIME };
        // SAFETY: a handle to write to.
        gpu.driver.check("cuEventCreate", unsafe { (gpu.driver.event_create)(&mut handle, flags) })?;
        Ok(Self { gpu, handle, timed })
    }

    /// An event behind all that a stream has been given, without a time.
    pub(crate) fn at(gpu: &Gpu, stream: Handle) -> Result<Self> {
        let event = Self::create(gpu, false)?;
        event.mark(stream)?;
        Ok(event)
    }

    fn mark(&self, stream: Handle) -> Result<()> {
        self.gpu.queue.settle(self.gpu)?;
        self.gpu.enter()?;
        // SAFETY: an event and a stream of ours.
        self.gpu.driver.check("cuEventRecord", unsafe { (self.gpu.driver.event_record)(self.handle, stream) })
    }

    /// An event of a GPU that can be timed, not yet recorded.
    pub fn new(device: Device) -> Result<Self> {
        let gpu = gpu(index("Event::new", device)?)?;
        gpu.refuse_recording("Event::new")?;
        Self::create(gpu, true)
    }

    /// Puts the event behind all that this thread's stream has been given.
    pub fn record(&self) -> Result<()> {
        self.gpu.refuse_recording("Event::record")?;
        self.mark(self.gpu.lane().stream)
    }

    /// Puts the event behind all that a stream of the event's GPU has been given.
    pub fn record_on(&self, stream: &Stream) -> Result<()> {
        if stream.0.gpu.index != self.gpu.index {
            return Err(Error::device(format!(
                "Event::record: the event is of cuda:{}, the stream of {}",
                self.gpu.index,
                stream.device()
            )));
        }
        self.gpu.refuse_recording("Event::record")?;
        self.mark(stream.0.handle)
    }

    /// The device.
    pub fn device(&self) -> Device {
        Device::Cuda(self.gpu.index)
    }

    /// The driver's handle, for other libraries: valid as long as the event.
    pub fn handle(&self) -> usize {
        self.handle as usize
    }

    /// What comes next on this thread's stream, of any GPU, waits for the event.
    pub fn wait(&self) -> Result<()> {
        self.wait_on(self.gpu)
    }

    /// What comes next on this thread's stream of `gpu` waits for the event.
    pub(crate) fn wait_on(&self, gpu: &Gpu) -> Result<()> {
        gpu.refuse_recording("Event::wait")?;
        gpu.enter()?;
        // SAFETY: a stream and an event of ours.
        gpu.driver.check("cuStreamWaitEvent", unsafe { (gpu.driver.stream_wait)(gpu.stream()?, self.handle, 0) })
    }

    /// Whether the work before the event is done.
    pub fn query(&self) -> Result<bool> {
        let driver = self.gpu.driver;
        // SAFETY: an event of ours.
        ready(driver, "cuEventQuery", driver.relaxed(|| unsafe { (driver.event_query)(self.handle) }))
    }

    /// Waits until the work before the event is done.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.refuse_recording("Event::synchronize")?;
        // SAFETY: an event of ours.
        self.gpu.driver.check("cuEventSynchronize", unsafe { (self.gpu.driver.event_synchronize)(self.handle) })
    }

    /// Milliseconds from this event to `later`, both of [`Event::new`] and past.
    pub fn elapsed_time(&self, later: &Event) -> Result<f64> {
        if !(self.timed && later.timed) {
            return Err(Error::value("elapsed_time: only events made by Event::new have a time"));
        }
        let mut milliseconds = 0.0;
        // SAFETY: two events of ours, a number to write to.
        let rc = unsafe { (self.gpu.driver.event_elapsed)(&mut milliseconds, self.handle, later.handle) };
        if rc == driver::NOT_READY {
            return Err(Error::value(
                "elapsed_time: an event is not past yet; call synchronize() on the later one first",
            ));
        }
        self.gpu.driver.check("cuEventElapsedTime", rc)?;
        Ok(milliseconds.into())
    }
}

/// Keeps memory that `stream` uses from being given to others before the stream is past what it has been given when the memory is freed.
/// Needed for tensors made on another stream than the one that uses them, if they may be dropped meanwhile.
pub fn record_stream(storage: &Storage, stream: &Stream) -> Result<()> {
    if storage.device() != stream.device() {
        return Err(Error::device(format!(
            "record_stream: the tensor is on {}, the stream on {}",
            storage.device(),
            stream.device()
        )));
    }
    let gpu = stream.0.gpu;
    if gpu.lane().recording {
        return Err(cannot_record("record_stream"));
    }
    if storage.bytes() > 0 {
        gpu.memory().note_user(storage.ptr() as u64, stream.0.handle as u64);
    }
    Ok(())
}

/// Makes memory ready for another library that will use it on CUDA's default stream: that stream waits for what this thread's has been given, and once
/// the memory is freed, it is not used for anything else before the default stream is past what it has been given by then.
pub fn lend_to_default_stream(storage: &Storage) -> Result<()> {
    let gpu = gpu(index("lend_to_default_stream", storage.device())?)?;
    gpu.refuse_recording("lending memory to another library")?;
    let ready = Event::at(gpu, gpu.lane().stream)?;
    // SAFETY: a stream that every context has, and an event of ours.
    let rc = unsafe { (gpu.driver.stream_wait)(driver::STREAM_LEGACY as Handle, ready.handle, 0) };
    gpu.driver.check("cuStreamWaitEvent", rc)?;
    if storage.bytes() > 0 {
        gpu.memory().note_user(storage.ptr() as u64, driver::STREAM_LEGACY as u64);
    }
    Ok(())
}

/// Another engine's event has no handle of ours: the host waits for it.
fn own(event: &dyn backend::Event) -> Option<&Event> {
    (event as &dyn Any).downcast_ref()
}

impl backend::Stream for Stream {
    fn device(&self) -> Device {
        Stream::device(self)
    }

    fn id(&self) -> usize {
        self.0.handle as usize
    }

    fn handle(&self) -> Result<usize> {
        Stream::handle(self)
    }

    fn set_current(&self) -> Result<()> {
        Stream::set_current(self)
    }

    fn enter(&self) -> Result<Box<dyn Any>> {
        self.0.gpu.refuse_recording("Stream::scope")?;
        Ok(Box::new(self.lane().enter_as(Some(self.clone()))))
    }

    fn query(&self) -> Result<bool> {
        Stream::query(self)
    }

    fn synchronize(&self) -> Result<()> {
        Stream::synchronize(self)
    }

    fn wait(&self, event: &dyn backend::Event) -> Result<()> {
        match own(event) {
            Some(event) => self.wait_event(event),
            None => event.synchronize(),
        }
    }

    fn record(&self, event: &dyn backend::Event) -> Result<()> {
        match own(event) {
            Some(event) => event.record_on(self),
            None => Err(Error::device(format!(
                "Event::record: the event is of {}, the stream of {}",
                event.device(),
                self.device()
            ))),
        }
    }

    fn record_use(&self, storage: &Storage) -> Result<()> {
        record_stream(storage, self)
    }
}

impl backend::Event for Event {
    fn device(&self) -> Device {
        Event::device(self)
    }

    fn handle(&self) -> usize {
        Event::handle(self)
    }

    fn query(&self) -> Result<bool> {
        Event::query(self)
    }

    fn synchronize(&self) -> Result<()> {
        Event::synchronize(self)
    }

    fn elapsed_ms(&self, later: &dyn backend::Event) -> Result<f64> {
        match own(later) {
            Some(later) => self.elapsed_time(later),
            None => Err(Error::device("elapsed_time: the events are of different devices")),
        }
    }
}

impl backend::Streams for Gpu {
    fn create(&self, priority: i32) -> Result<Arc<dyn backend::Stream>> {
        Ok(Arc::new(Stream::with_priority(self.device(), priority)?))
    }

    fn main(&self) -> Result<Arc<dyn backend::Stream>> {
        Ok(Arc::new(Stream::main(self.device())?))
    }

    fn current(&self) -> Result<Arc<dyn backend::Stream>> {
        Ok(Arc::new(Stream::current(self.device())?))
    }

    fn event(&self, timed: bool) -> Result<Arc<dyn backend::Event>> {
        self.refuse_recording("Event::new")?;
        Ok(Arc::new(Event::create(self, timed)?))
    }

    fn lend_to_default(&self, storage: &Storage) -> Result<()> {
        lend_to_default_stream(storage)
    }
}
