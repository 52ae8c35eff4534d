//! LU with partial pivoting, determinants, inverses and linear systems.
//!
//! Like LAPACK, the factorisation continues past a zero pivot and reports the first one.

use crate::layout::{check, item, item_mut, row_major, row_major_mut, set_identity};
use crate::real::Scalar;
use crate::simd::product::product;
use crate::triangular::{Triangle, solve_in_place};
use rushlight_core::{Error, Result};

/// A batch of LU factorisations with partial pivoting, `P A = L U`.
#[derive(Clone, Debug, PartialEq)]
pub struct LuFactors<T> {
    /// Per matrix, row-major: `U` in the upper triangle, `L` below it without its unit diagonal.
    pub lu: Vec<T>,
    /// Per matrix `min(m, n)` entries: row `i` was exchanged with row `pivots[i]`, counted from one as LAPACK does.
    pub pivots: Vec<i32>,
    /// Per matrix the determinant of the permutation, `1` or `-1`.
    pub signs: Vec<T>,
    /// Per matrix the position, counted from one, of the first zero on the diagonal of `U`; zero if there is none.
    pub infos: Vec<i32>,
}

/// Results of one factorisation besides `L` and `U`.
struct Outcome {
    odd: bool,
    info: i32,
}

impl Outcome {
    fn sign<T: Scalar>(&self) -> T {
        if self.odd { -T::ONE } else { T::ONE }
    }
}

/// Panels up to this width are eliminated row by row; wider ones are split into matrix products.
const PANEL: usize = 16;

/// Factors one `m × n` matrix in place.
fn factor<T: Scalar>(a: &mut [T], m: usize, n: usize, pivots: &mut [i32]) -> Outcome {
    let mut outcome = Outcome { odd: false, info: 0 };
    let k = m.min(n);
    factor_columns(a, (m, n), 0, k, pivots, &mut outcome);
    if n > k {
        let (square, right) = row_major_mut(a, m, n).split_cols(k);
        solve_in_place(square.as_ref().block(0..k, 0..k), Triangle { upper: false, unit: true }, right);
    }
    outcome
}

/// Factors columns `start..end` of the rows from `start` on. Rows are swapped over their whole width at once, so that
/// columns on either side need no permutation later.
fn factor_columns<T: Scalar>(
    a: &mut [T],
    (m, n): (usize, usize),
    start: usize,
    end: usize,
    pivots: &mut [i32],
    outcome: &mut Outcome,
) {
    let width = end - start;
    if width <= PANEL {
        return factor_panel(a, n, start, end, pivots, outcome);
    }
    let left = (width / 2).next_multiple_of(PANEL);
    let mid = start + left;
    factor_columns(a, (m, n), start, mid, pivots, outcome);
    let (lefts, rights) = row_major_mut(a, m, n).block(start..m, start..end).split_cols(left);
    let (a00, a10) = lefts.split_rows(left);
    let (mut a01, a11) = rights.split_rows(left);
    solve_in_place(a00.as_ref(), Triangle { upper: false, unit: true }, a01.reborrow());
    product(a11, a10.as_ref(), a01.as_ref(), true);
    factor_columns(a, (m, n), mid, end, pivots, outcome);
}

fn factor_panel<T: Scalar>(a: &mut [T], n: usize, start: usize, end: usize, pivots: &mut [i32], outcome: &mut Outcome) {
    for k in start..end {
        let mut pivot = k;
        for i in k + 1..a.len() / n {
            if a[i * n + k].abs() > a[pivot * n + k].abs() {
                pivot = i;
            }
        }
        pivots[k] = pivot as i32 + 1;
        if pivot != k {
            let (above, below) = a.split_at_mut(pivot * n);
            above[k * n..(k + 1) * n].swap_with_slice(&mut below[..n]);
            outcome.odd = !outcome.odd;
        }
        let diagonal = a[k * n + k];
        if diagonal == T::ZERO {
            // The whole column is zero: nothing to eliminate.
            if outcome.info == 0 {
                outcome.info = k as i32 + 1;
            }
            continue;
        }
        let (above, below) = a.split_at_mut((k + 1) * n);
        let pivot_row = &above[k * n + k + 1..k * n + end];
        for row in below.chunks_exact_mut(n) {
            let factor = row[k] / diagonal;
            row[k] = factor;
            for (x, &p) in row[k + 1..end].iter_mut().zip(pivot_row) {
                *x -= factor * p;
            }
        }
    }
}

/// Solves with the factors of one matrix; the solution overwrites the right-hand sides.
fn solve_factored<T: Scalar>(lu: &[T], n: usize, pivots: &[i32], x: &mut [T], nrhs: usize) {
    for (i, &pivot) in pivots.iter().enumerate() {
        let pivot = pivot as usize - 1;
        if pivot != i {
            let (above, below) = x.split_at_mut(pivot * nrhs);
            above[i * nrhs..(i + 1) * nrhs].swap_with_slice(&mut below[..nrhs]);
        }
    }
    let lu = row_major(lu, n, n);
    let mut x = row_major_mut(x, n, nrhs);
    solve_in_place(lu, Triangle { upper: false, unit: true }, x.reborrow());
    solve_in_place(lu, Triangle { upper: true, unit: false }, x);
}

/// Factors every matrix of the batch in one reused buffer and passes the factors to `each`.
fn for_each_factored<T: Scalar>(
    batch: usize,
    n: usize,
    a: &[T],
    mut each: impl FnMut(usize, &[T], &[i32], Outcome) -> Result<()>,
) -> Result<()> {
    if batch == 0 {
        return Ok(());
    }
    let mut lu = vec![T::ZERO; n * n];
    let mut pivots = vec![0; n];
    for i in 0..batch {
        lu.copy_from_slice(item(a, i, n * n));
        let outcome = factor(&mut lu, n, n, &mut pivots);
        each(i, &lu, &pivots, outcome)?;
    }
    Ok(())
}

pub fn lu_factor<T: Scalar>(batch: usize, m: usize, n: usize, a: &[T]) -> Result<LuFactors<T>> {
    let call = "linalg.lu_factor";
    check(call, "a", a.len(), batch, m, n)?;
    let k = m.min(n);
    if m > i32::MAX as usize {
        return Err(Error::value(format!("{call}: matrices of {m}x{n} have more rows than a pivot can name")));
    }
    let mut lu = a.to_vec();
    // With a size of zero the slices do not bound the batch, so this allocation may fail.
    let mut pivots = Vec::new();
    let mut signs = Vec::new();
    let mut infos = Vec::new();
    let reserved = pivots.try_reserve_exact(batch.saturating_mul(k)).is_ok()
        && signs.try_reserve_exact(batch).is_ok()
        && infos.try_reserve_exact(batch).is_ok();
    if !reserved {
        return Err(Error::out_of_memory(format!("{call}: no memory for the factors of {batch} matrices")));
    }
    pivots.resize(batch * k, 0);
    for i in 0..batch {
        let outcome = factor(item_mut(&mut lu, i, m * n), m, n, item_mut(&mut pivots, i, k));
        signs.push(outcome.sign());
        infos.push(outcome.info);
    }
    Ok(LuFactors { lu, pivots, signs, infos })
}

pub fn det<T: Scalar>(batch: usize, n: usize, a: &[T], out: &mut [T]) -> Result<()> {
    let call = "linalg.det";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "out", out.len(), batch, 1, 1)?;
    for_each_factored(batch, n, a, |i, lu, _, outcome| {
        out[i] = lu.iter().step_by(n + 1).fold(outcome.sign(), |product, &d| product * d);
        Ok(())
    })
}

pub fn slogdet<T: Scalar>(batch: usize, n: usize, a: &[T], sign: &mut [T], logabsdet: &mut [T]) -> Result<()> {
    let call = "linalg.slogdet";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "sign", sign.len(), batch, 1, 1)?;
    check(call, "logabsdet", logabsdet.len(), batch, 1, 1)?;
    for_each_factored(batch, n, a, |i, lu, _, outcome| {
        sign[i] = outcome.sign();
        logabsdet[i] = T::ZERO;
        for &d in lu.iter().step_by(n + 1) {
            // Zero for zero and for NaN, like PyTorch's sgn.
            sign[i] = if d > T::ZERO {
                sign[i]
            } else if d < T::ZERO {
                -sign[i]
            } else {
                T::ZERO
            };
            logabsdet[i] += d.abs().ln();
        }
        Ok(())
    })
}

pub fn inv<T: Scalar>(batch: usize, n: usize, a: &[T], out: &mut [T]) -> Result<()> {
    let call = "linalg.inv";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "out", out.len(), batch, n, n)?;
    if out.is_empty() {
        return Ok(());
    }
    for_each_factored(batch, n, a, |i, lu, pivots, outcome| {
        if outcome.info != 0 {
            return Err(Error::numerical(format!(
                "{call}: (Batch element {i}): The diagonal element {} is zero, the inversion could not be completed \
                 because the input matrix is singular.",
                outcome.info
            )));
        }
        let inverse = item_mut(out, i, n * n);
        set_identity(inverse, n);
        solve_factored(lu, n, pivots, inverse, n);
        Ok(())
    })
}

pub fn solve<T: Scalar>(batch: usize, n: usize, nrhs: usize, a: &[T], b: &[T], out: &mut [T]) -> Result<()> {
    let call = "torch.linalg.solve";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "b", b.len(), batch, n, nrhs)?;
    check(call, "out", out.len(), batch, n, nrhs)?;
    if a.is_empty() {
        return Ok(());
    }
    out.copy_from_slice(b);
    for_each_factored(batch, n, a, |i, lu, pivots, outcome| {
        if outcome.info != 0 {
            return Err(Error::numerical(format!(
                "{call}: (Batch element {i}): The solver failed because the input matrix is singular."
            )));
        }
        solve_factored(lu, n, pivots, item_mut(out, i, n * nrhs), nrhs);
        Ok(())
    })
}
