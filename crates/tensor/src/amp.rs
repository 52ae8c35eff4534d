//! Mixed precision: `autocast` runs matrix products and convolutions in `bfloat16` or `float16`, losses in `float32`, and the rest in
//! whatever dtype its inputs have, as PyTorch does.
//!
//! An op that takes part asks for its policy first: `if let Some(cast) = amp::lower() { … }`, and runs itself again on converted inputs
//! with autocast off.

use crate::Tensor;
use crate::autograd::is_grad_enabled;
use rushlight_core::{DType, Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

thread_local! {
    static DTYPE: Cell<Option<DType>> = const { Cell::new(None) };
    /// Parameters converted in this region, so that one used twice is converted once. Keeps the parameter alive, and with it its id.
    static CASTS: RefCell<HashMap<usize, Cast>> = RefCell::new(HashMap::new());
}

struct Cast {
    _parameter: Tensor,
    version: u32,
    result: Tensor,
}

/// The dtype that `autocast` lowers to on this thread, if it is on.
#[inline]
pub fn autocast_dtype() -> Option<DType> {
    DTYPE.get()
}

/// Puts the former state back when dropped. Not `Send`: the state is the thread's.
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

/// Runs a closure in mixed precision: products and convolutions in `dtype`, losses in `float32`. Parameters stay as they are; so do their
/// gradients. `backward` belongs outside.
///
/// ```
/// use rushlight_core::DType;
/// use rushlight_tensor::{Tensor, autocast};
/// let (x, w) = (Tensor::ones([2, 3])?, Tensor::ones([4, 3])?.requires_grad_(true)?);
/// let y = autocast(DType::BF16, || x.linear(&w, None))?;
/// assert_eq!(y.dtype(), DType::BF16);
/// y.sum()?.backward()?;
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
            casts.clear();
        }
    });
}

/// How an op's inputs are to be converted.
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
    /// An input as the policy wants it. Integers, `bool` and `float64` stay.
    pub(crate) fn of(self, x: &Tensor) -> Result<Tensor> {
        if !x.is_floating_point() || x.dtype() == DType::F64 || x.dtype() == self.0 {
            return Ok(x.clone());
        }
        let parameter = x.dtype() == DType::F32 && x.requires_grad() && is_grad_enabled() && x.is_leaf();
        if !parameter {
            return x.to_dtype(self.0);
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
        let result = x.to_dtype(self.0)?;
        let cast = Cast { _parameter: x.clone(), version: x.version(), result: result.clone() };
        CASTS.with_borrow_mut(|casts| casts.insert(x.id(), cast));
        Ok(result)
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
