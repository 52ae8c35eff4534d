//! Triangular systems with LAPACK's behaviour for singular matrices: dividing by a zero diagonal entry is no error.

use crate::layout::{check, item, item_mut, row_major, row_major_mut};
use crate::real::Scalar;
use crate::simd::leaf::{LEAF, substitute};
use crate::simd::product::product;
use crate::view::{Mat, MatMut};
use rushlight_core::Result;

/// The triangle to read, and whether its diagonal is taken as ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Triangle {
    pub upper: bool,
    pub unit: bool,
}

/// Solves `A X = B` in place of `B`, reading only the triangle of `a`.
pub fn solve_in_place<T: Scalar>(a: Mat<'_, T>, triangle: Triangle, x: MatMut<'_, T>) {
    let n = a.rows();
    if n <= LEAF {
        return substitute(a, triangle.upper, triangle.unit, x);
    }
    // A multiple of the leaf's size, so that the leaves have full size.
    let half = (n / 2).next_multiple_of(LEAF);
    let (first, second) = (a.block(0..half, 0..half), a.block(half..n, half..n));
    let (mut x0, mut x1) = x.split_rows(half);
    if triangle.upper {
        solve_in_place(second, triangle, x1.reborrow());
        product(x0.reborrow(), a.block(0..half, half..n), x1.as_ref(), true);
        solve_in_place(first, triangle, x0);
    } else {
        solve_in_place(first, triangle, x0.reborrow());
        product(x1.reborrow(), a.block(half..n, 0..half), x0.as_ref(), true);
        solve_in_place(second, triangle, x1);
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
