//! Affine layers.

use crate::init::{self, FanMode, Nonlinearity};
use crate::{Forward, InModule, Module, Parameter, factory_options};
use rushlight_core::Result;
use rushlight_tensor::{Options, Tensor};

/// `x · weightᵀ + bias` over the last dimension.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, Linear, Module};
/// use rushlight::Tensor;
/// let layer = Linear::new(20, 1)?;
/// assert_eq!(layer.forward(&Tensor::ones([8, 20])?)?.shape(), [8, 1]);
/// assert_eq!(layer.repr(), "Linear(in_features=20, out_features=1, bias=True)");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
#[module(extra_repr = "Linear::settings")]
pub struct Linear {
    /// `[out_features, in_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
    in_features: usize,
    out_features: usize,
}

/// The options of a [`Linear`].
#[derive(Clone, Debug)]
pub struct LinearBuilder {
    in_features: usize,
    out_features: usize,
    bias: bool,
    options: Options,
}

impl Linear {
    /// A layer from `in_features` to `out_features`, with a bias by default.
    pub fn new(in_features: usize, out_features: usize) -> Result<Self> {
        Self::builder(in_features, out_features).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](LinearBuilder::build).
    pub fn builder(in_features: usize, out_features: usize) -> LinearBuilder {
        LinearBuilder { in_features, out_features, bias: true, options: Options::default() }
    }

    fn settings(&self) -> String {
        let bias = if self.bias.is_some() { "True" } else { "False" };
        format!("in_features={}, out_features={}, bias={bias}", self.in_features, self.out_features)
    }
}

factory_options!(LinearBuilder);

impl LinearBuilder {
    /// Whether to add a bias.
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Makes the layer, with PyTorch's initial values.
    pub fn build(self) -> Result<Linear> {
        let weight = Parameter::new(&Tensor::empty_with([self.out_features, self.in_features], self.options)?)?;
        init::kaiming_uniform_(&weight, FanMode::FanIn, Nonlinearity::LeakyRelu(5f64.sqrt()))?;
        let bias = if self.bias { Some(init::bias_for(&weight, self.out_features)?) } else { None };
        Ok(Linear { weight, bias, in_features: self.in_features, out_features: self.out_features })
    }
}

impl Forward for Linear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.linear(&self.weight, self.bias.as_deref()).in_module(self)
    }
}
