//! Options shared by encoder layers, decoder layers and whole transformers.

use crate::{Dropout, Forward, LayerNorm, Linear, MultiheadAttention};
use rushlight_core::Result;
use rushlight_tensor::{Options, Tensor};

/// The activation between the two linear layers of a transformer layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransformerActivation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// The exact GELU.
    Gelu,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LayerConfig {
    pub(super) d_model: usize,
    pub(super) nhead: usize,
    pub(super) dim_feedforward: usize,
    pub(super) dropout: f64,
    pub(super) activation: TransformerActivation,
    pub(super) layer_norm_eps: f64,
    pub(super) batch_first: bool,
    pub(super) norm_first: bool,
    pub(super) bias: bool,
}

impl LayerConfig {
    pub(super) fn new(d_model: usize, nhead: usize) -> Self {
        Self {
            d_model,
            nhead,
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: TransformerActivation::Relu,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
            bias: true,
        }
    }

    pub(super) fn attention(&self, options: Options) -> Result<MultiheadAttention> {
        MultiheadAttention::builder(self.d_model, self.nhead)
            .dropout(self.dropout)
            .bias(self.bias)
            .batch_first(self.batch_first)
            .options(options)
            .build()
    }

    pub(super) fn linear(&self, in_features: usize, out_features: usize, options: Options) -> Result<Linear> {
        Linear::builder(in_features, out_features).bias(self.bias).options(options).build()
    }

    pub(super) fn norm(&self, options: Options) -> Result<LayerNorm> {
        LayerNorm::builder([self.d_model]).eps(self.layer_norm_eps).bias(self.bias).options(options).build()
    }

    pub(super) fn dropout(&self) -> Result<Dropout> {
        Dropout::new(self.dropout)
    }
}

/// The setters of a builder with a field `config`.
macro_rules! layer_options {
    ($builder:ty) => {
        impl $builder {
            /// The features between the two linear layers, 2048 by default.
            pub fn dim_feedforward(mut self, features: usize) -> Self {
                self.config.dim_feedforward = features;
                self
            }

            /// The probability of dropout while training, 0.1 by default.
            pub fn dropout(mut self, p: f64) -> Self {
                self.config.dropout = p;
                self
            }

            /// The activation between the two linear layers, ReLU by default.
            pub fn activation(mut self, activation: $crate::TransformerActivation) -> Self {
                self.config.activation = activation;
                self
            }

            /// The `eps` of the normalisations, 1e-5 by default.
            pub fn layer_norm_eps(mut self, eps: f64) -> Self {
                self.config.layer_norm_eps = eps;
                self
            }

            /// Whether inputs are `[batch, length, d_model]` instead of `[length, batch, d_model]`.
            pub fn batch_first(mut self, batch_first: bool) -> Self {
                self.config.batch_first = batch_first;
                self
            }

            /// Whether to normalise before attention and feed-forward instead of after.
            pub fn norm_first(mut self, norm_first: bool) -> Self {
                self.config.norm_first = norm_first;
                self
            }

            /// Whether linear layers, attentions and normalisations have biases, true by default.
            pub fn bias(mut self, bias: bool) -> Self {
                self.config.bias = bias;
                self
            }
        }
    };
}

pub(super) use layer_options;

/// `linear2(dropout(activation(linear1(x))))`.
pub(super) fn feed_forward(
    x: &Tensor,
    linear1: &Linear,
    activation: TransformerActivation,
    dropout: &Dropout,
    linear2: &Linear,
) -> Result<Tensor> {
    let hidden = linear1.forward(x)?;
    let hidden = match activation {
        TransformerActivation::Relu => hidden.relu()?,
        TransformerActivation::Gelu => hidden.gelu()?,
    };
    linear2.forward(&dropout.forward(&hidden)?)
}
