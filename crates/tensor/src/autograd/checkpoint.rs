//! Memory for time: discard the activations between two tensors and recompute them in backward.

use super::engine::Backward;
use super::node::{Grads, record, recording};
use super::{Saved, mode};
use crate::{Tensor, amp};
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Result};

/// Runs `f` without keeping intermediate values; backward runs it again. The default generator is set back to where it
/// was for the second run, so dropout drops the same elements.
///
/// Tensors that `f` captures and that require gradients (parameters) get theirs as well.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, autograd::checkpoint};
/// let w = Tensor::new([2.0f32])?.requires_grad_(true)?;
/// let x = Tensor::new([3.0f32])?.requires_grad_(true)?;
/// let captured = w.clone();
/// let y = checkpoint(move |xs| xs[0].mul(&captured)?.exp(), &[&x])?;
/// y.sum(..)?.backward()?;
/// assert!((w.grad().unwrap().item::<f32>()? - 3.0 * 6.0f32.exp()).abs() < 1e-2);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn checkpoint(
    f: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Tensor> {
    if !mode::is_grad_enabled() {
        return f(&inputs.iter().map(|t| (*t).clone()).collect::<Vec<_>>());
    }
    if !recording(inputs) {
        return Err(Error::autograd(
            "checkpoint: none of the inputs requires grad, so gradients of captured parameters would be lost; call requires_grad_(true) \
             on an input, or call the function directly",
        ));
    }
    let (random, precision) = (default_generator().state(), amp::autocast_dtype());
    let detached: Vec<Tensor> = inputs.iter().map(|t| t.detach()).collect();
    let out = mode::no_grad(|| f(&detached))?.alias();
    let saved: Vec<Saved> = inputs.iter().map(|t| Saved::input(t)).collect();
    record("checkpoint", inputs, &out, move |ctx, dy| {
        if ctx.recording() {
            return Err(Error::unsupported(
                "checkpoint: create_graph through a checkpointed function is not supported; call the function directly",
            ));
        }
        let mut leaves = Vec::new();
        for (i, s) in saved.iter().enumerate() {
            leaves.push(ctx.get(s)?.detach().requires_grad_(ctx.needs(i))?);
        }
        let now = default_generator().state();
        default_generator().set_state(random);
        let again = {
            let _precision = amp::enter(precision);
            mode::enable_grad(|| f(&leaves))
        };
        default_generator().set_state(now);
        let again = again?;
        if again.shape() != dy.shape() {
            return Err(Error::autograd(format!(
                "checkpoint: the function gave shape {:?} when run again, {:?} before; it must not depend on changing state",
                again.shape(),
                dy.shape()
            )));
        }
        // A plain backward, so that captured parameters and their hooks are served as well.
        mode::enable_grad(|| again.backward_with(Backward::default().gradient(dy)))?;
        Ok(leaves.iter().map(|leaf| leaf.grad()).collect::<Grads>())
    })?;
    Ok(out)
}
