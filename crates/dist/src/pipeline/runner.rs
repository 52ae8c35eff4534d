//! Runs a schedule: forward and backward passes of microbatches, activations and gradients between ranks.

use super::backward::SplitBackward;
use super::schedule::{Action, Message, Phase, Schedule};
use crate::group::{Collective, P2p, ProcessGroup, Work};
use rushlight_core::{DType, Device, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Backward, backward_from, root};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A function from a stage's inputs to its outputs.
type Forward<'a> = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'a>;

/// A stage of a model on this rank.
pub struct PipelineStage<'a> {
    index: usize,
    forward: Forward<'a>,
}

impl<'a> PipelineStage<'a> {
    /// Stage `index` of the schedule.
    pub fn new(index: usize, forward: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'a) -> Self {
        Self { index, forward: Box::new(forward) }
    }
}

/// A microbatch in a stage: what its backward pass needs.
struct Held {
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

/// The stages of this rank and their schedule.
pub struct Pipeline<'a> {
    group: Arc<dyn ProcessGroup>,
    schedule: Schedule,
    stages: HashMap<usize, PipelineStage<'a>>,
}

/// Dtypes by their number in a header.
fn dtype_number(dtype: DType) -> i64 {
    DType::ALL.iter().position(|&other| other == dtype).map_or(-1, |i| i as i64)
}

/// Header of a message: the number of tensors, then of each the dtype, whether it needs a gradient, rank and sizes.
const HEADER: usize = 64;

impl<'a> Pipeline<'a> {
    /// A pipeline over the ranks of `group`, which are the schedule's.
    pub fn new(group: Arc<dyn ProcessGroup>, schedule: Schedule, stages: Vec<PipelineStage<'a>>) -> Result<Self> {
        if group.size() != schedule.ranks() {
            return Err(Error::value(format!(
                "Pipeline: the schedule is for {} ranks, the group has {}",
                schedule.ranks(),
                group.size()
            )));
        }
        let stages: HashMap<usize, _> = stages.into_iter().map(|stage| (stage.index, stage)).collect();
        let expected: Vec<usize> =
            (0..schedule.stages()).filter(|&stage| schedule.placement()[stage] == group.rank()).collect();
        let mut given: Vec<usize> = stages.keys().copied().collect();
        given.sort_unstable();
        if given != expected {
            return Err(Error::value(format!(
                "Pipeline: rank {} should have the stages {expected:?}, got {given:?}",
                group.rank()
            )));
        }
        Ok(Self { group, schedule, stages })
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// One training step. `inputs` are the whole batch, split along the first dimension; only the rank of the first
    /// stage needs them. `loss` gets the last stage's outputs and the number of a microbatch. Gradients, of the mean of
    /// the microbatches' losses, are added to the parameters' `.grad`. Returns the losses on the rank of the last
    /// stage.
    pub fn step(&self, inputs: &[Tensor], loss: &dyn Fn(&[Tensor], usize) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        let count = self.schedule.microbatches();
        let mut step = Step {
            pipeline: self,
            microbatches: microbatches(inputs, count)?,
            held: HashMap::new(),
            split: HashMap::new(),
            arrived: HashMap::new(),
            expected: (0..self.group.size())
                .map(|from| self.schedule.messages(from, self.group.rank()).into())
                .collect(),
            local: HashMap::new(),
            sends: Vec::new(),
            losses: Vec::new(),
        };
        for &action in &self.schedule.actions()[self.group.rank()] {
            step.run(action, loss).map_err(|e| e.within(&format!("pipeline {action}")))?;
        }
        for work in step.sends {
            work.wait()?;
        }
        Ok(step.losses)
    }
}

/// Splits a batch into microbatches.
fn microbatches(inputs: &[Tensor], count: usize) -> Result<Vec<Vec<Tensor>>> {
    let mut split = vec![Vec::new(); count];
    for input in inputs {
        let rows = input.shape().first().copied().unwrap_or(0);
        if rows < count {
            return Err(Error::value(format!("Pipeline::step: {rows} rows do not split into {count} microbatches")));
        }
        let mut start = 0;
        for (i, part) in split.iter_mut().enumerate() {
            let end = rows * (i + 1) / count;
            part.push(input.narrow(0, start as isize, end - start)?);
            start = end;
        }
    }
    Ok(split)
}

struct Step<'p, 'a> {
    pipeline: &'p Pipeline<'a>,
    microbatches: Vec<Vec<Tensor>>,
    held: HashMap<(usize, usize), Held>,
    split: HashMap<(usize, usize), SplitBackward>,
    arrived: HashMap<Message, Vec<Option<Tensor>>>,
    /// Messages from each rank that are to come, in the order they are sent.
    expected: Vec<VecDeque<Message>>,
    /// Messages between stages of this rank.
    local: HashMap<Message, Vec<Option<Tensor>>>,
    sends: Vec<Work>,
    losses: Vec<Tensor>,
}

impl Step<'_, '_> {
    fn run(&mut self, action: Action, loss: &dyn Fn(&[Tensor], usize) -> Result<Tensor>) -> Result<()> {
        let Action { stage, phase, microbatch } = action;
        let (schedule, last) = (&self.pipeline.schedule, self.pipeline.schedule.stages() - 1);
        let key = (stage, microbatch);
        match phase {
            Phase::Forward => {
                let inputs = match stage {
                    0 => self.microbatches[microbatch].clone(),
                    _ => {
                        let message = Message { from: stage - 1, to: stage, microbatch };
                        self.take(message)?.into_iter().flatten().collect()
                    }
                };
                let own = self.pipeline.stages.get(&stage).ok_or_else(|| Error::value("the stage is missing"))?;
                let mut outputs = (own.forward)(&inputs)?;
                if stage == last {
                    let value = loss(&outputs, microbatch)?;
                    self.losses.push(value.detach());
                    outputs = vec![value.div(schedule.microbatches() as f64)?];
                } else {
                    let message = Message { from: stage, to: stage + 1, microbatch };
                    let sent = outputs.iter().map(|t| Some(t.clone())).collect();
                    self.give(message, sent, true)?;
                }
                self.held.insert(key, Held { inputs, outputs });
            }
            Phase::Backward | Phase::InputGrad => {
                let grads = match stage == last {
                    true => vec![None],
                    false => self.take(Message { from: stage + 1, to: stage, microbatch })?,
                };
                let Held { inputs, outputs } =
                    self.held.remove(&key).ok_or_else(|| Error::value("there was no forward pass"))?;
                let pairs: Vec<_> = outputs
                    .iter()
                    .zip(grads.iter())
                    .filter(|(output, grad)| output.requires_grad() && (stage == last || grad.is_some()))
                    .map(|(output, grad)| (output, grad.as_ref()))
                    .collect();
                let tensors: Vec<&Tensor> = inputs.iter().collect();
                let grads = if phase == Phase::InputGrad {
                    let (grads, rest) = SplitBackward::inputs(&pairs, &tensors)?;
                    self.split.insert(key, rest);
                    grads
                } else {
                    let roots = pairs.iter().map(|(output, grad)| root(output, *grad)).collect::<Result<Vec<_>>>()?;
                    if !roots.is_empty() {
                        backward_from(roots, Backward::default(), None)?;
                    }
                    inputs.iter().map(|input| if stage > 0 { input.grad() } else { None }).collect()
                };
                if stage > 0 {
                    let message = Message { from: stage, to: stage - 1, microbatch };
                    let grads = inputs
                        .iter()
                        .zip(grads)
                        .map(|(input, grad)| match (input.requires_grad(), grad) {
                            (true, None) => input.detach().zeros_like().map(Some),
                            (true, some) => Ok(some),
                            (false, _) => Ok(None),
                        })
                        .collect::<Result<Vec<_>>>()?;
                    self.give(message, grads, false)?;
                }
            }
            Phase::WeightGrad => {
                let rest = self.split.remove(&key).ok_or_else(|| Error::value("there was no backward pass"))?;
                rest.weights()?;
            }
        }
        Ok(())
    }

    /// Sends tensors to another stage. Activations have a header, gradients have their activations' shapes.
    fn give(&mut self, message: Message, tensors: Vec<Option<Tensor>>, with_header: bool) -> Result<()> {
        let placement = self.pipeline.schedule.placement();
        let peer = placement[message.to];
        if peer == self.pipeline.group.rank() {
            let detached = tensors
                .into_iter()
                .map(|t| t.map(|t| t.detach().requires_grad_(with_header && t.requires_grad())).transpose())
                .collect::<Result<_>>()?;
            self.local.insert(message, detached);
            return Ok(());
        }
        let mut all = Vec::new();
        if with_header {
            let mut header = vec![tensors.len() as i64];
            for tensor in tensors.iter().flatten() {
                let shape = tensor.shape();
                header.extend([dtype_number(tensor.dtype()), tensor.requires_grad().into(), shape.len() as i64]);
                header.extend(shape.iter().map(|&n| n as i64));
            }
            if header.len() > HEADER {
                return Err(Error::unsupported(format!(
                    "stage {} has more or larger outputs than a message describes: {} numbers, at most {HEADER}",
                    message.from,
                    header.len()
                )));
            }
            header.resize(HEADER, 0);
            all.push(Tensor::from_slice(&header, [HEADER])?);
        }
        // Through the host: device libraries match messages by their order alone, and stages that share a rank pair
        // send in orders of their own.
        for tensor in tensors.into_iter().flatten() {
            all.push(tensor.detach().to(Device::Cpu)?.contiguous()?);
        }
        for tensor in all {
            let send = P2p { tensor, peer, tag: tag(message), sends: true };
            self.sends.push(self.pipeline.group.submit(Collective::P2p(vec![send]), true)?);
        }
        Ok(())
    }

    /// The tensors of a message, received after those that were sent before it.
    fn take(&mut self, message: Message) -> Result<Vec<Option<Tensor>>> {
        if let Some(tensors) = self.local.remove(&message) {
            return Ok(tensors);
        }
        let from = self.pipeline.schedule.placement()[message.from];
        while !self.arrived.contains_key(&message) {
            let next = self.expected[from].pop_front().ok_or_else(|| Error::value("a message was not sent"))?;
            let tensors = self.receive(next, from)?;
            self.arrived.insert(next, tensors);
        }
        self.arrived.remove(&message).ok_or_else(|| Error::value("a message was not sent"))
    }

    fn receive(&self, message: Message, peer: usize) -> Result<Vec<Option<Tensor>>> {
        let (group, tag) = (&self.pipeline.group, tag(message));
        if message.from > message.to {
            // Gradients of the outputs that need one.
            let held = self.held.get(&(message.to, message.microbatch));
            let held = held.ok_or_else(|| Error::value("gradients without a forward pass"))?;
            return held
                .outputs
                .iter()
                .map(|output| {
                    if !output.requires_grad() {
                        return Ok(None);
                    }
                    let gradient = Tensor::empty_with(output.shape(), output.dtype())?;
                    group.recv(&gradient, peer, tag)?;
                    gradient.to(output.device()).map(Some)
                })
                .collect();
        }
        let header = Tensor::empty_with([HEADER], DType::I64)?;
        group.recv(&header, peer, tag)?;
        let numbers = header.to_vec::<i64>()?;
        let mut numbers = numbers.into_iter();
        let damaged = || Error::io(format!("stage {} sent a header that describes no tensors", message.from));
        let mut next = || numbers.next().and_then(|n| usize::try_from(n).ok()).ok_or_else(damaged);
        let count = next()?;
        let device = self.microbatches.first().and_then(|m| m.first()).map(Tensor::device).unwrap_or_default();
        (0..count)
            .map(|_| {
                let dtype = *DType::ALL.get(next()?).ok_or_else(damaged)?;
                let needs = next()? != 0;
                let rank = next()?;
                let shape = (0..rank).map(|_| next()).collect::<Result<Vec<usize>>>()?;
                let tensor = Tensor::empty_with(&shape[..], dtype)?;
                group.recv(&tensor, peer, tag)?;
                Ok(Some(tensor.to(device)?.requires_grad_(needs)?))
            })
            .collect()
    }
}

/// A tag for activations and one for gradients of each stage.
fn tag(message: Message) -> u32 {
    (message.from * 2 + usize::from(message.from > message.to)) as u32
}
