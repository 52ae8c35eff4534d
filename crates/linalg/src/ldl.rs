//! Symmetric indefinite matrices: `P A Pᵀ = L D Lᵀ` by Bunch and Kaufman's pivoting, with LAPACK's packing.
//!
//! `D` has blocks of one and of two rows. A positive pivot `p` at `k` says that row `k` was exchanged with row `p`,
//! counted from one; a pair of equal negative pivots marks a block of two, whose second row was exchanged. Exchanges
//! are not applied to the columns of `L` that were already finished.

use crate::layout::{check, item, item_mut};
use crate::real::Scalar;
use rushlight_core::{Error, Result};

/// `(1 + √17) / 8`: the bound of growth is the same for blocks of one and of two.
const ALPHA: f64 = 0.640_388_203_202_208_4;

/// Rows and columns `n`, row-major, of which the lower triangle is used.
struct Lower<'a, T> {
    n: usize,
    a: &'a mut [T],
}

impl<T: Scalar> Lower<'_, T> {
    /// The place of an entry of the symmetric matrix in the lower triangle.
    fn place(&self, i: usize, j: usize) -> usize {
        i.max(j) * self.n + i.min(j)
    }

    fn at(&self, i: usize, j: usize) -> T {
        self.a[self.place(i, j)]
    }

    /// The largest off-diagonal entry of row `i` among the columns from `from` on, and its column.
    fn largest(&self, i: usize, from: usize) -> (usize, T) {
        let mut best = (i, T::ZERO);
        for j in (from..self.n).filter(|&j| j != i) {
            if self.at(i, j).abs() > best.1 {
                best = (j, self.at(i, j).abs());
            }
        }
        best
    }

    /// Exchanges rows and columns `i < j` of the part from `i` on.
    fn exchange(&mut self, i: usize, j: usize) {
        for k in (i..self.n).filter(|&k| k != i && k != j) {
            let (x, y) = (self.place(i, k), self.place(j, k));
            self.a.swap(x, y);
        }
        let (x, y) = (self.place(i, i), self.place(j, j));
        self.a.swap(x, y);
    }

    /// The pivot of column `k`: the row to exchange with, and whether the block has two rows.
    fn pivot(&self, k: usize, row: usize, beside: T) -> (usize, bool) {
        let (alpha, own) = (T::from_f64(ALPHA), self.at(k, k).abs());
        if own >= alpha * beside {
            return (k, false);
        }
        let row_largest = self.largest(row, k).1;
        if own >= alpha * beside * (beside / row_largest) {
            (k, false)
        } else if self.at(row, row).abs() >= alpha * row_largest {
            (row, false)
        } else {
            (row, true)
        }
    }

    fn factor(&mut self, pivots: &mut [i32]) -> i32 {
        let (n, mut k, mut info) = (self.n, 0, 0);
        while k < n {
            let (row, beside) = self.largest_below(k);
            let own = self.at(k, k).abs();
            let empty = own == T::ZERO && beside == T::ZERO;
            // A NaN counts as a column that cannot be eliminated.
            if empty || own.partial_cmp(&own).is_none() {
                info = if info == 0 { k as i32 + 1 } else { info };
                pivots[k] = k as i32 + 1;
                k += 1;
                continue;
            }
            let (with, two) = self.pivot(k, row, beside);
            let last = k + usize::from(two);
            if with != last {
                self.exchange(last, with);
                if two {
                    let (x, y) = (self.place(k + 1, k), self.place(with, k));
                    self.a.swap(x, y);
                }
            }
            if two {
                self.eliminate_two(k);
                pivots[k] = -(with as i32) - 1;
                pivots[k + 1] = pivots[k];
                k += 2;
            } else {
                self.eliminate_one(k);
                pivots[k] = with as i32 + 1;
                k += 1;
            }
        }
        // The upper triangle is not part of the factors.
        for i in 0..n {
            self.a[i * n + i + 1..(i + 1) * n].fill(T::ZERO);
        }
        info
    }

    fn largest_below(&self, k: usize) -> (usize, T) {
        self.largest(k, k + 1)
    }

    fn eliminate_one(&mut self, k: usize) {
        let inverse = T::ONE / self.at(k, k);
        for i in k + 1..self.n {
            let factor = inverse * self.at(i, k);
            for j in k + 1..=i {
                self.a[i * self.n + j] = self.at(i, j) - factor * self.at(j, k);
            }
        }
        for i in k + 1..self.n {
            self.a[i * self.n + k] = inverse * self.at(i, k);
        }
    }

    fn eliminate_two(&mut self, k: usize) {
        let n = self.n;
        let beside = self.at(k + 1, k);
        // The inverse of the block, scaled by the entry beside the diagonal so that it cannot overflow.
        let (first, second) = (self.at(k + 1, k + 1) / beside, self.at(k, k) / beside);
        let scale = T::ONE / (first * second - T::ONE) / beside;
        for j in k + 2..n {
            let (x, y) = (self.at(j, k), self.at(j, k + 1));
            let (l0, l1) = (scale * (first * x - y), scale * (second * y - x));
            for i in j..n {
                self.a[i * n + j] = self.at(i, j) - self.at(i, k) * l0 - self.at(i, k + 1) * l1;
            }
            self.a[j * n + k] = l0;
            self.a[j * n + k + 1] = l1;
        }
    }
}

pub fn ldl_factor<T: Scalar>(
    batch: usize,
    n: usize,
    a: &[T],
    ld: &mut [T],
    pivots: &mut [i32],
    infos: &mut [i32],
) -> Result<()> {
    let call = "torch.linalg.ldl_factor";
    check(call, "a", a.len(), batch, n, n)?;
    check(call, "ld", ld.len(), batch, n, n)?;
    check(call, "pivots", pivots.len(), batch, n, 1)?;
    check(call, "infos", infos.len(), batch, 1, 1)?;
    if n > i32::MAX as usize {
        return Err(Error::value(format!("{call}: matrices of {n}x{n} have more rows than a pivot can name")));
    }
    ld.copy_from_slice(a);
    for (i, info) in infos.iter_mut().enumerate() {
        *info = Lower { n, a: item_mut(ld, i, n * n) }.factor(item_mut(pivots, i, n));
    }
    Ok(())
}

/// A block of `D`, as the pivots of one matrix say.
struct Step {
    at: usize,
    two: bool,
    /// The row that the block's last row was exchanged with.
    with: usize,
}

fn steps(call: &str, pivots: &[i32]) -> Result<Vec<Step>> {
    let n = pivots.len();
    let (mut out, mut k) = (Vec::with_capacity(n), 0);
    while k < n {
        let (pivot, two) = (pivots[k], pivots[k] < 0);
        let with = pivot.unsigned_abs() as usize;
        let in_range = (k + 1..=n).contains(&with) && !(two && pivots.get(k + 1) != Some(&pivot));
        if !in_range {
            return Err(Error::value(format!(
                "{call}: pivot {k} is {pivot}; expected pivots as ldl_factor gives them: {} to {n}, or a pair of equal negative ones",
                k + 1
            )));
        }
        out.push(Step { at: k, two, with: with - 1 });
        k += 1 + usize::from(two);
    }
    Ok(out)
}

/// `x[row] -= factor * x[from]` for rows of `width` elements.
fn subtract_row<T: Scalar>(x: &mut [T], width: usize, row: usize, from: usize, factor: T) {
    for c in 0..width {
        let change = factor * x[from * width + c];
        x[row * width + c] -= change;
    }
}

fn swap_rows<T>(x: &mut [T], width: usize, i: usize, j: usize) {
    if i != j {
        (0..width).for_each(|c| x.swap(i * width + c, j * width + c));
    }
}

pub fn ldl_solve<T: Scalar>(
    batch: usize,
    n: usize,
    nrhs: usize,
    ld: &[T],
    pivots: &[i32],
    b: &[T],
    out: &mut [T],
) -> Result<()> {
    let call = "torch.linalg.ldl_solve";
    check(call, "ld", ld.len(), batch, n, n)?;
    check(call, "pivots", pivots.len(), batch, n, 1)?;
    check(call, "b", b.len(), batch, n, nrhs)?;
    check(call, "out", out.len(), batch, n, nrhs)?;
    out.copy_from_slice(b);
    for i in 0..batch {
        let steps = steps(call, item(pivots, i, n))?;
        solve_one(n, nrhs, item(ld, i, n * n), &steps, item_mut(out, i, n * nrhs));
    }
    Ok(())
}

fn solve_one<T: Scalar>(n: usize, nrhs: usize, ld: &[T], steps: &[Step], x: &mut [T]) {
    let at = |i: usize, j: usize| ld[i * n + j];
    // L D first: exchange, eliminate, divide by the block.
    for step in steps {
        let k = step.at;
        let last = k + usize::from(step.two);
        swap_rows(x, nrhs, last, step.with);
        for row in last + 1..n {
            (k..=last).for_each(|column| subtract_row(x, nrhs, row, column, at(row, column)));
        }
        if !step.two {
            x[k * nrhs..(k + 1) * nrhs].iter_mut().for_each(|x| *x /= at(k, k));
            continue;
        }
        let beside = at(k + 1, k);
        let (first, second) = (at(k, k) / beside, at(k + 1, k + 1) / beside);
        let determinant = first * second - T::ONE;
        for c in 0..nrhs {
            let (p, q) = (x[k * nrhs + c] / beside, x[(k + 1) * nrhs + c] / beside);
            x[k * nrhs + c] = (second * p - q) / determinant;
            x[(k + 1) * nrhs + c] = (first * q - p) / determinant;
        }
    }
    // Then Lᵀ, from the end.
    for step in steps.iter().rev() {
        let k = step.at;
        let last = k + usize::from(step.two);
        for row in last + 1..n {
            (k..=last).for_each(|column| subtract_row(x, nrhs, column, row, at(row, column)));
        }
        swap_rows(x, nrhs, last, step.with);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_with_blocks_of_both_sizes() {
        // Small diagonals force blocks of two; the last row is a block of one.
        let n = 7;
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5
        };
        for diagonal in [0.0, 1e-3, 10.0] {
            let mut a = vec![0.0; n * n];
            for i in 0..n {
                for j in 0..=i {
                    let value = if i == j { diagonal * next() } else { next() };
                    (a[i * n + j], a[j * n + i]) = (value, value);
                }
            }
            let b: Vec<f64> = (0..2 * n).map(|_| next()).collect();
            let (mut ld, mut pivots, mut infos) = (vec![0.0; n * n], vec![0; n], [0]);
            ldl_factor(1, n, &a, &mut ld, &mut pivots, &mut infos).unwrap();
            assert_eq!(infos, [0]);
            assert!(diagonal > 1.0 || pivots.iter().any(|&p| p < 0), "{pivots:?}");
            let mut x = vec![0.0; 2 * n];
            ldl_solve(1, n, 2, &ld, &pivots, &b, &mut x).unwrap();
            for i in 0..n {
                for c in 0..2 {
                    let product: f64 = (0..n).map(|j| a[i * n + j] * x[2 * j + c]).sum();
                    assert!(
                        (product - b[2 * i + c]).abs() < 1e-12,
                        "{diagonal}: {product} instead of {}",
                        b[2 * i + c]
                    );
                }
            }
        }
    }

    #[test]
    fn pivots_that_no_factorisation_gives_are_refused() {
        let mut x = [0.0; 2];
        for pivots in [[0, 2], [3, 2], [1, 1], [-2, 2], [1, -2], [i32::MIN, i32::MIN]] {
            assert!(ldl_solve(1, 2, 1, &[1.0, 0.0, 0.0, 1.0], &pivots, &[1.0, 1.0], &mut x).is_err(), "{pivots:?}");
        }
    }
}
