//! Norms over the last dimensions.

use super::affine;
use crate::python::{boolean, float, optional_float, tuple};
use crate::{Forward, InModule, Module, Parameter, factory_options};
use rushlight_core::{Result, setters};
use rushlight_tensor::{Options, Tensor};

/// The sizes of the last dimensions, over which a norm goes: one number or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalizedShape(Vec<usize>);

impl From<usize> for NormalizedShape {
    fn from(size: usize) -> Self {
        Self(vec![size])
    }
}

impl<const N: usize> From<[usize; N]> for NormalizedShape {
    fn from(sizes: [usize; N]) -> Self {
        Self(sizes.to_vec())
    }
}

impl From<&[usize]> for NormalizedShape {
    fn from(sizes: &[usize]) -> Self {
        Self(sizes.to_vec())
    }
}

/// Normalises over the last dimensions, then scales and shifts.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, LayerNorm, Module};
/// use rushlight::Tensor;
/// let norm = LayerNorm::new(16)?;
/// assert_eq!(norm.forward(&Tensor::ones([2, 5, 16])?)?.shape(), [2, 5, 16]);
/// assert_eq!(norm.repr(), "LayerNorm((16,), eps=1e-05, elementwise_affine=True, bias=True)");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
#[module(extra_repr = "Self::settings")]
pub struct LayerNorm {
    /// Of the normalised shape.
    pub weight: Option<Parameter>,
    /// Of the normalised shape.
    pub bias: Option<Parameter>,
    normalized_shape: Vec<usize>,
    eps: f64,
}

/// The options of a [`LayerNorm`].
#[derive(Clone, Debug)]
pub struct LayerNormBuilder {
    normalized_shape: Vec<usize>,
    eps: f64,
    elementwise_affine: bool,
    bias: bool,
    options: Options,
}

impl LayerNorm {
    /// A norm over last dimensions of these sizes.
    pub fn new(normalized_shape: impl Into<NormalizedShape>) -> Result<Self> {
        Self::builder(normalized_shape).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](LayerNormBuilder::build).
    pub fn builder(normalized_shape: impl Into<NormalizedShape>) -> LayerNormBuilder {
        LayerNormBuilder {
            normalized_shape: normalized_shape.into().0,
            eps: 1e-5,
            elementwise_affine: true,
            bias: true,
            options: Options::default(),
        }
    }

    fn settings(&self) -> String {
        format!(
            "{}, eps={}, elementwise_affine={}, bias={}",
            tuple(&self.normalized_shape),
            float(self.eps),
            boolean(self.weight.is_some()),
            boolean(self.bias.is_some())
        )
    }
}

factory_options!(LayerNormBuilder);

impl LayerNormBuilder {
    setters! {
        /// Added to the variance; 1e-5 by default.
        eps: f64;
        /// Whether to scale and shift; true by default.
        elementwise_affine: bool;
        /// Whether to shift if it scales; true by default.
        bias: bool;
    }

    /// Makes the layer.
    pub fn build(self) -> Result<LayerNorm> {
        let scale = self.elementwise_affine;
        let (weight, bias) = affine(&self.normalized_shape, scale, scale && self.bias, self.options)?;
        Ok(LayerNorm { weight, bias, normalized_shape: self.normalized_shape, eps: self.eps })
    }
}

impl Forward for LayerNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.layer_norm(&self.normalized_shape, self.weight.as_deref(), self.bias.as_deref(), self.eps).in_module(self)
    }
}

/// Divides by the root of the mean square over the last dimensions, then scales.
#[derive(Module)]
#[module(extra_repr = "Self::settings")]
pub struct RMSNorm {
    /// Of the normalised shape.
    pub weight: Option<Parameter>,
    normalized_shape: Vec<usize>,
    eps: Option<f64>,
}

/// The options of an [`RMSNorm`].
#[derive(Clone, Debug)]
pub struct RMSNormBuilder {
    normalized_shape: Vec<usize>,
    eps: Option<f64>,
    elementwise_affine: bool,
    options: Options,
}

impl RMSNorm {
    /// A norm over last dimensions of these sizes.
    pub fn new(normalized_shape: impl Into<NormalizedShape>) -> Result<Self> {
        Self::builder(normalized_shape).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](RMSNormBuilder::build).
    pub fn builder(normalized_shape: impl Into<NormalizedShape>) -> RMSNormBuilder {
        RMSNormBuilder {
            normalized_shape: normalized_shape.into().0,
            eps: None,
            elementwise_affine: true,
            options: Options::default(),
        }
    }

    fn settings(&self) -> String {
        format!(
            "{}, eps={}, elementwise_affine={}",
            tuple(&self.normalized_shape),
            optional_float(self.eps),
            boolean(self.weight.is_some())
        )
    }
}

factory_options!(RMSNormBuilder);

impl RMSNormBuilder {
    /// Added to the mean square; the smallest step of the dtype computed in by default.
    pub fn eps(mut self, eps: impl Into<Option<f64>>) -> Self {
        self.eps = eps.into();
        self
    }

    /// Whether to scale; true by default.
    pub fn elementwise_affine(mut self, elementwise_affine: bool) -> Self {
        self.elementwise_affine = elementwise_affine;
        self
    }

    /// Makes the layer.
    pub fn build(self) -> Result<RMSNorm> {
        let (weight, _) = affine(&self.normalized_shape, self.elementwise_affine, false, self.options)?;
        Ok(RMSNorm { weight, normalized_shape: self.normalized_shape, eps: self.eps })
    }
}

impl Forward for RMSNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.rms_norm(&self.normalized_shape, self.weight.as_deref(), self.eps).in_module(self)
    }
}
