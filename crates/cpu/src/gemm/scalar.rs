//! Element types and their accumulator types.

use super::Activation;
use super::activation;
use half::{bf16, f16};

/// An element as stored in memory.
pub(super) trait Scalar: Copy + Send + Sync + 'static {
    /// The accumulator type.
    type Acc: Accumulator;
    /// Whether `Acc` is the element type itself, so that C can hold partial sums.
    const IS_ACC: bool;
    fn widen(self) -> Self::Acc;
    fn narrow(acc: Self::Acc) -> Self;
}

/// An accumulator type.
pub(super) trait Accumulator: Scalar<Acc = Self> + PartialEq {
    const ZERO: Self;
    const ONE: Self;
    /// Whether sums of many numbers are rounded.
    const IS_FLOAT: bool;
    fn from_f64(v: f64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// `self * x + y`, with a single rounding if the kernel is compiled with FMA.
    fn mul_add<const FMA: bool>(self, x: Self, y: Self) -> Self;
    fn activate(values: &mut [Self], activation: Activation);
}

macro_rules! float_accumulator {
    ($t:ident, $gelu:path, $gelu_tanh:path) => {
        impl Scalar for $t {
            type Acc = $t;
            const IS_ACC: bool = true;
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(acc: $t) -> $t {
                acc
            }
        }
        impl Accumulator for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const IS_FLOAT: bool = true;
            #[inline(always)]
            fn from_f64(v: f64) -> $t {
                v as $t
            }
            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                self + other
            }
            #[inline(always)]
            fn times(self, other: $t) -> $t {
                self * other
            }
            #[inline(always)]
            fn mul_add<const FMA: bool>(self, x: $t, y: $t) -> $t {
                if FMA { $t::mul_add(self, x, y) } else { self * x + y }
            }
            #[inline(always)]
            fn activate(values: &mut [$t], activation: Activation) {
                match activation {
                    Activation::None => {}
                    // This form of the comparison keeps NaN, as PyTorch does.
                    Activation::Relu => values.iter_mut().for_each(|v| *v = if *v < 0.0 { 0.0 } else { *v }),
                    Activation::Gelu => values.iter_mut().for_each(|v| *v = $gelu(*v)),
                    Activation::GeluTanh => values.iter_mut().for_each(|v| *v = $gelu_tanh(*v)),
                }
            }
        }
    };
}

float_accumulator!(f32, activation::gelu_f32, activation::gelu_tanh_f32);
float_accumulator!(f64, activation::gelu_f64, activation::gelu_tanh_f64);

macro_rules! integer_accumulator {
    ($t:ident) => {
        impl Scalar for $t {
            type Acc = $t;
            const IS_ACC: bool = true;
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(acc: $t) -> $t {
                acc
            }
        }
        impl Accumulator for $t {
            const ZERO: $t = 0;
            const ONE: $t = 1;
            const IS_FLOAT: bool = false;
            #[inline(always)]
            fn from_f64(v: f64) -> $t {
                v as i64 as $t
            }
            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn mul_add<const FMA: bool>(self, x: $t, y: $t) -> $t {
                self.wrapping_mul(x).wrapping_add(y)
            }
            #[inline(always)]
            fn activate(values: &mut [$t], activation: Activation) {
                match activation {
                    Activation::None => {}
                    Activation::Relu => values.iter_mut().for_each(|v| *v = (*v).max(0)),
                    Activation::Gelu => {
                        values.iter_mut().for_each(|v| *v = Self::from_f64(activation::gelu_f64(*v as f64)))
                    }
                    Activation::GeluTanh => {
                        values.iter_mut().for_each(|v| *v = Self::from_f64(activation::gelu_tanh_f64(*v as f64)))
                    }
                }
            }
        }
    };
}

integer_accumulator!(i32);
integer_accumulator!(i64);

impl Scalar for bf16 {
    type Acc = f32;
    const IS_ACC: bool = false;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits((self.to_bits() as u32) << 16)
    }
    // Branch-free, unlike the conversions of `half`, so that loops over it vectorise.
    #[inline(always)]
    fn narrow(acc: f32) -> bf16 {
        let bits = acc.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet_nan = (bits >> 16) | 0x40;
        bf16::from_bits(if acc.is_nan() { quiet_nan } else { rounded } as u16)
    }
}

impl Scalar for f16 {
    type Acc = f32;
    const IS_ACC: bool = false;
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = self.to_bits() as u32;
        // Shift exponent and mantissa into place, then let a multiplication rebias: that also normalises subnormals.
        let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((254 - 15) << 23);
        let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
        f32::from_bits(magnitude.to_bits() | special | ((bits & 0x8000) << 16))
    }
    #[inline(always)]
    fn narrow(acc: f32) -> f16 {
        let bits = acc.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        // Below 2⁻¹⁴ the result is subnormal: adding 0.5 leaves its bits, correctly rounded, at the bottom of the sum.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let rebiased = magnitude.wrapping_sub(112 << 23);
        let normal = rebiased.wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
        let finite = if magnitude < 113 << 23 { subnormal } else { normal };
        // 65520 and above round to infinity.
        let limited = if magnitude >= 0x477f_f000 { 0x7c00 } else { finite };
        let value = if magnitude > 0x7f80_0000 { 0x7e00 | ((magnitude >> 13) & 0x1ff) } else { limited };
        f16::from_bits((sign | value) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_conversions_agree_with_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            if h.is_nan() {
                assert!(Scalar::widen(h).is_nan() && f16::narrow(Scalar::widen(h)).is_nan());
            } else {
                assert_eq!(Scalar::widen(h).to_bits(), h.to_f32().to_bits());
            }
            if b.is_nan() {
                assert!(Scalar::widen(b).is_nan() && bf16::narrow(Scalar::widen(b)).is_nan());
            } else {
                assert_eq!(Scalar::widen(b).to_bits(), b.to_f32().to_bits());
            }
        }
        let mut bits = 1u32;
        for _ in 0..200_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut samples = vec![bits];
            // Ties and values around the subnormal and overflow limits of f16 are rare among random bits.
            samples.push((bits & 0x8fff_e000) | 0x3000_1000);
            samples.push((bits & 0x803f_ffff) | 0x3300_0000);
            samples.push((bits & 0x8001_ffff) | 0x477e_0000);
            for bits in samples {
                let v = f32::from_bits(bits);
                if !v.is_nan() {
                    assert_eq!(f16::narrow(v).to_bits(), f16::from_f32(v).to_bits(), "{v:e}");
                    assert_eq!(bf16::narrow(v).to_bits(), bf16::from_f32(v).to_bits(), "{v:e}");
                }
            }
        }
    }
}
