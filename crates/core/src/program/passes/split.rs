//! Joined tensors that are never stored.
//!
//! A `cat` is copies to the parts of one buffer. A pointwise call that reads the whole of it could be fused with none
//! of them: no step has the value of all elements. This pass splits such calls by the parts, so that each reads what
//! one copy wrote, and with them the pointwise calls that only they read, or that read them alone. A rotary embedding
//! (`x * cos + cat([-b, a]) * sin`) becomes one kernel this way, and its gradient another.

use super::{covers, fuse::is_step, uses};
use crate::backend::Call;
use crate::program::{Program, Slot};
use crate::{Device, Dims, Layout};
use std::collections::{HashMap, HashSet};

/// Most parts of a joined tensor, and least elements next to each other in one.
const PARTS: usize = 4;
const NARROW: usize = 8;
/// Most calls that one joined tensor splits.
const CALLS: usize = 12;

/// How a buffer's elements are divided: by one dimension, which has this stride and these sizes.
#[derive(Clone, PartialEq)]
struct Cut {
    stride: usize,
    sizes: Vec<usize>,
}

impl Cut {
    fn size(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// Where a part begins.
    fn start(&self, part: usize) -> usize {
        self.sizes[..part].iter().sum()
    }

    /// The divided dimension of a view, `None` if it has one element there; `Err` if the view has others within it.
    fn dim(&self, layout: &Layout) -> Result<Option<usize>, ()> {
        let mut found = None;
        for d in (0..layout.rank()).filter(|&d| layout.shape()[d] > 1) {
            let stride = layout.strides()[d];
            let outside = stride.is_multiple_of(self.stride * self.size());
            let inside = layout.shape()[d].saturating_mul(stride) <= self.stride;
            match stride == self.stride {
                true => found = Some(d),
                false if outside || inside => {}
                false => return Err(()),
            }
        }
        Ok(found)
    }

    /// The dimension of a view that has all parts.
    fn whole(&self, layout: &Layout) -> Option<usize> {
        let dim = self.dim(layout).ok()??;
        (layout.shape()[dim] == self.size() && self.place(layout) == 0).then_some(dim)
    }

    /// The position in the divided dimension of a view's first element.
    fn place(&self, layout: &Layout) -> usize {
        layout.offset() / self.stride % self.size()
    }

    /// Whether a view is within one part.
    fn has_part(&self, layout: &Layout) -> bool {
        let Ok(dim) = self.dim(layout) else { return false };
        let (at, size) = (self.place(layout), dim.map_or(1, |d| layout.shape()[d]));
        (0..self.sizes.len()).any(|p| self.start(p) <= at && at + size <= self.start(p) + self.sizes[p])
    }
}

/// What the pass knows of a program, which it changes.
struct Splitter<'a> {
    program: &'a Program,
    calls: Vec<Call<Slot>>,
    reads_at: Vec<Vec<usize>>,
    writes_at: Vec<Vec<usize>>,
    /// Calls as they were before the joined tensor that is looked at.
    before: Vec<(usize, Call<Slot>)>,
}

/// Splits pointwise calls of GPUs by the parts of joined tensors.
pub fn split(program: &Program) -> Program {
    if program.buffers().iter().all(|b| b.device == Device::Cpu) {
        return program.clone();
    }
    let mut reads_at = vec![Vec::new(); program.buffers().len()];
    let mut writes_at = reads_at.clone();
    for (i, call) in program.calls().iter().enumerate() {
        let (reads, writes) = uses(call);
        reads.iter().for_each(|slot| reads_at[slot.buffer].push(i));
        writes.iter().for_each(|slot| writes_at[slot.buffer].push(i));
    }
    let calls = program.calls().to_vec();
    let mut splitter = Splitter { program, calls, reads_at, writes_at, before: Vec::new() };
    let mut splits: HashMap<usize, (usize, Vec<usize>)> = HashMap::new();
    for buffer in 0..program.buffers().len() {
        match splitter.joined(buffer, &splits) {
            Some(found) => splits.extend(found),
            None => splitter.restore(),
        }
        splitter.before.clear();
    }
    if splits.is_empty() {
        return program.clone();
    }
    let mut calls = Vec::with_capacity(program.calls().len() + splits.len());
    for (i, call) in splitter.calls.iter().enumerate() {
        let Some((dim, sizes)) = splits.get(&i) else {
            calls.push(call.clone());
            continue;
        };
        let mut start = 0;
        for &size in sizes {
            calls.push(in_memory_order(
                &call.map(&mut |_, slot| Slot { layout: slot.layout.slice(*dim, start, size, 1), ..slot.clone() }),
            ));
            start += size;
        }
    }
    program.with_calls(calls)
}

/// A pointwise call that walks its output forward.
fn in_memory_order(call: &Call<Slot>) -> Call<Slot> {
    let [out] = uses(call).1[..] else { return call.clone() };
    let order = out.layout.memory_order();
    call.map(&mut |_, slot| Slot { layout: slot.layout.permute(&order), ..slot.clone() })
}

impl Splitter<'_> {
    fn replace(&mut self, i: usize, call: Call<Slot>) {
        self.before.push((i, std::mem::replace(&mut self.calls[i], call)));
    }

    fn restore(&mut self) {
        while let Some((i, call)) = self.before.pop() {
            self.calls[i] = call;
        }
    }

    fn is_step(&self, call: usize) -> bool {
        is_step(&self.calls[call])
    }

    /// Whether a call is pointwise and has no more elements than what it reads.
    fn is_alike(&self, call: usize, input: &Slot) -> bool {
        self.is_step(call) && uses(&self.calls[call]).1.iter().all(|out| out.layout.numel() <= input.layout.numel())
    }

    fn is_own(&self, buffer: usize) -> bool {
        !self.program.buffers()[buffer].outside && !self.program.is_result(buffer)
    }

    /// The slots of a call on a buffer.
    fn slots(&self, call: usize, buffer: usize) -> Vec<Slot> {
        let (reads, writes) = uses(&self.calls[call]);
        reads.into_iter().chain(writes).filter(|slot| slot.buffer == buffer).cloned().collect()
    }

    /// The calls to split for a buffer that is written in parts, with their dimension and its parts. Gives some buffers
    /// another order of elements.
    fn joined(
        &mut self,
        buffer: usize,
        done: &HashMap<usize, (usize, Vec<usize>)>,
    ) -> Option<HashMap<usize, (usize, Vec<usize>)>> {
        let writers = self.writes_at[buffer].clone();
        let readers = self.reads_at[buffer].clone();
        if !self.is_own(buffer) || !(2..=PARTS).contains(&writers.len()) || readers.is_empty() {
            return None;
        }
        let last = *writers.last()?;
        // A copy between orders of elements is none of them yet.
        let suits = |i: &usize| (self.is_step(*i) || matches!(self.calls[*i], Call::Copy(_))) && !done.contains_key(i);
        if !writers.iter().chain(&readers).all(suits) || readers.iter().any(|&i| i <= last) {
            return None;
        }
        self.ordered_as_sources(buffer, &writers)?;
        let whole = self.slots(readers[0], buffer).swap_remove(0);
        if !writers.iter().all(|&i| self.is_step(i)) || !readers.iter().all(|&i| self.is_alike(i, &whole)) {
            return None;
        }
        let cut = self.cut_of(buffer, &writers)?;
        let mut found: HashMap<usize, (usize, Vec<usize>)> = HashMap::new();
        // Forward: the readers, and those of what only pointwise calls read.
        let mut open = vec![(buffer, cut.clone())];
        while let Some((from, cut)) = open.pop() {
            for i in self.reads_at[from].clone() {
                if found.contains_key(&i) {
                    continue;
                }
                let slots = self.slots(i, from);
                let whole = slots.iter().find_map(|slot| cut.whole(&slot.layout));
                let Some(dim) = whole else {
                    if slots.iter().all(|slot| cut.has_part(&slot.layout)) {
                        continue;
                    }
                    return None;
                };
                self.follow_order(i, from);
                if found.len() >= CALLS || done.contains_key(&i) || !self.can_split(i, dim, cut.size()) {
                    return None;
                }
                found.insert(i, (dim, cut.sizes.clone()));
                let [out] = uses(&self.calls[i]).1[..] else { return None };
                let next = Cut { stride: out.layout.strides()[dim], sizes: cut.sizes.clone() };
                let to = out.buffer;
                let is_value = self.is_own(to) && self.reads_at[to].iter().all(|&r| self.is_alike(r, out));
                // What is reduced is better computed where it is.
                if self.reads_at[to].iter().any(|&r| matches!(self.calls[r], Call::Reduce(_))) {
                    return None;
                }
                if is_value && self.writes_at[to].iter().all(|&w| w <= i) {
                    open.push((to, next));
                }
            }
        }
        // Backward: pointwise calls that only these read.
        let mut from: Vec<usize> = writers.iter().chain(found.keys()).copied().collect();
        while let Some(i) = from.pop() {
            let inputs: Vec<Slot> = uses(&self.calls[i]).0.into_iter().cloned().collect();
            for slot in inputs {
                if let Some((p, dim)) = self.source(&slot, &cut.sizes, &found) {
                    if found.len() >= CALLS || done.contains_key(&p) {
                        return None;
                    }
                    found.insert(p, (dim, cut.sizes.clone()));
                    from.push(p);
                }
            }
        }
        for &i in &writers {
            let call = in_memory_order(&self.calls[i]);
            self.replace(i, call);
        }
        (!found.is_empty()).then_some(found)
    }

    /// Whether all views of a call have this dimension.
    fn can_split(&self, call: usize, dim: usize, size: usize) -> bool {
        let (reads, writes) = uses(&self.calls[call]);
        self.is_step(call) && reads.iter().chain(&writes).all(|slot| slot.layout.shape().get(dim) == Some(&size))
    }

    /// The parts that the writers of a buffer write, if they are all of it.
    fn cut_of(&self, buffer: usize, writers: &[usize]) -> Option<Cut> {
        let mut parts: Vec<Layout> = Vec::new();
        for &i in writers {
            let [out] = uses(&self.calls[i]).1[..] else { return None };
            parts.push(out.layout.clone());
        }
        parts.sort_by_key(|p| p.offset());
        let first = &parts[0];
        let alike = |p: &Layout| p.rank() == first.rank() && p.strides() == first.strides();
        let second = parts.get(1)?;
        let dim = (0..first.rank())
            .find(|&d| first.offset() == 0 && second.offset() == first.shape()[d] * first.strides()[d])?;
        let stride = first.strides()[dim];
        let cut = Cut { stride, sizes: parts.iter().map(|p| p.shape()[dim]).collect() };
        let rest = |p: &Layout| (0..p.rank()).filter(|&d| d != dim).map(|d| p.shape()[d]).collect::<Dims>();
        let mut whole = Dims::from_slice(first.shape());
        whole[dim] = cut.size();
        let layout = Layout::strided(&whole, first.strides(), 0).ok()?;
        let dtype = self.slots(writers[0], buffer).first()?.dtype;
        let fits = parts.iter().enumerate().all(|(k, p)| {
            alike(p)
                && rest(p) == rest(first)
                && p.offset() == cut.start(k) * stride
                && p.shape()[dim] * stride >= NARROW
        });
        (fits && covers(self.program, &Slot { buffer, layout, dtype })).then_some(cut)
    }

    /// The call that makes what a view reads, and its divided dimension, if the view reads a part or the whole of the
    /// result of one pointwise call, and all other readers do.
    fn source(
        &self,
        slot: &Slot,
        sizes: &[usize],
        found: &HashMap<usize, (usize, Vec<usize>)>,
    ) -> Option<(usize, usize)> {
        // Later writers, which work in place, are split already.
        let (&p, later) = self.writes_at[slot.buffer].split_first()?;
        if !later.iter().all(|w| found.contains_key(w)) {
            return None;
        }
        if found.contains_key(&p) || !self.is_step(p) {
            return None;
        }
        let [out] = uses(&self.calls[p]).1[..] else { return None };
        if !covers(self.program, out) {
            return None;
        }
        let total: usize = sizes.iter().sum();
        let dims = (0..out.layout.rank()).filter(|&d| out.layout.shape()[d] == total);
        dims.into_iter().find_map(|dim| {
            let cut = Cut { stride: out.layout.strides()[dim], sizes: sizes.to_vec() };
            let mut readers =
                self.reads_at[slot.buffer].iter().filter(|&&r| later.first().is_none_or(|&next| r <= next));
            let split = readers.all(|&r| {
                self.slots(r, slot.buffer).iter().all(|view| match found.get(&r) {
                    Some((d, _)) => cut.whole(&view.layout) == Some(*d),
                    None => self.is_step(r) && cut.has_part(&view.layout),
                })
            });
            (split && self.can_split(p, dim, total)).then_some((p, dim))
        })
    }

    /// Gives a joined buffer the order of elements that all its sources have.
    fn ordered_as_sources(&mut self, buffer: usize, writers: &[usize]) -> Option<()> {
        let mut order: Option<Dims> = None;
        for &i in writers {
            let (reads, _) = uses(&self.calls[i]);
            let source = reads.first()?.layout.memory_order();
            if order.get_or_insert_with(|| source.clone()) != &source {
                return Some(());
            }
        }
        let [out] = uses(&self.calls[writers[0]]).1[..] else { return None };
        let (layout, order) = (out.layout.clone(), order?);
        if layout.memory_order() != order {
            let bytes = self.program.buffers()[buffer].bytes;
            let whole = whole_shape(&layout, bytes / out.dtype.size());
            if let Some(whole) = whole {
                self.reorder(buffer, &whole, layout.strides(), &order);
            }
        }
        Some(())
    }

    /// Gives the output of a call the order of elements that its input on a buffer has, if nothing else depends on it.
    fn follow_order(&mut self, call: usize, from: usize) {
        let (reads, writes) = uses(&self.calls[call]);
        let ([out], Some(input)) = (&writes[..], reads.iter().find(|slot| slot.buffer == from)) else { return };
        let order = input.layout.memory_order();
        if out.buffer == from || out.layout.memory_order() == order || !covers(self.program, out) {
            return;
        }
        let (buffer, layout) = (out.buffer, out.layout.clone());
        if self.is_own(buffer) {
            self.reorder(buffer, layout.shape(), layout.strides(), &order);
        }
    }

    /// Gives a buffer that only pointwise calls use another order of elements: that of its dimensions (`shape` and
    /// `strides`, all of it) becomes `order`. Nothing changes where that is not possible.
    fn reorder(&mut self, buffer: usize, shape: &[usize], strides: &[usize], order: &[usize]) {
        let mut to: Dims = Dims::from_elem(0, shape.len());
        let mut step = 1;
        for &d in order.iter().rev() {
            to[d] = step;
            step *= shape[d];
        }
        let touching: HashSet<usize> = self.reads_at[buffer].iter().chain(&self.writes_at[buffer]).copied().collect();
        let moved = |layout: &Layout| -> Option<Layout> {
            let mut new = Dims::new();
            for d in 0..layout.rank() {
                let (size, stride) = (layout.shape()[d], layout.strides()[d]);
                let from = (0..shape.len()).find(|&k| shape[k] > 1 && strides[k] == stride && size <= shape[k]);
                new.push(if size == 1 || stride == 0 { stride } else { to[from?] });
            }
            let offset = (0..shape.len())
                .filter(|&k| shape[k] > 1)
                .map(|k| layout.offset() / strides[k] % shape[k] * to[k])
                .sum();
            Layout::strided(layout.shape(), &new, offset).ok()
        };
        let mut changed = Vec::new();
        for &i in &touching {
            let mut fits =
                matches!(self.calls[i], Call::Pointwise(_) | Call::PointwiseGrad(_) | Call::Select(_) | Call::Copy(_));
            let call = self.calls[i].map(&mut |_, slot| {
                // An operation in place on other elements of the same memory would not be one any more.
                if slot.buffer != buffer {
                    fits &= !self.program.alias(slot.buffer, buffer);
                    return slot.clone();
                }
                match moved(&slot.layout) {
                    Some(layout) => Slot { layout, ..slot.clone() },
                    None => {
                        fits = false;
                        slot.clone()
                    }
                }
            });
            if !fits {
                return;
            }
            changed.push((i, call));
        }
        changed.into_iter().for_each(|(i, call)| self.replace(i, call));
    }
}

/// The shape of a dense buffer of `numel` elements that a part of it has the strides of.
fn whole_shape(part: &Layout, numel: usize) -> Option<Dims> {
    let mut shape = Dims::from_slice(part.shape());
    let mut limit = numel;
    for &d in part.memory_order().iter() {
        let stride = part.strides()[d].max(1);
        if part.shape()[d] > 1 {
            shape[d] = limit / stride;
            limit = stride;
        }
    }
    (shape.iter().product::<usize>() == numel).then_some(shape)
}
