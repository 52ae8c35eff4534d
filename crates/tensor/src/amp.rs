//! Mixed precision: `autocast` runs matrix products and convolutions in `bfloat16` or `float16`, losses in `float32`,
//! and the rest in whatever dtype its inputs have, as PyTorch does.
//!
//! An op that autocast affects checks its policy first: `if let Some(cast) = amp::lower() { … }`. It then calls itself
//! on converted inputs with autocast off.

use crate::Tensor;
use crate::autograd::is_grad_enabled;
use crate::tensor::Inner;
use rushlight_core::sync::Seldom;
use rushlight_core::{DType, Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

static DTYPE: Seldom<Option<DType>> = Seldom::new(None, &OWN_DTYPE);

thread_local! {
    static OWN_DTYPE: Cell<Option<DType>> = const { Cell::new(None) };
    /// Parameters converted in this region, so that one used twice is converted once. Keeps the parameter alive, and
    /// with it its id.
    static CASTS: RefCell<HashMap<usize, Cast>> = RefCell::new(HashMap::new());
    /// Parameters that the previous region converted, in order. A training loop's next region converts them all in one
    /// pass.
    static PREVIOUS_REGION: RefCell<Vec<Weak<Inner>>> = const { RefCell::new(Vec::new()) };
}

struct Cast {
    parameter: Tensor,
    version: u32,
    /// How many were converted before.
    order: usize,
    result: Tensor,
}

/// The dtype that `autocast` lowers to on this thread, if it is on.
#[inline]
pub fn autocast_dtype() -> Option<DType> {
    DTYPE.get()
}

/// Restores the previous state when dropped. Not `Send`: the state is the thread's.
#[must_use = "the mode ends when the guard is dropped"]
pub struct AutocastGuard {
    former: Option<DType>,
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for AutocastGuard {
    fn drop(&mut self) {
        DTYPE.set(self.former);
        if self.former.is_none() {
            forget_casts();
        }
    }
}

/// [`set_autocast`] with a dtype known to be one of the two.
pub(crate) fn enter(dtype: Option<DType>) -> AutocastGuard {
    AutocastGuard { former: DTYPE.replace(dtype), _thread: std::marker::PhantomData }
}

/// Turns autocast on (with `bfloat16` or `float16`) or off until the guard is dropped.
pub fn set_autocast(dtype: Option<DType>) -> Result<AutocastGuard> {
    match dtype {
        None | Some(DType::BF16 | DType::F16) => Ok(enter(dtype)),
        Some(other) => {
            Err(Error::dtype(format!("autocast: only bfloat16 and float16 are lower precisions, not {other}")))
        }
    }
}

/// Runs a closure in mixed precision: products and convolutions in `dtype`, losses in `float32`. Parameters and
/// their gradients keep their dtype. Call `backward` outside.
///
/// ```
/// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
/// use rushlight::DType;
/// use rushlight::{Tensor, autocast};
/// let (x, w) = (Tensor::ones([2, 3])?, Tensor::ones([4, 3])?.requires_grad_(true)?);
/// let y = autocast(DType::BF16, || x.linear(&w, None))?;
/// assert_eq!(y.dtype(), DType::BF16);
/// y.sum(..)?.backward()?;
/// assert_eq!(w.grad().unwrap().dtype(), DType::F32);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn autocast<T>(dtype: DType, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = set_autocast(Some(dtype))?;
    f()
}

/// Runs a closure in the inputs' own precision, also inside [`autocast`].
pub fn without_autocast<T>(f: impl FnOnce() -> T) -> T {
    if DTYPE.get().is_none() {
        return f();
    }
    let _guard = enter(None);
    f()
}

/// Autocast off for a backward pass, which also uses up the graph of converted parameters.
pub(crate) fn suspend() -> AutocastGuard {
    forget_casts();
    enter(None)
}

pub(crate) fn forget_casts() {
    CASTS.with_borrow_mut(|casts| {
        if !casts.is_empty() {
            let mut former: Vec<_> =
                casts.drain().map(|(_, cast)| (cast.order, Arc::downgrade(&cast.parameter.0))).collect();
            former.sort_by_key(|(order, _)| *order);
            PREVIOUS_REGION.set(former.into_iter().map(|(_, parameter)| parameter).collect());
        }
    });
}

/// A parameter that autocast converts, and keeps converted.
fn is_parameter(x: &Tensor) -> bool {
    x.dtype() == DType::F32 && x.requires_grad() && is_grad_enabled() && x.is_leaf()
}

/// Converts a parameter on its first use in a region. If the previous region converted it too, all parameters of that
/// region are converted in the same pass.
fn convert(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let previous = if CASTS.with_borrow(HashMap::is_empty) { PREVIOUS_REGION.take() } else { Vec::new() };
    let mut all: Vec<Tensor> = previous.iter().filter_map(|t| t.upgrade().map(Tensor)).collect();
    if all.iter().any(|t| t.id() == x.id()) {
        all.retain(|t| is_parameter(t) && t.device() == x.device() && t.is_contiguous());
    } else {
        all.clear();
    }
    if !all.iter().any(|t| t.id() == x.id()) {
        all = vec![x.clone()];
    }
    let results = Tensor::lowered_together(&all, dtype)?;
    let mut found = None;
    CASTS.with_borrow_mut(|casts| {
        for (parameter, result) in all.into_iter().zip(results) {
            if parameter.id() == x.id() {
                found = Some(result.clone());
            }
            let (id, version, order) = (parameter.id(), parameter.version(), casts.len());
            casts.insert(id, Cast { parameter, version, order, result });
        }
    });
    found.ok_or_else(|| Error::value("autocast: a parameter was not converted"))
}

/// How an op's inputs are converted.
#[derive(Clone, Copy)]
pub(crate) struct Policy(DType);

/// The policy of ops that gain from low precision: products, convolutions, attention. `None` when autocast is off.
#[inline]
pub(crate) fn lower() -> Option<Policy> {
    DTYPE.get().map(Policy)
}

/// The policy of ops that need range or precision: losses, factorisations.
#[inline]
pub(crate) fn full() -> Option<Policy> {
    DTYPE.get().map(|_| Policy(DType::F32))
}

impl Policy {
    /// The input converted by the policy. Integers, `bool` and `float64` are unchanged.
    pub(crate) fn of(self, x: &Tensor) -> Result<Tensor> {
        if !x.is_floating_point() || x.dtype() == DType::F64 || x.dtype() == self.0 {
            return Ok(x.clone());
        }
        if !is_parameter(x) {
            return x.lowered(self.0);
        }
        let known = CASTS.with_borrow(|casts| {
            casts
                .get(&x.id())
                .filter(|c| c.version == x.version() && c.result.dtype() == self.0)
                .map(|c| c.result.clone())
        });
        if let Some(result) = known {
            return Ok(result);
        }
        convert(x, self.0)
    }

    /// [`Policy::of`] an input that may be missing.
    pub(crate) fn of_option(self, x: Option<&Tensor>) -> Result<Option<Tensor>> {
        x.map(|x| self.of(x)).transpose()
    }

    /// Runs the op on converted inputs, autocast being off within.
    pub(crate) fn run<T>(self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        without_autocast(f)
    }
}
