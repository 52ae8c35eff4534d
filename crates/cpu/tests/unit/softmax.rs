use crate::testing::*;
use rushlight_cpu::softmax::*;

fn reference(log: bool, [outer, n, inner]: [usize; 3], x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for o in 0..outer {
        for j in 0..inner {
            let at = |i: usize| (o * n + i) * inner + j;
            let max = (0..n).map(|i| x[at(i)]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..n).map(|i| (x[at(i)] - max).exp()).sum();
            for i in 0..n {
                let v = x[at(i)] - max;
                y[at(i)] = if log { v - sum.ln() } else { v.exp() / sum };
            }
        }
    }
    y
}

fn reference_backward(log: bool, [outer, n, inner]: [usize; 3], dy: &[f64], y: &[f64]) -> Vec<f64> {
    let mut dx = vec![0.0; y.len()];
    for o in 0..outer {
        for j in 0..inner {
            let at = |i: usize| (o * n + i) * inner + j;
            let sum: f64 = (0..n).map(|i| if log { dy[at(i)] } else { dy[at(i)] * y[at(i)] }).sum();
            for i in (0..n).map(at) {
                dx[i] = if log { dy[i] - y[i].exp() * sum } else { y[i] * (dy[i] - sum) };
            }
        }
    }
    dx
}

fn run<T: Float>(log: bool, dims: [usize; 3], x: &[T]) -> Vec<T> {
    let (x, y) = (Array::contiguous(&dims, x.to_vec()), Array::zeros(&dims, T::DTYPE));
    softmax(log, dims, x.view(), y.view()).unwrap();
    y.to_vec()
}

fn run_backward<T: Float>(log: bool, dims: [usize; 3], dy: &[T], y: &[T]) -> Vec<T> {
    let (dy, y) = (Array::contiguous(&dims, dy.to_vec()), Array::contiguous(&dims, y.to_vec()));
    let dx = Array::zeros(&dims, T::DTYPE);
    softmax_backward(log, dims, dy.view(), y.view(), dx.view()).unwrap();
    dx.to_vec()
}

const LONG_ROW: [usize; 3] = [2, LONG + 4096 + 17, 1];

#[test]
fn matches_the_definition() {
    let cases = [
        [1, 1, 1],
        [3, 7, 1],
        [5, 64, 1],
        [4, 131, 1],
        [2, 9, 5],
        [1, 3, 130],
        [3, 40, 33],
        [0, 3, 2],
        [2, 0, 3],
        LONG_ROW,
    ];
    at_every_level(|| {
        each_float!(T => for (seed, dims) in cases.into_iter().enumerate() {
            for log in [false, true] {
                let x = numbers::<T>(seed as u64, dims.iter().product(), 8.0);
                let y = run(log, dims, &x);
                close(&y, &reference(log, dims, &wide(&x)), tolerance::<T>());
                let dy = numbers::<T>(90 + seed as u64, x.len(), 1.0);
                // Long sums of gradients cancel: the result has the rounding error of the terms.
                let slack = if dims == LONG_ROW { 30.0 } else { 1.0 };
                close(&run_backward(log, dims, &dy, &y), &reference_backward(log, dims, &wide(&dy), &wide(&y)), slack * tolerance::<T>());
            }
        });
    });
}

#[test]
fn infinities_and_nan_as_in_pytorch() {
    let inf = f32::INFINITY;
    assert_eq!(run(false, [1, 3, 1], &[0.0, -inf, 0.0]), [0.5, 0.0, 0.5]);
    let log = run(true, [1, 2, 1], &[3.0, -inf]);
    assert_eq!(log, [0.0, -inf]);
    for row in [[-inf, -inf, -inf], [inf, 0.0, 1.0], [f32::NAN, 0.0, -inf]] {
        for log in [false, true] {
            assert!(run(log, [1, 3, 1], &row)[0].is_nan());
            let column: Vec<f32> = row.iter().flat_map(|&v| [v, 0.0]).collect();
            assert!(run(log, [1, 3, 2], &column)[0].is_nan());
            let mut long = vec![row[1]; LONG_ROW[1]];
            long[1] = row[0];
            assert!(run(log, [1, long.len(), 1], &long).iter().any(|v| v.is_nan()));
        }
    }
    let mut long = vec![-inf; LONG_ROW[1]];
    long[LONG] = 1.0;
    let y = run(false, [1, long.len(), 1], &long);
    assert_eq!((y[LONG], y[0]), (1.0, 0.0));
}

#[test]
fn large_results_are_streamed_and_right() {
    let dims = [600, 16_400, 1];
    let x = numbers::<f32>(1, dims.iter().product(), 4.0);
    assert!(x.len() * 4 > STREAM);
    let y = run(false, dims, &x);
    let dx = run_backward(false, dims, &x, &y);
    for row in [0, 17, 599] {
        let range = row * dims[1]..(row + 1) * dims[1];
        let (x, one) = (wide(&x[range.clone()]), [1, dims[1], 1]);
        close(&y[range.clone()], &reference(false, one, &x), 1e-6);
        close(&dx[range.clone()], &reference_backward(false, one, &x, &wide(&y[range])), 1e-6);
    }
}

#[test]
fn any_number_of_threads() {
    for dims in [[50, 1000, 1], LONG_ROW, [2, 30, 3000]] {
        let x = numbers::<f32>(3, dims.iter().product(), 4.0);
        with_any_threads(|| {
            let y = run(false, dims, &x);
            (run_backward(false, dims, &x, &y), y)
        });
    }
}
