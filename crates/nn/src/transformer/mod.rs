//! The transformer of "Attention Is All You Need", whole and in parts.

mod config;
mod decoder;
mod encoder;

pub use config::TransformerActivation;
pub use decoder::{
    DecoderMasks, TransformerDecoder, TransformerDecoderBuilder, TransformerDecoderLayer,
    TransformerDecoderLayerBuilder,
};
pub use encoder::{
    EncoderMasks, TransformerEncoder, TransformerEncoderBuilder, TransformerEncoderLayer,
    TransformerEncoderLayerBuilder,
};

use crate::{Module, factory_options, init, locate};
use config::{LayerConfig, layer_options};
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::{Options, Tensor};

/// The optional arguments of [`Transformer::forward_with`]; masks as in
/// [`MultiheadAttentionOptions`](crate::MultiheadAttentionOptions).
#[derive(Clone, Copy, Default)]
pub struct TransformerMasks<'a> {
    /// For the encoder.
    pub encoder: EncoderMasks<'a>,
    /// For the decoder.
    pub decoder: DecoderMasks<'a>,
}

/// An encoder and a decoder.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{DecoderMasks, Transformer, TransformerMasks};
/// use rushlight::Tensor;
/// let model = Transformer::builder()
///     .d_model(16)
///     .nhead(2)
///     .num_encoder_layers(1)
///     .num_decoder_layers(1)
///     .dim_feedforward(32)
///     .batch_first(true)
///     .build()?;
/// let (src, tgt) = (Tensor::ones([2, 5, 16])?, Tensor::ones([2, 3, 16])?);
/// assert_eq!(model.forward(&src, &tgt)?.shape(), [2, 3, 16]);
/// let masks = TransformerMasks { decoder: DecoderMasks::default().tgt_is_causal(true), ..Default::default() };
/// assert_eq!(model.forward_with(&src, &tgt, &masks)?.shape(), [2, 3, 16]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
pub struct Transformer {
    /// From the source to the memory.
    pub encoder: TransformerEncoder,
    /// From the target and the memory to the output.
    pub decoder: TransformerDecoder,
    d_model: usize,
    batch_first: bool,
}

/// The options of a [`Transformer`].
pub struct TransformerBuilder {
    config: LayerConfig,
    num_encoder_layers: usize,
    num_decoder_layers: usize,
    custom_encoder: Option<TransformerEncoder>,
    custom_decoder: Option<TransformerDecoder>,
    options: Options,
}

impl Transformer {
    /// 512 features, 8 heads and 6 layers on each side, by default.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](TransformerBuilder::build).
    pub fn builder() -> TransformerBuilder {
        TransformerBuilder {
            config: LayerConfig::new(512, 8),
            num_encoder_layers: 6,
            num_decoder_layers: 6,
            custom_encoder: None,
            custom_decoder: None,
            options: Options::default(),
        }
    }

    /// The output for a target, `[target length, batch, d_model]`, from a source, `[source length, batch, d_model]`
    /// (the batch first with `batch_first`; without one, `[length, d_model]`).
    pub fn forward(&self, src: &Tensor, tgt: &Tensor) -> Result<Tensor> {
        self.forward_with(src, tgt, &TransformerMasks::default())
    }

    /// [`Transformer::forward`] with masks.
    pub fn forward_with(&self, src: &Tensor, tgt: &Tensor, masks: &TransformerMasks) -> Result<Tensor> {
        locate(self, || {
            let wrong = |what: &str| {
                Err(Error::shape(format!("transformer: {what}; got src {:?} and tgt {:?}", src.shape(), tgt.shape())))
            };
            if !matches!(src.rank(), 2 | 3) || tgt.rank() != src.rank() {
                return wrong("expected src and tgt of 3 dimensions, or both of 2 without a batch");
            }
            let batch = usize::from(!self.batch_first);
            if src.rank() == 3 && src.shape()[batch] != tgt.shape()[batch] {
                return wrong("the batch size of src and tgt must be equal");
            }
            if [src, tgt].iter().any(|t| t.shape().last() != Some(&self.d_model)) {
                return wrong(&format!("the feature number of src and tgt must be equal to d_model, {}", self.d_model));
            }
            let memory = self.encoder.forward_with(src, &masks.encoder)?;
            self.decoder.forward_with(tgt, &memory, &masks.decoder)
        })
    }

    /// A mask that hides later positions: minus infinity above the diagonal, else zero.
    pub fn generate_square_subsequent_mask(sz: usize, options: impl Into<Options>) -> Result<Tensor> {
        Tensor::full_with([sz, sz], f64::NEG_INFINITY, options)?.triu(1)
    }
}

factory_options!(TransformerBuilder);
layer_options!(TransformerBuilder);

impl TransformerBuilder {
    /// The features of source, target and output.
    pub fn d_model(mut self, d_model: usize) -> Self {
        self.config.d_model = d_model;
        self
    }

    /// The heads of each attention.
    pub fn nhead(mut self, nhead: usize) -> Self {
        self.config.nhead = nhead;
        self
    }

    setters! {
        /// The encoder's layers.
        num_encoder_layers: usize;
        /// The decoder's layers.
        num_decoder_layers: usize;
        /// An encoder of the caller's instead of one from the other options.
        custom_encoder: into Option<TransformerEncoder>;
        /// A decoder of the caller's instead of one from the other options.
        custom_decoder: into Option<TransformerDecoder>;
    }

    /// Makes the model; all matrices, including those of custom parts, start from Xavier's uniform values, as in
    /// PyTorch.
    pub fn build(self) -> Result<Transformer> {
        let (config, options) = (self.config, self.options);
        let encoder = match self.custom_encoder {
            Some(encoder) => encoder,
            None => {
                let layer = TransformerEncoderLayerBuilder::from_config(config, options).build()?;
                TransformerEncoder::builder(layer, self.num_encoder_layers).norm(config.norm(options)?).build()?
            }
        };
        let decoder = match self.custom_decoder {
            Some(decoder) => decoder,
            None => {
                let layer = TransformerDecoderLayerBuilder::from_config(config, options).build()?;
                TransformerDecoder::builder(layer, self.num_decoder_layers).norm(config.norm(options)?).build()?
            }
        };
        let model = Transformer { encoder, decoder, d_model: config.d_model, batch_first: config.batch_first };
        for parameter in model.parameters().iter().filter(|p| p.rank() > 1) {
            init::xavier_uniform_(parameter, 1.0)?;
        }
        Ok(model)
    }
}

/// `count` modules equal to the given one, each with its own parameters and buffers.
fn deep_copies<M: Module>(module: M, count: usize) -> Result<Vec<M>> {
    let copies = (1..count).map(|_| module.deepcopy()).collect::<Result<Vec<M>>>()?;
    Ok(std::iter::once(module).chain(copies).take(count).collect())
}
