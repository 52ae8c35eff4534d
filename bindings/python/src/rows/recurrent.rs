//! Recurrent networks: `torch.lstm`, `torch.gru`, `torch.rnn_tanh`, `torch.rnn_relu`, and one step of each.

use crate::rows;
use crate::value::{size, sizes};
use rushlight_core::{Error, Result};
use rushlight_nn::{RNNNonlinearity, Recurrence, RecurrentKind, RecurrentWeights};
use rushlight_tensor::Tensor;

const TANH: RecurrentKind = RecurrentKind::Plain(RNNNonlinearity::Tanh);
const RELU: RecurrentKind = RecurrentKind::Plain(RNNNonlinearity::Relu);

/// The settings that follow the weights in every signature.
struct Settings {
    has_biases: bool,
    num_layers: i64,
    dropout: f64,
    train: bool,
    bidirectional: bool,
}

/// PyTorch's flat list of weights by layer and direction.
fn weights<'a>(params: &'a [Tensor], settings: &Settings) -> Result<Vec<RecurrentWeights<'a>>> {
    let cells = size(settings.num_layers, "num_layers")?.saturating_mul(1 + usize::from(settings.bidirectional));
    let plain = if settings.has_biases { 4 } else { 2 };
    let each = params.len().checked_div(cells).unwrap_or(0);
    if each.saturating_mul(cells) != params.len() || !(each == plain || each == plain + 1) {
        return Err(Error::value(format!(
            "recurrent network: {} layers{}{} have {} weights (or one more each with a projection), got {}",
            settings.num_layers,
            if settings.bidirectional { " in both directions" } else { "" },
            if settings.has_biases { " with biases" } else { " without biases" },
            plain.saturating_mul(cells),
            params.len()
        )));
    }
    let cell = |w: &'a [Tensor]| RecurrentWeights {
        weight_ih: &w[0],
        weight_hh: &w[1],
        biases: settings.has_biases.then(|| [&w[2], &w[3]]),
        weight_hr: w.get(plain),
    };
    Ok(params.chunks(each).map(cell).collect())
}

/// Packed rows: outputs and last states.
fn packed(
    kind: RecurrentKind,
    data: &Tensor,
    batch_sizes: &[usize],
    hx: &[Tensor],
    params: &[Tensor],
    settings: &Settings,
) -> Result<Vec<Tensor>> {
    let (h, c) = match hx {
        [h] => (h, None),
        [h, c] => (h, Some(c)),
        _ => return Err(Error::value(format!("recurrent network: expected one or two states, got {}", hx.len()))),
    };
    let network = Recurrence {
        kind,
        weights: &weights(params, settings)?,
        bidirectional: settings.bidirectional,
        dropout: if settings.train { settings.dropout } else { 0.0 },
    };
    let (out, h, c) = network.run(data, batch_sizes, h, c)?;
    Ok([out, h].into_iter().chain(c).collect())
}

/// Sequences of one length.
fn padded(
    kind: RecurrentKind,
    input: &Tensor,
    hx: &[Tensor],
    params: &[Tensor],
    settings: &Settings,
    batch_first: bool,
) -> Result<Vec<Tensor>> {
    let steps_first = if batch_first && input.rank() == 3 { input.transpose(0, 1)? } else { input.clone() };
    let &[steps, batch, features] = steps_first.shape() else {
        return Err(Error::shape(format!("recurrent network: input must have 3 dimensions, got {}", input.rank())));
    };
    let rows = steps_first.reshape([steps * batch, features])?;
    let mut found = packed(kind, &rows, &vec![batch; steps], hx, params, settings)?;
    if let Some(out) = found.first_mut() {
        let width = out.size(-1)?;
        *out = out.reshape([steps, batch, width])?;
        if batch_first {
            *out = out.transpose(0, 1)?;
        }
    }
    Ok(found)
}

fn lengths(batch_sizes: &Tensor) -> Result<Vec<usize>> {
    Ok(sizes(&batch_sizes.to_vec::<i64>()?)?.to_vec())
}

/// One step: the new states of a batch.
fn step(
    kind: RecurrentKind,
    input: &Tensor,
    hx: &[&Tensor],
    w_ih: &Tensor,
    w_hh: &Tensor,
    biases: (Option<&Tensor>, Option<&Tensor>),
) -> Result<Vec<Tensor>> {
    let biases = match biases {
        (Some(ih), Some(hh)) => Some([ih, hh]),
        (None, None) => None,
        _ => return Err(Error::value("recurrent cell: expected both biases or none")),
    };
    let batch = input.shape().first().copied().unwrap_or(0);
    let states = hx.iter().map(|t| t.unsqueeze(0)).collect::<Result<Vec<_>>>()?;
    let weights = [RecurrentWeights { weight_ih: w_ih, weight_hh: w_hh, biases, weight_hr: None }];
    let network = Recurrence { kind, weights: &weights, bidirectional: false, dropout: 0.0 };
    let Some(h) = states.first() else { return Err(Error::value("recurrent cell: no state")) };
    let (out, _, c) = network.run(input, &[batch], h, states.get(1))?;
    let c = c.map(|c| c.squeeze(0)).transpose()?;
    Ok([out].into_iter().chain(c).collect())
}

/// Rows of a network whose state is one tensor.
macro_rules! one_state {
    ($table:ident, $kind:expr, $network:ident $cell:ident) => {
        rows! { $table:
            /// A recurrent network over sequences, padded or packed: outputs and last states.
            $network [Torch]
                { concat!(stringify!($network), "(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first)") }
                    |input: &Tensor, hx: &Tensor, params: &[Tensor], has_biases: bool, num_layers: i64, dropout: f64, train: bool, bidirectional: bool, batch_first: bool|
                    padded($kind, input, std::slice::from_ref(hx), params, &Settings { has_biases, num_layers, dropout, train, bidirectional }, batch_first),
                { concat!(stringify!($network), "(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional)") }
                    |data: &Tensor, batch_sizes: &Tensor, hx: &Tensor, params: &[Tensor], has_biases: bool, num_layers: i64, dropout: f64, train: bool, bidirectional: bool|
                    packed($kind, data, &lengths(batch_sizes)?, std::slice::from_ref(hx), params, &Settings { has_biases, num_layers, dropout, train, bidirectional });
            /// One step of a recurrent network: the new state.
            $cell [Torch]
                { concat!(stringify!($cell), "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)") }
                    |input: &Tensor, hx: &Tensor, w_ih: &Tensor, w_hh: &Tensor, b_ih: Option<&Tensor>, b_hh: Option<&Tensor>|
                    step($kind, input, &[hx], w_ih, w_hh, (b_ih, b_hh))?.into_iter().next().ok_or_else(|| Error::value("recurrent cell: no output"));
        }
    };
}

one_state! { RNN_TANH, TANH, rnn_tanh rnn_tanh_cell }
one_state! { RNN_RELU, RELU, rnn_relu rnn_relu_cell }
one_state! { GRU, RecurrentKind::Gru, gru gru_cell }

rows! { LSTM:
    /// An LSTM over sequences, padded or packed: outputs, last hidden and last cell states.
    lstm [Torch]
        "lstm(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first)"
            |input: &Tensor, hx: &[Tensor], params: &[Tensor], has_biases: bool, num_layers: i64, dropout: f64, train: bool, bidirectional: bool, batch_first: bool|
            padded(RecurrentKind::Lstm, input, hx, params, &Settings { has_biases, num_layers, dropout, train, bidirectional }, batch_first),
        "lstm(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional)"
            |data: &Tensor, batch_sizes: &Tensor, hx: &[Tensor], params: &[Tensor], has_biases: bool, num_layers: i64, dropout: f64, train: bool, bidirectional: bool|
            packed(RecurrentKind::Lstm, data, &lengths(batch_sizes)?, hx, params, &Settings { has_biases, num_layers, dropout, train, bidirectional });
    /// One step of an LSTM: the new hidden and cell state.
    lstm_cell [Torch] "lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)"
        |input: &Tensor, hx: &[Tensor], w_ih: &Tensor, w_hh: &Tensor, b_ih: Option<&Tensor>, b_hh: Option<&Tensor>|
        step(RecurrentKind::Lstm, input, &hx.iter().collect::<Vec<_>>(), w_ih, w_hh, (b_ih, b_hh));
}
