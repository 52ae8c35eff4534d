//! Pinned host memory, from which a device copies asynchronously.

use crate::backend::XpuBackend;
use crate::device::Xpu;
use crate::stream::MarkFence;
use rushlight_core::backend::{Pinned, PinnedMemory};
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result, Storage};
use rushlight_gpu::device::alloc::Fence;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// Sizes are powers of two from this on, so that blocks can be reused.
const MIN_BYTES: usize = 4096;

/// A block of pinned memory.
struct Block {
    xpu: &'static Xpu,
    size: usize,
    in_use: bool,
    /// Copies that may still be running.
    copies: Vec<MarkFence>,
}

impl Block {
    fn is_idle(&mut self) -> bool {
        self.copies.retain(|copy| !copy.passed());
        !self.in_use && self.copies.is_empty()
    }
}

/// All blocks by address. Freed blocks are kept for reuse.
static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

fn blocks() -> MutexGuard<'static, BTreeMap<usize, Block>> {
    lock(&BLOCKS)
}

/// A block owned by a tensor; returned to the cache when dropped.
struct Held(usize);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(block) = blocks().get_mut(&self.0) {
            block.in_use = false;
        }
    }
}

/// Pinned memory of this engine. Device 0 allocates it; the others copy from it as from any host memory.
pub struct HostMemory;

pub static HOST_MEMORY: HostMemory = HostMemory;

fn too_much(bytes: usize) -> Error {
    Error::out_of_memory(format!("pin_memory: {bytes} bytes of host memory cannot be pinned; pin smaller batches"))
}

impl PinnedMemory for HostMemory {
    fn alloc(&self, bytes: usize) -> Result<Pinned> {
        let size = bytes.max(MIN_BYTES).checked_next_power_of_two().ok_or_else(|| too_much(bytes))?;
        let kept = {
            let mut blocks = blocks();
            let mut fitting = blocks.iter_mut().filter(|(_, block)| block.size == size);
            fitting.find_map(|(&address, block)| {
                block.is_idle().then(|| {
                    block.in_use = true;
                    address
                })
            })
        };
        let address = match kept {
            Some(address) => address,
            None => {
                let xpu: &'static Xpu = &crate::started(0)?.0;
                let address = xpu.driver.host_alloc(size)?.ok_or_else(|| too_much(bytes))? as usize;
                blocks().insert(address, Block { xpu, size, in_use: true, copies: Vec::new() });
                address
            }
        };
        let ptr = NonNull::new(address as *mut u8).ok_or_else(|| too_much(bytes))?;
        Ok(Pinned { ptr, bytes, owner: Box::new(Held(address)) })
    }

    fn contains(&self, address: *const u8) -> bool {
        let blocks = blocks();
        let below = blocks.range(..=address as usize).next_back();
        below.is_some_and(|(start, block)| block.in_use && (address as usize) < start + block.size)
    }

    fn empty_cache(&self) -> Result<()> {
        blocks().retain(|&address, block| {
            let idle = block.is_idle();
            if idle {
                // SAFETY: from `host_alloc` of the same driver; neither the program nor a copy uses it.
                unsafe { block.xpu.driver.host_free(address as u64) };
            }
            !idle
        });
        Ok(())
    }
}

impl XpuBackend {
    /// Copies from pinned memory asynchronously. The block is not reused before the copy is done.
    ///
    /// # Safety
    /// `src` is valid for reads of `bytes` bytes until the copy is done; the range of `dst` was checked.
    pub unsafe fn copy_pinned(&self, src: *const u8, bytes: usize, dst: &Storage, offset: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let xpu: &'static Xpu = &self.0.engine()?.0;
        let queue = xpu.queue();
        // SAFETY: the caller's promise.
        unsafe { xpu.driver.copy(queue, dst.ptr() as u64 + offset as u64, src as u64, bytes, false)? };
        let done = xpu.fence(queue)?;
        match blocks().range_mut(..=src as usize).next_back() {
            Some((start, block)) if (src as usize) < start + block.size => block.copies.push(done),
            // Not pinned by this engine: nothing keeps the memory alive until the copy is done.
            _ => xpu.driver.finish(queue)?,
        }
        xpu.launched()
    }
}
