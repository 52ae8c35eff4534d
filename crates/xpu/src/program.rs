//! Kernels: a family's text in `kernels/*.cl` under definitions, compiled on first use and kept for the process and on
//! disk.

use crate::cache;
use crate::device::Xpu;
use crate::driver::{Arg, Kernel};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_gpu::hash::Map;
use std::sync::{Arc, Mutex, OnceLock};

const PRELUDE: &str = include_str!("../kernels/prelude.cl");

/// A family of kernels: a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Family {
    Pointwise,
    PointwiseAny,
    Reduce,
    ReduceAny,
    Random,
    Index,
    Fold,
    MatMul,
    MatMulXmx,
    Rows,
    Attention,
    AttentionTiles,
    Update,
    Copy,
    Limits,
}

impl Family {
    fn texts(self) -> &'static [&'static str] {
        const FUNCTIONS: &str = include_str!("../kernels/functions.cl");
        const ANY: &str = include_str!("../kernels/any.cl");
        const VECTORS: &str = include_str!("../kernels/vectors.cl");
        const ROWS: &str = include_str!("../kernels/rows.cl");
        const ATTENTION: &str = include_str!("../kernels/attention.cl");
        const MATMUL: &str = include_str!("../kernels/matmul.cl");
        match self {
            Family::Pointwise => &[FUNCTIONS, include_str!("../kernels/pointwise.cl")],
            Family::PointwiseAny => &[FUNCTIONS, ANY, include_str!("../kernels/pointwise_any.cl")],
            Family::Reduce => &[include_str!("../kernels/reduce.cl")],
            Family::ReduceAny => &[ANY, include_str!("../kernels/reduce_any.cl")],
            Family::Random => &[ANY, include_str!("../kernels/random.cl")],
            Family::Index => &[include_str!("../kernels/index.cl")],
            Family::Fold => &[ANY, include_str!("../kernels/fold.cl")],
            Family::MatMul => &[ANY, VECTORS, MATMUL],
            Family::MatMulXmx => &[MATMUL, include_str!("../kernels/matmul_xmx.cl")],
            Family::Rows => &[VECTORS, ROWS, include_str!("../kernels/row_families.cl")],
            Family::Attention => &[VECTORS, ROWS, ATTENTION],
            Family::AttentionTiles => &[VECTORS, ROWS, ATTENTION, include_str!("../kernels/attention_tiles.cl")],
            Family::Update => &[include_str!("../kernels/update.cl")],
            Family::Copy => &[include_str!("../kernels/copy.cl")],
            Family::Limits => &[include_str!("../kernels/limits.cl")],
        }
    }
}

/// Tags that distinguish a compiled form from the others of its family.
pub const TAGS: usize = 12;

/// A compiled form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    family: Family,
    entry: &'static str,
    tags: [u16; TAGS],
}

impl Key {
    pub fn new<const N: usize>(family: Family, entry: &'static str, tags: [u16; N]) -> Self {
        let mut all = [0; TAGS];
        all[..N].copy_from_slice(&tags);
        Self { family, entry, tags: all }
    }
}

/// Definitions that specialise a family's text.
#[derive(Default)]
pub struct Defines(String);

impl Defines {
    pub fn define(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.0 += &format!("#define {name} {value}\n");
        self
    }

    /// A dtype: `NAME` is its storage type, `NAME_WIDE` its compute type; `LOAD_NAME` and `STORE_NAME` convert between
    /// them.
    pub fn dtype(self, name: &str, dtype: DType) -> Self {
        let tag = tag(dtype);
        self.define(name, stored(dtype))
            .define(&format!("{name}_WIDE"), wide(dtype))
            .define(&format!("LOAD_{name}(p, i)"), format!("load_{tag}(p, i)"))
            .define(&format!("STORE_{name}(p, i, v)"), format!("store_{tag}(p, i, v)"))
    }

    /// Vectors of `lanes` elements in the arithmetic of `kind` (`vectors.cl`).
    pub fn lanes(self, kind: Kind, lanes: usize) -> Self {
        self.kind(kind).define("LANES", lanes)
    }

    /// A dtype by single elements and by vectors: `VLOAD_NAME` and `VSTORE_NAME` take [`lanes`](Self::lanes) elements.
    pub fn vector(self, name: &str, dtype: DType) -> Self {
        let tag = tag(dtype);
        self.dtype(name, dtype)
            .define(&format!("VLOAD_{name}(p, i)"), format!("vload_{tag}(p, i)"))
            .define(&format!("VSTORE_{name}(p, i, v)"), format!("vstore_{tag}(p, i, v)"))
    }

    /// A dtype that is known when the kernel runs: its code is in `codes`, from bit `shift` on. See [`Kind`].
    pub fn any(self, name: &str, shift: u32) -> Self {
        self.define(name, "uchar")
            .define(&format!("LOAD_{name}(p, i)"), format!("load_any(p, codes >> {shift} & 15, i, CODE_I64)"))
            .define(&format!("STORE_{name}(p, i, v)"), format!("store_any(p, codes >> {shift} & 15, i, v)"))
    }

    /// The arithmetic of `any.cl`.
    pub fn kind(self, kind: Kind) -> Self {
        self.define("R", kind.c_type()).define("R_KIND", kind as u8)
    }

    /// `name(v)`: a value of `from`'s arithmetic as one of `to`'s.
    pub fn conversion(self, name: &str, from: DType, to: DType) -> Self {
        self.define(&format!("{name}(v)"), converted(from, to, "(v)"))
    }
}

/// Arithmetic of kernels whose dtypes are known when they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F32 = 0,
    F64 = 1,
    I64 = 2,
}

impl Kind {
    /// The one for a dtype: integers of any size are computed as `i64`.
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::F64 => Kind::F64,
            d if d.is_float() => Kind::F32,
            _ => Kind::I64,
        }
    }

    pub fn c_type(self) -> &'static str {
        ["float", "double", "long"][self as usize]
    }

    /// Bytes of a value.
    pub fn size(self) -> usize {
        [4, 8, 8][self as usize]
    }

    /// A scalar in the encoding of a kernel with this arithmetic.
    pub fn number(self, value: f64) -> Number {
        match self {
            Kind::F32 => Number::F32(value as f32),
            Kind::F64 => Number::F64(value),
            Kind::I64 => Number::I64(value as i64),
        }
    }
}

/// The name of a dtype in the prelude.
pub fn tag(dtype: DType) -> &'static str {
    match dtype.carrier() {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I16 => "i16",
        DType::I8 => "i8",
        DType::U8 => "u8",
        // No dtype's carrier is carried: this is `bool`.
        _ => "b8",
    }
}

/// The C type an element is stored as.
pub fn stored(dtype: DType) -> &'static str {
    match dtype.carrier() {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 | DType::BF16 => "ushort",
        DType::I64 => "long",
        DType::I32 => "int",
        DType::I16 => "short",
        DType::I8 => "char",
        // `uint8` and `bool`: no dtype's carrier is carried.
        _ => "uchar",
    }
}

/// The C type of an element's arithmetic.
pub fn wide(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => "float",
        DType::F64 => "double",
        DType::I64 => "long",
        _ => "int",
    }
}

/// An expression of `from`'s arithmetic converted to `to`'s, with the values that `to` has.
pub fn converted(from: DType, to: DType, e: &str) -> String {
    if from == to {
        return e.to_string();
    }
    let whole = match from {
        DType::F64 => format!("double_to_long({e})"),
        _ if from.is_float() => format!("float_to_long({e})"),
        _ => e.to_string(),
    };
    match to.carrier() {
        DType::F32 | DType::F16 | DType::BF16 => format!("((float){e})"),
        DType::F64 => format!("((double){e})"),
        DType::I64 => format!("((long){whole})"),
        DType::I32 => format!("((int){whole})"),
        DType::I16 => format!("((int)(short){whole})"),
        DType::I8 => format!("((int)(char){whole})"),
        DType::U8 => format!("((int)(uchar){whole})"),
        _ => format!("((int)({e} != 0))"),
    }
}

/// The variable that names a directory for the text of every compiled kernel, for use by other tools.
const SOURCES: &str = "RUSHLIGHT_XPU_SOURCES";

/// The text of a form of a family.
fn source(family: Family, f64: bool, is_cpu: bool, defines: &str) -> String {
    let (f64, is_cpu, texts) = (f64 as u8, is_cpu as u8, family.texts().concat());
    format!("#define FP64 {f64}\n#define CPU {is_cpu}\n{defines}\n{PRELUDE}\n{texts}")
}

/// Writes the text of a form that no device here compiles, for a GPU's offline compiler.
#[cfg(test)]
pub fn write_gpu_source(key: Key, defines: Defines) -> Result<()> {
    match std::env::var_os(SOURCES) {
        Some(directory) => write_source(directory.as_ref(), key, &source(key.family, true, false, &defines.0)),
        None => Ok(()),
    }
}

fn write_source(directory: &std::path::Path, key: Key, source: &str) -> Result<()> {
    let path =
        directory.join(format!("{:?}-{}-{:08x}.cl", key.family, key.entry, cache::hash(&[source.as_bytes()]) as u32));
    let written = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, source));
    written.map_err(|e| Error::io(format!("{SOURCES}: {}: {e}", path.display())))
}

type Slot = Arc<OnceLock<Result<&'static Kernel>>>;

/// The compiled kernels of a device.
#[derive(Default)]
pub struct Kernels(Mutex<Map<Key, Slot>>);

impl Xpu {
    /// A kernel, compiled on first use. A failed compilation is not retried.
    pub fn kernel(&self, key: Key, defines: impl FnOnce() -> Defines) -> Result<&'static Kernel> {
        let slot = lock(&self.kernels.0).entry(key).or_default().clone();
        // Compiled outside the map's lock, so that other kernels can be found and compiled meanwhile.
        slot.get_or_init(|| self.compile(key, &defines().0)).clone()
    }

    fn compile(&self, key: Key, defines: &str) -> Result<&'static Kernel> {
        let abilities = self.driver.abilities();
        let source = source(key.family, abilities.f64, abilities.is_cpu, defines);
        if let Some(directory) = std::env::var_os(SOURCES) {
            write_source(directory.as_ref(), key, &source)?;
        }
        let name = cache::hash(&[source.as_bytes(), abilities.fingerprint.as_bytes()]);
        let kept = cache::PROGRAMS.read(name).and_then(|image| self.driver.load(&image).ok());
        let program = match kept {
            Some(program) => program,
            None => {
                let program = self.driver.build(&source).map_err(|e| {
                    if std::env::var_os("RUSHLIGHT_XPU_SHOW_SOURCE").is_some() {
                        eprintln!("{source}");
                    }
                    e.within(&format!("{:?} {}", key.family, key.entry))
                })?;
                if let Some(image) = self.driver.image(program) {
                    cache::PROGRAMS.write(name, &image);
                }
                program
            }
        };
        Ok(Box::leak(Box::new(self.driver.kernel(program, key.entry)?)))
    }

    /// Returns an error if a device has no `f64`.
    pub fn require(&self, dtypes: &[DType]) -> Result<()> {
        if dtypes.contains(&DType::F64) && !self.driver.abilities().f64 {
            return Err(Error::unsupported(format!(
                "{} ({}) has no arithmetic of float64; use float32, or the CPU",
                self.device,
                self.driver.abilities().name
            )));
        }
        Ok(())
    }

    /// Starts a kernel in the calling thread's queue.
    ///
    /// # Safety
    /// The arguments are those the kernel declares, and its accesses lie within their memory.
    pub unsafe fn launch(&self, kernel: &Kernel, groups: [usize; 3], items: [usize; 3], args: &[Arg]) -> Result<()> {
        if groups.contains(&0) {
            return Ok(());
        }
        if groups.iter().zip(items).any(|(g, i)| g.checked_mul(i).is_none_or(|n| n > u32::MAX as usize)) {
            return Err(Error::unsupported(format!("{}: a launch of {groups:?} groups is too large", self.device)));
        }
        // SAFETY: the caller's promise.
        unsafe { self.driver.launch(self.queue(), kernel, groups, items, args)? };
        self.launched()
    }
}

/// A value as a kernel's argument.
pub trait Argument {
    fn arg(&self) -> Arg<'_>;
}

macro_rules! values {
    ($($t:ty),*) => {$(impl Argument for $t {
        fn arg(&self) -> Arg<'_> {
            // SAFETY: a plain number, read as its bytes.
            Arg::Value(unsafe { std::slice::from_raw_parts((self as *const $t).cast(), size_of::<$t>()) })
        }
    })*};
}
values!(u32, i32, u64, i64, f32, f64, usize);

impl<const N: usize> Argument for rushlight_gpu::launch::nest::Nest<N> {
    fn arg(&self) -> Arg<'_> {
        // SAFETY: a plain struct that the kernel declares identically; its padding is never read.
        Arg::Value(unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) })
    }
}

/// Memory as an argument.
#[derive(Clone, Copy)]
pub struct At(pub u64);

impl Argument for At {
    fn arg(&self) -> Arg<'_> {
        Arg::Memory(self.0)
    }
}

/// A scalar in the type of a kernel's arithmetic.
pub enum Number {
    F32(f32),
    F64(f64),
    I64(i64),
}

impl Number {
    /// Like [`wide`], but integers as `long`.
    pub fn float(value: f64, dtype: DType) -> Self {
        if dtype == DType::F64 { Number::F64(value) } else { Number::F32(value as f32) }
    }
}

impl Argument for Number {
    fn arg(&self) -> Arg<'_> {
        match self {
            Number::F32(v) => v.arg(),
            Number::F64(v) => v.arg(),
            Number::I64(v) => v.arg(),
        }
    }
}

/// Starts a kernel: `run!(xpu, kernel, [groups], [items]; arguments…)`.
macro_rules! run {
    ($xpu:expr, $kernel:expr, $groups:expr, $items:expr; $($arg:expr),* $(,)?) => {{
        use $crate::program::Argument;
        // SAFETY: the arguments are those of the kernel's text, whose accesses stay within the views they come from.
        unsafe { $xpu.launch($kernel, $groups, $items, &[$($arg.arg()),*]) }
    }};
}
pub(crate) use run;
