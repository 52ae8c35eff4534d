//! Groups of calls that may run as one.

use super::part::{Arg, Part, real_strides, same_elements};
use super::{READ_AGAIN, ROW_INPUTS, ROW_OUTPUTS, SUMMED, uses};
use crate::backend::call::{self, List, Marks};
use crate::backend::{Call, MAX_INPUTS, MAX_OUTPUTS, MAX_STEPS, Reduce, Step, StepArg, StepOp, Steps};
use crate::program::{Program, Slot};
use crate::{DType, Device, Dims};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

/// Calls that may run as one.
pub struct Group {
    device: Device,
    shape: Dims,
    /// The dimensions of a row, the last ones, if rows are reduced.
    reduced: Option<Marks>,
    /// Of the outputs with a value per element: all have this order of dimensions, and the last stride.
    strides: Dims,
    compute: Option<DType>,
    /// The calls, with their positions.
    pub members: Vec<(usize, Call<Slot>)>,
    steps: Vec<Step>,
    /// Where each step's value would be stored.
    written: Vec<Slot>,
    pub inputs: Vec<Slot>,
    /// Positions of sums that compute the group's values themselves.
    pub sums: Vec<usize>,
}

/// The program and what of it decides about stores.
pub struct Context<'a> {
    pub program: &'a Program,
    pub reads_at: Vec<Vec<usize>>,
}

impl Context<'_> {
    /// Whether a value written at a position is read by a call that is not among `members`, or after the program.
    fn is_needed(&self, value: &Slot, at: usize, members: &HashSet<usize>) -> bool {
        // Another part of the buffer is another value.
        let reads = |i: usize| {
            uses(&self.program.calls()[i]).0.iter().any(|x| x.buffer == value.buffer && self.overlap(x, value))
        };
        let readers = &self.reads_at[value.buffer];
        self.program.is_result(value.buffer) || readers.iter().any(|&i| i > at && !members.contains(&i) && reads(i))
    }

    /// Whether two views may have elements in common.
    fn overlap(&self, a: &Slot, b: &Slot) -> bool {
        if a.buffer != b.buffer {
            return self.program.alias(a.buffer, b.buffer);
        }
        if a.dtype.size() == b.dtype.size() && a.layout.is_apart(&b.layout) {
            return false;
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
    pub fn new(part: &Part, device: Device) -> Self {
        // A reduction has the order of what it reduces.
        let values = match (part.op, part.args.first()) {
            (StepOp::Reduced(_), Some(Arg::Tensor(x))) => &x.layout,
            _ => &part.out.layout,
        };
        Self {
            device,
            shape: Dims::from_slice(values.shape()),
            reduced: None,
            strides: real_strides(values),
            compute: None,
            members: Vec::new(),
            steps: Vec::new(),
            written: Vec::new(),
            inputs: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// The shape of one value per row.
    fn row_shape(&self) -> Option<Dims> {
        let marks = self.reduced.as_ref()?;
        Some(self.shape.iter().zip(marks).map(|(&n, &reduced)| if reduced { 1 } else { n }).collect())
    }

    /// The shape that a part has in the group: one value per element, or per row.
    fn shape_of(&self, part: &Part) -> Option<Dims> {
        let (numel, of) = (part.out.layout.numel(), |shape: &Dims| shape.iter().product::<usize>());
        if numel == of(&self.shape) {
            return Some(self.shape.clone());
        }
        self.row_shape().filter(|rows| numel == of(rows))
    }

    /// Whether a part could join by the number of its elements.
    pub fn suits(&self, part: &Part) -> bool {
        match (part.op, part.args.first()) {
            (StepOp::Reduced(_), Some(Arg::Tensor(x))) => x.layout.numel() == self.shape.iter().product::<usize>(),
            _ => self.shape_of(part).is_some(),
        }
    }

    /// Gives the whole group another shape, if all views can have it.
    fn reshape(&mut self, shape: &[usize]) -> bool {
        if self.shape[..] == *shape {
            return true;
        }
        let view = |slot: &Slot| Some(Slot { layout: slot.layout.view(shape)?, ..slot.clone() });
        let inputs = self.inputs.iter().map(view).collect::<Option<Vec<_>>>();
        let written = self.written.iter().map(view).collect::<Option<Vec<_>>>();
        let (Some(inputs), Some(written)) = (inputs, written) else { return false };
        let strides = written.first().map(|w| real_strides(&w.layout));
        if strides.as_ref().is_some_and(|s| written.iter().any(|w| !walked_alike(s, &real_strides(&w.layout)))) {
            return false;
        }
        (self.inputs, self.written, self.shape) = (inputs, written, Dims::from_slice(shape));
        self.strides = strides.unwrap_or_else(|| self.strides.clone());
        true
    }

    /// Positions of the calls that need no stored values.
    fn positions(&self) -> HashSet<usize> {
        self.members.iter().map(|m| m.0).chain(self.sums.iter().copied()).collect()
    }

    /// Whether the group writes memory that a view looks at.
    pub fn writes(&self, context: &Context, slot: &Slot) -> bool {
        self.written.iter().any(|w| context.overlap(w, slot))
    }

    /// Whether a call cannot change places with the group.
    pub fn conflicts(&self, context: &Context, reads: &[&Slot], writes: &[&Slot]) -> bool {
        reads.iter().any(|slot| self.writes(context, slot))
            || writes.iter().any(|slot| self.writes(context, slot) || self.reads(context, slot))
    }

    fn reads(&self, context: &Context, slot: &Slot) -> bool {
        self.inputs.iter().any(|x| context.overlap(x, slot))
    }

    /// A part with the shapes that it has in the group.
    fn shaped(&mut self, part: &Part) -> Option<Part> {
        let (StepOp::Reduced(_), Some(Arg::Tensor(x))) = (part.op, part.args.first()) else {
            let shape = self.shape_of(part)?;
            let part = part.reshaped(&shape)?;
            let in_order = shape != self.shape || walked_alike(&self.strides, &real_strides(&part.out.layout));
            return in_order.then_some(part);
        };
        let columns = x.layout.numel() / part.out.layout.numel().max(1);
        if self.reduced.is_none() {
            if !self.reshape(x.layout.shape()) || self.strides.last() != Some(&1) {
                return None;
            }
            let mut rest = 1;
            let first = (0..self.shape.len()).rev().find(|&d| {
                rest *= self.shape[d];
                rest == columns
            })?;
            self.reduced = Some((0..self.shape.len()).map(|d| d >= first).collect());
        }
        let rows = self.row_shape()?;
        let x = Slot { layout: x.layout.view(&self.shape)?, ..x.clone() };
        let out = Slot { layout: part.out.layout.view(&rows)?, ..part.out.clone() };
        let args = SmallVec::from_iter([Arg::Tensor(x)]);
        Some(Part { op: part.op, compute: part.compute, args, params: part.params, out })
    }

    /// Most inputs that the group may have.
    fn most_inputs(&self) -> usize {
        if self.reduced.is_some() { ROW_INPUTS } else { MAX_INPUTS }
    }

    /// Adds a call, or leaves the group's calls as they were and returns false.
    pub fn join(&mut self, context: &Context, part: &Part, at: usize, call: &Call<Slot>, device: Device) -> bool {
        let same_compute = self.compute.is_none() || part.compute.is_none() || self.compute == part.compute;
        if self.device != device || !same_compute || self.steps.len() >= MAX_STEPS {
            return false;
        }
        let reduced = self.reduced.clone();
        let joined = self.shaped(part).is_some_and(|part| self.add(context, part, at, call));
        if !joined {
            self.reduced = reduced;
        }
        joined
    }

    fn add(&mut self, context: &Context, part: Part, at: usize, call: &Call<Slot>) -> bool {
        let before = self.inputs.len();
        match self.resolved(context, &part) {
            Some(args) if self.inputs.len() <= self.most_inputs() && self.may_write(context, &part.out) => {
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

    /// Whether a view reads the value that a step has written: element by element, or a value per row for each element.
    fn is_value(&self, written: &Slot, slot: &Slot) -> bool {
        if written.buffer != slot.buffer || written.dtype != slot.dtype {
            return false;
        }
        same_elements(&written.layout, &slot.layout)
            || written.layout.expand(slot.layout.shape()).is_ok_and(|w| same_elements(&w, &slot.layout))
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
                Some(step) if self.is_value(&self.written[step], slot) => StepArg::Step(step as u16),
                Some(_) => return None,
                None => {
                    // One value per row is read for each of its elements.
                    let slot = Slot { layout: slot.layout.expand(&self.shape).ok()?, ..slot.clone() };
                    let known = self.inputs.iter().position(|x| *x == slot);
                    let index = known.unwrap_or(self.inputs.len());
                    if known.is_none() {
                        self.inputs.push(slot);
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
        // A row's values are read before its first reduction, and stored after its last.
        let whole = out.layout.expand(&self.shape).ok().filter(|_| self.reduced.is_some());
        let out_of_rows = whole.map(|layout| Slot { layout, ..out.clone() });
        let same = |x: &Slot| context.coincide(x, out) || out_of_rows.as_ref().is_some_and(|y| context.coincide(x, y));
        let over_inputs = self.inputs.iter().all(|x| !context.overlap(x, out) || same(x));
        let members = self.positions();
        over_inputs
            && self.written.iter().zip(&self.members).all(|(w, (at, _))| {
                !context.overlap(w, out) || w == out || w.buffer != out.buffer && !context.is_needed(w, *at, &members)
            })
    }

    /// Takes over the calls of a group that is independent of this one. Returns whether it could.
    pub fn merge(&mut self, other: &Group) -> bool {
        let same_compute = self.compute.is_none() || other.compute.is_none() || self.compute == other.compute;
        let fits =
            self.device == other.device && self.shape == other.shape && walked_alike(&self.strides, &other.strides);
        let new = other.inputs.iter().filter(|x| !self.inputs.contains(x)).count();
        if !fits
            || !same_compute
            || self.reduced.is_some() && other.reduced.is_some() && self.reduced != other.reduced
            || self.steps.len() + other.steps.len() > MAX_STEPS
            || self.inputs.len() + new > self.most_inputs().min(other.most_inputs())
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
        self.reduced = self.reduced.take().or_else(|| other.reduced.clone());
        true
    }

    /// Adds the group's calls to a program: one that is fused, or as they were.
    pub fn close(mut self, context: &Context, calls: &mut Vec<Call<Slot>>) {
        let members = self.positions();
        let mut stores: SmallVec<[u16; 4]> = SmallVec::new();
        let mut outs: List<Slot> = List::new();
        for (t, (slot, (at, _))) in self.written.iter().zip(&self.members).enumerate() {
            let replaced = self.written[t + 1..].contains(slot);
            if !replaced && context.is_needed(slot, *at, &members) {
                stores.push(t as u16);
                outs.push(slot.clone());
            }
        }
        if stores.is_empty() {
            return;
        }
        let (steps, inputs, stores) = needed(&self.steps, &self.inputs, &stores);
        let of = Steps { steps, stores };
        let fits = match of.reduces() {
            true => outs.len() <= ROW_OUTPUTS && inputs.len() <= ROW_INPUTS,
            false => outs.len() <= MAX_OUTPUTS && outs.iter().all(|out| out.layout.shape() == &self.shape[..]),
        };
        if of.steps.len() < 2 || !fits {
            self.members.sort_by_key(|m| m.0);
            calls.extend(self.members.into_iter().map(|m| m.1));
            return;
        }
        let (of, inputs) = (Arc::new(of), inputs.into());
        calls.push(match self.reduced.filter(|_| of.reduces()) {
            Some(reduced) => call::FusedRows { of, reduced, inputs, outs }.into(),
            None => call::Fused { of, inputs, outs }.into(),
        });
    }

    /// A sum or mean of one of the group's values, if the call at `at` is one and nothing else reads the value.
    pub fn summed(&self, context: &Context, at: usize, c: &call::Reduce<Slot>) -> Option<Call<Slot>> {
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
        let alone = |t: usize| !context.is_needed(&self.written[t], self.members[t].0, &readers);
        if !is_float || c.out.dtype != c.x.dtype || !same(&self.written[t]) || !alone(t) {
            return None;
        }
        // The sum runs before the group: it may change nothing that the group reads, or has yet to write.
        let kept = (0..self.written.len()).filter(|&k| !alone(k));
        let mut kept = kept.peekable();
        let (steps, inputs, stores) = needed(&self.steps, &self.inputs, &[t as u16]);
        let own = inputs.iter().filter(|x| !x.layout.strides().contains(&0) || x.layout.numel() == 1).count();
        let most = if kept.peek().is_some() { READ_AGAIN } else { SUMMED };
        if steps.iter().any(|step| matches!(step.op, StepOp::Reduced(_))) {
            return None;
        }
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

/// Whether outputs of one shape with these strides are walked alike: in one order, and in steps of one size inside.
fn walked_alike(a: &[usize], b: &[usize]) -> bool {
    let sorted = |strides: &[usize]| strides.is_sorted_by(|a, b| a >= b);
    a == b || a.len() == b.len() && a.last() == b.last() && sorted(a) && sorted(b)
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
