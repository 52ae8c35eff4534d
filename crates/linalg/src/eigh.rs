//! Eigenvalues and eigenvectors of symmetric matrices.

use crate::conquer::TridiagonalProblem;
use crate::layout::{check, item, item_mut, rescale, transpose_ordered};
use crate::real::Scalar;
use crate::reflector::{self, BlockWork};
use crate::small;
use crate::tridiagonal::Tridiagonal;
use rushlight_core::{Error, Result};

const NOT_FINITE: &str = "contained non-finite values";
const NOT_CONVERGED: &str = "is ill-conditioned or has too many repeated eigenvalues";

fn failure(call: &str, element: usize, reason: &str) -> Error {
    Error::numerical(format!(
        "{call}: (Batch element {element}): The algorithm failed to converge because the input matrix {reason}."
    ))
}

/// A matrix of at most [`small::MAX_ROWS`] rows.
fn solve_small<T: Scalar>(call: &str, i: usize, a: &[T], n: usize, lower: bool, vectors: bool) -> Result<small::Eigen> {
    small::Eigen::new(a, n, lower, vectors).map_err(|failed| {
        let reason = match failed {
            small::Failure::NotFinite => NOT_FINITE,
            small::Failure::NotConverged => NOT_CONVERGED,
        };
        failure(call, i, reason)
    })
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
    if n <= small::MAX_ROWS {
        for i in 0..batch {
            let found = solve_small(call, i, item(a, i, n * n), n, lower, true)?;
            found.write_values(item_mut(values, i, n));
            found.write_vectors(n, item_mut(vectors, i, n * n));
        }
        return Ok(());
    }
    let mut reduction = Tridiagonal::new(n);
    let mut problem = TridiagonalProblem::new(n, true);
    let mut work = BlockWork::new(n);
    for i in 0..batch {
        reduction.load(item(a, i, n * n), lower);
        let scale = rescale(&mut reduction.a).ok_or_else(|| failure(call, i, NOT_FINITE))?;
        reduction.reduce(&mut problem.diagonal, &mut problem.beside);
        if !problem.solve() {
            return Err(failure(call, i, NOT_CONVERGED));
        }
        write_values(&problem, scale, item_mut(values, i, n));
        if reflector::is_small(n) {
            reduction.apply_padded(problem.padded_vectors_mut());
        } else if let Some(columns) = problem.vectors_mut() {
            reduction.reflectors().apply(columns, false, &mut work);
        }
        transpose_ordered(n, &problem.order, |column| problem.vector(column), item_mut(vectors, i, n * n));
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
    if n <= small::MAX_ROWS {
        for i in 0..batch {
            solve_small(call, i, item(a, i, n * n), n, lower, false)?.write_values(item_mut(values, i, n));
        }
        return Ok(());
    }
    let mut reduction = Tridiagonal::new(n);
    let mut problem = TridiagonalProblem::new(n, false);
    for i in 0..batch {
        reduction.load(item(a, i, n * n), lower);
        let scale = rescale(&mut reduction.a).ok_or_else(|| failure(call, i, NOT_FINITE))?;
        reduction.reduce(&mut problem.diagonal, &mut problem.beside);
        if !problem.solve() {
            return Err(failure(call, i, NOT_CONVERGED));
        }
        write_values(&problem, scale, item_mut(values, i, n));
    }
    Ok(())
}

/// Writes the eigenvalues, ascending, of the matrix before it was scaled.
fn write_values<T: Scalar>(problem: &TridiagonalProblem<T>, scale: T, values: &mut [T]) {
    for (value, &i) in values.iter_mut().zip(&problem.order) {
        *value = T::from_f64(problem.diagonal[i]) * scale;
    }
}
