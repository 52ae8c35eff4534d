//! Softmax and normalisations.

use crate::support::*;
use rushlight_core::backend::{Backend, BatchNorm, RowNorm};
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
                    e.softmax(log, dims, x.view(), y.view()).unwrap();
                    let (z, dy) = (Tensor::random(e, dtype, &dims, 2), Tensor::random(e, dtype, &dims, 3));
                    e.softmax_backward(log, dims, dy.view(), z.view(), dx.view()).unwrap();
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
                    e.row_norm(&spec, x.view(), w, b, y.view(), None, mean.view(), rstd.view()).unwrap();
                    let (dy, so_far) = (tensor(&[2, 3, 37], 4), tensor(&[2, 3, 37], 5));
                    let outs = [&[2, 3, 37][..], &[37], &[37]].map(|shape| Tensor::out(e, dtype, shape));
                    let [dx, dw, db] = outs.each_ref().map(|t| Some(t.view()));
                    let so_far = affine.then(|| so_far.view());
                    let (m, r) = (mean.view(), rstd.view());
                    e.row_norm_backward(&spec, dy.view(), x.view(), w, m, r, so_far, dx, None, dw, db).unwrap();
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
    e.row_norm(&spec, x.view(), None, None, y.view(), Some(low.view()), mean.view(), rstd.view())?;
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
    assert_eq!(in_two_dtypes(rushlight_cpu::backend()).is_ok(), composed);
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
                    e.batch_norm(&spec, x.view(), parameters.0, parameters.1, y.view(), mean.view(), rstd.view())
                        .unwrap();
                    let dy = Tensor::random(e, dtype, &shape, 5);
                    let outs = [&shape[..], &[channels], &[channels]].map(|shape| Tensor::out(e, dtype, shape));
                    let [dx, dw, db] = outs.each_ref().map(|t| Some(t.view()));
                    let (m, r) = (mean.view(), rstd.view());
                    e.batch_norm_backward(&spec, dy.view(), x.view(), parameters.0, m, r, dx, dw, db).unwrap();
                    [y, mean, rstd].into_iter().chain(outs).collect()
                });
            }
        }
    }
}
