//! Indexing by tensors: reading, writing and adding blocks, and finding nonzero elements.
//!
//! Index values are read once, chunk by chunk, into private memory, and checked and converted to offsets there: no
//! other thread can change them between check and use.

use crate::index_add;
use crate::isa::Isa;
use crate::multiversion;
use crate::pool;
use crate::reduce::item::{Item, with_item};
use crate::sort::sort_in_order;
use rushlight_core::layout::Nest;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Error, Result, View};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Minimum bytes per task.
const TASK_BYTES: usize = 64 << 10;
/// Minimum elements per task that adds or writes.
pub(crate) const TASK: usize = 8 << 10;

/// Checks an index and makes it non-negative.
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

/// Reads an index that is about to be checked. Another thread may change the memory: the value used must be the value
/// checked, so the compiler may not read it a second time.
///
/// # Safety
/// `at` is valid for reads and aligned.
#[inline(always)]
pub(crate) unsafe fn read_index(at: *const i64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { at.read_volatile() }
}

/// Index values per chunk.
const CHUNK: usize = 512;

/// One of the index tensors, and the dimension it indexes.
struct Along {
    nest: Nest<1>,
    values: SendPtr<i64>,
    /// Size and stride of the indexed dimension.
    size: usize,
    stride: usize,
}

/// The blocks selected by index tensors, in row-major order of the index tensors.
pub(crate) struct Targets {
    along: SmallVec<[Along; 2]>,
    count: usize,
}

impl Targets {
    /// The indexed tensor's leading dimensions have these sizes and strides.
    pub(crate) fn new(indices: &[View], sizes: &[usize], strides: &[usize]) -> Self {
        let along = indices.iter().zip(sizes.iter().zip(strides)).map(|(view, (&size, &stride))| Along {
            nest: Nest::new(view.shape(), [view.strides()]),
            values: SendPtr::new(view.ptr().cast()),
            size,
            stride,
        });
        Self { along: along.collect(), count: indices.first().map_or(1, |v| v.numel()) }
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// If there is a single index tensor with evenly spaced values: address of the first, their stride, and the size
    /// and stride of the dimension that they index.
    pub(crate) fn line(&self) -> Option<(SendPtr<i64>, usize, usize, usize)> {
        let [along] = &self.along[..] else { return None };
        let step = match &along.nest.shape[..] {
            [] => 0,
            [_] => along.nest.strides[0][0],
            _ => return None,
        };
        Some((along.values, step, along.size, along.stride))
    }

    /// Offsets of the blocks from position `start` on, at most a chunk of them; `false` if an index is out of range.
    fn offsets(&self, start: usize, offsets: &mut [usize]) -> bool {
        let len = offsets.len();
        offsets.fill(0);
        let mut values = [0i64; CHUNK];
        self.along.iter().all(|along| {
            let (inner, step) = innermost(&along.nest);
            let mut i = 0;
            while i < len {
                let [from] = along.nest.offsets(start + i);
                let run = (inner - (start + i) % inner).min(len - i);
                // SAFETY: the positions are within the index tensor.
                unsafe {
                    if step == 1 {
                        std::ptr::copy_nonoverlapping(along.values.at(from), values[i..i + run].as_mut_ptr(), run);
                    } else {
                        for (k, value) in values[i..i + run].iter_mut().enumerate() {
                            *value = *along.values.at(from + k * step);
                        }
                    }
                }
                i += run;
            }
            // Checks the copy that was read above, even if another thread changes the index tensor.
            std::hint::black_box(&mut values);
            // SAFETY: no precondition but the machine's level.
            unsafe { add_offsets(&values[..len], along.size, along.stride, offsets) }
        })
    }

    /// Calls `f(start, offsets)` for chunks of the positions from `from` to `to`, until an index is out of range.
    pub(crate) fn each_chunk(&self, from: usize, to: usize, fault: &FirstFault, mut f: impl FnMut(usize, &[usize])) {
        let mut buffer = [0; CHUNK];
        for start in (from..to).step_by(CHUNK) {
            let offsets = &mut buffer[..CHUNK.min(to - start)];
            if !self.offsets(start, offsets) {
                return fault.set(start);
            }
            f(start, offsets);
        }
    }

    /// All offsets.
    pub(crate) fn all(&self) -> Result<Vec<usize>> {
        let mut all = vec![0usize; self.count];
        let (out, fault) = (SendPtr::new(all.as_mut_ptr()), FirstFault::new());
        pool::parallel_ranges(self.count, 16 << 10, |from, to| {
            self.each_chunk(from, to, &fault, |start, offsets| {
                // SAFETY: the chunk is within the vector, and chunks are disjoint.
                unsafe { std::ptr::copy_nonoverlapping(offsets.as_ptr(), out.at(start), offsets.len()) };
            });
        });
        self.check(&fault)?;
        Ok(all)
    }

    /// The error of the first chunk with an index out of range, if there is one.
    pub(crate) fn check(&self, fault: &FirstFault) -> Result<()> {
        let Some(start) = fault.position() else { return Ok(()) };
        for position in start..self.count {
            for (d, along) in self.along.iter().enumerate() {
                // SAFETY: the position is within the index tensor.
                let index = unsafe { read_index(along.values.at(along.nest.offsets(position)[0])) };
                if wrap(index, along.size).is_none() {
                    return Err(out_of_bounds(index, d, along.size));
                }
            }
        }
        Err(Error::index("an index was out of bounds, and another thread changed it meanwhile"))
    }
}

multiversion! {
    /// Adds `stride` times each index, negative ones counted from the end, to the offsets; `false` if one is out of
    /// range.
    ///
    /// # Safety
    /// No precondition but the machine's level.
    unsafe fn add_offsets(values: &[i64], size: usize, stride: usize, offsets: &mut [usize]) -> bool = add_offsets_kernel;
}

#[inline(always)]
unsafe fn add_offsets_kernel<I: Isa>(values: &[i64], size: usize, stride: usize, offsets: &mut [usize]) -> bool {
    #[inline(always)]
    fn each(values: &[i64], offsets: &mut [usize], size: usize, times: impl Fn(u64) -> u64) -> bool {
        let mut outside = false;
        for (offset, &value) in offsets.iter_mut().zip(values) {
            let wrapped = value.wrapping_add(if value < 0 { size as i64 } else { 0 }) as u64;
            outside |= wrapped >= size as u64;
            *offset = offset.wrapping_add(times(wrapped) as usize);
        }
        !outside
    }
    // A 64-bit product takes several instructions.
    match stride {
        1 => each(values, offsets, size, |i| i),
        s => each(values, offsets, size, |i| i.wrapping_mul(s as u64)),
    }
}

/// Size of the innermost loop and the first operand's step in it.
pub(crate) fn innermost<const N: usize>(nest: &Nest<N>) -> (usize, usize) {
    (nest.shape.last().copied().unwrap_or(1), nest.strides[0].last().copied().unwrap_or(1))
}

/// Blocks of an indexed copy: strides of the index positions and of a block's elements in the dense tensor (the result,
/// or the values written), and of a block's elements in the indexed tensor.
pub(crate) struct Blocks {
    /// Positions in the dense tensor.
    pub(crate) outer: Nest<1>,
    /// Elements of a block in the indexed and in the dense tensor.
    pub(crate) inner: Nest<2>,
    /// Elements of a block.
    pub(crate) size: usize,
    /// Whether both are contiguous runs.
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
    pub(crate) fn runs(&self, mut f: impl FnMut(usize, usize, usize)) {
        let run = self.inner.shape.last().copied().unwrap_or(1);
        if run == 0 {
            return;
        }
        for i in (0..self.size).step_by(run) {
            let [indexed, dense] = self.inner.offsets(i);
            f(indexed, dense, run);
        }
    }

    /// Calls `f(indexed offset, dense offset)` for every element of the blocks from position `start` on. Elements with
    /// the same destination come in the order of the positions.
    #[inline(always)]
    pub(crate) fn elements(&self, start: usize, offsets: &[usize], mut f: impl FnMut(usize, usize)) {
        let (inner, step) = innermost(&self.outer);
        let [indexed_step, dense_step] = self.steps();
        let mut i = 0;
        while i < offsets.len() {
            let [at] = self.outer.offsets(start + i);
            let run = (inner - (start + i) % inner).min(offsets.len() - i);
            let part = &offsets[i..i + run];
            i += run;
            if self.size == 1 {
                part.iter().enumerate().for_each(|(k, &offset)| f(offset, at + k * step));
            } else if step < dense_step {
                // Adjacent elements of the dense tensor belong to different positions.
                self.runs(|indexed, dense, n| {
                    for j in 0..n {
                        let (indexed, dense) = (indexed + j * indexed_step, at + dense + j * dense_step);
                        part.iter().enumerate().for_each(|(k, &offset)| f(offset + indexed, dense + k * step));
                    }
                });
            } else {
                for (k, &offset) in part.iter().enumerate() {
                    self.runs(|indexed, dense, n| {
                        let (indexed, dense) = (offset + indexed, at + k * step + dense);
                        if [indexed_step, dense_step] == [1, 1] {
                            (0..n).for_each(|j| f(indexed + j, dense + j));
                        } else {
                            (0..n).for_each(|j| f(indexed + j * indexed_step, dense + j * dense_step));
                        }
                    });
                }
            }
        }
    }

    /// Whether each block is a contiguous run, long enough for a single copy.
    pub(crate) fn whole(&self) -> bool {
        self.contiguous && self.size >= 8
    }

    pub(crate) fn steps(&self) -> [usize; 2] {
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
    let targets = Targets::new(indices, &x.shape()[..count], &x.strides()[..count]);
    if out.numel() == 0 {
        return targets.all().map(|_| ());
    }
    let (blocks, fault) = (Blocks::new(x, count, out), FirstFault::new());
    with_size!(x.dtype(), U => {
        let (src, dst) = (SendPtr::new(x.ptr().cast::<U>()), SendPtr::new(out.ptr().cast::<U>()));
        let grain = TASK_BYTES.div_ceil(blocks.size * size_of::<U>());
        pool::parallel_ranges(targets.count, grain, |from, to| {
            targets.each_chunk(from, to, &fault, |start, offsets| {
                // SAFETY: offsets were checked against the indexed dimensions; blocks are within the views and do not
                // overlap.
                unsafe {
                    if blocks.whole() {
                        for (k, &offset) in offsets.iter().enumerate() {
                            let [at] = blocks.outer.offsets(start + k);
                            std::ptr::copy_nonoverlapping(src.at(offset), dst.at(at), blocks.size);
                        }
                    } else {
                        blocks.elements(start, offsets, |from, to| *dst.at(to) = *src.at(from));
                    }
                }
            });
        });
    });
    targets.check(&fault)
}

/// `out[indices[0][i..], …, r..] = values[i.., r..]`, or `+=` with `accumulate`. Of values with the same destination
/// the last wins, or all are added in order.
pub fn index_put(indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
    let count = indices.len();
    let targets = Targets::new(indices, &out.shape()[..count], &out.strides()[..count]);
    if values.numel() == 0 {
        return targets.all().map(|_| ());
    }
    let blocks = Blocks::new(out, count, values);
    if accumulate {
        match values.dtype() {
            // The sum of `bool` values is "or".
            DType::Bool => index_add::in_order::<u8, index_add::Or>(&targets, &blocks, values, out),
            dtype => with_item!(dtype, T => index_add::add::<T>(&targets, &blocks, values, out)),
        }
    } else {
        with_size!(values.dtype(), U => set::<U>(&targets, &blocks, values, out))
    }
}

/// Positions sorted by destination offset; equal offsets keep their order.
fn by_target(offsets: &[usize]) -> Vec<u32> {
    let mut order: Vec<(usize, u32)> = offsets.iter().enumerate().map(|(i, &offset)| (offset, i as u32)).collect();
    sort_in_order(&mut order);
    order.into_iter().map(|(_, i)| i).collect()
}

fn set<U: Copy>(targets: &Targets, blocks: &Blocks, values: View, out: View) -> Result<()> {
    let (src, dst) = (SendPtr::new(values.ptr().cast::<U>()), SendPtr::new(out.ptr().cast::<U>()));
    let write = |start: usize, offsets: &[usize]| {
        // SAFETY: offsets were checked against the indexed dimensions; blocks are within the views.
        unsafe {
            if blocks.whole() {
                for (k, &offset) in offsets.iter().enumerate() {
                    let [at] = blocks.outer.offsets(start + k);
                    std::ptr::copy_nonoverlapping(src.at(at), dst.at(offset), blocks.size);
                }
            } else {
                blocks.elements(start, offsets, |to, from| *dst.at(to) = *src.at(from));
            }
        }
    };
    // Small blocks, or few blocks, are fastest in order.
    let (count, bytes) = (targets.count, blocks.size * size_of::<U>());
    if bytes < 64 || count * bytes < 2 * TASK_BYTES || count > u32::MAX as usize || pool::num_threads() == 1 {
        let fault = FirstFault::new();
        targets.each_chunk(0, count, &fault, |start, offsets| write(start, offsets));
        return targets.check(&fault);
    }
    let offsets = targets.all()?;
    each_target(&offsets, blocks.size, |group| {
        group.last().into_iter().for_each(|&last| write(last as usize, &offsets[last as usize..][..1]));
    });
    Ok(())
}

/// Calls `f` with the positions of each destination offset; groups run in parallel.
pub(crate) fn each_target(offsets: &[usize], block: usize, f: impl Fn(&[u32]) + Sync) {
    let order = by_target(offsets);
    let target = |k: usize| offsets[order[k] as usize];
    pool::parallel_ranges(order.len(), TASK.div_ceil(block), |from, to| {
        // A group belongs to the task in which it starts.
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

/// Elements per piece.
const PIECE: usize = 32 << 10;

/// Coordinates of the nonzero elements, in row-major order: `out` is `[count, rank]`, `i64`, contiguous.
pub fn nonzero(x: View, out: View) -> Result<()> {
    let rows = out.shape().first().copied().unwrap_or(0);
    let found = with_item!(x.dtype(), T => find::<T>(x, rows, out));
    if found != rows {
        return Err(Error::value(format!(
            "nonzero: {found} elements are not zero, but {rows} were counted; the tensor was changed meanwhile"
        )));
    }
    Ok(())
}

/// Writes at most `rows` rows of coordinates and returns the number of nonzero elements.
fn find<T: Item>(x: View, rows: usize, to: View) -> usize {
    use crate::reduce::item::Wide;
    let (shape, n) = (x.shape(), x.numel());
    let nest = Nest::new(shape, [x.strides()]);
    let (src, out) = (SendPtr::new(x.ptr().cast::<T>()), SendPtr::new(to.ptr().cast::<i64>()));
    let (row_step, step_of) = (to.strides()[0], to.strides()[1]);
    // Calls `f` with each nonzero position of a piece.
    let scan = |piece: usize, f: &mut dyn FnMut(usize)| {
        let (inner, step) = innermost(&nest);
        let (mut i, end) = (piece * PIECE, ((piece + 1) * PIECE).min(n));
        while i < end {
            let [start] = nest.offsets(i);
            let run = (inner - i % inner).min(end - i);
            for k in 0..run {
                // SAFETY: the position is within the view.
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
                    unsafe { *out.at(row * row_step + d * step_of) = (position % shape[d]) as i64 };
                    position /= shape[d];
                }
                row += 1;
            }
        });
    });
    total
}
