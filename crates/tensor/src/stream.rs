//! Streams and events: work of one device that runs side by side, and points in it to wait for.

use crate::tensor::backend;
use rushlight_core::backend::{self as engine, Streams};
use rushlight_core::{Device, Error, Result, Storage};
use std::sync::Arc;

fn streams(call: &str, device: Device) -> Result<&'static dyn Streams> {
    let none = || Error::device(format!("{call}: {device} has no streams; its work is done when a call returns"));
    backend(device)?.streams().ok_or_else(none)
}

/// A queue of work on a device, concurrent with its default one.
///
/// A thread's work within [`scope`](Stream::scope) goes to the stream, allocations included. Streams do not wait for
/// each other by themselves: before a tensor made on one is used on another, let that one wait
/// ([`wait_stream`](Stream::wait_stream), [`wait_event`](Stream::wait_event)). A tensor that may be dropped while
/// another stream still uses it needs [`Tensor::record_stream`](crate::Tensor::record_stream).
///
/// ```
/// # mod rushlight { pub use rushlight_core::Device; pub use rushlight_tensor::*; }
/// use rushlight::Device;
/// use rushlight::Stream;
/// // Where there is no GPU, this is an error that says why.
/// if let Ok(side) = Stream::new(Device::Cuda(0)) {
///     let event = side.record_event()?;
///     event.synchronize()?;
///     assert!(event.query()?);
/// }
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream(Arc<dyn engine::Stream>);

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.device() == other.device() && self.0.id() == other.0.id()
    }
}

impl Eq for Stream {}

impl Stream {
    /// A new stream.
    pub fn new(device: Device) -> Result<Self> {
        Self::with_priority(device, 0)
    }

    /// A new stream with a priority: lower numbers run first. The device uses the nearest priority it supports.
    pub fn with_priority(device: Device, priority: i32) -> Result<Self> {
        streams("Stream::new", device)?.create(priority).map(Self)
    }

    /// The stream that work goes to where no other is chosen.
    pub fn main(device: Device) -> Result<Self> {
        streams("Stream::main", device)?.main().map(Self)
    }

    /// The stream that this thread's work goes to; where the thread records a step, the one it went to before.
    pub fn current(device: Device) -> Result<Self> {
        streams("Stream::current", device)?.current().map(Self)
    }

    /// Makes this the current stream: this thread's later work on the device goes to it.
    pub fn set_current(&self) -> Result<()> {
        crate::program::note_foreign("work on several streams");
        self.0.set_current()
    }

    /// Runs `f` with this as the current stream of its device.
    pub fn scope<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let _guard = self.0.enter()?;
        f()
    }

    /// The vendor's handle, for other libraries: valid as long as the stream. Their launches run after all work
    /// submitted so far; from now on launches wait for their kernels' compilation.
    pub fn handle(&self) -> Result<usize> {
        self.0.handle()
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// Waits until all work of this stream is done.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Whether all work of this stream is done.
    pub fn query(&self) -> Result<bool> {
        self.0.query()
    }

    /// Later work of this stream waits for the event.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        crate::program::note_foreign("work on several streams");
        self.0.wait(&*event.0)
    }

    /// Later work of this stream waits for all that `other` has been given.
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        crate::program::note_foreign("work on several streams");
        self.wait_event(&other.record_event()?)
    }

    /// An event after all that this stream has been given. It has no time.
    pub fn record_event(&self) -> Result<Event> {
        let event = streams("Stream::record_event", self.device())?.event(false)?;
        self.0.record(&*event)?;
        Ok(Event(event))
    }

    pub(crate) fn record_use(&self, storage: &Storage) -> Result<()> {
        self.0.record_use(storage)
    }

    /// Makes a tensor's memory ready for another library that uses it on the vendor's default stream: that stream waits
    /// for this thread's work, and the memory, once freed, is reused only after that stream has finished the work it
    /// holds at that time.
    pub fn lend_to_default(storage: &Storage) -> Result<()> {
        streams("Stream::lend_to_default", storage.device())?.lend_to_default(storage)
    }
}

/// A point in a stream's work.
#[derive(Clone)]
pub struct Event(Arc<dyn engine::Event>);

impl Event {
    /// An event of a device that can be timed, not yet recorded.
    pub fn new(device: Device) -> Result<Self> {
        streams("Event::new", device)?.event(true).map(Self)
    }

    /// Places the event after all that this thread's stream has been given.
    pub fn record(&self) -> Result<()> {
        self.record_on(&Stream::current(self.device())?)
    }

    /// Places the event after all that a stream of its device has been given.
    pub fn record_on(&self, stream: &Stream) -> Result<()> {
        crate::program::note_foreign("work on several streams");
        stream.0.record(&*self.0)
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// The vendor's handle, for other libraries: valid as long as the event.
    pub fn handle(&self) -> usize {
        self.0.handle()
    }

    /// Later work of this thread's stream, on the event's device, waits for the event.
    pub fn wait(&self) -> Result<()> {
        Stream::current(self.device())?.wait_event(self)
    }

    /// Whether the work before the event is done.
    pub fn query(&self) -> Result<bool> {
        self.0.query()
    }

    /// Waits until the work before the event is done.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Milliseconds from this event to `later`, both of [`Event::new`] and past.
    pub fn elapsed_time(&self, later: &Event) -> Result<f64> {
        self.0.elapsed_ms(&*later.0)
    }
}
