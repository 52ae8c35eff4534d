//! HIP's runtime: the functions that the engine calls, and their errors.
//!
//! HIP has no explicit contexts. A device's [`Handle`] is its index plus one, so that no handle is null.

use rushlight_core::Result;
use rushlight_gpu::vendor::calls::FUNCTION_SHARED_MEMORY;
use rushlight_gpu::vendor::driver::{DevicePtr, Handle, Launch};
use std::ffi::{c_char, c_int, c_uint, c_void};

rushlight_gpu::driver_api! {
    /// `libamdhip64`, the runtime.
    Hip(
        crate::SEARCH,
        "AMD's HIP runtime (libamdhip64)",
        &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
        "Install ROCm and load its module, or name the library's directory in RUSHLIGHT_HIP_PATH, or use Device::Cpu."
    ), prefix: "hip", version: "", node: KernelNode {
        fn driver_version = "hipDriverGetVersion" (*mut c_int);
        fn runtime_version = "hipRuntimeGetVersion" (*mut c_int);
        fn device_count = "hipGetDeviceCount" (*mut c_int);
        fn device_set = "hipSetDevice" (c_int);
        fn synchronize = "hipDeviceSynchronize" ();
        fn alloc = "hipMalloc" (*mut DevicePtr, usize);
        fn free = "hipFree" (DevicePtr);
        fn host_alloc = "hipHostMalloc" (*mut *mut c_void, usize, c_uint);
        fn host_free = "hipHostFree" (*mut c_void);
        fn host_device_ptr = "hipHostGetDevicePointer" (*mut DevicePtr, *mut c_void, c_uint);
        fn copy_to_peer = "hipMemcpyPeerAsync" (DevicePtr, c_int, DevicePtr, c_int, usize, Handle);
        fn event_create = "hipEventCreateWithFlags" (*mut Handle, c_uint);
        fn launch = "hipModuleLaunchKernel" (
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void,
        );
        fn device_current = "hipGetDevice" (*mut c_int);
        fn device_bus = "hipDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
        optional fn device_uuid = "hipDeviceGetUuid" (*mut [u8; 16], c_int);
        // Newer runtimes export the first symbol, older ones the second; their structures differ.
        optional fn properties_6 = "hipGetDevicePropertiesR0600" (*mut c_void, c_int);
        optional fn properties_5 = "hipGetDeviceProperties" (*mut c_void, c_int);
        optional fn error_string = "hipDrvGetErrorString" (c_int, *mut *const c_char);
    }
}

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

/// `hipDeviceAttribute…`.
pub mod attribute {
    pub const MULTIPROCESSORS: i32 = 63;
    pub const MAX_SHARED_MEMORY: i32 = 74;
    pub const WAVEFRONT: i32 = 87;
}

/// The handle that represents a device as the engine's context.
pub fn context(index: usize) -> Handle {
    (index + 1) as Handle
}

/// The device of a context.
fn index(context: Handle) -> c_int {
    context as usize as c_int - 1
}

impl Hip {
    /// The runtime's version, such as 60342134 for 6.3.42134; 0 if unknown.
    pub fn number(&self) -> i32 {
        let mut number = 0;
        // SAFETY: an integer to write to.
        unsafe { (self.runtime_version)(&mut number) };
        number
    }
}

rushlight_gpu::driver_errors!(Hip, "HIP");

impl rushlight_gpu::vendor::driver::Driver for Hip {
    rushlight_gpu::driver_calls! {
        prefix: "hip",
        synchronize: "hipDeviceSynchronize",
        alloc: "hipMalloc",
        host_alloc: "hipHostMalloc",
        host_device_ptr: "hipHostGetDevicePointer",
        node: KernelNode,
    }

    unsafe fn enter(&self, context: Handle) -> Result<()> {
        // SAFETY: a number of a device.
        self.check("hipSetDevice", unsafe { (self.device_set)(index(context)) })
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

    fn default_stream(&self) -> Handle {
        std::ptr::null_mut()
    }

    /// AMD launches may use all of a block's shared memory without opting in, and old runtimes refuse the call for
    /// module kernels. A launch that needs too much fails by itself.
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

    /// PCI bus address, and the UUID where the runtime reports it: partitions of one GPU may share either of them.
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
}
