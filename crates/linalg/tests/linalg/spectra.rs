//! Spectra that are hard for divide and conquer: repeated, clustered, graded, zero, and of extreme size.

use crate::support::*;
use rushlight_linalg::*;

/// An orthogonal matrix, row-major.
fn orthogonal(seed: u64, n: usize) -> Vec<f64> {
    let (mut q, mut r) = (vec![0.0; n * n], vec![0.0; n * n]);
    qr(1, n, n, &noise(seed, n * n), &mut q, &mut r, false).unwrap();
    q
}

/// `left diag(values) rightᵀ`.
fn compose(left: &[f64], values: &[f64], right: &[f64]) -> Vec<f64> {
    let n = values.len();
    let scaled: Vec<f64> = left.iter().enumerate().map(|(e, x)| x * values[e % n]).collect();
    matmul(&scaled, &transposed(right, n, n), n, n, n)
}

/// Spectra by name, all of them with a largest value of about one.
fn spectra(n: usize) -> Vec<(&'static str, Vec<f64>)> {
    let of = |f: &dyn Fn(usize) -> f64| (0..n).map(f).collect::<Vec<f64>>();
    vec![
        ("repeated", of(&|i| [1.0, 0.5, -0.25][i % 3])),
        ("equal", of(&|_| 1.0)),
        ("clustered", of(&|i| 1.0 - 1e-12 * i as f64)),
        ("graded", of(&|i| 10f64.powf(-20.0 * i as f64 / n as f64))),
        ("one large", of(&|i| if i == 0 { 1.0 } else { 1e-9 })),
        ("rank two", of(&|i| if i < 2 { 1.0 / (1 + i) as f64 } else { 0.0 })),
        ("pairs", of(&|i| if i % 2 == 0 { 1.0 } else { -1.0 } * (1.0 - (i / 2) as f64 / n as f64))),
    ]
}

fn check_eigh<T: Element>(name: &str, a: &[f64], n: usize, expected: Option<&[f64]>) {
    println!("{name}, {n}, tolerance {:e}", T::TOLERANCE);
    let a = T::narrow(a);
    let wide = T::widen(&a);
    let size = wide.iter().fold(0.0, |m: f64, x| m.max(x.abs())) * (n as f64).sqrt();
    let (mut values, mut vectors, mut only) = (T::zeros(n), T::zeros(n * n), T::zeros(n));
    eigh(1, n, &a, &mut values, &mut vectors, true).unwrap_or_else(|e| panic!("{name}: {e}"));
    eigvalsh(1, n, &a, &mut only, true).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (values, vectors) = (T::widen(&values), T::widen(&vectors));
    assert!(values.is_sorted(), "{name}");
    let tolerance = 4.0 * (n as f64).sqrt() * T::TOLERANCE;
    assert_orthonormal(&vectors, n, n, tolerance);
    assert_close(&T::widen(&only), &values, tolerance * size);
    assert_close(&compose(&vectors, &values, &vectors), &wide, tolerance * size);
    if let Some(expected) = expected {
        let mut expected = expected.to_vec();
        expected.sort_by(f64::total_cmp);
        assert_close(&values, &expected, tolerance * size);
    }
}

fn check_svd<T: Element>(name: &str, a: &[f64], n: usize, expected: Option<&[f64]>) {
    println!("{name}, {n}, tolerance {:e}", T::TOLERANCE);
    let a = T::narrow(a);
    let wide = T::widen(&a);
    let size = wide.iter().fold(0.0, |m: f64, x| m.max(x.abs())) * (n as f64).sqrt();
    let (mut u, mut s, mut vh, mut only) = (T::zeros(n * n), T::zeros(n), T::zeros(n * n), T::zeros(n));
    svd(1, n, n, &a, &mut u, &mut s, &mut vh, false).unwrap_or_else(|e| panic!("{name}: {e}"));
    svdvals(1, n, n, &a, &mut only).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (u, s, vh) = (T::widen(&u), T::widen(&s), T::widen(&vh));
    assert!(s.is_sorted_by(|x, y| x >= y) && s[n - 1] >= 0.0, "{name}");
    let tolerance = 4.0 * (n as f64).sqrt() * T::TOLERANCE;
    assert_orthonormal(&u, n, n, tolerance);
    assert_orthonormal(&transposed(&vh, n, n), n, n, tolerance);
    assert_close(&T::widen(&only), &s, tolerance * size);
    assert_close(&compose(&u, &s, &transposed(&vh, n, n)), &wide, tolerance * size);
    if let Some(expected) = expected {
        let mut expected: Vec<f64> = expected.iter().map(|x| x.abs()).collect();
        expected.sort_by(|x, y| y.total_cmp(x));
        assert_close(&s, &expected, tolerance * size);
    }
}

#[test]
fn hard_spectra_keep_their_values_and_vectors() {
    for n in [2, 3, 25, 90] {
        let (q, p) = (orthogonal(1, n), orthogonal(2, n));
        for (name, values) in spectra(n) {
            let symmetric = compose(&q, &values, &q);
            check_eigh::<f64>(name, &symmetric, n, Some(&values));
            check_eigh::<f32>(name, &symmetric, n, Some(&values));
            let general = compose(&q, &values, &p);
            check_svd::<f64>(name, &general, n, Some(&values));
            check_svd::<f32>(name, &general, n, Some(&values));
        }
    }
}

#[test]
fn matrices_that_need_no_reduction() {
    let n = 61;
    let at = |f: &dyn Fn(usize, usize) -> f64| (0..n * n).map(|e| f(e / n, e % n)).collect::<Vec<f64>>();
    let beside = |i: usize, j: usize| i.abs_diff(j) == 1;
    let cases = [
        ("identity", at(&|i, j| f64::from(i == j))),
        ("diagonal", at(&|i, j| if i == j { ((i * 37) % n) as f64 - 20.0 } else { 0.0 })),
        ("ones", at(&|_, _| 1.0)),
        // Wilkinson's matrix, whose largest eigenvalues are pairs that agree to all digits.
        ("Wilkinson", at(&|i, j| if i == j { i.abs_diff(n / 2) as f64 } else { f64::from(beside(i, j)) })),
        ("second difference", at(&|i, j| if i == j { 2.0 } else { -f64::from(beside(i, j)) })),
        // Decoupled blocks.
        ("blocks", at(&|i, j| if i / 7 == j / 7 { 1.0 + f64::from(i == j) } else { 0.0 })),
        ("anti-diagonal", at(&|i, j| f64::from(i + j + 1 == n))),
        ("graded", at(&|i, j| 10f64.powi(-((i + j) as i32) / 4))),
        ("upper Jordan block", at(&|i, j| f64::from(j == i + 1))),
    ];
    for (name, a) in &cases {
        if *name != "upper Jordan block" {
            check_eigh::<f64>(name, a, n, None);
            check_eigh::<f32>(name, a, n, None);
        }
        check_svd::<f64>(name, a, n, None);
        check_svd::<f32>(name, a, n, None);
    }
}

/// Sizes at the ends of the range, where squares of entries overflow or vanish.
#[test]
fn extreme_scales_lose_no_digits() {
    let n = 40;
    let values: Vec<f64> = (0..n).map(|i| 1.0 + i as f64).collect();
    let (q, p) = (orthogonal(3, n), orthogonal(4, n));
    for scale in [1e-300, 1e-200, 1e-140, 1e140, 1e200, 1e300] {
        let scaled = |a: Vec<f64>| a.iter().map(|x| x * scale).collect::<Vec<f64>>();
        let (mut found, mut vectors, mut right) = (vec![0.0; n], vec![0.0; n * n], vec![0.0; n * n]);
        eigh(1, n, &scaled(compose(&q, &values, &q)), &mut found, &mut vectors, true).unwrap();
        assert_close(&found.iter().map(|x| x / scale).collect::<Vec<_>>(), &values, 1e-11);
        assert_orthonormal(&vectors, n, n, 1e-13);
        svd(1, n, n, &scaled(compose(&q, &values, &p)), &mut vectors, &mut found, &mut right, false).unwrap();
        found.reverse();
        assert_close(&found.iter().map(|x| x / scale).collect::<Vec<_>>(), &values, 1e-11);
        assert_orthonormal(&vectors, n, n, 1e-13);
        let (mut q, mut r) = (vec![0.0; n * n], vec![0.0; n * n]);
        qr(1, n, n, &scaled(noise(5, n * n)), &mut q, &mut r, false).unwrap();
        assert_orthonormal(&q, n, n, 1e-13);
    }
}

#[test]
fn results_are_the_same_every_time() {
    let n = 90;
    let a = f32::narrow(&noise(9, n * n));
    let run = || {
        let (mut u, mut s, mut vh) = (vec![0.0; n * n], vec![0.0; n], vec![0.0; n * n]);
        svd(1, n, n, &a, &mut u, &mut s, &mut vh, false).unwrap();
        let (mut values, mut vectors) = (vec![0.0; n], vec![0.0; n * n]);
        eigh(1, n, &a, &mut values, &mut vectors, true).unwrap();
        [u, s, vh, values, vectors].concat()
    };
    assert_eq!(run(), run());
}

/// The other instruction sets, in separate processes because the set is chosen once.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_instruction_set() {
    const INNER: &str = "RUSHLIGHT_LINALG_INNER_TEST";
    if std::env::var_os(INNER).is_some() {
        return;
    }
    for level in ["portable", "avx2"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["spectra::", "reconstruction::"])
            .env("RUSHLIGHT_CPU_ISA", level)
            .env(INNER, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{level}: {text}");
        assert!(text.contains("hard_spectra_keep_their_values_and_vectors ... ok"), "{level}: {text}");
    }
}
