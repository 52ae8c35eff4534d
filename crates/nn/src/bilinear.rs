//! A layer of two inputs.

use crate::{InModule, Module, Parameter, factory_options, init, python};
use rushlight_core::Result;
use rushlight_tensor::{Options, Tensor};

/// `x1ᵀ · weight · x2 + bias` over the last dimensions, for every output feature.
#[derive(Module)]
#[module(extra_repr = "Self::settings")]
pub struct Bilinear {
    /// `[out_features, in1_features, in2_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
    in1_features: usize,
    in2_features: usize,
    out_features: usize,
}

/// The options of a [`Bilinear`].
#[derive(Clone, Debug)]
pub struct BilinearBuilder {
    in1_features: usize,
    in2_features: usize,
    out_features: usize,
    bias: bool,
    options: Options,
}

impl Bilinear {
    /// A layer from two inputs to `out_features`, with a bias by default.
    pub fn new(in1_features: usize, in2_features: usize, out_features: usize) -> Result<Self> {
        Self::builder(in1_features, in2_features, out_features).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](BilinearBuilder::build).
    pub fn builder(in1_features: usize, in2_features: usize, out_features: usize) -> BilinearBuilder {
        BilinearBuilder { in1_features, in2_features, out_features, bias: true, options: Options::default() }
    }

    /// The output for two inputs, equal in all dimensions but the last.
    pub fn forward(&self, input1: &Tensor, input2: &Tensor) -> Result<Tensor> {
        input1.bilinear(input2, &self.weight, self.bias.as_deref()).in_module(self)
    }

    fn settings(&self) -> String {
        format!(
            "in1_features={}, in2_features={}, out_features={}, bias={}",
            self.in1_features,
            self.in2_features,
            self.out_features,
            python::boolean(self.bias.is_some())
        )
    }
}

factory_options!(BilinearBuilder);

impl BilinearBuilder {
    /// Whether to add a bias.
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Makes the layer, with PyTorch's initial values.
    pub fn build(self) -> Result<Bilinear> {
        let &Self { in1_features, in2_features, out_features, .. } = &self;
        let bound = 1.0 / (in1_features.max(1) as f64).sqrt();
        let uniform = |shape: &[usize]| -> Result<Parameter> {
            let parameter = Parameter::new(&Tensor::empty_with(shape, self.options)?)?;
            init::uniform_(&parameter, -bound, bound)?;
            Ok(parameter)
        };
        let weight = uniform(&[out_features, in1_features, in2_features])?;
        let bias = if self.bias { Some(uniform(&[out_features])?) } else { None };
        Ok(Bilinear { weight, bias, in1_features, in2_features, out_features })
    }
}
