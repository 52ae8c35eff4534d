//! AVX512-BF16: products of bf16 pairs added in `f32`, and the pair packing that the AMX kernel shares.

use super::super::kernel::{Kernel, Left, Strip, Target, Task};
use super::avx512::dot_f32;
use super::pack512::{low_mask, low_mask32, transpose16};
use half::bf16;
use std::arch::x86_64::*;

/// Rows of a tile, as for `f32`.
const ROWS: usize = 14;

/// Runs a task with AVX-512 and AVX512-BF16.
///
/// # Safety
/// The machine has both, and the task may be run.
#[inline(never)]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
)]
pub(super) unsafe fn enter(task: impl Task) {
    // SAFETY: the caller's promise.
    unsafe { task.run() }
}

/// Rounds a run of sums by the hardware's conversion, which flushes subnormals to zero.
///
/// # Safety
/// Both pointers are valid for `len`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn narrow(from: *const f32, to: *mut bf16, len: usize) {
    // SAFETY: stays below `len`; vector types of a size differ only in name.
    unsafe {
        let whole = len / 32 * 32;
        for i in (0..whole).step_by(32) {
            let v = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from.add(i + 16)), _mm512_loadu_ps(from.add(i)));
            _mm512_storeu_si512(to.add(i).cast(), std::mem::transmute::<__m512bh, __m512i>(v));
        }
        for i in (whole..len).step_by(16) {
            let mask = low_mask(len - i);
            let v = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from.add(i)));
            _mm256_mask_storeu_epi16(to.add(i).cast(), mask, std::mem::transmute::<__m256bh, __m256i>(v));
        }
    }
}

/// 32 lanes by 32 k: two halves of 16 vectors.
pub(super) type Block = [[__m512i; 16]; 2];

/// The block from `k` on, padded with zeros: each vector holds one pair of k for the 16 lanes of its half, or, unless
/// PAIRS, all k of one lane.
///
/// # Safety
/// The strip is readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn block<const PAIRS: bool>(s: &Strip<bf16>, k: usize) -> Block {
    let mut block = [[_mm512_setzero_si512(); 16]; 2];
    let by_pairs = s.lane_stride == 1;
    // SAFETY: the strip is readable.
    unsafe { if by_pairs { load_pairs(s, k, &mut block) } else { load_lanes(s, k, &mut block) } };
    if by_pairs != PAIRS {
        for half in &mut block {
            transpose16(half);
        }
    }
    block
}

/// # Safety
/// The strip is readable, and its lanes are adjacent.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn load_pairs(s: &Strip<bf16>, k: usize, block: &mut Block) {
    let lanes = low_mask32(s.lanes);
    let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    let row = |p: usize| {
        let from = s.ptr.wrapping_offset(p as isize * s.k_stride);
        // SAFETY: masked to the strip; a prefetch may point anywhere.
        unsafe {
            // The hardware prefetcher does not follow rows that are far apart.
            _mm_prefetch::<_MM_HINT_T1>(from.wrapping_offset(32 * s.k_stride).cast());
            _mm512_maskz_loadu_epi16(if p < s.k { lanes } else { 0 }, from.cast())
        }
    };
    for q in 0..16 {
        let (even, odd) = (row(k + 2 * q), row(k + 2 * q + 1));
        let (low, high) = (_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd));
        block[0][q] = _mm512_permutex2var_epi64(low, first, high);
        block[1][q] = _mm512_permutex2var_epi64(low, second, high);
    }
}

/// # Safety
/// The strip is readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn load_lanes(s: &Strip<bf16>, k: usize, block: &mut Block) {
    let depth = (s.k - k).min(32);
    let mask = low_mask32(depth);
    for (lane, v) in block.as_flattened_mut().iter_mut().enumerate().take(s.lanes) {
        let from = s.ptr.wrapping_offset(lane as isize * s.lane_stride + k as isize * s.k_stride);
        // SAFETY: lane and k are inside the strip.
        *v = unsafe {
            if s.k_stride == 1 {
                _mm512_maskz_loadu_epi16(mask, from.cast())
            } else {
                let mut staged = [0u16; 32];
                for (p, to) in staged.iter_mut().enumerate().take(depth) {
                    *to = (*from.offset(p as isize * s.k_stride)).to_bits();
                }
                _mm512_loadu_si512(staged.as_ptr().cast())
            }
        };
    }
}

/// Packs a strip as `[k / 2][WIDTH]` pairs, for a WIDTH below 16 or 32.
///
/// # Safety
/// The strip is readable and `to` has the room.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_pairs<const WIDTH: usize>(s: &Strip<bf16>, to: *mut u32) {
    const { assert!(WIDTH < 16 || WIDTH == 32) };
    for k in (0..s.k).step_by(32) {
        // SAFETY: the strip is readable; masked stores stay inside it.
        unsafe {
            let block = block::<true>(s, k);
            for q in 0..(s.k - k).min(32).div_ceil(2) {
                for (half, vectors) in block.iter().enumerate().take(WIDTH.div_ceil(16)) {
                    _mm512_mask_storeu_epi32(
                        to.add((k / 2 + q) * WIDTH + 16 * half).cast(),
                        low_mask(WIDTH),
                        vectors[q],
                    );
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
        a: Left<u16>,
        b: *const u16,
        rows: usize,
        cols: usize,
        target: Target<f32>,
        _ahead: *const u8,
    ) {
        // SAFETY: the caller's promise.
        unsafe { tile(k.div_ceil(2), a.ptr.cast(), b.cast(), rows, cols, target) }
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
    // SAFETY: the strips hold `pairs` pairs; C is touched at `rows` rows and, by the masks, `cols` columns. The vector
    // types differ only in name.
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
