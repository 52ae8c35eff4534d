//! DualPipeV: two stages a rank in the shape of a V, forward passes of one paired with backward passes of the other.

use super::schedule::{Action, Phase, Schedule};
use rushlight_core::{Error, Result};
use std::collections::VecDeque;

/// The rank's two stages: the one on the way down the V, and the one on the way up.
#[derive(Clone, Copy)]
enum Side {
    Down,
    Up,
}

/// One rank's list while it is made: each pass takes the stage's next microbatch.
struct List {
    stages: [usize; 2],
    forward: [usize; 2],
    backward: [usize; 2],
    waiting: VecDeque<Action>,
    actions: Vec<Action>,
}

impl List {
    fn forward(&mut self, side: Side) {
        let side = side as usize;
        self.actions.push(Action::new(self.stages[side], Phase::Forward, self.forward[side]));
        self.forward[side] += 1;
    }

    /// A backward pass, whole or the gradients of inputs only; those of weights wait then.
    fn backward(&mut self, side: Side, whole: bool) {
        let side = side as usize;
        let (stage, microbatch) = (self.stages[side], self.backward[side]);
        let phase = if whole { Phase::Backward } else { Phase::InputGrad };
        self.actions.push(Action::new(stage, phase, microbatch));
        if !whole {
            self.waiting.push_back(Action::new(stage, Phase::WeightGrad, microbatch));
        }
        self.backward[side] += 1;
    }

    /// A forward pass and a backward pass of other microbatches: a device overlaps the messages of the one with the
    /// work of the other.
    fn pair(&mut self, forward: Side, backward: Side) {
        self.forward(forward);
        self.backward(backward, true);
    }

    fn weights(&mut self) {
        self.actions.extend(self.waiting.pop_front());
    }
}

impl Schedule {
    /// DeepSeek's DualPipe, folded to a V: each rank has a stage from the front and one from the back, and in its main
    /// part pairs a forward pass through one with a backward pass through the other, so that messages of one overlap
    /// with work of the other. Needs as many microbatches as stages.
    pub fn dual_pipe_v(ranks: usize, microbatches: usize) -> Result<Self> {
        if ranks == 0 || microbatches < 2 * ranks {
            return Err(Error::value(format!(
                "DualPipeV requires at least as many microbatches as stages, but got {microbatches} microbatches and {} \
                 stages",
                2 * ranks
            )));
        }
        let placement: Vec<usize> = (0..ranks).chain((0..ranks).rev()).collect();
        let lists = (0..ranks).map(|rank| dual_pipe_rank(rank, ranks, microbatches)).collect();
        Self::new("DualPipeV", microbatches, placement, lists)
    }
}

fn dual_pipe_rank(rank: usize, ranks: usize, microbatches: usize) -> Vec<Action> {
    let stages = [rank, 2 * ranks - 1 - rank];
    let mut list = List { stages, forward: [0; 2], backward: [0; 2], waiting: VecDeque::new(), actions: Vec::new() };
    // Ranks below this one, and ranks down to it.
    let (below, depth) = (ranks - 1 - rank, rank + 1);
    // The pipeline fills: down, then down and up.
    (0..2 * below).for_each(|_| list.forward(Side::Down));
    for _ in 0..depth {
        list.forward(Side::Down);
        list.forward(Side::Up);
    }
    for _ in 0..below {
        list.backward(Side::Up, false);
        list.weights();
        list.forward(Side::Up);
    }
    for _ in 0..microbatches - 2 * ranks + depth {
        list.pair(Side::Down, Side::Up);
        list.pair(Side::Up, Side::Down);
    }
    for _ in 0..below {
        list.backward(Side::Up, true);
        list.pair(Side::Up, Side::Down);
    }
    // The pipeline drains. From the middle on, gradients of weights wait for the bubbles.
    for i in 0..2 * depth {
        let side = if i % 2 == 0 { Side::Up } else { Side::Down };
        list.backward(side, i < depth);
    }
    for _ in 0..below {
        list.weights();
        list.backward(Side::Down, false);
    }
    while !list.waiting.is_empty() {
        list.weights();
    }
    list.actions
}
