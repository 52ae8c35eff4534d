//! Distances between the rows of two matrices.

use super::array::{Array, apply, product};
use super::per_block;
use crate::backend::{Reduce, View, call};
use crate::{Pointwise, Result};

/// Default body of [`Distances`](call::Distances): norms of all differences, some rows at a time.
pub fn distances(c: &call::Distances<View>) -> Result<()> {
    let (a, b, out) = (Array::of(c.a), Array::of(c.b), Array::of(c.out));
    let &[batch, n, m] = out.shape() else { return Ok(()) };
    let rows = per_block(n, batch * m * a.shape()[2]);
    for from in (0..n).step_by(rows) {
        let count = rows.min(n - from);
        let differences = a.slice(1, from, count).unsqueeze(2).sub(&b.unsqueeze(1))?;
        let norms = differences.reduce(Reduce::Norm { p: c.p }, &[3])?;
        norms.select(3, 0).copy_to(&out.slice(1, from, count))?;
    }
    Ok(())
}

/// Default body of [`Euclidean`](call::Euclidean): one product of rows that carry their squares.
pub fn euclidean(c: &call::Euclidean<View>) -> Result<()> {
    let (a, b, out) = (Array::of(c.a), Array::of(c.b), Array::of(c.out));
    // [x, |x|², 1] and [y, 1, |y|²], with the factor -2 on the left.
    let extended = |x: &Array, factor: f64, square: usize| -> Result<Array<'static>> {
        let &[batch, rows, size] = x.shape() else { return x.copied(x.dtype()) };
        let wide = x.full(&[batch, rows, size + 2], x.dtype(), 1.0)?;
        apply(Pointwise::Mul, &[x.into(), factor.into()], &wide.slice(2, 0, size))?;
        x.square()?.sum(&[2])?.copy_to(&wide.slice(2, size + square, 1))?;
        Ok(wide)
    };
    let (left, right) = (extended(&a, -2.0, 0)?, extended(&b, 1.0, 1)?);
    product(1.0, &left, &right.transpose(1, 2), 0.0, &out)?;
    // Rounding may leave less than nothing.
    apply(Pointwise::Relu, &[(&out).into()], &out)?;
    apply(Pointwise::Sqrt, &[(&out).into()], &out)
}
