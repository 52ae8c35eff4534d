//! Macros and options shared by all losses.

/// Losses: name, tensors to keep in brackets, options with their defaults, then the call. Every one has a `reduction`,
/// the mean by default.
macro_rules! losses {
    ($(
        $(#[$doc:meta])*
        $name:ident $([ $($(#[$buffer_doc:meta])* $buffer:ident),* $(,)? ])? { $($(#[$option_doc:meta])* $option:ident: $ty:ty = $default:expr),* $(,)? }
        |$loss:ident, $($input:ident),+| $call:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Module)]
        pub struct $name {
            $($($buffer: Option<crate::Buffer>,)*)?
            $($option: $ty,)*
            #[module(skip)]
            reduction: Reduction,
        }

        impl $name {
            /// The loss with PyTorch's defaults.
            pub fn new() -> Self {
                Self { $($($buffer: None,)*)? $($option: $default,)* reduction: Reduction::Mean }
            }

            $($(
                $(#[$buffer_doc])*
                pub fn $buffer(mut self, $buffer: &Tensor) -> Self {
                    self.$buffer = Some(crate::Buffer::new($buffer.detach()));
                    self
                }
            )*)?

            $(
                $(#[$option_doc])*
                pub fn $option(mut self, $option: $ty) -> Self {
                    self.$option = $option;
                    self
                }
            )*

            /// How the losses are reduced; to their mean by default.
            pub fn reduction(mut self, reduction: Reduction) -> Self {
                self.reduction = reduction;
                self
            }

            /// The loss.
            pub fn forward(&self, $($input: &Tensor),+) -> Result<Tensor> {
                let $loss = self;
                $call
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }
    )*};
}

pub(super) use losses;

use rushlight_core::{Error, Result};
use rushlight_tensor::{Reduction, Tensor};

/// A reduction applied to the losses of single elements.
pub(super) fn reduce(name: &str, losses: Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::None => Ok(losses),
        Reduction::Mean => losses.mean(..),
        Reduction::Sum => losses.sum(..),
        Reduction::BatchMean => Err(Error::value(format!("{name}: batchmean is not a valid value for reduction"))),
    }
}
