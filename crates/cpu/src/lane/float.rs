//! Lanes of floats.

use super::Lane;
use super::gamma::{digamma, erfinv64, polygamma};
use crate::isa::Isa;
use rushlight_core::rows::{Num, Real};
use std::ops::{Add, Div, Mul, Neg, Sub};

macro_rules! operators {
    ($t:ty: $($trait:ident $method:ident $op:tt)*) => {
        $(impl<I: Isa> $trait for Lane<$t, I> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, b: Self) -> Self {
                Self::new(self.0 $op b.0)
            }
        })*
        impl<I: Isa> Neg for Lane<$t, I> {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Self::new(-self.0)
            }
        }
    };
}

macro_rules! number {
    ($t:ty, $pow:expr) => {
        operators!($t: Add add + Sub sub - Mul mul * Div div /);

        impl<I: Isa> Num for Lane<$t, I> {
            type Mask = bool;
            #[inline(always)]
            fn lit(v: f64) -> Self {
                Self::new(v as $t)
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
                if (self.0 > b.0) | self.0.is_nan() { self } else { b }
            }
            #[inline(always)]
            fn min(self, b: Self) -> Self {
                if (self.0 < b.0) | self.0.is_nan() { self } else { b }
            }
            #[inline(always)]
            fn abs(self) -> Self {
                Self::new(self.0.abs())
            }
            #[inline(always)]
            fn floor_div(self, b: Self) -> Self {
                // The remainder is exact, so the remaining quotient is an integer up to one rounding.
                let (a, b) = (self.0, b.0);
                let rest = a % b;
                let exact = (a - rest) / b;
                let exact = if (rest != 0.0) & ((b < 0.0) != (rest < 0.0)) { exact - 1.0 } else { exact };
                let whole = exact.floor();
                let whole = if exact - whole > 0.5 { whole + 1.0 } else { whole };
                let whole = if exact == 0.0 { (0.0 as $t).copysign(a / b) } else { whole };
                Self::new(if b == 0.0 { a / b } else { whole })
            }
            #[inline(always)]
            fn trunc_div(self, b: Self) -> Self {
                Self::new((self.0 / b.0).trunc())
            }
            #[inline(always)]
            fn remainder(self, b: Self) -> Self {
                let rest = self.0 % b.0;
                Self::new(if (rest != 0.0) & ((b.0 < 0.0) != (rest < 0.0)) { rest + b.0 } else { rest })
            }
            #[inline(always)]
            fn fmod(self, b: Self) -> Self {
                Self::new(self.0 % b.0)
            }
            #[inline(always)]
            fn pow(self, b: Self) -> Self {
                Self::new($pow(self.0, b.0))
            }
        }
    };
}

number!(f32, super::pow::<I>);
number!(f64, f64::powf);

macro_rules! functions {
    ($t:ty: $($name:ident $f:expr;)*) => {$(
        #[inline(always)]
        fn $name(self) -> Self {
            Self::new($f(self.0))
        }
    )*};
}

impl<I: Isa> Real for Lane<f32, I> {
    functions! { f32:
        exp super::exp::<I>;
        exp2 super::exp2::<I>;
        expm1 super::expm1::<I>;
        log super::log::<I>;
        log2 super::log2::<I>;
        log10 super::log10::<I>;
        log1p super::log1p::<I>;
        sqrt f32::sqrt;
        sin super::sin::<I>;
        cos super::cos::<I>;
        tan super::tan::<I>;
        asin super::asin::<I>;
        acos super::acos::<I>;
        atan super::atan::<I>;
        sinh super::sinh::<I>;
        cosh super::cosh::<I>;
        tanh super::tanh::<I>;
        asinh super::asinh::<I>;
        acosh super::acosh::<I>;
        atanh super::atanh::<I>;
        erf super::erf::<I>;
        erfc super::erfc::<I>;
        erfinv super::erfinv::<I>;
        normal_cdf super::normal_cdf::<I>;
        lgamma |x| libm::lgamma(x as f64) as f32;
        digamma |x| digamma(x as f64) as f32;
        sigmoid super::sigmoid::<I>;
        floor f32::floor;
        ceil f32::ceil;
        round f32::round_ties_even;
        trunc f32::trunc;
    }
    #[inline(always)]
    fn atan2(self, x: Self) -> Self {
        Self::new(super::atan2::<I>(self.0, x.0))
    }
    #[inline(always)]
    fn copysign(self, b: Self) -> Self {
        Self::new(self.0.copysign(b.0))
    }
    #[inline(always)]
    fn step_bits(self, n: Self) -> Self {
        Self::new(f32::from_bits(self.0.to_bits().wrapping_add_signed(n.0 as i32)))
    }
    #[inline(always)]
    fn polygamma(n: Self, x: Self) -> Self {
        Self::new(polygamma(n.0 as f64, x.0 as f64) as f32)
    }
}

impl<I: Isa> Real for Lane<f64, I> {
    functions! { f64:
        exp f64::exp;
        exp2 f64::exp2;
        expm1 f64::exp_m1;
        log f64::ln;
        log2 f64::log2;
        log10 f64::log10;
        log1p f64::ln_1p;
        sqrt f64::sqrt;
        sin super::sin64::<I>;
        cos super::cos64::<I>;
        tan f64::tan;
        asin f64::asin;
        acos f64::acos;
        atan f64::atan;
        sinh f64::sinh;
        cosh f64::cosh;
        tanh f64::tanh;
        asinh libm::asinh;
        acosh |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) };
        atanh libm::atanh;
        erf libm::erf;
        erfc libm::erfc;
        erfinv erfinv64;
        normal_cdf |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
        lgamma libm::lgamma;
        digamma digamma;
        sigmoid |x: f64| 1.0 / (1.0 + (-x).exp());
        floor f64::floor;
        ceil f64::ceil;
        round f64::round_ties_even;
        trunc f64::trunc;
    }
    #[inline(always)]
    fn atan2(self, x: Self) -> Self {
        Self::new(self.0.atan2(x.0))
    }
    #[inline(always)]
    fn copysign(self, b: Self) -> Self {
        Self::new(self.0.copysign(b.0))
    }
    #[inline(always)]
    fn step_bits(self, n: Self) -> Self {
        Self::new(f64::from_bits(self.0.to_bits().wrapping_add_signed(n.0 as i64)))
    }
    #[inline(always)]
    fn polygamma(n: Self, x: Self) -> Self {
        Self::new(polygamma(n.0, x.0))
    }
}
