//! Streams and events.

use crate::device::alloc::{Fence, PoolId};
use crate::device::{Gpu, Lane, cannot_record};
use crate::vendor::driver::Handle;
use rushlight_core::{Device, Error, Result, Storage, backend};
use std::any::Any;
use std::sync::Arc;

/// A stream with its memory pool: work and allocations of a thread that uses it go there.
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
        // Its memory moves to the main stream's pool, so its work must be finished. Calls that can fail report errors.
        self.gpu.queue.settle_silently(self.gpu);
        if self.gpu.enter().is_ok() {
            let driver = self.gpu.driver;
            // SAFETY: a stream of ours, used by nobody any more.
            driver.relaxed(|| unsafe {
                _ = driver.stream_synchronize(self.handle);
                driver.stream_destroy(self.handle);
            });
        }
        let mut memory = self.gpu.memory();
        memory.remove_user(self.handle as u64);
        memory.remove_pool(self.pool);
    }
}

impl Stream {
    pub(crate) fn create(gpu: &'static Gpu, priority: i32) -> Result<Self> {
        gpu.enter()?;
        let handle = gpu.driver.stream_create(priority)?;
        Ok(Self(Arc::new(Own { gpu, handle, pool: gpu.memory().add_pool(false), main: false })))
    }

    fn main(gpu: &'static Gpu) -> Self {
        let lane = gpu.main_lane();
        Self(Arc::new(Own { gpu, handle: lane.stream, pool: lane.pool, main: true }))
    }

    pub(crate) fn lane(&self) -> Lane {
        Lane { device: self.0.gpu.device(), stream: self.0.handle, pool: self.0.pool, recording: false }
    }
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
        unsafe { self.gpu.driver.event_destroy(self.handle) };
    }
}

impl Fence for Event {
    fn passed(&self) -> bool {
        // An error means that the device has stopped: nothing uses its memory.
        backend::Event::query(self).unwrap_or(true)
    }
}

impl Event {
    fn create(gpu: &Gpu, timed: bool) -> Result<Self> {
        let gpu = gpu.this()?;
        gpu.enter()?;
        Ok(Self { gpu, handle: gpu.driver.relaxed(|| gpu.driver.event_create(timed))?, timed })
    }

    /// An untimed event after all work issued to a stream.
    pub fn at(gpu: &Gpu, stream: Handle) -> Result<Self> {
        let event = Self::create(gpu, false)?;
        event.mark(stream)?;
        Ok(event)
    }

    fn mark(&self, stream: Handle) -> Result<()> {
        self.gpu.queue.settle(self.gpu)?;
        self.gpu.enter()?;
        // SAFETY: an event and a stream of ours.
        unsafe { self.gpu.driver.event_record(self.handle, stream) }
    }

    /// Makes later work on this thread's stream of `gpu` wait for the event.
    pub fn wait_on(&self, gpu: &Gpu) -> Result<()> {
        gpu.refuse_recording("Event::wait")?;
        gpu.enter()?;
        // SAFETY: a stream and an event of ours.
        unsafe { gpu.driver.stream_wait(gpu.stream()?, self.handle) }
    }

    /// Makes later work on a stream wait for the event, also within one recording.
    pub fn wait_by(&self, stream: Handle) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: a stream and an event of ours.
        unsafe { self.gpu.driver.stream_wait(stream, self.handle) }
    }

    /// Waits until the work before the event is done.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.refuse_recording("Event::synchronize")?;
        // SAFETY: an event of ours.
        unsafe { self.gpu.driver.event_synchronize(self.handle) }
    }
}

/// Downcasts the event to this engine's; `None` if it is another engine's.
fn own(event: &dyn backend::Event) -> Option<&Event> {
    (event as &dyn Any).downcast_ref()
}

impl backend::Stream for Stream {
    fn device(&self) -> Device {
        self.0.gpu.device()
    }

    fn id(&self) -> usize {
        self.0.handle as usize
    }

    fn handle(&self) -> Result<usize> {
        // Shuts the launch queue down: another library's launches would overtake queued ones.
        self.0.gpu.queue.close(self.0.gpu)?;
        Ok(self.0.handle as usize)
    }

    fn set_current(&self) -> Result<()> {
        self.0.gpu.refuse_recording("Stream::set_current")?;
        self.lane().choose(self.clone());
        Ok(())
    }

    fn enter(&self) -> Result<Box<dyn Any>> {
        self.0.gpu.refuse_recording("Stream::scope")?;
        Ok(Box::new(self.lane().enter_as(Some(self.clone()))))
    }

    fn query(&self) -> Result<bool> {
        let gpu = self.0.gpu;
        gpu.enter()?;
        if !gpu.queue.advance(gpu)? {
            return Ok(false);
        }
        // SAFETY: a stream of ours.
        gpu.driver.relaxed(|| unsafe { gpu.driver.stream_query(self.0.handle) })
    }

    fn synchronize(&self) -> Result<()> {
        let _lane = backend::Stream::enter(self)?;
        self.0.gpu.synchronize()
    }

    fn wait(&self, event: &dyn backend::Event) -> Result<()> {
        // The host waits for an event of another engine.
        let Some(event) = own(event) else { return event.synchronize() };
        let _lane = backend::Stream::enter(self)?;
        event.wait_on(self.0.gpu)
    }

    fn record(&self, event: &dyn backend::Event) -> Result<()> {
        let event = own(event).filter(|own| own.gpu.device() == self.0.gpu.device()).ok_or_else(|| {
            Error::device(format!(
                "Event::record: the event is of {}, the stream of {}",
                event.device(),
                self.0.gpu.device()
            ))
        })?;
        self.0.gpu.refuse_recording("Event::record")?;
        event.mark(self.0.handle)
    }

    fn record_use(&self, storage: &Storage) -> Result<()> {
        let gpu = self.0.gpu;
        if storage.device() != gpu.device() {
            return Err(Error::device(format!(
                "record_stream: the tensor is on {}, the stream on {}",
                storage.device(),
                gpu.device()
            )));
        }
        if gpu.lane().recording {
            return Err(cannot_record("record_stream"));
        }
        if storage.bytes() > 0 {
            gpu.memory().note_user(storage.ptr() as u64, self.0.handle as u64);
        }
        Ok(())
    }
}

impl backend::Event for Event {
    fn device(&self) -> Device {
        self.gpu.device()
    }

    fn handle(&self) -> usize {
        self.handle as usize
    }

    fn query(&self) -> Result<bool> {
        let driver = self.gpu.driver;
        // SAFETY: an event of ours.
        driver.relaxed(|| unsafe { driver.event_query(self.handle) })
    }

    fn synchronize(&self) -> Result<()> {
        Event::synchronize(self)
    }

    fn elapsed_ms(&self, later: &dyn backend::Event) -> Result<f64> {
        let Some(later) = own(later) else {
            return Err(Error::device("elapsed_time: the events are of different devices"));
        };
        if !(self.timed && later.timed) {
            return Err(Error::value("elapsed_time: only events made by Event::new have a time"));
        }
        // SAFETY: two events of ours.
        let milliseconds = unsafe { self.gpu.driver.event_elapsed(self.handle, later.handle)? };
        let not_past = "elapsed_time: an event is not past yet; call synchronize() on the later one first";
        milliseconds.map(f64::from).ok_or_else(|| Error::value(not_past))
    }
}

impl backend::Streams for Gpu {
    fn create(&self, priority: i32) -> Result<Arc<dyn backend::Stream>> {
        self.refuse_recording("Stream::new")?;
        Ok(Arc::new(Stream::create(self.this()?, priority)?))
    }

    fn main(&self) -> Result<Arc<dyn backend::Stream>> {
        Ok(Arc::new(Stream::main(self.this()?)))
    }

    fn current(&self) -> Result<Arc<dyn backend::Stream>> {
        match Lane::chosen(self.device()) {
            Some(stream) => Ok(Arc::new(stream)),
            None => backend::Streams::main(self),
        }
    }

    fn event(&self, timed: bool) -> Result<Arc<dyn backend::Event>> {
        self.refuse_recording("Event::new")?;
        Ok(Arc::new(Event::create(self, timed)?))
    }

    fn lend_to_default(&self, storage: &Storage) -> Result<()> {
        self.refuse_recording("lending memory to another library")?;
        let (ready, default) = (Event::at(self, self.lane().stream)?, self.driver.default_stream());
        // SAFETY: a stream that every context has, and an event of ours.
        unsafe { self.driver.stream_wait(default, ready.handle)? };
        if storage.bytes() > 0 {
            self.memory().note_user(storage.ptr() as u64, default as u64);
        }
        Ok(())
    }
}
