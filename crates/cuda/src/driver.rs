//! NVIDIA's driver: the functions that the engine calls, and their errors.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::vendor::calls::{FUNCTION_SHARED_MEMORY, IpcHandle};
use rushlight_gpu::vendor::driver::{Boxes, DevicePtr, Handle, Launch, TensorMap};
use std::ffi::{c_char, c_int, c_uint, c_void};

api! {
    /// `libcuda`, which comes with the display driver.
    Driver("The NVIDIA driver (libcuda)", &["libcuda.so.1", "libcuda.so", "nvcuda.dll"], "Install an NVIDIA driver, or use Device::Cpu.") {
        fn init = b"cuInit" (c_uint);
        fn version = b"cuDriverGetVersion" (*mut c_int);
        fn device_count = b"cuDeviceGetCount" (*mut c_int);
        fn device_get = b"cuDeviceGet" (*mut c_int, c_int);
        fn device_name = b"cuDeviceGetName" (*mut c_char, c_int, c_int);
        fn device_attribute = b"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
        fn device_memory = b"cuDeviceTotalMem_v2" (*mut usize, c_int);
        fn context_retain = b"cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
        fn context_set = b"cuCtxSetCurrent" (Handle);
        fn synchronize = b"cuCtxSynchronize" ();
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
        fn context_device = b"cuCtxGetDevice" (*mut c_int);
        fn device_uuid = b"cuDeviceGetUuid" (*mut [u8; 16], c_int);
        fn ipc_share = b"cuIpcGetMemHandle" (*mut IpcHandle, DevicePtr);
        fn ipc_open = b"cuIpcOpenMemHandle_v2" (*mut DevicePtr, IpcHandle, c_uint);
        fn ipc_close = b"cuIpcCloseMemHandle" (DevicePtr);
        optional fn error_string = b"cuGetErrorString" (c_int, *mut *const c_char);
        optional fn device_uuid_of_part = b"cuDeviceGetUuid_v2" (*mut [u8; 16], c_int);
        optional fn stream_write_value = b"cuStreamWriteValue32_v2" (Handle, DevicePtr, u32, c_uint);
        optional fn stream_wait_value = b"cuStreamWaitValue32_v2" (Handle, DevicePtr, u32, c_uint);
        optional fn tensor_map = b"cuTensorMapEncodeTiled" (
            *mut TensorMap, c_int, c_uint, DevicePtr, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int,
        );
    }
}

/// `CU_STREAM_WAIT_VALUE_GEQ`.
const WAIT_AT_LEAST: u32 = 0;

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

/// `CU_DEVICE_ATTRIBUTE_…`.
pub mod attribute {
    pub const MAX_SHARED_MEMORY: i32 = 97;
    pub const MULTIPROCESSORS: i32 = 16;
    pub const CAPABILITY_MAJOR: i32 = 75;
    pub const CAPABILITY_MINOR: i32 = 76;
}
/// `CU_STREAM_LEGACY`: the stream of work that names none, which other libraries use by default.
pub const STREAM_LEGACY: usize = 1;

impl Driver {
    /// The CUDA version it is for, such as 13000; 0 if it does not say.
    pub fn number(&self) -> i32 {
        let mut number = 0;
        // SAFETY: an integer to write to.
        unsafe { (self.version)(&mut number) };
        number
    }
}

rushlight_gpu::driver_errors!(Driver, "CUDA");

impl rushlight_gpu::vendor::driver::Driver for Driver {
    rushlight_gpu::driver_calls! {
        prefix: "cu",
        synchronize: "cuCtxSynchronize",
        alloc: "cuMemAlloc",
        host_alloc: "cuMemHostAlloc",
        host_device_ptr: "cuMemHostGetDevicePointer",
        node: KernelNode,
    }

    unsafe fn enter(&self, context: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuCtxSetCurrent", unsafe { (self.context_set)(context) })
    }

    unsafe fn copy_to_peer(
        &self,
        (to, to_context): (DevicePtr, Handle),
        (from, from_context): (DevicePtr, Handle),
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        // SAFETY: the caller's.
        let code = unsafe { (self.copy_to_peer)(to, to_context, from, from_context, bytes, stream) };
        self.check("cuMemcpyPeerAsync", code)
    }

    fn default_stream(&self) -> Handle {
        STREAM_LEGACY as Handle
    }

    unsafe fn allow_shared(&self, function: Handle, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        let code = unsafe { (self.function_attribute)(function, FUNCTION_SHARED_MEMORY, bytes as i32) };
        self.check("cuFuncSetAttribute", code)
    }

    #[inline]
    unsafe fn launch(&self, launch: &mut Launch) -> Result<()> {
        let config = LaunchConfig {
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            stream: launch.stream,
            attributes: &OVERLAP,
            count: launch.overlap as c_uint,
        };
        // SAFETY: the caller's.
        let code =
            unsafe { (self.launch)(&config, launch.function, launch.arguments.as_mut_ptr(), std::ptr::null_mut()) };
        self.check("cuLaunchKernelEx", code)
    }

    fn identity(&self) -> Result<Vec<u8>> {
        let (mut device, mut uuid) = (0, [0; 16]);
        // SAFETY: an integer and 16 bytes to write to. The second form tells parts of a divided GPU apart.
        unsafe {
            self.check("cuCtxGetDevice", (self.context_device)(&mut device))?;
            let get = self.device_uuid_of_part.unwrap_or(self.device_uuid);
            self.check("cuDeviceGetUuid", get(&mut uuid, device))?;
        }
        Ok(uuid.to_vec())
    }

    fn has_stream_values(&self) -> bool {
        self.stream_write_value.is_some() && self.stream_wait_value.is_some()
    }

    unsafe fn stream_write_value(&self, stream: Handle, at: DevicePtr, value: u32) -> Result<()> {
        let Some(write) = self.stream_write_value else {
            return Err(Error::device("the driver lacks cuStreamWriteValue32: it is too old"));
        };
        // SAFETY: the caller's.
        self.check("cuStreamWriteValue32", unsafe { write(stream, at, value, 0) })
    }

    unsafe fn stream_wait_value(&self, stream: Handle, at: DevicePtr, value: u32) -> Result<()> {
        let Some(wait) = self.stream_wait_value else {
            return Err(Error::device("the driver lacks cuStreamWaitValue32: it is too old"));
        };
        // SAFETY: the caller's.
        self.check("cuStreamWaitValue32", unsafe { wait(stream, at, value, WAIT_AT_LEAST) })
    }

    fn has_bulk_copies(&self) -> bool {
        self.tensor_map.is_some()
    }

    unsafe fn tensor_map(&self, boxes: &Boxes) -> Result<TensorMap> {
        // `CU_TENSOR_MAP_DATA_TYPE_BFLOAT16`, `…_FLOAT16`; `…_INTERLEAVE_NONE`, `…_SWIZZLE_128B`,
        // `…_L2_PROMOTION_L2_256B`, `…_OOB_FILL_NONE` (zeros).
        let kind = if boxes.bf16 { 9 } else { 6 };
        let (interleave, swizzle, promotion, fill) = (0, 3, 3, 0);
        let (mut map, steps) = (TensorMap::default(), [1; 4]);
        let Some(encode) = self.tensor_map else {
            return Err(Error::device("the driver lacks cuTensorMapEncodeTiled: it is too old"));
        };
        // SAFETY: four sizes, three strides, four sizes of a box; the map is as large and aligned as the driver's.
        let code = unsafe {
            let (sizes, strides) = (boxes.sizes.as_ptr(), boxes.strides.as_ptr());
            let (within, steps) = (boxes.boxes.as_ptr(), steps.as_ptr());
            encode(&mut map, kind, 4, boxes.at, sizes, strides, within, steps, interleave, swizzle, promotion, fill)
        };
        self.check("cuTensorMapEncodeTiled", code)?;
        Ok(map)
    }
}
