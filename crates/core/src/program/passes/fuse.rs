//! Fusion of pointwise calls.
//!
//! The pass walks the calls once and keeps a few open groups of calls that could run as one. A call joins the group
//! whose values it reads. Any other call that touches memory of a group closes it: the group's steps then become one
//! call `fused` before that call. A value that only the group itself reads is never stored.
//!
//! On GPUs a sum or mean of a group's value that nothing else reads becomes one call `fused_reduce`, which computes the
//! value from the group's inputs: it is never stored either.

use super::uses;
use crate::backend::call::{self, List, Numbers, Operand};
use crate::backend::{Call, MAX_INPUTS, MAX_OUTPUTS, MAX_STEPS, Reduce, Step, StepArg, StepOp, Steps};
use crate::program::{Program, Slot};
use crate::rows::Class;
use crate::{DType, Device, Dims, Layout, Pointwise, Scalar};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

/// Most groups that are open at a time.
const OPEN: usize = 6;
/// Most inputs of a sum of steps.
const SUMMED: usize = 8;
/// Most inputs of its own that such a sum reads where the steps' group remains for other values.
const READ_AGAIN: usize = 2;

/// An argument before it is known where its value comes from.
enum Arg {
    Tensor(Slot),
    Number(Scalar),
    Unused,
}

/// A pointwise call in the form of a step.
struct Part {
    op: StepOp,
    compute: Option<DType>,
    args: SmallVec<[Arg; 3]>,
    params: Numbers,
    out: Slot,
}

fn argument(operand: &Operand<Slot>) -> Arg {
    match operand {
        Operand::Tensor(slot) => Arg::Tensor(slot.clone()),
        Operand::Scalar(number) => Arg::Number(*number),
    }
}

impl Part {
    fn new(call: &Call<Slot>) -> Option<Self> {
        let real = |dtype: DType| matches!(dtype, DType::F32 | DType::F64);
        let part = match call {
            Call::Pointwise(c) if real(c.compute) && c.op.class() != Class::Bits => Self {
                op: StepOp::Row(c.op),
                compute: Some(c.compute),
                args: c.inputs.iter().map(argument).collect(),
                params: c.params,
                out: c.out.clone(),
            },
            Call::PointwiseGrad(c) if real(c.compute) => Self {
                op: StepOp::Derivative(c.op, c.wrt as u8),
                compute: Some(c.compute),
                args: c.values.iter().map(|v| v.as_ref().map_or(Arg::Unused, argument)).collect(),
                params: c.params,
                out: c.out.clone(),
            },
            Call::Select(c) => Self {
                op: StepOp::Select,
                compute: None,
                args: SmallVec::from_iter([Arg::Tensor(c.condition.clone()), argument(&c.a), argument(&c.b)]),
                params: Numbers::default(),
                out: c.out.clone(),
            },
            Call::Copy(c) if in_one_order(&c.src.layout, &c.out.layout) => Self {
                op: StepOp::Copy,
                compute: None,
                args: SmallVec::from_iter([Arg::Tensor(c.src.clone())]),
                params: Numbers::default(),
                out: c.out.clone(),
            },
            _ => return None,
        };
        let known = part.tensors().chain([&part.out]).all(|slot| is_known(slot.dtype));
        (known && part.out.layout.numel() > 0).then_some(part)
    }

    fn tensors(&self) -> impl Iterator<Item = &Slot> {
        self.args.iter().filter_map(|arg| match arg {
            Arg::Tensor(slot) => Some(slot),
            _ => None,
        })
    }

    /// The same over views of another shape.
    fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let view = |slot: &Slot| Some(Slot { layout: slot.layout.view(shape)?, ..slot.clone() });
        let mut args = SmallVec::new();
        for arg in &self.args {
            args.push(match arg {
                Arg::Tensor(slot) => Arg::Tensor(view(slot)?),
                Arg::Number(number) => Arg::Number(*number),
                Arg::Unused => Arg::Unused,
            });
        }
        Some(Self { op: self.op, compute: self.compute, args, params: self.params, out: view(&self.out)? })
    }
}

/// Dtypes that every engine has kernels for.
fn is_known(dtype: DType) -> bool {
    use DType::*;
    matches!(dtype, F32 | F64 | F16 | BF16 | I64 | I32 | I16 | I8 | U8 | Bool)
}

/// Whether a walk in the memory order of `out` walks `src` forward, too. Other copies are transpositions, which engines
/// do in tiles.
fn in_one_order(src: &Layout, out: &Layout) -> bool {
    let mut dims: Dims = (0..out.rank()).filter(|&d| out.shape()[d] > 1).collect();
    dims.sort_by_key(|&d| std::cmp::Reverse(out.strides()[d]));
    let strides: Dims = dims.iter().map(|&d| src.strides()[d]).filter(|&s| s > 0).collect();
    strides.is_sorted_by(|a, b| a >= b)
}

/// Strides of the dimensions that have more than one element.
fn real_strides(layout: &Layout) -> Dims {
    (0..layout.rank()).filter(|&d| layout.shape()[d] > 1).map(|d| layout.strides()[d]).collect()
}

/// Calls that may run as one.
struct Group {
    device: Device,
    shape: Dims,
    /// Of every output.
    strides: Dims,
    compute: Option<DType>,
    /// The calls, with their positions.
    members: Vec<(usize, Call<Slot>)>,
    steps: Vec<Step>,
    /// Where each step's value would be stored.
    written: Vec<Slot>,
    inputs: Vec<Slot>,
    /// Positions of sums that compute the group's values themselves.
    sums: Vec<usize>,
}

/// The program and what of it decides about stores.
struct Context<'a> {
    program: &'a Program,
    reads_at: Vec<Vec<usize>>,
}

impl Context<'_> {
    /// Whether a value written at a position is read by a call that is not among `members`, or after the program.
    fn is_needed(&self, buffer: usize, at: usize, members: &HashSet<usize>) -> bool {
        self.program.is_result(buffer) || self.reads_at[buffer].iter().any(|i| *i > at && !members.contains(i))
    }

    /// Whether two views may have elements in common.
    fn overlap(&self, a: &Slot, b: &Slot) -> bool {
        if a.buffer != b.buffer {
            return self.program.alias(a.buffer, b.buffer);
        }
        let range = |s: &Slot| {
            let size = s.dtype.size();
            (s.layout.offset() * size, s.layout.span().map_or(usize::MAX, |end| end * size))
        };
        let ((a, a_end), (b, b_end)) = (range(a), range(b));
        a < b_end && b < a_end
    }

    /// Whether two views are the same elements of the same memory, one by one.
    fn coincide(&self, a: &Slot, b: &Slot) -> bool {
        let placed = || {
            let place = |s: &Slot| self.program.place(s.buffer);
            place(a).is_some() && place(a) == place(b)
        };
        a.layout == b.layout && a.dtype.size() == b.dtype.size() && (a.buffer == b.buffer || placed())
    }
}

impl Group {
    fn new(part: &Part, device: Device) -> Self {
        Self {
            device,
            shape: Dims::from_slice(part.out.layout.shape()),
            strides: real_strides(&part.out.layout),
            compute: None,
            members: Vec::new(),
            steps: Vec::new(),
            written: Vec::new(),
            inputs: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// Positions of the calls that need no stored values.
    fn positions(&self) -> HashSet<usize> {
        self.members.iter().map(|m| m.0).chain(self.sums.iter().copied()).collect()
    }

    /// Whether the group writes memory that a view looks at.
    fn writes(&self, context: &Context, slot: &Slot) -> bool {
        self.written.iter().any(|w| context.overlap(w, slot))
    }

    /// Whether a call cannot change places with the group.
    fn conflicts(&self, context: &Context, reads: &[&Slot], writes: &[&Slot]) -> bool {
        reads.iter().any(|slot| self.writes(context, slot))
            || writes.iter().any(|slot| self.writes(context, slot) || self.reads(context, slot))
    }

    fn reads(&self, context: &Context, slot: &Slot) -> bool {
        self.inputs.iter().any(|x| context.overlap(x, slot))
    }

    /// Adds a call, or leaves the group as it was and returns false.
    fn join(&mut self, context: &Context, part: &Part, at: usize, call: &Call<Slot>, device: Device) -> bool {
        let same_compute = self.compute.is_none() || part.compute.is_none() || self.compute == part.compute;
        if self.device != device || !same_compute || self.steps.len() >= MAX_STEPS {
            return false;
        }
        let Some(part) = part.reshaped(&self.shape) else { return false };
        if real_strides(&part.out.layout) != self.strides {
            return false;
        }
        let before = self.inputs.len();
        match self.resolved(context, &part) {
            Some(args) if self.inputs.len() <= MAX_INPUTS && self.may_write(context, &part.out) => {
                let compute = part.compute.or(self.compute).unwrap_or(DType::F32);
                self.compute = self.compute.or(part.compute);
                self.steps.push(Step { op: part.op, compute, out: part.out.dtype, args, params: part.params });
                self.written.push(part.out);
                self.members.push((at, call.clone()));
                true
            }
            _ => {
                self.inputs.truncate(before);
                false
            }
        }
    }

    /// Where the arguments come from; new inputs are added.
    fn resolved(&mut self, context: &Context, part: &Part) -> Option<SmallVec<[StepArg; 3]>> {
        let mut args = SmallVec::new();
        for arg in &part.args {
            let slot = match arg {
                Arg::Number(number) => {
                    args.push(StepArg::Number(*number));
                    continue;
                }
                Arg::Unused => {
                    args.push(StepArg::Unused);
                    continue;
                }
                Arg::Tensor(slot) => slot,
            };
            // The last step that writes there has the value.
            args.push(match self.written.iter().rposition(|w| context.overlap(w, slot)) {
                Some(step) if self.written[step] == *slot => StepArg::Step(step as u16),
                Some(_) => return None,
                None => {
                    let known = self.inputs.iter().position(|x| x == slot);
                    let index = known.unwrap_or(self.inputs.len());
                    if known.is_none() {
                        self.inputs.push(slot.clone());
                    }
                    StepArg::Input(index as u16)
                }
            });
        }
        Some(args)
    }

    /// Whether a new value may be stored at `out`: over an input only element by element, and over an earlier value
    /// only if that one is replaced, or needed by nobody.
    fn may_write(&self, context: &Context, out: &Slot) -> bool {
        let over_inputs = self.inputs.iter().all(|x| !context.overlap(x, out) || context.coincide(x, out));
        let members = self.positions();
        over_inputs
            && self.written.iter().zip(&self.members).all(|(w, (at, _))| {
                !context.overlap(w, out)
                    || w == out
                    || w.buffer != out.buffer && !context.is_needed(w.buffer, *at, &members)
            })
    }

    /// Takes over the calls of a group that is independent of this one. Returns whether it could.
    fn merge(&mut self, other: &Group) -> bool {
        let same_compute = self.compute.is_none() || other.compute.is_none() || self.compute == other.compute;
        let fits = self.device == other.device && self.shape == other.shape && self.strides == other.strides;
        let new = other.inputs.iter().filter(|x| !self.inputs.contains(x)).count();
        if !fits
            || !same_compute
            || self.steps.len() + other.steps.len() > MAX_STEPS
            || self.inputs.len() + new > MAX_INPUTS
        {
            return false;
        }
        let places: Vec<u16> = other
            .inputs
            .iter()
            .map(|x| match self.inputs.iter().position(|y| y == x) {
                Some(at) => at as u16,
                None => {
                    self.inputs.push(x.clone());
                    self.inputs.len() as u16 - 1
                }
            })
            .collect();
        let first = self.steps.len() as u16;
        for step in &other.steps {
            let mut step = step.clone();
            for arg in &mut step.args {
                *arg = match *arg {
                    StepArg::Input(x) => StepArg::Input(places[x as usize]),
                    StepArg::Step(t) => StepArg::Step(t + first),
                    other => other,
                };
            }
            self.steps.push(step);
        }
        self.written.extend(other.written.iter().cloned());
        self.members.extend(other.members.iter().cloned());
        self.sums.extend(&other.sums);
        self.compute = self.compute.or(other.compute);
        true
    }

    /// Adds the group's calls to a program: one that is fused, or as they were.
    fn close(mut self, context: &Context, calls: &mut Vec<Call<Slot>>) {
        let members = self.positions();
        let mut stores: SmallVec<[u16; 4]> = SmallVec::new();
        let mut outs: List<Slot> = List::new();
        for (t, (slot, (at, _))) in self.written.iter().zip(&self.members).enumerate() {
            let replaced = self.written[t + 1..].contains(slot);
            if !replaced && context.is_needed(slot.buffer, *at, &members) {
                stores.push(t as u16);
                outs.push(slot.clone());
            }
        }
        if stores.is_empty() {
            return;
        }
        let (steps, inputs, stores) = needed(&self.steps, &self.inputs, &stores);
        if steps.len() < 2 || stores.len() > MAX_OUTPUTS {
            self.members.sort_by_key(|m| m.0);
            calls.extend(self.members.into_iter().map(|m| m.1));
            return;
        }
        let of = Arc::new(Steps { steps, stores });
        calls.push(call::Fused { of, inputs: inputs.into(), outs }.into());
    }

    /// A sum or mean of one of the group's values, if the call at `at` is one and nothing else reads the value.
    fn summed(&self, context: &Context, at: usize, c: &call::Reduce<Slot>) -> Option<Call<Slot>> {
        let mean = match c.op {
            Reduce::Sum => false,
            Reduce::Mean => true,
            _ => return None,
        };
        let same = |w: &Slot| {
            let view = w.layout.view(c.x.layout.shape());
            w.buffer == c.x.buffer && w.dtype == c.x.dtype && view.as_ref() == Some(&c.x.layout)
        };
        let t = self.written.iter().rposition(|w| context.overlap(w, &c.x))?;
        let mut readers = self.positions();
        readers.insert(at);
        let is_float = matches!(c.x.dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
        let alone = |t: usize| !context.is_needed(self.written[t].buffer, self.members[t].0, &readers);
        if !is_float || c.out.dtype != c.x.dtype || !same(&self.written[t]) || !alone(t) {
            return None;
        }
        // The sum runs before the group: it may change nothing that the group reads, or has yet to write.
        let kept = (0..self.written.len()).filter(|&k| !alone(k));
        let mut kept = kept.peekable();
        let (steps, inputs, stores) = needed(&self.steps, &self.inputs, &[t as u16]);
        let own = inputs.iter().filter(|x| !x.layout.strides().contains(&0) || x.layout.numel() == 1).count();
        let most = if kept.peek().is_some() { READ_AGAIN } else { SUMMED };
        if inputs.is_empty() || inputs.len() > SUMMED || own > most || self.reads(context, &c.out) {
            return None;
        }
        if kept.any(|k| context.overlap(&self.written[k], &c.out)) {
            return None;
        }
        let view = |x: &Slot| Some(Slot { layout: x.layout.view(c.x.layout.shape())?, ..x.clone() });
        let inputs = inputs.iter().map(view).collect::<Option<List<Slot>>>()?;
        let of = Arc::new(Steps { steps, stores });
        Some(call::FusedReduce { of, reduced: c.reduced.clone(), mean, inputs, out: c.out.clone() }.into())
    }
}

/// The steps that some stored values need, with the inputs that those read.
fn needed(steps: &[Step], inputs: &[Slot], stores: &[u16]) -> (Vec<Step>, Vec<Slot>, SmallVec<[u16; 4]>) {
    let mut used = vec![false; steps.len()];
    stores.iter().for_each(|t| used[*t as usize] = true);
    for t in (0..steps.len()).rev().filter(|t| used[*t]).collect::<Vec<_>>() {
        mark(steps, t, &mut used);
    }
    let (mut kept, mut read) = (Vec::new(), Vec::new());
    let mut places = vec![0u16; steps.len()];
    for (t, step) in steps.iter().enumerate().filter(|(t, _)| used[*t]) {
        let mut step = step.clone();
        for arg in &mut step.args {
            *arg = match *arg {
                StepArg::Input(x) => {
                    let slot = &inputs[x as usize];
                    let at = read.iter().position(|y| y == slot).unwrap_or(read.len());
                    if at == read.len() {
                        read.push(slot.clone());
                    }
                    StepArg::Input(at as u16)
                }
                StepArg::Step(t) => StepArg::Step(places[t as usize]),
                other => other,
            };
        }
        places[t] = kept.len() as u16;
        kept.push(step);
    }
    (kept, read, stores.iter().map(|t| places[*t as usize]).collect())
}

/// Marks the steps that a step uses.
fn mark(steps: &[Step], t: usize, used: &mut [bool]) {
    for arg in &steps[t].args {
        if let StepArg::Step(before) = arg
            && !std::mem::replace(&mut used[*before as usize], true)
        {
            mark(steps, *before as usize, used);
        }
    }
}

/// Runs pointwise calls together, wherever that keeps the order of all reads and writes of memory.
pub fn fuse(program: &Program) -> Program {
    let mut reads_at = vec![Vec::new(); program.buffers().len()];
    for (i, call) in program.calls().iter().enumerate() {
        uses(call).0.iter().for_each(|slot| reads_at[slot.buffer].push(i));
    }
    let context = Context { program, reads_at };
    let mut reserved = Reserved::new(program);
    let mut open: Vec<Group> = Vec::new();
    let mut calls = Vec::with_capacity(program.calls().len());
    for (i, call) in program.calls().iter().enumerate() {
        let (reads, writes) = uses(call);
        let device = writes.first().and_then(|slot| program.buffers().get(slot.buffer)).map(|b| b.device);
        let part = if reserved.has(call) { None } else { Part::new(call) };
        if let Call::Reduce(c) = call
            && reserved.gpu
            && let Some((g, sum)) = open.iter().enumerate().find_map(|(g, o)| Some((g, o.summed(&context, i, c)?)))
        {
            open[g].sums.push(i);
            let (reads, writes) = uses(&sum);
            let home = open.remove(g);
            close_all(&mut open, &context, &mut calls, |group| group.conflicts(&context, &reads, &writes));
            open.insert(g.min(open.len()), home);
            calls.push(sum.clone());
            continue;
        }
        let (Some(part), Some(device)) = (part, device) else {
            close_all(&mut open, &context, &mut calls, |group| group.conflicts(&context, &reads, &writes));
            calls.push(call.clone());
            continue;
        };
        // The groups whose values it reads become one, if they can.
        let mut home = Vec::new();
        for (g, group) in open.iter().enumerate() {
            if reads.iter().any(|slot| group.writes(&context, slot)) {
                home.push(g);
            }
        }
        if home.is_empty() {
            let shares = |group: &Group| group.inputs.iter().any(|x| reads.contains(&x));
            home.extend(open.iter().position(shares));
        }
        let mut group = match home.first() {
            Some(&first) => {
                for &other in home[1..].iter().rev() {
                    let (a, b) = open.split_at_mut(other);
                    if a[first].merge(&b[0]) {
                        open.remove(other);
                    }
                }
                open.remove(first)
            }
            None => Group::new(&part, device),
        };
        // The others must come before this call if they have memory in common with it.
        close_all(&mut open, &context, &mut calls, |group| group.conflicts(&context, &reads, &writes));
        if !group.join(&context, &part, i, call, device) {
            if !group.members.is_empty() {
                // A group that the call does not touch can stay open.
                if group.conflicts(&context, &reads, &writes) {
                    group.close(&context, &mut calls);
                } else {
                    open.push(group);
                }
            }
            group = Group::new(&part, device);
            if !group.join(&context, &part, i, call, device) {
                calls.push(call.clone());
                continue;
            }
        }
        open.push(group);
        if open.len() > OPEN {
            open.remove(0).close(&context, &mut calls);
        }
    }
    close_all(&mut open, &context, &mut calls, |_| true);
    program.with_calls(calls)
}

/// Closes the groups that a condition holds for.
fn close_all(
    open: &mut Vec<Group>,
    context: &Context,
    calls: &mut Vec<Call<Slot>>,
    mut condition: impl FnMut(&Group) -> bool,
) {
    let mut i = 0;
    while i < open.len() {
        if condition(&open[i]) {
            open.remove(i).close(context, calls);
        } else {
            i += 1;
        }
    }
}

/// Calls that GPUs fuse with a batch norm, which a group would keep them from.
struct Reserved {
    gpu: bool,
    /// Buffers that a batch norm wrote last, or the addition after it.
    normed: HashSet<usize>,
    /// Buffers of gradients that a batch norm's backward reads.
    masked: HashSet<usize>,
}

impl Reserved {
    fn new(program: &Program) -> Self {
        let masked = program.calls().iter().filter_map(|call| match call {
            Call::BatchNormBackward(c) => Some(c.dy.buffer),
            _ => None,
        });
        let gpu = program.buffers().iter().any(|b| b.device != Device::Cpu);
        Self { gpu, normed: HashSet::new(), masked: masked.collect() }
    }

    fn has(&mut self, call: &Call<Slot>) -> bool {
        if !self.gpu {
            return false;
        }
        let has = match call {
            Call::BatchNorm(c) => {
                self.normed.insert(c.y.buffer);
                return false;
            }
            Call::Pointwise(c) if matches!(c.op, Pointwise::Add | Pointwise::Relu) => {
                uses(call).0.iter().any(|slot| self.normed.contains(&slot.buffer))
            }
            Call::PointwiseGrad(c) => c.op == Pointwise::Relu && self.masked.contains(&c.out.buffer),
            _ => false,
        };
        for slot in uses(call).1 {
            self.normed.remove(&slot.buffer);
            if has && matches!(call, Call::Pointwise(c) if c.op == Pointwise::Add) {
                self.normed.insert(slot.buffer);
            }
        }
        has
    }
}
