//! Streams and events: queues of a device, and the current queue of a thread.

use crate::device::Xpu;
use crate::driver::{Mark, Queue};
use rushlight_core::backend::{Event, Storage, Stream, Streams};
use rushlight_core::sync::lock;
use rushlight_core::{Device, Error, Result};
use rushlight_gpu::device::alloc::{Fence, MAIN, PoolId};
use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

/// Current queue of a thread on a device.
#[derive(Clone, Copy)]
pub struct Lane {
    pub device: Device,
    pub queue: Queue,
    pub pool: PoolId,
}

/// A stream chosen by this thread; scopes nest, the innermost of a device wins.
struct Chosen {
    lane: Lane,
    stream: Arc<XpuStream>,
}

thread_local! {
    static CHOSEN: RefCell<Vec<Chosen>> = const { RefCell::new(Vec::new()) };
}

/// The queues created by streams, of all devices.
static QUEUES: Mutex<Vec<(Device, Queue)>> = Mutex::new(Vec::new());

impl Xpu {
    /// The current queue of this thread.
    #[inline]
    pub fn lane(&self) -> Lane {
        let chosen =
            CHOSEN.with_borrow(|chosen| chosen.iter().rev().find(|c| c.lane.device == self.device).map(|c| c.lane));
        chosen.unwrap_or(Lane { device: self.device, queue: self.main, pool: MAIN })
    }

    /// All queues of the device.
    pub fn queues(&self) -> Vec<Queue> {
        let made = lock(&QUEUES);
        let of_device = made.iter().filter(|(device, _)| *device == self.device).map(|(_, queue)| *queue);
        std::iter::once(self.main).chain(of_device).collect()
    }

    /// Waits for all work of the device, of all threads and streams.
    pub fn synchronize_all(&self) -> Result<()> {
        for queue in self.queues() {
            self.driver.finish(queue)?;
        }
        self.report_fault()
    }

    /// A mark after all work issued to a queue.
    pub fn fence(&'static self, queue: Queue) -> Result<MarkFence> {
        Ok(MarkFence { xpu: self, mark: self.driver.mark(queue)? })
    }
}

/// A mark that is released when dropped.
pub struct MarkFence {
    xpu: &'static Xpu,
    mark: Mark,
}

impl Fence for MarkFence {
    fn passed(&self) -> bool {
        self.xpu.driver.passed(&self.mark).unwrap_or(false)
    }
}

impl Drop for MarkFence {
    fn drop(&mut self) {
        self.xpu.driver.release_mark(&self.mark);
    }
}

/// A queue of a device; the main one is never released.
pub struct XpuStream {
    xpu: &'static Xpu,
    lane: Lane,
    /// A reference to itself, returned by `current`.
    own: std::sync::Weak<XpuStream>,
}

impl XpuStream {
    fn main(xpu: &'static Xpu) -> Arc<Self> {
        let lane = Lane { device: xpu.device, queue: xpu.main, pool: MAIN };
        Arc::new_cyclic(|own| Self { xpu, lane, own: own.clone() })
    }

    fn this(&self) -> Result<Arc<Self>> {
        self.own.upgrade().ok_or_else(|| Error::device("the stream is being released"))
    }
}

impl Drop for XpuStream {
    fn drop(&mut self) {
        if self.lane.queue == self.xpu.main {
            return;
        }
        // Its memory moves to the main queue, so its work must be done.
        _ = self.xpu.driver.finish(self.lane.queue);
        lock(&QUEUES).retain(|(_, queue)| *queue != self.lane.queue);
        let mut memory = self.xpu.memory();
        memory.remove_user(self.lane.queue.0 as u64);
        memory.remove_pool(self.lane.pool);
        drop(memory);
        // SAFETY: its last handle.
        unsafe { self.xpu.driver.release_queue(self.lane.queue) };
    }
}

impl Streams for Xpu {
    fn create(&self, _priority: i32) -> Result<Arc<dyn Stream>> {
        let xpu = &self.engine()?.0;
        let queue = xpu.driver.create_queue()?;
        lock(&QUEUES).push((xpu.device, queue));
        let pool = xpu.memory().add_pool(false);
        let lane = Lane { device: xpu.device, queue, pool };
        Ok(Arc::new_cyclic(|own| XpuStream { xpu, lane, own: own.clone() }))
    }

    fn main(&self) -> Result<Arc<dyn Stream>> {
        Ok(XpuStream::main(&self.engine()?.0))
    }

    fn current(&self) -> Result<Arc<dyn Stream>> {
        let chosen = CHOSEN
            .with_borrow(|chosen| chosen.iter().rev().find(|c| c.lane.device == self.device).map(|c| c.stream.clone()));
        match chosen {
            Some(stream) => Ok(stream),
            None => self.main_stream(),
        }
    }

    fn event(&self, timed: bool) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(XpuEvent { xpu: &self.engine()?.0, timed, mark: Mutex::default() }))
    }

    fn lend_to_default(&self, _storage: &Storage) -> Result<()> {
        // Other libraries have no default queue here: they get memory whose work is done.
        self.synchronize()
    }
}

impl Xpu {
    fn main_stream(&self) -> Result<Arc<dyn Stream>> {
        Ok(XpuStream::main(&self.engine()?.0))
    }
}

/// Restores the thread's previous stream when dropped.
struct Scope(usize, std::marker::PhantomData<*const ()>);

impl Drop for Scope {
    fn drop(&mut self) {
        let former =
            CHOSEN.with_borrow_mut(|chosen| if self.0 <= chosen.len() { chosen.split_off(self.0) } else { Vec::new() });
        // May drop the last reference to the stream, which issues work.
        drop(former);
    }
}

impl Stream for XpuStream {
    fn device(&self) -> Device {
        self.xpu.device
    }

    fn id(&self) -> usize {
        if self.lane.queue == self.xpu.main { 0 } else { self.lane.queue.0 }
    }

    fn handle(&self) -> Result<usize> {
        Ok(self.lane.queue.0)
    }

    fn set_current(&self) -> Result<()> {
        let chosen = Chosen { lane: self.lane, stream: self.this()? };
        let former = CHOSEN.with_borrow_mut(|all| {
            let at = all.iter().rposition(|c| c.lane.device == self.xpu.device);
            match at {
                Some(at) => Some(std::mem::replace(&mut all[at], chosen)),
                None => {
                    all.push(chosen);
                    None
                }
            }
        });
        drop(former);
        Ok(())
    }

    fn enter(&self) -> Result<Box<dyn Any>> {
        let chosen = Chosen { lane: self.lane, stream: self.this()? };
        let depth = CHOSEN.with_borrow_mut(|all| {
            all.push(chosen);
            all.len() - 1
        });
        Ok(Box::new(Scope(depth, std::marker::PhantomData)))
    }

    fn query(&self) -> Result<bool> {
        Ok(self.xpu.fence(self.lane.queue)?.passed())
    }

    fn synchronize(&self) -> Result<()> {
        self.xpu.driver.finish(self.lane.queue)?;
        self.xpu.report_fault()
    }

    fn wait(&self, event: &dyn Event) -> Result<()> {
        let event = ours(event)?;
        let mark = event.lock();
        let Some(fence) = &*mark else { return Ok(()) };
        if std::ptr::eq(fence.xpu, self.xpu) {
            self.xpu.driver.wait_for(self.lane.queue, &fence.mark)
        } else {
            // Events of another context cannot be used in this one.
            fence.xpu.driver.wait(&fence.mark)
        }
    }

    fn record(&self, event: &dyn Event) -> Result<()> {
        let event = ours(event)?;
        let fence = self.xpu.fence(self.lane.queue)?;
        let former = event.lock().replace(fence);
        drop(former);
        Ok(())
    }

    fn record_use(&self, storage: &Storage) -> Result<()> {
        let address = storage.ptr() as u64;
        let mut memory = self.xpu.memory();
        if memory.owner(address).is_some_and(|pool| pool != self.lane.pool) {
            memory.note_user(address, self.lane.queue.0 as u64);
        }
        Ok(())
    }
}

fn ours(event: &dyn Event) -> Result<&XpuEvent> {
    let any: &dyn Any = event;
    any.downcast_ref::<XpuEvent>()
        .ok_or_else(|| Error::device(format!("an event of {} is not one of an xpu device", event.device())))
}

/// A point in a stream's work.
pub struct XpuEvent {
    xpu: &'static Xpu,
    timed: bool,
    mark: Mutex<Option<MarkFence>>,
}

impl XpuEvent {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<MarkFence>> {
        lock(&self.mark)
    }
}

impl Event for XpuEvent {
    fn device(&self) -> Device {
        self.xpu.device
    }

    fn handle(&self) -> usize {
        self.lock().as_ref().map_or(0, |fence| fence.mark.0)
    }

    fn query(&self) -> Result<bool> {
        self.lock().as_ref().map_or(Ok(true), |fence| self.xpu.driver.passed(&fence.mark))
    }

    fn synchronize(&self) -> Result<()> {
        if let Some(fence) = &*self.lock() {
            self.xpu.driver.wait(&fence.mark)?;
        }
        self.xpu.report_fault()
    }

    fn elapsed_ms(&self, later: &dyn Event) -> Result<f64> {
        let later = ours(later)?;
        if !self.timed || !later.timed {
            return Err(Error::value("elapsed_time: both events must be made with enable_timing=True"));
        }
        let time = |event: &XpuEvent| -> Result<u64> {
            let mark = event.lock();
            let fence = mark.as_ref().ok_or_else(|| {
                Error::value("elapsed_time: both events must be recorded before the time between them is asked for")
            })?;
            if !event.xpu.driver.passed(&fence.mark)? {
                return Err(Error::value("elapsed_time: an event has not been reached yet; synchronize first"));
            }
            event.xpu.driver.time(&fence.mark)
        };
        Ok((time(later)? as f64 - time(self)? as f64) * 1e-6)
    }
}
