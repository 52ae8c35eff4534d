//! The trait of the two element types.

use crate::simd::Registers;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// Operations on an element type.
pub trait Scalar:
    Registers
    + Copy
    + Default
    + Send
    + Sync
    + 'static
    + PartialOrd
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
{
    const ZERO: Self;
    const ONE: Self;
    const EPSILON: Self;
    const MIN_POSITIVE: Self;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn ln(self) -> Self;
    fn is_finite(self) -> bool;
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! scalar {
    ($($t:ident)*) => {$(
        impl Scalar for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const EPSILON: Self = $t::EPSILON;
            const MIN_POSITIVE: Self = $t::MIN_POSITIVE;
            fn abs(self) -> Self {
                $t::abs(self)
            }
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            fn ln(self) -> Self {
                $t::ln(self)
            }
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            fn from_f64(value: f64) -> Self {
                value as $t
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    )*};
}
scalar!(f32 f64);
