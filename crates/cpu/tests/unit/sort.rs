use crate::testing::{Array, Rng};
use rushlight_core::DType;
use rushlight_core::Element as _;
use rushlight_cpu::sort::*;
use std::cmp::Ordering;

/// The lines along `dim`, each with its elements in order.
fn lines(x: &Array, dim: usize) -> Vec<Vec<f64>> {
    let shape = x.layout.shape();
    let n = shape.get(dim).copied().unwrap_or(1);
    let inner: usize = shape.iter().skip(dim + 1).product();
    let all = x.to_f64();
    (0..all.len() / n.max(1))
        .map(|l| (0..n).map(|i| all[l / inner * inner * n + i * inner + l % inner]).collect())
        .collect()
}

fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn check(x: &Array, dim: usize, k: Option<usize>) {
    let shape = x.layout.shape();
    let mut out_shape = shape.to_vec();
    if let (Some(s), Some(k)) = (out_shape.get_mut(dim), k) {
        *s = k;
    }
    for largest_first in [false, true] {
        let (values, indices) = (Array::zeros(&out_shape, x.view().dtype()), Array::zeros(&out_shape, DType::I64));
        match k {
            None => sort(x.view(), dim, largest_first, values.view(), indices.view()).unwrap(),
            Some(_) => topk(x.view(), dim, largest_first, values.view(), indices.view()).unwrap(),
        }
        let (values, indices) = (lines(&values, dim), lines(&indices, dim));
        for (l, line) in lines(x, dim).iter().enumerate() {
            let mut want: Vec<usize> = (0..line.len()).collect();
            want.sort_by(|&a, &b| {
                let by_value = order(line[a], line[b]);
                if largest_first { by_value.reverse() } else { by_value }
            });
            want.truncate(k.unwrap_or(line.len()));
            let got: Vec<usize> = indices[l].iter().map(|&i| i as usize).collect();
            assert_eq!(got, want, "{:?} dim {dim} largest {largest_first}", x.layout);
            assert!(values[l].iter().zip(&want).all(|(v, &i)| v.to_bits() == line[i].to_bits()));
        }
    }
}

#[test]
fn sorts_stably_in_any_layout() {
    let mut rng = Rng(7);
    for round in 0..40 {
        let rank = 1 + rng.below(3);
        let shape = rng.shape(rank, if round % 4 == 0 { 40 } else { 6 });
        for dtype in DType::COMPUTED {
            let x = rng.array(&shape, dtype);
            for dim in 0..rank {
                check(&x, dim, None);
                check(&x, dim, Some(1 + rng.below(shape[dim])));
            }
        }
    }
    check(&Array::contiguous(&[], vec![2i32]), 0, None);
    check(&Array::contiguous::<f32>(&[3, 0], vec![]), 1, None);
    let (x, none) = (Array::zeros(&[3], DType::F32), Array::zeros(&[0], DType::F32));
    topk(x.view(), 0, true, none.view(), Array::zeros(&[0], DType::I64).view()).unwrap();
}

#[test]
fn long_lines_and_special_values() {
    let mut rng = Rng(8);
    let special = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 5e-324];
    let v: Vec<f64> = (0..200_000)
        .map(|i| if i % 50 == 0 { special[i / 50 % 7] } else { rng.draw() as f64 / 1e6 - 1000.0 })
        .collect();
    check(&Array::contiguous(&[200_000], v.clone()), 0, None);
    check(&Array::contiguous(&[100, 2_000], v.clone()), 1, None);
    check(&Array::contiguous(&[2_000, 100], v.clone()), 0, Some(7));
    let narrow: Vec<f32> = v.iter().map(|&x| x as f32).collect();
    check(&Array::contiguous(&[200_000], narrow.clone()), 0, None);
    check(&Array::contiguous(&[200_000], narrow), 0, Some(1_000));
    check(&Array::contiguous(&[200_000], v.iter().map(|&x| half::bf16::from_f64(x)).collect()), 0, None);
    check(&Array::contiguous(&[200_000], v.iter().map(|&x| x as i64 as u8).collect()), 0, None);
    check(&Array::contiguous(&[200_000], v.iter().map(|&x| (x * 1e9) as i64).collect()), 0, None);
}

#[test]
fn too_many_asked_for() {
    let (x, v, i) = (Array::zeros(&[2], DType::F32), Array::zeros(&[3], DType::F32), Array::zeros(&[3], DType::I64));
    assert!(topk(x.view(), 0, true, v.view(), i.view()).is_err());
}

#[test]
fn searches_rows() {
    let mut rng = Rng(9);
    for dtype in DType::COMPUTED {
        for (rows, shared) in [(1, true), (4, false), (4, true)] {
            let (n, m) = (1 + rng.below(20), 1 + rng.below(9));
            let sorted_rows = if shared { 1 } else { rows };
            let mut boundaries: Vec<f64> = (0..sorted_rows * n).map(|_| rng.value()).collect();
            rushlight_core::with_dtype!(dtype, T => {
                boundaries.iter_mut().for_each(|v| *v = T::from_f64(*v).to_f64());
                boundaries.chunks_mut(n).for_each(|row| row.sort_by(f64::total_cmp));
                let data = boundaries.iter().map(|&v| T::from_f64(v)).collect();
                let shape: &[usize] = if shared { &[n] } else { &[rows, n] };
                let sorted = Array::contiguous::<T>(shape, data);
                let values = rng.array(&[rows, m], dtype);
                for right in [false, true] {
                    let out = Array::zeros(&[rows, m], if right { DType::I32 } else { DType::I64 });
                    searchsorted(sorted.view(), values.view(), right, out.view()).unwrap();
                    for (i, (v, got)) in values.to_f64().into_iter().zip(out.to_f64()).enumerate() {
                        let row = if shared { &boundaries[..] } else { &boundaries[i / m * n..][..n] };
                        let want = row.iter().filter(|&&b| if right { b <= v } else { b < v }).count();
                        assert_eq!(got as usize, want, "{v} in {row:?}");
                    }
                }
            });
        }
    }
    let (s, v, o) =
        (Array::zeros(&[0], DType::F32), Array::contiguous(&[1], vec![f32::NAN]), Array::zeros(&[1], DType::I64));
    searchsorted(s.view(), v.view(), false, o.view()).unwrap();
    assert_eq!(o.to_vec::<i64>(), [0]);
}
