//! The caching allocator: blocks cut from segments that the driver gives, merged again when they come back.
//!
//! All work of a device is issued to one stream, so a block may be used again as soon as it is freed: what used it before runs before. Requests
//! below 1 MiB share segments of 2 MiB; larger ones share segments of 20 MiB or get one of their own.

use rushlight_core::backend::MemoryStats;
use rushlight_core::{Error, Result};
use std::collections::{BTreeSet, HashMap};

/// Where segments come from.
pub trait Source {
    /// A segment, or `None` where it does not fit.
    fn take(&self, bytes: usize) -> Result<Option<u64>>;
    /// Gives a segment back.
    fn give(&self, ptr: u64);
    /// Bytes free on the device and bytes it has.
    fn available(&self) -> (usize, usize);
}

/// Sizes are multiples of this, which also is the alignment.
const UNIT: usize = 512;
/// Requests below this come from small segments.
const SMALL: usize = 1 << 20;
const SMALL_SEGMENT: usize = 2 << 20;
/// Requests below this come from shared large segments.
const LARGE: usize = 10 << 20;
const LARGE_SEGMENT: usize = 20 << 20;
/// Segments of their own are multiples of this.
const OWN_UNIT: usize = 2 << 20;

struct Block {
    size: usize,
    free: bool,
    small: bool,
    /// Neighbours within the segment.
    before: Option<u64>,
    after: Option<u64>,
}

/// The state of one device's allocator.
#[derive(Default)]
pub struct Pool {
    blocks: HashMap<u64, Block>,
    /// Free blocks by size, then address: small ones, large ones.
    free: [BTreeSet<(usize, u64)>; 2],
    stats: MemoryStats,
}

fn rounded(bytes: usize) -> Result<usize> {
    bytes
        .checked_next_multiple_of(UNIT)
        .filter(|&size| size <= isize::MAX as usize)
        .ok_or_else(|| Error::out_of_memory(format!("{bytes} bytes are more than any device has")))
}

impl Pool {
    /// What is held.
    pub fn stats(&self) -> MemoryStats {
        self.stats
    }

    /// Starts a new peak.
    pub fn reset_peak(&mut self) {
        self.stats.peak = self.stats.allocated;
    }

    /// A block of at least `bytes`, which is not zero. When the device is full, what is kept for reuse goes back first.
    pub fn alloc(&mut self, source: &impl Source, bytes: usize) -> Result<u64> {
        let size = rounded(bytes)?;
        let small = size < SMALL;
        let ptr = match self.smallest(size, small) {
            // A huge block is not cut up for a request that a segment of its own would serve, while there is room for one.
            Some((have, ptr)) if size < LARGE || have - size < LARGE_SEGMENT => ptr,
            _ => match self.grow(source, size, small) {
                Ok(ptr) => ptr,
                Err(full) => self.smallest(size, small).ok_or(full)?.1,
            },
        };
        self.claim(ptr, size);
        self.stats.allocated += self.blocks[&ptr].size;
        self.stats.peak = self.stats.peak.max(self.stats.allocated);
        Ok(ptr)
    }

    /// The smallest free block that is large enough.
    fn smallest(&self, size: usize, small: bool) -> Option<(usize, u64)> {
        self.free[small as usize].range((size, 0)..).next().copied()
    }

    fn grow(&mut self, source: &impl Source, size: usize, small: bool) -> Result<u64> {
        let segment = if small {
            SMALL_SEGMENT
        } else if size < LARGE {
            LARGE_SEGMENT
        } else {
            size.next_multiple_of(OWN_UNIT)
        };
        let mut taken = source.take(segment)?;
        if taken.is_none() {
            self.empty_cache(source);
            taken = source.take(segment)?;
        }
        let Some(ptr) = taken else {
            let (free, total) = source.available();
            let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
            return Err(Error::out_of_memory(format!(
                "CUDA out of memory: {:.1} MiB were asked for; tensors hold {:.1} MiB, {:.1} MiB are reserved, {:.1} of the device's {:.1} MiB \
                 are free. Use smaller batches, or drop tensors that are not needed",
                mib(size),
                mib(self.stats.allocated),
                mib(self.stats.reserved),
                mib(free),
                mib(total)
            )));
        };
        self.stats.reserved += segment;
        self.blocks.insert(ptr, Block { size: segment, free: true, small, before: None, after: None });
        self.free[small as usize].insert((segment, ptr));
        Ok(ptr)
    }

    /// Takes a free block, leaving what it has too much as a block of its own.
    fn claim(&mut self, ptr: u64, size: usize) {
        let Some(block) = self.blocks.get_mut(&ptr) else { return };
        let (have, small, after) = (block.size, block.small, block.after);
        self.free[small as usize].remove(&(have, ptr));
        block.free = false;
        let rest = have - size;
        if rest >= if small { UNIT } else { SMALL } {
            let cut = ptr + size as u64;
            block.size = size;
            block.after = Some(cut);
            self.blocks.insert(cut, Block { size: rest, free: true, small, before: Some(ptr), after });
            if let Some(next) = after.and_then(|a| self.blocks.get_mut(&a)) {
                next.before = Some(cut);
            }
            self.free[small as usize].insert((rest, cut));
        }
    }

    /// Takes a block back.
    pub fn free(&mut self, ptr: u64) {
        let Some(block) = self.blocks.get_mut(&ptr).filter(|block| !block.free) else { return };
        self.stats.allocated -= block.size;
        block.free = true;
        let (before, after, small) = (block.before, block.after, block.small);
        let mut start = ptr;
        if let Some(b) = before.filter(|b| self.blocks[b].free) {
            self.free[small as usize].remove(&(self.blocks[&b].size, b));
            self.join(b, ptr);
            start = b;
        }
        if let Some(a) = after.filter(|a| self.blocks[a].free) {
            self.free[small as usize].remove(&(self.blocks[&a].size, a));
            self.join(start, a);
        }
        self.free[small as usize].insert((self.blocks[&start].size, start));
    }

    /// Merges the second block into the first, its neighbour.
    fn join(&mut self, first: u64, second: u64) {
        let Some(gone) = self.blocks.remove(&second) else { return };
        if let Some(block) = self.blocks.get_mut(&first) {
            block.size += gone.size;
            block.after = gone.after;
        }
        if let Some(next) = gone.after.and_then(|a| self.blocks.get_mut(&a)) {
            next.before = Some(first);
        }
    }

    /// Gives segments that hold nothing back to the device.
    pub fn empty_cache(&mut self, source: &impl Source) {
        for pool in 0..2 {
            let whole: Vec<(usize, u64)> = self.free[pool]
                .iter()
                .copied()
                .filter(|(_, ptr)| self.blocks[ptr].before.is_none() && self.blocks[ptr].after.is_none())
                .collect();
            for (size, ptr) in whole {
                self.free[pool].remove(&(size, ptr));
                self.blocks.remove(&ptr);
                self.stats.reserved -= size;
                source.give(ptr);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A device of some size whose addresses never repeat.
    struct Fake {
        total: usize,
        held: RefCell<HashMap<u64, usize>>,
        next: RefCell<u64>,
    }

    impl Fake {
        fn new(total: usize) -> Self {
            Self { total, held: RefCell::default(), next: RefCell::new(1 << 30) }
        }

        fn used(&self) -> usize {
            self.held.borrow().values().sum()
        }
    }

    impl Source for Fake {
        fn take(&self, bytes: usize) -> Result<Option<u64>> {
            if self.used() + bytes > self.total {
                return Ok(None);
            }
            let mut next = self.next.borrow_mut();
            let ptr = *next;
            *next += bytes as u64 + (1 << 20);
            self.held.borrow_mut().insert(ptr, bytes);
            Ok(Some(ptr))
        }
        fn give(&self, ptr: u64) {
            assert!(self.held.borrow_mut().remove(&ptr).is_some(), "given back twice");
        }
        fn available(&self) -> (usize, usize) {
            (self.total - self.used(), self.total)
        }
    }

    #[test]
    fn blocks_never_overlap_and_all_come_back() {
        let (device, mut pool) = (Fake::new(1 << 32), Pool::default());
        let mut live: Vec<(u64, usize)> = Vec::new();
        let mut word = 1u64;
        for step in 0..4000 {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if live.len() > 40 || (step % 3 == 0 && !live.is_empty()) {
                let (ptr, _) = live.swap_remove((word >> 33) as usize % live.len());
                pool.free(ptr);
            } else {
                let bytes = 1 + (word >> 33) as usize % (1 << (4 + (word >> 20) % 22));
                let ptr = pool.alloc(&device, bytes).unwrap();
                assert_eq!(ptr % UNIT as u64, 0);
                assert!(live.iter().all(|&(p, b)| ptr + bytes as u64 <= p || p + b as u64 <= ptr));
                live.push((ptr, bytes));
            }
            assert!(pool.stats().allocated >= live.iter().map(|l| l.1).sum());
            assert_eq!(pool.stats().reserved, device.used());
        }
        for (ptr, _) in live {
            pool.free(ptr);
        }
        assert_eq!(pool.stats().allocated, 0);
        pool.empty_cache(&device);
        assert_eq!((pool.stats().reserved, device.used()), (0, 0));
        assert!(pool.stats().peak > 0);
        pool.reset_peak();
        assert_eq!(pool.stats().peak, 0);
    }

    #[test]
    fn a_steady_state_takes_nothing_from_the_device() {
        let (device, mut pool) = (Fake::new(1 << 32), Pool::default());
        let mut takes = Vec::new();
        for _ in 0..5 {
            let ptrs: Vec<u64> =
                [100, 5000, 1 << 20, 3 << 20, 64 << 20].map(|b| pool.alloc(&device, b).unwrap()).into();
            ptrs.into_iter().for_each(|p| pool.free(p));
            takes.push(*device.next.borrow());
        }
        assert!(takes.iter().all(|&t| t == takes[0]));
    }

    #[test]
    fn full_devices_are_told_of_after_the_cache_is_emptied() {
        let (device, mut pool) = (Fake::new(100 << 20), Pool::default());
        let a = pool.alloc(&device, 60 << 20).unwrap();
        pool.free(a);
        let b = pool.alloc(&device, 90 << 20).unwrap();
        let error = pool.alloc(&device, 20 << 20).unwrap_err();
        assert_eq!(error.kind(), rushlight_core::ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("20.0 MiB were asked for; tensors hold 90.0 MiB"), "{error}");
        pool.free(b);
        assert!(pool.alloc(&device, 20 << 20).is_ok());
        assert!(pool.alloc(&device, usize::MAX).is_err());
    }
}
