//! Packing with AVX-512: copies of whole vectors and transposes of 16 × 16 blocks in registers.

use super::super::kernel::Strip;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// An element 16 of which load as a vector of `f32`.
pub(super) trait Load16: Copy {
    /// # Safety
    /// The elements whose mask bits are set are readable. Needs AVX-512 F, BW and VL.
    unsafe fn load(ptr: *const Self, mask: __mmask16) -> __m512;
}

impl Load16 for f32 {
    #[inline(always)]
    unsafe fn load(ptr: *const f32, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_maskz_loadu_ps(mask, ptr) }
    }
}

impl Load16 for bf16 {
    #[inline(always)]
    unsafe fn load(ptr: *const bf16, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, ptr.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }
}

impl Load16 for f16 {
    #[inline(always)]
    unsafe fn load(ptr: *const f16, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, ptr.cast())) }
    }
}

/// The lowest `n` bits set, at most 16.
#[inline(always)]
pub(super) fn low_mask(n: usize) -> __mmask16 {
    if n >= 16 { 0xffff } else { ((1u32 << n) - 1) as __mmask16 }
}

/// Transposes 16 vectors of 16 four-byte values.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose16(r: &mut [__m512i; 16]) {
    let mut t = [_mm512_setzero_si512(); 16];
    for i in 0..8 {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    // Now 4 × 4 blocks inside the 128-bit lanes.
    for g in 0..4 {
        for h in 0..2 {
            let (x, y) = (t[4 * g + h], t[4 * g + 2 + h]);
            r[4 * g + 2 * h] = _mm512_unpacklo_epi64(x, y);
            r[4 * g + 2 * h + 1] = _mm512_unpackhi_epi64(x, y);
        }
    }
    // And the 128-bit lanes among each other: r[4g + c] holds column 4L + c of rows 4g..4g+4 in lane L.
    for c in 0..4 {
        let low = _mm512_shuffle_i32x4::<0x44>(r[c], r[4 + c]);
        let high = _mm512_shuffle_i32x4::<0xee>(r[c], r[4 + c]);
        let low2 = _mm512_shuffle_i32x4::<0x44>(r[8 + c], r[12 + c]);
        let high2 = _mm512_shuffle_i32x4::<0xee>(r[8 + c], r[12 + c]);
        t[c] = _mm512_shuffle_i32x4::<0x88>(low, low2);
        t[4 + c] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
        t[8 + c] = _mm512_shuffle_i32x4::<0x88>(high, high2);
        t[12 + c] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
    }
    *r = t;
}

/// Packs a strip as `[k][WIDTH]` of `f32`, missing lanes as zeros. When WIDTH is not a multiple of 16, up to 15 values beyond
/// the strip are overwritten.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn pack_f32<T: Load16, const WIDTH: usize>(s: Strip<T>, to: *mut f32) {
    // SAFETY: masked loads stay inside the strip; each store starts inside `k × WIDTH`. Rows are written in rising order, so
    // what a store leaves beyond its row is overwritten by the next.
    unsafe {
        if s.lane_stride == 1 {
            for p in 0..s.k {
                let from = s.ptr.offset(p as isize * s.k_stride);
                for l in (0..WIDTH).step_by(16) {
                    let mask = low_mask(s.lanes.saturating_sub(l));
                    _mm512_storeu_ps(to.add(p * WIDTH + l), T::load(from.wrapping_add(l), mask));
                }
            }
        } else if s.k_stride == 1 {
            // Groups of 16 lanes, the last first within each row block would break the rising order: rows go block by block.
            for p in (0..s.k).step_by(16) {
                let depth = 16.min(s.k - p);
                let mask = low_mask(depth);
                let mut groups = [[_mm512_setzero_si512(); 16]; 4];
                for (g, r) in groups.iter_mut().enumerate().take(WIDTH.div_ceil(16)) {
                    for (i, v) in r.iter_mut().enumerate() {
                        let lane = 16 * g + i;
                        if lane < s.lanes {
                            let from = s.ptr.offset(lane as isize * s.lane_stride + p as isize);
                            *v = _mm512_castps_si512(T::load(from, mask));
                        }
                    }
                    transpose16(r);
                }
                for q in 0..depth {
                    for (g, r) in groups.iter().enumerate().take(WIDTH.div_ceil(16)) {
                        _mm512_storeu_si512(to.add((p + q) * WIDTH + 16 * g).cast(), r[q]);
                    }
                }
            }
        } else {
            for p in 0..s.k {
                let from = s.ptr.offset(p as isize * s.k_stride);
                for l in 0..WIDTH {
                    let value = if l < s.lanes { lane_value(from.offset(l as isize * s.lane_stride)) } else { 0.0 };
                    to.add(p * WIDTH + l).write(value);
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn lane_value<T: Load16>(ptr: *const T) -> f32 {
    // SAFETY: one element is read.
    unsafe { _mm512_cvtss_f32(T::load(ptr, 1)) }
}
