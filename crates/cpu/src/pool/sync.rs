//! The primitives the pool is built on: std's, or loom's when its model checker runs the pool (`scripts/sanitize
//! threads`).

pub use std::sync::Arc;

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicUsize},
    sync::{Mutex, MutexGuard},
    thread::{self, Thread},
};
#[cfg(not(loom))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicUsize},
    sync::{Mutex, MutexGuard},
    thread::{self, Thread},
};

/// Locks. Critical sections are short, so waiting is spinning: ThreadSanitizer follows that without a
/// standard library of its own. A thread that panicked under the lock left consistent state.
#[cfg(not(loom))]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    use std::sync::TryLockError;
    let mut backoff = Backoff::default();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(e)) => return e.into_inner(),
            Err(TryLockError::WouldBlock) => backoff.wait(false),
        }
    }
}

#[cfg(loom)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// One turn of a spin loop.
#[inline(always)]
pub fn pause() {
    #[cfg(loom)]
    thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Waits for another thread's task: spins, then yields, then sleeps for 1/16 of the time waited so far, so that a long
/// wait uses no core and ends at most 1/16 late.
#[derive(Default)]
pub struct Backoff {
    turns: u32,
    #[cfg(not(loom))]
    since: Option<std::time::Instant>,
}

impl Backoff {
    #[cfg(loom)]
    pub fn wait(&mut self, _crowded: bool) {
        self.turns += 1;
        thread::yield_now();
    }

    /// `crowded`: there are more threads than cores, so the awaited thread may need this core.
    #[cfg(not(loom))]
    pub fn wait(&mut self, crowded: bool) {
        // About 10 µs: on a busy machine the awaited thread may need this core.
        const SPINS: u32 = 200;
        const YIELDS: u32 = 1_000;
        self.turns += 1;
        if !crowded && self.turns < SPINS {
            return pause();
        }
        let since = *self.since.get_or_insert_with(std::time::Instant::now);
        if self.turns < SPINS + YIELDS {
            return thread::yield_now();
        }
        thread::sleep((since.elapsed() / 16).min(std::time::Duration::from_millis(10)));
    }
}
