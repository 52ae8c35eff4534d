//! Handles of asynchronous collectives.

use super::device::OnDevice;
use super::lower::Lowered;
use crate::job::Job;
use rushlight_core::backend::DeviceWork;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// An asynchronous collective. Its tensors must not be used until [`Work::wait`] returns.
#[derive(Clone)]
#[must_use = "the result is available after wait() returns"]
pub struct Work(Inner);

#[derive(Clone)]
enum Inner {
    Host(Arc<State>),
    Device(Arc<OnDevice>),
}

#[derive(Default)]
struct State {
    result: Mutex<Option<Result<()>>>,
    done: Condvar,
}

impl Work {
    pub(crate) fn pending() -> Self {
        Self(Inner::Host(Arc::default()))
    }

    pub(crate) fn finished(result: Result<()>) -> Self {
        let work = Self::pending();
        work.finish(result);
        work
    }

    /// A collective that was issued on a device's stream.
    pub(super) fn on_device(work: Arc<dyn DeviceWork>, lowered: Lowered, job: Arc<Job>) -> Self {
        Self(Inner::Device(Arc::new(OnDevice::new(work, lowered, job))))
    }

    /// The result of a collective on the host.
    pub(crate) fn finish(&self, result: Result<()>) {
        if let Inner::Host(state) = &self.0 {
            *lock(&state.result) = Some(result);
            state.done.notify_all();
        }
    }

    /// Waits for the collective. It ends at its group's timeout at the latest.
    ///
    /// For tensors on an accelerator, the calling thread's stream waits and this returns at once: later work on the
    /// tensors runs after the collective.
    pub fn wait(&self) -> Result<()> {
        let _span = rushlight_tensor::profile::span(rushlight_tensor::profile::Category::Op, || "c10d::wait");
        let state = match &self.0 {
            Inner::Host(state) => state,
            Inner::Device(part) => return part.wait(),
        };
        let mut result = lock(&state.result);
        loop {
            match &*result {
                Some(result) => return result.clone(),
                None => result = state.done.wait(result).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }

    /// [`Work::wait`] with a timeout; the collective continues after it. The host waits, wherever the tensors
    /// are.
    pub fn wait_for(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
        let late = || Err(Error::io(format!("the collective is not done after {} s", timeout.as_secs_f32())));
        let state = match &self.0 {
            Inner::Host(state) => state,
            Inner::Device(part) => return if part.wait_until(deadline)? { Ok(()) } else { late() },
        };
        let mut result = lock(&state.result);
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return late();
            }
            result = state.done.wait_timeout(result, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    /// Whether it has ended, successfully or not.
    pub fn is_completed(&self) -> bool {
        match &self.0 {
            Inner::Host(state) => lock(&state.result).is_some(),
            Inner::Device(part) => part.is_completed(),
        }
    }
}
