//! Traits that a vendor implements: driver, run-time compiler, and optional libraries.
//!
//! The functions are those that CUDA and HIP both have. Each call that can fail returns an error that names the
//! vendor's function.

use crate::device::Gpu;
use crate::families::conv::{Order, Pass};
use crate::families::matmul::Gemm;
use crate::vendor::fft::FftLibrary;
use crate::vendor::nccl::Nccl;
use rushlight_core::backend::{Conv, Linalg, Properties};
use rushlight_core::{DType, Device, Error, Result, View};
use std::ffi::{CStr, c_void};

/// An address on a device.
pub type DevicePtr = u64;
/// An opaque handle: a context, stream, event, module, function or graph.
pub type Handle = *mut c_void;

/// A kernel's launch.
pub struct Launch<'a> {
    /// The kernel.
    pub function: Handle,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The stream; ignored for a graph node.
    pub stream: Handle,
    /// Whether the kernel may start while its predecessor ends.
    pub overlap: bool,
    /// Pointers to the arguments.
    pub arguments: &'a mut [*mut c_void],
}

/// NVIDIA's `CUtensorMap`: the driver's descriptor of a tensor for the bulk copy engine.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
pub struct TensorMap(pub [u64; 16]);

/// Boxes of half-precision elements for the bulk copy engine: four dimensions, innermost first.
pub struct Boxes {
    /// The first element.
    pub at: DevicePtr,
    /// Whether elements are `bf16`, not `f16`.
    pub bf16: bool,
    /// Sizes.
    pub sizes: [u64; 4],
    /// Strides of the outer three dimensions, in bytes.
    pub strides: [u64; 3],
    /// Sizes of a box.
    pub boxes: [u32; 4],
}

/// A vendor's driver.
///
/// # Safety
/// Of every unsafe function: handles and addresses come from this driver and are alive, ranges are within their
/// allocations, and the calling thread has entered the context of the device.
#[expect(clippy::missing_safety_doc, reason = "documented above, once for all of them")]
pub trait Driver: Send + Sync + 'static {
    /// Makes a device current in the calling thread.
    unsafe fn enter(&self, context: Handle) -> Result<()>;
    /// Waits for all work of the device.
    fn synchronize(&self) -> Result<()>;

    /// Free and total bytes.
    fn memory_info(&self) -> (usize, usize);
    /// Allocates device memory; `None` if there is not enough.
    fn alloc(&self, bytes: usize) -> Result<Option<DevicePtr>>;
    /// Frees device memory, after the work that uses it.
    unsafe fn free(&self, ptr: DevicePtr);
    /// Allocates mapped host memory, visible to all devices; `None` if there is not enough.
    fn host_alloc(&self, bytes: usize) -> Result<Option<*mut c_void>>;
    /// Frees mapped host memory.
    unsafe fn host_free(&self, ptr: *mut c_void);
    /// Device address of mapped host memory.
    unsafe fn host_device_ptr(&self, ptr: *mut c_void) -> Result<DevicePtr>;

    /// Copies from the host. Pageable memory has been read when the call returns.
    unsafe fn copy_to_device(&self, to: DevicePtr, from: *const c_void, bytes: usize, stream: Handle) -> Result<()>;
    /// Copies to the host.
    unsafe fn copy_to_host(&self, to: *mut c_void, from: DevicePtr, bytes: usize, stream: Handle) -> Result<()>;
    /// Copies within the device.
    unsafe fn copy_on_device(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle) -> Result<()>;
    /// Copies between devices, each address with its context.
    unsafe fn copy_to_peer(
        &self,
        to: (DevicePtr, Handle),
        from: (DevicePtr, Handle),
        bytes: usize,
        stream: Handle,
    ) -> Result<()>;

    /// Creates a stream that does not synchronise with the default one. Lower priorities run first.
    fn stream_create(&self, priority: i32) -> Result<Handle>;
    /// Destroys a stream.
    unsafe fn stream_destroy(&self, stream: Handle);
    /// Waits for a stream's work.
    unsafe fn stream_synchronize(&self, stream: Handle) -> Result<()>;
    /// Whether a stream's work is done.
    unsafe fn stream_query(&self, stream: Handle) -> Result<bool>;
    /// Makes later work of the stream wait for the event.
    unsafe fn stream_wait(&self, stream: Handle, event: Handle) -> Result<()>;
    /// The default stream, which other libraries use.
    fn default_stream(&self) -> Handle;

    /// An event.
    fn event_create(&self, timed: bool) -> Result<Handle>;
    /// Destroys an event.
    unsafe fn event_destroy(&self, event: Handle);
    /// Records an event in a stream.
    unsafe fn event_record(&self, event: Handle, stream: Handle) -> Result<()>;
    /// Whether the work before it is done.
    unsafe fn event_query(&self, event: Handle) -> Result<bool>;
    /// Waits for an event.
    unsafe fn event_synchronize(&self, event: Handle) -> Result<()>;
    /// Milliseconds between two events; `None` if one has not passed yet.
    unsafe fn event_elapsed(&self, begin: Handle, end: Handle) -> Result<Option<f32>>;

    /// Exchanges the calling thread's capture mode and returns the previous one.
    fn exchange_capture_mode(&self, mode: i32) -> i32;
    /// Starts capturing the work that the calling thread issues on the stream.
    unsafe fn capture_begin(&self, stream: Handle) -> Result<()>;
    /// Ends the capture and returns the graph.
    unsafe fn capture_end(&self, stream: Handle) -> Result<Handle>;
    /// Instantiates a graph.
    unsafe fn graph_instantiate(&self, graph: Handle) -> Result<Handle>;
    /// The root node of a graph; `None` if there are several.
    unsafe fn graph_root(&self, graph: Handle) -> Result<Option<Handle>>;
    /// Runs a graph.
    unsafe fn graph_launch(&self, exec: Handle, stream: Handle) -> Result<()>;
    /// Sets a kernel node's arguments and grid.
    unsafe fn graph_set_kernel(&self, exec: Handle, node: Handle, launch: &mut Launch) -> Result<()>;
    /// Ends a graph.
    unsafe fn graph_destroy(&self, graph: Handle);
    /// Destroys an instantiated graph.
    unsafe fn graph_exec_destroy(&self, exec: Handle);

    /// Loads machine code.
    unsafe fn module_load(&self, image: &[u8]) -> Result<Handle>;
    /// A kernel of a module.
    unsafe fn module_function(&self, module: Handle, name: &CStr) -> Result<Handle>;
    /// Allows a kernel more than the default dynamic shared memory.
    unsafe fn allow_shared(&self, function: Handle, bytes: usize) -> Result<()>;
    /// Launches a kernel.
    unsafe fn launch(&self, launch: &mut Launch) -> Result<()>;

    /// Unique identifier of the current device.
    fn identity(&self) -> Result<Vec<u8>> {
        Err(unshared())
    }
    /// Exports a token with which other processes of this machine open a whole allocation of [`alloc`](Driver::alloc).
    unsafe fn share_memory(&self, ptr: DevicePtr) -> Result<Vec<u8>> {
        let _ = ptr;
        Err(unshared())
    }
    /// Opens an allocation of another process, possibly on another device.
    fn open_shared(&self, token: &[u8]) -> Result<DevicePtr> {
        let _ = token;
        Err(unshared())
    }
    /// Closes an opened allocation, after the work that uses it.
    unsafe fn close_shared(&self, ptr: DevicePtr) {
        let _ = ptr;
    }
    /// Whether streams can write and wait for memory values without a kernel.
    fn has_stream_values(&self) -> bool {
        false
    }
    /// Enqueues a write of a value, after the stream's earlier work is visible everywhere.
    unsafe fn stream_write_value(&self, stream: Handle, at: DevicePtr, value: u32) -> Result<()> {
        let _ = (stream, at, value);
        Err(unshared())
    }
    /// Makes the stream wait until the value at an address is at least `value`.
    unsafe fn stream_wait_value(&self, stream: Handle, at: DevicePtr, value: u32) -> Result<()> {
        let _ = (stream, at, value);
        Err(unshared())
    }

    /// Whether the device has a bulk copy engine.
    fn has_bulk_copies(&self) -> bool {
        false
    }
    /// Encodes a descriptor for the bulk copy engine.
    unsafe fn tensor_map(&self, boxes: &Boxes) -> Result<TensorMap> {
        let _ = boxes;
        Err(Error::unsupported("this GPU has no bulk copy engine"))
    }
}

#[cold]
fn unshared() -> Error {
    Error::unsupported("this GPU's driver does not share device memory between processes")
}

/// The capture mode in which a thread may make any call while it records: the same number in CUDA and HIP.
const RELAXED: i32 = 2;

impl dyn Driver {
    /// Runs calls that are forbidden on a recording thread although they are no part of the step: allocation, loading
    /// kernels.
    pub fn relaxed<T>(&self, f: impl FnOnce() -> T) -> T {
        let mode = self.exchange_capture_mode(RELAXED);
        let result = f();
        self.exchange_capture_mode(mode);
        result
    }
}

/// A run-time compiler.
pub trait Compiler: Send + Sync + 'static {
    /// Machine code for an architecture, such as "sm_90".
    fn build(&self, source: &str, name: &str, arch: &str) -> Result<Vec<u8>>;
    /// All inputs to compilation besides the source: the compiler's version and options.
    fn fingerprint(&self, arch: &str) -> Result<String>;
}

/// A library of matrix products, for one device.
pub trait Products: Send + Sync + 'static {
    /// Whether matrices of these strides can be read without packing.
    fn reads(&self, rows: usize, columns: usize, strides: [usize; 3]) -> bool;
    /// Runs a product with as much of its epilogue as the library fuses; `None` if it does not support the product.
    fn gemm(&'static self, gpu: &Gpu, g: &Gemm) -> Result<Option<Rest>>;
}

/// The part of a product's epilogue that the library did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Whether the bias is still to be added.
    pub bias: bool,
    /// Whether the activation is still to be applied.
    pub activation: bool,
}

/// A library of convolutions, for one device.
pub trait Convolutions: Send + Sync + 'static {
    /// One of the three computations, given the addresses of input, weight and output (or their gradients). `false` if
    /// the library does not support it.
    fn convolve(
        &'static self,
        gpu: &Gpu,
        pass: Pass,
        spec: &Conv,
        dtype: DType,
        order: Order,
        data: [DevicePtr; 3],
    ) -> Result<bool>;
}

/// A library of factorisations, for one device.
pub trait Factorisations: Send + Sync + 'static {
    /// [`call::Linalg`](rushlight_core::backend::call::Linalg).
    fn linalg(&'static self, gpu: &Gpu, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()>;
}

/// A vendor's libraries. Each is opened once per device, whose context is current; instances live as long as the
/// process.
pub trait Libraries: Send + Sync + 'static {
    /// Matrix products.
    fn products(&self) -> Result<&'static dyn Products>;
    /// Convolutions; `None` selects the engine's own kernels.
    fn convolutions(&self) -> Option<&'static dyn Convolutions>;
    /// Factorisations; on an error the CPU computes them.
    fn factorisations(&self) -> Result<&'static dyn Factorisations>;
    /// Fourier transforms; on an error the CPU computes them.
    fn transforms(&self) -> Result<&'static FftLibrary> {
        Err(Error::unsupported("no library of Fourier transforms is known for this GPU"))
    }
    /// Source of the profiler's kernel records; by default driver events around each launch.
    fn activity(&self) -> &'static dyn rushlight_profile::Source {
        &crate::device::timing::EVENTS
    }
    /// Collectives across GPUs: NCCL, or a library with its interface (RCCL). The error says why none is available.
    fn collectives(&self) -> Result<&'static Nccl> {
        Err(Error::unsupported("no library of collectives is known for this GPU"))
    }
}

/// Matrix instructions that attention's kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixUnits {
    /// None.
    Absent,
    /// NVIDIA's tensor cores of a compute capability.
    TensorCores((i32, i32)),
    /// AMD's MFMA with 16 x 16 x 16 tiles of halves, for wavefronts of 64 lanes.
    Mfma,
}

/// A device that the vendor has opened.
pub struct Opened {
    /// Its name.
    pub device: Device,
    /// The driver.
    pub driver: &'static dyn Driver,
    /// The compiler.
    pub compiler: &'static dyn Compiler,
    /// The libraries.
    pub libraries: &'static dyn Libraries,
    /// The context, which is current in the calling thread.
    pub context: Handle,
    /// The device's properties.
    pub properties: Properties,
    /// Maximum shared memory of a block.
    pub shared_memory: usize,
    /// The target that kernels are compiled for.
    pub arch: String,
    /// Matrix instructions that attention may use.
    pub matrix_units: MatrixUnits,
    /// Whether kernels may start while their predecessors end.
    pub overlap: bool,
}
