//! History of tensors that are changed in place, and of views of them.
//!
//! A view remembers its base. Changing either gives the base a new node; the base's epoch tells older views that their
//! own history is out of date, and the next use makes them a fresh one from the base.

use super::node::{BackwardFn, COPY_SLICES, Ctx, Edge, Grads, Node};
use super::{Extra, Meta, Origin, Saved, mode};
use crate::Tensor;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Device, Dims, Error, Layout, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How to get a tensor with its own memory: Rust's `clone` returns an alias.
const COPY: &str = "x.copy()? in Rust, x.clone() in Python";

/// Why a view that a function of the user's returned may not change.
const IN_CUSTOM_FUNCTION: &str = "This view was created inside a custom Function (or because an input was returned as-is) and the \
    autograd logic to handle view+inplace would override the custom backward associated with the custom Function, leading to \
    incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.";

impl Tensor {
    /// A view of this tensor's memory, remembering its base. The caller records the op.
    pub(crate) fn make_view(&self, layout: Layout) -> Tensor {
        self.make_view_from(layout, Origin::Recorded)
    }

    /// [`Tensor::make_view`] of an op that returns several.
    pub(crate) fn make_view_of_several(&self, layout: Layout) -> Tensor {
        self.make_view_from(layout, Origin::OneOfSeveral)
    }

    /// [`Tensor::make_view`] of another dtype: the parts of complex numbers, or the numbers of their parts.
    pub(crate) fn make_view_as(&self, layout: Layout, dtype: DType) -> Tensor {
        self.make_view_of(layout, dtype, Origin::Recorded)
    }

    fn make_view_from(&self, layout: Layout, origin: Origin) -> Tensor {
        self.make_view_of(layout, self.0.dtype, origin)
    }

    /// A view of all of this tensor, which a function of the user's returned as it was.
    pub(super) fn make_view_of_argument(&self) -> Tensor {
        let view = self.make_view_from(self.0.layout.clone(), Origin::Recorded);
        view.set_origin(Origin::InCustomFunction);
        view
    }

    /// Sets how this view was made, if it is one.
    pub(super) fn set_origin(&self, origin: Origin) {
        let mut meta = self.meta();
        if meta.base().is_some() {
            meta.extra().origin = origin;
        }
    }

    fn make_view_of(&self, layout: Layout, dtype: DType, origin: Origin) -> Tensor {
        let mut origin = match origin {
            _ if mode::is_inference() => Origin::UnderInference,
            _ if !mode::is_grad_enabled() => Origin::UnderNoGrad,
            origin => origin,
        };
        let (base, epoch) = {
            let meta = self.meta();
            // A leaf can be a view itself (`t.reshape(…).requires_grad_()`): the history of its views begins at the
            // leaf.
            let is_leaf = meta.node.is_none() && self.0.requires_grad.load(Relaxed);
            match meta.extra.as_ref().and_then(|e| Some((e.base.as_ref()?, e.origin))) {
                Some(((base, epoch), before)) if !is_leaf => {
                    if origin == Origin::Recorded {
                        origin = before;
                    }
                    (base.clone(), *epoch)
                }
                _ => (self.clone(), meta.epoch),
            }
        };
        let extra = Extra { base: Some((base, epoch)), origin, ..Extra::default() };
        let meta = Meta { extra: Some(Box::new(extra)), ..Meta::default() };
        self.over_same_memory(layout, dtype, meta)
    }

    /// Whether this view requires gradients since a recorded change of its base, which it has not seen yet.
    #[cold]
    pub(crate) fn requires_grad_by_base(&self) -> bool {
        self.refresh_view();
        self.0.requires_grad.load(Relaxed)
    }

    /// Rebuilds the history of a view whose base was changed in place since.
    pub(crate) fn refresh_view(&self) {
        let stale = {
            let meta = self.meta();
            meta.extra.as_ref().and_then(|e| e.base.as_ref()).map(|(base, epoch)| (base.clone(), *epoch))
        };
        let Some((base, seen)) = stale else { return };
        let now = base.meta().epoch;
        if now == seen || !base.requires_grad() {
            return;
        }
        let Some(edge) = base.edge() else { return };
        let node = strided_view_node(&base, edge, self);
        let mut meta = self.meta();
        // Unless another thread was quicker: its node may have hooks by now.
        if let Some((_, epoch)) = meta.extra().base.as_mut()
            && *epoch == seen
        {
            *epoch = now;
            let old = meta.node.replace(node.clone());
            meta.slot = 0;
            self.0.requires_grad.store(true, Relaxed);
            if let Some(old) = &old
                && meta.extra.as_ref().is_some_and(|extra| extra.retains_grad)
            {
                super::node::move_retained(&self.0, old, &node, 0);
            }
            // Dropped without the lock: a destructor may be the user's code.
            drop(meta);
            drop(old);
        }
    }

    /// An error for a view that a function of the user's made and whose base was changed in place since: its history
    /// would be the base's, without the function's backward.
    pub(super) fn check_custom_view(&self) -> Result<()> {
        let meta = self.meta();
        let Some(extra) = meta.extra.as_ref().filter(|e| e.origin == Origin::InCustomFunction) else { return Ok(()) };
        let Some((base, seen)) = extra.base.as_ref() else { return Ok(()) };
        if base.meta().epoch == *seen || !base.requires_grad() {
            return Ok(());
        }
        Err(Error::autograd(format!(
            "the tensor is a view and its base or another view of its base has been modified inplace. {IN_CUSTOM_FUNCTION}"
        )))
    }

    /// Checks that a function of the user's may have changed this tensor in place.
    pub(super) fn check_custom_change(&self, name: &str, outputs: usize) -> Result<()> {
        self.check_leaf_change(name)?;
        let (is_view, origin) = {
            let meta = self.meta();
            (meta.base().is_some(), meta.extra.as_ref().map_or(Origin::Recorded, |e| e.origin))
        };
        if is_view && outputs > 1 {
            return Err(Error::autograd(format!(
                "{name}: If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more \
                 than one Tensor. Change a copy of the view ({COPY}), or make two functions of it."
            )));
        }
        check_origin(name, origin)
    }

    /// Checks that this tensor may be changed in place now. Called before the change.
    pub(crate) fn check_inplace(&self, op: &str, sources: &[&Tensor]) -> Result<()> {
        if self.0.layout.overlaps() {
            return Err(Error::value(format!(
                "{op}: unsupported operation: more than one element of the written-to tensor (shape {:?}, strides {:?}) refers to a single \
                 memory location. Change a copy of it: {COPY}.",
                self.shape(),
                self.strides()
            )));
        }
        if self.0.inference && !mode::is_inference() {
            return Err(Error::autograd(format!(
                "{op}: Inplace update to inference tensor outside InferenceMode is not allowed. Change a copy of it: {COPY}."
            )));
        }
        self.check_leaf_change(op)?;
        if !mode::is_grad_enabled() {
            return Ok(());
        }
        let (base, origin) = {
            let meta = self.meta();
            (meta.base().cloned(), meta.extra.as_ref().map_or(Origin::Recorded, |e| e.origin))
        };
        let Some(base) = base else { return Ok(()) };
        if base.requires_grad() || sources.iter().any(|t| t.requires_grad()) {
            check_origin(op, origin)?;
        }
        if !sources.iter().any(|t| t.requires_grad()) {
            return Ok(());
        }
        if !base.layout().is_dense() {
            return Err(Error::unsupported(format!(
                "{op}: recording an in-place change of a view needs a base without gaps; change a copy of the base: {COPY}"
            )));
        }
        Ok(())
    }

    /// An error if this tensor is a leaf that requires gradients, or a view of one, and gradients are recorded: such a
    /// tensor must not be changed in place. In-place ops check this themselves; a front end that checks arguments
    /// before calling an op calls it first.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::zeros([2])?.requires_grad_(true)?;
    /// assert!(x.check_leaf_change("add_").is_err());
    /// assert!(x.mul(2.0)?.check_leaf_change("add_").is_ok());
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn check_leaf_change(&self, op: &str) -> Result<()> {
        if !mode::is_grad_enabled() {
            return Ok(());
        }
        if self.requires_grad() && self.is_leaf() {
            return Err(Error::autograd(format!(
                "{op}: a leaf Variable that requires grad is being used in an in-place operation. Wrap the change in no_grad, or \
                 change a copy of it: {COPY}."
            )));
        }
        let base = self.meta().base().cloned();
        match base {
            Some(base) if base.requires_grad() && base.is_leaf() => Err(Error::autograd(format!(
                "{op}: a view of a leaf Variable that requires grad is being used in an in-place operation. Wrap the change in \
                 no_grad, or change a copy of it: {COPY}."
            ))),
            _ => Ok(()),
        }
    }

    /// An error if an op element by element would read elements of `sources` that it has written.
    pub(crate) fn check_overlap(&self, op: &str, sources: &[&Tensor]) -> Result<()> {
        if sources.iter().any(|t| t.overlaps_partly(self)) {
            return Err(Error::value(format!(
                "{op}: unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory \
                 location. Take a copy of the input first: {COPY}."
            )));
        }
        Ok(())
    }

    /// Whether this tensor and another, both dense, share some of their memory but are not the same elements in the
    /// same order.
    fn overlaps_partly(&self, other: &Tensor) -> bool {
        if !self.shares_storage(other) || self.numel() == 0 || other.numel() == 0 {
            return false;
        }
        let (a, b) = (self.layout(), other.layout());
        if a == b || !a.is_dense() || !b.is_dense() {
            return false;
        }
        let bytes = |t: &Tensor| {
            let (start, size) = (t.layout().offset(), t.dtype().size());
            (start * size, (start + t.numel()) * size)
        };
        let (mine, theirs) = (bytes(self), bytes(other));
        let same_order = a.shape() == b.shape() && a.strides() == b.strides();
        mine.0 < theirs.1 && theirs.0 < mine.1 && !(mine == theirs && same_order)
    }

    /// Counts an in-place change of this tensor that no op made: of its shape, or through a pointer. A backward pass
    /// that needs the old value then returns an error.
    pub fn note_change(&self) {
        self.count_change();
    }

    /// Records that this tensor was overwritten by values that do not depend on `inputs`, as a comparison's: their
    /// gradients, and that of the old value, are zero. `inputs` starts with this tensor. Called after the change.
    pub fn record_constant_change(&self, name: &'static str, inputs: &[&Tensor]) -> Result<()> {
        if !self.dtype().is_differentiable() || !super::recording(inputs) {
            return Ok(());
        }
        let edges = super::edges(inputs)?;
        let zeros: SmallVec<[(Dims, DType, Device); 3]> =
            inputs.iter().map(|t| (Dims::from_slice(t.shape()), t.dtype(), t.device())).collect();
        self.new_history(
            name,
            edges,
            Box::new(move |ctx: &Ctx, _| {
                let zero = |i: usize| -> Result<Option<Tensor>> {
                    let (shape, dtype, device) = &zeros[i];
                    match ctx.needs(i) {
                        true => Tensor::zeros_with(shape, (*dtype, *device)).map(Some),
                        false => Ok(None),
                    }
                };
                (0..zeros.len()).map(zero).collect()
            }),
        );
        Ok(())
    }

    /// Gives a tensor that was just changed in place a new history. `edges` lead to the op's inputs, taken before
    /// the change; the first leads to this tensor's old value.
    pub(crate) fn new_history(
        &self,
        name: &'static str,
        edges: SmallVec<[Option<Edge>; 3]>,
        backward: Box<dyn Fn(&Ctx, Grads) -> Result<Grads> + Send + Sync>,
    ) {
        let backward: BackwardFn = backward.into();
        let base = self.meta().base().cloned();
        match base {
            None => {
                let node = Node::new(name, edges, 1, backward);
                self.attach(&node, 0);
                self.meta().epoch += 1;
            }
            Some(base) => {
                self.write_history(&base, Arc::new(write_through_view(&base, self, edges, 0, backward)));
            }
        }
    }

    /// Gives this view of `base`, which was just changed in place, and `base` the history `node`.
    fn write_history(&self, base: &Tensor, node: Arc<Node>) {
        base.attach(&node, 0);
        base.meta().epoch += 1;
        self.0.requires_grad.store(true, Relaxed);
        self.refresh_view();
    }

    /// The history of a view after a function of the user's changed it in place: `edges` lead to the function's inputs,
    /// of which number `own` is this view. Returns the base's node.
    pub(super) fn write_custom_history(
        &self,
        base: &Tensor,
        edges: SmallVec<[Option<Edge>; 3]>,
        own: usize,
        backward: BackwardFn,
        saved: Arc<Vec<Saved>>,
    ) -> Arc<Node> {
        let mut node = write_through_view(base, self, edges, own, backward);
        node.keep(saved);
        let node = Arc::new(node);
        self.write_history(base, node.clone());
        node
    }

    /// Counts a change of memory that has no gradient to record (under `no_grad`, or of integers).
    pub(crate) fn changed_unrecorded(&self) {
        self.count_change();
    }
}

fn check_origin(op: &str, origin: Origin) -> Result<()> {
    let made = match origin {
        Origin::Recorded => return Ok(()),
        Origin::OneOfSeveral => {
            return Err(Error::autograd(format!(
                "{op}: the tensor is a view and is being modified inplace. This view is the output of a function that returns multiple \
                 views. Such functions do not allow the output views to be modified inplace. You should replace the inplace operation by \
                 an out-of-place one, or change a copy: {COPY}."
            )));
        }
        Origin::InCustomFunction => {
            return Err(Error::autograd(format!(
                "{op}: the tensor is a view and is being modified inplace. {IN_CUSTOM_FUNCTION}"
            )));
        }
        Origin::UnderNoGrad => "no_grad mode",
        Origin::UnderInference => "inference mode",
    };
    Err(Error::autograd(format!(
        "{op}: a view was created in {made} and is being modified inplace with grad mode enabled. Take the view and change it in the \
         same mode."
    )))
}

/// A node that reads the elements of a view out of `base`: its backward puts the gradient back where they came from.
fn strided_view_node(base: &Tensor, edge: Edge, view: &Tensor) -> Arc<Node> {
    let (whole, dtype, within) = (base.layout().clone().with_offset(0), base.dtype(), relative(view, base));
    let seen = view.dtype();
    Node::new(
        "as_strided",
        smallvec![Some(edge)],
        1,
        Arc::new(move |_: &Ctx, mut grads: Grads| {
            let Some(dy) = grads.pop().flatten() else { return Ok(smallvec![None]) };
            let flat = flat_like(&whole, dtype, seen)?;
            let found = crate::ops::view::scatter_view(&dy, flat.as_ref().unwrap_or(&whole), seen, &within)?;
            Ok(smallvec![Some(match flat {
                Some(_) => read_as(&found, dtype)?.as_strided(whole.shape(), whole.strides(), 0)?,
                None => found,
            })])
        }),
    )
}

/// A node on the base for a change made through a view of it: the view's part of the gradient goes
/// through the op's own backward, the rest passes unchanged. `own` is the number of the op's input that is the view.
fn write_through_view(
    base: &Tensor,
    view: &Tensor,
    edges: SmallVec<[Option<Edge>; 3]>,
    own: usize,
    backward: BackwardFn,
) -> Node {
    let mut inputs = edges;
    inputs[own] = base.edge();
    let (within, wants_rest) = (relative(view, base), inputs[own].is_some());
    let base_layout = base.layout().clone().with_offset(0);
    let seen = view.dtype();
    Node::op(
        COPY_SLICES,
        inputs,
        1,
        Arc::new(move |ctx: &Ctx, mut grads: Grads| {
            let Some(dy) = grads.pop().flatten() else { return Ok(smallvec![None; ctx.node.inputs.len()]) };
            let ordered = dy.in_layout(&base_layout)?;
            let whole = if ordered.is_same(&dy) { dy.copy()? } else { ordered };
            let under = if seen == whole.dtype() { whole.clone() } else { read_as(&whole, seen)? };
            let under = under.as_strided(within.shape(), within.strides(), within.offset())?;
            let mut out = backward(ctx, smallvec![Some(under.copy()?)])?;
            if out.is_empty() {
                return Ok(out);
            }
            if wants_rest {
                match out[own].take() {
                    Some(g) => under.copy_(&g)?,
                    None => under.zero_()?,
                };
                out[own] = Some(whole);
            } else {
                out[own] = None;
            }
            Ok(out)
        }),
        None,
    )
}

/// A dense tensor's memory as numbers of another dtype, the parts of complex ones or the numbers of parts, in order.
fn read_as(whole: &Tensor, dtype: DType) -> Result<Tensor> {
    let flat = whole.as_strided(&[whole.numel()], &[1], whole.layout().offset())?;
    match dtype.is_complex() {
        true => flat.reshape([whole.numel() / 2, 2])?.view_as_complex(),
        false => flat.view_as_real()?.reshape([2 * whole.numel()]),
    }
}

/// The layout of [`read_as`], if the dtypes differ.
fn flat_like(whole: &Layout, dtype: DType, seen: DType) -> Result<Option<Layout>> {
    let numel = match (dtype.is_complex(), seen.is_complex()) {
        (true, false) => 2 * whole.numel(),
        (false, true) => whole.numel() / 2,
        _ => return Ok(None),
    };
    Layout::contiguous(&[numel]).map(Some)
}

/// A view's layout as seen from the start of its base.
fn relative(view: &Tensor, base: &Tensor) -> Layout {
    let start = match (base.is_complex(), view.is_complex()) {
        (true, false) => 2 * base.layout().offset(),
        (false, true) => base.layout().offset() / 2,
        _ => base.layout().offset(),
    };
    view.layout().clone().with_offset(view.layout().offset() - start)
}
