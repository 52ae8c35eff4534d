//! Zero-bubble schedules: the gradients of weights, which nobody waits for, are computed in the bubbles.
//!
//! Both are made by simulation: each rank takes the most urgent action that is ready, and a gradient of weights if none
//! is or if too many activations are held.

use super::schedule::{Action, Phase, Schedule};
use super::simulate::{Costs, Done};
use rushlight_core::{Error, Result};
use std::collections::VecDeque;

/// One rank while its list is made.
#[derive(Default)]
struct Rank {
    list: Vec<Action>,
    clock: f64,
    /// Gradients of weights that can be computed.
    waiting: VecDeque<Action>,
    /// Forward passes whose weights' gradients are not computed.
    held: usize,
}

impl Rank {
    fn run(&mut self, action: Action, ready: f64, costs: &Costs, done: &mut Done) {
        self.clock = self.clock.max(ready) + costs.of(action.phase);
        match action.phase {
            Phase::Forward => self.held += 1,
            Phase::InputGrad => {
                self.waiting.push_back(Action { phase: Phase::WeightGrad, ..action });
            }
            Phase::WeightGrad | Phase::Backward => self.held = self.held.saturating_sub(1),
        }
        done.insert(action, self.clock);
        self.list.push(action);
    }
}

impl Schedule {
    /// [`interleaved`](Self::interleaved) 1F1B (1F1B for one stage a rank) with the backward pass in two parts; holds
    /// no more activations than its rank that holds most.
    pub fn zero_bubble(ranks: usize, stages_per_rank: usize, microbatches: usize) -> Result<Self> {
        let base = match stages_per_rank {
            1 => Self::one_f_one_b(ranks, microbatches)?,
            n => Self::interleaved(ranks, n, microbatches)?,
        };
        let costs = Costs::default();
        let limit = base.simulate(&costs)?.peak.into_iter().max().unwrap_or(1);
        let split = |action: &Action| match action.phase {
            Phase::Backward => Action { phase: Phase::InputGrad, ..*action },
            _ => *action,
        };
        let mut orders: Vec<VecDeque<Action>> =
            base.actions().iter().map(|list| list.iter().map(split).collect()).collect();
        let lists = greedy(base.placement(), &costs, |rank, state, ready| {
            let &action = orders[rank].front()?;
            let full = action.phase == Phase::Forward && state.held >= limit && !state.waiting.is_empty();
            let at = ready(action).filter(|_| !full)?;
            orders[rank].pop_front();
            Some((action, at))
        })?;
        Self::new("InterleavedZeroBubble", microbatches, base.placement().to_vec(), lists)
    }

    /// Two stages a rank in the shape of a V: rank 0 has the first and the last. With equal costs almost no bubble
    /// remains, with the memory of 1F1B.
    pub fn zero_bubble_v(ranks: usize, microbatches: usize) -> Result<Self> {
        if ranks == 0 || microbatches == 0 {
            return Err(Error::value("ZBVZeroBubble: the number of ranks and of microbatches should be at least 1"));
        }
        let placement: Vec<usize> = (0..ranks).chain((0..ranks).rev()).collect();
        let costs = Costs::default();
        // How far the first stages run ahead decides between bubbles and memory: the best that 1F1B's memory allows.
        let mut best: Option<(f64, usize, Self)> = None;
        for ahead in 1..=2 * ranks {
            let mut next = vec![[0usize; 4]; ranks];
            let lists = greedy(&placement, &costs, |rank, state, ready| {
                let stages = [rank, 2 * ranks - 1 - rank];
                // Backward of the later stage, of the earlier one, forward of the later one, of the earlier one.
                let choices = [
                    (2, Action::new(stages[1], Phase::InputGrad, next[rank][2])),
                    (3, Action::new(stages[0], Phase::InputGrad, next[rank][3])),
                    (1, Action::new(stages[1], Phase::Forward, next[rank][1])),
                    (0, Action::new(stages[0], Phase::Forward, next[rank][0])),
                ];
                let mut found: Option<(usize, Action, f64)> = None;
                for (slot, action) in choices {
                    if action.microbatch >= microbatches {
                        continue;
                    }
                    // Where memory is full, a gradient of weights is computed first, which frees some.
                    if slot < 2 && state.held >= 2 * ranks && !state.waiting.is_empty() {
                        continue;
                    }
                    let held_first = next[rank][0] - next[rank][3];
                    if slot == 0 && (held_first >= ahead || state.held >= 2 * ranks) {
                        continue;
                    }
                    if let Some(at) = ready(action)
                        && found.is_none_or(|(_, _, other)| at.max(state.clock) < other.max(state.clock))
                    {
                        found = Some((slot, action, at));
                    }
                }
                let (slot, action, at) = found?;
                next[rank][slot] += 1;
                Some((action, at))
            });
            let Ok(lists) = lists else { continue };
            let Ok(schedule) = Self::new("ZBVZeroBubble", microbatches, placement.clone(), lists) else { continue };
            let simulated = schedule.simulate(&costs)?;
            let (time, held) = (simulated.makespan(), simulated.peak.iter().copied().max().unwrap_or(0));
            if best.as_ref().is_none_or(|(t, h, _)| (time, held) < (*t, *h)) {
                best = Some((time, held, schedule));
            }
        }
        best.map(|(_, _, schedule)| schedule).ok_or_else(|| {
            Error::value(format!("ZBVZeroBubble: no order for {ranks} ranks and {microbatches} microbatches"))
        })
    }
}

/// Makes every rank's list on simulated clocks. `choose` gives a rank's next action and when it is ready, if one is;
/// gradients of weights fill the time before it.
fn greedy(
    placement: &[usize],
    costs: &Costs,
    mut choose: impl FnMut(usize, &Rank, &dyn Fn(Action) -> Option<f64>) -> Option<(Action, f64)>,
) -> Result<Vec<Vec<Action>>> {
    let ranks = placement.iter().max().map_or(0, |last| last + 1);
    let mut states: Vec<Rank> = (0..ranks).map(|_| Rank::default()).collect();
    let mut chosen: Vec<Option<(Action, f64)>> = vec![None; ranks];
    let mut done = Done::default();
    loop {
        // The rank whose clock is first moves; one that waits for others lets the next move.
        let mut order: Vec<usize> = (0..ranks).collect();
        order.sort_by(|&a, &b| states[a].clock.total_cmp(&states[b].clock));
        let mut moved = false;
        for rank in order {
            let state = &mut states[rank];
            if chosen[rank].is_none() {
                chosen[rank] = choose(rank, state, &|action| done.ready(placement, action, costs.message));
            }
            match chosen[rank] {
                // A gradient of weights fits into the time until the action can start.
                Some((_, at)) if at >= state.clock + costs.weight_grad && !state.waiting.is_empty() => {}
                Some((action, at)) => {
                    chosen[rank] = None;
                    state.run(action, at, costs, &mut done);
                    moved = true;
                    break;
                }
                None => {}
            }
            if let Some(action) = state.waiting.pop_front() {
                state.run(action, 0.0, costs, &mut done);
                moved = true;
                break;
            }
        }
        if !moved {
            break;
        }
    }
    Ok(states.into_iter().map(|state| state.list).collect())
}
