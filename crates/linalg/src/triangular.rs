//! Triangular systems with LAPACK's behaviour for singular matrices: dividing by a zero diagonal entry is no error.

use crate::layout::{check, item, item_mut, row_major, row_major_mut};
use crate::real::Scalar;
use faer::linalg::matmul::matmul;
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, MatMut, MatRef, Par, unzip, zip};
use rushlight_core::Result;

/// The triangle to read, and whether its diagonal is taken as ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Triangle {
    pub upper: bool,
    pub unit: bool,
}

/// Below this size substitution by rows beats splitting into matrix products.
const SUBSTITUTION: usize = 16;

/// Solves `A X = B` in place of `B`, reading only the triangle of `a`.
pub fn solve_in_place<T: Scalar>(a: MatRef<'_, T>, triangle: Triangle, x: MatMut<'_, T>) {
    let n = a.nrows();
    if n <= SUBSTITUTION {
        return substitute(a, triangle, x);
    }
    // A multiple of the substitution size, so that the leaves have full size.
    let half = (n / 2).next_multiple_of(SUBSTITUTION);
    let (a00, a01, a10, a11) = a.split_at(half, half);
    let (mut x0, mut x1) = x.split_at_row_mut(half);
    if triangle.upper {
        solve_in_place(a11, triangle, x1.rb_mut());
        matmul(x0.rb_mut(), Accum::Add, a01, x1.rb(), -T::ONE, Par::Seq);
        solve_in_place(a00, triangle, x0);
    } else {
        solve_in_place(a00, triangle, x0.rb_mut());
        matmul(x1.rb_mut(), Accum::Add, a10, x0.rb(), -T::ONE, Par::Seq);
        solve_in_place(a11, triangle, x1);
    }
}

fn substitute<T: Scalar>(a: MatRef<'_, T>, triangle: Triangle, mut x: MatMut<'_, T>) {
    let n = a.nrows();
    for step in 0..n {
        let (i, solved) = if triangle.upper { (n - 1 - step, n - step..n) } else { (step, 0..step) };
        for j in solved {
            let factor = a[(i, j)];
            let (xi, xj) = x.rb_mut().two_rows_mut(i, j);
            zip!(xi, xj).for_each(|unzip!(xi, xj)| *xi -= factor * *xj);
        }
        if !triangle.unit {
            let diagonal = a[(i, i)];
            zip!(x.rb_mut().row_mut(i)).for_each(|unzip!(xi)| *xi /= diagonal);
        }
    }
}

pub fn solve_triangular<T: Scalar>(
    batch: usize,
    n: usize,
    nrhs: usize,
    a: &[T],
    b: &[T],
    out: &mut [T],
    upper: bool,
    unitriangular: bool,
) -> Result<()> {
    let call = "linalg.solve_triangular";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "b", b.len(), batch, n, nrhs)?;
    check(call, "out", out.len(), batch, n, nrhs)?;
    if out.is_empty() {
        return Ok(());
    }
    out.copy_from_slice(b);
    let triangle = Triangle { upper, unit: unitriangular };
    for i in 0..batch {
        let x = row_major_mut(item_mut(out, i, n * nrhs), n, nrhs);
        solve_in_place(row_major(item(a, i, n * n), n, n), triangle, x);
    }
    Ok(())
}
