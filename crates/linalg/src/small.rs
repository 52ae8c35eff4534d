//! Eigenvalues and eigenvectors of symmetric matrices of a few rows, on the stack and in `f64`.
//!
//! Room that depends on the size, padding and calls of vector kernels cost more than the arithmetic of such matrices.

use crate::conquer::{eigenvalues, ql_iteration};
use crate::real::Scalar;

/// The largest size.
pub const MAX_ROWS: usize = 8;

type Row = [f64; MAX_ROWS];

/// Sums below this are of numbers that do not count beside one.
const NEGLIGIBLE: f64 = 1e-280;

/// The eigenvalues in no order, and the eigenvectors by rows.
pub struct Eigen {
    values: Row,
    vectors: [Row; MAX_ROWS],
    order: [usize; MAX_ROWS],
    scale: f64,
}

/// Why there is no solution.
pub enum Failure {
    NotFinite,
    NotConverged,
}

impl Eigen {
    /// Solves for the row-major `n × n` matrix `a`, of which the `lower` or the upper triangle is read; `n` is at most
    /// [`MAX_ROWS`]. Vectors are computed if `wanted`.
    pub fn new<T: Scalar>(a: &[T], n: usize, lower: bool, wanted: bool) -> Result<Self, Failure> {
        let mut m = [[0.0; MAX_ROWS]; MAX_ROWS];
        let mut largest = 0f64;
        for i in 0..n {
            for j in 0..=i {
                let x = (if lower { a[i * n + j] } else { a[j * n + i] }).to_f64();
                if !x.is_finite() {
                    return Err(Failure::NotFinite);
                }
                largest = largest.max(x.abs());
                m[i][j] = x;
                m[j][i] = x;
            }
        }
        // By a power of two, so that nothing is rounded.
        let exponent = if largest > 0.0 { largest.log2().floor().clamp(-1000.0, 1000.0) } else { 0.0 };
        let shrink = (-exponent).exp2();
        m.iter_mut().flatten().for_each(|x| *x *= shrink);

        let mut out = Self {
            values: [0.0; MAX_ROWS],
            vectors: [[0.0; MAX_ROWS]; MAX_ROWS],
            order: [0; MAX_ROWS],
            scale: exponent.exp2(),
        };
        let mut beside = [0.0; MAX_ROWS];
        reduce(&mut m, n, &mut out.values, &mut beside, wanted.then_some(&mut out.vectors));
        let (values, vectors, beside) = (&mut out.values[..n], &mut out.vectors, &mut beside[..n]);
        let done = if wanted {
            ql_iteration(values, beside, f64::EPSILON, |i, cos, sin| {
                let (head, tail) = vectors.split_at_mut(i + 1);
                for (x, y) in tail[0].iter_mut().zip(&mut head[i]) {
                    (*x, *y) = (cos * *x + sin * *y, cos * *y - sin * *x);
                }
            })
        } else {
            beside.iter_mut().for_each(|x| *x *= *x);
            eigenvalues(values, beside, f64::EPSILON)
        };
        if !done {
            return Err(Failure::NotConverged);
        }
        // Insertion: there are only a few.
        for i in 0..n {
            let mut at = i;
            while at > 0 && out.values[out.order[at - 1]] > out.values[i] {
                out.order[at] = out.order[at - 1];
                at -= 1;
            }
            out.order[at] = i;
        }
        Ok(out)
    }

    /// Writes the eigenvalues, ascending.
    pub fn write_values<T: Scalar>(&self, to: &mut [T]) {
        for (to, &i) in to.iter_mut().zip(&self.order) {
            *to = T::from_f64(self.values[i] * self.scale);
        }
    }

    /// Writes the eigenvectors as columns of the row-major `n × n` matrix `to`.
    pub fn write_vectors<T: Scalar>(&self, n: usize, to: &mut [T]) {
        for (r, row) in to.chunks_exact_mut(n).enumerate() {
            for (to, &i) in row.iter_mut().zip(&self.order) {
                *to = T::from_f64(self.vectors[i][r]);
            }
        }
    }
}

/// Takes the symmetric `m` to tridiagonal form by Householder reflectors; `basis` gets their product, by columns.
fn reduce(
    m: &mut [Row; MAX_ROWS],
    n: usize,
    diagonal: &mut Row,
    beside: &mut Row,
    basis: Option<&mut [Row; MAX_ROWS]>,
) {
    let mut reflectors = [([0.0; MAX_ROWS], 0.0); MAX_ROWS];
    for k in 0..n.saturating_sub(1) {
        diagonal[k] = m[k][k];
        let mut v = m[k];
        v[..=k].fill(0.0);
        let head = v[k + 1];
        let tail: f64 = v[k + 2..].iter().map(|x| x * x).sum();
        if tail < NEGLIGIBLE {
            beside[k] = head;
            continue;
        }
        let norm = (head * head + tail).sqrt();
        let beta = if head > 0.0 { -norm } else { norm };
        let (tau, inverse) = ((beta - head) / beta, 1.0 / (head - beta));
        beside[k] = beta;
        v.iter_mut().for_each(|x| *x *= inverse);
        v[k + 1] = 1.0;
        // A - v wᵀ - w vᵀ with w = p - tau/2 (p·v) v and p = tau A v.
        let mut w = [0.0; MAX_ROWS];
        for i in k + 1..n {
            w[i] = tau * dot(&m[i], &v);
        }
        let half = 0.5 * tau * dot(&w, &v);
        for i in 0..MAX_ROWS {
            w[i] -= half * v[i];
        }
        for i in k + 1..n {
            let (vi, wi) = (v[i], w[i]);
            for j in 0..MAX_ROWS {
                m[i][j] -= vi * w[j] + wi * v[j];
            }
        }
        reflectors[k] = (v, tau);
    }
    if let Some(last) = n.checked_sub(1) {
        diagonal[last] = m[last][last];
        beside[last] = 0.0;
    }
    let Some(columns) = basis else { return };
    for (i, column) in columns[..n].iter_mut().enumerate() {
        column[i] = 1.0;
    }
    for k in (0..n.saturating_sub(1)).rev() {
        let (v, tau) = &reflectors[k];
        for column in &mut columns[k + 1..n] {
            let factor = tau * dot(column, v);
            for j in 0..MAX_ROWS {
                column[j] -= factor * v[j];
            }
        }
    }
}

fn dot(x: &Row, y: &Row) -> f64 {
    // Four partial sums, so that the compiler may use vectors.
    let mut sums = [0.0; 4];
    for i in 0..MAX_ROWS {
        sums[i % 4] += x[i] * y[i];
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}
