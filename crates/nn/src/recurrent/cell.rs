//! Cells: one step of a recurrent network.

use super::weights::{CellWeights, Kind, RNNNonlinearity, Sizes, State};
use crate::python::boolean;
use crate::{InModule, Module, factory_options, locate};
use rushlight_core::{Error, Result};
use rushlight_tensor::{Options, Tensor};

/// The common part of the cells: struct, builder, settings.
macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident $builder:ident $kind:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        #[module(extra_repr = "Self::settings")]
        pub struct $name {
            /// `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`.
            pub weights: CellWeights,
            input_size: usize,
            hidden_size: usize,
            #[module(skip)]
            kind: Kind,
        }

        #[doc = concat!("The options of a [`", stringify!($name), "`].")]
        #[derive(Clone, Debug)]
        pub struct $builder {
            input_size: usize,
            hidden_size: usize,
            bias: bool,
            kind: Kind,
            options: Options,
        }

        impl $name {
            /// A cell from `input_size` features to a state of `hidden_size`.
            pub fn new(input_size: usize, hidden_size: usize) -> Result<Self> {
                Self::builder(input_size, hidden_size).build()
            }

            /// [`new`](Self::new) with options, to be followed by `build`.
            pub fn builder(input_size: usize, hidden_size: usize) -> $builder {
                $builder { input_size, hidden_size, bias: true, kind: $kind, options: Options::default() }
            }

            fn settings(&self) -> String {
                settings(self.input_size, self.hidden_size, &self.weights, self.kind)
            }
        }

        factory_options!($builder);

        impl $builder {
            /// Whether to add biases, true by default.
            pub fn bias(mut self, bias: bool) -> Self {
                self.bias = bias;
                self
            }

            /// Makes the cell, with PyTorch's initial values.
            pub fn build(self) -> Result<$name> {
                let sizes = Sizes { input: self.input_size, hidden: self.hidden_size, proj: 0 };
                let weights = CellWeights::new(stringify!($name), self.kind, sizes, self.bias, self.options)?;
                Ok($name { weights, input_size: self.input_size, hidden_size: self.hidden_size, kind: self.kind })
            }
        }
    )*};
}

cells! {
    /// `tanh(input and state, each through a linear layer)`, or its ReLU.
    RNNCell RNNCellBuilder Kind::Plain(RNNNonlinearity::Tanh);
    /// One step of a long short-term memory.
    LSTMCell LSTMCellBuilder Kind::Lstm;
    /// One step of a gated recurrent unit.
    GRUCell GRUCellBuilder Kind::Gru;
}

fn settings(input_size: usize, hidden_size: usize, weights: &CellWeights, kind: Kind) -> String {
    let mut text = format!("{input_size}, {hidden_size}");
    if weights.biases.is_none() {
        text += &format!(", bias={}", boolean(false));
    }
    if kind == Kind::Plain(RNNNonlinearity::Relu) {
        text += ", nonlinearity=relu";
    }
    text
}

impl RNNCellBuilder {
    /// The activation, tanh by default.
    pub fn nonlinearity(mut self, nonlinearity: RNNNonlinearity) -> Self {
        self.kind = Kind::Plain(nonlinearity);
        self
    }
}

impl RNNCell {
    /// The new state for an input `[batch, input_size]` and a state `[batch, hidden_size]` (zeros if none), or both
    /// without the batch.
    pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> Result<Tensor> {
        Ok(step("RNNCell", self.kind, &self.weights, input, hx, None)?.h).in_module(self)
    }
}

impl GRUCell {
    /// The new state for an input `[batch, input_size]` and a state `[batch, hidden_size]` (zeros if none), or both
    /// without the batch.
    pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> Result<Tensor> {
        Ok(step("GRUCell", self.kind, &self.weights, input, hx, None)?.h).in_module(self)
    }
}

impl LSTMCell {
    /// The new hidden and cell state for an input `[batch, input_size]` and states `[batch, hidden_size]` (zeros if
    /// none), or all without the batch.
    pub fn forward(&self, input: &Tensor, hx: Option<(&Tensor, &Tensor)>) -> Result<(Tensor, Tensor)> {
        locate(self, || {
            let (h, c) = hx.unzip();
            let next = step("LSTMCell", self.kind, &self.weights, input, h, c)?;
            let c = next.c.unwrap_or_else(|| next.h.clone());
            Ok((next.h, c))
        })
    }
}

fn step(
    name: &str,
    kind: Kind,
    weights: &CellWeights,
    input: &Tensor,
    h: Option<&Tensor>,
    c: Option<&Tensor>,
) -> Result<State> {
    let (input_size, hidden_size) = (weights.weight_ih.shape()[1], weights.weight_hh.shape()[1]);
    let (batch, unbatched) = match input.shape() {
        &[batch, features] if features == input_size => (batch, false),
        &[features] if features == input_size => (1, true),
        other => {
            return Err(Error::shape(format!(
                "{name}: expected input of shape [batch, {input_size}] or [{input_size}], got {other:?}"
            )));
        }
    };
    let lifted = |t: &Tensor| if unbatched { t.unsqueeze(0) } else { Ok(t.clone()) };
    let part = |t: Option<&Tensor>| -> Result<Tensor> {
        let Some(t) = t else { return Tensor::zeros_with([batch, hidden_size], (input.dtype(), input.device())) };
        let t = lifted(t)?;
        if t.shape() != [batch, hidden_size] {
            return Err(Error::shape(format!(
                "{name}: expected a state of {hidden_size} features for each input, got state {:?} for input {:?}",
                t.shape(),
                input.shape()
            )));
        }
        Ok(t)
    };
    let state = State { h: part(h)?, c: if kind == Kind::Lstm { Some(part(c)?) } else { None } };
    let weights = weights.borrowed();
    let from_input = weights.project_input(kind, &lifted(input)?)?;
    let next = weights.step(kind, &from_input, &state.map(|t| t.to_dtype(from_input.dtype()))?)?;
    if unbatched { next.map(|t| t.squeeze(0)) } else { Ok(next) }
}
