//! Threads that read batches ahead. Batches come out in the order of the requests.

use super::fetch::{Fetch, Job};
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use rushlight_tensor::profile;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Worker threads of one epoch. Dropping it stops them: each finishes at most the sample it is reading.
pub(super) struct WorkerPool<B> {
    shared: Arc<WorkerState<B>>,
    threads: Vec<JoinHandle<()>>,
    /// Batches requested and handed out so far.
    asked: u64,
    given: u64,
}

struct WorkerState<B> {
    queue: Mutex<Queue<B>>,
    /// A job was added, or the pool stops.
    job_added: Condvar,
    /// A batch was read.
    batch_read: Condvar,
    stop: AtomicBool,
}

struct Queue<B> {
    jobs: VecDeque<(u64, Job)>,
    batches: HashMap<u64, Result<B>>,
}

impl<B> WorkerState<B> {
    fn lock(&self) -> MutexGuard<'_, Queue<B>> {
        lock(&self.queue)
    }

    fn work(&self, fetch: &Fetch<B>) {
        loop {
            let mut queue = self.lock();
            let (number, job) = loop {
                if self.stop.load(Relaxed) {
                    return;
                }
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None => queue = self.job_added.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            let read = profile::span(profile::Category::Annotation, || "DataLoader worker: read a batch");
            let batch = fetch(&job, &self.stop);
            drop(read);
            self.lock().batches.insert(number, batch);
            self.batch_read.notify_one();
        }
    }
}

impl<B: Send + 'static> WorkerPool<B> {
    pub(super) fn new(workers: usize, fetch: &Fetch<B>) -> Result<Self> {
        let shared = Arc::new(WorkerState {
            queue: Mutex::new(Queue { jobs: VecDeque::new(), batches: HashMap::new() }),
            job_added: Condvar::new(),
            batch_read: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        // Made first, so that an early return stops the threads there are.
        let mut pool = Self { shared, threads: Vec::with_capacity(workers), asked: 0, given: 0 };
        for id in 0..workers {
            let (shared, fetch) = (pool.shared.clone(), fetch.clone());
            let thread = std::thread::Builder::new()
                .name(format!("data-worker-{id}"))
                .spawn(move || shared.work(&fetch))
                .map_err(|e| Error::io(format!("DataLoader: cannot start worker {id} of {workers}: {e}")))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Batches requested and not handed out yet.
    pub(super) fn outstanding(&self) -> u64 {
        self.asked - self.given
    }

    pub(super) fn ask(&mut self, job: Job) {
        self.shared.lock().jobs.push_back((self.asked, job));
        self.asked += 1;
        self.shared.job_added.notify_one();
    }

    /// The next batch in order, once it is read; `None` if none was requested.
    pub(super) fn take(&mut self) -> Option<Result<B>> {
        if self.outstanding() == 0 {
            return None;
        }
        let mut queue = self.shared.lock();
        loop {
            if let Some(batch) = queue.batches.remove(&self.given) {
                self.given += 1;
                return Some(batch);
            }
            queue = self.shared.batch_read.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<B> Drop for WorkerPool<B> {
    fn drop(&mut self) {
        {
            // Under the lock, so that no worker checks the flag and then sleeps through the call.
            let mut queue = self.shared.lock();
            self.shared.stop.store(true, Relaxed);
            queue.jobs.clear();
        }
        self.shared.job_added.notify_all();
        for thread in self.threads.drain(..) {
            // Panics of user code are caught at the call, so a finished thread has no error to report.
            let _ = thread.join();
        }
    }
}
