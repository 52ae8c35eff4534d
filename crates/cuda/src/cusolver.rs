//! cuSOLVER's functions, and cuBLAS's for triangular systems.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::driver::{DevicePtr, Handle};
use std::ffi::{c_int, c_schar, c_void};

api! {
    /// The library of factorisations.
    Cusolver(
        "cuSOLVER (libcusolver)",
        &["libcusolver.so.12", "libcusolver.so.11", "libcusolver.so", "cusolver64_12.dll", "cusolver64_11.dll"],
        "Install the CUDA toolkit or the Python package nvidia-cusolver and name its directory in RUSHLIGHT_CUDA_PATH; without it factorisations are computed on the CPU."
    ) {
        fn property = b"cusolverGetProperty" (c_int, *mut c_int);
        fn create = b"cusolverDnCreate" (*mut Handle);
        fn create_params = b"cusolverDnCreateParams" (*mut Handle);
        fn set_stream = b"cusolverDnSetStream" (Handle, Handle);
        fn potrf_room = b"cusolverDnXpotrf_bufferSize" (Handle, Handle, c_int, i64, c_int, DevicePtr, i64, c_int, *mut usize, *mut usize);
        fn potrf = b"cusolverDnXpotrf" (
            Handle, Handle, c_int, i64, c_int, DevicePtr, i64, c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
        fn getrf_room = b"cusolverDnXgetrf_bufferSize" (Handle, Handle, i64, i64, c_int, DevicePtr, i64, c_int, *mut usize, *mut usize);
        fn getrf = b"cusolverDnXgetrf" (
            Handle, Handle, i64, i64, c_int, DevicePtr, i64, DevicePtr, c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
        fn getrs = b"cusolverDnXgetrs" (
            Handle, Handle, c_int, i64, i64, c_int, DevicePtr, i64, DevicePtr, c_int, DevicePtr, i64, DevicePtr,
        );
        fn geqrf_room = b"cusolverDnXgeqrf_bufferSize" (
            Handle, Handle, i64, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, *mut usize, *mut usize,
        );
        fn geqrf = b"cusolverDnXgeqrf" (
            Handle, Handle, i64, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
        fn sorgqr_room = b"cusolverDnSorgqr_bufferSize" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int);
        fn dorgqr_room = b"cusolverDnDorgqr_bufferSize" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int);
        fn sorgqr = b"cusolverDnSorgqr" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr);
        fn dorgqr = b"cusolverDnDorgqr" (Handle, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr);
        fn syevd_room = b"cusolverDnXsyevd_bufferSize" (
            Handle, Handle, c_int, c_int, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, *mut usize, *mut usize,
        );
        fn syevd = b"cusolverDnXsyevd" (
            Handle, Handle, c_int, c_int, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
        fn gesvd_room = b"cusolverDnXgesvd_bufferSize" (
            Handle, Handle, c_schar, c_schar, i64, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, DevicePtr, i64, c_int, DevicePtr, i64,
            c_int, *mut usize, *mut usize,
        );
        fn gesvd = b"cusolverDnXgesvd" (
            Handle, Handle, c_schar, c_schar, i64, i64, c_int, DevicePtr, i64, c_int, DevicePtr, c_int, DevicePtr, i64, c_int, DevicePtr, i64,
            c_int, DevicePtr, usize, *mut u8, usize, DevicePtr,
        );
    }
}

api! {
    /// The older library of products, for what cuBLASLt has not.
    Cublas(
        "cuBLAS (libcublas)",
        &["libcublas.so.13", "libcublas.so.12", "libcublas.so", "cublas64_13.dll", "cublas64_12.dll"],
        "Install the CUDA toolkit or the Python package nvidia-cublas and name its directory in RUSHLIGHT_CUDA_PATH; without it triangular systems are solved on the CPU."
    ) {
        fn property = b"cublasGetProperty" (c_int, *mut c_int);
        fn create = b"cublasCreate_v2" (*mut Handle);
        fn set_stream = b"cublasSetStream_v2" (Handle, Handle);
        fn strsm = b"cublasStrsmBatched" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int, c_int,
        );
        fn dtrsm = b"cublasDtrsmBatched" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int, c_int,
        );
        fn strsm_one = b"cublasStrsm_v2" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int,
        );
        fn dtrsm_one = b"cublasDtrsm_v2" (
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
pub const LOWER: c_int = 0;
pub const UPPER: c_int = 1;
/// `cublasSideMode_t`.
pub const RIGHT: c_int = 1;
