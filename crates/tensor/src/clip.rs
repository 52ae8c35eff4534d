//! Gradient clipping, with the names of `torch.nn.utils`.

use crate::autograd::mode::no_grad;
use crate::{Tensor, foreach};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{Error, Result};
use std::borrow::Borrow;

type Grads = SmallVec<[Tensor; 16]>;

fn grads<T: Borrow<Tensor>>(parameters: impl IntoIterator<Item = T>) -> Grads {
    parameters.into_iter().filter_map(|p| p.borrow().grad()).collect()
}

/// Options of [`clip_grad_norm_`] and [`get_total_norm`].
#[derive(Clone, Copy, Debug)]
pub struct NormOptions {
    norm_type: f64,
    error_if_nonfinite: bool,
}

impl Default for NormOptions {
    fn default() -> Self {
        Self { norm_type: 2.0, error_if_nonfinite: false }
    }
}

impl NormOptions {
    /// The order of the norm, 2 by default; may be infinite.
    pub fn norm_type(mut self, norm_type: f64) -> Self {
        self.norm_type = norm_type;
        self
    }

    /// Makes a norm that is infinite or NaN an error.
    pub fn error_if_nonfinite(mut self, error: bool) -> Self {
        self.error_if_nonfinite = error;
        self
    }
}

/// The norm of all elements of all tensors taken as one vector; `f32` for half types.
pub fn get_total_norm<T: Borrow<Tensor>>(tensors: impl IntoIterator<Item = T>, options: NormOptions) -> Result<Tensor> {
    let tensors: Grads = tensors.into_iter().map(|t| t.borrow().clone()).collect();
    total_norm(&tensors, options)
}

fn total_norm(tensors: &Grads, options: NormOptions) -> Result<Tensor> {
    let total = foreach::norm(&tensors.iter().collect::<SmallVec<[&Tensor; 16]>>(), options.norm_type)?;
    if options.error_if_nonfinite && !total.item::<f64>()?.is_finite() {
        return Err(Error::numerical(format!(
            "The total norm of order {} for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this \
             error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`",
            options.norm_type
        )));
    }
    Ok(total)
}

/// Scales gradients down in place so that their norm, all parameters together, is at most `max_norm`; returns the norm
/// they had.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, clip_grad_norm_};
/// let w = Tensor::new([0.0f32, 0.0])?.requires_grad_(true)?;
/// w.set_grad(Some(Tensor::new([3.0f32, 4.0])?))?;
/// assert_eq!(clip_grad_norm_([&w], 1.0)?.item::<f32>()?, 5.0);
/// assert!((w.grad().unwrap().to_vec::<f32>()?[0] - 0.6).abs() < 1e-6);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[doc(alias = "clip_grad_norm")]
pub fn clip_grad_norm_<T: Borrow<Tensor>>(parameters: impl IntoIterator<Item = T>, max_norm: f64) -> Result<Tensor> {
    clip_grad_norm_with(parameters, max_norm, NormOptions::default())
}

/// [`clip_grad_norm_`] with another norm, or with an error for one that is not finite.
pub fn clip_grad_norm_with<T: Borrow<Tensor>>(
    parameters: impl IntoIterator<Item = T>,
    max_norm: f64,
    options: NormOptions,
) -> Result<Tensor> {
    let grads = grads(parameters);
    let total = total_norm(&grads, options)?;
    no_grad(|| {
        // On the device throughout: nothing waits for the norm.
        let factor = total.add(1e-6)?.rdiv(max_norm)?.clamp_max(1.0)?;
        foreach::scale_(&grads.iter().collect::<SmallVec<[&Tensor; 16]>>(), &factor)
    })?;
    Ok(total)
}

/// Keeps every element of every gradient between `-clip_value` and `clip_value`, in place.
pub fn clip_grad_value_<T: Borrow<Tensor>>(parameters: impl IntoIterator<Item = T>, clip_value: f64) -> Result<()> {
    no_grad(|| grads(parameters).iter().try_for_each(|g| g.clamp_(-clip_value, clip_value).map(drop)))
}
