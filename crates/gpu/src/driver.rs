//! Traits that a vendor implements: driver, run-time compiler, and optional libraries.
//!
//! The functions are those that CUDA and HIP both have. Each call that can fail returns an error that names the
//! vendor's function.

use crate::conv::{Order, Pass};
use crate::device::Gpu;
use crate::matmul::Gemm;
use crate::nccl::Nccl;
use rushlight_core::backend::{Conv, Linalg, Properties};
use rushlight_core::{DType, Device, Error, Result, View};
use std::ffi::{CStr, c_void};

/// An address on a device.
pub type DevicePtr = u64;
/// A context, a stream, an event, a module, a function, a graph: all are opaque addresses.
pub type Handle = *mut c_void;

/// A kernel's launch.
pub struct Launch<'a> {
    /// The kernel.
    pub function: Handle,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Where to; ignored for a node of a graph.
    pub stream: Handle,
    /// Whether the kernel may start while the one before it ends.
    pub overlap: bool,
    /// Addresses of the arguments.
    pub arguments: &'a mut [*mut c_void],
}

/// NVIDIA's `CUtensorMap`: a tensor as the bulk copy engine sees it, in the driver's own form.
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
    /// Bytes between elements of the outer three.
    pub strides: [u64; 3],
    /// Sizes of a box.
    pub boxes: [u32; 4],
}

/// A vendor's driver.
///
/// # Safety
/// Of every unsafe function: handles and addresses come from this driver and are alive, ranges are within their
/// allocations, the calling thread has entered the context of the device meant.
#[expect(clippy::missing_safety_doc, reason = "said once, above, for all of them")]
pub trait Driver: Send + Sync + 'static {
    /// Makes the calling thread's calls go to a device.
    unsafe fn enter(&self, context: Handle) -> Result<()>;
    /// Waits for all work of the device.
    fn synchronize(&self) -> Result<()>;

    /// Free and total bytes.
    fn memory_info(&self) -> (usize, usize);
    /// Memory of the device; `None` if there is not enough.
    fn alloc(&self, bytes: usize) -> Result<Option<DevicePtr>>;
    /// Takes it back, after the work that uses it.
    unsafe fn free(&self, ptr: DevicePtr);
    /// Host memory that all devices see; `None` if there is not enough.
    fn host_alloc(&self, bytes: usize) -> Result<Option<*mut c_void>>;
    /// Takes it back.
    unsafe fn host_free(&self, ptr: *mut c_void);
    /// Where the device sees such memory.
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

    /// A stream that does not wait for the default one. Lower priorities go first.
    fn stream_create(&self, priority: i32) -> Result<Handle>;
    /// Ends a stream.
    unsafe fn stream_destroy(&self, stream: Handle);
    /// Waits for a stream's work.
    unsafe fn stream_synchronize(&self, stream: Handle) -> Result<()>;
    /// Whether a stream's work is done.
    unsafe fn stream_query(&self, stream: Handle) -> Result<bool>;
    /// Later work of the stream waits for the event.
    unsafe fn stream_wait(&self, stream: Handle, event: Handle) -> Result<()>;
    /// The default stream, which other libraries use.
    fn default_stream(&self) -> Handle;

    /// An event.
    fn event_create(&self, timed: bool) -> Result<Handle>;
    /// Ends an event.
    unsafe fn event_destroy(&self, event: Handle);
    /// Places an event after a stream's work.
    unsafe fn event_record(&self, event: Handle, stream: Handle) -> Result<()>;
    /// Whether the work before it is done.
    unsafe fn event_query(&self, event: Handle) -> Result<bool>;
    /// Waits for the work before it.
    unsafe fn event_synchronize(&self, event: Handle) -> Result<()>;
    /// Milliseconds between two events; `None` if one is not past yet.
    unsafe fn event_elapsed(&self, begin: Handle, end: Handle) -> Result<Option<f32>>;

    /// The calling thread's capture mode, exchanged for another.
    fn exchange_capture_mode(&self, mode: i32) -> i32;
    /// Work given to the stream by the calling thread is noted from now on.
    unsafe fn capture_begin(&self, stream: Handle) -> Result<()>;
    /// Ends that: a graph.
    unsafe fn capture_end(&self, stream: Handle) -> Result<Handle>;
    /// Makes a graph ready to run.
    unsafe fn graph_instantiate(&self, graph: Handle) -> Result<Handle>;
    /// The node that all others come after; `None` if there are several.
    unsafe fn graph_root(&self, graph: Handle) -> Result<Option<Handle>>;
    /// Runs a graph.
    unsafe fn graph_launch(&self, exec: Handle, stream: Handle) -> Result<()>;
    /// Gives a kernel's node new arguments and a new grid.
    unsafe fn graph_set_kernel(&self, exec: Handle, node: Handle, launch: &mut Launch) -> Result<()>;
    /// Ends a graph.
    unsafe fn graph_destroy(&self, graph: Handle);
    /// Ends a graph that is ready to run.
    unsafe fn graph_exec_destroy(&self, exec: Handle);

    /// Loads machine code.
    unsafe fn module_load(&self, image: &[u8]) -> Result<Handle>;
    /// A kernel of a module.
    unsafe fn module_function(&self, module: Handle, name: &CStr) -> Result<Handle>;
    /// Lets a kernel use more than the usual dynamic shared memory.
    unsafe fn allow_shared(&self, function: Handle, bytes: usize) -> Result<()>;
    /// Launches a kernel.
    unsafe fn launch(&self, launch: &mut Launch) -> Result<()>;

    /// A unique identifier of the device of the calling thread's context.
    fn identity(&self) -> Result<Vec<u8>> {
        Err(unshared())
    }
    /// A token by which other processes of this machine open a whole allocation of [`alloc`](Driver::alloc).
    unsafe fn share_memory(&self, ptr: DevicePtr) -> Result<Vec<u8>> {
        let _ = ptr;
        Err(unshared())
    }
    /// Opens another process's allocation, also one of another device.
    fn open_shared(&self, token: &[u8]) -> Result<DevicePtr> {
        let _ = token;
        Err(unshared())
    }
    /// Closes it, after the work that uses it.
    unsafe fn close_shared(&self, ptr: DevicePtr) {
        let _ = ptr;
    }
    /// Whether streams write and await numbers by themselves; kernels do it where they do not.
    fn has_stream_values(&self) -> bool {
        false
    }
    /// The stream writes a number, after its work so far is visible everywhere.
    unsafe fn stream_write_value(&self, stream: Handle, at: DevicePtr, value: u32) -> Result<()> {
        let _ = (stream, at, value);
        Err(unshared())
    }
    /// The stream waits until the number at an address is at least `value`.
    unsafe fn stream_wait_value(&self, stream: Handle, at: DevicePtr, value: u32) -> Result<()> {
        let _ = (stream, at, value);
        Err(unshared())
    }

    /// Whether there is a bulk copy engine.
    fn has_bulk_copies(&self) -> bool {
        false
    }
    /// A tensor for the bulk copy engine.
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
    /// Runs calls that a thread may not make while it records a step, though they have no part in it: allocation,
    /// loading kernels.
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
    /// Whatever besides the source decides the machine code: the compiler's version and options.
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
    /// the library does not take it.
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
    /// [`Backend::linalg`](rushlight_core::Backend::linalg).
    fn linalg(&'static self, gpu: &Gpu, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()>;
}

/// A vendor's libraries. Each is opened once per device, whose context is current; instances live as long as the
/// process.
pub trait Libraries: Send + Sync + 'static {
    /// Matrix products.
    fn products(&self) -> Result<&'static dyn Products>;
    /// Convolutions; `None` leaves them to the engine's own kernels.
    fn convolutions(&self) -> Option<&'static dyn Convolutions>;
    /// Factorisations; an error leaves them to the CPU.
    fn factorisations(&self) -> Result<&'static dyn Factorisations>;
    /// The source of the profiler's records of kernels; by default the driver's events around each launch.
    fn activity(&self) -> &'static dyn rushlight_profile::Source {
        &crate::timing::EVENTS
    }
    /// Collectives across GPUs: NCCL, or a library with its interface (RCCL). An error says why it is unavailable.
    fn collectives(&self) -> Result<&'static Nccl> {
        Err(Error::unsupported("no library of collectives is known for this GPU"))
    }
}

/// Instructions that multiply tiles of matrices, as attention's kernels use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixUnits {
    /// None that our kernels use.
    Absent,
    /// NVIDIA's tensor cores, of a compute capability.
    TensorCores((i32, i32)),
    /// AMD's MFMA of tiles of 16 by 16 by 16 halves, for wavefronts of 64 lanes.
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
    /// The context, current in the calling thread.
    pub context: Handle,
    /// The device's properties.
    pub properties: Properties,
    /// Most shared memory of a block.
    pub shared_memory: usize,
    /// The target that kernels are compiled for.
    pub arch: String,
    /// Instructions that attention may use.
    pub matrix_units: MatrixUnits,
    /// Whether kernels may start while those before them end.
    pub overlap: bool,
}
