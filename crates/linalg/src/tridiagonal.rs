//! Reduction of a symmetric matrix to tridiagonal form by Householder reflectors, `Qᵀ A Q = T`.
//!
//! Step `k` reflects column `k` to a multiple of a unit vector and updates the rest by `A - v wᵀ - w vᵀ`, where `w`
//! needs `A v`. The update is deferred to the next step, which fuses it with the product with its own vector, so that a
//! step reads and writes the lower triangle once: 4/3 n³ operations, n³/6 elements moved. For a matrix in the L2 cache
//! this is as fast as blocked updates, which read as much and compute more.

use crate::layout::col_major;
use crate::real::Scalar;
use crate::reflector::{Reflectors, apply_padded, make_reflector, negligible};
use crate::simd::kernels::{axpy, dot, symmetric_step};
use crate::simd::{Aligned, PAD, padded};

/// Workspace for reducing matrices of one size.
pub struct Tridiagonal<T> {
    n: usize,
    /// Padded number of rows: the length of a column.
    ld: usize,
    /// The lower triangle of the matrix, column-major, and both triangles of the diagonal blocks of [`PAD`], padded
    /// with zeros to `ld × ld`.
    pub a: Aligned<T>,
    vectors: Aligned<T>,
    taus: Vec<T>,
    w: Aligned<T>,
    y: Aligned<T>,
    zeros: Aligned<T>,
}

impl<T: Scalar> Tridiagonal<T> {
    /// `n` is not zero.
    pub fn new(n: usize) -> Self {
        let ld = padded(n);
        Self {
            n,
            ld,
            a: Aligned::new(ld * ld),
            vectors: Aligned::new(ld * (n - 1)),
            taus: vec![T::ZERO; n - 1],
            w: Aligned::new(ld),
            y: Aligned::new(ld),
            zeros: Aligned::new(ld),
        }
    }

    /// Fills [`Tridiagonal::a`] from one triangle of the row-major `a`. The other triangle is not read.
    pub fn load(&mut self, a: &[T], lower: bool) {
        let (n, ld) = (self.n, self.ld);
        self.a.fill(T::ZERO);
        if lower {
            // By tiles, which stay in the L1 cache.
            for i0 in (0..n).step_by(PAD) {
                for j0 in (0..=i0).step_by(PAD) {
                    for i in i0..n.min(i0 + PAD) {
                        let row = &a[i * n + j0..=i * n + i.min(j0 + PAD - 1)];
                        row.iter().enumerate().for_each(|(j, &x)| self.a[(j0 + j) * ld + i] = x);
                    }
                }
            }
        } else {
            for (i, row) in a.chunks_exact(n).enumerate() {
                self.a[i * ld..][i..n].copy_from_slice(&row[i..]);
            }
        }
        // Both triangles of the blocks on the diagonal.
        for j in 0..n {
            for i in j + 1..n.min(j / PAD * PAD + PAD) {
                self.a[i * ld + j] = self.a[j * ld + i];
            }
        }
    }

    /// Reduces the matrix, which is scaled by [`rescale`](crate::layout::rescale) and overwritten, to its diagonal and
    /// its `n - 1` off-diagonal entries.
    pub fn reduce(&mut self, diagonal: &mut [f64], beside: &mut [f64]) {
        let (n, ld) = (self.n, self.ld);
        self.w.fill(T::ZERO);
        for k in 0..n - 1 {
            let (earlier, rest) = self.vectors.split_at_mut(k * ld);
            let (before, x) = (if k > 0 { &earlier[(k - 1) * ld..] } else { &*self.zeros }, &mut rest[..ld]);
            let column = &mut self.a[k * ld..(k + 1) * ld];
            let from = k / PAD * PAD;
            axpy(-self.w[k], &before[from..], &mut column[from..]);
            axpy(-before[k], &self.w[from..], &mut column[from..]);
            diagonal[k] = column[k].to_f64();
            x.fill(T::ZERO);
            x[k + 1..n].copy_from_slice(&column[k + 1..n]);
            let (tau, beta) = make_reflector(&mut x[k + 1..n], negligible());
            self.taus[k] = tau;
            beside[k] = beta.to_f64();
            symmetric_step(&mut self.a, n, k + 1, before, &self.w, x, &mut self.y);
            // w = tau (y - tau/2 (y·x) x)
            self.y[..=k].fill(T::ZERO);
            let half = T::from_f64(0.5) * tau * dot(&self.y[from..], &x[from..]);
            for ((w, &y), &x) in self.w.iter_mut().zip(self.y.iter()).zip(x.iter()) {
                *w = tau * (y - half * x);
            }
        }
        diagonal[n - 1] = self.a[(n - 1) * ld + n - 1].to_f64();
    }

    /// Multiplies padded columns by `Q`.
    pub fn apply_padded(&self, columns: &mut [T]) {
        apply_padded(&self.vectors, &self.taus, 1, self.ld, columns);
    }

    /// The reflectors of the last reduction, whose product is `Q`.
    pub fn reflectors(&self) -> Reflectors<'_, T> {
        let vectors = col_major(&self.vectors, self.ld, self.n - 1).block(0..self.n, 0..self.n - 1);
        Reflectors { vectors, taus: &self.taus, offset: 1 }
    }
}
