//! Arg-reductions.

use crate::isa::{self, Level};
use crate::testing::{Array, Rng};
use rushlight_core::DType;
use rushlight_core::backend::ArgReduce;
use rushlight_cpu::reduce::arg_reduce;

fn check(x: &Array, dim: usize) {
    let mut shape = x.layout.shape().to_vec();
    let n = shape.get(dim).copied().unwrap_or(1);
    if let Some(s) = shape.get_mut(dim) {
        *s = 1;
    }
    for op in [ArgReduce::Max, ArgReduce::Min] {
        let (values, indices) = (Array::zeros(&shape, x.view().dtype()), Array::zeros(&shape, DType::I64));
        arg_reduce(op, x.view(), dim, values.view(), indices.view()).unwrap();
        let (all, values, indices) = (x.to_f64(), values.to_f64(), indices.to_vec::<i64>());
        let inner: usize = x.layout.shape().iter().skip(dim + 1).product();
        for (o, (&value, &index)) in values.iter().zip(&indices).enumerate() {
            let line: Vec<f64> = (0..n).map(|i| all[o / inner * inner * n + i * inner + o % inner]).collect();
            let better = |a: f64, b: f64| match op {
                _ if a.is_nan() || b.is_nan() => a.is_nan() && !b.is_nan(),
                ArgReduce::Max => a > b,
                ArgReduce::Min => a < b,
            };
            let want = (1..n).fold(0, |best, i| if better(line[i], line[best]) { i } else { best });
            assert_eq!(index as usize, want, "{op:?} {:?} dim {dim}", x.layout);
            assert!(value == line[want] || value.is_nan() && line[want].is_nan());
        }
    }
}

#[test]
fn first_of_equals_in_any_layout() {
    let mut rng = Rng(3);
    for _ in 0..40 {
        let rank = 1 + rng.below(4);
        let shape = rng.shape(rank, 9);
        for dtype in DType::COMPUTED {
            let x = rng.array(&shape, dtype);
            (0..rank).for_each(|dim| check(&x, dim));
        }
    }
    check(&Array::contiguous(&[], vec![1.5f32]), 0);
}

#[test]
fn long_lines_columns_and_nan_at_every_level() {
    let _turn = crate::testing::turn();
    let detected = isa::level();
    for level in Level::ALL {
        isa::force(level);
        let mut v: Vec<f32> = (0..150_000).map(|i| ((i * 7919) % 10_007) as f32).collect();
        check(&Array::contiguous(&[150_000], v.clone()), 0);
        check(&Array::contiguous(&[500, 300], v.clone()), 0);
        check(&Array::contiguous(&[500, 300], v.clone()), 1);
        v[77_777] = f32::NAN;
        v[99_999] = f32::NAN;
        check(&Array::contiguous(&[150_000], v.clone()), 0);
        check(&Array::contiguous(&[500, 300], v.clone()), 0);
        check(&Array::contiguous(&[2, 75_000], v), 1);
    }
    isa::force(detected);
}
