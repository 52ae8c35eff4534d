//! HIP's runtime: the functions that the engine calls, and their errors.
//!
//! HIP knows no contexts of ours: a device's [`Handle`] is its number and one, so that none is null.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::driver::{DevicePtr, Handle, Launch};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

api! {
    /// `libamdhip64`, the runtime.
    Hip(
        "AMD's HIP runtime (libamdhip64)",
        &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
        "Install ROCm and load its module, or name the library's directory in RUSHLIGHT_HIP_PATH, or use Device::Cpu."
    ) {
        fn init = b"hipInit" (c_uint);
        fn driver_version = b"hipDriverGetVersion" (*mut c_int);
        fn runtime_version = b"hipRuntimeGetVersion" (*mut c_int);
        fn device_count = b"hipGetDeviceCount" (*mut c_int);
        fn device_name = b"hipDeviceGetName" (*mut c_char, c_int, c_int);
        fn device_attribute = b"hipDeviceGetAttribute" (*mut c_int, c_int, c_int);
        fn device_memory = b"hipDeviceTotalMem" (*mut usize, c_int);
        fn device_set = b"hipSetDevice" (c_int);
        fn synchronize = b"hipDeviceSynchronize" ();
        fn memory_info = b"hipMemGetInfo" (*mut usize, *mut usize);
        fn alloc = b"hipMalloc" (*mut DevicePtr, usize);
        fn free = b"hipFree" (DevicePtr);
        fn host_alloc = b"hipHostMalloc" (*mut *mut c_void, usize, c_uint);
        fn host_free = b"hipHostFree" (*mut c_void);
        fn host_device_ptr = b"hipHostGetDevicePointer" (*mut DevicePtr, *mut c_void, c_uint);
        fn copy_to_device = b"hipMemcpyHtoDAsync" (DevicePtr, *const c_void, usize, Handle);
        fn copy_to_host = b"hipMemcpyDtoHAsync" (*mut c_void, DevicePtr, usize, Handle);
        fn copy_on_device = b"hipMemcpyDtoDAsync" (DevicePtr, DevicePtr, usize, Handle);
        fn copy_to_peer = b"hipMemcpyPeerAsync" (DevicePtr, c_int, DevicePtr, c_int, usize, Handle);
        fn stream_create = b"hipStreamCreateWithPriority" (*mut Handle, c_uint, c_int);
        fn stream_destroy = b"hipStreamDestroy" (Handle);
        fn stream_synchronize = b"hipStreamSynchronize" (Handle);
        fn stream_query = b"hipStreamQuery" (Handle);
        fn stream_wait = b"hipStreamWaitEvent" (Handle, Handle, c_uint);
        fn event_create = b"hipEventCreateWithFlags" (*mut Handle, c_uint);
        fn event_destroy = b"hipEventDestroy" (Handle);
        fn event_record = b"hipEventRecord" (Handle, Handle);
        fn event_query = b"hipEventQuery" (Handle);
        fn event_synchronize = b"hipEventSynchronize" (Handle);
        fn event_elapsed = b"hipEventElapsedTime" (*mut f32, Handle, Handle);
        fn capture_begin = b"hipStreamBeginCapture" (Handle, c_int);
        fn capture_end = b"hipStreamEndCapture" (Handle, *mut Handle);
        fn capture_mode = b"hipThreadExchangeStreamCaptureMode" (*mut c_int);
        fn graph_instantiate = b"hipGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
        fn graph_launch = b"hipGraphLaunch" (Handle, Handle);
        fn graph_roots = b"hipGraphGetRootNodes" (Handle, *mut Handle, *mut usize);
        fn graph_set_kernel = b"hipGraphExecKernelNodeSetParams" (Handle, Handle, *const KernelNode);
        fn graph_destroy = b"hipGraphDestroy" (Handle);
        fn graph_exec_destroy = b"hipGraphExecDestroy" (Handle);
        fn module_load = b"hipModuleLoadData" (*mut Handle, *const c_void);
        fn module_function = b"hipModuleGetFunction" (*mut Handle, Handle, *const c_char);
        fn function_attribute = b"hipFuncSetAttribute" (Handle, c_int, c_int);
        fn launch = b"hipModuleLaunchKernel" (
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void,
        );
        fn device_current = b"hipGetDevice" (*mut c_int);
        fn device_bus = b"hipDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
        fn ipc_share = b"hipIpcGetMemHandle" (*mut IpcHandle, DevicePtr);
        fn ipc_open = b"hipIpcOpenMemHandle" (*mut DevicePtr, IpcHandle, c_uint);
        fn ipc_close = b"hipIpcCloseMemHandle" (DevicePtr);
        optional fn device_uuid = b"hipDeviceGetUuid" (*mut [u8; 16], c_int);
        // One or the other, whose structures differ.
        optional fn properties_6 = b"hipGetDevicePropertiesR0600" (*mut c_void, c_int);
        optional fn properties_5 = b"hipGetDeviceProperties" (*mut c_void, c_int);
        optional fn error_string = b"hipDrvGetErrorString" (c_int, *mut *const c_char);
    }
}

/// `hipIpcMemHandle_t`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle([u8; 64]);

/// `hipIpcMemLazyEnablePeerAccess`.
const IPC_PEER_ACCESS: u32 = 1;

/// `hipKernelNodeParams`: a kernel's launch in a graph.
#[repr(C)]
pub struct KernelNode {
    block: [c_uint; 3],
    extra: *mut *mut c_void,
    function: Handle,
    grid: [c_uint; 3],
    arguments: *mut *mut c_void,
    shared: c_uint,
}

/// `hipErrorOutOfMemory`.
const OUT_OF_MEMORY: i32 = 2;
/// `hipErrorNoDevice`: the runtime finds no GPU.
pub const NO_DEVICE: i32 = 100;
/// `hipErrorNotReady`: what was asked after is still under way.
const NOT_READY: i32 = 600;
/// `hipDeviceAttribute…`.
pub mod attribute {
    pub const MULTIPROCESSORS: i32 = 63;
    pub const MAX_SHARED_MEMORY: i32 = 74;
    pub const WAVEFRONT: i32 = 87;
}
/// `hipFuncAttributeMaxDynamicSharedMemorySize`.
const FUNCTION_SHARED_MEMORY: i32 = 8;
/// `hipHostMallocPortable | hipHostMallocMapped`.
const HOST_MAPPED: u32 = 1 | 2;
/// `hipStreamNonBlocking`.
const STREAM_NON_BLOCKING: u32 = 1;
/// `hipEventDisableTiming`.
const EVENT_WITHOUT_TIME: u32 = 2;
/// `hipStreamCaptureModeThreadLocal`.
const CAPTURE_THREAD_LOCAL: i32 = 1;

/// A device as the engine's context.
pub fn context(index: usize) -> Handle {
    (index + 1) as Handle
}

/// The device of a context.
fn index(context: Handle) -> c_int {
    context as usize as c_int - 1
}

impl Hip {
    /// An error that names the call, unless the code says success.
    #[inline]
    pub fn check(&self, call: &str, code: i32) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// Whether what a call asked after is done.
    fn ready(&self, call: &str, code: i32) -> Result<bool> {
        if code == NOT_READY { Ok(false) } else { self.check(call, code).map(|()| true) }
    }

    /// The runtime's version, such as 60342134 for 6.3.42134; 0 if it does not say.
    pub fn number(&self) -> i32 {
        let mut number = 0;
        // SAFETY: an integer to write to.
        unsafe { (self.runtime_version)(&mut number) };
        number
    }

    #[cold]
    fn error(&self, call: &str, code: i32) -> Error {
        let mut text = std::ptr::null();
        // SAFETY: the runtime writes the address of a constant string, or null.
        let known = self.error_string.is_some_and(|say| unsafe { say(code, &mut text) } == 0) && !text.is_null();
        // SAFETY: a constant string of the runtime's.
        let text =
            if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { "unknown".into() };
        let message = format!("HIP: {call} failed with error {code}: {text}");
        if code == OUT_OF_MEMORY { Error::out_of_memory(message) } else { Error::device(message) }
    }
}

impl rushlight_gpu::driver::Driver for Hip {
    unsafe fn enter(&self, context: Handle) -> Result<()> {
        // SAFETY: a number of a device.
        self.check("hipSetDevice", unsafe { (self.device_set)(index(context)) })
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: waits for the device of the calling thread.
        self.check("hipDeviceSynchronize", unsafe { (self.synchronize)() })
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
            code => self.check("hipMalloc", code).map(|()| Some(ptr)),
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
            code => self.check("hipHostMalloc", code).map(|()| Some(ptr)),
        }
    }

    unsafe fn host_free(&self, ptr: *mut c_void) {
        // SAFETY: the caller's.
        unsafe { (self.host_free)(ptr) };
    }

    unsafe fn host_device_ptr(&self, ptr: *mut c_void) -> Result<DevicePtr> {
        let mut device = 0;
        // SAFETY: the caller's; an address to write to.
        self.check("hipHostGetDevicePointer", unsafe { (self.host_device_ptr)(&mut device, ptr, 0) })?;
        Ok(device)
    }

    unsafe fn copy_to_device(&self, to: DevicePtr, from: *const c_void, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipMemcpyHtoDAsync", unsafe { (self.copy_to_device)(to, from, bytes, stream) })
    }

    unsafe fn copy_to_host(&self, to: *mut c_void, from: DevicePtr, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipMemcpyDtoHAsync", unsafe { (self.copy_to_host)(to, from, bytes, stream) })
    }

    unsafe fn copy_on_device(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipMemcpyDtoDAsync", unsafe { (self.copy_on_device)(to, from, bytes, stream) })
    }

    unsafe fn copy_to_peer(
        &self,
        (to, to_context): (DevicePtr, Handle),
        (from, from_context): (DevicePtr, Handle),
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        // SAFETY: the caller's.
        let code = unsafe { (self.copy_to_peer)(to, index(to_context), from, index(from_context), bytes, stream) };
        self.check("hipMemcpyPeerAsync", code)
    }

    fn stream_create(&self, priority: i32) -> Result<Handle> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        let code = unsafe { (self.stream_create)(&mut handle, STREAM_NON_BLOCKING, priority) };
        self.check("hipStreamCreateWithPriority", code)?;
        Ok(handle)
    }

    unsafe fn stream_destroy(&self, stream: Handle) {
        // SAFETY: the caller's.
        unsafe { (self.stream_destroy)(stream) };
    }

    unsafe fn stream_synchronize(&self, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipStreamSynchronize", unsafe { (self.stream_synchronize)(stream) })
    }

    unsafe fn stream_query(&self, stream: Handle) -> Result<bool> {
        // SAFETY: the caller's.
        self.ready("hipStreamQuery", unsafe { (self.stream_query)(stream) })
    }

    unsafe fn stream_wait(&self, stream: Handle, event: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipStreamWaitEvent", unsafe { (self.stream_wait)(stream, event, 0) })
    }

    fn default_stream(&self) -> Handle {
        std::ptr::null_mut()
    }

    fn event_create(&self, timed: bool) -> Result<Handle> {
        let mut handle = std::ptr::null_mut();
        let flags = if timed { 0 } else { EVENT_WITHOUT_TIME };
        // SAFETY: a handle to write to.
        self.check("hipEventCreateWithFlags", unsafe { (self.event_create)(&mut handle, flags) })?;
        Ok(handle)
    }

    unsafe fn event_destroy(&self, event: Handle) {
        // SAFETY: the caller's.
        unsafe { (self.event_destroy)(event) };
    }

    unsafe fn event_record(&self, event: Handle, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipEventRecord", unsafe { (self.event_record)(event, stream) })
    }

    unsafe fn event_query(&self, event: Handle) -> Result<bool> {
        // SAFETY: the caller's.
        self.ready("hipEventQuery", unsafe { (self.event_query)(event) })
    }

    unsafe fn event_synchronize(&self, event: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipEventSynchronize", unsafe { (self.event_synchronize)(event) })
    }

    unsafe fn event_elapsed(&self, begin: Handle, end: Handle) -> Result<Option<f32>> {
        let mut milliseconds = 0.0;
        // SAFETY: the caller's; a number to write to.
        match unsafe { (self.event_elapsed)(&mut milliseconds, begin, end) } {
            NOT_READY => Ok(None),
            code => self.check("hipEventElapsedTime", code).map(|()| Some(milliseconds)),
        }
    }

    fn exchange_capture_mode(&self, mut mode: i32) -> i32 {
        // SAFETY: exchanges the thread's mode for the one given.
        unsafe { (self.capture_mode)(&mut mode) };
        mode
    }

    unsafe fn capture_begin(&self, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipStreamBeginCapture", unsafe { (self.capture_begin)(stream, CAPTURE_THREAD_LOCAL) })
    }

    unsafe fn capture_end(&self, stream: Handle) -> Result<Handle> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the caller's; a handle to write to.
        self.check("hipStreamEndCapture", unsafe { (self.capture_end)(stream, &mut graph) })?;
        Ok(graph)
    }

    unsafe fn graph_instantiate(&self, graph: Handle) -> Result<Handle> {
        let mut exec = std::ptr::null_mut();
        // SAFETY: the caller's; a handle to write to.
        self.check("hipGraphInstantiateWithFlags", unsafe { (self.graph_instantiate)(&mut exec, graph, 0) })?;
        Ok(exec)
    }

    unsafe fn graph_root(&self, graph: Handle) -> Result<Option<Handle>> {
        let (mut first, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: the caller's; asked for no handles, the call tells their number.
        let code = unsafe { (self.graph_roots)(graph, std::ptr::null_mut(), &mut count) };
        self.check("hipGraphGetRootNodes", code)?;
        if count != 1 {
            return Ok(None);
        }
        // SAFETY: the caller's; room for the one handle.
        self.check("hipGraphGetRootNodes", unsafe { (self.graph_roots)(graph, &mut first, &mut count) })?;
        Ok(Some(first))
    }

    unsafe fn graph_launch(&self, exec: Handle, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check("hipGraphLaunch", unsafe { (self.graph_launch)(exec, stream) })
    }

    unsafe fn graph_set_kernel(&self, exec: Handle, node: Handle, launch: &mut Launch) -> Result<()> {
        let parameters = KernelNode {
            block: launch.block,
            extra: std::ptr::null_mut(),
            function: launch.function,
            grid: launch.grid,
            arguments: launch.arguments.as_mut_ptr(),
            shared: launch.shared,
        };
        // SAFETY: the caller's.
        let code = unsafe { (self.graph_set_kernel)(exec, node, &parameters) };
        self.check("hipGraphExecKernelNodeSetParams", code)
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
        self.check("hipModuleLoadData", unsafe { (self.module_load)(&mut module, image.as_ptr().cast()) })?;
        Ok(module)
    }

    unsafe fn module_function(&self, module: Handle, name: &CStr) -> Result<Handle> {
        let mut function = std::ptr::null_mut();
        // SAFETY: the caller's; the name ends in zero.
        let code = unsafe { (self.module_function)(&mut function, module, name.as_ptr()) };
        self.check(&format!("hipModuleGetFunction({})", name.to_string_lossy()), code)?;
        Ok(function)
    }

    /// AMD's launches may ask for all of a block's shared memory without being allowed to first, and old runtimes refuse the question for
    /// kernels of modules: a launch that asks for too much is an error of its own.
    unsafe fn allow_shared(&self, function: Handle, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { (self.function_attribute)(function, FUNCTION_SHARED_MEMORY, bytes as i32) };
        Ok(())
    }

    #[inline]
    unsafe fn launch(&self, launch: &mut Launch) -> Result<()> {
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        let (shared, stream, arguments) = (launch.shared, launch.stream, launch.arguments.as_mut_ptr());
        // SAFETY: the caller's.
        let code = unsafe {
            (self.launch)(launch.function, gx, gy, gz, bx, by, bz, shared, stream, arguments, std::ptr::null_mut())
        };
        self.check("hipModuleLaunchKernel", code)
    }

    /// The address on the PCI bus, and the UUID where the runtime tells it: parts of a divided GPU may share one of them.
    fn identity(&self) -> Result<Vec<u8>> {
        let (mut device, mut bus, mut uuid) = (0, [0 as c_char; 64], [0; 16]);
        // SAFETY: an integer, a text whose length is passed, and 16 bytes to write to.
        unsafe {
            self.check("hipGetDevice", (self.device_current)(&mut device))?;
            let code = (self.device_bus)(bus.as_mut_ptr(), bus.len() as c_int, device);
            self.check("hipDeviceGetPCIBusId", code)?;
            if let Some(get) = self.device_uuid {
                get(&mut uuid, device);
            }
        }
        Ok(bus.iter().take_while(|&&c| c != 0).map(|&c| c as u8).chain(uuid).collect())
    }

    unsafe fn share_memory(&self, ptr: DevicePtr) -> Result<Vec<u8>> {
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: the caller's; a handle to write to.
        self.check("hipIpcGetMemHandle", unsafe { (self.ipc_share)(&mut handle, ptr) })?;
        Ok(handle.0.to_vec())
    }

    fn open_shared(&self, token: &[u8]) -> Result<DevicePtr> {
        let handle = <[u8; 64]>::try_from(token)
            .map_err(|_| Error::value(format!("a handle of shared memory has 64 bytes, not {}", token.len())))?;
        let mut ptr = 0;
        // SAFETY: an address to write to; the runtime checks the handle.
        let code = unsafe { (self.ipc_open)(&mut ptr, IpcHandle(handle), IPC_PEER_ACCESS) };
        self.check("hipIpcOpenMemHandle", code)?;
        Ok(ptr)
    }

    unsafe fn close_shared(&self, ptr: DevicePtr) {
        // SAFETY: the caller's.
        unsafe { (self.ipc_close)(ptr) };
    }
}
