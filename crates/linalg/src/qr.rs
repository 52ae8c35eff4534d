//! Householder QR with LAPACK's signs.
//!
//! faer's own QR skips columns it holds for dependent, with a tolerance that grows with the height of the matrix, so
//! its factors differ from LAPACK's on (nearly) rank-deficient input. Only its reflectors are used here.

use crate::layout::{Workspace, check, col_major, col_major_mut, item, item_mut, transpose};
use crate::real::Scalar;
use faer::dyn_stack::MemStack;
use faer::linalg::householder::{
    apply_block_householder_on_the_left_in_place_with_conj as apply_block,
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_transpose_on_the_left_in_place_with_conj as apply_block_transposed,
    make_householder_in_place,
};
use faer::linalg::matmul::dot::inner_prod;
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Conj, MatMut, Par};
use rushlight_core::Result;

/// Columns whose reflectors are gathered into one block and applied by matrix products.
const BLOCK: usize = 32;

/// One matrix in factored form: `R` in the upper triangle, the reflectors below it, and per block of reflectors the
/// triangular factor faer asks for.
pub struct Householder<T> {
    rows: usize,
    cols: usize,
    /// Column-major `rows × cols`: to be filled with the matrix before [`Householder::factor`].
    pub columns: Vec<T>,
    factors: Vec<T>,
    workspace: Workspace,
}

impl<T: Scalar> Householder<T> {
    /// Room for a matrix of `rows × cols` whose `Q` will be applied to at most `applied` columns at once.
    pub fn new(rows: usize, cols: usize, applied: usize) -> Self {
        Self {
            rows,
            cols,
            columns: vec![T::ZERO; rows * cols],
            factors: vec![T::ZERO; BLOCK * rows.min(cols)],
            workspace: Workspace::new(apply_scratch::<T>(rows, BLOCK, applied.max(cols))),
        }
    }

    fn rank(&self) -> usize {
        self.rows.min(self.cols)
    }

    /// Factors the matrix in [`Householder::columns`].
    pub fn factor(&mut self) {
        let (rows, cols, rank) = (self.rows, self.cols, self.rank());
        let stack = self.workspace.stack();
        for start in (0..rank).step_by(BLOCK) {
            let width = BLOCK.min(rank - start);
            let a = col_major_mut(&mut self.columns, rows, cols);
            let (mut panel, rest) = a.submatrix_mut(start, start, rows - start, cols - start).split_at_col_mut(width);
            let mut t = block_factor_mut(&mut self.factors, start, width);
            factor_panel(panel.rb_mut(), t.rb_mut(), stack);
            if rest.ncols() > 0 {
                apply_block_transposed(panel.rb(), t.rb(), Conj::No, rest, Par::Seq, stack);
            }
        }
    }

    /// Entry `(i, j)` of `R`.
    pub fn r(&self, i: usize, j: usize) -> T {
        if i <= j { self.columns[j * self.rows + i] } else { T::ZERO }
    }

    /// Replaces `x`, of `rows` rows, by `Qᵀ x`.
    pub fn apply_transposed(&mut self, mut x: MatMut<'_, T>) {
        for start in (0..self.rank()).step_by(BLOCK) {
            self.apply(start, true, x.rb_mut().subrows_mut(start, self.rows - start));
        }
    }

    /// Replaces `x`, of `rows` rows, by `Q x`.
    pub fn apply_forward(&mut self, mut x: MatMut<'_, T>) {
        for start in (0..self.rank()).step_by(BLOCK).rev() {
            self.apply(start, false, x.rb_mut().subrows_mut(start, self.rows - start));
        }
    }

    /// Writes the first `count` columns of `Q`, column-major, to `q`.
    pub fn write_q(&mut self, q: &mut [T], count: usize) {
        let mut q = col_major_mut(q, self.rows, count);
        q.fill(T::ZERO);
        q.rb_mut().diagonal_mut().fill(T::ONE);
        for start in (0..self.rank()).step_by(BLOCK).rev() {
            // Columns before this block are still those of the identity, zero in all rows it touches.
            let touched = q.rb_mut().submatrix_mut(start, start, self.rows - start, count - start);
            self.apply(start, false, touched);
        }
    }

    fn apply(&mut self, start: usize, transposed: bool, x: MatMut<'_, T>) {
        let width = BLOCK.min(self.rank() - start);
        let basis = col_major(&self.columns, self.rows, self.cols);
        let basis = basis.submatrix(start, start, self.rows - start, width);
        let t = block_factor_mut(&mut self.factors, start, width);
        let stack = self.workspace.stack();
        if transposed {
            apply_block_transposed(basis, t.rb(), Conj::No, x, Par::Seq, stack);
        } else {
            apply_block(basis, t.rb(), Conj::No, x, Par::Seq, stack);
        }
    }
}

/// The triangular factor of the block that starts at column `start`.
fn block_factor_mut<T>(factors: &mut [T], start: usize, width: usize) -> MatMut<'_, T> {
    MatMut::from_column_major_slice_with_stride_mut(&mut factors[start * BLOCK..], width, width, BLOCK)
        .as_dyn_stride_mut()
}

fn factor_panel<T: Scalar>(mut a: MatMut<'_, T>, mut t: MatMut<'_, T>, stack: &mut MemStack) {
    let (rows, cols) = (a.nrows(), a.ncols());
    for j in 0..cols {
        let (mut done, rest) = a.rb_mut().subrows_mut(j, rows - j).split_at_col_mut(j + 1);
        let (mut head, tail) = done.rb_mut().col_mut(j).split_at_row_mut(1);
        t[(j, j)] = make_householder_in_place(&mut head[0], tail).tau;
        let done = done.rb();
        // The block is I - V T⁻¹ Vᵀ, with the products of V's columns above T's diagonal. V's own diagonal is one.
        let tail = done.col(j).subrows(1, rows - j - 1);
        for i in 0..j {
            let earlier = done.col(i).subrows(1, rows - j - 1);
            t[(i, j)] = done[(0, i)] + inner_prod(earlier.transpose(), Conj::No, tail, Conj::No);
        }
        if rest.ncols() > 0 {
            let single = t.rb().submatrix(j, j, 1, 1);
            apply_block_transposed(done.subcols(j, 1), single, Conj::No, rest, Par::Seq, stack);
        }
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
