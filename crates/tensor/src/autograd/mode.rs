//! Whether ops are recorded, per thread.

use rushlight_core::Result;
use rushlight_core::sync::Seldom;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static INFERENCE: Seldom<bool> = Seldom::new(false, &OWN_INFERENCE);

thread_local! {
    static GRAD: Cell<bool> = const { Cell::new(true) };
    static OWN_INFERENCE: Cell<bool> = const { Cell::new(false) };
    static PASS: Cell<Option<Pass>> = const { Cell::new(None) };
}

static PASSES: AtomicU64 = AtomicU64::new(0);

/// A backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// A number that no other pass of the process has.
    pub id: u64,
    /// Whether it returns gradients of chosen tensors instead of adding to `.grad`.
    pub is_to_inputs: bool,
}

/// The innermost backward pass under way on this thread.
pub fn current_pass() -> Option<Pass> {
    PASS.get()
}

/// Marks a backward pass; the one around it is the current one again when this is dropped.
pub(super) struct PassGuard(Option<Pass>);

impl PassGuard {
    pub(super) fn new(is_to_inputs: bool) -> Self {
        Self(PASS.replace(Some(Pass { id: PASSES.fetch_add(1, Relaxed), is_to_inputs })))
    }
}

impl Drop for PassGuard {
    fn drop(&mut self) {
        PASS.set(self.0);
    }
}

static ANOMALY: AtomicBool = AtomicBool::new(false);

/// Whether ops on this thread are recorded.
#[inline]
pub fn is_grad_enabled() -> bool {
    GRAD.get()
}

#[inline]
pub(crate) fn is_inference() -> bool {
    INFERENCE.get()
}

/// Restores the previous state when dropped. Not `Send`: the state is the thread's.
#[must_use = "the mode ends when the guard is dropped"]
pub struct ModeGuard {
    grad: bool,
    inference: bool,
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        GRAD.set(self.grad);
        INFERENCE.set(self.inference);
    }
}

/// Records ops, or not, until the guard is dropped.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::autograd::{is_grad_enabled, set_grad_enabled};
/// {
///     let _guard = set_grad_enabled(false);
///     assert!(!is_grad_enabled());
/// }
/// assert!(is_grad_enabled());
/// ```
#[doc(alias = "no_grad")]
pub fn set_grad_enabled(enabled: bool) -> ModeGuard {
    let guard = ModeGuard { grad: GRAD.get(), inference: INFERENCE.get(), _thread: std::marker::PhantomData };
    GRAD.set(enabled);
    guard
}

/// Runs a closure without recording. The closure returns this library's `Result`, so `?` needs no annotation in it; for
/// anything else there is the guard of [`set_grad_enabled`].
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, autograd::no_grad};
/// let x = Tensor::new([1.0f32])?.requires_grad_(true)?;
/// no_grad(|| {
///     x.mul_(2.0)?;
///     x.sub_(1.0)?;
///     Ok(())
/// })?;
/// assert!(!no_grad(|| x.exp())?.requires_grad());
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn no_grad<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = set_grad_enabled(false);
    f()
}

/// Runs a closure with recording, also inside [`no_grad`].
pub fn enable_grad<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = set_grad_enabled(true);
    f()
}

/// Runs a closure without recording; tensors made in it can never enter a graph.
pub fn inference_mode<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = set_inference_mode(true);
    f()
}

/// Turns inference mode on, or off, until the guard is dropped. For callers of [`inference_mode`] that cannot use a
/// closure.
pub fn set_inference_mode(enabled: bool) -> ModeGuard {
    let guard = set_grad_enabled(!enabled);
    INFERENCE.set(enabled);
    guard
}

/// Whether ops on this thread make tensors that can never enter a graph.
pub fn is_inference_mode_enabled() -> bool {
    is_inference()
}

/// Switches anomaly detection for the whole process: a backward step that makes NaN is an error naming the op and where
/// its forward was called. Slow; for debugging.
pub fn set_detect_anomaly(enabled: bool) {
    ANOMALY.store(enabled, Relaxed);
}

/// Whether anomaly detection is on.
pub fn is_anomaly_enabled() -> bool {
    ANOMALY.load(Relaxed)
}

/// How a front of another language says where an op was called, in place of this program's stack.
pub struct CallSites {
    /// The present call, as text.
    pub current: fn() -> Option<String>,
    /// Tells the user which backward function made NaN, and where its forward was called if that is known.
    pub report: fn(function: &str, forward: Option<&str>),
}

static CALL_SITES: OnceLock<CallSites> = OnceLock::new();

/// Sets the source of call sites, once for the process.
pub fn set_call_sites(sites: CallSites) {
    let _ = CALL_SITES.set(sites);
}

pub(crate) fn call_sites() -> Option<&'static CallSites> {
    CALL_SITES.get()
}

/// Where the present op was called, with anomaly detection on.
pub(super) fn forward_call() -> Option<Box<str>> {
    if !is_anomaly_enabled() {
        return None;
    }
    match call_sites() {
        Some(sites) => (sites.current)().map(Into::into),
        None => Some(Backtrace::force_capture().to_string().into()),
    }
}
