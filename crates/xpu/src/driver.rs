//! The boundary to a vendor's driver: memory, queues, programs, launches. OpenCL implements it (`driver_opencl`); Level
//! Zero could as well.
//!
//! OpenCL and not Level Zero: its drivers exist for Intel's GPUs, Intel's CPUs and (PoCL) any CPU, so the engine runs
//! and is tested where there is no GPU, and its compiler takes C. Level Zero takes SPIR-V only, has GPUs only, and
//! offers nothing that the engine needs beyond this.

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

/// An entry point of a program. Arguments are set and the launch issued under its lock.
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

/// What a device can do.
#[derive(Clone, Debug, Default)]
pub struct Abilities {
    pub name: String,
    pub driver: String,
    pub memory: usize,
    pub compute_units: usize,
    /// A CPU: work items of a group are vector lanes of one core.
    pub is_cpu: bool,
    pub f64: bool,
    /// Intel's GPU compiler, which takes options of its own.
    pub is_intel_gpu: bool,
    pub matrix_units: MatrixUnits,
    /// Everything that decides what a compiled program looks like.
    pub fingerprint: String,
}

/// A device's driver. Handles live until they are released, or as long as the process where nothing releases them.
pub trait Driver: Send + Sync {
    fn abilities(&self) -> &Abilities;

    /// Memory of the device, aligned to 64 bytes at least; `None` where it is full.
    fn alloc(&self, bytes: usize) -> Result<Option<Address>>;
    /// # Safety
    /// `address` came from `alloc`, and no work that uses it is under way.
    unsafe fn free(&self, address: Address);
    /// Host memory that the device copies from and to by itself; `None` where there is no more.
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
    /// A program from its compiled form.
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
    /// Has the device begin what the queue holds.
    fn flush(&self, queue: Queue) -> Result<()>;
    /// Waits until all work of a queue is done.
    fn finish(&self, queue: Queue) -> Result<()>;
    /// A mark after all work a queue has been given.
    fn mark(&self, queue: Queue) -> Result<Mark>;
    /// Has later work of a queue wait for a mark.
    fn wait_for(&self, queue: Queue, mark: &Mark) -> Result<()>;
    /// Whether the work before a mark is done.
    fn passed(&self, mark: &Mark) -> Result<bool>;
    /// Waits until the work before a mark is done.
    fn wait(&self, mark: &Mark) -> Result<()>;
    /// When a mark that has passed was reached, in nanoseconds of the device's clock.
    fn time(&self, mark: &Mark) -> Result<u64>;
    fn release_mark(&self, mark: &Mark);
}
