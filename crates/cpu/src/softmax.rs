//! Softmax and its logarithm over the middle of `[outer, n, inner]`.
//!
//! Three cases: rows that fit a cache, which are read once; longer rows, whose blocks are split over all threads; and
//! columns (`inner > 1`), processed in blocks of adjacent ones.

use crate::float::{BLOCK, Float, Scratch, each_block, expect, narrow, widen, with_float};
use crate::multiversion;
use crate::pool::{parallel_for, parallel_ranges};
use crate::simd::{Real, Simd, Vectors, fence, prefetch, sweep, total};
use rushlight_core::sync::SendPtr;
use rushlight_core::{Result, View};

/// Rows up to this length stay in a core's L2 cache between passes.
pub const LONG: usize = 1 << 16;
/// Minimum elements per task.
const GRAIN: usize = 1 << 15;
/// Larger results (in bytes) are written by non-temporal stores, because the caches could not hold them.
pub const STREAM: usize = 1 << 25;

/// Softmax, or its logarithm, of contiguous `[outer, n, inner]` over `n`.
pub fn softmax(log: bool, dims: [usize; 3], x: View, y: View) -> Result<()> {
    let numel = dims.iter().product();
    expect("softmax", "y", &y, x.dtype(), numel)?;
    expect("softmax", "x", &x, x.dtype(), numel)?;
    with_float!("softmax", x.dtype(), T => {
        // SAFETY: both views have `numel` contiguous elements of `T` and do not overlap.
        unsafe { forward::<T>(log, dims, x.ptr().cast(), y.ptr().cast()) };
        Ok(())
    })
}

/// Gradient of `softmax`, from the output.
pub fn softmax_backward(log: bool, dims: [usize; 3], dy: View, y: View, dx: View) -> Result<()> {
    let numel = dims.iter().product();
    for (name, view) in [("dy", &dy), ("y", &y), ("dx", &dx)] {
        expect("softmax_backward", name, view, dx.dtype(), numel)?;
    }
    with_float!("softmax_backward", dx.dtype(), T => {
        // SAFETY: the views have `numel` contiguous elements of `T`, and `dx` overlaps none.
        unsafe { backward::<T>(log, dims, dy.ptr().cast(), y.ptr().cast(), dx.ptr().cast()) };
        Ok(())
    })
}

/// # Safety
/// `outer * n * inner` elements at `x` and `y`, which do not overlap.
unsafe fn forward<T: Float>(log: bool, [outer, n, inner]: [usize; 3], x: *const T, y: *mut T) {
    if outer == 0 || n == 0 || inner == 0 {
        return;
    }
    let (xs, ys) = (SendPtr::new(x.cast_mut()), SendPtr::new(y));
    if inner > 1 {
        let width = column_block::<T>(n, inner);
        let blocks = inner.div_ceil(width);
        parallel_for(outer * blocks, |task| {
            let first = task % blocks * width;
            let at = task / blocks * n * inner + first;
            let block = Block { n, stride: inner, width: width.min(inner - first) };
            // SAFETY: the block is within the tensors, and no other task has it.
            unsafe { columns::<T>(log, block, xs.at(at), ys.at(at)) }
        });
    } else if n <= LONG {
        let stream = outer * n * size_of::<T>() > STREAM;
        parallel_ranges(outer, (GRAIN / n).max(1), |from, to| {
            // SAFETY: rows `from..to` are within the tensors, and no other task has them.
            unsafe { rows::<T>(log, stream, n, to - from, xs.at(from * n), ys.at(from * n)) }
        });
    } else {
        let blocks = n.div_ceil(BLOCK);
        let mut parts = vec![(T::Acc::ZERO, T::Acc::ZERO); blocks];
        let stream = n * size_of::<T>() > STREAM;
        for row in 0..outer {
            let parts_at = SendPtr::new(parts.as_mut_ptr());
            parallel_for(blocks.div_ceil(GRAIN / BLOCK), |task| {
                for b in task * (GRAIN / BLOCK)..blocks.min((task + 1) * (GRAIN / BLOCK)) {
                    let len = BLOCK.min(n - b * BLOCK);
                    // SAFETY: the block is within the row; its part is this task's.
                    unsafe { *parts_at.at(b) = block_stats::<T>(xs.at(row * n + b * BLOCK), len) }
                }
            });
            let (max, sum) = join_stats(&parts);
            parallel_ranges(n, GRAIN, |from, to| {
                let at = row * n + from;
                // SAFETY: the range is within the row and is this task's.
                unsafe { finish::<T>(log, stream, max, sum, xs.at(at), ys.at(at), to - from) }
            });
        }
    }
}

/// # Safety
/// `outer * n * inner` elements at each pointer; `dx` overlaps none.
unsafe fn backward<T: Float>(log: bool, [outer, n, inner]: [usize; 3], dy: *const T, y: *const T, dx: *mut T) {
    if outer == 0 || n == 0 || inner == 0 {
        return;
    }
    let (dys, ys, dxs) = (SendPtr::new(dy.cast_mut()), SendPtr::new(y.cast_mut()), SendPtr::new(dx));
    if inner > 1 {
        let width = column_block::<T>(n, inner);
        let blocks = inner.div_ceil(width);
        parallel_for(outer * blocks, |task| {
            let first = task % blocks * width;
            let at = task / blocks * n * inner + first;
            let block = Block { n, stride: inner, width: width.min(inner - first) };
            // SAFETY: the block is within the tensors, and no other task has it.
            unsafe { columns_backward::<T>(log, block, dys.at(at), ys.at(at), dxs.at(at)) }
        });
    } else if n <= LONG {
        let stream = outer * n * size_of::<T>() > STREAM;
        parallel_ranges(outer, (GRAIN / n).max(1), |from, to| {
            let at = from * n;
            // SAFETY: rows `from..to` are within the tensors, and no other task has them.
            unsafe { rows_backward::<T>(log, stream, n, to - from, dys.at(at), ys.at(at), dxs.at(at)) }
        });
    } else {
        let stream = n * size_of::<T>() > STREAM;
        let blocks = n.div_ceil(BLOCK);
        let mut parts = vec![T::Acc::ZERO; blocks];
        for row in 0..outer {
            let parts_at = SendPtr::new(parts.as_mut_ptr());
            parallel_for(blocks.div_ceil(GRAIN / BLOCK), |task| {
                for b in task * (GRAIN / BLOCK)..blocks.min((task + 1) * (GRAIN / BLOCK)) {
                    let at = row * n + b * BLOCK;
                    // SAFETY: the block is within the row; its part is this task's.
                    unsafe { *parts_at.at(b) = block_dot::<T>(log, dys.at(at), ys.at(at), BLOCK.min(n - b * BLOCK)) }
                }
            });
            let sum = parts.iter().fold(0.0, |sum, p| sum + rushlight_core::Element::to_f64(*p));
            parallel_ranges(n, GRAIN, |from, to| {
                let at = row * n + from;
                // SAFETY: the range is within the row and is this task's.
                unsafe {
                    finish_backward::<T>(log, stream, T::Acc::lit(sum), dys.at(at), ys.at(at), dxs.at(at), to - from)
                }
            });
        }
    }
}

/// The largest of a row.
#[inline(always)]
unsafe fn row_max<R: Real, I: Vectors>(x: *const R, n: usize) -> R {
    let mut best = [R::V::<I>::splat(R::NEG_INFINITY); 4];
    // SAFETY: `n` elements by the caller's contract.
    sweep!(R::V<I>, n, i, m, k => { best[k] = unsafe { R::V::<I>::get(x.add(i), m, R::NEG_INFINITY) }.max(best[k]) });
    (best[0].max(best[1])).max(best[2].max(best[3])).largest()
}

/// `out = exp(x - shift)`, if there is an `out`, and its sum.
#[inline(always)]
unsafe fn exp_sum<R: Real, I: Vectors>(x: *const R, out: Option<*mut R>, n: usize, shift: R) -> R {
    let mut sums = [R::V::<I>::splat(R::ZERO); 4];
    let shift = R::V::<I>::splat(shift);
    // SAFETY: `n` elements by the caller's contract. Lanes beyond `m` give exp(-inf) = 0.
    sweep!(R::V<I>, n, i, m, k => {
        unsafe {
            let e = (R::V::<I>::get(x.add(i), m, R::NEG_INFINITY) - shift).exp();
            if let Some(out) = out {
                e.put(out.add(i), m);
            }
            sums[k] = sums[k] + e;
            // Prefetches the next row while the processor computes this one.
            prefetch(x.wrapping_add(n + i));
        }
    });
    total(sums)
}

/// `out = x * factor`, by non-temporal stores if requested and aligned.
#[inline(always)]
unsafe fn scale<R: Real, I: Vectors>(x: *const R, out: *mut R, n: usize, factor: R, stream: bool) {
    let factor = R::V::<I>::splat(factor);
    // SAFETY: `n` elements by the caller's contract.
    unsafe {
        if stream && (out as usize).is_multiple_of(size_of::<R::V<I>>()) {
            sweep!(R::V<I>, n, i, m => {
                let v = R::V::<I>::get(x.add(i), m, R::ZERO) * factor;
                if m == R::V::<I>::N { v.stream(out.add(i)) } else { v.put(out.add(i), m) }
            });
        } else {
            sweep!(R::V<I>, n, i, m => { (R::V::<I>::get(x.add(i), m, R::ZERO) * factor).put(out.add(i), m) });
        }
    }
}

/// `out = (x - max) - log_sum`. In this order: `max + log_sum` would lose the digits next to a large maximum.
#[inline(always)]
unsafe fn shift_by<R: Real, I: Vectors>(x: *const R, out: *mut R, n: usize, max: R, log_sum: R, stream: bool) {
    let (max, log_sum) = (R::V::<I>::splat(max), R::V::<I>::splat(log_sum));
    // SAFETY: `n` elements by the caller's contract.
    unsafe {
        if stream && (out as usize).is_multiple_of(size_of::<R::V<I>>()) {
            sweep!(R::V<I>, n, i, m => {
                let v = R::V::<I>::get(x.add(i), m, R::ZERO) - max - log_sum;
                if m == R::V::<I>::N { v.stream(out.add(i)) } else { v.put(out.add(i), m) }
            });
        } else {
            sweep!(R::V<I>, n, i, m => { (R::V::<I>::get(x.add(i), m, R::ZERO) - max - log_sum).put(out.add(i), m) });
        }
    }
}

#[inline(always)]
unsafe fn rows_kernel<R: Real, I: Vectors>(log: bool, stream: bool, n: usize, count: usize, x: *const R, y: *mut R) {
    // A streamed result is not read back, so its exponentials are kept in scratch memory.
    let apart = stream && !log;
    let mut scratch = vec![R::ZERO; if apart { n } else { 0 }];
    for row in 0..count {
        // SAFETY: row `row` of `count` rows of `n`, and scratch of the same length where it is used.
        unsafe {
            let (x, y) = (x.add(row * n), y.add(row * n));
            let max = row_max::<R, I>(x, n);
            if log {
                let log_sum = exp_sum::<R, I>(x, None, n, max).ln();
                shift_by::<R, I>(x, y, n, max, log_sum, stream);
            } else {
                let exps = if apart { scratch.as_mut_ptr() } else { y };
                let sum = exp_sum::<R, I>(x, Some(exps), n, max);
                scale::<R, I>(exps, y, n, R::lit(1.0) / sum, stream);
            }
        }
    }
    if stream {
        fence();
    }
}
multiversion! {
    /// # Safety
    /// `count * n` elements at `x` and `y`, which are the same or do not overlap.
    unsafe fn wide_rows<R: Real>(log: bool, stream: bool, n: usize, count: usize, x: *const R, y: *mut R) = rows_kernel;
}

/// # Safety
/// `count * n` elements at `x` and `y`, which do not overlap.
unsafe fn rows<T: Float>(log: bool, stream: bool, n: usize, count: usize, x: *const T, y: *mut T) {
    if T::WIDE {
        // SAFETY: the caller's promise.
        return unsafe { wide_rows::<T::Acc>(log, stream, n, count, x.cast(), y.cast()) };
    }
    let together = rows_together(n, count);
    let mut scratch = vec![T::Acc::ZERO; together * n];
    let kept = scratch.as_mut_ptr();
    for row in (0..count).step_by(together) {
        let here = together.min(count - row);
        // SAFETY: these rows; there is scratch for them.
        unsafe {
            widen(x.add(row * n), kept, here * n);
            wide_rows::<T::Acc>(log, false, n, here, kept, kept);
            narrow(kept, y.add(row * n), here * n);
        }
    }
}

/// How many of `count` rows of a half type are widened at a time: the L1 cache keeps two of their operands.
fn rows_together(n: usize, count: usize) -> usize {
    (1024 / n).clamp(1, count.max(1))
}

#[inline(always)]
unsafe fn block_stats_kernel<R: Real, I: Vectors>(x: *const R, n: usize) -> (R, R) {
    // SAFETY: the caller's promise.
    unsafe {
        let max = row_max::<R, I>(x, n);
        // The sum is 0 only if all elements are -inf; a NaN gives NaN.
        let shift = if max == R::NEG_INFINITY { R::ZERO } else { max };
        (max, exp_sum::<R, I>(x, None, n, shift))
    }
}
multiversion! {
    unsafe fn wide_block_stats<R: Real>(x: *const R, n: usize) -> (R, R) = block_stats_kernel;
}

/// The maximum of at most a block and the sum of `exp(x - max)`.
///
/// # Safety
/// `n` elements at `x`.
pub(crate) unsafe fn block_stats<T: Float>(x: *const T, n: usize) -> (T::Acc, T::Acc) {
    debug_assert!(n <= BLOCK);
    let mut stats = (T::Acc::NEG_INFINITY, T::Acc::ZERO);
    // SAFETY: the caller's promise.
    unsafe { each_block(n, [x], std::ptr::null_mut(), |_, n, [x], _| stats = wide_block_stats(x, n)) };
    stats
}

/// The same for several blocks together.
pub(crate) fn join_stats<R: Real>(parts: &[(R, R)]) -> (R, R) {
    let max = parts.iter().fold(R::NEG_INFINITY, |best, p| if p.0 > best { p.0 } else { best });
    // A block of only NaN may be missed by the maximum, but not by the sum.
    let shift = if max == R::NEG_INFINITY { R::ZERO } else { max };
    (max, parts.iter().fold(R::ZERO, |sum, p| sum + p.1 * (p.0 - shift).exp()))
}

#[inline(always)]
unsafe fn finish_kernel<R: Real, I: Vectors>(
    log: bool,
    stream: bool,
    max: R,
    sum: R,
    x: *const R,
    y: *mut R,
    n: usize,
) {
    let mut scratch = Scratch::<R, BLOCK>::new();
    let mut at = 0;
    while at < n {
        let len = BLOCK.min(n - at);
        // SAFETY: a block of at most `BLOCK` within `n`.
        unsafe {
            let (x, y) = (x.add(at), y.add(at));
            if log {
                shift_by::<R, I>(x, y, len, max, sum.ln(), stream);
            } else {
                exp_sum::<R, I>(x, Some(scratch.as_mut_ptr()), len, max);
                scale::<R, I>(scratch.as_mut_ptr(), y, len, R::lit(1.0) / sum, stream);
            }
        }
        at += len;
    }
    if stream {
        fence();
    }
}
multiversion! {
    unsafe fn wide_finish<R: Real>(log: bool, stream: bool, max: R, sum: R, x: *const R, y: *mut R, n: usize) = finish_kernel;
}

/// The results of part of a row whose maximum and sum are known.
///
/// # Safety
/// `n` elements at `x` and `y`, which do not overlap.
unsafe fn finish<T: Float>(log: bool, stream: bool, max: T::Acc, sum: T::Acc, x: *const T, y: *mut T, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each_block(n, [x], y, |_, n, [x], y| wide_finish(log, stream && T::WIDE, max, sum, x, y, n)) }
}

/// Columns per block: enough to fill cache lines, few enough that all `n` rows stay cached; widened ones in the L1
/// cache.
fn column_block<T: Float>(n: usize, inner: usize) -> usize {
    let room = if T::WIDE { LONG } else { LONG / 16 };
    (room / n).next_multiple_of(64).clamp(64, 1024).min(inner)
}

/// `n` rows of `width`, `stride` apart.
#[derive(Clone, Copy)]
struct Block {
    n: usize,
    stride: usize,
    width: usize,
}

impl Block {
    /// The rows of a half type in the compute type, one behind the other.
    ///
    /// # Safety
    /// The block is within the tensor at `x`.
    unsafe fn widened<T: Float>(self, x: *const T) -> Vec<T::Acc> {
        let mut to = vec![T::Acc::ZERO; self.n * self.width];
        for r in 0..self.n {
            // SAFETY: the caller's promise.
            unsafe { widen(x.add(r * self.stride), to.as_mut_ptr().add(r * self.width), self.width) };
        }
        to
    }

    /// The reverse.
    ///
    /// # Safety
    /// As for [`Block::widened`].
    unsafe fn narrow<T: Float>(self, from: *const T::Acc, y: *mut T) {
        for r in 0..self.n {
            // SAFETY: the caller's promise.
            unsafe { narrow(from.add(r * self.width), y.add(r * self.stride), self.width) };
        }
    }
}

#[inline(always)]
unsafe fn columns_kernel<R: Real, I: Vectors>(log: bool, b: Block, x: *const R, y: *mut R) {
    let mut max = vec![R::NEG_INFINITY; b.width];
    let mut sum = vec![R::ZERO; b.width];
    let (max, sum) = (max.as_mut_ptr(), sum.as_mut_ptr());
    // SAFETY: all rows are within the block.
    unsafe {
        for r in 0..b.n {
            let x = x.add(r * b.stride);
            sweep!(R::V<I>, b.width, i, m => {
                let best = R::V::<I>::get(max.add(i), m, R::ZERO);
                R::V::<I>::get(x.add(i), m, R::ZERO).max(best).put(max.add(i), m);
            });
        }
        for r in 0..b.n {
            let (x, y) = (x.add(r * b.stride), y.add(r * b.stride));
            sweep!(R::V<I>, b.width, i, m => {
                let shift = R::V::<I>::get(max.add(i), m, R::ZERO);
                let e = (R::V::<I>::get(x.add(i), m, R::ZERO) - shift).exp();
                if !log {
                    e.put(y.add(i), m);
                }
                (R::V::<I>::get(sum.add(i), m, R::ZERO) + e).put(sum.add(i), m);
            });
        }
        for i in 0..b.width {
            let sum = sum.add(i);
            *sum = if log { (*sum).ln() } else { R::lit(1.0) / *sum };
        }
        for r in 0..b.n {
            let y = y.add(r * b.stride);
            let source = if log { x.add(r * b.stride) } else { y.cast_const() };
            sweep!(R::V<I>, b.width, i, m => {
                let (v, s) = (R::V::<I>::get(source.add(i), m, R::ZERO), R::V::<I>::get(sum.add(i), m, R::ZERO));
                let shift = R::V::<I>::get(max.add(i), m, R::ZERO);
                (if log { v - shift - s } else { v * s }).put(y.add(i), m);
            });
        }
    }
}
multiversion! {
    unsafe fn wide_columns<R: Real>(log: bool, b: Block, x: *const R, y: *mut R) = columns_kernel;
}

/// # Safety
/// The block is within the tensors at `x` and `y`, which do not overlap.
unsafe fn columns<T: Float>(log: bool, b: Block, x: *const T, y: *mut T) {
    // SAFETY: the caller's promise; the widened block has its rows one behind the other.
    unsafe {
        if T::WIDE {
            return wide_columns::<T::Acc>(log, b, x.cast(), y.cast());
        }
        let mut kept = b.widened(x);
        let kept = kept.as_mut_ptr();
        wide_columns::<T::Acc>(log, Block { stride: b.width, ..b }, kept, kept);
        b.narrow(kept, y);
    }
}

/// The row's term in its gradient: the sum of `dy * y`, or of `dy` for the logarithm.
#[inline(always)]
unsafe fn row_dot<R: Real, I: Vectors>(log: bool, dy: *const R, y: *const R, n: usize) -> R {
    let mut sums = [R::V::<I>::splat(R::ZERO); 4];
    // SAFETY: `n` elements by the caller's contract.
    unsafe {
        if log {
            sweep!(R::V<I>, n, i, m, k => { sums[k] = sums[k] + R::V::<I>::get(dy.add(i), m, R::ZERO) });
        } else {
            sweep!(R::V<I>, n, i, m, k => {
                sums[k] = R::V::<I>::get(dy.add(i), m, R::ZERO).fma(R::V::<I>::get(y.add(i), m, R::ZERO), sums[k]);
            });
        }
    }
    total(sums)
}

/// `dx = y * (dy - sum)`, or `dy - exp(y) * sum` for the logarithm.
#[inline(always)]
unsafe fn row_gradient<R: Real, I: Vectors>(
    log: bool,
    stream: bool,
    sum: R,
    dy: *const R,
    y: *const R,
    dx: *mut R,
    n: usize,
) {
    let stream = stream && (dx as usize).is_multiple_of(size_of::<R::V<I>>());
    let (sum, zero) = (R::V::<I>::splat(sum), R::V::<I>::splat(R::ZERO));
    // SAFETY: `n` elements by the caller's contract.
    sweep!(R::V<I>, n, i, m => {
        unsafe {
            let (dy, y) = (R::V::<I>::get(dy.add(i), m, R::ZERO), R::V::<I>::get(y.add(i), m, R::ZERO));
            let v = if log { (zero - y.exp()).fma(sum, dy) } else { y * (dy - sum) };
            if stream && m == R::V::<I>::N {
                v.stream(dx.add(i));
            } else {
                v.put(dx.add(i), m);
            }
        }
    });
}

#[inline(always)]
unsafe fn rows_backward_kernel<R: Real, I: Vectors>(
    log: bool,
    stream: bool,
    n: usize,
    count: usize,
    dy: *const R,
    y: *const R,
    dx: *mut R,
) {
    for row in 0..count {
        // SAFETY: row `row` of `count` rows of `n`.
        unsafe {
            let (dy, y, dx) = (dy.add(row * n), y.add(row * n), dx.add(row * n));
            let sum = row_dot::<R, I>(log, dy, y, n);
            row_gradient::<R, I>(log, stream, sum, dy, y, dx, n);
        }
    }
    if stream {
        fence();
    }
}
multiversion! {
    /// # Safety
    /// `count * n` elements at each pointer; `dx` is `dy` or overlaps none.
    unsafe fn wide_rows_backward<R: Real>(
        log: bool, stream: bool, n: usize, count: usize, dy: *const R, y: *const R, dx: *mut R,
    ) = rows_backward_kernel;
}

/// # Safety
/// `count * n` elements at each pointer; `dx` overlaps none.
unsafe fn rows_backward<T: Float>(
    log: bool,
    stream: bool,
    n: usize,
    count: usize,
    dy: *const T,
    y: *const T,
    dx: *mut T,
) {
    if T::WIDE {
        // SAFETY: the caller's promise.
        return unsafe { wide_rows_backward::<T::Acc>(log, stream, n, count, dy.cast(), y.cast(), dx.cast()) };
    }
    let together = rows_together(n, count);
    let mut scratch = vec![T::Acc::ZERO; 2 * together * n];
    let first = scratch.as_mut_ptr();
    let second = first.wrapping_add(together * n);
    for row in (0..count).step_by(together) {
        let (at, here) = (row * n, together.min(count - row));
        // SAFETY: these rows; there is scratch for two times as many.
        unsafe {
            widen(dy.add(at), first, here * n);
            widen(y.add(at), second, here * n);
            wide_rows_backward::<T::Acc>(log, false, n, here, first, second, first);
            narrow(first, dx.add(at), here * n);
        }
    }
}

multiversion! {
    unsafe fn wide_dot<R: Real>(log: bool, dy: *const R, y: *const R, n: usize) -> R = row_dot;
}

/// # Safety
/// `n` elements, at most a block, at both.
unsafe fn block_dot<T: Float>(log: bool, dy: *const T, y: *const T, n: usize) -> T::Acc {
    debug_assert!(n <= BLOCK);
    let mut sum = T::Acc::ZERO;
    // SAFETY: the caller's promise.
    unsafe { each_block(n, [dy, y], std::ptr::null_mut(), |_, n, [dy, y], _| sum = wide_dot(log, dy, y, n)) };
    sum
}

#[inline(always)]
unsafe fn finish_backward_kernel<R: Real, I: Vectors>(
    log: bool,
    stream: bool,
    sum: R,
    dy: *const R,
    y: *const R,
    dx: *mut R,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { row_gradient::<R, I>(log, stream, sum, dy, y, dx, n) };
    if stream {
        fence();
    }
}
multiversion! {
    unsafe fn wide_finish_backward<R: Real>(
        log: bool, stream: bool, sum: R, dy: *const R, y: *const R, dx: *mut R, n: usize,
    ) = finish_backward_kernel;
}

/// # Safety
/// `n` elements at each pointer; `dx` overlaps none.
unsafe fn finish_backward<T: Float>(
    log: bool,
    stream: bool,
    sum: T::Acc,
    dy: *const T,
    y: *const T,
    dx: *mut T,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        each_block(n, [dy, y], dx, |_, n, [dy, y], dx| wide_finish_backward(log, stream && T::WIDE, sum, dy, y, dx, n));
    }
}

#[inline(always)]
unsafe fn columns_backward_kernel<R: Real, I: Vectors>(log: bool, b: Block, dy: *const R, y: *const R, dx: *mut R) {
    let mut sum = vec![R::ZERO; b.width];
    let sum = sum.as_mut_ptr();
    // SAFETY: all rows are within the block.
    unsafe {
        for r in 0..b.n {
            let (dy, y) = (dy.add(r * b.stride), y.add(r * b.stride));
            sweep!(R::V<I>, b.width, i, m => {
                let old = R::V::<I>::get(sum.add(i), m, R::ZERO);
                let dy = R::V::<I>::get(dy.add(i), m, R::ZERO);
                let new = if log { old + dy } else { dy.fma(R::V::<I>::get(y.add(i), m, R::ZERO), old) };
                new.put(sum.add(i), m);
            });
        }
        for r in 0..b.n {
            let (dy, y, dx) = (dy.add(r * b.stride), y.add(r * b.stride), dx.add(r * b.stride));
            sweep!(R::V<I>, b.width, i, m => {
                let s = R::V::<I>::get(sum.add(i), m, R::ZERO);
                let (dy, y) = (R::V::<I>::get(dy.add(i), m, R::ZERO), R::V::<I>::get(y.add(i), m, R::ZERO));
                let v = if log { (R::V::<I>::splat(R::ZERO) - y.exp()).fma(s, dy) } else { y * (dy - s) };
                v.put(dx.add(i), m);
            });
        }
    }
}
multiversion! {
    unsafe fn wide_columns_backward<R: Real>(log: bool, b: Block, dy: *const R, y: *const R, dx: *mut R) = columns_backward_kernel;
}

/// # Safety
/// The block is within the tensors at the pointers; `dx` overlaps none.
unsafe fn columns_backward<T: Float>(log: bool, b: Block, dy: *const T, y: *const T, dx: *mut T) {
    // SAFETY: the caller's promise; the widened blocks have their rows one behind the other.
    unsafe {
        if T::WIDE {
            return wide_columns_backward::<T::Acc>(log, b, dy.cast(), y.cast(), dx.cast());
        }
        let (mut dy, y) = (b.widened(dy), b.widened(y));
        let kept = dy.as_mut_ptr();
        wide_columns_backward::<T::Acc>(log, Block { stride: b.width, ..b }, kept, y.as_ptr(), kept);
        b.narrow(kept, dx);
    }
}
