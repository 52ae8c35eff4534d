//! The encoder: self-attention and feed-forward, layer upon layer.

use super::config::{LayerConfig, TransformerActivation, feed_forward, layer_options};
use super::deep_copies;
use crate::{
    Dropout, Forward, LayerNorm, Linear, Module, MultiheadAttention, MultiheadAttentionOptions, factory_options, locate,
};
use rushlight_core::{Result, setters};
use rushlight_tensor::{Options, Tensor};

/// The optional arguments of an encoder's forward; masks as in [`MultiheadAttentionOptions`].
#[derive(Clone, Copy, Default)]
pub struct EncoderMasks<'a> {
    src_mask: Option<&'a Tensor>,
    src_key_padding_mask: Option<&'a Tensor>,
    is_causal: bool,
}

impl<'a> EncoderMasks<'a> {
    setters! {
        /// Which positions see which.
        src_mask: into Option<&'a Tensor>;
        /// Which positions no other sees, `[batch, length]`.
        src_key_padding_mask: into Option<&'a Tensor>;
        /// Whether a position sees itself and earlier ones only; a `src_mask` given as well must agree.
        is_causal: bool;
    }
}

/// Self-attention and feed-forward, each with dropout, a residual connection and normalisation.
#[derive(Module)]
pub struct TransformerEncoderLayer {
    /// Attention among the positions.
    pub self_attn: MultiheadAttention,
    /// The first layer of the feed-forward part.
    pub linear1: Linear,
    /// Dropout after the activation.
    pub dropout: Dropout,
    /// The second layer of the feed-forward part.
    pub linear2: Linear,
    /// The normalisation of the attention part.
    pub norm1: LayerNorm,
    /// The normalisation of the feed-forward part.
    pub norm2: LayerNorm,
    /// Dropout after attention.
    pub dropout1: Dropout,
    /// Dropout after the feed-forward part.
    pub dropout2: Dropout,
    norm_first: bool,
    #[module(skip)]
    activation: TransformerActivation,
}

/// The options of a [`TransformerEncoderLayer`].
#[derive(Clone, Debug)]
pub struct TransformerEncoderLayerBuilder {
    pub(super) config: LayerConfig,
    options: Options,
}

impl TransformerEncoderLayer {
    /// A layer over `d_model` features with `nhead` attention heads.
    pub fn new(d_model: usize, nhead: usize) -> Result<Self> {
        Self::builder(d_model, nhead).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](TransformerEncoderLayerBuilder::build).
    pub fn builder(d_model: usize, nhead: usize) -> TransformerEncoderLayerBuilder {
        TransformerEncoderLayerBuilder { config: LayerConfig::new(d_model, nhead), options: Options::default() }
    }

    /// [`Forward::forward`] with masks.
    pub fn forward_with(&self, src: &Tensor, masks: &EncoderMasks) -> Result<Tensor> {
        locate(self, || {
            if self.norm_first {
                let x = src.add(&self.attention(&self.norm1.forward(src)?, masks)?)?;
                return x.add(&self.feed_forward(&self.norm2.forward(&x)?)?);
            }
            let x = self.norm1.forward(&src.add(&self.attention(src, masks)?)?)?;
            self.norm2.forward(&x.add(&self.feed_forward(&x)?)?)
        })
    }

    fn attention(&self, x: &Tensor, masks: &EncoderMasks) -> Result<Tensor> {
        let options = MultiheadAttentionOptions::default()
            .attn_mask(masks.src_mask)
            .key_padding_mask(masks.src_key_padding_mask)
            .is_causal(masks.is_causal)
            .need_weights(false);
        self.dropout1.forward(&self.self_attn.forward(x, x, x, &options)?.0)
    }

    fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        self.dropout2.forward(&feed_forward(x, &self.linear1, self.activation, &self.dropout, &self.linear2)?)
    }
}

impl Forward for TransformerEncoderLayer {
    fn forward(&self, src: &Tensor) -> Result<Tensor> {
        self.forward_with(src, &EncoderMasks::default())
    }
}

factory_options!(TransformerEncoderLayerBuilder);
layer_options!(TransformerEncoderLayerBuilder);

impl TransformerEncoderLayerBuilder {
    pub(super) fn from_config(config: LayerConfig, options: Options) -> Self {
        Self { config, options }
    }

    /// Makes the layer, with PyTorch's initial values.
    pub fn build(self) -> Result<TransformerEncoderLayer> {
        let (config, options) = (self.config, self.options);
        Ok(TransformerEncoderLayer {
            self_attn: config.attention(options)?,
            linear1: config.linear(config.d_model, config.dim_feedforward, options)?,
            dropout: config.dropout()?,
            linear2: config.linear(config.dim_feedforward, config.d_model, options)?,
            norm1: config.norm(options)?,
            norm2: config.norm(options)?,
            dropout1: config.dropout()?,
            dropout2: config.dropout()?,
            norm_first: config.norm_first,
            activation: config.activation,
        })
    }
}

/// Several [`TransformerEncoderLayer`]s, and a normalisation at the end if given.
#[derive(Module)]
pub struct TransformerEncoder {
    /// The layers, first to last.
    pub layers: Vec<TransformerEncoderLayer>,
    /// The final normalisation.
    pub norm: Option<LayerNorm>,
}

/// The options of a [`TransformerEncoder`].
pub struct TransformerEncoderBuilder {
    encoder_layer: TransformerEncoderLayer,
    num_layers: usize,
    norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// `num_layers` copies of a layer, with equal values at first and parameters of their own.
    pub fn new(encoder_layer: TransformerEncoderLayer, num_layers: usize) -> Result<Self> {
        Self::builder(encoder_layer, num_layers).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](TransformerEncoderBuilder::build).
    pub fn builder(encoder_layer: TransformerEncoderLayer, num_layers: usize) -> TransformerEncoderBuilder {
        TransformerEncoderBuilder { encoder_layer, num_layers, norm: None }
    }

    /// [`Forward::forward`] with masks.
    pub fn forward_with(&self, src: &Tensor, masks: &EncoderMasks) -> Result<Tensor> {
        locate(self, || {
            let mut x = src.clone();
            for layer in &self.layers {
                x = layer.forward_with(&x, masks)?;
            }
            self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
        })
    }
}

impl Forward for TransformerEncoder {
    fn forward(&self, src: &Tensor) -> Result<Tensor> {
        self.forward_with(src, &EncoderMasks::default())
    }
}

impl TransformerEncoderBuilder {
    /// A normalisation after the last layer, none by default.
    pub fn norm(mut self, norm: impl Into<Option<LayerNorm>>) -> Self {
        self.norm = norm.into();
        self
    }

    /// Makes the encoder.
    pub fn build(self) -> Result<TransformerEncoder> {
        Ok(TransformerEncoder { layers: deep_copies(self.encoder_layer, self.num_layers)?, norm: self.norm })
    }
}
