use super::crew::Crew;
use super::parallel_for;
use super::region::halves;
use super::sync::Arc;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

/// Polls until another thread has done something; fails after a timeout instead of hanging.
fn await_that(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "timed out waiting until {what}");
        thread::yield_now();
    }
}

/// A crew whose threads end with the test.
struct TestCrew(Arc<Crew>);

impl TestCrew {
    fn new(max_threads: usize) -> Self {
        Self(Crew::new(2, None, max_threads))
    }

    /// Runs a region with as many tasks as threads, which must all run concurrently. Returns the thread of each task.
    fn meet(&self, threads: usize) -> Vec<String> {
        let (present, names) = (AtomicUsize::new(0), Mutex::new(vec![String::new(); threads]));
        self.0.run(threads, threads, &|i| {
            present.fetch_add(1, Relaxed);
            await_that("all threads run a task", || present.load(Relaxed) == threads);
            names.lock().unwrap()[i] = thread::current().name().unwrap_or("caller").to_string();
        });
        names.into_inner().unwrap()
    }

    fn offers(&self) -> Vec<usize> {
        self.0.workers.iter().map(|worker| worker.offers.swap(0, Relaxed)).collect()
    }
}

impl Drop for TestCrew {
    fn drop(&mut self) {
        self.0.quit();
    }
}

#[test]
fn every_index_runs_once_from_many_threads() {
    thread::scope(|s| {
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

/// Regions of several threads, nested, of all sizes, some with panics: every task runs once, without deadlock.
#[test]
fn concurrent_and_nested_regions_of_all_sizes_end() {
    let crew = TestCrew::new(8);
    thread::scope(|s| {
        for caller in 0..3usize {
            let crew = &crew.0;
            s.spawn(move || {
                for round in 0..300usize {
                    let (tasks, inner, threads) = (round * 7 % 23, round * 5 % 11, 2 + (round + caller) % 7);
                    let done = AtomicUsize::new(0);
                    let fails = round % 50 == 49;
                    let result = catch_unwind(AssertUnwindSafe(|| {
                        crew.run(threads, tasks, &|i| {
                            crew.run(threads, inner, &|_| {
                                done.fetch_add(1, Relaxed);
                            });
                            assert!(!(fails && i == tasks / 2), "round {round}");
                        });
                    }));
                    assert_eq!(result.is_err(), fails && tasks > 0);
                    assert!(done.load(Relaxed) == tasks * inner || fails);
                }
            });
        }
    });
    assert_eq!((crew.0.places.load(Relaxed), crew.0.urgent.load(Relaxed)), (0, 0));
    assert_eq!(crew.meet(8).len(), 8);
}

/// A forked child of a process whose pool is running starts its own threads.
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
fn a_panic_reaches_the_caller_and_all_threads_go_on() {
    let crew = TestCrew::new(4);
    let workers = crew.meet(4);
    assert_eq!(workers.iter().collect::<HashSet<_>>().len(), 4);
    // Panics in the caller's share, in a worker's, in all.
    for culprit in [0..1, 3..4, 0..4] {
        let present = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            crew.0.run(4, 4, &|i| {
                present.fetch_add(1, Relaxed);
                await_that("all threads run a task", || present.load(Relaxed) == 4);
                if culprit.contains(&i) {
                    std::panic::panic_any(format!("task {i}"));
                }
            });
        }));
        let payload = *caught.unwrap_err().downcast::<String>().unwrap();
        assert!(culprit.clone().any(|i| payload == format!("task {i}")), "{payload}");
        // The same threads, each with its own share.
        assert_eq!(crew.meet(4), workers);
    }
}

#[test]
fn tasks_after_a_panic_are_not_begun() {
    let crew = TestCrew::new(2);
    let begun = AtomicUsize::new(0);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        crew.0.run(2, 1 << 40, &|i| {
            begun.fetch_add(1, Relaxed);
            assert!(i % 1000 != 999, "task {i}");
        });
    }));
    assert!(caught.is_err() && begun.load(Relaxed) <= 2000);
}

/// With 63 workers, a region wakes those of its own shares and no others.
#[test]
fn a_region_wakes_only_the_workers_it_needs() {
    let crew = TestCrew::new(64);
    assert_eq!(crew.meet(64).iter().collect::<HashSet<_>>().len(), 64);
    crew.offers();
    for tasks in [2, 3, 8, 33] {
        for _ in 0..20 {
            crew.0.run(64, tasks, &|_| ());
        }
        let offers = crew.offers();
        assert!(offers[1] > 0 && offers[tasks..].iter().all(|&n| n == 0), "{tasks} tasks: {offers:?}");
        assert!(offers.iter().all(|&n| n <= 20));
    }
    // A share's thread is the same each time.
    assert_eq!(crew.meet(64)[33], "rushlight-33");
    let offers = crew.offers();
    assert!(offers[0] == 0 && offers[1..].iter().all(|&n| n == 1), "{offers:?}");
    // Fewer threads requested than exist.
    assert_eq!(crew.meet(5).len(), 5);
    assert_eq!(crew.offers().iter().sum::<usize>(), 4);
}

/// The tree of offers for up to 512 threads: every thread is reached once, in few steps, and no thread makes many
/// offers.
#[test]
fn offers_spread_in_logarithmic_time() {
    for threads in (2..=512).chain([1000]) {
        let log = (threads as f64).log2().ceil() as usize;
        // For each thread: how many offers lie between the region's begin and it, counting those its recruiter makes
        // first.
        let mut reached = vec![None; threads];
        reached[0] = Some(0);
        let mut recruiting = vec![(0, threads)];
        while let Some((own, until)) = recruiting.pop() {
            for (n, (worker, until)) in halves(own, until).enumerate() {
                assert!(n < log && worker > own && worker < until);
                let steps = reached[own].unwrap() + n + 1;
                assert_eq!(reached[worker].replace(steps), None);
                recruiting.push((worker, until));
            }
        }
        assert!(reached.iter().all(|steps| steps.is_some_and(|steps| steps <= log)), "{threads}: {reached:?}");
    }
}

#[test]
fn nested_regions_use_idle_workers() {
    let crew = TestCrew::new(4);
    let (outer, inner) = (AtomicUsize::new(0), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    crew.0.run(4, 2, &|i| {
        outer.fetch_add(1, Relaxed);
        await_that("both tasks run", || outer.load(Relaxed) == 2);
        crew.0.run(4, 2, &|_| {
            inner[i].fetch_add(1, Relaxed);
            await_that("an idle worker helps", || inner[i].load(Relaxed) == 2);
        });
    });
}

/// One thread's region holds all workers; another thread's region gets some of them before the first ends.
#[test]
fn a_long_region_gives_workers_to_another_threads() {
    let crew = TestCrew::new(4);
    let (begun, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|s| {
        // A loader: two tasks per thread; the second ends only after the other region.
        s.spawn(|| {
            crew.0.run(4, 8, &|i| {
                begun.fetch_add(1, Relaxed);
                match i % 2 {
                    0 => await_that("the other region wants workers", || {
                        crew.0.urgent.load(Relaxed) > 0 || done.load(Relaxed) || begun.load(Relaxed) > 4
                    }),
                    _ => await_that("the other region is done", || done.load(Relaxed)),
                }
            });
        });
        await_that("the loader has all workers", || begun.load(Relaxed) == 4);
        let present = AtomicUsize::new(0);
        crew.0.run(4, 4, &|_| {
            present.fetch_add(1, Relaxed);
            await_that("a worker helps", || present.load(Relaxed) >= 2);
        });
        done.store(true, Relaxed);
    });
    assert_eq!((crew.0.places.load(Relaxed), crew.0.urgent.load(Relaxed)), (0, 0));
    assert_eq!(crew.meet(4).len(), 4);
}

/// Regions of two threads run concurrently, with workers for both.
#[test]
fn concurrent_regions_use_different_workers() {
    let crew = TestCrew::new(4);
    let present = AtomicUsize::new(0);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                crew.0.run(4, 2, &|_| {
                    present.fetch_add(1, Relaxed);
                    await_that("both regions have two threads", || present.load(Relaxed) == 4);
                });
            });
        }
    });
}
