//! Lists of tensors changed in one parallel pass: optimizer steps, and scaling with a check for values that are not
//! finite.
//!
//! Tensors are split into pieces that the pool's threads take dynamically, so many small ones cost no more than a few
//! large ones. An element's result does not depend on where a piece begins: results do not depend on the number of
//! threads.

mod kernel;

use crate::float::{Float, Scratch, expect, narrow, widen, with_float};
use crate::pool;
use kernel::{BLOCK, Factors};
use rushlight_core::backend::{Operand, ParamUpdate};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{Error, Result, View, with_dtype};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Elements per piece.
pub const PIECE: usize = 1 << 16;
/// Fewer elements than this, in all tensors together, use one thread.
const FEW: usize = 1 << 15;

/// Calls `f(tensor, start, end)` for pieces that cover all elements of tensors of the given sizes.
fn each_piece(sizes: impl Iterator<Item = usize> + Clone, f: impl Fn(usize, usize, usize) + Sync) {
    if sizes.clone().sum::<usize>() <= FEW {
        for (i, size) in sizes.enumerate() {
            f(i, 0, size);
        }
        return;
    }
    // Cumulative number of pieces of the tensors.
    let mut pieces = 0;
    let ends: SmallVec<[(usize, usize); 64]> = sizes
        .map(|size| {
            pieces += size.div_ceil(PIECE);
            (pieces, size)
        })
        .collect();
    pool::parallel_for(pieces, |piece| {
        let i = ends.partition_point(|&(end, _)| end <= piece);
        let (end, size) = ends[i];
        let start = (piece + size.div_ceil(PIECE) - end) * PIECE;
        f(i, start, (start + PIECE).min(size));
    });
}

/// The value of a one-element operand.
fn number(op: &str, operand: Operand) -> Result<f64> {
    match operand {
        Operand::Scalar(s) => Ok(s.to_f64()),
        Operand::Tensor(v) if v.numel() == 1 => {
            // SAFETY: a view of one element begins with it.
            Ok(with_dtype!(v.dtype(), T => rushlight_core::Element::to_f64(unsafe { v.ptr().cast::<T>().read() })))
        }
        Operand::Tensor(v) => {
            Err(Error::shape(format!("{op}: a factor must have one element, this one has shape {:?}", v.shape())))
        }
    }
}

/// Runs a checked update on a piece, from element `start` to `end`.
type Run = unsafe fn(update: &ParamUpdate, grad_scale: f64, start: usize, end: usize);

/// The kernel for an update, after checking its views.
fn check(update: &ParamUpdate) -> Result<Run> {
    let (dtype, numel) = (update.param.dtype(), update.param.numel());
    expect("update", "the parameter", &update.param, dtype, numel)?;
    expect("update", "the gradient", &update.grad, dtype, numel)?;
    if !update.rule.fits(update.present()) {
        return Err(update.misfit());
    }
    for state in update.state.iter().flatten() {
        expect("update", "the state", state, dtype, numel)?;
    }
    with_float!("update", dtype, T => Ok(run::<T> as Run))
}

unsafe fn run<T: Float>(update: &ParamUpdate, grad_scale: f64, start: usize, end: usize) {
    let factors = Factors {
        grad: if update.maximize { -grad_scale } else { grad_scale },
        weight_decay: update.weight_decay,
        shrink: update.shrink,
        rule: update.rule,
    };
    let at = |view: View| view.ptr().cast::<T>().wrapping_add(start);
    let (param, grad, state) = (at(update.param), at(update.grad), update.state.map(|s| s.map(at)));
    let n = end - start;
    if T::WIDE {
        // SAFETY: by `check`, all views have the elements `start..end` of `T`, which is its own compute type.
        return unsafe {
            kernel::update::<T::Acc>(factors, param.cast(), grad.cast(), state.map(|s| s.map(|s| s.cast())), n)
        };
    }
    // The kernel is compiled for wide types only: half types are converted in blocks.
    let mut scratch: [Scratch<T::Acc, BLOCK>; 5] = std::array::from_fn(|_| Scratch::new());
    let [wide_param, wide_grad, wide_state @ ..] = scratch.each_mut().map(|s| s.as_mut_ptr());
    for from in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - from);
        // SAFETY: a block of at most `BLOCK` within `start..end`.
        unsafe {
            widen(param.add(from), wide_param, len);
            widen(grad.add(from), wide_grad, len);
            for (state, wide) in state.iter().zip(wide_state) {
                if let Some(state) = state {
                    widen(state.add(from), wide, len);
                }
            }
            let wide = std::array::from_fn(|k| state[k].map(|_| wide_state[k]));
            kernel::update(factors, wide_param, wide_grad, wide, len);
            narrow(wide_param, param.add(from), len);
            for (state, wide) in state.iter().zip(wide_state) {
                if let Some(state) = state {
                    narrow(wide, state.add(from), len);
                }
            }
        }
    }
}

/// An optimizer's step.
pub fn update(updates: &[ParamUpdate], grad_scale: Operand) -> Result<()> {
    let grad_scale = number("update", grad_scale)?;
    let runs: SmallVec<[Run; 32]> = updates.iter().map(check).collect::<Result<_>>()?;
    each_piece(updates.iter().map(|u| u.param.numel()), |i, start, end| {
        // SAFETY: `check` chose the kernel for this update, and pieces are within their tensor.
        unsafe { runs[i](&updates[i], grad_scale, start, end) }
    });
    Ok(())
}

/// `x *= factor` for all; `found_inf` becomes 1 if an element was not finite.
pub fn foreach_scale(factor: Option<Operand>, xs: &[View], found_inf: Option<View>) -> Result<()> {
    let factor = factor.map(|f| number("foreach_scale", f)).transpose()?;
    if factor.is_none_or(|f| f == 1.0) && found_inf.is_none() {
        return Ok(());
    }
    type Scale = unsafe fn(View, Option<f64>, usize, usize) -> bool;
    unsafe fn scale<T: Float>(x: View, factor: Option<f64>, start: usize, end: usize) -> bool {
        // SAFETY: by the checks below, the view has the elements `start..end` of `T`.
        unsafe { kernel::scale(factor, x.ptr().cast::<T>().wrapping_add(start), end - start) }
    }
    let runs: SmallVec<[Scale; 32]> = xs
        .iter()
        .map(|x| {
            expect("foreach_scale", "a tensor", x, x.dtype(), x.numel())?;
            with_float!("foreach_scale", x.dtype(), T => Ok(scale::<T> as Scale))
        })
        .collect::<Result<_>>()?;
    if let Some(found) = &found_inf {
        expect("foreach_scale", "found_inf", found, rushlight_core::DType::F32, 1)?;
    }
    let finite = AtomicBool::new(true);
    each_piece(xs.iter().map(|x| x.numel()), |i, start, end| {
        // SAFETY: the kernel was chosen for this view, and pieces are within it.
        if !unsafe { runs[i](xs[i], factor, start, end) } {
            finite.store(false, Relaxed);
        }
    });
    if let Some(found) = found_inf
        && !finite.into_inner()
    {
        // SAFETY: one `f32`, checked above.
        unsafe { found.ptr().cast::<f32>().write(1.0) };
    }
    Ok(())
}
