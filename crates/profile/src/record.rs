//! The recorder: spans go to a buffer of their thread, device events come from the engines' sources when it stops.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Most events of one recording: later ones are counted, not kept.
const MAX_EVENTS: usize = 8 << 20;

const ON: u8 = 1;
const SHAPES: u8 = 2;
const MEMORY: u8 = 4;
const KERNELS: u8 = 8;

/// Bit set of the kinds being recorded; zero if the profiler is off.
static MODE: AtomicU8 = AtomicU8::new(0);
/// Events kept so far.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// A number for each recording, to recognise buffers of an earlier one.
static RECORDING: AtomicU32 = AtomicU32::new(0);

/// Whether the profiler records: one relaxed load.
#[inline]
pub fn is_on() -> bool {
    MODE.load(Relaxed) != 0
}

/// Whether spans should say the shapes of their inputs.
#[inline]
pub fn shapes_wanted() -> bool {
    MODE.load(Relaxed) & SHAPES != 0
}

/// Whether engines should time kernels themselves, as no library of the vendor does it.
#[inline]
pub fn kernels_wanted() -> bool {
    MODE.load(Relaxed) & KERNELS != 0
}

/// The kind of a span's work. Traces use PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// An op on the host: `cpu_op`.
    Op,
    /// A part that the program or the library names: `user_annotation`.
    Annotation,
    /// A call of a vendor's driver: `cuda_runtime`.
    Runtime,
    /// A kernel on a device: `kernel`.
    Kernel,
    /// A copy from, to or within a device: `gpu_memcpy`.
    Copy,
    /// Memory of a device set to a value: `gpu_memset`.
    Fill,
}

impl Category {
    /// The name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Category::Op => "cpu_op",
            Category::Annotation => "user_annotation",
            Category::Runtime => "cuda_runtime",
            Category::Kernel => "kernel",
            Category::Copy => "gpu_memcpy",
            Category::Fill => "gpu_memset",
        }
    }

    /// Whether it is work of a device.
    pub fn is_device(self) -> bool {
        matches!(self, Category::Kernel | Category::Copy | Category::Fill)
    }
}

/// Where an event took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A thread of this process, by the system's number.
    Thread(u64),
    /// A stream of a device: its kind (`cuda`, `xpu`), its index, the stream's number.
    Device(&'static str, usize, u64),
}

/// An event's details besides its times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Shapes of the inputs.
    pub shapes: Vec<Vec<usize>>,
    /// Dtypes of the inputs.
    pub dtypes: Vec<&'static str>,
    /// Multiplications and additions done.
    pub flops: u64,
    /// Bytes moved: a collective's, a copy's.
    pub bytes: u64,
    /// Change of host and device memory in use.
    pub memory: [i64; 2],
    /// Calls that led here, innermost first.
    pub stack: Vec<String>,
    /// The number under which a driver call and its kernel belong together.
    pub correlation: u64,
    /// Blocks of a kernel.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared: u32,
}

/// A span as it was recorded. Times are nanoseconds of [`clock`].
#[derive(Clone, Debug)]
pub struct Event {
    /// Name of the op, kernel or range.
    pub name: Cow<'static, str>,
    /// The kind of work.
    pub category: Category,
    /// Its begin.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// Where.
    pub place: Place,
    /// More, if anything is known.
    pub details: Option<Box<Details>>,
}

impl Event {
    /// Nanoseconds from begin to end.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// Bytes that allocators hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReading {
    /// In use.
    pub allocated: usize,
    /// Taken from the system.
    pub reserved: usize,
}

/// A reading and when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    /// When, by [`clock`].
    pub time: u64,
    /// The thread that took it.
    pub thread: u64,
    /// Whether of accelerators, not of the host.
    pub device: bool,
    /// Difference from the previous reading.
    pub change: i64,
    /// The reading.
    pub reading: MemoryReading,
}

/// Options of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Shapes and dtypes of inputs.
    pub shapes: bool,
    /// Memory in use around every span.
    pub memory: bool,
    /// Work of devices, not only of the host.
    pub devices: bool,
}

/// Records the work of devices: a vendor's library of activity records, or an engine's own events.
pub trait Source: Send + Sync {
    /// Starts recording. `false` where the source cannot: engines then time kernels themselves.
    fn start(&self) -> bool;
    /// Ends recording and returns the events, with times of [`clock`].
    fn stop(&self) -> Vec<Event>;
}

struct State {
    sources: Vec<&'static dyn Source>,
    started: Vec<&'static dyn Source>,
    buffers: Vec<Arc<Buffer>>,
    options: Options,
    begin: u64,
}

static STATE: Mutex<State> = Mutex::new(State {
    sources: Vec::new(),
    started: Vec::new(),
    buffers: Vec::new(),
    options: Options { shapes: false, memory: false, devices: false },
    begin: 0,
});
static DROPPED: AtomicUsize = AtomicUsize::new(0);
static PROBE: OnceLock<fn() -> [MemoryReading; 2]> = OnceLock::new();
static LAST_READINGS: Mutex<[MemoryReading; 2]> = Mutex::new([MemoryReading { allocated: 0, reserved: 0 }; 2]);

struct Buffer {
    thread: u64,
    name: String,
    recording: u32,
    contents: Mutex<(Vec<Event>, Vec<MemorySample>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn origin() -> &'static (Instant, u64) {
    static ORIGIN: OnceLock<(Instant, u64)> = OnceLock::new();
    ORIGIN.get_or_init(|| {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        (Instant::now(), wall)
    })
}

/// Nanoseconds since the epoch, by a clock that never goes back.
pub fn clock() -> u64 {
    let (instant, wall) = origin();
    wall + instant.elapsed().as_nanos() as u64
}

/// The system's number of the calling thread.
fn thread_number() -> u64 {
    static OTHERS: AtomicU32 = AtomicU32::new(1);
    let link = std::fs::read_link("/proc/thread-self").ok();
    let number = link.as_deref().and_then(|l| l.file_name()).and_then(|n| n.to_str()).and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| u64::from(OTHERS.fetch_add(1, Relaxed)))
}

thread_local! {
    static BUFFER: RefCell<Option<Arc<Buffer>>> = const { RefCell::new(None) };
}

/// The calling thread's buffer of this recording.
fn with_buffer<T>(f: impl FnOnce(&Buffer) -> T) -> Option<T> {
    let recording = RECORDING.load(Relaxed);
    BUFFER
        .try_with(|own| {
            let mut own = own.borrow_mut();
            if own.as_ref().is_none_or(|b| b.recording != recording) {
                let thread = own.as_ref().map_or_else(thread_number, |b| b.thread);
                let name = std::thread::current().name().unwrap_or_default().to_string();
                let buffer = Arc::new(Buffer { thread, name, recording, contents: Mutex::default() });
                lock(&STATE).buffers.push(buffer.clone());
                *own = Some(buffer);
            }
            own.as_deref().map(f)
        })
        .ok()
        .flatten()
}

fn push(event: Event) {
    if COUNT.fetch_add(1, Relaxed) >= MAX_EVENTS {
        DROPPED.fetch_add(1, Relaxed);
        return;
    }
    with_buffer(|buffer| lock(&buffer.contents).0.push(Event { place: place_of(buffer, event.place), ..event }));
}

/// A place that says "the calling thread" until it is pushed.
const HERE: Place = Place::Thread(u64::MAX);

fn place_of(buffer: &Buffer, place: Place) -> Place {
    if place == HERE { Place::Thread(buffer.thread) } else { place }
}

/// A span that ends when it is dropped.
#[must_use = "a span ends when it is dropped"]
pub struct Span(Option<Open>);

struct Open {
    name: Cow<'static, str>,
    category: Category,
    start: u64,
    recording: u32,
    memory: Option<[MemoryReading; 2]>,
    details: Option<Box<Details>>,
}

/// Begins a span, if the profiler is on: `name` is called only then.
#[inline]
pub fn span<N: Into<Cow<'static, str>>>(category: Category, name: impl FnOnce() -> N) -> Span {
    if !is_on() {
        return Span(None);
    }
    begin(category, name().into())
}

#[cold]
fn begin(category: Category, name: Cow<'static, str>) -> Span {
    let memory = read_memory();
    let recording = RECORDING.load(Relaxed);
    Span(Some(Open { name, category, start: clock(), recording, memory, details: None }))
}

/// A named part of the program: PyTorch's `record_function`. It ends when the value is dropped.
pub fn record_function(name: impl Into<Cow<'static, str>>) -> Span {
    span(Category::Annotation, || name)
}

impl Span {
    /// Whether the span is recorded. Compute its details only then.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Adds details to the span.
    pub fn describe(&mut self, f: impl FnOnce(&mut Details)) {
        if let Some(open) = &mut self.0 {
            f(open.details.get_or_insert_default());
        }
    }

    /// Ends the span under another name.
    pub fn rename(&mut self, name: impl Into<Cow<'static, str>>) {
        if let Some(open) = &mut self.0 {
            open.name = name.into();
        }
    }

    #[cold]
    fn finish(open: Open) {
        // A span that outlives its recording belongs to none.
        if !is_on() || open.recording != RECORDING.load(Relaxed) {
            return;
        }
        let end = clock();
        let mut details = open.details;
        if let (Some(before), Some(after)) = (open.memory, read_memory()) {
            let change = |i: usize| after[i].allocated as i64 - before[i].allocated as i64;
            let memory = [change(0), change(1)];
            if memory != [0, 0] {
                details.get_or_insert_default().memory = memory;
            }
        }
        push(Event { name: open.name, category: open.category, start: open.start, end, place: HERE, details });
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            Span::finish(open);
        }
    }
}

/// Records a span of the calling thread that has ended already.
pub fn add_span(
    category: Category,
    name: impl Into<Cow<'static, str>>,
    start: u64,
    end: u64,
    details: Option<Details>,
) {
    if is_on() {
        push(Event { name: name.into(), category, start, end, place: HERE, details: details.map(Box::new) });
    }
}

/// Records work of a device whose times the engine has measured.
pub fn launched(event: Event) {
    if is_on() {
        push(event);
    }
}

/// Says how memory in use is read: of the host, and of all accelerators together.
pub fn set_memory_probe(probe: fn() -> [MemoryReading; 2]) {
    _ = PROBE.set(probe);
}

/// Memory in use, if it is recorded. A change since the last reading becomes a sample.
fn read_memory() -> Option<[MemoryReading; 2]> {
    if MODE.load(Relaxed) & MEMORY == 0 {
        return None;
    }
    let now = PROBE.get()?();
    let last = std::mem::replace(&mut *lock(&LAST_READINGS), now);
    for (i, (now, last)) in now.iter().zip(last).enumerate() {
        if *now != last && COUNT.fetch_add(1, Relaxed) < MAX_EVENTS {
            let change = now.allocated as i64 - last.allocated as i64;
            with_buffer(|buffer| {
                let sample =
                    MemorySample { time: clock(), thread: buffer.thread, device: i == 1, change, reading: *now };
                lock(&buffer.contents).1.push(sample);
            });
        }
    }
    Some(now)
}

/// Makes a source of device events known. If the profiler is on, the source starts at once.
pub fn register_source(source: &'static dyn Source) {
    let mut state = lock(&STATE);
    if state.sources.iter().any(|known| std::ptr::addr_eq(*known, source)) {
        return;
    }
    state.sources.push(source);
    if is_on() && state.options.devices {
        start_source(&mut state.started, source);
    }
}

/// Starts one source; if it cannot, engines time kernels themselves.
fn start_source(started: &mut Vec<&'static dyn Source>, source: &'static dyn Source) {
    if source.start() {
        started.push(source);
    } else {
        MODE.fetch_or(KERNELS, Relaxed);
    }
}

/// Begins a recording. The error says that one is under way.
pub fn start(options: Options) -> Result<(), String> {
    let mut state = lock(&STATE);
    if is_on() {
        return Err("the profiler is recording already: stop the other profiler first".into());
    }
    state.buffers.clear();
    state.options = options;
    COUNT.store(0, Relaxed);
    DROPPED.store(0, Relaxed);
    RECORDING.fetch_add(1, Relaxed);
    if options.memory
        && let Some(probe) = PROBE.get()
    {
        *lock(&LAST_READINGS) = probe();
    }
    let mut mode = ON;
    mode |= if options.shapes { SHAPES } else { 0 };
    mode |= if options.memory { MEMORY } else { 0 };
    state.started.clear();
    state.begin = clock();
    MODE.store(mode, Relaxed);
    if options.devices {
        let sources = state.sources.clone();
        for source in sources {
            start_source(&mut state.started, source);
        }
    }
    Ok(())
}

/// Ends the recording and returns its trace, which is empty if nothing was recorded.
pub fn stop() -> Trace {
    let (started, buffers, options, begin, sources) = {
        let mut state = lock(&STATE);
        let started = std::mem::take(&mut state.started);
        (started, std::mem::take(&mut state.buffers), state.options, state.begin, state.sources.clone())
    };
    let kernels = kernels_wanted();
    MODE.store(0, Relaxed);
    let mut trace = Trace { begin, end: clock(), dropped: DROPPED.load(Relaxed), options, ..Trace::default() };
    for buffer in buffers {
        let (events, samples) = std::mem::take(&mut *lock(&buffer.contents));
        trace.threads.insert(buffer.thread, buffer.name.clone());
        trace.events.extend(events);
        trace.memory.extend(samples);
    }
    let asked = sources.into_iter().filter(|source| kernels || started.iter().any(|s| std::ptr::addr_eq(*s, *source)));
    for source in asked {
        trace.events.extend(source.stop());
    }
    trace.events.sort_by_key(|e| (e.start, std::cmp::Reverse(e.end)));
    trace.memory.sort_by_key(|s| s.time);
    trace
}

/// The events recorded between [`start`] and [`stop`].
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// All events by their begin; of equal ones the longest first.
    pub events: Vec<Event>,
    /// Readings of memory, by time.
    pub memory: Vec<MemorySample>,
    /// Names of threads.
    pub threads: BTreeMap<u64, String>,
    /// When recording began, by [`clock`].
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// Events that were too many to keep.
    pub dropped: usize,
    /// The command line's options.
    pub options: Options,
}
