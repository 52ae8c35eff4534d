//! Worker threads that compile kernels, one per core.

use rushlight_core::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, Once};
use std::thread::JoinHandle;

/// More would contend: a part of NVRTC is single-threaded. Each thread takes about forty megabytes.
const MAX_THREADS: usize = 16;

type Job = Box<dyn FnOnce() + Send>;

struct Threads {
    jobs: VecDeque<Job>,
    running: usize,
    /// All threads that may not have ended yet.
    started: Vec<JoinHandle<()>>,
    /// The process exits: no job starts any more.
    closing: bool,
}

static THREADS: Mutex<Threads> =
    Mutex::new(Threads { jobs: VecDeque::new(), running: 0, started: Vec::new(), closing: false });
/// Process of the threads: a forked child has none of its parent's.
static PROCESS: AtomicU32 = AtomicU32::new(0);

fn threads() -> MutexGuard<'static, Threads> {
    lock(&THREADS)
}

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> i32;
}

/// The compiler must stay loaded while it runs.
extern "C" fn finish() {
    // A child must not touch a lock that a thread of its parent may have held.
    if PROCESS.load(SeqCst) != std::process::id() {
        return;
    }
    let started = {
        let mut threads = threads();
        threads.closing = true;
        std::mem::take(&mut threads.started)
    };
    // To their very end: the library has values of its own in each thread.
    for thread in started.into_iter().filter(|thread| thread.thread().id() != std::thread::current().id()) {
        _ = thread.join();
    }
}

/// Has [`finish`] called at exit. Handlers run in reverse order: this one before those of the libraries that are open.
fn finish_at_exit() {
    // SAFETY: a function without arguments that does not unwind.
    _ = unsafe { atexit(finish) };
}

/// Runs a compilation in the background. Dropped if no thread can be started: the first user compiles instead.
pub fn start(job: impl FnOnce() + Send + 'static) {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(finish_at_exit);
    let process = std::process::id();
    if PROCESS.swap(process, SeqCst) != process {
        let mut threads = threads();
        threads.running = 0;
        // They are the parent's.
        std::mem::take(&mut threads.started).into_iter().for_each(std::mem::forget);
    }
    let most = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MAX_THREADS);
    let mut threads = threads();
    threads.jobs.push_back(Box::new(job));
    if threads.running < most {
        match std::thread::Builder::new().name("compile".into()).spawn(work) {
            Ok(thread) => {
                threads.started.retain(|thread| !thread.is_finished());
                threads.started.push(thread);
                threads.running += 1;
            }
            Err(_) if threads.running == 0 => threads.jobs.clear(),
            Err(_) => {}
        }
    }
}

/// A worker thread: ends when the queue is empty.
fn work() {
    /// Counts the thread until it ends, also by a panic.
    struct Turn;
    impl Drop for Turn {
        fn drop(&mut self) {
            threads().running -= 1;
        }
    }
    let turn = Turn;
    loop {
        let mut threads = threads();
        let job = if threads.closing { None } else { threads.jobs.pop_front() };
        let Some(job) = job else {
            // Under the same lock, so that a job queued now sees one thread less.
            threads.running -= 1;
            std::mem::forget(turn);
            return;
        };
        drop(threads);
        job();
        // The compiler opens further libraries when it first runs.
        static OPENED: Once = Once::new();
        OPENED.call_once(finish_at_exit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    #[test]
    fn all_jobs_are_done() {
        let (sender, receiver) = mpsc::channel();
        for i in 0..100 {
            let sender = sender.clone();
            super::start(move || sender.send(i).unwrap());
        }
        drop(sender);
        let mut done: Vec<i32> = receiver.iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
    }
}
