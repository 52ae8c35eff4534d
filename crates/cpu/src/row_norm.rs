//! Layer norm and RMS norm: each row normalised by its own statistics, scaled and shifted by column.

mod backward;

use crate::float::{BLOCK, Float, each_block, expect, load_parameter, narrow, store_parameter, widen, with_float};
use crate::multiversion;
use crate::pool::{parallel_for, parallel_ranges};
use crate::simd::{Real, Simd, Vectors, fence, prefetch, sweep, total};
use backward::{Input, backward};
use rushlight_core::backend::{RowNorm, call};
use rushlight_core::sync::SendPtr;
use rushlight_core::{Element, Result, View};

/// Rows up to this length stay in a core's L2 cache between passes; the blocks of longer ones are split over all
/// threads.
pub const LONG: usize = 1 << 16;
/// Minimum elements per task.
const GRAIN: usize = 1 << 15;
/// Larger results (in bytes) are written by non-temporal stores, because the caches could not hold them.
const STREAM: usize = 1 << 25;

/// Rows normalised, scaled and shifted; `mean` (unused for rms) and `rstd` are `[rows]`.
pub fn row_norm(c: &call::RowNorm<View>) -> Result<()> {
    let call::RowNorm { ref spec, x, weight, bias, y, mean, rstd, .. } = *c;
    const OP: &str = "row_norm";
    expect(OP, "x", &x, x.dtype(), spec.rows * spec.cols)?;
    expect(OP, "y", &y, x.dtype(), spec.rows * spec.cols)?;
    with_float!(OP, x.dtype(), T => {
        type A = <T as Float>::Acc;
        if !spec.rms {
            expect(OP, "mean", &mean, A::DTYPE, spec.rows)?;
        }
        expect(OP, "rstd", &rstd, A::DTYPE, spec.rows)?;
        let weight = weight.map(|w| load_parameter::<T>(OP, "weight", &w, spec.cols)).transpose()?;
        let bias = bias.map(|b| load_parameter::<T>(OP, "bias", &b, spec.cols)).transpose()?;
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe {
            forward::<T>(
                spec, x.ptr().cast(), weight.as_deref(), bias.as_deref(), y.ptr().cast(), mean.ptr().cast(), rstd.ptr().cast(),
            )
        };
        Ok(())
    })
}

/// Gradients of `row_norm`; unneeded ones are `None`. `so_far` is added to `dx`.
pub fn row_norm_backward(c: &call::RowNormBackward<View>) -> Result<()> {
    let call::RowNormBackward { ref spec, dy, x, weight, mean, rstd, so_far, dx, dweight, dbias, .. } = *c;
    const OP: &str = "row_norm_backward";
    expect(OP, "x", &x, x.dtype(), spec.rows * spec.cols)?;
    expect(OP, "dy", &dy, x.dtype(), spec.rows * spec.cols)?;
    for (name, view) in [("dx", &dx), ("so_far", &so_far)] {
        if let Some(view) = view {
            expect(OP, name, view, x.dtype(), spec.rows * spec.cols)?;
        }
    }
    with_float!(OP, x.dtype(), T => {
        type A = <T as Float>::Acc;
        if !spec.rms {
            expect(OP, "mean", &mean, A::DTYPE, spec.rows)?;
        }
        expect(OP, "rstd", &rstd, A::DTYPE, spec.rows)?;
        let weight = weight.map(|w| load_parameter::<T>(OP, "weight", &w, spec.cols)).transpose()?;
        let input = Input {
            dy: SendPtr::new(dy.ptr().cast::<T>()),
            x: SendPtr::new(x.ptr().cast::<T>()),
            mean: SendPtr::new(mean.ptr().cast::<A>()),
            rstd: SendPtr::new(rstd.ptr().cast::<A>()),
            so_far: so_far.map(|s| SendPtr::new(s.ptr().cast::<T>())),
        };
        let dx = dx.map(|dx| dx.ptr().cast::<T>());
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        let sums = unsafe { backward::<T>(spec, input, weight.as_deref(), dx, dweight.is_some() || dbias.is_some()) };
        if let Some(dweight) = dweight {
            store_parameter::<T>(OP, "dweight", &sums[..spec.cols], &dweight)?;
        }
        if let Some(dbias) = dbias {
            store_parameter::<T>(OP, "dbias", &sums[spec.cols..], &dbias)?;
        }
        Ok(())
    })
}

/// Statistics of a row, or of a part of one.
#[derive(Clone, Copy)]
pub(crate) struct Moments {
    pub count: f64,
    pub mean: f64,
    /// Sum of squared distances from the mean.
    pub spread: f64,
}

impl Moments {
    pub const NONE: Self = Self { count: 0.0, mean: 0.0, spread: 0.0 };

    /// Combines two parts (Chan's update).
    pub fn join(self, b: Self) -> Self {
        let count = self.count + b.count;
        if count == 0.0 {
            return self;
        }
        let distance = b.mean - self.mean;
        let share = b.count / count;
        Self {
            count,
            mean: self.mean + distance * share,
            spread: self.spread + b.spread + distance * distance * self.count * share,
        }
    }

    pub fn rstd(&self, eps: f64) -> f64 {
        1.0 / (self.spread / self.count + eps).sqrt()
    }
}

/// # Safety
/// `rows * cols` elements at `x` and `y`, `cols` in the parameters, `rows` at `rstd` and, unless rms, `mean`; outputs
/// do not overlap.
unsafe fn forward<T: Float>(
    spec: &RowNorm,
    x: *const T,
    weight: Option<&[T::Acc]>,
    bias: Option<&[T::Acc]>,
    y: *mut T,
    mean: *mut T::Acc,
    rstd: *mut T::Acc,
) {
    let RowNorm { rows, cols, eps, rms } = *spec;
    if cols == 0 {
        for row in 0..rows {
            // SAFETY: `rows` statistics. Those of nothing are undefined.
            unsafe {
                if !rms {
                    *mean.add(row) = T::Acc::lit(f64::NAN);
                }
                *rstd.add(row) = T::Acc::lit(f64::NAN);
            }
        }
        return;
    }
    let (ones, zeros);
    let weight = match weight {
        Some(w) => w,
        None => {
            ones = vec![T::Acc::lit(1.0); cols];
            &ones
        }
    };
    let bias = match bias {
        Some(b) => b,
        None => {
            // An RMS norm without a shift keeps the sign of zeros: adding -0 changes nothing.
            zeros = vec![T::Acc::lit(if rms { -0.0 } else { 0.0 }); cols];
            &zeros
        }
    };
    let (xs, ys, means, rstds) = (SendPtr::new(x.cast_mut()), SendPtr::new(y), SendPtr::new(mean), SendPtr::new(rstd));
    let stream = rows * cols * size_of::<T>() > STREAM;
    if cols <= LONG {
        parallel_ranges(rows, (GRAIN / cols).max(1), |from, to| {
            for row in from..to {
                // SAFETY: the row is within the tensors, and no other task has it.
                unsafe {
                    let (mu, r) = normalize::<T>(rms, eps, xs.at(row * cols), ys.at(row * cols), weight, bias, stream);
                    if !rms {
                        *means.at(row) = mu;
                    }
                    *rstds.at(row) = r;
                }
            }
        });
        return;
    }
    let blocks = cols.div_ceil(BLOCK);
    let mut parts = vec![Moments::NONE; blocks];
    for row in 0..rows {
        let parts_at = SendPtr::new(parts.as_mut_ptr());
        parallel_for(blocks.div_ceil(GRAIN / BLOCK), |task| {
            for b in task * (GRAIN / BLOCK)..blocks.min((task + 1) * (GRAIN / BLOCK)) {
                let len = BLOCK.min(cols - b * BLOCK);
                // SAFETY: the block is within the row; its part is this task's.
                unsafe { *parts_at.at(b) = block_moments::<T>(rms, xs.at(row * cols + b * BLOCK), len) }
            }
        });
        let all = parts.iter().fold(Moments::NONE, |all, &p| all.join(p));
        let (mu, r) = (T::Acc::lit(all.mean), T::Acc::lit(all.rstd(eps)));
        // SAFETY: `rows` statistics.
        unsafe {
            if !rms {
                *means.at(row) = mu;
            }
            *rstds.at(row) = r;
        }
        parallel_ranges(cols, GRAIN, |from, to| {
            let (w, b, at) = (&weight[from..to], &bias[from..to], row * cols + from);
            // SAFETY: the range is within the row and is this task's.
            unsafe { apply::<T>(mu, r, xs.at(at), ys.at(at), w, b, stream) }
        });
    }
}

/// Mean and spread of a row in the compute type; the mean of an RMS norm is zero.
#[inline(always)]
unsafe fn moments<R: Real, I: Vectors>(rms: bool, x: *const R, n: usize) -> (R, R) {
    let zero = R::V::<I>::splat(R::ZERO);
    let mut mean = R::ZERO;
    // SAFETY: `n` elements by the caller's contract.
    unsafe {
        if !rms {
            let mut sums = [zero; 4];
            sweep!(R::V<I>, n, i, m, k => { sums[k] = sums[k] + R::V::<I>::get(x.add(i), m, R::ZERO) });
            mean = total(sums) / R::lit(n as f64);
        }
        let mut sums = [zero; 4];
        let center = R::V::<I>::splat(mean);
        sweep!(R::V<I>, n, i, m, k => {
            let d = R::V::<I>::get(x.add(i), m, mean) - center;
            sums[k] = d.fma(d, sums[k]);
        });
        (mean, total(sums))
    }
}

/// `y = (x - mean) * rstd * weight + bias`.
#[inline(always)]
unsafe fn affine<R: Real, I: Vectors>(
    mean: R,
    rstd: R,
    x: *const R,
    y: *mut R,
    weight: *const R,
    bias: *const R,
    n: usize,
    stream: bool,
) {
    let stream = stream && (y as usize).is_multiple_of(size_of::<R::V<I>>());
    let (mean, rstd) = (R::V::<I>::splat(mean), R::V::<I>::splat(rstd));
    // SAFETY: `n` elements by the caller's contract.
    sweep!(R::V<I>, n, i, m => {
        unsafe {
            let w = R::V::<I>::get(weight.add(i), m, R::ZERO);
            let b = R::V::<I>::get(bias.add(i), m, R::ZERO);
            // Prefetches the next row while this one is written.
            prefetch(x.wrapping_add(n + i));
            let v = ((R::V::<I>::get(x.add(i), m, R::ZERO) - mean) * rstd).fma(w, b);
            if stream && m == R::V::<I>::N {
                v.stream(y.add(i));
            } else {
                v.put(y.add(i), m);
            }
        }
    });
    if stream {
        fence();
    }
}

#[inline(always)]
unsafe fn normalize_kernel<R: Real, I: Vectors>(
    rms: bool,
    eps: f64,
    x: *const R,
    y: *mut R,
    weight: &[R],
    bias: &[R],
    stream: bool,
) -> (R, R) {
    let n = weight.len();
    // SAFETY: `n` elements at `x` and `y`.
    unsafe {
        let (mean, spread) = moments::<R, I>(rms, x, n);
        let rstd = R::lit(1.0 / (spread.to_f64() / n as f64 + eps).sqrt());
        affine::<R, I>(mean, rstd, x, y, weight.as_ptr(), bias.as_ptr(), n, stream);
        (mean, rstd)
    }
}
multiversion! {
    unsafe fn wide_normalize<R: Real>(
        rms: bool, eps: f64, x: *const R, y: *mut R, weight: &[R], bias: &[R], stream: bool,
    ) -> (R, R) = normalize_kernel;
}

/// One row; returns its mean and the inverse of its standard deviation.
///
/// # Safety
/// As many elements at `x` and `y` as there are weights and biases.
unsafe fn normalize<T: Float>(
    rms: bool,
    eps: f64,
    x: *const T,
    y: *mut T,
    weight: &[T::Acc],
    bias: &[T::Acc],
    stream: bool,
) -> (T::Acc, T::Acc) {
    // SAFETY: the caller's promise; the widened row is as long.
    unsafe {
        if T::WIDE {
            return wide_normalize(rms, eps, x.cast(), y.cast(), weight, bias, stream);
        }
        let mut row = vec![T::Acc::ZERO; weight.len()];
        let at = row.as_mut_ptr();
        widen(x, at, row.len());
        let stats = wide_normalize(rms, eps, at, at, weight, bias, false);
        narrow(at, y, row.len());
        stats
    }
}

multiversion! {
    unsafe fn wide_moments<R: Real>(rms: bool, x: *const R, n: usize) -> (R, R) = moments;
}

/// # Safety
/// `n` elements, at most a block, at `x`.
pub(crate) unsafe fn block_moments<T: Float>(rms: bool, x: *const T, n: usize) -> Moments {
    debug_assert!(n <= BLOCK);
    let (mut mean, mut spread) = (T::Acc::ZERO, T::Acc::ZERO);
    // SAFETY: the caller's promise.
    unsafe { each_block(n, [x], std::ptr::null_mut(), |_, n, [x], _| (mean, spread) = wide_moments(rms, x, n)) };
    Moments { count: n as f64, mean: mean.to_f64(), spread: spread.to_f64() }
}

multiversion! {
    unsafe fn wide_affine<R: Real>(
        mean: R, rstd: R, x: *const R, y: *mut R, weight: *const R, bias: *const R, n: usize, stream: bool,
    ) = affine;
}

/// Normalises a part of a row whose statistics are known.
///
/// # Safety
/// As many elements at `x` and `y` as there are weights and biases.
unsafe fn apply<T: Float>(
    mean: T::Acc,
    rstd: T::Acc,
    x: *const T,
    y: *mut T,
    weight: &[T::Acc],
    bias: &[T::Acc],
    stream: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        each_block(weight.len(), [x], y, |at, n, [x], y| {
            let (weight, bias) = (weight.as_ptr().add(at), bias.as_ptr().add(at));
            wide_affine(mean, rstd, x, y, weight, bias, n, stream && T::WIDE);
        });
    }
}

#[inline(always)]
unsafe fn add_into_kernel<R: Real, I: Vectors>(to: *mut R, from: *const R, n: usize) {
    // SAFETY: `n` elements by the caller's contract.
    sweep!(R::V<I>, n, i, m => {
        unsafe { (R::V::<I>::get(to.add(i), m, R::ZERO) + R::V::<I>::get(from.add(i), m, R::ZERO)).put(to.add(i), m) }
    });
}
multiversion! {
    /// `to += from`.
    ///
    /// # Safety
    /// `n` elements at both, which do not overlap.
    pub(crate) unsafe fn add_into<R: Real>(to: *mut R, from: *const R, n: usize) = add_into_kernel;
}
