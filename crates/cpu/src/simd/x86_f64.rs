//! `f64` vectors by intrinsics.

// Every function here inherits the contract of its trait, as in `x86`.

use super::Simd;
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

/// Four doubles.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F64x4(__m256d);
/// Eight doubles.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F64x8(__m512d);

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
operators! { F64x4: Add add _mm256_add_pd; Sub sub _mm256_sub_pd; Mul mul _mm256_mul_pd; Div div _mm256_div_pd; }
operators! { F64x8: Add add _mm512_add_pd; Sub sub _mm512_sub_pd; Mul mul _mm512_mul_pd; Div div _mm512_div_pd; }

/// The methods of [`Simd`] that are one instruction.
macro_rules! direct {
    ($splat:ident $load:ident $store:ident $stream:ident $fma:ident $max:ident $min:ident $sqrt:ident) => {
        #[inline(always)]
        fn splat(v: f64) -> Self {
            // SAFETY: see the module's comment. (So for all that follows.)
            Self(unsafe { $splat(v) })
        }
        #[inline(always)]
        unsafe fn load(p: *const f64) -> Self {
            // SAFETY: `N` elements may be read.
            Self(unsafe { $load(p) })
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f64) {
            // SAFETY: `N` elements may be written.
            unsafe { $store(p, self.0) }
        }
        #[inline(always)]
        unsafe fn stream(self, p: *mut f64) {
            // SAFETY: `N` elements, aligned.
            unsafe { $stream(p, self.0) }
        }
        #[inline(always)]
        fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $fma(self.0, a.0, b.0) })
        }
        #[inline(always)]
        fn max(self, b: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $max(self.0, b.0) })
        }
        #[inline(always)]
        fn min(self, b: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $min(self.0, b.0) })
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $sqrt(self.0) })
        }
    };
}

/// All bits set in the first `n` of four lanes.
#[inline(always)]
unsafe fn mask4(n: usize) -> __m256i {
    // SAFETY: AVX2 is there by the caller's contract.
    unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
}

/// Mask of the first `n < 8` lanes.
#[inline(always)]
fn mask8(n: usize) -> __mmask8 {
    ((1u32 << n) - 1) as __mmask8
}

/// Two to the power `n`, a normal number.
#[inline(always)]
unsafe fn power(n: __m128i) -> __m256d {
    // SAFETY: AVX2 is there by the caller's contract.
    unsafe {
        let biased = _mm256_cvtepi32_epi64(_mm_add_epi32(n, _mm_set1_epi32(1023)));
        _mm256_castsi256_pd(_mm256_slli_epi64::<52>(biased))
    }
}

/// Transposes a square of four.
#[inline(always)]
unsafe fn square256([a, b, c, d]: [__m256d; 4]) -> [__m256d; 4] {
    // SAFETY: the caller has the level.
    unsafe {
        let (ab, cd) = (_mm256_unpacklo_pd(a, b), _mm256_unpacklo_pd(c, d));
        let (ab_high, cd_high) = (_mm256_unpackhi_pd(a, b), _mm256_unpackhi_pd(c, d));
        [
            _mm256_permute2f128_pd::<0x20>(ab, cd),
            _mm256_permute2f128_pd::<0x20>(ab_high, cd_high),
            _mm256_permute2f128_pd::<0x31>(ab, cd),
            _mm256_permute2f128_pd::<0x31>(ab_high, cd_high),
        ]
    }
}

/// The same in each half.
#[inline(always)]
unsafe fn squares512([a, b, c, d]: [__m512d; 4]) -> [__m512d; 4] {
    // SAFETY: the caller has the level.
    unsafe {
        let (ab, cd) = (_mm512_unpacklo_pd(a, b), _mm512_unpacklo_pd(c, d));
        let (ab_high, cd_high) = (_mm512_unpackhi_pd(a, b), _mm512_unpackhi_pd(c, d));
        let low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
        let high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
        [
            _mm512_permutex2var_pd(ab, low, cd),
            _mm512_permutex2var_pd(ab_high, low, cd_high),
            _mm512_permutex2var_pd(ab, high, cd),
            _mm512_permutex2var_pd(ab_high, high, cd_high),
        ]
    }
}

impl Simd for F64x4 {
    type Elem = f64;
    const N: usize = 4;
    direct!(_mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_stream_pd _mm256_fmadd_pd _mm256_max_pd _mm256_min_pd _mm256_sqrt_pd);

    #[inline(always)]
    unsafe fn load_part(p: *const f64, n: usize, rest: f64) -> Self {
        // SAFETY: masked lanes are not read.
        unsafe {
            let mask = mask4(n);
            Self(_mm256_blendv_pd(_mm256_set1_pd(rest), _mm256_maskload_pd(p, mask), _mm256_castsi256_pd(mask)))
        }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f64, n: usize) {
        // SAFETY: masked lanes are not written.
        unsafe { _mm256_maskstore_pd(p, mask4(n), self.0) }
    }
    #[inline(always)]
    fn take_larger(&mut self, mark: &mut Self, v: Self, mark_of_v: Self) {
        // SAFETY: as above.
        unsafe {
            let (larger, nan) = (_mm256_cmp_pd::<_CMP_GT_OQ>(v.0, self.0), _mm256_cmp_pd::<_CMP_UNORD_Q>(v.0, v.0));
            let larger = _mm256_or_pd(larger, nan);
            self.0 = _mm256_blendv_pd(self.0, v.0, larger);
            mark.0 = _mm256_blendv_pd(mark.0, mark_of_v.0, larger);
        }
    }
    #[inline(always)]
    fn round(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
    }
    #[inline(always)]
    fn scale2(self, n: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            // Two factors, each a normal number, reach from the smallest denormal to infinity.
            let n = _mm256_cvtpd_epi32(n.0);
            let half = _mm_srai_epi32::<1>(n);
            Self(_mm256_mul_pd(_mm256_mul_pd(self.0, power(half)), power(_mm_sub_epi32(n, half))))
        }
    }
    #[inline(always)]
    unsafe fn transpose_pairs(
        from: *const f64,
        row: usize,
        swap: [bool; 2],
        to: *mut f64,
        to_row: usize,
        scale: Option<Self>,
    ) {
        let [swap_from, swap_to] = swap.map(usize::from);
        // SAFETY: four rows of four at both.
        unsafe {
            let mut r = [_mm256_setzero_pd(); 4];
            for i in 0..4 {
                r[i] = _mm256_loadu_pd(from.add((i ^ swap_from) * row));
                if let Some(scale) = scale {
                    r[i] = _mm256_mul_pd(r[i], scale.0);
                }
            }
            let r = square256(r);
            for c in 0..4 {
                _mm256_storeu_pd(to.add((c ^ swap_to) * to_row), r[c]);
            }
        }
    }
    #[inline(always)]
    fn unzip(self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            let low = _mm256_permute2f128_pd::<0x20>(self.0, b.0);
            let high = _mm256_permute2f128_pd::<0x31>(self.0, b.0);
            (Self(_mm256_unpacklo_pd(low, high)), Self(_mm256_unpackhi_pd(low, high)))
        }
    }
    #[inline(always)]
    fn zip(self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            let (low, high) = (_mm256_unpacklo_pd(self.0, b.0), _mm256_unpackhi_pd(self.0, b.0));
            (Self(_mm256_permute2f128_pd::<0x20>(low, high)), Self(_mm256_permute2f128_pd::<0x31>(low, high)))
        }
    }
    #[inline(always)]
    unsafe fn load_across(p: *const f64, row: usize) -> [Self; 4] {
        // SAFETY: four numbers of four rows.
        unsafe {
            let mut r = [_mm256_setzero_pd(); 4];
            for i in 0..4 {
                r[i] = _mm256_loadu_pd(p.add(i * row));
            }
            let [a, b, c, d] = square256(r);
            [Self(a), Self(b), Self(c), Self(d)]
        }
    }
    #[inline(always)]
    unsafe fn store_across([a, b, c, d]: [Self; 4], p: *mut f64, row: usize) {
        // SAFETY: as above.
        unsafe {
            let r = square256([a.0, b.0, c.0, d.0]);
            for i in 0..4 {
                _mm256_storeu_pd(p.add(i * row), r[i]);
            }
        }
    }
    #[inline(always)]
    fn sum(self) -> f64 {
        // SAFETY: as above.
        unsafe {
            let v = _mm_add_pd(_mm256_castpd256_pd128(self.0), _mm256_extractf128_pd::<1>(self.0));
            _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v)))
        }
    }
    #[inline(always)]
    fn largest(self) -> f64 {
        // SAFETY: as above.
        unsafe {
            let v = _mm_max_pd(_mm256_castpd256_pd128(self.0), _mm256_extractf128_pd::<1>(self.0));
            _mm_cvtsd_f64(_mm_max_sd(v, _mm_unpackhi_pd(v, v)))
        }
    }
}

impl Simd for F64x8 {
    type Elem = f64;
    const N: usize = 8;
    direct!(_mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_stream_pd _mm512_fmadd_pd _mm512_max_pd _mm512_min_pd _mm512_sqrt_pd);

    #[inline(always)]
    unsafe fn load_part(p: *const f64, n: usize, rest: f64) -> Self {
        // SAFETY: masked lanes are not read.
        Self(unsafe { _mm512_mask_loadu_pd(_mm512_set1_pd(rest), mask8(n), p) })
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f64, n: usize) {
        // SAFETY: masked lanes are not written.
        unsafe { _mm512_mask_storeu_pd(p, mask8(n), self.0) }
    }
    #[inline(always)]
    fn take_larger(&mut self, mark: &mut Self, v: Self, mark_of_v: Self) {
        // SAFETY: as above.
        unsafe {
            let larger = _mm512_cmp_pd_mask::<_CMP_GT_OQ>(v.0, self.0) | _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(v.0, v.0);
            self.0 = _mm512_mask_mov_pd(self.0, larger, v.0);
            mark.0 = _mm512_mask_mov_pd(mark.0, larger, mark_of_v.0);
        }
    }
    #[inline(always)]
    fn round(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEAREST_INT }>(self.0) })
    }
    #[inline(always)]
    fn scale2(self, n: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_scalef_pd(self.0, n.0) })
    }
    #[inline(always)]
    unsafe fn transpose_pairs(
        from: *const f64,
        row: usize,
        swap: [bool; 2],
        to: *mut f64,
        to_row: usize,
        scale: Option<Self>,
    ) {
        let [swap_from, swap_to] = swap.map(usize::from);
        // SAFETY: eight rows of eight at both.
        unsafe {
            // Pairs of rows first: `u[4 q + g]` holds rows `2 g..` of columns `q`, `2 + q`, `4 + q`, `6 + q`.
            let mut u = [_mm512_setzero_pd(); 8];
            for g in 0..4 {
                let mut r = [_mm512_setzero_pd(); 2];
                for i in 0..2 {
                    r[i] = _mm512_loadu_pd(from.add(((2 * g + i) ^ swap_from) * row));
                    if let Some(scale) = scale {
                        r[i] = _mm512_mul_pd(r[i], scale.0);
                    }
                }
                u[g] = _mm512_unpacklo_pd(r[0], r[1]);
                u[4 + g] = _mm512_unpackhi_pd(r[0], r[1]);
            }
            // Then the quarters among registers.
            for q in 0..2 {
                let (a, b, c, d) = (u[4 * q], u[4 * q + 1], u[4 * q + 2], u[4 * q + 3]);
                let (even, odd) = (_mm512_shuffle_f64x2::<0x88>(a, b), _mm512_shuffle_f64x2::<0xdd>(a, b));
                let (even_high, odd_high) = (_mm512_shuffle_f64x2::<0x88>(c, d), _mm512_shuffle_f64x2::<0xdd>(c, d));
                let to = to.add((q ^ swap_to) * to_row);
                _mm512_storeu_pd(to, _mm512_shuffle_f64x2::<0x88>(even, even_high));
                _mm512_storeu_pd(to.add(2 * to_row), _mm512_shuffle_f64x2::<0x88>(odd, odd_high));
                _mm512_storeu_pd(to.add(4 * to_row), _mm512_shuffle_f64x2::<0xdd>(even, even_high));
                _mm512_storeu_pd(to.add(6 * to_row), _mm512_shuffle_f64x2::<0xdd>(odd, odd_high));
            }
        }
    }
    #[inline(always)]
    fn unzip(self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
            let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
            (Self(_mm512_permutex2var_pd(self.0, even, b.0)), Self(_mm512_permutex2var_pd(self.0, odd, b.0)))
        }
    }
    #[inline(always)]
    fn zip(self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
            (Self(_mm512_permutex2var_pd(self.0, low, b.0)), Self(_mm512_permutex2var_pd(self.0, high, b.0)))
        }
    }
    #[inline(always)]
    unsafe fn load_across(p: *const f64, row: usize) -> [Self; 4] {
        // SAFETY: four numbers of eight rows.
        unsafe {
            // Register `i` has rows `i` and `4 + i` in its halves.
            let mut r = [_mm512_setzero_pd(); 4];
            for i in 0..4 {
                let p = p.add(i * row);
                let low = _mm512_castpd256_pd512(_mm256_loadu_pd(p));
                r[i] = _mm512_insertf64x4::<1>(low, _mm256_loadu_pd(p.add(4 * row)));
            }
            let [a, b, c, d] = squares512(r);
            [Self(a), Self(b), Self(c), Self(d)]
        }
    }
    #[inline(always)]
    unsafe fn store_across([a, b, c, d]: [Self; 4], p: *mut f64, row: usize) {
        // SAFETY: as above.
        unsafe {
            let r = squares512([a.0, b.0, c.0, d.0]);
            for i in 0..4 {
                let p = p.add(i * row);
                _mm256_storeu_pd(p, _mm512_castpd512_pd256(r[i]));
                _mm256_storeu_pd(p.add(4 * row), _mm512_extractf64x4_pd::<1>(r[i]));
            }
        }
    }
    #[inline(always)]
    fn sum(self) -> f64 {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_add_pd(_mm512_castpd512_pd256(self.0), _mm512_extractf64x4_pd::<1>(self.0))).sum() }
    }
    #[inline(always)]
    fn largest(self) -> f64 {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_max_pd(_mm512_castpd512_pd256(self.0), _mm512_extractf64x4_pd::<1>(self.0))).largest() }
    }
}
