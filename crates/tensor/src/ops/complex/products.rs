//! Products and quotients of complex numbers and matrices.

use crate::Tensor;
use crate::autograd::{Saved, no_grad, record, recording};
use rushlight_core::backend::{Complex, call};
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{Dims, Result};

/// The engine's op on numbers of one dtype, not recorded.
fn combine(name: &str, op: Complex, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.same_device(b, name)?;
    let shape = broadcast_shapes(a.shape(), b.shape()).map_err(|e| e.within(name))?;
    let out = a.uninit_like(&shape, a.dtype())?;
    if out.numel() == 0 {
        return Ok(out);
    }
    no_grad(|| {
        let dense = |t: &Tensor| match t.numel() {
            1 => t.detach().contiguous()?.pairs(),
            _ => t.detach().expand(&shape)?.contiguous()?.pairs(),
        };
        let (a, b, pairs) = (dense(a)?, dense(b)?, out.pairs()?);
        pairs.run(call::Complex { op, a: a.engine_view(), b: b.engine_view(), out: pairs.engine_view() })
    })?;
    Ok(out)
}

/// `a b`, `a conj(b)` or `a / b` of numbers of one dtype, recorded.
pub(super) fn combined(name: &'static str, op: Complex, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let out = combine(name, op, a, b)?;
    if recording(&[a, b]) {
        let shapes = [a, b].map(|t| Dims::from_slice(t.shape()));
        let keep_a = b.requires_grad() && op != Complex::Div;
        let keep_y = b.requires_grad() && op == Complex::Div;
        let (kept_a, kept_b) = (keep_a.then(|| Saved::input(a)), Saved::input(b));
        let kept_y = keep_y.then(|| Saved::output(&out, 0));
        record(name, &[a, b], &out, move |ctx, g| {
            let b = ctx.get(&kept_b)?;
            // `g / conj(b)` is a factor of both gradients of a quotient.
            let scaled = if op == Complex::Div { Some(combined("div", Complex::Div, g, &b.conj()?)?) } else { None };
            let da = match (&scaled, op) {
                _ if !ctx.needs(0) => None,
                (Some(scaled), _) => Some(scaled.clone()),
                (None, Complex::Mul) => Some(combined("mul", Complex::MulConj, g, &b)?),
                (None, _) => Some(combined("mul", Complex::Mul, g, &b)?),
            };
            let db = match (&kept_a, &kept_y, &scaled) {
                _ if !ctx.needs(1) => None,
                (_, Some(y), Some(scaled)) => Some(combined("mul", Complex::MulConj, scaled, &ctx.get(y)?)?.neg()?),
                (Some(a), ..) if op == Complex::Mul => Some(combined("mul", Complex::MulConj, g, &ctx.get(a)?)?),
                (Some(a), ..) => Some(combined("mul", Complex::MulConj, &ctx.get(a)?, g)?),
                _ => None,
            };
            let [first, second] = &shapes;
            Ok(smallvec![da.map(|d| d.sum_to_size(first)).transpose()?, db.map(|d| d.sum_to_size(second)).transpose()?])
        })?;
    }
    Ok(out)
}

/// `a` times the conjugate of `b`; the product of real numbers.
pub(crate) fn conjugate_product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match (a.is_complex(), b.is_complex()) {
        (true, true) if a.dtype() == b.dtype() => combined("mul", Complex::MulConj, a, b),
        _ => a.mul(&b.conj()?),
    }
}

/// The product of matrices of complex numbers, with equal batch sizes; not recorded.
pub(crate) fn matrix_product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    no_grad(|| {
        let rank = a.rank();
        let (a, b) = (a.detach().contiguous()?, b.detach().contiguous()?);
        let mut shape = Dims::from_slice(a.shape());
        shape[rank - 1] = b.shape()[rank - 1];
        let out = a.uninit_like(&shape, a.dtype())?;
        if out.numel() == 0 {
            return Ok(out);
        }
        let matrices = |t: &Tensor| {
            let (batch, matrix) = t.shape().split_at(rank - 2);
            t.as_reals(&[batch.iter().product(), matrix[0], matrix[1], 2])
        };
        let (a, b, reals) = (matrices(&a)?, matrices(&b)?, matrices(&out)?);
        let [a, b, c] = [&a, &b, &reals].map(Tensor::engine_view);
        reals.run(call::Complex { op: Complex::Product, a, b, out: c })?;
        Ok(out)
    })
}
