//! Ranges, gathering along a dimension, and positions of nonzero elements.

use super::array::{Array, apply};
use super::execute;
use crate::backend::{Operand, Scan, Scatter, View, call};
use crate::{DType, Dims, Pointwise, Result};

/// Default body of [`Arange`](call::Arange).
pub fn arange(c: &call::Arange<View>) -> Result<()> {
    let call::Arange { start, step, out } = *c;
    let out = Array::of(out);
    let n = out.numel();
    if n == 0 {
        return Ok(());
    }
    // 0, 1, … by doubling: as many passes as the count has binary digits.
    let count = out.full(&[n], DType::I64, 0.0)?;
    let mut have = 1;
    while have < n {
        let more = have.min(n - have);
        let (from, to) = (count.slice(0, 0, more), count.slice(0, have, more));
        apply(Pointwise::Add, &[(&from).into(), (have as i64).into()], &to)?;
        have += more;
    }
    let count = count.reshape(out.shape())?;
    if out.dtype().is_float() {
        let steps = count.to(DType::F64)?.mul(step.to_f64())?;
        apply(Pointwise::Add, &[(&steps).into(), start.to_f64().into()], &out)
    } else {
        let steps = count.mul(step.to_i64())?;
        apply(Pointwise::Add, &[(&steps).into(), start.to_i64().into()], &out)
    }
}

/// Default body of [`Gather`](call::Gather): indexing with the positions themselves in every
/// dimension but one.
pub fn gather(c: &call::Gather<View>) -> Result<()> {
    let call::Gather { x, dim, index, out } = *c;
    let (x, index, out) = (Array::of(x), Array::of(index), Array::of(out));
    if out.numel() == 0 {
        return Ok(());
    }
    let [x, index, out] = [x, index, out].map(|a| if a.shape().is_empty() { a.unsqueeze(0) } else { a });
    // Indexing counts negative positions from the end; here they are out of range.
    let index = index.lt(0i64)?.choose(&index.sub(x.shape()[dim] as i64)?, &index, DType::I64)?;
    let shape = index.shape();
    let places = (0..shape.len())
        .map(|d| {
            if d == dim {
                return Ok(index.clone());
            }
            let mut along: Dims = Dims::from_elem(1, shape.len());
            along[d] = shape[d];
            index.counting(shape[d])?.reshape(&along)?.expand(shape)
        })
        .collect::<Result<Vec<_>>>()?;
    let views: Vec<View> = places.iter().map(|p| p.view()).collect();
    execute(call::Index { x: x.view(), indices: call::List::from_slice(&views), out: out.view() })
}

/// Default body of [`NonZero`](call::NonZero).
pub fn nonzero(c: &call::NonZero<View>) -> Result<()> {
    let call::NonZero { x, out } = *c;
    let (x, out) = (Array::of(x), Array::of(out));
    let (n, count) = (x.numel(), out.shape()[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let hit = x.ne(0i64)?.reshape(&[n])?;
    let rank = x.uninit(&[n], DType::I64)?;
    execute(call::Scan { op: Scan::Sum, x: hit.copied(DType::I64)?.view(), dim: 0, out: rank.view(), indices: None })?;
    // Each hit is written at its rank, everything else one past the last.
    let place = hit.choose(&rank.sub(1i64)?, count as i64, DType::I64)?;
    let hits = x.full(&[count + 1], DType::I64, 0.0)?;
    let all = x.counting(n)?;
    execute(call::Scatter {
        op: Scatter::Set,
        dim: 0,
        index: place.view(),
        src: Operand::Tensor(all.view()),
        out: hits.view(),
    })?;
    let mut rest = hits.slice(0, 0, count);
    for (d, &size) in x.shape().iter().enumerate().rev() {
        rest.remainder(size as i64)?.copy_to(&out.select(1, d))?;
        rest = rest.floor_divide(size as i64)?;
    }
    Ok(())
}
