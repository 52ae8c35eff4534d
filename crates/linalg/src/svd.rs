//! The singular value decomposition.

use crate::layout::{Workspace, check, col_major, col_major_mut, item, item_mut, rescale, set_identity, transpose};
use crate::qr::Householder;
use crate::real::Scalar;
use faer::diag::DiagMut;
use faer::linalg::svd::{ComputeSvdVectors, SvdParams, svd as faer_svd, svd_scratch};
use faer::{Auto, Par, Spec};
use rushlight_core::{Error, Result};

/// From this ratio of height to width on, a QR factorisation first makes the matrix square.
const TALL: f64 = 11.0 / 6.0;

/// faer's QR iteration, which ends its divide and conquer, loses about one unit of precision for every row, so it
/// gets only the smallest pieces.
const QR_ITERATION_BELOW: usize = 8;

/// faer would make tall matrices square with its own QR, which drops columns it holds for dependent: for a tall f32
/// matrix that costs all small singular values. So we do that step, and faer never sees a tall matrix.
fn params<T: Scalar>() -> Spec<SvdParams, T> {
    SvdParams {
        recursion_threshold: QR_ITERATION_BELOW,
        qr_ratio_threshold: f64::INFINITY,
        ..<SvdParams as Auto<T>>::auto()
    }
    .into()
}

/// Room for the decomposition `W = X S Yᵀ` of matrices of one shape that are no wider than high, column-major.
pub struct TallSvd<T> {
    rows: usize,
    cols: usize,
    /// How many columns `X` has; zero to ask for the singular values only.
    left: usize,
    /// The QR factorisation of a very tall matrix and its square `R`.
    reduced: Option<(Householder<T>, Vec<T>)>,
    workspace: Workspace,
}

impl<T: Scalar> TallSvd<T> {
    pub fn new(rows: usize, cols: usize, left: usize) -> Self {
        let tall = rows as f64 > TALL * cols as f64;
        let vectors = |full: bool| match (left, full) {
            (0, _) => ComputeSvdVectors::No,
            (_, true) => ComputeSvdVectors::Full,
            (_, false) => ComputeSvdVectors::Thin,
        };
        let height = if tall { cols } else { rows };
        let need = svd_scratch::<T>(height, cols, vectors(left > cols), vectors(false), Par::Seq, params());
        Self {
            rows,
            cols,
            left,
            reduced: tall.then(|| (Householder::new(rows, cols, left), vec![T::ZERO; cols * cols])),
            workspace: Workspace::new(need),
        }
    }

    /// Decomposes `w`, which is overwritten, into `x` (`rows × left`), `s` descending and `y` (`cols × cols`); both
    /// matrices column-major, and left alone if only values were asked for. `Err` carries the reason.
    pub fn decompose(&mut self, w: &mut [T], x: &mut [T], s: &mut [T], y: &mut [T]) -> Result<(), &'static str> {
        let (rows, cols, left) = (self.rows, self.cols, self.left);
        let scale = rescale(w).ok_or("the input matrix contained non-finite values.")?;
        let vectors = left > 0;
        if let Some((householder, r)) = &mut self.reduced {
            householder.columns.copy_from_slice(w);
            householder.factor();
            for j in 0..cols {
                for i in 0..cols {
                    r[j * cols + i] = householder.r(i, j);
                }
            }
            let mut x = vectors.then(|| col_major_mut(x, rows, left));
            if let Some(x) = &mut x {
                // The columns beyond those of the square part complete Q.
                x.fill(T::ZERO);
                x.as_mut().diagonal_mut().fill(T::ONE);
            }
            faer_svd(
                col_major(r, cols, cols),
                DiagMut::from_slice_mut(s),
                x.as_mut().map(|x| x.as_mut().submatrix_mut(0, 0, cols, cols)),
                vectors.then(|| col_major_mut(y, cols, cols)),
                Par::Seq,
                self.workspace.stack(),
                params(),
            )
            .map_err(|_| NOT_CONVERGED)?;
            if let Some(x) = x {
                householder.apply_forward(x);
            }
        } else {
            faer_svd(
                col_major(w, rows, cols),
                DiagMut::from_slice_mut(s),
                vectors.then(|| col_major_mut(x, rows, left)),
                vectors.then(|| col_major_mut(y, cols, cols)),
                Par::Seq,
                self.workspace.stack(),
                params(),
            )
            .map_err(|_| NOT_CONVERGED)?;
        }
        s.iter_mut().for_each(|value| *value *= scale);
        Ok(())
    }
}

const NOT_CONVERGED: &str = "the input matrix is ill-conditioned or has too many repeated singular values.";

fn failure(call: &str, element: usize, reason: &str) -> Error {
    Error::numerical(format!("{call}: (Batch element {element}): The algorithm failed to converge because {reason}"))
}

/// Copies `a` (row-major `m × n`) or its transpose, whichever is no wider than high, to column-major `w`.
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
        // Vᴴ by rows is V by columns, so it is written in place; U by rows has to be turned.
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
