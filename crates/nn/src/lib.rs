//! Neural networks: modules, layers, losses, initialisation.
//!
//! A model is a plain struct with `#[derive(Module)]`; names, shapes and default initialisation of parameters are
//! PyTorch's, so state dicts load in both directions.
//!
//! Layers that hold parameters or check settings have a builder with PyTorch's names and defaults:
//! `Conv2d::builder(3, 8, 3).padding(1).build()?`. Other layers need no `build`: `ReLU`,
//! `MaxPool2d::new(2).stride(1)`, `CrossEntropyLoss::new().label_smoothing(0.1)`.
//!
//! ```
//! # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
//! use rushlight::nn::{Forward, Linear, Module};
//! use rushlight::Tensor;
//! # use rushlight_core::Result;
//!
//! #[derive(Module)]
//! struct Net {
//!     fc1: Linear,
//!     fc2: Linear,
//! }
//!
//! impl Forward for Net {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.fc2.forward(&self.fc1.forward(x)?.relu()?)
//!     }
//! }
//!
//! let net = Net { fc1: Linear::new(4, 8)?, fc2: Linear::builder(8, 2).bias(false).build()? };
//! let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight"]);
//! assert_eq!(net.forward(&Tensor::zeros([3, 4])?)?.shape(), [3, 2]);
//! # Ok::<(), rushlight_core::Error>(())
//! ```

// `#[derive(Module)]` names this crate.
extern crate self as rushlight_nn;

mod activation;
mod attention;
mod bilinear;
mod containers;
mod conv;
mod distance;
mod dropout;
mod embedding;
mod embedding_bag;
mod factory;
mod fold;
mod hooks;
pub mod init;
mod linear;
mod loss;
pub mod models;
mod module;
mod norm;
mod padding;
mod parametrize;
mod pooling;
mod python;
mod recurrent;
mod rotary;
mod sequential;
mod shape;
mod transformer;
mod unpooling;
mod upsample;
mod vector;

pub use activation::{
    Approximate, CELU, ELU, GELU, GLU, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid, LogSoftmax,
    Mish, PReLU, PReLUBuilder, RReLU, ReLU, ReLU6, SELU, SiLU, Sigmoid, Softmax, Softmax2d, Softmin, Softplus,
    Softshrink, Softsign, Tanh, Tanhshrink, Threshold,
};
pub use attention::{InProjection, MultiheadAttention, MultiheadAttentionBuilder, MultiheadAttentionOptions};
pub use bilinear::{Bilinear, BilinearBuilder};
pub use containers::{ModuleDict, ModuleList, ParameterDict, ParameterList};
pub use conv::{
    Conv1d, Conv2d, Conv3d, ConvNd, ConvNdBuilder, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeNd,
    ConvTransposeNdBuilder, PaddingMode,
};
pub use distance::{CosineSimilarity, PairwiseDistance};
pub use dropout::{
    AlphaDropout, AlphaDropoutBuilder, Dropout, Dropout1d, Dropout1dBuilder, Dropout2d, Dropout2dBuilder, Dropout3d,
    Dropout3dBuilder, DropoutBuilder, FeatureAlphaDropout, FeatureAlphaDropoutBuilder,
};
pub use embedding::{Embedding, EmbeddingBuilder};
pub use embedding_bag::{EmbeddingBag, EmbeddingBagBuilder};
pub(crate) use factory::factory_options;
pub use fold::{Fold, Unfold};
pub use hooks::{ForwardHookHandle, Hooked};
pub use linear::{Linear, LinearBuilder};
pub use loss::{
    BCELoss, BCEWithLogitsLoss, CTCLoss, CosineEmbeddingLoss, CrossEntropyLoss, GaussianNLLLoss, HingeEmbeddingLoss,
    HuberLoss, KLDivLoss, L1Loss, MSELoss, MarginRankingLoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss,
    MultiMarginLoss, NLLLoss, PoissonNLLLoss, SmoothL1Loss, SoftMarginLoss, TripletMarginLoss, ctc_loss,
};
pub use module::{
    Buffer, Field, Forward, InModule, LoadReport, Member, MemberMut, Memo, Module, Parameter, Summary, To, Training,
};
pub(crate) use module::{locate, path_of};
pub use norm::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormNd, BatchNormNdBuilder, GroupNorm, GroupNormBuilder,
    InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, InstanceNormNd, InstanceNormNdBuilder, LayerNorm, LayerNormBuilder,
    NormalizedShape, RMSNorm, RMSNormBuilder,
};
pub use padding::{
    CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d, ReflectionPad1d,
    ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, Sides, ZeroPad1d,
    ZeroPad2d, ZeroPad3d,
};
pub use parametrize::{
    Parametrization, Parametrized, SpectralNorm, SpectralNormOptions, WeightNorm, spectral_norm, weight_norm,
};
pub use pooling::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
    AvgPool1d, AvgPool2d, AvgPool3d, AvgPoolNd, MaxPool1d, MaxPool2d, MaxPool3d, MaxPoolNd,
};
pub use recurrent::{
    CellWeights, GRU, GRUBuilder, GRUCell, GRUCellBuilder, LSTM, LSTMBuilder, LSTMCell, LSTMCellBuilder,
    PackedSequence, PaddingSide, RNN, RNNBuilder, RNNCell, RNNCellBuilder, RNNNonlinearity, Recurrence, RecurrentKind,
    RecurrentWeights, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence,
};
pub use rotary::{RopeScaling, RotaryEmbedding, RotaryEmbeddingBuilder};
pub use rushlight_derive::Module;
pub use rushlight_tensor::BagMode;
pub use rushlight_tensor::state::Stateful;
pub use sequential::{Layers, Sequential};
pub use shape::{ChannelShuffle, Flatten, Identity, PixelShuffle, PixelUnshuffle, Unflatten};
pub use transformer::{
    DecoderMasks, EncoderMasks, Transformer, TransformerActivation, TransformerBuilder, TransformerDecoder,
    TransformerDecoderBuilder, TransformerDecoderLayer, TransformerDecoderLayerBuilder, TransformerEncoder,
    TransformerEncoderBuilder, TransformerEncoderLayer, TransformerEncoderLayerBuilder, TransformerMasks,
};

/// Functions that `#[derive(Module)]` calls.
#[doc(hidden)]
pub mod __private {
    pub use crate::module::{ByClone, ByRefusal, Setting};
    pub use rushlight_core::Result;
    pub use rushlight_tensor::state::Value;

    /// A module's state dict as a checkpoint value.
    pub fn state(module: &dyn crate::Module) -> Result<Value> {
        Ok(module.state_dict().into())
    }

    /// Loads a state dict.
    pub fn load_state(module: &dyn crate::Module, state: &Value) -> Result<()> {
        module.load_state_dict(&state.to_state_dict()?)
    }
}
pub use unpooling::{MaxUnpool1d, MaxUnpool2d, MaxUnpool3d, MaxUnpoolNd};
pub use upsample::Upsample;
pub use vector::{parameters_to_vector, vector_to_parameters};
