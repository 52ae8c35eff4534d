//! Hooks that pack and unpack tensors saved for the backward pass: PyTorch's `saved_tensors_hooks` and `save_on_cpu`.

use super::mode::{self, no_grad};
use super::node::{Edge, Node};
use crate::Tensor;
use rushlight_core::sync::Seldom;
use rushlight_core::{DType, Device, Dims, Error, Result};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Stores tensors that ops keep for their backward pass in another form, and restores them.
///
/// See [`saved_tensors_hooks`].
pub trait SavedTensorsHooks: Send + Sync {
    /// Called when an op saves `tensor`. Returns the value to store instead.
    fn pack(&self, tensor: &Tensor) -> Result<Box<dyn Any + Send + Sync>>;
    /// Called in the backward pass, once for every use. Returns the tensor with its former shape, dtype and device.
    fn unpack(&self, packed: &(dyn Any + Send + Sync)) -> Result<Tensor>;
}

/// Whether `HOOKS` is in force: all that an op looks at when there are none.
static ACTIVE: Seldom<bool> = Seldom::new(false, &OWN_ACTIVE);

thread_local! {
    static HOOKS: RefCell<Vec<Arc<dyn SavedTensorsHooks>>> = const { RefCell::new(Vec::new()) };
    static OWN_ACTIVE: Cell<bool> = const { Cell::new(false) };
    /// The error of a pack hook, until the op that called it is recorded.
    static FAILED: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Removes its hooks when dropped. Not `Send`: hooks are per thread.
#[must_use = "the hooks end when the guard is dropped"]
pub struct SavedTensorsGuard {
    depth: usize,
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for SavedTensorsGuard {
    fn drop(&mut self) {
        // A thread that ends may have dropped its hooks before this guard.
        let _ = HOOKS.try_with(|hooks| {
            let mut hooks = hooks.borrow_mut();
            hooks.truncate(self.depth);
            ACTIVE.set(!hooks.is_empty());
        });
    }
}

/// Puts `hooks` between ops of this thread and the tensors they keep for the backward pass, until the guard is dropped.
/// Of nested guards, the innermost one's hooks are used. As in PyTorch, a tensor that a hook keeps is not checked for
/// changes in place.
///
/// ```
/// # mod rushlight { pub use rushlight_core::{DType, Result}; pub use rushlight_tensor::*; }
/// use rushlight::{Tensor, autograd::{SavedTensorsHooks, saved_tensors_hooks}};
/// use rushlight::{DType, Result};
/// use std::{any::Any, sync::Arc};
///
/// /// Keeps tensors in half the memory.
/// struct InHalves;
/// impl SavedTensorsHooks for InHalves {
///     fn pack(&self, tensor: &Tensor) -> Result<Box<dyn Any + Send + Sync>> {
///         Ok(Box::new(tensor.to_dtype(DType::BF16)?))
///     }
///     fn unpack(&self, packed: &(dyn Any + Send + Sync)) -> Result<Tensor> {
///         packed.downcast_ref::<Tensor>().expect("packed here").to_dtype(DType::F32)
///     }
/// }
///
/// let x = Tensor::new([3.0f32])?.requires_grad_(true)?;
/// let y = {
///     let _hooks = saved_tensors_hooks(Arc::new(InHalves));
///     x.square()?
/// };
/// y.backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [6.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn saved_tensors_hooks(hooks: Arc<dyn SavedTensorsHooks>) -> SavedTensorsGuard {
    HOOKS.with_borrow_mut(|all| {
        all.push(hooks);
        ACTIVE.set(true);
        SavedTensorsGuard { depth: all.len() - 1, _thread: std::marker::PhantomData }
    })
}

/// Keeps tensors for the backward pass in the host's memory until the guard is dropped, and copies each back to its
/// device when the backward pass needs it. With `pin_memory`, in pinned memory where the device has it, from which
/// copies are faster.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, autograd::save_on_cpu};
/// let x = Tensor::new([3.0f32])?.requires_grad_(true)?;
/// let y = {
///     let _hooks = save_on_cpu(false);
///     x.exp()?.square()?
/// };
/// y.backward()?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn save_on_cpu(pin_memory: bool) -> SavedTensorsGuard {
    saved_tensors_hooks(Arc::new(OnCpu { pin_memory }))
}

struct OnCpu {
    pin_memory: bool,
}

struct Offloaded {
    kept: Tensor,
    version: u32,
    home: Device,
}

impl SavedTensorsHooks for OnCpu {
    fn pack(&self, tensor: &Tensor) -> Result<Box<dyn Any + Send + Sync>> {
        let home = tensor.device();
        let kept = match (home.is_cpu(), self.pin_memory) {
            (true, _) => tensor.alias(),
            (false, true) => tensor.to(Device::Cpu)?.pin_memory()?,
            (false, false) => tensor.to(Device::Cpu)?,
        };
        Ok(Box::new(Offloaded { version: kept.graph_version(), kept, home }))
    }

    fn unpack(&self, packed: &(dyn Any + Send + Sync)) -> Result<Tensor> {
        match packed.downcast_ref::<Offloaded>() {
            Some(saved) if saved.kept.graph_version() == saved.version => saved.kept.to(saved.home),
            Some(saved) => Err(Error::autograd(format!(
                "save_on_cpu: a saved {} tensor of shape {:?} has been modified by an inplace operation",
                saved.kept.dtype(),
                saved.kept.shape()
            ))),
            None => Err(Error::value("save_on_cpu: the object to unpack was not made by pack")),
        }
    }
}

/// The hooks in force on this thread. Hooks that treat some tensors only pass the others on to these.
#[inline]
pub fn current_saved_tensors_hooks() -> Option<Arc<dyn SavedTensorsHooks>> {
    current()
}

#[inline]
pub(super) fn current() -> Option<Arc<dyn SavedTensorsHooks>> {
    if !ACTIVE.get() {
        return None;
    }
    HOOKS.with_borrow(|hooks| hooks.last().cloned())
}

/// The error of a pack hook since the last call.
#[inline]
pub(super) fn take_failure() -> Result<()> {
    if !ACTIVE.get() {
        return Ok(());
    }
    FAILED.with_borrow_mut(|failed| failed.take().map_or(Ok(()), Err))
}

/// A tensor in the form a pack hook gave it.
pub(crate) struct Packed {
    hooks: Arc<dyn SavedTensorsHooks>,
    /// `None` where the hook failed.
    value: Option<Box<dyn Any + Send + Sync>>,
    /// The tensor's place on the tape, for derivatives of the backward pass.
    pub(super) edge: Option<Edge>,
    shape: Dims,
    dtype: DType,
    device: Device,
}

impl Packed {
    pub(super) fn new(hooks: Arc<dyn SavedTensorsHooks>, tensor: &Tensor, edge: Option<Edge>) -> Box<Self> {
        let (mut packed, failure) = Self::made(hooks, tensor);
        packed.edge = edge;
        if let Some(error) = failure {
            FAILED.set(Some(error));
        }
        Box::new(packed)
    }

    /// A tensor that was kept as it is until now.
    pub(super) fn later(hooks: Arc<dyn SavedTensorsHooks>, tensor: &Tensor, edge: Option<Edge>) -> Result<Self> {
        let (packed, failure) = Self::made(hooks, tensor);
        failure.map_or(Ok(Self { edge, ..packed }), Err)
    }

    fn made(hooks: Arc<dyn SavedTensorsHooks>, tensor: &Tensor) -> (Self, Option<Error>) {
        // The hook's own ops are neither recorded nor packed.
        let active = ACTIVE.replace(false);
        let packed = no_grad(|| hooks.pack(&tensor.alias()));
        ACTIVE.set(active);
        let (value, failure) = match packed {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error.within("saved_tensors_hooks, pack hook"))),
        };
        let (shape, dtype, device) = (Dims::from_slice(tensor.shape()), tensor.dtype(), tensor.device());
        (Self { hooks, value, edge: None, shape, dtype, device }, failure)
    }

    pub(super) fn unpack(&self, node: &Node) -> Result<Tensor> {
        let Some(value) = &self.value else {
            return Err(Error::autograd(format!("{}: the pack hook of a saved tensor failed", node.display_name())));
        };
        let active = ACTIVE.replace(false);
        let tensor = no_grad(|| self.hooks.unpack(&**value));
        ACTIVE.set(active);
        let tensor = tensor.map_err(|e| e.within("saved_tensors_hooks, unpack hook"))?;
        // Backward kernels rely on the forward pass's checks.
        if tensor.shape() != &self.shape[..] || tensor.dtype() != self.dtype || tensor.device() != self.device {
            return Err(Error::autograd(format!(
                "{}: the unpack hook returned a {} tensor of shape {:?} on {}; the saved tensor was {} of shape {:?} on {}",
                node.display_name(),
                tensor.dtype(),
                tensor.shape(),
                tensor.device(),
                self.dtype,
                self.shape,
                self.device
            )));
        }
        Ok(if mode::is_grad_enabled() { tensor.alias() } else { tensor })
    }
}
