//! Reductions against plain loops, over dtypes, layouts, levels and thread counts.

mod arg;
#[allow(unused, clippy::all)]
#[path = "../../src/reduce/item.rs"]
mod item;
#[allow(unused, clippy::all)]
#[path = "../../src/reduce/plan.rs"]
mod plan;

use crate::isa::{self, Level};
use crate::testing::{Array, Rng};
use rushlight_core::backend::Reduce;
use rushlight_core::{DType, ErrorKind, Layout};
use rushlight_cpu::reduce::reduce;

const FLOAT_OPS: [Reduce; 16] = [
    Reduce::Sum,
    Reduce::Mean,
    Reduce::Prod,
    Reduce::Max,
    Reduce::Min,
    Reduce::Any,
    Reduce::All,
    Reduce::Var { correction: 1.0 },
    Reduce::Norm { p: 0.0 },
    Reduce::Norm { p: 1.0 },
    Reduce::Norm { p: 2.0 },
    Reduce::Norm { p: 3.5 },
    Reduce::Norm { p: f64::INFINITY },
    Reduce::Norm { p: f64::NEG_INFINITY },
    Reduce::LogSumExp,
    Reduce::SumSquares,
];
const INT_OPS: [Reduce; 7] =
    [Reduce::Sum, Reduce::Prod, Reduce::Max, Reduce::Min, Reduce::Any, Reduce::All, Reduce::CountNonzero];

fn out_dtype(op: Reduce, dtype: DType) -> DType {
    match op {
        Reduce::Any | Reduce::All => DType::Bool,
        Reduce::CountNonzero => DType::I64,
        Reduce::Sum | Reduce::Prod if !dtype.is_float() => DType::I64,
        _ => dtype,
    }
}

/// NaN if any is, else the best by `better`.
fn best(v: &[f64], better: fn(f64, f64) -> bool) -> f64 {
    v.iter().copied().reduce(|a, b| if a.is_nan() || better(a, b) { a } else { b }).unwrap()
}

fn expected(op: Reduce, v: &[f64]) -> f64 {
    let n = v.len() as f64;
    let abs: Vec<f64> = v.iter().map(|x| x.abs()).collect();
    let nonzero = v.iter().filter(|&&x| x != 0.0).count() as f64;
    match op {
        Reduce::Sum => v.iter().sum(),
        Reduce::Mean => v.iter().sum::<f64>() / n,
        Reduce::Prod => v.iter().product(),
        Reduce::Max => best(v, |a, b| a >= b),
        Reduce::Min => best(v, |a, b| a <= b),
        Reduce::Any => (nonzero > 0.0) as u8 as f64,
        Reduce::All => (nonzero == n) as u8 as f64,
        Reduce::Var { correction } => {
            let mean = v.iter().sum::<f64>() / n;
            v.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - correction).max(0.0)
        }
        Reduce::Norm { p: 0.0 } | Reduce::CountNonzero => nonzero,
        Reduce::Norm { p: f64::INFINITY } => best(&abs, |a, b| a >= b),
        Reduce::Norm { p: f64::NEG_INFINITY } => best(&abs, |a, b| a <= b),
        Reduce::Norm { p } => abs.iter().map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
        Reduce::LogSumExp => {
            let max = best(v, |a, b| a >= b);
            if max.is_infinite() { max } else { max + v.iter().map(|x| (x - max).exp()).sum::<f64>().ln() }
        }
        Reduce::SumSquares => v.iter().map(|x| x * x).sum(),
    }
}

/// The elements of each output, by plain loops.
fn groups(x: &Array, reduced: &[bool]) -> Vec<Vec<f64>> {
    let shape = x.layout.shape();
    let outputs = shape.iter().zip(reduced).filter(|&(_, &r)| !r).map(|(&n, _)| n).product();
    let mut out = vec![Vec::new(); outputs];
    for (i, v) in x.to_f64().into_iter().enumerate() {
        let (mut rest, mut at, mut step) = (i, 0, 1);
        for d in (0..shape.len()).rev() {
            if !reduced[d] {
                at += rest % shape[d] * step;
                step *= shape[d];
            }
            rest /= shape[d];
        }
        out[at].push(v);
    }
    out
}

#[track_caller]
fn close(got: f64, want: f64, dtype: DType, what: &dyn std::fmt::Debug) {
    let tolerance = match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1e-2,
        DType::F64 => 1e-12,
        DType::F32 => 2e-6,
        _ => 0.0,
    };
    let same = got == want || got.is_nan() && want.is_nan();
    // A half may overflow where the check does not.
    let overflow = dtype == DType::F16 && want.abs() > 65504.0 && got.is_infinite();
    assert!(same || overflow || (got - want).abs() <= tolerance * want.abs().max(1.0), "{got} for {want}: {what:?}");
}

#[track_caller]
fn check(op: Reduce, x: &Array, reduced: &[bool]) {
    let shape: Vec<usize> = x.layout.shape().iter().zip(reduced).map(|(&n, &r)| if r { 1 } else { n }).collect();
    let dtype = x.view().dtype();
    let out = Array::zeros(&shape, out_dtype(op, dtype));
    reduce(op, x.view(), reduced, out.view()).unwrap();
    let groups = groups(x, reduced);
    let got = out.to_f64();
    assert_eq!(groups.len(), got.len());
    for (g, v) in got.iter().zip(&groups) {
        // Products of many numbers overflow every dtype.
        if op != Reduce::Prod || v.len() <= 8 {
            close(*g, expected(op, v), out_dtype(op, dtype), &(op, dtype, &x.layout, reduced));
        }
    }
}

#[test]
fn all_ops_dtypes_and_layouts() {
    let mut rng = Rng(1);
    for _ in 0..60 {
        let rank = rng.below(5);
        let shape = rng.shape(rank, 7);
        let reduced: Vec<bool> = (0..rank).map(|_| rng.below(2) == 0).collect();
        for dtype in DType::COMPUTED {
            let x = rng.array(&shape, dtype);
            for &op in if dtype.is_float() { &FLOAT_OPS[..] } else { &INT_OPS[..] } {
                check(op, &x, &reduced);
            }
        }
    }
}

/// Every strategy: long rows, wide and narrow columns, pieces, gathered rows and tiles; at every level.
#[test]
fn strategies_at_every_level() {
    let _turn = crate::testing::turn();
    let shapes: [(&[usize], &[bool]); 11] = [
        (&[10_000], &[true]),
        (&[150_000], &[true]),
        (&[3, 5_000], &[false, true]),
        (&[2_000, 20], &[false, true]),
        (&[900, 70], &[true, false]),
        (&[20, 1_500], &[true, false]),
        (&[40_000, 3], &[true, false]),
        (&[3, 50, 70], &[false, true, false]),
        (&[3, 500, 2], &[false, true, false]),
        (&[20, 30, 40], &[true, false, true]),
        (&[4_000, 4, 2], &[false, true, false]),
    ];
    let mut rng = Rng(2);
    let detected = isa::level();
    for level in Level::ALL {
        isa::force(level);
        for (shape, reduced) in shapes {
            for dtype in [DType::F32, DType::BF16, DType::I32] {
                let numel: usize = shape.iter().product();
                let data: Vec<f64> = (0..numel).map(|_| rng.value()).collect();
                let x = rushlight_core::with_dtype!(dtype, T => {
                    Array::contiguous(shape, data.iter().map(|&v| <T as rushlight_core::Element>::from_f64(v)).collect())
                });
                let gaps = Layout::strided(
                    shape,
                    &{
                        let mut s = rushlight_core::layout::contiguous_strides(shape).to_vec();
                        s.iter_mut().for_each(|s| *s *= 2);
                        s
                    },
                    0,
                )
                .unwrap();
                let sparse = Array::over(vec![1.5f32; gaps.span().unwrap()], gaps);
                for op in [Reduce::Sum, Reduce::Max, Reduce::Min] {
                    check(op, &x, reduced);
                    check(op, &sparse, reduced);
                }
                if dtype.is_float() {
                    check(Reduce::Var { correction: 0.0 }, &x, reduced);
                    check(Reduce::LogSumExp, &x, reduced);
                    check(Reduce::Var { correction: 1.0 }, &sparse, reduced);
                }
            }
        }
    }
    isa::force(detected);
}

#[test]
fn special_values() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for v in [vec![1.0, nan, 3.0], vec![-inf; 3], vec![inf, 1.0, -inf], vec![inf, inf, inf], vec![nan; 40], vec![-0.0]]
    {
        let n = v.len();
        for op in FLOAT_OPS {
            if matches!(op, Reduce::Var { .. }) && n == 1 {
                continue;
            }
            check(op, &Array::contiguous(&[n], v.clone()), &[true]);
            check(op, &Array::contiguous(&[n, 1], v.clone()), &[true, false]);
            // Adjacent columns.
            let wide: Vec<f32> = v.iter().flat_map(|&x| vec![x; 40]).collect();
            check(op, &Array::contiguous(&[n, 40], wide), &[true, false]);
        }
    }
    let value = |op, v: Vec<f32>| {
        let (n, out) = (v.len(), Array::zeros(&[1], DType::F32));
        reduce(op, Array::contiguous(&[n], v).view(), &[true], out.view()).unwrap();
        out.to_vec::<f32>()[0]
    };
    assert!(value(Reduce::Var { correction: 1.0 }, vec![3.0]).is_nan());
    assert_eq!(value(Reduce::Var { correction: 5.0 }, vec![3.0, 4.0]), inf);
    assert_eq!(value(Reduce::LogSumExp, vec![1000.0, 1000.0]), 1000.0 + 2f32.ln());
    // A large mean does not cancel the variance.
    let v: Vec<f32> = (0..100_000).map(|i| 10_000.0 + (i % 2) as f32).collect();
    assert!((value(Reduce::Var { correction: 0.0 }, v) - 0.25).abs() < 1e-6);
    // Ten million ones and tenths.
    assert_eq!(value(Reduce::Sum, vec![1.0; 20_000_000]), 20_000_000.0);
    assert!((value(Reduce::Sum, vec![0.1; 10_000_000]) - 1e6).abs() <= 0.25);
}

#[test]
fn nothing_to_reduce() {
    for (op, want) in [
        (Reduce::Sum, 0.0),
        (Reduce::Prod, 1.0),
        (Reduce::Mean, f64::NAN),
        (Reduce::Any, 0.0),
        (Reduce::All, 1.0),
        (Reduce::Var { correction: 1.0 }, f64::NAN),
        (Reduce::Norm { p: 2.0 }, 0.0),
        (Reduce::LogSumExp, f64::NEG_INFINITY),
        (Reduce::CountNonzero, 0.0),
    ] {
        let x = Array::contiguous::<f32>(&[2, 0], vec![]);
        let out = Array::zeros(&[2, 1], out_dtype(op, DType::F32));
        reduce(op, x.view(), &[false, true], out.view()).unwrap();
        for got in out.to_f64() {
            close(got, want, DType::F64, &op);
        }
        let none = Array::zeros(&[1, 0], out_dtype(op, DType::F32));
        reduce(op, x.view(), &[true, false], none.view()).unwrap();
    }
    let x = Array::contiguous::<i32>(&[0], vec![]);
    let out = Array::zeros(&[1], DType::I32);
    assert_eq!(reduce(Reduce::Max, x.view(), &[true], out.view()).unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(reduce(Reduce::Mean, x.view(), &[true], out.view()).unwrap_err().kind(), ErrorKind::DType);
    // Zero dimensions.
    let x = Array::contiguous(&[], vec![2.5f32]);
    let out = Array::zeros(&[], DType::F32);
    reduce(Reduce::Sum, x.view(), &[], out.view()).unwrap();
    assert_eq!(out.to_vec::<f32>(), [2.5]);
}

#[test]
fn expanded_inputs_and_strided_outputs() {
    let layout = Layout::contiguous(&[1, 3]).unwrap().expand(&[50, 3]).unwrap();
    let x = Array::over(vec![1.0f32, 2.0, 4.0], layout);
    for reduced in [[true, false], [false, true], [true, true]] {
        check(Reduce::Sum, &x, &reduced);
        check(Reduce::Var { correction: 0.0 }, &x, &reduced);
    }
    let x = Array::contiguous(&[2, 3], vec![1i32, 2, 3, 4, 5, 6]);
    let out = Array::over(vec![0i64; 10], Layout::strided(&[2, 1], &[5, 1], 3).unwrap());
    reduce(Reduce::Sum, x.view(), &[false, true], out.view()).unwrap();
    assert_eq!(out.to_vec::<i64>(), [6, 15]);
}

#[test]
fn results_do_not_depend_on_threads() {
    let _turn = crate::testing::turn();
    let mut rng = Rng(12);
    let before = crate::pool::num_threads();
    let shapes: [(&[usize], &[bool]); 4] = [
        (&[300_001], &[true]),
        (&[700, 300], &[false, true]),
        (&[70_000, 5], &[true, false]),
        (&[300, 700], &[true, false]),
    ];
    for (shape, reduced) in shapes {
        let data: Vec<f32> = (0..shape.iter().product()).map(|_| rng.value() as f32 * 0.1).collect();
        let x = Array::contiguous(shape, data);
        let out_shape: Vec<usize> = shape.iter().zip(reduced).map(|(&n, &r)| if r { 1 } else { n }).collect();
        for op in [Reduce::Sum, Reduce::Var { correction: 1.0 }, Reduce::LogSumExp] {
            let results = [1, 2, 5].map(|threads| {
                crate::pool::set_num_threads(threads);
                let out = Array::zeros(&out_shape, DType::F32);
                reduce(op, x.view(), reduced, out.view()).unwrap();
                out.to_vec::<f32>()
            });
            assert_eq!(results[0], results[1]);
            assert_eq!(results[0], results[2]);
        }
    }
    crate::pool::set_num_threads(before);
}
