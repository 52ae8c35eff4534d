//! Factorisations by cuSOLVER, and triangular systems by cuBLAS.

use crate::api;
use rushlight_core::{DType, Error, Result};
use rushlight_gpu::vendor::driver::{DevicePtr, Handle};
use rushlight_gpu::vendor::factorisations::{Room, Routine, Triangle, Vectors, Vendor};
use rushlight_gpu::vendor::lt::data;
use std::ffi::{c_int, c_schar, c_void};

api! {
    /// The library of factorisations.
    Cusolver(
        "cuSOLVER (libcusolver)",
        &["libcusolver.so.12", "libcusolver.so.11", "libcusolver.so", "cusolver64_12.dll", "cusolver64_11.dll"],
        "Install the CUDA toolkit or the Python package nvidia-cusolver and name its directory in RUSHLIGHT_CUDA_PATH; without it factorisations are computed on the CPU."
    ) {
        fn property = "cusolverGetProperty" (c_int, *mut c_int);
        fn create = "cusolverDnCreate" (*mut Handle);
        fn create_params = "cusolverDnCreateParams" (*mut Handle);
        fn set_stream = "cusolverDnSetStream" (Handle, Handle);
        fn potrf_room = "cusolverDnXpotrf_bufferSize" (Handle, Handle, c_int, i64, c_int, DevicePtr, i64, c_int, *mut usize, *mut usize);
        fn potrf = "cusolverDnXpotrf" (
            Handle, Handle, c_int, i64, c_int, DevicePtr, i64, c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
        fn getrf_room = "cusolverDnXgetrf_bufferSize" (Handle, Handle, i64, i64, c_int, DevicePtr, i64, c_int, *mut usize, *mut usize);
        fn getrf = "cusolverDnXgetrf" (
            Handle, Handle, i64, i64, c_int, DevicePtr, i64, DevicePtr, c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
        fn getrs = "cusolverDnXgetrs" (
            Handle, Handle, c_int, i64, i64, c_int, DevicePtr, i64, DevicePtr, c_int, DevicePtr, i64, DevicePtr,
        );
        fn geqrf_room = "cusolverDnXgeqrf_bufferSize" (
            Handle, Handle, i64, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, *mut usize, *mut usize,
        );
        fn geqrf = "cusolverDnXgeqrf" (
            Handle, Handle, i64, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
        fn sorgqr_room = "cusolverDnSorgqr_bufferSize" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int);
        fn dorgqr_room = "cusolverDnDorgqr_bufferSize" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int);
        fn sorgqr = "cusolverDnSorgqr" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr);
        fn dorgqr = "cusolverDnDorgqr" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr);
        fn syevd_room = "cusolverDnXsyevd_bufferSize" (
            Handle, Handle, c_int, c_int, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, *mut usize, *mut usize,
        );
        fn syevd = "cusolverDnXsyevd" (
            Handle, Handle, c_int, c_int, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
        fn gesvd_room = "cusolverDnXgesvd_bufferSize" (
            Handle, Handle, c_schar, c_schar, i64, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, DevicePtr, i64, c_int, DevicePtr, i64,
            c_int, *mut usize, *mut usize,
        );
        fn gesvd = "cusolverDnXgesvd" (
            Handle, Handle, c_schar, c_schar, i64, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, DevicePtr, i64, c_int, DevicePtr, i64,
            c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
    }
}

api! {
    /// cuBLAS, for triangular systems, which cuBLASLt lacks.
    Cublas(
        "cuBLAS (libcublas)",
        &["libcublas.so.13", "libcublas.so.12", "libcublas.so", "cublas64_13.dll", "cublas64_12.dll"],
        "Install the CUDA toolkit or the Python package nvidia-cublas and name its directory in RUSHLIGHT_CUDA_PATH; without it triangular systems are solved on the CPU."
    ) {
        fn property = "cublasGetProperty" (c_int, *mut c_int);
        fn create = "cublasCreate_v2" (*mut Handle);
        fn set_stream = "cublasSetStream_v2" (Handle, Handle);
        fn strsm = "cublasStrsmBatched" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int, c_int,
        );
        fn dtrsm = "cublasDtrsmBatched" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int, c_int,
        );
        fn strsm_one = "cublasStrsm_v2" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int,
        );
        fn dtrsm_one = "cublasDtrsm_v2" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int,
        );
    }
}

/// A library's version, part by part.
fn version(property: unsafe extern "C" fn(c_int, *mut c_int) -> c_int) -> Result<String> {
    let part = |which: c_int| {
        let mut number = 0;
        // SAFETY: an integer to write to.
        match unsafe { property(which, &mut number) } {
            0 => Ok(number),
            code => {
                Err(Error::device(format!("asking for the version of cuSOLVER or cuBLAS failed with status {code}")))
            }
        }
    };
    Ok(format!("{}.{}.{}", part(0)?, part(1)?, part(2)?))
}

impl Cusolver {
    pub fn version(&self) -> Result<String> {
        version(self.property)
    }
}

impl Cublas {
    pub fn version(&self) -> Result<String> {
        version(self.property)
    }
}

/// `cublasFillMode_t`.
const LOWER: c_int = 0;
const UPPER: c_int = 1;
/// `cublasSideMode_t`.
const RIGHT: c_int = 1;

fn check(call: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::device(format!("{call} failed with status {code}"))) }
}

/// NVIDIA's libraries.
pub struct Nvidia;

impl Vendor for Nvidia {
    fn solver(&self) -> Result<Box<dyn rushlight_gpu::vendor::factorisations::Solver>> {
        let api = Cusolver::get()?;
        let (mut handle, mut params) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: handles to write to.
        unsafe {
            check("cusolverDnCreate", (api.create)(&mut handle))?;
            check("cusolverDnCreateParams", (api.create_params)(&mut params))?;
        }
        Ok(Box::new(Solver { api, handle, params }))
    }

    fn triangular(&self) -> Result<Box<dyn rushlight_gpu::vendor::factorisations::Triangular>> {
        let api = Cublas::get()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        check("cublasCreate", unsafe { (api.create)(&mut handle) })?;
        Ok(Box::new(Triangular { api, handle }))
    }
}

/// cuSOLVER on one device. Lives as long as the process.
struct Solver {
    api: &'static Cusolver,
    handle: Handle,
    params: Handle,
}

// SAFETY: handles of the library, which any one thread may use at a time.
unsafe impl Send for Solver {}

fn kind(dtype: DType) -> c_int {
    if dtype == DType::F64 { data::F64 } else { data::F32 }
}

/// `jobu` and `jobvt`.
fn job(vectors: Vectors) -> c_schar {
    (match vectors {
        Vectors::Absent => b'N',
        Vectors::Reduced => b'S',
        Vectors::Full => b'A',
    }) as c_schar
}

impl rushlight_gpu::vendor::factorisations::Solver for Solver {
    fn swaps(&self) -> DType {
        DType::I64
    }

    fn set_stream(&mut self, stream: Handle) -> Result<()> {
        // SAFETY: a handle and a stream of ours.
        check("cusolverDnSetStream", unsafe { (self.api.set_stream)(self.handle, stream) })
    }

    fn room(&mut self, routine: &Routine, dtype: DType) -> Result<[usize; 2]> {
        let (api, handle, params, k) = (self.api, self.handle, self.params, kind(dtype));
        let (mut device, mut host) = (0, 0);
        // SAFETY: the library only reads sizes and types here, and writes two numbers.
        let (call, code) = unsafe {
            match *routine {
                Routine::Potrf { n, a } => {
                    let n = n as i64;
                    let code = (api.potrf_room)(handle, params, LOWER, n, k, a, n, k, &mut device, &mut host);
                    ("cusolverDnXpotrf_bufferSize", code)
                }
                Routine::Getrf { n, a, .. } => {
                    let n = n as i64;
                    let code = (api.getrf_room)(handle, params, n, n, k, a, n, k, &mut device, &mut host);
                    ("cusolverDnXgetrf_bufferSize", code)
                }
                Routine::Getrs { .. } => ("cusolverDnXgetrs", 0),
                Routine::Geqrf { m, n, a, tau } => {
                    let (m, n) = (m as i64, n as i64);
                    let code = (api.geqrf_room)(handle, params, m, n, k, a, m, k, tau, k, &mut device, &mut host);
                    ("cusolverDnXgeqrf_bufferSize", code)
                }
                Routine::Orgqr { m, n, k, a, tau } => {
                    let ask = if dtype == DType::F64 { api.dorgqr_room } else { api.sorgqr_room };
                    let (m, mut elements) = (m as c_int, 0);
                    let code = ask(handle, m, n as c_int, k as c_int, a, m, tau, &mut elements);
                    device = elements.max(0) as usize * dtype.size();
                    ("cusolverDnOrgqr_bufferSize", code)
                }
                Routine::Syevd { vectors, n, a, values } => {
                    let (n, job) = (n as i64, vectors as c_int);
                    let code =
                        (api.syevd_room)(handle, params, job, UPPER, n, k, a, n, k, values, k, &mut device, &mut host);
                    ("cusolverDnXsyevd_bufferSize", code)
                }
                Routine::Gesvd { vectors, m, n, a, values, u, vt } => {
                    let (m, n, job) = (m as i64, n as i64, job(vectors));
                    let code = (api.gesvd_room)(
                        handle,
                        params,
                        job,
                        job,
                        m,
                        n,
                        k,
                        a,
                        m,
                        k,
                        values,
                        k,
                        u,
                        m,
                        k,
                        vt,
                        n,
                        k,
                        &mut device,
                        &mut host,
                    );
                    ("cusolverDnXgesvd_bufferSize", code)
                }
            }
        };
        check(call, code)?;
        Ok([device, host])
    }

    unsafe fn run(&mut self, routine: &Routine, dtype: DType, room: &Room, info: DevicePtr) -> Result<()> {
        let (api, handle, params, k) = (self.api, self.handle, self.params, kind(dtype));
        let Room { device, device_bytes, host, host_bytes } = *room;
        // SAFETY: as the caller says.
        let (call, code) = unsafe {
            match *routine {
                Routine::Potrf { n, a } => {
                    let n = n as i64;
                    let code =
                        (api.potrf)(handle, params, LOWER, n, k, a, n, k, device, device_bytes, host, host_bytes, info);
                    ("cusolverDnXpotrf", code)
                }
                Routine::Getrf { n, a, swaps } => {
                    let n = n as i64;
                    let code = (api.getrf)(
                        handle,
                        params,
                        n,
                        n,
                        k,
                        a,
                        n,
                        swaps,
                        k,
                        device,
                        device_bytes,
                        host,
                        host_bytes,
                        info,
                    );
                    ("cusolverDnXgetrf", code)
                }
                Routine::Getrs { transposed, n, columns, a, swaps, x } => {
                    let (n, trans) = (n as i64, transposed as c_int);
                    let code = (api.getrs)(handle, params, trans, n, columns as i64, k, a, n, swaps, k, x, n, info);
                    ("cusolverDnXgetrs", code)
                }
                Routine::Geqrf { m, n, a, tau } => {
                    let (m, n) = (m as i64, n as i64);
                    let code = (api.geqrf)(
                        handle,
                        params,
                        m,
                        n,
                        k,
                        a,
                        m,
                        k,
                        tau,
                        k,
                        device,
                        device_bytes,
                        host,
                        host_bytes,
                        info,
                    );
                    ("cusolverDnXgeqrf", code)
                }
                Routine::Orgqr { m, n, k, a, tau } => {
                    let run = if dtype == DType::F64 { api.dorgqr } else { api.sorgqr };
                    let (m, elements) = (m as c_int, (device_bytes / dtype.size()) as c_int);
                    let code = run(handle, m, n as c_int, k as c_int, a, m, tau, device, elements, info);
                    ("cusolverDnOrgqr", code)
                }
                Routine::Syevd { vectors, n, a, values } => {
                    let (n, job) = (n as i64, vectors as c_int);
                    let code = (api.syevd)(
                        handle,
                        params,
                        job,
                        UPPER,
                        n,
                        k,
                        a,
                        n,
                        k,
                        values,
                        k,
                        device,
                        device_bytes,
                        host,
                        host_bytes,
                        info,
                    );
                    ("cusolverDnXsyevd", code)
                }
                Routine::Gesvd { vectors, m, n, a, values, u, vt } => {
                    let (m, n, job) = (m as i64, n as i64, job(vectors));
                    let code = (api.gesvd)(
                        handle,
                        params,
                        job,
                        job,
                        m,
                        n,
                        k,
                        a,
                        m,
                        k,
                        values,
                        k,
                        u,
                        m,
                        k,
                        vt,
                        n,
                        k,
                        device,
                        device_bytes,
                        host,
                        host_bytes,
                        info,
                    );
                    ("cusolverDnXgesvd", code)
                }
            }
        };
        check(call, code)
    }
}

/// cuBLAS on one device. Lives as long as the process.
struct Triangular {
    api: &'static Cublas,
    handle: Handle,
}

// SAFETY: as for the solver.
unsafe impl Send for Triangular {}

impl rushlight_gpu::vendor::factorisations::Triangular for Triangular {
    fn records(&self) -> bool {
        true
    }

    unsafe fn solve(&mut self, t: &Triangle, stream: Handle) -> Result<()> {
        let (api, handle) = (self.api, self.handle);
        let (rows, n, count) = (t.rows as c_int, t.n as c_int, t.count as c_int);
        let (triangle, unit) = (if t.upper { UPPER } else { LOWER }, t.unit as c_int);
        let (wide, narrow) = (1.0f64, 1.0f32);
        let double = t.dtype == DType::F64;
        let one: *const c_void = if double { (&raw const wide).cast() } else { (&raw const narrow).cast() };
        // SAFETY: a handle and a stream of ours; matrices as the caller says.
        let code = unsafe {
            check("cublasSetStream", (api.set_stream)(handle, stream))?;
            if count == 1 {
                let solve = if double { api.dtrsm_one } else { api.strsm_one };
                solve(handle, RIGHT, triangle, 0, unit, rows, n, one, t.a, n, t.b, rows)
            } else {
                let solve = if double { api.dtrsm } else { api.strsm };
                solve(handle, RIGHT, triangle, 0, unit, rows, n, one, t.a, n, t.b, rows, count)
            }
        };
        check("cublasTrsm", code)
    }
}
