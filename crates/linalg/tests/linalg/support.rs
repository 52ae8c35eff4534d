//! Plain reference arithmetic in f64 and reproducible matrices.

use std::ops::Range;

/// Numbers in -1..1 that are the same on every machine.
pub fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The product of row-major `m × k` and `k × n` matrices.
pub fn matmul(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for p in 0..k {
            for j in 0..n {
                c[i * n + j] += a[i * k + p] * b[p * n + j];
            }
        }
    }
    c
}

pub fn transposed(a: &[f64], rows: usize, cols: usize) -> Vec<f64> {
    (0..rows * cols).map(|i| a[(i % rows) * cols + i / rows]).collect()
}

/// Some columns of a row-major matrix of `cols` columns.
pub fn columns(a: &[f64], cols: usize, range: Range<usize>) -> Vec<f64> {
    a.chunks_exact(cols).flat_map(|row| row[range.clone()].to_vec()).collect()
}

pub fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect()
}

/// Checks that the columns of a row-major `rows × cols` matrix are orthonormal.
pub fn assert_orthonormal(q: &[f64], rows: usize, cols: usize, tolerance: f64) {
    let gram = matmul(&transposed(q, rows, cols), q, cols, rows, cols);
    assert_close(&gram, &identity(cols), tolerance);
}

#[track_caller]
pub fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance, "element {i}: {a} instead of {e} (tolerance {tolerance:e})");
    }
}

/// An element type as f64, so that one test covers both.
pub trait Element: rushlight_linalg::Real + Default {
    /// Tolerance of a few roundings.
    const TOLERANCE: f64;
    fn narrow(values: &[f64]) -> Vec<Self>;
    fn widen(values: &[Self]) -> Vec<f64>;
    fn zeros(count: usize) -> Vec<Self> {
        vec![Self::default(); count]
    }
}

impl Element for f32 {
    const TOLERANCE: f64 = 2e-6;
    fn narrow(values: &[f64]) -> Vec<f32> {
        values.iter().map(|&x| x as f32).collect()
    }
    fn widen(values: &[f32]) -> Vec<f64> {
        values.iter().map(|&x| x.into()).collect()
    }
}

impl Element for f64 {
    const TOLERANCE: f64 = 4e-15;
    fn narrow(values: &[f64]) -> Vec<f64> {
        values.to_vec()
    }
    fn widen(values: &[f64]) -> Vec<f64> {
        values.to_vec()
    }
}
