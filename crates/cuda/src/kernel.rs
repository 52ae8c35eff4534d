//! Kernels: their text, their compiled form, their launch.
//!
//! A kernel is a family's text (`kernels/*.cu`) under some definitions: element types, an op's expression, which layout it is for. It is
//! compiled when first asked for, kept for the process and on disk (`cache`).

use crate::device::Gpu;
use crate::driver::{self, Handle, LaunchConfig};
use crate::hash::Map;
use crate::nvrtc::Nvrtc;
use crate::{ahead, cache};
use rushlight_core::{DType, Error, Result};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

/// The families' texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    Pointwise,
    Copy,
    Random,
    Reduce,
    Scan,
    Sort,
    Index,
    MatMul,
    Conv,
    ConvFew,
    Pool,
    Softmax,
    RowNorm,
    BatchNorm,
    CrossEntropy,
    Attention,
    Flash,
    Foreach,
    Capture,
}

const PRELUDE: &str = include_str!("../kernels/prelude.cu");

impl Family {
    fn text(self) -> &'static str {
        match self {
            Family::Pointwise => include_str!("../kernels/pointwise.cu"),
            Family::Copy => include_str!("../kernels/copy.cu"),
            Family::Random => include_str!("../kernels/random.cu"),
            Family::Reduce => include_str!("../kernels/reduce.cu"),
            Family::Scan => include_str!("../kernels/scan.cu"),
            Family::Sort => include_str!("../kernels/sort.cu"),
            Family::Index => include_str!("../kernels/index.cu"),
            Family::MatMul => include_str!("../kernels/matmul.cu"),
            Family::Conv => include_str!("../kernels/conv.cu"),
            Family::ConvFew => include_str!("../kernels/conv_few.cu"),
            Family::Pool => include_str!("../kernels/pool.cu"),
            Family::Softmax => include_str!("../kernels/softmax.cu"),
            Family::RowNorm => include_str!("../kernels/row_norm.cu"),
            Family::BatchNorm => include_str!("../kernels/batch_norm.cu"),
            Family::CrossEntropy => include_str!("../kernels/cross_entropy.cu"),
            Family::Attention => include_str!("../kernels/attention.cu"),
            Family::Flash => {
                concat!(include_str!("../kernels/tensor_cores.cu"), "\n", include_str!("../kernels/flash.cu"))
            }
            Family::Foreach => include_str!("../kernels/foreach.cu"),
            Family::Capture => include_str!("../kernels/capture.cu"),
        }
    }
}

/// Which kernel: the entry point's name and what tells its compiled forms apart.
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
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I16 => "i16",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::Bool => "bool8",
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
    #[cfg(test)]
    pub fn redefine(self, name: &str, value: impl std::fmt::Display) -> Self {
        let mut out = self;
        out.own += &format!("#undef {name}\n");
        out.define(name, value)
    }

    pub fn dtype(self, name: &str, dtype: DType) -> Self {
        self.define(name, c_type(dtype))
    }

    /// The whole text of a family.
    #[cfg(test)]
    pub fn source(&self, family: Family) -> String {
        format!("{}{PRELUDE}\n{}{}", self.index, self.own, family.text())
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
#[cfg(test)]
pub fn entries(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let before = line.rsplit_once(") {")?.0;
        // Parameters hold no parentheses.
        Some(before.rsplit_once('(')?.0.rsplit(' ').next()?.to_string())
    };
    text.lines().filter(|line| line.starts_with(ENTRY)).filter_map(name).collect()
}

/// A compiled kernel.
#[derive(Clone, Copy, Debug)]
pub struct Function(pub(crate) Handle);
// SAFETY: a handle of the driver's, valid for the life of the process in its context.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The compiled kernels of a device.
pub struct Kernels {
    arch: String,
    /// Whether kernels start while those before them end, and wait for them.
    overlap: bool,
    ready: RwLock<Map<Key, Function>>,
    /// Kernels being compiled: two threads do not compile the same one.
    images: Mutex<HashMap<Key, Arc<OnceLock<Result<Vec<u8>>>>>>,
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

/// The image of a kernel: from the disk, or compiled.
fn image(key: &Key, source: &str, arch: &str, overlap: bool) -> Result<Vec<u8>> {
    let source = &if overlap { waiting(source) } else { source.to_string() };
    let nvrtc = Nvrtc::get()?;
    let (major, minor) = nvrtc.number()?;
    let version = format!("{} {major}.{minor} {:?}", env!("CARGO_PKG_VERSION"), nvrtc.options(arch)?);
    let name = cache::hash(&[source.as_bytes(), version.as_bytes()]);
    if let Some(image) = cache::read(name) {
        return Ok(image);
    }
    let image = nvrtc.build(source, &format!("{:?}/{}", key.family, key.entry), arch)?;
    cache::write(name, &image);
    Ok(image)
}

impl Kernels {
    pub fn new(arch: &str, overlap: bool) -> Result<Self> {
        Nvrtc::get()?;
        Ok(Self { arch: arch.to_string(), overlap, ready: RwLock::default(), images: Mutex::default() })
    }

    fn find(&self, key: &Key) -> Option<Function> {
        self.ready.read().unwrap_or_else(|e| e.into_inner()).get(key).copied()
    }

    /// The place for a kernel's image, empty until somebody has compiled it.
    fn image(&self, key: Key) -> Arc<OnceLock<Result<Vec<u8>>>> {
        self.images.lock().unwrap_or_else(|e| e.into_inner()).entry(key).or_default().clone()
    }
}

/// Shape of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub blocks: [u32; 3],
    pub threads: [u32; 2],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Whether blocks must lie on all multiprocessors alike.
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

    /// For a few blocks to a multiprocessor that take long: they wait until the kernel before has ended. Made ready while it ends, all would crowd on the
    /// multiprocessors that it leaves first.
    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }
}

impl Gpu {
    /// A kernel, compiled if this is its first use.
    #[inline]
    pub fn function(&self, key: Key, defines: impl FnOnce() -> Defines) -> Result<Function> {
        match self.kernels.find(&key) {
            Some(function) => Ok(function),
            None => self.build(key, &defines().source_of(key.family, key.entry)),
        }
    }

    /// Starts compiling kernels that will be asked for once `first` has been used, unless that was compiled already: a gradient's beside
    /// its forward pass. Without it they are compiled when they are needed.
    pub fn prepare<const N: usize>(&self, first: &Key, after: impl FnOnce() -> [(Key, Defines); N]) {
        if self.kernels.find(first).is_some() {
            return;
        }
        for (key, defines) in after() {
            let (slot, arch, overlap) = (self.kernels.image(key), self.kernels.arch.clone(), self.kernels.overlap);
            ahead::compile(move || {
                slot.get_or_init(|| image(&key, &defines.source_of(key.family, key.entry), &arch, overlap));
            });
        }
    }

    #[cold]
    fn build(&self, key: Key, source: &str) -> Result<Function> {
        self.enter()?;
        let slot = self.kernels.image(key);
        let made = || image(&key, source, &self.kernels.arch, self.kernels.overlap);
        let image = slot.get_or_init(made).as_ref().map_err(Clone::clone)?;
        let name = std::ffi::CString::new(key.entry).map_err(|_| Error::value("a kernel's name has a zero byte"))?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the image is what NVRTC made, the name ends in zero; modules stay loaded.
        unsafe {
            let rc = self.driver.relaxed(|| (self.driver.module_load)(&mut module, image.as_ptr().cast()));
            self.driver.check("cuModuleLoadData", rc)?;
            let rc = (self.driver.module_function)(&mut function, module, name.as_ptr());
            self.driver.check(&format!("cuModuleGetFunction({})", key.entry), rc)?;
        }
        // Where two threads loaded it at once, either will do; the image has served.
        let function = Function(function);
        self.kernels.ready.write().unwrap_or_else(|e| e.into_inner()).insert(key, function);
        self.kernels.images.lock().unwrap_or_else(|e| e.into_inner()).remove(&key);
        Ok(function)
    }

    /// Lets a kernel ask for more than the usual 48 KiB of shared memory.
    pub fn allow_shared(&self, function: Function, bytes: usize) -> Result<()> {
        if bytes > self.shared_memory {
            return Err(Error::unsupported(format!(
                "a kernel needs {bytes} bytes of shared memory, a block of cuda:{} has {}",
                self.index, self.shared_memory
            )));
        }
        if bytes > 48 << 10 {
            // SAFETY: a function of ours.
            let rc =
                unsafe { (self.driver.function_attribute)(function.0, driver::FUNCTION_SHARED_MEMORY, bytes as i32) };
            self.driver.check("cuFuncSetAttribute", rc)?;
        }
        Ok(())
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// `args` point to values of the types and in the order of the kernel's parameters, and whatever those address is valid on the device for
    /// what the kernel does with it.
    #[inline]
    pub unsafe fn launch(&self, function: Function, grid: Grid, args: &mut [*mut c_void]) -> Result<()> {
        let ([x, y, z], [tx, ty]) = (grid.blocks, grid.threads);
        if x == 0 || y == 0 {
            return Ok(());
        }
        self.enter()?;
        let lane = self.lane();
        let config = LaunchConfig {
            grid: [x, y, z],
            block: [tx, ty, 1],
            shared: grid.shared,
            stream: lane.stream,
            attributes: &driver::OVERLAP,
            count: (self.kernels.overlap && !grid.spread) as u32,
        };
        // SAFETY: the caller's.
        let code = unsafe { (self.driver.launch)(&config, function.0, args.as_mut_ptr(), std::ptr::null_mut()) };
        self.driver.check("cuLaunchKernelEx", code)?;
        if sync_each_call() && !lane.recording { self.synchronize() } else { Ok(()) }
    }
}

/// Whether every launch is waited for (`RUSHLIGHT_CUDA_SYNC=1`), so that an error is reported by the call that made it.
fn sync_each_call() -> bool {
    static SYNC: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *SYNC.get_or_init(|| std::env::var_os("RUSHLIGHT_CUDA_SYNC").is_some_and(|v| v == "1"))
}

/// Launches a kernel with arguments given by name: `launch!(gpu, function, grid; a, b, c)`.
macro_rules! launch {
    ($gpu:expr, $function:expr, $grid:expr; $($arg:expr),* $(,)?) => {{
        let mut args = [$((&raw const $arg).cast_mut().cast::<std::ffi::c_void>()),*];
        // SAFETY: the arguments are the kernel's parameters, in order, and views given to the engine lie within their storages.
        unsafe { $gpu.launch($function, $grid, &mut args) }
    }};
}
pub(crate) use launch;
