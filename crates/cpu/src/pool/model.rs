//! The pool under loom, which runs every interleaving that the memory model allows, up to a number of preemptions:
//! `scripts/sanitize threads`.

use super::crew::Crew;
use super::sync::{Arc, thread};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Cells that one task each writes, without synchronisation of their own. Loom reports a second writer, and a reader
/// that is not ordered after the writer.
struct Places(Vec<UnsafeCell<usize>>);

// SAFETY: loom checks every access.
unsafe impl Sync for Places {}

impl Places {
    fn new(n: usize) -> Self {
        Self((0..n).map(|_| UnsafeCell::new(0)).collect())
    }

    fn visit(&self, i: usize) {
        // SAFETY: one task for each place.
        self.0[i].with_mut(|place| unsafe { *place += 1 });
    }

    /// The caller's view after the region.
    fn check(&self) {
        for place in &self.0 {
            // SAFETY: the region is over.
            place.with(|place| assert_eq!(unsafe { *place }, 1));
        }
    }
}

fn region(crew: &Arc<Crew>, threads: usize, tasks: usize) {
    let places = Places::new(tasks);
    crew.run(threads, tasks, &|i| places.visit(i));
    places.check();
}

fn builder(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder
}

fn explore_with(builder: loom::model::Builder, model: impl Fn(&Arc<Crew>) + Send + Sync + 'static) {
    builder.check(move || {
        let crew = Crew::new(8, None, 4);
        model(&crew);
        crew.quit();
    });
}

fn explore(preemptions: usize, model: impl Fn(&Arc<Crew>) + Send + Sync + 'static) {
    explore_with(builder(preemptions), model);
}

/// Two threads with a region each of `tasks` tasks, for three threads.
fn callers(crew: &Arc<Crew>, tasks: usize) {
    let other = crew.clone();
    let caller = thread::spawn(move || region(&other, 3, tasks));
    region(crew, 3, tasks);
    caller.join().unwrap();
}

/// An offer is taken or withdrawn; the worker sleeps, or not, before it and between the regions.
#[test]
fn regions_one_after_another() {
    explore(3, |crew| (0..2).for_each(|_| region(crew, 2, 2)));
}

/// A worker recruits the next.
#[test]
fn a_region_of_three_threads() {
    explore(2, |crew| region(crew, 3, 3));
}

#[test]
fn a_nested_region() {
    explore(2, |crew| {
        let places = Places::new(4);
        crew.run(2, 2, &|i| crew.run(2, 2, &|j| places.visit(2 * i + j)));
        places.check();
    });
}

/// Two callers compete for the one worker: it helps one and, through the list of openings, the other.
#[test]
fn two_callers_share_a_worker() {
    explore(1, |crew| {
        let other = crew.clone();
        let caller = thread::spawn(move || region(&other, 2, 2));
        region(crew, 2, 2);
        caller.join().unwrap();
    });
}

/// Two callers, two workers: the second caller finds a substitute for the busy worker.
#[test]
fn two_callers_have_a_worker_each() {
    explore(1, |crew| callers(crew, 2));
}

/// Urgent openings, and a worker that leaves one region for another. There are too many interleavings to run all: the
/// run is limited to a minute.
#[test]
fn two_callers_share_two_workers() {
    let mut builder = builder(1);
    builder.max_duration = Some(std::time::Duration::from_secs(60));
    explore_with(builder, |crew| callers(crew, 3));
}

/// A panic in any task reaches the caller, and the pool stays usable.
#[test]
fn a_panic() {
    explore(2, |crew| {
        let begun = AtomicUsize::new(0);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            crew.run(2, 2, &|i| {
                begun.fetch_add(1, Relaxed);
                if i == 1 {
                    std::panic::resume_unwind(Box::new(i));
                }
            });
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&1usize));
        region(crew, 2, 2);
    });
}
