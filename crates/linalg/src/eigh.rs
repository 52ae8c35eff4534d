//! Eigenvalues and eigenvectors of symmetric matrices.

use crate::layout::{Workspace, check, col_major, col_major_mut, item, item_mut, rescale, transpose};
use crate::real::Scalar;
use faer::Par;
use faer::diag::DiagMut;
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use rushlight_core::{Error, Result};

pub fn eigh<T: Scalar>(
    batch: usize,
    n: usize,
    a: &[T],
    values: &mut [T],
    vectors: &mut [T],
    lower: bool,
) -> Result<()> {
    check("linalg.eigh", "vectors", vectors.len(), batch, n, n)?;
    decompose(batch, n, a, values, Some(vectors), lower)
}

pub fn eigvalsh<T: Scalar>(batch: usize, n: usize, a: &[T], values: &mut [T], lower: bool) -> Result<()> {
    decompose(batch, n, a, values, None, lower)
}

fn decompose<T: Scalar>(
    batch: usize,
    n: usize,
    a: &[T],
    values: &mut [T],
    mut vectors: Option<&mut [T]>,
    lower: bool,
) -> Result<()> {
    let call = if vectors.is_some() { "linalg.eigh" } else { "linalg.eigvalsh" };
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "values", values.len(), batch, n, 1)?;
    if values.is_empty() {
        return Ok(());
    }
    let wanted = if vectors.is_some() { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No };
    let mut workspace = Workspace::new(self_adjoint_evd_scratch::<T>(n, wanted, Par::Seq, Default::default()));
    let mut triangle = vec![T::ZERO; n * n];
    let mut columns = vec![T::ZERO; if vectors.is_some() { n * n } else { 0 }];
    for i in 0..batch {
        load_triangle(item(a, i, n * n), &mut triangle, n, lower);
        let failure = |reason| {
            Error::numerical(format!(
                "{call}: (Batch element {i}): The algorithm failed to converge because the input matrix {reason}."
            ))
        };
        let scale = rescale(&mut triangle).ok_or_else(|| failure("contained non-finite values"))?;
        let values = item_mut(values, i, n);
        self_adjoint_evd(
            col_major(&triangle, n, n),
            DiagMut::from_slice_mut(values),
            vectors.is_some().then(|| col_major_mut(&mut columns, n, n)),
            Par::Seq,
            workspace.stack(),
            Default::default(),
        )
        .map_err(|_| failure("is ill-conditioned or has too many repeated eigenvalues"))?;
        values.iter_mut().for_each(|value| *value = *value * scale);
        if let Some(vectors) = &mut vectors {
            transpose(&columns, item_mut(vectors, i, n * n), n, n);
        }
    }
    Ok(())
}

/// Copies one triangle of `a` to the lower triangle, column-major, of `to`; the rest stays zero, so that what the
/// caller left in the other triangle can do no harm.
fn load_triangle<T: Scalar>(a: &[T], to: &mut [T], n: usize, lower: bool) {
    for (c, column) in to.chunks_exact_mut(n).enumerate() {
        for (r, x) in column.iter_mut().enumerate().skip(c) {
            *x = if lower { a[r * n + c] } else { a[c * n + r] };
        }
    }
}
