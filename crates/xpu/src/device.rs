//! One device: queues, memory, compiled kernels, and the fault record of kernels that meet an index out of range.

use crate::backend::XpuBackend;
use crate::driver::{Driver, Queue};
use crate::program::Kernels;
use rushlight_core::backend::Properties;
use rushlight_core::sync::lock;
use rushlight_core::{Backend, DType, Device, Error, Layout, Result, Storage, View};
use rushlight_gpu::device::alloc::{Fence, Memory, Source};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Fault record of a kernel that meets an index out of range; matches `Fault` in `prelude.cl`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Fault {
    taken: u32,
    there: u32,
    index: i64,
    size: i64,
}

/// A started device.
pub struct Xpu {
    pub device: Device,
    own: OnceLock<&'static XpuBackend>,
    pub driver: Box<dyn Driver>,
    pub properties: Properties,
    pub kernels: Kernels,
    /// The queue of all threads that have not chosen another.
    pub main: Queue,
    memory: Mutex<Memory>,
    fault: u64,
    /// Whether a kernel that checks indices was started since the fault was last read.
    checked: AtomicBool,
    /// Every call waits for its work (`RUSHLIGHT_XPU_SYNC=1`).
    sync: bool,
}

impl Xpu {
    pub fn start(device: Device, driver: Box<dyn Driver>, properties: Properties) -> Result<&'static XpuBackend> {
        let main = driver.create_queue()?;
        let fault = driver.alloc(size_of::<Fault>().next_multiple_of(64))?.ok_or_else(|| {
            Error::out_of_memory(format!("{device}: there is no memory to start with; other programs hold it"))
        })?;
        let xpu = Xpu {
            device,
            own: OnceLock::new(),
            driver,
            properties,
            kernels: Kernels::default(),
            main,
            memory: Mutex::default(),
            fault,
            checked: AtomicBool::new(false),
            sync: std::env::var("RUSHLIGHT_XPU_SYNC").is_ok_and(|v| v == "1"),
        };
        xpu.clear_fault()?;
        let started: &'static XpuBackend = Box::leak(Box::new(XpuBackend(xpu)));
        _ = started.0.own.set(started);
        Ok(started)
    }

    /// The engine, which lives as long as the process.
    pub fn engine(&self) -> Result<&'static XpuBackend> {
        self.own.get().copied().ok_or_else(|| Error::device(format!("{} is still starting", self.device)))
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// Allocates `bytes` (not zero).
    pub fn take_memory(&self, bytes: usize) -> Result<u64> {
        let pool = self.lane().pool;
        self.memory().alloc(self, pool, bytes)
    }

    /// Frees memory: at once, or after the other queues registered as users have passed it.
    pub fn give_memory(&self, address: u64) {
        let mut memory = self.memory();
        let Some(users) = memory.take_users(address) else { return memory.free(address) };
        let fences: Result<Vec<Box<dyn Fence>>> = users
            .into_iter()
            .map(|queue| Ok(Box::new(self.engine()?.0.fence(Queue(queue as usize))?) as Box<dyn Fence>))
            .collect();
        // Without a fence the end of the other queues' use is unknown, so the block is leaked.
        if let Ok(fences) = fences {
            memory.free_after(address, fences);
        }
    }

    /// Scratch memory of a call. Work issued before it is dropped may still use it: later work runs
    /// after.
    pub fn scratch(&self, bytes: usize) -> Result<Scratch<'_>> {
        Ok(Scratch { xpu: self, address: self.take_memory(bytes.max(1))? })
    }

    /// The calling thread's queue.
    pub fn queue(&self) -> Queue {
        self.lane().queue
    }

    /// Called after each launch.
    pub fn launched(&self) -> Result<()> {
        if self.sync { self.synchronize() } else { Ok(()) }
    }

    /// Waits for all work that this thread has issued, and reports an index out of range.
    pub fn synchronize(&self) -> Result<()> {
        self.driver.finish(self.queue())?;
        self.report_fault()
    }

    /// Copies from the device, after all work this thread has issued so far.
    pub fn read(&self, address: u64, dst: &mut [u8]) -> Result<()> {
        if !dst.is_empty() {
            // SAFETY: the caller has checked the range; we wait.
            unsafe { self.driver.copy(self.queue(), dst.as_mut_ptr() as u64, address, dst.len(), true)? };
        }
        self.report_fault()
    }

    /// Copies to the device; the source may be reused on return.
    pub fn write(&self, src: &[u8], address: u64) -> Result<()> {
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller has checked the range; we wait.
        unsafe { self.driver.copy(self.queue(), address, src.as_ptr() as u64, src.len(), true) }
    }

    /// Address of the fault record. The caller is about to start a kernel that may fail.
    pub fn fault(&self) -> u64 {
        self.checked.store(true, Relaxed);
        self.fault
    }

    fn clear_fault(&self) -> Result<()> {
        let none = [0u8; size_of::<Fault>()];
        self.write(&none, self.fault)
    }

    pub fn report_fault(&self) -> Result<()> {
        if !self.checked.swap(false, Relaxed) {
            return Ok(());
        }
        let mut fault = Fault::default();
        // SAFETY: our own memory, of this size; we wait.
        unsafe {
            self.driver.copy(self.queue(), (&raw mut fault) as u64, self.fault, size_of::<Fault>(), true)?;
        }
        if fault.there == 0 {
            return Ok(());
        }
        self.clear_fault()?;
        Err(Error::index(format!(
            "index {} is out of bounds for a dimension with size {} (found on {} in an earlier call; set RUSHLIGHT_XPU_SYNC=1 to have the call \
             itself report it)",
            fault.index, fault.size, self.device
        )))
    }

    /// An uninitialised contiguous tensor.
    pub fn temporary(&self, shape: &[usize], dtype: DType) -> Result<Temporary> {
        let layout = Layout::contiguous(shape)?;
        let storage = self.engine()?.alloc(layout.numel() * dtype.size())?;
        Ok(Temporary { storage, layout, dtype })
    }
}

impl Source for Xpu {
    fn take(&self, bytes: usize) -> Result<Option<u64>> {
        self.driver.alloc(bytes)
    }

    fn give(&self, address: u64) {
        // Running work may still use it after its owner is dropped.
        let idle = self.queues().into_iter().all(|queue| self.driver.finish(queue).is_ok());
        if idle {
            // SAFETY: from `take`; nothing uses it.
            unsafe { self.driver.free(address) };
        }
    }

    fn available(&self) -> (usize, usize) {
        let total = self.properties.memory;
        (total, total)
    }

    fn name(&self) -> &'static str {
        "XPU"
    }
}

/// A contiguous scratch tensor.
pub struct Temporary {
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

impl Temporary {
    pub fn view(&self) -> View<'_> {
        // SAFETY: contiguous, and the storage was allocated for it.
        unsafe { View::new_unchecked(&self.storage, &self.layout, self.dtype) }
    }
}

/// Scratch memory of a call, returned to the pool when dropped.
pub struct Scratch<'a> {
    xpu: &'a Xpu,
    pub address: u64,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.xpu.give_memory(self.address);
    }
}
