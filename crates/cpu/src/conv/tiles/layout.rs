//! Copies into the layout of tiles.

use super::super::Conv;
use super::super::element::Compute;
use super::super::scratch::Scratch;
use super::super::transpose::transpose16;
use super::super::weights::{Lanes, pack};
use super::kernel::{ROWS, SIDE, STEP, TILE};
use crate::pool;
use rushlight_core::half::bf16;
use rushlight_core::sync::SendPtr;
use std::arch::x86_64::*;

/// Lanes of a panel of `pack`, and of the weight gradient's sums.
pub(super) const WIDTH: usize = <f32 as Compute>::PANEL;

/// Number of steps of `n` terms.
pub(super) fn steps(n: usize) -> usize {
    n.div_ceil(STEP)
}

/// Transposes up to 32 channels to be adjacent for each pixel, padding with zeros: `dst[at[pixel] + channel] =
/// src[channel·stride + pixel]`.
///
/// # Safety
/// The addresses are valid, those of `dst` for 32 elements, on a machine with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn channels_last(src: *const u16, stride: usize, channels: usize, dst: *mut u16, at: &[usize]) {
    for first in (0..at.len()).step_by(32) {
        let count = (at.len() - first).min(32);
        let mask = u32::MAX >> (32 - count);
        let mut halves = [[_mm512_setzero_ps(); 16]; 2];
        for pair in 0..channels.min(32).div_ceil(2) {
            let channel = 2 * pair;
            // SAFETY: pixels `first..first + count` of channels that exist.
            let (even, odd) = unsafe {
                let even = _mm512_maskz_loadu_epi16(mask, src.add(channel * stride + first).cast());
                let beside = src.wrapping_add((channel + 1) * stride + first);
                let mask = if channel + 1 < channels { mask } else { 0 };
                (even, _mm512_maskz_loadu_epi16(mask, beside.cast()))
            };
            halves[0][pair] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(even, odd));
            halves[1][pair] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(even, odd));
        }
        // Of every eight pixels, the first register holds the first four.
        for (half, block) in halves.into_iter().enumerate() {
            for (i, v) in transpose16(block).into_iter().enumerate() {
                let pixel = i / 4 * 8 + 4 * half + i % 4;
                if pixel < count {
                    // SAFETY: one of the places.
                    unsafe { _mm512_storeu_ps(dst.add(at[first + pixel]).cast(), v) };
                }
            }
        }
    }
}

/// Packs the right operand whose columns are up to 16 rows of `steps · 32` terms: one tile per step, with a stride of
/// `2 · TILE` elements.
///
/// # Safety
/// The addresses are valid, on a machine with AVX-512.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn rows_as_columns(src: *const u16, stride: usize, rows: usize, steps: usize, dst: *mut u16) {
    for step in 0..steps {
        let mut block = [_mm512_setzero_ps(); 16];
        for (row, v) in block.iter_mut().enumerate().take(rows) {
            // SAFETY: 32 terms of a row.
            *v = unsafe { _mm512_loadu_ps(src.add(row * stride + step * STEP).cast()) };
        }
        for (pair, v) in transpose16(block).into_iter().enumerate() {
            // SAFETY: a row of the tile.
            unsafe { _mm512_storeu_ps(dst.add(2 * TILE * step + pair * 32).cast(), v) };
        }
    }
}

/// Packs rows 2i and 2i + 1 of a widened panel, which holds exact bf16 values, as pairs.
///
/// # Safety
/// `src` has 32 rows of `WIDTH`, `dst` room for two tiles, on a machine with AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn pair_rows(src: *const f32, dst: *mut u16) {
    for row in (0..STEP).step_by(2) {
        for half in 0..2 {
            // SAFETY: within both.
            unsafe {
                let even = _mm512_loadu_si512(src.add(row * WIDTH + half * ROWS).cast());
                let odd = _mm512_loadu_si512(src.add((row + 1) * WIDTH + half * ROWS).cast());
                let high = _mm512_and_si512(odd, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                let pairs = _mm512_or_si512(_mm512_srli_epi32::<16>(even), high);
                _mm512_storeu_si512(dst.add(half * TILE + row * ROWS).cast(), pairs);
            }
        }
    }
}

/// Packs the weight as right operands: `[panel of 32 lanes][tap][step][two tiles]`.
///
/// # Safety
/// `w` is the weight of `c`, of one group, on a machine with AVX-512.
pub(super) unsafe fn pack_weights(c: &Conv, lanes: Lanes, w: *const u16) -> Scratch {
    let (across, rows) = match lanes {
        Lanes::Outputs => (c.out_channels, c.in_channels),
        Lanes::Inputs => (c.in_channels, c.out_channels),
    };
    let (taps, steps) = (c.taps(), steps(rows));
    let mut packed = Scratch::new::<u16>(across.div_ceil(WIDTH) * 2 * taps * steps * 2 * TILE);
    let (w, dst) = (SendPtr::of(w), SendPtr::new(packed.ptr::<u16>()));
    pool::parallel_for(across.div_ceil(WIDTH) * steps, |task| {
        let (panel, step) = (task / steps, task % steps);
        let range = step * STEP..((step + 1) * STEP).min(rows);
        let tap_len = STEP * WIDTH;
        let mut wide = Scratch::new::<f32>(taps * tap_len);
        let wide = wide.ptr::<f32>();
        // SAFETY: these rows of this panel belong to the task; rows and lanes that `pack` does not write are zero.
        unsafe {
            if range.len() < STEP || across - panel * WIDTH < WIDTH {
                std::ptr::write_bytes(wide, 0, taps * tap_len);
            }
            pack::<bf16>(c, lanes, w.get().cast_const().cast(), (0, panel), range, wide, tap_len);
            for tap in 0..taps {
                for half in 0..WIDTH / SIDE {
                    let at = (((panel * WIDTH / SIDE + half) * taps + tap) * steps + step) * 2 * TILE;
                    pair_rows(wide.add(tap * tap_len + half * SIDE), dst.get().add(at));
                }
            }
        }
    });
    packed
}
