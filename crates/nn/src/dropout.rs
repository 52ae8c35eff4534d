//! Layers that drop at random when training.

use crate::python::float;
use crate::{Forward, Module, Training, locate};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;

/// A layer with a probability and the training switch, and its builder. `$apply` chooses what to drop.
macro_rules! dropouts {
    ($($(#[$doc:meta])* $name:ident $builder:ident $apply:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Module)]
        #[module(extra_repr = "Self::settings")]
        pub struct $name {
            p: f64,
            training: Training,
        }

        #[doc = concat!("The options of a [`", stringify!($name), "`].")]
        #[derive(Clone, Debug)]
        pub struct $builder {
            p: f64,
        }

        impl $name {
            /// Drops with probability `p`; PyTorch's default is 0.5.
            pub fn new(p: f64) -> Result<Self> {
                Self::builder(p).build()
            }

            /// [`new`](Self::new) with options, to be followed by `build`.
            pub fn builder(p: f64) -> $builder {
                $builder { p }
            }

            /// The probability to drop.
            pub fn p(&self) -> f64 {
                self.p
            }

            /// Whether it drops now.
            pub fn training(&self) -> bool {
                self.training.get()
            }

            fn settings(&self) -> String {
                format!("p={}, inplace=False", float(self.p))
            }
        }

        impl $builder {
            /// Makes the layer.
            pub fn build(self) -> Result<$name> {
                check_probability(stringify!($name), self.p)?;
                Ok($name { p: self.p, training: Training::default() })
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self { p: 0.5, training: Training::default() }
            }
        }

        impl Forward for $name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                locate(self, || {
                    if !self.training.get() || self.p == 0.0 {
                        return Ok(input.clone());
                    }
                    let apply: fn(&str, &Tensor, f64) -> Result<Tensor> = $apply;
                    apply(stringify!($name), input, self.p)
                })
            }
        }
    )*};
}

dropouts! {
    /// Zeros elements when training, and scales the others up so that the mean stays.
    Dropout DropoutBuilder |_, x, p| x.dropout(p, true);
    /// [`Dropout`] of whole channels of `[batch, channels, length]` or `[channels, length]`.
    Dropout1d Dropout1dBuilder |name, x, p| x.mul(&channels::<1>(name, x)?.dropout(p, true)?);
    /// [`Dropout`] of whole channels of `[batch, channels, height, width]` or `[batch, channels, length]`.
    Dropout2d Dropout2dBuilder |name, x, p| x.mul(&channels::<2>(name, x)?.dropout(p, true)?);
    /// [`Dropout`] of whole channels of `[batch, channels, depth, height, width]` or without the batch.
    Dropout3d Dropout3dBuilder |name, x, p| x.mul(&channels::<3>(name, x)?.dropout(p, true)?);
    /// Sets elements to the negative limit of [`SELU`](crate::SELU) when training, and keeps mean and variance.
    AlphaDropout AlphaDropoutBuilder |_, x, p| alpha_dropout(x, &x.ones_like()?, p);
    /// [`AlphaDropout`] of whole channels, the second dimension.
    FeatureAlphaDropout FeatureAlphaDropoutBuilder |name, x, p| alpha_dropout(x, &per_channel(name, x, 2)?, p);
}

fn check_probability(name: &str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::value(format!("{name}: dropout probability has to be between 0 and 1, but got {p}")))
}

/// Ones that broadcast over everything after the channels, which end at `lead`.
fn per_channel(name: &str, x: &Tensor, lead: usize) -> Result<Tensor> {
    if x.rank() < lead {
        return Err(Error::shape(format!(
            "{name}: feature dropout requires at least {lead} dimensions in the input, got {:?}",
            x.shape()
        )));
    }
    let mut shape = vec![1; x.rank()];
    shape[..lead].copy_from_slice(&x.shape()[..lead]);
    Tensor::ones_with(shape, (x.dtype(), x.device()))
}

/// Ones by channel for `D` spatial dimensions. As in PyTorch, an input without batch is allowed but for two dimensions,
/// where three are batch, channels and length.
fn channels<const D: usize>(name: &str, x: &Tensor) -> Result<Tensor> {
    match x.rank() {
        rank if rank == D + 2 => per_channel(name, x, 2),
        3 if D == 2 => per_channel(name, x, 2),
        rank if rank == D + 1 => per_channel(name, x, 1),
        _ => Err(Error::shape(format!("{name}: expected {}D or {}D input, got shape {:?}", D + 1, D + 2, x.shape()))),
    }
}

/// Elements that broadcast from one element of `ones` are dropped together.
fn alpha_dropout(x: &Tensor, ones: &Tensor, p: f64) -> Result<Tensor> {
    if p == 1.0 {
        return x.mul(0.0);
    }
    /// Minus the limit of SELU at minus infinity: its scale times its alpha.
    const LIMIT: f64 = 1.758_099_340_847_376_6;
    let scale = 1.0 / ((LIMIT * LIMIT * p + 1.0) * (1.0 - p)).sqrt();
    let kept = ones.detach();
    kept.bernoulli_(1.0 - p)?;
    let shift = kept.sub(1.0)?.mul(LIMIT * scale)?.add(LIMIT * scale * p)?;
    x.mul(&kept.mul(scale)?)?.add(&shift)
}
