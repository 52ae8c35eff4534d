//! Launch queue: holds launches until their kernels are compiled, so compilation overlaps with the program.
//!
//! A kernel that is not on disk is compiled on another thread. Its launch waits here meanwhile, with all later work of
//! the device, and the program continues, so the kernels of a first step are compiled in parallel.
//! `settle()` drains the queue. Call it before reading results or handing the raw stream to a library.
//!
//! The last piece of work may be held back ([`Queue::hold`]) although it could be issued: the next call may
//! fuse with it (`chain`). It is issued before any later work.

use rushlight_core::{Error, Result};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most launches that may wait before the program waits with them.
const MOST: usize = 1 << 14;

struct Waiting<C> {
    ready: Box<dyn Fn() -> bool + Send>,
    issue: Box<dyn FnOnce(&C) -> Result<()> + Send>,
}

struct State<C> {
    work: VecDeque<Waiting<C>>,
    /// An error from a deferred launch, returned by the next call that can fail.
    failed: Option<Error>,
    /// Whether the last piece of work, which is held back, may be issued.
    gate: Option<Arc<AtomicBool>>,
}

impl<C> State<C> {
    /// Holds nothing back any more.
    fn open(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.store(true, Release);
        }
    }
}

/// Work of a device `C`, in order.
pub struct Queue<C> {
    state: Mutex<State<C>>,
    /// Whether there is anything in it: all that a call looks at once kernels are compiled.
    waits: AtomicBool,
    /// Set on shutdown: launches are issued immediately.
    closed: AtomicBool,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        let state = Mutex::new(State { work: VecDeque::new(), failed: None, gate: None });
        Self { state, waits: AtomicBool::new(false), closed: AtomicBool::new(false) }
    }
}

impl<C> Queue<C> {
    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether launches are pending, so that new ones must queue behind them.
    #[inline]
    pub fn waits(&self) -> bool {
        self.waits.load(Acquire)
    }

    /// Issues work: at once, or after the pending work.
    #[inline]
    pub fn submit(&self, device: &C, work: impl FnOnce(&C) -> Result<()> + Send + 'static) -> Result<()> {
        if self.waits() { self.put(device, || true, work) } else { work(device) }
    }

    /// Issues work when it is ready and all before it is issued.
    #[cold]
    pub fn put(
        &self,
        device: &C,
        ready: impl Fn() -> bool + Send + 'static,
        work: impl FnOnce(&C) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let mut state = self.state();
        state.open();
        state.work.push_back(Waiting { ready: Box::new(ready), issue: Box::new(work) });
        let all = state.work.len() > MOST || self.closed.load(Relaxed);
        self.issue(device, &mut state, all)
    }

    /// Holds work back until later work arrives and it is ready. Returns a flag that tells whether it has been issued;
    /// `None` on shutdown, when it is issued immediately.
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
        state.work.push_back(Waiting { ready: Box::new(ready), issue: Box::new(work) });
        state.gate = Some(gate.clone());
        self.issue(device, &mut state, false)?;
        Ok(Some(gate))
    }

    /// Issues work that is independent of the held work: before it, and at once if nothing else
    /// is pending.
    pub fn put_ahead(
        &self,
        device: &C,
        ready: impl Fn() -> bool + Send + 'static,
        work: impl FnOnce(&C) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let mut state = self.state();
        let place = state.work.len() - usize::from(state.gate.is_some() && !state.work.is_empty());
        state.work.insert(place, Waiting { ready: Box::new(ready), issue: Box::new(work) });
        self.issue(device, &mut state, false)
    }

    /// Issues the held work once the work before it is issued. The next call returns an error.
    pub fn release(&self, device: &C) {
        let mut state = self.state();
        state.open();
        if let Err(error) = self.issue(device, &mut state, false) {
            state.failed = Some(error);
            self.waits.store(true, Release);
        }
    }

    /// Issues all that waits, however long it takes to become ready.
    #[inline]
    pub fn settle(&self, device: &C) -> Result<()> {
        if self.waits() { self.issue(device, &mut self.state(), true) } else { Ok(()) }
    }

    /// [`settle`](Queue::settle) for those who cannot report an error: the next call does.
    pub fn settle_silently(&self, device: &C) {
        if self.waits() {
            let mut state = self.state();
            state.failed = self.issue(device, &mut state, true).err();
            self.waits.store(state.failed.is_some(), Release);
        }
    }

    /// Issues the work that is ready. Returns whether the queue is empty.
    pub fn advance(&self, device: &C) -> Result<bool> {
        if self.waits() {
            let mut state = self.state();
            state.open();
            self.issue(device, &mut state, false)?;
        }
        Ok(!self.waits())
    }

    /// From now on nothing waits but the program: others give the device work, too, and expect it to come after ours.
    pub fn close(&self, device: &C) -> Result<()> {
        self.closed.store(true, Relaxed);
        self.settle(device)
    }

    /// After an error the pending work is dropped: its inputs are missing.
    fn issue(&self, device: &C, state: &mut State<C>, all: bool) -> Result<()> {
        let mut result = state.failed.take().map_or(Ok(()), Err);
        while result.is_ok() && state.work.front().is_some_and(|next| all || (next.ready)()) {
            let Some(next) = state.work.pop_front() else { break };
            result = (next.issue)(device);
        }
        if result.is_err() {
            state.work.clear();
        }
        if state.work.is_empty() {
            state.open();
        }
        self.waits.store(!state.work.is_empty(), Release);
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
        queue.put(&log, is_first, note(2)).unwrap();
        queue.submit(&log, note(3)).unwrap();
        queue.put(&log, is_second, note(4)).unwrap();
        queue.submit(&log, note(5)).unwrap();
        assert_eq!((seen(), queue.advance(&log).unwrap()), (vec![1], false));
        second.store(true, SeqCst);
        assert_eq!((seen(), queue.advance(&log).unwrap()), (vec![1], false), "what is ready waits for what is not");
        second.store(false, SeqCst);
        first.store(true, SeqCst);
        queue.submit(&log, note(6)).unwrap();
        assert_eq!(seen(), [1, 2, 3], "a call issues what has become ready");
        queue.settle(&log).unwrap();
        assert_eq!((seen(), queue.waits()), (vec![1, 2, 3, 4, 5, 6], false));
    }

    #[test]
    fn what_is_held_back_comes_before_all_that_follows() {
        let (queue, log) = (Queue::default(), Log::default());
        let seen = || log.lock().unwrap().clone();
        let held = queue.hold(&log, || true, note(1)).unwrap().unwrap();
        assert!(seen().is_empty() && queue.waits() && !held.load(SeqCst));
        queue.put_ahead(&log, || true, note(2)).unwrap();
        assert_eq!((seen(), held.load(SeqCst)), (vec![2], false), "what does not depend on it need not wait");
        queue.submit(&log, note(3)).unwrap();
        assert_eq!((seen(), held.load(SeqCst), queue.waits()), (vec![2, 1, 3], true, false));
        let first = queue.hold(&log, || true, note(4)).unwrap().unwrap();
        let second = queue.hold(&log, || true, note(5)).unwrap().unwrap();
        assert_eq!((seen(), first.load(SeqCst), second.load(SeqCst)), (vec![2, 1, 3, 4], true, false));
        let (open, is_open) = gate();
        queue.put(&log, is_open, note(6)).unwrap();
        queue.hold(&log, || true, note(7)).unwrap().unwrap();
        queue.put_ahead(&log, || true, note(8)).unwrap();
        queue.release(&log);
        assert_eq!(seen(), [2, 1, 3, 4, 5], "it waits behind what is not ready");
        open.store(true, SeqCst);
        assert!(queue.advance(&log).unwrap());
        assert_eq!(seen(), [2, 1, 3, 4, 5, 6, 8, 7]);
        queue.hold(&log, || true, note(9)).unwrap().unwrap();
        queue.settle(&log).unwrap();
        queue.close(&log).unwrap();
        assert!(queue.hold(&log, || true, note(10)).unwrap().is_none() && !queue.waits());
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
                            // Ready at the second look.
                            0 => {
                                let looked = AtomicBool::new(false);
                                queue.put(log, move || looked.swap(true, SeqCst), work).unwrap();
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
    fn an_error_is_told_once_and_ends_what_came_after() {
        let (queue, log) = (Queue::default(), Log::default());
        let fail = |_: &Log| Err(Error::value("no such kernel"));
        for silently in [false, true] {
            queue.put(&log, || false, fail).unwrap();
            queue.submit(&log, note(1)).unwrap();
            if silently {
                queue.settle_silently(&log);
                assert!(queue.waits(), "the error waits for somebody to tell");
            }
            assert!(queue.settle(&log).unwrap_err().to_string().contains("no such kernel"));
            assert!(!queue.waits() && queue.settle(&log).is_ok());
        }
        assert!(log.lock().unwrap().is_empty());
        queue.submit(&log, note(2)).unwrap();
        assert_eq!(*log.lock().unwrap(), [2]);
    }

    #[test]
    fn a_program_that_never_waits_is_held_back() {
        let (queue, log) = (Queue::default(), Log::default());
        for i in 0..=MOST as u32 {
            queue.put(&log, || false, note(i)).unwrap();
        }
        assert!(!queue.waits() && log.lock().unwrap().len() == MOST + 1);
    }

    #[test]
    fn a_closed_queue_holds_nothing() {
        let (queue, log) = (Queue::default(), Log::default());
        queue.put(&log, || false, note(1)).unwrap();
        queue.close(&log).unwrap();
        queue.put(&log, || false, note(2)).unwrap();
        assert_eq!((&log.lock().unwrap()[..], queue.waits()), (&[1, 2][..], false));
    }
}
