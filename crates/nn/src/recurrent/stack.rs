//! Layers and directions of a recurrent network over packed rows.

use super::recurrence::Recurrence;
use super::weights::{CellWeights, Kind, RecurrentWeights, Sizes, State};
use crate::{Field, Member, MemberMut, Memo};
use rushlight_core::{Error, Result};
use rushlight_tensor::{Options, Tensor};

/// The options common to all recurrent layers.
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

    /// All weights in PyTorch's order: by layer and direction, products before biases.
    pub(super) fn weights(&self) -> Vec<&Tensor> {
        let all = self.cells.iter().map(CellWeights::borrowed);
        all.flat_map(|w| {
            let biases = w.biases.into_iter().flatten();
            [w.weight_ih, w.weight_hh].into_iter().chain(biases).chain(w.weight_hr)
        })
        .collect()
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

    /// Outputs, `[rows, features]`, and last states for rows that are ordered by step, `batch_sizes[t]` of them at step
    /// `t`.
    pub(super) fn run(
        &self,
        rows: &Tensor,
        batch_sizes: &[usize],
        state: &State,
        training: bool,
    ) -> Result<(Tensor, State)> {
        let weights: Vec<RecurrentWeights> = self.cells.iter().map(CellWeights::borrowed).collect();
        let Config { kind, bidirectional, dropout, .. } = self.config;
        let dropout = if training { dropout } else { 0.0 };
        Recurrence { kind, weights: &weights, bidirectional, dropout }.over(rows, batch_sizes, state)
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

    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
        Ok(Self { config: self.config, cells: self.cells.deepcopy_field(memo)? })
    }
}
