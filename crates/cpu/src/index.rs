//! Indexing by tensors: reading, writing and adding blocks, and finding what is not zero.
//!
//! Index values are checked and turned into offsets once, into memory of our own, so that nobody can change them between the check and
//! the use.

use crate::pool;
use crate::reduce::item::{Item, with_item};
use crate::sort::sort_in_order;
use rushlight_core::layout::Nest;
use rushlight_core::{DType, Error, Result, View};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes a task should move at least.
const TASK_BYTES: usize = 64 << 10;
/// Elements a task should add or write at least.
const TASK: usize = 8 << 10;

/// An index made non-negative, if it is in range.
#[inline(always)]
pub fn wrap(index: i64, size: usize) -> Option<usize> {
    let wrapped = if index < 0 { index.wrapping_add(size as i64) } else { index };
    if (wrapped as u64) < size as u64 { Some(wrapped as usize) } else { None }
}

#[cold]
pub(crate) fn out_of_bounds(index: i64, dim: usize, size: usize) -> Error {
    Error::index(format!("index {index} is out of bounds for dimension {dim} with size {size}"))
}

/// The first error of a parallel region, by position.
pub(crate) struct FirstFault(AtomicU64);

impl FirstFault {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    #[cold]
    pub(crate) fn set(&self, position: usize) {
        self.0.fetch_min(position as u64, Relaxed);
    }

    pub(crate) fn position(&self) -> Option<usize> {
        let position = self.0.load(Relaxed);
        (position != u64::MAX).then_some(position as usize)
    }
}

/// Reads an index that is about to be checked. Another thread may change the memory: the value used must be the value checked, so the
/// compiler may not read it a second time.
///
/// # Safety
/// `at` is valid for reads and aligned.
#[inline(always)]
pub(crate) unsafe fn read_index(at: *const i64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { at.read_volatile() }
}

/// A pointer that tasks use for disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);
// SAFETY: whoever shares it sees to it that tasks write disjoint parts.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(ptr: *mut T) -> Self {
        Self(ptr)
    }

    #[inline(always)]
    pub(crate) fn at(&self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
}

/// Offsets of the blocks that the index tensors name, in row-major order, for a tensor whose leading dimensions have these sizes and
/// strides.
fn resolve(indices: &[View], sizes: &[usize], strides: &[usize]) -> Result<Vec<usize>> {
    let Some(first) = indices.first() else { return Ok(vec![0]) };
    let n = first.numel();
    let mut offsets = vec![0usize; n];
    for (d, view) in indices.iter().enumerate() {
        let nest = Nest::new(view.shape(), [view.strides()]);
        let values = Shared::new(view.ptr().cast::<i64>());
        let out = Shared::new(offsets.as_mut_ptr());
        let (size, stride) = (sizes[d], strides[d]);
        let fault = FirstFault::new();
        let (inner, step) = innermost(&nest);
        pool::parallel_ranges(n, 16 << 10, |from, to| {
            let mut i = from;
            while i < to {
                let [start] = nest.offsets(i);
                let run = (inner - i % inner).min(to - i);
                for k in 0..run {
                    // SAFETY: the position lies within the view, and `i + k < n`.
                    unsafe {
                        match wrap(read_index(values.at(start + k * step)), size) {
                            Some(index) => *out.at(i + k) += index * stride,
                            None => fault.set(i + k),
                        }
                    }
                }
                i += run;
            }
        });
        if let Some(position) = fault.position() {
            // SAFETY: as above.
            let index = unsafe { *values.at(nest.offsets(position)[0]) };
            return Err(out_of_bounds(index, d, size));
        }
    }
    Ok(offsets)
}

/// Size of the innermost loop and the first operand's step in it.
fn innermost<const N: usize>(nest: &Nest<N>) -> (usize, usize) {
    (nest.shape.last().copied().unwrap_or(1), nest.strides[0].last().copied().unwrap_or(1))
}

/// The blocks of an indexed copy: how the positions of the index tensors and the elements of a block lie in the dense tensor (the
/// result, or the values written), and how those of a block lie in the indexed one.
struct Blocks {
    /// Positions, in the dense tensor.
    outer: Nest<1>,
    /// Elements of a block, in the indexed and the dense tensor.
    inner: Nest<2>,
    /// Elements of a block.
    size: usize,
    /// Whether both are runs of neighbours.
    contiguous: bool,
}

impl Blocks {
    /// `indexed` has `count` leading dimensions that are indexed.
    fn new(indexed: View, count: usize, dense: View) -> Self {
        let split = dense.shape().len() - (indexed.shape().len() - count);
        let outer = Nest::new(&dense.shape()[..split], [&dense.strides()[..split]]);
        let inner = Nest::new(&dense.shape()[split..], [&indexed.strides()[count..], &dense.strides()[split..]]);
        let contiguous = inner.shape.len() == 1 && (inner.shape[0] == 1 || inner.strides.iter().all(|s| s[0] == 1));
        Self { size: inner.numel(), outer, inner, contiguous }
    }

    /// Calls `f(indexed offset, dense offset, length)` for runs along the innermost loop of a block.
    #[inline(always)]
    fn runs(&self, mut f: impl FnMut(usize, usize, usize)) {
        let run = self.inner.shape.last().copied().unwrap_or(1);
        if run == 0 {
            return;
        }
        for i in (0..self.size).step_by(run) {
            let [indexed, dense] = self.inner.offsets(i);
            f(indexed, dense, run);
        }
    }

    fn steps(&self) -> [usize; 2] {
        [0, 1].map(|i| self.inner.strides[i].last().copied().unwrap_or(1))
    }
}

/// Runs an expression with `$U` bound to an unsigned integer of an element's size.
macro_rules! with_size {
    ($dtype:expr, $U:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $U = u8;
                $body
            }
            2 => {
                type $U = u16;
                $body
            }
            4 => {
                type $U = u32;
                $body
            }
            _ => {
                type $U = u64;
                $body
            }
        }
    };
}
pub(crate) use with_size;

/// `out[i.., r..] = x[indices[0][i..], indices[1][i..], …, r..]`.
pub fn index(x: View, indices: &[View], out: View) -> Result<()> {
    let count = indices.len();
    let offsets = resolve(indices, &x.shape()[..count], &x.strides()[..count])?;
    let blocks = Blocks::new(x, count, out);
    if out.numel() == 0 {
        return Ok(());
    }
    with_size!(x.dtype, U => {
        let (src, dst) = (Shared::new(x.ptr().cast::<U>()), Shared::new(out.ptr().cast::<U>()));
        let grain = TASK_BYTES.div_ceil(blocks.size * size_of::<U>());
        pool::parallel_ranges(offsets.len(), grain, |from, to| {
            for i in from..to {
                let [at] = blocks.outer.offsets(i);
                // SAFETY: offsets were checked against the indexed dimensions; blocks lie within the views and do not overlap.
                unsafe { copy_block(src.at(offsets[i]), dst.at(at), &blocks, [0, 1]) };
            }
        });
    });
    Ok(())
}

/// Copies one block; `[from, to]` say which of a block's two layouts each side has.
///
/// # Safety
/// Both are valid for the block and do not overlap.
#[inline(always)]
unsafe fn copy_block<U: Copy>(src: *const U, dst: *mut U, blocks: &Blocks, [from, to]: [usize; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        if blocks.size == 1 {
            *dst = *src;
        } else if blocks.contiguous {
            std::ptr::copy_nonoverlapping(src, dst, blocks.size);
        } else {
            let steps = blocks.steps();
            blocks.runs(|indexed, dense, n| {
                let at = [indexed, dense];
                let (src, dst) = (src.add(at[from]), dst.add(at[to]));
                for k in 0..n {
                    *dst.add(k * steps[to]) = *src.add(k * steps[from]);
                }
            });
        }
    }
}

/// `out[indices[0][i..], …, r..] = values[i.., r..]`, or `+=` with `accumulate`. Of values for the same place the last one stays, or all add
/// up in order.
pub fn index_put(indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
    let count = indices.len();
    let offsets = resolve(indices, &out.shape()[..count], &out.strides()[..count])?;
    let blocks = Blocks::new(out, count, values);
    if values.numel() == 0 {
        return Ok(());
    }
    if accumulate {
        match values.dtype {
            // Adding truth values is "or".
            DType::Bool => add_direct(&offsets, &blocks, values, out, |a: u8, b: u8| a | b),
            dtype => with_item!(dtype, T => add::<T>(&offsets, &blocks, values, out)),
        }
    } else {
        with_size!(values.dtype, U => set::<U>(&offsets, &blocks, values, out));
    }
    Ok(())
}

/// Positions ordered by the offset they write to, those of one offset in their own order.
fn by_target(offsets: &[usize]) -> Vec<u32> {
    let mut order: Vec<(usize, u32)> = offsets.iter().enumerate().map(|(i, &offset)| (offset, i as u32)).collect();
    sort_in_order(&mut order);
    order.into_iter().map(|(_, i)| i).collect()
}

fn set<U: Copy>(offsets: &[usize], blocks: &Blocks, values: View, out: View) {
    let (src, dst) = (Shared::new(values.ptr().cast::<U>()), Shared::new(out.ptr().cast::<U>()));
    let write = |i: usize| {
        let [at] = blocks.outer.offsets(i);
        // SAFETY: offsets were checked against the indexed dimensions; blocks lie within the views.
        unsafe { copy_block(src.at(at), dst.at(offsets[i]), blocks, [1, 0]) };
    };
    // Small blocks, or few of them, are written quickest in order.
    let bytes = blocks.size * size_of::<U>();
    if bytes < 64 || offsets.len() * bytes < 2 * TASK_BYTES || offsets.len() > u32::MAX as usize {
        return (0..offsets.len()).for_each(write);
    }
    each_target(offsets, blocks.size, |group| group.last().into_iter().for_each(|&i| write(i as usize)));
}

/// Calls `f` with the positions that write to each offset; groups in parallel.
fn each_target(offsets: &[usize], block: usize, f: impl Fn(&[u32]) + Sync) {
    let order = by_target(offsets);
    let target = |k: usize| offsets[order[k] as usize];
    pool::parallel_ranges(order.len(), TASK.div_ceil(block), |from, to| {
        // A group belongs to the task it starts in.
        let mut start = from;
        while start < to && start > 0 && target(start) == target(start - 1) {
            start += 1;
        }
        while start < to {
            let mut end = start + 1;
            while end < order.len() && target(end) == target(start) {
                end += 1;
            }
            f(&order[start..end]);
            start = end;
        }
    });
}

/// Adds one value after the other where it belongs.
fn add_direct<T: Copy>(offsets: &[usize], blocks: &Blocks, values: View, out: View, add: impl Fn(T, T) -> T) {
    let (src, dst) = (values.ptr().cast::<T>(), out.ptr().cast::<T>());
    let [out_step, value_step] = blocks.steps();
    for (i, &offset) in offsets.iter().enumerate() {
        let [at] = blocks.outer.offsets(i);
        blocks.runs(|indexed, dense, n| {
            for k in 0..n {
                // SAFETY: offsets were checked against the indexed dimensions; blocks lie within the views.
                unsafe {
                    let place = dst.add(offset + indexed + k * out_step);
                    *place = add(*place, *src.add(at + dense + k * value_step));
                }
            }
        });
    }
}

/// Adds up values of one place in the element's wide type, rounding once.
fn add<T: Item>(offsets: &[usize], blocks: &Blocks, values: View, out: View) {
    use crate::reduce::item::Wide;
    let rounds = size_of::<T>() < size_of::<T::Wide>() && T::DTYPE.is_float();
    let small = blocks.size < 16 || offsets.len() * blocks.size < 4 * TASK;
    if !rounds && small || offsets.len() > u32::MAX as usize {
        return add_direct(offsets, blocks, values, out, |a: T, b: T| T::narrow(a.widen().add(b.widen())));
    }
    const WIDTH: usize = 256;
    let (src, dst) = (Shared::new(values.ptr().cast::<T>()), Shared::new(out.ptr().cast::<T>()));
    let [out_step, value_step] = blocks.steps();
    each_target(offsets, blocks.size, |group| {
        let offset = offsets[group[0] as usize];
        blocks.runs(|indexed, dense, n| {
            for start in (0..n).step_by(WIDTH) {
                let width = WIDTH.min(n - start);
                let place = dst.at(offset + indexed + start * out_step);
                let mut sums = [T::Wide::ZERO; WIDTH];
                // SAFETY: offsets were checked against the indexed dimensions; blocks lie within the views, and those of different
                // groups do not overlap.
                unsafe {
                    for (k, sum) in sums[..width].iter_mut().enumerate() {
                        *sum = (*place.add(k * out_step)).widen();
                    }
                    for &i in group {
                        let [at] = blocks.outer.offsets(i as usize);
                        let values = src.at(at + dense + start * value_step);
                        if value_step == 1 {
                            for (k, sum) in sums[..width].iter_mut().enumerate() {
                                *sum = sum.add((*values.add(k)).widen());
                            }
                        } else {
                            for (k, sum) in sums[..width].iter_mut().enumerate() {
                                *sum = sum.add((*values.add(k * value_step)).widen());
                            }
                        }
                    }
                    for (k, &sum) in sums[..width].iter().enumerate() {
                        *place.add(k * out_step) = T::narrow(sum);
                    }
                }
            }
        });
    });
}

/// How many elements are not zero.
pub fn count_nonzero(x: View) -> Result<usize> {
    crate::reduce::count_nonzero(x)
}

/// Elements examined as one piece.
const PIECE: usize = 32 << 10;

/// Coordinates of the elements that are not zero, in row-major order: `out` is `[count, rank]`, `i64`, contiguous.
pub fn nonzero(x: View, out: View) -> Result<()> {
    let rows = out.shape().first().copied().unwrap_or(0);
    let found = with_item!(x.dtype, T => find::<T>(x, rows, out.ptr().cast()));
    if found != rows {
        return Err(Error::value(format!(
            "nonzero: {found} elements are not zero, but {rows} were counted; the tensor was changed meanwhile"
        )));
    }
    Ok(())
}

/// Writes at most `rows` rows of coordinates and returns how many there are.
fn find<T: Item>(x: View, rows: usize, out: *mut i64) -> usize {
    use crate::reduce::item::Wide;
    let (shape, n) = (x.shape(), x.numel());
    let nest = Nest::new(shape, [x.strides()]);
    let (src, out) = (Shared::new(x.ptr().cast::<T>()), Shared::new(out));
    // Calls `f` with each position in a piece that is not zero.
    let scan = |piece: usize, f: &mut dyn FnMut(usize)| {
        let (inner, step) = innermost(&nest);
        let (mut i, end) = (piece * PIECE, ((piece + 1) * PIECE).min(n));
        while i < end {
            let [start] = nest.offsets(i);
            let run = (inner - i % inner).min(end - i);
            for k in 0..run {
                // SAFETY: the position lies within the view.
                if unsafe { *src.at(start + k * step) }.widen() != T::Wide::ZERO {
                    f(i + k);
                }
            }
            i += run;
        }
    };
    let pieces = n.div_ceil(PIECE);
    let counts: Vec<AtomicU64> = (0..pieces).map(|_| AtomicU64::new(0)).collect();
    pool::parallel_for(pieces, |p| {
        let mut count = 0;
        scan(p, &mut |_| count += 1);
        counts[p].store(count, Relaxed);
    });
    let mut total = 0;
    let mut starts = Vec::with_capacity(pieces);
    for count in &counts {
        starts.push(total);
        total += count.load(Relaxed) as usize;
    }
    let rank = shape.len();
    pool::parallel_for(pieces, |p| {
        let limit = starts.get(p + 1).copied().unwrap_or(total).min(rows);
        let mut row = starts[p];
        scan(p, &mut |mut position| {
            // Another thread may have changed the tensor since it was counted.
            if row < limit {
                for d in (0..rank).rev() {
                    // SAFETY: `row < rows`, and rows of different pieces are different.
                    unsafe { *out.at(row * rank + d) = (position % shape[d]) as i64 };
                    position /= shape[d];
                }
                row += 1;
            }
        });
    });
    total
}
