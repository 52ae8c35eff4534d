//! Gradients of row norms.

use super::{GRAIN, LONG, STREAM, add_into};
use crate::float::{BLOCK, Float, Scratch, each_block, widen};
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

/// Elements of a row that are summed before they are added in `f64`.
const PART: usize = BLOCK / TOGETHER;
/// Rows processed together, so that weights and column sums are read and written once for all of them.
const TOGETHER: usize = 4;

#[inline(always)]
unsafe fn reduce_rows<R: Real, I: Vectors, const K: usize>(
    stats: &[(R, R)],
    [dy, x]: [*const R; 2],
    apart: usize,
    weight: &[R],
    column_sums: Option<*mut R>,
    bias_at: usize,
) -> [[f64; 2]; TOGETHER] {
    let zero = R::V::<I>::splat(R::ZERO);
    let (mut mean, mut rstd) = ([zero; K], [zero; K]);
    for r in 0..K {
        (mean[r], rstd[r]) = (R::V::<I>::splat(stats[r].0), R::V::<I>::splat(stats[r].1));
    }
    let mut sums = [[0.0; 2]; TOGETHER];
    for (b, weight) in weight.chunks(PART).enumerate() {
        let (n, at, weight) = (weight.len(), b * PART, weight.as_ptr());
        let (mut plain, mut weighted) = ([zero; K], [zero; K]);
        // SAFETY: a block of `n` within the rows and within each of the two rows of column sums.
        unsafe {
            sweep!(R::V<I>, n, i, m => {
                let w = R::V::<I>::get(weight.add(i), m, R::ZERO);
                let (mut dweight, mut dbias) = (zero, zero);
                for r in 0..K {
                    let from = r * apart + at + i;
                    let dy = R::V::<I>::get(dy.add(from), m, R::ZERO);
                    let xhat = (R::V::<I>::get(x.add(from), m, R::ZERO) - mean[r]) * rstd[r];
                    let g = dy * w;
                    plain[r] = plain[r] + g;
                    weighted[r] = g.fma(xhat, weighted[r]);
                    dweight = dy.fma(xhat, dweight);
                    dbias = dbias + dy;
                }
                if let Some(sums) = column_sums {
                    let (to_weight, to_bias) = (sums.add(at + i), sums.add(bias_at + at + i));
                    (R::V::<I>::get(to_weight, m, R::ZERO) + dweight).put(to_weight, m);
                    (R::V::<I>::get(to_bias, m, R::ZERO) + dbias).put(to_bias, m);
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
unsafe fn reduce_kernel<R: Real, I: Vectors>(
    stats: &[(R, R)],
    rows: [*const R; 2],
    apart: usize,
    weight: &[R],
    column_sums: Option<*mut R>,
    bias_at: usize,
) -> [[f64; 2]; TOGETHER] {
    // SAFETY: by the caller's contract.
    unsafe {
        match stats.len() {
            TOGETHER => reduce_rows::<R, I, TOGETHER>(stats, rows, apart, weight, column_sums, bias_at),
            count => {
                let mut sums = [[0.0; 2]; TOGETHER];
                for r in 0..count {
                    let row = [rows[0].add(r * apart), rows[1].add(r * apart)];
                    sums[r] = reduce_rows::<R, I, 1>(&stats[r..], row, apart, weight, column_sums, bias_at)[0];
                }
                sums
            }
        }
    }
}
multiversion! {
    unsafe fn wide_reduce<R: Real>(
        stats: &[(R, R)], rows: [*const R; 2], apart: usize, weight: &[R], column_sums: Option<*mut R>, bias_at: usize,
    ) -> [[f64; 2]; TOGETHER] = reduce_kernel;
}

/// For up to `TOGETHER` rows (or parts of rows), `apart` elements from each other: the sums of the scaled gradient,
/// plain and weighted with the normalised row. Adds `dy` times that row to the column sums, and `dy` to those from
/// `bias_at` on.
///
/// # Safety
/// Each row has as many elements in `dy` and `x` as there are weights, and there are as many of both column sums.
unsafe fn reduce<T: Float>(
    stats: &[(T::Acc, T::Acc)],
    [dy, x]: [*const T; 2],
    apart: usize,
    weight: &[T::Acc],
    column_sums: Option<*mut T::Acc>,
    bias_at: usize,
) -> [[f64; 2]; TOGETHER] {
    if T::WIDE {
        // SAFETY: by the caller's contract.
        return unsafe { wide_reduce(stats, [dy.cast(), x.cast()], apart, weight, column_sums, bias_at) };
    }
    let (mut first, mut second) = (Scratch::<T::Acc, BLOCK>::new(), Scratch::<T::Acc, BLOCK>::new());
    let (first, second) = (first.as_mut_ptr(), second.as_mut_ptr());
    let mut sums = [[0.0; 2]; TOGETHER];
    for (b, weight) in weight.chunks(PART).enumerate() {
        let at = b * PART;
        // SAFETY: a part of each row, for which there is scratch.
        unsafe {
            for r in 0..stats.len() {
                widen(dy.add(r * apart + at), first.add(r * PART), weight.len());
                widen(x.add(r * apart + at), second.add(r * PART), weight.len());
            }
            let rows = [first.cast_const(), second.cast_const()];
            let part = wide_reduce(stats, rows, PART, weight, column_sums.map(|s| s.add(at)), bias_at);
            for (sum, part) in sums.iter_mut().zip(part) {
                *sum = [sum[0] + part[0], sum[1] + part[1]];
            }
        }
    }
    sums
}

#[inline(always)]
unsafe fn gradient_kernel<R: Real, I: Vectors>(
    f: Factors<R>,
    [dy, x, so_far]: [*const R; 3],
    dx: *mut R,
    weight: *const R,
    n: usize,
) {
    let adds = !so_far.is_null();
    let (mean, rstd) = (R::V::<I>::splat(f.mean), R::V::<I>::splat(f.rstd));
    let (of_mean, of_spread) = (R::V::<I>::splat(f.of_mean), R::V::<I>::splat(R::ZERO - f.of_spread));
    let stream = f.stream && (dx as usize).is_multiple_of(size_of::<R::V<I>>());
    sweep!(R::V<I>, n, i, m => {
        // SAFETY: `n` elements by the caller's contract.
        unsafe {
            let xhat = (R::V::<I>::get(x.add(i), m, R::ZERO) - mean) * rstd;
            let g = R::V::<I>::get(dy.add(i), m, R::ZERO) * R::V::<I>::get(weight.add(i), m, R::ZERO);
            let mut v = xhat.fma(of_spread, g * rstd - of_mean);
            if adds {
                v = v + R::V::<I>::get(so_far.add(i), m, R::ZERO);
            }
            if stream && m == R::V::<I>::N {
                v.stream(dx.add(i));
            } else {
                v.put(dx.add(i), m);
            }
        }
    });
    if f.stream {
        fence();
    }
}
multiversion! {
    unsafe fn wide_gradient<R: Real>(f: Factors<R>, from: [*const R; 3], dx: *mut R, weight: *const R, n: usize) = gradient_kernel;
}

/// Gradient of (a part of) a row, from the output's gradient, the row and the addend, unless that is null.
///
/// # Safety
/// As many elements at each and at `dx` as there are weights; `dx` overlaps none.
unsafe fn gradient<T: Float>(f: Factors<T::Acc>, [dy, x, so_far]: [*const T; 3], dx: *mut T, weight: &[T::Acc]) {
    let f = Factors { stream: f.stream && T::WIDE, ..f };
    let (n, weight) = (weight.len(), weight.as_ptr());
    // SAFETY: by the caller's contract.
    unsafe {
        if so_far.is_null() {
            each_block(n, [dy, x], dx, |at, n, [dy, x], dx| {
                wide_gradient(f, [dy, x, std::ptr::null()], dx, weight.add(at), n);
            });
        } else {
            each_block(n, [dy, x, so_far], dx, |at, n, from, dx| wide_gradient(f, from, dx, weight.add(at), n));
        }
    }
}
