//! Ranks, histograms, permutations, reversed, padded and resized planes, distances.

use crate::support::*;
use rushlight_core::backend::{Rank, Resample, ResampleAxis, Sampling, call};
use rushlight_core::{DType, Layout, Philox};

const STREAM: Philox = Philox { seed: 7, offset: 3 };

#[test]
fn ranks_and_counts() {
    for dtype in [DType::F32, DType::F64, DType::I64] {
        for rank in [Rank::At(3), Rank::Median, Rank::NanMedian] {
            compare(&format!("kth {rank:?} {dtype}"), |e| {
                let value = |i: usize| match i % 11 {
                    4 if dtype.is_float() => f64::NAN,
                    i => (i * 5 % 7) as f64,
                };
                let x = Tensor::new(e, dtype, &[3, 8, 4], value);
                let (values, indices) = (Tensor::out(e, dtype, &[3, 1, 4]), Tensor::out(e, DType::I64, &[3, 1, 4]));
                let (x, out, places) = (x.view(), values.view(), indices.view());
                run(e, call::Kth { dim: 1, rank, x, values: out, indices: places }).unwrap();
                vec![values, indices]
            });
        }
    }
    for dtype in [DType::F32, DType::F64] {
        compare(&format!("histogram {dtype}"), |e| {
            let x = Tensor::random(e, dtype, &[40, 25], 3);
            let counts = Tensor::new(e, DType::I64, &[9], |_| 0.0);
            run(e, call::Histogram { low: -0.5, high: 0.75, x: x.view(), out: counts.view() }).unwrap();
            vec![counts]
        });
    }
    compare("int_range, permutation", |e| {
        let x = Tensor::new(e, DType::I64, &[1000], |i| ((i * 7919) % 1009) as f64 - 500.0);
        let (range, order) = (Tensor::out(e, DType::I64, &[2]), Tensor::out(e, DType::I64, &[137]));
        run(e, call::IntRange { x: x.view(), out: range.view() }).unwrap();
        run(e, call::Permutation { stream: STREAM, out: order.view() }).unwrap();
        vec![range, order]
    });
    // Elements that are all distinct, so that every output is written as a whole.
    let engine = rushlight_cpu::backend();
    let x = Tensor::new(engine, DType::I64, &[5], |i| (i * 3 % 5) as f64 - 2.0);
    let out = |dtype, n| Tensor::out(engine, dtype, &[n]);
    let [values, inverse, counts, count] = [5, 5, 5, 1].map(|n| out(DType::I64, n));
    let (values_to, inverse_to, counts_to, count_to) = (values.view(), inverse.view(), counts.view(), count.view());
    let call = call::Unique { x: x.view(), values: values_to, inverse: inverse_to, counts: counts_to, count: count_to };
    run(engine, call).unwrap();
    let found = [&values, &inverse, &counts, &count].map(Tensor::values);
    assert_eq!(found[0], [-2.0, -1.0, 0.0, 1.0, 2.0]);
    assert_eq!(found[1], [0.0, 3.0, 1.0, 4.0, 2.0]);
    assert_eq!((&found[2][..], &found[3][..]), (&[1.0; 5][..], &[5.0][..]));
}

#[test]
fn moved_planes() {
    for dtype in [DType::F32, DType::BF16, DType::I32, DType::Bool] {
        compare(&format!("flip {dtype}"), |e| {
            let layout = Layout::contiguous(&[4, 6, 5]).unwrap().transpose(0, 2);
            let x = Tensor::with_layout(e, dtype, layout, |i| (i * 7 % 5) as f64);
            let outs = [[true, false, true], [false, true, false], [false; 3]].map(|flipped| {
                let out = Tensor::out(e, dtype, &[5, 6, 4]);
                let flipped = flipped.into_iter().collect();
                run(e, call::Flip { flipped, x: x.view(), out: out.view() }).unwrap();
                out
            });
            outs.into()
        });
        // Reflected, circular, and with elements of `x` left out.
        for sources in [
            vec![vec![2, 1, 0, 1, 2, 3, 2], vec![1, 0, 1, 2, 3, 4, 3, 2, 1]],
            vec![vec![3, 0, 1, 2, 3, 0], vec![0, 1, 2, 3, 4]],
            vec![vec![1, 2], vec![4, 3, 3]],
        ] {
            compare(&format!("pad {sources:?} {dtype}"), |e| {
                let x = Tensor::new(e, dtype, &[2, 4, 5], |i| (i * 3 % 7) as f64);
                let out = Tensor::out(e, dtype, &[2, sources[0].len(), sources[1].len()]);
                run(e, call::PadFrom { sources: sources.clone().into(), x: x.view(), out: out.view() }).unwrap();
                vec![out]
            });
        }
    }
}

#[test]
fn resized_planes() {
    let axis = |input, output, aligned| {
        let ratio = if aligned { (input - 1) as f64 / (output - 1) as f64 } else { input as f64 / output as f64 };
        ResampleAxis { input, output, ratio, aligned }
    };
    for sampling in
        [Sampling::Nearest { shift: 0.0 }, Sampling::Nearest { shift: 0.5 }, Sampling::Linear, Sampling::Cubic]
    {
        for aligned in [false, true] {
            let axes = [ResampleAxis::unchanged(1), axis(5, 8, aligned), axis(7, 3, aligned)];
            let spec = Resample { sampling, axes };
            compare(&format!("resample {sampling:?}, aligned {aligned}"), |e| {
                let (x, y) = (Tensor::random(e, DType::F64, &[6, 5, 7], 1), Tensor::out(e, DType::F64, &[6, 8, 3]));
                run(e, call::Resample { spec, x: x.view(), y: y.view() }).unwrap();
                let (dy, dx) = (Tensor::random(e, DType::F64, &[6, 8, 3], 2), Tensor::out(e, DType::F64, &[6, 5, 7]));
                run(e, call::ResampleBackward { spec, dy: dy.view(), dx: dx.view() }).unwrap();
                vec![y, dx]
            });
        }
    }
}

#[test]
fn distances() {
    for dtype in [DType::F32, DType::F64] {
        for p in [0.0, 1.0, 2.0, 3.0, f64::INFINITY] {
            compare(&format!("distances {p} {dtype}"), |e| {
                let (a, b) = (Tensor::random(e, dtype, &[2, 7, 5], 1), Tensor::random(e, dtype, &[2, 4, 5], 2));
                let (out, fast) = (Tensor::out(e, dtype, &[2, 7, 4]), Tensor::out(e, dtype, &[2, 7, 4]));
                run(e, call::Distances { p, a: a.view(), b: b.view(), out: out.view() }).unwrap();
                run(e, call::Euclidean { a: a.view(), b: b.view(), out: fast.view() }).unwrap();
                vec![out, fast]
            });
        }
    }
}
