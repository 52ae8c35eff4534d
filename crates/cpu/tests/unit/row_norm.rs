use crate::testing::*;
use rushlight_core::Element;
use rushlight_core::backend::{RowNorm, call};
use rushlight_cpu::row_norm::*;

type Forward<T> = (Vec<T>, Vec<<T as Float>::Acc>, Vec<<T as Float>::Acc>);

/// One value for each column.
fn parameter<A: Element>(values: Option<&[A]>) -> Option<Array> {
    values.map(|v| Array::contiguous(&[v.len()], v.to_vec()))
}

fn run<T: Float>(spec: &RowNorm, x: &[T], w: Option<&[T::Acc]>, b: Option<&[T::Acc]>) -> Forward<T> {
    let shape = [spec.rows, spec.cols];
    let (x, y) = (Array::contiguous(&shape, x.to_vec()), Array::zeros(&shape, T::DTYPE));
    let [mean, rstd] = [0, 1].map(|_| Array::zeros(&[spec.rows], T::Acc::DTYPE));
    let (w, b) = (parameter(w), parameter(b));
    let (w, b) = (w.as_ref().map(Array::view), b.as_ref().map(Array::view));
    row_norm(&call::RowNorm {
        spec: *spec,
        x: x.view(),
        weight: w,
        bias: b,
        y: y.view(),
        low: None,
        mean: mean.view(),
        rstd: rstd.view(),
    })
    .unwrap();
    (y.to_vec(), mean.to_vec(), rstd.to_vec())
}

fn run_backward<T: Float>(
    spec: &RowNorm,
    dy: &[T],
    x: &[T],
    w: Option<&[T::Acc]>,
    (mean, rstd): (&[T::Acc], &[T::Acc]),
    so_far: Option<&[T]>,
) -> (Vec<T>, Vec<T::Acc>) {
    let shape = [spec.rows, spec.cols];
    let [dy, x] = [dy, x].map(|v| Array::contiguous(&shape, v.to_vec()));
    let [mean, rstd] = [mean, rstd].map(|v| Array::contiguous(&[spec.rows], v.to_vec()));
    let so_far = so_far.map(|v| Array::contiguous(&shape, v.to_vec()));
    let w = parameter(w);
    let (dx, [dw, db]) = (Array::zeros(&shape, T::DTYPE), [0, 1].map(|_| Array::zeros(&[spec.cols], T::Acc::DTYPE)));
    let (w, so_far) = (w.as_ref().map(Array::view), so_far.as_ref().map(Array::view));
    let (stats, out) = ([mean.view(), rstd.view()], [dx.view(), dw.view(), db.view()].map(Some));
    row_norm_backward(&call::RowNormBackward {
        spec: *spec,
        dy: dy.view(),
        x: x.view(),
        weight: w,
        mean: stats[0],
        rstd: stats[1],
        so_far,
        dx: out[0],
        low: None,
        dweight: out[1],
        dbias: out[2],
    })
    .unwrap();
    (dx.to_vec(), [dw.to_vec::<T::Acc>(), db.to_vec()].concat())
}

fn check<T: Float>(spec: &RowNorm, seed: u64, affine: bool) {
    let (rows, cols) = (spec.rows, spec.cols);
    let x: Vec<T> = numbers::<T>(seed, rows * cols, 2.0).iter().map(|v| T::from_f64(v.to_f64() + 1.5)).collect();
    let dy = numbers::<T>(seed + 1, rows * cols, 1.0);
    let weight = numbers::<T::Acc>(seed + 2, cols, 1.0);
    let bias = numbers::<T::Acc>(seed + 3, cols, 1.0);
    let (w, b) = (affine.then_some(&weight[..]), affine.then_some(&bias[..]));
    let (y, mean, rstd) = run(spec, &x, w, b);
    let (dx, sums) = run_backward(spec, &dy, &x, w, (&mean, &rstd), None);
    let so_far = numbers::<T>(seed + 4, rows * cols, 1.0);
    let (total, _) = run_backward(spec, &dy, &x, w, (&mean, &rstd), Some(&so_far));
    let (x, dy) = (wide(&x), wide(&dy));
    let mut want = (vec![0.0; x.len()], vec![0.0; rows], vec![0.0; rows], vec![0.0; x.len()], vec![0.0; 2 * cols]);
    for r in 0..rows {
        let at = r * cols..(r + 1) * cols;
        let (x, dy) = (&x[at.clone()], &dy[at.clone()]);
        let n = cols as f64;
        let mu = if spec.rms { 0.0 } else { x.iter().sum::<f64>() / n };
        let rs = 1.0 / (x.iter().map(|v| (v - mu).powi(2)).sum::<f64>() / n + spec.eps).sqrt();
        (want.1[r], want.2[r]) = (mu, rs);
        let scale = |c: usize| w.map_or(1.0, |w| w[c].to_f64());
        let hat = |c: usize| (x[c] - mu) * rs;
        let g = |c: usize| dy[c] * scale(c);
        let (s1, s2) = (0..cols).fold((0.0, 0.0), |s, c| (s.0 + g(c), s.1 + g(c) * hat(c)));
        let s1 = if spec.rms { 0.0 } else { s1 };
        for c in 0..cols {
            want.0[r * cols + c] = hat(c) * scale(c) + b.map_or(0.0, |b| b[c].to_f64());
            want.3[r * cols + c] = rs * (g(c) - (s1 + hat(c) * s2) / n);
            want.4[c] += dy[c] * hat(c);
            want.4[cols + c] += dy[c];
        }
    }
    let tolerance = tolerance::<T>();
    let stats = if T::DTYPE == rushlight_core::DType::F64 { 1e-12 } else { 1e-5 };
    close(&y, &want.0, tolerance);
    if !spec.rms {
        close(&mean, &want.1, stats);
    }
    close(&rstd, &want.2, stats);
    close(&dx, &want.3, tolerance);
    let sums_of_both: Vec<f64> = want.3.iter().zip(wide(&so_far)).map(|(a, b)| a + b).collect();
    close(&total, &sums_of_both, tolerance);
    close(&sums, &want.4, 3.0 * stats);
}

#[test]
fn matches_the_definition() {
    let cases = [(1, 1), (1, 7), (5, 33), (70, 64), (3, 1000), (130, 515), (2, LONG + 4096 + 5), (0, 4), (3, 0)];
    at_every_level(|| {
        each_float!(T => for (seed, (rows, cols)) in cases.into_iter().enumerate() {
            for rms in [false, true] {
                let spec = RowNorm { rows, cols, eps: 1e-5, rms };
                check::<T>(&spec, 10 * seed as u64, seed % 3 != 2);
            }
        });
    });
}

#[test]
fn a_large_mean_does_not_hurt_the_variance() {
    let x: Vec<f32> = numbers::<f32>(1, 4096, 1.0).iter().map(|v| v + 10_000.0).collect();
    let exact = wide(&x);
    let mean = exact.iter().sum::<f64>() / 4096.0;
    let var = exact.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 4096.0;
    let (_, _, rstd) = run(&RowNorm { rows: 1, cols: 4096, eps: 0.0, rms: false }, &x, None, None);
    close(&rstd, &[1.0 / var.sqrt()], 1e-4);
}

#[test]
fn large_results_are_streamed_and_right() {
    check::<f32>(&RowNorm { rows: 2100, cols: 4096, eps: 1e-5, rms: false }, 5, true);
}

#[test]
fn any_number_of_threads() {
    for (rows, cols) in [(700, 300), (2, LONG + 99)] {
        let spec = RowNorm { rows, cols, eps: 1e-5, rms: false };
        let (x, dy) = (numbers::<f32>(1, rows * cols, 1.0), numbers::<f32>(2, rows * cols, 1.0));
        with_any_threads(|| {
            let (y, mean, rstd) = run(&spec, &x, None, None);
            (run_backward(&spec, &dy, &x, None, (&mean, &rstd), None), y, mean, rstd)
        });
    }
}
