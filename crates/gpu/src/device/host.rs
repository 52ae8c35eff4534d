//! Pinned host memory, and asynchronous copies.

use crate::backend::Fleet;
use crate::device::Gpu;
use crate::device::stream::Event;
use crate::vendor::driver::Driver;
use rushlight_core::backend;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result, Storage};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// Sizes are powers of two from this on, so that blocks can be reused.
const MIN_BYTES: usize = 4096;

/// A block of pinned memory.
struct Block {
    driver: &'static dyn Driver,
    size: usize,
    in_use: bool,
    /// Events of copies that may still be running.
    copies: Vec<Event>,
}

/// All blocks by address. Pinning is slow, so freed blocks are kept for reuse.
static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

fn blocks() -> MutexGuard<'static, BTreeMap<usize, Block>> {
    lock(&BLOCKS)
}

/// Pinned host memory. Returned to the cache when dropped.
pub struct Pinned {
    address: usize,
}

impl Pinned {
    /// Uninitialised pinned memory of `bytes`, usable by all devices of the driver.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let size = bytes.max(MIN_BYTES).checked_next_power_of_two().ok_or_else(|| too_much(bytes))?;
        {
            let mut blocks = blocks();
            for (&address, block) in blocks.iter_mut().filter(|(_, b)| !b.in_use && b.size == size) {
                block.copies.retain(|copy| !backend::Event::query(copy).unwrap_or(true));
                if block.copies.is_empty() {
                    block.in_use = true;
                    return Ok(Self { address });
                }
            }
        }
        gpu.enter()?;
        let driver = gpu.driver;
        let ptr = driver.relaxed(|| driver.host_alloc(size))?.ok_or_else(|| too_much(bytes))?;
        blocks().insert(ptr as usize, Block { driver, size, in_use: true, copies: Vec::new() });
        Ok(Self { address: ptr as usize })
    }

    /// The first byte.
    pub fn ptr(&self) -> *mut u8 {
        self.address as *mut u8
    }
}

fn too_much(bytes: usize) -> Error {
    Error::out_of_memory(format!("pin_memory: {bytes} bytes of host memory cannot be pinned; pin smaller batches"))
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(block) = blocks().get_mut(&self.address) {
            block.in_use = false;
        }
    }
}

/// Returns unused pinned memory to the system.
fn empty_cache() {
    blocks().retain(|&address, block| {
        block.copies.retain(|copy| !backend::Event::query(copy).unwrap_or(true));
        let keep = block.in_use || !block.copies.is_empty();
        if !keep {
            let driver = block.driver;
            // SAFETY: memory of the driver's that neither the program nor a copy uses.
            driver.relaxed(|| unsafe { driver.host_free(address as *mut _) });
        }
        keep
    });
}

/// Whether an address is in pinned memory.
pub fn is_pinned(address: *const u8) -> bool {
    let blocks = blocks();
    let below = blocks.range(..=address as usize).next_back();
    below.is_some_and(|(start, block)| block.in_use && (address as usize) < start + block.size)
}

/// Copies from pinned memory to a GPU without waiting: later work on this thread's stream sees the copy. The
/// memory is not reused before the copy is done, but its owner must not change it.
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes.
pub unsafe fn upload_pinned(src: *const u8, bytes: usize, dst: &Storage, offset: usize) -> Result<()> {
    if offset.checked_add(bytes).is_none_or(|end| end > dst.bytes()) {
        return Err(Error::value(format!(
            "upload_pinned: {bytes} bytes from byte {offset} do not fit a storage of {} bytes",
            dst.bytes()
        )));
    }
    let gpu = Gpu::of("upload_pinned", dst)?;
    gpu.refuse_recording("copying from the host")?;
    gpu.enter()?;
    let to = dst.ptr() as u64 + offset as u64;
    // SAFETY: the caller's, and the range was checked.
    unsafe { gpu.driver.copy_to_device(to, src.cast(), bytes, gpu.stream()?)? };
    note_copy(gpu, src)
}

fn note_copy(gpu: &Gpu, src: *const u8) -> Result<()> {
    let done = Event::at(gpu, gpu.lane().stream)?;
    if let Some((_, block)) = blocks().range_mut(..=src as usize).next_back() {
        block.copies.retain(|copy| !backend::Event::query(copy).unwrap_or(true));
        block.copies.push(done);
    }
    Ok(())
}

/// Copies `bytes` from one GPU's memory to another's, after all earlier work of both; later work of both
/// runs after the copy.
pub fn copy_between(src: &Storage, src_offset: usize, dst: &Storage, bytes: usize) -> Result<()> {
    if src_offset.checked_add(bytes).is_none_or(|end| end > src.bytes()) || bytes > dst.bytes() {
        return Err(Error::value(format!("copy_between: {bytes} bytes do not fit the storages")));
    }
    if bytes == 0 {
        return Ok(());
    }
    let (from, to) = (Gpu::of("copy_between", src)?, Gpu::of("copy_between", dst)?);
    from.refuse_recording("copying to another device")?;
    to.refuse_recording("copying from another device")?;
    Event::at(from, from.lane().stream)?.wait_on(to)?;
    to.enter()?;
    let source = src.ptr() as u64 + src_offset as u64;
    // SAFETY: the ranges were checked; contexts and stream are ours.
    let ends = ((dst.ptr() as u64, to.context), (source, from.context));
    unsafe { to.driver.copy_to_peer(ends.0, ends.1, bytes, to.stream()?)? };
    // The source may be freed and reused at once: the reuse is ordered after the copy.
    Event::at(to, to.lane().stream)?.wait_on(from)
}

impl backend::PinnedMemory for Fleet {
    fn alloc(&self, bytes: usize) -> Result<backend::Pinned> {
        let memory = Pinned::new(&self.started(0)?.0, bytes)?;
        let Some(ptr) = NonNull::new(memory.ptr()) else { return Err(too_much(bytes)) };
        Ok(backend::Pinned { ptr, bytes, owner: Box::new(memory) })
    }

    fn contains(&self, address: *const u8) -> bool {
        is_pinned(address)
    }

    fn empty_cache(&self) -> Result<()> {
        empty_cache();
        Ok(())
    }
}
