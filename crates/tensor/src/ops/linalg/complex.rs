//! Systems of complex equations, as real ones of twice the size.
//!
//! `A + i B` stands for the real matrix `[[A, -B], [B, A]]`: sums, products and inverses of such matrices are again of
//! that form. Everything is made of recorded ops, so the derivatives follow.

use crate::ops::complex::complex;
use crate::{Tensor, cat};
use rushlight_core::{Error, Result};

/// The real matrices of complex ones.
fn embedded(a: &Tensor) -> Result<Tensor> {
    let (re, im) = (a.real()?, a.imag()?);
    let (upper, lower) = (cat(&[&re, &im.neg()?], -1)?, cat(&[&im, &re], -1)?);
    cat(&[&upper, &lower], -2)
}

/// The complex matrices whose parts lie one above the other.
fn stacked(parts: &Tensor) -> Result<Tensor> {
    let n = parts.size(-2)? / 2;
    complex(&parts.narrow(-2, 0, n)?, &parts.narrow(-2, n as isize, n)?)
}

fn square(call: &str, a: &Tensor) -> Result<()> {
    match a.shape() {
        [.., m, n] if m == n => Ok(()),
        [.., m, n] => {
            Err(Error::shape(format!("{call}: A must be batches of square matrices, but they are {m} by {n} matrices")))
        }
        shape => Err(Error::shape(format!(
            "{call}: The input tensor A must have at least 2 dimensions, got shape {shape:?}"
        ))),
    }
}

/// The inverses of complex matrices.
pub(super) fn inv(a: &Tensor) -> Result<Tensor> {
    square("linalg.inv", a)?;
    let n = a.size(-1)?;
    stacked(&embedded(a)?.inv()?.narrow(-1, 0, n)?)
}

/// The solution of `A X = B`, of which at least one side is complex; both have one dtype.
pub(super) fn solve(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    square("linalg.solve", a)?;
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(format!(
            "linalg.solve: Expected A and B to have the same dtype, but found A of type {} and B of type {} instead",
            a.dtype(),
            b.dtype()
        )));
    }
    stacked(&embedded(a)?.solve(&cat(&[&b.real()?, &b.imag()?], -2)?, true)?)
}
