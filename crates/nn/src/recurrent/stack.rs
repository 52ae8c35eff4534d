//! Layers and directions of a recurrent network over packed rows.

use super::sequence;
use super::weights::{CellWeights, Kind, Sizes, State};
use crate::{Field, Member, MemberMut};
use rushlight_core::{Error, Result};
use rushlight_tensor::{Options, Tensor, cat, stack};

/// What the options of all recurrent layers come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) kind: Kind,
    pub(super) sizes: Sizes,
    pub(super) num_layers: usize,
    pub(super) bias: bool,
    pub(super) batch_first: bool,
    pub(super) dropout: f64,
    pub(super) bidirectional: bool,
}

impl Config {
    pub(super) fn directions(&self) -> usize {
        1 + usize::from(self.bidirectional)
    }
}

/// The weights of every layer and direction: `weight_ih_l0`, `weight_hh_l0`, …, `weight_ih_l0_reverse`, …
#[derive(Clone)]
pub(super) struct Stack {
    config: Config,
    cells: Vec<CellWeights>,
}

impl Stack {
    pub(super) fn new(name: &str, config: Config, options: Options) -> Result<Self> {
        let Config { kind, sizes, num_layers, bias, dropout, .. } = config;
        if num_layers == 0 {
            return Err(Error::value(format!("{name}: num_layers must be greater than zero")));
        }
        if !(0.0..=1.0).contains(&dropout) {
            return Err(Error::value(format!("{name}: dropout should be a number from 0 to 1, got {dropout}")));
        }
        if sizes.proj > 0 && sizes.proj >= sizes.hidden {
            return Err(Error::value(format!(
                "{name}: proj_size has to be smaller than hidden_size, got {} and {}",
                sizes.proj, sizes.hidden
            )));
        }
        let mut cells = Vec::new();
        for layer in 0..num_layers {
            let input = if layer == 0 { sizes.input } else { sizes.state() * config.directions() };
            for _ in 0..config.directions() {
                cells.push(CellWeights::new(name, kind, Sizes { input, ..sizes }, bias, options)?);
            }
        }
        Ok(Self { config, cells })
    }

    /// `_l0`, `_l0_reverse`, `_l1`, …
    fn suffix(&self, cell: usize) -> String {
        let directions = self.config.directions();
        format!("_l{}{}", cell / directions, if cell % directions == 1 { "_reverse" } else { "" })
    }

    /// Zeros for the states of `batch` sequences, `[layers * directions, batch, features]`.
    pub(super) fn zero_state(&self, batch: usize, like: &Tensor) -> Result<State> {
        let zeros =
            |features: usize| Tensor::zeros_with([self.cells.len(), batch, features], (like.dtype(), like.device()));
        let sizes = self.config.sizes;
        Ok(State {
            h: zeros(sizes.state())?,
            c: if self.config.kind == Kind::Lstm { Some(zeros(sizes.hidden)?) } else { None },
        })
    }

    /// Outputs, `[rows, features]`, and last states for rows that lie step by step, `batch_sizes[t]` of them at step `t`.
    pub(super) fn run(
        &self,
        rows: &Tensor,
        batch_sizes: &[usize],
        state: &State,
        training: bool,
    ) -> Result<(Tensor, State)> {
        let (mut x, mut last) = (rows.clone(), Vec::with_capacity(self.cells.len()));
        let directions = self.config.directions();
        for (layer, cells) in self.cells.chunks(directions).enumerate() {
            if layer > 0 {
                x = x.dropout(self.config.dropout, training)?;
            }
            let mut outputs = Vec::with_capacity(directions);
            for (direction, cell) in cells.iter().enumerate() {
                let place = (layer * directions + direction) as isize;
                let first = state.map(|t| t.select(0, place))?;
                let (out, end) = self.run_cell(cell, &x, batch_sizes, first, direction == 1)?;
                outputs.push(out);
                last.push(end);
            }
            x = if let [only] = &outputs[..] { only.clone() } else { cat(&outputs.iter().collect::<Vec<_>>(), 1)? };
        }
        Ok((x, State::join(&last, |t| stack(t, 0))?))
    }

    /// One cell over all steps, from the last one if `reverse`.
    fn run_cell(
        &self,
        cell: &CellWeights,
        x: &Tensor,
        batch_sizes: &[usize],
        first: State,
        reverse: bool,
    ) -> Result<(Tensor, State)> {
        let kind = self.config.kind;
        let from_input = cell.project_input(kind, x)?;
        let first = first.map(|t| t.to_dtype(from_input.dtype()))?;
        let one_length = batch_sizes.iter().all(|n| Some(n) == batch_sizes.first());
        if one_length && cell.weight_hr.is_none() {
            let (weight, bias, steps) = (&cell.weight_hh, cell.state_bias(kind), batch_sizes.len());
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

impl Field for Stack {
    fn visit<'a>(&'a self, _: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        for (i, cell) in self.cells.iter().enumerate() {
            cell.visit_suffixed(&self.suffix(i), visit);
        }
    }

    fn visit_mut<'a>(&'a mut self, _: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        let suffixes: Vec<String> = (0..self.cells.len()).map(|i| self.suffix(i)).collect();
        for (cell, suffix) in self.cells.iter_mut().zip(suffixes) {
            cell.visit_suffixed_mut(&suffix, visit);
        }
    }
}
