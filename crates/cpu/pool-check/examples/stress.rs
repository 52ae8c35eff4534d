//! Regions of several threads, nested and with panics, whose tasks write memory without any synchronisation of their
//! own: what ThreadSanitizer watches (`scripts/sanitize threads`). It needs no test harness, whose own threads the
//! sanitizer cannot follow.

use rushlight_pool_check::pool::{parallel_for, set_num_threads};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};

struct Cells(Vec<std::cell::UnsafeCell<usize>>);

// SAFETY: each cell is written by one task and read by the caller after the region.
unsafe impl Sync for Cells {}

fn region(rows: usize, columns: usize) {
    let cells = Cells((0..rows * columns).map(|_| 0.into()).collect());
    let cells = &cells;
    parallel_for(rows, |row| {
        parallel_for(columns, |column| {
            // SAFETY: this task's cell.
            unsafe { *cells.0[row * columns + column].get() += 1 };
        });
    });
    // SAFETY: the region is over.
    assert!(cells.0.iter().all(|cell| unsafe { *cell.get() } == 1));
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2000);
    set_num_threads(6);
    std::panic::set_hook(Box::new(|_| ()));
    static DONE: AtomicUsize = AtomicUsize::new(0);
    for caller in 0..3 {
        std::thread::spawn(move || {
            for round in 0..rounds {
                region(round * 7 % 13 + caller, round * 5 % 11);
                if round % 40 == 0 {
                    let caught = catch_unwind(AssertUnwindSafe(|| parallel_for(9, |i| assert!(i != 4))));
                    assert!(caught.is_err());
                }
            }
            DONE.fetch_add(1, AcqRel);
            // The sanitizer does not see how the standard library ends a thread, either.
            loop {
                std::thread::park();
            }
        });
    }
    while DONE.load(Acquire) < 3 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    println!("{rounds} rounds of 3 callers: every task ran once, and its caller saw it");
}
