//! Packing with AVX-512: whole-vector copies and block transposes in registers.

use super::super::kernel::Strip;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// An element type; 16 elements load as a vector of `f32`.
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

/// The lowest `n` bits set, at most 32.
#[inline(always)]
pub(super) fn low_mask32(n: usize) -> __mmask32 {
    if n >= 32 { u32::MAX } else { (1u32 << n) - 1 }
}

/// The lowest `n` bits set, at most 8.
#[inline(always)]
pub(super) fn low_mask8(n: usize) -> __mmask8 {
    low_mask(n.min(8)) as __mmask8
}

/// Transposes 16 vectors of 16 four-byte values.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose16(r: &mut [__m512i; 16]) {
    // First 4 × 4 blocks inside the 128-bit lanes: vector `4g + c` holds column `4L + c` of rows `4g..4g + 4` in lane
    // L.
    for four in r.chunks_exact_mut(4) {
        let low01 = _mm512_unpacklo_epi32(four[0], four[1]);
        let high01 = _mm512_unpackhi_epi32(four[0], four[1]);
        let low23 = _mm512_unpacklo_epi32(four[2], four[3]);
        let high23 = _mm512_unpackhi_epi32(four[2], four[3]);
        four[0] = _mm512_unpacklo_epi64(low01, low23);
        four[1] = _mm512_unpackhi_epi64(low01, low23);
        four[2] = _mm512_unpacklo_epi64(high01, high23);
        four[3] = _mm512_unpackhi_epi64(high01, high23);
    }
    for c in 0..4 {
        let low = _mm512_shuffle_i32x4::<0x44>(r[c], r[4 + c]);
        let high = _mm512_shuffle_i32x4::<0xee>(r[c], r[4 + c]);
        let low2 = _mm512_shuffle_i32x4::<0x44>(r[8 + c], r[12 + c]);
        let high2 = _mm512_shuffle_i32x4::<0xee>(r[8 + c], r[12 + c]);
        r[c] = _mm512_shuffle_i32x4::<0x88>(low, low2);
        r[4 + c] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
        r[8 + c] = _mm512_shuffle_i32x4::<0x88>(high, high2);
        r[12 + c] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
    }
}

/// Transposes 8 vectors of 8 `f64`.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose8_f64(r: &mut [__m512d; 8]) {
    for pair in r.chunks_exact_mut(2) {
        let (x, y) = (pair[0], pair[1]);
        pair[0] = _mm512_unpacklo_pd(x, y);
        pair[1] = _mm512_unpackhi_pd(x, y);
    }
    // Now r[2g + c] holds column 2L + c of rows 2g and 2g + 1 in lane L.
    let from = *r;
    for c in 0..2 {
        let low = _mm512_shuffle_f64x2::<0x44>(from[c], from[2 + c]);
        let high = _mm512_shuffle_f64x2::<0xee>(from[c], from[2 + c]);
        let low2 = _mm512_shuffle_f64x2::<0x44>(from[4 + c], from[6 + c]);
        let high2 = _mm512_shuffle_f64x2::<0xee>(from[4 + c], from[6 + c]);
        r[c] = _mm512_shuffle_f64x2::<0x88>(low, low2);
        r[2 + c] = _mm512_shuffle_f64x2::<0xdd>(low, low2);
        r[4 + c] = _mm512_shuffle_f64x2::<0x88>(high, high2);
        r[6 + c] = _mm512_shuffle_f64x2::<0xdd>(high, high2);
    }
}

/// Packs a strip as `[k][WIDTH]` of `f32`, missing lanes as zeros.
///
/// # Safety
/// The strip is readable and `to` has the room.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn pack_f32<T: Load16, const WIDTH: usize>(s: Strip<T>, to: *mut f32) {
    const { assert!(WIDTH < 16 || WIDTH.is_multiple_of(16)) };
    let whole = low_mask(WIDTH);
    // SAFETY: masked loads stay inside the strip, masked stores inside `k × WIDTH`.
    unsafe {
        if s.lane_stride == 1 {
            for p in 0..s.k {
                let from = s.ptr.offset(p as isize * s.k_stride);
                for l in (0..WIDTH).step_by(16) {
                    let mask = low_mask(s.lanes.saturating_sub(l));
                    _mm512_mask_storeu_ps(to.add(p * WIDTH + l), whole, T::load(from.wrapping_add(l), mask));
                }
            }
        } else if s.k_stride == 1 {
            for p in (0..s.k).step_by(16) {
                let depth = 16.min(s.k - p);
                // Whole blocks with constant sizes need no masks.
                match s.lanes == WIDTH && depth == 16 {
                    true => transpose_f32::<T, WIDTH>(&s, p, [WIDTH, 16], to),
                    false => transpose_f32::<T, WIDTH>(&s, p, [s.lanes, depth], to),
                }
            }
        } else {
            for p in 0..s.k {
                let from = s.ptr.offset(p as isize * s.k_stride);
                for l in 0..WIDTH {
                    let one = from.wrapping_offset(l as isize * s.lane_stride);
                    to.add(p * WIDTH + l).write(_mm512_cvtss_f32(T::load(one, (l < s.lanes) as __mmask16)));
                }
            }
        }
    }
}

/// Packs `depth` steps of K from `p` on, at most 16, of lanes that are contiguous along K.
///
/// # Safety
/// As for [`pack_f32`].
#[inline(always)]
unsafe fn transpose_f32<T: Load16, const WIDTH: usize>(
    s: &Strip<T>,
    p: usize,
    [lanes, depth]: [usize; 2],
    to: *mut f32,
) {
    let mask = low_mask(depth);
    // SAFETY: masked loads stay inside the strip, masked stores inside `k × WIDTH`.
    unsafe {
        for group in (0..WIDTH).step_by(16) {
            let mut r = [_mm512_setzero_si512(); 16];
            for (i, v) in r.iter_mut().enumerate().take(WIDTH) {
                let lane = group + i;
                // Beyond the last lane nothing is read.
                let mask = if lane < lanes { mask } else { 0 };
                let from = s.ptr.wrapping_offset(lane as isize * s.lane_stride + p as isize);
                *v = _mm512_castps_si512(T::load(from, mask));
            }
            transpose16(&mut r);
            for (q, v) in r.iter().enumerate().take(depth) {
                _mm512_mask_storeu_epi32(to.add((p + q) * WIDTH + group).cast(), low_mask(WIDTH), *v);
            }
        }
    }
}

/// As [`transpose_f32`], at most 8 steps of K.
///
/// # Safety
/// As for [`pack_f64`].
#[inline(always)]
unsafe fn transpose_f64<const WIDTH: usize>(s: &Strip<f64>, p: usize, [lanes, depth]: [usize; 2], to: *mut f64) {
    // SAFETY: masked loads stay inside the strip, masked stores inside `k × WIDTH`.
    unsafe {
        let mut groups = [[_mm512_setzero_pd(); 8]; 2];
        let groups = &mut groups[..WIDTH.div_ceil(8)];
        for (g, r) in groups.iter_mut().enumerate() {
            for (i, v) in r.iter_mut().enumerate() {
                let lane = 8 * g + i;
                let mask = if lane < lanes { low_mask8(depth) } else { 0 };
                let from = s.ptr.wrapping_offset(lane as isize * s.lane_stride + p as isize);
                *v = _mm512_maskz_loadu_pd(mask, from);
            }
            transpose8_f64(r);
        }
        for q in 0..depth {
            for (g, r) in groups.iter().enumerate() {
                _mm512_mask_storeu_pd(to.add((p + q) * WIDTH + 8 * g), low_mask8(WIDTH - 8 * g), r[q]);
            }
        }
    }
}

/// Packs a strip as `[k][WIDTH]` of `f64`, missing lanes as zeros.
///
/// # Safety
/// The strip is readable and `to` has the room.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn pack_f64<const WIDTH: usize>(s: Strip<f64>, to: *mut f64) {
    // SAFETY: masked loads stay inside the strip, masked stores inside `k × WIDTH`.
    unsafe {
        if s.lane_stride == 1 {
            for p in 0..s.k {
                let from = s.ptr.offset(p as isize * s.k_stride);
                for l in (0..WIDTH).step_by(8) {
                    let mask = low_mask8(s.lanes.saturating_sub(l));
                    let values = _mm512_maskz_loadu_pd(mask, from.wrapping_add(l));
                    _mm512_mask_storeu_pd(to.add(p * WIDTH + l), low_mask8(WIDTH - l), values);
                }
            }
        } else if s.k_stride == 1 {
            for p in (0..s.k).step_by(8) {
                let depth = 8.min(s.k - p);
                // Whole blocks with constant sizes need no masks.
                match s.lanes == WIDTH && depth == 8 {
                    true => transpose_f64::<WIDTH>(&s, p, [WIDTH, 8], to),
                    false => transpose_f64::<WIDTH>(&s, p, [s.lanes.min(WIDTH), depth], to),
                }
            }
        } else {
            for p in 0..s.k {
                let from = s.ptr.offset(p as isize * s.k_stride);
                for l in 0..WIDTH {
                    let value = if l < s.lanes { *from.offset(l as isize * s.lane_stride) } else { 0.0 };
                    to.add(p * WIDTH + l).write(value);
                }
            }
        }
    }
}
