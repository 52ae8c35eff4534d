//! The one thread pool of the process.
//!
//! Workers spin for a moment after each job, so that the next parallel region of a training step starts in well under a
//! microsecond, then park. The calling thread takes part. Every thread has a share of the tasks, the same in every region of that size,
//! since it may find in its cache what it wrote the last time; one that is done with its own helps with the others'.
//! A nested call, or one made while another thread's job is running, runs on the calling thread alone: results never depend on
//! which happened.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};
use std::thread::Thread;

/// How often a worker looks for the next job before it parks: some 0.2 ms on current chips.
const SPINS: u32 = 4_000;

type Task = *const (dyn Fn(usize) + Sync);

struct Pool {
    /// Held by the thread whose job runs.
    busy: Mutex<()>,
    /// Bumped to publish a job; workers wait for it to change.
    epoch: AtomicUsize,
    job: Cell<Option<Task>>,
    /// How many shares there are in the current job; there is room for more than one machine's threads.
    shares: AtomicUsize,
    share: [Share; MOST_SHARES],
    /// Workers still inside the current job.
    active: AtomicUsize,
    panicked: AtomicBool,
    workers: Mutex<Vec<Worker>>,
}

/// Shares beyond these would only cost: that many threads balance by helping each other.
const MOST_SHARES: usize = 128;

/// The tasks of one thread, on a line of their own.
#[repr(align(128))]
struct Share {
    next: AtomicUsize,
    end: AtomicUsize,
}

struct Worker {
    thread: Thread,
    parked: &'static AtomicBool,
}

// SAFETY: `job` is written only by the holder of `busy` while no worker is active, and read by workers only between the release
// store of `epoch` and their decrement of `active`.
unsafe impl Sync for Pool {}
// SAFETY: as above; the erased closure is `Sync`, so any thread may call it.
unsafe impl Send for Pool {}

thread_local! {
    /// Set in workers and inside a job: nested regions run inline.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The pool, nothing before its first use. A child of `fork` has none of its parent's threads and starts without one, too.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// Threads a region uses; 0 until somebody asks.
static WANTED: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn pool() -> &'static Pool {
    // SAFETY: pools are never freed.
    unsafe { POOL.load(Acquire).as_ref() }.unwrap_or_else(make_pool)
}

#[cold]
fn make_pool() -> &'static Pool {
    #[cfg(unix)]
    {
        extern "C" fn forget() {
            POOL.store(std::ptr::null_mut(), Relaxed);
        }
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: the handler has the signature asked for, stays valid, and does nothing a child of `fork` may not.
        ONCE.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(forget));
        });
    }
    let fresh = Box::into_raw(Box::new(Pool {
        busy: Mutex::new(()),
        epoch: AtomicUsize::new(0),
        job: Cell::new(None),
        shares: AtomicUsize::new(0),
        share: [const { Share { next: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; MOST_SHARES],
        active: AtomicUsize::new(0),
        panicked: AtomicBool::new(false),
        workers: Mutex::new(Vec::new()),
    }));
    match POOL.compare_exchange(std::ptr::null_mut(), fresh, AcqRel, Acquire) {
        // SAFETY: nobody frees it.
        Ok(_) => unsafe { &*fresh },
        // SAFETY: another thread was quicker: ours is unknown to anybody, and theirs stays.
        Err(theirs) => unsafe {
            drop(Box::from_raw(fresh));
            &*theirs
        },
    }
}

/// Threads by `RUSHLIGHT_NUM_THREADS`, else `OMP_NUM_THREADS`, else what affinity and cgroup leave us.
fn default_threads() -> usize {
    for name in ["RUSHLIGHT_NUM_THREADS", "OMP_NUM_THREADS"] {
        if let Ok(text) = std::env::var(name) {
            // OpenMP allows a list, one count per nesting level.
            match text.split(',').next().unwrap_or("").trim().parse::<usize>() {
                Ok(n) if n > 0 => return n,
                _ => eprintln!("rushlight: {name}={text} is not a positive number; ignored"),
            }
        }
    }
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Threads a parallel region uses, the calling one included.
#[inline]
pub fn num_threads() -> usize {
    match WANTED.load(Relaxed) {
        0 => {
            let _ = WANTED.compare_exchange(0, default_threads(), Relaxed, Relaxed);
            WANTED.load(Relaxed)
        }
        wanted => wanted,
    }
}

/// Sets how many threads later regions use; 0 is taken as 1.
pub fn set_num_threads(threads: usize) {
    WANTED.store(threads.max(1), Relaxed);
}

/// Runs `f(0)`, …, `f(tasks - 1)`, each once, over the pool, and returns when all are done.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let sum = AtomicUsize::new(0);
/// rushlight_cpu::pool::parallel_for(100, |i| { sum.fetch_add(i, Ordering::Relaxed); });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
pub fn parallel_for(tasks: usize, f: impl Fn(usize) + Sync) {
    if tasks <= 1 || num_threads() == 1 || INSIDE.get() || !run(tasks, &f) {
        (0..tasks).for_each(f);
    }
}

/// `parallel_for` over ranges of at most `grain` out of `0..len`: `f(start, end)`.
pub fn parallel_ranges(len: usize, grain: usize, f: impl Fn(usize, usize) + Sync) {
    let grain = grain.max(1);
    if len <= grain {
        if len > 0 {
            f(0, len);
        }
        return;
    }
    parallel_for(len.div_ceil(grain), |i| f(i * grain, ((i + 1) * grain).min(len)));
}

/// Returns false, having run nothing, when another thread's job holds the pool.
fn run(tasks: usize, f: &(dyn Fn(usize) + Sync)) -> bool {
    let pool = pool();
    let Ok(_guard) = pool.busy.try_lock() else { return false };
    let helpers = (num_threads() - 1).min(tasks - 1);
    let workers = pool.ensure(helpers);
    // SAFETY: only the lifetime is erased; this function does not return before every worker has left the job.
    let task: Task = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Task>(f) };
    pool.job.set(Some(task));
    pool.share_out(tasks, (helpers + 1).min(MOST_SHARES));
    pool.active.store(workers.len(), Relaxed);
    pool.epoch.fetch_add(1, SeqCst);
    for worker in workers.iter() {
        if worker.parked.load(SeqCst) {
            worker.thread.unpark();
        }
    }
    let count = workers.len();
    drop(workers);
    INSIDE.set(true);
    let mine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.work(0, f)));
    INSIDE.set(false);
    if mine.is_err() {
        // Leave nothing for the workers, then wait for them: they may still hold `f`.
        pool.abandon();
    }
    let mut spins = 0u32;
    while count > 0 && pool.active.load(Acquire) != 0 {
        spins += 1;
        if spins > 100_000 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
    pool.job.set(None);
    let theirs = pool.panicked.swap(false, Relaxed);
    if let Err(payload) = mine {
        std::panic::resume_unwind(payload);
    }
    if theirs {
        panic!("rushlight: a task panicked on a pool thread");
    }
    true
}

impl Pool {
    /// The worker list, grown to at least `helpers`. All existing workers join every job.
    fn ensure(&'static self, helpers: usize) -> std::sync::MutexGuard<'static, Vec<Worker>> {
        let mut workers = self.workers.lock().unwrap_or_else(|e| e.into_inner());
        while workers.len() < helpers {
            let parked: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
            let seen = self.epoch.load(SeqCst);
            let id = workers.len() + 1;
            let spawned = std::thread::Builder::new()
                .name(format!("rushlight-{id}"))
                .spawn(move || worker(self, id, seen, parked));
            match spawned {
                Ok(handle) => workers.push(Worker { thread: handle.thread().clone(), parked }),
                // The machine gives no more threads: go on with those there are.
                Err(_) => break,
            }
        }
        workers
    }

    fn share_out(&self, tasks: usize, shares: usize) {
        self.shares.store(shares, Relaxed);
        for (i, share) in self.share[..shares].iter().enumerate() {
            share.next.store(i * tasks / shares, Relaxed);
            share.end.store((i + 1) * tasks / shares, Relaxed);
        }
    }

    /// Leaves nothing to be taken.
    fn abandon(&self) {
        for share in &self.share[..self.shares.load(Relaxed)] {
            share.end.store(0, Relaxed);
        }
    }

    /// Does this thread's share, then what is left of the others'.
    fn work(&self, id: usize, f: &(dyn Fn(usize) + Sync)) {
        let shares = self.shares.load(Relaxed);
        for share in (0..shares).map(|i| &self.share[(id + i) % shares]) {
            while share.next.load(Relaxed) < share.end.load(Relaxed) {
                let task = share.next.fetch_add(1, Relaxed);
                if task < share.end.load(Relaxed) {
                    f(task);
                }
            }
        }
    }
}

fn worker(pool: &'static Pool, id: usize, mut seen: usize, parked: &'static AtomicBool) {
    INSIDE.set(true);
    loop {
        let mut spins = 0u32;
        while pool.epoch.load(Acquire) == seen {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                parked.store(true, SeqCst);
                while pool.epoch.load(SeqCst) == seen {
                    std::thread::park();
                }
                parked.store(false, SeqCst);
            }
        }
        seen = pool.epoch.load(Acquire);
        // Fewer threads may be wanted than exist.
        if id < num_threads()
            && let Some(job) = pool.job.get()
        {
            // SAFETY: the publisher keeps the closure alive until `active` is zero.
            let f = unsafe { &*job };
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.work(id, f))).is_err() {
                pool.panicked.store(true, Relaxed);
                pool.abandon();
            }
        }
        pool.active.fetch_sub(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_index_runs_once_from_many_threads() {
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for n in [0, 1, 2, 3, 17, 100] {
                        let seen: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                        parallel_for(n, |i| {
                            parallel_for(2, |_| {
                                seen[i].fetch_add(1, Relaxed);
                            });
                        });
                        assert!(seen.iter().all(|c| c.load(Relaxed) == 2));
                    }
                });
            }
        });
    }

    /// The child of a process whose pool is at work has threads of its own.
    #[cfg(unix)]
    #[test]
    fn a_forked_child_gets_a_pool_of_its_own() {
        let count = AtomicUsize::new(0);
        parallel_for(8, |_| {
            count.fetch_add(1, Relaxed);
        });
        // SAFETY: the child only runs the pool and leaves at once, without unwinding or exit handlers.
        let status = unsafe {
            match libc::fork() {
                0 => {
                    parallel_for(8, |_| {
                        count.fetch_add(1, Relaxed);
                    });
                    libc::_exit((count.load(Relaxed) != 16) as i32)
                }
                child => {
                    assert!(child > 0, "fork failed");
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &mut status, 0), child);
                    status
                }
            }
        };
        assert_eq!(status, 0);
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_survives() {
        let caught = std::panic::catch_unwind(|| parallel_for(8, |i| assert!(i != 5, "task five")));
        assert!(caught.is_err());
        let n = AtomicUsize::new(0);
        parallel_for(8, |_| {
            n.fetch_add(1, Relaxed);
        });
        assert_eq!(n.into_inner(), 8);
    }
}
