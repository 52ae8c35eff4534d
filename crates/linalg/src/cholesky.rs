//! The Cholesky factorisation.

use crate::layout::{check, col_major_mut, item, item_mut};
use crate::real::Scalar;
use crate::simd::leaf::{LEAF, cholesky_leaf};
use crate::simd::product::product;
use crate::triangular::{Triangle, solve_in_place};
use crate::view::MatMut;
use rushlight_core::{Error, Result};

/// Columns that one product updates: their part above the diagonal is computed for nothing.
const STRIP: usize = 32;

/// Factors a matrix with contiguous columns in place, reading and writing the lower triangle; what is above it has no
/// meaning afterwards. `Err` has the number of leading columns that have a factor.
fn factor<T: Scalar>(mut a: MatMut<'_, T>) -> std::result::Result<(), usize> {
    let n = a.rows();
    if n <= LEAF {
        let done = cholesky_leaf(a.reborrow());
        return if done == n { Ok(()) } else { Err(done) };
    }
    let half = (n / 2).next_multiple_of(LEAF);
    let (left, right) = a.split_cols(half);
    let (mut a00, mut a10) = left.split_rows(half);
    let mut a11 = right.split_rows(half).1;
    factor(a00.reborrow())?;
    // L₁₀ L₀₀ᵀ = A₁₀
    solve_in_place(a00.as_ref(), Triangle { upper: false, unit: false }, a10.reborrow().transpose());
    let (rest, l10) = (n - half, a10.as_ref());
    for start in (0..rest).step_by(STRIP) {
        let end = rest.min(start + STRIP);
        let to = a11.reborrow().block(start..rest, start..end);
        product(to, l10.block(start..rest, 0..half), l10.block(start..end, 0..half).transpose(), true);
    }
    factor(a11).map_err(|done| half + done)
}

pub fn cholesky<T: Scalar>(batch: usize, n: usize, a: &[T], out: &mut [T]) -> Result<()> {
    let call = "linalg.cholesky";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "out", out.len(), batch, n, n)?;
    if out.is_empty() {
        return Ok(());
    }
    // Registers hold parts of columns, so the factor is computed column-major and transposed at the end.
    let mut columns = vec![T::ZERO; n * n];
    for i in 0..batch {
        let a = item(a, i, n * n);
        for (r, row) in a.chunks_exact(n).enumerate() {
            for (c, &x) in row[..=r].iter().enumerate() {
                columns[c * n + r] = x;
            }
        }
        if let Err(done) = factor(col_major_mut(&mut columns, n, n)) {
            return Err(Error::numerical(format!(
                "{call}: (Batch element {i}): The factorization could not be completed because the input is not \
                 positive-definite (the leading minor of order {} is not positive-definite).",
                done + 1
            )));
        }
        for (r, row) in item_mut(out, i, n * n).chunks_exact_mut(n).enumerate() {
            for (c, x) in row.iter_mut().enumerate() {
                *x = if c <= r { columns[c * n + r] } else { T::ZERO };
            }
        }
    }
    Ok(())
}
