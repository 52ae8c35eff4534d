//! Factorisations by rocSOLVER, and triangular systems by rocBLAS. Both libraries allocate workspace on first use of a
//! size, so their calls cannot be part of a recorded step.

use crate::api;
use crate::rocblas::Rocblas;
use rushlight_core::{DType, Error, Result};
use rushlight_gpu::vendor::driver::{DevicePtr, Handle};
use rushlight_gpu::vendor::factorisations::{Room, Routine, Triangle, Vectors, Vendor};
use std::ffi::{c_char, c_int, c_void};

api! {
    /// The library of factorisations. Its handles are rocBLAS's.
    Rocsolver(
        "rocSOLVER (librocsolver)",
        &["librocsolver.so.1", "librocsolver.so.0", "librocsolver.so"],
        "Install rocSOLVER, a part of ROCm, or name its directory in RUSHLIGHT_HIP_PATH; without it factorisations are computed on the CPU."
    ) {
        fn version = "rocsolver_get_version_string" (*mut c_char, usize);
        fn spotrf = "rocsolver_spotrf" (Handle, c_int, c_int, DevicePtr, c_int, DevicePtr);
        fn dpotrf = "rocsolver_dpotrf" (Handle, c_int, c_int, DevicePtr, c_int, DevicePtr);
        fn sgetrf = "rocsolver_sgetrf" (Handle, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr);
        fn dgetrf = "rocsolver_dgetrf" (Handle, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr);
        fn sgetrs = "rocsolver_sgetrs" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int);
        fn dgetrs = "rocsolver_dgetrs" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int);
        fn sgeqrf = "rocsolver_sgeqrf" (Handle, c_int, c_int, DevicePtr, c_int, DevicePtr);
        fn dgeqrf = "rocsolver_dgeqrf" (Handle, c_int, c_int, DevicePtr, c_int, DevicePtr);
        fn sorgqr = "rocsolver_sorgqr" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr);
        fn dorgqr = "rocsolver_dorgqr" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr);
        fn ssyevd = "rocsolver_ssyevd" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, DevicePtr);
        fn dsyevd = "rocsolver_dsyevd" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, DevicePtr);
        fn sgesvd = "rocsolver_sgesvd" (
            Handle, c_int, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, c_int, DevicePtr, c_int, DevicePtr,
        );
        fn dgesvd = "rocsolver_dgesvd" (
            Handle, c_int, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, c_int, DevicePtr, c_int, DevicePtr,
        );
    }
}

impl Rocsolver {
    /// The version, such as 3.27.0.
    pub fn version(&self) -> Result<String> {
        let mut text = [0u8; 64];
        // SAFETY: the buffer has the given length.
        match unsafe { (self.version)(text.as_mut_ptr().cast(), text.len()) } {
            0 => Ok(text.iter().take_while(|&&c| c != 0).map(|&c| c as char).collect()),
            code => Err(Error::device(format!("rocsolver_get_version_string failed with status {code}"))),
        }
    }
}

/// `rocblas_operation_none`, `rocblas_operation_transpose`.
const OPERATIONS: [c_int; 2] = [111, 112];
/// `rocblas_fill`.
const UPPER: c_int = 121;
const LOWER: c_int = 122;
/// `rocblas_diagonal_non_unit`, `rocblas_diagonal_unit`.
const DIAGONALS: [c_int; 2] = [131, 132];
/// `rocblas_side_right`.
const RIGHT: c_int = 142;
/// `rocblas_evect_none`, `rocblas_evect_original`.
const EIGENVECTORS: [c_int; 2] = [213, 211];
/// `rocblas_outofplace`: the faster variant, which needs more memory.
const OUT_OF_PLACE: c_int = 201;

/// `rocblas_svect`.
fn wanted(vectors: Vectors) -> c_int {
    match vectors {
        Vectors::Full => 191,
        Vectors::Reduced => 192,
        Vectors::Absent => 194,
    }
}

fn check(call: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::device(format!("{call} failed with status {code}"))) }
}

/// A rocBLAS handle. One thread at a time may use it. Lives as long as the process.
struct Owned {
    api: &'static Rocblas,
    handle: Handle,
}

// SAFETY: any one thread may use a handle at a time.
unsafe impl Send for Owned {}

impl Owned {
    fn new() -> Result<Self> {
        let api = Rocblas::get()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        check("rocblas_create_handle", unsafe { (api.create)(&mut handle) })?;
        Ok(Self { api, handle })
    }

    fn set_stream(&self, stream: Handle) -> Result<()> {
        // SAFETY: a handle and a stream of ours.
        check("rocblas_set_stream", unsafe { (self.api.set_stream)(self.handle, stream) })
    }
}

/// AMD's libraries.
pub struct Amd;

impl Vendor for Amd {
    fn solver(&self) -> Result<Box<dyn rushlight_gpu::vendor::factorisations::Solver>> {
        let api = Rocsolver::get()?;
        // The version query shows that the library works.
        api.version()?;
        Ok(Box::new(Solver { api, blas: Owned::new()? }))
    }

    fn triangular(&self) -> Result<Box<dyn rushlight_gpu::vendor::factorisations::Triangular>> {
        let blas = Owned::new()?;
        match (blas.api.strsm, blas.api.dtrsm, blas.api.strsm_batched, blas.api.dtrsm_batched) {
            (Some(strsm), Some(dtrsm), Some(strsm_batched), Some(dtrsm_batched)) => {
                Ok(Box::new(Triangular { blas, one: [strsm, dtrsm], many: [strsm_batched, dtrsm_batched] }))
            }
            _ => Err(Error::device("this rocBLAS solves no triangular systems")),
        }
    }
}

struct Solver {
    api: &'static Rocsolver,
    blas: Owned,
}

impl rushlight_gpu::vendor::factorisations::Solver for Solver {
    fn swaps(&self) -> DType {
        DType::I32
    }

    fn set_stream(&mut self, stream: Handle) -> Result<()> {
        self.blas.set_stream(stream)
    }

    /// Workspace for the off-diagonal elements during a decomposition.
    fn room(&mut self, routine: &Routine, dtype: DType) -> Result<[usize; 2]> {
        let elements = match *routine {
            Routine::Syevd { n, .. } | Routine::Gesvd { n, .. } => n,
            _ => 0,
        };
        Ok([elements * dtype.size(), 0])
    }

    unsafe fn run(&mut self, routine: &Routine, dtype: DType, room: &Room, info: DevicePtr) -> Result<()> {
        let (api, handle, double, beside) = (self.api, self.blas.handle, dtype == DType::F64, room.device);
        // SAFETY: as the caller says.
        let (call, code) = unsafe {
            match *routine {
                Routine::Potrf { n, a } => {
                    let (run, n) = (if double { api.dpotrf } else { api.spotrf }, n as c_int);
                    ("rocsolver_potrf", run(handle, LOWER, n, a, n, info))
                }
                Routine::Getrf { n, a, swaps } => {
                    let (run, n) = (if double { api.dgetrf } else { api.sgetrf }, n as c_int);
                    ("rocsolver_getrf", run(handle, n, n, a, n, swaps, info))
                }
                Routine::Getrs { transposed, n, columns, a, swaps, x } => {
                    let (run, n) = (if double { api.dgetrs } else { api.sgetrs }, n as c_int);
                    let operation = OPERATIONS[transposed as usize];
                    ("rocsolver_getrs", run(handle, operation, n, columns as c_int, a, n, swaps, x, n))
                }
                Routine::Geqrf { m, n, a, tau } => {
                    let (run, m) = (if double { api.dgeqrf } else { api.sgeqrf }, m as c_int);
                    ("rocsolver_geqrf", run(handle, m, n as c_int, a, m, tau))
                }
                Routine::Orgqr { m, n, k, a, tau } => {
                    let (run, m) = (if double { api.dorgqr } else { api.sorgqr }, m as c_int);
                    ("rocsolver_orgqr", run(handle, m, n as c_int, k as c_int, a, m, tau))
                }
                Routine::Syevd { vectors, n, a, values } => {
                    let (run, n) = (if double { api.dsyevd } else { api.ssyevd }, n as c_int);
                    let vectors = EIGENVECTORS[vectors as usize];
                    ("rocsolver_syevd", run(handle, vectors, UPPER, n, a, n, values, beside, info))
                }
                Routine::Gesvd { vectors, m, n, a, values, u, vt } => {
                    let (run, m, n) = (if double { api.dgesvd } else { api.sgesvd }, m as c_int, n as c_int);
                    let job = wanted(vectors);
                    let code = run(handle, job, job, m, n, a, m, values, u, m, vt, n, beside, OUT_OF_PLACE, info);
                    ("rocsolver_gesvd", code)
                }
            }
        };
        check(call, code)
    }
}

type Trsm = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    DevicePtr,
    c_int,
    DevicePtr,
    c_int,
) -> c_int;
type TrsmBatched = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    DevicePtr,
    c_int,
    DevicePtr,
    c_int,
    c_int,
) -> c_int;

struct Triangular {
    blas: Owned,
    /// The variant for `f32` or for `f64`.
    one: [Trsm; 2],
    many: [TrsmBatched; 2],
}

impl rushlight_gpu::vendor::factorisations::Triangular for Triangular {
    /// rocBLAS may allocate workspace inside a call, which a recording forbids.
    fn records(&self) -> bool {
        false
    }

    unsafe fn solve(&mut self, t: &Triangle, stream: Handle) -> Result<()> {
        self.blas.set_stream(stream)?;
        let (rows, n, count, handle) = (t.rows as c_int, t.n as c_int, t.count as c_int, self.blas.handle);
        let (triangle, unit) = (if t.upper { UPPER } else { LOWER }, DIAGONALS[t.unit as usize]);
        let (wide, narrow, double) = (1.0f64, 1.0f32, t.dtype == DType::F64);
        let one: *const c_void = if double { (&raw const wide).cast() } else { (&raw const narrow).cast() };
        let plain = OPERATIONS[0];
        // SAFETY: a handle of ours; matrices as the caller says.
        let code = unsafe {
            if count == 1 {
                self.one[double as usize](handle, RIGHT, triangle, plain, unit, rows, n, one, t.a, n, t.b, rows)
            } else {
                let many = self.many[double as usize];
                many(handle, RIGHT, triangle, plain, unit, rows, n, one, t.a, n, t.b, rows, count)
            }
        };
        check("rocblas_trsm", code)
    }
}
