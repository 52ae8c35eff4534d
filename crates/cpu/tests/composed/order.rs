//! Ranges, dropout, extremes, scans, sorting and indexing.

use crate::support::*;
use rushlight_core::backend::{ArgReduce, Reduce, Scan, call};
use rushlight_core::{DType, Layout, Scalar};

/// Values with ties, NaN and both zeros.
fn awkward(dtype: DType) -> impl Fn(usize) -> f64 {
    move |i| match i % 11 {
        3 if dtype.is_float() => f64::NAN,
        5 => -0.0,
        _ => (number(5, i / 2) * 2.0).round(),
    }
}

#[test]
fn ranges() {
    for dtype in DType::COMPUTED {
        for n in [0, 1, 2, 7, 1000] {
            compare(&format!("arange {dtype} {n}"), |e| {
                let ints = Tensor::out(e, dtype, &[n]);
                run(e, call::Arange { start: Scalar::Int(-3), step: Scalar::Int(7), out: ints.view() }).unwrap();
                let floats =
                    Tensor::with_layout(e, dtype, Layout::contiguous(&[n, 2]).unwrap().transpose(0, 1), |_| 0.0);
                run(e, call::Arange { start: Scalar::Float(0.1), step: Scalar::Float(0.7), out: floats.view() })
                    .unwrap();
                vec![ints, floats]
            });
        }
    }
}

#[test]
fn dropout_is_bit_equal() {
    for dtype in FLOATS {
        for p in [0.0, 0.1, 0.5] {
            compare(&format!("dropout {dtype} {p}"), |e| {
                let layout = Layout::contiguous(&[70, 43]).unwrap().transpose(0, 1);
                let x = Tensor::with_layout(e, dtype, layout, |i| (i % 50) as f64 + 1.0);
                let out = Tensor::out(e, dtype, &[43, 70]);
                run(e, call::Dropout { x: x.view(), p, stream: STREAM, out: out.view() }).unwrap();
                // Whether each element was kept is compared exactly.
                let kept: Vec<f64> = out.values().iter().map(|&v| (v != 0.0) as u8 as f64).collect();
                vec![Tensor::new(e, DType::I64, &[43, 70], |i| kept[i]), out]
            });
        }
    }
}

#[test]
fn extremes_and_scans() {
    for dtype in DType::COMPUTED {
        for (shape, dim) in [(&[4, 37, 3][..], 1), (&[129], 0), (&[2, 5], 0), (&[3, 1], 1)] {
            let what = format!("{dtype} {shape:?} along {dim}");
            for op in [ArgReduce::Max, ArgReduce::Min] {
                compare(&format!("{op:?} {what}"), |e| {
                    let x = Tensor::new(e, dtype, shape, awkward(dtype));
                    let mut reduced = shape.to_vec();
                    reduced[dim] = 1;
                    let (values, indices) = (Tensor::out(e, dtype, &reduced), Tensor::out(e, DType::I64, &reduced));
                    run(e, call::ArgReduce { op, x: x.view(), dim, values: values.view(), indices: indices.view() })
                        .unwrap();
                    vec![values, indices]
                });
            }
            for op in [Scan::Max, Scan::Min, Scan::Sum, Scan::Prod, Scan::LogSumExp] {
                let best = matches!(op, Scan::Max | Scan::Min);
                if op == Scan::LogSumExp && !dtype.is_float() {
                    continue;
                }
                compare(&format!("{op:?} {what}"), |e| {
                    let small = |i| number(9, i).round() * 0.5;
                    let x = if best {
                        Tensor::new(e, dtype, shape, awkward(dtype))
                    } else {
                        Tensor::new(e, dtype, shape, small)
                    };
                    let out = Tensor::out(e, if best || dtype.is_float() { dtype } else { DType::I64 }, shape);
                    let indices = Tensor::out(e, DType::I64, shape);
                    run(e, call::Scan { op, x: x.view(), dim, out: out.view(), indices: best.then(|| indices.view()) })
                        .unwrap();
                    vec![out, indices]
                });
            }
        }
    }
    compare("running logarithms of infinities", |e| {
        let x = Tensor::new(e, DType::F32, &[6], |i| {
            [f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, 2.0, f64::INFINITY, 3.0][i]
        });
        let out = Tensor::out(e, DType::F32, &[6]);
        run(e, call::Scan { op: Scan::LogSumExp, x: x.view(), dim: 0, out: out.view(), indices: None }).unwrap();
        vec![out]
    });
}

#[test]
fn sorting_and_searching() {
    for dtype in DType::COMPUTED {
        for descending in [false, true] {
            compare(&format!("sort {dtype} {descending}"), |e| {
                let layout = Layout::contiguous(&[3, 40, 5]).unwrap().permute(&[2, 1, 0]);
                let x = Tensor::with_layout(e, dtype, layout, awkward(dtype));
                let (values, indices) = (Tensor::out(e, dtype, &[5, 40, 3]), Tensor::out(e, DType::I64, &[5, 40, 3]));
                run(e, call::Sort { x: x.view(), dim: 1, descending, values: values.view(), indices: indices.view() })
                    .unwrap();
                let (top, places) = (Tensor::out(e, dtype, &[5, 7, 3]), Tensor::out(e, DType::I64, &[5, 7, 3]));
                run(
                    e,
                    call::TopK { x: x.view(), dim: 1, largest: descending, values: top.view(), indices: places.view() },
                )
                .unwrap();
                vec![values, indices, top, places]
            });
            compare(&format!("searchsorted {dtype} {descending}"), |e| {
                let n = 9;
                let last = if dtype.is_float() { f64::NAN } else { 5.0 };
                let row = |i: usize| if i % n == n - 1 { last } else { (i % n / 2) as f64 };
                let (one, two) = (Tensor::new(e, dtype, &[n], row), Tensor::new(e, dtype, &[2, n], row));
                let empty = Tensor::new(e, dtype, &[0], |_| 0.0);
                let values = Tensor::new(e, dtype, &[2, 30], awkward(dtype));
                let flat = Tensor::new(e, dtype, &[60], awkward(dtype));
                let outs = [&[60][..], &[2, 30], &[60]].map(|shape| Tensor::out(e, DType::I64, shape));
                run(
                    e,
                    call::SearchSorted {
                        sorted: one.view(),
                        values: flat.view(),
                        right: descending,
                        out: outs[0].view(),
                    },
                )
                .unwrap();
                run(
                    e,
                    call::SearchSorted {
                        sorted: two.view(),
                        values: values.view(),
                        right: descending,
                        out: outs[1].view(),
                    },
                )
                .unwrap();
                run(
                    e,
                    call::SearchSorted {
                        sorted: empty.view(),
                        values: flat.view(),
                        right: descending,
                        out: outs[2].view(),
                    },
                )
                .unwrap();
                outs.into()
            });
        }
    }
}

#[test]
fn indexing() {
    for dtype in DType::COMPUTED {
        compare(&format!("gather, nonzero {dtype}"), |e| {
            let layout = Layout::contiguous(&[4, 6, 5]).unwrap().transpose(0, 2);
            let x = Tensor::with_layout(e, dtype, layout, awkward(dtype));
            let index = Tensor::new(e, DType::I64, &[5, 9, 3], |i| (i * 7 % 6) as f64);
            let out = Tensor::out(e, dtype, &[5, 9, 3]);
            run(e, call::Gather { x: x.view(), dim: 1, index: index.view(), out: out.view() }).unwrap();
            let total = Tensor::out(e, DType::I64, &[1, 1, 1]);
            let reduced = call::Marks::from_elem(true, 3);
            run(e, call::Reduce { op: Reduce::CountNonzero, reduced, x: x.view(), out: total.view() }).unwrap();
            let count = total.values()[0] as usize;
            let places = Tensor::out(e, DType::I64, &[count, 3]);
            run(e, call::NonZero { x: x.view(), out: places.view() }).unwrap();
            vec![out, places]
        });
    }
    for e in [rushlight_cpu::backend(), rushlight_cpu::composed()] {
        let x = Tensor::random(e, DType::F32, &[2, 3], 1);
        let index = Tensor::new(e, DType::I64, &[2, 1], |i| i as f64 + 2.0);
        let out = Tensor::out(e, DType::F32, &[2, 1]);
        let error = run(e, call::Gather { x: x.view(), dim: 1, index: index.view(), out: out.view() }).unwrap_err();
        assert_eq!(error.to_string(), "index 3 is out of bounds for dimension 1 with size 3");
    }
}
