//! Scalar mathematics written so that the compiler can vectorise it.
//!
//! Every function is a pure, branch-free expression over one element: put in a loop inside a kernel compiled for an [`Isa`], it
//! becomes vector code for that level. Other kernels call the free functions, such as [`exp::<I>`](exp()).

mod exp;

pub use exp::{exp, exp2};

use crate::isa::Isa;

/// `a * b + c`, fused where that is one instruction.
#[inline(always)]
pub fn fma<I: Isa>(a: f32, b: f32, c: f32) -> f32 {
    if I::FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `a * b + c`, fused where that is one instruction.
#[inline(always)]
pub fn fma64<I: Isa>(a: f64, b: f64, c: f64) -> f64 {
    if I::FMA { a.mul_add(b, c) } else { a * b + c }
}

/// The polynomial with coefficients `c`, constant first, at `x`.
#[inline(always)]
fn poly<I: Isa, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[N - 1];
    for i in (0..N - 1).rev() {
        y = fma::<I>(y, x, c[i]);
    }
    y
}

#[cfg(test)]
mod tests;
