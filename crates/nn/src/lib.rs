//! Neural networks: modules, layers, losses, initialisation.
//!
//! A model is a plain struct with `#[derive(Module)]`; names, shapes and default initialisation of parameters are PyTorch's, so
//! state dicts travel both ways.
//!
//! ```
//! use rushlight_nn::{Forward, Linear, Module};
//! use rushlight_tensor::Tensor;
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
//! let net = Net { fc1: Linear::new(4, 8).build()?, fc2: Linear::new(8, 2).bias(false).build()? };
//! let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight"]);
//! assert_eq!(net.forward(&Tensor::zeros([3, 4])?)?.shape(), [3, 2]);
//! # Ok::<(), rushlight_core::Error>(())
//! ```

// `#[derive(Module)]` names this crate.
extern crate self as rushlight_nn;

mod attention;
mod factory;
pub mod init;
mod linear;
mod module;
mod transformer;

pub use attention::{InProjection, MultiheadAttention, MultiheadAttentionBuilder, MultiheadAttentionOptions};
pub(crate) use factory::factory_options;
pub use linear::{Linear, LinearBuilder};
pub use module::{Buffer, Field, Forward, LoadReport, Member, MemberMut, Module, Parameter, Summary, To, Training};
pub use rushlight_derive::Module;
pub use transformer::{
    DecoderMasks, EncoderMasks, Transformer, TransformerActivation, TransformerBuilder, TransformerDecoder,
    TransformerDecoderBuilder, TransformerDecoderLayer, TransformerDecoderLayerBuilder, TransformerEncoder,
    TransformerEncoderBuilder, TransformerEncoderLayer, TransformerEncoderLayerBuilder, TransformerMasks,
};
