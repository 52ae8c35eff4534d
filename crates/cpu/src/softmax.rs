//! Softmax and its logarithm over the middle of `[outer, n, inner]`.
//!
//! Three cases: rows that fit a cache, which are read once; longer rows, whose blocks are split over all threads; and
//! columns (`inner > 1`), processed in blocks of adjacent ones.

use crate::float::{Float, Scratch, expect, load_row, out_row, store_row, with_float};
use crate::multiversion;
use crate::pool::{parallel_for, parallel_ranges};
use crate::simd::{Real, Simd, Vectors, fence, prefetch, sweep, total};
use rushlight_core::sync::SendPtr;
use rushlight_core::{Result, View};

/// Rows up to this length stay in a core's L2 cache between passes.
pub const LONG: usize = 1 << 16;
/// Elements per block of a long row, or of a row in scratch memory.
pub const BLOCK: usize = 1 << 12;
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
        let width = column_block(n, inner);
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
        let width = column_block(n, inner);
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
unsafe fn rows_kernel<T: Float, I: Vectors>(log: bool, stream: bool, n: usize, count: usize, x: *const T, y: *mut T) {
    // A streamed result is not read back, so its exponentials are kept in scratch memory too.
    let scratch_needed = !T::WIDE || (stream && !log);
    let mut scratch = vec![T::Acc::ZERO; if scratch_needed { n } else { 0 }];
    for row in 0..count {
        // SAFETY: row `row` of `count` rows of `n`, and scratch of the same length where it is used.
        unsafe {
            let (x, y) = (x.add(row * n), y.add(row * n));
            let x = load_row::<T, I>(x, scratch.as_mut_ptr(), n);
            let max = row_max::<T::Acc, I>(x, n);
            if log {
                let log_sum = exp_sum::<T::Acc, I>(x, None, n, max).ln();
                let out = out_row(y, scratch.as_mut_ptr());
                shift_by::<T::Acc, I>(x, out, n, max, log_sum, stream && T::WIDE);
                store_row::<T, I>(out, y, n);
            } else {
                let exps = if scratch_needed { scratch.as_mut_ptr() } else { y.cast() };
                let sum = exp_sum::<T::Acc, I>(x, Some(exps), n, max);
                let out = out_row(y, exps);
                scale::<T::Acc, I>(exps, out, n, T::Acc::lit(1.0) / sum, stream && T::WIDE);
                store_row::<T, I>(out, y, n);
            }
        }
    }
    if stream {
        fence();
    }
}
multiversion! {
    /// # Safety
    /// `count * n` elements at `x` and `y`, which do not overlap.
    unsafe fn rows<T: Float>(log: bool, stream: bool, n: usize, count: usize, x: *const T, y: *mut T) = rows_kernel;
}

#[inline(always)]
unsafe fn block_stats_kernel<T: Float, I: Vectors>(x: *const T, n: usize) -> (T::Acc, T::Acc) {
    let mut scratch = Scratch::<T::Acc, BLOCK>::new();
    debug_assert!(n <= BLOCK);
    // SAFETY: `n` elements, at most a block.
    unsafe {
        let x = load_row::<T, I>(x, scratch.as_mut_ptr(), n);
        let max = row_max::<T::Acc, I>(x, n);
        // The sum is 0 only if all elements are -inf; a NaN gives NaN.
        let shift = if max == T::Acc::NEG_INFINITY { T::Acc::ZERO } else { max };
        (max, exp_sum::<T::Acc, I>(x, None, n, shift))
    }
}
multiversion! {
    /// The maximum of at most a block and the sum of `exp(x - max)`.
    ///
    /// # Safety
    /// `n` elements at `x`.
    pub(crate) unsafe fn block_stats<T: Float>(x: *const T, n: usize) -> (T::Acc, T::Acc) = block_stats_kernel;
}

/// The same for several blocks together.
pub(crate) fn join_stats<R: Real>(parts: &[(R, R)]) -> (R, R) {
    let max = parts.iter().fold(R::NEG_INFINITY, |best, p| if p.0 > best { p.0 } else { best });
    // A block of only NaN may be missed by the maximum, but not by the sum.
    let shift = if max == R::NEG_INFINITY { R::ZERO } else { max };
    (max, parts.iter().fold(R::ZERO, |sum, p| sum + p.1 * (p.0 - shift).exp()))
}

#[inline(always)]
unsafe fn finish_kernel<T: Float, I: Vectors>(
    log: bool,
    stream: bool,
    max: T::Acc,
    sum: T::Acc,
    x: *const T,
    y: *mut T,
    n: usize,
) {
    let mut scratch = Scratch::<T::Acc, BLOCK>::new();
    let mut at = 0;
    while at < n {
        let len = BLOCK.min(n - at);
        // SAFETY: a block of at most `BLOCK` within `n`.
        unsafe {
            let (x, y) = (x.add(at), y.add(at));
            let x = load_row::<T, I>(x, scratch.as_mut_ptr(), len);
            let out = out_row(y, scratch.as_mut_ptr());
            if log {
                shift_by::<T::Acc, I>(x, out, len, max, sum.ln(), stream && T::WIDE);
            } else {
                exp_sum::<T::Acc, I>(x, Some(scratch.as_mut_ptr()), len, max);
                scale::<T::Acc, I>(scratch.as_mut_ptr(), out, len, T::Acc::lit(1.0) / sum, stream && T::WIDE);
            }
            store_row::<T, I>(out, y, len);
        }
        at += len;
    }
    if stream {
        fence();
    }
}
multiversion! {
    /// The results of part of a row whose maximum and sum are known.
    ///
    /// # Safety
    /// `n` elements at `x` and `y`, which do not overlap.
    unsafe fn finish<T: Float>(
        log: bool, stream: bool, max: T::Acc, sum: T::Acc, x: *const T, y: *mut T, n: usize,
    ) = finish_kernel;
}

/// Columns per block: enough to fill cache lines, few enough that all `n` rows stay cached.
fn column_block(n: usize, inner: usize) -> usize {
    (LONG / n).next_multiple_of(64).clamp(64, 1024).min(inner)
}

/// `n` rows of `width`, `stride` apart.
#[derive(Clone, Copy)]
struct Block {
    n: usize,
    stride: usize,
    width: usize,
}

#[inline(always)]
unsafe fn columns_kernel<T: Float, I: Vectors>(log: bool, b: Block, x: *const T, y: *mut T) {
    let mut max = vec![T::Acc::NEG_INFINITY; b.width];
    let mut sum = vec![T::Acc::ZERO; b.width];
    let (max, sum) = (max.as_mut_ptr(), sum.as_mut_ptr());
    // Half types keep their widened block, and then its exponentials, here.
    let mut scratch = vec![T::Acc::ZERO; if T::WIDE { 0 } else { b.n * b.width }];
    let row = |r: usize| if T::WIDE { 0 } else { r * b.width };
    type V<T, I> = <<T as Float>::Acc as Real>::V<I>;
    // SAFETY: all rows are within the block.
    unsafe {
        let kept = scratch.as_mut_ptr();
        for r in 0..b.n {
            let x = load_row::<T, I>(x.add(r * b.stride), kept.add(row(r)), b.width);
            sweep!(V<T, I>, b.width, i, m => {
                let best = V::<T, I>::get(max.add(i), m, T::Acc::ZERO);
                V::<T, I>::get(x.add(i), m, T::Acc::ZERO).max(best).put(max.add(i), m);
            });
        }
        for r in 0..b.n {
            let x = if T::WIDE { x.add(r * b.stride).cast() } else { kept.add(row(r)).cast_const() };
            let out: *mut T::Acc = if T::WIDE { y.add(r * b.stride).cast() } else { kept.add(row(r)) };
            sweep!(V<T, I>, b.width, i, m => {
                let shift = V::<T, I>::get(max.add(i), m, T::Acc::ZERO);
                let e = (V::<T, I>::get(x.add(i), m, T::Acc::ZERO) - shift).exp();
                if !log {
                    e.put(out.add(i), m);
                }
                (V::<T, I>::get(sum.add(i), m, T::Acc::ZERO) + e).put(sum.add(i), m);
            });
        }
        for i in 0..b.width {
            let sum = sum.add(i);
            *sum = if log { (*sum).ln() } else { T::Acc::lit(1.0) / *sum };
        }
        for r in 0..b.n {
            let y = y.add(r * b.stride);
            let out = out_row(y, kept.add(row(r)));
            let source = if T::WIDE && log { x.add(r * b.stride).cast() } else { out.cast_const() };
            sweep!(V<T, I>, b.width, i, m => {
                let (v, s) = (V::<T, I>::get(source.add(i), m, T::Acc::ZERO), V::<T, I>::get(sum.add(i), m, T::Acc::ZERO));
                let shift = V::<T, I>::get(max.add(i), m, T::Acc::ZERO);
                (if log { v - shift - s } else { v * s }).put(out.add(i), m);
            });
            store_row::<T, I>(out, y, b.width);
        }
    }
}
multiversion! {
    /// # Safety
    /// The block is within the tensors at `x` and `y`, which do not overlap.
    unsafe fn columns<T: Float>(log: bool, b: Block, x: *const T, y: *mut T) = columns_kernel;
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
unsafe fn rows_backward_kernel<T: Float, I: Vectors>(
    log: bool,
    stream: bool,
    n: usize,
    count: usize,
    dy: *const T,
    y: *const T,
    dx: *mut T,
) {
    let mut scratch = vec![T::Acc::ZERO; if T::WIDE { 0 } else { 2 * n }];
    let first = scratch.as_mut_ptr();
    let second = first.wrapping_add(if T::WIDE { 0 } else { n });
    for row in 0..count {
        // SAFETY: row `row` of `count` rows of `n`, and scratch for two.
        unsafe {
            let dx = dx.add(row * n);
            let dy = load_row::<T, I>(dy.add(row * n), first, n);
            let y = load_row::<T, I>(y.add(row * n), second, n);
            let sum = row_dot::<T::Acc, I>(log, dy, y, n);
            let out = out_row(dx, first);
            row_gradient::<T::Acc, I>(log, stream && T::WIDE, sum, dy, y, out, n);
            store_row::<T, I>(out, dx, n);
        }
    }
    if stream {
        fence();
    }
}
multiversion! {
    /// # Safety
    /// `count * n` elements at each pointer; `dx` overlaps none.
    unsafe fn rows_backward<T: Float>(
        log: bool, stream: bool, n: usize, count: usize, dy: *const T, y: *const T, dx: *mut T,
    ) = rows_backward_kernel;
}

#[inline(always)]
unsafe fn block_dot_kernel<T: Float, I: Vectors>(log: bool, dy: *const T, y: *const T, n: usize) -> T::Acc {
    let (mut first, mut second) = (Scratch::<T::Acc, BLOCK>::new(), Scratch::<T::Acc, BLOCK>::new());
    debug_assert!(n <= BLOCK);
    // SAFETY: `n` elements, at most a block.
    unsafe {
        let dy = load_row::<T, I>(dy, first.as_mut_ptr(), n);
        let y = load_row::<T, I>(y, second.as_mut_ptr(), n);
        row_dot::<T::Acc, I>(log, dy, y, n)
    }
}
multiversion! {
    /// # Safety
    /// `n` elements, at most a block, at both.
    unsafe fn block_dot<T: Float>(log: bool, dy: *const T, y: *const T, n: usize) -> T::Acc = block_dot_kernel;
}

#[inline(always)]
unsafe fn finish_backward_kernel<T: Float, I: Vectors>(
    log: bool,
    stream: bool,
    sum: T::Acc,
    dy: *const T,
    y: *const T,
    dx: *mut T,
    n: usize,
) {
    let (mut first, mut second) = (Scratch::<T::Acc, BLOCK>::new(), Scratch::<T::Acc, BLOCK>::new());
    let mut at = 0;
    while at < n {
        let len = BLOCK.min(n - at);
        // SAFETY: a block of at most `BLOCK` within `n`.
        unsafe {
            let dx = dx.add(at);
            let dy = load_row::<T, I>(dy.add(at), first.as_mut_ptr(), len);
            let y = load_row::<T, I>(y.add(at), second.as_mut_ptr(), len);
            let out = out_row(dx, first.as_mut_ptr());
            row_gradient::<T::Acc, I>(log, stream && T::WIDE, sum, dy, y, out, len);
            store_row::<T, I>(out, dx, len);
        }
        at += len;
    }
    if stream {
        fence();
    }
}
multiversion! {
    /// # Safety
    /// `n` elements at each pointer; `dx` overlaps none.
    unsafe fn finish_backward<T: Float>(
        log: bool, stream: bool, sum: T::Acc, dy: *const T, y: *const T, dx: *mut T, n: usize,
    ) = finish_backward_kernel;
}

#[inline(always)]
unsafe fn columns_backward_kernel<T: Float, I: Vectors>(log: bool, b: Block, dy: *const T, y: *const T, dx: *mut T) {
    let mut sum = vec![T::Acc::ZERO; b.width];
    let mut scratch = vec![T::Acc::ZERO; if T::WIDE { 0 } else { 2 * b.width }];
    let first = scratch.as_mut_ptr();
    let second = first.wrapping_add(if T::WIDE { 0 } else { b.width });
    type V<T, I> = <<T as Float>::Acc as Real>::V<I>;
    // SAFETY: all rows are within the block.
    unsafe {
        for r in 0..b.n {
            let dy = load_row::<T, I>(dy.add(r * b.stride), first, b.width);
            let y = load_row::<T, I>(y.add(r * b.stride), second, b.width);
            let sum = sum.as_mut_ptr();
            sweep!(V<T, I>, b.width, i, m => {
                let old = V::<T, I>::get(sum.add(i), m, T::Acc::ZERO);
                let dy = V::<T, I>::get(dy.add(i), m, T::Acc::ZERO);
                let new = if log { old + dy } else { dy.fma(V::<T, I>::get(y.add(i), m, T::Acc::ZERO), old) };
                new.put(sum.add(i), m);
            });
        }
        for r in 0..b.n {
            let dx = dx.add(r * b.stride);
            let dy = load_row::<T, I>(dy.add(r * b.stride), first, b.width);
            let y = load_row::<T, I>(y.add(r * b.stride), second, b.width);
            let out = out_row(dx, first);
            sweep!(V<T, I>, b.width, i, m => {
                let s = V::<T, I>::get(sum.as_ptr().add(i), m, T::Acc::ZERO);
                let (dy, y) = (V::<T, I>::get(dy.add(i), m, T::Acc::ZERO), V::<T, I>::get(y.add(i), m, T::Acc::ZERO));
                let v = if log { (V::<T, I>::splat(T::Acc::ZERO) - y.exp()).fma(s, dy) } else { y * (dy - s) };
                v.put(out.add(i), m);
            });
            store_row::<T, I>(out, dx, b.width);
        }
    }
}
multiversion! {
    /// # Safety
    /// The block is within the tensors at the pointers; `dx` overlaps none.
    unsafe fn columns_backward<T: Float>(log: bool, b: Block, dy: *const T, y: *const T, dx: *mut T) = columns_backward_kernel;
}
