//! Softmax and normalisations.

use crate::support::*;
use rushlight_core::backend::{Backend, BatchNorm, Outcome, RowNorm, call};
use rushlight_core::{DType, Result};

#[test]
fn softmax() {
    for dtype in FLOATS {
        for dims in [[5, 33, 1], [2, 7, 4], [1, 1, 3], [0, 4, 1]] {
            for log in [false, true] {
                compare(&format!("softmax {dtype} {dims:?} log {log}"), |e| {
                    // A row with one element left, and a row with none.
                    let x = Tensor::new(e, dtype, &dims, |i| {
                        if i < dims[1] && i != 2 || dims[2] == 1 && i / dims[1] == 3 {
                            f64::NEG_INFINITY
                        } else {
                            number(1, i) * 20.0
                        }
                    });
                    let (y, dx) = (Tensor::out(e, dtype, &dims), Tensor::out(e, dtype, &dims));
                    run(e, call::Softmax { log, dims, x: x.view(), y: y.view() }).unwrap();
                    let (z, dy) = (Tensor::random(e, dtype, &dims, 2), Tensor::random(e, dtype, &dims, 3));
                    run(e, call::SoftmaxBackward { log, dims, dy: dy.view(), y: z.view(), dx: dx.view() }).unwrap();
                    vec![y, dx]
                });
            }
        }
    }
}

#[test]
fn rows() {
    for dtype in FLOATS {
        for rms in [false, true] {
            for affine in [false, true] {
                compare(&format!("row_norm {dtype} rms {rms} affine {affine}"), |e| {
                    let spec = RowNorm { rows: 6, cols: 37, eps: 1e-5, rms };
                    let x = Tensor::new(e, dtype, &[2, 3, 37], |i| number(1, i) + 3.0);
                    let tensor = |shape: &[usize], seed| Tensor::random(e, dtype, shape, seed);
                    let (weight, bias) = (tensor(&[37], 2), tensor(&[37], 3));
                    let (w, b) = (affine.then(|| weight.view()), affine.then(|| bias.view()));
                    let y = Tensor::out(e, dtype, &[2, 3, 37]);
                    let (mean, rstd) = (Tensor::out(e, wide(dtype), &[6]), Tensor::out(e, wide(dtype), &[6]));
                    run(
                        e,
                        call::RowNorm {
                            spec,
                            x: x.view(),
                            weight: w,
                            bias: b,
                            y: y.view(),
                            low: None,
                            mean: mean.view(),
                            rstd: rstd.view(),
                        },
                    )
                    .unwrap();
                    let (dy, so_far) = (tensor(&[2, 3, 37], 4), tensor(&[2, 3, 37], 5));
                    let outs = [&[2, 3, 37][..], &[37], &[37]].map(|shape| Tensor::out(e, dtype, shape));
                    let [dx, dw, db] = outs.each_ref().map(|t| Some(t.view()));
                    let so_far = affine.then(|| so_far.view());
                    let (m, r) = (mean.view(), rstd.view());
                    run(
                        e,
                        call::RowNormBackward {
                            spec,
                            dy: dy.view(),
                            x: x.view(),
                            weight: w,
                            mean: m,
                            rstd: r,
                            so_far,
                            dx,
                            low: None,
                            dweight: dw,
                            dbias: db,
                        },
                    )
                    .unwrap();
                    [y, mean, rstd].into_iter().chain(outs).collect()
                });
            }
        }
    }
}

/// Normalises rows with a second result as `bf16`, which only the default body writes; returns both results.
fn in_two_dtypes(e: &'static dyn Backend) -> Result<[Tensor; 2]> {
    let spec = RowNorm { rows: 3, cols: 8, eps: 1e-5, rms: false };
    let x = Tensor::random(e, DType::F32, &[3, 8], 1);
    let (y, low) = (Tensor::out(e, DType::F32, &[3, 8]), Tensor::out(e, DType::BF16, &[3, 8]));
    let (mean, rstd) = (Tensor::out(e, DType::F32, &[3]), Tensor::out(e, DType::F32, &[3]));
    run(
        e,
        call::RowNorm {
            spec,
            x: x.view(),
            weight: None,
            bias: None,
            y: y.view(),
            low: Some(low.view()),
            mean: mean.view(),
            rstd: rstd.view(),
        },
    )?;
    Ok([y, low])
}

#[test]
fn rows_in_two_dtypes() {
    let [y, low] = in_two_dtypes(rushlight_cpu::composed()).unwrap();
    let rounded: Vec<f64> = y.values().iter().map(|&v| half::bf16::from_f64(v).to_f64()).collect();
    assert_eq!(low.values(), rounded);
}

/// Checks that a run of the suite on the default bodies does not use the kernels.
#[test]
fn the_variable_chooses_the_engine() {
    let composed = std::env::var_os("RUSHLIGHT_CPU_COMPOSED").is_some_and(|v| v == "1");
    let runs_softmax = |engine: &'static dyn Backend| {
        let [x, y] = [1, 2].map(|seed| Tensor::random(engine, DType::F32, &[2, 3], seed));
        let call = call::Softmax { log: false, dims: [2, 3, 1], x: x.view(), y: y.view() };
        // SAFETY: the arrays have the shape that the call says.
        unsafe { engine.run(&call.into()) }.unwrap() == Outcome::Done
    };
    assert_eq!(runs_softmax(rushlight_cpu::backend()), !composed);
    assert!(!runs_softmax(rushlight_cpu::composed()));
}

#[test]
fn channels() {
    for dtype in FLOATS {
        for training in [false, true] {
            for [batch, channels, space] in [[4, 3, 25], [9, 5, 1], [1, 2, 6]] {
                compare(&format!("batch_norm {dtype} training {training} {batch} {channels} {space}"), |e| {
                    let spec = BatchNorm { batch, channels, space, eps: 1e-5, training };
                    let shape = [batch, channels, space];
                    let x = Tensor::new(e, dtype, &shape, |i| number(1, i) - 2.0);
                    let (w, b) = (Tensor::random(e, dtype, &[channels], 2), Tensor::random(e, dtype, &[channels], 3));
                    let y = Tensor::out(e, dtype, &shape);
                    let mean = Tensor::random(e, wide(dtype), &[channels], 4);
                    let rstd = Tensor::new(e, wide(dtype), &[channels], |i| 0.5 + i as f64);
                    let parameters = (Some(w.view()), Some(b.view()));
                    run(
                        e,
                        call::BatchNorm {
                            spec,
                            x: x.view(),
                            weight: parameters.0,
                            bias: parameters.1,
                            y: y.view(),
                            mean: mean.view(),
                            rstd: rstd.view(),
                        },
                    )
                    .unwrap();
                    let dy = Tensor::random(e, dtype, &shape, 5);
                    let outs = [&shape[..], &[channels], &[channels]].map(|shape| Tensor::out(e, dtype, shape));
                    let [dx, dw, db] = outs.each_ref().map(|t| Some(t.view()));
                    let (m, r) = (mean.view(), rstd.view());
                    run(
                        e,
                        call::BatchNormBackward {
                            spec,
                            dy: dy.view(),
                            x: x.view(),
                            weight: parameters.0,
                            mean: m,
                            rstd: r,
                            dx,
                            dweight: dw,
                            dbias: db,
                            relu: false,
                            bias: None,
                        },
                    )
                    .unwrap();
                    [y, mean, rstd].into_iter().chain(outs).collect()
                });
            }
        }
    }
}
