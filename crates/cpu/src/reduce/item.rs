//! Element types of the arithmetic: half types as `f32`, integers as `i64`, `bool` as `u8`.

use half::{bf16, f16};
use rushlight_core::{Element, Truth};

/// An accumulator type. Integers wrap.
pub trait Wide: Copy + Send + Sync + PartialOrd + PartialEq + 'static {
    const ZERO: Self;
    const ONE: Self;
    /// The smallest value.
    const LOWEST: Self;
    /// The largest value.
    const HIGHEST: Self;
    fn add(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn is_nan(self) -> bool;

    /// The larger; NaN if either is.
    #[inline(always)]
    fn larger(self, b: Self) -> Self {
        if self >= b || self.is_nan() { self } else { b }
    }

    /// The smaller; NaN if either is.
    #[inline(always)]
    fn smaller(self, b: Self) -> Self {
        if self <= b || self.is_nan() { self } else { b }
    }
}

macro_rules! wide_float {
    ($($t:ty)*) => {$(
        impl Wide for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = <$t>::NEG_INFINITY;
            const HIGHEST: Self = <$t>::INFINITY;
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                self + b
            }
            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                self * b
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
        }
    )*};
}
wide_float!(f32 f64);

impl Wide for i64 {
    const ZERO: Self = 0;
    const ONE: Self = 1;
    const LOWEST: Self = i64::MIN;
    const HIGHEST: Self = i64::MAX;
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.wrapping_add(b)
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.wrapping_mul(b)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
}

/// An element that can be widened for arithmetic and rounded back, in code the compiler can vectorise.
pub trait Item: Element {
    /// The type it is widened to.
    type Wide: Wide;
    fn widen(self) -> Self::Wide;
    /// Rounds to nearest; integers wrap.
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! item {
    ($($t:ty as $w:ty, $x:ident => $widen:expr, $v:ident => $narrow:expr;)*) => {$(
        impl Item for $t {
            type Wide = $w;
            #[inline(always)]
            fn widen(self) -> $w {
                let $x = self;
                $widen
            }
            #[inline(always)]
            fn narrow($v: $w) -> Self {
                $narrow
            }
        }
    )*};
}

item! {
    f32 as f32, x => x, v => v;
    f64 as f64, x => x, v => v;
    f16 as f32, x => f16_to_f32(x), v => f16::from_f32(v);
    bf16 as f32, x => f32::from_bits((x.to_bits() as u32) << 16), v => f32_to_bf16(v);
    i64 as i64, x => x, v => v;
    i32 as i64, x => x as i64, v => v as i32;
    i16 as i64, x => x as i64, v => v as i16;
    i8 as i64, x => x as i64, v => v as i8;
    u8 as i64, x => x as i64, v => v as u8;
    Truth as i64, x => x.to_i64(), v => Truth::from_i64(v);
}

/// Runs an expression with `$T` bound to the [`Item`] of a run-time dtype; `bool` is read as `u8`.
macro_rules! with_item {
    ($dtype:expr, $T:ident => $body:expr) => {
        match ::rushlight_core::DType::carrier($dtype) {
            ::rushlight_core::DType::F32 => {
                type $T = f32;
                $body
            }
            ::rushlight_core::DType::F64 => {
                type $T = f64;
                $body
            }
            ::rushlight_core::DType::F16 => {
                type $T = ::half::f16;
                $body
            }
            ::rushlight_core::DType::BF16 => {
                type $T = ::half::bf16;
                $body
            }
            ::rushlight_core::DType::I64 => {
                type $T = i64;
                $body
            }
            ::rushlight_core::DType::I32 => {
                type $T = i32;
                $body
            }
            ::rushlight_core::DType::I16 => {
                type $T = i16;
                $body
            }
            ::rushlight_core::DType::I8 => {
                type $T = i8;
                $body
            }
            // `u8` and `bool`: no dtype's carrier is carried.
            _ => {
                type $T = u8;
                $body
            }
        }
    };
}
pub(crate) use with_item;

/// Exact, without branches: shifting the exponent by a multiplication takes care of subnormals.
#[inline(always)]
fn f16_to_f32(x: f16) -> f32 {
    let bits = x.to_bits() as u32;
    let magnitude = (bits & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * f32::from_bits((254 - 15) << 23)).to_bits();
    let special = if magnitude >= 0x7c00 << 13 { 0xff << 23 } else { 0 };
    f32::from_bits(finite | special | (bits & 0x8000) << 16)
}

/// Round to nearest, ties to even; NaN stays quiet.
#[inline(always)]
fn f32_to_bf16(v: f32) -> bf16 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    bf16::from_bits(if v.is_nan() { (bits >> 16) | 0x40 } else { rounded } as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_types_convert_exactly() {
        for bits in 0..=u16::MAX {
            let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            if h.is_nan() {
                assert!(h.widen().is_nan());
            } else {
                assert_eq!(h.widen().to_bits(), h.to_f32().to_bits());
            }
            if b.is_nan() {
                assert!(b.widen().is_nan() && bf16::narrow(b.widen()).is_nan());
            } else {
                assert_eq!(b.widen().to_bits(), b.to_f32().to_bits());
                assert_eq!(bf16::narrow(b.widen()), b);
            }
        }
        for i in 0..100_000u32 {
            let v = f32::from_bits(i.wrapping_mul(42_949));
            if !v.is_nan() {
                assert_eq!(bf16::narrow(v), bf16::from_f32(v));
            }
        }
    }
}
