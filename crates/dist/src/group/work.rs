//! Handles of collectives that go on while the program does.

use rushlight_core::{Error, Result};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A collective that was started. Its tensors must not be used until [`Work::wait`] returns.
#[derive(Clone)]
#[must_use = "the collective's result is there when wait() returns"]
pub struct Work(Arc<State>);

#[derive(Default)]
struct State {
    result: Mutex<Option<Result<()>>>,
    done: Condvar,
}

impl Work {
    pub(crate) fn pending() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn finished(result: Result<()>) -> Self {
        let work = Self::pending();
        work.finish(result);
        work
    }

    pub(crate) fn finish(&self, result: Result<()>) {
        *self.0.result.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
        self.0.done.notify_all();
    }

    /// Waits for the collective. It ends at its group's timeout at the latest.
    pub fn wait(&self) -> Result<()> {
        let mut result = self.0.result.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            match &*result {
                Some(result) => return result.clone(),
                None => result = self.0.done.wait(result).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }

    /// [`Work::wait`] with a timeout, after which the collective still goes on.
    pub fn wait_for(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
        let mut result = self.0.result.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::io(format!("the collective is not done after {} s", timeout.as_secs_f32())));
            }
            result = self.0.done.wait_timeout(result, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    /// Whether it is done, well or not.
    pub fn is_completed(&self) -> bool {
        self.0.result.lock().unwrap_or_else(|e| e.into_inner()).is_some()
    }
}
