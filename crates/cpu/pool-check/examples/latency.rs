//! What a parallel region costs: regions of empty tasks and of ones of some 5 µs, back to back and after a pause, for
//! several numbers of threads.
//!
//!     cargo run --release --manifest-path crates/cpu/pool-check/Cargo.toml --example latency

use rushlight_pool_check::pool::{parallel_for, set_num_threads};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Nanoseconds of a region, median of 31 batches, with the 10th and 90th percentile.
fn measure(pause: Option<Duration>, tasks: usize, work: u32) -> [f64; 3] {
    let done = AtomicUsize::new(0);
    let region = || {
        parallel_for(tasks, |i| {
            done.fetch_add(busy(i, work), Relaxed);
        });
    };
    let mut times: Vec<f64> = (0..31)
        .map(|_| {
            if let Some(pause) = pause {
                std::thread::sleep(pause);
            }
            let regions = if pause.is_some() { 1 } else { 2000 / tasks };
            let start = Instant::now();
            (0..regions).for_each(|_| region());
            start.elapsed().as_nanos() as f64 / regions as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[15], times[3], times[27]]
}

/// A chain of multiplications, each of which waits for the one before.
fn busy(start: usize, work: u32) -> usize {
    (0..work).fold(start, |x, _| std::hint::black_box(x).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn main() {
    let chain = (0..50).map(|_| {
        let start = Instant::now();
        std::hint::black_box(busy(1, 10_000));
        start.elapsed().as_secs_f64() / 1e4
    });
    let work = (5e-6 / chain.fold(f64::INFINITY, f64::min)) as u32;
    let print = |threads: usize, what: &str, [median, low, high]: [f64; 3]| {
        println!("{threads:3} threads, {what}: {:.2} µs [{:.2}..{:.2}]", median / 1e3, low / 1e3, high / 1e3);
    };
    for threads in [2, 8, 64] {
        set_num_threads(threads);
        // All workers exist, as after a large region.
        parallel_for(threads * 4, |_| std::thread::sleep(Duration::from_millis(1)));
        print(threads, "2 tasks, back to back", measure(None, 2, 0));
        print(threads, "2 tasks of 5 µs      ", measure(None, 2, work));
        print(threads, "2 tasks, after 2 ms  ", measure(Some(Duration::from_millis(2)), 2, 0));
        print(threads, "a task each          ", measure(None, threads, 0));
    }
}
