//! The driver's functions that the engine calls, and their errors.

use crate::library::api;
use rushlight_core::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// An address on a device.
pub type DevicePtr = u64;
/// A context, a stream, an event, a module, a function, a graph: all are opaque addresses.
pub type Handle = *mut c_void;

api! {
    /// `libcuda`, which comes with the display driver.
    Driver("The NVIDIA driver (libcuda)", &["libcuda.so.1", "libcuda.so", "nvcuda.dll"], "Install an NVIDIA driver, or use Device::Cpu.") {
        fn init = b"cuInit" (c_uint);
        fn version = b"cuDriverGetVersion" (*mut c_int);
        fn error_string = b"cuGetErrorString" (c_int, *mut *const c_char);
        fn device_count = b"cuDeviceGetCount" (*mut c_int);
        fn device_get = b"cuDeviceGet" (*mut c_int, c_int);
        fn device_name = b"cuDeviceGetName" (*mut c_char, c_int, c_int);
        fn device_attribute = b"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
        fn device_memory = b"cuDeviceTotalMem_v2" (*mut usize, c_int);
        fn context_retain = b"cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
        fn context_set = b"cuCtxSetCurrent" (Handle);
        fn context_synchronize = b"cuCtxSynchronize" ();
        fn memory_info = b"cuMemGetInfo_v2" (*mut usize, *mut usize);
        fn alloc = b"cuMemAlloc_v2" (*mut DevicePtr, usize);
        fn free = b"cuMemFree_v2" (DevicePtr);
        fn host_alloc = b"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        fn host_free = b"cuMemFreeHost" (*mut c_void);
        fn host_device_ptr = b"cuMemHostGetDevicePointer_v2" (*mut DevicePtr, *mut c_void, c_uint);
        fn copy_to_device = b"cuMemcpyHtoDAsync_v2" (DevicePtr, *const c_void, usize, Handle);
        fn copy_to_host = b"cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePtr, usize, Handle);
        fn copy_on_device = b"cuMemcpyDtoDAsync_v2" (DevicePtr, DevicePtr, usize, Handle);
        fn copy_to_peer = b"cuMemcpyPeerAsync" (DevicePtr, Handle, DevicePtr, Handle, usize, Handle);
        fn stream_create = b"cuStreamCreateWithPriority" (*mut Handle, c_uint, c_int);
        fn stream_destroy = b"cuStreamDestroy_v2" (Handle);
        fn stream_synchronize = b"cuStreamSynchronize" (Handle);
        fn stream_query = b"cuStreamQuery" (Handle);
        fn stream_wait = b"cuStreamWaitEvent" (Handle, Handle, c_uint);
        fn event_create = b"cuEventCreate" (*mut Handle, c_uint);
        fn event_destroy = b"cuEventDestroy_v2" (Handle);
        fn event_record = b"cuEventRecord" (Handle, Handle);
        fn event_query = b"cuEventQuery" (Handle);
        fn event_synchronize = b"cuEventSynchronize" (Handle);
        fn event_elapsed = b"cuEventElapsedTime" (*mut f32, Handle, Handle);
        fn capture_begin = b"cuStreamBeginCapture_v2" (Handle, c_int);
        fn capture_end = b"cuStreamEndCapture" (Handle, *mut Handle);
        fn capture_mode = b"cuThreadExchangeStreamCaptureMode" (*mut c_int);
        fn graph_instantiate = b"cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
        fn graph_launch = b"cuGraphLaunch" (Handle, Handle);
        fn graph_roots = b"cuGraphGetRootNodes" (Handle, *mut Handle, *mut usize);
        fn graph_set_kernel = b"cuGraphExecKernelNodeSetParams" (Handle, Handle, *const KernelNode);
        fn graph_destroy = b"cuGraphDestroy" (Handle);
        fn graph_exec_destroy = b"cuGraphExecDestroy" (Handle);
        fn module_load = b"cuModuleLoadData" (*mut Handle, *const c_void);
        fn module_function = b"cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
        fn function_attribute = b"cuFuncSetAttribute" (Handle, c_int, c_int);
        fn launch = b"cuLaunchKernelEx" (*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
        optional fn tensor_map = b"cuTensorMapEncodeTiled" (
            *mut TensorMap, c_int, c_uint, DevicePtr, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int,
        );
    }
}

/// `CUtensorMap`: a tensor's address, sizes, strides and the box that the copy engine takes of it at a time, in the driver's own form.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
pub struct TensorMap([u64; 16]);

/// `CUlaunchConfig`: the shape of a launch, its stream and attributes.
#[repr(C)]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: Handle,
    pub attributes: *const LaunchAttribute,
    pub count: c_uint,
}

/// `CUlaunchAttribute`, with a value that is an integer.
#[repr(C)]
pub struct LaunchAttribute {
    pub id: c_int,
    pad: c_int,
    pub value: c_int,
    rest: [c_int; 15],
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: the kernel may start while the one before it ends.
pub const OVERLAP: LaunchAttribute = LaunchAttribute { id: 6, pad: 0, value: 1, rest: [0; 15] };

/// `CUDA_KERNEL_NODE_PARAMS_v1`: a kernel's launch in a graph.
#[repr(C)]
pub struct KernelNode {
    pub function: Handle,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub arguments: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// The driver's code for an allocation that does not fit.
pub const OUT_OF_MEMORY: i32 = 2;
/// `CU_DEVICE_ATTRIBUTE_…`.
pub mod attribute {
    pub const MAX_SHARED_MEMORY: i32 = 97;
    pub const MULTIPROCESSORS: i32 = 16;
    pub const CAPABILITY_MAJOR: i32 = 75;
    pub const CAPABILITY_MINOR: i32 = 76;
}
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub const FUNCTION_SHARED_MEMORY: i32 = 8;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
pub const HOST_MAPPED: u32 = 1 | 2;
/// `CU_STREAM_NON_BLOCKING`.
pub const STREAM_NON_BLOCKING: u32 = 1;
/// `CU_STREAM_LEGACY`: the stream of work that names none, which other libraries use unless told otherwise.
pub const STREAM_LEGACY: usize = 1;
/// `CUDA_ERROR_NOT_READY`: what was asked after is still under way.
pub const NOT_READY: i32 = 600;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_WITHOUT_TIME: u32 = 2;
/// `CU_STREAM_CAPTURE_MODE_…`.
pub mod capture_mode {
    pub const THREAD_LOCAL: i32 = 1;
    pub const RELAXED: i32 = 2;
}

impl Driver {
    /// An error that names the call, unless the code says success.
    #[inline]
    pub fn check(&self, call: &str, code: i32) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// The CUDA version it is for, such as 13000; 0 if it does not say.
    pub fn number(&self) -> i32 {
        let mut number = 0;
        // SAFETY: an integer to write to.
        unsafe { (self.version)(&mut number) };
        number
    }

    /// Runs calls that a thread may not make while it records a step, though they have no part in it: allocation, loading kernels.
    pub fn relaxed<T>(&self, f: impl FnOnce() -> T) -> T {
        let mut mode = capture_mode::RELAXED;
        // SAFETY: exchanges the thread's mode for the one given, and back.
        unsafe { (self.capture_mode)(&mut mode) };
        let result = f();
        // SAFETY: as above.
        unsafe { (self.capture_mode)(&mut mode) };
        result
    }

    #[cold]
    fn error(&self, call: &str, code: i32) -> Error {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes the address of a constant string, or null.
        let known = unsafe { (self.error_string)(code, &mut text) } == 0 && !text.is_null();
        // SAFETY: a constant string of the driver's.
        let text =
            if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { "unknown".into() };
        let message = format!("CUDA: {call} failed with error {code}: {text}");
        if code == OUT_OF_MEMORY { Error::out_of_memory(message) } else { Error::device(message) }
    }
}
