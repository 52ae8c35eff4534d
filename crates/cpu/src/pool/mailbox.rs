//! Mailbox: the slot in which a worker receives a region.
//!
//! One word holds the worker's state, and every transfer of a region is a compare-and-swap of it, so an offer is
//! accepted by its worker or withdrawn by its caller, never both:
//!
//! ```text
//!            offer                take                 leave
//!   IDLE ───────────▶ region ───────────▶ region|TAKEN ───────▶ IDLE or BUSY
//!    │ ▲                │ withdraw
//!    │ └────────────────┘
//!    └──▶ ASLEEP ─────▶ region (and unpark)
//! ```

use super::region::Region;
use super::sync::{AtomicUsize, Thread, pause, thread};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::*;

/// Awake and without work.
const IDLE: usize = 0;
/// Parked: an offer must unpark it.
const ASLEEP: usize = 1;
/// Helps a region from the list of openings.
const BUSY: usize = 2;
/// Shutting down.
#[cfg(any(test, loom))]
const QUIT: usize = 3;
/// Added to the address of a region whose tasks the worker runs. Regions are aligned to far more than these numbers.
const TAKEN: usize = 1;
/// Added to the address of a region that is offered to a substitute.
const SUBSTITUTE: usize = 2;
/// Any address of a region is above this.
const LARGEST_STATE: usize = 7;

/// Reason of a worker's wake-up.
pub enum Call {
    /// A region was offered and taken. It stays alive until [`Mailbox::leave`].
    Region(*const Region, Role),
    /// There are openings; the mailbox takes no offers until [`Mailbox::leave`].
    Openings,
    #[cfg(any(test, loom))]
    Quit,
}

/// Role in which a worker is offered a region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Owner of its share, which recruits others. Offered once per worker and region.
    Member,
    /// Substitute for another worker. It recruits no other.
    Substitute,
}

#[repr(align(128))]
pub struct Mailbox {
    state: AtomicUsize,
    /// Set before the worker is counted.
    thread: OnceLock<Thread>,
    /// Offers made to this worker so far.
    #[cfg(test)]
    pub offers: std::sync::atomic::AtomicUsize,
}

impl Mailbox {
    pub fn new() -> Self {
        Self {
            state: AtomicUsize::new(IDLE),
            thread: OnceLock::new(),
            #[cfg(test)]
            offers: Default::default(),
        }
    }

    /// Registers the thread that an offer has to unpark.
    pub fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Offers the region to the worker; false if it is busy. The offering thread keeps the region alive until
    /// [`settle`](Mailbox::settle) returns true.
    #[inline]
    pub fn offer(&self, region: *const Region, role: Role) -> bool {
        let offered = region.expose_provenance() | if role == Role::Substitute { SUBSTITUTE } else { 0 };
        let mut state = self.state.load(SeqCst);
        while state == IDLE || state == ASLEEP {
            // Release: the worker sees the region's current state.
            match self.state.compare_exchange_weak(state, offered, Release, Relaxed) {
                Ok(_) => {
                    #[cfg(test)]
                    self.offers.fetch_add(1, Relaxed);
                    if state == ASLEEP
                        && let Some(thread) = self.thread.get()
                    {
                        thread.unpark();
                    }
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    /// Withdraws an offer if the worker has not begun. True once the worker does not use the region (any
    /// more).
    #[inline]
    pub fn settle(&self, region: *const Region) -> bool {
        // Acquire: the caller sees the worker's effects.
        let state = self.state.load(Acquire);
        if state & !(TAKEN | SUBSTITUTE) != region.addr() {
            return true;
        }
        // A worker with an offer is awake, or has been woken.
        state & TAKEN == 0 && self.state.compare_exchange(state, IDLE, Relaxed, Relaxed).is_ok()
    }

    /// The worker's side: waits for work, `spins` turns awake and then parked.
    pub fn receive(&self, spins: u32, has_openings: impl Fn() -> bool) -> Call {
        let mut turns = 0;
        loop {
            let state = self.state.load(Relaxed);
            if state > LARGEST_STATE {
                if self.state.compare_exchange(state, state | TAKEN, Acquire, Relaxed).is_ok() {
                    let role = if state & SUBSTITUTE == 0 { Role::Member } else { Role::Substitute };
                    return Call::Region(std::ptr::with_exposed_provenance(state & !SUBSTITUTE), role);
                }
                continue;
            }
            #[cfg(any(test, loom))]
            if state == QUIT {
                return Call::Quit;
            }
            if has_openings() && self.claim(state) {
                return Call::Openings;
            }
            if turns < spins {
                turns += 1;
                pause();
                continue;
            }
            turns = 0;
            // Sequentially consistent, as are the counts of openings: either the worker sees a new opening here, or
            // the thread that made the opening sees the worker asleep and offers the region.
            if self.state.compare_exchange(IDLE, ASLEEP, SeqCst, Relaxed).is_err() {
                continue;
            }
            if has_openings() && self.claim(ASLEEP) {
                return Call::Openings;
            }
            while self.state.load(Relaxed) == ASLEEP {
                thread::park();
            }
        }
    }

    /// Leaves a state that refuses offers.
    fn claim(&self, state: usize) -> bool {
        self.state.compare_exchange(state, BUSY, Relaxed, Relaxed).is_ok()
    }

    /// Ends the worker's use of a region, which may be freed from now on. `busy`: accepts no offers yet.
    #[inline]
    pub fn leave(&self, busy: bool) {
        self.state.store(if busy { BUSY } else { IDLE }, Release);
    }

    /// Makes the worker exit when it is idle.
    #[cfg(any(test, loom))]
    pub fn quit(&self) {
        loop {
            for state in [IDLE, ASLEEP] {
                if self.state.compare_exchange(state, QUIT, Relaxed, Relaxed).is_ok() {
                    if let Some(thread) = self.thread.get() {
                        thread.unpark();
                    }
                    return;
                }
            }
            thread::yield_now();
        }
    }
}
