//! Reduction of a matrix with at least as many rows as columns to upper bidiagonal form, `Pᵀ A Q = B`, by Householder
//! reflectors.
//!
//! Step `k` clears column `k` below the diagonal with a left reflector and row `k` right of the superdiagonal with a
//! right reflector. The combined update of the rest is `A - v yᵀ - x uᵀ`. It is deferred to the next step, which fuses
//! it with the products of its own vectors (see `bidiagonal_step`), so that a step reads and writes the matrix once.
//! That is 4 n² (m - n/3) operations, and half the memory traffic of two products and an update.

use crate::layout::col_major;
use crate::real::Scalar;
use crate::reflector::{Reflectors, apply_padded, make_reflector, negligible};
use crate::simd::kernels::{axpy, bidiagonal_step, dot};
use crate::simd::{Aligned, PAD, padded};

/// Workspace for reducing matrices of one shape.
pub struct Bidiagonal<T> {
    rows: usize,
    cols: usize,
    /// Padded number of rows: the length of a column.
    ld: usize,
    /// Padded number of columns: the length of a right vector.
    width: usize,
    /// The matrix, column-major with [`Bidiagonal::ld`] rows; the padding is zero.
    pub a: Aligned<T>,
    left: Aligned<T>,
    right: Aligned<T>,
    left_taus: Vec<T>,
    right_taus: Vec<T>,
    x: Aligned<T>,
    y: Aligned<T>,
    z: Aligned<T>,
    row: Aligned<T>,
    zeros: Aligned<T>,
}

impl<T: Scalar> Bidiagonal<T> {
    /// `rows >= cols >= 1`.
    pub fn new(rows: usize, cols: usize) -> Self {
        let (ld, width) = (padded(rows), padded(cols));
        Self {
            rows,
            cols,
            ld,
            width,
            a: Aligned::new(ld * cols),
            left: Aligned::new(ld * cols),
            right: Aligned::new(width * (cols - 1)),
            left_taus: vec![T::ZERO; cols],
            right_taus: vec![T::ZERO; cols - 1],
            x: Aligned::new(ld),
            y: Aligned::new(width),
            z: Aligned::new(ld),
            row: Aligned::new(width),
            zeros: Aligned::new(ld.max(width)),
        }
    }

    /// Whether the matrix is square.
    pub fn is_square(&self) -> bool {
        self.rows == self.cols
    }

    /// Column stride of [`Bidiagonal::a`].
    pub fn ld(&self) -> usize {
        self.ld
    }

    /// Reduces the matrix, which is scaled by [`rescale`](crate::layout::rescale) and overwritten, to its diagonal and
    /// its `cols - 1` superdiagonal entries.
    pub fn reduce(&mut self, diagonal: &mut [f64], beside: &mut [f64]) {
        let (rows, cols, ld, width) = (self.rows, self.cols, self.ld, self.width);
        self.x.fill(T::ZERO);
        self.y.fill(T::ZERO);
        for k in 0..cols {
            let (lefts, v) = self.left.split_at_mut(k * ld);
            let (rights, u) = self.right.split_at_mut((k * width).min(width * (cols - 1)));
            let (before, right_before) = match k {
                0 => (&self.zeros[..ld], &self.zeros[..width]),
                _ => (&lefts[(k - 1) * ld..], &rights[(k - 1) * width..]),
            };
            let (column, v) = (&mut self.a[k * ld..(k + 1) * ld], &mut v[..ld]);
            let from = k / PAD * PAD;
            axpy(-self.y[k], &before[from..], &mut column[from..]);
            axpy(-right_before[k], &self.x[from..], &mut column[from..]);
            v.fill(T::ZERO);
            v[k..rows].copy_from_slice(&column[k..rows]);
            let (tau, beta) = make_reflector(&mut v[k..rows], negligible());
            self.left_taus[k] = tau;
            diagonal[k] = beta.to_f64();
            if k + 1 == cols {
                break;
            }
            bidiagonal_step(
                &mut self.a,
                rows,
                k + 1,
                cols,
                before,
                &self.x,
                right_before,
                v,
                tau,
                &mut self.y,
                &mut self.row,
                &mut self.z,
            );
            let u = &mut u[..width];
            u.fill(T::ZERO);
            u[k + 1..cols].copy_from_slice(&self.row[k + 1..cols]);
            let head = u[k + 1];
            let (tau, beta) = make_reflector(&mut u[k + 1..cols], negligible());
            self.right_taus[k] = tau;
            beside[k] = beta.to_f64();
            self.y[..=k].fill(T::ZERO);
            if tau == T::ZERO {
                self.x.fill(T::ZERO);
                continue;
            }
            // u = (row - beta e) / (head - beta), so A u = (z - beta A e) / (head - beta); the left reflector subtracts
            // v (y·u).
            let scale = tau / (head - beta);
            let along = tau * dot(&self.y, u);
            let next = &self.a[(k + 1) * ld..(k + 2) * ld];
            for (((x, &z), &next), &v) in self.x.iter_mut().zip(self.z.iter()).zip(next).zip(v.iter()) {
                *x = (z - beta * next) * scale - along * v;
            }
            self.x[..=k].fill(T::ZERO);
        }
    }

    /// Multiplies padded columns by `P` and by `Q`.
    pub fn apply_padded(&self, left: &mut [T], right: &mut [T]) {
        apply_padded(&self.left, &self.left_taus, 0, self.ld, left);
        apply_padded(&self.right, &self.right_taus, 1, self.width, right);
    }

    /// The left reflectors of the last reduction, whose product is `P`.
    pub fn left(&self) -> Reflectors<'_, T> {
        let vectors = col_major(&self.left, self.ld, self.cols).block(0..self.rows, 0..self.cols);
        Reflectors { vectors, taus: &self.left_taus, offset: 0 }
    }

    /// The right reflectors of the last reduction, whose product is `Q`.
    pub fn right(&self) -> Reflectors<'_, T> {
        let vectors = col_major(&self.right, self.width, self.cols - 1).block(0..self.cols, 0..self.cols - 1);
        Reflectors { vectors, taus: &self.right_taus, offset: 1 }
    }
}
