//! Values computed again where they are read late, instead of stored early.
//!
//! A large value that only pointwise calls read is part of a fused kernel where it is made. A backward pass reads it
//! much later: then it would be stored, and read again. If the value's own inputs are in memory at that time anyway, or
//! can be computed again themselves, second calls before the late readers cost nothing once fused.

use super::fuse::is_step;
use super::{covers, is_fusing, uses};
use crate::Device;
use crate::backend::Call;
use crate::program::{Program, Slot};
use std::collections::HashMap;

/// Fewest bytes of a value that is computed again.
const LARGE: usize = 1 << 18;
/// Most calls that are made again for one value.
const CHAIN: usize = 4;

/// What decides about a value: who writes and reads each buffer, and where no group of calls remains open.
struct Uses {
    writes: Vec<Vec<usize>>,
    reads: Vec<Vec<usize>>,
    /// For each call the number of calls before it that are no steps.
    barriers: Vec<usize>,
    steps: Vec<bool>,
}

impl Uses {
    fn new(program: &Program) -> Self {
        let none = vec![Vec::new(); program.buffers().len()];
        let (mut writes, mut reads) = (none.clone(), none);
        let (mut barriers, mut steps, mut before) = (Vec::new(), Vec::new(), 0);
        for (i, call) in program.calls().iter().enumerate() {
            let (read, written) = uses(call);
            read.iter().for_each(|slot| reads[slot.buffer].push(i));
            written.iter().for_each(|slot| writes[slot.buffer].push(i));
            barriers.push(before);
            steps.push(is_step(call) || matches!(call, Call::Reduce(_)));
            before += !steps[i] as usize;
        }
        Self { writes, reads, barriers, steps }
    }

    /// Whether memory of a buffer is written between two calls.
    fn is_disturbed(&self, program: &Program, buffer: usize, from: usize, until: usize) -> bool {
        let written = |b: usize| self.writes[b].iter().any(|&at| at > from && at < until);
        (0..self.writes.len()).any(|b| written(b) && program.alias(buffer, b))
    }

    /// Whether an input of a call at `at` is in memory at `from` for other reasons, and reading it costs no more than
    /// reading `bytes`.
    fn is_there(&self, program: &Program, x: &Slot, at: usize, from: usize, bytes: usize) -> bool {
        let read_late = self.reads[x.buffer].iter().any(|&r| r >= from);
        let stored =
            program.buffers()[x.buffer].outside || self.writes[x.buffer].iter().all(|&w| !self.steps[w]) || read_late;
        // Memory that is not fixed is freed after its last use.
        let alive = program.place(x.buffer).is_some() || program.buffers()[x.buffer].outside || read_late;
        let near = self.reads[x.buffer].iter().any(|&r| r >= from && self.barriers[r] == self.barriers[from]);
        let repeats = x.layout.strides().contains(&0);
        let cheap = near || repeats || x.layout.numel() * x.dtype.size() <= bytes;
        stored && alive && cheap && !self.is_disturbed(program, x.buffer, at, from)
    }

    /// The step before `i` that alone makes a value, if its inputs still stand where it is read.
    fn maker(&self, program: &Program, x: &Slot, i: usize) -> Option<usize> {
        let &[at] = &self.writes[x.buffer][..] else { return None };
        let (reads, writes) = uses(&program.calls()[at]);
        let suits = at < i
            && self.barriers[at] == self.barriers[i]
            && is_step(&program.calls()[at])
            && !program.is_result(x.buffer)
            && writes.len() == 1
            && covers(program, writes[0])
            && !reads.iter().any(|y| program.alias(y.buffer, x.buffer));
        suits.then_some(at)
    }

    /// The calls to make again at `from` for the value of the call at `i`, in order, which read at most one tensor of
    /// its size.
    fn chain(&self, program: &Program, i: usize, from: usize, bytes: usize) -> Option<Vec<usize>> {
        let (mut chain, mut next, mut whole) = (vec![i], 0, Vec::new());
        while let Some(&at) = chain.get(next) {
            for x in uses(&program.calls()[at]).0 {
                if self.is_there(program, x, at, from, bytes) {
                    if !x.layout.strides().contains(&0) && !whole.contains(&x) {
                        whole.push(x);
                    }
                    continue;
                }
                let maker = self.maker(program, x, at)?;
                if !chain.contains(&maker) {
                    chain.push(maker);
                }
            }
            next += 1;
        }
        chain.sort_unstable();
        (chain.len() <= CHAIN && whole.len() <= 1).then_some(chain)
    }
}

/// Computes large values again before their late readers.
pub fn recompute(program: &Program) -> Program {
    if !is_fusing() || program.buffers().iter().all(|b| b.device == Device::Cpu) {
        return program.clone();
    }
    let found = Uses::new(program);
    let mut out = program.clone();
    // By the position they come before, and by reader and old buffer.
    let mut again: HashMap<usize, Vec<Call<Slot>>> = HashMap::new();
    let mut renamed: HashMap<(usize, usize), usize> = HashMap::new();
    for (i, call) in program.calls().iter().enumerate().filter(|(_, call)| is_step(call)) {
        let (reads, writes) = uses(call);
        let [to] = writes[..] else { continue };
        let bytes = program.buffers()[to.buffer].bytes;
        let readers = &found.reads[to.buffer];
        let suits = bytes >= LARGE
            && !program.is_result(to.buffer)
            && found.writes[to.buffer].len() == 1
            && covers(program, to)
            && readers.iter().all(|&r| r > i && found.steps[r])
            && !reads.iter().any(|x| program.alias(x.buffer, to.buffer));
        // Values that are read late and nowhere else are made there by the order of calls.
        if !suits || readers.first().is_none_or(|&r| found.barriers[r] != found.barriers[i]) {
            continue;
        }
        let mut late = readers.iter().copied().filter(|&r| found.barriers[r] != found.barriers[i]).peekable();
        while let Some(first) = late.next() {
            let mut cluster = vec![first];
            while let Some(&next) = late.peek().filter(|&&r| found.barriers[r] == found.barriers[first]) {
                cluster.push(next);
                late.next();
            }
            let Some(chain) = found.chain(program, i, first, bytes) else { continue };
            let mut numbers = HashMap::new();
            for at in chain {
                let call = &program.calls()[at];
                for slot in uses(call).1 {
                    numbers.insert(slot.buffer, out.again(slot.buffer));
                }
                again.entry(first).or_default().push(call.map(&mut |_, slot| {
                    let buffer = numbers.get(&slot.buffer).copied().unwrap_or(slot.buffer);
                    Slot { buffer, ..slot.clone() }
                }));
            }
            let new = numbers[&to.buffer];
            cluster.into_iter().for_each(|reader| _ = renamed.insert((reader, to.buffer), new));
        }
    }
    let mut calls = Vec::with_capacity(program.calls().len());
    for (i, call) in program.calls().iter().enumerate() {
        calls.extend(again.remove(&i).unwrap_or_default());
        calls.push(call.map(&mut |_, slot| match renamed.get(&(i, slot.buffer)) {
            Some(&buffer) => Slot { buffer, ..slot.clone() },
            None => slot.clone(),
        }));
    }
    out.with_calls(calls)
}
