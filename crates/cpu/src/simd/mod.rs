//! Float vectors for kernels whose speed depends on exact register use.
//!
//! A kernel is generic over the level ([`Vectors`], an extension of [`Isa`]) and the compute type ([`Real`]); `R::V<I>`
//! is the widest vector of that type at that level. Those of AVX2, AVX-512 and NEON are written with intrinsics: what
//! the compiler makes of arrays is several times as much code. Everything else is [`Lanes`], such an array.

mod lanes;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_f64;

use crate::isa::{self, Isa};
use lanes::Lanes;
use std::ops::{Add, Div, Mul, Sub};

/// A scalar that arithmetic is carried out in: `f32` or `f64`.
pub trait Real:
    rushlight_core::Element + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Zero.
    const ZERO: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;
    /// The vector of this type at a level.
    type V<I: Vectors>: Simd<Elem = Self>;
    /// A constant.
    fn lit(v: f64) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// e to the power.
    fn exp(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// `self * a + b`, with a single rounding if the level has FMA.
    fn fma<I: Isa>(self, a: Self, b: Self) -> Self;
    /// Adding and subtracting this number rounds to an integer, which is then in the low bits.
    const MAGIC: Self;
    /// Beyond these bounds `exp` is zero or infinite.
    const EXP_BOUNDS: [Self; 2];
    /// ln 2 in two parts, the first with trailing zeros so that a small integer times it is exact.
    const LN2: [Self; 2];
    /// Coefficients of a polynomial for `exp` on ±ln(2)/2, highest first.
    const EXP: &'static [f64];
    /// `self * 2^n`; `n` is an integer that keeps within `EXP_BOUNDS`.
    fn scale2(self, n: Self) -> Self;
}

macro_rules! real {
    ($t:ident, $vector:ident, mantissa $mantissa:expr, bias $bias:expr, magic $magic:expr, bounds $bounds:expr, ln2 $ln2:expr, exp $exp:expr) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const NEG_INFINITY: Self = $t::NEG_INFINITY;
            const MAGIC: Self = $magic;
            const EXP_BOUNDS: [Self; 2] = $bounds;
            const LN2: [Self; 2] = $ln2;
            const EXP: &'static [f64] = &$exp;
            type V<I: Vectors> = I::$vector;
            #[inline(always)]
            fn lit(v: f64) -> Self {
                v as $t
            }
            #[inline(always)]
            fn ln(self) -> Self {
                $t::ln(self)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $t::exp(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn fma<I: Isa>(self, a: Self, b: Self) -> Self {
                if I::FMA { self.mul_add(a, b) } else { self * a + b }
            }
            #[inline(always)]
            fn scale2(self, n: Self) -> Self {
                // Two factors, each a normal number, reach from the smallest denormal to infinity.
                let half = (n * 0.5 + $magic) - $magic;
                let power = |m: $t| $t::from_bits((m + $magic).to_bits().wrapping_add($bias) << $mantissa);
                self * power(half) * power(n - half)
            }
        }
    };
}
real!(
    f32, F32, mantissa 23, bias 127, magic 12_582_912.0, bounds [-104.0, 89.0], ln2 [0.693_359_4, -2.121_944_4e-4], exp EXP_F32
);
real!(
    f64, F64, mantissa 52, bias 1023, magic 6_755_399_441_055_744.0, bounds [-746.0, 710.0],
    ln2 [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10], exp EXP_F64
);

/// A register of floats.
pub trait Simd:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Send + Sync + 'static
{
    /// The scalar.
    type Elem: Real;
    /// How many fit.
    const N: usize;
    /// All lanes equal.
    fn splat(v: Self::Elem) -> Self;
    /// Reads `N` elements, unaligned.
    ///
    /// # Safety
    /// `N` elements may be read at `p`; the CPU has the vector's level. (So for all that follows.)
    unsafe fn load(p: *const Self::Elem) -> Self;
    /// Reads `n < N` elements; the other lanes hold `rest`.
    ///
    /// # Safety
    /// As for `load`, with `n` elements.
    unsafe fn load_part(p: *const Self::Elem, n: usize, rest: Self::Elem) -> Self;
    /// Writes `N` elements, unaligned.
    ///
    /// # Safety
    /// `N` elements may be written at `p`.
    unsafe fn store(self, p: *mut Self::Elem);
    /// Writes the first `n < N` lanes.
    ///
    /// # Safety
    /// As for `store`, with `n` elements.
    unsafe fn store_part(self, p: *mut Self::Elem, n: usize);
    /// Non-temporal store, if the level has one; ordered by [`fence`].
    ///
    /// # Safety
    /// As for `store`; `p` is aligned to the vector.
    unsafe fn stream(self, p: *mut Self::Elem);
    /// `self * a + b`.
    fn fma(self, a: Self, b: Self) -> Self;
    /// The larger in each lane; `b` where either is NaN.
    fn max(self, b: Self) -> Self;
    /// The smaller in each lane; `b` where either is NaN.
    fn min(self, b: Self) -> Self;
    /// Takes `v` and its tag in lanes where `v` is larger or NaN.
    fn take_larger(&mut self, mark: &mut Self, v: Self, mark_of_v: Self);
    /// Square root.
    fn sqrt(self) -> Self;
    /// Nearest integer; magnitudes are small enough for `MAGIC`.
    fn round(self) -> Self;
    /// `self * 2^n` as in [`Real::scale2`].
    fn scale2(self, n: Self) -> Self;
    /// e to the power, within two units in the last place.
    #[inline(always)]
    fn exp(self) -> Self {
        // The bounds come first, so that NaN passes.
        let [low, high] = Self::Elem::EXP_BOUNDS;
        let x = Self::splat(high).min(Self::splat(low).max(self));
        let n = (x * Self::splat(Self::Elem::lit(std::f64::consts::LOG2_E))).round();
        let [coarse, fine] = Self::Elem::LN2;
        let zero = Self::splat(Self::Elem::ZERO);
        let r = n.fma(zero - Self::splat(coarse), x);
        let r = n.fma(zero - Self::splat(fine), r);
        let mut p = Self::splat(Self::Elem::lit(Self::Elem::EXP[0]));
        for &k in &Self::Elem::EXP[1..] {
            p = p.fma(r, Self::splat(Self::Elem::lit(k)));
        }
        p.scale2(n)
    }
    /// Reads `n <= N` elements; free where `n` is known to be `N`.
    ///
    /// # Safety
    /// As for `load_part`.
    #[inline(always)]
    unsafe fn get(p: *const Self::Elem, n: usize, rest: Self::Elem) -> Self {
        // SAFETY: by the caller's contract.
        unsafe { if n == Self::N { Self::load(p) } else { Self::load_part(p, n, rest) } }
    }
    /// Writes `n <= N` elements; free where `n` is known to be `N`.
    ///
    /// # Safety
    /// As for `store_part`.
    #[inline(always)]
    unsafe fn put(self, p: *mut Self::Elem, n: usize) {
        // SAFETY: by the caller's contract.
        unsafe { if n == Self::N { self.store(p) } else { self.store_part(p, n) } }
    }
    /// Transposes a square of `N` rows, `row` apart, to rows `to_row` apart.
    ///
    /// # Safety
    /// The squares may be read and written, and do not overlap.
    #[inline(always)]
    unsafe fn transpose(from: *const Self::Elem, row: usize, to: *mut Self::Elem, to_row: usize) {
        // SAFETY: by the caller's contract.
        unsafe { Self::transpose_pairs(from, row, [false; 2], to, to_row, None) }
    }
    /// [`Simd::transpose`] with the rows of each pair exchanged, at `from` and at `to`, and with a factor.
    ///
    /// # Safety
    /// As for `transpose`.
    #[inline(always)]
    unsafe fn transpose_pairs(
        from: *const Self::Elem,
        row: usize,
        swap: [bool; 2],
        to: *mut Self::Elem,
        to_row: usize,
        scale: Option<Self>,
    ) {
        let [swap_from, swap_to] = swap.map(usize::from);
        let mut line = [Self::Elem::ZERO; 32];
        for r in 0..Self::N {
            // SAFETY: within the squares; no vector has more lanes.
            unsafe {
                let v = Self::load(from.add((r ^ swap_from) * row));
                scale.map_or(v, |scale| v * scale).store(line.as_mut_ptr());
                for c in 0..Self::N {
                    *to.add((c ^ swap_to) * to_row + r) = line[c];
                }
            }
        }
    }
    /// `2 N` numbers of two vectors: those at even places and those at odd ones.
    #[inline(always)]
    fn unzip(self, b: Self) -> (Self, Self) {
        let (mut from, mut even, mut odd) = ([Self::Elem::ZERO; 64], [Self::Elem::ZERO; 32], [Self::Elem::ZERO; 32]);
        // SAFETY: the arrays hold two of the widest vectors.
        unsafe {
            self.store(from.as_mut_ptr());
            b.store(from.as_mut_ptr().add(Self::N));
            for i in 0..Self::N {
                even[i] = from[2 * i];
                odd[i] = from[2 * i + 1];
            }
            (Self::load(even.as_ptr()), Self::load(odd.as_ptr()))
        }
    }
    /// The inverse of [`Simd::unzip`].
    #[inline(always)]
    fn zip(self, b: Self) -> (Self, Self) {
        let (mut even, mut odd, mut to) = ([Self::Elem::ZERO; 32], [Self::Elem::ZERO; 32], [Self::Elem::ZERO; 64]);
        // SAFETY: as above.
        unsafe {
            self.store(even.as_mut_ptr());
            b.store(odd.as_mut_ptr());
            for i in 0..Self::N {
                to[2 * i] = even[i];
                to[2 * i + 1] = odd[i];
            }
            (Self::load(to.as_ptr()), Self::load(to.as_ptr().add(Self::N)))
        }
    }
    /// From each of `N` rows, `row` apart, the two pairs at its start: a vector for each of the four numbers.
    ///
    /// # Safety
    /// The rows may be read.
    #[inline(always)]
    unsafe fn load_across(p: *const Self::Elem, row: usize) -> [Self; 4] {
        let mut lanes = [[Self::Elem::ZERO; 32]; 4];
        // SAFETY: the caller's promise; no vector has more lanes.
        unsafe {
            for lane in 0..Self::N {
                for i in 0..4 {
                    lanes[i][lane] = *p.add(lane * row + i);
                }
            }
            let [a, b, c, d] = &lanes;
            [Self::load(a.as_ptr()), Self::load(b.as_ptr()), Self::load(c.as_ptr()), Self::load(d.as_ptr())]
        }
    }
    /// The inverse of [`Simd::load_across`].
    ///
    /// # Safety
    /// The rows may be written.
    #[inline(always)]
    unsafe fn store_across(v: [Self; 4], p: *mut Self::Elem, row: usize) {
        let mut lanes = [[Self::Elem::ZERO; 32]; 4];
        // SAFETY: as above.
        unsafe {
            for i in 0..4 {
                v[i].store(lanes[i].as_mut_ptr());
            }
            for lane in 0..Self::N {
                for i in 0..4 {
                    *p.add(lane * row + i) = lanes[i][lane];
                }
            }
        }
    }
    /// Sum of the lanes.
    fn sum(self) -> Self::Elem;
    /// Largest of the lanes.
    fn largest(self) -> Self::Elem;
}

/// The vectors of a level.
pub trait Vectors: Isa {
    /// Of `f32`.
    type F32: Simd<Elem = f32>;
    /// Of `f64`.
    type F64: Simd<Elem = f64>;
    /// Widens `n` half-precision numbers.
    ///
    /// # Safety
    /// `n` elements at `src` and `dst`, which do not overlap; the CPU has the level.
    #[inline(always)]
    unsafe fn widen_f16(src: *const half::f16, dst: *mut f32, n: usize) {
        for i in 0..n {
            // SAFETY: by the caller's contract.
            unsafe { *dst.add(i) = (*src.add(i)).to_f32() }
        }
    }
    /// Rounds `n` numbers to half precision.
    ///
    /// # Safety
    /// As for `widen_f16`.
    #[inline(always)]
    unsafe fn narrow_f16(src: *const f32, dst: *mut half::f16, n: usize) {
        for i in 0..n {
            // SAFETY: by the caller's contract.
            unsafe { *dst.add(i) = half::f16::from_f32(*src.add(i)) }
        }
    }
}

impl Vectors for isa::Portable {
    type F32 = Lanes<f32, 4, Self>;
    type F64 = Lanes<f64, 2, Self>;
}
#[cfg(not(target_arch = "x86_64"))]
impl Vectors for isa::Avx2 {
    type F32 = Lanes<f32, 8, Self>;
    type F64 = Lanes<f64, 4, Self>;
}
#[cfg(not(target_arch = "x86_64"))]
impl Vectors for isa::Avx512 {
    type F32 = Lanes<f32, 16, Self>;
    type F64 = Lanes<f64, 8, Self>;
}

/// Coefficients of a polynomial within 2e-9 of `exp` on ±ln(2)/2, highest first.
const EXP_F32: [f64; 7] = [
    0.0013836789956514853,
    0.0083748570510927,
    0.04166822875583781,
    0.16666419680796044,
    0.49999992055774384,
    1.0000000364309263,
    1.0000000005563972,
];
/// The Taylor coefficients, which are enough for `f64` within the same bounds.
const EXP_F64: [f64; 14] = {
    let mut c = [1.0; 14];
    let mut k = 1;
    let mut factorial = 1.0;
    while k < 14 {
        factorial *= k as f64;
        c[13 - k] = 1.0 / factorial;
        k += 1;
    }
    c
};

/// Runs the body for each vector of `0..n`, with `$i` at its first element and `$m` its length, known to be `N` in all
/// but the last. `$k` counts 0 to 3 over neighbouring vectors, for independent accumulators.
macro_rules! sweep {
    ($V:ty, $n:expr, $i:ident, $m:ident, $k:ident => $body:block) => {{
        let n: usize = $n;
        let width = <$V as $crate::simd::Simd>::N;
        let mut at = 0usize;
        while at + 4 * width <= n {
            for $k in 0..4usize {
                let ($i, $m) = (at + $k * width, width);
                $body
            }
            at += 4 * width;
        }
        while at + width <= n {
            let ($i, $m, $k) = (at, width, 0usize);
            $body
            at += width;
        }
        if at < n {
            let ($i, $m, $k) = (at, n - at, 1usize);
            $body
        }
    }};
    ($V:ty, $n:expr, $i:ident, $m:ident => $body:block) => { $crate::simd::sweep!($V, $n, $i, $m, _k => $body) };
}
pub(crate) use sweep;

/// Sum of four accumulators.
#[inline(always)]
pub fn total<V: Simd>(a: [V; 4]) -> V::Elem {
    ((a[0] + a[1]) + (a[2] + a[3])).sum()
}

/// Prefetches a cache line. Any address is allowed.
#[inline(always)]
pub fn prefetch<R>(p: *const R) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast())
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, which never faults.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) p, options(nostack, readonly, preserves_flags))
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = p;
}

/// Orders streamed stores before this thread's later stores.
#[inline(always)]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiversion;

    #[inline(always)]
    unsafe fn exps<R: Real, I: Vectors>(x: &[R], y: &mut [R]) {
        let n = R::V::<I>::N;
        for (x, y) in x.chunks(n).zip(y.chunks_mut(n)) {
            // SAFETY: chunks of at most `n`.
            unsafe {
                if x.len() == n {
                    R::V::<I>::load(x.as_ptr()).exp().store(y.as_mut_ptr());
                } else {
                    let v = R::V::<I>::load_part(x.as_ptr(), x.len(), R::lit(1.0));
                    v.exp().store_part(y.as_mut_ptr(), x.len());
                }
            }
        }
    }
    multiversion! {
        unsafe fn exps_at<R: Real>(x: &[R], y: &mut [R]) = exps;
    }

    fn check<R: Real>(low: f64, high: f64, tolerance: f64, smallest: f64) {
        let x: Vec<R> = (0..1003).map(|i| R::lit(low + (high - low) * i as f64 / 1002.0)).collect();
        let mut y = vec![R::ZERO; x.len()];
        // SAFETY: equal lengths.
        unsafe { exps_at(&x, &mut y) };
        for (x, y) in x.iter().zip(&y) {
            let want = x.to_f64().exp();
            assert!((y.to_f64() - want).abs() <= tolerance * want + smallest, "exp({x:?}) = {y:?}, not {want}");
        }
        for (x, want) in [(f64::NEG_INFINITY, 0.0), (-2e3, 0.0), (f64::INFINITY, f64::INFINITY), (2e3, f64::INFINITY)] {
            let mut y = [R::ZERO];
            // SAFETY: equal lengths.
            unsafe { exps_at(&[R::lit(x)], &mut y) };
            assert_eq!(y[0].to_f64(), want, "exp({x})");
        }
        let mut y = [R::ZERO; 40];
        // SAFETY: equal lengths.
        unsafe { exps_at(&[R::lit(f64::NAN); 40], &mut y) };
        assert!(y.iter().all(|y| y.to_f64().is_nan()));
    }

    #[test]
    fn exp_is_accurate_at_every_level() {
        let _turn = crate::testing::turn();
        for level in isa::Level::ALL {
            isa::force(level);
            check::<f32>(-103.0, 88.5, 2e-7, 1e-45);
            check::<f64>(-745.0, 709.0, 6e-16, 5e-324);
        }
    }
}
