//! The Cholesky factorisation.

use crate::layout::{Workspace, check, item, item_mut, row_major_mut};
use crate::real::Scalar;
use faer::Par;
use faer::linalg::cholesky::llt::factor::{LltError, cholesky_in_place, cholesky_in_place_scratch};
use rushlight_core::{Error, Result};

pub fn cholesky<T: Scalar>(batch: usize, n: usize, a: &[T], out: &mut [T]) -> Result<()> {
    let call = "linalg.cholesky";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "out", out.len(), batch, n, n)?;
    if out.is_empty() {
        return Ok(());
    }
    let mut workspace = Workspace::new(cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default()));
    // faer is fast on columns only, so the factor is computed column-major and transposed at the end.
    let mut columns = vec![T::ZERO; n * n];
    for i in 0..batch {
        let a = item(a, i, n * n);
        for (r, row) in a.chunks_exact(n).enumerate() {
            for (c, &x) in row[..=r].iter().enumerate() {
                columns[c * n + r] = x;
            }
        }
        let view = row_major_mut(&mut columns, n, n).transpose_mut();
        let done = cholesky_in_place(view, Default::default(), Par::Seq, workspace.stack(), Default::default());
        if let Err(LltError::NonPositivePivot { index }) = done {
            return Err(Error::numerical(format!(
                "{call}: (Batch element {i}): The factorization could not be completed because the input is not \
                 positive-definite (the leading minor of order {} is not positive-definite).",
                index + 1
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
