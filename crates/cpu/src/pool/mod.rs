//! The one thread pool of the process.
//!
//! [`parallel_for`] runs the tasks of a region on the calling thread and on workers. Every thread begins with a share
//! of the tasks, the same in every region of that size, and then takes tasks of other shares. Workers spin for a moment
//! after each region, so that the next one of a training step starts in well under a microsecond, then park. Module
//! `crew` assigns workers to regions, `mailbox` transfers a region to a worker, `topology` places workers on cores.
//!
//! Guarantees for every region:
//! - Results do not depend on the number of threads or on which thread runs a task.
//! - It wakes as many workers as it has tasks, less one, and waits only for those that have begun one.
//! - Nested regions use idle workers; regions of several threads share the workers; none of them can wait for each
//!   other.
//! - The first panic of a task continues in the caller, with its payload. Tasks not begun are dropped, and the pool is
//!   unchanged.
//! - A child of `fork` starts its own pool. (A task must not fork.)

mod crew;
mod mailbox;
mod region;
mod sync;
mod topology;

#[cfg(loom)]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

use crew::{Crew, MAX_THREADS};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use sync::Arc;

/// The pool; null before first use. A child of `fork` has none of its parent's threads and starts without one,
/// too.
static CREW: AtomicPtr<Arc<Crew>> = AtomicPtr::new(std::ptr::null_mut());

/// Threads a region uses; 0 until first queried.
static WANTED: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn crew() -> &'static Arc<Crew> {
    // SAFETY: pools are never freed.
    unsafe { CREW.load(Acquire).as_ref() }.unwrap_or_else(make_crew)
}

#[cold]
fn make_crew() -> &'static Arc<Crew> {
    #[cfg(unix)]
    {
        extern "C" fn forget() {
            CREW.store(std::ptr::null_mut(), Relaxed);
        }
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: the handler has the required signature, stays valid, and is safe in a child of `fork`.
        ONCE.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(forget));
        });
    }
    let fresh = Box::into_raw(Box::new(Crew::new(cores(), topology::Nodes::detect(), MAX_THREADS)));
    match CREW.compare_exchange(std::ptr::null_mut(), fresh, AcqRel, Acquire) {
        // SAFETY: nobody frees it.
        Ok(_) => unsafe { &*fresh },
        // SAFETY: another thread was faster: ours was not published, and theirs stays.
        Err(theirs) => unsafe {
            drop(Box::from_raw(fresh));
            &*theirs
        },
    }
}

/// Number of cores that affinity and cgroup allow.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Threads by `RUSHLIGHT_NUM_THREADS`, else `OMP_NUM_THREADS`, else the limit of affinity and cgroup.
fn default_threads() -> usize {
    for name in ["RUSHLIGHT_NUM_THREADS", "OMP_NUM_THREADS"] {
        if let Ok(text) = std::env::var(name) {
            // OpenMP allows a list, one count per nesting level.
            match text.split(',').next().unwrap_or("").trim().parse::<usize>() {
                Ok(n) if n > 0 => return n,
                _ => rushlight_core::warn!("{name}={text} is not a positive number; ignored"),
            }
        }
    }
    cores()
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

/// Sets how many threads later regions use; 0 is taken as 1. A region has no use for more than 512.
pub fn set_num_threads(threads: usize) {
    WANTED.store(threads.max(1), Relaxed);
}

/// Runs `f(0)`, …, `f(tasks - 1)`, each once, over the pool, and returns when all are done. A task may open regions
/// itself. Tasks must not wait for each other: one thread may have to run them all.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let sum = AtomicUsize::new(0);
/// rushlight_cpu::pool::parallel_for(100, |i| { sum.fetch_add(i, Ordering::Relaxed); });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
#[inline(always)]
pub fn parallel_for(tasks: usize, f: impl Fn(usize) + Sync) {
    run(tasks, &f);
}

/// The body of a region. There are hundreds: a trait of one function, as `dyn Fn` brings two more for each.
trait Body: Sync {
    fn run(&self, task: usize);
}

impl<F: Fn(usize) + Sync> Body for F {
    fn run(&self, task: usize) {
        self(task);
    }
}

/// The same for ranges.
trait RangeBody: Sync {
    fn run(&self, start: usize, end: usize);
}

impl<F: Fn(usize, usize) + Sync> RangeBody for F {
    fn run(&self, start: usize, end: usize) {
        self(start, end);
    }
}

/// [`parallel_for`], compiled once.
fn run(tasks: usize, f: &dyn Body) {
    let threads = num_threads();
    if tasks <= 1 || threads == 1 {
        return (0..tasks).for_each(|i| f.run(i));
    }
    crew().run(threads, tasks, &|i| f.run(i));
}

/// `parallel_for` over ranges of at most `grain` out of `0..len`: `f(start, end)`.
#[inline(always)]
pub fn parallel_ranges(len: usize, grain: usize, f: impl Fn(usize, usize) + Sync) {
    run_ranges(len, grain, &f);
}

/// [`parallel_ranges`], compiled once.
fn run_ranges(len: usize, grain: usize, f: &dyn RangeBody) {
    let grain = grain.max(1);
    if len <= grain {
        if len > 0 {
            f.run(0, len);
        }
        return;
    }
    run(len.div_ceil(grain), &|i: usize| f.run(i * grain, ((i + 1) * grain).min(len)));
}
