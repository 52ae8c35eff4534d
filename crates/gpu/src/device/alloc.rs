//! Caching allocator: cuts blocks from the driver's segments and merges them again when they are freed.
//!
//! A pool serves one stream, or the recorded steps of one capture: a freed block can be reused at once, since work on
//! the stream is ordered. A block that other streams have used (`note_user`) is reused after they are done with it.
//! Requests below 1 MiB share segments of 2 MiB; larger ones share segments of 20 MiB or get a separate one.

use crate::hash::Map;
use rushlight_core::backend::MemoryStats;
use rushlight_core::{Error, Result};
use std::collections::BTreeSet;

/// The source of segments.
pub trait Source {
    /// Allocates a segment; `None` if the device is full.
    fn take(&self, bytes: usize) -> Result<Option<u64>>;
    /// Gives a segment back.
    fn give(&self, ptr: u64);
    /// Free and total bytes of the device.
    fn available(&self) -> (usize, usize);
    /// The device's name in errors.
    fn name(&self) -> &'static str {
        "CUDA"
    }
}

/// Size granularity and alignment.
const UNIT: usize = 512;
/// Requests below this come from small segments.
const SMALL: usize = 1 << 20;
const SMALL_SEGMENT: usize = 2 << 20;
/// Requests below this come from shared large segments.
const LARGE: usize = 10 << 20;
const LARGE_SEGMENT: usize = 20 << 20;
/// Dedicated segments are multiples of this.
const OWN_UNIT: usize = 2 << 20;

struct Block {
    size: usize,
    free: bool,
    small: bool,
    /// Neighbours within the segment.
    before: Option<u64>,
    after: Option<u64>,
}

/// The pool that memory belongs to.
pub type PoolId = u32;
/// The pool of a device's main stream.
pub const MAIN: PoolId = 0;

/// A point in a stream's work.
pub trait Fence: Send {
    /// Whether the work before this point is done.
    fn passed(&self) -> bool;
}

/// Blocks for reuse by one stream or one capture.
#[derive(Default)]
struct Pool {
    blocks: Map<u64, Block>,
    /// Free blocks by size, then address: small ones, large ones.
    free: [BTreeSet<(usize, u64)>; 2],
    allocated: usize,
    reserved: usize,
    /// Whether recorded steps use blocks that are marked free.
    recorded: bool,
    /// Peak of the bytes in use.
    most: usize,
}

/// The state of one device's allocator.
pub struct Memory {
    /// Pools; the main one is first.
    pools: Vec<(PoolId, Pool)>,
    next: PoolId,
    peak: usize,
    /// Streams that use a block of another stream's pool.
    users: Map<u64, Vec<u64>>,
    /// Freed blocks that another stream may still use.
    waiting: Vec<(u64, Vec<Box<dyn Fence>>)>,
}

impl Default for Memory {
    fn default() -> Self {
        let pools = vec![(MAIN, Pool::default())];
        Self { pools, next: MAIN + 1, peak: 0, users: Map::default(), waiting: Vec::new() }
    }
}

fn rounded(bytes: usize) -> Result<usize> {
    bytes
        .checked_next_multiple_of(UNIT)
        .filter(|&size| size <= isize::MAX as usize)
        .ok_or_else(|| Error::out_of_memory(format!("{bytes} bytes are more than any device has")))
}

impl Memory {
    /// The statistics.
    pub fn stats(&self) -> MemoryStats {
        let (mut allocated, mut reserved) = (0, 0);
        for (_, pool) in &self.pools {
            allocated += pool.allocated;
            reserved += pool.reserved;
        }
        MemoryStats { allocated, reserved, peak: self.peak }
    }

    /// A recorded step of these pools runs again: their peak memory is in use again, in addition to the other pools'
    /// memory.
    pub fn replayed(&mut self, ids: &[PoolId]) {
        let used = |(id, pool): &(PoolId, Pool)| if ids.contains(id) { pool.most } else { pool.allocated };
        self.peak = self.peak.max(self.pools.iter().map(used).sum());
    }

    /// Resets the peak.
    pub fn reset_peak(&mut self) {
        self.peak = self.stats().allocated;
    }

    /// A new pool for a stream, or for recorded steps, which use their blocks again at each replay.
    pub fn add_pool(&mut self, recorded: bool) -> PoolId {
        let id = self.next;
        self.next += 1;
        self.pools.push((id, Pool { recorded, ..Default::default() }));
        id
    }

    /// Ends a pool: its memory, used or free, moves to the main pool. Work that used it must run before the main
    /// stream's next work.
    pub fn remove_pool(&mut self, id: PoolId) {
        if id == MAIN {
            return;
        }
        if let Some(at) = self.pools.iter().position(|(other, _)| *other == id) {
            let (_, pool) = self.pools.remove(at);
            self.pools[0].1.absorb(pool);
        }
    }

    /// The pool that the block at `ptr` belongs to.
    pub fn owner(&self, ptr: u64) -> Option<PoolId> {
        self.pools.iter().find(|(_, pool)| pool.blocks.contains_key(&ptr)).map(|(id, _)| *id)
    }

    /// A block of at least `bytes`, which is not zero. When the device is full, cached memory is released first.
    pub fn alloc(&mut self, source: &impl Source, pool: PoolId, bytes: usize) -> Result<u64> {
        let size = rounded(bytes)?;
        if !self.waiting.is_empty() {
            self.collect();
        }
        let at = self.pools.iter().position(|(id, _)| *id == pool).unwrap_or(0);
        if at > 0 && self.pools[at].1.recorded {
            self.adopt(at, size);
        }
        let mut found = self.pools[at].1.take(source, size)?;
        if found.is_none() {
            self.empty_cache(source);
            found = self.pools[at].1.take(source, size)?;
        }
        let pool = &mut self.pools[at].1;
        let Some(ptr) = found.or_else(|| pool.smallest(size).map(|(_, ptr)| ptr)) else {
            return Err(self.full(source, size));
        };
        pool.claim(ptr, size);
        pool.most = pool.most.max(pool.allocated);
        self.peak = self.peak.max(self.pools.iter().map(|(_, pool)| pool.allocated).sum());
        Ok(ptr)
    }

    /// Moves an empty segment of the main pool to a pool of recorded steps that has no block of `size` bytes. Replays
    /// run on the main stream, after the work that used the segment.
    fn adopt(&mut self, at: usize, size: usize) {
        let [(_, main), others @ ..] = &mut self.pools[..] else { return };
        let Some((_, pool)) = others.get_mut(at - 1) else { return };
        if pool.smallest(size).is_some() {
            return;
        }
        let small = (size < SMALL) as usize;
        let fitting = main.free[small].range((size, 0)..).copied();
        let Some((bytes, ptr)) = { fitting }.find(|(_, ptr)| main.is_segment(*ptr)) else { return };
        main.free[small].remove(&(bytes, ptr));
        if let Some(block) = main.blocks.remove(&ptr) {
            pool.blocks.insert(ptr, block);
            pool.free[small].insert((bytes, ptr));
            main.reserved -= bytes;
            pool.reserved += bytes;
        }
    }

    #[cold]
    fn full(&self, source: &impl Source, size: usize) -> Error {
        let ((free, total), stats) = (source.available(), self.stats());
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        Error::out_of_memory(format!(
            "{} out of memory: {:.1} MiB were asked for; tensors hold {:.1} MiB, {:.1} MiB are reserved, {:.1} of the device's {:.1} MiB \
             are free. Use smaller batches, or drop tensors that are not needed",
            source.name(),
            mib(size),
            mib(stats.allocated),
            mib(stats.reserved),
            mib(free),
            mib(total)
        ))
    }

    /// Frees a block.
    pub fn free(&mut self, ptr: u64) {
        for (_, pool) in &mut self.pools {
            if pool.free(ptr) {
                return;
            }
        }
    }

    /// Records that a stream uses a block of another pool.
    pub fn note_user(&mut self, ptr: u64, stream: u64) {
        let streams = self.users.entry(ptr).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Forgets a stream whose work is done.
    pub fn remove_user(&mut self, stream: u64) {
        self.users.retain(|_, streams| {
            streams.retain(|&other| other != stream);
            !streams.is_empty()
        });
    }

    /// The other streams that used a block which is about to be freed.
    pub fn take_users(&mut self, ptr: u64) -> Option<Vec<u64>> {
        if self.users.is_empty() { None } else { self.users.remove(&ptr) }
    }

    /// Frees a block after all fences have passed.
    pub fn free_after(&mut self, ptr: u64, fences: Vec<Box<dyn Fence>>) {
        self.waiting.push((ptr, fences));
    }

    fn collect(&mut self) {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (done, waiting): (Vec<_>, Vec<_>) = waiting.partition(|(_, fences)| fences.iter().all(|f| f.passed()));
        self.waiting = waiting;
        done.iter().for_each(|(ptr, _)| self.free(*ptr));
    }

    /// Returns empty segments to the device.
    pub fn empty_cache(&mut self, source: &impl Source) {
        self.collect();
        self.pools.iter_mut().filter(|(_, pool)| !pool.recorded).for_each(|(_, pool)| pool.empty(source));
    }
}

impl Pool {
    /// Finds a free block for `size` bytes or allocates a segment; `None` if the device is full.
    fn take(&mut self, source: &impl Source, size: usize) -> Result<Option<u64>> {
        match self.smallest(size) {
            // Do not split a huge block for a request that could get a dedicated segment, while there is memory for
            // one. Recorded steps do: they keep their segments.
            Some((have, ptr)) if self.recorded || size < LARGE || have - size < LARGE_SEGMENT => Ok(Some(ptr)),
            _ => self.grow(source, size),
        }
    }

    /// The smallest free block that is large enough.
    fn smallest(&self, size: usize) -> Option<(usize, u64)> {
        self.free[(size < SMALL) as usize].range((size, 0)..).next().copied()
    }

    /// Whether a block is a whole segment.
    fn is_segment(&self, ptr: u64) -> bool {
        self.blocks.get(&ptr).is_some_and(|block| block.before.is_none() && block.after.is_none())
    }

    fn grow(&mut self, source: &impl Source, size: usize) -> Result<Option<u64>> {
        let small = size < SMALL;
        let segment = if small {
            SMALL_SEGMENT
        } else if size < LARGE {
            LARGE_SEGMENT
        } else {
            size.next_multiple_of(OWN_UNIT)
        };
        let Some(ptr) = source.take(segment)? else { return Ok(None) };
        self.reserved += segment;
        self.blocks.insert(ptr, Block { size: segment, free: true, small, before: None, after: None });
        self.free[small as usize].insert((segment, ptr));
        Ok(Some(ptr))
    }

    fn absorb(&mut self, other: Pool) {
        self.blocks.extend(other.blocks);
        for (own, more) in self.free.iter_mut().zip(other.free) {
            own.extend(more);
        }
        self.allocated += other.allocated;
        self.reserved += other.reserved;
    }

    /// Takes a free block and splits off the excess as another block.
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
            self.allocated += size;
        } else {
            self.allocated += have;
        }
    }

    /// Frees a block. Returns whether it belongs to this pool.
    fn free(&mut self, ptr: u64) -> bool {
        let Some(block) = self.blocks.get_mut(&ptr).filter(|block| !block.free) else { return false };
        self.allocated -= block.size;
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
        true
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

    /// Returns empty segments to the device.
    fn empty(&mut self, source: &impl Source) {
        for pool in 0..2 {
            let whole: Vec<(usize, u64)> =
                self.free[pool].iter().copied().filter(|(_, ptr)| self.is_segment(*ptr)).collect();
            for (size, ptr) in whole {
                self.free[pool].remove(&(size, ptr));
                self.blocks.remove(&ptr);
                self.reserved -= size;
                source.give(ptr);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::HashMap;

    /// A device of fixed size whose addresses never repeat.
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
        let (device, mut pool) = (Fake::new(1 << 32), Memory::default());
        let mut live: Vec<(u64, usize)> = Vec::new();
        let mut word = 1u64;
        for step in 0..4000 {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if live.len() > 40 || (step % 3 == 0 && !live.is_empty()) {
                let (ptr, _) = live.swap_remove((word >> 33) as usize % live.len());
                pool.free(ptr);
            } else {
                let bytes = 1 + (word >> 33) as usize % (1 << (4 + (word >> 20) % 22));
                let ptr = pool.alloc(&device, MAIN, bytes).unwrap();
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
        // A replayed step uses the same memory as when it was recorded.
        let recorded = pool.add_pool(true);
        let block = pool.alloc(&device, recorded, 4096).unwrap();
        pool.free(block);
        pool.reset_peak();
        pool.replayed(&[recorded]);
        assert_eq!((pool.stats().peak, pool.stats().allocated), (4096, 0));
    }

    #[test]
    fn a_steady_state_takes_nothing_from_the_device() {
        let (device, mut pool) = (Fake::new(1 << 32), Memory::default());
        let mut takes = Vec::new();
        for _ in 0..5 {
            let ptrs: Vec<u64> =
                [100, 5000, 1 << 20, 3 << 20, 64 << 20].map(|b| pool.alloc(&device, MAIN, b).unwrap()).into();
            ptrs.into_iter().for_each(|p| pool.free(p));
            takes.push(*device.next.borrow());
        }
        assert!(takes.iter().all(|&t| t == takes[0]));
    }

    #[test]
    fn full_devices_are_told_of_after_the_cache_is_emptied() {
        let (device, mut pool) = (Fake::new(100 << 20), Memory::default());
        let a = pool.alloc(&device, MAIN, 60 << 20).unwrap();
        pool.free(a);
        let b = pool.alloc(&device, MAIN, 90 << 20).unwrap();
        let error = pool.alloc(&device, MAIN, 20 << 20).unwrap_err();
        assert_eq!(error.kind(), rushlight_core::ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("20.0 MiB were asked for; tensors hold 90.0 MiB"), "{error}");
        pool.free(b);
        assert!(pool.alloc(&device, MAIN, 20 << 20).is_ok());
        assert!(pool.alloc(&device, MAIN, usize::MAX).is_err());
    }

    #[test]
    fn pools_share_nothing_until_one_ends() {
        let (device, mut memory) = (Fake::new(1 << 30), Memory::default());
        let own = memory.add_pool(true);
        let a = memory.alloc(&device, own, 1000).unwrap();
        assert_eq!(memory.owner(a), Some(own));
        memory.free(a);
        let b = memory.alloc(&device, MAIN, 1000).unwrap();
        assert_ne!(a, b);
        memory.empty_cache(&device);
        assert_eq!(memory.alloc(&device, own, 1000).unwrap(), a, "recorded steps keep their memory");
        memory.remove_pool(own);
        assert_eq!(memory.owner(a), Some(MAIN));
        memory.free(a);
        memory.free(b);
        memory.empty_cache(&device);
        assert_eq!((memory.stats().reserved, device.used()), (0, 0));
    }

    /// A training step of layers: activations, then gradients while activations are freed. The gradients of the step
    /// before are freed at its start. Returns the gradients.
    fn step(device: &Fake, memory: &mut Memory, pool: PoolId, old: Vec<u64>) -> Vec<u64> {
        const LAYERS: usize = 12;
        old.into_iter().for_each(|ptr| memory.free(ptr));
        let take = |memory: &mut Memory, mib: usize| memory.alloc(device, pool, mib << 20).unwrap();
        let mut saved: Vec<[u64; 2]> = (0..LAYERS).map(|_| [take(memory, 26), take(memory, 105)]).collect();
        let mut logits = take(memory, 800);
        let mut gradients = Vec::new();
        while let Some([narrow, wide]) = saved.pop() {
            let flowing = take(memory, 105);
            memory.free(logits);
            logits = flowing;
            gradients.push(take(memory, 41));
            memory.free(wide);
            gradients.push(take(memory, 31));
            memory.free(narrow);
        }
        memory.free(logits);
        gradients
    }

    /// A captured step takes no more from the device than the steps before it did.
    #[test]
    fn recorded_steps_take_the_memory_of_eager_ones() {
        let (device, mut memory) = (Fake::new(1 << 40), Memory::default());
        let parameters = memory.alloc(&device, MAIN, 500 << 20).unwrap();
        let mut gradients = step(&device, &mut memory, MAIN, Vec::new());
        for _ in 0..3 {
            gradients = step(&device, &mut memory, MAIN, gradients);
        }
        let eager = (memory.stats().peak, device.used());
        let recorded = memory.add_pool(true);
        let gradients = step(&device, &mut memory, recorded, gradients);
        assert!(device.used() <= eager.1, "while it is recorded: {} MiB, eager {}", device.used() >> 20, eager.1 >> 20);
        memory.empty_cache(&device);
        assert_eq!(device.used(), memory.stats().reserved);
        memory.reset_peak();
        memory.replayed(&[recorded]);
        assert!(memory.stats().peak <= eager.0, "{} MiB, eager {}", memory.stats().peak >> 20, eager.0 >> 20);
        // Little of what is reserved is in no use: the blocks' sizes differ.
        let (reserved, peak) = (memory.stats().reserved, memory.stats().peak);
        assert!(reserved <= peak + peak / 10, "{} MiB reserved for {}", reserved >> 20, peak >> 20);
        gradients.into_iter().chain([parameters]).for_each(|ptr| memory.free(ptr));
        memory.remove_pool(recorded);
        memory.empty_cache(&device);
        assert_eq!((memory.stats().reserved, device.used()), (0, 0));
    }

    #[test]
    fn blocks_wait_for_the_streams_that_use_them() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        struct Passed(Arc<AtomicBool>);
        impl Fence for Passed {
            fn passed(&self) -> bool {
                self.0.load(Relaxed)
            }
        }
        let (device, mut memory) = (Fake::new(1 << 30), Memory::default());
        let a = memory.alloc(&device, MAIN, 1000).unwrap();
        memory.note_user(a, 7);
        memory.note_user(a, 7);
        memory.note_user(a, 8);
        memory.remove_user(8);
        assert_eq!(memory.take_users(a), Some(vec![7]));
        let done = Arc::new(AtomicBool::new(false));
        memory.free_after(a, vec![Box::new(Passed(done.clone()))]);
        let b = memory.alloc(&device, MAIN, 1000).unwrap();
        assert_ne!(a, b);
        done.store(true, Relaxed);
        assert_eq!(memory.alloc(&device, MAIN, 1000).unwrap(), a);
    }
}
