//! cuBLASLt's functions and constants.

use crate::api;
use rushlight_core::Result;
use rushlight_gpu::vendor::driver::{DevicePtr, Handle};
use rushlight_gpu::vendor::lt::{Numbers, Table};
use std::ffi::{c_int, c_void};

api! {
    /// The library of matrix products.
    CublasLt(
        "cuBLASLt (libcublasLt)",
        &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", "cublasLt64_13.dll", "cublasLt64_12.dll"],
        "Install the CUDA toolkit or the Python package nvidia-cublas and name its directory in RUSHLIGHT_CUDA_PATH."
    ) {
        fn version = "cublasLtGetVersion" ();
        fn create = "cublasLtCreate" (*mut Handle);
        fn desc_create = "cublasLtMatmulDescCreate" (*mut Handle, c_int, c_int);
        fn desc_set = "cublasLtMatmulDescSetAttribute" (Handle, c_int, *const c_void, usize);
        fn desc_destroy = "cublasLtMatmulDescDestroy" (Handle);
        fn layout_create = "cublasLtMatrixLayoutCreate" (*mut Handle, c_int, u64, u64, i64);
        fn layout_set = "cublasLtMatrixLayoutSetAttribute" (Handle, c_int, *const c_void, usize);
        fn layout_destroy = "cublasLtMatrixLayoutDestroy" (Handle);
        fn preference_create = "cublasLtMatmulPreferenceCreate" (*mut Handle);
        fn preference_set = "cublasLtMatmulPreferenceSetAttribute" (Handle, c_int, *const c_void, usize);
        fn preference_destroy = "cublasLtMatmulPreferenceDestroy" (Handle);
        fn heuristic = "cublasLtMatmulAlgoGetHeuristic" (Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut c_void, *mut c_int);
        fn matmul = "cublasLtMatmul" (
            Handle, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle,
            *const c_void, DevicePtr, usize, Handle,
        );
    }
}

/// The functions with the library's numbers.
pub fn table() -> Result<Table> {
    let api = CublasLt::get()?;
    Ok(Table {
        name: "cuBLASLt",
        prefix: "cublasLt",
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
            // `CUBLAS_COMPUTE_32F`, `…_64F`, `…_32F_FAST_TF32`.
            compute: [68, 70, 77],
            // `CUBLAS_OP_N`, `CUBLAS_OP_T`.
            operations: [0, 1],
            // `CUBLASLT_MATMUL_DESC_TRANSA`, `…_TRANSB`, `…_EPILOGUE`, `…_BIAS_POINTER`, `…_EPILOGUE_AUX_POINTER`,
            // `…_EPILOGUE_AUX_LD`.
            desc: [3, 4, 7, 8, 11, 12],
            bias_type: None,
            // `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT`, `…_STRIDED_BATCH_OFFSET`.
            layout: [5, 6],
            // `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`.
            alignment: Some(5),
            algorithm_words: 8,
            doubles: true,
            complex: true,
        },
    })
}
