use crate::isa::{self, Level};
use crate::testing::{Array, Rng};
use rushlight_core::DType;
use rushlight_core::backend::Scan;
use rushlight_cpu::scan::*;

fn check(op: Scan, x: &Array, dim: usize) {
    let shape = x.layout.shape();
    let dtype = x.view().dtype();
    let widens = matches!(op, Scan::Sum | Scan::Prod) && !dtype.is_float();
    let out = Array::zeros(shape, if widens { DType::I64 } else { dtype });
    let indices = Array::zeros(shape, DType::I64);
    scan(op, x.view(), dim, out.view(), matches!(op, Scan::Max | Scan::Min).then(|| indices.view())).unwrap();
    let n = shape.get(dim).copied().unwrap_or(1);
    let inner: usize = shape.iter().skip(dim + 1).product();
    let (all, out, indices) = (x.to_f64(), out.to_f64(), indices.to_vec::<i64>());
    for line in 0..all.len() / n.max(1) {
        let at = |i: usize| line / inner * inner * n + i * inner + line % inner;
        let (mut carry, mut index) = (all[at(0)], 0);
        for i in 0..n {
            let v = all[at(i)];
            if i > 0 {
                match op {
                    Scan::Sum => carry += v,
                    Scan::Prod => carry *= v,
                    Scan::LogSumExp => {
                        let high = carry.max(v);
                        carry = if high.is_infinite() {
                            high
                        } else {
                            high + ((carry - high).exp() + (v - high).exp()).ln()
                        };
                    }
                    Scan::Max if v >= carry || v.is_nan() => (carry, index) = (v, i),
                    Scan::Min if v <= carry || v.is_nan() => (carry, index) = (v, i),
                    _ => {}
                }
            }
            let (got, tolerance) = (out[at(i)], if dtype == DType::BF16 || dtype == DType::F16 { 1e-2 } else { 1e-6 });
            // Long products of integers wrap, those of halves overflow.
            if op == Scan::Prod && (i > 6 || !carry.is_normal()) {
                continue;
            }
            assert!(
                got == carry
                    || got.is_nan() && carry.is_nan()
                    || (got - carry).abs() <= tolerance * carry.abs().max(1.0),
                "{op:?} {dtype} {:?} dim {dim} at {i}: {got} for {carry}",
                x.layout
            );
            if matches!(op, Scan::Max | Scan::Min) {
                assert_eq!(indices[at(i)] as usize, index, "{op:?} {:?}", x.layout);
            }
        }
    }
}

#[test]
fn any_layout_and_dtype() {
    let mut rng = Rng(10);
    for _ in 0..40 {
        let rank = 1 + rng.below(3);
        let shape = rng.shape(rank, 10);
        for dtype in DType::COMPUTED {
            let x = rng.array(&shape, dtype);
            for dim in 0..rank {
                for op in [Scan::Sum, Scan::Prod, Scan::Max, Scan::Min] {
                    check(op, &x, dim);
                }
                if dtype.is_float() {
                    check(Scan::LogSumExp, &x, dim);
                }
            }
        }
    }
    check(Scan::Sum, &Array::contiguous(&[], vec![3.0f32]), 0);
    check(Scan::Sum, &Array::contiguous::<f32>(&[2, 0], vec![]), 1);
}

#[test]
fn long_lines_columns_and_special_values_at_every_level() {
    let _turn = crate::testing::turn();
    let mut rng = Rng(11);
    let v: Vec<f64> = (0..200_000).map(|_| rng.value()).collect();
    let detected = isa::level();
    for level in Level::ALL {
        isa::force(level);
        check(Scan::Sum, &Array::contiguous(&[200_000], v.clone()), 0);
        check(Scan::Sum, &Array::contiguous(&[2_000, 100], v.clone()), 0);
        check(Scan::Sum, &Array::contiguous(&[200_000], v.iter().map(|&x| x as i32).collect()), 0);
        check(Scan::LogSumExp, &Array::contiguous(&[200_000], v.clone()), 0);
    }
    isa::force(detected);
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for op in [Scan::Max, Scan::Min, Scan::Sum] {
        check(op, &Array::contiguous(&[6], vec![1.0, inf, nan, 2.0, nan, -inf]), 0);
    }
    for v in [vec![-inf, -inf, 1.0, inf, 3.0], vec![inf, 1.0, inf]] {
        check(Scan::LogSumExp, &Array::contiguous(&[v.len()], v), 0);
    }
    let ints = Array::contiguous(&[2], vec![1i32, 2]);
    assert!(scan(Scan::LogSumExp, ints.view(), 0, ints.view(), None).is_err());
    assert!(scan(Scan::Max, ints.view(), 0, ints.view(), None).is_err());
}
