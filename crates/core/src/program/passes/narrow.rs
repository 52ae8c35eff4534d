//! Gradients of norms in lower dtypes: read as they were before a copy widened them, and written in the lower dtype
//! alone where nobody reads the wide one.

use super::{covers, is_fusing, uses};
use crate::backend::call::RowNormBackward;
use crate::backend::{Call, call};
use crate::program::{Program, Slot};
use crate::{DType, Device};

/// Narrows the operands of gradients of norms, on GPUs. [`dead`](super::dead) removes copies that nobody reads then.
pub fn narrow(program: &Program) -> Program {
    let on_gpu = program.buffers().iter().any(|b| matches!(b.device, Device::Cuda(_)));
    if !is_fusing() || !on_gpu {
        return program.clone();
    }
    let mut calls = program.calls().to_vec();
    for at in 0..calls.len() {
        let Call::RowNormBackward(c) = &calls[at] else { continue };
        let mut narrowed = c.clone();
        narrowed.dx = c.dx.clone().filter(|dx| c.low.is_none() || is_read(program, at, dx));
        if let Some(dy) = unwidened(program, at, &narrowed) {
            narrowed.dy = dy;
        }
        calls[at] = narrowed.into();
    }
    program.with_calls(calls)
}

/// Whether anything but the call at `at` reads a value.
fn is_read(program: &Program, at: usize, value: &Slot) -> bool {
    let reads = |call: &Call<Slot>| uses(call).0.iter().any(|slot| slot.buffer == value.buffer);
    program.is_result(value.buffer) || program.calls().iter().enumerate().any(|(i, call)| i != at && reads(call))
}

/// The half-precision tensor that a copy made the incoming gradient from, if it is still there when the call at `at`
/// runs.
fn unwidened(program: &Program, at: usize, c: &RowNormBackward<Slot>) -> Option<Slot> {
    let writes = |call: &Call<Slot>, buffer: usize| uses(call).1.iter().any(|slot| program.alias(slot.buffer, buffer));
    let calls = program.calls();
    let made = (0..at).rev().find(|&i| writes(&calls[i], c.dy.buffer))?;
    let Call::Copy(call::Copy { src, out }) = &calls[made] else { return None };
    let is_plain = |slot: &Slot| slot.layout.is_contiguous() && slot.layout.numel() == c.dy.layout.numel();
    let is_widened = c.dy.dtype == DType::F32 && matches!(src.dtype, DType::F16 | DType::BF16);
    let is_whole = out.buffer == c.dy.buffer && covers(program, out) && [src, out, &c.dy].into_iter().all(is_plain);
    if !is_widened || !is_whole || calls[made + 1..at].iter().any(|call| writes(call, src.buffer)) {
        return None;
    }
    // A row is read before it is written: results may take the place of the gradient, element by element. Gradients of
    // parameters are sums over all rows, which GPUs write last.
    let stays = |out: &Slot| {
        let in_place = program.place(out.buffer).is_some_and(|place| Some(place) == program.place(src.buffer))
            && out.dtype == src.dtype
            && is_plain(out)
            && out.layout.offset() == src.layout.offset();
        in_place || !program.alias(out.buffer, src.buffer)
    };
    [&c.dx, &c.low].into_iter().flatten().all(stays).then(|| src.clone())
}
