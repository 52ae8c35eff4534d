//! Steps of an LSTM; products with GELU; sums into a convolution's gradient; running statistics.

use crate::support::*;
use rushlight_core::DType;
use rushlight_core::backend::{BatchNorm, Conv, MatMul, call};

#[test]
fn lstm() {
    for dtype in [DType::F32, DType::F64] {
        compare(&format!("lstm_cell {dtype}"), |e| {
            let (gates, before) = (Tensor::random(e, dtype, &[3, 20], 1), Tensor::random(e, dtype, &[3, 5], 2));
            let [c, h, dgates] = [&[3, 5], &[3, 5], &[3, 20]].map(|shape| Tensor::out(e, dtype, shape));
            let (c_view, h_view) = (c.view(), h.view());
            run(e, call::LstmCell { before: before.view(), c: c_view, h: h_view, gates: gates.view() }).unwrap();
            let [dh, outer, dc] = [3, 4, 5].map(|seed| Tensor::random(e, dtype, &[3, 5], seed));
            run(
                e,
                call::LstmCellBackward {
                    gates: gates.view(),
                    before: before.view(),
                    c: c.view(),
                    dh: dh.view(),
                    outer: Some(outer.view()),
                    dgates: dgates.view(),
                    dc: dc.view(),
                },
            )
            .unwrap();
            vec![gates, c, h, dgates, dc]
        });
    }
}

/// The CPU declines these calls: their bodies against the ops they stand for.
#[test]
fn fused_products_and_sums() {
    let e = rushlight_cpu::backend();
    let random = |shape: &[usize], seed| Tensor::random(e, DType::F64, shape, seed);
    let close = |a: &Tensor, b: &[f64]| {
        assert!(a.values().iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-9), "{:?} and {b:?}", a.values());
    };
    let (a, b, bias) = (random(&[1, 4, 3], 1), random(&[1, 3, 5], 2), random(&[5], 3));
    let [out, kept, plain] = [0, 1, 2].map(|_| Tensor::out(e, DType::F64, &[1, 4, 5]));
    let product = MatMul { bias: Some(bias.view()), ..MatMul::plain(a.view(), b.view(), out.view()) };
    run(e, call::MatMulGelu { product, kept: kept.view() }).unwrap();
    run(e, MatMul { out: plain.view(), ..product }).unwrap();
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh());
    close(&kept, &plain.values());
    close(&out, &plain.values().into_iter().map(gelu).collect::<Vec<_>>());

    let sums = Tensor::out(e, DType::F64, &[1, 1, 5]);
    let product = MatMul::plain(a.view(), b.view(), out.view());
    run(e, call::MatMulGeluBackward { product, kept: kept.view(), sums: sums.view() }).unwrap();
    run(e, MatMul { out: plain.view(), ..product }).unwrap();
    let slope = |x: f64| (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
    let want: Vec<f64> = plain.values().into_iter().zip(kept.values()).map(|(dy, x)| dy * slope(x)).collect();
    assert!(out.values().iter().zip(&want).all(|(x, y)| (x - y).abs() < 1e-8));
    let columns: Vec<f64> = (0..5).map(|j| out.values().iter().skip(j).step_by(5).sum()).collect();
    close(&sums, &columns);

    let spec = Conv {
        batch: 2,
        in_channels: 2,
        out_channels: 3,
        groups: 1,
        input: [1, 5, 4],
        kernel: [1, 3, 3],
        output: [1, 5, 4],
        stride: [1; 3],
        padding: [0, 1, 1],
        dilation: [1; 3],
    };
    let (dy, w) = (random(&[2, 3, 5, 4], 4), random(&[3, 2, 3, 3], 5));
    let (sum, alone) = (random(&[2, 2, 5, 4], 6), Tensor::out(e, DType::F64, &[2, 2, 5, 4]));
    let before = sum.values();
    let gradient = call::ConvBackwardInput { spec, accumulate: false, dy: dy.view(), w: w.view(), dx: alone.view() };
    run(e, gradient).unwrap();
    run(e, call::ConvBackwardInput { accumulate: true, dx: sum.view(), ..gradient }).unwrap();
    close(&sum, &before.iter().zip(alone.values()).map(|(a, b)| a + b).collect::<Vec<_>>());

    let spec = BatchNorm { batch: 4, channels: 3, space: 2, eps: 1e-5, training: true };
    let (mean, var) = (random(&[3], 7), [0.5, 1.0, 2.0]);
    let rstd = Tensor::new(e, DType::F64, &[3], |i| 1.0 / (var[i] + spec.eps).sqrt());
    let [to_mean, to_var] = [8, 9].map(|seed| random(&[3], seed));
    let old = [to_mean.values(), to_var.values()];
    run(
        e,
        call::BatchNormRunning {
            spec,
            momentum: 0.1,
            mean: mean.view(),
            rstd: rstd.view(),
            running_mean: to_mean.view(),
            running_var: to_var.view(),
        },
    )
    .unwrap();
    close(&to_mean, &old[0].iter().zip(mean.values()).map(|(o, n)| o + 0.1 * (n - o)).collect::<Vec<_>>());
    close(&to_var, &old[1].iter().zip(var).map(|(o, v)| o + 0.1 * (v * 8.0 / 7.0 - o)).collect::<Vec<_>>());
}
