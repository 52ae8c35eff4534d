//! Ops with a backward written by the user.

use super::graph::GraphNode;
use super::node::{BackwardFn, Ctx, Node, edges, recording};
use super::{Grads, Origin, Saved, mode};
use crate::Tensor;
use rushlight_core::{Error, Result};
use std::sync::Arc;

/// Context of a custom function: holds what forward saves for backward and says of inputs and outputs.
#[derive(Default)]
pub struct Context {
    saved: Vec<Tensor>,
    dirty: Vec<Tensor>,
    constant: Vec<Tensor>,
}

impl Context {
    /// Keeps tensors for backward. They may be inputs or outputs; changing one in place makes backward an error.
    pub fn save_for_backward(&mut self, tensors: &[&Tensor]) {
        self.saved = tensors.iter().map(|t| (*t).clone()).collect();
    }

    /// Names inputs that forward changed in place. It must return them.
    pub fn mark_dirty(&mut self, tensors: &[&Tensor]) {
        self.dirty = tensors.iter().map(|t| (*t).clone()).collect();
    }

    /// Names outputs that have no gradient.
    pub fn mark_non_differentiable(&mut self, tensors: &[&Tensor]) {
        self.constant = tensors.iter().map(|t| (*t).clone()).collect();
    }
}

/// A differentiable op defined by the user.
///
/// ```
/// # mod rushlight { pub use rushlight_core::Result; pub use rushlight_tensor::*; }
/// use rushlight::Result;
/// use rushlight::{Tensor, autograd::{Context, Function, apply}};
///
/// struct Cube;
/// impl Function for Cube {
///     fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
///         ctx.save_for_backward(&[inputs[0]]);
///         Ok(vec![inputs[0].pow(3)?])
///     }
///     fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
///         let Some(dy) = &grads[0] else { return Ok(vec![None]) };
///         Ok(vec![Some((dy * saved[0].square()? * 3.0).eval()?)])
///     }
/// }
///
/// let x = Tensor::new(2.0f32)?.requires_grad_(true)?;
/// let y = apply(Cube, &[&x])?.remove(0);
/// y.backward()?;
/// assert_eq!(x.grad().unwrap().item::<f32>()?, 12.0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait Function: Send + Sync + 'static {
    /// The outputs. Ops in here are not recorded.
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>>;

    /// One gradient per input (`None` is zero) from one per output. Written with tensor ops it can be differentiated
    /// again.
    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>;

    /// Whether outputs that are views of other tensors stay views, which cannot be changed in place as that would lose
    /// this function's backward. Otherwise changes of an output do not reach the history of what it shares memory with.
    fn returns_views(&self) -> bool {
        false
    }

    /// The name that errors and `grad_fn` show.
    fn name(&self) -> &'static str {
        "custom_function"
    }
}

/// Runs a custom function and records it.
pub fn apply(function: impl Function, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    apply_with_node(function, inputs).map(|(outputs, _)| outputs)
}

/// [`apply`], with the node of the graph if one was recorded.
pub fn apply_with_node(function: impl Function, inputs: &[&Tensor]) -> Result<(Vec<Tensor>, Option<GraphNode>)> {
    let mut ctx = Context::default();
    let outputs = mode::no_grad(|| function.forward(&mut ctx, inputs))?;
    if ctx.dirty.iter().any(|t| !is_among(&outputs, t)) {
        return Err(Error::autograd(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified \
             inplace must all be outputs of the Function.",
        ));
    }
    if !recording(inputs) {
        return Ok((outputs, None));
    }
    let name = function.name();
    let (roles, outputs) = take_roles(name, function.returns_views(), &ctx, inputs, outputs)?;
    let is_changed_view = |t: &Tensor| t.is_view() && is_among(&ctx.dirty, t);
    let saved: Vec<Saved> = ctx
        .saved
        .iter()
        .map(|t| match roles.iter().zip(&outputs).position(|(role, out)| role.stands_for(out, t)) {
            // The node of its base has another output.
            Some(_) if is_changed_view(t) => Saved::input(&t.alias()),
            Some(slot) => Saved::output(t, slot),
            None => Saved::input(t),
        })
        .collect();
    super::saved_hooks::take_failure()?;
    let (saved, count) = (Arc::new(saved), inputs.len());
    let dtypes: Vec<_> = inputs.iter().map(|t| t.dtype()).collect();
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|t| t.shape().to_vec()).collect();
    let kept = saved.clone();
    let backward: BackwardFn = Arc::new(move |ctx: &Ctx, grads: Grads| {
        let saved = kept.iter().map(|s| ctx.get(s)).collect::<Result<Vec<_>>>()?;
        let out = function.backward(&saved, &grads)?;
        if out.len() != count {
            return Err(Error::autograd(format!(
                "{name}: backward returned an incorrect number of gradients (expected {count}, got {})",
                out.len()
            )));
        }
        let mut grads = Grads::new();
        for (i, (g, (shape, &dtype))) in out.into_iter().zip(shapes.iter().zip(&dtypes)).enumerate() {
            let Some(g) = g else {
                grads.push(None);
                continue;
            };
            // As in PyTorch, a gradient that the input broadcasts to is summed down to the input's size.
            let fitted = g.sum_to_size(shape).map_err(|_| {
                Error::autograd(format!(
                    "Function {name}Backward returned an invalid gradient at index {i} - got {:?} but expected shape compatible with \
                     {shape:?}",
                    g.shape()
                ))
            })?;
            // The kernels behind other derivatives rely on a gradient having its tensor's dtype.
            grads.push(Some(fitted.to_dtype(dtype)?));
        }
        Ok(grads)
    });
    let edges = edges(inputs)?;
    if let ([Role::Changed], [view]) = (&roles[..], &outputs[..])
        && let Some(base) = view.base()
    {
        let own = inputs.iter().position(|t| t.is_same(view)).unwrap_or(0);
        let node = view.write_custom_history(&base, edges, own, backward, saved);
        return Ok((outputs, Some(GraphNode(node))));
    }
    let node = Arc::new(Node::custom(name, edges, outputs.len(), backward, saved));
    for (slot, (role, out)) in roles.iter().zip(&outputs).enumerate() {
        match role {
            Role::Constant => {}
            Role::Recorded | Role::Alias => out.attach(&node, slot),
            Role::Changed => {
                out.attach(&node, slot);
                out.meta().epoch += 1;
            }
        }
    }
    Ok((outputs, Some(GraphNode(node))))
}

/// What an output of a custom function becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It has no gradient.
    Constant,
    /// An output of the node.
    Recorded,
    /// As that, over the memory of what forward returned.
    Alias,
    /// An input that was changed in place.
    Changed,
}

impl Role {
    /// Whether an output of this role is the node's output for a tensor that forward made.
    fn stands_for(self, output: &Tensor, made: &Tensor) -> bool {
        match self {
            Role::Constant => false,
            Role::Recorded | Role::Changed => output.is_same(made),
            Role::Alias => output.shares_storage(made) && output.layout() == made.layout(),
        }
    }
}

fn is_among(list: &[Tensor], tensor: &Tensor) -> bool {
    list.iter().any(|t| t.is_same(tensor))
}

/// The outputs as the caller gets them, and their roles.
fn take_roles(
    name: &str,
    returns_views: bool,
    ctx: &Context,
    inputs: &[&Tensor],
    outputs: Vec<Tensor>,
) -> Result<(Vec<Role>, Vec<Tensor>)> {
    let is_constant = |t: &Tensor| !t.dtype().is_differentiable() || is_among(&ctx.constant, t);
    let several = outputs.iter().filter(|t| !is_constant(t)).count() > 1;
    let count = outputs.len();
    let (mut roles, mut taken) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for out in outputs {
        let is_input = inputs.iter().any(|t| t.is_same(&out));
        let is_changed = is_among(&ctx.dirty, &out);
        let (role, out) = if is_constant(&out) {
            (Role::Constant, if is_input || out.requires_grad() { out.detach() } else { out })
        } else if is_changed && is_input {
            out.check_custom_change(name, count)?;
            out.count_change();
            (Role::Changed, out)
        } else if !returns_views || is_among(&taken, &out) || (out.requires_grad() && !is_input) {
            // What already has a history keeps it.
            (Role::Alias, out.alias())
        } else if is_input {
            (Role::Recorded, out.make_view_of_argument())
        } else {
            out.set_origin(if several { Origin::OneOfSeveral } else { Origin::InCustomFunction });
            (Role::Recorded, out)
        };
        roles.push(role);
        taken.push(out);
    }
    Ok((roles, taken))
}
