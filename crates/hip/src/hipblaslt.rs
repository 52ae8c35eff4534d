//! hipBLASLt's functions and numbers.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::vendor::driver::{DevicePtr, Handle};
use rushlight_gpu::vendor::lt::{Numbers, Table};
use std::ffi::{c_int, c_void};

api! {
    /// The library of matrix products with epilogues.
    HipblasLt(
        "hipBLASLt (libhipblaslt)",
        &["libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"],
        "Install hipBLASLt, a part of ROCm, or name its directory in RUSHLIGHT_HIP_PATH; without it products go through rocBLAS."
    ) {
        fn version = "hipblasLtGetVersion" (Handle, *mut c_int);
        fn create = "hipblasLtCreate" (*mut Handle);
        fn destroy = "hipblasLtDestroy" (Handle);
        fn desc_create = "hipblasLtMatmulDescCreate" (*mut Handle, c_int, c_int);
        fn desc_set = "hipblasLtMatmulDescSetAttribute" (Handle, c_int, *const c_void, usize);
        fn desc_destroy = "hipblasLtMatmulDescDestroy" (Handle);
        fn layout_create = "hipblasLtMatrixLayoutCreate" (*mut Handle, c_int, u64, u64, i64);
        fn layout_set = "hipblasLtMatrixLayoutSetAttribute" (Handle, c_int, *const c_void, usize);
        fn layout_destroy = "hipblasLtMatrixLayoutDestroy" (Handle);
        fn preference_create = "hipblasLtMatmulPreferenceCreate" (*mut Handle);
        fn preference_set = "hipblasLtMatmulPreferenceSetAttribute" (Handle, c_int, *const c_void, usize);
        fn preference_destroy = "hipblasLtMatmulPreferenceDestroy" (Handle);
        fn heuristic = "hipblasLtMatmulAlgoGetHeuristic" (Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut c_void, *mut c_int);
        fn matmul = "hipblasLtMatmul" (
            Handle, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle,
            *const c_void, DevicePtr, usize, Handle,
        );
    }
}

impl HipblasLt {
    /// The version, such as 0.10.0. The query needs a GPU.
    pub fn version(&self) -> Result<String> {
        let (mut handle, mut number) = (std::ptr::null_mut(), 0);
        // SAFETY: a handle and an integer to write to; the handle is destroyed again.
        unsafe {
            match (self.create)(&mut handle) {
                0 => {}
                code => return Err(Error::device(format!("hipBLASLt: hipblasLtCreate failed with status {code}"))),
            }
            (self.version)(handle, &mut number);
            (self.destroy)(handle);
        }
        Ok(format!("{}.{}.{}", number / 100_000, number / 100 % 1000, number % 100))
    }
}

/// The library's functions and constants.
pub fn table() -> Result<Table> {
    let api = HipblasLt::get()?;
    Ok(Table {
        name: "hipBLASLt",
        prefix: "hipblasLt",
        create: api.create,
        desc_create: api.desc_create,
        desc_set: api.desc_set,
        desc_destroy: api.desc_destroy,
        layout_create: api.layout_create,
        layout_set: api.layout_set,
        layout_destroy: api.layout_destroy,
        preference_create: api.preference_create,
        preference_set: api.preference_set,
        preference_destroy: api.preference_destroy,
        heuristic: api.heuristic,
        matmul: api.matmul,
        numbers: Numbers {
            // `HIPBLAS_COMPUTE_32F`, `…_64F`, `…_32F_FAST_TF32`.
            compute: [2, 7, 6],
            // `HIPBLAS_OP_N`, `HIPBLAS_OP_T`.
            operations: [111, 112],
            // `HIPBLASLT_MATMUL_DESC_TRANSA`, `…_TRANSB`, `…_EPILOGUE`, `…_BIAS_POINTER`, `…_EPILOGUE_AUX_POINTER`,
            // `…_EPILOGUE_AUX_LD`.
            desc: [0, 1, 2, 3, 10, 11],
            // `HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE`.
            bias_type: Some(4),
            // `HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT`, `…_STRIDED_BATCH_OFFSET`.
            layout: [0, 1],
            alignment: None,
            algorithm_words: 3,
            doubles: false,
            complex: false,
        },
    })
}
