//! Fourier transforms by cuFFT's interface, which hipFFT shares: the table of functions, and plans over it.
//!
//! A vendor's crate opens the library by its own names ([`FftLibrary::open`]) and returns it from
//! [`Libraries::transforms`](crate::vendor::driver::Libraries::transforms). Without one the CPU transforms.

use crate::device::Gpu;
use crate::vendor::driver::{DevicePtr, Handle};
use crate::vendor::library::Search;
use rushlight_core::backend::{Fft, call};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Operand, Pointwise, Result, Scalar, View};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Mutex;

/// cuFFT's handle is an `int`, hipFFT's a pointer: the integer is the low half of this.
type Plan = u64;

/// Declares the table and opens it.
macro_rules! table {
    ($($name:ident = $symbol:literal ($($arg:ty),*);)*) => {
        /// A library with cuFFT's functions.
        pub struct FftLibrary {
            /// Where the library was found.
            pub path: String,
            label: &'static str,
            $($name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            _library: libloading::Library,
        }

        impl FftLibrary {
            /// Opens the library: its name, the prefix of its symbols, search path, file names, and the remedy if it
            /// is missing.
            pub fn open(
                search: &Search,
                label: &'static str,
                prefix: &str,
                names: &[&str],
                remedy: &str,
            ) -> Result<Self> {
                let opened = search.open(label, names, remedy)?;
                $(
                    let symbol = format!("{prefix}{}", $symbol);
                    // SAFETY: the signature is the one that cuFFT documents for this symbol; hipFFT has the same.
                    let $name =
                        unsafe { opened.library.get::<unsafe extern "C" fn($($arg),*) -> c_int>(symbol.as_bytes()) }
                            .map(|symbol| *symbol)
                            .map_err(|e| Error::device(format!("{label} ({}) lacks {symbol}: {e}", opened.path)))?;
                )*
                Ok(Self { path: opened.path, label, $($name,)* _library: opened.library })
            }
        }
    };
}

table! {
    get_version = "GetVersion" (*mut c_int);
    create = "Create" (*mut Plan);
    set_auto_allocation = "SetAutoAllocation" (Plan, c_int);
    make_plan = "MakePlanMany64" (Plan, c_int, *mut i64, *mut i64, i64, i64, *mut i64, i64, i64, c_int, i64, *mut usize);
    set_stream = "SetStream" (Plan, Handle);
    set_work_area = "SetWorkArea" (Plan, DevicePtr);
    complex = "ExecC2C" (Plan, DevicePtr, DevicePtr, c_int);
    real = "ExecR2C" (Plan, DevicePtr, DevicePtr);
    hermitian = "ExecC2R" (Plan, DevicePtr, DevicePtr);
    double_complex = "ExecZ2Z" (Plan, DevicePtr, DevicePtr, c_int);
    double_real = "ExecD2Z" (Plan, DevicePtr, DevicePtr);
    double_hermitian = "ExecZ2D" (Plan, DevicePtr, DevicePtr);
}

/// `cufftType` of complex, real and Hermitian transforms, in single and double precision.
const TYPES: [[c_int; 2]; 3] = [[0x29, 0x69], [0x2a, 0x6a], [0x2c, 0x6c]];

/// The most dimensions of a plan.
const MOST: usize = 3;

/// Sizes of a plan: the kind of transform, whether in double precision, the lengths of the dimensions, those of a row
/// last, their number, and the number of rows.
type Sizes = (usize, bool, [i64; MOST], usize, usize);

/// The plans of a device, with the bytes of workspace of each. They are kept: recorded steps read their tables.
#[derive(Default)]
pub struct Plans(Mutex<HashMap<Sizes, (Plan, usize)>>);

impl FftLibrary {
    /// The version, such as 12.2.0.
    pub fn version(&self) -> Result<String> {
        let mut number = 0;
        // SAFETY: an integer to write to.
        self.check("GetVersion", unsafe { (self.get_version)(&mut number) })?;
        Ok(format!("{}.{}.{}", number / 1000, number / 100 % 10, number % 100))
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        match code {
            0 => Ok(()),
            code => Err(Error::device(format!("{}: {call} failed with status {code}", self.label))),
        }
    }

    /// A plan without workspace of its own, and the bytes of workspace that it needs.
    fn plan(&self, (kind, double, mut lengths, dims, rows): Sizes) -> Result<(Plan, usize)> {
        let (mut plan, mut bytes) = (0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: places to write to, and `dims` lengths. Without embeddings rows are contiguous, and strides are not
        // read.
        unsafe {
            self.check("Create", (self.create)(&mut plan))?;
            self.check("SetAutoAllocation", (self.set_auto_allocation)(plan, 0))?;
            let of = TYPES[kind][double as usize];
            let (rank, lengths, rows) = (dims as c_int, lengths.as_mut_ptr(), rows as i64);
            let made = (self.make_plan)(plan, rank, lengths, none, 1, 0, none, 1, 0, of, rows, &mut bytes);
            self.check("MakePlanMany64", made)?;
        }
        Ok((plan, bytes))
    }
}

impl Gpu {
    /// Transforms rows (see `call::Fft`); `false` if no library is there.
    pub fn fft(&self, &call::Fft { op, dims, scale, x, out }: &call::Fft<View>) -> Result<bool> {
        let dense = [x, out].iter().all(|v| v.layout().is_contiguous() && v.dtype() == out.dtype());
        let (kind, shape) = match (op, x.shape(), out.shape()) {
            (Fft::Complex { .. }, [shape @ .., 2], _) => (0, shape),
            (Fft::Real, shape, _) => (1, shape),
            (Fft::Hermitian, _, shape) => (2, shape),
            _ => return Ok(false),
        };
        let (&[rows, ref sizes @ ..], 1..=MOST) = (shape, dims) else { return Ok(false) };
        if sizes.len() != dims || !dense || !matches!(out.dtype(), DType::F32 | DType::F64) {
            return Ok(false);
        }
        if rows == 0 || sizes.contains(&0) {
            return Ok(true);
        }
        let lengths = std::array::from_fn(|i| sizes.get(i).map_or(1, |&n| n as i64));
        let Ok(library) = self.libraries.transforms() else { return Ok(false) };
        self.enter()?;
        // The library may write to the input of a Hermitian transform.
        let copy = if kind == 2 { Some(self.packed(x)?) } else { None };
        let (from, to) = (copy.as_ref().map_or(x, |c| c.view()).ptr() as u64, out.ptr() as u64);
        let double = out.dtype() == DType::F64;
        let sizes = (kind, double, lengths, dims, rows);
        {
            let mut plans = lock(&self.fft_plans.0);
            let (plan, bytes) = match plans.get(&sizes) {
                Some(&known) => known,
                None => {
                    let new = self.driver.relaxed(|| library.plan(sizes))?;
                    plans.insert(sizes, new);
                    new
                }
            };
            let room = self.scratch(bytes)?;
            let stream = self.stream()?;
            let direction = if op == (Fft::Complex { inverse: true }) { 1 } else { -1 };
            // SAFETY: a plan for these sizes; both arrays have them, and the workspace the size asked for. The plan is
            // used by one thread at a time.
            unsafe {
                library.check("SetStream", (library.set_stream)(plan, stream))?;
                library.check("SetWorkArea", (library.set_work_area)(plan, room.ptr))?;
                let code = match (kind, double) {
                    (0, false) => (library.complex)(plan, from, to, direction),
                    (0, true) => (library.double_complex)(plan, from, to, direction),
                    (1, false) => (library.real)(plan, from, to),
                    (1, true) => (library.double_real)(plan, from, to),
                    (_, false) => (library.hermitian)(plan, from, to),
                    (_, true) => (library.double_hermitian)(plan, from, to),
                };
                library.check("Exec", code)?;
            }
        }
        if scale != 1.0 {
            let factor = Operand::Scalar(Scalar::Float(scale));
            self.pointwise(Pointwise::Mul, out.dtype(), &[Operand::Tensor(out), factor], &[], out)?;
        }
        Ok(true)
    }
}
