//! The boundary to a vendor's driver: memory, queues, programs, launches. OpenCL implements it (`driver_opencl`); Level
//! Zero could as well.
//!
//! OpenCL instead of Level Zero: its drivers exist for Intel GPUs, Intel CPUs and (PoCL) any CPU, so the engine runs
//! and is tested without a GPU, and its compiler takes C. Level Zero takes SPIR-V only, has GPUs only, and offers
//! nothing beyond this that the engine needs.

use crate::matmul_xmx::MatrixUnits;
use rushlight_core::Result;

/// An address that kernels use.
pub type Address = u64;

/// A queue of work, which runs in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queue(pub usize);

/// A compiled program.
#[derive(Clone, Copy, Debug)]
pub struct Program(pub usize);

/// A point in a queue's work.
#[derive(Debug)]
pub struct Mark(pub usize);

/// An entry point of a program. Its lock is held while arguments are set and the launch is issued.
pub struct Kernel {
    pub handle: usize,
    pub lock: std::sync::Mutex<()>,
}

/// An argument of a launch.
#[derive(Clone, Copy)]
pub enum Arg<'a> {
    /// Memory of the device.
    Memory(Address),
    /// A number or a plain struct.
    Value(&'a [u8]),
}

/// Properties of a device.
#[derive(Clone, Debug, Default)]
pub struct Abilities {
    pub name: String,
    pub driver: String,
    pub memory: usize,
    pub compute_units: usize,
    /// A CPU: work items of a group are vector lanes of one core.
    pub is_cpu: bool,
    pub f64: bool,
    /// Intel's GPU compiler, which has additional options.
    pub is_intel_gpu: bool,
    pub matrix_units: MatrixUnits,
    /// Everything that determines the compiled form of a program.
    pub fingerprint: String,
}

/// A device's driver. Handles live until they are released; those without a release function live as long as the
/// process.
pub trait Driver: Send + Sync {
    fn abilities(&self) -> &Abilities;

    /// Allocates device memory, aligned to at least 64 bytes; `None` if it is full.
    fn alloc(&self, bytes: usize) -> Result<Option<Address>>;
    /// # Safety
    /// `address` came from `alloc`, and no work that uses it is under way.
    unsafe fn free(&self, address: Address);
    /// Allocates pinned host memory; `None` if there is no more.
    fn host_alloc(&self, bytes: usize) -> Result<Option<Address>>;
    /// # Safety
    /// `address` came from `host_alloc`, and nothing uses it.
    unsafe fn host_free(&self, address: Address);
    /// Copies between host and device, or within either, in the queue's order; with `wait` it is done on return.
    ///
    /// # Safety
    /// Both ends are valid for `bytes` bytes until the copy is done.
    unsafe fn copy(&self, queue: Queue, to: u64, from: u64, bytes: usize, wait: bool) -> Result<()>;

    /// Compiles a text; the error has the compiler's log.
    fn build(&self, source: &str) -> Result<Program>;
    /// The compiled form of a program, to be loaded by a later process.
    fn image(&self, program: Program) -> Option<Vec<u8>>;
    /// Loads a program from its compiled form.
    fn load(&self, image: &[u8]) -> Result<Program>;
    /// An entry point.
    fn kernel(&self, program: Program, name: &str) -> Result<Kernel>;
    /// Starts a kernel on `groups` groups of `items` work items.
    ///
    /// # Safety
    /// The arguments are those the kernel declares, and its accesses are within their memory.
    unsafe fn launch(
        &self,
        queue: Queue,
        kernel: &Kernel,
        groups: [usize; 3],
        items: [usize; 3],
        args: &[Arg],
    ) -> Result<()>;

    fn create_queue(&self) -> Result<Queue>;
    /// # Safety
    /// The queue is not used any more.
    unsafe fn release_queue(&self, queue: Queue);
    /// Makes the device start the queued work.
    fn flush(&self, queue: Queue) -> Result<()>;
    /// Waits until all work of a queue is done.
    fn finish(&self, queue: Queue) -> Result<()>;
    /// A mark after all work issued to a queue.
    fn mark(&self, queue: Queue) -> Result<Mark>;
    /// Makes later work of a queue wait for a mark.
    fn wait_for(&self, queue: Queue, mark: &Mark) -> Result<()>;
    /// Whether the work before a mark is done.
    fn passed(&self, mark: &Mark) -> Result<bool>;
    /// Waits until the work before a mark is done.
    fn wait(&self, mark: &Mark) -> Result<()>;
    /// Time at which a passed mark was reached, in nanoseconds of the device's clock.
    fn time(&self, mark: &Mark) -> Result<u64>;
    fn release_mark(&self, mark: &Mark);
}
