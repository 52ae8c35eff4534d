//! Batch norm: channels of `[batch, channels, space]` normalised by the statistics of the batch, or by given ones.
//!
//! The tensor is processed in strips, each in one pass. If the space is large, a strip is a plane with one set of
//! coefficients; if it is small, a strip is a whole image with coefficients for each of its `channels * space`
//! columns.

use crate::float::{BLOCK, Float, each_block, expect, load_parameter, store_parameter, with_float};
use crate::multiversion;
use crate::pool::{parallel_for, parallel_ranges};
use crate::row_norm::{Moments, add_into, block_moments};
use crate::simd::{Real, Simd, Vectors, sweep, total};
use rushlight_core::backend::{BatchNorm, call};
use rushlight_core::sync::SendPtr;
use rushlight_core::{Element, Result, View};

/// Smaller planes leave vectors half empty: strips are then images.
pub const PLANE: usize = 24;
/// Minimum elements of a task.
const GRAIN: usize = 1 << 15;

/// Channels normalised, scaled and shifted. `mean` and `rstd` (`[channels]`) are written when training (biased
/// variance), else read.
pub fn batch_norm(c: &call::BatchNorm<View>) -> Result<()> {
    let call::BatchNorm { ref spec, x, weight, bias, y, mean, rstd, .. } = *c;
    const OP: &str = "batch_norm";
    let numel = spec.batch * spec.channels * spec.space;
    expect(OP, "x", &x, x.dtype(), numel)?;
    expect(OP, "y", &y, x.dtype(), numel)?;
    with_float!(OP, x.dtype(), T => {
        type A = <T as Float>::Acc;
        expect(OP, "mean", &mean, A::DTYPE, spec.channels)?;
        expect(OP, "rstd", &rstd, A::DTYPE, spec.channels)?;
        let weight = weight.map(|w| load_parameter::<T>(OP, "weight", &w, spec.channels)).transpose()?;
        let bias = bias.map(|b| load_parameter::<T>(OP, "bias", &b, spec.channels)).transpose()?;
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe {
            let mean = std::slice::from_raw_parts_mut(mean.ptr().cast::<A>(), spec.channels);
            let rstd = std::slice::from_raw_parts_mut(rstd.ptr().cast::<A>(), spec.channels);
            forward::<T>(spec, x.ptr().cast(), weight.as_deref(), bias.as_deref(), y.ptr().cast(), mean, rstd)
        };
        Ok(())
    })
}

/// Gradients of `batch_norm`; unneeded ones are `None`.
pub fn batch_norm_backward(c: &call::BatchNormBackward<View>) -> Result<()> {
    let call::BatchNormBackward { ref spec, dy, x, weight, mean, rstd, dx, dweight, dbias, .. } = *c;
    const OP: &str = "batch_norm_backward";
    let numel = spec.batch * spec.channels * spec.space;
    expect(OP, "x", &x, x.dtype(), numel)?;
    expect(OP, "dy", &dy, x.dtype(), numel)?;
    if let Some(dx) = &dx {
        expect(OP, "dx", dx, x.dtype(), numel)?;
    }
    with_float!(OP, x.dtype(), T => {
        type A = <T as Float>::Acc;
        expect(OP, "mean", &mean, A::DTYPE, spec.channels)?;
        expect(OP, "rstd", &rstd, A::DTYPE, spec.channels)?;
        let weight = weight.map(|w| load_parameter::<T>(OP, "weight", &w, spec.channels)).transpose()?;
        let dx = dx.map(|dx| dx.ptr().cast::<T>());
        let mean = load_parameter::<A>(OP, "mean", &mean, spec.channels)?;
        let rstd = load_parameter::<A>(OP, "rstd", &rstd, spec.channels)?;
        let sums = dweight.is_some() || dbias.is_some();
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        let (dw, db) = unsafe {
            backward::<T>(spec, dy.ptr().cast(), x.ptr().cast(), weight.as_deref(), &mean, &rstd, dx, sums)
        };
        if let Some(dweight) = dweight {
            store_parameter::<T>(OP, "dweight", &dw, &dweight)?;
        }
        if let Some(dbias) = dbias {
            store_parameter::<T>(OP, "dbias", &db, &dbias)?;
        }
        Ok(())
    })
}

/// The split of the tensor into strips.
#[derive(Clone, Copy)]
struct Strips {
    /// Number of strips.
    count: usize,
    /// Elements of a strip.
    len: usize,
    /// Whether a strip is a plane of one channel.
    planes: bool,
}

impl Strips {
    fn of(spec: &BatchNorm) -> Self {
        if spec.space >= PLANE {
            Self { count: spec.batch * spec.channels, len: spec.space, planes: true }
        } else {
            Self { count: spec.batch, len: spec.channels * spec.space, planes: false }
        }
    }

    /// Strips per task.
    fn grain(&self) -> usize {
        (GRAIN / self.len.max(1)).max(1)
    }

    /// The coefficients of a strip's elements from `at` on.
    #[inline(always)]
    fn from<R, const N: usize>(self, at: usize, coefficients: [&[R]; N]) -> [&[R]; N] {
        if self.planes { coefficients } else { coefficients.map(|c| &c[at..]) }
    }

    /// Coefficients of the channels, repeated for the columns of a strip that has several channels.
    fn spread<R: Real>(&self, space: usize, per_channel: impl Iterator<Item = R>) -> Vec<R> {
        let repeat = if self.planes { 1 } else { space };
        per_channel.flat_map(|v| std::iter::repeat_n(v, repeat)).collect()
    }
}

/// # Safety
/// `batch * channels * space` elements at `x` and `y`, which do not overlap; the slices have `channels`.
unsafe fn forward<T: Float>(
    spec: &BatchNorm,
    x: *const T,
    weight: Option<&[T::Acc]>,
    bias: Option<&[T::Acc]>,
    y: *mut T,
    mean: &mut [T::Acc],
    rstd: &mut [T::Acc],
) {
    let strips = Strips::of(spec);
    let (xs, ys) = (SendPtr::new(x.cast_mut()), SendPtr::new(y));
    if spec.training {
        // SAFETY: the tensor has these strips.
        let moments = unsafe { if strips.planes { plane_moments(spec, xs) } else { column_moments(spec, xs) } };
        for (c, m) in moments.iter().enumerate() {
            (mean[c], rstd[c]) = (T::Acc::lit(m.mean), T::Acc::lit(m.rstd(spec.eps)));
        }
    }
    let one = T::Acc::lit(1.0);
    let scales = (0..spec.channels).map(|c| rstd[c] * weight.map_or(one, |w| w[c]));
    let scales = strips.spread(spec.space, scales);
    let shifts = strips.spread(spec.space, (0..spec.channels).map(|c| bias.map_or(T::Acc::ZERO, |b| b[c])));
    let means = strips.spread(spec.space, mean.iter().copied());
    parallel_ranges(strips.count, strips.grain(), |from, to| {
        for strip in from..to {
            let c = if strips.planes { strip % spec.channels } else { 0 };
            let at = strip * strips.len;
            // SAFETY: the strip is within the tensors and is this task's; coefficients are there for its columns.
            unsafe { affine::<T>(strips, xs.at(at), ys.at(at), [&means[c..], &scales[c..], &shifts[c..]]) }
        }
    });
}

/// # Safety
/// As for [`forward`]; `dx` overlaps nothing.
unsafe fn backward<T: Float>(
    spec: &BatchNorm,
    dy: *const T,
    x: *const T,
    weight: Option<&[T::Acc]>,
    mean: &[T::Acc],
    rstd: &[T::Acc],
    dx: Option<*mut T>,
    parameters: bool,
) -> (Vec<T::Acc>, Vec<T::Acc>) {
    if spec.batch * spec.space == 0 {
        let zeros = vec![T::Acc::ZERO; spec.channels];
        return (zeros.clone(), zeros);
    }
    let strips = Strips::of(spec);
    let (dys, xs) = (SendPtr::new(dy.cast_mut()), SendPtr::new(x.cast_mut()));
    let means = strips.spread(spec.space, mean.iter().copied());
    let mut sums = vec![[0.0; 2]; spec.channels];
    if parameters || spec.training {
        // SAFETY: the tensors have these strips.
        sums = unsafe {
            if strips.planes { plane_sums(spec, dys, xs, &means) } else { column_sums(spec, Some(dys), xs, &means) }
        };
    }
    if let Some(dx) = dx {
        let dxs = SendPtr::new(dx);
        let count = (spec.batch * spec.space) as f64;
        let scale = |c: usize| rstd[c].to_f64() * weight.map_or(1.0, |w| w[c].to_f64());
        let per_channel =
            |f: &dyn Fn(usize) -> f64| strips.spread(spec.space, (0..spec.channels).map(|c| T::Acc::lit(f(c))));
        let scales = per_channel(&scale);
        let of_mean = per_channel(&|c| scale(c) * sums[c][0] / count);
        let of_spread = per_channel(&|c| scale(c) * rstd[c].to_f64().powi(2) * sums[c][1] / count);
        parallel_ranges(strips.count, strips.grain(), |from, to| {
            for strip in from..to {
                let c = if strips.planes { strip % spec.channels } else { 0 };
                let at = strip * strips.len;
                let pull = spec.training.then_some([&means[c..], &of_mean[c..], &of_spread[c..]]);
                // SAFETY: the strip is within the tensors and is this task's; coefficients are there for its columns.
                unsafe {
                    gradient::<T>(
                        strips,
                        [dys.at(at), xs.at(at)].map(|p| p.cast_const()),
                        dxs.at(at),
                        &scales[c..],
                        pull,
                    )
                }
            }
        });
    }
    let dweight = sums.iter().zip(rstd).map(|(s, r)| T::Acc::lit(s[1] * r.to_f64())).collect();
    (dweight, sums.iter().map(|s| T::Acc::lit(s[0])).collect())
}

/// Statistics of each channel, combined from those of its planes.
///
/// # Safety
/// The tensor at `x` has the spec's sizes.
unsafe fn plane_moments<T: Float>(spec: &BatchNorm, x: SendPtr<T>) -> Vec<Moments> {
    let planes = spec.batch * spec.channels;
    let mut parts = vec![Moments::NONE; planes];
    let parts_at = SendPtr::new(parts.as_mut_ptr());
    parallel_ranges(planes, (GRAIN / spec.space).max(1), |from, to| {
        for plane in from..to {
            let mut all = Moments::NONE;
            for at in (0..spec.space).step_by(BLOCK) {
                // SAFETY: the block is within the plane.
                all = all.join(unsafe {
                    block_moments::<T>(false, x.at(plane * spec.space + at), BLOCK.min(spec.space - at))
                });
            }
            // SAFETY: the plane's part is this task's.
            unsafe { *parts_at.at(plane) = all }
        }
    });
    let of_channel = |c: usize| (0..spec.batch).fold(Moments::NONE, |all, n| all.join(parts[n * spec.channels + c]));
    (0..spec.channels).map(of_channel).collect()
}

/// The same for strips that are images: one pass for the means, one for the squared distances.
///
/// # Safety
/// As for [`plane_moments`].
unsafe fn column_moments<T: Float>(spec: &BatchNorm, x: SendPtr<T>) -> Vec<Moments> {
    let count = (spec.batch * spec.space) as f64;
    let strips = Strips::of(spec);
    let no_mean = vec![T::Acc::ZERO; strips.len];
    // SAFETY: by the caller's contract.
    let sums = unsafe { column_sums(spec, None, x, &no_mean) };
    let means: Vec<f64> = sums.iter().map(|s| s[0] / count).collect();
    let spread_means = strips.spread(spec.space, means.iter().map(|&m| T::Acc::lit(m)));
    // SAFETY: as above.
    let sums = unsafe { column_sums(spec, None, x, &spread_means) };
    means.iter().zip(sums).map(|(&mean, s)| Moments { count, mean, spread: s[1] }).collect()
}

/// Sums over each channel of `dy` and of `dy * (x - mean)`.
///
/// # Safety
/// The tensors have the spec's sizes; there is a mean for each channel.
unsafe fn plane_sums<T: Float>(spec: &BatchNorm, dy: SendPtr<T>, x: SendPtr<T>, means: &[T::Acc]) -> Vec<[f64; 2]> {
    let planes = spec.batch * spec.channels;
    let mut parts = vec![[0.0; 2]; planes];
    let parts_at = SendPtr::new(parts.as_mut_ptr());
    parallel_ranges(planes, (GRAIN / spec.space).max(1), |from, to| {
        for plane in from..to {
            let at = plane * spec.space;
            // SAFETY: the plane is within the tensors, and its part is this task's.
            unsafe {
                *parts_at.at(plane) = plane_dot::<T>(dy.at(at), x.at(at), means[plane % spec.channels], spec.space)
            }
        }
    });
    let mut sums = vec![[0.0; 2]; spec.channels];
    for image in parts.chunks(spec.channels.max(1)) {
        for (sum, part) in sums.iter_mut().zip(image) {
            *sum = [sum[0] + part[0], sum[1] + part[1]];
        }
    }
    sums
}

/// The same for strips that are images. Without `dy`: sums of `x - mean` and of its square.
///
/// # Safety
/// As for [`plane_sums`], with a mean for each column.
unsafe fn column_sums<T: Float>(
    spec: &BatchNorm,
    dy: Option<SendPtr<T>>,
    x: SendPtr<T>,
    means: &[T::Acc],
) -> Vec<[f64; 2]> {
    let Strips { count, len, .. } = Strips::of(spec);
    // The split depends on the sizes alone, so sums do not depend on the number of threads.
    let per_chunk = count.div_ceil(64).max(GRAIN / len.max(1)).max(1);
    let chunks = count.div_ceil(per_chunk).max(1);
    let mut partial = vec![T::Acc::ZERO; chunks * 2 * len];
    let partials = SendPtr::new(partial.as_mut_ptr());
    parallel_for(chunks, |chunk| {
        for strip in chunk * per_chunk..count.min((chunk + 1) * per_chunk) {
            let at = strip * len;
            // SAFETY: the strip is within the tensors; the chunk's sums are this task's.
            unsafe {
                add_columns::<T>(dy.map(|d| d.at(at).cast_const()), x.at(at), means, partials.at(chunk * 2 * len))
            }
        }
    });
    for chunk in 1..chunks {
        // SAFETY: two different rows of `2 * len`.
        unsafe { add_into(partials.at(0), partials.at(chunk * 2 * len), 2 * len) }
    }
    let of_channel = |c: usize, row: usize| {
        partial[row * len + c * spec.space..][..spec.space].iter().fold(0.0, |sum, v| sum + v.to_f64())
    };
    (0..spec.channels).map(|c| [of_channel(c, 0), of_channel(c, 1)]).collect()
}

/// Coefficients of a strip: one of each for a plane, one for each column of an image.
type Coefficients<'a, R> = [&'a [R]; 3];

/// A vector of coefficients: one value for a plane, or one per column.
#[inline(always)]
unsafe fn coefficient<V: Simd, const PLANES: bool>(p: &[V::Elem], i: usize, m: usize) -> V {
    if PLANES {
        V::splat(p[0])
    } else {
        // SAFETY: by the caller's contract there is one for each column.
        unsafe { V::get(p.as_ptr().add(i), m, V::Elem::ZERO) }
    }
}

#[inline(always)]
unsafe fn affine_strip<R: Real, I: Vectors, const PLANES: bool>(x: *const R, y: *mut R, n: usize, by: Coefficients<R>) {
    let [means, scales, shifts] = by;
    sweep!(R::V<I>, n, i, m => {
        // SAFETY: by the caller's contract.
        unsafe {
            let mean = coefficient::<R::V<I>, PLANES>(means, i, m);
            let scale = coefficient::<R::V<I>, PLANES>(scales, i, m);
            let shift = coefficient::<R::V<I>, PLANES>(shifts, i, m);
            (R::V::<I>::get(x.add(i), m, R::ZERO) - mean).fma(scale, shift).put(y.add(i), m);
        }
    });
}

#[inline(always)]
unsafe fn affine_kernel<R: Real, I: Vectors>(planes: bool, x: *const R, y: *mut R, n: usize, by: Coefficients<R>) {
    // SAFETY: by the caller's contract.
    unsafe { if planes { affine_strip::<R, I, true>(x, y, n, by) } else { affine_strip::<R, I, false>(x, y, n, by) } }
}
multiversion! {
    unsafe fn wide_affine<R: Real>(planes: bool, x: *const R, y: *mut R, n: usize, by: Coefficients<R>) = affine_kernel;
}

/// `y = (x - mean) * scale + shift`.
///
/// # Safety
/// A strip at `x` and `y`, which do not overlap; one coefficient for a plane, `len` for an image.
unsafe fn affine<T: Float>(strips: Strips, x: *const T, y: *mut T, by: Coefficients<T::Acc>) {
    let planes = strips.planes;
    // SAFETY: by the caller's contract.
    unsafe { each_block(strips.len, [x], y, |at, n, [x], y| wide_affine(planes, x, y, n, strips.from(at, by))) }
}

#[inline(always)]
unsafe fn plane_dot_kernel<R: Real, I: Vectors>(dy: *const R, x: *const R, mean: R, len: usize) -> [f64; 2] {
    let (zero, center) = (R::V::<I>::splat(R::ZERO), R::V::<I>::splat(mean));
    let mut sums = [0.0; 2];
    for at in (0..len).step_by(BLOCK) {
        let n = BLOCK.min(len - at);
        let (mut plain, mut weighted) = ([zero; 4], [zero; 4]);
        // SAFETY: a block of `n` within the plane.
        unsafe {
            let (dy, x) = (dy.add(at), x.add(at));
            sweep!(R::V<I>, n, i, m, k => {
                let dy = R::V::<I>::get(dy.add(i), m, R::ZERO);
                plain[k] = plain[k] + dy;
                weighted[k] = dy.fma(R::V::<I>::get(x.add(i), m, mean) - center, weighted[k]);
            });
        }
        sums = [sums[0] + total(plain).to_f64(), sums[1] + total(weighted).to_f64()];
    }
    sums
}
multiversion! {
    unsafe fn wide_plane_dot<R: Real>(dy: *const R, x: *const R, mean: R, len: usize) -> [f64; 2] = plane_dot_kernel;
}

/// Sums over a plane of `dy` and `dy * (x - mean)`.
///
/// # Safety
/// `len` elements at `dy` and `x`.
unsafe fn plane_dot<T: Float>(dy: *const T, x: *const T, mean: T::Acc, len: usize) -> [f64; 2] {
    let mut sums = [0.0; 2];
    // SAFETY: by the caller's contract.
    unsafe {
        each_block(len, [dy, x], std::ptr::null_mut(), |_, n, [dy, x], _| {
            let part = wide_plane_dot(dy, x, mean, n);
            sums = [sums[0] + part[0], sums[1] + part[1]];
        });
    }
    sums
}

#[inline(always)]
unsafe fn add_columns_kernel<R: Real, I: Vectors>(
    dy: Option<*const R>,
    x: *const R,
    means: *const R,
    [plain, weighted]: [*mut R; 2],
    n: usize,
) {
    sweep!(R::V<I>, n, i, m => {
        // SAFETY: by the caller's contract.
        unsafe {
            let d = R::V::<I>::get(x.add(i), m, R::ZERO) - R::V::<I>::get(means.add(i), m, R::ZERO);
            let factor = match dy {
                Some(dy) => R::V::<I>::get(dy.add(i), m, R::ZERO),
                None => d,
            };
            (R::V::<I>::get(plain.add(i), m, R::ZERO) + factor).put(plain.add(i), m);
            factor.fma(d, R::V::<I>::get(weighted.add(i), m, R::ZERO)).put(weighted.add(i), m);
        }
    });
}
multiversion! {
    unsafe fn wide_add_columns<R: Real>(
        dy: Option<*const R>, x: *const R, means: *const R, sums: [*mut R; 2], n: usize,
    ) = add_columns_kernel;
}

/// Adds to each column's two sums `dy` (or `x - mean`) and that times `x - mean`.
///
/// # Safety
/// As many elements at `dy` and `x` as there are means, twice as many sums.
unsafe fn add_columns<T: Float>(dy: Option<*const T>, x: *const T, means: &[T::Acc], sums: *mut T::Acc) {
    let (len, none) = (means.len(), std::ptr::null_mut());
    // SAFETY: by the caller's contract.
    unsafe {
        let add = |at: usize, n, dy, x| {
            wide_add_columns(dy, x, means.as_ptr().add(at), [sums.add(at), sums.add(len + at)], n);
        };
        match dy {
            Some(dy) => each_block(len, [dy, x], none, |at, n, [dy, x], _| add(at, n, Some(dy), x)),
            None => each_block(len, [x], none, |at, n, [x], _| add(at, n, None, x)),
        }
    }
}

/// The part of a gradient that flows through the batch's own statistics: means, and the factors of the mean and of the
/// spread.
type Pull<'a, R> = Coefficients<'a, R>;

#[inline(always)]
unsafe fn gradient_strip<R: Real, I: Vectors, const PLANES: bool>(
    [dy, x]: [*const R; 2],
    dx: *mut R,
    n: usize,
    scales: &[R],
    pull: Option<Pull<R>>,
) {
    // SAFETY: by the caller's contract.
    unsafe {
        if let Some([means, of_mean, of_spread]) = pull {
            sweep!(R::V<I>, n, i, m => {
                let scale = coefficient::<R::V<I>, PLANES>(scales, i, m);
                let d = coefficient::<R::V<I>, PLANES>(means, i, m) - R::V::<I>::get(x.add(i), m, R::ZERO);
                let g = R::V::<I>::get(dy.add(i), m, R::ZERO) * scale;
                let g = g - coefficient::<R::V<I>, PLANES>(of_mean, i, m);
                d.fma(coefficient::<R::V<I>, PLANES>(of_spread, i, m), g).put(dx.add(i), m);
            });
        } else {
            sweep!(R::V<I>, n, i, m => {
                let scale = coefficient::<R::V<I>, PLANES>(scales, i, m);
                (R::V::<I>::get(dy.add(i), m, R::ZERO) * scale).put(dx.add(i), m);
            });
        }
    }
}

#[inline(always)]
unsafe fn gradient_kernel<R: Real, I: Vectors>(
    planes: bool,
    from: [*const R; 2],
    dx: *mut R,
    n: usize,
    scales: &[R],
    pull: Option<Pull<R>>,
) {
    // SAFETY: by the caller's contract.
    unsafe {
        if planes {
            gradient_strip::<R, I, true>(from, dx, n, scales, pull)
        } else {
            gradient_strip::<R, I, false>(from, dx, n, scales, pull)
        }
    }
}
multiversion! {
    unsafe fn wide_gradient<R: Real>(
        planes: bool, from: [*const R; 2], dx: *mut R, n: usize, scales: &[R], pull: Option<Pull<R>>,
    ) = gradient_kernel;
}

/// `dx = dy * scale`, minus the part that flows through the batch's statistics.
///
/// # Safety
/// A strip at each pointer, `dx` overlapping none; one coefficient for a plane, `len` for an image.
unsafe fn gradient<T: Float>(
    strips: Strips,
    [dy, x]: [*const T; 2],
    dx: *mut T,
    scales: &[T::Acc],
    pull: Option<Pull<T::Acc>>,
) {
    let planes = strips.planes;
    // SAFETY: by the caller's contract; without a pull `x` is not read.
    unsafe {
        match pull {
            Some(pull) => each_block(strips.len, [dy, x], dx, |at, n, from, dx| {
                let [scales] = strips.from(at, [scales]);
                wide_gradient(planes, from, dx, n, scales, Some(strips.from(at, pull)));
            }),
            None => each_block(strips.len, [dy], dx, |at, n, [dy], dx| {
                let [scales] = strips.from(at, [scales]);
                wide_gradient(planes, [dy, dy], dx, n, scales, None);
            }),
        }
    }
}
