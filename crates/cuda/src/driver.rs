//! NVIDIA's driver: the functions that the engine calls, and their errors.

use rushlight_core::{Error, Result};
use rushlight_gpu::vendor::calls::FUNCTION_SHARED_MEMORY;
use rushlight_gpu::vendor::driver::{Boxes, DevicePtr, Handle, Launch, TensorMap};
use std::ffi::{c_char, c_int, c_uint, c_void};

rushlight_gpu::driver_api! {
    /// `libcuda`, which comes with the display driver.
    Driver(
        crate::SEARCH,
        "The NVIDIA driver (libcuda)",
        &["libcuda.so.1", "libcuda.so", "nvcuda.dll"],
        "Install an NVIDIA driver, or use Device::Cpu."
    ), prefix: "cu", version: "_v2", node: KernelNode {
        fn version = "cuDriverGetVersion" (*mut c_int);
        fn device_count = "cuDeviceGetCount" (*mut c_int);
        fn device_get = "cuDeviceGet" (*mut c_int, c_int);
        fn context_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
        fn context_set = "cuCtxSetCurrent" (Handle);
        fn synchronize = "cuCtxSynchronize" ();
        fn alloc = "cuMemAlloc_v2" (*mut DevicePtr, usize);
        fn free = "cuMemFree_v2" (DevicePtr);
        fn host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        fn host_free = "cuMemFreeHost" (*mut c_void);
        fn host_device_ptr = "cuMemHostGetDevicePointer_v2" (*mut DevicePtr, *mut c_void, c_uint);
        fn copy_to_peer = "cuMemcpyPeerAsync" (DevicePtr, Handle, DevicePtr, Handle, usize, Handle);
        fn event_create = "cuEventCreate" (*mut Handle, c_uint);
        fn launch = "cuLaunchKernelEx" (*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
        fn context_device = "cuCtxGetDevice" (*mut c_int);
        fn device_uuid = "cuDeviceGetUuid" (*mut [u8; 16], c_int);
        optional fn error_string = "cuGetErrorString" (c_int, *mut *const c_char);
        optional fn device_uuid_of_part = "cuDeviceGetUuid_v2" (*mut [u8; 16], c_int);
        optional fn stream_write_value = "cuStreamWriteValue32_v2" (Handle, DevicePtr, u32, c_uint);
        optional fn stream_wait_value = "cuStreamWaitValue32_v2" (Handle, DevicePtr, u32, c_uint);
        optional fn tensor_map = "cuTensorMapEncodeTiled" (
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
