use crate::testing::*;
use rushlight_core::Element;
use rushlight_core::backend::{BatchNorm, call};
use rushlight_cpu::batch_norm::*;

type Stats<T> = (Vec<<T as Float>::Acc>, Vec<<T as Float>::Acc>);

/// One value for each channel.
fn parameter<A: Element>(values: Option<&[A]>) -> Option<Array> {
    values.map(|v| Array::contiguous(&[v.len()], v.to_vec()))
}

fn run<T: Float>(
    spec: &BatchNorm,
    x: &[T],
    w: Option<&[T::Acc]>,
    b: Option<&[T::Acc]>,
    stats: &mut Stats<T>,
) -> Vec<T> {
    let (x, y) = (Array::contiguous(&[x.len()], x.to_vec()), Array::zeros(&[x.len()], T::DTYPE));
    let [mean, rstd] = [&stats.0, &stats.1].map(|v| Array::contiguous(&[spec.channels], v.clone()));
    let (w, b) = (parameter(w), parameter(b));
    let (w, b) = (w.as_ref().map(Array::view), b.as_ref().map(Array::view));
    batch_norm(&call::BatchNorm {
        spec: *spec,
        x: x.view(),
        weight: w,
        bias: b,
        y: y.view(),
        mean: mean.view(),
        rstd: rstd.view(),
    })
    .unwrap();
    *stats = (mean.to_vec(), rstd.to_vec());
    y.to_vec()
}

/// Gradients by the input, the weight and the bias.
fn run_backward<T: Float>(
    spec: &BatchNorm,
    dy: &[T],
    x: &[T],
    w: Option<&[T::Acc]>,
    stats: &Stats<T>,
) -> (Vec<T>, Vec<T::Acc>, Vec<T::Acc>) {
    let [dy, x] = [dy, x].map(|v| Array::contiguous(&[v.len()], v.to_vec()));
    let [mean, rstd] = [&stats.0, &stats.1].map(|v| Array::contiguous(&[spec.channels], v.clone()));
    let w = parameter(w);
    let dx = Array::zeros(x.layout().shape(), T::DTYPE);
    let [dw, db] = [0, 1].map(|_| Array::zeros(&[spec.channels], T::Acc::DTYPE));
    let (w, out) = (w.as_ref().map(Array::view), [&dx, &dw, &db].map(|a| Some(a.view())));
    batch_norm_backward(&call::BatchNormBackward {
        spec: *spec,
        relu: false,
        dy: dy.view(),
        x: x.view(),
        weight: w,
        bias: None,
        mean: mean.view(),
        rstd: rstd.view(),
        dx: out[0],
        dweight: out[1],
        dbias: out[2],
    })
    .unwrap();
    (dx.to_vec(), dw.to_vec(), db.to_vec())
}

fn check<T: Float>(spec: &BatchNorm, seed: u64, affine: bool) {
    let BatchNorm { batch, channels, space, eps, training } = *spec;
    let x: Vec<T> =
        numbers::<T>(seed, batch * channels * space, 2.0).iter().map(|v| T::from_f64(v.to_f64() + 1.0)).collect();
    let dy = numbers::<T>(seed + 1, x.len(), 1.0);
    let (weight, bias) = (numbers::<T::Acc>(seed + 2, channels, 1.0), numbers::<T::Acc>(seed + 3, channels, 1.0));
    let (w, b) = (affine.then_some(&weight[..]), affine.then_some(&bias[..]));
    let given = numbers::<T::Acc>(seed + 4, channels, 0.5);
    let mut stats: Stats<T> = (given.clone(), given.iter().map(|v| T::Acc::from_f64(v.to_f64() + 1.0)).collect());
    let y = run(spec, &x, w, b, &mut stats);
    let (dx, dw, db) = run_backward(spec, &dy, &x, w, &stats);
    let (x, dy) = (wide(&x), wide(&dy));
    let mut want = (
        vec![0.0; x.len()],
        vec![0.0; x.len()],
        vec![0.0; channels],
        vec![0.0; channels],
        vec![0.0; channels],
        vec![0.0; channels],
    );
    for c in 0..channels {
        let places: Vec<usize> =
            (0..batch).flat_map(|n| (0..space).map(move |s| (n * channels + c) * space + s)).collect();
        let count = places.len() as f64;
        let (mut mean, mut rstd) = (stats.0[c].to_f64(), stats.1[c].to_f64());
        if training {
            mean = places.iter().map(|&i| x[i]).sum::<f64>() / count;
            rstd = 1.0 / (places.iter().map(|&i| (x[i] - mean).powi(2)).sum::<f64>() / count + eps).sqrt();
        }
        (want.2[c], want.3[c]) = (mean, rstd);
        let (scale, shift) = (w.map_or(1.0, |w| w[c].to_f64()), b.map_or(0.0, |b| b[c].to_f64()));
        want.5[c] = places.iter().map(|&i| dy[i]).sum();
        want.4[c] = places.iter().map(|&i| dy[i] * (x[i] - mean) * rstd).sum();
        for &i in &places {
            let hat = (x[i] - mean) * rstd;
            want.0[i] = hat * scale + shift;
            let pull = if training { (want.5[c] + hat * want.4[c]) / count } else { 0.0 };
            want.1[i] = scale * rstd * (dy[i] - pull);
        }
    }
    let exact = if T::DTYPE == rushlight_core::DType::F64 { 1e-12 } else { 2e-5 };
    if !x.is_empty() {
        close(&stats.0, &want.2, exact);
        close(&stats.1, &want.3, exact);
    }
    close(&y, &want.0, 2.0 * tolerance::<T>());
    close(&dx, &want.1, 2.0 * tolerance::<T>());
    close(&dw, &want.4, 2.0 * exact);
    close(&db, &want.5, 2.0 * exact);
}

#[test]
fn matches_the_definition() {
    let cases = [
        (4, 3, 1),
        (300, 70, 1),
        (7, 5, 4),
        (3, 2, PLANE),
        (6, 3, 49),
        (2, 3, 2 * 4096 + 9),
        (1, 1, 30),
        (0, 3, 4),
        (2, 0, 3),
    ];
    at_every_level(|| {
        each_float!(T => for (seed, (batch, channels, space)) in cases.into_iter().enumerate() {
            for training in [true, false] {
                check::<T>(&BatchNorm { batch, channels, space, eps: 1e-5, training }, 10 * seed as u64, seed % 2 == 0);
            }
        });
    });
}

#[test]
fn any_number_of_threads() {
    for (batch, channels, space) in [(64, 8, 100), (3000, 40, 1)] {
        let spec = BatchNorm { batch, channels, space, eps: 1e-5, training: true };
        let x = numbers::<f32>(1, batch * channels * space, 1.0);
        with_any_threads(|| {
            let mut stats = (vec![0.0; channels], vec![0.0; channels]);
            let y = run(&spec, &x, None, None, &mut stats);
            (run_backward(&spec, &x, &x, None, &stats), y, stats)
        });
    }
}
