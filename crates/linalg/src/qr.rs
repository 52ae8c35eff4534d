//! Householder QR with LAPACK's signs.

use crate::layout::{check, col_major, col_major_mut, item, item_mut, transpose};
use crate::real::Scalar;
use crate::reflector::{BLOCK, BlockWork, Reflectors, make_reflector};
use crate::simd::kernels::reflect_columns;
use crate::view::MatMut;
use rushlight_core::Result;

/// One matrix in factored form: `R` in the upper triangle, and the reflectors.
pub struct Householder<T> {
    rows: usize,
    cols: usize,
    /// Column-major `rows × cols`. Fill with the matrix before [`Householder::factor`].
    pub columns: Vec<T>,
    vectors: Vec<T>,
    taus: Vec<T>,
    work: BlockWork<T>,
}

impl<T: Scalar> Householder<T> {
    /// Workspace for a matrix of `rows × cols` whose `Q` is applied to at most `applied` columns at once.
    pub fn new(rows: usize, cols: usize, applied: usize) -> Self {
        let rank = rows.min(cols);
        Self {
            rows,
            cols,
            columns: vec![T::ZERO; rows * cols],
            vectors: vec![T::ZERO; rows * rank],
            taus: vec![T::ZERO; rank],
            work: BlockWork::new(applied.max(cols)),
        }
    }

    /// Factors the matrix in [`Householder::columns`] by column panels: reflectors are applied one by one within a
    /// panel, and as a block, by matrix products, to the columns after it.
    pub fn factor(&mut self) {
        let (rows, cols, rank) = (self.rows, self.cols, self.taus.len());
        for start in (0..rank).step_by(BLOCK) {
            let end = rank.min(start + BLOCK);
            for j in start..end {
                let (column, rest) = self.columns[j * rows..end * rows].split_at_mut(rows);
                let v = &mut self.vectors[j * rows..(j + 1) * rows];
                v[..j].fill(T::ZERO);
                v[j..].copy_from_slice(&column[j..]);
                let (tau, beta) = make_reflector(&mut v[j..], T::ZERO);
                self.taus[j] = tau;
                column[j] = beta;
                reflect_columns(rest, rows, &v[j..], tau);
            }
            if end < cols {
                let vectors = col_major(&self.vectors, rows, rank);
                // Reads only this block's reflectors.
                let reflectors = Reflectors { vectors, taus: &self.taus[..end], offset: 0 };
                let rest = col_major_mut(&mut self.columns[end * rows..], rows, cols - end);
                reflectors.apply_block(start, rest, true, &mut self.work);
            }
        }
    }

    /// Entry `(i, j)` of `R`.
    pub fn r(&self, i: usize, j: usize) -> T {
        if i <= j { self.columns[j * self.rows + i] } else { T::ZERO }
    }

    /// Replaces `x`, of `rows` rows, by `Qᵀ x`.
    pub fn apply_transposed(&mut self, x: MatMut<'_, T>) {
        let (reflectors, work) = self.reflectors();
        reflectors.apply(x, true, work);
    }

    /// Replaces `x`, of `rows` rows, by `Q x`.
    pub fn apply_forward(&mut self, x: MatMut<'_, T>) {
        let (reflectors, work) = self.reflectors();
        reflectors.apply(x, false, work);
    }

    /// Writes the first `count` columns of `Q`, column-major, to `q`.
    pub fn write_q(&mut self, q: &mut [T], count: usize) {
        let q = col_major_mut(q, self.rows, count);
        let (reflectors, work) = self.reflectors();
        reflectors.write(q, work);
    }

    fn reflectors(&mut self) -> (Reflectors<'_, T>, &mut BlockWork<T>) {
        let vectors = col_major(&self.vectors, self.rows, self.taus.len());
        (Reflectors { vectors, taus: &self.taus, offset: 0 }, &mut self.work)
    }
}

pub fn qr<T: Scalar>(
    batch: usize,
    m: usize,
    n: usize,
    a: &[T],
    q: &mut [T],
    r: &mut [T],
    complete: bool,
) -> Result<()> {
    let call = "linalg.qr";
    let k = if complete { m } else { m.min(n) };
    check(call, "a", a.len(), batch, m, n)?;
    check(call, "q", q.len(), batch, m, k)?;
    check(call, "r", r.len(), batch, k, n)?;
    if q.is_empty() && r.is_empty() {
        return Ok(());
    }
    let mut work = Householder::new(m, n, k);
    let mut q_columns = vec![T::ZERO; m * k];
    for b in 0..batch {
        transpose(item(a, b, m * n), &mut work.columns, m, n);
        work.factor();
        let r = item_mut(r, b, k * n);
        for i in 0..k {
            for j in 0..n {
                r[i * n + j] = work.r(i, j);
            }
        }
        work.write_q(&mut q_columns, k);
        transpose(&q_columns, item_mut(q, b, m * k), k, m);
    }
    Ok(())
}

pub fn geqrf<T: Scalar>(batch: usize, m: usize, n: usize, a: &[T], out: &mut [T], tau: &mut [T]) -> Result<()> {
    let call = "geqrf";
    let k = m.min(n);
    check(call, "a", a.len(), batch, m, n)?;
    check(call, "out", out.len(), batch, m, n)?;
    check(call, "tau", tau.len(), batch, k, 1)?;
    if out.is_empty() {
        return Ok(());
    }
    let mut work = Householder::new(m, n, 0);
    for b in 0..batch {
        transpose(item(a, b, m * n), &mut work.columns, m, n);
        work.factor();
        let out = item_mut(out, b, m * n);
        for (i, row) in out.chunks_exact_mut(n).enumerate() {
            for (j, to) in row.iter_mut().enumerate() {
                *to = if i <= j { work.columns[j * m + i] } else { work.vectors[j * m + i] };
            }
        }
        item_mut(tau, b, k).copy_from_slice(&work.taus);
    }
    Ok(())
}
