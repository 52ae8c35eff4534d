//! cuBLASLt's functions and constants.

use crate::api;
use rushlight_gpu::driver::{DevicePtr, Handle};
use std::ffi::{c_int, c_void};

api! {
    /// The library of matrix products.
    CublasLt(
        "cuBLASLt (libcublasLt)",
        &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", "cublasLt64_13.dll", "cublasLt64_12.dll"],
        "Install the CUDA toolkit or the Python package nvidia-cublas and name its directory in RUSHLIGHT_CUDA_PATH."
    ) {
        fn version = b"cublasLtGetVersion" ();
        fn create = b"cublasLtCreate" (*mut Handle);
        fn desc_create = b"cublasLtMatmulDescCreate" (*mut Handle, c_int, c_int);
        fn desc_set = b"cublasLtMatmulDescSetAttribute" (Handle, c_int, *const c_void, usize);
        fn desc_destroy = b"cublasLtMatmulDescDestroy" (Handle);
        fn layout_create = b"cublasLtMatrixLayoutCreate" (*mut Handle, c_int, u64, u64, i64);
        fn layout_set = b"cublasLtMatrixLayoutSetAttribute" (Handle, c_int, *const c_void, usize);
        fn layout_destroy = b"cublasLtMatrixLayoutDestroy" (Handle);
        fn preference_create = b"cublasLtMatmulPreferenceCreate" (*mut Handle);
        fn preference_set = b"cublasLtMatmulPreferenceSetAttribute" (Handle, c_int, *const c_void, usize);
        fn preference_destroy = b"cublasLtMatmulPreferenceDestroy" (Handle);
        fn heuristic = b"cublasLtMatmulAlgoGetHeuristic" (Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Heuristic, *mut c_int);
        fn matmul = b"cublasLtMatmul" (
            Handle, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle,
            *const [u64; 8], DevicePtr, usize, Handle,
        );
    }
}

/// What the library suggests for a product.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Heuristic {
    pub algorithm: [u64; 8],
    pub workspace: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// `cudaDataType_t`.
pub mod data {
    pub const F32: i32 = 0;
    pub const F64: i32 = 1;
    pub const F16: i32 = 2;
    pub const BF16: i32 = 14;
}

/// `cublasComputeType_t`.
pub mod compute {
    pub const F32: i32 = 68;
    pub const F64: i32 = 70;
    pub const TF32: i32 = 77;
}

/// `cublasLtMatmulDescAttributes_t`.
pub mod desc {
    pub const TRANSPOSE_A: i32 = 3;
    pub const TRANSPOSE_B: i32 = 4;
    pub const EPILOGUE: i32 = 7;
    pub const BIAS_POINTER: i32 = 8;
    pub const AUX_POINTER: i32 = 11;
    pub const AUX_STEP: i32 = 12;
}

/// `cublasLtMatrixLayoutAttribute_t`.
pub mod layout {
    pub const BATCH_COUNT: i32 = 5;
    pub const BATCH_STRIDE: i32 = 6;
}

/// `cublasLtMatmulPreferenceAttributes_t`.
pub mod preference {
    pub const WORKSPACE: i32 = 1;
    pub const ALIGNMENT_A: i32 = 5;
}

/// `cublasLtEpilogue_t`, of which the bias is a bit.
pub mod epilogue {
    pub const NONE: i32 = 1;
    pub const RELU: i32 = 2;
    pub const BIAS: i32 = 4;
    pub const GELU: i32 = 32;
    /// A second matrix, written forward and read backward: the input of the activation.
    pub const AUX: i32 = 128;
    /// The gradient of GELU by the input kept.
    pub const DGELU: i32 = 64 | AUX;
}
