//! Convolutions by cuDNN, if it is installed; the engine has its own kernels for all of them.
//!
//! Only deterministic algorithms are used.

pub mod conv;
mod descriptor;

use crate::api;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use rushlight_gpu::Recent;
use rushlight_gpu::vendor::conv_library::MAX_PLANS;
use rushlight_gpu::vendor::driver::Handle;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock};

api! {
    /// The library of convolutions.
    Cudnn(
        "cuDNN (libcudnn)",
        &["libcudnn.so.9", "libcudnn.so.8", "libcudnn.so", "cudnn64_9.dll"],
        "Install cuDNN or the Python package nvidia-cudnn and name its directory in RUSHLIGHT_CUDA_PATH; without it convolutions are slower."
    ) {
        fn version = "cudnnGetVersion" ();
        fn create = "cudnnCreate" (*mut Handle);
        fn set_stream = "cudnnSetStream" (Handle, Handle);
        fn descriptor = "cudnnBackendCreateDescriptor" (c_int, *mut Handle);
        fn destroy = "cudnnBackendDestroyDescriptor" (Handle);
        fn set = "cudnnBackendSetAttribute" (Handle, c_int, c_int, i64, *const c_void);
        fn get = "cudnnBackendGetAttribute" (Handle, c_int, c_int, i64, *mut i64, *mut c_void);
        fn finalize = "cudnnBackendFinalize" (Handle);
        fn execute = "cudnnBackendExecute" (Handle, Handle, Handle);
    }
}

fn check(call: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::device(format!("cuDNN: {call} failed with status {code}"))) }
}

struct State {
    handle: Handle,
    /// Where the handle sends its work; null before the first.
    stream: Handle,
    convolutions: conv::Plans,
}

/// The library with its plans, for one device. Lives as long as the process.
pub struct Library {
    api: &'static Cudnn,
    /// The library's handle may be used by one thread at a time.
    state: Mutex<State>,
}
// SAFETY: handles are used under the lock.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    pub fn new() -> Result<Self> {
        let api = Cudnn::get()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        check("cudnnCreate", unsafe { (api.create)(&mut handle) })?;
        let convolutions = Recent::new(MAX_PLANS);
        Ok(Self { api, state: Mutex::new(State { handle, stream: std::ptr::null_mut(), convolutions }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The handle for one call, whose work goes to a stream.
    fn on(&self, stream: Handle) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.stream != stream {
            // SAFETY: a handle and a stream of ours.
            check("cudnnSetStream", unsafe { (self.api.set_stream)(state.handle, stream) })?;
            state.stream = stream;
        }
        Ok(state)
    }
}

/// Whether the library is turned off (`RUSHLIGHT_CUDA_CUDNN=0`).
pub fn is_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| std::env::var_os("RUSHLIGHT_CUDA_CUDNN").is_some_and(|v| v == "0"))
}
