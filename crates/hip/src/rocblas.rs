//! Matrix products by rocBLAS: `f64`, and all dtypes if hipBLASLt is missing.

use crate::api;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_gpu::vendor::driver::{DevicePtr, Handle, Products, Rest};
use rushlight_gpu::vendor::lt::{Lt, Matrix};
use rushlight_gpu::{Gemm, Gpu};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard};

api! {
    /// The library of linear algebra.
    Rocblas(
        "rocBLAS (librocblas)",
        &["librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so"],
        "Install rocBLAS, a part of ROCm, or name its directory in RUSHLIGHT_HIP_PATH."
    ) {
        fn create = "rocblas_create_handle" (*mut Handle);
        fn set_stream = "rocblas_set_stream" (Handle, Handle);
        fn version = "rocblas_get_version_string" (*mut c_char, usize);
        fn gemm = "rocblas_gemm_strided_batched_ex" (
            Handle, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, c_int, i64, DevicePtr, c_int, c_int, i64, *const c_void,
            DevicePtr, c_int, c_int, i64, DevicePtr, c_int, c_int, i64, c_int, c_int, c_int, c_int, u32,
        );
        optional fn strsm = "rocblas_strsm" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int,
        );
        optional fn dtrsm = "rocblas_dtrsm" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int,
        );
        optional fn strsm_batched = "rocblas_strsm_batched" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int, c_int,
        );
        optional fn dtrsm_batched = "rocblas_dtrsm_batched" (
            Handle, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr, c_int, c_int,
        );
    }
}

/// `rocblas_operation_none`, `rocblas_operation_transpose`.
const OPERATIONS: [c_int; 2] = [111, 112];

impl Rocblas {
    /// The version, such as 4.3.0.
    pub fn version(&self) -> Result<String> {
        let mut text = [0u8; 64];
        // SAFETY: the buffer has the given length.
        match unsafe { (self.version)(text.as_mut_ptr().cast(), text.len()) } {
            0 => Ok(text.iter().take_while(|&&c| c != 0).map(|&c| c as char).collect()),
            code => Err(Error::device(format!("rocblas_get_version_string failed with status {code}"))),
        }
    }
}

struct State {
    handle: Handle,
    /// The stream that the handle currently uses; null before first use.
    stream: Handle,
}

/// rocBLAS for one device, and hipBLASLt, which is tried first if installed. Lives as long as the process.
pub struct Library {
    /// The reason why rocBLAS is missing, if it is.
    api: Result<&'static Rocblas>,
    lt: Option<&'static Lt>,
    /// The library's handle, created on first use. One thread at a time may use it.
    state: Mutex<Option<State>>,
}
// SAFETY: the handle is used under the lock.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

fn check(call: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::device(format!("rocBLAS: {call} failed with status {code}"))) }
}

/// `rocblas_datatype`.
fn datatype(dtype: DType) -> Option<c_int> {
    match dtype {
        DType::F16 => Some(150),
        DType::F32 => Some(151),
        DType::F64 => Some(152),
        DType::BF16 => Some(168),
        _ => None,
    }
}

impl Library {
    /// The installed libraries; an error if neither is.
    pub fn new() -> Result<Self> {
        let lt = crate::hipblaslt::table().and_then(Lt::new);
        let api = Rocblas::get();
        if let (Err(e), Err(_)) = (&api, &lt) {
            return Err(e.clone());
        }
        let lt: Option<&'static Lt> = lt.ok().map(|lt| &*Box::leak(Box::new(lt)));
        Ok(Self { api, lt, state: Mutex::new(None) })
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        lock(&self.state)
    }

    fn run(&self, api: &Rocblas, g: &Gemm, [a, b, out]: [Matrix; 3], stream: Handle) -> Result<()> {
        let mut state = self.state();
        if state.is_none() {
            let mut handle = std::ptr::null_mut();
            // SAFETY: a handle to write to.
            check("rocblas_create_handle", unsafe { (api.create)(&mut handle) })?;
            *state = Some(State { handle, stream: std::ptr::null_mut() });
        }
        let Some(state) = state.as_mut() else { return Err(Error::device("rocBLAS has no handle")) };
        if state.stream != stream {
            // SAFETY: a handle and a stream of ours.
            check("rocblas_set_stream", unsafe { (api.set_stream)(state.handle, stream) })?;
            state.stream = stream;
        }
        let flipped = Lt::is_flipped(g);
        let (a_ptr, b_ptr) = if flipped { (g.b, g.a) } else { (g.a, g.b) };
        let (m, n) = if flipped { (g.n, g.m) } else { (g.m, g.n) };
        let (Some(kind), Some(out_kind)) = (datatype(g.dtype), datatype(g.out_dtype)) else {
            return Err(Error::dtype(format!("rocBLAS has no products of {}", g.dtype)));
        };
        let compute = if g.dtype == DType::F64 { kind } else { 151 };
        let (wide, narrow) = ([g.alpha, g.beta], [g.alpha as f32, g.beta as f32]);
        let factor = |i: usize| -> *const c_void {
            if g.dtype == DType::F64 { (&raw const wide[i]).cast() } else { (&raw const narrow[i]).cast() }
        };
        let operation = |m: Matrix| OPERATIONS[m.transposed as usize];
        // SAFETY: the matrices are within their storages by the engine's contract; alpha and beta are host pointers,
        // the default of a handle.
        let rc = unsafe {
            (api.gemm)(
                state.handle,
                operation(a),
                operation(b),
                m as c_int,
                n as c_int,
                g.k as c_int,
                factor(0),
                a_ptr,
                kind,
                a.step as c_int,
                a.batch_stride,
                b_ptr,
                kind,
                b.step as c_int,
                b.batch_stride,
                factor(1),
                g.out,
                out_kind,
                out.step as c_int,
                out.batch_stride,
                g.out,
                out_kind,
                out.step as c_int,
                out.batch_stride,
                g.batch as c_int,
                compute,
                0,
                0,
                0,
            )
        };
        check("rocblas_gemm_strided_batched_ex", rc)
    }
}

impl Products for Library {
    /// Both libraries require that one of the strides is one.
    fn reads(&self, rows: usize, columns: usize, strides: [usize; 3]) -> bool {
        Lt::takes(rows, columns, strides)
    }

    fn gemm(&'static self, gpu: &Gpu, g: &Gemm) -> Result<Option<Rest>> {
        if let Some(lt) = self.lt
            && let Some(rest) = lt.gemm(gpu, g)?
        {
            return Ok(Some(rest));
        }
        let (Ok(api), None, Some(matrices)) = (&self.api, g.gelu, Lt::matrices(g)) else { return Ok(None) };
        let most = i32::MAX as i64;
        if matrices.iter().any(|m| m.step > most) || g.k > i32::MAX as usize || datatype(g.dtype).is_none() {
            return Ok(None);
        }
        let (api, g) = (*api, *g);
        gpu.submit(move |_, stream| self.run(api, &g, matrices, stream))?;
        Ok(Some(Rest { bias: g.bias.is_some(), activation: true }))
    }
}
