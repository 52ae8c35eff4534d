//! The engine's caching allocator.
//!
//! Fresh pages cost more than the arithmetic done on them, so freed blocks are kept. Sizes are rounded up to classes
//! (multiples of 64 bytes up to 1 KiB, then eight per power of two). Small blocks live in per-thread lists that need no
//! lock; larger ones, and the lists' overflow, in one shared cache. Blocks of 2 MiB and more are mapped on huge
//! pages.
//!
//! The cache hardly raises the peak of resident memory: before memory is taken from the system, the least recently used
//! blocks are released until the cache is within a quarter of the peak use.
//!
//! Built with `--cfg rushlight_exact_alloc` (`scripts/sanitize` does), every block comes from the system with its exact
//! size, so that an address sanitizer sees each access beyond it or after its end.

use rushlight_core::backend::MemoryStats;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::alloc::Layout;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// Alignment of every block: a cache line, and the widest vector.
const ALIGN: usize = 64;
/// Blocks up to this size are cached per thread.
const SMALL: usize = 64 << 10;
/// Blocks from this size on are mapped on huge pages.
const HUGE: usize = 2 << 20;
/// Maximum bytes of a class in one thread's list before half of it moves to the shared cache.
const THREAD_CLASS_BYTES: usize = 128 << 10;
/// Maximum difference between a thread's count of bytes in use and the global one.
const THREAD_COUNT_LAG: isize = 256 << 10;
/// Bytes that may be held in addition to the peak use: this much,
const SLACK: usize = 32 << 20;
/// and this fraction of the peak. A training step requests the same sizes again, but in another order: without spare
/// blocks, a tenth of a step goes into pages that were released too early.
const SLACK_PART: isize = 4;

const SMALL_CLASSES: usize = 64;
/// Up to 2^48 bytes, more than any machine's memory.
const CLASSES: usize = 16 + 8 * 38;

/// The class of a request of at most 2^48 bytes.
#[inline]
fn class_of(bytes: usize) -> usize {
    let last = bytes.max(1) - 1;
    if last < 1024 {
        return last / 64;
    }
    let log = last.ilog2() as usize;
    16 + (log - 10) * 8 + ((last >> (log - 3)) & 7)
}

/// The size of a class's blocks.
#[inline]
fn size_of_class(class: usize) -> usize {
    if class < 16 {
        return (class + 1) * 64;
    }
    let (log, eighth) = (10 + (class - 16) / 8, (class - 16) % 8);
    (9 + eighth) << (log - 3)
}

/// Bytes in use, in whole blocks.
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);
/// Bytes taken from the system.
static RESERVED: AtomicIsize = AtomicIsize::new(0);
/// Highest `ALLOCATED` since the user's last reset.
static PEAK: AtomicIsize = AtomicIsize::new(0);
/// Highest `ALLOCATED` since the cache was last emptied: the bound of the cache.
static HIGH_WATER: AtomicIsize = AtomicIsize::new(0);

/// Adds to the bytes in use; `highest` is the largest intermediate sum.
fn count(delta: isize, highest: isize) {
    let top = ALLOCATED.fetch_add(delta, Relaxed) + highest.max(delta);
    if top > PEAK.load(Relaxed) {
        PEAK.fetch_max(top, Relaxed);
    }
    if top > HIGH_WATER.load(Relaxed) {
        HIGH_WATER.fetch_max(top, Relaxed);
    }
}

/// One thread's free small blocks, each list linked through the first word of its blocks.
struct Local {
    heads: [Cell<*mut u8>; SMALL_CLASSES],
    lengths: [Cell<u32>; SMALL_CLASSES],
    /// Bytes in use not yet added to `ALLOCATED`, and their peak since the last update.
    delta: Cell<isize>,
    highest: Cell<isize>,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            heads: [const { Cell::new(std::ptr::null_mut()) }; SMALL_CLASSES],
            lengths: [const { Cell::new(0) }; SMALL_CLASSES],
            delta: Cell::new(0),
            highest: Cell::new(0),
        }
    };
}

impl Local {
    #[inline(always)]
    fn pop(&self, class: usize) -> Option<NonNull<u8>> {
        let head = NonNull::new(self.heads[class].get())?;
        // SAFETY: a listed block is free, at least 64 bytes long, and its first word links to the next one.
        self.heads[class].set(unsafe { head.cast::<*mut u8>().read() });
        self.lengths[class].set(self.lengths[class].get() - 1);
        Some(head)
    }

    #[inline(always)]
    fn push(&self, class: usize, block: NonNull<u8>) {
        // SAFETY: the block is free, aligned and at least 64 bytes long.
        unsafe { block.cast::<*mut u8>().write(self.heads[class].get()) };
        self.heads[class].set(block.as_ptr());
        self.lengths[class].set(self.lengths[class].get() + 1);
    }

    #[inline(always)]
    fn count(&self, delta: isize) {
        let now = self.delta.get() + delta;
        self.delta.set(now);
        if now > self.highest.get() {
            self.highest.set(now);
        }
        if now.abs() > THREAD_COUNT_LAG {
            self.tell();
        }
    }

    /// Adds this thread's counts to the global ones.
    #[cold]
    fn tell(&self) {
        count(self.delta.replace(0), self.highest.replace(0));
    }

    /// Moves blocks of a class to the shared cache until `keep` are left.
    #[cold]
    fn spill(&self, class: usize, keep: usize) {
        let mut shared = shared();
        while self.lengths[class].get() as usize > keep
            && let Some(block) = self.pop(class)
        {
            shared.put(class, block);
        }
    }

    fn spill_all(&self) {
        (0..SMALL_CLASSES).filter(|&c| self.lengths[c].get() > 0).for_each(|c| self.spill(c, 0));
        self.tell();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.spill_all();
    }
}

struct Block {
    ptr: NonNull<u8>,
    /// Time of the free, counted in frees.
    stamp: u64,
}

/// Free blocks of all classes, oldest first.
struct Shared {
    free: [VecDeque<Block>; CLASSES],
    clock: u64,
    /// The class of blocks in use that are larger than their request's class, by address.
    oversized: HashMap<NonNull<u8>, usize, std::hash::BuildHasherDefault<std::hash::DefaultHasher>>,
}

// SAFETY: the blocks are free memory that nothing else refers to.
unsafe impl Send for Shared {}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    free: [const { VecDeque::new() }; CLASSES],
    clock: 0,
    oversized: HashMap::with_hasher(std::hash::BuildHasherDefault::new()),
});

fn shared() -> MutexGuard<'static, Shared> {
    lock(&SHARED)
}

impl Shared {
    fn put(&mut self, class: usize, ptr: NonNull<u8>) {
        self.clock += 1;
        self.free[class].push_back(Block { ptr, stamp: self.clock });
    }

    /// A free block for a request of `class`, at most a quarter larger.
    fn take(&mut self, class: usize) -> Option<NonNull<u8>> {
        let limit = size_of_class(class) / 4 * 5;
        let candidates = class..CLASSES.min(class + 4);
        let found = candidates.take_while(|&c| size_of_class(c) <= limit).find(|&c| !self.free[c].is_empty())?;
        let block = self.free[found].pop_back()?.ptr;
        if found != class {
            self.oversized.insert(block, found);
        }
        Some(block)
    }

    /// Removes the least recently used blocks, at least `bytes` of them if the cache holds that much.
    fn evict(&mut self, bytes: usize) -> Vec<(NonNull<u8>, usize)> {
        let mut out = Vec::new();
        let mut gone = 0;
        while gone < bytes {
            let oldest = (0..CLASSES).filter(|&c| !self.free[c].is_empty()).min_by_key(|&c| self.free[c][0].stamp);
            let Some((class, block)) = oldest.and_then(|c| Some((c, self.free[c].pop_front()?))) else { break };
            gone += size_of_class(class);
            out.push((block.ptr, class));
        }
        out
    }
}

/// Memory from the system.
fn map(class: usize) -> Option<NonNull<u8>> {
    #[cfg(unix)]
    fork::guard();
    let size = size_of_class(class);
    let block = if size >= HUGE { pages::map(size)? } else { heap(size)? };
    RESERVED.fetch_add(size as isize, Relaxed);
    Some(block)
}

fn heap(size: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(size, ALIGN).ok()?;
    // SAFETY: requests are never for zero bytes.
    NonNull::new(unsafe { std::alloc::alloc(layout) })
}

/// Returns a block to the system.
///
/// # Safety
/// `ptr` came from `map(class)` and is not used afterwards.
unsafe fn unmap(ptr: NonNull<u8>, class: usize) {
    let size = size_of_class(class);
    // SAFETY: the caller's promise; each branch mirrors `map`'s.
    unsafe {
        if size >= HUGE {
            pages::unmap(ptr, size);
        } else if let Ok(layout) = Layout::from_size_align(size, ALIGN) {
            std::alloc::dealloc(ptr.as_ptr(), layout);
        }
    }
    RESERVED.fetch_sub(size as isize, Relaxed);
}

fn unmap_all(blocks: Vec<(NonNull<u8>, usize)>) {
    for (ptr, class) in blocks {
        // SAFETY: the blocks were taken out of the cache, whose blocks all came from `map` with their class.
        unsafe { unmap(ptr, class) }
    }
}

#[cfg(unix)]
mod pages {
    use super::HUGE;
    use std::ptr::NonNull;

    /// `size` bytes on a huge-page boundary.
    pub fn map(size: usize) -> Option<NonNull<u8>> {
        let padded = size.checked_add(HUGE)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh private mapping; the parts cut off below are within it.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), padded, access, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return None;
            }
            let base = base.cast::<u8>();
            let head = base.align_offset(HUGE);
            let tail = padded - head - size;
            if head > 0 {
                libc::munmap(base.cast(), head);
            }
            if tail > 0 {
                libc::munmap(base.add(head + size).cast(), tail);
            }
            let block = base.add(head);
            // Only advice: if the kernel refuses it, ordinary pages are used.
            #[cfg(target_os = "linux")]
            libc::madvise(block.cast(), size, libc::MADV_HUGEPAGE);
            NonNull::new(block)
        }
    }

    /// # Safety
    /// `ptr` came from `map(size)` and is not used afterwards.
    pub unsafe fn unmap(ptr: NonNull<u8>, size: usize) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(ptr.as_ptr().cast(), size) };
    }
}

#[cfg(not(unix))]
mod pages {
    use super::{ALIGN, Layout, heap};
    use std::ptr::NonNull;

    /// `size` bytes, aligned.
    pub fn map(size: usize) -> Option<NonNull<u8>> {
        heap(size)
    }

    /// # Safety
    /// `ptr` came from `map(size)` and is not used afterwards.
    pub unsafe fn unmap(ptr: NonNull<u8>, size: usize) {
        if let Ok(layout) = Layout::from_size_align(size, ALIGN) {
            // SAFETY: the caller's promise.
            unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) }
        }
    }
}

/// A child of `fork` has only the forking thread: the shared cache must not be locked by another one at that moment.
#[cfg(unix)]
mod fork {
    use super::{Shared, shared};
    use std::cell::UnsafeCell;
    use std::sync::{MutexGuard, Once};

    struct Held(UnsafeCell<Option<MutexGuard<'static, Shared>>>);
    // SAFETY: touched only by the thread that holds the lock, between `prepare` and `resume`.
    unsafe impl Sync for Held {}
    static HELD: Held = Held(UnsafeCell::new(None));

    extern "C" fn prepare() {
        let guard = shared();
        // SAFETY: this thread holds the lock.
        unsafe { *HELD.0.get() = Some(guard) };
    }

    extern "C" fn resume() {
        // SAFETY: the thread that forked, in the parent or as the child's only thread, holds the lock.
        drop(unsafe { (*HELD.0.get()).take() });
    }

    pub fn guard() {
        static ONCE: Once = Once::new();
        // SAFETY: the handlers have the required signatures and stay valid for the life of the process.
        ONCE.call_once(|| unsafe {
            libc::pthread_atfork(Some(prepare), Some(resume), Some(resume));
        });
    }
}

/// At least `bytes` of uninitialised memory, aligned to 64 bytes. Zero bytes give a valid block, too.
#[inline]
pub fn alloc(bytes: usize) -> Result<NonNull<u8>> {
    if cfg!(rushlight_exact_alloc) {
        let block = heap(bytes.max(1)).ok_or_else(|| out_of_memory(bytes))?;
        count(bytes as isize, bytes as isize);
        return Ok(block);
    }
    if bytes <= SMALL {
        let class = class_of(bytes);
        let block = LOCAL.try_with(|local| {
            let block = local.pop(class)?;
            local.count(size_of_class(class) as isize);
            Some(block)
        });
        if let Ok(Some(block)) = block {
            return Ok(block);
        }
    }
    alloc_shared(bytes)
}

#[cold]
fn alloc_shared(bytes: usize) -> Result<NonNull<u8>> {
    if bytes > 1 << 48 {
        return Err(out_of_memory(bytes));
    }
    let class = class_of(bytes);
    let size = size_of_class(class) as isize;
    let cached = if bytes <= SMALL { refill(class) } else { shared().take(class) };
    let block = match cached {
        Some(block) => block,
        None => {
            let held = RESERVED.load(Relaxed) + size;
            let in_use = HIGH_WATER.load(Relaxed).max(ALLOCATED.load(Relaxed) + size);
            let bound = in_use + in_use / SLACK_PART + SLACK as isize;
            if held > bound {
                let victims = shared().evict((held - bound) as usize);
                unmap_all(victims);
            }
            map(class)
                .or_else(|| {
                    empty_cache();
                    map(class)
                })
                .ok_or_else(|| out_of_memory(bytes))?
        }
    };
    if bytes > SMALL || LOCAL.try_with(|local| local.count(size)).is_err() {
        count(size, size);
    }
    Ok(block)
}

/// Takes a small block from the shared cache, and some more for this thread's list.
fn refill(class: usize) -> Option<NonNull<u8>> {
    let mut shared = shared();
    let first = shared.free[class].pop_back()?.ptr;
    // An error means that the thread is ending: then one block is enough.
    let _ = LOCAL.try_with(|local| {
        for _ in 0..thread_limit(class) / 2 {
            let Some(block) = shared.free[class].pop_back() else { break };
            local.push(class, block.ptr);
        }
    });
    Some(first)
}

/// How many blocks of a class a thread keeps.
#[inline(always)]
fn thread_limit(class: usize) -> usize {
    (THREAD_CLASS_BYTES / size_of_class(class)).min(512)
}

#[cold]
fn out_of_memory(bytes: usize) -> Error {
    let stats = memory_stats();
    Error::out_of_memory(format!(
        "out of memory on cpu: tried to allocate {}; {} are in use and {} cached",
        readable(bytes),
        readable(stats.allocated),
        readable(stats.reserved.saturating_sub(stats.allocated))
    ))
}

fn readable(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.2} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// Frees a block, from any thread.
///
/// # Safety
/// `ptr` came from [`alloc`] with the same `bytes`, and is not used afterwards.
#[inline]
pub unsafe fn free(ptr: NonNull<u8>, bytes: usize) {
    if cfg!(rushlight_exact_alloc) {
        if let Ok(layout) = Layout::from_size_align(bytes.max(1), ALIGN) {
            // SAFETY: `alloc` took the block from the system with this layout.
            unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) };
        }
        return count(-(bytes as isize), 0);
    }
    if bytes <= SMALL {
        let class = class_of(bytes);
        let done = LOCAL.try_with(|local| {
            local.push(class, ptr);
            local.count(-(size_of_class(class) as isize));
            let limit = thread_limit(class);
            if local.lengths[class].get() as usize > limit {
                local.spill(class, limit / 2);
            }
        });
        if done.is_ok() {
            return;
        }
    }
    free_shared(ptr, bytes);
}

#[cold]
fn free_shared(ptr: NonNull<u8>, bytes: usize) {
    let class = class_of(bytes);
    count(-(size_of_class(class) as isize), 0);
    let mut shared = shared();
    let class = if shared.oversized.is_empty() { class } else { shared.oversized.remove(&ptr).unwrap_or(class) };
    shared.put(class, ptr);
}

/// Bytes in use and bytes held, in whole blocks. Threads other than the caller's may have up to 256 KiB each not yet
/// counted.
pub fn memory_stats() -> MemoryStats {
    // An ending thread has added its counts already.
    let _ = LOCAL.try_with(Local::tell);
    let read = |counter: &AtomicIsize| counter.load(Relaxed).max(0) as usize;
    MemoryStats { allocated: read(&ALLOCATED), reserved: read(&RESERVED), peak: read(&PEAK) }
}

/// Resets the peak to the current use.
pub fn reset_peak_memory() {
    let _ = LOCAL.try_with(Local::tell);
    PEAK.store(ALLOCATED.load(Relaxed), Relaxed);
}

/// Returns every cached block to the system, except other threads' small ones.
pub fn empty_cache() {
    let _ = LOCAL.try_with(Local::spill_all);
    let blocks = shared().evict(usize::MAX);
    unmap_all(blocks);
    HIGH_WATER.store(ALLOCATED.load(Relaxed), Relaxed);
}

#[cfg(all(test, not(rushlight_exact_alloc)))]
mod tests {
    use super::*;
    use rushlight_core::ErrorKind;

    #[test]
    fn classes_cover_every_size_with_little_waste() {
        for bytes in (0..5000).chain((5000..1 << 27).step_by(99_991)).chain([1 << 40, (1 << 40) + 1, 1 << 48]) {
            let class = class_of(bytes);
            let size = size_of_class(class);
            assert!(size >= bytes && size.is_multiple_of(ALIGN), "{bytes} in {size}");
            assert!(size - bytes <= 64 || (size - bytes) * 8 <= bytes, "{bytes} in {size}");
            assert!(class == 0 || size_of_class(class - 1) < bytes);
        }
        assert_eq!(class_of(SMALL), SMALL_CLASSES - 1);
        assert_eq!(class_of(1 << 48), CLASSES - 1);
    }

    #[test]
    fn blocks_are_aligned_distinct_and_survive_other_threads() {
        let sizes = [0, 1, 63, 64, 65, 1000, 1025, 5000, SMALL, SMALL + 1, 1 << 20, HUGE, HUGE + 12345, 9 << 20];
        std::thread::scope(|scope| {
            for seed in 0..3u8 {
                scope.spawn(move || {
                    for round in 0..20u8 {
                        let mark = seed * 50 + round;
                        let blocks: Vec<_> = sizes.iter().map(|&n| (alloc(n).unwrap().as_ptr() as usize, n)).collect();
                        for &(address, n) in &blocks {
                            assert_eq!(address % ALIGN, 0);
                            // SAFETY: the block has `n` bytes of ours.
                            unsafe { std::ptr::write_bytes(address as *mut u8, mark, n) };
                        }
                        // Freed by another thread.
                        std::thread::spawn(move || {
                            for (address, n) in blocks {
                                let ptr = NonNull::new(address as *mut u8).unwrap();
                                // SAFETY: allocated above with `n` bytes, freed once.
                                unsafe {
                                    assert!((0..n).step_by(997).all(|i| ptr.add(i).read() == mark));
                                    free(ptr, n);
                                }
                            }
                        })
                        .join()
                        .unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn impossible_requests_are_errors() {
        for bytes in [usize::MAX, 1 << 60, (1 << 48) + 1, 1 << 47] {
            let e = alloc(bytes).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::OutOfMemory);
            assert!(e.to_string().contains("GiB"), "{e}");
        }
    }

    #[test]
    fn large_blocks_are_counted_and_reused() {
        const N: usize = 100 << 20;
        let before = memory_stats();
        let ptr = alloc(N).unwrap();
        let during = memory_stats();
        // Other tests allocate a little, too.
        assert!(during.allocated + (64 << 20) > before.allocated + N);
        assert!(during.peak >= N && during.reserved >= N);
        // SAFETY: allocated above, freed once each.
        unsafe { free(ptr, N) };
        // A slightly smaller request gets the same block, which keeps its true size.
        let smaller = N - N / 7;
        let again = alloc(smaller).unwrap();
        assert!(class_of(smaller) < class_of(N));
        // SAFETY: as above.
        unsafe {
            std::ptr::write_bytes(again.as_ptr(), 1, smaller);
            free(again, smaller);
        }
        empty_cache();
        assert!(memory_stats().reserved < N);
    }
}
