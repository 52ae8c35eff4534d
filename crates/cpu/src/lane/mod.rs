//! Scalar mathematics written so that the compiler can vectorise it.
//!
//! Every function is a pure, branch-free expression over one element: in a loop inside a kernel compiled for an
//! [`Isa`], it becomes vector code for that level. Other kernels call the free functions, such as [`exp::<I>`](exp());
//! op rows run on [`Lane`], which provides the same functions through the traits of `rushlight_core::rows`.
//!
//! Common `f32` functions are computed in `f32` (modules `exp`, `log`, `erf`, `trig`), the others through `f64`
//! (`wide`). `f64` functions other than sine and cosine, and the gamma family, call scalar functions.

mod erf;
mod exp;
mod float;
mod gamma;
mod half;
mod int;
mod log;
mod trig;
mod wide;

pub use erf::{erf, normal_cdf};
pub use exp::{exp, exp_bounded, exp2, expm1, one_minus_exp, sigmoid, tanh};
pub use gamma::{digamma, polygamma};
pub use half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
pub use log::{log, log1p, log2, log10};
pub use trig::{AnyAngle, LARGEST_ANGLE, LARGEST_ANGLE64, cos, cos64, sin, sin_cos, sin_cos_turns, sin64, tan};
pub use wide::{acos, acosh, asin, asinh, atan, atan2, atanh, cosh, erfc, erfinv, pow, sinh};

use crate::isa::Isa;
use std::marker::PhantomData;

/// One element of a vector, the number type of op rows on the CPU.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Lane<T, I>(pub T, PhantomData<I>);

impl<T, I: Isa> Lane<T, I> {
    /// A lane holding `value`.
    #[inline(always)]
    pub fn new(value: T) -> Self {
        Self(value, PhantomData)
    }
}

/// `a * b + c`, fused if that is one instruction.
#[inline(always)]
pub fn fma<I: Isa>(a: f32, b: f32, c: f32) -> f32 {
    if I::FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `a * b + c`, fused if that is one instruction.
#[inline(always)]
pub fn fma64<I: Isa>(a: f64, b: f64, c: f64) -> f64 {
    if I::FMA { a.mul_add(b, c) } else { a * b + c }
}

/// The polynomial with coefficients `c`, constant first, at `x`.
///
/// Terms are paired (Estrin's scheme): Horner's long chain of dependent steps would leave vector units
/// waiting.
#[inline(always)]
fn poly<I: Isa, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let pair = |i: usize| if i + 1 < N { fma::<I>(c[i + 1], x, c[i]) } else { c[i] };
    let x2 = x * x;
    match N {
        3 => fma::<I>(c[2], x2, pair(0)),
        5 | 6 => fma::<I>(fma::<I>(pair(4), x2, pair(2)), x2, pair(0)),
        7 | 8 => fma::<I>(fma::<I>(pair(6), x2, pair(4)), x2 * x2, fma::<I>(pair(2), x2, pair(0))),
        _ => {
            let mut y = c[N - 1];
            for i in (0..N - 1).rev() {
                y = fma::<I>(y, x, c[i]);
            }
            y
        }
    }
}

/// The same in `f64`, by Horner's scheme.
#[inline(always)]
fn poly64<I: Isa, const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut y = c[N - 1];
    for i in (0..N - 1).rev() {
        y = fma64::<I>(y, x, c[i]);
    }
    y
}

/// `x` kept between two bounds; NaN stays.
#[inline(always)]
pub fn clamp<T: PartialOrd>(x: T, lo: T, hi: T) -> T {
    let x = if x > hi { hi } else { x };
    if x < lo { lo } else { x }
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// ln 2 in two parts; products of the first with integers up to 2^15 are exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;

#[cfg(test)]
mod tests;
