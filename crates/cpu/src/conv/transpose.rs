//! The AVX-512 transposing copy: 16 × 16 blocks in registers, masks at the edges.

use super::element::Transpose;
use std::arch::x86_64::*;

/// # Safety
/// As `Compute::transpose`, on a machine with AVX-512.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
pub(super) unsafe fn avx512(t: &Transpose<f32>) {
    let columns = t.at.len();
    for row in (0..t.rows).step_by(16) {
        let count = (t.rows - row).min(16);
        let store = mask(count);
        for column in (0..columns).step_by(16) {
            let width = (columns - column).min(16);
            let load = mask(width);
            // SAFETY: masked-off lanes are not accessed; all others are the formula's addresses.
            unsafe {
                let bias = if t.bias.is_null() {
                    _mm512_setzero_ps()
                } else {
                    _mm512_maskz_loadu_ps(load, t.bias.add(column))
                };
                let mut block = [_mm512_setzero_ps(); 16];
                let src = t.src.add(row * t.stride + column);
                if count == 16 {
                    for (i, v) in block.iter_mut().enumerate() {
                        *v = _mm512_maskz_loadu_ps(load, src.add(i * t.stride));
                    }
                } else {
                    for (i, v) in block.iter_mut().enumerate().take(count) {
                        *v = _mm512_maskz_loadu_ps(load, src.add(i * t.stride));
                    }
                }
                if !t.bias.is_null() {
                    for v in block.iter_mut() {
                        *v = _mm512_add_ps(*v, bias);
                    }
                }
                let block = transpose16(block);
                let at = t.at.as_ptr().add(column);
                let dst = t.dst.add(row);
                if width == 16 && count == 16 {
                    for (i, v) in block.into_iter().enumerate() {
                        _mm512_storeu_ps(dst.add(*at.add(i)), v);
                    }
                } else {
                    for (i, v) in block.into_iter().enumerate().take(width) {
                        _mm512_mask_storeu_ps(dst.add(*at.add(i)), store, v);
                    }
                }
            }
        }
    }
}

#[inline]
fn mask(count: usize) -> __mmask16 {
    if count >= 16 { !0 } else { (1 << count) - 1 }
}

/// Row `i` of the result is column `i` of the argument.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose16(r: [__m512; 16]) -> [__m512; 16] {
    let mut a = r;
    // Pairs of rows, then pairs of pairs, inside each 128-bit lane …
    for i in (0..16).step_by(2) {
        a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    let mut b = a;
    for i in (0..16).step_by(4) {
        for half in 0..2 {
            let (low, high) = (_mm512_castps_pd(a[i + half]), _mm512_castps_pd(a[i + half + 2]));
            b[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            b[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    // … then the lanes themselves, as a 4 × 4 transposition.
    let mut out = b;
    for i in 0..4 {
        let low = _mm512_shuffle_f32x4::<0x88>(b[i], b[i + 4]);
        let low_odd = _mm512_shuffle_f32x4::<0xdd>(b[i], b[i + 4]);
        let high = _mm512_shuffle_f32x4::<0x88>(b[i + 8], b[i + 12]);
        let high_odd = _mm512_shuffle_f32x4::<0xdd>(b[i + 8], b[i + 12]);
        out[i] = _mm512_shuffle_f32x4::<0x88>(low, high);
        out[i + 8] = _mm512_shuffle_f32x4::<0xdd>(low, high);
        out[i + 4] = _mm512_shuffle_f32x4::<0x88>(low_odd, high_odd);
        out[i + 12] = _mm512_shuffle_f32x4::<0xdd>(low_odd, high_odd);
    }
    out
}
