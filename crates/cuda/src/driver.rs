//! NVIDIA's driver: the functions that the engine calls, and their errors.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::driver::{Boxes, DevicePtr, Handle, Launch, TensorMap};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

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
        fn context_device = b"cuCtxGetDevice" (*mut c_int);
        fn device_uuid = b"cuDeviceGetUuid" (*mut [u8; 16], c_int);
        fn ipc_share = b"cuIpcGetMemHandle" (*mut IpcHandle, DevicePtr);
        fn ipc_open = b"cuIpcOpenMemHandle_v2" (*mut DevicePtr, IpcHandle, c_uint);
        fn ipc_close = b"cuIpcCloseMemHandle" (DevicePtr);
        optional fn device_uuid_of_part = b"cuDeviceGetUuid_v2" (*mut [u8; 16], c_int);
        optional fn stream_write_value = b"cuStreamWriteValue32_v2" (Handle, DevicePtr, u32, c_uint);
        optional fn stream_wait_value = b"cuStreamWaitValue32_v2" (Handle, DevicePtr, u32, c_uint);
        optional fn tensor_map = b"cuTensorMapEncodeTiled" (
            *mut TensorMap, c_int, c_uint, DevicePtr, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int,
        );
    }
}

/// `CUipcMemHandle`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle([u8; 64]);

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const IPC_PEER_ACCESS: u32 = 1;
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
/// `CUDA_ERROR_NO_DEVICE`: the driver finds no GPU.
pub const NO_DEVICE: i32 = 100;
/// `CUDA_ERROR_NOT_READY`: what was asked after is still under way.
pub const NOT_READY: i32 = 600;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_WITHOUT_TIME: u32 = 2;
/// `CU_STREAM_CAPTURE_MODE_…`.
pub mod capture_mode {
    pub const THREAD_LOCAL: i32 = 1;
}

impl Driver {
    /// An error that names the call, unless the code says success.
    #[inline]
    pub fn check(&self, call: &str, code: i32) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// Whether what a call asked after is done.
    fn ready(&self, call: &str, code: i32) -> Result<bool> {
        if code == NOT_READY { Ok(false) } else { self.check(call, code).map(|()| true) }
    }

    /// The CUDA version it is for, such as 13000; 0 if it does not say.
    pub fn number(&self) -> i32 {
        let mut number = 0;
        // SAFETY: an integer to write to.
        unsafe { (self.version)(&mut number) };
        number
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

impl rushlight_gpu::driver::Driver for Driver {
    unsafe fn enter(&self, context: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuCtxSetCurrent", unsafe { (self.context_set)(context) })
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: waits for whatever context is current; without one it is an error.
        self.check("cuCtxSynchronize", unsafe { (self.context_synchronize)() })
    }

    fn memory_info(&self) -> (usize, usize) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two sizes to write to.
        unsafe { (self.memory_info)(&mut free, &mut total) };
        (free, total)
    }

    fn alloc(&self, bytes: usize) -> Result<Option<DevicePtr>> {
        let mut ptr = 0;
        // SAFETY: an address to write to.
        match unsafe { (self.alloc)(&mut ptr, bytes) } {
            OUT_OF_MEMORY => Ok(None),
            code => self.check("cuMemAlloc", code).map(|()| Some(ptr)),
        }
    }

    unsafe fn free(&self, ptr: DevicePtr) {
        // SAFETY: the caller's. An error would be an earlier call's, which is reported elsewhere.
        unsafe { (self.free)(ptr) };
    }

    fn host_alloc(&self, bytes: usize) -> Result<Option<*mut c_void>> {
        let mut ptr = std::ptr::null_mut();
        // SAFETY: an address to write to.
        match unsafe { (self.host_alloc)(&mut ptr, bytes, HOST_MAPPED) } {
            OUT_OF_MEMORY => Ok(None),
            code => self.check("cuMemHostAlloc", code).map(|()| Some(ptr)),
        }
    }

    unsafe fn host_free(&self, ptr: *mut c_void) {
        // SAFETY: the caller's.
        unsafe { (self.host_free)(ptr) };
    }

    unsafe fn host_device_ptr(&self, ptr: *mut c_void) -> Result<DevicePtr> {
        let mut device = 0;
        // SAFETY: the caller's; an address to write to.
        self.check("cuMemHostGetDevicePointer", unsafe { (self.host_device_ptr)(&mut device, ptr, 0) })?;
        Ok(device)
    }

    unsafe fn copy_to_device(&self, to: DevicePtr, from: *const c_void, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuMemcpyHtoDAsync", unsafe { (self.copy_to_device)(to, from, bytes, stream) })
    }

    unsafe fn copy_to_host(&self, to: *mut c_void, from: DevicePtr, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuMemcpyDtoHAsync", unsafe { (self.copy_to_host)(to, from, bytes, stream) })
    }

    unsafe fn copy_on_device(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuMemcpyDtoDAsync", unsafe { (self.copy_on_device)(to, from, bytes, stream) })
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

    fn stream_create(&self, priority: i32) -> Result<Handle> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        let code = unsafe { (self.stream_create)(&mut handle, STREAM_NON_BLOCKING, priority) };
        self.check("cuStreamCreateWithPriority", code)?;
        Ok(handle)
    }

    unsafe fn stream_destroy(&self, stream: Handle) {
        // SAFETY: the caller's.
        unsafe { (self.stream_destroy)(stream) };
    }

    unsafe fn stream_synchronize(&self, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuStreamSynchronize", unsafe { (self.stream_synchronize)(stream) })
    }

    unsafe fn stream_query(&self, stream: Handle) -> Result<bool> {
        // SAFETY: the caller's.
        self.ready("cuStreamQuery", unsafe { (self.stream_query)(stream) })
    }

    unsafe fn stream_wait(&self, stream: Handle, event: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuStreamWaitEvent", unsafe { (self.stream_wait)(stream, event, 0) })
    }

    fn default_stream(&self) -> Handle {
        STREAM_LEGACY as Handle
    }

    fn event_create(&self, timed: bool) -> Result<Handle> {
        let mut handle = std::ptr::null_mut();
        let flags = if timed { 0 } else { EVENT_WITHOUT_TIME };
        // SAFETY: a handle to write to.
        self.check("cuEventCreate", unsafe { (self.event_create)(&mut handle, flags) })?;
        Ok(handle)
    }

    unsafe fn event_destroy(&self, event: Handle) {
        // SAFETY: the caller's.
        unsafe { (self.event_destroy)(event) };
    }

    unsafe fn event_record(&self, event: Handle, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuEventRecord", unsafe { (self.event_record)(event, stream) })
    }

    unsafe fn event_query(&self, event: Handle) -> Result<bool> {
        // SAFETY: the caller's.
        self.ready("cuEventQuery", unsafe { (self.event_query)(event) })
    }

    unsafe fn event_synchronize(&self, event: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuEventSynchronize", unsafe { (self.event_synchronize)(event) })
    }

    unsafe fn event_elapsed(&self, begin: Handle, end: Handle) -> Result<Option<f32>> {
        let mut milliseconds = 0.0;
        // SAFETY: the caller's; a number to write to.
        match unsafe { (self.event_elapsed)(&mut milliseconds, begin, end) } {
            NOT_READY => Ok(None),
            code => self.check("cuEventElapsedTime", code).map(|()| Some(milliseconds)),
        }
    }

    fn exchange_capture_mode(&self, mut mode: i32) -> i32 {
        // SAFETY: exchanges the thread's mode for the one given.
        unsafe { (self.capture_mode)(&mut mode) };
        mode
    }

    unsafe fn capture_begin(&self, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuStreamBeginCapture", unsafe { (self.capture_begin)(stream, capture_mode::THREAD_LOCAL) })
    }

    unsafe fn capture_end(&self, stream: Handle) -> Result<Handle> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the caller's; a handle to write to.
        self.check("cuStreamEndCapture", unsafe { (self.capture_end)(stream, &mut graph) })?;
        Ok(graph)
    }

    unsafe fn graph_instantiate(&self, graph: Handle) -> Result<Handle> {
        let mut exec = std::ptr::null_mut();
        // SAFETY: the caller's; a handle to write to.
        self.check("cuGraphInstantiate", unsafe { (self.graph_instantiate)(&mut exec, graph, 0) })?;
        Ok(exec)
    }

    unsafe fn graph_root(&self, graph: Handle) -> Result<Option<Handle>> {
        let (mut first, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: the caller's; asked for no handles, the call tells their number.
        let code = unsafe { (self.graph_roots)(graph, std::ptr::null_mut(), &mut count) };
        self.check("cuGraphGetRootNodes", code)?;
        if count != 1 {
            return Ok(None);
        }
        // SAFETY: the caller's; room for the one handle.
        self.check("cuGraphGetRootNodes", unsafe { (self.graph_roots)(graph, &mut first, &mut count) })?;
        Ok(Some(first))
    }

    unsafe fn graph_launch(&self, exec: Handle, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("cuGraphLaunch", unsafe { (self.graph_launch)(exec, stream) })
    }

    unsafe fn graph_set_kernel(&self, exec: Handle, node: Handle, launch: &mut Launch) -> Result<()> {
        let parameters = KernelNode {
            function: launch.function,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            arguments: launch.arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
        };
        // SAFETY: the caller's.
        let code = unsafe { (self.graph_set_kernel)(exec, node, &parameters) };
        self.check("cuGraphExecKernelNodeSetParams", code)
    }

    unsafe fn graph_destroy(&self, graph: Handle) {
        // SAFETY: the caller's.
        unsafe { (self.graph_destroy)(graph) };
    }

    unsafe fn graph_exec_destroy(&self, exec: Handle) {
        // SAFETY: the caller's.
        unsafe { (self.graph_exec_destroy)(exec) };
    }

    unsafe fn module_load(&self, image: &[u8]) -> Result<Handle> {
        let mut module = std::ptr::null_mut();
        // SAFETY: the caller's; the image carries its own length.
        self.check("cuModuleLoadData", unsafe { (self.module_load)(&mut module, image.as_ptr().cast()) })?;
        Ok(module)
    }

    unsafe fn module_function(&self, module: Handle, name: &CStr) -> Result<Handle> {
        let mut function = std::ptr::null_mut();
        // SAFETY: the caller's; the name ends in zero.
        let code = unsafe { (self.module_function)(&mut function, module, name.as_ptr()) };
        self.check(&format!("cuModuleGetFunction({})", name.to_string_lossy()), code)?;
        Ok(function)
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

    unsafe fn share_memory(&self, ptr: DevicePtr) -> Result<Vec<u8>> {
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: the caller's; a handle to write to.
        self.check("cuIpcGetMemHandle", unsafe { (self.ipc_share)(&mut handle, ptr) })?;
        Ok(handle.0.to_vec())
    }

    fn open_shared(&self, token: &[u8]) -> Result<DevicePtr> {
        let handle = <[u8; 64]>::try_from(token)
            .map_err(|_| Error::value(format!("a handle of shared memory has 64 bytes, not {}", token.len())))?;
        let mut ptr = 0;
        // SAFETY: an address to write to; the driver checks the handle.
        let code = unsafe { (self.ipc_open)(&mut ptr, IpcHandle(handle), IPC_PEER_ACCESS) };
        self.check("cuIpcOpenMemHandle", code)?;
        Ok(ptr)
    }

    unsafe fn close_shared(&self, ptr: DevicePtr) {
        // SAFETY: the caller's.
        unsafe { (self.ipc_close)(ptr) };
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
        // `CU_TENSOR_MAP_DATA_TYPE_BFLOAT16`, `…_FLOAT16`; `…_INTERLEAVE_NONE`, `…_SWIZZLE_128B`, `…_L2_PROMOTION_L2_256B`,
        // `…_OOB_FILL_NONE` (zeros).
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
