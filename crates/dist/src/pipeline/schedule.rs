//! Schedules as values: which rank runs which stage of which microbatch, in which order.

use rushlight_core::{Error, Result};
use std::collections::HashMap;
use std::fmt;

/// What an action computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The forward pass.
    Forward,
    /// The whole backward pass.
    Backward,
    /// The gradients of the stage's inputs only.
    InputGrad,
    /// The gradients of the stage's weights, after [`Phase::InputGrad`].
    WeightGrad,
}

impl Phase {
    /// The letter of PyTorch's notation: `F`, `B`, `I` or `W`.
    pub fn letter(self) -> char {
        match self {
            Phase::Forward => 'F',
            Phase::Backward => 'B',
            Phase::InputGrad => 'I',
            Phase::WeightGrad => 'W',
        }
    }
}

/// A pass of one microbatch through one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Action {
    /// The stage, counted from the model's input.
    pub stage: usize,
    /// What is computed.
    pub phase: Phase,
    /// The microbatch.
    pub microbatch: usize,
}

impl Action {
    pub(super) fn new(stage: usize, phase: Phase, microbatch: usize) -> Self {
        Self { stage, phase, microbatch }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.stage, self.phase.letter(), self.microbatch)
    }
}

/// An activation or a gradient that one rank sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The stage that produced it.
    pub from: usize,
    /// The stage that consumes it: the next one for activations, the one before for gradients.
    pub to: usize,
    /// The microbatch.
    pub microbatch: usize,
}

/// The actions of every rank, in order.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// use rushlight::dist::pipeline::{Costs, Schedule};
/// let schedule = Schedule::one_f_one_b(4, 8)?;
/// let simulated = schedule.simulate(&Costs::default())?;
/// // (p - 1) / (m + p - 1) of the time is idle.
/// assert!((simulated.bubble() - 3.0 / 11.0).abs() < 1e-9);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    name: String,
    microbatches: usize,
    /// The rank of each stage.
    placement: Vec<usize>,
    actions: Vec<Vec<Action>>,
}

/// One stage a rank, in order; or several, dealt in turn.
fn looped(ranks: usize, stages_per_rank: usize) -> Vec<usize> {
    (0..ranks * stages_per_rank).map(|stage| stage % ranks).collect()
}

fn positive(what: &str, counts: &[(&str, usize)]) -> Result<()> {
    match counts.iter().find(|(_, n)| *n == 0) {
        Some((name, _)) => Err(Error::value(format!("{what}: the number of {name} should be at least 1"))),
        None => Ok(()),
    }
}

impl Schedule {
    /// A schedule of given actions, checked by [`verify`](Self::verify).
    pub fn new(name: &str, microbatches: usize, placement: Vec<usize>, actions: Vec<Vec<Action>>) -> Result<Self> {
        let schedule = Self { name: name.into(), microbatches, placement, actions };
        schedule.verify()?;
        Ok(schedule)
    }

    /// A schedule by the name of PyTorch's class (`Schedule1F1B`, `1F1B`, …), in any case of letters.
    pub fn by_name(name: &str, ranks: usize, stages_per_rank: usize, microbatches: usize) -> Result<Self> {
        let plain = name.to_lowercase();
        let plain = plain.strip_prefix("schedule").unwrap_or(&plain);
        let one = |schedule: fn(usize, usize) -> Result<Self>| match stages_per_rank {
            1 => schedule(ranks, microbatches),
            n => Err(Error::value(format!("schedule {name}: one stage a rank is expected, got {n}"))),
        };
        match plain {
            "gpipe" => one(Self::gpipe),
            "1f1b" => one(Self::one_f_one_b),
            "interleaved1f1b" => Self::interleaved(ranks, stages_per_rank, microbatches),
            "loopedbfs" => Self::looped_bfs(ranks, stages_per_rank, microbatches),
            "interleavedzerobubble" => Self::zero_bubble(ranks, stages_per_rank, microbatches),
            "zbvzerobubble" if stages_per_rank == 2 => Self::zero_bubble_v(ranks, microbatches),
            "dualpipev" if stages_per_rank == 2 => Self::dual_pipe_v(ranks, microbatches),
            "zbvzerobubble" | "dualpipev" => {
                Err(Error::value(format!("schedule {name}: two stages a rank are expected, got {stages_per_rank}")))
            }
            _ => Err(Error::unsupported(format!(
                "there is no schedule '{name}': GPipe, 1F1B, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, \
                 ZBVZeroBubble and DualPipeV are supported"
            ))),
        }
    }

    /// All forward passes, then all backward passes. Every microbatch's activations are held at once.
    pub fn gpipe(ranks: usize, microbatches: usize) -> Result<Self> {
        Self::looped_bfs(ranks, 1, microbatches).map(|schedule| schedule.named("GPipe"))
    }

    /// [`gpipe`](Self::gpipe) with several stages a rank: every microbatch of a stage before the rank's next stage.
    pub fn looped_bfs(ranks: usize, stages_per_rank: usize, microbatches: usize) -> Result<Self> {
        positive("LoopedBFS", &[("ranks", ranks), ("stages", stages_per_rank), ("microbatches", microbatches)])?;
        let actions = (0..ranks)
            .map(|rank| {
                let pass =
                    |local: usize, phase| (0..microbatches).map(move |mb| Action::new(local * ranks + rank, phase, mb));
                let forward = (0..stages_per_rank).flat_map(|local| pass(local, Phase::Forward));
                let backward = (0..stages_per_rank).rev().flat_map(|local| pass(local, Phase::Backward));
                forward.chain(backward).collect()
            })
            .collect();
        Self::new("LoopedBFS", microbatches, looped(ranks, stages_per_rank), actions)
    }

    /// One forward, one backward: a backward pass runs as soon as it can, so that a rank holds the activations of at
    /// most as many microbatches as there are stages from it to the end.
    pub fn one_f_one_b(ranks: usize, microbatches: usize) -> Result<Self> {
        positive("1F1B", &[("ranks", ranks), ("microbatches", microbatches)])?;
        let actions = (0..ranks)
            .map(|rank| {
                let warm = microbatches.min(ranks - rank);
                let mut list: Vec<Action> = (0..warm).map(|mb| Action::new(rank, Phase::Forward, mb)).collect();
                for mb in 0..microbatches {
                    list.push(Action::new(rank, Phase::Backward, mb));
                    if warm + mb < microbatches {
                        list.push(Action::new(rank, Phase::Forward, warm + mb));
                    }
                }
                list
            })
            .collect();
        Self::new("1F1B", microbatches, looped(ranks, 1), actions)
    }

    /// 1F1B with several stages a rank, which divides the bubble by their number.
    pub fn interleaved(ranks: usize, stages_per_rank: usize, microbatches: usize) -> Result<Self> {
        positive("Interleaved1F1B", &[("ranks", ranks), ("stages", stages_per_rank), ("microbatches", microbatches)])?;
        let rounds = (microbatches / ranks).max(1);
        if !microbatches.is_multiple_of(rounds) {
            return Err(Error::value(format!(
                "Interleaved1F1B: {microbatches} microbatches on {ranks} ranks go through the stages in {rounds} rounds, \
                 which does not divide them; use a multiple of {rounds}"
            )));
        }
        let (width, total) = (microbatches / rounds, microbatches * stages_per_rank);
        let forward = |rank: usize, k: usize| {
            let local = (k / width) % stages_per_rank;
            Action::new(local * ranks + rank, Phase::Forward, k / (width * stages_per_rank) * width + k % width)
        };
        let backward = |rank: usize, k: usize| {
            let Action { stage, microbatch, .. } = forward(rank, k);
            let local = stages_per_rank - 1 - stage / ranks;
            Action::new(local * ranks + rank, Phase::Backward, microbatch)
        };
        let actions = (0..ranks)
            .map(|rank| {
                let warm = ((stages_per_rank - 1) * width + 2 * (ranks - 1 - rank)).min(total);
                let mut list: Vec<Action> = (0..warm).map(|k| forward(rank, k)).collect();
                for k in 0..total {
                    if warm + k < total {
                        list.push(forward(rank, warm + k));
                    }
                    list.push(backward(rank, k));
                }
                list
            })
            .collect();
        Self::new("Interleaved1F1B", microbatches, looped(ranks, stages_per_rank), actions)
    }

    pub(super) fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// The name of PyTorch's schedule.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.actions.len()
    }

    /// Number of stages.
    pub fn stages(&self) -> usize {
        self.placement.len()
    }

    /// Number of microbatches.
    pub fn microbatches(&self) -> usize {
        self.microbatches
    }

    /// The rank of each stage.
    pub fn placement(&self) -> &[usize] {
        &self.placement
    }

    /// The actions of each rank.
    pub fn actions(&self) -> &[Vec<Action>] {
        &self.actions
    }

    /// Whether gradients of inputs and of weights are separate actions.
    pub fn splits_backward(&self) -> bool {
        self.actions.iter().flatten().any(|action| action.phase == Phase::InputGrad)
    }

    /// The message that an action sends to another rank, if it does.
    pub fn sent(&self, action: Action) -> Option<Message> {
        let Action { stage, phase, microbatch } = action;
        let to = match phase {
            Phase::Forward => stage.checked_add(1).filter(|&to| to < self.stages())?,
            Phase::Backward | Phase::InputGrad => stage.checked_sub(1)?,
            Phase::WeightGrad => return None,
        };
        (self.placement[to] != self.placement[stage]).then_some(Message { from: stage, to, microbatch })
    }

    /// The message that an action needs from another rank, if it does.
    pub fn received(&self, action: Action) -> Option<Message> {
        let Action { stage, phase, microbatch } = action;
        let from = match phase {
            Phase::Forward => stage.checked_sub(1)?,
            Phase::Backward | Phase::InputGrad => stage.checked_add(1).filter(|&from| from < self.stages())?,
            Phase::WeightGrad => return None,
        };
        (self.placement[from] != self.placement[stage]).then_some(Message { from, to: stage, microbatch })
    }

    /// Messages from one rank to another in the order they are sent, which is the order to receive them in.
    pub fn messages(&self, from: usize, to: usize) -> Vec<Message> {
        let sent = self.actions[from].iter().filter_map(|&action| self.sent(action));
        sent.filter(|message| self.placement[message.to] == to).collect()
    }

    /// Checks that every action runs once, on the rank of its stage, that inputs of every action are there before it,
    /// and that no ranks wait for each other.
    pub fn verify(&self) -> Result<()> {
        let fail = |what: String| Err(Error::value(format!("pipeline schedule {}: {what}", self.name)));
        let mut seen: HashMap<(usize, usize), Vec<Phase>> = HashMap::new();
        for (rank, list) in self.actions.iter().enumerate() {
            for action in list {
                match self.placement.get(action.stage) {
                    Some(&home) if home == rank => {}
                    Some(home) => return fail(format!("rank {rank} has {action}, whose stage is on rank {home}")),
                    None => return fail(format!("rank {rank} has {action}; there are {} stages", self.stages())),
                }
                seen.entry((action.stage, action.microbatch)).or_default().push(action.phase);
            }
        }
        for stage in 0..self.stages() {
            for mb in 0..self.microbatches {
                let mut phases = seen.remove(&(stage, mb)).unwrap_or_default();
                phases.sort_unstable();
                if !matches!(
                    phases[..],
                    [Phase::Forward, Phase::Backward] | [Phase::Forward, Phase::InputGrad, Phase::WeightGrad]
                ) {
                    return fail(format!(
                        "stage {stage}, microbatch {mb} has the actions {phases:?}; expected a forward pass and one \
                         backward pass, whole or in two parts"
                    ));
                }
            }
        }
        if let Some((stage, mb)) = seen.keys().next() {
            return fail(format!("stage {stage} has microbatch {mb} of {}", self.microbatches));
        }
        self.simulate(&Default::default()).map(drop)
    }
}
