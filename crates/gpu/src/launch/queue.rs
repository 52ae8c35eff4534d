//! Launch queue: holds launches until their kernels are compiled, so compilation overlaps with the program.
//!
//! A kernel that is not on disk is compiled on another thread. Its launch waits here meanwhile, with all later work of
//! the device, and the program continues, so the kernels of a first step are compiled in parallel.
//! `settle()` drains the queue. Call it before reading results or handing the raw stream to a library.
//!
//! The last piece of work may be deferred ([`Queue::hold`]) although it could be issued: the next call may fuse with it
//! (`chain`). It is issued before any later work.

use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

/// Maximum pending launches; at this number the program blocks.
const MAX_PENDING: usize = 1 << 14;
/// Maximum threads that are told of dropped work.
const MAX_LOST: usize = 64;

struct Pending<C> {
    /// The thread whose work it is.
    thread: ThreadId,
    ready: Box<dyn Fn() -> bool + Send>,
    issue: Box<dyn FnOnce(&C) -> Result<()> + Send>,
}

struct State<C> {
    work: VecDeque<Pending<C>>,
    /// An error from a deferred launch, returned by the next call that can fail.
    failed: Option<Error>,
    /// Threads whose work was dropped after another thread's call had failed: the next call of each returns the error.
    lost: Vec<(ThreadId, Error)>,
    /// Whether the last piece of work, which is deferred, may be issued.
    gate: Option<Arc<AtomicBool>>,
}

impl<C> Pending<C> {
    fn new(ready: impl Fn() -> bool + Send + 'static, issue: impl FnOnce(&C) -> Result<()> + Send + 'static) -> Self {
        Self { thread: thread::current().id(), ready: Box::new(ready), issue: Box::new(issue) }
    }
}

impl<C> State<C> {
    /// Drops all work after an error that this thread's call returns. The other threads with pending work learn of it
    /// by their next call.
    fn fail(&mut self, failed: ThreadId, error: &Error) {
        let own = thread::current().id();
        let threads = self.work.drain(..).map(|work| work.thread);
        for thread in std::iter::once(failed).chain(threads) {
            if thread != own && !self.lost.iter().any(|(known, _)| *known == thread) {
                self.lost.push((thread, error.clone()));
            }
        }
        // Threads that have ended do not ask.
        let surplus = self.lost.len().saturating_sub(MAX_LOST);
        self.lost.drain(..surplus);
    }

    /// Releases the deferred work.
    fn open(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.store(true, Release);
        }
    }
}

/// Pending work of a device `C`, in order.
pub struct Queue<C> {
    state: Mutex<State<C>>,
    /// Whether the queue is not empty. The only check on the fast path, once kernels are compiled.
    waits: AtomicBool,
    /// Set on shutdown: launches are issued immediately.
    closed: AtomicBool,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        let state = Mutex::new(State { work: VecDeque::new(), failed: None, lost: Vec::new(), gate: None });
        Self { state, waits: AtomicBool::new(false), closed: AtomicBool::new(false) }
    }
}

impl<C> Queue<C> {
    fn state(&self) -> MutexGuard<'_, State<C>> {
        lock(&self.state)
    }

    /// Whether launches are pending, so that new ones must queue behind them.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.waits.load(Acquire)
    }

    /// Issues work: at once, or after the pending work.
    #[inline]
    pub fn submit(&self, device: &C, work: impl FnOnce(&C) -> Result<()> + Send + 'static) -> Result<()> {
        if self.has_pending() { self.enqueue(device, || true, work) } else { work(device) }
    }

    /// Issues work when it is ready and all before it is issued.
    #[cold]
    pub fn enqueue(
        &self,
        device: &C,
        ready: impl Fn() -> bool + Send + 'static,
        work: impl FnOnce(&C) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let mut state = self.state();
        state.open();
        state.work.push_back(Pending::new(ready, work));
        let all = state.work.len() > MAX_PENDING || self.closed.load(Relaxed);
        self.issue(device, &mut state, all)
    }

    /// Defers work until later work arrives and it is ready. Returns a flag that is set once it has been issued; `None`
    /// on shutdown, when it is issued immediately.
    pub fn hold(
        &self,
        device: &C,
        ready: impl Fn() -> bool + Send + 'static,
        work: impl FnOnce(&C) -> Result<()> + Send + 'static,
    ) -> Result<Option<Arc<AtomicBool>>> {
        if self.closed.load(Relaxed) {
            return self.submit(device, work).map(|()| None);
        }
        let mut state = self.state();
        state.open();
        let gate = Arc::new(AtomicBool::new(false));
        let opened = gate.clone();
        let ready = move || opened.load(Acquire) && ready();
        state.work.push_back(Pending::new(ready, work));
        state.gate = Some(gate.clone());
        self.issue(device, &mut state, false)?;
        Ok(Some(gate))
    }

    /// Issues work that is independent of the deferred work: before it, and at once if nothing else
    /// is pending.
    pub fn enqueue_ahead(
        &self,
        device: &C,
        ready: impl Fn() -> bool + Send + 'static,
        work: impl FnOnce(&C) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let mut state = self.state();
        let place = state.work.len() - usize::from(state.gate.is_some() && !state.work.is_empty());
        state.work.insert(place, Pending::new(ready, work));
        self.issue(device, &mut state, false)
    }

    /// Issues the deferred work once the work before it is issued. Errors are returned by the next call.
    pub fn release(&self, device: &C) {
        let mut state = self.state();
        state.open();
        if let Err(error) = self.issue(device, &mut state, false) {
            state.failed = Some(error);
            self.waits.store(true, Release);
        }
    }

    /// Drains the queue, waiting for kernels that are still being compiled.
    #[inline]
    pub fn settle(&self, device: &C) -> Result<()> {
        if self.has_pending() { self.issue(device, &mut self.state(), true) } else { Ok(()) }
    }

    /// [`settle`](Queue::settle) for callers that cannot report an error: the next call reports it.
    pub fn settle_silently(&self, device: &C) {
        if self.has_pending() {
            let mut state = self.state();
            state.failed = self.issue(device, &mut state, true).err();
            let waits = state.failed.is_some() || !state.lost.is_empty();
            self.waits.store(waits, Release);
        }
    }

    /// Issues the work that is ready. Returns whether the queue is empty.
    pub fn advance(&self, device: &C) -> Result<bool> {
        if self.has_pending() {
            let mut state = self.state();
            state.open();
            self.issue(device, &mut state, false)?;
        }
        Ok(!self.has_pending())
    }

    /// Shuts the queue down: launches block until their kernels are compiled. Work that others issue on the device then
    /// runs after ours.
    pub fn close(&self, device: &C) -> Result<()> {
        self.closed.store(true, Relaxed);
        self.settle(device)
    }

    /// After an error the pending work is dropped: its inputs are missing.
    fn issue(&self, device: &C, state: &mut State<C>, all: bool) -> Result<()> {
        let own = thread::current().id();
        let mut result = state.failed.take().map_or(Ok(()), Err);
        if result.is_ok()
            && let Some(at) = state.lost.iter().position(|(thread, _)| *thread == own)
        {
            // The work that this thread has given since then reads what was never computed.
            state.work.retain(|work| work.thread != own);
            result = Err(state.lost.swap_remove(at).1);
        } else {
            let mut failed = own;
            while result.is_ok() && state.work.front().is_some_and(|next| all || (next.ready)()) {
                let Some(next) = state.work.pop_front() else { break };
                failed = next.thread;
                result = (next.issue)(device);
            }
            if let Err(error) = &result {
                state.fail(failed, error);
            }
        }
        if state.work.is_empty() {
            state.open();
        }
        self.waits.store(!state.work.is_empty() || !state.lost.is_empty(), Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Log = Mutex<Vec<u32>>;

    fn note(number: u32) -> impl FnOnce(&Log) -> Result<()> + Send {
        move |log| {
            log.lock().unwrap().push(number);
            Ok(())
        }
    }

    fn gate() -> (Arc<AtomicBool>, impl Fn() -> bool + Send + 'static) {
        let open = Arc::new(AtomicBool::new(false));
        (open.clone(), move || open.load(SeqCst))
    }

    #[test]
    fn work_keeps_its_order() {
        let (queue, log) = (Queue::default(), Log::default());
        let seen = || log.lock().unwrap().clone();
        queue.submit(&log, note(1)).unwrap();
        assert_eq!(seen(), [1], "nothing waits: at once");
        let ((first, is_first), (second, is_second)) = (gate(), gate());
        queue.enqueue(&log, is_first, note(2)).unwrap();
        queue.submit(&log, note(3)).unwrap();
        queue.enqueue(&log, is_second, note(4)).unwrap();
        queue.submit(&log, note(5)).unwrap();
        assert_eq!((seen(), queue.advance(&log).unwrap()), (vec![1], false));
        second.store(true, SeqCst);
        assert_eq!(
            (seen(), queue.advance(&log).unwrap()),
            (vec![1], false),
            "ready work stays behind work that is not ready"
        );
        second.store(false, SeqCst);
        first.store(true, SeqCst);
        queue.submit(&log, note(6)).unwrap();
        assert_eq!(seen(), [1, 2, 3], "a call issues work that has become ready");
        queue.settle(&log).unwrap();
        assert_eq!((seen(), queue.has_pending()), (vec![1, 2, 3, 4, 5, 6], false));
    }

    #[test]
    fn deferred_work_is_issued_before_later_work() {
        let (queue, log) = (Queue::default(), Log::default());
        let seen = || log.lock().unwrap().clone();
        let held = queue.hold(&log, || true, note(1)).unwrap().unwrap();
        assert!(seen().is_empty() && queue.has_pending() && !held.load(SeqCst));
        queue.enqueue_ahead(&log, || true, note(2)).unwrap();
        assert_eq!((seen(), held.load(SeqCst)), (vec![2], false), "independent work is issued first");
        queue.submit(&log, note(3)).unwrap();
        assert_eq!((seen(), held.load(SeqCst), queue.has_pending()), (vec![2, 1, 3], true, false));
        let first = queue.hold(&log, || true, note(4)).unwrap().unwrap();
        let second = queue.hold(&log, || true, note(5)).unwrap().unwrap();
        assert_eq!((seen(), first.load(SeqCst), second.load(SeqCst)), (vec![2, 1, 3, 4], true, false));
        let (open, is_open) = gate();
        queue.enqueue(&log, is_open, note(6)).unwrap();
        queue.hold(&log, || true, note(7)).unwrap().unwrap();
        queue.enqueue_ahead(&log, || true, note(8)).unwrap();
        queue.release(&log);
        assert_eq!(seen(), [2, 1, 3, 4, 5], "it stays behind work that is not ready");
        open.store(true, SeqCst);
        assert!(queue.advance(&log).unwrap());
        assert_eq!(seen(), [2, 1, 3, 4, 5, 6, 8, 7]);
        queue.hold(&log, || true, note(9)).unwrap().unwrap();
        queue.settle(&log).unwrap();
        queue.close(&log).unwrap();
        assert!(queue.hold(&log, || true, note(10)).unwrap().is_none() && !queue.has_pending());
        assert_eq!(seen()[8..], [9, 10]);
    }

    #[test]
    fn threads_keep_their_orders() {
        let (queue, log) = (Queue::default(), Log::default());
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (queue, log) = (&queue, &log);
                scope.spawn(move || {
                    for i in 0..500 {
                        let work = note(thread * 1000 + i);
                        match i % 7 {
                            // Becomes ready at the second check.
                            0 => {
                                let looked = AtomicBool::new(false);
                                queue.enqueue(log, move || looked.swap(true, SeqCst), work).unwrap();
                            }
                            3 => {
                                queue.submit(log, work).unwrap();
                                queue.settle(log).unwrap();
                            }
                            _ => queue.submit(log, work).unwrap(),
                        }
                    }
                });
            }
        });
        queue.settle(&log).unwrap();
        let log = log.into_inner().unwrap();
        assert_eq!(log.len(), 2000);
        for thread in 0..4 {
            let own = log.iter().filter(|&&n| n / 1000 == thread).map(|n| n % 1000);
            assert!(own.eq(0..500), "thread {thread}");
        }
    }

    #[test]
    fn an_error_is_reported_once_and_drops_later_work() {
        let (queue, log) = (Queue::default(), Log::default());
        let fail = |_: &Log| Err(Error::value("no such kernel"));
        for silently in [false, true] {
            queue.enqueue(&log, || false, fail).unwrap();
            queue.submit(&log, note(1)).unwrap();
            if silently {
                queue.settle_silently(&log);
                assert!(queue.has_pending(), "the error is kept for the next call");
            }
            assert!(queue.settle(&log).unwrap_err().to_string().contains("no such kernel"));
            assert!(!queue.has_pending() && queue.settle(&log).is_ok());
        }
        assert!(log.lock().unwrap().is_empty());
        queue.submit(&log, note(2)).unwrap();
        assert_eq!(*log.lock().unwrap(), [2]);
    }

    #[test]
    fn every_thread_learns_that_its_work_was_dropped() {
        let (queue, log) = (Queue::default(), Log::default());
        let (submitted, failed) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                queue.enqueue(&log, || false, |_: &Log| Err(Error::value("no such kernel"))).unwrap();
                submitted.wait();
                submitted.wait();
                assert!(queue.settle(&log).unwrap_err().to_string().contains("no such kernel"));
                failed.wait();
            });
            scope.spawn(|| {
                submitted.wait();
                queue.submit(&log, note(1)).unwrap();
                submitted.wait();
                failed.wait();
                let error = queue.submit(&log, note(2)).unwrap_err();
                assert!(error.to_string().contains("no such kernel"), "{error}");
                queue.submit(&log, note(3)).unwrap();
            });
        });
        assert_eq!((&log.lock().unwrap()[..], queue.has_pending()), (&[3][..], false));
    }

    #[test]
    fn a_full_queue_blocks_the_program() {
        let (queue, log) = (Queue::default(), Log::default());
        for i in 0..=MAX_PENDING as u32 {
            queue.enqueue(&log, || false, note(i)).unwrap();
        }
        assert!(!queue.has_pending() && log.lock().unwrap().len() == MAX_PENDING + 1);
    }

    #[test]
    fn a_closed_queue_defers_nothing() {
        let (queue, log) = (Queue::default(), Log::default());
        queue.enqueue(&log, || false, note(1)).unwrap();
        queue.close(&log).unwrap();
        queue.enqueue(&log, || false, note(2)).unwrap();
        assert_eq!((&log.lock().unwrap()[..], queue.has_pending()), (&[1, 2][..], false));
    }
}
