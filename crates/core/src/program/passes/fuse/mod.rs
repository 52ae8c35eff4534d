//! Fusion of pointwise calls.
//!
//! The pass walks the calls once and keeps a few open groups of calls that could run as one. A call joins the group
//! whose values it reads. Any other call that touches memory of a group closes it: the group's steps then become one
//! call `fused` before that call. A value that only the group itself reads is never stored.
//!
//! On GPUs a reduction over a group's last dimensions is a step of it, and so are pointwise calls on its results: norms
//! and softmaxes that are written out, and their gradients, become one call `fused_rows`. Any other sum or mean of a
//! group's value that nothing else reads becomes one call `fused_reduce`, which computes the value from the group's
//! inputs: it is never stored either.

mod group;
mod part;

use super::uses;
use crate::backend::Call;
use crate::program::{Program, Slot};
use crate::{Device, Pointwise};
use group::{Context, Group};
use part::Part;
pub(super) use part::{is_rows, same_elements};
use std::collections::HashSet;

/// Most groups that are open at a time.
const OPEN: usize = 8;
/// Most inputs of a sum of steps.
const SUMMED: usize = 8;
/// Most inputs of its own that such a sum reads where the steps' group remains for other values.
const READ_AGAIN: usize = 2;
/// Most inputs and outputs of steps that reduce rows.
const ROW_INPUTS: usize = 10;
const ROW_OUTPUTS: usize = 6;

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
        let is_reserved = reserved.has(call);
        let part = match call {
            _ if is_reserved => None,
            Call::Reduce(c) if reserved.gpu => Part::reduced(c),
            _ => Part::new(call, reserved.gpu),
        };
        if let Call::Reduce(c) = call
            && reserved.gpu
            && part.is_none()
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
            // Nothing may come between a batch norm and what is fused with it.
            let alone = reserved.gpu && matches!(call, Call::BatchNorm(_)) || is_reserved && !is_forward(call);
            let closes = |group: &Group| alone || group.conflicts(&context, &reads, &writes);
            close_all(&mut open, &context, &mut calls, closes);
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
        let suits = home.iter().copied().find(|&g| open[g].suits(&part));
        let mut group = match suits.or(home.first().copied()) {
            Some(first) => {
                let mut group = open.remove(first);
                for &other in home.iter().rev().filter(|&&other| other != first) {
                    let at = if other > first { other - 1 } else { other };
                    if group.merge(&open[at]) {
                        open.remove(at);
                    }
                }
                group
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

/// Whether a call of a GPU can be a pointwise step.
pub(super) fn is_step(call: &Call<Slot>) -> bool {
    Part::new(call, true).is_some()
}

fn is_forward(call: &Call<Slot>) -> bool {
    matches!(call, Call::Pointwise(_))
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
