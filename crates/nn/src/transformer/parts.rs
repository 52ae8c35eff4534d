//! Normalisation and dropout of the layers.

use crate::{Forward, Module, Parameter, Training, factory_options};
use rushlight_core::{Error, Result};
use rushlight_tensor::{Options, Tensor};

/// Normalisation over the features.
#[derive(Clone, Module)]
pub struct LayerNorm {
    weight: Parameter,
    bias: Option<Parameter>,
    eps: f64,
}

/// The options of a [`LayerNorm`].
#[derive(Clone, Debug)]
pub struct LayerNormBuilder {
    features: [usize; 1],
    eps: f64,
    bias: bool,
    options: Options,
}

factory_options!(LayerNormBuilder);

impl LayerNorm {
    /// Over `features`.
    pub fn new(features: [usize; 1]) -> LayerNormBuilder {
        LayerNormBuilder { features, eps: 1e-5, bias: true, options: Options::default() }
    }
}

impl LayerNormBuilder {
    /// Added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Whether to add a bias.
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Makes the layer.
    pub fn build(self) -> Result<LayerNorm> {
        let weight = Parameter::new(&Tensor::ones_with(self.features, self.options)?)?;
        let bias = self.bias.then(|| Parameter::new(&Tensor::zeros_with(self.features, self.options)?)).transpose()?;
        Ok(LayerNorm { weight, bias, eps: self.eps })
    }
}

impl Forward for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(self.weight.shape(), Some(&self.weight), self.bias.as_deref(), self.eps)
    }
}

/// Dropout.
#[derive(Clone, Module)]
pub struct Dropout {
    p: f64,
    training: Training,
}

impl Dropout {
    /// With probability `p`.
    pub fn new(p: f64) -> Self {
        Self { p, training: Training::default() }
    }

    /// Checks the probability.
    pub fn build(self) -> Result<Self> {
        if !(0.0..=1.0).contains(&self.p) {
            return Err(Error::value(format!("dropout probability has to be between 0 and 1, but got {}", self.p)));
        }
        Ok(self)
    }
}

impl Forward for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.dropout(self.p, self.training.get())
    }
}
