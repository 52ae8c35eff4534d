//! Empty, tiny, singular, non-finite and wrongly sized input.

use crate::support::{assert_close, identity, noise};
use rushlight_core::ErrorKind;
use rushlight_linalg::*;

const NAN: f64 = f64::NAN;

#[test]
fn empty_batches_and_sizes() {
    let none: &[f64] = &[];
    for batch in [0, 3] {
        for n in [0, 2] {
            if batch > 0 && n > 0 {
                continue;
            }
            let (mut o1, mut o2) = (vec![9.0; batch], vec![9.0; batch]);
            let factors = lu_factor(batch, n, n, none).unwrap();
            assert_eq!((factors.signs, factors.infos.len()), (vec![1.0; batch], batch));
            det(batch, n, none, &mut o1).unwrap();
            assert_eq!(o1, vec![1.0; batch]);
            slogdet(batch, n, none, &mut o1, &mut o2).unwrap();
            assert_eq!((o1, o2), (vec![1.0; batch], vec![0.0; batch]));
            inv(batch, n, none, &mut []).unwrap();
            solve(batch, n, 2, none, none, &mut []).unwrap();
            solve_triangular(batch, n, 2, none, none, &mut [], true, false).unwrap();
            cholesky(batch, n, none, &mut []).unwrap();
            eigh(batch, n, none, &mut [], &mut [], true).unwrap();
            eigvalsh(batch, n, none, &mut [], true).unwrap();
        }
    }
    for (m, n) in [(0, 0), (0, 3), (3, 0)] {
        let (mut q, mut r) = (vec![9.0; 2 * m * m], vec![9.0; 2 * m * n]);
        qr(2, m, n, none, &mut q, &mut r, true).unwrap();
        assert_close(&q, &identity(m).repeat(2), 0.0);
        qr(2, m, n, none, &mut [], &mut [], false).unwrap();
        let (mut u, mut vh) = (vec![9.0; 2 * m * m], vec![9.0; 2 * n * n]);
        svd(2, m, n, none, &mut u, &mut [], &mut vh, true).unwrap();
        assert_close(&u, &identity(m).repeat(2), 0.0);
        assert_close(&vh, &identity(n).repeat(2), 0.0);
        svd(2, m, n, none, &mut [], &mut [], &mut [], false).unwrap();
        svdvals(2, m, n, none, &mut []).unwrap();
        let (mut x, mut rank) = (vec![9.0; 2 * n * 2], [9; 2]);
        lstsq(2, m, n, 2, none, &vec![1.0; 2 * m * 2], None, &mut x, &mut rank).unwrap();
        assert_eq!((x, rank), (vec![0.0; 2 * n * 2], [0, 0]));
    }
    // An empty batch of matrices no memory could hold.
    let huge = usize::MAX;
    det(0, huge, none, &mut []).unwrap();
    slogdet(0, huge, none, &mut [], &mut []).unwrap();
    inv(0, huge, none, &mut []).unwrap();
    solve(0, huge, huge, none, none, &mut []).unwrap();
    solve_triangular(0, huge, huge, none, none, &mut [], true, true).unwrap();
    cholesky(0, huge, none, &mut []).unwrap();
    eigh(0, huge, none, &mut [], &mut [], true).unwrap();
    eigvalsh(0, huge, none, &mut [], true).unwrap();
    for (m, n) in [(huge, huge), (huge, 0), (0, huge)] {
        for full in [false, true] {
            qr(0, m, n, none, &mut [], &mut [], full).unwrap();
            svd(0, m, n, none, &mut [], &mut [], &mut [], full).unwrap();
        }
        svdvals(0, m, n, none, &mut []).unwrap();
        lstsq(0, m, n, huge, none, none, None, &mut [], &mut []).unwrap();
    }
    assert!(lu_factor(huge, 0, 0, none).is_err());
    // No right-hand side at all.
    solve(1, 2, 0, &[1.0, 2.0, 3.0, 4.0], &[], &mut []).unwrap();
    solve_triangular(1, 2, 0, &[1.0, 2.0, 3.0, 4.0], &[], &mut [], false, false).unwrap();
    for a in [[1.0, 2.0, 3.0, 4.0], [0.0; 4]] {
        lstsq(1, 2, 2, 0, &a, &[], None, &mut [], &mut [0]).unwrap();
    }
}

#[test]
fn one_by_one() {
    let a = [-4.0f32];
    let (mut x, mut y, mut z) = ([0.0], [0.0], [0.0]);
    det(1, 1, &a, &mut x).unwrap();
    assert_eq!(x, [-4.0]);
    inv(1, 1, &a, &mut x).unwrap();
    assert_eq!(x, [-0.25]);
    qr(1, 1, 1, &a, &mut x, &mut y, false).unwrap();
    assert_eq!((x, y), ([1.0], [-4.0]));
    svd(1, 1, 1, &a, &mut x, &mut y, &mut z, true).unwrap();
    assert_eq!((x[0] * z[0], y), (-1.0, [4.0]));
    eigh(1, 1, &a, &mut x, &mut y, true).unwrap();
    assert_eq!((x, y[0].abs()), ([-4.0], 1.0));
    cholesky(1, 1, &[4.0f32], &mut x).unwrap();
    assert_eq!(x, [2.0]);
    let mut rank = [0];
    lstsq(1, 1, 1, 1, &a, &[2.0], None, &mut x, &mut rank).unwrap();
    assert_eq!((x, rank), ([-0.5], [1]));
}

#[test]
fn singular_matrices() {
    let regular = identity(3);
    let singular = [1.0, 2.0, 3.0, 2.0, 4.0, 7.0, 1.0, 2.0, 5.0];
    let a = [&regular[..], &regular, &regular, &singular].concat();
    let mut out = [0.0; 36];
    let error = inv(4, 3, &a, &mut out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Numerical);
    assert_eq!(
        error.to_string(),
        "linalg.inv: (Batch element 3): The diagonal element 2 is zero, the inversion could not be completed because \
         the input matrix is singular."
    );
    let error = solve(4, 3, 3, &a, &a, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "torch.linalg.solve: (Batch element 3): The solver failed because the input matrix is singular."
    );
    let (mut determinant, mut log) = ([9.0; 4], [9.0; 4]);
    det(4, 3, &a, &mut determinant).unwrap();
    assert_eq!(determinant, [1.0, 1.0, 1.0, 0.0]);
    slogdet(4, 3, &a, &mut determinant, &mut log).unwrap();
    assert_eq!((determinant, log), ([1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, f64::NEG_INFINITY]));
    assert_eq!(lu_factor(4, 3, 3, &a).unwrap().infos, [0, 0, 0, 2]);
    // A zero column beyond the first panel does not spoil the factors of the others.
    let n = 40;
    let mut wide = noise(3, n * n);
    wide.iter_mut().skip(20).step_by(n).for_each(|x| *x = 0.0);
    let factors = lu_factor(1, n, n, &wide).unwrap();
    assert_eq!(factors.infos, [21]);
    assert!(factors.lu.iter().all(|x| x.is_finite()));
}

#[test]
fn zero_on_a_triangular_diagonal_divides() {
    let mut x = [0.0; 2];
    solve_triangular(1, 2, 1, &[1.0, 0.0, 1.0, 0.0], &[1.0, 2.0], &mut x, false, false).unwrap();
    assert_eq!(x, [1.0, f64::INFINITY]);
}

#[test]
fn indefinite_matrices() {
    let text = |order| {
        format!(
            "linalg.cholesky: (Batch element 0): The factorization could not be completed because the input is not \
             positive-definite (the leading minor of order {order} is not positive-definite)."
        )
    };
    let mut out = [0.0; 4];
    for (a, order) in [
        ([1.0, 2.0, 2.0, 4.0], 2),
        ([0.0; 4], 1),
        ([1.0, NAN, 2.0, 9.0], 0),
        ([1.0, 0.0, NAN, 9.0], 2),
        ([f64::INFINITY, 0.0, 1.0, 9.0], 1),
    ] {
        match cholesky(1, 2, &a, &mut out) {
            Ok(()) => assert_eq!(order, 0, "only what the upper triangle holds is ignored"),
            Err(error) => assert_eq!(error.to_string(), text(order)),
        }
    }
    // The order is right also where the factorisation works in blocks.
    for bad in [1, 64, 65, 128, 190, 200] {
        let n = 200;
        let mut a = identity(n);
        a[(bad - 1) * (n + 1)] = -1.0;
        assert_eq!(cholesky(1, n, &a, &mut vec![0.0; n * n]).unwrap_err().to_string(), text(bad));
    }
}

#[test]
fn zero_matrices() {
    for (m, n) in [(2, 2), (5, 2), (2, 5), (70, 40), (200, 150)] {
        let (a, k) = (vec![0.0f32; m * n], m.min(n));
        let (mut q, mut r) = (vec![9.0; m * k], vec![9.0; k * n]);
        qr(1, m, n, &a, &mut q, &mut r, false).unwrap();
        assert!(r.iter().all(|&x| x == 0.0));
        assert!(q.iter().enumerate().all(|(e, &x)| x == if e / k == e % k { 1.0 } else { 0.0 }));
        let (mut u, mut s, mut vh) = (vec![9.0; m * k], vec![9.0; k], vec![9.0; k * n]);
        svd(1, m, n, &a, &mut u, &mut s, &mut vh, false).unwrap();
        assert!(s.iter().all(|&x| x == 0.0));
        assert!(u.iter().chain(&vh).all(|x| x.is_finite()));
        let (mut x, mut rank) = (vec![9.0; n], [9]);
        lstsq(1, m, n, 1, &a, &vec![1.0; m], None, &mut x, &mut rank).unwrap();
        assert_eq!((x, rank), (vec![0.0; n], [0]));
    }
    for n in [2, 3, 200] {
        let (mut values, mut vectors) = (vec![9.0; n], vec![9.0; n * n]);
        eigh(1, n, &vec![0.0; n * n], &mut values, &mut vectors, true).unwrap();
        assert_eq!(values, vec![0.0; n]);
        crate::support::assert_orthonormal(&vectors, n, n, 1e-15);
    }
}

/// A column of zeros is skipped as in LAPACK: `R` keeps its position.
#[test]
fn qr_of_a_zero_column() {
    let (mut q, mut r) = ([9.0; 4], [9.0; 4]);
    qr(1, 2, 2, &[0.0, 1.0, 0.0, 2.0], &mut q, &mut r, false).unwrap();
    assert_eq!((q, r), ([1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 2.0]));
}

#[test]
fn non_finite_input_gives_nan_or_an_error() {
    for bad in [NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for n in [1, 2, 3, 20, 70, 200] {
            for place in [0, n * n / 2, n * n - 1] {
                let mut a = noise(n as u64, n * n);
                a[place] = bad;
                let (mut o1, mut o2, mut o3) = (vec![0.0; n * n], vec![0.0; n * n], vec![0.0; n]);
                det(1, n, &a, &mut o1[..1]).unwrap();
                assert!(!o1[0].is_finite());
                slogdet(1, n, &a, &mut o1[..1], &mut o2[..1]).unwrap();
                assert!(!o2[0].is_finite());
                if bad.is_nan() {
                    inv(1, n, &a, &mut o1).unwrap();
                    assert!(o1.iter().any(|x| x.is_nan()));
                } else {
                    let _ = inv(1, n, &a, &mut o1);
                }
                qr(1, n, n, &a, &mut o1, &mut o2, false).unwrap();
                assert!(o1.iter().chain(&o2).any(|x| !x.is_finite()));
                let error = svd(1, n, n, &a, &mut o1, &mut o3, &mut o2, true).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "linalg.svd: (Batch element 0): The algorithm failed to converge because the input matrix \
                     contained non-finite values."
                );
                assert!(svdvals(1, n, n, &a, &mut o3).is_err());
                let seen = place / n >= place % n;
                assert_eq!(eigh(1, n, &a, &mut o3, &mut o1, true).is_err(), seen);
                assert_eq!(eigvalsh(1, n, &a, &mut o3, true).is_err(), seen);
                assert!(lstsq(1, n, n, 1, &a, &vec![1.0; n], None, &mut o3, &mut [0]).is_err());
                assert!(solve_triangular(1, n, 1, &a, &vec![1.0; n], &mut o3, true, false).is_ok());
            }
        }
    }
}

#[test]
fn extreme_magnitudes_do_not_overflow() {
    let pattern = [2.0, 1.0, 1.0, 2.0];
    for scale in [1e300, 1e-300] {
        let a = pattern.map(|x| x * scale);
        let (mut values, mut vectors) = ([0.0; 2], [0.0; 4]);
        eigh(1, 2, &a, &mut values, &mut vectors, true).unwrap();
        assert_close(&values.map(|x| x / scale), &[1.0, 3.0], 1e-14);
        svdvals(1, 2, 2, &a, &mut values).unwrap();
        assert_close(&values.map(|x| x / scale), &[3.0, 1.0], 1e-14);
    }
    // Subnormal entries, whose reciprocals would be infinite.
    let mut x = [0.0f32];
    solve(1, 1, 1, &[1e-40f32], &[2e-40], &mut x).unwrap();
    assert!((x[0] - 2.0).abs() < 1e-4);
}

#[test]
fn rank_tolerance() {
    let a = [1.0, 0.0, 0.0, 1e-3];
    let (mut x, mut rank) = ([0.0; 2], [0]);
    lstsq(1, 2, 2, 1, &a, &[1.0, 1.0], None, &mut x, &mut rank).unwrap();
    assert_eq!(rank, [2]);
    assert_close(&x, &[1.0, 1e3], 1e-10);
    lstsq(1, 2, 2, 1, &a, &[1.0, 1.0], Some(1e-2), &mut x, &mut rank).unwrap();
    assert_eq!(rank, [1]);
    assert_close(&x, &[1.0, 0.0], 1e-14);
}

#[test]
fn wrong_lengths_are_value_errors() {
    let a = [1.0; 4];
    let (mut good, mut short, mut one) = ([0.0; 4], [0.0; 3], [0.0; 1]);
    let (mut two, mut rank) = ([0.0; 2], [0; 1]);
    let results = [
        lu_factor(1, 3, 3, &a).map(drop),
        det(1, 2, &a, &mut two),
        slogdet(1, 2, &a, &mut one, &mut two),
        inv(1, 2, &a, &mut short),
        solve(1, 2, 2, &a, &short, &mut good),
        solve(usize::MAX, 2, 2, &a, &a, &mut good),
        solve_triangular(1, 2, 2, &a, &a, &mut short, true, false),
        cholesky(1, 2, &a, &mut short),
        qr(1, 2, 2, &a, &mut good, &mut short, false),
        svd(1, 2, 2, &a, &mut good, &mut one, &mut [0.0; 4], false),
        svdvals(1, 2, 2, &a, &mut one),
        eigh(1, 2, &a, &mut two, &mut short, true),
        eigvalsh(1, 2, &a, &mut one, true),
        lstsq(1, 2, 2, 1, &a, &[1.0; 3], None, &mut two, &mut rank),
        lstsq(1, 2, 2, 1, &a, &[1.0; 2], None, &mut two, &mut []),
    ];
    for (i, result) in results.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Value, "case {i}");
    }
}
