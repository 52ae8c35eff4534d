//! Every kind of operand: strides, broadcasting, dtypes, numbers, sizes, in place.

use crate::testing::Array;
use rushlight_core::{DType, Layout, Operand, Pointwise, Scalar};
use rushlight_cpu::pointwise::{pointwise, pointwise_grad, select};

/// Layouts of a shape: plain, transposed, with gaps, and with each dimension in turn expanded.
fn layouts(shape: &[usize]) -> Vec<Layout> {
    let mut all = vec![Layout::contiguous(shape).unwrap()];
    let rank = shape.len();
    let order: Vec<usize> = (0..rank).rev().collect();
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    all.push(Layout::contiguous(&reversed).unwrap().permute(&order));
    let strides: Vec<usize> = all[0].strides().iter().map(|s| s * 3).collect();
    all.push(Layout::strided(shape, &strides, 5).unwrap());
    for d in 0..rank {
        let mut narrow = shape.to_vec();
        narrow[d] = narrow[d].min(1);
        all.push(Layout::contiguous(&narrow).unwrap().expand(shape).unwrap());
    }
    all
}

fn shapes() -> Vec<Vec<usize>> {
    vec![
        vec![],
        vec![0],
        vec![1],
        vec![7],
        vec![65],
        vec![5000],
        vec![3, 0, 2],
        vec![2, 1, 3],
        vec![70, 3],
        vec![4, 700],
        vec![3, 5, 300],
        vec![33, 17, 4],
        vec![40_000],
    ]
}

/// Values of an expanded layout depend on the memory, so they are read back instead of assumed.
fn array(dtype: DType, layout: &Layout, seed: usize) -> Array {
    Array::with_layout(dtype, layout.clone(), |i| {
        ((i * 7 + seed) % 23) as f64 - if dtype == DType::U8 { 0.0 } else { 11.0 }
    })
}

#[test]
fn strides_and_broadcasting() {
    for shape in shapes() {
        let all = layouts(&shape);
        for (i, la) in all.iter().enumerate() {
            let lb = &all[(i + 1) % all.len()];
            let (a, b) = (array(DType::F32, la, 1), array(DType::F32, lb, 2));
            // The first three layouts do not overlap themselves.
            for lo in &all[..3] {
                let out = Array::with_layout(DType::F32, lo.clone(), |_| 99.0);
                pointwise(
                    Pointwise::Sub,
                    DType::F32,
                    &[Operand::Tensor(a.view()), Operand::Tensor(b.view())],
                    &[],
                    out.view(),
                )
                .unwrap();
                let want: Vec<f64> = a.to_f64().iter().zip(b.to_f64()).map(|(a, b)| a - b).collect();
                assert_eq!(out.to_f64(), want, "{la:?} {lb:?} {lo:?}");
            }
        }
    }
}

#[test]
fn dtypes_are_converted_on_the_way() {
    let layout = Layout::contiguous(&[3, 400]).unwrap();
    for from in DType::COMPUTED {
        for to in DType::COMPUTED {
            let (a, b) = (array(from, &layout, 1), array(to, &layout, 2));
            let out = array(to, &layout, 3);
            pointwise(
                Pointwise::Add,
                DType::F32,
                &[Operand::Tensor(a.view()), Operand::Tensor(b.view())],
                &[],
                out.view(),
            )
            .unwrap();
            for i in 0..1200 {
                let sum = a.get(i) + b.get(i);
                let converted = Array::new(to, &[1], |_| sum);
                assert_eq!(out.get(i), converted.get(0), "{from} + {to}");
            }
        }
    }
}

#[test]
fn numbers_are_operands() {
    for n in [0, 1, 9, 64, 65, 3000] {
        let a = Array::new(DType::I32, &[n], |i| i as f64);
        let out = Array::new(DType::I32, &[n], |_| 0.0);
        pointwise(
            Pointwise::Mul,
            DType::I32,
            &[Operand::Scalar(Scalar::Int(-3)), Operand::Tensor(a.view())],
            &[],
            out.view(),
        )
        .unwrap();
        assert_eq!(out.to_f64(), (0..n).map(|i| -3.0 * i as f64).collect::<Vec<_>>());
        let mask = Array::new(DType::Bool, &[n], |_| 0.0);
        pointwise(
            Pointwise::Lt,
            DType::F32,
            &[Operand::Tensor(a.view()), Operand::Scalar(Scalar::Float(4.5))],
            &[],
            mask.view(),
        )
        .unwrap();
        assert!((0..n).all(|i| mask.get(i) == (i < 5) as u8 as f64));
    }
}

#[test]
fn in_place_is_exact() {
    for n in [3, 64, 500, 100_000] {
        let a = Array::new(DType::F32, &[n], |i| i as f64);
        pointwise(Pointwise::Add, DType::F32, &[Operand::Tensor(a.view()), Operand::Tensor(a.view())], &[], a.view())
            .unwrap();
        pointwise_grad(
            Pointwise::Mul,
            0,
            DType::F32,
            [Some(Operand::Tensor(a.view())), None, Some(Operand::Scalar(Scalar::Float(3.0))), None, None],
            &[],
            a.view(),
        )
        .unwrap();
        assert!((0..n).all(|i| a.get(i) == 6.0 * i as f64));
    }
    // Through a transposed view, and with a conversion.
    let a = Array::new(DType::BF16, &[5, 9], |i| i as f64);
    let t = a.layout().transpose(0, 1);
    pointwise(Pointwise::Neg, DType::F32, &[Operand::Tensor(a.view_as(&t))], &[], a.view_as(&t)).unwrap();
    assert!((0..45).all(|i| a.get(i) == -(i as f64)));
}

#[test]
fn outputs_past_the_caches() {
    let n = (32 << 20) / 4 + 77;
    let layout = Layout::strided(&[n], &[1], 3).unwrap();
    let a = Array::new(DType::F32, &[1], |_| 2.0);
    let expanded = a.layout().expand(&[n]).unwrap();
    let out = Array::with_layout(DType::F32, layout, |_| 0.0);
    pointwise(Pointwise::Square, DType::F32, &[Operand::Tensor(a.view_as(&expanded))], &[], out.view()).unwrap();
    assert!((0..n).step_by(997).chain(n - 100..n).chain(0..100).all(|i| out.get(i) == 4.0));
}

#[test]
fn selection() {
    for n in [0, 1, 50, 4000] {
        for dtype in DType::COMPUTED {
            let condition = Array::new(DType::Bool, &[n], |i| (i % 3 == 0) as u8 as f64);
            let a = Array::new(DType::F32, &[n], |i| (i % 2) as f64);
            let out = Array::new(dtype, &[n], |_| 0.0);
            select(condition.view(), Operand::Tensor(a.view()), Operand::Scalar(Scalar::Int(1)), out.view()).unwrap();
            assert!((0..n).all(|i| out.get(i) == if i % 3 == 0 { (i % 2) as f64 } else { 1.0 }), "{dtype}");
        }
    }
}
