//! Transposed 32-bit words: small tiles in registers, and few long rows.

use crate::isa::Isa;

/// Side of the tiles of a large transpose: 16 lines of a tile's rows and columns fit the L1 cache.
pub(crate) const TILE: usize = 64;

/// `dst[r * dst_stride + c] = src[c * src_stride + r]` for `r < rows` and `c < cols`.
///
/// # Safety
/// All these elements are readable and writable, and do not overlap.
pub(crate) unsafe fn words(
    rows: usize,
    cols: usize,
    src: *const u32,
    src_stride: usize,
    dst: *mut u32,
    dst_stride: usize,
) {
    // SAFETY: blocks and edges together are the elements the caller guarantees; the level is checked.
    unsafe {
        let (mut done_rows, mut done_cols) = (0, 0);
        if crate::isa::level() > crate::isa::Level::Portable {
            (done_rows, done_cols) = (rows / 8 * 8, cols / 8 * 8);
            for r in (0..done_rows).step_by(8) {
                for c in (0..done_cols).step_by(8) {
                    block(src.add(c * src_stride + r), src_stride, dst.add(r * dst_stride + c), dst_stride);
                }
            }
        }
        for r in 0..rows {
            for c in if r < done_rows { done_cols } else { 0 }..cols {
                dst.add(r * dst_stride + c).write(src.add(c * src_stride + r).read());
            }
        }
    }
}

/// An 8 by 8 block.
///
/// # Safety
/// As [`words`], for 8 rows and columns.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn block(src: *const u32, src_stride: usize, dst: *mut u32, dst_stride: usize) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's; words of any kind pass through registers unchanged.
    unsafe {
        use crate::simd::{Simd, Vectors};
        <<crate::isa::Neon as Vectors>::F32 as Simd>::transpose(src.cast(), src_stride, dst.cast(), dst_stride)
    }
    // Never called: there is no level above the lowest.
    #[cfg(not(target_arch = "aarch64"))]
    let _ = (src, src_stride, dst, dst_stride);
}

/// An 8 by 8 block: pairs, then quads of columns are interleaved, then halves exchanged.
///
/// # Safety
/// As [`words`], for 8 rows and columns, on a machine with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn block(src: *const u32, src_stride: usize, dst: *mut u32, dst_stride: usize) {
    use std::arch::x86_64::*;
    // SAFETY: the caller's.
    let x: [__m256; 8] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(src.add(i * src_stride).cast()) });
    let pair = |a: usize| (_mm256_unpacklo_ps(x[a], x[a + 1]), _mm256_unpackhi_ps(x[a], x[a + 1]));
    let quad = |a: usize| {
        let ((l0, h0), (l1, h1)) = (pair(a), pair(a + 2));
        [
            _mm256_shuffle_ps::<0x44>(l0, l1),
            _mm256_shuffle_ps::<0xEE>(l0, l1),
            _mm256_shuffle_ps::<0x44>(h0, h1),
            _mm256_shuffle_ps::<0xEE>(h0, h1),
        ]
    };
    let (low, high) = (quad(0), quad(4));
    for i in 0..4 {
        // SAFETY: the caller's.
        unsafe {
            let (a, b) = (low[i], high[i]);
            _mm256_storeu_ps(dst.add(i * dst_stride).cast(), _mm256_permute2f128_ps::<0x20>(a, b));
            _mm256_storeu_ps(dst.add((i + 4) * dst_stride).cast(), _mm256_permute2f128_ps::<0x31>(a, b));
        }
    }
}

/// Interleaves `C` rows.
///
/// # Safety
/// As [`join`].
#[inline(always)]
unsafe fn join_rows<const C: usize>(n: usize, src: *const u32, pitch: usize, dst: *mut u32) {
    // SAFETY: `n` elements of each row, and as many of each in the result.
    unsafe {
        let rows: [&[u32]; C] = std::array::from_fn(|c| std::slice::from_raw_parts(src.add(c * pitch), n));
        let dst = std::slice::from_raw_parts_mut(dst.cast::<[u32; C]>(), n);
        for (i, to) in dst.iter_mut().enumerate() {
            *to = std::array::from_fn(|c| *rows[c].get_unchecked(i));
        }
    }
}

/// The inverse of [`join_rows`].
///
/// # Safety
/// As [`split`].
#[inline(always)]
unsafe fn split_rows<const C: usize>(n: usize, src: *const u32, dst: *mut u32, pitch: usize) {
    // SAFETY: as above; the rows of the result do not overlap.
    unsafe {
        let src = std::slice::from_raw_parts(src.cast::<[u32; C]>(), n);
        for c in 0..C {
            let row = std::slice::from_raw_parts_mut(dst.add(c * pitch), n);
            row.iter_mut().zip(src).for_each(|(to, from)| *to = from[c]);
        }
    }
}

// The level only chooses the features the compiler vectorises with.
#[inline(always)]
unsafe fn join_kernel<I: Isa>(count: usize, n: usize, src: *const u32, pitch: usize, dst: *mut u32) {
    // SAFETY: passed on.
    unsafe {
        match count {
            2 => join_rows::<2>(n, src, pitch, dst),
            3 => join_rows::<3>(n, src, pitch, dst),
            4 => join_rows::<4>(n, src, pitch, dst),
            5 => join_rows::<5>(n, src, pitch, dst),
            6 => join_rows::<6>(n, src, pitch, dst),
            _ => join_rows::<7>(n, src, pitch, dst),
        }
    }
}

// As above.
#[inline(always)]
unsafe fn split_kernel<I: Isa>(count: usize, n: usize, src: *const u32, dst: *mut u32, pitch: usize) {
    // SAFETY: passed on.
    unsafe {
        match count {
            2 => split_rows::<2>(n, src, dst, pitch),
            3 => split_rows::<3>(n, src, dst, pitch),
            4 => split_rows::<4>(n, src, dst, pitch),
            5 => split_rows::<5>(n, src, dst, pitch),
            6 => split_rows::<6>(n, src, dst, pitch),
            _ => split_rows::<7>(n, src, dst, pitch),
        }
    }
}

crate::multiversion! {
    /// `dst[i * count + c] = src[c * pitch + i]` for `i < n` and `c < count`, with `count` from 2 to 7.
    ///
    /// # Safety
    /// All these elements are readable and writable, and do not overlap.
    pub(crate) unsafe fn join(count: usize, n: usize, src: *const u32, pitch: usize, dst: *mut u32) = join_kernel;
}

crate::multiversion! {
    /// `dst[c * pitch + i] = src[i * count + c]` for `i < n` and `c < count`, with `count` from 2 to 7.
    ///
    /// # Safety
    /// As [`join`].
    pub(crate) unsafe fn split(count: usize, n: usize, src: *const u32, dst: *mut u32, pitch: usize) = split_kernel;
}
