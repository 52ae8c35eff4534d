//! Reversed, padded and resized planes.

use super::array::{Array, apply};
use super::execute;
use crate::backend::{ResampleAxis, Sampling, View, call};
use crate::{DType, Dims, Pointwise, Result, Scalar};

/// Positions along dimension `d` of an index of this rank, expanded to a shape.
fn along(places: Array<'static>, d: usize, shape: &[usize]) -> Result<Array<'static>> {
    let mut own: Dims = Dims::from_elem(1, shape.len());
    own[d] = shape[d];
    places.reshape(&own)?.expand(shape)
}

/// Default body of [`Flip`](call::Flip): indexing with descending positions.
pub fn flip(c: &call::Flip<View>) -> Result<()> {
    let (x, out) = (Array::of(c.x), Array::of(c.out));
    let flipped: Dims = (0..c.flipped.len()).filter(|&d| c.flipped[d]).collect();
    if out.numel() == 0 {
        return Ok(());
    }
    if flipped.is_empty() {
        return x.copy_to(&out);
    }
    let order: Dims = flipped.iter().copied().chain((0..c.flipped.len()).filter(|&d| !c.flipped[d])).collect();
    let (x, out) = (x.permute(&order), out.permute(&order));
    let shape = Dims::from_slice(&x.shape()[..flipped.len()]);
    let places = (0..shape.len())
        .map(|d| along(x.counting(shape[d])?.mul(-1i64)?.add(shape[d] as i64 - 1)?, d, &shape))
        .collect::<Result<Vec<_>>>()?;
    let indices = places.iter().map(|p| p.view()).collect();
    execute(call::Index { x: x.view(), indices, out: out.view() })
}

/// Default body of [`PadFrom`](call::PadFrom): the elements at their place, then one plane after the other.
pub fn pad_from(c: &call::PadFrom<View>) -> Result<()> {
    let (x, out) = (Array::of(c.x), Array::of(c.out));
    let first = x.shape().len() - c.sources.len();
    // Where the whole of `x` lies in a padded dimension, if it does.
    let body = |d: usize, sources: &[usize]| {
        let size = x.shape()[first + d];
        (0..(sources.len() + 1).saturating_sub(size)).find(|&at| (0..size).all(|i| sources[at + i] == i))
    };
    let starts: Option<Dims> = c.sources.iter().enumerate().map(|(d, sources)| body(d, sources)).collect();
    let Some(starts) = starts else {
        // No dimension keeps `x` whole: dimension by dimension, through copies.
        let mut now = x;
        for (d, sources) in c.sources.iter().enumerate() {
            let mut shape = Dims::from_slice(now.shape());
            shape[first + d] = sources.len();
            let next = now.uninit(&shape, now.dtype())?;
            for (to, &from) in sources.iter().enumerate() {
                now.slice(first + d, from, 1).copy_to(&next.slice(first + d, to, 1))?;
            }
            now = next;
        }
        return now.copy_to(&out);
    };
    // The part of `out` that is filled: padded before dimension `d`, and only `x`'s place from there on.
    let filled = |done: usize| {
        (done..starts.len()).fold(out.clone(), |part, d| part.slice(first + d, starts[d], x.shape()[first + d]))
    };
    x.copy_to(&filled(0))?;
    for (d, sources) in c.sources.iter().enumerate() {
        let (part, dim) = (filled(d + 1), first + d);
        let size = x.shape()[dim];
        for (to, &from) in sources.iter().enumerate() {
            if !(starts[d]..starts[d] + size).contains(&to) {
                part.slice(dim, starts[d] + from, 1).copy_to(&part.slice(dim, to, 1))?;
            }
        }
    }
    Ok(())
}

/// Inputs of each output position along a dimension, and their weights, computed on the device.
fn taps(like: &Array, axis: &ResampleAxis, sampling: Sampling) -> Result<Vec<(Array<'static>, Array<'static>)>> {
    let last = axis.input as i64 - 1;
    let compute = like.dtype();
    let clamped = |x: &Array, low: i64, high: i64| {
        Array::map(Pointwise::Maximum, &[x.into(), low.into()])
            .and_then(|x| Array::map(Pointwise::Minimum, &[(&x).into(), high.into()]))
    };
    let count = like.counting(axis.output)?;
    let at = match sampling {
        // PyTorch computes these in `f32` whatever the tensor is.
        Sampling::Nearest { shift } => {
            let place = count.to(DType::F32)?.add(shift as f64)?.mul(axis.ratio as f32 as f64)?;
            let place = clamped(&place.floor()?.to(DType::I64)?, 0, last)?;
            return Ok(vec![(place, like.full(&[axis.output], compute, 1.0)?)]);
        }
        _ if axis.aligned => count.to(compute)?.mul(axis.ratio)?,
        _ => count.to(compute)?.add(0.5)?.mul(axis.ratio)?.sub(0.5)?,
    };
    if sampling == Sampling::Linear {
        let at = Array::map(Pointwise::Maximum, &[(&at).into(), 0.0.into()])?;
        let low = Array::map(Pointwise::Minimum, &[(&at.floor()?).into(), (last as f64).into()])?;
        let weight = at.sub(&low)?;
        let weight = Array::map(Pointwise::Minimum, &[(&weight).into(), 1.0.into()])?;
        let first = low.copied(DType::I64)?;
        let second = clamped(&first.add(1i64)?, 0, last)?;
        return Ok(vec![(first, weight.mul(-1.0)?.add(1.0)?), (second, weight)]);
    }
    /// PyTorch's coefficient of the cubic's slope.
    const A: f64 = -0.75;
    let near = |t: &Array| t.mul(A + 2.0)?.sub(A + 3.0)?.mul(t)?.mul(t)?.add(1.0);
    let far = |t: &Array| t.mul(A)?.sub(5.0 * A)?.mul(t)?.add(8.0 * A)?.mul(t)?.sub(4.0 * A);
    let below = at.floor()?;
    let t = at.sub(&below)?;
    let from = |n: f64| t.mul(-1.0)?.add(n);
    let weights = [far(&t.add(1.0)?)?, near(&t)?, near(&from(1.0)?)?, far(&from(2.0)?)?];
    let below = below.copied(DType::I64)?;
    let place = |k: usize| clamped(&below.add(k as i64 - 1)?, 0, last);
    weights.into_iter().enumerate().map(|(k, weight)| Ok((place(k)?, weight))).collect()
}

/// The sizes before the planes' dimension `axis`, with those after it already (`after`) or still (`before`) resized.
fn shape(planes: usize, spec: &crate::backend::Resample, resized: impl Fn(usize) -> bool) -> Dims {
    let size = |(i, axis): (usize, &ResampleAxis)| if resized(i) { axis.output } else { axis.input };
    std::iter::once(planes).chain(spec.axes.iter().enumerate().map(size)).collect()
}

/// Default body of [`Resample`](call::Resample): one dimension after the other, the last first.
pub fn resample(c: &call::Resample<View>) -> Result<()> {
    let planes = c.x.numel() / c.spec.axes.iter().map(|axis| axis.input).product::<usize>().max(1);
    let mut now = Array::dense(c.x, &shape(planes, &c.spec, |_| false))?;
    for (i, axis) in c.spec.axes.iter().enumerate().rev() {
        if axis.input == axis.output && axis.ratio == 1.0 && !axis.aligned && axis.input == 1 {
            continue;
        }
        let next = now.full(&shape(planes, &c.spec, |d| d >= i), now.dtype(), 0.0)?;
        let (from, to) = (now.transpose(0, i + 1), next.transpose(0, i + 1));
        for (places, weights) in taps(&now, axis, c.spec.sampling)? {
            let picked = now.uninit(to.shape(), now.dtype())?;
            let indices = [places.view()].into_iter().collect();
            execute(call::Index { x: from.view(), indices, out: picked.view() })?;
            let mut own: Dims = Dims::from_elem(1, 4);
            own[0] = axis.output;
            let share = picked.mul(&weights.reshape(&own)?)?;
            apply(Pointwise::Add, &[(&to).into(), (&share).into()], &to)?;
        }
        now = next;
    }
    now.copy_to(&Array::dense(c.y, &shape(planes, &c.spec, |_| true))?)
}

/// Default body of [`ResampleBackward`](call::ResampleBackward): the transposed sums, the first dimension first.
pub fn resample_backward(c: &call::ResampleBackward<View>) -> Result<()> {
    let planes = c.dy.numel() / c.spec.axes.iter().map(|axis| axis.output).product::<usize>().max(1);
    let mut now = Array::dense(c.dy, &shape(planes, &c.spec, |_| true))?;
    for (i, axis) in c.spec.axes.iter().enumerate() {
        let next = now.full(&shape(planes, &c.spec, |d| d > i), now.dtype(), 0.0)?;
        let (from, to) = (now.transpose(0, i + 1), next.transpose(0, i + 1));
        for (places, weights) in taps(&now, axis, c.spec.sampling)? {
            let mut own: Dims = Dims::from_elem(1, 4);
            own[0] = axis.output;
            let share = from.mul(&weights.reshape(&own)?)?;
            let indices = [places.view()].into_iter().collect();
            execute(call::IndexPut { indices, values: share.view(), accumulate: true, out: to.view() })?;
        }
        now = next;
    }
    now.copy_to(&Array::dense(c.dx, &shape(planes, &c.spec, |_| false))?)
}

/// Default body of [`IntRange`](call::IntRange).
pub fn int_range(c: &call::IntRange<View>) -> Result<()> {
    use crate::backend::Reduce;
    let (x, out) = (Array::of(c.x), Array::of(c.out));
    let dims: Dims = (0..x.shape().len()).collect();
    for (i, op) in [Reduce::Min, Reduce::Max].into_iter().enumerate() {
        x.reduce(op, &dims)?.reshape(&[])?.copy_to(&out.select(0, i))?;
    }
    Ok(())
}

/// Default body of [`Histogram`](call::Histogram).
pub fn histogram(c: &call::Histogram<View>) -> Result<()> {
    let (x, out) = (Array::of(c.x), Array::of(c.out));
    let (n, bins) = (x.numel(), out.numel());
    let x = x.reshape(&[n])?;
    // Elements outside of the range are counted in a bin of their own.
    let inside = Array::map(Pointwise::BitwiseAnd, &[(&x.ge(c.low)?).into(), (&x.le(c.high)?).into()])?;
    let place = x.sub(c.low)?.mul(bins as f64)?.div(c.high - c.low)?.floor()?.copied(DType::I64)?;
    let place = Array::map(Pointwise::Minimum, &[(&place).into(), (bins as i64 - 1).into()])?;
    let place = inside.choose(&place, bins as i64, DType::I64)?;
    let counts = x.full(&[bins + 1], DType::I64, 0.0)?;
    let src = call::Operand::Scalar(Scalar::Int(1));
    let op = crate::backend::Scatter::Add;
    execute(call::Scatter { op, dim: 0, index: place.view(), src, out: counts.view() })?;
    counts.slice(0, 0, bins).copy_to(&out)
}
