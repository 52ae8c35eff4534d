//! Automatic differentiation: the tape, the engine that walks it back, and its user interface.
//!
//! An op that sees an input with `requires_grad` leaves a node holding a backward function and edges to its inputs'
//! nodes. [`Tensor::backward`] walks the nodes from the root in dependency order. Derivatives are made of tensor ops,
//! so with `create_graph` they are recorded themselves and can be differentiated again.

mod callback;
mod checkpoint;
mod engine;
mod foreign;
mod function;
mod gradcheck;
mod graph;
mod hooks;
mod inplace;
pub(crate) mod mode;
mod node;
mod saved;
mod saved_hooks;
mod version;

pub use callback::queue_callback;
pub use checkpoint::checkpoint;
pub use engine::{Backward, backward_from, grad, leaves, root};
pub use foreign::Foreign;
pub use function::{Context, Function, apply, apply_with_node};
pub use gradcheck::{Outputs, gradcheck, gradcheck_with, gradgradcheck, gradgradcheck_with};
pub use graph::{GradientEdge, GraphNode, WeakGraphNode};
pub use hooks::HookHandle;
pub use mode::{
    CallSites, ModeGuard, Pass, current_pass, enable_grad, inference_mode, is_anomaly_enabled, is_grad_enabled,
    is_inference_mode_enabled, no_grad, set_call_sites, set_detect_anomaly, set_grad_enabled, set_inference_mode,
};
pub use node::Grads;
pub use saved::SavedValue;
pub use saved_hooks::{
    SavedTensorsGuard, SavedTensorsHooks, current_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks,
};

pub(crate) use node::{Ctx, edges, record, record_conversion, record_many, record_masked, recording};
pub(crate) use saved::Saved;

use crate::{Tensor, capture};
use graph::Retained;
use node::{Hook, Node, PostHook};
use rushlight_core::{DType, Error, Result};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

/// A tensor's place on the tape.
pub(crate) struct Meta {
    pub(crate) grad: Option<Tensor>,
    /// The node this tensor is an output of; `None` for leaves.
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) slot: usize,
    /// A leaf's accumulation node, while a graph holds it.
    pub(crate) accumulate: Weak<Node>,
    /// Counts changes of history by in-place ops: views of this tensor compare it.
    pub(crate) epoch: u64,
    pub(crate) extra: Option<Box<Extra>>,
}

/// How a view was made.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    #[default]
    Recorded,
    /// By an op that returns several views: their changes cannot be told apart.
    OneOfSeveral,
    /// By a function of the user's, whose backward a recorded change would replace.
    InCustomFunction,
    /// While nothing was recorded: it is not clear whether a change should be.
    UnderNoGrad,
    UnderInference,
}

/// Attributes that few tensors have.
#[derive(Default)]
pub(crate) struct Extra {
    /// The tensor this one is a view of, and its epoch when the view's history was made.
    pub(crate) base: Option<(Tensor, u64)>,
    /// How the view was made, which decides whether a recorded change of it is allowed.
    pub(crate) origin: Origin,
    pub(crate) hooks: Vec<(u64, Hook)>,
    pub(crate) post_hooks: Vec<(u64, PostHook)>,
    pub(crate) retains_grad: bool,
    /// Whether backward does not notice changes through this tensor: see [`Tensor::data`].
    pub(crate) uncounted: bool,
    /// The storage's number of such changes when this tensor was made.
    pub(crate) uncounted_before: u32,
    /// The dtype of a leaf's gradient where it is not the leaf's; `Some(None)` accepts any.
    pub(crate) grad_dtype: Option<Option<DType>>,
    /// A copy in a lower dtype that was written along with this tensor, and the version it is of.
    pub(crate) lowered: Option<(Tensor, u32)>,
    /// Where the gradient is written: see [`Tensor::set_grad_home`].
    pub(crate) grad_home: Option<Tensor>,
    /// An object that has this gradient's elements: see [`Tensor::carrying`].
    pub(crate) foreign: Option<Arc<dyn Foreign>>,
}

impl Meta {
    pub(crate) fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_with(Default::default)
    }

    pub(crate) fn base(&self) -> Option<&Tensor> {
        self.extra.as_ref().and_then(|e| e.base.as_ref()).map(|(base, _)| base)
    }
}

impl Tensor {
    /// Sets the memory that backward should write this leaf's gradient to, so that gradients of several leaves are
    /// adjacent. It is a hint: ops that cannot write there, and gradients that are sums, allocate their
    /// own memory.
    ///
    /// While `.grad` is the home itself no other tensor may use that memory.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::Tensor;
    /// let w = Tensor::ones([3, 2])?.requires_grad_(true)?;
    /// let home = Tensor::zeros([3, 2])?;
    /// w.set_grad_home(Some(&home))?;
    /// Tensor::ones([4, 2])?.linear(&w, None)?.sum(..)?.backward()?;
    /// assert!(w.grad().unwrap().shares_storage(&home));
    /// assert_eq!(home.to_vec::<f32>()?, [4.0; 6]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn set_grad_home(&self, home: Option<&Tensor>) -> Result<()> {
        if let Some(home) = home {
            let fits = home.shape() == self.shape() && home.dtype() == self.dtype() && home.device() == self.device();
            if !fits || !home.is_contiguous() || home.requires_grad() {
                return Err(Error::value(format!(
                    "set_grad_home: {} {:?} on {} needs contiguous memory of the same dtype, size and device that requires no gradient, not {} {:?} on {}",
                    self.dtype(),
                    self.shape(),
                    self.device(),
                    home.dtype(),
                    home.shape(),
                    home.device()
                )));
            }
        }
        self.meta().extra().grad_home = home.map(Tensor::detach);
        Ok(())
    }

    /// The home, if there is no gradient yet and no hook that would see one.
    pub(crate) fn empty_grad_home(&self) -> Option<Tensor> {
        let meta = self.meta();
        let extra = meta.extra.as_ref().filter(|extra| meta.grad.is_none() && extra.hooks.is_empty())?;
        extra.grad_home.clone()
    }

    /// Whether a gradient is stored in its home.
    pub(crate) fn is_grad_home(&self, gradient: &Tensor) -> bool {
        let meta = self.meta();
        let home = meta.extra.as_ref().and_then(|extra| extra.grad_home.as_ref());
        home.is_some_and(|home| {
            home.shares_storage(gradient)
                && home.layout().offset() == gradient.layout().offset()
                && home.dtype() == gradient.dtype()
                && gradient.is_contiguous()
        })
    }

    /// Whether this tensor was made by the user and not by a recorded op. Gradients are kept for leaves.
    pub fn is_leaf(&self) -> bool {
        self.refresh_view();
        self.meta().node.is_none()
    }

    /// The name of the op that made this tensor, as PyTorch prints it, for example `ExpBackward0`.
    pub fn grad_fn(&self) -> Option<String> {
        self.refresh_view();
        self.meta().node.as_ref().map(|n| n.display_name())
    }

    /// The gradient that `backward` has added up, if any.
    pub fn grad(&self) -> Option<Tensor> {
        let grad = self.meta().grad.clone();
        if capture::is_recording() {
            capture::note_grad(self, grad.as_ref());
        }
        grad
    }

    /// Sets or clears the gradient.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        if let Some(g) = &grad {
            if g.shape() != self.shape() {
                return Err(Error::shape(format!(
                    "set_grad: the gradient has shape {:?}, the tensor {:?}",
                    g.shape(),
                    self.shape()
                )));
            }
            if self.grad_dtype().is_some_and(|dtype| dtype != g.dtype()) || g.device() != self.device() {
                return Err(Error::dtype(format!(
                    "set_grad: the gradient is {} on {}, the tensor {} on {}",
                    g.dtype(),
                    g.device(),
                    self.dtype(),
                    self.device()
                )));
            }
        }
        if capture::is_recording() {
            capture::note_cleared(self);
        }
        self.meta().grad = grad;
        Ok(())
    }

    /// The dtype of this tensor's gradients: its own unless [`Tensor::set_grad_dtype`] has changed it. `None` accepts
    /// any.
    pub fn grad_dtype(&self) -> Option<DType> {
        let set = self.meta().extra.as_ref().and_then(|extra| extra.grad_dtype);
        set.unwrap_or(Some(self.dtype()))
    }

    /// Sets the dtype that backward converts this leaf's gradient to; with `None` it keeps the dtype it comes in.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// # use rushlight_core::DType;
    /// let w = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
    /// w.set_grad_dtype(Some(DType::F64))?;
    /// w.square()?.sum(..)?.backward()?;
    /// assert_eq!(w.grad().unwrap().dtype(), DType::F64);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn set_grad_dtype(&self, dtype: Option<DType>) -> Result<()> {
        if !self.is_leaf() {
            return Err(Error::autograd("grad_dtype can only be set on leaf tensors."));
        }
        if let (Some(dtype), Some(grad)) = (dtype, self.grad())
            && grad.dtype() != dtype
        {
            return Err(Error::dtype(format!(
                "set_grad_dtype: there is already a gradient of {}; clear it before the dtype becomes {dtype}",
                grad.dtype()
            )));
        }
        self.meta().extra().grad_dtype = Some(dtype);
        Ok(())
    }

    /// A gradient in the dtype that this leaf's gradients have.
    pub(crate) fn in_grad_dtype(&self, gradient: Tensor) -> Result<Tensor> {
        let set = self.meta().extra.as_ref().and_then(|extra| extra.grad_dtype).flatten();
        match set {
            Some(dtype) if dtype != gradient.dtype() => gradient.to_dtype(dtype),
            _ => Ok(gradient),
        }
    }

    /// Clears the gradient.
    pub fn zero_grad(&self) {
        if capture::is_recording() {
            capture::note_cleared(self);
        }
        self.meta().grad = None;
    }

    /// Turns recording on or off for a leaf.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let w = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
    /// assert!(w.requires_grad() && w.is_leaf());
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias("freeze", "requires_grad"))]
    pub fn requires_grad_(self, requires_grad: bool) -> Result<Self> {
        if requires_grad && !self.dtype().is_differentiable() {
            return Err(Error::dtype(format!(
                "requires_grad_: only tensors of floating point and complex dtype can require gradients, this one is {}",
                self.dtype()
            )));
        }
        if requires_grad && self.0.inference && !mode::is_inference() {
            return Err(Error::autograd(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed; take a copy of it outside (x.copy()? in Rust, x.clone() in Python)",
            ));
        }
        if !requires_grad && !self.is_leaf() {
            return Err(Error::autograd(
                "requires_grad_: you can only change requires_grad flags of leaf tensors; use detach() to take a computed tensor out of the graph",
            ));
        }
        self.0.requires_grad.store(requires_grad, Relaxed);
        Ok(self)
    }

    /// The same elements, outside the graph. In-place changes are seen by both.
    #[doc(alias = "stop_gradient")]
    pub fn detach(&self) -> Tensor {
        self.alias()
    }

    /// Keeps this tensor's gradient in `.grad` although it is not a leaf: after all hooks, and of its present value
    /// where it is changed in place later.
    pub fn retain_grad(&self) -> Result<()> {
        if !self.requires_grad() {
            return Err(Error::autograd("retain_grad: this tensor does not require gradients"));
        }
        if self.is_leaf() {
            return Ok(());
        }
        let mut meta = self.meta();
        if !std::mem::replace(&mut meta.extra().retains_grad, true)
            && let Some(node) = &meta.node
        {
            let (slot, tensor) = (meta.slot, Arc::downgrade(&self.0));
            rushlight_core::sync::lock(&node.hooks).retained.push(Retained {
                slot,
                tensor,
                turn: Arc::new(Mutex::new(())),
            });
        }
        Ok(())
    }

    /// Whether [`Tensor::retain_grad`] was called on this computed tensor.
    pub fn retains_grad(&self) -> bool {
        !self.is_leaf() && self.meta().extra.as_ref().is_some_and(|e| e.retains_grad)
    }

    /// Whether this tensor was made under [`inference_mode`].
    pub fn is_inference(&self) -> bool {
        self.0.inference
    }

    /// Adds up the gradients of this scalar by every leaf it was made from, in their `.grad`. Frees the graph's saved
    /// values; for other wishes see [`Tensor::backward_with`].
    pub fn backward(&self) -> Result<()> {
        self.backward_with(Backward::default())
    }

    /// [`Tensor::backward`] with a gradient to start from, a graph to keep, or a graph of the backward itself.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{Tensor, autograd::Backward};
    /// let x = Tensor::new([3.0f32, 4.0])?.requires_grad_(true)?;
    /// let y = (&x * &x).eval()?;
    /// y.backward_with(Backward::default().gradient(&Tensor::new([1.0f32, 0.5])?).retain_graph(true))?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [6.0, 4.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn backward_with(&self, options: Backward) -> Result<()> {
        engine::backward(self, options)
    }
}
