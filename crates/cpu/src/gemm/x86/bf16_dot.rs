//! AVX512-BF16: products of bf16 pairs added in `f32`, and the packing of pairs that the tile kernel shares.

use super::super::kernel::{Kernel, Strip, Target, Task};
use super::avx512::dot_f32;
use super::pack512::{low_mask, transpose16};
use half::bf16;
use std::arch::x86_64::*;

/// Rows of a tile, as for `f32`.
const ROWS: usize = 14;

/// Runs a task with AVX-512 and AVX512-BF16.
///
/// # Safety
/// The machine has both, and the task may be run.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
)]
pub(super) unsafe fn enter(task: impl Task) {
    // SAFETY: the caller's promise.
    unsafe { task.run() }
}

/// Rounds a run of sums by the hardware's conversion, which takes subnormals as zero.
///
/// # Safety
/// Both pointers are valid for `len`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn narrow(from: *const f32, to: *mut bf16, len: usize) {
    // SAFETY: masked to `len`; the two vector types are the same 32 bytes.
    unsafe {
        for i in (0..len).step_by(16) {
            let mask = low_mask(len - i);
            let v = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from.add(i)));
            _mm256_mask_storeu_epi16(to.add(i).cast(), mask, std::mem::transmute::<__m256bh, __m256i>(v));
        }
    }
}

/// A block of 16 lanes by 32 k.
pub(super) type Block = [__m512i; 16];

/// Loads the block from (`lane`, `k`) on, each vector the k of one lane; zeros beyond the strip.
///
/// # Safety
/// The strip is readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn by_lanes(s: &Strip<bf16>, lane: usize, k: usize, block: &mut Block) {
    let depth = (s.k - k).min(32);
    // SAFETY: loads are masked to the strip.
    unsafe {
        if s.k_stride == 1 {
            let mask = if depth == 32 { u32::MAX } else { (1u32 << depth) - 1 };
            for (i, v) in block.iter_mut().enumerate() {
                let mask = if lane + i < s.lanes { mask } else { 0 };
                let from = s.ptr.wrapping_offset((lane + i) as isize * s.lane_stride).wrapping_add(k);
                *v = _mm512_maskz_loadu_epi16(mask, from.cast());
            }
        } else if s.lane_stride == 1 {
            by_pairs(s, lane, k, block);
            transpose16(block);
        } else {
            let mut staged = [[0u16; 32]; 16];
            for (i, row) in staged.iter_mut().enumerate().take(s.lanes.saturating_sub(lane)) {
                for (p, to) in row.iter_mut().enumerate().take(depth) {
                    let at = (lane + i) as isize * s.lane_stride + (k + p) as isize * s.k_stride;
                    *to = (*s.ptr.offset(at)).to_bits();
                }
            }
            for (v, row) in block.iter_mut().zip(&staged) {
                *v = _mm512_loadu_si512(row.as_ptr().cast());
            }
        }
    }
}

/// The same block, each vector one pair of k for all lanes.
///
/// # Safety
/// The strip is readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn by_pairs(s: &Strip<bf16>, lane: usize, k: usize, block: &mut Block) {
    // SAFETY: loads are masked to the strip.
    unsafe {
        if s.lane_stride != 1 {
            by_lanes(s, lane, k, block);
            transpose16(block);
            return;
        }
        let lanes = low_mask(s.lanes.saturating_sub(lane));
        for (q, v) in block.iter_mut().enumerate() {
            let p = k + 2 * q;
            let (first, second) = (if p < s.k { lanes } else { 0 }, if p + 1 < s.k { lanes } else { 0 });
            let from = s.ptr.wrapping_offset(p as isize * s.k_stride).wrapping_add(lane);
            let low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, from.cast()));
            let from = from.wrapping_offset(s.k_stride);
            let high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, from.cast()));
            *v = _mm512_or_si512(low, _mm512_slli_epi32::<16>(high));
        }
    }
}

/// Packs a strip as `[k / 2][WIDTH]` pairs, for a WIDTH below 16 or a multiple of it. Below 16, up to 15 pairs beyond the strip
/// are overwritten.
///
/// # Safety
/// The strip is readable and `to` has the room.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_pairs<const WIDTH: usize>(s: &Strip<bf16>, to: *mut u32) {
    const { assert!(WIDTH < 16 || WIDTH.is_multiple_of(16)) };
    let mut block = [_mm512_setzero_si512(); 16];
    for k in (0..s.k).step_by(32) {
        for group in (0..WIDTH).step_by(16) {
            // SAFETY: the strip is readable; rows are written in rising order, so what a store leaves beyond its row is
            // overwritten by the next.
            unsafe {
                by_pairs(s, group, k, &mut block);
                for (q, v) in block.iter().enumerate().take((s.k - k).min(32).div_ceil(2)) {
                    _mm512_storeu_si512(to.add((k / 2 + q) * WIDTH + group).cast(), *v);
                }
            }
        }
    }
}

/// bf16 by `vdpbf16ps`.
pub(super) struct Dot;

impl Kernel for Dot {
    type Elem = bf16;
    type Packed = u16;
    const MR: usize = ROWS;
    const NR: usize = 32;
    const K_UNIT: usize = 2;
    const KC: usize = 512;
    const MC: usize = 20 * ROWS;
    const WHOLE_TILES: bool = false;
    const FMA: bool = true;
    const AHEAD_PER_K: usize = 0;
    const RATE: usize = 100_000;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<bf16>, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { pack_pairs::<ROWS>(&strip, to.cast()) }
    }

    #[inline(always)]
    unsafe fn pack_b(strip: Strip<bf16>, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { pack_pairs::<32>(&strip, to.cast()) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: *const u16,
        b: *const u16,
        rows: usize,
        cols: usize,
        target: Target<f32>,
        _ahead: *const u8,
    ) {
        // SAFETY: the caller's promise.
        unsafe { tile(k.div_ceil(2), a.cast(), b.cast(), rows, cols, target) }
    }

    #[inline(always)]
    unsafe fn narrow(from: *const f32, to: *mut bf16, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { narrow(from, to, len) }
    }

    #[inline(always)]
    unsafe fn dot(len: usize, x: *const f32, y: *const bf16) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { dot_f32(len, x, y) }
    }
}

/// # Safety
/// As for [`Kernel::tile`].
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn tile(pairs: usize, a: *const i32, b: *const i32, rows: usize, cols: usize, target: Target<f32>) {
    // SAFETY: the caller's promise.
    unsafe {
        if rows > ROWS / 2 {
            tile_sized::<ROWS>(pairs, a, b, rows, cols, target)
        } else {
            tile_sized::<{ ROWS / 2 }>(pairs, a, b, rows, cols, target)
        }
    }
}

/// # Safety
/// As for [`Kernel::tile`].
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn tile_sized<const R: usize>(
    pairs: usize,
    mut a: *const i32,
    mut b: *const i32,
    rows: usize,
    cols: usize,
    target: Target<f32>,
) {
    // SAFETY: the strips hold `pairs` pairs; C is touched at `rows` rows and, by the masks, `cols` columns. The vector types
    // differ only in name.
    unsafe {
        let pair = |v: __m512i| std::mem::transmute::<__m512i, __m512bh>(v);
        let mut sums = [[_mm512_setzero_ps(); 2]; R];
        for _ in 0..pairs {
            let low = pair(_mm512_loadu_si512(b.cast()));
            let high = pair(_mm512_loadu_si512(b.add(16).cast()));
            for (i, sum) in sums.iter_mut().enumerate() {
                let left = pair(_mm512_set1_epi32(*a.add(i)));
                sum[0] = _mm512_dpbf16_ps(sum[0], left, low);
                sum[1] = _mm512_dpbf16_ps(sum[1], left, high);
            }
            a = a.add(ROWS);
            b = b.add(32);
        }
        let masks = [low_mask(cols), low_mask(cols.saturating_sub(16))];
        let (alpha, beta) = (_mm512_set1_ps(target.alpha), _mm512_set1_ps(target.beta));
        for (i, sum) in sums.iter().enumerate().take(rows) {
            for v in 0..2 {
                let to = target.ptr.offset(i as isize * target.stride).wrapping_add(16 * v);
                let mut out = _mm512_mul_ps(sum[v], alpha);
                if target.beta != 0.0 {
                    out = _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(masks[v], to), out);
                }
                _mm512_mask_storeu_ps(to, masks[v], out);
            }
        }
    }
}
