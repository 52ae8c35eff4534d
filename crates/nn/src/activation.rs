//! Activations as layers. Those without options are values of their own: `Sequential::from((linear, ReLU))`.

use crate::python::float;
use crate::{Forward, InModule, Module, Parameter, Training, factory_options};
use rushlight_core::{Error, Result};
use rushlight_tensor::{Options, Tensor, where_};

/// Layers that are one op: name, then the method of `Tensor`.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, Module)]
        pub struct $name;

        impl $name {
            #[doc = concat!("The layer, which is also the value `", stringify!($name), "`.")]
            pub fn new() -> Self {
                Self
            }
        }

        impl Forward for $name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.$op()
            }
        }
    )*};
}

plain! {
    /// `max(x, 0)`.
    ReLU relu;
    /// `min(max(x, 0), 6)`.
    ReLU6 relu6;
    /// The self-normalising exponential unit.
    SELU selu;
    /// `x · sigmoid(x)`.
    SiLU silu;
    /// `x · tanh(softplus(x))`.
    Mish mish;
    /// `1 / (1 + exp(-x))`.
    Sigmoid sigmoid;
    /// `log(sigmoid(x))`.
    LogSigmoid logsigmoid;
    /// Hyperbolic tangent.
    Tanh tanh;
    /// `x - tanh(x)`.
    Tanhshrink tanhshrink;
    /// `x / (1 + |x|)`.
    Softsign softsign;
    /// `relu6(x + 3) / 6`.
    Hardsigmoid hardsigmoid;
    /// `x · relu6(x + 3) / 6`.
    Hardswish hardswish;
}

/// Layers that are one op with numbers: name, options with PyTorch's defaults, how they print, and the call.
macro_rules! with_options {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$option_doc:meta])* $option:ident = $default:expr),* }
        |$layer:ident| $repr:expr,
        |$x:ident| $call:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Module)]
        #[module(extra_repr = "Self::settings")]
        pub struct $name {
            $($option: f64),*
        }

        impl $name {
            /// The layer with PyTorch's defaults.
            pub fn new() -> Self {
                Self { $($option: $default),* }
            }

            $(
                $(#[$option_doc])*
                pub fn $option(mut self, $option: f64) -> Self {
                    self.$option = $option;
                    self
                }
            )*

            fn settings(&self) -> String {
                let $layer = self;
                $repr
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl Forward for $name {
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $layer = self;
                $call
            }
        }
    )*};
}

with_options! {
    /// `x`, or a slope times `x` below zero.
    LeakyReLU {
        /// The slope below zero; 0.01 by default.
        negative_slope = 0.01
    }
    |a| format!("negative_slope={}", float(a.negative_slope)),
    |x| x.leaky_relu(a.negative_slope);

    /// `x`, or `alpha · (exp(x) - 1)` below zero.
    ELU {
        /// The limit below zero; 1 by default.
        alpha = 1.0
    }
    |a| format!("alpha={}", float(a.alpha)),
    |x| x.elu(a.alpha);

    /// The continuously differentiable ELU.
    CELU {
        /// The limit below zero; 1 by default.
        alpha = 1.0
    }
    |a| format!("alpha={}", float(a.alpha)),
    |x| x.celu(a.alpha);

    /// `log(1 + exp(beta · x)) / beta`, a smooth ReLU.
    Softplus {
        /// How sharp the bend is; 1 by default.
        beta = 1.0,
        /// Above `threshold / beta` it is `x` itself; 20 by default.
        threshold = 20.0
    }
    |a| format!("beta={}, threshold={}", float(a.beta), float(a.threshold)),
    |x| x.softplus(a.beta, a.threshold);

    /// `x` moved towards zero by `lambd`, zero within.
    Softshrink {
        /// Half the width of the zero; 0.5 by default.
        lambd = 0.5
    }
    |a| float(a.lambd),
    |x| if a.lambd < 0.0 {
        Err(Error::value(format!("Softshrink: lambd must be greater or equal to 0, but found {}", a.lambd)))
    } else {
        x.softshrink(a.lambd)
    };

    /// `x`, zero within `lambd` of zero.
    Hardshrink {
        /// Half the width of the zero; 0.5 by default.
        lambd = 0.5
    }
    |a| float(a.lambd),
    |x| x.hardshrink(a.lambd);

    /// `x` kept between two values.
    Hardtanh {
        /// The lower value; -1 by default.
        min_val = -1.0,
        /// The upper value; 1 by default.
        max_val = 1.0
    }
    |a| format!("min_val={}, max_val={}", float(a.min_val), float(a.max_val)),
    |x| if a.min_val > a.max_val {
        Err(Error::value(format!("Hardtanh: min_val {} is larger than max_val {}", a.min_val, a.max_val)))
    } else {
        x.hardtanh(a.min_val, a.max_val)
    };
}

/// `x` above a threshold, a constant elsewhere.
#[derive(Clone, Copy, Module)]
#[module(extra_repr = "Self::settings")]
pub struct Threshold {
    threshold: f64,
    value: f64,
}

impl Threshold {
    /// `value` where `x` is not above `threshold`.
    pub fn new(threshold: f64, value: f64) -> Self {
        Self { threshold, value }
    }

    fn settings(&self) -> String {
        format!("threshold={}, value={}", float(self.threshold), float(self.value))
    }
}

impl Forward for Threshold {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.threshold(self.threshold, self.value)
    }
}

/// How [`GELU`] is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approximate {
    /// By the error function.
    #[default]
    None,
    /// By a hyperbolic tangent.
    Tanh,
}

/// `x` times the standard normal's cumulative distribution at `x`.
#[derive(Clone, Copy, Default, Module)]
#[module(extra_repr = "Self::settings")]
pub struct GELU {
    #[module(skip)]
    approximate: Approximate,
}

impl GELU {
    /// The layer, by the error function by default.
    pub fn new() -> Self {
        Self::default()
    }

    /// How it is computed.
    pub fn approximate(mut self, approximate: Approximate) -> Self {
        self.approximate = approximate;
        self
    }

    fn settings(&self) -> String {
        let name = if self.approximate == Approximate::Tanh { "tanh" } else { "none" };
        format!("approximate='{name}'")
    }
}

impl Forward for GELU {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        match self.approximate {
            Approximate::None => input.gelu(),
            Approximate::Tanh => input.gelu_tanh(),
        }
    }
}

/// Layers over one dimension: name, then the method of `Tensor`.
macro_rules! along_dim {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Module)]
        #[module(extra_repr = "Self::settings")]
        pub struct $name {
            dim: isize,
        }

        impl $name {
            /// The layer for a dimension, counted from the end if negative.
            pub fn new(dim: isize) -> Self {
                Self { dim }
            }

            fn settings(&self) -> String {
                format!("dim={}", self.dim)
            }
        }

        impl Forward for $name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.$op(self.dim)
            }
        }
    )*};
}

along_dim! {
    /// `exp(x)` scaled to sum to one along a dimension.
    Softmax softmax;
    /// The logarithm of [`Softmax`].
    LogSoftmax log_softmax;
    /// [`Softmax`] of `-x`.
    Softmin softmin;
}

/// [`Softmax`] over the channels of `[batch, channels, height, width]` or `[channels, height, width]`.
#[derive(Clone, Copy, Default, Module)]
pub struct Softmax2d;

impl Softmax2d {
    /// The layer, which is also the value `Softmax2d`.
    pub fn new() -> Self {
        Self
    }
}

impl Forward for Softmax2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if !matches!(input.rank(), 3 | 4) {
            return Err(Error::shape(format!(
                "Softmax2d: expected input to be 3D or 4D, got shape {:?}",
                input.shape()
            )));
        }
        input.softmax(-3)
    }
}

/// The first half of a dimension times the sigmoid of the second.
#[derive(Clone, Copy, Module)]
#[module(extra_repr = "Self::settings")]
pub struct GLU {
    dim: isize,
}

impl GLU {
    /// The layer for the last dimension.
    pub fn new() -> Self {
        Self { dim: -1 }
    }

    /// The dimension to halve.
    pub fn dim(mut self, dim: isize) -> Self {
        self.dim = dim;
        self
    }

    fn settings(&self) -> String {
        format!("dim={}", self.dim)
    }
}

impl Default for GLU {
    fn default() -> Self {
        Self::new()
    }
}

impl Forward for GLU {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let size = input.size(self.dim)?;
        if !size.is_multiple_of(2) {
            return Err(Error::shape(format!(
                "GLU: halving dimension must be even, but dimension {} is size {size}",
                self.dim
            )));
        }
        let half = size / 2;
        input.narrow(self.dim, 0, half)?.mul(&input.narrow(self.dim, half as isize, half)?.sigmoid()?)
    }
}

/// [`LeakyReLU`] with a learned slope, one for all or one per channel.
#[derive(Module)]
#[module(extra_repr = "Self::settings")]
pub struct PReLU {
    /// `[num_parameters]`.
    pub weight: Parameter,
}

/// The options of a [`PReLU`].
#[derive(Clone, Debug)]
pub struct PReLUBuilder {
    num_parameters: usize,
    init: f64,
    options: Options,
}

impl PReLU {
    /// One slope, 0.25 at first, by default.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](PReLUBuilder::build).
    pub fn builder() -> PReLUBuilder {
        PReLUBuilder { num_parameters: 1, init: 0.25, options: Options::default() }
    }

    fn settings(&self) -> String {
        format!("num_parameters={}", self.weight.numel())
    }
}

factory_options!(PReLUBuilder);

impl PReLUBuilder {
    /// How many slopes: 1, or the number of channels.
    pub fn num_parameters(mut self, num_parameters: usize) -> Self {
        self.num_parameters = num_parameters;
        self
    }

    /// The slopes' first value.
    pub fn init(mut self, init: f64) -> Self {
        self.init = init;
        self
    }

    /// Makes the layer.
    pub fn build(self) -> Result<PReLU> {
        let weight = Tensor::full_with([self.num_parameters], self.init, self.options)?;
        Ok(PReLU { weight: Parameter::new(&weight)? })
    }
}

impl Forward for PReLU {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.prelu(&self.weight).in_module(self)
    }
}

/// [`LeakyReLU`] with a slope drawn again for every element when training, and their mean in evaluation.
#[derive(Clone, Module)]
#[module(extra_repr = "Self::settings")]
pub struct RReLU {
    lower: f64,
    upper: f64,
    training: Training,
}

impl RReLU {
    /// Slopes between 1/8 and 1/3 by default.
    pub fn new() -> Self {
        Self { lower: 0.125, upper: 1.0 / 3.0, training: Training::default() }
    }

    /// The smallest slope.
    pub fn lower(mut self, lower: f64) -> Self {
        self.lower = lower;
        self
    }

    /// The largest slope.
    pub fn upper(mut self, upper: f64) -> Self {
        self.upper = upper;
        self
    }

    fn settings(&self) -> String {
        format!("lower={}, upper={}", float(self.lower), float(self.upper))
    }
}

impl Default for RReLU {
    fn default() -> Self {
        Self::new()
    }
}

impl Forward for RReLU {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if !self.training.get() {
            return input.leaky_relu((self.lower + self.upper) / 2.0);
        }
        let slopes = Tensor::empty_with(input.shape(), (input.dtype(), input.device()))?;
        slopes.uniform_(self.lower, self.upper).map_err(|e| e.within("RReLU"))?;
        where_(&input.lt(0.0)?, &input.mul(&slopes)?, input)
    }
}
