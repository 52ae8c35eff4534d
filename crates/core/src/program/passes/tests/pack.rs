use super::*;
use crate::backend::{Activation, Conv};
use call::MatMul;

const IMAGE: &[usize] = &[1, 4, 2, 2];

/// A 1 × 1 convolution of four channels from `x` to `y`, with the weight in `w`.
fn conv(x: usize, w: usize, y: usize) -> Call<Slot> {
    let spec = Conv {
        batch: 1,
        in_channels: 4,
        out_channels: 4,
        groups: 1,
        input: [1, 2, 2],
        kernel: [1; 3],
        output: [1, 2, 2],
        stride: [1; 3],
        padding: [0; 3],
        dilation: [1; 3],
    };
    let (x, w, y) = (slot(x, IMAGE), slot(w, &[4, 4, 1, 1]), slot(y, IMAGE));
    call::ConvForward { spec, x, w, bias: None, y }.into()
}

fn packed(program: &Program) -> Program {
    let better = pack(program, |_, _| Some(Packed(std::sync::Arc::new(()))));
    better.verify().unwrap();
    better
}

#[test]
fn convolutions_are_packed_with_what_follows() {
    let (image, relu) = (|b: usize| slot(b, IMAGE), Pointwise::Relu);
    // %0 is the input, %1 the weight. A residual block, in place and out of place.
    let calls = vec![
        conv(0, 1, 2),
        row(relu, &[image(2)], image(2)),
        conv(2, 1, 3),
        conv(0, 1, 4),
        row(Pointwise::Add, &[image(3), image(4)], image(3)),
        row(relu, &[image(3)], image(5)),
        conv(5, 1, 6),
    ];
    let program = Program::new(buffers(2, 5, 64), calls).with_results([6]);
    let better = packed(&program);
    assert_eq!(names(&better), ["conv_packed", "conv_packed", "conv_packed", "conv_packed"]);
    let made: Vec<_> = better
        .calls()
        .iter()
        .map(|call| match call {
            Call::ConvPacked(c) => (c.x.buffer, c.addend.as_ref().map(|a| a.buffer), c.relu, c.y.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    let last = |b: usize| Slot { layout: Layout::channels_last(IMAGE).unwrap(), ..image(b) };
    assert_eq!(
        made,
        [(0, None, true, last(2)), (0, None, false, last(4)), (2, Some(4), true, last(5)), (5, None, false, image(6))]
    );
    // Nothing is packed whose weight is written, and the engine may decline.
    let mut calls = program.calls().to_vec();
    calls.push(row(relu, &[slot(1, &[4, 4, 1, 1])], slot(1, &[4, 4, 1, 1])));
    assert_eq!(names(&packed(&program.with_calls(calls)))[0], "conv_forward");
    assert_eq!(names(&pack(&program, |_, _| None)), names(&program));
}

#[test]
fn followers_stay_where_the_value_is_needed() {
    let image = |b: usize| slot(b, IMAGE);
    let relu = |from: usize, to: usize| row(Pointwise::Relu, &[image(from)], image(to));
    // The convolution's own result is read again.
    let program = Program::new(buffers(2, 3, 64), vec![conv(0, 1, 2), relu(2, 3), relu(2, 4)]).with_results([3, 4]);
    assert_eq!(names(&packed(&program)), ["conv_packed", "relu", "relu"]);
    // It is a result.
    let program = Program::new(buffers(2, 2, 64), vec![conv(0, 1, 2), relu(2, 3)]).with_results([2, 3]);
    assert_eq!(names(&packed(&program)), ["conv_packed", "relu"]);
    // Its input changes before the ReLU.
    let program = Program::new(buffers(2, 2, 64), vec![conv(0, 1, 2), relu(0, 0), relu(2, 3)]).with_results([3]);
    assert_eq!(names(&packed(&program)), ["conv_packed", "relu", "relu"]);
    // An image that another call reads keeps its channels first.
    let calls = vec![conv(0, 1, 2), row(Pointwise::Exp, &[image(2)], image(3)), conv(2, 1, 4)];
    let program = Program::new(buffers(2, 3, 64), calls).with_results([3, 4]);
    assert!(packed(&program).calls().iter().flat_map(Call::outputs).all(|slot| slot.layout.is_contiguous()));
}

#[test]
fn products_with_constant_weights_are_packed() {
    // %0 is the input, %1 the weight, %2 the bias: a batch of two matrices of three rows, then rows of one.
    let shared = Layout::strided(&[2, 4, 5], &[0, 1, 4], 0).unwrap();
    let first = MatMul {
        alpha: 1.0,
        beta: 0.0,
        activation: Activation::Gelu,
        a: slot(0, &[2, 3, 4]),
        b: Slot { layout: shared, ..slot(1, &[]) },
        bias: Some(slot(2, &[5])),
        out: slot(3, &[2, 3, 5]),
    };
    let (a, b, out) = (slot(3, &[1, 6, 5]), slot(1, &[1, 5, 4]), slot(4, &[1, 6, 4]));
    let second = MatMul { a, b, bias: None, out, activation: Activation::None, ..first.clone() };
    let program = Program::new(buffers(3, 2, 120), vec![first.clone().into(), second.into()]).with_results([4]);
    let mut rows = Vec::new();
    let better = pack(&program, |by, w| {
        let Use::Product(m) = by else { panic!("not a product") };
        rows.push((m, w.layout.shape().to_vec(), w.layout.strides().to_vec()));
        Some(Packed(std::sync::Arc::new(())))
    });
    better.verify().unwrap();
    assert_eq!(names(&better), ["packed_matmul", "packed_matmul"]);
    assert_eq!(rows, [(6, vec![4, 5], vec![1, 4]), (6, vec![5, 4], vec![4, 1])]);
    let Call::PackedMatMul(c) = &better.calls()[0] else { panic!("{:?}", better.calls()[0]) };
    assert_eq!((c.a.layout.shape(), c.out.layout.shape(), c.activation), (&[6, 4][..], &[6, 5][..], Activation::Gelu));
    assert_eq!(c.bias, first.bias);
    // Not with matrices of their own, other factors, rows that are not adjacent, or a weight that is written.
    let own = slot(1, &[2, 4, 5]);
    let turned = Slot { layout: Layout::contiguous(&[2, 4, 3]).unwrap().transpose(1, 2), ..slot(0, &[]) };
    let others = [
        MatMul { b: own, ..first.clone() },
        MatMul { alpha: 2.0, ..first.clone() },
        MatMul { a: turned, ..first.clone() },
    ];
    for other in others {
        let program = Program::new(buffers(3, 2, 160), vec![other.into()]);
        assert_eq!(names(&packed(&program)), ["matmul"]);
    }
    let calls = vec![first.into(), row(Pointwise::Neg, &[slot(1, &[20])], slot(1, &[20]))];
    assert_eq!(names(&packed(&Program::new(buffers(3, 2, 120), calls))), ["matmul", "neg"]);
}
