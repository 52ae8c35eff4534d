//! `f32` vectors by intrinsics, and the vectors of the levels.

// Every function here inherits the contract of its trait: the CPU has the level. Values of these types exist only
// inside kernels compiled for it.

use super::x86_f64::{F64x4, F64x8};
use super::{Simd, Vectors};
use crate::isa;
use half::f16;
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

/// Eight floats.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32x8(__m256);
/// Sixteen floats.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32x16(__m512);

macro_rules! operators {
    ($v:ident: $($trait:ident $method:ident $intrinsic:ident;)*) => {$(
        impl $trait for $v {
            type Output = Self;
            #[inline(always)]
            fn $method(self, b: Self) -> Self {
                // SAFETY: the level is there, or the operands could not be.
                Self(unsafe { $intrinsic(self.0, b.0) })
            }
        }
    )*};
}
operators! { F32x8: Add add _mm256_add_ps; Sub sub _mm256_sub_ps; Mul mul _mm256_mul_ps; Div div _mm256_div_ps; }
operators! { F32x16: Add add _mm512_add_ps; Sub sub _mm512_sub_ps; Mul mul _mm512_mul_ps; Div div _mm512_div_ps; }

/// Transposes the squares of four that registers have in each quarter.
#[inline(always)]
unsafe fn quarters512([a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
    // SAFETY: the caller has the level.
    unsafe {
        let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
        let (ab_high, cd_high) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
        [
            _mm512_shuffle_ps::<0x44>(ab, cd),
            _mm512_shuffle_ps::<0xee>(ab, cd),
            _mm512_shuffle_ps::<0x44>(ab_high, cd_high),
            _mm512_shuffle_ps::<0xee>(ab_high, cd_high),
        ]
    }
}

/// The same in each half.
#[inline(always)]
unsafe fn quarters256([a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
    // SAFETY: the caller has the level.
    unsafe {
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        [
            _mm256_shuffle_ps::<0x44>(ab, cd),
            _mm256_shuffle_ps::<0xee>(ab, cd),
            _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
            _mm256_shuffle_ps::<0xee>(ab_high, cd_high),
        ]
    }
}

/// Mask of the first `n` of sixteen lanes.
#[inline(always)]
fn mask16(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

impl Simd for F32x16 {
    type Elem = f32;
    const N: usize = 16;

    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: see the module's comment. (So for all that follows.)
        Self(unsafe { _mm512_set1_ps(v) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: sixteen elements may be read.
        Self(unsafe { _mm512_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize, rest: f32) -> Self {
        // SAFETY: masked lanes are not read.
        Self(unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(rest), mask16(n), p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: sixteen elements may be written.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        // SAFETY: masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(p, mask16(n), self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: sixteen elements, aligned.
        unsafe { _mm512_stream_ps(p, self.0) }
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_fmadd_ps(self.0, a.0, b.0) })
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_max_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_min_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn take_larger(&mut self, mark: &mut Self, v: Self, mark_of_v: Self) {
        // SAFETY: as above.
        unsafe {
            let larger = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(v.0, self.0) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v.0, v.0);
            self.0 = _mm512_mask_mov_ps(self.0, larger, v.0);
            mark.0 = _mm512_mask_mov_ps(mark.0, larger, mark_of_v.0);
        }
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_sqrt_ps(self.0) })
    }
    #[inline(always)]
    fn round(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT }>(self.0) })
    }
    #[inline(always)]
    fn scale2(self, n: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_scalef_ps(self.0, n.0) })
    }
    #[inline(always)]
    unsafe fn transpose_pairs(
        from: *const f32,
        row: usize,
        swap: [bool; 2],
        to: *mut f32,
        to_row: usize,
        scale: Option<Self>,
    ) {
        let [swap_from, swap_to] = swap.map(usize::from);
        // SAFETY: sixteen rows of sixteen at both.
        unsafe {
            // Within quarters of registers first: `u[4 g + c]` holds rows `4 g..` of columns `c`, `4 + c`, `8 + c`,
            // `12 + c`.
            let mut u = [_mm512_setzero_ps(); 16];
            for g in 0..4 {
                let mut r = [_mm512_setzero_ps(); 4];
                for i in 0..4 {
                    r[i] = _mm512_loadu_ps(from.add(((4 * g + i) ^ swap_from) * row));
                    if let Some(scale) = scale {
                        r[i] = _mm512_mul_ps(r[i], scale.0);
                    }
                }
                let [a, b, c, d] = r;
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                u[4 * g] = _mm512_shuffle_ps::<0x44>(ab, cd);
                u[4 * g + 1] = _mm512_shuffle_ps::<0xee>(ab, cd);
                let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                u[4 * g + 2] = _mm512_shuffle_ps::<0x44>(ab, cd);
                u[4 * g + 3] = _mm512_shuffle_ps::<0xee>(ab, cd);
            }
            // Then the quarters among registers.
            for c in 0..4 {
                let even = _mm512_shuffle_f32x4::<0x88>(u[c], u[4 + c]);
                let odd = _mm512_shuffle_f32x4::<0xdd>(u[c], u[4 + c]);
                let even_high = _mm512_shuffle_f32x4::<0x88>(u[8 + c], u[12 + c]);
                let odd_high = _mm512_shuffle_f32x4::<0xdd>(u[8 + c], u[12 + c]);
                let to = to.add((c ^ swap_to) * to_row);
                _mm512_storeu_ps(to, _mm512_shuffle_f32x4::<0x88>(even, even_high));
                _mm512_storeu_ps(to.add(4 * to_row), _mm512_shuffle_f32x4::<0x88>(odd, odd_high));
                _mm512_storeu_ps(to.add(8 * to_row), _mm512_shuffle_f32x4::<0xdd>(even, even_high));
                _mm512_storeu_ps(to.add(12 * to_row), _mm512_shuffle_f32x4::<0xdd>(odd, odd_high));
            }
        }
    }
    #[inline(always)]
    fn unzip(self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            (Self(_mm512_permutex2var_ps(self.0, even, b.0)), Self(_mm512_permutex2var_ps(self.0, odd, b.0)))
        }
    }
    #[inline(always)]
    fn zip(self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            (Self(_mm512_permutex2var_ps(self.0, low, b.0)), Self(_mm512_permutex2var_ps(self.0, high, b.0)))
        }
    }
    #[inline(always)]
    unsafe fn load_across(p: *const f32, row: usize) -> [Self; 4] {
        // SAFETY: four numbers of sixteen rows.
        unsafe {
            // Register `i` has rows `i`, `4 + i`, `8 + i`, `12 + i` in its quarters.
            let mut r = [_mm512_setzero_ps(); 4];
            for i in 0..4 {
                let p = p.add(i * row);
                let v = _mm512_castps128_ps512(_mm_loadu_ps(p));
                let v = _mm512_insertf32x4::<1>(v, _mm_loadu_ps(p.add(4 * row)));
                let v = _mm512_insertf32x4::<2>(v, _mm_loadu_ps(p.add(8 * row)));
                r[i] = _mm512_insertf32x4::<3>(v, _mm_loadu_ps(p.add(12 * row)));
            }
            let [a, b, c, d] = quarters512(r);
            [Self(a), Self(b), Self(c), Self(d)]
        }
    }
    #[inline(always)]
    unsafe fn store_across([a, b, c, d]: [Self; 4], p: *mut f32, row: usize) {
        // SAFETY: as above.
        unsafe {
            let r = quarters512([a.0, b.0, c.0, d.0]);
            for i in 0..4 {
                let p = p.add(i * row);
                _mm_storeu_ps(p, _mm512_castps512_ps128(r[i]));
                _mm_storeu_ps(p.add(4 * row), _mm512_extractf32x4_ps::<1>(r[i]));
                _mm_storeu_ps(p.add(8 * row), _mm512_extractf32x4_ps::<2>(r[i]));
                _mm_storeu_ps(p.add(12 * row), _mm512_extractf32x4_ps::<3>(r[i]));
            }
        }
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: as above.
        unsafe { _mm512_reduce_add_ps(self.0) }
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        // SAFETY: as above.
        unsafe { _mm512_reduce_max_ps(self.0) }
    }
}

/// All bits set in the first `n` of eight lanes.
#[inline(always)]
unsafe fn mask8(n: usize) -> __m256i {
    // SAFETY: AVX2 is there by the caller's contract.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

impl Simd for F32x8 {
    type Elem = f32;
    const N: usize = 8;

    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: see the module's comment. (So for all that follows.)
        Self(unsafe { _mm256_set1_ps(v) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: eight elements may be read.
        Self(unsafe { _mm256_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize, rest: f32) -> Self {
        // SAFETY: masked lanes are not read.
        unsafe {
            let mask = mask8(n);
            Self(_mm256_blendv_ps(_mm256_set1_ps(rest), _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: eight elements may be written.
        unsafe { _mm256_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        // SAFETY: masked lanes are not written.
        unsafe { _mm256_maskstore_ps(p, mask8(n), self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: eight elements, aligned.
        unsafe { _mm256_stream_ps(p, self.0) }
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_fmadd_ps(self.0, a.0, b.0) })
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_max_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_min_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn take_larger(&mut self, mark: &mut Self, v: Self, mark_of_v: Self) {
        // SAFETY: as above.
        unsafe {
            let (larger, nan) = (_mm256_cmp_ps::<_CMP_GT_OQ>(v.0, self.0), _mm256_cmp_ps::<_CMP_UNORD_Q>(v.0, v.0));
            let larger = _mm256_or_ps(larger, nan);
            self.0 = _mm256_blendv_ps(self.0, v.0, larger);
            mark.0 = _mm256_blendv_ps(mark.0, mark_of_v.0, larger);
        }
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_sqrt_ps(self.0) })
    }
    #[inline(always)]
    fn round(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
    }
    #[inline(always)]
    fn scale2(self, n: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            // Two factors, each a normal number, reach from the smallest denormal to infinity.
            let n = _mm256_cvtps_epi32(n.0);
            let half = _mm256_srai_epi32::<1>(n);
            let bias = _mm256_set1_epi32(127);
            let first = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(half, bias)));
            let rest = _mm256_sub_epi32(n, half);
            let second = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(rest, bias)));
            Self(_mm256_mul_ps(_mm256_mul_ps(self.0, first), second))
        }
    }
    #[inline(always)]
    unsafe fn transpose_pairs(
        from: *const f32,
        row: usize,
        swap: [bool; 2],
        to: *mut f32,
        to_row: usize,
        scale: Option<Self>,
    ) {
        let [swap_from, swap_to] = swap.map(usize::from);
        // SAFETY: eight rows of eight at both.
        unsafe {
            // Within halves of registers first: `u[4 g + c]` holds rows `4 g..` of columns `c` and `4 + c`.
            let mut u = [_mm256_setzero_ps(); 8];
            for g in 0..2 {
                let mut r = [_mm256_setzero_ps(); 4];
                for i in 0..4 {
                    r[i] = _mm256_loadu_ps(from.add(((4 * g + i) ^ swap_from) * row));
                    if let Some(scale) = scale {
                        r[i] = _mm256_mul_ps(r[i], scale.0);
                    }
                }
                let [a, b, c, d] = r;
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                u[4 * g] = _mm256_shuffle_ps::<0x44>(ab, cd);
                u[4 * g + 1] = _mm256_shuffle_ps::<0xee>(ab, cd);
                let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                u[4 * g + 2] = _mm256_shuffle_ps::<0x44>(ab, cd);
                u[4 * g + 3] = _mm256_shuffle_ps::<0xee>(ab, cd);
            }
            for c in 0..4 {
                let to = to.add((c ^ swap_to) * to_row);
                _mm256_storeu_ps(to, _mm256_permute2f128_ps::<0x20>(u[c], u[4 + c]));
                _mm256_storeu_ps(to.add(4 * to_row), _mm256_permute2f128_ps::<0x31>(u[c], u[4 + c]));
            }
        }
    }
    #[inline(always)]
    fn unzip(self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            // Halves are exchanged first: shuffles work within them.
            let low = _mm256_permute2f128_ps::<0x20>(self.0, b.0);
            let high = _mm256_permute2f128_ps::<0x31>(self.0, b.0);
            (Self(_mm256_shuffle_ps::<0x88>(low, high)), Self(_mm256_shuffle_ps::<0xdd>(low, high)))
        }
    }
    #[inline(always)]
    fn zip(self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            let (low, high) = (_mm256_unpacklo_ps(self.0, b.0), _mm256_unpackhi_ps(self.0, b.0));
            (Self(_mm256_permute2f128_ps::<0x20>(low, high)), Self(_mm256_permute2f128_ps::<0x31>(low, high)))
        }
    }
    #[inline(always)]
    unsafe fn load_across(p: *const f32, row: usize) -> [Self; 4] {
        // SAFETY: four numbers of eight rows.
        unsafe {
            // Register `i` has rows `i` and `4 + i` in its halves.
            let mut r = [_mm256_setzero_ps(); 4];
            for i in 0..4 {
                let p = p.add(i * row);
                r[i] = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p.add(4 * row)));
            }
            let [a, b, c, d] = quarters256(r);
            [Self(a), Self(b), Self(c), Self(d)]
        }
    }
    #[inline(always)]
    unsafe fn store_across([a, b, c, d]: [Self; 4], p: *mut f32, row: usize) {
        // SAFETY: as above.
        unsafe {
            let r = quarters256([a.0, b.0, c.0, d.0]);
            for i in 0..4 {
                let p = p.add(i * row);
                _mm_storeu_ps(p, _mm256_castps256_ps128(r[i]));
                _mm_storeu_ps(p.add(4 * row), _mm256_extractf128_ps::<1>(r[i]));
            }
        }
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: as above.
        unsafe {
            let v = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        // SAFETY: as above.
        unsafe {
            let v = _mm_max_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        }
    }
}

macro_rules! half_conversions {
    ($width:expr, $load:ident, $store:ident, $widen:ident, $narrow:ident, $load_f32:ident, $store_f32:ident, $half:ty) => {
        #[inline(always)]
        unsafe fn widen_f16(src: *const f16, dst: *mut f32, n: usize) {
            // SAFETY: `n` elements at both; a last partial vector goes through an array.
            unsafe {
                let mut i = 0;
                while i + $width <= n {
                    $store_f32(dst.add(i), $widen($load(src.add(i).cast::<$half>())));
                    i += $width;
                }
                if i < n {
                    let (mut from, mut to) = ([f16::ZERO; $width], [0f32; $width]);
                    std::ptr::copy_nonoverlapping(src.add(i), from.as_mut_ptr(), n - i);
                    $store_f32(to.as_mut_ptr(), $widen($load(from.as_ptr().cast::<$half>())));
                    std::ptr::copy_nonoverlapping(to.as_ptr(), dst.add(i), n - i);
                }
            }
        }
        #[inline(always)]
        unsafe fn narrow_f16(src: *const f32, dst: *mut f16, n: usize) {
            // SAFETY: as above.
            unsafe {
                let mut i = 0;
                while i + $width <= n {
                    $store(dst.add(i).cast::<$half>(), $narrow::<{ _MM_FROUND_TO_NEAREST_INT }>($load_f32(src.add(i))));
                    i += $width;
                }
                if i < n {
                    let (mut from, mut to) = ([0f32; $width], [f16::ZERO; $width]);
                    std::ptr::copy_nonoverlapping(src.add(i), from.as_mut_ptr(), n - i);
                    let rounded = $narrow::<{ _MM_FROUND_TO_NEAREST_INT }>($load_f32(from.as_ptr()));
                    $store(to.as_mut_ptr().cast::<$half>(), rounded);
                    std::ptr::copy_nonoverlapping(to.as_ptr(), dst.add(i), n - i);
                }
            }
        }
    };
}

impl Vectors for isa::Avx2 {
    type F32 = F32x8;
    type F64 = F64x4;
    half_conversions!(
        8,
        _mm_loadu_si128,
        _mm_storeu_si128,
        _mm256_cvtph_ps,
        _mm256_cvtps_ph,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        __m128i
    );
}

impl Vectors for isa::Avx512 {
    type F32 = F32x16;
    type F64 = F64x8;
    half_conversions!(
        16,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm512_cvtph_ps,
        _mm512_cvtps_ph,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        __m256i
    );
}
