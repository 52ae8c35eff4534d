//! Running reductions, in as many passes as the length has binary digits: each combines a range with the one before it.

use super::array::{Array, choose};
use crate::backend::{Scan, View, call};
use crate::{DType, Error, Result};

/// Default body of [`Scan`](call::Scan).
pub fn scan(c: &call::Scan<View>) -> Result<()> {
    let call::Scan { op, x, dim, out, indices } = *c;
    let (x, out) = (at_least_1d(Array::of(x)), at_least_1d(Array::of(out)));
    let integral = !x.dtype().is_float();
    if out.dtype() != x.dtype() && !(integral && out.dtype() == DType::I64) {
        return Err(Error::dtype(format!(
            "scan: {} into {} is not supported; convert the input first",
            x.dtype(),
            out.dtype()
        )));
    }
    if out.numel() == 0 {
        return Ok(());
    }
    match (op, indices) {
        (Scan::Max | Scan::Min, Some(indices)) => {
            return best(op == Scan::Max, &x, dim, &out, &at_least_1d(Array::of(indices)));
        }
        (Scan::Max | Scan::Min, None) => {
            return Err(Error::value("a running maximum or minimum needs a tensor for the indices"));
        }
        (Scan::LogSumExp, _) if integral => {
            return Err(Error::dtype(format!("logcumsumexp needs a floating dtype, got {}", x.dtype())));
        }
        _ => {}
    }
    // Wide enough for ranges whose product or sum exceeds that of the prefixes.
    let now = x.copied(if integral { DType::I64 } else { DType::F64 })?;
    let sums = doubling(dim, [now], |[before], [here], [next]| {
        let joined = match op {
            Scan::Prod => before.mul(here)?,
            Scan::LogSumExp => before.logaddexp(here)?,
            _ => before.add(here)?,
        };
        joined.copy_to(next)
    })?;
    sums[0].copy_to(&out)
}

/// Running extremes and the index of the last of equals; NaN stays NaN.
fn best(largest: bool, x: &Array, dim: usize, out: &Array, indices: &Array) -> Result<()> {
    let mut along = crate::Dims::from_elem(1, x.shape().len());
    along[dim] = x.shape()[dim];
    let places = x.uninit(x.shape(), DType::I64)?;
    x.counting(x.shape()[dim])?.reshape(&along)?.copy_to(&places)?;
    let [values, places] = doubling(dim, [x.copied(x.dtype())?, places], |before, here, next| {
        let [low, high] = if largest { [before[0], here[0]] } else { [here[0], before[0]] };
        let later = high.ge(low)?.or(&here[0].ne(here[0])?)?;
        choose(&later, here[0], before[0], next[0])?;
        choose(&later, here[1], before[1], next[1])
    })?;
    values.copy_to(out)?;
    places.copy_to(indices)
}

/// Combines each position of contiguous arrays with the one 1, 2, 4, … before it: `join(before, here, next)`.
fn doubling<const N: usize>(
    dim: usize,
    mut now: [Array<'static>; N],
    join: impl Fn([&Array; N], [&Array; N], [&Array; N]) -> Result<()>,
) -> Result<[Array<'static>; N]> {
    let n = now[0].shape()[dim];
    let mut step = 1;
    while step < n {
        let mut next = now.clone();
        for (next, now) in next.iter_mut().zip(&now) {
            *next = now.copied(now.dtype())?;
        }
        let before = now.each_ref().map(|a| a.slice(dim, 0, n - step));
        let here = now.each_ref().map(|a| a.slice(dim, step, n - step));
        let out = next.each_ref().map(|a| a.slice(dim, step, n - step));
        join(before.each_ref(), here.each_ref(), out.each_ref())?;
        now = next;
        step *= 2;
    }
    Ok(now)
}

fn at_least_1d(x: Array) -> Array {
    if x.shape().is_empty() { x.unsqueeze(0) } else { x }
}
