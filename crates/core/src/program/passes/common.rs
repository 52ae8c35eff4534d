//! Common subexpressions.

use super::{is_pure, uses};
use crate::backend::Call;
use crate::program::{Program, Slot};
use std::collections::HashMap;
use std::fmt::Write;

/// A call that was made before, with the places in the program that decide whether its result still stands.
struct Made {
    at: usize,
    out: Slot,
}

/// Replaces a call by an equal one before it, where the result of that one is still there.
pub fn common(program: &Program) -> Program {
    let calls = program.calls();
    let mut writes_at: Vec<Vec<usize>> = vec![Vec::new(); program.buffers().len()];
    let mut reads_at = writes_at.clone();
    for (i, call) in calls.iter().enumerate() {
        let (reads, writes) = uses(call);
        reads.iter().for_each(|slot| reads_at[slot.buffer].push(i));
        writes.iter().for_each(|slot| writes_at[slot.buffer].push(i));
    }
    // Positions at which memory that a buffer has in common with others is written.
    let disturbed = |buffer: usize, from: usize, until: usize| {
        (0..writes_at.len())
            .filter(|&b| program.alias(buffer, b))
            .any(|b| writes_at[b].iter().any(|&at| at > from && at < until))
    };
    let mut renamed: HashMap<usize, usize> = HashMap::new();
    let mut made: HashMap<String, Made> = HashMap::new();
    let mut kept: Vec<Call<Slot>> = Vec::with_capacity(calls.len());
    for (i, call) in calls.iter().enumerate() {
        let call = call.map(&mut |_, slot| {
            let buffer = renamed.get(&slot.buffer).copied().unwrap_or(slot.buffer);
            Slot { buffer, ..slot.clone() }
        });
        let (reads, writes) = uses(&call);
        let [out] = writes[..] else {
            kept.push(call);
            continue;
        };
        let once = writes_at[out.buffer].len() == 1 && !program.is_result(out.buffer);
        if !is_pure(&call) || reads.iter().any(|slot| slot.buffer == out.buffer) || writes_at[out.buffer].len() != 1 {
            kept.push(call);
            continue;
        }
        let key = key(&call, out);
        if let Some(before) = made.get(&key).filter(|_| once) {
            let last = reads_at[out.buffer].last().copied().unwrap_or(i);
            let inputs_stand = !reads.iter().any(|slot| disturbed(slot.buffer, before.at, i));
            let same_bytes = program.buffers()[before.out.buffer].bytes == program.buffers()[out.buffer].bytes;
            if inputs_stand && same_bytes && !disturbed(before.out.buffer, before.at, last.max(i) + 1) {
                renamed.insert(out.buffer, before.out.buffer);
                continue;
            }
        }
        made.insert(key, Made { at: i, out: out.clone() });
        kept.push(call);
    }
    program.with_calls(kept)
}

/// Everything of a call but the number of its output's buffer.
fn key(call: &Call<Slot>, out: &Slot) -> String {
    let mut key = call.op_name().into_owned();
    call.visit(&mut |access, slot| {
        let buffer = if slot == out { usize::MAX } else { slot.buffer };
        _ = write!(key, "|{access:?} {buffer} {:?} {:?}", slot.layout, slot.dtype);
    });
    // The parameters hold numbers between the views, which the text of the whole call orders.
    let whole = call.map(&mut |_, _| ());
    _ = write!(key, "|{whole:?}");
    key
}
