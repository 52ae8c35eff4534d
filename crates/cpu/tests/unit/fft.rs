use crate::testing::*;
use rushlight_core::backend::Fft;
use rushlight_cpu::fft::fft;
use std::f64::consts::TAU;

/// Line `l` of `side` lines next to each other in each of the rows: its numbers, from pairs.
fn line(x: &[f64], n: usize, side: usize, l: usize) -> Vec<[f64; 2]> {
    let (row, column) = (l / side, l % side);
    (0..n).map(|k| (row * n + k) * side + column).map(|at| [x[2 * at], x[2 * at + 1]]).collect()
}

/// `sum over k of x[k] exp(sign * i * tau * j * k / n)`.
fn transformed(x: &[[f64; 2]], roots: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let number = |j: usize| {
        let (mut sum, mut at) = ([0.0; 2], 0);
        for [a, b] in x {
            let [cos, sin] = roots[at];
            sum = [sum[0] + a * cos - b * sin, sum[1] + a * sin + b * cos];
            at = (at + j) % x.len();
        }
        sum
    };
    (0..x.len()).map(number).collect()
}

/// Lines by the definition, next to each other as [`line`] takes them.
fn reference(x: &[f64], n: usize, side: usize, sign: f64, scale: f64) -> Vec<f64> {
    let roots: Vec<[f64; 2]> =
        (0..n).map(|k| (sign * TAU * k as f64 / n as f64).sin_cos()).map(|(s, c)| [c, s]).collect();
    let mut y = vec![0.0; x.len()];
    for l in 0..x.len() / (2 * n) {
        for (k, number) in transformed(&line(x, n, side, l), &roots).into_iter().enumerate() {
            let at = 2 * ((l / side * n + k) * side + l % side);
            y[at..at + 2].copy_from_slice(&number.map(|v| v * scale));
        }
    }
    y
}

fn run<T: Float>(op: Fft, scale: f64, shape: &[usize], x: &[f64], out: &[usize]) -> Vec<f64> {
    let x = Array::contiguous(shape, x.iter().map(|&v| T::from_f64(v)).collect());
    let y = Array::zeros(out, T::DTYPE);
    fft(op, scale, x.view(), y.view()).unwrap();
    wide(&y.to_vec::<T>())
}

/// Compares relative to the largest of the results.
#[track_caller]
fn near<T: Float>(what: &str, got: &[f64], want: &[f64]) {
    let largest = want.iter().fold(1.0, |most: f64, v| most.max(v.abs()));
    let gap = got.iter().zip(want).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
    assert_eq!(got.len(), want.len());
    assert!(gap <= tolerance::<T>() * largest, "{what}: {gap} of {largest}");
}

/// A call and what it should give.
struct Case {
    op: Fft,
    scale: f64,
    shape: Vec<usize>,
    x: Vec<f64>,
    out: Vec<usize>,
    want: Vec<f64>,
}

fn complex() -> impl Iterator<Item = Case> {
    // One number, every radix, several passes, two steps, primes; more, fewer and as many lines as a vector has lanes.
    let sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 20, 22, 26, 30, 37, 49, 60, 64, 100, 126, 144, 182];
    let small = sizes.into_iter().flat_map(|n| [(1, n, 1), (9, n, 1), (16, n, 1), (2, n, 5), (1, n, 8), (1, n, 21)]);
    let all = small.chain([(1, 1000, 1), (2, 1029, 1), (3, 521, 1)]).enumerate();
    all.flat_map(|(seed, (rows, n, side))| {
        let x: Vec<f64> = numbers(seed as u64, 2 * rows * n * side, 1.0);
        let shape = if side == 1 { vec![rows, n, 2] } else { vec![rows, n, side, 2] };
        [(false, -1.0), (true, 1.0)].map(|(inverse, sign)| {
            let want = reference(&x, n, side, sign, 0.5);
            let (op, out) = (Fft::Complex { inverse }, shape.clone());
            Case { op, scale: 0.5, shape: shape.clone(), x: x.clone(), out, want }
        })
    })
}

fn real() -> impl Iterator<Item = Case> {
    let sizes = [1, 2, 4, 6, 7, 10, 12, 15, 16, 24, 37, 62, 64, 74, 120, 250];
    let small = sizes.into_iter().flat_map(|n| [(1, n), (3, n), (8, n), (17, n)]);
    small.chain([(1, 1042), (2, 2000)]).enumerate().flat_map(|(seed, (rows, n))| {
        let (x, half): (Vec<f64>, _) = (numbers(seed as u64, rows * n, 1.0), n / 2 + 1);
        let pairs: Vec<f64> = x.iter().flat_map(|&v| [v, 0.0]).collect();
        let all = reference(&pairs, n, 1, -1.0, 1.0);
        let y: Vec<f64> = all.chunks(2 * n).flat_map(|line| &line[..2 * half]).copied().collect();
        let (lines, halves, scale) = (vec![rows, n], vec![rows, half, 2], 1.0 / n as f64);
        let (shape, out) = (lines.clone(), halves.clone());
        let there = Case { op: Fft::Real, scale: 1.0, shape, x: x.clone(), out, want: y.clone() };
        [there, Case { op: Fft::Hermitian, scale, shape: halves, x: y, out: lines, want: x }]
    })
}

fn check<T: Float>(case: &Case) {
    let Case { op, scale, ref shape, ref x, ref out, ref want } = *case;
    near::<T>(&format!("{op:?} of {shape:?}"), &run::<T>(op, scale, shape, x, out), want);
}

#[test]
fn matches_the_definition() {
    let cases: Vec<Case> = complex().chain(real()).collect();
    at_every_level(|| {
        for case in &cases {
            check::<f32>(case);
            check::<f64>(case);
        }
    });
}
