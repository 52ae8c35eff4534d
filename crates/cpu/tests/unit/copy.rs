use crate::testing::Array;
use rushlight_core::Layout;
use rushlight_core::layout::Nest;
use rushlight_core::{DType, Scalar};
use rushlight_cpu::copy::*;

#[test]
fn every_pair_of_dtypes() {
    for from in DType::COMPUTED {
        for to in DType::COMPUTED {
            let src = Array::new(from, &[2, 70], |i| i as f64 * 0.75 - 40.0);
            let out = Array::new(to, &[2, 70], |_| 1.0);
            copy(src.view(), out.view()).unwrap();
            for i in 0..140 {
                let want = Array::new(to, &[1], |_| src.get(i)).get(0);
                assert_eq!(out.get(i), want, "{from} to {to}: {}", src.get(i));
            }
        }
    }
}

#[test]
fn floats_out_of_range_become_what_the_cast_gives() {
    let src = Array::new(DType::F32, &[4], |i| [f64::NAN, 1e30, -1e30, 300.7][i]);
    let out = Array::new(DType::U8, &[4], |_| 0.0);
    copy(src.view(), out.view()).unwrap();
    assert_eq!(out.to_f64(), [0.0, 255.0, 0.0, 44.0]);
}

#[test]
fn transposes_and_other_orders() {
    for (shape, order) in [
        (vec![100, 70], vec![1, 0]),
        (vec![8, 8], vec![1, 0]),
        (vec![3, 65, 40], vec![0, 2, 1]),
        (vec![9, 3, 33, 17], vec![3, 1, 0, 2]),
        (vec![5, 2, 3], vec![2, 0, 1]),
        (vec![300, 257], vec![1, 0]),
        // Few long rows, and their elements side by side.
        (vec![4, 100], vec![1, 0]),
        (vec![3, 300, 5], vec![0, 2, 1]),
        (vec![2, 7, 2100], vec![0, 2, 1]),
        (vec![64, 2], vec![1, 0]),
    ] {
        for dtype in [DType::F32, DType::F64, DType::U8, DType::BF16] {
            let src = Array::new(dtype, &shape, |i| (i % 251) as f64);
            let permuted = src.layout().permute(&order);
            for to in [dtype, DType::I64] {
                let out = Array::new(to, permuted.shape(), |_| 0.0);
                copy(src.view_as(&permuted), out.view()).unwrap();
                let nest = Nest::new(permuted.shape(), [permuted.strides()]);
                for i in 0..permuted.numel() {
                    assert_eq!(out.get(i), (nest.offsets(i)[0] % 251) as f64, "{shape:?} {order:?} {dtype} {to}");
                }
            }
        }
    }
}

#[test]
fn gaps_are_left_alone() {
    let out = Array::new(DType::F32, &[6, 4], |_| 7.0);
    let every_second = out.layout().slice(1, 0, 2, 2);
    fill(Scalar::Int(1), out.view_as(&every_second)).unwrap();
    let row = Array::new(DType::F64, &[2], |i| i as f64);
    let rows = row.layout().expand(&[3, 2]).unwrap();
    copy(row.view_as(&rows), out.view_as(&every_second.slice(0, 0, 3, 1))).unwrap();
    assert_eq!(out.to_f64()[..8], [0.0, 7.0, 1.0, 7.0, 0.0, 7.0, 1.0, 7.0]);
    assert_eq!(out.to_f64()[16..], [1.0, 7.0, 1.0, 7.0, 1.0, 7.0, 1.0, 7.0]);
}

#[test]
fn large_empty_and_zero_dim() {
    let src = Array::new(DType::F32, &[100_001], |i| i as f64);
    let out = Array::new(DType::F32, &[100_001], |_| 0.0);
    copy(src.view(), out.view()).unwrap();
    assert_eq!(out.to_f64(), src.to_f64());
    fill(Scalar::Float(2.5), out.view()).unwrap();
    assert!(out.to_f64().iter().all(|&v| v == 2.5));
    for shape in [&[][..], &[0], &[3, 0]] {
        let (a, b) = (Array::new(DType::I8, shape, |_| 3.0), Array::new(DType::F64, shape, |_| 0.0));
        copy(a.view(), b.view()).unwrap();
        assert_eq!(b.to_f64(), a.to_f64());
        fill(Scalar::Bool(true), b.view()).unwrap();
    }
}

#[test]
fn ranges() {
    let out = Array::with_layout(DType::F32, Layout::strided(&[3, 2], &[1, 5], 1).unwrap(), |_| 0.0);
    arange(Scalar::Float(1.0), Scalar::Float(0.5), out.view()).unwrap();
    assert_eq!(out.to_f64(), [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
    let out = Array::new(DType::I64, &[5000], |_| 0.0);
    arange(Scalar::Int(1 << 60), Scalar::Int(-3), out.view()).unwrap();
    assert!((0..5000).all(|i| out.int(i) == (1 << 60) - 3 * i as i64));
}
