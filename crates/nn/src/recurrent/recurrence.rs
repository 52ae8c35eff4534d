//! Layers and directions of a recurrent network over rows ordered by step, with weights of any layout.

use super::sequence;
use super::weights::{Kind, RecurrentWeights, State};
use rushlight_core::backend::in_recurrent_layer;
use rushlight_core::{Error, Result};
use rushlight_tensor::{Tensor, cat, stack};

/// A recurrent network over borrowed weights. [`LSTM`](crate::LSTM) and its relatives own theirs; this is
/// for callers whose weights have another owner.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Recurrence, RecurrentKind, RecurrentWeights};
/// use rushlight::Tensor;
/// let (weight_ih, weight_hh) = (Tensor::ones([16, 3])?, Tensor::ones([16, 4])?);
/// let weights = [RecurrentWeights { weight_ih: &weight_ih, weight_hh: &weight_hh, biases: None, weight_hr: None }];
/// let network = Recurrence { kind: RecurrentKind::Lstm, weights: &weights, bidirectional: false, dropout: 0.0 };
/// // Two steps of five sequences.
/// let (rows, zeros) = (Tensor::ones([10, 3])?, Tensor::zeros([1, 5, 4])?);
/// let (outputs, h, c) = network.run(&rows, &[5, 5], &zeros, Some(&zeros))?;
/// assert_eq!((outputs.shape(), h.shape()), (&[10, 4][..], &[1, 5, 4][..]));
/// assert!(c.is_some());
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Recurrence<'a> {
    /// The cell: how the new state follows from the input.
    pub kind: Kind,
    /// The weights by layer, both directions of a layer side by side.
    pub weights: &'a [RecurrentWeights<'a>],
    /// Whether every layer goes through the sequences from both ends.
    pub bidirectional: bool,
    /// The probability of dropout between layers: zero unless training.
    pub dropout: f64,
}

impl Recurrence<'_> {
    fn directions(&self) -> usize {
        1 + usize::from(self.bidirectional)
    }

    /// Outputs, `[rows, features]`, and last states, `[layers * directions, batch, features]`, for rows that are
    /// ordered by step, `batch_sizes[t]` of them at step `t`, and first states like the last. Sequences are sorted by
    /// length, the longest first.
    pub fn run(
        &self,
        rows: &Tensor,
        batch_sizes: &[usize],
        h: &Tensor,
        c: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        self.check(rows, batch_sizes, h, c)?;
        let state = State { h: h.clone(), c: c.filter(|_| self.kind == Kind::Lstm).cloned() };
        let (out, last) = self.over(rows, batch_sizes, &state)?;
        Ok((out, last.h, last.c))
    }

    fn check(&self, rows: &Tensor, batch_sizes: &[usize], h: &Tensor, c: Option<&Tensor>) -> Result<()> {
        let gates = self.kind.gates();
        if self.weights.is_empty() || !self.weights.len().is_multiple_of(self.directions()) {
            return Err(Error::value(format!(
                "recurrent network: {} sets of weights do not make up layers of {} directions",
                self.weights.len(),
                self.directions()
            )));
        }
        let falling = batch_sizes.windows(2).all(|pair| pair[0] >= pair[1]);
        let Some(&batch) = batch_sizes.first().filter(|_| falling) else {
            return Err(Error::shape(format!(
                "recurrent network: expected sequence length to be larger than 0 and batch sizes that do not grow, got {batch_sizes:?}"
            )));
        };
        let total = batch_sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        if rows.rank() != 2 || Some(rows.shape()[0]) != total {
            return Err(Error::shape(format!(
                "recurrent network: expected as many rows as the batch sizes {batch_sizes:?} add up to, got {:?}",
                rows.shape()
            )));
        }
        let mut features = rows.shape()[1];
        for (i, weights) in self.weights.iter().enumerate() {
            let (&[n, input], &[m, state]) = (weights.weight_ih.shape(), weights.weight_hh.shape()) else {
                return Err(Error::shape("recurrent network: weights must be matrices"));
            };
            let hidden = n / gates;
            let projected = weights.weight_hr.map_or(hidden, |w| w.shape().first().copied().unwrap_or(0));
            if n == 0 || n % gates != 0 || m != n || input != features || state != projected {
                return Err(Error::shape(format!(
                    "recurrent network: weights {:?} and {:?} do not fit an input of {features} features and a state of {projected}",
                    weights.weight_ih.shape(),
                    weights.weight_hh.shape()
                )));
            }
            let vectors = weights.biases.into_iter().flatten().all(|b| b.shape() == [n]);
            if !vectors || weights.weight_hr.is_some_and(|w| w.shape() != [projected, hidden]) {
                return Err(Error::shape("recurrent network: biases or projection do not fit the weights"));
            }
            for (what, wanted, given) in [("hidden", projected, Some(h)), ("cell", hidden, c)] {
                if given.is_some_and(|t| t.shape() != [self.weights.len(), batch, wanted]) {
                    return Err(Error::shape(format!(
                        "recurrent network: expected {what} state of shape {:?}, got {:?}",
                        [self.weights.len(), batch, wanted],
                        given.map_or(&[][..], |t| t.shape())
                    )));
                }
            }
            if (i + 1).is_multiple_of(self.directions()) {
                features = projected * self.directions();
            }
        }
        if (self.kind == Kind::Lstm) != c.is_some() {
            return Err(Error::value("recurrent network: an LSTM has a cell state, other networks have none"));
        }
        Ok(())
    }

    /// [`Recurrence::run`] for arguments that have been checked.
    pub(super) fn over(&self, rows: &Tensor, batch_sizes: &[usize], state: &State) -> Result<(Tensor, State)> {
        let (mut x, mut last) = (rows.clone(), Vec::with_capacity(self.weights.len()));
        for (layer, cells) in self.weights.chunks(self.directions()).enumerate() {
            if layer > 0 && self.dropout > 0.0 {
                x = x.dropout(self.dropout, true)?;
            }
            let mut outputs = Vec::with_capacity(cells.len());
            for (direction, cell) in cells.iter().enumerate() {
                let place = (layer * self.directions() + direction) as isize;
                let first = state.map(|t| t.select(0, place))?;
                let (out, end) = in_recurrent_layer(|| self.over_cell(cell, &x, batch_sizes, first, direction == 1))?;
                outputs.push(out);
                last.push(end);
            }
            x = if let [only] = &outputs[..] { only.clone() } else { cat(&outputs.iter().collect::<Vec<_>>(), 1)? };
        }
        Ok((x, State::join(&last, |t| stack(t, 0))?))
    }

    /// One cell over all steps, from the last one if `reverse`.
    fn over_cell(
        &self,
        cell: &RecurrentWeights,
        x: &Tensor,
        batch_sizes: &[usize],
        first: State,
        reverse: bool,
    ) -> Result<(Tensor, State)> {
        let kind = self.kind;
        let from_input = cell.project_input(kind, x)?;
        let first = first.map(|t| t.to_dtype(from_input.dtype()))?;
        let one_length = batch_sizes.iter().all(|n| Some(n) == batch_sizes.first());
        if one_length && cell.weight_hr.is_none() {
            let (weight, bias, steps) = (cell.weight_hh, cell.state_bias(kind), batch_sizes.len());
            if let Some(done) = sequence::run(kind, &from_input, &first, weight, bias, steps, reverse) {
                return done;
            }
        }
        let steps = from_input.split_with_sizes(batch_sizes, 0)?;
        let rows = |state: &State, start: usize, end: usize| state.map(|t| t.narrow(0, start as isize, end - start));
        let joined = |parts: &[State]| State::join(parts, |t| cat(t, 0));
        let mut outputs = vec![None; steps.len()];
        let whole = batch_sizes.first().copied().unwrap_or(0);
        let mut active = if reverse { 0 } else { whole };
        let mut state = if reverse { None } else { Some(first.clone()) };
        // The last states of sequences that have ended, the latest end first.
        let mut ended = Vec::new();
        for i in 0..steps.len() {
            let t = if reverse { steps.len() - 1 - i } else { i };
            let size = batch_sizes[t];
            let current = match state.take() {
                Some(s) if size == active => s,
                Some(s) if size < active => {
                    ended.push(rows(&s, size, active)?);
                    rows(&s, 0, size)?
                }
                // Backwards, sequences begin at their own end.
                Some(s) => joined(&[s, rows(&first, active, size)?])?,
                None if size == whole => first.clone(),
                None => rows(&first, 0, size)?,
            };
            let next = cell.step(kind, &steps[t], &current)?;
            outputs[t] = Some(next.h.clone());
            (active, state) = (size, Some(next));
        }
        ended.extend(state);
        ended.reverse();
        let last = if let [only] = &ended[..] { only.clone() } else { joined(&ended)? };
        let outputs: Vec<&Tensor> = outputs.iter().flatten().collect();
        Ok((cat(&outputs, 0)?, last))
    }
}
