//! Abort conditions of a wait: another rank's failure, or the deadline.

use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set once, when the job cannot continue. Every wait checks it.
#[derive(Default)]
pub(crate) struct Abort {
    raised: AtomicBool,
    reason: Mutex<String>,
    /// Ranks of the world that have left cleanly: waiting for one of them is an error.
    departed: Mutex<HashSet<usize>>,
    /// Actions to run when it is raised.
    callbacks: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Abort {
    /// Raises it; the first reason stays.
    pub(crate) fn raise(&self, reason: &str) {
        let mut text = lock(&self.reason);
        if !self.raised.load(Ordering::Relaxed) {
            reason.clone_into(&mut text);
            self.raised.store(true, Ordering::Release);
            let callbacks = std::mem::take(&mut *lock(&self.callbacks));
            if !callbacks.is_empty() {
                // They may be slow; the thread that raises this must not wait.
                let run = move || callbacks.into_iter().for_each(|callback| callback());
                let _ = std::thread::Builder::new().name("rushlight-abort".into()).spawn(run);
            }
        }
    }

    /// Registers an action for that moment; it runs on another thread, at once if the job was aborted already.
    pub(crate) fn on_raise(&self, callback: impl FnOnce() + Send + 'static) {
        let _reason = lock(&self.reason);
        if self.is_raised() {
            return callback();
        }
        lock(&self.callbacks).push(Box::new(callback));
    }

    pub(crate) fn depart(&self, ranks: impl Iterator<Item = usize>) {
        lock(&self.departed).extend(ranks);
    }

    pub(crate) fn has_departed(&self, rank: usize) -> bool {
        lock(&self.departed).contains(&rank)
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_raised() {
            return Ok(());
        }
        Err(Error::io(lock(&self.reason).clone()))
    }
}

/// Deadline of one collective.
pub(crate) struct Limit<'a> {
    pub(crate) abort: &'a Abort,
    pub(crate) deadline: Instant,
    pub(crate) timeout: Duration,
    /// Whether the calling thread is a background thread: it then yields the core while it waits.
    pub(crate) background: bool,
}

impl<'a> Limit<'a> {
    pub(crate) fn new(abort: &'a Abort, timeout: Duration) -> Self {
        let far = Duration::from_secs(1 << 30);
        Self { abort, deadline: Instant::now() + timeout.min(far), timeout, background: false }
    }

    /// Returns an error if the job was aborted or the deadline has passed; the latter names the rank waited for.
    pub(crate) fn check(&self, waiting_for: impl FnOnce() -> String) -> Result<()> {
        self.abort.check()?;
        if Instant::now() >= self.deadline {
            let seconds = self.timeout.as_secs_f32();
            return Err(Error::timeout(format!("timed out after {seconds} s waiting for {}", waiting_for())));
        }
        Ok(())
    }
}
