//! Recurrent networks: RNN, LSTM and GRU over sequences, padded or packed, and their cells.

mod cell;
mod packed;
mod recurrence;
mod sequence;
mod stack;
mod weights;

pub use cell::{GRUCell, GRUCellBuilder, LSTMCell, LSTMCellBuilder, RNNCell, RNNCellBuilder};
pub use packed::{PackedSequence, PaddingSide, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence};
pub use recurrence::Recurrence;
pub use weights::{CellWeights, Kind as RecurrentKind, RNNNonlinearity, RecurrentWeights};

use crate::python::float;
use crate::{Module, Training, factory_options, locate};
use rushlight_core::{Error, Result};
use rushlight_tensor::announce::{self, Value};
use rushlight_tensor::{Options, Tensor};
use stack::{Config, Stack};
use weights::{Kind, Sizes, State};

/// The common part of the layers: struct, builder, settings.
macro_rules! layers {
    ($($(#[$doc:meta])* $name:ident $builder:ident $kind:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        #[module(extra_repr = "Self::settings")]
        pub struct $name {
            stack: Stack,
            #[module(skip)]
            config: Config,
            training: Training,
        }

        #[doc = concat!("The options of a [`", stringify!($name), "`].")]
        #[derive(Clone, Debug)]
        pub struct $builder {
            config: Config,
            options: Options,
        }

        impl $name {
            /// From `input_size` features to states of `hidden_size`; one layer, in one direction, unless said
            /// otherwise.
            pub fn new(input_size: usize, hidden_size: usize) -> Result<Self> {
                Self::builder(input_size, hidden_size).build()
            }

            /// [`new`](Self::new) with options, to be followed by `build`.
            pub fn builder(input_size: usize, hidden_size: usize) -> $builder {
                let config = Config {
                    kind: $kind,
                    sizes: Sizes { input: input_size, hidden: hidden_size, proj: 0 },
                    num_layers: 1,
                    bias: true,
                    batch_first: false,
                    dropout: 0.0,
                    bidirectional: false,
                };
                $builder { config, options: Options::default() }
            }

            fn settings(&self) -> String {
                self.config.settings()
            }
        }

        factory_options!($builder);

        impl $builder {
            /// How many layers, each over the outputs of the one before.
            pub fn num_layers(mut self, num_layers: usize) -> Self {
                self.config.num_layers = num_layers;
                self
            }

            /// Whether to add biases, true by default.
            pub fn bias(mut self, bias: bool) -> Self {
                self.config.bias = bias;
                self
            }

            /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`.
            /// States are not concerned.
            pub fn batch_first(mut self, batch_first: bool) -> Self {
                self.config.batch_first = batch_first;
                self
            }

            /// The probability of dropout between layers while training.
            pub fn dropout(mut self, p: f64) -> Self {
                self.config.dropout = p;
                self
            }

            /// Whether to go through the sequences from both ends.
            pub fn bidirectional(mut self, bidirectional: bool) -> Self {
                self.config.bidirectional = bidirectional;
                self
            }

            /// Makes the layer, with PyTorch's initial values.
            pub fn build(self) -> Result<$name> {
                let stack = Stack::new(stringify!($name), self.config, self.options)?;
                Ok($name { stack, config: self.config, training: Training::default() })
            }
        }
    )*};
}

layers! {
    /// A recurrent network: each state is the tanh (or ReLU) of input and last state, each through a linear layer.
    RNN RNNBuilder Kind::Plain(RNNNonlinearity::Tanh);
    /// A long short-term memory.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
    /// use rushlight::nn::LSTM;
    /// use rushlight::Tensor;
    /// let lstm = LSTM::builder(3, 4).num_layers(2).bidirectional(true).batch_first(true).build()?;
    /// let (outputs, (h, c)) = lstm.forward(&Tensor::ones([5, 7, 3])?, None)?;
    /// assert_eq!(outputs.shape(), [5, 7, 8]);
    /// assert_eq!((h.shape(), c.shape()), (&[4, 5, 4][..], &[4, 5, 4][..]));
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    LSTM LSTMBuilder Kind::Lstm;
    /// A network of gated recurrent units.
    GRU GRUBuilder Kind::Gru;
}

impl RNNBuilder {
    /// The activation, tanh by default.
    pub fn nonlinearity(mut self, nonlinearity: RNNNonlinearity) -> Self {
        self.config.kind = Kind::Plain(nonlinearity);
        self
    }
}

impl LSTMBuilder {
    /// The features that the hidden state is projected to; 0, the default, for none.
    pub fn proj_size(mut self, proj_size: usize) -> Self {
        self.config.sizes.proj = proj_size;
        self
    }
}

/// `forward` and `forward_packed` for layers whose state is one tensor.
macro_rules! one_state {
    ($($name:ident)*) => {$(
        impl $name {
            /// The last layer's states at every step, `[length, batch, directions * hidden_size]`, and every layer's
            /// last state, `[layers * directions, batch, hidden_size]`, for an input `[length, batch, input_size]` (or
            /// without the batch) and first states like the last (zeros if none).
            pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                locate(self, || {
                    let (out, last) = run(stringify!($name), &self.stack, &self.config, &self.training, input, hx, None)?;
                    Ok((out, last.h))
                })
            }

            /// The same for packed sequences: a last state is that at its sequence's own end.
            pub fn forward_packed(&self, input: &PackedSequence, hx: Option<&Tensor>) -> Result<(PackedSequence, Tensor)> {
                locate(self, || {
                    let (out, last) =
                        run_packed(stringify!($name), &self.stack, &self.config, &self.training, input, hx, None)?;
                    Ok((out, last.h))
                })
            }
        }
    )*};
}

one_state!(RNN GRU);

impl LSTM {
    /// The last layer's hidden states at every step, `[length, batch, directions * hidden_size]`, and every layer's
    /// last hidden and cell states, `[layers * directions, batch, hidden_size]`, for an input
    /// `[length, batch, input_size]` (or without the batch) and first states like the last (zeros if none).
    pub fn forward(&self, input: &Tensor, hx: Option<(&Tensor, &Tensor)>) -> Result<(Tensor, (Tensor, Tensor))> {
        locate(self, || {
            let (h, c) = hx.unzip();
            let (out, last) = run("LSTM", &self.stack, &self.config, &self.training, input, h, c)?;
            Ok((out, both(last)))
        })
    }

    /// The same for packed sequences: last states are those at their sequence's own end.
    pub fn forward_packed(
        &self,
        input: &PackedSequence,
        hx: Option<(&Tensor, &Tensor)>,
    ) -> Result<(PackedSequence, (Tensor, Tensor))> {
        locate(self, || {
            let (h, c) = hx.unzip();
            let (out, last) = run_packed("LSTM", &self.stack, &self.config, &self.training, input, h, c)?;
            Ok((out, both(last)))
        })
    }
}

fn both(state: State) -> (Tensor, Tensor) {
    let c = state.c.unwrap_or_else(|| state.h.clone());
    (state.h, c)
}

impl Config {
    fn settings(&self) -> String {
        let mut text = format!("{}, {}", self.sizes.input, self.sizes.hidden);
        let mut add = |shown: bool, setting: String| {
            if shown {
                text += &format!(", {setting}");
            }
        };
        add(self.sizes.proj > 0, format!("proj_size={}", self.sizes.proj));
        add(self.num_layers != 1, format!("num_layers={}", self.num_layers));
        add(!self.bias, "bias=False".to_owned());
        add(self.batch_first, "batch_first=True".to_owned());
        add(self.dropout != 0.0, format!("dropout={}", float(self.dropout)));
        add(self.bidirectional, "bidirectional=True".to_owned());
        text
    }
}

/// The first states as given, checked, or zeros.
fn first_state(
    name: &str,
    stack: &Stack,
    config: &Config,
    batch: usize,
    like: &Tensor,
    h: Option<&Tensor>,
    c: Option<&Tensor>,
) -> Result<State> {
    let zero = stack.zero_state(batch, like)?;
    for (what, given, wanted) in [("hidden", h, Some(&zero.h)), ("cell", c, zero.c.as_ref())] {
        if let (Some(given), Some(wanted)) = (given, wanted)
            && given.shape() != wanted.shape()
        {
            return Err(Error::shape(format!(
                "{name}: expected {what} state of shape {:?} ({} layers times {} directions), got {:?}",
                wanted.shape(),
                config.num_layers,
                config.directions(),
                given.shape()
            )));
        }
    }
    Ok(State { h: h.cloned().unwrap_or(zero.h), c: zero.c.map(|zero| c.cloned().unwrap_or(zero)) })
}

fn run(
    name: &str,
    stack: &Stack,
    config: &Config,
    training: &Training,
    input: &Tensor,
    h: Option<&Tensor>,
    c: Option<&Tensor>,
) -> Result<(Tensor, State)> {
    let unbatched = input.rank() == 2;
    let steps_first = match input.rank() {
        2 => input.unsqueeze(1)?,
        3 if config.batch_first => input.transpose(0, 1)?,
        3 => input.clone(),
        _ => {
            return Err(Error::shape(format!(
                "{name}: expected input of 3 dimensions, or 2 without a batch, got {:?}",
                input.shape()
            )));
        }
    };
    let &[steps, batch, features] = steps_first.shape() else {
        return Err(Error::shape(format!("{name}: expected input of 3 dimensions, got {:?}", input.shape())));
    };
    check_input(name, config, features, steps)?;
    let lifted = |t: Option<&Tensor>| t.map(|t| if unbatched { t.unsqueeze(1) } else { Ok(t.clone()) }).transpose();
    let (h, c) = (lifted(h)?, lifted(c)?);
    let state = first_state(name, stack, config, batch, input, h.as_ref(), c.as_ref())?;
    let network = |state: &State| {
        let rows = steps_first.reshape([steps * batch, features])?;
        let (out, last) = stack.run(&rows, &vec![batch; steps], state, training.get())?;
        let width = out.shape()[1];
        Ok((out.reshape([steps, batch, width])?, last))
    };
    let (out, last) = match announce::is_on() {
        true => announced(stack, config, training.get(), &steps_first, state, network)?,
        false => network(&state)?,
    };
    if unbatched {
        return Ok((out.squeeze(1)?, last.map(|t| t.squeeze(1))?));
    }
    Ok((if config.batch_first { out.transpose(0, 1)? } else { out }, last))
}

/// Runs a network that an export notes as one op of PyTorch's: `torch.lstm` and its like.
#[cold]
fn announced(
    stack: &Stack,
    config: &Config,
    training: bool,
    input: &Tensor,
    state: State,
    network: impl FnOnce(&State) -> Result<(Tensor, State)>,
) -> Result<(Tensor, State)> {
    let name = match config.kind {
        Kind::Lstm => "torch.lstm",
        Kind::Gru => "torch.gru",
        Kind::Plain(RNNNonlinearity::Tanh) => "torch.rnn_tanh",
        Kind::Plain(RNNNonlinearity::Relu) => "torch.rnn_relu",
    };
    let hx = match &state.c {
        Some(c) => Value::List(vec![(&state.h).into(), c.into()]),
        None => (&state.h).into(),
    };
    let args = vec![
        input.into(),
        hx,
        Value::List(stack.weights().into_iter().map(Value::from).collect()),
        config.bias.into(),
        config.num_layers.into(),
        config.dropout.into(),
        training.into(),
        config.bidirectional.into(),
        false.into(),
    ];
    let op = announce::Op { name: name.into(), args, keywords: Vec::new(), target: None };
    let all = announce::op(op, || {
        let (out, last) = network(&state)?;
        Ok([out, last.h].into_iter().chain(last.c).collect::<Vec<_>>())
    })?;
    let mut all = all.into_iter();
    match (all.next(), all.next(), all.next()) {
        (Some(out), Some(h), c) => Ok((out, State { h, c })),
        _ => Err(Error::value("recurrent network: no output")),
    }
}

fn run_packed(
    name: &str,
    stack: &Stack,
    config: &Config,
    training: &Training,
    input: &PackedSequence,
    h: Option<&Tensor>,
    c: Option<&Tensor>,
) -> Result<(PackedSequence, State)> {
    let &[_, features] = input.data().shape() else {
        return Err(Error::shape(format!(
            "{name}: expected packed rows of {} features, got {:?}",
            config.sizes.input,
            input.data().shape()
        )));
    };
    check_input(name, config, features, input.batch_sizes().len())?;
    let batch = input.batch_sizes().first().copied().unwrap_or(0);
    let state = first_state(name, stack, config, batch, input.data(), h, c)?.map(|t| input.sort(t, 1))?;
    let (out, last) = stack.run(input.data(), input.batch_sizes(), &state, training.get())?;
    Ok((input.with_data(out), last.map(|t| input.unsort(t, 1))?))
}

fn check_input(name: &str, config: &Config, features: usize, steps: usize) -> Result<()> {
    if features != config.sizes.input {
        return Err(Error::shape(format!(
            "{name}: input must have {} features in its last dimension, got {features}",
            config.sizes.input
        )));
    }
    if steps == 0 {
        return Err(Error::shape(format!("{name}: expected sequence length to be larger than 0")));
    }
    Ok(())
}
