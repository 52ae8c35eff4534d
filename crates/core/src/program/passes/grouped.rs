//! Keys and values that are repeated for the heads that share them: attention reads them once.
//!
//! Models with fewer heads of keys and values repeat these (`repeat_interleave`, or `expand` and `reshape`) so that
//! there are as many as queries. Attention has no need of it. The copy then has one of each, in the memory of the
//! repeated ones, and gradients are summed by attention instead of a reduction.

use super::fuse::same_elements;
use super::{covers, is_fusing, uses};
use crate::backend::call::{self, Marks};
use crate::backend::{AttentionInputs, Call, Reduce};
use crate::program::{Program, Slot};
use crate::{DType, Device, Dims, Layout};
use std::collections::HashMap;

/// Keys or values as they are once they are not repeated.
struct Repeated {
    /// The call that repeats them.
    copy: usize,
    src: Layout,
    out: Layout,
}

/// Lets attention share heads of keys and values that a copy repeats: half types on GPUs that write gradients of any
/// strides. For other dtypes kernels with a head of keys for each of queries are faster.
pub fn grouped(program: &Program) -> Program {
    if !is_fusing() || !program.buffers().iter().any(|b| matches!(b.device, Device::Cuda(_))) {
        return program.clone();
    }
    let mut reads_at = vec![Vec::new(); program.buffers().len()];
    let mut writes_at = reads_at.clone();
    for (i, call) in program.calls().iter().enumerate() {
        let (reads, writes) = uses(call);
        reads.iter().for_each(|slot| reads_at[slot.buffer].push(i));
        writes.iter().for_each(|slot| writes_at[slot.buffer].push(i));
    }
    let mut found: HashMap<usize, Repeated> = HashMap::new();
    for (i, call) in program.calls().iter().enumerate() {
        let Call::Copy(c) = call else { continue };
        let alone = writes_at[c.out.buffer] == [i] && !program.is_result(c.out.buffer) && covers(program, &c.out);
        if let Some(repeated) = Repeated::of(i, c).filter(|_| alone) {
            found.insert(c.out.buffer, repeated);
        }
    }
    // Both operands of an attention are shared by as many heads, or neither, and so everywhere.
    loop {
        let bad = |(&buffer, repeated): (&usize, &Repeated)| {
            let suits = |&i: &usize| {
                let calls = program.calls();
                let Some(inputs) = attention(&calls[i]) else { return false };
                let heads = |slot: &Slot| Some(found.get(&slot.buffer)?.out.shape()[1]);
                let shared = heads(&inputs.k).is_some_and(|n| heads(&inputs.v) == Some(n));
                let read = |slot: &&Slot| slot.buffer == buffer;
                let whole = |slot: &Slot| slot.layout.is_contiguous() && slot.layout.rank() == 4;
                let reads = uses(&calls[i]).0.into_iter().filter(read).count();
                let own = [&inputs.k, &inputs.v].into_iter().filter(read).filter(|slot| whole(slot)).count();
                shared && reads == own && sums(program, &reads_at, i, repeated.out.shape()[1]).is_some()
            };
            reads_at[buffer].is_empty() || !reads_at[buffer].iter().all(suits)
        };
        let bad: Vec<usize> = found.iter().filter(|entry| bad(*entry)).map(|entry| *entry.0).collect();
        if bad.is_empty() {
            break;
        }
        bad.iter().for_each(|buffer| _ = found.remove(buffer));
    }
    if found.is_empty() {
        return program.clone();
    }
    let mut calls = program.calls().to_vec();
    for (buffer, repeated) in &found {
        if let Call::Copy(c) = &mut calls[repeated.copy] {
            c.src.layout = repeated.src.clone();
            c.out.layout = repeated.out.clone();
        }
        for &i in &reads_at[*buffer] {
            let kv_heads = repeated.out.shape()[1];
            let sums = sums(program, &reads_at, i, kv_heads).unwrap_or_default();
            let inputs = match &mut calls[i] {
                Call::Attention(c) => &mut c.of,
                Call::AttentionBackward(c) => {
                    for gradient in [&mut c.dk, &mut c.dv] {
                        gradient.layout = gradient.layout.slice(1, 0, kv_heads, 1);
                    }
                    &mut c.of
                }
                _ => continue,
            };
            for operand in [&mut inputs.k, &mut inputs.v].into_iter().filter(|slot| slot.buffer == *buffer) {
                operand.layout = repeated.out.clone();
            }
            for at in sums {
                if let Call::Reduce(c) = &calls[at] {
                    // Without the heads that shared one, which attention has summed up. Their places hold nothing.
                    let heads = c.x.layout.select(2, 0);
                    let strides: Dims = [0, 1, 2, 3].map(|d| step(&c.x.layout, d)).into_iter().collect();
                    let Ok(layout) = Layout::strided(heads.shape(), &strides, heads.offset()) else { continue };
                    let src = Slot { layout: layout.unsqueeze(2), ..c.x.clone() };
                    calls[at] = call::Copy { src, out: c.out.clone() }.into();
                }
            }
        }
    }
    program.with_calls(calls)
}

/// The stride of dimension `d` of `[batch, kv_heads, s, d]` in gradients that lie as those of all heads did, where
/// `repeated` is `[batch, kv_heads, heads for each, s, d]` of these.
fn step(repeated: &Layout, d: usize) -> usize {
    repeated.strides()[[0, 2, 3, 4][d]]
}

impl Repeated {
    /// A copy to `[batch, kv_heads, heads for each, s, d]` that repeats over the third dimension.
    fn of(copy: usize, c: &call::Copy<Slot>) -> Option<Self> {
        let (src, out) = (&c.src.layout, &c.out.layout);
        let repeats = out.rank() == 5 && out.is_contiguous() && out.shape()[2] > 1 && src.strides()[2] == 0;
        let half = matches!(c.out.dtype, DType::F16 | DType::BF16);
        if !repeats || !half || c.src.dtype != c.out.dtype || out.numel() == 0 {
            return None;
        }
        // In the order that the source has in memory, so that the copy may join the calls that make it.
        let src = src.select(2, 0);
        let order = src.memory_order();
        let back: Dims = (0..order.len()).filter_map(|d| order.iter().position(|&o| o == d)).collect();
        let shape: Dims = order.iter().map(|&d| src.shape()[d]).collect();
        let out = Layout::contiguous(&shape).ok()?.permute(&back);
        Some(Self { copy, src, out })
    }
}

fn attention(call: &Call<Slot>) -> Option<&AttentionInputs<Slot>> {
    match call {
        Call::Attention(c) => Some(&c.of),
        Call::AttentionBackward(c) => Some(&c.of),
        _ => None,
    }
}

/// The reductions that sum up gradients of keys and values over the heads that share them, none after a forward pass;
/// `None` if anything else reads these gradients.
fn sums(program: &Program, reads_at: &[Vec<usize>], at: usize, kv_heads: usize) -> Option<Vec<usize>> {
    let Call::AttentionBackward(c) = &program.calls()[at] else { return Some(Vec::new()) };
    let mut found = Vec::new();
    for gradient in [&c.dk, &c.dv] {
        let layout = &gradient.layout;
        let (&[batch, heads, s, d], &[sb, sh, ss, sd]) = (layout.shape(), layout.strides()) else { return None };
        if program.is_result(gradient.buffer) || !heads.is_multiple_of(kv_heads) {
            return None;
        }
        let group = heads / kv_heads;
        let by_group = Layout::strided(&[batch, kv_heads, group, s, d], &[sb, sh * group, sh, ss, sd], layout.offset());
        let by_group = by_group.ok()?;
        let own = |x: &Slot| x.buffer == gradient.buffer && !x.layout.is_apart(layout);
        let reads = |&&i: &&usize| i > at && uses(&program.calls()[i]).0.into_iter().any(own);
        let [sum] = reads_at[gradient.buffer].iter().filter(reads).copied().collect::<Vec<_>>()[..] else {
            return None;
        };
        let Call::Reduce(r) = &program.calls()[sum] else { return None };
        let over_group: Marks = [false, false, true, false, false].into_iter().collect();
        let is_sum = r.op == Reduce::Sum && r.reduced == over_group && r.out.dtype == r.x.dtype;
        if !is_sum || !same_elements(&r.x.layout, &by_group) || r.x.dtype != gradient.dtype {
            return None;
        }
        found.push(sum);
    }
    Some(found)
}
