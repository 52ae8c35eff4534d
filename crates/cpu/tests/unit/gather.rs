use crate::testing::{Array, Rng};
use rushlight_core::backend::Scatter;
use rushlight_core::{DType, Operand};
use rushlight_core::{Element, ErrorKind, Layout, Scalar};
use rushlight_cpu::gather::*;

/// Coordinates of a row-major position.
fn coordinates(shape: &[usize], mut i: usize) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for d in (0..shape.len()).rev() {
        at[d] = i % shape[d];
        i /= shape[d];
    }
    at
}

fn position(shape: &[usize], at: &[usize]) -> usize {
    shape.iter().zip(at).fold(0, |p, (&n, &i)| p * n + i)
}

fn indices(rng: &mut Rng, shape: &[usize], size: usize) -> Array {
    let n = shape.iter().product();
    let values = (0..n).map(|_| rng.below(size) as i64).collect();
    Array::contiguous::<i64>(shape, values)
}

#[test]
fn gather_and_scatter_match_plain_loops() {
    let mut rng = Rng(4);
    for _ in 0..60 {
        let rank = 1 + rng.below(3);
        let shape = rng.shape(rank, 6);
        let dim = rng.below(rank);
        let mut index_shape: Vec<usize> = shape.iter().map(|&n| 1 + rng.below(n)).collect();
        index_shape[dim] = 1 + rng.below(8);
        let index = indices(&mut rng, &index_shape, shape[dim]);
        let index_values = index.to_vec::<i64>();
        let target = |i: usize| {
            let mut at = coordinates(&index_shape, i);
            at[dim] = index_values[i] as usize;
            position(&shape, &at)
        };
        for dtype in DType::COMPUTED {
            let x = rng.array(&shape, dtype);
            let out = Array::zeros(&index_shape, dtype);
            gather(x.view(), dim, index.view(), out.view()).unwrap();
            let (from, got) = (x.to_f64(), out.to_f64());
            assert!((0..got.len()).all(|i| got[i] == from[target(i)]), "gather {dtype} {:?}", x.layout);

            for op in [Scatter::Set, Scatter::Add, Scatter::Mul, Scatter::Max, Scatter::Min] {
                let src = rng.array(&index_shape, dtype);
                let out = rng.array(&shape, dtype);
                let mut want = out.to_f64();
                for (i, v) in src.to_f64().into_iter().enumerate() {
                    let place = &mut want[target(i)];
                    *place = match op {
                        Scatter::Set => v,
                        Scatter::Add => *place + v,
                        Scatter::Mul if dtype.is_float() => *place * v,
                        // Wraps at every step, as the dtype does.
                        Scatter::Mul => {
                            let product = (*place as i64).wrapping_mul(v as i64);
                            rushlight_core::with_dtype!(dtype, T => T::from_i64(product).to_f64())
                        }
                        Scatter::Max => place.max(v),
                        Scatter::Min => place.min(v),
                    };
                }
                scatter(op, dim, index.view(), Operand::Tensor(src.view()), out.view()).unwrap();
                rushlight_core::with_dtype!(dtype, T => {
                    for (g, w) in out.to_vec::<T>().into_iter().zip(want) {
                        // Products overflow small integers and round in floats.
                        let w = if dtype.is_float() { T::from_f64(w) } else { T::from_i64(w as i64) };
                        let (g, w) = (g.to_f64(), w.to_f64());
                        assert!((g - w).abs() <= 0.02 * w.abs(), "{op:?} {dtype}: {g} for {w}");
                    }
                });
            }
        }
    }
}

#[test]
fn scalars_and_halves_and_faults() {
    let index = Array::contiguous(&[3], vec![0i64, 2, 3]);
    let out = Array::contiguous(&[4], vec![1i32; 4]);
    scatter(Scatter::Add, 0, index.view(), Operand::Scalar(Scalar::Int(5)), out.view()).unwrap();
    assert_eq!(out.to_vec::<i32>(), [6, 1, 6, 6]);
    // A thousand small additions are not lost to rounding.
    let index = Array::over(vec![0i64], Layout::contiguous(&[1]).unwrap().expand(&[1000]).unwrap());
    let out = Array::contiguous(&[1], vec![half::bf16::from_f32(256.0)]);
    scatter(Scatter::Add, 0, index.view(), Operand::Scalar(Scalar::Float(0.25)), out.view()).unwrap();
    assert_eq!(out.to_f64(), [506.0]);

    let index = Array::contiguous(&[2], vec![1i64, 7]);
    let (x, out) = (Array::contiguous(&[5], vec![0f32; 5]), Array::zeros(&[2], DType::F32));
    let e = gather(x.view(), 0, index.view(), out.view()).unwrap_err();
    assert_eq!(
        (e.kind(), e.to_string().as_str()),
        (ErrorKind::Index, "index 7 is out of bounds for dimension 0 with size 5")
    );
    let e = scatter(Scatter::Set, 0, index.view(), Operand::Tensor(out.view()), x.view()).unwrap_err();
    assert_eq!(e.to_string(), "index 7 is out of bounds for dimension 0 with size 5");
    // The same for many indices, in every line; negative ones do not count from the end.
    for index in [-1i64, 5] {
        let message = format!("index {index} is out of bounds for dimension 0 with size 5");
        let counts = Array::contiguous(&[5], vec![0i64; 5]);
        let many = Array::contiguous(&[43], (0..43).map(|i| if i == 41 { index } else { i % 5 }).collect());
        let e = scatter(Scatter::Add, 0, many.view(), Operand::Scalar(Scalar::Int(1)), counts.view()).unwrap_err();
        assert_eq!(e.to_string(), message);
        let e = gather(x.view(), 0, many.view(), Array::zeros(&[43], DType::F32).view()).unwrap_err();
        assert_eq!(e.to_string(), message);
    }
    let counts = Array::contiguous(&[5], vec![1i64; 5]);
    let many = Array::contiguous(&[43], (0..43i64).map(|i| i * i % 5).collect());
    scatter(Scatter::Add, 0, many.view(), Operand::Scalar(Scalar::Int(2)), counts.view()).unwrap();
    assert_eq!(counts.to_vec::<i64>(), [19, 35, 1, 1, 35]);
    let none = Array::contiguous::<i64>(&[0], vec![]);
    let empty = Array::zeros(&[0], DType::F32);
    gather(x.view(), 0, none.view(), empty.view()).unwrap();
    scatter(Scatter::Add, 0, none.view(), Operand::Tensor(empty.view()), x.view()).unwrap();
}
