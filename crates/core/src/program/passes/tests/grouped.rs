use super::*;
use crate::backend::{AttentionInputs, Reduce};

const BYTES: usize = 2 * 4 * 32 * 8 * 2;

fn half(buffer: usize, shape: &[usize]) -> Slot {
    Slot { dtype: DType::BF16, ..slot(buffer, shape) }
}

/// Two heads of keys or values (`from`, by place) for four of queries, as a model repeats them.
fn repeated(from: usize, to: usize) -> Call<Slot> {
    let layout = Layout::strided(&[2, 2, 2, 32, 8], &[512, 8, 0, 16, 1], 0).unwrap();
    let src = Slot { layout, ..half(from, &[1]) };
    call::Copy { src, out: half(to, &[2, 2, 2, 32, 8]) }.into()
}

fn inputs(k: usize, v: usize) -> AttentionInputs<Slot> {
    let [q, k, v] = [0, k, v].map(|buffer| half(buffer, &[2, 4, 32, 8]));
    AttentionInputs { q, k, v, mask: None, causal: true, scale: 0.3, dropout: None }
}

/// Queries %0, keys %1, values %2, attention %5 with its sums %6, gradients %7 to %9 and of one head each %10 and %11.
fn attention() -> Vec<Call<Slot>> {
    let heads = |buffer| half(buffer, &[2, 4, 32, 8]);
    let lse = slot(6, &[2, 4, 32]);
    let sum = |from, to| -> Call<Slot> {
        let reduced = [false, false, true, false, false].into_iter().collect();
        let x = half(from, &[2, 2, 2, 32, 8]);
        call::Reduce { op: Reduce::Sum, reduced, x, out: half(to, &[2, 2, 1, 32, 8]) }.into()
    };
    let (dq, dk, dv) = (heads(7), heads(8), heads(9));
    let backward =
        call::AttentionBackward { of: inputs(3, 4), out: heads(5), lse: lse.clone(), dout: heads(5), dq, dk, dv };
    vec![
        repeated(1, 3),
        repeated(2, 4),
        call::Attention { of: inputs(3, 4), out: heads(5), lse }.into(),
        backward.into(),
        sum(8, 10),
        sum(9, 11),
    ]
}

#[test]
fn repeated_keys_are_read_once() {
    let program = Program::new(on_gpu(3, 9, BYTES), attention()).with_results([5, 7, 10, 11]);
    let better = grouped(&program);
    better.verify().unwrap();
    assert_eq!(names(&better), ["copy", "copy", "attention", "attention_backward", "copy", "copy"]);
    let Call::Copy(copied) = &better.calls()[0] else { panic!("{better}") };
    assert_eq!(copied.out.layout.shape(), [2, 2, 32, 8]);
    assert_eq!(copied.out.layout.strides(), [512, 8, 16, 1], "as the keys lie");
    let Call::AttentionBackward(c) = &better.calls()[3] else { panic!("{better}") };
    assert_eq!(c.of.k.layout, copied.out.layout);
    assert_eq!((c.dk.layout.shape(), c.dk.layout.strides()), (&[2, 2, 32, 8][..], &[1024, 256, 8, 1][..]));
    let Call::Copy(sum) = &better.calls()[4] else { panic!("{better}") };
    assert_eq!(
        (sum.src.layout.shape(), sum.src.layout.strides()),
        (&[2, 2, 1, 32, 8][..], &[1024, 256, 256, 8, 1][..])
    );
}

#[test]
fn repeated_keys_that_others_read_stay() {
    let kept = |calls: Vec<Call<Slot>>, results: [usize; 5]| {
        let program = Program::new(on_gpu(3, 9, BYTES), calls).with_results(results);
        assert_eq!(names(&grouped(&program)), names(&program));
    };
    // The repeated keys, or the gradients by head, are results.
    kept(attention(), [3, 5, 7, 10, 11]);
    kept(attention(), [5, 7, 8, 10, 11]);
    // Something else reads the gradients by head, or nothing sums them up.
    let mut calls = attention();
    calls.push(call::Copy { src: half(8, &[2, 4, 32, 8]), out: half(10, &[2, 4, 32, 8]) }.into());
    kept(calls, [5, 7, 10, 11, 11]);
    kept(attention()[..5].to_vec(), [5, 7, 9, 10, 11]);
    // Values that are not repeated.
    let mut calls = attention();
    calls[1] = call::Copy { src: half(2, &[2, 4, 32, 8]), out: half(4, &[2, 4, 32, 8]) }.into();
    kept(calls, [5, 7, 10, 11, 11]);
}
