//! Kernels of depthwise convolutions: lanes of image and weight vectors are adjacent channels.

use super::simd::{Simd, Vector};

/// Channels per block: the maximum number of lanes of any level.
pub(super) const CHANNELS: usize = 16;

/// `out[places[i] + l] = start[l] + Σ_(offset, weight) weights[weight + l] · image[pixels[i] + offset + l]`, where `l`
/// is a lane.
pub(super) struct Combine<'a> {
    pub image: *const f32,
    pub pixels: &'a [usize],
    pub taps: &'a [(usize, usize)],
    pub weights: *const f32,
    pub start: &'a [f32; CHANNELS],
    pub out: *mut f32,
    pub places: &'a [usize],
}

/// # Safety
/// The addresses of the formula are valid for [`CHANNELS`] lanes; there is a place for each pixel.
#[inline(always)]
unsafe fn combine_kernel<I: Simd<f32>>(c: &Combine) {
    for lane in (0..CHANNELS).step_by(I::V::LANES) {
        let mut first = 0;
        while first < c.pixels.len() {
            // SAFETY: at most as many pixels as are left.
            first += unsafe {
                match c.pixels.len() - first {
                    8.. => combine_tile::<I, 8>(c, first, lane),
                    4.. => combine_tile::<I, 4>(c, first, lane),
                    2.. => combine_tile::<I, 2>(c, first, lane),
                    _ => combine_tile::<I, 1>(c, first, lane),
                }
            };
        }
    }
}

/// # Safety
/// As [`combine_kernel`].
#[inline(always)]
unsafe fn combine_tile<I: Simd<f32>, const N: usize>(c: &Combine, first: usize, lane: usize) -> usize {
    // SAFETY: the addresses are the formula's.
    unsafe {
        let mut sums = [I::V::load(c.start.as_ptr().add(lane)); N];
        let mut pixels = [c.image; N];
        for i in 0..N {
            pixels[i] = c.image.add(*c.pixels.get_unchecked(first + i) + lane);
        }
        let weights = c.weights.add(lane);
        for &(offset, weight) in c.taps {
            let weight = I::V::load(weights.add(weight));
            for i in 0..N {
                sums[i] = weight.mul_add(I::V::load(pixels[i].add(offset)), sums[i]);
            }
        }
        for i in 0..N {
            sums[i].store(c.out.add(*c.places.get_unchecked(first + i) + lane));
        }
    }
    N
}

/// `sums[t·CHANNELS + lane] += Σ_p gradient[p·CHANNELS + lane] · image[pixels[p] + taps[t] + lane]`.
pub(super) struct Accumulate<'a> {
    pub image: *const f32,
    pub pixels: &'a [usize],
    pub taps: &'a [usize],
    pub gradient: *const f32,
    pub sums: *mut f32,
}

/// # Safety
/// The addresses of the formula are valid for [`CHANNELS`] lanes.
#[inline(always)]
unsafe fn accumulate_kernel<I: Simd<f32>>(a: &Accumulate) {
    for lane in (0..CHANNELS).step_by(I::V::LANES) {
        let mut tap = 0;
        while tap < a.taps.len() {
            // SAFETY: at most as many taps as are left.
            tap += unsafe {
                match a.taps.len() - tap {
                    8.. => accumulate_tile::<I, 8>(a, tap, lane),
                    4.. => accumulate_tile::<I, 4>(a, tap, lane),
                    2.. => accumulate_tile::<I, 2>(a, tap, lane),
                    _ => accumulate_tile::<I, 1>(a, tap, lane),
                }
            };
        }
    }
}

/// # Safety
/// As [`accumulate_kernel`].
#[inline(always)]
unsafe fn accumulate_tile<I: Simd<f32>, const N: usize>(a: &Accumulate, tap: usize, lane: usize) -> usize {
    // SAFETY: the addresses are the formula's.
    unsafe {
        let mut sums = [I::V::splat(0.0); N];
        let mut taps = [a.image; N];
        for i in 0..N {
            taps[i] = a.image.add(*a.taps.get_unchecked(tap + i) + lane);
        }
        let mut gradient = a.gradient.add(lane);
        for &pixel in a.pixels {
            let left = I::V::load(gradient);
            for i in 0..N {
                sums[i] = left.mul_add(I::V::load(taps[i].add(pixel)), sums[i]);
            }
            gradient = gradient.add(CHANNELS);
        }
        for i in 0..N {
            let to = a.sums.add((tap + i) * CHANNELS + lane);
            I::V::load(to).add(sums[i]).store(to);
        }
    }
    N
}

crate::multiversion! {
    /// # Safety
    /// The addresses of the formula are valid for [`CHANNELS`] lanes; there is a place for each pixel.
    pub(super) unsafe fn combine(c: &Combine) = combine_kernel;
}

crate::multiversion! {
    /// # Safety
    /// The addresses of the formula are valid for [`CHANNELS`] lanes.
    pub(super) unsafe fn accumulate(a: &Accumulate) = accumulate_kernel;
}
