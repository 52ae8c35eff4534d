//! Ops with a backward written by the user.

use super::graph::GraphNode;
use super::node::{Ctx, record_node, recording};
use super::{Grads, Saved, mode};
use crate::Tensor;
use rushlight_core::{Error, Result};
use std::sync::Arc;

/// Context of a custom function: holds what forward saves for backward.
#[derive(Default)]
pub struct Context {
    saved: Vec<Tensor>,
}

impl Context {
    /// Keeps tensors for backward. They may be inputs or outputs; changing one in place makes backward an error.
    pub fn save_for_backward(&mut self, tensors: &[&Tensor]) {
        self.saved = tensors.iter().map(|t| (*t).clone()).collect();
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
    if !recording(inputs) {
        return Ok((outputs, None));
    }
    // An input handed straight through, or a view of one, must not take its history over.
    let outputs: Vec<Tensor> = outputs.iter().map(|o| o.alias()).collect();
    let saved: Vec<Saved> = ctx
        .saved
        .iter()
        .map(|t| match outputs.iter().position(|o| o.shares_storage(t) && o.layout() == t.layout()) {
            Some(slot) => Saved::output(t, slot),
            None => Saved::input(t),
        })
        .collect();
    let (name, count) = (function.name(), inputs.len());
    let dtypes: Vec<_> = inputs.iter().map(|t| t.dtype()).collect();
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|t| t.shape().to_vec()).collect();
    let backward = move |ctx: &Ctx, grads: Grads| {
        let saved = saved.iter().map(|s| ctx.get(s)).collect::<Result<Vec<_>>>()?;
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
                    "{name}: backward returned a gradient of shape {:?} for input {i} of shape {shape:?}",
                    g.shape()
                ))
            })?;
            // The kernels behind other derivatives rely on a gradient having its tensor's dtype.
            grads.push(Some(fitted.to_dtype(dtype)?));
        }
        Ok(grads)
    };
    let node = record_node(true, name, inputs, &outputs.iter().collect::<Vec<_>>(), Arc::new(backward))?;
    Ok((outputs, Some(GraphNode(node))))
}
