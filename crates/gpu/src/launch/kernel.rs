//! Kernels: their text, their compiled form, their launch.
//!
//! A kernel is a family's text (`kernels/*.cu`) under some definitions: element types, an op's expression, which layout
//! it is for. It is compiled on first use, in parallel with others (`compiler`) while its launch waits (`queue`), and
//! kept for the process and on disk (`cache`).

mod user;

pub use user::UserKernel;

use super::{cache, compiler};
use crate::device::{Gpu, Place};
use crate::hash::Map;
use crate::vendor::driver::{Compiler, Handle, Launch};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use std::collections::HashSet;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

/// Makes `Family` of the families' texts: one list, so that [`Family::ALL`] has every one.
macro_rules! families {
    ($($family:ident => $text:expr,)*) => {
        /// The families' texts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Family {
            $($family,)*
        }

        impl Family {
            pub const ALL: &[Family] = &[$(Family::$family),*];

            pub fn text(self) -> &'static str {
                match self {
                    $(Family::$family => $text,)*
                }
            }
        }
    };
}

families! {
    Pointwise => concat!(include_str!("../../kernels/row_functions.cu"), include_str!("../../kernels/pointwise.cu")),
    Fused => concat!(
        include_str!("../../kernels/row_functions.cu"),
        include_str!("../../kernels/fused_parts.cu"),
        include_str!("../../kernels/fused.cu"),
    ),
    FusedReduce => concat!(
        include_str!("../../kernels/row_functions.cu"),
        include_str!("../../kernels/fused_parts.cu"),
        include_str!("../../kernels/fused_reduce.cu"),
    ),
    FusedRows => concat!(
        include_str!("../../kernels/row_functions.cu"),
        include_str!("../../kernels/fused_parts.cu"),
        include_str!("../../kernels/fused_rows.cu"),
    ),
    Copy => include_str!("../../kernels/copy.cu"),
    Random => include_str!("../../kernels/random.cu"),
    Reduce => include_str!("../../kernels/reduce.cu"),
    Resample => include_str!("../../kernels/resample.cu"),
    Ctc => include_str!("../../kernels/ctc.cu"),
    Scan => include_str!("../../kernels/scan.cu"),
    Sort => include_str!("../../kernels/sort.cu"),
    Index => include_str!("../../kernels/index.cu"),
    MatMul => include_str!("../../kernels/matmul.cu"),
    Conv => include_str!("../../kernels/conv.cu"),
    ConvFew => include_str!("../../kernels/conv_few.cu"),
    ConvDepthwise => include_str!("../../kernels/conv_depthwise.cu"),
    Pool => include_str!("../../kernels/pool.cu"),
    Softmax => include_str!("../../kernels/softmax.cu"),
    RowNorm => include_str!("../../kernels/row_norm.cu"),
    BatchNorm => include_str!("../../kernels/batch_norm.cu"),
    CrossEntropy => include_str!("../../kernels/cross_entropy.cu"),
    Attention => include_str!("../../kernels/attention.cu"),
    Flash => concat!(
        include_str!("../../kernels/fragments.cu"),
        "#if WARPGROUP\n",
        include_str!("../../kernels/warpgroup.cu"),
        "#endif\n",
        include_str!("../../kernels/tensor_cores.cu"),
        include_str!("../../kernels/flash_scores.cu"),
        include_str!("../../kernels/flash.cu"),
    ),
    FlashHopper => concat!(
        include_str!("../../kernels/fragments.cu"),
        include_str!("../../kernels/warpgroup.cu"),
        include_str!("../../kernels/bulk_copies.cu"),
        include_str!("../../kernels/flash_scores.cu"),
        include_str!("../../kernels/hopper_tasks.cu"),
        include_str!("../../kernels/flash_hopper.cu"),
    ),
    FlashMfma => include_str!("../../kernels/flash_mfma.cu"),
    Recurrent => include_str!("../../kernels/recurrent.cu"),
    Complex => include_str!("../../kernels/complex.cu"),
    Foreach => include_str!("../../kernels/foreach.cu"),
    Linalg => include_str!("../../kernels/linalg.cu"),
    Capture => include_str!("../../kernels/capture.cu"),
    Collective => include_str!("../../kernels/collective.cu"),
}

const PRELUDE: &str = include_str!("../../kernels/prelude.cu");
/// CUDA's built-ins that kernel texts use, defined for AMD: its compiler prepends this to a text.
pub const AMD: &str = include_str!("../../kernels/amd.cu");

/// A kernel's identity: the entry point's name and the definitions of its compiled form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub family: Family,
    pub entry: &'static str,
    pub tags: [u16; 12],
}

impl Key {
    /// A key whose tags are padded with zeros.
    #[inline]
    pub fn new<const N: usize>(family: Family, entry: &'static str, tags: [u16; N]) -> Self {
        const { assert!(N <= 12) }
        let mut all = [0; 12];
        all[..N].copy_from_slice(&tags);
        Self { family, entry, tags: all }
    }
}

/// The C name of a dtype's storage.
pub fn c_type(dtype: DType) -> &'static str {
    match dtype.carrier() {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I16 => "i16",
        DType::I8 => "i8",
        DType::U8 => "u8",
        // No dtype's carrier is carried: this is `bool`.
        _ => "bool8",
    }
}

/// The C name of the type a dtype's elements are accumulated in.
pub fn wide_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 | DType::F16 | DType::BF16 => "float",
        _ => "i64",
    }
}

/// Definitions that go before a family's text.
#[derive(Default)]
pub struct Defines {
    /// Those that the prelude looks at.
    index: String,
    own: String,
}

impl Defines {
    pub fn define(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        // Names of types would clash with the prelude's own.
        let text = if matches!(name, "WIDE" | "ONE_LOOP") { &mut self.index } else { &mut self.own };
        *text += &format!("#define {name} {value}\n");
        self
    }

    /// Another value for a name.
    pub fn redefine(self, name: &str, value: impl std::fmt::Display) -> Self {
        let mut out = self;
        out.own += &format!("#undef {name}\n");
        out.define(name, value)
    }

    pub fn dtype(self, name: &str, dtype: DType) -> Self {
        self.define(name, c_type(dtype))
    }

    /// The definitions that conditions of a family's text read (`#if`, `#ifdef`), which decide what of it is compiled.
    pub fn branch(&self, family: Family) -> String {
        let conditions = PRELUDE
            .lines()
            .chain(family.text().lines())
            .filter(|line| line.starts_with("#if") || line.starts_with("#elif"));
        let words: HashSet<&str> =
            conditions.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
        let read = |line: &&str| line.split(' ').nth(1).is_some_and(|name| words.contains(name));
        let own = self.index.lines().chain(self.own.lines()).filter(|line| line.starts_with("#define "));
        own.filter(read).collect::<Vec<_>>().join("\n")
    }

    /// The whole text of a family.
    pub fn source(&self, family: Family) -> String {
        format!("{}{PRELUDE}\n{}{}", self.index, self.own, family.text())
    }

    /// Texts as a C++ program's, for the emulated multiprocessor; `after` comes between the prelude and them.
    #[cfg(test)]
    pub fn program(&self, after: &str, texts: &[&str]) -> String {
        let kernels = texts.concat().replace(ENTRY, "static");
        format!("#include \"multiprocessor.h\"\n{}{PRELUDE}\n{}{after}\n{kernels}", self.index, self.own)
    }

    /// The text of one kernel: a family's without its other entry points, which would only take time to compile.
    pub fn source_of(&self, family: Family, entry: &str) -> String {
        format!("{}{PRELUDE}\n{}{}", self.index, self.own, only(family.text(), entry))
    }
}

/// How every entry point begins; it ends with a line of its closing brace alone.
const ENTRY: &str = "extern \"C\" __global__";

/// A text without the entry points that have another name.
fn only(text: &str, entry: &str) -> String {
    let (mut out, mut inside_other) = (String::with_capacity(text.len()), false);
    for line in text.lines() {
        inside_other |= line.starts_with(ENTRY) && !line.contains(&format!(" {entry}("));
        if !inside_other {
            out += line;
            out.push('\n');
        }
        inside_other &= line != "}";
    }
    out
}

/// The names of a text's entry points.
pub fn entries(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let before = line.rsplit_once(") {")?.0;
        // Parameters hold no parentheses.
        Some(before.rsplit_once('(')?.0.rsplit(' ').next()?.to_string())
    };
    text.lines().filter(|line| line.starts_with(ENTRY)).filter_map(name).collect()
}

/// A text whose kernels begin by waiting for those before them, and let those after them be made ready meanwhile.
pub fn waiting(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        out += line;
        out.push('\n');
        if line.starts_with(ENTRY) {
            out += "asm volatile(\"griddepcontrol.wait; griddepcontrol.launch_dependents;\" ::: \"memory\");\n";
        }
    }
    out
}

/// A kernel's way from text to machine code.
struct Compilation {
    name: String,
    source: String,
    arch: String,
    compiler: &'static dyn Compiler,
    /// The name of its file on disk.
    file: u128,
    image: OnceLock<Result<Vec<u8>>>,
}

impl Compilation {
    /// The image, compiled here unless somebody has done so.
    fn image(&self) -> &Result<Vec<u8>> {
        self.image.get_or_init(|| {
            let image = self.compiler.build(&self.source, &self.name, &self.arch)?;
            cache::KERNELS.write(self.file, &image);
            Ok(image)
        })
    }
}

/// A kernel of a device, compiled or about to be. Lives as long as the process.
pub struct Kernel {
    entry: &'static str,
    /// Null until it is loaded.
    handle: AtomicPtr<c_void>,
    /// Bytes of shared memory per launch.
    shared: AtomicUsize,
    /// Until it is loaded.
    compilation: Mutex<Option<Arc<Compilation>>>,
}

pub type Function = &'static Kernel;

impl Kernel {
    fn compilation(&self) -> MutexGuard<'_, Option<Arc<Compilation>>> {
        lock(&self.compilation)
    }

    /// Whether loading it would not wait for the compiler.
    pub fn is_compiled(&self) -> bool {
        self.compilation().as_ref().is_none_or(|c| c.image.get().is_some())
    }

    /// The driver's handle, loaded if it was not; waits for the compiler.
    pub fn load(&self, gpu: &Gpu) -> Result<Handle> {
        let Some(compiled) = self.compilation().clone() else { return Ok(self.handle.load(Acquire)) };
        // Takes long, so not under the lock.
        let image = compiled.image().as_ref().map_err(Clone::clone)?;
        let mut compilation = self.compilation();
        if compilation.is_none() {
            return Ok(self.handle.load(Acquire));
        }
        let name = CString::new(self.entry).map_err(|_| Error::value("a kernel's name has a zero byte"))?;
        gpu.enter()?;
        // SAFETY: the image comes from the vendor's compiler; modules stay loaded.
        let function = unsafe {
            let module = gpu.driver.relaxed(|| gpu.driver.module_load(image))?;
            gpu.driver.module_function(module, &name)?
        };
        allow_shared(gpu, function, self.shared.load(Relaxed))?;
        self.handle.store(function, Release);
        *compilation = None;
        Ok(function)
    }
}

/// Allows a loaded kernel more than the usual 48 KiB of shared memory.
fn allow_shared(gpu: &Gpu, function: Handle, bytes: usize) -> Result<()> {
    if bytes <= 48 << 10 {
        return Ok(());
    }
    // SAFETY: a function of ours.
    unsafe { gpu.driver.allow_shared(function, bytes) }
}

/// The kernels of a device.
pub struct Kernels {
    compiler: &'static dyn Compiler,
    arch: String,
    /// Whether kernels start while those before them end, and wait for them.
    overlap: bool,
    known: RwLock<Map<Key, Function>>,
}

impl Kernels {
    pub fn new(compiler: &'static dyn Compiler, arch: &str, overlap: bool) -> Self {
        Self { compiler, arch: arch.to_string(), overlap, known: RwLock::default() }
    }

    fn find(&self, key: &Key) -> Option<Function> {
        self.known.read().unwrap_or_else(|e| e.into_inner()).get(key).copied()
    }

    fn compilation(&self, key: &Key, source: String) -> Result<Compilation> {
        let source = if self.overlap { waiting(&source) } else { source };
        let compiler = self.compiler;
        let version = format!("{} {}", env!("CARGO_PKG_VERSION"), compiler.fingerprint(&self.arch)?);
        let file = cache::hash(&[source.as_bytes(), version.as_bytes()]);
        let name = format!("{:?}/{}", key.family, key.entry);
        Ok(Compilation { name, source, arch: self.arch.clone(), compiler, file, image: OnceLock::new() })
    }
}

/// Shape of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub blocks: [u32; 3],
    pub threads: [u32; 2],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Whether blocks must be spread evenly over the multiprocessors.
    pub spread: bool,
}

impl Grid {
    /// `blocks` blocks of `threads` threads in a row.
    pub fn line(blocks: usize, threads: usize) -> Result<Self> {
        Self::plane(blocks, 1, threads)
    }

    /// `x` by `y` blocks of `threads` threads in a row.
    pub fn plane(x: usize, y: usize, threads: usize) -> Result<Self> {
        if x > i32::MAX as usize || y > 65_535 {
            return Err(Error::value(format!("a tensor is too large for one kernel launch ({x} by {y} blocks)")));
        }
        Ok(Self { blocks: [x as u32, y as u32, 1], threads: [threads as u32, 1], shared: 0, spread: false })
    }

    /// With dynamic shared memory.
    pub fn shared(mut self, bytes: usize) -> Self {
        self.shared = bytes as u32;
        self
    }

    /// For a few blocks to a multiprocessor that take long: they wait until the kernel before has ended. Made ready
    /// while it ends, all would crowd on the multiprocessors that it leaves first.
    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }
}

impl Gpu {
    /// A kernel; its first use loads it from the disk or starts its compilation.
    #[inline]
    pub fn function(&self, key: Key, defines: impl FnOnce() -> Defines) -> Result<Function> {
        match self.kernels.find(&key) {
            Some(function) => Ok(function),
            None => self.first_use(key, defines().source_of(key.family, key.entry)),
        }
    }

    #[cold]
    fn first_use(&self, key: Key, source: String) -> Result<Function> {
        let compilation = Arc::new(self.kernels.compilation(&key, source)?);
        let kernel = {
            let mut known = self.kernels.known.write().unwrap_or_else(|e| e.into_inner());
            if let Some(function) = known.get(&key) {
                return Ok(function);
            }
            let kernel: Function = Box::leak(Box::new(Kernel {
                entry: key.entry,
                handle: AtomicPtr::default(),
                shared: AtomicUsize::new(0),
                compilation: Mutex::new(Some(compilation.clone())),
            }));
            known.insert(key, kernel);
            kernel
        };
        match cache::KERNELS.read(compilation.file) {
            Some(image) => {
                // Lost the race; the other thread compiled the same image.
                _ = compilation.image.set(Ok(image));
                kernel.load(self)?;
            }
            None => compiler::start(move || _ = compilation.image()),
        }
        Ok(kernel)
    }

    /// Allows a kernel more than the usual 48 KiB of shared memory.
    pub fn allow_shared(&self, function: Function, bytes: usize) -> Result<()> {
        if bytes > self.shared_memory {
            return Err(Error::unsupported(format!(
                "a kernel needs {bytes} bytes of shared memory, a block of {} has {}",
                self.device(),
                self.shared_memory
            )));
        }
        if function.shared.load(Relaxed) < bytes {
            // Under the lock: one that is being loaded either sees the new number or is loaded when we look.
            let _loading = function.compilation();
            let most = function.shared.fetch_max(bytes, Relaxed).max(bytes);
            let handle = function.handle.load(Acquire);
            if !handle.is_null() {
                allow_shared(self, handle, most)?;
            }
        }
        Ok(())
    }

    /// Launches a kernel, or queues the launch until it is compiled.
    ///
    /// # Safety
    /// `args` point to values of the types and in the order of the kernel's parameters, and their targets are
    /// valid on the device for what the kernel does with it. `sizes` are the values' bytes.
    #[inline]
    pub unsafe fn launch(
        &self,
        function: Function,
        grid: Grid,
        args: &mut [*mut c_void],
        sizes: &[usize],
    ) -> Result<()> {
        if grid.blocks[0] == 0 || grid.blocks[1] == 0 {
            return Ok(());
        }
        if self.is_timed() {
            // SAFETY: the caller's.
            return unsafe { self.launch_timed(function, grid, args) };
        }
        let lane = self.lane();
        let handle = function.handle.load(Acquire);
        if handle.is_null() || self.queue.has_pending() {
            // SAFETY: the caller's.
            unsafe { self.launch_later(function, grid, Place(lane.stream), args, sizes, false)? };
        } else {
            self.enter()?;
            // SAFETY: the caller's.
            unsafe { self.launch_now(handle, grid, lane.stream, args)? };
        }
        if sync_each_call() && !lane.recording { self.synchronize() } else { Ok(()) }
    }

    /// [`launch`](Gpu::launch) of a kernel that may change places with the work that is held back.
    ///
    /// # Safety
    /// As for [`launch`](Gpu::launch).
    pub unsafe fn launch_ahead(
        &self,
        function: Function,
        grid: Grid,
        args: &mut [*mut c_void],
        sizes: &[usize],
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch_later(function, grid, Place(self.lane().stream), args, sizes, true) }
    }

    /// Launches a kernel between two events, for the profiler.
    ///
    /// # Safety
    /// As for [`launch`](Gpu::launch).
    #[cold]
    unsafe fn launch_timed(&self, function: Function, grid: Grid, args: &mut [*mut c_void]) -> Result<()> {
        let handle = function.load(self)?;
        let [x, y] = grid.threads;
        self.timed(function.entry, grid.blocks, [x, y, 1], |gpu, stream| {
            // SAFETY: the caller's.
            unsafe { gpu.launch_now(handle, grid, stream, args) }
        })
    }

    /// # Safety
    /// As for [`launch`](Gpu::launch).
    #[inline]
    pub unsafe fn launch_now(
        &self,
        function: Handle,
        grid: Grid,
        stream: Handle,
        args: &mut [*mut c_void],
    ) -> Result<()> {
        let [x, y] = grid.threads;
        let mut launch = Launch {
            function,
            grid: grid.blocks,
            block: [x, y, 1],
            shared: grid.shared,
            stream,
            overlap: self.kernels.overlap && !grid.spread,
            arguments: args,
        };
        // SAFETY: the caller's.
        unsafe { self.driver.launch(&mut launch) }
    }

    /// Launches a kernel once it is compiled and all before it has been issued.
    ///
    /// # Safety
    /// As for [`launch`](Gpu::launch).
    #[cold]
    unsafe fn launch_later(
        &self,
        function: Function,
        grid: Grid,
        stream: Place,
        args: &[*mut c_void],
        sizes: &[usize],
        ahead: bool,
    ) -> Result<()> {
        // The values, aligned for any type.
        #[derive(Clone, Copy)]
        #[repr(align(64))]
        struct Line(#[expect(dead_code, reason = "read by the driver")] [u8; 64]);
        let (mut lines, mut places) = (Vec::<Line>::new(), Vec::with_capacity(args.len()));
        for (arg, &bytes) in args.iter().zip(sizes) {
            let place = lines.len();
            lines.resize(place + bytes.div_ceil(64), Line([0; 64]));
            // SAFETY: the caller's value of this many bytes, for which there is room.
            unsafe { lines[place..].as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(arg.cast(), bytes) };
            places.push(place);
        }
        let work = move |gpu: &Gpu| {
            let handle = function.load(gpu)?;
            gpu.enter()?;
            let mut args: Vec<_> = places.iter().map(|&at| lines[at..].as_ptr().cast_mut().cast()).collect();
            // SAFETY: copies of the values. Their memory is not reused before this is issued, as
            // its reuse would wait behind it.
            unsafe { gpu.launch_now(handle, grid, stream.handle(), &mut args) }
        };
        let ready = || function.is_compiled();
        if ahead { self.queue.enqueue_ahead(self, ready, work) } else { self.queue.enqueue(self, ready, work) }
    }
}

/// Whether every launch is waited for (`RUSHLIGHT_CUDA_SYNC=1`), so that an error is reported by the call that made it.
pub fn sync_each_call() -> bool {
    static SYNC: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *SYNC.get_or_init(|| std::env::var_os("RUSHLIGHT_CUDA_SYNC").is_some_and(|v| v == "1"))
}

/// Launches a kernel with arguments given by name: `launch!(gpu, function, grid; a, b, c)`.
macro_rules! launch {
    ($gpu:expr, $function:expr, $grid:expr; $($arg:expr),* $(,)?) => {{
        let mut args = [$((&raw const $arg).cast_mut().cast::<std::ffi::c_void>()),*];
        let sizes = [$(size_of_val(&$arg)),*];
        // SAFETY: the arguments are the kernel's parameters, in order, and views given to the engine are within their
        // storages.
        unsafe { $gpu.launch($function, $grid, &mut args, &sizes) }
    }};
}
pub(crate) use launch;
