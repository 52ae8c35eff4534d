//! Products and convolutions with constant weights: packed; convolutions with the addition and the ReLU that follow,
//! channels last in between.

use super::{covers, uses};
use crate::backend::call::{self, MatMul, Operand};
use crate::backend::{Call, Conv, Packed};
use crate::program::{Program, Slot};
use crate::{DType, Layout, Pointwise};

/// What multiplies by a weight.
pub enum Use<'a> {
    /// A convolution.
    Conv(&'a Conv),
    /// A product of a matrix of this many rows and the weight, `[k, n]`.
    Product(usize),
}

/// Replaces products of matrices and convolutions of images by packed ones, where `packed` gives their weights in the
/// engine's layout: weights that no call writes and that nobody changes between runs.
///
/// An addition of another image and a ReLU that follow are computed with a convolution. Images that only packed
/// convolutions use get their channels innermost. Programs over fixed memory stay as they are.
pub fn pack(program: &Program, mut packed: impl FnMut(Use, &Slot) -> Option<Packed>) -> Program {
    let mut calls: Vec<Option<Call<Slot>>> = program.calls().iter().cloned().map(Some).collect();
    let mut written = vec![false; program.buffers().len()];
    program.calls().iter().for_each(|call| uses(call).1.iter().for_each(|slot| written[slot.buffer] = true));
    let is_fixed = |slot: &Slot| program.place(slot.buffer).is_some() || written[slot.buffer];
    let mut found = false;
    for at in 0..calls.len() {
        if let Some(Call::MatMul(c)) = &calls[at]
            && !is_fixed(&c.b)
            && let Some(made) = product(c, &mut packed)
        {
            calls[at] = Some(made.into());
            found = true;
            continue;
        }
        let Some(Call::ConvForward(c)) = &calls[at] else { continue };
        if is_fixed(&c.w) || !is_image(&c.x) || !is_image(&c.y) || !covers(program, &c.y) {
            continue;
        }
        let Some(packed) = packed(Use::Conv(&c.spec), &c.w) else { continue };
        let (x, w, bias, y) = (c.x.clone(), c.w.clone(), c.bias.clone(), c.y.clone());
        let made = call::ConvPacked { spec: c.spec, packed, relu: false, x, w, bias, addend: None, y };
        calls[at] = None;
        let (made, at) = with_followers(program, &mut calls, made, at);
        calls[at] = Some(made.into());
        found = true;
    }
    if !found {
        return program.clone();
    }
    let mut calls: Vec<Call<Slot>> = calls.into_iter().flatten().collect();
    put_channels_last(program, &mut calls);
    program.with_calls(calls)
}

/// A product of contiguous matrices with one weight, packed; the rows of a batch are those of one matrix.
fn product(
    c: &MatMul<Slot>,
    packed: &mut impl FnMut(Use, &Slot) -> Option<Packed>,
) -> Option<call::PackedMatMul<Slot>> {
    let slots = [Some(&c.a), Some(&c.b), Some(&c.out), c.bias.as_ref()];
    let &[batch, m, k] = c.a.layout.shape() else { return None };
    let is_shared = batch == 1 || c.b.layout.strides()[0] == 0;
    if c.alpha != 1.0 || !is_shared || slots.into_iter().flatten().any(|slot| slot.dtype != DType::F32) {
        return None;
    }
    let (rows, n) = (batch * m, c.out.layout.shape()[2]);
    let matrix = |slot: &Slot, columns: usize| {
        let layout = Layout::contiguous(&[rows, columns]).ok()?.with_offset(slot.layout.offset());
        slot.layout.is_contiguous().then(|| Slot { layout, ..slot.clone() })
    };
    let (a, out) = (matrix(&c.a, k)?, matrix(&c.out, n)?);
    let b = Slot { layout: c.b.layout.select(0, 0), ..c.b.clone() };
    let packed = packed(Use::Product(rows), &b)?;
    Some(call::PackedMatMul { packed, beta: c.beta, activation: c.activation, a, b, bias: c.bias.clone(), out })
}

/// Whether a view is a contiguous image of `f32`.
fn is_image(slot: &Slot) -> bool {
    slot.dtype == DType::F32 && slot.layout.rank() == 4 && slot.layout.is_contiguous() && slot.layout.numel() > 0
}

/// Takes the addition and the ReLU that use a convolution's result out of the program, and returns the convolution that
/// computes them too, with its new place.
fn with_followers(
    program: &Program,
    calls: &mut [Option<Call<Slot>>],
    mut made: call::ConvPacked<Slot>,
    mut at: usize,
) -> (call::ConvPacked<Slot>, usize) {
    while !made.relu {
        let touches = |call: &Option<Call<Slot>>, buffer: usize| {
            let mut found = false;
            if let Some(call) = call {
                call.visit(&mut |_, slot| found |= program.alias(slot.buffer, buffer));
            }
            found
        };
        let Some(next) = (at + 1..calls.len()).find(|&i| touches(&calls[i], made.y.buffer)) else { break };
        let Some(Call::Pointwise(c)) = &calls[next] else { break };
        let tensors: Vec<&Slot> = c
            .inputs
            .iter()
            .filter_map(|operand| match operand {
                Operand::Tensor(slot) => Some(slot),
                Operand::Scalar(_) => None,
            })
            .collect();
        let addend = match (c.op, &tensors[..]) {
            (Pointwise::Relu, [x]) if **x == made.y => None,
            (Pointwise::Add, [a, b]) if made.addend.is_none() && **a == made.y && a.buffer != b.buffer => Some(*b),
            (Pointwise::Add, [a, b]) if made.addend.is_none() && **b == made.y && a.buffer != b.buffer => Some(*a),
            _ => break,
        };
        let is_whole = c.out.layout == made.y.layout && is_image(&c.out) && covers(program, &c.out);
        let in_place = c.out.buffer == made.y.buffer;
        let is_last = in_place
            || !(program.is_result(made.y.buffer) || calls[next + 1..].iter().any(|call| touches(call, made.y.buffer)));
        if c.compute != DType::F32 || !is_whole || !is_last {
            break;
        }
        if addend.is_some_and(|slot| slot.layout != made.y.layout || !is_image(slot)) {
            break;
        }
        // The convolution moves to the place of the follower: what it reads must still be there, and its result must
        // not have been something else before.
        let inputs = [Some(&made.x), Some(&made.w), made.bias.as_ref(), made.addend.as_ref(), addend];
        let reads: Vec<usize> = inputs.into_iter().flatten().map(|slot| slot.buffer).collect();
        let moves = calls[at + 1..next].iter().flatten().all(|call| {
            let writes = uses(call).1;
            !writes.iter().any(|slot| reads[..reads.len() - usize::from(addend.is_some())].contains(&slot.buffer))
        });
        let is_free = in_place || !calls[at + 1..next].iter().any(|call| touches(call, c.out.buffer));
        if !moves || !is_free || reads.contains(&c.out.buffer) {
            break;
        }
        (made.relu, made.y) = (c.op == Pointwise::Relu, c.out.clone());
        if let Some(slot) = addend {
            made.addend = Some(slot.clone());
        }
        calls[next] = None;
        at = next;
    }
    (made, at)
}

/// Gives images that packed convolutions alone write and read their channels innermost.
fn put_channels_last(program: &Program, calls: &mut [Call<Slot>]) {
    let mut layouts: Vec<Option<Layout>> = vec![None; program.buffers().len()];
    for call in calls.iter() {
        if let Call::ConvPacked(c) = call
            && !program.is_result(c.y.buffer)
        {
            layouts[c.y.buffer] = Layout::channels_last(c.y.layout.shape()).ok();
        }
    }
    for call in calls.iter() {
        call.visit(&mut |_, slot| {
            let shape = layouts[slot.buffer].as_ref().map(|layout| layout.shape() == slot.layout.shape());
            let is_image =
                matches!(call, Call::ConvPacked(c) if *slot != c.w) && is_image(slot) && covers(program, slot);
            if shape == Some(false) || !is_image {
                layouts[slot.buffer] = None;
            }
        });
    }
    for call in calls.iter_mut() {
        *call = call.map(&mut |_, slot| match &layouts[slot.buffer] {
            Some(layout) => Slot { layout: layout.clone(), ..slot.clone() },
            None => slot.clone(),
        });
    }
}
