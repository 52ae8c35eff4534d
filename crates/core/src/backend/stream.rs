//! Optional: streams and events, for asynchronous devices.

use super::Storage;
use crate::{Device, Result};
use std::any::Any;
use std::sync::Arc;

/// Streams of a device. An engine without them has finished a call's work when the call returns.
pub trait Streams: Send + Sync {
    /// Creates a stream. Lower priorities run first; the device uses the nearest one it supports.
    fn create(&self, priority: i32) -> Result<Arc<dyn Stream>>;
    /// The default stream.
    fn main(&self) -> Result<Arc<dyn Stream>>;
    /// The calling thread's current stream.
    fn current(&self) -> Result<Arc<dyn Stream>>;
    /// A new event, not recorded yet. Only a timed event measures times.
    fn event(&self, timed: bool) -> Result<Arc<dyn Event>>;
    /// Makes memory ready for another library that uses it on the vendor's default stream: that stream waits for the
    /// calling thread's work, and the memory, once freed, is reused only after that stream has finished the work it
    /// holds at that time.
    fn lend_to_default(&self, storage: &Storage) -> Result<()>;
}

/// A queue of work: it runs in order, concurrently with other streams.
pub trait Stream: Any + Send + Sync {
    /// The device.
    fn device(&self) -> Device;
    /// An identifier, unique among the living streams of the device.
    fn id(&self) -> usize;
    /// The vendor's handle, for other libraries. It is valid as long as the stream.
    fn handle(&self) -> Result<usize>;
    /// Makes this the calling thread's current stream.
    fn set_current(&self) -> Result<()>;
    /// Makes this the calling thread's current stream until the guard is dropped.
    fn enter(&self) -> Result<Box<dyn Any>>;
    /// Whether all work is done.
    fn query(&self) -> Result<bool>;
    /// Waits until all work is done.
    fn synchronize(&self) -> Result<()>;
    /// Makes later work of this stream wait for the event, which may belong to another device.
    fn wait(&self, event: &dyn Event) -> Result<()>;
    /// Records the event after all work issued to this stream. The event belongs to the same device.
    fn record(&self, event: &dyn Event) -> Result<()>;
    /// Memory of another stream, once freed, is reused only after this stream has finished the work it holds at that
    /// time.
    fn record_use(&self, storage: &Storage) -> Result<()>;
}

/// A point in a stream's work.
pub trait Event: Any + Send + Sync {
    /// The device.
    fn device(&self) -> Device;
    /// The vendor's handle, for other libraries. It is valid as long as the event.
    fn handle(&self) -> usize;
    /// Whether the work before it is done.
    fn query(&self) -> Result<bool>;
    /// Waits until the work before it is done.
    fn synchronize(&self) -> Result<()>;
    /// Milliseconds from this event to a later one; both timed, recorded and complete.
    fn elapsed_ms(&self, later: &dyn Event) -> Result<f64>;
}
