//! Least squares, with the solution of least norm if there are many.

use crate::layout::{
    check, col_major, col_major_mut, item, item_mut, row_major, row_major_mut, set_identity, transpose,
};
use crate::qr::Householder;
use crate::real::Scalar;
use crate::simd::product::product;
use crate::svd::{TallSvd, load_tall};
use crate::triangular::{Triangle, solve_in_place};
use rushlight_core::{Error, Result};

const CALL: &str = "torch.linalg.lstsq";

/// Sizes of the problem and buffers shared by the whole batch. `W` is the matrix or its transpose, whichever has at
/// least as many rows as columns.
struct Problem<T> {
    m: usize,
    n: usize,
    nrhs: usize,
    rcond: T,
    householder: Householder<T>,
    r: Vec<T>,
    r_inverse: Vec<T>,
    /// Column-major `max(m, n) × nrhs`.
    rhs: Vec<T>,
}

impl<T: Scalar> Problem<T> {
    fn new(m: usize, n: usize, nrhs: usize, rcond: Option<f64>) -> Self {
        let (tall, k) = (m.max(n), m.min(n));
        let rcond = rcond.map_or(T::EPSILON * T::from_f64(tall as f64), T::from_f64);
        Self {
            m,
            n,
            nrhs,
            rcond,
            householder: Householder::new(tall, k, nrhs),
            r: vec![T::ZERO; k * k],
            r_inverse: vec![T::ZERO; k * k],
            rhs: vec![T::ZERO; tall * nrhs],
        }
    }

    fn k(&self) -> usize {
        self.m.min(self.n)
    }

    /// Factors the matrix and returns whether it certainly has full rank: the product of the Frobenius norms of `R` and
    /// its inverse bounds the condition number from above.
    fn factor(&mut self, a: &[T]) -> bool {
        let k = self.k();
        load_tall(a, &mut self.householder.columns, self.m, self.n);
        self.householder.factor();
        for i in 0..k {
            for j in 0..k {
                self.r[i * k + j] = self.householder.r(i, j);
            }
        }
        set_identity(&mut self.r_inverse, k);
        let inverse = row_major_mut(&mut self.r_inverse, k, k);
        solve_in_place(row_major(&self.r, k, k), Triangle { upper: true, unit: false }, inverse);
        frobenius(&self.r) * frobenius(&self.r_inverse) * self.rcond < T::ONE
    }

    /// Solves with the factors of a matrix of full rank.
    fn solve_full_rank(&mut self, b: &[T], out: &mut [T]) {
        let (m, n, nrhs, k) = (self.m, self.n, self.nrhs, self.k());
        let r = row_major(&self.r, k, k);
        if m >= n {
            // A = Q R, so R x is the head of Qᵀ b.
            transpose(b, &mut self.rhs, m, nrhs);
            self.householder.apply_transposed(col_major_mut(&mut self.rhs, m, nrhs));
            for i in 0..n {
                for j in 0..nrhs {
                    out[i * nrhs + j] = self.rhs[j * m + i];
                }
            }
            solve_in_place(r, Triangle { upper: true, unit: false }, row_major_mut(out, n, nrhs));
        } else {
            // Aᵀ = Q R, so the shortest x is Q y with Rᵀ y = b.
            let head = &mut out[..m * nrhs];
            head.copy_from_slice(b);
            solve_in_place(r.transpose(), Triangle { upper: false, unit: false }, row_major_mut(head, m, nrhs));
            out[m * nrhs..].fill(T::ZERO);
            transpose(out, &mut self.rhs, n, nrhs);
            self.householder.apply_forward(col_major_mut(&mut self.rhs, n, nrhs));
            transpose(&self.rhs, out, nrhs, n);
        }
    }
}

/// Singular value decomposition for rank-deficient matrices, allocated when the first one occurs.
struct Truncated<T> {
    svd: TallSvd<T>,
    w: Vec<T>,
    x: Vec<T>,
    s: Vec<T>,
    y: Vec<T>,
    projected: Vec<T>,
}

impl<T: Scalar> Truncated<T> {
    fn new(m: usize, n: usize, nrhs: usize) -> Self {
        let (tall, k) = (m.max(n), m.min(n));
        Self {
            svd: TallSvd::new(tall, k, k),
            w: vec![T::ZERO; m * n],
            x: vec![T::ZERO; tall * k],
            s: vec![T::ZERO; k],
            y: vec![T::ZERO; k * k],
            projected: vec![T::ZERO; k * nrhs],
        }
    }

    /// Writes the solution of least norm and returns the rank.
    fn solve(&mut self, problem: &Problem<T>, a: &[T], b: &[T], out: &mut [T]) -> Result<usize, &'static str> {
        let (m, n, nrhs, k) = (problem.m, problem.n, problem.nrhs, problem.k());
        load_tall(a, &mut self.w, m, n);
        self.svd.decompose(&mut self.w, &mut self.x, &mut self.s, &mut self.y)?;
        let rank = self.s.iter().filter(|&&s| s > self.s[0] * problem.rcond).count();
        let x = col_major(&self.x, m.max(n), k);
        let y = col_major(&self.y, k, k);
        let (u, v) = if m >= n { (x, y) } else { (y, x) };
        let projected = &mut self.projected[..rank * nrhs];
        let b = row_major(b, m, nrhs);
        let tall = u.block(0..m, 0..rank).transpose();
        product(row_major_mut(projected, rank, nrhs), tall, b, false);
        for (row, &s) in projected.chunks_exact_mut(nrhs.max(1)).zip(&self.s) {
            row.iter_mut().for_each(|p| *p /= s);
        }
        product(row_major_mut(out, n, nrhs), v.block(0..n, 0..rank), row_major(projected, rank, nrhs), false);
        Ok(rank)
    }
}

fn frobenius<T: Scalar>(a: &[T]) -> T {
    a.iter().fold(T::ZERO, |sum, &x| sum + x * x).sqrt()
}

pub fn lstsq<T: Scalar>(
    batch: usize,
    m: usize,
    n: usize,
    nrhs: usize,
    a: &[T],
    b: &[T],
    rcond: Option<f64>,
    out: &mut [T],
    rank: &mut [i64],
) -> Result<()> {
    check(CALL, "a", a.len(), batch, m, n)?;
    check(CALL, "b", b.len(), batch, m, nrhs)?;
    check(CALL, "out", out.len(), batch, n, nrhs)?;
    check(CALL, "rank", rank.len(), batch, 1, 1)?;
    if batch == 0 || m == 0 || n == 0 {
        out.fill(T::ZERO);
        rank.fill(0);
        return Ok(());
    }
    let mut problem = Problem::new(m, n, nrhs, rcond);
    let mut truncated = None;
    for (i, rank) in rank.iter_mut().enumerate() {
        let a = item(a, i, m * n);
        let b = item(b, i, m * nrhs);
        let out = item_mut(out, i, n * nrhs);
        *rank = if problem.factor(a) {
            problem.solve_full_rank(b, out);
            problem.k() as i64
        } else {
            let truncated = truncated.get_or_insert_with(|| Truncated::new(m, n, nrhs));
            truncated.solve(&problem, a, b, out).map_err(|reason| {
                Error::numerical(format!("{CALL}: (Batch element {i}): The solver failed because {reason}"))
            })? as i64
        };
    }
    Ok(())
}
