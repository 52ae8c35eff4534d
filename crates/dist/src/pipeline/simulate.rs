//! Runs a schedule on simulated clocks: finds deadlocks, times, bubbles and the activations held.

use super::schedule::{Action, Phase, Schedule};
use rushlight_core::{Error, Result};
use std::collections::HashMap;

/// Durations of a stage's passes, in any unit, and of a message between ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A forward pass.
    pub forward: f64,
    /// The gradients of a stage's inputs.
    pub input_grad: f64,
    /// The gradients of a stage's weights. A whole backward pass takes both.
    pub weight_grad: f64,
    /// A message.
    pub message: f64,
}

impl Default for Costs {
    /// The usual model: the three passes take the same time, messages none.
    fn default() -> Self {
        Self { forward: 1.0, input_grad: 1.0, weight_grad: 1.0, message: 0.0 }
    }
}

impl Costs {
    /// The duration of a pass.
    pub fn of(&self, phase: Phase) -> f64 {
        match phase {
            Phase::Forward => self.forward,
            Phase::Backward => self.input_grad + self.weight_grad,
            Phase::InputGrad => self.input_grad,
            Phase::WeightGrad => self.weight_grad,
        }
    }
}

/// Simulated times of a schedule.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Each rank's actions with their start and end.
    pub times: Vec<Vec<(Action, f64, f64)>>,
    /// The most activations of a microbatch in a stage that each rank holds at once.
    pub peak: Vec<usize>,
}

impl Simulation {
    /// When the last rank is done.
    pub fn makespan(&self) -> f64 {
        self.times.iter().flatten().map(|&(_, _, end)| end).fold(0.0, f64::max)
    }

    /// Time that a rank computes.
    pub fn busy(&self, rank: usize) -> f64 {
        self.times[rank].iter().map(|(_, start, end)| end - start).sum()
    }

    /// The idle share of all ranks' time.
    pub fn bubble(&self) -> f64 {
        let whole = self.makespan() * self.times.len() as f64;
        if whole == 0.0 { 0.0 } else { 1.0 - (0..self.times.len()).map(|rank| self.busy(rank)).sum::<f64>() / whole }
    }
}

/// Ends of finished actions; a whole backward pass counts as both of its parts.
#[derive(Default)]
pub(super) struct Done(HashMap<Action, f64>);

impl Done {
    pub(super) fn insert(&mut self, action: Action, end: f64) {
        let Action { stage, phase, microbatch } = action;
        if phase == Phase::Backward {
            self.0.insert(Action::new(stage, Phase::InputGrad, microbatch), end);
        }
        self.0.insert(action, end);
    }

    /// When an action's inputs are there; `None` as long as they are not.
    pub(super) fn ready(&self, placement: &[usize], action: Action, message: f64) -> Option<f64> {
        let Action { stage, phase, microbatch } = action;
        let end = |stage: usize, phase| self.0.get(&Action::new(stage, phase, microbatch)).copied();
        let from = |other: usize, phase| {
            let late = if placement[other] == placement[stage] { 0.0 } else { message };
            end(other, phase).map(|end| end + late)
        };
        match phase {
            Phase::Forward if stage == 0 => Some(0.0),
            Phase::Forward => from(stage - 1, Phase::Forward),
            Phase::WeightGrad => end(stage, Phase::InputGrad),
            Phase::Backward | Phase::InputGrad => {
                let own = end(stage, Phase::Forward)?;
                if stage + 1 == placement.len() {
                    return Some(own);
                }
                from(stage + 1, Phase::InputGrad).map(|other| own.max(other))
            }
        }
    }
}

impl Schedule {
    /// Simulates the schedule. An error names the actions that wait for each other.
    pub fn simulate(&self, costs: &Costs) -> Result<Simulation> {
        let ranks = self.ranks();
        let (mut done, mut next, mut clock) = (Done::default(), vec![0; ranks], vec![0.0f64; ranks]);
        let mut times: Vec<Vec<(Action, f64, f64)>> = vec![Vec::new(); ranks];
        loop {
            let mut moved = false;
            for rank in 0..ranks {
                while let Some(&action) = self.actions()[rank].get(next[rank]) {
                    let Some(ready) = done.ready(self.placement(), action, costs.message) else { break };
                    let start = clock[rank].max(ready);
                    clock[rank] = start + costs.of(action.phase);
                    done.insert(action, clock[rank]);
                    times[rank].push((action, start, clock[rank]));
                    next[rank] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let stuck: Vec<String> = (0..ranks)
            .filter_map(|rank| self.actions()[rank].get(next[rank]).map(|action| format!("rank {rank} at {action}")))
            .collect();
        if !stuck.is_empty() {
            return Err(Error::value(format!(
                "pipeline schedule {}: ranks wait for each other: {}",
                self.name(),
                stuck.join(", ")
            )));
        }
        Ok(Simulation { times, peak: self.actions().iter().map(|list| peak(list)).collect() })
    }
}

fn peak(list: &[Action]) -> usize {
    let (mut held, mut most) = (0usize, 0);
    for action in list {
        match action.phase {
            Phase::Forward => held += 1,
            Phase::Backward | Phase::WeightGrad => held = held.saturating_sub(1),
            Phase::InputGrad => {}
        }
        most = most.max(held);
    }
    most
}
