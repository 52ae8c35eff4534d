use crate::testing::{Array, Rng};
use rushlight_core::{DType, ErrorKind, View};
use rushlight_cpu::index::*;

#[test]
fn reading_and_writing_match_plain_loops() {
    let mut rng = Rng(5);
    for round in 0..80 {
        let rank = 1 + rng.below(3);
        let count = 1 + rng.below(rank);
        let mut shape = rng.shape(rank, 6);
        if round % 8 == 0 {
            shape[rank - 1] = 700;
        }
        let index_rank = rng.below(3);
        let index_shape = rng.shape(index_rank, if round % 16 == 0 { 40 } else { 5 });
        let block: usize = shape[count..].iter().product();
        let positions: usize = index_shape.iter().product();
        let indices: Vec<Array> = shape[..count]
            .iter()
            .map(|&n| {
                let v = (0..positions).map(|_| rng.below(2 * n) as i64 - n as i64).collect();
                Array::contiguous::<i64>(&index_shape, v)
            })
            .collect();
        let views: Vec<View> = indices.iter().map(Array::view).collect();
        let start = |i: usize| {
            let lead = (0..count)
                .fold(0, |p, d| p * shape[d] + indices[d].to_vec::<i64>()[i].rem_euclid(shape[d] as i64) as usize);
            lead * block
        };
        let starts: Vec<usize> = (0..positions).map(start).collect();
        let out_shape = [&index_shape[..], &shape[count..]].concat();
        for dtype in [DType::F32, DType::BF16, DType::I64, DType::I8, DType::Bool] {
            let x = rng.array(&shape, dtype);
            let out = rng.array(&out_shape, dtype);
            index(x.view(), &views, out.view()).unwrap();
            let (from, got) = (x.to_f64(), out.to_f64());
            assert!((0..got.len()).all(|i| got[i] == from[starts[i / block] + i % block]), "{dtype} {:?}", x.layout);

            for accumulate in [false, true] {
                let values = rng.array(&out_shape, dtype);
                let x = rng.array(&shape, dtype);
                let mut want = x.to_f64();
                for (i, v) in values.to_f64().into_iter().enumerate() {
                    let place = &mut want[starts[i / block] + i % block];
                    *place = if accumulate { *place + v } else { v };
                }
                index_put(&views, values.view(), accumulate, x.view()).unwrap();
                rushlight_core::with_dtype!(dtype, T => {
                    use rushlight_core::Element;
                    for (g, w) in x.to_vec::<T>().into_iter().zip(want) {
                        let w = if dtype.is_float() { T::from_f64(w) } else { T::from_i64(w as i64) };
                        assert_eq!(g, w, "{dtype} accumulate {accumulate}");
                    }
                });
            }
        }
    }
}

#[test]
fn many_rows_add_up() {
    let (rows, width, n) = (50, 300, 2_000);
    let ids: Vec<i64> = (0..n).map(|i| (i * i % rows) as i64).collect();
    let values: Vec<f32> = (0..n * width).map(|i| (i % 17) as f32).collect();
    let mut want = vec![0f32; rows * width];
    for (i, &v) in values.iter().enumerate() {
        want[ids[i / width] as usize * width + i % width] += v;
    }
    let ids = Array::contiguous(&[n], ids);
    let out = Array::zeros(&[rows, width], DType::F32);
    index_put(&[ids.view()], Array::contiguous(&[n, width], values).view(), true, out.view()).unwrap();
    assert_eq!(out.to_vec::<f32>(), want);
}

#[test]
fn faults_and_nothing() {
    let x = Array::contiguous(&[5, 2], vec![0f32; 10]);
    let ids = Array::contiguous(&[2], vec![4i64, -6]);
    let out = Array::zeros(&[2, 2], DType::F32);
    let e = index(x.view(), &[ids.view()], out.view()).unwrap_err();
    assert_eq!(
        (e.kind(), e.to_string().as_str()),
        (ErrorKind::Index, "index -6 is out of bounds for dimension 0 with size 5")
    );
    let e = index_put(&[ids.view()], out.view(), true, x.view()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Index);
    let none = Array::contiguous::<i64>(&[0], vec![]);
    let empty = Array::zeros(&[0, 2], DType::F32);
    index(x.view(), &[none.view()], empty.view()).unwrap();
    index_put(&[none.view()], empty.view(), false, x.view()).unwrap();
    assert!(wrap(i64::MIN, 5).is_none() && wrap(i64::MAX, 5).is_none() && wrap(0, 0).is_none());
}

#[test]
fn nonzero_in_order() {
    let mut rng = Rng(6);
    let mut shapes: Vec<Vec<usize>> = (0..30).map(|i| rng.shape(i % 4, 7)).collect();
    shapes.push(vec![300, 400]);
    shapes.push(vec![0, 3]);
    for shape in shapes {
        for dtype in [DType::F32, DType::I16, DType::Bool] {
            let x = rng.array(&shape, dtype);
            let mut want = Vec::new();
            for (i, v) in x.to_f64().into_iter().enumerate() {
                if v != 0.0 {
                    let (mut rest, at) = (i, want.len());
                    want.resize(at + shape.len(), 0);
                    for d in (0..shape.len()).rev() {
                        want[at + d] = (rest % shape[d]) as i64;
                        rest /= shape[d];
                    }
                }
            }
            let count = x.to_f64().into_iter().filter(|&v| v != 0.0).count();
            let out = Array::zeros(&[count, shape.len()], DType::I64);
            nonzero(x.view(), out.view()).unwrap();
            assert_eq!(out.to_vec::<i64>(), want);
            let wrong = Array::zeros(&[count + 1, shape.len()], DType::I64);
            assert_eq!(nonzero(x.view(), wrong.view()).unwrap_err().kind(), ErrorKind::Value);
        }
    }
}
