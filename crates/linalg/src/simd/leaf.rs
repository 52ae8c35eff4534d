//! Triangular systems and Cholesky factors of at most a leaf's size, where splitting into products ends.

use super::{Vector, vectorised};
use crate::real::Scalar;
use crate::view::{Mat, MatMut};
use std::mem::MaybeUninit;

vectorised! {
    /// Solves `A X = B` in place of `B`, for at most [`LEAF`] rows, reading only the triangle of `a`. With `unit` the
    /// diagonal is taken as ones.
    pub fn substitute<T>(a: Mat<'_, T>, upper: bool, unit: bool, x: MatMut<'_, T>) = substitute_kernel;

    /// The Cholesky factor of at most [`LEAF`] rows, in place; columns are contiguous. Only the lower triangle is read,
    /// and the upper one has no meaning afterwards. Returns the number of leading columns that have a factor.
    pub fn cholesky_leaf<T>(a: MatMut<'_, T>) -> usize = cholesky_leaf_kernel;
}

/// Rows that [`substitute`] and [`cholesky_leaf`] take at most.
pub const LEAF: usize = 16;

#[inline(always)]
fn substitute_kernel<T: Scalar, V: Vector<T>>(a: Mat<'_, T>, upper: bool, unit: bool, mut x: MatMut<'_, T>) {
    let (n, cols, lanes) = (a.rows(), x.cols(), V::LANES);
    assert!(n <= LEAF && a.cols() == n && x.rows() == n);
    if cols == 1 || x.col_stride() != 1 {
        for j in 0..cols {
            // SAFETY: column `j` of `x` has `n` entries.
            unsafe { substitute_column(a, upper, unit, x.as_mut_ptr().add(j * x.col_stride()), x.row_stride()) };
        }
        return;
    }
    let step = x.row_stride();
    let x = x.as_mut_ptr();
    let mut j = 0;
    // SAFETY: columns `j` and following of `x` are contiguous, and there are as many as each branch has checked.
    unsafe {
        while j + 4 * lanes <= cols {
            substitute_strip::<T, V, 4>(a, upper, unit, x.add(j), step, lanes);
            j += 4 * lanes;
        }
        if j + 2 * lanes <= cols {
            substitute_strip::<T, V, 2>(a, upper, unit, x.add(j), step, lanes);
            j += 2 * lanes;
        }
        if j + lanes < cols {
            substitute_strip::<T, V, 2>(a, upper, unit, x.add(j), step, cols - j - lanes);
        } else if j < cols {
            substitute_strip::<T, V, 1>(a, upper, unit, x.add(j), step, cols - j);
        }
    }
}

/// Solves for `R` registers of columns, of which the last has `last` columns.
///
/// # Safety
/// The columns can be read and written in all of `a`'s rows, `step` apart.
#[inline(always)]
unsafe fn substitute_strip<T: Scalar, V: Vector<T>, const R: usize>(
    a: Mat<'_, T>,
    upper: bool,
    unit: bool,
    x: *mut T,
    step: usize,
    last: usize,
) {
    let (n, lanes) = (a.rows(), V::LANES);
    let (from, row_stride, col_stride) = (a.as_ptr(), a.row_stride(), a.col_stride());
    let mask = V::mask(last);
    let zero = V::splat(T::ZERO);
    // Solved rows as whole registers: what a mask has written cannot be read back before it is in the cache.
    let mut solved = [const { MaybeUninit::<[V; R]>::uninit() }; LEAF];
    for turn in 0..n {
        let i = if upper { n - 1 - turn } else { turn };
        let (first, end) = if upper { (i + 1, n) } else { (0, i) };
        let mut value = [zero; R];
        // SAFETY: the caller's promise; `i` and `first..end` are rows and columns of `a`, and `first..end` are solved.
        unsafe {
            for r in 0..R {
                let at = x.add(i * step + r * lanes);
                value[r] = if r == R - 1 { V::load_part(at, mask) } else { V::load(at) };
            }
            for j in first..end {
                let factor = V::splat(*from.add(i * row_stride + j * col_stride));
                let solved = solved[j].assume_init_ref();
                for r in 0..R {
                    value[r] = solved[r].neg_mul_add(factor, value[r]);
                }
            }
            if !unit {
                let diagonal = V::splat(*from.add(i * (row_stride + col_stride)));
                for r in 0..R {
                    value[r] = value[r].div(diagonal);
                }
            }
            for r in 0..R {
                let at = x.add(i * step + r * lanes);
                if r == R - 1 {
                    value[r].store_part(at, mask);
                } else {
                    value[r].store(at);
                }
            }
        }
        solved[i].write(value);
    }
}

/// Solves for one column, whose elements are `step` apart.
///
/// # Safety
/// The column can be read and written in all of `a`'s rows.
#[inline(always)]
unsafe fn substitute_column<T: Scalar>(a: Mat<'_, T>, upper: bool, unit: bool, x: *mut T, step: usize) {
    let n = a.rows();
    let (from, row_stride, col_stride) = (a.as_ptr(), a.row_stride(), a.col_stride());
    for turn in 0..n {
        let i = if upper { n - 1 - turn } else { turn };
        let (first, end) = if upper { (0, i) } else { (i + 1, n) };
        // SAFETY: the caller's promise; `i` and `first..end` are rows and columns of `a`.
        unsafe {
            if !unit {
                *x.add(i * step) /= *from.add(i * (row_stride + col_stride));
            }
            let solved = *x.add(i * step);
            for j in first..end {
                *x.add(j * step) -= *from.add(j * row_stride + i * col_stride) * solved;
            }
        }
    }
}

#[inline(always)]
fn cholesky_leaf_kernel<T: Scalar, V: Vector<T>>(mut a: MatMut<'_, T>) -> usize {
    let n = a.rows();
    assert!(n <= LEAF && a.cols() == n && (a.row_stride() == 1 || n <= 1));
    let (step, lanes) = (a.col_stride(), V::LANES);
    let a = a.as_mut_ptr();
    // Finished columns as whole registers: what a mask has written cannot be read back before it is in the cache.
    let mut columns = [const { MaybeUninit::<T>::uninit() }; LEAF * LEAF];
    let columns = columns.as_mut_ptr().cast::<T>();
    for j in 0..n {
        // SAFETY: rows and columns are less than `n`, and those of `columns` at most `LEAF`, a whole number of
        // registers. Columns before `j` are finished, from the register of their diagonal on.
        unsafe {
            let mut i = j / lanes * lanes;
            while i < n {
                let mut value = V::load_part(a.add(j * step + i), V::mask(lanes.min(n - i)));
                for p in 0..j {
                    let factor = V::splat(*columns.add(p * LEAF + j));
                    value = V::load(columns.add(p * LEAF + i)).neg_mul_add(factor, value);
                }
                value.store(columns.add(j * LEAF + i));
                i += lanes;
            }
            let pivot = *columns.add(j * LEAF + j);
            // Not true of NaN.
            if !(pivot > T::ZERO && pivot.is_finite()) {
                return j;
            }
            let root = V::splat(pivot.sqrt());
            let mut i = j / lanes * lanes;
            while i < n {
                let value = V::load(columns.add(j * LEAF + i)).div(root);
                value.store(columns.add(j * LEAF + i));
                value.store_part(a.add(j * step + i), V::mask(lanes.min(n - i)));
                i += lanes;
            }
            // Exactly the root, which the quotient may miss by a rounding.
            *a.add(j * step + j) = pivot.sqrt();
        }
    }
    n
}
