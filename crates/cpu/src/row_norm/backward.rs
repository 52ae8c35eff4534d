//! Gradients of row norms.

use super::{BLOCK, GRAIN, LONG, STREAM, add_into};
use crate::float::{Float, Scratch, load_row, out_row, store_row};
use crate::multiversion;
use crate::pool::{parallel_for, parallel_ranges};
use crate::simd::{Real, Simd, Vectors, fence, sweep};
use rushlight_core::Element;
use rushlight_core::backend::RowNorm;
use rushlight_core::sync::SendPtr;

/// Inputs of the backward pass.
pub(super) struct Input<T: Float> {
    pub dy: SendPtr<T>,
    pub x: SendPtr<T>,
    pub mean: SendPtr<T::Acc>,
    pub rstd: SendPtr<T::Acc>,
    /// Added to the gradient.
    pub so_far: Option<SendPtr<T>>,
}

impl<T: Float> Input<T> {
    /// Mean and inverse standard deviation of a row.
    ///
    /// # Safety
    /// The row has statistics.
    unsafe fn stats(&self, rms: bool, row: usize) -> (T::Acc, T::Acc) {
        // SAFETY: by the caller's contract.
        unsafe { (if rms { T::Acc::ZERO } else { *self.mean.at(row) }, *self.rstd.at(row)) }
    }

    /// Pointers to the elements from `at` on: of the output's gradient, of the input and of the addend, if
    /// anything.
    fn from(&self, at: usize) -> [*const T; 3] {
        let so_far = self.so_far.map_or(std::ptr::null(), |s| s.at(at).cast_const());
        [self.dy.at(at).cast_const(), self.x.at(at).cast_const(), so_far]
    }
}

/// Gradients; returns the weight's and then the bias's, if requested.
///
/// # Safety
/// `rows * cols` elements at `dy`, `x`, `so_far` and `dx`, `cols` weights, `rows` statistics; `dx` overlaps nothing.
pub(super) unsafe fn backward<T: Float>(
    spec: &RowNorm,
    input: Input<T>,
    weight: Option<&[T::Acc]>,
    dx: Option<*mut T>,
    parameters: bool,
) -> Vec<T::Acc> {
    let RowNorm { rows, cols, rms, .. } = *spec;
    let mut sums = vec![T::Acc::ZERO; if parameters { 2 * cols } else { 0 }];
    if rows == 0 || cols == 0 {
        return sums;
    }
    let ones;
    let weight = match weight {
        Some(w) => w,
        None => {
            ones = vec![T::Acc::lit(1.0); cols];
            &ones
        }
    };
    let stream = rows * cols * size_of::<T>() > STREAM;
    let dxs = dx.map(SendPtr::new);
    let factors = |row: usize, part: [f64; 2]| {
        // SAFETY: the row has statistics.
        let (mean, rstd) = unsafe { input.stats(rms, row) };
        let scale = rstd.to_f64() / cols as f64;
        let of_mean = if rms { 0.0 } else { part[0] * scale };
        Factors { mean, rstd, of_mean: T::Acc::lit(of_mean), of_spread: T::Acc::lit(part[1] * scale), stream }
    };
    if cols <= LONG && (rows >= 32 || cols <= 2 * BLOCK) {
        // The split depends on the sizes alone, so sums do not depend on the number of threads.
        let per_chunk = rows.div_ceil(64).max((1 << 16) / cols).max(8);
        let chunks = rows.div_ceil(per_chunk);
        let mut partial = vec![T::Acc::ZERO; if parameters && chunks > 1 { chunks * 2 * cols } else { 0 }];
        let partials = SendPtr::new(if chunks > 1 { partial.as_mut_ptr() } else { sums.as_mut_ptr() });
        parallel_for(chunks, |chunk| {
            let column_sums = parameters.then(|| partials.at(chunk * 2 * cols));
            let end = rows.min((chunk + 1) * per_chunk);
            for first in (chunk * per_chunk..end).step_by(TOGETHER) {
                let count = TOGETHER.min(end - first);
                let (dy, x) = (input.dy.at(first * cols), input.x.at(first * cols));
                // SAFETY: the rows are within the tensors; the chunk's sums and its rows of `dx` are this task's.
                unsafe {
                    let stats: [_; TOGETHER] = std::array::from_fn(|r| input.stats(rms, first + r.min(count - 1)));
                    let parts = reduce::<T>(
                        &stats[..count],
                        [dy.cast_const(), x.cast_const()],
                        cols,
                        weight,
                        column_sums,
                        cols,
                    );
                    if let Some(dx) = dxs {
                        for (r, &part) in parts.iter().enumerate().take(count) {
                            let at = (first + r) * cols;
                            gradient::<T>(factors(first + r, part), input.from(at), dx.at(at), weight);
                        }
                    }
                }
            }
        });
        if parameters && chunks > 1 {
            let all = SendPtr::new(sums.as_mut_ptr());
            parallel_ranges(2 * cols, BLOCK, |from, to| {
                for chunk in 0..chunks {
                    // SAFETY: columns `from..to` are this task's, in every chunk.
                    unsafe { add_into(all.at(from), partials.at(chunk * 2 * cols + from), to - from) }
                }
            });
        }
        return sums;
    }
    let blocks = cols.div_ceil(BLOCK);
    let mut parts = vec![[0.0; 2]; blocks];
    let all = SendPtr::new(sums.as_mut_ptr());
    for row in 0..rows {
        let parts_at = SendPtr::new(parts.as_mut_ptr());
        parallel_for(blocks.div_ceil(GRAIN / BLOCK), |task| {
            for b in task * (GRAIN / BLOCK)..blocks.min((task + 1) * (GRAIN / BLOCK)) {
                let (from, to) = (b * BLOCK, cols.min((b + 1) * BLOCK));
                let column_sums = parameters.then(|| all.at(from));
                // SAFETY: the block is within the row; its part and its columns' sums are this task's.
                unsafe {
                    let stats = [input.stats(rms, row)];
                    let (dy, x) = (input.dy.at(row * cols + from), input.x.at(row * cols + from));
                    *parts_at.at(b) = reduce::<T>(
                        &stats,
                        [dy.cast_const(), x.cast_const()],
                        cols,
                        &weight[from..to],
                        column_sums,
                        cols,
                    )[0];
                }
            }
        });
        let part = parts.iter().fold([0.0; 2], |all, p| [all[0] + p[0], all[1] + p[1]]);
        if let Some(dx) = dxs {
            let factors = factors(row, part);
            parallel_ranges(cols, GRAIN, |from, to| {
                let at = row * cols + from;
                // SAFETY: the range is within the row and is this task's.
                unsafe { gradient::<T>(factors, input.from(at), dx.at(at), &weight[from..to]) }
            });
        }
    }
    sums
}

/// Factors of a row's gradient.
#[derive(Clone, Copy)]
struct Factors<R> {
    mean: R,
    rstd: R,
    /// `rstd / n` times the sum of the scaled gradient.
    of_mean: R,
    /// `rstd / n` times its sum weighted with the normalised row.
    of_spread: R,
    stream: bool,
}

/// Rows processed together, so that weights and column sums are read and written once for all of them.
const TOGETHER: usize = 4;

#[inline(always)]
unsafe fn reduce_rows<T: Float, I: Vectors, const K: usize>(
    stats: &[(T::Acc, T::Acc)],
    [dy, x]: [*const T; 2],
    apart: usize,
    weight: &[T::Acc],
    column_sums: Option<*mut T::Acc>,
    bias_at: usize,
) -> [[f64; 2]; TOGETHER] {
    type V<T, I> = <<T as Float>::Acc as Real>::V<I>;
    const PART: usize = BLOCK / 4;
    let zero = V::<T, I>::splat(T::Acc::ZERO);
    let (mut mean, mut rstd) = ([zero; K], [zero; K]);
    for r in 0..K {
        (mean[r], rstd[r]) = (V::<T, I>::splat(stats[r].0), V::<T, I>::splat(stats[r].1));
    }
    let (mut first, mut second) = (Scratch::<T::Acc, BLOCK>::new(), Scratch::<T::Acc, BLOCK>::new());
    let mut sums = [[0.0; 2]; TOGETHER];
    for (b, weight) in weight.chunks(PART).enumerate() {
        let (n, at, weight) = (weight.len(), b * PART, weight.as_ptr());
        let (mut plain, mut weighted) = ([zero; K], [zero; K]);
        // SAFETY: a block of `n` within the rows and within each of the two rows of column sums.
        unsafe {
            let mut rows = [(std::ptr::null(), std::ptr::null()); K];
            for (r, row) in rows.iter_mut().enumerate() {
                let from = r * apart + at;
                *row = (
                    load_row::<T, I>(dy.add(from), first.as_mut_ptr().add(r * PART), n),
                    load_row::<T, I>(x.add(from), second.as_mut_ptr().add(r * PART), n),
                );
            }
            sweep!(V<T, I>, n, i, m => {
                let w = V::<T, I>::get(weight.add(i), m, T::Acc::ZERO);
                let (mut dweight, mut dbias) = (zero, zero);
                for r in 0..K {
                    let dy = V::<T, I>::get(rows[r].0.add(i), m, T::Acc::ZERO);
                    let xhat = (V::<T, I>::get(rows[r].1.add(i), m, T::Acc::ZERO) - mean[r]) * rstd[r];
                    let g = dy * w;
                    plain[r] = plain[r] + g;
                    weighted[r] = g.fma(xhat, weighted[r]);
                    dweight = dy.fma(xhat, dweight);
                    dbias = dbias + dy;
                }
                if let Some(sums) = column_sums {
                    let (to_weight, to_bias) = (sums.add(at + i), sums.add(bias_at + at + i));
                    (V::<T, I>::get(to_weight, m, T::Acc::ZERO) + dweight).put(to_weight, m);
                    (V::<T, I>::get(to_bias, m, T::Acc::ZERO) + dbias).put(to_bias, m);
                }
            });
        }
        for r in 0..K {
            sums[r] = [sums[r][0] + plain[r].sum().to_f64(), sums[r][1] + weighted[r].sum().to_f64()];
        }
    }
    sums
}

#[inline(always)]
unsafe fn reduce_kernel<T: Float, I: Vectors>(
    stats: &[(T::Acc, T::Acc)],
    rows: [*const T; 2],
    apart: usize,
    weight: &[T::Acc],
    column_sums: Option<*mut T::Acc>,
    bias_at: usize,
) -> [[f64; 2]; TOGETHER] {
    // SAFETY: by the caller's contract.
    unsafe {
        match stats.len() {
            TOGETHER => reduce_rows::<T, I, TOGETHER>(stats, rows, apart, weight, column_sums, bias_at),
            count => {
                let mut sums = [[0.0; 2]; TOGETHER];
                for r in 0..count {
                    let row = [rows[0].add(r * apart), rows[1].add(r * apart)];
                    sums[r] = reduce_rows::<T, I, 1>(&stats[r..], row, apart, weight, column_sums, bias_at)[0];
                }
                sums
            }
        }
    }
}
multiversion! {
    /// For up to `TOGETHER` rows (or parts of rows), `apart` elements from each other: the sums of the scaled gradient,
    /// plain and weighted with the normalised row. Adds `dy` times that row to the column sums, and `dy` to those from
    /// `bias_at` on.
    ///
    /// # Safety
    /// Each row has as many elements in `dy` and `x` as there are weights, and there are as many of both column sums.
    unsafe fn reduce<T: Float>(
        stats: &[(T::Acc, T::Acc)], rows: [*const T; 2], apart: usize, weight: &[T::Acc], column_sums: Option<*mut T::Acc>, bias_at: usize,
    ) -> [[f64; 2]; TOGETHER] = reduce_kernel;
}

#[inline(always)]
unsafe fn gradient_kernel<T: Float, I: Vectors>(
    f: Factors<T::Acc>,
    [dy, x, so_far]: [*const T; 3],
    dx: *mut T,
    weight: &[T::Acc],
) {
    type V<T, I> = <<T as Float>::Acc as Real>::V<I>;
    let (mut first, mut second) = (Scratch::<T::Acc, BLOCK>::new(), Scratch::<T::Acc, BLOCK>::new());
    let mut third = Scratch::<T::Acc, BLOCK>::new();
    let adds = !so_far.is_null();
    let (mean, rstd) = (V::<T, I>::splat(f.mean), V::<T, I>::splat(f.rstd));
    let (of_mean, of_spread) = (V::<T, I>::splat(f.of_mean), V::<T, I>::splat(T::Acc::ZERO - f.of_spread));
    for (b, weight) in weight.chunks(BLOCK).enumerate() {
        let (n, at, weight) = (weight.len(), b * BLOCK, weight.as_ptr());
        // SAFETY: a block of `n` within the row.
        unsafe {
            let dx = dx.add(at);
            let dy = load_row::<T, I>(dy.add(at), first.as_mut_ptr(), n);
            let x = load_row::<T, I>(x.add(at), second.as_mut_ptr(), n);
            let so_far = if adds { load_row::<T, I>(so_far.add(at), third.as_mut_ptr(), n) } else { x };
            let out = out_row(dx, first.as_mut_ptr());
            let stream = f.stream && T::WIDE && (out as usize).is_multiple_of(size_of::<V<T, I>>());
            sweep!(V<T, I>, n, i, m => {
                let xhat = (V::<T, I>::get(x.add(i), m, T::Acc::ZERO) - mean) * rstd;
                let g = V::<T, I>::get(dy.add(i), m, T::Acc::ZERO) * V::<T, I>::get(weight.add(i), m, T::Acc::ZERO);
                let mut v = xhat.fma(of_spread, g * rstd - of_mean);
                if adds {
                    v = v + V::<T, I>::get(so_far.add(i), m, T::Acc::ZERO);
                }
                if stream && m == V::<T, I>::N {
                    v.stream(out.add(i));
                } else {
                    v.put(out.add(i), m);
                }
            });
            store_row::<T, I>(out, dx, n);
        }
    }
    if f.stream {
        fence();
    }
}
multiversion! {
    /// Gradient of (a part of) a row, from the output's gradient, the row and the addend, unless that is null.
    ///
    /// # Safety
    /// As many elements at each and at `dx` as there are weights; `dx` overlaps none.
    unsafe fn gradient<T: Float>(f: Factors<T::Acc>, from: [*const T; 3], dx: *mut T, weight: &[T::Acc]) = gradient_kernel;
}
