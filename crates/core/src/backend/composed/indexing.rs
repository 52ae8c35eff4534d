//! Ranges, gathering along a dimension, and positions of nonzero elements.

use super::array::{Array, apply};
use crate::backend::{Operand, Reduce, Scan, Scatter, View};
use crate::{DType, Dims, Pointwise, Result, Scalar};

/// Default body of [`Backend::arange`](crate::Backend::arange).
pub fn arange(start: Scalar, step: Scalar, out: View) -> Result<()> {
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

/// Default body of [`Backend::gather`](crate::Backend::gather): indexing with the positions themselves in every
/// dimension but one.
pub fn gather(x: View, dim: usize, index: View, out: View) -> Result<()> {
    let (x, index, out) = (Array::of(x), Array::of(index), Array::of(out));
    if out.numel() == 0 {
        return Ok(());
    }
    let [x, index, out] = [x, index, out].map(|a| if a.shape().is_empty() { a.unsqueeze(0) } else { a });
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
    x.engine().index(x.view(), &views, out.view())
}

/// Default body of [`Backend::count_nonzero`](crate::Backend::count_nonzero).
pub fn count_nonzero(x: View) -> Result<usize> {
    let x = Array::of(x);
    let dims: Dims = (0..x.shape().len()).collect();
    let count = x.reduce(Reduce::CountNonzero, &dims)?.download()?;
    let count = count.as_chunks::<8>().0.first().map_or(0, |bytes| i64::from_ne_bytes(*bytes));
    Ok(count as usize)
}

/// Default body of [`Backend::nonzero`](crate::Backend::nonzero).
pub fn nonzero(x: View, out: View) -> Result<()> {
    let (x, out) = (Array::of(x), Array::of(out));
    let (n, count) = (x.numel(), out.shape()[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let hit = x.ne(0i64)?.reshape(&[n])?;
    let rank = x.uninit(&[n], DType::I64)?;
    x.engine().scan(Scan::Sum, hit.copied(DType::I64)?.view(), 0, rank.view(), None)?;
    // Each hit is written at its rank, everything else one past the last.
    let place = hit.choose(&rank.sub(1i64)?, count as i64, DType::I64)?;
    let hits = x.full(&[count + 1], DType::I64, 0.0)?;
    let all = x.counting(n)?;
    x.engine().scatter(Scatter::Set, 0, place.view(), Operand::Tensor(all.view()), hits.view())?;
    let mut rest = hits.slice(0, 0, count);
    for (d, &size) in x.shape().iter().enumerate().rev() {
        rest.remainder(size as i64)?.copy_to(&out.select(1, d))?;
        rest = rest.floor_divide(size as i64)?;
    }
    Ok(())
}
