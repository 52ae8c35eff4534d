//! The singular value decomposition.

use crate::bidiagonal::Bidiagonal;
use crate::conquer::BidiagonalProblem;
use crate::layout::{check, col_major_mut, item, item_mut, rescale, set_identity, transpose};
use crate::qr::Householder;
use crate::real::Scalar;
use crate::reflector::{self, BlockWork};
use crate::view::Mat;
use rushlight_core::{Error, Result};

/// Ratio of rows to columns from which a QR factorisation first makes the matrix square.
const TALL: f64 = 11.0 / 6.0;

/// Workspace for the decomposition `W = X S Yᵀ` of matrices of one shape with at least as many rows as columns,
/// column-major.
///
/// Householder reflectors reduce `W` to bidiagonal form, divide and conquer decomposes that, and the reflectors are
/// applied to its vectors: 4/3 n³ to 8/3 n³ operations each.
pub struct TallSvd<T> {
    rows: usize,
    cols: usize,
    /// Number of columns of `X`; zero for singular values only.
    left: usize,
    /// The QR factorisation of a very tall matrix.
    qr: Option<Householder<T>>,
    reduction: Bidiagonal<T>,
    problem: BidiagonalProblem<T>,
    work: BlockWork<T>,
}

impl<T: Scalar> TallSvd<T> {
    pub fn new(rows: usize, cols: usize, left: usize) -> Self {
        let tall = rows as f64 > TALL * cols as f64;
        let height = if tall { cols } else { rows };
        Self {
            rows,
            cols,
            left,
            qr: tall.then(|| Householder::new(rows, cols, left)),
            reduction: Bidiagonal::new(height, cols),
            problem: BidiagonalProblem::new(cols, left > 0),
            work: BlockWork::new(left.max(cols)),
        }
    }

    /// Decomposes `w`, which is overwritten, into `x` (`rows × left`), `s` (descending) and `y` (`cols × cols`). Both
    /// matrices are column-major, and not written if only values are requested. `Err` carries the reason.
    pub fn decompose(&mut self, w: &mut [T], x: &mut [T], s: &mut [T], y: &mut [T]) -> Result<(), &'static str> {
        let (rows, cols, left, ld) = (self.rows, self.cols, self.left, self.reduction.ld());
        let scale = rescale(w).ok_or("the input matrix contained non-finite values.")?;
        if let Some(qr) = &mut self.qr {
            qr.columns.copy_from_slice(w);
            qr.factor();
            for (j, column) in self.reduction.a.chunks_exact_mut(ld).enumerate() {
                column.fill(T::ZERO);
                for (i, to) in column[..=j].iter_mut().enumerate() {
                    *to = qr.r(i, j);
                }
            }
        } else {
            for (column, from) in self.reduction.a.chunks_exact_mut(ld).zip(w.chunks_exact(rows)) {
                column[..rows].copy_from_slice(from);
                column[rows..].fill(T::ZERO);
            }
        }
        let problem = &mut self.problem;
        self.reduction.reduce(&mut problem.diagonal, &mut problem.beside);
        problem.solve();
        for (value, &i) in s.iter_mut().zip(problem.order.iter().rev()) {
            *value = T::from_f64(problem.diagonal[i]) * scale;
        }
        // The reflectors of a square matrix are applied before its vectors are ordered.
        let small = reflector::is_small(cols) && self.reduction.is_square();
        if small && let Some((lefts, rights)) = problem.padded_vectors_mut() {
            self.reduction.apply_padded(lefts, rights);
        }
        let (Some(lefts), Some(rights)) = (problem.left(), problem.right()) else { return Ok(()) };
        place_columns(lefts, &problem.order, x, rows);
        // Columns beyond the bidiagonal form's complete the basis.
        x.chunks_exact_mut(rows).enumerate().skip(cols).for_each(|(j, column)| column[j] = T::ONE);
        let mut x = col_major_mut(x, rows, left);
        match &mut self.qr {
            Some(qr) if small => qr.apply_forward(x),
            None if small => {}
            Some(qr) => {
                let square = x.reborrow().block(0..cols, 0..cols);
                self.reduction.left().apply(square, false, &mut self.work);
                qr.apply_forward(x);
            }
            None => self.reduction.left().apply(x, false, &mut self.work),
        }
        place_columns(rights, &problem.order, y, cols);
        if !small {
            self.reduction.right().apply(col_major_mut(y, cols, cols), false, &mut self.work);
        }
        Ok(())
    }
}

/// Writes the columns of `from` in reverse `order`, padded with zeros, to the first columns of `to`, which has `rows`
/// rows, and zeros to its other columns.
fn place_columns<T: Scalar>(from: Mat<'_, T>, order: &[usize], to: &mut [T], rows: usize) {
    let mut order = order.iter().rev();
    for column in to.chunks_exact_mut(rows) {
        column.fill(T::ZERO);
        if let Some(&i) = order.next() {
            let from = from.column(i);
            column[..from.len()].copy_from_slice(from);
        }
    }
}

fn failure(call: &str, element: usize, reason: &str) -> Error {
    Error::numerical(format!("{call}: (Batch element {element}): The algorithm failed to converge because {reason}"))
}

/// Copies `a` (row-major `m × n`) or its transpose, whichever has at least as many rows as columns, to column-major
/// `w`.
pub fn load_tall<T: Copy>(a: &[T], w: &mut [T], m: usize, n: usize) {
    if m >= n {
        transpose(a, w, m, n);
    } else {
        // The columns of the transpose are the rows of the matrix.
        w.copy_from_slice(a);
    }
}

pub fn svd<T: Scalar>(
    batch: usize,
    m: usize,
    n: usize,
    a: &[T],
    u: &mut [T],
    s: &mut [T],
    vh: &mut [T],
    full_matrices: bool,
) -> Result<()> {
    let call = "linalg.svd";
    let k = m.min(n);
    let (u_cols, vh_rows) = if full_matrices { (m, n) } else { (k, k) };
    check(call, "a", a.len(), batch, m, n)?;
    check(call, "u", u.len(), batch, m, u_cols)?;
    check(call, "s", s.len(), batch, k, 1)?;
    check(call, "vh", vh.len(), batch, vh_rows, n)?;
    if batch == 0 {
        return Ok(());
    }
    if k == 0 {
        // No singular values: the full factors are any orthogonal matrices.
        u.chunks_exact_mut((m * u_cols).max(1)).for_each(|u| set_identity(u, m));
        vh.chunks_exact_mut((n * vh_rows).max(1)).for_each(|vh| set_identity(vh, n));
        return Ok(());
    }
    let left = if m >= n { u_cols } else { vh_rows };
    let mut work = TallSvd::new(m.max(n), k, left);
    let mut w = vec![T::ZERO; m * n];
    let mut columns = vec![T::ZERO; m * u_cols];
    for i in 0..batch {
        load_tall(item(a, i, m * n), &mut w, m, n);
        let s = item_mut(s, i, k);
        // Row-major Vᴴ is column-major V, so it is written in place; U has to be transposed.
        let vh = item_mut(vh, i, vh_rows * n);
        let done = if m >= n {
            work.decompose(&mut w, &mut columns, s, vh)
        } else {
            work.decompose(&mut w, vh, s, &mut columns)
        };
        done.map_err(|reason| failure(call, i, reason))?;
        transpose(&columns, item_mut(u, i, m * u_cols), u_cols, m);
    }
    Ok(())
}

pub fn svdvals<T: Scalar>(batch: usize, m: usize, n: usize, a: &[T], s: &mut [T]) -> Result<()> {
    let call = "linalg.svd";
    let k = m.min(n);
    check(call, "a", a.len(), batch, m, n)?;
    check(call, "s", s.len(), batch, k, 1)?;
    if s.is_empty() {
        return Ok(());
    }
    let mut work = TallSvd::new(m.max(n), k, 0);
    let mut w = vec![T::ZERO; m * n];
    for i in 0..batch {
        load_tall(item(a, i, m * n), &mut w, m, n);
        work.decompose(&mut w, &mut [], item_mut(s, i, k), &mut []).map_err(|reason| failure(call, i, reason))?;
    }
    Ok(())
}
