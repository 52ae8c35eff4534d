//! Lanes of integers. Everything wraps; a division by zero gives zero (the tensor layer reports it).

use super::Lane;
use crate::isa::Isa;
use rushlight_core::rows::{Bits, Num};
use std::ops::{Add, Mul, Neg, Sub};

/// Operations that differ between signed and unsigned integers.
trait Sign: Copy {
    fn magnitude(self) -> Self;
    fn floor_quotient(self, b: Self) -> Self;
    fn floor_remainder(self, b: Self) -> Self;
    fn power(self, b: Self) -> Self;
    /// All bits the sign.
    fn sign_fill(self) -> Self;
}

macro_rules! power_by_squaring {
    ($base:expr, $exponent:expr) => {{
        let (mut base, mut exponent, mut y) = ($base, $exponent, 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                y = base.wrapping_mul(y);
            }
            base = base.wrapping_mul(base);
            exponent >>= 1;
        }
        y
    }};
}

macro_rules! signed {
    ($($t:ty)*) => {$(
        impl Sign for $t {
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.wrapping_abs()
            }
            #[inline(always)]
            fn floor_quotient(self, b: Self) -> Self {
                let (q, r) = (self.wrapping_div(b), self.wrapping_rem(b));
                q.wrapping_sub(((r != 0) & ((r < 0) != (b < 0))) as $t)
            }
            #[inline(always)]
            fn floor_remainder(self, b: Self) -> Self {
                let r = self.wrapping_rem(b);
                if (r != 0) & ((r < 0) != (b < 0)) { r.wrapping_add(b) } else { r }
            }
            #[inline(always)]
            fn power(self, b: Self) -> Self {
                if b >= 0 {
                    return power_by_squaring!(self, b);
                }
                match self {
                    1 => 1,
                    -1 => if b & 1 == 0 { 1 } else { -1 },
                    _ => 0,
                }
            }
            #[inline(always)]
            fn sign_fill(self) -> Self {
                self >> (<$t>::BITS - 1)
            }
        }
    )*};
}
signed!(i64 i32 i16 i8);

impl Sign for u8 {
    #[inline(always)]
    fn magnitude(self) -> Self {
        self
    }
    #[inline(always)]
    fn floor_quotient(self, b: Self) -> Self {
        self / b
    }
    #[inline(always)]
    fn floor_remainder(self, b: Self) -> Self {
        self % b
    }
    #[inline(always)]
    fn power(self, b: Self) -> Self {
        power_by_squaring!(self, b)
    }
    #[inline(always)]
    fn sign_fill(self) -> Self {
        0
    }
}

macro_rules! integer {
    ($($t:ty)*) => {$(
        impl<I: Isa> Add for Lane<$t, I> {
            type Output = Self;
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                Self::new(self.0.wrapping_add(b.0))
            }
        }
        impl<I: Isa> Sub for Lane<$t, I> {
            type Output = Self;
            #[inline(always)]
            fn sub(self, b: Self) -> Self {
                Self::new(self.0.wrapping_sub(b.0))
            }
        }
        impl<I: Isa> Mul for Lane<$t, I> {
            type Output = Self;
            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                Self::new(self.0.wrapping_mul(b.0))
            }
        }
        impl<I: Isa> Neg for Lane<$t, I> {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Self::new(self.0.wrapping_neg())
            }
        }
        impl<I: Isa> Lane<$t, I> {
            /// `f(self, b)` if `b` is not zero, else zero.
            #[inline(always)]
            fn divided(self, b: Self, f: impl Fn($t, $t) -> $t) -> Self {
                let y = f(self.0, if b.0 == 0 { 1 } else { b.0 });
                Self::new(if b.0 == 0 { 0 } else { y })
            }
        }
        impl<I: Isa> Num for Lane<$t, I> {
            type Mask = bool;
            #[inline(always)]
            fn lit(v: f64) -> Self {
                Self::new(v as i64 as $t)
            }
            #[inline(always)]
            fn lt(self, b: Self) -> bool {
                self.0 < b.0
            }
            #[inline(always)]
            fn le(self, b: Self) -> bool {
                self.0 <= b.0
            }
            #[inline(always)]
            fn eq(self, b: Self) -> bool {
                self.0 == b.0
            }
            #[inline(always)]
            fn select(mask: bool, a: Self, b: Self) -> Self {
                if mask { a } else { b }
            }
            #[inline(always)]
            fn max(self, b: Self) -> Self {
                Self::new(Ord::max(self.0, b.0))
            }
            #[inline(always)]
            fn min(self, b: Self) -> Self {
                Self::new(Ord::min(self.0, b.0))
            }
            #[inline(always)]
            fn abs(self) -> Self {
                Self::new(self.0.magnitude())
            }
            #[inline(always)]
            fn floor_div(self, b: Self) -> Self {
                self.divided(b, Sign::floor_quotient)
            }
            #[inline(always)]
            fn trunc_div(self, b: Self) -> Self {
                self.divided(b, <$t>::wrapping_div)
            }
            #[inline(always)]
            fn remainder(self, b: Self) -> Self {
                self.divided(b, Sign::floor_remainder)
            }
            #[inline(always)]
            fn fmod(self, b: Self) -> Self {
                self.divided(b, <$t>::wrapping_rem)
            }
            #[inline(always)]
            fn pow(self, b: Self) -> Self {
                Self::new(self.0.power(b.0))
            }
        }
        impl<I: Isa> Bits for Lane<$t, I> {
            #[inline(always)]
            fn and(self, b: Self) -> Self {
                Self::new(self.0 & b.0)
            }
            #[inline(always)]
            fn or(self, b: Self) -> Self {
                Self::new(self.0 | b.0)
            }
            #[inline(always)]
            fn xor(self, b: Self) -> Self {
                Self::new(self.0 ^ b.0)
            }
            #[inline(always)]
            fn shl(self, b: Self) -> Self {
                let fits = (b.0 as u64) < <$t>::BITS as u64;
                Self::new(if fits { self.0.wrapping_shl(b.0 as u32) } else { 0 })
            }
            #[inline(always)]
            fn shr(self, b: Self) -> Self {
                let fits = (b.0 as u64) < <$t>::BITS as u64;
                Self::new(if fits { self.0.wrapping_shr(b.0 as u32) } else { self.0.sign_fill() })
            }
        }
    )*};
}
integer!(i64 i32 i16 i8 u8);
