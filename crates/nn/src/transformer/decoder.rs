//! The decoder: self-attention, attention to an encoder's output and feed-forward, layer upon layer.

use super::config::{LayerConfig, TransformerActivation, feed_forward, layer_options};
use super::deep_copies;
use crate::{
    Dropout, Forward, LayerNorm, Linear, Module, MultiheadAttention, MultiheadAttentionOptions, factory_options, locate,
};
use rushlight_core::{Result, setters};
use rushlight_tensor::{Options, Tensor};

/// The optional arguments of a decoder's forward; masks as in [`MultiheadAttentionOptions`].
#[derive(Clone, Copy, Default)]
pub struct DecoderMasks<'a> {
    tgt_mask: Option<&'a Tensor>,
    memory_mask: Option<&'a Tensor>,
    tgt_key_padding_mask: Option<&'a Tensor>,
    memory_key_padding_mask: Option<&'a Tensor>,
    tgt_is_causal: bool,
    memory_is_causal: bool,
}

impl<'a> DecoderMasks<'a> {
    setters! {
        /// Which positions of the target see which.
        tgt_mask: into Option<&'a Tensor>;
        /// Which positions of the target see which of the memory.
        memory_mask: into Option<&'a Tensor>;
        /// Which positions of the target no other sees, `[batch, length]`.
        tgt_key_padding_mask: into Option<&'a Tensor>;
        /// Which positions of the memory are not seen, `[batch, length]`.
        memory_key_padding_mask: into Option<&'a Tensor>;
        /// Whether a position of the target sees itself and earlier ones only; a `tgt_mask` given as well must agree.
        tgt_is_causal: bool;
        /// Whether position `i` of the target sees positions `0..=i` of the memory only; a `memory_mask` given as well
        /// must agree.
        memory_is_causal: bool;
    }
}

/// Self-attention, attention to a memory and feed-forward, each with dropout, a residual connection and normalisation.
#[derive(Module)]
pub struct TransformerDecoderLayer {
    /// Attention among the positions of the target.
    pub self_attn: MultiheadAttention,
    /// Attention to the memory.
    pub multihead_attn: MultiheadAttention,
    /// The first layer of the feed-forward part.
    pub linear1: Linear,
    /// Dropout after the activation.
    pub dropout: Dropout,
    /// The second layer of the feed-forward part.
    pub linear2: Linear,
    /// The normalisation of self-attention.
    pub norm1: LayerNorm,
    /// The normalisation of attention to the memory.
    pub norm2: LayerNorm,
    /// The normalisation of the feed-forward part.
    pub norm3: LayerNorm,
    /// Dropout after self-attention.
    pub dropout1: Dropout,
    /// Dropout after attention to the memory.
    pub dropout2: Dropout,
    /// Dropout after the feed-forward part.
    pub dropout3: Dropout,
    norm_first: bool,
    #[module(skip)]
    activation: TransformerActivation,
}

/// The options of a [`TransformerDecoderLayer`].
#[derive(Clone, Debug)]
pub struct TransformerDecoderLayerBuilder {
    pub(super) config: LayerConfig,
    options: Options,
}

impl TransformerDecoderLayer {
    /// A layer over `d_model` features with `nhead` attention heads.
    pub fn new(d_model: usize, nhead: usize) -> Result<Self> {
        Self::builder(d_model, nhead).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](TransformerDecoderLayerBuilder::build).
    pub fn builder(d_model: usize, nhead: usize) -> TransformerDecoderLayerBuilder {
        TransformerDecoderLayerBuilder { config: LayerConfig::new(d_model, nhead), options: Options::default() }
    }

    /// The output for a target, from an encoder's output.
    pub fn forward(&self, tgt: &Tensor, memory: &Tensor) -> Result<Tensor> {
        self.forward_with(tgt, memory, &DecoderMasks::default())
    }

    /// [`TransformerDecoderLayer::forward`] with masks.
    pub fn forward_with(&self, tgt: &Tensor, memory: &Tensor, masks: &DecoderMasks) -> Result<Tensor> {
        locate(self, || {
            if self.norm_first {
                let x = tgt.add(&self.self_attention(&self.norm1.forward(tgt)?, masks)?)?;
                let x = x.add(&self.memory_attention(&self.norm2.forward(&x)?, memory, masks)?)?;
                return x.add(&self.feed_forward(&self.norm3.forward(&x)?)?);
            }
            let x = self.norm1.forward(&tgt.add(&self.self_attention(tgt, masks)?)?)?;
            let x = self.norm2.forward(&x.add(&self.memory_attention(&x, memory, masks)?)?)?;
            self.norm3.forward(&x.add(&self.feed_forward(&x)?)?)
        })
    }

    fn self_attention(&self, x: &Tensor, masks: &DecoderMasks) -> Result<Tensor> {
        let options = MultiheadAttentionOptions::default()
            .attn_mask(masks.tgt_mask)
            .key_padding_mask(masks.tgt_key_padding_mask)
            .is_causal(masks.tgt_is_causal)
            .need_weights(false);
        self.dropout1.forward(&self.self_attn.forward(x, x, x, &options)?.0)
    }

    fn memory_attention(&self, x: &Tensor, memory: &Tensor, masks: &DecoderMasks) -> Result<Tensor> {
        let options = MultiheadAttentionOptions::default()
            .attn_mask(masks.memory_mask)
            .key_padding_mask(masks.memory_key_padding_mask)
            .is_causal(masks.memory_is_causal)
            .need_weights(false);
        self.dropout2.forward(&self.multihead_attn.forward(x, memory, memory, &options)?.0)
    }

    fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        self.dropout3.forward(&feed_forward(x, &self.linear1, self.activation, &self.dropout, &self.linear2)?)
    }
}

factory_options!(TransformerDecoderLayerBuilder);
layer_options!(TransformerDecoderLayerBuilder);

impl TransformerDecoderLayerBuilder {
    pub(super) fn from_config(config: LayerConfig, options: Options) -> Self {
        Self { config, options }
    }

    /// Makes the layer, with PyTorch's initial values.
    pub fn build(self) -> Result<TransformerDecoderLayer> {
        let (config, options) = (self.config, self.options);
        Ok(TransformerDecoderLayer {
            self_attn: config.attention(options)?,
            multihead_attn: config.attention(options)?,
            linear1: config.linear(config.d_model, config.dim_feedforward, options)?,
            dropout: config.dropout()?,
            linear2: config.linear(config.dim_feedforward, config.d_model, options)?,
            norm1: config.norm(options)?,
            norm2: config.norm(options)?,
            norm3: config.norm(options)?,
            dropout1: config.dropout()?,
            dropout2: config.dropout()?,
            dropout3: config.dropout()?,
            norm_first: config.norm_first,
            activation: config.activation,
        })
    }
}

/// Several [`TransformerDecoderLayer`]s, and a normalisation at the end if given.
#[derive(Module)]
pub struct TransformerDecoder {
    /// The layers, first to last.
    pub layers: Vec<TransformerDecoderLayer>,
    /// The final normalisation.
    pub norm: Option<LayerNorm>,
}

/// The options of a [`TransformerDecoder`].
pub struct TransformerDecoderBuilder {
    decoder_layer: TransformerDecoderLayer,
    num_layers: usize,
    norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// `num_layers` copies of a layer, with equal values at first and parameters of their own.
    pub fn new(decoder_layer: TransformerDecoderLayer, num_layers: usize) -> Result<Self> {
        Self::builder(decoder_layer, num_layers).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](TransformerDecoderBuilder::build).
    pub fn builder(decoder_layer: TransformerDecoderLayer, num_layers: usize) -> TransformerDecoderBuilder {
        TransformerDecoderBuilder { decoder_layer, num_layers, norm: None }
    }

    /// The output for a target, from an encoder's output.
    pub fn forward(&self, tgt: &Tensor, memory: &Tensor) -> Result<Tensor> {
        self.forward_with(tgt, memory, &DecoderMasks::default())
    }

    /// [`TransformerDecoder::forward`] with masks.
    pub fn forward_with(&self, tgt: &Tensor, memory: &Tensor, masks: &DecoderMasks) -> Result<Tensor> {
        locate(self, || {
            let mut x = tgt.clone();
            for layer in &self.layers {
                x = layer.forward_with(&x, memory, masks)?;
            }
            self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
        })
    }
}

impl TransformerDecoderBuilder {
    /// A normalisation after the last layer, none by default.
    pub fn norm(mut self, norm: impl Into<Option<LayerNorm>>) -> Self {
        self.norm = norm.into();
        self
    }

    /// Makes the decoder.
    pub fn build(self) -> Result<TransformerDecoder> {
        Ok(TransformerDecoder { layers: deep_copies(self.decoder_layer, self.num_layers)?, norm: self.norm })
    }
}
