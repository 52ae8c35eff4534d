//! Positions of extremes, sorting and binary search.

use super::array::{Array, choose};
use super::execute;
use crate::backend::{ArgReduce, Rank, Reduce, View, call};
use crate::{DType, Dims, Error, Pointwise, Result};
use std::cmp::Ordering;

/// Default body of [`ArgReduce`](call::ArgReduce).
pub fn arg_reduce(c: &call::ArgReduce<View>) -> Result<()> {
    let call::ArgReduce { op, x, dim, values, indices } = *c;
    let (x, values, indices) = (Array::of(x), Array::of(values), Array::of(indices));
    let reduce = match op {
        ArgReduce::Max => Reduce::Max,
        ArgReduce::Min => Reduce::Min,
    };
    let best = x.reduce(reduce, &[dim])?;
    // The maximum of a row with a NaN is NaN, which equals nothing, so every NaN is a hit.
    let hit = x.eq(&best)?.or(&x.ne(&x)?)?;
    let n = x.shape()[dim];
    let mut along: Dims = Dims::from_elem(1, x.shape().len());
    along[dim] = n;
    let places = hit.choose(&x.counting(n)?.reshape(&along)?, n as i64, DType::I64)?;
    best.copy_to(&values)?;
    places.reduce(Reduce::Min, &[dim])?.copy_to(&indices)
}

/// The positions that sort each line along `dim`, of the input's shape. The host sorts the lines.
fn sorted(x: &Array, dim: usize, descending: bool) -> Result<Array<'static>> {
    let mut order: Dims = (0..x.shape().len()).filter(|&d| d != dim).collect();
    order.push(dim);
    let lines = x.permute(&order);
    let n = x.shape()[dim];
    let places = if x.dtype().is_float() {
        // NaN is the largest.
        let compare = |a: &f64, b: &f64| a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
        sort_lines(&lines.copied(DType::F64)?.download()?, n, descending, f64::from_ne_bytes, compare)
    } else {
        sort_lines(&lines.copied(DType::I64)?.download()?, n, descending, i64::from_ne_bytes, i64::cmp)
    };
    let places = x.uploaded(lines.shape(), &places)?;
    // Restores the order of the dimensions.
    let mut back: Dims = (0..order.len()).collect();
    back.sort_unstable_by_key(|&d| order[d]);
    Ok(places.permute(&back))
}

fn sort_lines<T>(
    bytes: &[u8],
    n: usize,
    descending: bool,
    read: impl Fn([u8; 8]) -> T,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Vec<i64> {
    let values: Vec<T> = bytes.as_chunks::<8>().0.iter().map(|b| read(*b)).collect();
    let mut out: Vec<i64> = Vec::with_capacity(values.len());
    for line in values.chunks(n.max(1)) {
        let from = out.len();
        out.extend(0..line.len() as i64);
        // Stable in both directions.
        out[from..].sort_by(|&a, &b| {
            let order = compare(&line[a as usize], &line[b as usize]);
            if descending { order.reverse() } else { order }
        });
    }
    out
}

/// Default body of [`Sort`](call::Sort).
pub fn sort(c: &call::Sort<View>) -> Result<()> {
    let call::Sort { x, dim, descending, values, indices } = *c;
    let (input, out) = (Array::of(x), Array::of(indices));
    if input.numel() == 0 {
        return Ok(());
    }
    if input.shape().is_empty() {
        out.fill(0.0)?;
        return input.copy_to(&Array::of(values));
    }
    let k = out.shape()[dim];
    if k > input.shape()[dim] {
        return Err(Error::index(format!(
            "topk: k = {k} is more than the {} elements along dimension {dim}",
            input.shape()[dim]
        )));
    }
    sorted(&input, dim, descending)?.slice(dim, 0, k).copy_to(&out)?;
    execute(call::Gather { x, dim, index: indices, out: values })
}

/// Default body of [`TopK`](call::TopK).
pub fn topk(c: &call::TopK<View>) -> Result<()> {
    let call::TopK { x, dim, largest, values, indices } = *c;
    sort(&call::Sort { x, dim, descending: largest, values, indices })
}

/// Default body of [`Unique`](call::Unique). The host counts the runs of equal neighbours.
pub fn unique(c: &call::Unique<View>) -> Result<()> {
    let x = Array::of(c.x);
    let n = x.numel();
    let (sorted, order) = (x.uninit(&[n], x.dtype())?, x.uninit(&[n], DType::I64)?);
    let (values, indices) = (sorted.view(), order.view());
    execute(call::Sort { x: x.view(), dim: 0, descending: false, values, indices })?;
    let changes = sorted.slice(0, 1, n - 1).ne(&sorted.slice(0, 0, n - 1))?.copied(DType::I64)?.download()?;
    let order = order.download()?;
    let numbers = |bytes: &[u8]| -> Vec<i64> { bytes.as_chunks().0.iter().map(|b| i64::from_ne_bytes(*b)).collect() };
    let (mut firsts, mut counts, mut inverse) = (vec![0; n], vec![0; n], vec![0; n]);
    let mut last = 0;
    for (place, (at, change)) in numbers(&order).into_iter().zip([0].into_iter().chain(numbers(&changes))).enumerate() {
        if change != 0 {
            last += 1;
            firsts[last] = place as i64;
        }
        counts[last] += 1;
        inverse[at as usize] = last as i64;
    }
    for (numbers, to) in [(&inverse, c.inverse), (&counts, c.counts)] {
        x.uploaded(&[n], numbers)?.copy_to(&Array::of(to).reshape(&[n])?)?;
    }
    x.uploaded(&[1], &[last as i64 + 1])?.copy_to(&Array::of(c.count).reshape(&[1])?)?;
    let firsts = x.uploaded(&[n], &firsts)?;
    execute(call::Gather { x: sorted.view(), dim: 0, index: firsts.view(), out: c.values })
}

/// Default body of [`SearchSorted`](call::SearchSorted).
pub fn searchsorted(c: &call::SearchSorted<View>) -> Result<()> {
    let call::SearchSorted { sorted, values, right, out } = *c;
    let (sorted, values, out) = (Array::of(sorted), Array::of(values), Array::of(out));
    if sorted.dtype() != values.dtype() {
        return Err(Error::dtype(format!(
            "searchsorted: boundaries are {} but values {}; they must have one dtype",
            sorted.dtype(),
            values.dtype()
        )));
    }
    let n = sorted.shape().last().copied().unwrap_or(0);
    if out.numel() == 0 || n == 0 {
        return out.fill(0.0);
    }
    // All values share one row, or each row of values has its own.
    let one_row = sorted.shape().len() == 1;
    let shape: Dims =
        if one_row { [1, values.numel()].into_iter().collect() } else { Dims::from_slice(values.shape()) };
    let sorted = if one_row { sorted.unsqueeze(0) } else { sorted };
    let flat = values.reshape(&shape)?;
    let dim = shape.len() - 1;
    let low = flat.full(&shape, DType::I64, 0.0)?;
    let high = flat.full(&shape, DType::I64, n as f64)?;
    for _ in 0..=n.ilog2() {
        let open = low.lt(&high)?;
        let middle = low.add(&high)?.floor_divide(2i64)?;
        // A search that has ended at the end may read any element.
        let place = open.choose(&middle, 0i64, DType::I64)?;
        let here = flat.uninit(&shape, flat.dtype())?;
        execute(call::Gather { x: sorted.view(), dim, index: place.view(), out: here.view() })?;
        // Written so that a NaN, as the value or in the row, moves the search to the right.
        let stop = if right { flat.lt(&here)? } else { here.ge(&flat)? };
        let above = stop.choose(&low, &middle.add(1i64)?, DType::I64)?;
        let below = stop.choose(&middle, &high, DType::I64)?;
        choose(&open, &above, &low, &low)?;
        choose(&open, &below, &high, &high)?;
    }
    low.reshape(out.shape())?.copy_to(&out)
}

/// Default body of [`Kth`](call::Kth): sorts, then picks.
pub fn kth(c: &call::Kth<View>) -> Result<()> {
    let (x, dim) = (Array::of(c.x), c.dim);
    let n = x.shape()[dim];
    let (sorted, order) = (x.uninit(x.shape(), x.dtype())?, x.uninit(x.shape(), DType::I64)?);
    execute(call::Sort { x: c.x, dim, descending: false, values: sorted.view(), indices: order.view() })?;
    let shape = c.indices.shape();
    // NaN are sorted to the end.
    let numbers = || x.eq(&x)?.copied(DType::I64)?.sum(&[dim]);
    let middle = |count: &Array| {
        let middle = count.sub(1i64)?.floor_divide(2i64)?;
        Array::map(Pointwise::Maximum, &[(&middle).into(), 0i64.into()])
    };
    let place = match c.rank {
        Rank::At(place) => x.full(shape, DType::I64, place as f64)?,
        Rank::NanMedian => middle(&numbers()?)?,
        Rank::Median => {
            let count = numbers()?;
            count.lt(n as i64)?.choose(&count, &middle(&count)?, DType::I64)?
        }
    };
    execute(call::Gather { x: sorted.view(), dim, index: place.view(), out: c.values })?;
    execute(call::Gather { x: order.view(), dim, index: place.view(), out: c.indices })
}
