use super::*;
use crate::backend::Reduce;

/// A view of a buffer whose memory has the order batch, place, head, channel.
fn heads(buffer: usize, shape: &[usize], strides: &[usize], offset: usize) -> Slot {
    Slot { layout: Layout::strided(shape, strides, offset).unwrap(), ..slot(buffer, shape) }
}

/// As a model records it: by head, in memory by place.
fn by_place(buffer: usize) -> Slot {
    heads(buffer, &[2, 4, 64, 32], &[8192, 32, 128, 1], 0)
}

fn half(of: Slot, at: usize) -> Slot {
    Slot { layout: of.layout.slice(3, 16 * at, 16, 1), ..of }
}

/// Cosines and sines, one row for each place.
fn angles(buffer: usize) -> Slot {
    heads(buffer, &[2, 4, 64, 32], &[0, 0, 32, 1], 0)
}

fn copied(src: Slot, out: Slot) -> Call<Slot> {
    call::Copy { src, out }.into()
}

fn transposed(slot: Slot) -> Slot {
    Slot { layout: slot.layout.permute(&[0, 2, 1, 3]), ..slot }
}

/// Calls in the memory order of the output, as pointwise ops record them.
fn in_order(op: Pointwise, inputs: &[Slot], out: Slot) -> Call<Slot> {
    let inputs: Vec<Slot> = inputs.iter().cloned().map(transposed).collect();
    row(op, &inputs, transposed(out))
}

const BYTES: usize = 2 * 4 * 64 * 32 * 4;

#[test]
fn a_rotary_embedding_is_one_kernel() {
    // x %0, cosines %1, sines %2: %7 = x * cos + cat([-second half, first half]) * sin.
    let joined = |buffer| slot(buffer, &[2, 4, 64, 32]);
    let negated = heads(4, &[2, 4, 64, 16], &[4096, 16, 64, 1], 0);
    let calls = vec![
        in_order(Pointwise::Mul, &[by_place(0), angles(1)], by_place(3)),
        in_order(Pointwise::Neg, &[half(by_place(0), 1)], negated.clone()),
        copied(negated, half(joined(5), 0)),
        copied(half(by_place(0), 0), half(joined(5), 1)),
        row(Pointwise::Mul, &[joined(5), angles(2)], joined(6)),
        in_order(Pointwise::Add, &[by_place(3), joined(6)], by_place(7)),
    ];
    let program = Program::new(on_gpu(3, 5, BYTES), calls.clone()).with_results([7]);
    let better = optimize(&program).unwrap();
    let [Call::Fused(c)] = better.calls() else { panic!("{better}") };
    assert_eq!((c.outs.len(), c.inputs.len()), (2, 6), "two halves, each from both halves of x: {better}");
    // Read by something else, the joined tensor stays.
    let also = Program::new(on_gpu(3, 5, BYTES), calls.clone()).with_results([5, 7]);
    assert!(names(&optimize(&also).unwrap()).len() > 1);
    // A reduction of the result would lose what it is fused with.
    let mut reduced = calls;
    reduced.truncate(5);
    let sum = slot(7, &[2, 4, 64, 1]);
    reduced.push(
        call::Reduce {
            op: Reduce::Sum,
            reduced: [false, false, false, true].into_iter().collect(),
            x: joined(6),
            out: sum,
        }
        .into(),
    );
    let reduced = Program::new(on_gpu(3, 5, BYTES), reduced).with_results([7]);
    assert_eq!(split(&reduced).calls().len(), reduced.calls().len());
}

#[test]
fn the_gradient_of_a_rotary_embedding_is_one_kernel() {
    // %0 is the incoming gradient; the product with the cosines is added to in place.
    let joined = |buffer| slot(buffer, &[2, 4, 64, 32]);
    let negated = heads(4, &[2, 4, 64, 16], &[4096, 16, 64, 1], 0);
    let calls = vec![
        in_order(Pointwise::Mul, &[by_place(0), angles(2)], by_place(3)),
        in_order(Pointwise::Neg, &[half(by_place(3), 0)], negated.clone()),
        in_order(Pointwise::Mul, &[by_place(0), angles(1)], by_place(6)),
        copied(half(by_place(3), 1), half(joined(5), 0)),
        copied(negated, half(joined(5), 1)),
        row(Pointwise::Add, &[by_place(6), joined(5)], by_place(6)),
        row(Pointwise::Exp, &[slot(6, &[16384])], slot(7, &[16384])),
    ];
    let program = Program::new(on_gpu(3, 5, BYTES), calls).with_results([6]);
    let better = optimize(&program).unwrap();
    let [Call::Fused(c)] = better.calls() else { panic!("{better}") };
    assert_eq!((c.outs.len(), c.inputs.len()), (2, 6), "{better}");
}
