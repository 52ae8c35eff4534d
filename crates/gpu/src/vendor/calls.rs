//! Driver calls that CUDA and HIP share. Only the prefix of their names differs; the constants are equal.
//! [`driver_api!`](crate::driver_api!) declares a vendor's table of functions;
//! [`driver_errors`](crate::driver_errors) and [`driver_calls!`](crate::driver_calls!) generate the bodies.

/// Out of memory.
pub const OUT_OF_MEMORY: i32 = 2;
/// No GPU found.
pub const NO_DEVICE: i32 = 100;
/// Not ready: the queried work is still running.
pub const NOT_READY: i32 = 600;
/// Mapped host memory visible to all devices: `…PORTABLE | …DEVICEMAP`, `…Portable | …Mapped`.
pub const HOST_MAPPED: u32 = 1 | 2;
/// A stream that does not synchronise with the default one.
pub const STREAM_NON_BLOCKING: u32 = 1;
/// An event without timing.
pub const EVENT_WITHOUT_TIME: u32 = 2;
/// Capture mode in which calls of other threads do not invalidate a capture.
pub const CAPTURE_THREAD_LOCAL: i32 = 1;
/// Kernel attribute: maximum dynamic shared memory.
pub const FUNCTION_SHARED_MEMORY: i32 = 8;
/// Enables peer access when memory of another device is opened.
pub const IPC_PEER_ACCESS: u32 = 1;

/// `CUipcMemHandle`, `hipIpcMemHandle_t`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

/// Error methods of a table of functions with an optional `error_string`: `driver_errors!(Table, "CUDA")`.
#[macro_export]
macro_rules! driver_errors {
    ($Api:ident, $label:literal) => {
        impl $Api {
            /// An error that names the call, unless the code means success.
            #[inline]
            pub fn check(&self, call: &str, code: i32) -> rushlight_core::Result<()> {
                if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
            }

            /// Whether the queried work is done.
            fn ready(&self, call: &str, code: i32) -> rushlight_core::Result<bool> {
                if code == $crate::vendor::calls::NOT_READY { Ok(false) } else { self.check(call, code).map(|()| true) }
            }

            #[cold]
            fn error(&self, call: &str, code: i32) -> rushlight_core::Error {
                let mut text = std::ptr::null();
                // SAFETY: the driver writes the address of a constant string, or null.
                let known =
                    self.error_string.is_some_and(|say| unsafe { say(code, &mut text) } == 0) && !text.is_null();
                let text = match known {
                    // SAFETY: a constant string of the driver's.
                    true => unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned(),
                    false => "unknown".into(),
                };
                let message = format!(concat!($label, ": {} failed with error {}: {}"), call, code, text);
                match code == $crate::vendor::calls::OUT_OF_MEMORY {
                    true => rushlight_core::Error::out_of_memory(message),
                    false => rushlight_core::Error::device(message),
                }
            }
        }
    };
}

/// Declares a driver's table of functions ([`library_api`](crate::library_api)): those whose names differ by the
/// prefix, and in CUDA by a version at their end, and the vendor's own. `node` is the structure of a kernel's launch in
/// a graph.
#[macro_export]
macro_rules! driver_api {
    (
        $(#[$doc:meta])*
        $Api:ident($($place:tt)*), prefix: $prefix:literal, version: $version:literal, node: $Node:ident {
            $($own:tt)*
        }
    ) => {
        $crate::library_api! {
            $(#[$doc])*
            $Api($($place)*) {
                fn init = $prefix + "Init" (u32);
                fn device_name = $prefix + "DeviceGetName" (*mut std::ffi::c_char, i32, i32);
                fn device_attribute = $prefix + "DeviceGetAttribute" (*mut i32, i32, i32);
                fn device_memory = $prefix + "DeviceTotalMem" + $version (*mut usize, i32);
                fn memory_info = $prefix + "MemGetInfo" + $version (*mut usize, *mut usize);
                fn copy_to_device = $prefix + "MemcpyHtoDAsync" + $version (
                    $crate::vendor::driver::DevicePtr, *const std::ffi::c_void, usize, $crate::vendor::driver::Handle,
                );
                fn copy_to_host = $prefix + "MemcpyDtoHAsync" + $version (
                    *mut std::ffi::c_void, $crate::vendor::driver::DevicePtr, usize, $crate::vendor::driver::Handle,
                );
                fn copy_on_device = $prefix + "MemcpyDtoDAsync" + $version (
                    $crate::vendor::driver::DevicePtr, $crate::vendor::driver::DevicePtr, usize, $crate::vendor::driver::Handle,
                );
                fn stream_create = $prefix + "StreamCreateWithPriority" (*mut $crate::vendor::driver::Handle, u32, i32);
                fn stream_destroy = $prefix + "StreamDestroy" + $version ($crate::vendor::driver::Handle);
                fn stream_synchronize = $prefix + "StreamSynchronize" ($crate::vendor::driver::Handle);
                fn stream_query = $prefix + "StreamQuery" ($crate::vendor::driver::Handle);
                fn stream_wait = $prefix + "StreamWaitEvent" (
                    $crate::vendor::driver::Handle, $crate::vendor::driver::Handle, u32,
                );
                fn event_destroy = $prefix + "EventDestroy" + $version ($crate::vendor::driver::Handle);
                fn event_record = $prefix + "EventRecord" (
                    $crate::vendor::driver::Handle, $crate::vendor::driver::Handle,
                );
                fn event_query = $prefix + "EventQuery" ($crate::vendor::driver::Handle);
                fn event_synchronize = $prefix + "EventSynchronize" ($crate::vendor::driver::Handle);
                fn event_elapsed = $prefix + "EventElapsedTime" (
                    *mut f32, $crate::vendor::driver::Handle, $crate::vendor::driver::Handle,
                );
                fn capture_begin = $prefix + "StreamBeginCapture" + $version ($crate::vendor::driver::Handle, i32);
                fn capture_end = $prefix + "StreamEndCapture" (
                    $crate::vendor::driver::Handle, *mut $crate::vendor::driver::Handle,
                );
                fn capture_mode = $prefix + "ThreadExchangeStreamCaptureMode" (*mut i32);
                fn graph_instantiate = $prefix + "GraphInstantiateWithFlags" (
                    *mut $crate::vendor::driver::Handle, $crate::vendor::driver::Handle, u64,
                );
                fn graph_launch = $prefix + "GraphLaunch" (
                    $crate::vendor::driver::Handle, $crate::vendor::driver::Handle,
                );
                fn graph_roots = $prefix + "GraphGetRootNodes" (
                    $crate::vendor::driver::Handle, *mut $crate::vendor::driver::Handle, *mut usize,
                );
                fn graph_set_kernel = $prefix + "GraphExecKernelNodeSetParams" (
                    $crate::vendor::driver::Handle, $crate::vendor::driver::Handle, *const $Node,
                );
                fn graph_destroy = $prefix + "GraphDestroy" ($crate::vendor::driver::Handle);
                fn graph_exec_destroy = $prefix + "GraphExecDestroy" ($crate::vendor::driver::Handle);
                fn module_load = $prefix + "ModuleLoadData" (
                    *mut $crate::vendor::driver::Handle, *const std::ffi::c_void,
                );
                fn module_function = $prefix + "ModuleGetFunction" (
                    *mut $crate::vendor::driver::Handle, $crate::vendor::driver::Handle, *const std::ffi::c_char,
                );
                fn function_attribute = $prefix + "FuncSetAttribute" ($crate::vendor::driver::Handle, i32, i32);
                fn ipc_share = $prefix + "IpcGetMemHandle" (
                    *mut $crate::vendor::calls::IpcHandle, $crate::vendor::driver::DevicePtr,
                );
                fn ipc_open = $prefix + "IpcOpenMemHandle" + $version (
                    *mut $crate::vendor::driver::DevicePtr, $crate::vendor::calls::IpcHandle, u32,
                );
                fn ipc_close = $prefix + "IpcCloseMemHandle" ($crate::vendor::driver::DevicePtr);
                $($own)*
            }
        }
    };
}

/// Generates the methods of [`Driver`](crate::vendor::driver::Driver) from a table's functions, within its `impl`. The
/// arguments are the prefix of the functions' names, the names that differ otherwise, and the structure of a kernel
/// node in a
/// graph.
#[macro_export]
macro_rules! driver_calls {
    (
        prefix: $prefix:literal,
        synchronize: $synchronize:literal,
        alloc: $alloc:literal,
        host_alloc: $host_alloc:literal,
        host_device_ptr: $host_device_ptr:literal,
        node: $Node:ident $(,)?
    ) => {
        fn synchronize(&self) -> rushlight_core::Result<()> {
            // SAFETY: waits for the device of the calling thread.
            self.check($synchronize, unsafe { (self.synchronize)() })
        }

        fn memory_info(&self) -> (usize, usize) {
            let (mut free, mut total) = (0, 0);
            // SAFETY: two sizes to write to.
            unsafe { (self.memory_info)(&mut free, &mut total) };
            (free, total)
        }

        fn alloc(&self, bytes: usize) -> rushlight_core::Result<Option<$crate::vendor::driver::DevicePtr>> {
            let mut ptr = 0;
            // SAFETY: an address to write to.
            match unsafe { (self.alloc)(&mut ptr, bytes) } {
                $crate::vendor::calls::OUT_OF_MEMORY => Ok(None),
                code => self.check($alloc, code).map(|()| Some(ptr)),
            }
        }

        unsafe fn free(&self, ptr: $crate::vendor::driver::DevicePtr) {
            // SAFETY: the caller's. An error here belongs to an earlier call, which is reported elsewhere.
            unsafe { (self.free)(ptr) };
        }

        fn host_alloc(&self, bytes: usize) -> rushlight_core::Result<Option<*mut std::ffi::c_void>> {
            let mut ptr = std::ptr::null_mut();
            // SAFETY: an address to write to.
            match unsafe { (self.host_alloc)(&mut ptr, bytes, $crate::vendor::calls::HOST_MAPPED) } {
                $crate::vendor::calls::OUT_OF_MEMORY => Ok(None),
                code => self.check($host_alloc, code).map(|()| Some(ptr)),
            }
        }

        unsafe fn host_free(&self, ptr: *mut std::ffi::c_void) {
            // SAFETY: the caller's.
            unsafe { (self.host_free)(ptr) };
        }

        unsafe fn host_device_ptr(
            &self,
            ptr: *mut std::ffi::c_void,
        ) -> rushlight_core::Result<$crate::vendor::driver::DevicePtr> {
            let mut device = 0;
            // SAFETY: the caller's; an address to write to.
            self.check($host_device_ptr, unsafe { (self.host_device_ptr)(&mut device, ptr, 0) })?;
            Ok(device)
        }

        unsafe fn copy_to_device(
            &self,
            to: $crate::vendor::driver::DevicePtr,
            from: *const std::ffi::c_void,
            bytes: usize,
            stream: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "MemcpyHtoDAsync"), unsafe { (self.copy_to_device)(to, from, bytes, stream) })
        }

        unsafe fn copy_to_host(
            &self,
            to: *mut std::ffi::c_void,
            from: $crate::vendor::driver::DevicePtr,
            bytes: usize,
            stream: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "MemcpyDtoHAsync"), unsafe { (self.copy_to_host)(to, from, bytes, stream) })
        }

        unsafe fn copy_on_device(
            &self,
            to: $crate::vendor::driver::DevicePtr,
            from: $crate::vendor::driver::DevicePtr,
            bytes: usize,
            stream: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "MemcpyDtoDAsync"), unsafe { (self.copy_on_device)(to, from, bytes, stream) })
        }

        fn stream_create(&self, priority: i32) -> rushlight_core::Result<$crate::vendor::driver::Handle> {
            let mut handle = std::ptr::null_mut();
            // SAFETY: a handle to write to.
            let code =
                unsafe { (self.stream_create)(&mut handle, $crate::vendor::calls::STREAM_NON_BLOCKING, priority) };
            self.check(concat!($prefix, "StreamCreateWithPriority"), code)?;
            Ok(handle)
        }

        unsafe fn stream_destroy(&self, stream: $crate::vendor::driver::Handle) {
            // SAFETY: the caller's.
            unsafe { (self.stream_destroy)(stream) };
        }

        unsafe fn stream_synchronize(&self, stream: $crate::vendor::driver::Handle) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "StreamSynchronize"), unsafe { (self.stream_synchronize)(stream) })
        }

        unsafe fn stream_query(&self, stream: $crate::vendor::driver::Handle) -> rushlight_core::Result<bool> {
            // SAFETY: the caller's.
            self.ready(concat!($prefix, "StreamQuery"), unsafe { (self.stream_query)(stream) })
        }

        unsafe fn stream_wait(
            &self,
            stream: $crate::vendor::driver::Handle,
            event: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "StreamWaitEvent"), unsafe { (self.stream_wait)(stream, event, 0) })
        }

        fn event_create(&self, timed: bool) -> rushlight_core::Result<$crate::vendor::driver::Handle> {
            let mut handle = std::ptr::null_mut();
            let flags = if timed { 0 } else { $crate::vendor::calls::EVENT_WITHOUT_TIME };
            // SAFETY: a handle to write to.
            self.check(concat!($prefix, "EventCreateWithFlags"), unsafe { (self.event_create)(&mut handle, flags) })?;
            Ok(handle)
        }

        unsafe fn event_destroy(&self, event: $crate::vendor::driver::Handle) {
            // SAFETY: the caller's.
            unsafe { (self.event_destroy)(event) };
        }

        unsafe fn event_record(
            &self,
            event: $crate::vendor::driver::Handle,
            stream: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "EventRecord"), unsafe { (self.event_record)(event, stream) })
        }

        unsafe fn event_query(&self, event: $crate::vendor::driver::Handle) -> rushlight_core::Result<bool> {
            // SAFETY: the caller's.
            self.ready(concat!($prefix, "EventQuery"), unsafe { (self.event_query)(event) })
        }

        unsafe fn event_synchronize(&self, event: $crate::vendor::driver::Handle) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "EventSynchronize"), unsafe { (self.event_synchronize)(event) })
        }

        unsafe fn event_elapsed(
            &self,
            begin: $crate::vendor::driver::Handle,
            end: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<Option<f32>> {
            let mut milliseconds = 0.0;
            // SAFETY: the caller's; a number to write to.
            match unsafe { (self.event_elapsed)(&mut milliseconds, begin, end) } {
                $crate::vendor::calls::NOT_READY => Ok(None),
                code => self.check(concat!($prefix, "EventElapsedTime"), code).map(|()| Some(milliseconds)),
            }
        }

        fn exchange_capture_mode(&self, mut mode: i32) -> i32 {
            // SAFETY: exchanges the thread's mode for the one given.
            unsafe { (self.capture_mode)(&mut mode) };
            mode
        }

        unsafe fn capture_begin(&self, stream: $crate::vendor::driver::Handle) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "StreamBeginCapture"), unsafe {
                (self.capture_begin)(stream, $crate::vendor::calls::CAPTURE_THREAD_LOCAL)
            })
        }

        unsafe fn capture_end(
            &self,
            stream: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<$crate::vendor::driver::Handle> {
            let mut graph = std::ptr::null_mut();
            // SAFETY: the caller's; a handle to write to.
            self.check(concat!($prefix, "StreamEndCapture"), unsafe { (self.capture_end)(stream, &mut graph) })?;
            Ok(graph)
        }

        unsafe fn graph_instantiate(
            &self,
            graph: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<$crate::vendor::driver::Handle> {
            let mut exec = std::ptr::null_mut();
            // SAFETY: the caller's; a handle to write to.
            self.check(concat!($prefix, "GraphInstantiateWithFlags"), unsafe {
                (self.graph_instantiate)(&mut exec, graph, 0)
            })?;
            Ok(exec)
        }

        unsafe fn graph_root(
            &self,
            graph: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<Option<$crate::vendor::driver::Handle>> {
            let (mut first, mut count) = (std::ptr::null_mut(), 0);
            // SAFETY: the caller's; with no room for handles, the call returns their number.
            let code = unsafe { (self.graph_roots)(graph, std::ptr::null_mut(), &mut count) };
            self.check(concat!($prefix, "GraphGetRootNodes"), code)?;
            if count != 1 {
                return Ok(None);
            }
            // SAFETY: the caller's; room for the one handle.
            self.check(concat!($prefix, "GraphGetRootNodes"), unsafe {
                (self.graph_roots)(graph, &mut first, &mut count)
            })?;
            Ok(Some(first))
        }

        unsafe fn graph_launch(
            &self,
            exec: $crate::vendor::driver::Handle,
            stream: $crate::vendor::driver::Handle,
        ) -> rushlight_core::Result<()> {
            // SAFETY: the caller's.
            self.check(concat!($prefix, "GraphLaunch"), unsafe { (self.graph_launch)(exec, stream) })
        }

        unsafe fn graph_set_kernel(
            &self,
            exec: $crate::vendor::driver::Handle,
            node: $crate::vendor::driver::Handle,
            launch: &mut $crate::vendor::driver::Launch,
        ) -> rushlight_core::Result<()> {
            let parameters = $Node {
                block: launch.block,
                extra: std::ptr::null_mut(),
                function: launch.function,
                grid: launch.grid,
                arguments: launch.arguments.as_mut_ptr(),
                shared: launch.shared,
            };
            // SAFETY: the caller's.
            let code = unsafe { (self.graph_set_kernel)(exec, node, &parameters) };
            self.check(concat!($prefix, "GraphExecKernelNodeSetParams"), code)
        }

        unsafe fn graph_destroy(&self, graph: $crate::vendor::driver::Handle) {
            // SAFETY: the caller's.
            unsafe { (self.graph_destroy)(graph) };
        }

        unsafe fn graph_exec_destroy(&self, exec: $crate::vendor::driver::Handle) {
            // SAFETY: the caller's.
            unsafe { (self.graph_exec_destroy)(exec) };
        }

        unsafe fn module_load(&self, image: &[u8]) -> rushlight_core::Result<$crate::vendor::driver::Handle> {
            let mut module = std::ptr::null_mut();
            // SAFETY: the caller's; the image carries its own length.
            self.check(concat!($prefix, "ModuleLoadData"), unsafe {
                (self.module_load)(&mut module, image.as_ptr().cast())
            })?;
            Ok(module)
        }

        unsafe fn module_function(
            &self,
            module: $crate::vendor::driver::Handle,
            name: &std::ffi::CStr,
        ) -> rushlight_core::Result<$crate::vendor::driver::Handle> {
            let mut function = std::ptr::null_mut();
            // SAFETY: the caller's; the name ends in zero.
            let code = unsafe { (self.module_function)(&mut function, module, name.as_ptr()) };
            self.check(&format!(concat!($prefix, "ModuleGetFunction({})"), name.to_string_lossy()), code)?;
            Ok(function)
        }

        unsafe fn share_memory(&self, ptr: $crate::vendor::driver::DevicePtr) -> rushlight_core::Result<Vec<u8>> {
            let mut handle = $crate::vendor::calls::IpcHandle([0; 64]);
            // SAFETY: the caller's; a handle to write to.
            self.check(concat!($prefix, "IpcGetMemHandle"), unsafe { (self.ipc_share)(&mut handle, ptr) })?;
            Ok(handle.0.to_vec())
        }

        fn open_shared(&self, token: &[u8]) -> rushlight_core::Result<$crate::vendor::driver::DevicePtr> {
            let handle = <[u8; 64]>::try_from(token).map_err(|_| {
                rushlight_core::Error::value(format!("a handle of shared memory has 64 bytes, not {}", token.len()))
            })?;
            let mut ptr = 0;
            // SAFETY: an address to write to; the runtime checks the handle.
            let code = unsafe {
                (self.ipc_open)(
                    &mut ptr,
                    $crate::vendor::calls::IpcHandle(handle),
                    $crate::vendor::calls::IPC_PEER_ACCESS,
                )
            };
            self.check(concat!($prefix, "IpcOpenMemHandle"), code)?;
            Ok(ptr)
        }

        unsafe fn close_shared(&self, ptr: $crate::vendor::driver::DevicePtr) {
            // SAFETY: the caller's.
            unsafe { (self.ipc_close)(ptr) };
        }
    };
}
