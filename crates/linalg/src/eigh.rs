//! Eigenvalues and eigenvectors of symmetric matrices.

use crate::layout::{Workspace, check, col_major, col_major_mut, item, item_mut, rescale, transpose};
use crate::real::Scalar;
use faer::diag::DiagMut;
use faer::linalg::evd::tridiag::{tridiag_in_place, tridiag_in_place_scratch};
use faer::linalg::evd::{ComputeEigenvectors, SelfAdjointEvdParams, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::qr::no_pivoting::factor::recommended_block_size;
use faer::{Auto, Par, Spec};
use rushlight_core::{Error, Result};

/// faer switches from divide and conquer to QR iteration at 128, and its QR iteration loses about one unit of
/// precision for every row. Switching this low costs no time and keeps the error at a few units.
const QR_ITERATION_BELOW: usize = 8;

fn params<T: Scalar>() -> Spec<SelfAdjointEvdParams, T> {
    SelfAdjointEvdParams { recursion_threshold: QR_ITERATION_BELOW, ..<SelfAdjointEvdParams as Auto<T>>::auto() }.into()
}

const NOT_FINITE: &str = "contained non-finite values";
const NOT_CONVERGED: &str = "is ill-conditioned or has too many repeated eigenvalues";

fn failure(call: &str, element: usize, reason: &str) -> Error {
    Error::numerical(format!(
        "{call}: (Batch element {element}): The algorithm failed to converge because the input matrix {reason}."
    ))
}

pub fn eigh<T: Scalar>(
    batch: usize,
    n: usize,
    a: &[T],
    values: &mut [T],
    vectors: &mut [T],
    lower: bool,
) -> Result<()> {
    let call = "linalg.eigh";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "values", values.len(), batch, n, 1)?;
    check(call, "vectors", vectors.len(), batch, n, n)?;
    if values.is_empty() {
        return Ok(());
    }
    let need = self_adjoint_evd_scratch::<T>(n, ComputeEigenvectors::Yes, Par::Seq, params());
    let mut workspace = Workspace::new(need);
    let mut triangle = vec![T::ZERO; n * n];
    let mut columns = vec![T::ZERO; n * n];
    for i in 0..batch {
        load_triangle(item(a, i, n * n), &mut triangle, n, lower);
        let scale = rescale(&mut triangle).ok_or_else(|| failure(call, i, NOT_FINITE))?;
        let values = item_mut(values, i, n);
        self_adjoint_evd(
            col_major(&triangle, n, n),
            DiagMut::from_slice_mut(values),
            Some(col_major_mut(&mut columns, n, n)),
            Par::Seq,
            workspace.stack(),
            params(),
        )
        .map_err(|_| failure(call, i, NOT_CONVERGED))?;
        values.iter_mut().for_each(|value| *value *= scale);
        transpose(&columns, item_mut(vectors, i, n * n), n, n);
    }
    Ok(())
}

pub fn eigvalsh<T: Scalar>(batch: usize, n: usize, a: &[T], values: &mut [T], lower: bool) -> Result<()> {
    let call = "linalg.eigvalsh";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "values", values.len(), batch, n, 1)?;
    if values.is_empty() {
        return Ok(());
    }
    let mut workspace = Workspace::new(tridiag_in_place_scratch::<T>(n, Par::Seq, Default::default()));
    let block = recommended_block_size::<T>(n, n);
    let mut reflectors = vec![T::ZERO; block * (n - 1)];
    let mut triangle = vec![T::ZERO; n * n];
    let mut beside = vec![T::ZERO; n];
    for i in 0..batch {
        load_triangle(item(a, i, n * n), &mut triangle, n, lower);
        let scale = rescale(&mut triangle).ok_or_else(|| failure(call, i, NOT_FINITE))?;
        tridiag_in_place(
            col_major_mut(&mut triangle, n, n),
            col_major_mut(&mut reflectors, block, n - 1),
            Par::Seq,
            workspace.stack(),
            Default::default(),
        );
        let values = item_mut(values, i, n);
        for j in 0..n {
            values[j] = triangle[j * n + j];
            beside[j] = if j + 1 < n { triangle[j * n + j + 1] } else { T::ZERO };
        }
        if !tridiagonal_values(values, &mut beside) {
            return Err(failure(call, i, NOT_CONVERGED));
        }
        values.iter_mut().for_each(|value| *value *= scale);
    }
    Ok(())
}

/// Copies one triangle of `a` to the lower triangle, column-major, of `to` and zeroes the rest, so that what the
/// caller left in the other triangle can do no harm.
fn load_triangle<T: Scalar>(a: &[T], to: &mut [T], n: usize, lower: bool) {
    for (c, column) in to.chunks_exact_mut(n).enumerate() {
        for (r, x) in column.iter_mut().enumerate() {
            *x = match (r >= c, lower) {
                (true, true) => a[r * n + c],
                (true, false) => a[c * n + r],
                (false, _) => T::ZERO,
            };
        }
    }
}

/// Turns the diagonal of a symmetric tridiagonal matrix into its eigenvalues, ascending, by QL iteration with
/// implicit shifts. `beside` holds the entries next to the diagonal, and one more. `false` if it does not converge.
fn tridiagonal_values<T: Scalar>(diagonal: &mut [T], beside: &mut [T]) -> bool {
    let n = diagonal.len();
    let two = T::ONE + T::ONE;
    // LAPACK's allowance; about two sweeps per eigenvalue are usual.
    let mut sweeps_left = 30 * n;
    let mut top = 0;
    while top < n {
        // The block from `top` on ends where the matrix falls apart.
        let negligible = |i: usize| {
            beside[i].abs() <= T::MIN_POSITIVE + T::EPSILON * (diagonal[i].abs() * diagonal[i + 1].abs()).sqrt()
        };
        let end = (top..n - 1).find(|&i| negligible(i)).unwrap_or(n - 1);
        if end == top {
            top += 1;
            continue;
        }
        if sweeps_left == 0 {
            return false;
        }
        sweeps_left -= 1;
        // Wilkinson's shift: the eigenvalue of the leading 2x2 block that is nearer to its first entry.
        let half_gap = (diagonal[top + 1] - diagonal[top]) / (two * beside[top]);
        let radius = (half_gap * half_gap + T::ONE).sqrt();
        let away = if half_gap < T::ZERO { half_gap - radius } else { half_gap + radius };
        let mut chase = diagonal[end] - diagonal[top] + beside[top] / away;
        let (mut sin, mut cos, mut carried) = (T::ONE, T::ONE, T::ZERO);
        let mut split = false;
        for i in (top..end).rev() {
            let (bulge, kept) = (sin * beside[i], cos * beside[i]);
            let length = (bulge * bulge + chase * chase).sqrt();
            beside[i + 1] = length;
            if length == T::ZERO {
                // The rotation vanished: the block has split here by itself.
                diagonal[i + 1] -= carried;
                split = true;
                break;
            }
            sin = bulge / length;
            cos = chase / length;
            let base = diagonal[i + 1] - carried;
            let turned = (diagonal[i] - base) * sin + two * cos * kept;
            carried = sin * turned;
            diagonal[i + 1] = base + carried;
            chase = cos * turned - kept;
        }
        if !split {
            diagonal[top] -= carried;
            beside[top] = chase;
        }
        beside[end] = T::ZERO;
    }
    diagonal.sort_unstable_by(|x, y| x.partial_cmp(y).unwrap_or(std::cmp::Ordering::Equal));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tridiagonal_values_of_a_known_matrix() {
        // Zeros on the diagonal and ones beside it: the eigenvalues are 2 cos(kπ / (n + 1)).
        for n in [1, 2, 3, 50] {
            let (mut diagonal, mut beside) = (vec![0.0f64; n], vec![1.0; n]);
            beside[n - 1] = 0.0;
            assert!(tridiagonal_values(&mut diagonal, &mut beside));
            for (k, value) in diagonal.iter().enumerate() {
                let expected = 2.0 * (std::f64::consts::PI * (n - k) as f64 / (n + 1) as f64).cos();
                assert!((value - expected).abs() < 1e-14, "{n}: {value} instead of {expected}");
            }
        }
    }

    #[test]
    fn tridiagonal_values_of_matrices_that_fall_apart() {
        let (mut diagonal, mut beside) = ([3.0f32, 1.0, 2.0, 2.0], [0.0, 0.0, 1.0, 0.0]);
        assert!(tridiagonal_values(&mut diagonal, &mut beside));
        for (value, expected) in diagonal.iter().zip([1.0, 1.0, 3.0, 3.0]) {
            assert!((value - expected).abs() < 1e-6);
        }
        let (mut diagonal, mut beside) = ([0.0f64; 5], [0.0; 5]);
        assert!(tridiagonal_values(&mut diagonal, &mut beside));
        assert_eq!(diagonal, [0.0; 5]);
    }
}
