//! Factors multiply back to the matrix, for sizes around every block boundary, in f32 and f64, batched.

use crate::support::*;
use rushlight_linalg::*;

/// Sizes below, at and above the panels and blocks of LU, triangular solves, QR and Cholesky's recursion.
const SIZES: [usize; 9] = [1, 2, 3, 16, 17, 33, 64, 100, 150];
const SHAPES: [(usize, usize); 12] =
    [(1, 1), (1, 5), (5, 1), (4, 3), (3, 4), (17, 16), (40, 33), (33, 40), (150, 20), (20, 150), (64, 64), (150, 140)];
const BATCH: usize = 2;

/// A matrix rounded to the element type, so that f64 arithmetic uses the function's input.
fn matrices<T: Element>(seed: u64, count: usize) -> (Vec<T>, Vec<f64>) {
    let narrow = T::narrow(&noise(seed, count));
    let wide = T::widen(&narrow);
    (narrow, wide)
}

fn lu_case<T: Element>(n: usize) {
    let (a, wide) = matrices::<T>(n as u64, BATCH * n * n);
    let factors = lu_factor(BATCH, n, n, &a).unwrap();
    for b in 0..BATCH {
        let lu = T::widen(&factors.lu[b * n * n..(b + 1) * n * n]);
        let (mut l, mut u) = (identity(n), vec![0.0; n * n]);
        for i in 0..n {
            for j in 0..n {
                if j < i { l[i * n + j] = lu[i * n + j] } else { u[i * n + j] = lu[i * n + j] }
            }
        }
        assert!(l.iter().all(|x| x.abs() <= 1.0), "partial pivoting keeps L small");
        let mut permuted = wide[b * n * n..(b + 1) * n * n].to_vec();
        let mut sign = 1.0;
        for (i, &p) in factors.pivots[b * n..(b + 1) * n].iter().enumerate() {
            let p = p as usize - 1;
            assert!(i <= p && p < n);
            if p != i {
                sign = -sign;
                (0..n).for_each(|c| permuted.swap(i * n + c, p * n + c));
            }
        }
        assert_close(&matmul(&l, &u, n, n, n), &permuted, n as f64 * T::TOLERANCE);
        assert_eq!(T::widen(&factors.signs[b..b + 1]), [sign]);
    }
}

#[test]
fn lu() {
    SIZES.into_iter().for_each(lu_case::<f32>);
    SIZES.into_iter().for_each(lu_case::<f64>);
}

fn solve_case<T: Element>(n: usize) {
    // A dominant diagonal keeps the condition number small, so that the residual is only rounding.
    let mut dense = noise(7 + n as u64, BATCH * n * n);
    dense.chunks_exact_mut(n * n).for_each(|a| a.iter_mut().step_by(n + 1).for_each(|d| *d += n as f64));
    let a = T::narrow(&dense);
    let dense = T::widen(&a);
    for nrhs in [1, 5] {
        let (b, wide_b) = matrices::<T>(3, BATCH * n * nrhs);
        let mut x = T::zeros(BATCH * n * nrhs);
        solve(BATCH, n, nrhs, &a, &b, &mut x).unwrap();
        let triangular = [(false, false), (false, true), (true, false), (true, true)].map(|(upper, unit)| {
            let mut t = T::zeros(BATCH * n * nrhs);
            solve_triangular(BATCH, n, nrhs, &a, &b, &mut t, upper, unit).unwrap();
            (upper, unit, t)
        });
        for i in 0..BATCH {
            let matrix = &dense[i * n * n..(i + 1) * n * n];
            let rhs = &wide_b[i * n * nrhs..(i + 1) * n * nrhs];
            let x = T::widen(&x[i * n * nrhs..(i + 1) * n * nrhs]);
            assert_close(&matmul(matrix, &x, n, n, nrhs), rhs, n as f64 * T::TOLERANCE);
            for (upper, unit, t) in &triangular {
                let half: Vec<f64> = (0..n * n)
                    .map(|e| match (e / n, e % n) {
                        (r, c) if r == c => {
                            if *unit {
                                1.0
                            } else {
                                matrix[e]
                            }
                        }
                        (r, c) if (c > r) == *upper => matrix[e],
                        _ => 0.0,
                    })
                    .collect();
                let t = T::widen(&t[i * n * nrhs..(i + 1) * n * nrhs]);
                let largest = t.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
                assert_close(&matmul(&half, &t, n, n, nrhs), rhs, n as f64 * T::TOLERANCE * largest);
            }
        }
    }
    let mut inverse = T::zeros(BATCH * n * n);
    inv(BATCH, n, &a, &mut inverse).unwrap();
    for i in 0..BATCH {
        let range = i * n * n..(i + 1) * n * n;
        let product = matmul(&T::widen(&inverse[range.clone()]), &dense[range], n, n, n);
        assert_close(&product, &identity(n), n as f64 * T::TOLERANCE);
    }
}

#[test]
fn solve_inv_and_triangular() {
    SIZES.into_iter().for_each(solve_case::<f32>);
    SIZES.into_iter().for_each(solve_case::<f64>);
}

fn symmetric_case<T: Element>(n: usize) {
    let g = noise(11 + n as u64, n * n);
    let mut definite = matmul(&g, &transposed(&g, n, n), n, n, n);
    definite.iter_mut().step_by(n + 1).for_each(|d| *d += 1.0);
    let a = T::narrow(&definite);
    let definite = T::widen(&a);
    let tolerance = 4.0 * n as f64 * T::TOLERANCE;
    let mut l = T::zeros(n * n);
    cholesky(1, n, &a, &mut l).unwrap();
    let l = T::widen(&l);
    assert!((0..n).all(|r| l[r * n + r + 1..(r + 1) * n].iter().all(|&x| x == 0.0)));
    assert_close(&matmul(&l, &transposed(&l, n, n), n, n, n), &definite, tolerance);

    for lower in [true, false] {
        // The other triangle must not be read.
        let poisoned: Vec<f64> = (0..n * n)
            .map(|e| if e / n == e % n || (e / n > e % n) == lower { definite[e] } else { f64::NAN })
            .collect();
        let (mut values, mut vectors, mut only) = (T::zeros(n), T::zeros(n * n), T::zeros(n));
        eigh(1, n, &T::narrow(&poisoned), &mut values, &mut vectors, lower).unwrap();
        eigvalsh(1, n, &T::narrow(&poisoned), &mut only, lower).unwrap();
        let (values, vectors) = (T::widen(&values), T::widen(&vectors));
        assert!(values.is_sorted());
        assert_close(&T::widen(&only), &values, tolerance);
        assert_orthonormal(&vectors, n, n, n as f64 * T::TOLERANCE);
        let scaled: Vec<f64> = vectors.iter().enumerate().map(|(e, v)| v * values[e % n]).collect();
        assert_close(&matmul(&scaled, &transposed(&vectors, n, n), n, n, n), &definite, tolerance);
    }
}

#[test]
fn cholesky_and_eigh() {
    SIZES.into_iter().for_each(symmetric_case::<f32>);
    SIZES.into_iter().for_each(symmetric_case::<f64>);
}

fn qr_case<T: Element>(m: usize, n: usize) {
    let (a, wide) = matrices::<T>((m * 1000 + n) as u64, BATCH * m * n);
    for complete in [false, true] {
        let k = if complete { m } else { m.min(n) };
        let (mut q, mut r) = (T::zeros(BATCH * m * k), T::zeros(BATCH * k * n));
        qr(BATCH, m, n, &a, &mut q, &mut r, complete).unwrap();
        for b in 0..BATCH {
            let q = T::widen(&q[b * m * k..(b + 1) * m * k]);
            let r = T::widen(&r[b * k * n..(b + 1) * k * n]);
            let tolerance = (m.max(n) as f64 + 4.0) * T::TOLERANCE;
            assert_orthonormal(&q, m, k, tolerance);
            assert_close(&matmul(&q, &r, m, k, n), &wide[b * m * n..(b + 1) * m * n], tolerance);
            assert!((0..k * n).all(|e| e / n <= e % n || r[e] == 0.0));
        }
    }
}

fn svd_case<T: Element>(m: usize, n: usize) {
    let (a, wide) = matrices::<T>((m * 1000 + n) as u64, BATCH * m * n);
    let k = m.min(n);
    for full in [false, true] {
        let (p, o) = if full { (m, n) } else { (k, k) };
        let (mut u, mut s, mut vh) = (T::zeros(BATCH * m * p), T::zeros(BATCH * k), T::zeros(BATCH * o * n));
        let mut values = T::zeros(BATCH * k);
        svd(BATCH, m, n, &a, &mut u, &mut s, &mut vh, full).unwrap();
        svdvals(BATCH, m, n, &a, &mut values).unwrap();
        let tolerance = (m.max(n) as f64 + 4.0) * T::TOLERANCE;
        assert_close(&T::widen(&values), &T::widen(&s), tolerance);
        for b in 0..BATCH {
            let u = T::widen(&u[b * m * p..(b + 1) * m * p]);
            let s = T::widen(&s[b * k..(b + 1) * k]);
            let vh = T::widen(&vh[b * o * n..(b + 1) * o * n]);
            assert!(s.is_sorted_by(|x, y| x >= y) && s[k - 1] >= 0.0);
            assert_orthonormal(&u, m, p, tolerance);
            assert_orthonormal(&transposed(&vh, o, n), n, o, tolerance);
            let scaled: Vec<f64> = columns(&u, p, 0..k).iter().enumerate().map(|(e, x)| x * s[e % k]).collect();
            assert_close(&matmul(&scaled, &vh[..k * n], m, k, n), &wide[b * m * n..(b + 1) * m * n], tolerance);
        }
    }
}

#[test]
fn qr_of_every_shape() {
    for (m, n) in SHAPES {
        qr_case::<f32>(m, n);
        qr_case::<f64>(m, n);
    }
}

#[test]
fn svd_of_every_shape() {
    for (m, n) in SHAPES {
        svd_case::<f32>(m, n);
        svd_case::<f64>(m, n);
    }
}

/// The residual of a least-squares solution is orthogonal to the columns, and the shortest solution lies in the row
/// space.
fn lstsq_case<T: Element>(m: usize, n: usize) {
    let (a, wide) = matrices::<T>((m * 77 + n) as u64, BATCH * m * n);
    let (b, wide_b) = matrices::<T>(5, BATCH * m * 3);
    let (mut x, mut rank) = (T::zeros(BATCH * n * 3), [0; BATCH]);
    lstsq(BATCH, m, n, 3, &a, &b, None, &mut x, &mut rank).unwrap();
    assert_eq!(rank, [m.min(n) as i64; BATCH]);
    for i in 0..BATCH {
        let a = &wide[i * m * n..(i + 1) * m * n];
        let x = T::widen(&x[i * n * 3..(i + 1) * n * 3]);
        let mut residual = matmul(a, &x, m, n, 3);
        residual.iter_mut().zip(&wide_b[i * m * 3..]).for_each(|(r, b)| *r -= b);
        let largest = x.iter().fold(1.0, |l: f64, x| l.max(x.abs()));
        let tolerance = (m * n) as f64 * T::TOLERANCE * largest;
        assert_close(&matmul(&transposed(a, m, n), &residual, n, m, 3), &vec![0.0; n * 3], tolerance);
        if m < n {
            let (mut q, mut r) = (vec![0.0; n * m], vec![0.0; m * m]);
            qr(1, n, m, &transposed(a, m, n), &mut q, &mut r, false).unwrap();
            let projection = matmul(&q, &transposed(&q, n, m), n, m, n);
            assert_close(&matmul(&projection, &x, n, n, 3), &x, tolerance);
        }
    }
}

#[test]
fn least_squares_of_every_shape() {
    for (m, n) in SHAPES {
        lstsq_case::<f32>(m, n);
        lstsq_case::<f64>(m, n);
    }
}

/// A tall f32 matrix with singular values down to 1e-5 of the largest: all of them must survive.
#[test]
fn small_singular_values_of_tall_matrices_are_kept() {
    let (m, n) = (600, 12);
    let (mut q, mut r) = (vec![0.0; m * n], vec![0.0; n * n]);
    qr(1, m, n, &noise(1, m * n), &mut q, &mut r, false).unwrap();
    let expected: Vec<f64> = (0..n).map(|i| 10f64.powf(-5.0 * i as f64 / (n - 1) as f64)).collect();
    let mut v = vec![0.0; n * n];
    qr(1, n, n, &noise(2, n * n), &mut v, &mut r, false).unwrap();
    let scaled: Vec<f64> = q.iter().enumerate().map(|(e, x)| x * expected[e % n]).collect();
    let a: Vec<f32> = matmul(&scaled, &v, m, n, n).iter().map(|&x| x as f32).collect();
    let mut s = [0.0f32; 12];
    svdvals(1, m, n, &a, &mut s).unwrap();
    let s: Vec<f64> = s.iter().map(|&x| x.into()).collect();
    assert_close(&s, &expected, 1e-6);
}

/// The error of f32 eigenvalues and singular values must not grow with the size, as it does in a QR iteration.
#[test]
fn spectra_are_precise_to_a_few_roundings() {
    let n = 150;
    let g = noise(161, n * n);
    let a = f32::narrow(&matmul(&g, &transposed(&g, n, n), n, n, n));
    let mut expected = vec![0.0; n];
    eigvalsh(1, n, &f32::widen(&a), &mut expected, true).unwrap();
    let tolerance = 12.0 * f64::from(f32::EPSILON) * expected[n - 1];
    let (mut values, mut vectors) = (vec![0.0; n], vec![0.0; n * n]);
    eigvalsh(1, n, &a, &mut values, true).unwrap();
    assert_close(&f32::widen(&values), &expected, tolerance);
    eigh(1, n, &a, &mut values, &mut vectors, true).unwrap();
    assert_close(&f32::widen(&values), &expected, tolerance);
    svdvals(1, n, n, &a, &mut values).unwrap();
    values.reverse();
    assert_close(&f32::widen(&values), &expected, tolerance);
}
