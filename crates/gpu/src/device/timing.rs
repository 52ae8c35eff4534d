//! Kernel times by driver events, for the profiler where the vendor's tracing library is missing.
//!
//! Two events around a launch cost some microseconds and keep kernels from overlapping, so this runs only while the
//! profiler requests it.

use crate::device::Gpu;
use crate::vendor::driver::Handle;
use rushlight_core::sync::lock;
use rushlight_core::{Device, Result};
use rushlight_profile::{Category, Details, Event, Place, Source, clock, kernels_wanted};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// Work enclosed by two events.
struct Timed {
    gpu: &'static Gpu,
    name: &'static str,
    begin: Handle,
    end: Handle,
    stream: u64,
    grid: [u32; 3],
    block: [u32; 3],
    correlation: u64,
}

/// Reference event whose time is known on the host.
struct Base {
    gpu: &'static Gpu,
    event: Handle,
    time: u64,
}

#[derive(Default)]
struct Recorded {
    bases: Vec<Base>,
    timed: Vec<Timed>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Recorded {}

static RECORDED: Mutex<Recorded> = Mutex::new(Recorded { bases: Vec::new(), timed: Vec::new() });
/// Far above the numbers that vendors' libraries use.
static CORRELATION: AtomicU64 = AtomicU64::new(1 << 48);

fn recorded() -> MutexGuard<'static, Recorded> {
    lock(&RECORDED)
}

/// The source of engines without a library of activity records.
pub static EVENTS: EventSource = EventSource;

/// Kernels timed by events.
pub struct EventSource;

impl Source for EventSource {
    /// Set while the profiler requests timed launches.
    fn start(&self) -> bool {
        false
    }

    fn stop(&self) -> Vec<Event> {
        let Recorded { bases, timed } = std::mem::take(&mut *recorded());
        let mut out = Vec::with_capacity(timed.len());
        for base in &bases {
            // A failed device has no times.
            _ = base.gpu.enter().and_then(|()| base.gpu.driver.synchronize());
        }
        for work in &timed {
            let Some(base) = bases.iter().find(|base| std::ptr::eq(base.gpu, work.gpu)) else { continue };
            // SAFETY: events of this device, recorded on its streams.
            let since = |event: Handle| unsafe {
                work.gpu.driver.event_elapsed(base.event, event).ok().flatten().map(|ms| (f64::from(ms) * 1e6) as i64)
            };
            if let (Some(begin), Some(end)) = (since(work.begin), since(work.end)) {
                let at = |offset: i64| base.time.saturating_add_signed(offset);
                out.push(Event {
                    name: work.name.into(),
                    category: Category::Kernel,
                    start: at(begin),
                    end: at(end.max(begin)),
                    place: Place::Device(kind(work.gpu.device()), work.gpu.device().index(), work.stream),
                    details: Some(Box::new(Details {
                        grid: work.grid,
                        block: work.block,
                        correlation: work.correlation,
                        ..Details::default()
                    })),
                });
            }
        }
        let handles = timed.iter().flat_map(|t| [(t.gpu, t.begin), (t.gpu, t.end)]);
        for (gpu, event) in handles.chain(bases.iter().map(|b| (b.gpu, b.event))) {
            // SAFETY: events of ours that nobody uses any more.
            unsafe { gpu.driver.event_destroy(event) };
        }
        out
    }
}

/// Waits for all devices in use, so that their records are complete. A failed device has none.
pub fn synchronize_all() {
    for gpu in Gpu::all_started() {
        _ = gpu.queue.settle(gpu).and_then(|()| gpu.enter()).and_then(|()| gpu.driver.synchronize());
    }
}

fn kind(device: Device) -> &'static str {
    match device {
        Device::Cuda(_) => "cuda",
        Device::Xpu(_) => "xpu",
        _ => "device",
    }
}

impl Gpu {
    /// Whether device work must be timed: the profiler requests it and no step is being recorded.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        kernels_wanted() && !self.lane().recording
    }

    /// Issues work on the calling thread's stream between two events.
    #[cold]
    pub(crate) fn timed(
        &self,
        name: &'static str,
        grid: [u32; 3],
        block: [u32; 3],
        work: impl FnOnce(&Gpu, Handle) -> Result<()>,
    ) -> Result<()> {
        let gpu = self.this()?;
        self.queue.settle(self)?;
        self.enter()?;
        let (driver, stream) = (self.driver, self.lane().stream);
        let mark = |at: Handle| -> Result<Handle> {
            let event = driver.event_create(true)?;
            // SAFETY: an event and a stream of ours.
            unsafe { driver.event_record(event, at)? };
            Ok(event)
        };
        if !recorded().bases.iter().any(|base| std::ptr::eq(base.gpu, gpu)) {
            let event = mark(self.main_lane().stream)?;
            // SAFETY: as above.
            unsafe { driver.event_synchronize(event)? };
            recorded().bases.push(Base { gpu, event, time: clock() });
        }
        let correlation = CORRELATION.fetch_add(1, Relaxed);
        let start = clock();
        let begin = mark(stream)?;
        let result = work(self, stream);
        let end = mark(stream)?;
        let details = Details { correlation, ..Details::default() };
        rushlight_profile::add_span(Category::Runtime, "launch", start, clock(), Some(details));
        recorded().timed.push(Timed { gpu, name, begin, end, stream: stream as u64, grid, block, correlation });
        result
    }
}
