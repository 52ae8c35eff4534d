//! Largest or smallest element along a dimension, and its index.

use super::fold::{Absorbed, Fold, Max, Min};
use super::item::{Item, Wide, with_item};
use super::kernels::{TILE_COLUMNS, Tile, one_row};
use super::plan;
use crate::isa::Isa;
use crate::{multiversion, pool};
use rushlight_core::backend::ArgReduce;
use rushlight_core::{Result, View};
use std::mem::MaybeUninit;

/// Elements per vectorised step.
const CHUNK: usize = TILE_COLUMNS;
/// Elements per piece of a line, if lines are few.
const PIECE: usize = 64 << 10;
/// Minimum elements per task.
const TASK: usize = 32 << 10;
/// Adjacent lines that are searched together.
const COLUMNS: usize = 256;

/// An order in which NaN comes first.
trait Best<T: Item>: Fold<T, Lane = T::Wide, Aux = ()> + Sync {
    /// Whether `a` is strictly better.
    fn better(a: T::Wide, b: T::Wide) -> bool;
}
impl<T: Item<Wide: Absorbed>> Best<T> for Max {
    #[inline(always)]
    fn better(a: T::Wide, b: T::Wide) -> bool {
        a > b || a.is_nan() & !b.is_nan()
    }
}
impl<T: Item<Wide: Absorbed>> Best<T> for Min {
    #[inline(always)]
    fn better(a: T::Wide, b: T::Wide) -> bool {
        a < b || a.is_nan() & !b.is_nan()
    }
}

/// Best value along `dim` and its index (`i64`), the first of equals; both outputs have size 1 there.
pub fn arg_reduce(op: ArgReduce, x: View, dim: usize, values: View, indices: View) -> Result<()> {
    with_item!(x.dtype(), T => match op {
        ArgReduce::Max => run::<T, Max>(x, dim, values, indices),
        ArgReduce::Min => run::<T, Min>(x, dim, values, indices),
    });
    Ok(())
}

/// Addresses of the operands.
#[derive(Clone, Copy)]
struct Places<T> {
    x: *const T,
    values: *mut T,
    indices: *mut i64,
}
// SAFETY: tasks read the input and write disjoint outputs.
unsafe impl<T> Sync for Places<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Places<T> {}

impl<T: Item> Places<T> {
    /// # Safety
    /// The offsets are within the outputs.
    unsafe fn store(&self, [_, values, indices]: [usize; 3], (value, index): (T::Wide, usize)) {
        // SAFETY: the caller's promise.
        unsafe {
            *self.values.add(values) = T::narrow(value);
            *self.indices.add(indices) = index as i64;
        }
    }
}

fn run<T: Item, B: Best<T>>(x: View, dim: usize, values: View, indices: View) {
    let strides = [x.strides(), values.strides(), indices.strides()];
    let (n, [step, ..]) = plan::along(x.shape(), dim, strides);
    let lines = plan::lines(x.shape(), dim, strides);
    let count = lines.numel();
    if n == 0 || count == 0 {
        return;
    }
    let places =
        Places::<T> { x: x.ptr().cast_const().cast(), values: values.ptr().cast(), indices: indices.ptr().cast() };
    let (width, side) = (lines.shape.last().copied().unwrap_or(1), lines.strides[0].last().copied().unwrap_or(1));
    if side == 1 && width >= 8 && step != 1 {
        let tiles = width.div_ceil(COLUMNS);
        let grain = TASK.div_ceil(n * COLUMNS.min(width));
        pool::parallel_ranges(count / width * tiles, grain, |from, to| {
            for tile in from..to {
                let first = tile / tiles * width + tile % tiles * COLUMNS;
                let columns = COLUMNS.min(width - tile % tiles * COLUMNS);
                let mut best = [(T::Wide::ZERO, 0u64); COLUMNS];
                // SAFETY: the tile's lines are adjacent within the view.
                unsafe {
                    let start = places.x.add(lines.offsets(first)[0]);
                    best_columns::<T, B>(start, n, step, columns, best.as_mut_ptr());
                    for (j, &(value, index)) in best[..columns].iter().enumerate() {
                        places.store(lines.offsets(first + j), (value, index as usize));
                    }
                }
            }
        });
    } else if count >= 16 || n <= PIECE {
        pool::parallel_ranges(count, TASK.div_ceil(n), |from, to| {
            for line in from..to {
                let at = lines.offsets(line);
                // SAFETY: the line is within the view.
                unsafe { places.store(at, best_range::<T, B>(places.x.add(at[0]), step, 0, n)) };
            }
        });
    } else {
        let pieces = n.div_ceil(PIECE);
        for line in 0..count {
            let at = lines.offsets(line);
            let found: Vec<std::sync::OnceLock<(T::Wide, usize)>> = (0..pieces).map(|_| Default::default()).collect();
            pool::parallel_for(pieces, |p| {
                let places = &places;
                // SAFETY: as above.
                let best =
                    unsafe { best_range::<T, B>(places.x.add(at[0]), step, p * PIECE, ((p + 1) * PIECE).min(n)) };
                // Each piece is set once.
                let _ = found[p].set(best);
            });
            let best = found.iter().filter_map(|f| f.get().copied()).reduce(first_best::<T, B>);
            if let Some(best) = best {
                // SAFETY: the line's outputs are within the views.
                unsafe { places.store(at, best) };
            }
        }
    }
}

/// The better one; the first on a tie.
#[inline(always)]
fn first_best<T: Item, B: Best<T>>(a: (T::Wide, usize), b: (T::Wide, usize)) -> (T::Wide, usize) {
    if B::better(b.0, a.0) { b } else { a }
}

/// The best of positions `start..end` of a line, which is not empty.
///
/// # Safety
/// They are readable, `step` elements apart.
unsafe fn best_range<T: Item, B: Best<T>>(x: *const T, step: usize, start: usize, end: usize) -> (T::Wide, usize) {
    let mut buffer = MaybeUninit::<[T; CHUNK]>::uninit();
    let buffer = buffer.as_mut_ptr().cast::<T>();
    let mut best = None;
    for at in (start..end).step_by(CHUNK) {
        let n = CHUNK.min(end - at);
        // SAFETY: the caller's promise; the buffer takes a chunk.
        let (value, index) = unsafe {
            let chunk = if step == 1 {
                x.add(at)
            } else {
                (0..n).for_each(|i| *buffer.add(i) = *x.add((at + i) * step));
                buffer.cast_const()
            };
            best_chunk::<T, B>(chunk, n)
        };
        let here = (value, at + index);
        best = Some(best.map_or(here, |b| first_best::<T, B>(b, here)));
    }
    best.unwrap_or((T::Wide::ZERO, start))
}

/// Finds the best value, then its index: two fast passes instead of one that carries indices.
#[inline(always)]
unsafe fn best_chunk_kernel<T: Item, B: Best<T>, I: Isa>(x: *const T, n: usize) -> (T::Wide, usize) {
    const BLOCK: usize = 64;
    // SAFETY: the caller guarantees `n <= CHUNK` elements.
    unsafe {
        let value = one_row::<T, B, I>(Tile { x: x.cast(), rows: 1, stride: 0, columns: n });
        let is_it = |i: usize| {
            let v = (*x.add(i)).widen();
            (v == value) | v.is_nan()
        };
        let mut start = 0;
        while start + BLOCK <= n {
            let mut any = false;
            for i in start..start + BLOCK {
                any |= is_it(i);
            }
            if any {
                break;
            }
            start += BLOCK;
        }
        (value, (start..n).find(|&i| is_it(i)).unwrap_or(0))
    }
}

multiversion! {
    unsafe fn best_chunk<T: Item, B: Best<T>>(x: *const T, n: usize) -> (T::Wide, usize) = best_chunk_kernel, wide when size_of::<T>() == 4;
}

/// Adjacent lines; `step` is the stride between positions.
#[inline(always)]
unsafe fn best_columns_kernel<T: Item, B: Best<T>, I: Isa>(
    x: *const T,
    n: usize,
    step: usize,
    columns: usize,
    out: *mut (T::Wide, u64),
) {
    let mut values = [T::Wide::ZERO; COLUMNS];
    let mut indices = [0u32; COLUMNS];
    // Indices have 32 bits to fit the lanes; longer lines take several rounds.
    const ROUND: usize = 1 << 30;
    for round in (0..n).step_by(ROUND) {
        // SAFETY: the caller guarantees `columns <= COLUMNS` lines of `n` elements.
        unsafe {
            let x = x.add(round * step);
            for j in 0..columns {
                values[j] = (*x.add(j)).widen();
                indices[j] = 0;
            }
            for i in 1..ROUND.min(n - round) {
                let row = x.add(i * step);
                for j in 0..columns {
                    let v = (*row.add(j)).widen();
                    let better = B::better(v, values[j]);
                    values[j] = if better { v } else { values[j] };
                    indices[j] = if better { i as u32 } else { indices[j] };
                }
            }
            for j in 0..columns {
                if round == 0 || B::better(values[j], (*out.add(j)).0) {
                    *out.add(j) = (values[j], (round + indices[j] as usize) as u64);
                }
            }
        }
    }
}

multiversion! {
    unsafe fn best_columns<T: Item, B: Best<T>>(
        x: *const T,
        n: usize,
        step: usize,
        columns: usize,
        out: *mut (T::Wide, u64),
    ) = best_columns_kernel, wide when size_of::<T>() == 4;
}
