//! Kernels for few channels: a vector holds adjacent pixels of one channel.
//!
//! Rows of the padded image are contiguous, and so are rows of the result. With the same pitch, every tap has a
//! constant offset, and the image is one long row. The few meaningless pixels at the row ends are dropped later.

use super::simd::{Simd, Vector};

/// Result channels, or filters, per register tile.
pub(super) const ROWS: usize = 6;

/// Pixels that a kernel may read and write past the end.
pub(super) const SLACK: usize = 16;

/// Lanes of the weight gradient's sums: the maximum of any level.
pub(super) const LANES: usize = 16;

/// `out[i·out_pitch + p] = bias[i] + Σ_k weights[k·rows + i] · image[offsets[k] + p]`, for `rows` up to [`ROWS`].
pub(super) struct Correlate<'a> {
    pub image: *const f32,
    pub offsets: &'a [usize],
    pub weights: *const f32,
    pub bias: [f32; ROWS],
    pub rows: usize,
    pub out: *mut f32,
    pub out_pitch: usize,
    pub pixels: usize,
}

/// Vectors of a tile of `rows` rows: few rows leave registers for more.
const fn most<I: Simd<f32>>(rows: usize) -> usize {
    if rows <= 3 { 2 * I::ACROSS } else { I::ACROSS }
}

/// # Safety
/// The addresses of the formula are valid, `pixels` rounded up to a multiple of [`SLACK`].
#[inline(always)]
unsafe fn correlate_kernel<I: Simd<f32>>(c: &Correlate) {
    // SAFETY: passed on.
    unsafe {
        match c.rows {
            1 => correlate_rows::<I, 1>(c),
            2 => correlate_rows::<I, 2>(c),
            3 => correlate_rows::<I, 3>(c),
            4 => correlate_rows::<I, 4>(c),
            5 => correlate_rows::<I, 5>(c),
            _ => correlate_rows::<I, 6>(c),
        }
    }
}

/// # Safety
/// As [`correlate_kernel`].
#[inline(always)]
unsafe fn correlate_rows<I: Simd<f32>, const M: usize>(c: &Correlate) {
    let mut start = 0;
    while start < c.pixels {
        let vectors = (c.pixels - start).div_ceil(I::V::LANES).min(most::<I>(M));
        // SAFETY: at most `vectors` vectors from `start`.
        start += I::V::LANES
            * unsafe {
                match vectors {
                    // Constant conditions: tiles wider than the level's registers are not compiled.
                    8.. if const { most::<I>(M) >= 8 } => correlate_tile::<I, M, 8>(c, start),
                    4.. if const { most::<I>(M) >= 4 } => correlate_tile::<I, M, 4>(c, start),
                    2.. => correlate_tile::<I, M, 2>(c, start),
                    _ => correlate_tile::<I, M, 1>(c, start),
                }
            };
    }
}

/// # Safety
/// As [`correlate_kernel`].
#[inline(always)]
unsafe fn correlate_tile<I: Simd<f32>, const M: usize, const N: usize>(c: &Correlate, start: usize) -> usize {
    // SAFETY: the addresses are the formula's.
    unsafe {
        let mut acc = [[I::V::splat(0.0); N]; M];
        for i in 0..M {
            acc[i] = [I::V::splat(c.bias[i]); N];
        }
        let image = c.image.add(start);
        let mut weights = c.weights;
        for &offset in c.offsets {
            let pixels = image.add(offset);
            let mut left = [I::V::splat(0.0); M];
            for i in 0..M {
                left[i] = I::V::splat(*weights.add(i));
            }
            for j in 0..N {
                let right = I::V::load(pixels.add(j * I::V::LANES));
                for i in 0..M {
                    acc[i][j] = left[i].mul_add(right, acc[i][j]);
                }
            }
            weights = weights.add(M);
        }
        for i in 0..M {
            let out = c.out.add(i * c.out_pitch + start);
            for j in 0..N {
                acc[i][j].store(out.add(j * I::V::LANES));
            }
        }
    }
    N
}

/// `sums[(k·filters + i)·LANES + …] += Σ_images Σ_p gradient[i·pitch + p] · image[offsets[k] + p]`, the sum over lanes
/// left open.
pub(super) struct Accumulate<'a> {
    pub image: *const f32,
    pub image_stride: usize,
    pub offsets: &'a [usize],
    pub gradient: *const f32,
    pub gradient_stride: usize,
    pub images: usize,
    pub pitch: usize,
    pub filters: usize,
    pub sums: *mut f32,
    pub pixels: usize,
}

/// # Safety
/// The addresses of the formula are valid, `pixels` rounded up to a multiple of [`SLACK`]; the gradient is zero there.
#[inline(always)]
unsafe fn accumulate_kernel<I: Simd<f32>>(a: &Accumulate) {
    let blocks = a.filters.div_ceil(ROWS);
    for block in 0..blocks {
        let (start, end) = (a.filters * block / blocks, a.filters * (block + 1) / blocks);
        // SAFETY: filters `start..end`.
        unsafe {
            match end - start {
                1 => accumulate_rows::<I, 1>(a, start),
                2 => accumulate_rows::<I, 2>(a, start),
                3 => accumulate_rows::<I, 3>(a, start),
                4 => accumulate_rows::<I, 4>(a, start),
                5 => accumulate_rows::<I, 5>(a, start),
                _ => accumulate_rows::<I, 6>(a, start),
            }
        }
    }
}

/// # Safety
/// As [`accumulate_kernel`].
#[inline(always)]
unsafe fn accumulate_rows<I: Simd<f32>, const M: usize>(a: &Accumulate, first: usize) {
    let mut k = 0;
    while k < a.offsets.len() {
        // SAFETY: at most as many taps as are left.
        k += unsafe {
            match (a.offsets.len() - k).min(most::<I>(M)) {
                8.. if const { most::<I>(M) >= 8 } => accumulate_tile::<I, M, 8>(a, first, k),
                4.. if const { most::<I>(M) >= 4 } => accumulate_tile::<I, M, 4>(a, first, k),
                2.. => accumulate_tile::<I, M, 2>(a, first, k),
                _ => accumulate_tile::<I, M, 1>(a, first, k),
            }
        };
    }
}

/// # Safety
/// As [`accumulate_kernel`].
#[inline(always)]
unsafe fn accumulate_tile<I: Simd<f32>, const M: usize, const N: usize>(
    a: &Accumulate,
    first: usize,
    k: usize,
) -> usize {
    // SAFETY: the addresses are the formula's.
    unsafe {
        let mut acc = [[I::V::splat(0.0); N]; M];
        let mut image = [a.image; N];
        for j in 0..N {
            image[j] = a.image.add(*a.offsets.get_unchecked(k + j));
            for i in 0..M {
                acc[i][j] = I::V::load(a.sums.add(((k + j) * a.filters + first + i) * LANES));
            }
        }
        let mut gradient = a.gradient.add(first * a.pitch);
        for _ in 0..a.images {
            for p in (0..a.pixels).step_by(I::V::LANES) {
                let mut left = [I::V::splat(0.0); M];
                for i in 0..M {
                    left[i] = I::V::load(gradient.add(i * a.pitch + p));
                }
                for j in 0..N {
                    let right = I::V::load(image[j].add(p));
                    for i in 0..M {
                        acc[i][j] = left[i].mul_add(right, acc[i][j]);
                    }
                }
            }
            gradient = gradient.wrapping_add(a.gradient_stride);
            for j in 0..N {
                image[j] = image[j].wrapping_add(a.image_stride);
            }
        }
        for j in 0..N {
            for i in 0..M {
                acc[i][j].store(a.sums.add(((k + j) * a.filters + first + i) * LANES));
            }
        }
    }
    N
}

/// Copies `rows` rows of `cols` elements between two pitches.
///
/// # Safety
/// The rows are valid on both sides and do not overlap.
#[inline(always)]
unsafe fn move_kernel<I: Simd<f32>>(src: (*const f32, usize), dst: (*mut f32, usize), rows: usize, cols: usize) {
    for row in 0..rows {
        // SAFETY: within the row: the last vector ends where the row does.
        unsafe {
            let (from, to) = (src.0.add(row * src.1), dst.0.add(row * dst.1));
            if cols < I::V::LANES {
                I::V::copy_part(from, to, cols);
                continue;
            }
            for i in (0..cols - I::V::LANES).step_by(I::V::LANES) {
                I::V::load(from.add(i)).store(to.add(i));
            }
            let last = cols - I::V::LANES;
            I::V::load(from.add(last)).store(to.add(last));
        }
    }
}

crate::multiversion! {
    /// # Safety
    /// The addresses of the formula are valid, `pixels` rounded up to a multiple of [`SLACK`].
    pub(super) unsafe fn correlate(c: &Correlate) = correlate_kernel;
}

crate::multiversion! {
    /// # Safety
    /// The addresses of the formula are valid, `pixels` rounded up to a multiple of [`SLACK`]; the gradient is zero
    /// there.
    pub(super) unsafe fn accumulate(a: &Accumulate) = accumulate_kernel;
}

crate::multiversion! {
    /// Copies `rows` rows of `cols` elements between two pitches.
    ///
    /// # Safety
    /// The rows are valid on both sides and do not overlap.
    pub(super) unsafe fn move_rows(src: (*const f32, usize), dst: (*mut f32, usize), rows: usize, cols: usize) = move_kernel;
}
