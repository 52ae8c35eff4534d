//! Reductions over any dimensions of any layout.
//!
//! The loops are split into kept and reduced ones (`plan`). There are two strategies: *rows* reduces adjacent elements
//! of one output at a time, *tiles* reduces rows of many outputs at once. If memory order suits neither, elements are
//! first gathered into a small buffer. The split of the work depends on the shape alone, so results do not depend on
//! the number of threads.

mod arg;
pub(crate) mod fold;
pub(crate) mod item;
mod kernels;
pub(crate) mod plan;

pub use arg::arg_reduce;

use crate::pool;
use kernels::{Kernels, TILE_COLUMNS, TILE_ROWS, Tile};
use plan::{Dim, Loops};
use rushlight_core::backend::Reduce;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Dims, Element, Error, Result, View, with_dtype};
use std::mem::MaybeUninit;

/// Minimum elements per task.
const TASK: usize = 32 << 10;
/// Elements of one output or tile that are reduced as one piece if there are too few outputs for all threads.
const PIECE: usize = 64 << 10;
/// Number of tasks from which outputs are not split into pieces.
const ENOUGH_TASKS: usize = 16;
/// Adjacent elements of one output reduced at once, as a tile of four rows; also the size of a gather buffer.
const CHUNK: usize = 4 * TILE_COLUMNS;
/// Columns of a gathered tile; the buffer takes `CHUNK` elements.
const GATHERED_COLUMNS: usize = 256;
/// Shorter runs are gathered.
const SHORT_RUN: usize = 16;

/// Reduces the dimensions marked in `reduced`; `out` has those at size 1.
pub fn reduce(op: Reduce, x: View, reduced: &[bool], out: View) -> Result<()> {
    let kernels = kernels::select(op, x.dtype())?;
    let param = if let Reduce::Norm { p } = op { p } else { 0.0 };
    let float = x.dtype().is_float() && !matches!(op, Reduce::Any | Reduce::All | Reduce::CountNonzero);
    let numel = x.numel();
    if (1..=TILE_COLUMNS).contains(&numel) && reduced.iter().all(|&r| r) && x.layout().is_contiguous() {
        let mut acc = kernels.empty;
        let tile = Tile { x: x.ptr(), rows: 1, stride: 0, columns: numel };
        // SAFETY: the view's elements are `numel` neighbours, and the output has one element.
        unsafe {
            (kernels.whole)(tile, param, acc.as_mut_ptr());
            finish(op, numel, &mut acc, 1, 1);
            with_dtype!(out.dtype(), O => store(&acc[..1], float, out.ptr().cast::<O>(), 0));
        }
        return Ok(());
    }
    let (kept, inner) = plan::split(x.shape(), x.strides(), out.strides(), reduced);
    let job = Job {
        kernels,
        op,
        param,
        size: x.dtype().size(),
        x: x.ptr(),
        out: out.ptr(),
        out_dtype: out.dtype(),
        float,
        outputs: plan::count(&kept),
        per_output: plan::count(&inner),
        kept,
        reduced: inner,
    };
    if job.outputs == 0 {
        return Ok(());
    }
    if job.per_output == 0 && matches!(op, Reduce::Max | Reduce::Min) {
        return Err(Error::value(format!(
            "{op:?}: cannot reduce over no elements, which have no largest or smallest (input shape {:?})",
            x.shape()
        )));
    }
    job.run();
    Ok(())
}

/// The p-norm of all elements of all tensors, taken as one vector. They are split into pieces whose partial results are
/// combined in order.
pub fn foreach_norm(p: f64, xs: &[View], out: View) -> Result<()> {
    let op = Reduce::Norm { p };
    let mut pieces = 0;
    let jobs = xs
        .iter()
        .map(|x| {
            let (kept, reduced) =
                plan::split(x.shape(), x.strides(), &Dims::from_elem(0, x.shape().len()), &vec![true; x.shape().len()]);
            let job = Job {
                kernels: kernels::select(op, x.dtype())?,
                op,
                param: p,
                size: x.dtype().size(),
                x: x.ptr(),
                out: out.ptr(),
                out_dtype: out.dtype(),
                float: true,
                outputs: 1,
                per_output: plan::count(&reduced),
                kept,
                reduced,
            };
            pieces += job.per_output.div_ceil(PIECE);
            Ok((pieces, job))
        })
        .collect::<Result<SmallVec<[(usize, Job); 4]>>>()?;
    // All floats use the same words for partial results.
    let kernels = kernels::select(op, out.dtype())?;
    let mut partial: SmallVec<[[u64; 3]; 16]> = SmallVec::from_elem(kernels.empty, pieces + 1);
    let slots = Slots(partial.as_mut_ptr().cast());
    let piece = |i: usize| {
        let (end, job) = &jobs[jobs.partition_point(|&(end, _)| end <= i)];
        let start = (i + job.per_output.div_ceil(PIECE) - end) * PIECE;
        let stop = (start + PIECE).min(job.per_output);
        let acc = slots.at(3 * i);
        if stop - start == PIECE && matches!(job.reduced[..], [Dim { x: 1, .. }]) {
            // Four memory streams use more bandwidth than one.
            let stride = PIECE / 4;
            for at in (0..stride).step_by(TILE_COLUMNS) {
                let x = job.x.wrapping_add((start + at) * job.size);
                // SAFETY: four rows within the piece; the slot holds the words of one output.
                unsafe { (job.kernels.whole)(Tile { x, rows: 4, stride, columns: TILE_COLUMNS }, p, acc) };
            }
        } else {
            job.row(0, start, stop, acc);
        }
    };
    let few = jobs.iter().map(|(_, job)| job.per_output).sum::<usize>() <= TASK;
    if few {
        (0..pieces).for_each(piece)
    } else {
        pool::parallel_for(pieces, piece)
    }
    let mut acc = kernels.empty;
    for words in &partial {
        // SAFETY: both hold the words of one output.
        unsafe { (kernels.join)(acc.as_mut_ptr(), 1, words.as_ptr(), 1, 1) };
    }
    finish(op, pieces, &mut acc, 1, 1);
    // SAFETY: the output has one element.
    with_dtype!(out.dtype(), O => unsafe { store(&acc[..1], true, out.ptr().cast::<O>(), 0) });
    Ok(())
}

struct Job {
    kernels: &'static Kernels,
    op: Reduce,
    param: f64,
    /// Bytes of an input element.
    size: usize,
    x: *const u8,
    out: *mut u8,
    out_dtype: DType,
    /// Whether results are `f64`, not `i64`, before they are stored.
    float: bool,
    kept: Loops,
    reduced: Loops,
    outputs: usize,
    /// Number of elements reduced to each output.
    per_output: usize,
}

// SAFETY: tasks read the input and write disjoint outputs.
unsafe impl Sync for Job {}

/// A gathered chunk; aligned for any element.
type Buffer = MaybeUninit<[u64; CHUNK]>;

/// A set of adjacent outputs that are reduced together.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    width: usize,
}

impl Job {
    fn run(&self) {
        let unit = Dim { size: 1, x: 1, out: 0 };
        let inner = *self.reduced.last().unwrap_or(&unit);
        let kept = *self.kept.last().unwrap_or(&Dim { size: 1, x: 0, out: 0 });
        let columns_first = kept.x > 0 && kept.x < inner.x;
        if columns_first && kept.x == 1 && (kept.size >= SHORT_RUN || self.groups(kept.size, inner) > 1) {
            let tiles = kept.size.div_ceil(TILE_COLUMNS);
            let width = kept.size.div_ceil(tiles).next_multiple_of(64).min(kept.size);
            let tiles = kept.size.div_ceil(width);
            let block = |b: usize| {
                let first = b % tiles * width;
                Block { start: b / tiles * kept.size + first, width: width.min(kept.size - first) }
            };
            self.share(self.outputs / kept.size * tiles, width, block, Self::tile);
        } else if self.outputs > 1 && (columns_first || self.per_output < SHORT_RUN) {
            let block = |b: usize| {
                let start = b * GATHERED_COLUMNS;
                Block { start, width: GATHERED_COLUMNS.min(self.outputs - start) }
            };
            let width = GATHERED_COLUMNS.min(self.outputs);
            self.share(self.outputs.div_ceil(GATHERED_COLUMNS), width, block, Self::gathered_tile);
        } else {
            // Several outputs per block save bookkeeping, if there are enough blocks for all threads.
            let width = (self.outputs / 64).clamp(1, 64);
            let block = |b: usize| Block { start: b * width, width: width.min(self.outputs - b * width) };
            self.share(self.outputs.div_ceil(width), width, block, Self::rows);
        }
    }

    /// Distributes `blocks` of about `width` outputs over the pool, splitting the reduced dimension into pieces if
    /// blocks are few. `part(job, block, start, end, acc)` joins positions `start..end` of the reduced loops into the
    /// words at
    /// `acc`.
    fn share(
        &self,
        blocks: usize,
        width: usize,
        block: impl Fn(usize) -> Block + Sync,
        part: impl Fn(&Self, Block, usize, usize, &mut [u64]) + Sync,
    ) {
        let work = width.saturating_mul(self.per_output).max(1);
        let words = self.kernels.words;
        if blocks >= ENOUGH_TASKS || work <= PIECE {
            return pool::parallel_ranges(blocks, TASK.div_ceil(work), |from, to| {
                let mut acc = vec![0; words * width];
                for b in from..to {
                    let block = block(b);
                    let acc = &mut acc[..words * block.width];
                    self.clear(acc, block.width);
                    part(self, block, 0, self.per_output, acc);
                    finish(self.op, self.per_output, acc, block.width, block.width);
                    // SAFETY: the block is within the outputs.
                    unsafe { self.store(block.start, &acc[..block.width]) };
                }
            });
        }
        let piece = PIECE.div_ceil(width).next_multiple_of(TILE_ROWS);
        let pieces = self.per_output.div_ceil(piece);
        let stride = words * width;
        let mut partial = vec![0u64; blocks * pieces * stride];
        let slots = Slots(partial.as_mut_ptr());
        pool::parallel_for(blocks * pieces, |task| {
            let (block, p) = (block(task / pieces), task % pieces);
            // SAFETY: each task has its own slot of `stride` words, and a block is no wider than `width`.
            let acc = unsafe { std::slice::from_raw_parts_mut(slots.at(task * stride), words * block.width) };
            self.clear(acc, block.width);
            part(self, block, p * piece, ((p + 1) * piece).min(self.per_output), acc);
        });
        for b in 0..blocks {
            let block = block(b);
            let (first, rest) = partial[b * pieces * stride..(b + 1) * pieces * stride].split_at_mut(stride);
            for other in rest.chunks(stride) {
                // SAFETY: both hold `words` planes of the block's width.
                unsafe {
                    (self.kernels.join)(first.as_mut_ptr(), block.width, other.as_ptr(), block.width, block.width)
                };
            }
            finish(self.op, self.per_output, first, block.width, block.width);
            // SAFETY: the block is within the outputs.
            unsafe { self.store(block.start, &first[..block.width]) };
        }
    }

    fn clear(&self, acc: &mut [u64], plane: usize) {
        for (words, &empty) in acc.chunks_mut(plane).zip(&self.kernels.empty) {
            words.fill(empty);
        }
    }

    /// Outputs one by one.
    fn rows(&self, block: Block, start: usize, end: usize, acc: &mut [u64]) {
        for j in 0..block.width {
            let mut words = self.kernels.empty;
            self.row(block.start + j, start, end, words.as_mut_ptr());
            for (plane, word) in acc.chunks_mut(block.width).zip(words) {
                plane[j] = word;
            }
        }
    }

    /// One output; its words are at `acc`.
    fn row(&self, output: usize, start: usize, end: usize, acc: *mut u64) {
        let (offset, _) = plan::offsets(&self.kept, output);
        let x = self.x.wrapping_add(offset * self.size);
        let inner = *self.reduced.last().unwrap_or(&Dim { size: 1, x: 1, out: 0 });
        // SAFETY: the positions are within the view.
        unsafe {
            if inner.x != 1 || inner.size < SHORT_RUN && self.reduced.len() > 1 {
                let mut buffer = Buffer::uninit();
                let buffer = buffer.as_mut_ptr().cast::<u8>();
                for at in (start..end).step_by(CHUNK) {
                    let n = CHUNK.min(end - at);
                    plan::gather(&self.reduced, at, n, x, self.size, buffer);
                    self.chunk(buffer, n, acc);
                }
                return;
            }
            // If runs are short, several form a tile.
            let outer = self.reduced.len().checked_sub(2).map(|i| self.reduced[i]);
            let outer = outer.filter(|_| inner.size <= TILE_COLUMNS);
            let mut at = start;
            while at < end {
                let (offset, _) = plan::offsets(&self.reduced, at);
                let (x, within) = (x.add(offset * self.size), at % inner.size);
                match outer {
                    Some(outer) if within == 0 && end - at >= inner.size => {
                        let rows = outer.size - at / inner.size % outer.size;
                        let rows = rows.min((end - at) / inner.size).min(TILE_ROWS);
                        let tile = Tile { x, rows, stride: outer.x, columns: inner.size };
                        (self.kernels.whole)(tile, self.param, acc);
                        at += rows * inner.size;
                    }
                    _ => {
                        let n = (inner.size - within).min(end - at).min(CHUNK);
                        self.chunk(x, n, acc);
                        at += n;
                    }
                }
            }
        }
    }

    /// Combines `n <= CHUNK` adjacent elements into one output: long runs as four rows, which are four memory streams,
    /// the rest as rows of whole vectors.
    ///
    /// # Safety
    /// They are readable; `acc` holds the words of one output.
    unsafe fn chunk(&self, x: *const u8, n: usize, acc: *mut u64) {
        const NARROW: usize = 64;
        let quarter = if n >= CHUNK / 2 { n / 4 / NARROW * NARROW } else { 0 };
        let narrow = (n - 4 * quarter) / NARROW;
        let mut at = 0;
        for (rows, columns) in [(4, quarter), (narrow, NARROW), (1, n % NARROW)] {
            if rows * columns > 0 {
                // SAFETY: the caller's promise; the tiles follow each other and make up the `n` elements.
                unsafe {
                    let tile = Tile { x: x.add(at * self.size), rows, stride: columns, columns };
                    (self.kernels.whole)(tile, self.param, acc);
                }
                at += rows * columns;
            }
        }
    }

    /// Number of adjacent short rows of `width` elements that are reduced together.
    fn groups(&self, width: usize, inner: Dim) -> usize {
        if width < 64 && inner.x == width { (512 / width).min(inner.size / 8).max(1) } else { 1 }
    }

    /// Adjacent outputs whose elements are adjacent, too.
    fn tile(&self, block: Block, start: usize, end: usize, acc: &mut [u64]) {
        let (offset, _) = plan::offsets(&self.kept, block.start);
        let x = self.x.wrapping_add(offset * self.size);
        let width = block.width;
        let Some(&inner) = self.reduced.last() else { return };
        let groups = self.groups(width, inner);
        let wide = groups * width;
        let mut wide_acc = vec![0; if groups > 1 { self.kernels.words * wide } else { 0 }];
        plan::runs(&self.reduced, start, end - start, |offset, _, _, rows| {
            // SAFETY: rows and columns are within the view.
            unsafe {
                let x = x.add(offset * self.size);
                let mut row = 0;
                if groups > 1 && rows >= groups {
                    let side = &mut wide_acc[..];
                    self.clear(side, wide);
                    row = rows / groups * groups;
                    self.tile_rows(x, wide, row / groups, wide, side.as_mut_ptr(), wide);
                    for g in 0..groups {
                        let group = side.as_ptr().add(g * width);
                        (self.kernels.join)(acc.as_mut_ptr(), width, group, wide, width);
                    }
                }
                let x = x.add(row * inner.x * self.size);
                self.tile_rows(x, inner.x, rows - row, width, acc.as_mut_ptr(), width);
            }
        });
    }

    /// Any number of rows.
    ///
    /// # Safety
    /// Rows and columns are readable, `acc` holds planes `plane` apart for `columns` outputs.
    unsafe fn tile_rows(&self, x: *const u8, stride: usize, rows: usize, columns: usize, acc: *mut u64, plane: usize) {
        for row in (0..rows).step_by(TILE_ROWS) {
            let rows = TILE_ROWS.min(rows - row);
            // SAFETY: the caller's promise.
            unsafe {
                let tile = Tile { x: x.add(row * stride * self.size), rows, stride, columns };
                (self.kernels.columns)(tile, self.param, acc, plane);
            }
        }
    }

    /// Adjacent outputs whose elements have any strides.
    fn gathered_tile(&self, block: Block, start: usize, end: usize, acc: &mut [u64]) {
        let width = block.width;
        let rows_at_once = (CHUNK / width).min(TILE_ROWS);
        let mut buffer = Buffer::uninit();
        let buffer = buffer.as_mut_ptr().cast::<u8>();
        for at in (start..end).step_by(rows_at_once) {
            let rows = rows_at_once.min(end - at);
            // SAFETY: the positions are within the view, and `rows * width` elements fit the buffer.
            unsafe {
                for row in 0..rows {
                    let (offset, _) = plan::offsets(&self.reduced, at + row);
                    let dst = buffer.add(row * width * self.size);
                    plan::gather(&self.kept, block.start, width, self.x.add(offset * self.size), self.size, dst);
                }
                let tile = Tile { x: buffer, rows, stride: width, columns: width };
                (self.kernels.columns)(tile, self.param, acc.as_mut_ptr(), width);
            }
        }
    }

    /// Writes results to the outputs from position `start` on.
    ///
    /// # Safety
    /// The positions are within the kept loops.
    unsafe fn store(&self, start: usize, results: &[u64]) {
        let step = self.kept.last().map_or(0, |d| d.out);
        with_dtype!(self.out_dtype, O => {
            let out = self.out.cast::<O>();
            plan::runs(&self.kept, start, results.len(), |_, offset, done, n| {
                // SAFETY: the caller's promise.
                unsafe { store(&results[done..done + n], self.float, out.add(offset), step) }
            });
        });
    }
}

/// Turns the words of `width` outputs, each of `n` elements, into results, in the first plane.
#[inline]
fn finish(op: Reduce, n: usize, acc: &mut [u64], plane: usize, width: usize) {
    let count = n as f64;
    let (first, rest) = acc.split_at_mut(plane);
    let first = &mut first[..width];
    let floats = |words: &mut [u64], f: &dyn Fn(f64) -> f64| {
        words.iter_mut().for_each(|w| *w = f(f64::from_bits(*w)).to_bits());
    };
    match op {
        Reduce::Sum | Reduce::Prod | Reduce::Max | Reduce::Min | Reduce::SumSquares | Reduce::CountNonzero => {}
        Reduce::Mean => first.iter_mut().for_each(|w| *w = (f64::from_bits(*w) / count).to_bits()),
        Reduce::Any => first.iter_mut().for_each(|w| *w = (*w != 0) as u64),
        Reduce::All => first.iter_mut().for_each(|w| *w = (*w == n as u64) as u64),
        Reduce::Var { correction } => {
            let divisor = (count - correction).max(0.0);
            for (w, &squares) in first.iter_mut().zip(&rest[plane..]) {
                let squares = f64::from_bits(squares);
                // Rounding may make this slightly negative.
                *w = (if squares < 0.0 { 0.0 } else { squares } / divisor).to_bits();
            }
        }
        Reduce::Norm { p: 0.0 } => first.iter_mut().for_each(|w| *w = (*w as f64).to_bits()),
        Reduce::Norm { p: 2.0 } => floats(first, &f64::sqrt),
        Reduce::Norm { p } if p == 1.0 || p.is_infinite() => {}
        Reduce::Norm { p } => floats(first, &|v| v.powf(1.0 / p)),
        Reduce::LogSumExp => {
            for (w, &sum) in first.iter_mut().zip(&rest[..width]) {
                *w = (f64::from_bits(*w) + f64::from_bits(sum).ln()).to_bits();
            }
        }
    }
}

/// Writes `f64` or `i64` results with stride `step`.
///
/// # Safety
/// `out` is writable at these places.
#[inline(always)]
unsafe fn store<O: Element>(results: &[u64], float: bool, out: *mut O, step: usize) {
    for (i, &word) in results.iter().enumerate() {
        let value = if float { O::from_f64(f64::from_bits(word)) } else { O::from_i64(word as i64) };
        // SAFETY: the caller's promise.
        unsafe { *out.add(i * step) = value };
    }
}

/// Buffer for the tasks' partial results.
struct Slots(*mut u64);
// SAFETY: tasks write disjoint parts.
unsafe impl Sync for Slots {}

impl Slots {
    fn at(&self, index: usize) -> *mut u64 {
        self.0.wrapping_add(index)
    }
}
