//! Functions for rows' expressions. An expression over [`Num`] or [`Real`] has several interpretations: a CPU lane, a
//! tensor (for second derivatives), a [`Trace`] of the values it reads, and, as text, a GPU kernel.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// Boolean values that can be combined.
pub trait Conditions: Copy {
    /// Both.
    fn both(a: Self, b: Self) -> Self;
    /// The opposite.
    fn not(a: Self) -> Self;
}

impl Conditions for bool {
    #[inline(always)]
    fn both(a: bool, b: bool) -> bool {
        a & b
    }
    #[inline(always)]
    fn not(a: bool) -> bool {
        !a
    }
}

/// Arithmetic that integers and floats share. Integers wrap.
pub trait Num: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self> {
    /// The truth value of a comparison.
    type Mask: Conditions;
    /// A constant.
    fn lit(v: f64) -> Self;
    /// `a < b`.
    fn lt(self, b: Self) -> Self::Mask;
    /// `a <= b`.
    fn le(self, b: Self) -> Self::Mask;
    /// `a == b`.
    fn eq(self, b: Self) -> Self::Mask;
    /// `if mask { a } else { b }`, both evaluated.
    fn select(mask: Self::Mask, a: Self, b: Self) -> Self;
    /// The larger; NaN if either is.
    fn max(self, b: Self) -> Self;
    /// The smaller; NaN if either is.
    fn min(self, b: Self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
    /// Quotient rounded down.
    fn floor_div(self, b: Self) -> Self;
    /// Quotient rounded towards zero.
    fn trunc_div(self, b: Self) -> Self;
    /// Remainder with the sign of the divisor.
    fn remainder(self, b: Self) -> Self;
    /// Remainder with the sign of the dividend.
    fn fmod(self, b: Self) -> Self;
    /// Power.
    fn pow(self, b: Self) -> Self;
}

macro_rules! real {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// The functions of a real variable that rows may use.
        pub trait Real: Num + Div<Output = Self> {
            $($(#[$doc])* fn $name(self) -> Self;)*
            /// Angle of the point `(x, self)`.
            fn atan2(self, x: Self) -> Self;
            /// `self` with the sign of `b`.
            fn copysign(self, b: Self) -> Self;
            /// The number whose bits, as an integer, are `n` more.
            fn step_bits(self, n: Self) -> Self;
            /// The polygamma function of order `n`.
            fn polygamma(n: Self, x: Self) -> Self;
        }

        /// The same as free functions, so that an expression reads the same in Rust and in C.
        pub mod functions {
            use super::{Conditions, Num, Real};
            $($(#[$doc])* #[inline(always)] pub fn $name<R: Real>(x: R) -> R { R::$name(x) })*
            /// Angle of the point `(x, y)`.
            #[inline(always)] pub fn atan2<R: Real>(y: R, x: R) -> R { R::atan2(y, x) }
            /// `a` with the sign of `b`.
            #[inline(always)] pub fn copysign<R: Real>(a: R, b: R) -> R { R::copysign(a, b) }
            /// The number whose bits, as an integer, are `n` more than those of `x`.
            #[inline(always)] pub fn step_bits<R: Real>(x: R, n: R) -> R { R::step_bits(x, n) }
            /// The polygamma function of order `n`.
            #[inline(always)] pub fn polygamma<R: Real>(n: R, x: R) -> R { R::polygamma(n, x) }
            /// `a < b`.
            #[inline(always)] pub fn lt<N: Num>(a: N, b: N) -> N::Mask { N::lt(a, b) }
            /// `a <= b`.
            #[inline(always)] pub fn le<N: Num>(a: N, b: N) -> N::Mask { N::le(a, b) }
            /// `a > b`.
            #[inline(always)] pub fn gt<N: Num>(a: N, b: N) -> N::Mask { N::lt(b, a) }
            /// `a >= b`.
            #[inline(always)] pub fn ge<N: Num>(a: N, b: N) -> N::Mask { N::le(b, a) }
            /// `a == b`.
            #[inline(always)] pub fn eq<N: Num>(a: N, b: N) -> N::Mask { N::eq(a, b) }
            /// `a != b`.
            #[inline(always)] pub fn ne<N: Num>(a: N, b: N) -> N::Mask { N::Mask::not(N::eq(a, b)) }
            /// `if mask { a } else { b }`, both evaluated.
            #[inline(always)] pub fn select<N: Num>(mask: N::Mask, a: N, b: N) -> N { N::select(mask, a, b) }
            /// Both conditions.
            #[inline(always)] pub fn both<M: Conditions>(a: M, b: M) -> M { M::both(a, b) }
            /// -1, 0 or 1.
            #[inline(always)] pub fn sign<N: Num>(x: N) -> N {
                let (zero, one) = (N::lit(0.0), N::lit(1.0));
                select(lt(zero, x), one, select(lt(x, zero), -one, zero))
            }
            /// The larger; NaN if either is.
            #[inline(always)] pub fn max<N: Num>(a: N, b: N) -> N { N::max(a, b) }
            /// The smaller; NaN if either is.
            #[inline(always)] pub fn min<N: Num>(a: N, b: N) -> N { N::min(a, b) }
            /// Magnitude.
            #[inline(always)] pub fn abs<N: Num>(a: N) -> N { N::abs(a) }
            /// Quotient rounded down.
            #[inline(always)] pub fn floor_div<N: Num>(a: N, b: N) -> N { N::floor_div(a, b) }
            /// Quotient rounded towards zero.
            #[inline(always)] pub fn trunc_div<N: Num>(a: N, b: N) -> N { N::trunc_div(a, b) }
            /// Remainder with the sign of the divisor.
            #[inline(always)] pub fn remainder<N: Num>(a: N, b: N) -> N { N::remainder(a, b) }
            /// Remainder with the sign of the dividend.
            #[inline(always)] pub fn fmod<N: Num>(a: N, b: N) -> N { N::fmod(a, b) }
            /// Power.
            #[inline(always)] pub fn pow<N: Num>(a: N, b: N) -> N { N::pow(a, b) }
        }

        impl Real for Trace {
            $(#[inline] fn $name(self) -> Self { self.read() })*
            fn atan2(self, x: Self) -> Self { self + x }
            fn copysign(self, b: Self) -> Self { self + b }
            fn step_bits(self, n: Self) -> Self { self + n }
            fn polygamma(n: Self, x: Self) -> Self { n + x }
        }
    };
}

real! {
    /// e to the power.
    exp;
    /// Two to the power.
    exp2;
    /// `exp(x) - 1` without cancellation.
    expm1;
    /// Natural logarithm.
    log;
    /// Binary logarithm.
    log2;
    /// Decimal logarithm.
    log10;
    /// `log(1 + x)` without cancellation.
    log1p;
    /// Square root.
    sqrt;
    /// Sine.
    sin;
    /// Cosine.
    cos;
    /// Tangent.
    tan;
    /// Inverse sine.
    asin;
    /// Inverse cosine.
    acos;
    /// Inverse tangent.
    atan;
    /// Hyperbolic sine.
    sinh;
    /// Hyperbolic cosine.
    cosh;
    /// Hyperbolic tangent.
    tanh;
    /// Inverse hyperbolic sine.
    asinh;
    /// Inverse hyperbolic cosine.
    acosh;
    /// Inverse hyperbolic tangent.
    atanh;
    /// Error function.
    erf;
    /// `1 - erf(x)` without cancellation.
    erfc;
    /// Inverse error function.
    erfinv;
    /// Normal distribution function, `(1 + erf(x / sqrt(2))) / 2`, with the absolute precision of numbers near one.
    normal_cdf;
    /// Logarithm of the magnitude of the gamma function.
    lgamma;
    /// Derivative of `lgamma`.
    digamma;
    /// Logistic function, `1 / (1 + exp(-x))`.
    sigmoid;
    /// Largest integer not above.
    floor;
    /// Smallest integer not below.
    ceil;
    /// Nearest integer, ties to even.
    round;
    /// Integer part.
    trunc;
}

/// A number that records from which of a derivative's values it was computed: bit 0 the incoming gradient, bits 1 to 3
/// the inputs, bit 4 the output. Evaluating a derivative on it shows which values autograd must save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Bits of the values read.
    pub mask: u8,
    /// Whether it is one of the values itself, not a result.
    pub untouched: bool,
}

impl Trace {
    /// The value numbered `bit`.
    pub const fn value(bit: u8) -> Self {
        Self { mask: 1 << bit, untouched: true }
    }

    fn read(self) -> Self {
        Self { untouched: false, ..self }
    }

    fn with(self, b: Self) -> Self {
        Self { mask: self.mask | b.mask, untouched: false }
    }
}

macro_rules! trace_operators {
    ($($trait:ident $method:ident)*) => {$(
        impl $trait for Trace {
            type Output = Self;
            fn $method(self, b: Self) -> Self {
                self.with(b)
            }
        }
    )*};
}
trace_operators!(Add add Sub sub Mul mul Div div);

impl Neg for Trace {
    type Output = Self;
    fn neg(self) -> Self {
        self.read()
    }
}

impl Conditions for Trace {
    fn both(a: Self, b: Self) -> Self {
        a + b
    }
    fn not(a: Self) -> Self {
        a.read()
    }
}

impl Num for Trace {
    type Mask = Trace;
    fn lit(_: f64) -> Self {
        Self { mask: 0, untouched: false }
    }
    fn lt(self, b: Self) -> Self {
        self + b
    }
    fn le(self, b: Self) -> Self {
        self + b
    }
    fn eq(self, b: Self) -> Self {
        self + b
    }
    fn select(mask: Self, a: Self, b: Self) -> Self {
        mask + a + b
    }
    fn max(self, b: Self) -> Self {
        self + b
    }
    fn min(self, b: Self) -> Self {
        self + b
    }
    fn abs(self) -> Self {
        self.read()
    }
    fn floor_div(self, b: Self) -> Self {
        self + b
    }
    fn trunc_div(self, b: Self) -> Self {
        self + b
    }
    fn remainder(self, b: Self) -> Self {
        self + b
    }
    fn fmod(self, b: Self) -> Self {
        self + b
    }
    fn pow(self, b: Self) -> Self {
        self + b
    }
}
