//! Region: one call of `parallel_for`, with its tasks split into shares.

use super::sync::{AtomicBool, AtomicUsize, Mutex, lock};
use std::any::Any;
use std::sync::atomic::Ordering::*;

pub type Task<'a> = &'a (dyn Fn(usize) + Sync);
type Payload = Box<dyn Any + Send>;

/// The tasks of one call of `parallel_for`. The caller owns it; workers use it between accepting and leaving
/// it.
#[repr(align(128))]
pub struct Region {
    task: *const (dyn Fn(usize) + Sync),
    /// Tasks per share, and the number of shares that have one more.
    per_share: usize,
    longer: usize,
    /// Workers below this number may take part.
    pub limit: usize,
    /// Whether a task of another region opened it: it then uses idle workers only.
    pub nested: bool,
    /// Whether substitutes were offered the region.
    pub has_substitutes: AtomicBool,
    /// Whether the region is, or was, in the list of openings.
    pub listed: AtomicBool,
    /// Whether the caller has removed it from the list for good. Accessed under the list's lock.
    pub closed: AtomicBool,
    /// Number of guests: workers that came through the list of openings and have not left.
    pub guests: AtomicUsize,
    failed: AtomicBool,
    payload: Mutex<Option<Payload>>,
    shares: usize,
    share: Vec<Share>,
}

/// The tasks of one share, on a separate cache line.
#[repr(align(128))]
struct Share {
    /// The next task to run; at the end of the share, or beyond, if none is left.
    next: AtomicUsize,
    /// Workers from this share's up to this one are recruited by this worker.
    recruits: AtomicUsize,
}

// SAFETY: the fields that are not atomic are written by the owner before it shares the region and read only after. The
// task is `Sync`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

fn nothing(_: usize) {}

impl Region {
    pub fn new() -> Self {
        Self {
            task: &nothing,
            per_share: 0,
            longer: 0,
            limit: 0,
            nested: false,
            has_substitutes: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            guests: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            payload: Mutex::new(None),
            shares: 0,
            share: Vec::new(),
        }
    }

    /// Splits `tasks` over at most `threads`. Equal arguments give equal shares: a thread finds in its cache, and in
    /// its NUMA node's memory, its output of the last region of this size.
    ///
    /// # Safety
    /// The region is used by [`run_tasks`](Region::run_tasks) only while `task` lives.
    pub unsafe fn set_up(&mut self, task: Task, tasks: usize, threads: usize, nested: bool) {
        // SAFETY: only the lifetime is erased; the caller keeps to it.
        self.task =
            unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync)>(task) };
        (self.limit, self.nested) = (threads, nested);
        self.shares = threads.min(tasks).max(1);
        (self.per_share, self.longer) = (tasks / self.shares, tasks % self.shares);
        while self.share.len() < self.shares {
            self.share.push(Share { next: AtomicUsize::new(0), recruits: AtomicUsize::new(0) });
        }
        for i in 0..self.shares {
            self.share[i].next.store(self.start(i), Relaxed);
        }
        self.has_substitutes.store(false, Relaxed);
        self.listed.store(false, Relaxed);
        self.closed.store(false, Relaxed);
    }

    pub fn shares(&self) -> usize {
        self.shares
    }

    /// The first task of a share.
    fn start(&self, share: usize) -> usize {
        share * self.per_share + share.min(self.longer)
    }

    pub fn set_recruits(&self, share: usize, until: usize) {
        self.share[share].recruits.store(until, Relaxed);
    }

    /// Last worker that the worker of a share recruits.
    pub fn recruits(&self, share: usize) -> usize {
        self.share[share].recruits.load(Relaxed)
    }

    /// Runs the tasks of the thread's own share, then those left in other shares. Stops if `stop` returns true after a
    /// task; other threads do the rest. Returns whether it was stopped. A panic ends the region and is kept for
    /// [`take_panic`](Region::take_panic).
    pub fn run_tasks(&self, worker: usize, stop: impl Fn() -> bool) -> bool {
        // SAFETY: the caller of `set_up` keeps the task alive while threads are in here.
        let task = unsafe { &*self.task };
        let run = || {
            let first = worker % self.shares;
            for i in (first..self.shares).chain(0..first) {
                let (next, end) = (&self.share[i].next, self.start(i + 1));
                while next.load(Relaxed) < end {
                    let index = next.fetch_add(1, Relaxed);
                    if index < end {
                        task(index);
                        if stop() {
                            return true;
                        }
                    }
                }
            }
            false
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|payload| {
            self.fail(payload);
            false
        })
    }

    /// Keeps the first panic and drops all tasks that have not begun.
    fn fail(&self, payload: Payload) {
        let surplus = {
            let mut first = lock(&self.payload);
            if first.is_none() { first.replace(payload) } else { Some(payload) }
        };
        // Leaves half of the number range for threads that still add to it.
        self.share[..self.shares].iter().for_each(|share| share.next.store(usize::MAX / 2, Relaxed));
        self.failed.store(true, Relaxed);
        // Dropping a payload may panic, and this thread must leave the region in any case.
        std::mem::forget(surplus);
    }

    /// The first panic of a task, if there was one. Called when all workers have left.
    pub fn take_panic(&self) -> Option<Payload> {
        if !self.failed.load(Relaxed) {
            return None;
        }
        self.failed.store(false, Relaxed);
        lock(&self.payload).take()
    }
}

/// The shares to which the thread of share `own` offers the region, up to `until`: the middle one, which recruits the
/// upper half, then the middle of the rest. So the caller makes log2(shares) offers, and every thread is reached in at
/// most as many steps.
pub fn halves(own: usize, mut until: usize) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        (own + 1 < until).then(|| {
            let middle = own + (until - own).div_ceil(2);
            (middle, std::mem::replace(&mut until, middle))
        })
    })
}
