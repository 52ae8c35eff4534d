//! Element-wise indexing along one dimension: gather, and scatter with its modes. Negative indices are out of range.

use crate::index::{FirstFault, out_of_bounds, read_index, with_size};
use crate::pointwise::scalar_bits;
use crate::pool;
use crate::reduce::item::{Item, Wide, with_item};
use crate::reduce::plan;
use rushlight_core::backend::Scatter;
use rushlight_core::layout::Nest;
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Dims, Operand, Result, View};

/// Checks an index and returns it as a position.
#[inline(always)]
fn within(index: i64, size: usize) -> Option<usize> {
    ((index as u64) < size as u64).then_some(index as usize)
}

/// Maximum size that is counted in several tables at once, so that they stay in the L1 cache.
const MAX_TALLIED: usize = 1024;
/// Minimum elements per task.
const TASK: usize = 8 << 10;

/// `out[.., i, ..] = x[.., index[.., i, ..], ..]` along `dim`.
pub fn gather(x: View, dim: usize, index: View, out: View) -> Result<()> {
    let (size, [stride]) = plan::along(x.shape(), dim, [x.strides()]);
    // The indexed dimension gets stride zero: the index alone moves along it.
    let mut x_strides = Dims::from_slice(x.strides());
    if let Some(s) = x_strides.get_mut(dim) {
        *s = 0;
    }
    let nest = Nest::new(out.shape(), [out.strides(), index.strides(), &x_strides]);
    let run = nest.shape.last().copied().unwrap_or(1);
    let [out_step, index_step, x_step] = [0, 1, 2].map(|i| nest.strides[i].last().copied().unwrap_or(0));
    let indices = SendPtr::new(index.ptr().cast::<i64>());
    let fault = FirstFault::new();
    with_size!(x.dtype(), U => {
        let (src, dst) = (SendPtr::new(x.ptr().cast::<U>()), SendPtr::new(out.ptr().cast::<U>()));
        pool::parallel_ranges(out.numel(), 16 << 10, |from, to| {
            let mut i = from;
            while i < to {
                let [out_at, index_at, x_at] = nest.offsets(i);
                let n = (run - i % run).min(to - i);
                for k in 0..n {
                    // SAFETY: positions are within the views, and the index was just checked.
                    unsafe {
                        match within(read_index(indices.at(index_at + k * index_step)), size) {
                            Some(at) => *dst.at(out_at + k * out_step) = *src.at(x_at + k * x_step + at * stride),
                            None => fault.set(i + k),
                        }
                    }
                }
                i += n;
            }
        });
    });
    report(&fault, &nest, indices, dim, size)
}

/// The error of the first index found out of range, if any. The index tensor is the nest's second operand.
fn report<const N: usize>(
    fault: &FirstFault,
    nest: &Nest<N>,
    indices: SendPtr<i64>,
    dim: usize,
    size: usize,
) -> Result<()> {
    match fault.position() {
        None => Ok(()),
        Some(position) => {
            // SAFETY: the position is within the index tensor.
            let index = unsafe { *indices.at(nest.offsets(position)[1]) };
            Err(out_of_bounds(index, dim, size))
        }
    }
}

/// How a scatter combines a value with the element it hits.
trait Update<T>: Copy + Sync {
    fn update(self, old: T, new: T) -> T;
}

#[derive(Clone, Copy)]
struct Replace;
impl<T> Update<T> for Replace {
    #[inline(always)]
    fn update(self, _: T, new: T) -> T {
        new
    }
}

#[derive(Clone, Copy)]
struct Add;
impl<W: Wide> Update<W> for Add {
    #[inline(always)]
    fn update(self, old: W, new: W) -> W {
        old.add(new)
    }
}

/// The others, which are rare: one loop serves them all.
#[derive(Clone, Copy)]
enum Rare {
    Mul,
    Max,
    Min,
}
impl<W: Wide> Update<W> for Rare {
    #[inline(always)]
    fn update(self, old: W, new: W) -> W {
        match self {
            Rare::Mul => old.mul(new),
            Rare::Max => old.larger(new),
            Rare::Min => old.smaller(new),
        }
    }
}

/// The reverse of [`gather`]: `out[.., index[.., i, ..], ..] op= src[.., i, ..]`, in the order of `i`.
pub fn scatter(op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
    // For `bool`, the sum is "or" and the product "and".
    let op = match (op, out.dtype()) {
        (Scatter::Add, DType::Bool) => Scatter::Max,
        (Scatter::Mul, DType::Bool) => Scatter::Min,
        (op, _) => op,
    };
    if let (Scatter::Add, DType::I64, Operand::Scalar(value), &[n], &[size]) =
        (op, out.dtype(), src, index.shape(), out.shape())
        && n >= 4 * size
        && size <= MAX_TALLIED
    {
        return tally(index, value.to_i64(), out);
    }
    let rare = match op {
        Scatter::Set => {
            return with_size!(out.dtype(), U => copy_into::<U>(dim, index, src, out));
        }
        Scatter::Add => return with_item!(out.dtype(), T => wide::<T, _>(Add, dim, index, src, out)),
        Scatter::Mul => Rare::Mul,
        Scatter::Max => Rare::Max,
        Scatter::Min => Rare::Min,
    };
    with_item!(out.dtype(), T => wide::<T, _>(rare, dim, index, src, out))
}

/// Adds a scalar per index of a vector by counting indices. Adjacent indices use different tables, so that equal ones
/// do not wait for each other's additions.
fn tally(index: View, value: i64, out: View) -> Result<()> {
    const TABLES: usize = 4;
    let (n, size) = (index.numel(), out.numel());
    let (step, stride) = (index.strides()[0], out.strides()[0]);
    let (indices, out) = (SendPtr::new(index.ptr().cast::<i64>()), SendPtr::new(out.ptr().cast::<i64>()));
    let mut counts = vec![0i64; TABLES * size];
    // SAFETY: the positions are within the index tensor.
    let read = |i: usize| unsafe { read_index(indices.at(i * step)) };
    let whole = n / TABLES * TABLES;
    for i in (0..whole).step_by(TABLES) {
        let here = [read(i), read(i + 1), read(i + 2), read(i + 3)];
        if here.iter().fold(false, |outside, &index| outside | (index as u64 >= size as u64)) {
            let outside = here.into_iter().find(|&index| within(index, size).is_none());
            return Err(out_of_bounds(outside.unwrap_or(0), 0, size));
        }
        let [a, b, c, d] = here.map(|index| index as usize);
        // SAFETY: the indices were checked above, and there are four tables of `size`.
        unsafe {
            *counts.get_unchecked_mut(a) += 1;
            *counts.get_unchecked_mut(size + b) += 1;
            *counts.get_unchecked_mut(2 * size + c) += 1;
            *counts.get_unchecked_mut(3 * size + d) += 1;
        }
    }
    for i in whole..n {
        let index = read(i);
        let Some(at) = within(index, size) else { return Err(out_of_bounds(index, 0, size)) };
        counts[at] += 1;
    }
    for at in 0..size {
        let count = (0..TABLES).fold(0, |sum, t| sum + counts[t * size + at]);
        // SAFETY: the place is within the output.
        unsafe {
            let place = out.at(at * stride);
            *place = (*place).wrapping_add(value.wrapping_mul(count));
        }
    }
    Ok(())
}

fn wide<T: Item, M: Update<T::Wide>>(update: M, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
    // Half types accumulate a line in `f32`, so that many small additions are not lost.
    let rounds = T::DTYPE.is_float() && size_of::<T>() < size_of::<T::Wide>();
    run::<T, T::Wide, M>(update, dim, index, src, out, (T::widen, T::narrow), rounds)
}

/// Elements of the size of `U` as they are.
fn copy_into<U: Copy + Send + Sync + 'static>(dim: usize, index: View, src: Operand, out: View) -> Result<()> {
    run::<U, U, Replace>(Replace, dim, index, src, out, (|v| v, |v| v), false)
}

/// Lines along `dim` never write to each other's elements, so tasks share them; the order within a line is kept.
/// `T` has the size of the output's elements.
fn run<T: Copy + Send + Sync + 'static, W: Copy + 'static, M: Update<W>>(
    update: M,
    dim: usize,
    index: View,
    src: Operand,
    out: View,
    (widen, narrow): (impl Fn(T) -> W + Sync + Copy, impl Fn(W) -> T + Sync + Copy),
    rounds: bool,
) -> Result<()> {
    let (size, [stride]) = plan::along(out.shape(), dim, [out.strides()]);
    let mut scalar = if let Operand::Scalar(value) = src { scalar_bits(value, out.dtype()) } else { 0 };
    let (values, src_strides) = match src {
        Operand::Tensor(view) => (view.ptr().cast::<T>(), Dims::from_slice(view.strides())),
        Operand::Scalar(_) => ((&raw mut scalar).cast::<T>(), Dims::from_elem(0, index.shape().len())),
    };
    let strides = [out.strides(), index.strides(), &src_strides];
    let (n, [_, index_step, src_step]) = plan::along(index.shape(), dim, strides);
    let lines = plan::lines(index.shape(), dim, strides);
    let (indices, values, out) =
        (SendPtr::new(index.ptr().cast::<i64>()), SendPtr::new(values), SendPtr::new(out.ptr().cast::<T>()));
    let rounds = rounds && n > 1;
    let fault = FirstFault::new();
    let count = if n == 0 { 0 } else { lines.numel() };
    if count == 1 && !rounds {
        let [out_at, index_at, src_at] = lines.offsets(0);
        for i in 0..n {
            // SAFETY: positions are within the views, and the index is checked before it is used.
            unsafe {
                let index = read_index(indices.at(index_at + i * index_step));
                let Some(at) = within(index, size) else { return Err(out_of_bounds(index, dim, size)) };
                let place = out.at(out_at + at * stride);
                *place = narrow(update.update(widen(*place), widen(*values.at(src_at + i * src_step))));
            }
        }
        return Ok(());
    }
    // Adjacent lines are processed together, so that memory is read in order.
    let group = if rounds || n == 1 { 1 } else { 64 };
    pool::parallel_ranges(count, TASK.div_ceil(n.max(1)).next_multiple_of(group), |from, to| {
        let mut line_out = Vec::new();
        for first in (from..to).step_by(group) {
            let mut starts = [[0; 3]; 64];
            let lines_here = group.min(to - first);
            for (l, start) in starts[..lines_here].iter_mut().enumerate() {
                *start = lines.offsets(first + l);
            }
            // SAFETY: positions are within the views, and each index is checked before it is used.
            unsafe {
                if rounds {
                    let [out_at, ..] = starts[0];
                    line_out.clear();
                    line_out.extend((0..size).map(|i| widen(*out.at(out_at + i * stride))));
                }
                for i in 0..n {
                    for (l, &[out_at, index_at, src_at]) in starts[..lines_here].iter().enumerate() {
                        let Some(at) = within(read_index(indices.at(index_at + i * index_step)), size) else {
                            fault.set((first + l) * n + i);
                            continue;
                        };
                        let new = widen(*values.at(src_at + i * src_step));
                        if rounds {
                            line_out[at] = update.update(line_out[at], new);
                        } else {
                            let place = out.at(out_at + at * stride);
                            *place = narrow(update.update(widen(*place), new));
                        }
                    }
                }
                if rounds {
                    let [out_at, ..] = starts[0];
                    for (i, &v) in line_out.iter().enumerate() {
                        *out.at(out_at + i * stride) = narrow(v);
                    }
                }
            }
        }
    });
    match fault.position() {
        None => Ok(()),
        Some(position) => {
            let [_, index_at, _] = lines.offsets(position / n);
            // SAFETY: the position is within the index tensor.
            let index = unsafe { *indices.at(index_at + position % n * index_step) };
            Err(out_of_bounds(index, dim, size))
        }
    }
}
