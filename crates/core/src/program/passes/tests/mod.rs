mod grouped;
mod norms;
mod pack;
mod split;

use super::*;
use crate::backend::call::{self, Numbers, Operand, Operands};
use crate::program::Buffer;
use crate::{DType, Device, Layout, Pointwise, Scalar};

fn buffers(outside: usize, own: usize, bytes: usize) -> Vec<Buffer> {
    (0..outside + own).map(|i| Buffer { device: Device::Cpu, bytes, outside: i < outside }).collect()
}

fn slot(buffer: usize, shape: &[usize]) -> Slot {
    Slot { buffer, layout: Layout::contiguous(shape).unwrap(), dtype: DType::F32 }
}

fn row(op: Pointwise, inputs: &[Slot], out: Slot) -> Call<Slot> {
    let all =
        [0, 1, 2].map(|i| inputs.get(i).map_or(Operand::Scalar(Scalar::Int(0)), |slot| Operand::Tensor(slot.clone())));
    let inputs = Operands::first(all, inputs.len());
    call::Pointwise { op, compute: DType::F32, params: Numbers::default(), inputs, out }.into()
}

fn names(program: &Program) -> Vec<String> {
    program
        .calls()
        .iter()
        .map(|call| match call {
            Call::Fused(c) => format!("fused {}", c.of.names()),
            Call::FusedReduce(c) => format!("fused_reduce {}", c.of.names()),
            Call::FusedRows(c) => format!("fused_rows {}", c.of.names()),
            _ => call.op_name().into_owned(),
        })
        .collect()
}

const SHAPE: &[usize] = &[2, 3];

fn s(buffer: usize) -> Slot {
    slot(buffer, SHAPE)
}

#[test]
fn dead_calls_go() {
    let calls = vec![
        row(Pointwise::Exp, &[s(0)], s(1)),
        row(Pointwise::Neg, &[s(1)], s(2)),
        row(Pointwise::Sqrt, &[s(0)], s(3)),
    ];
    let program = Program::new(buffers(1, 3, 24), calls).with_results([3]);
    assert_eq!(names(&dead(&program)), ["sqrt"]);
    let all = Program::new(buffers(1, 3, 24), program.calls().to_vec());
    assert_eq!(names(&dead(&all)).len(), 3);
    assert_eq!(names(&dead(&program.with_results([2]))), ["exp", "neg"]);
}

#[test]
fn overwritten_values_are_dead() {
    let calls = vec![row(Pointwise::Exp, &[s(0)], s(1)), row(Pointwise::Neg, &[s(0)], s(1))];
    let program = Program::new(buffers(1, 1, 24), calls).with_results([1]);
    assert_eq!(names(&dead(&program)), ["neg"]);
}

#[test]
fn equal_calls_are_made_once() {
    let calls = vec![
        row(Pointwise::Exp, &[s(0)], s(1)),
        row(Pointwise::Exp, &[s(0)], s(2)),
        row(Pointwise::Add, &[s(1), s(2)], s(3)),
    ];
    let program = Program::new(buffers(1, 3, 24), calls).with_results([3]);
    let better = common(&program);
    assert_eq!(names(&better), ["exp", "add"]);
    better.verify().unwrap();
    // Not if the input has changed meanwhile.
    let mut calls = program.calls().to_vec();
    calls.insert(1, row(Pointwise::Neg, &[s(0)], s(0)));
    let changed = Program::new(buffers(1, 3, 24), calls).with_results([3]);
    assert_eq!(names(&common(&changed)).len(), 4);
    // Nor if the result is read after the program.
    assert_eq!(names(&common(&program.with_results([2, 3]))).len(), 3);
}

#[test]
fn filled_tensors_become_numbers() {
    let fill = call::Fill { value: Scalar::Float(2.0), out: s(1) };
    let calls = vec![fill.into(), row(Pointwise::Mul, &[s(0), s(1)], s(2))];
    let program = Program::new(buffers(1, 2, 24), calls).with_results([2]);
    let better = dead(&constants(&program));
    assert_eq!(names(&better), ["mul"]);
    let Call::Pointwise(c) = &better.calls()[0] else { panic!() };
    assert!(matches!(c.inputs[1], Operand::Scalar(Scalar::Float(v)) if v == 2.0));
}

#[test]
fn chains_fuse_and_store_what_is_read() {
    let calls = vec![
        row(Pointwise::Mul, &[s(0), s(1)], s(2)),
        row(Pointwise::Exp, &[s(2)], s(3)),
        row(Pointwise::Add, &[s(3), s(2)], s(4)),
    ];
    let program = Program::new(buffers(2, 3, 24), calls).with_results([4]);
    let better = fuse(&program);
    assert_eq!(names(&better), ["fused mul, exp, add"]);
    better.verify().unwrap();
    let Call::Fused(c) = &better.calls()[0] else { panic!() };
    assert_eq!((c.inputs.len(), c.outs.len(), c.outs[0].buffer), (2, 1, 4));
    assert!(better.peak() < program.peak());
    // A value that is a result as well is stored, too.
    let better = fuse(&program.with_results([3, 4]));
    let Call::Fused(c) = &better.calls()[0] else { panic!() };
    assert_eq!(c.outs.iter().map(|slot| slot.buffer).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn other_calls_that_read_a_value_close_its_group() {
    let reduce = call::Reduce {
        op: crate::backend::Reduce::Sum,
        reduced: [true, true].into_iter().collect(),
        x: s(2),
        out: slot(3, &[1, 1]),
    };
    let calls = vec![
        row(Pointwise::Exp, &[s(0)], s(1)),
        row(Pointwise::Neg, &[s(1)], s(2)),
        reduce.into(),
        row(Pointwise::Sqrt, &[s(1)], s(4)),
        row(Pointwise::Abs, &[s(4)], s(5)),
    ];
    let program = Program::new(buffers(1, 5, 24), calls).with_results([3, 5]);
    let better = fuse(&program);
    assert_eq!(names(&better), ["fused exp, neg", "reduce_sum", "fused sqrt, abs"]);
    better.verify().unwrap();
}

#[test]
fn changes_in_place_keep_their_order() {
    // %1 = exp(%0); %0 = neg(%0); %2 = %1 + %0.
    let calls = vec![
        row(Pointwise::Exp, &[s(0)], s(1)),
        row(Pointwise::Neg, &[s(0)], s(0)),
        row(Pointwise::Add, &[s(1), s(0)], s(2)),
    ];
    let program = Program::new(buffers(1, 2, 24), calls).with_results([2]);
    let better = fuse(&program);
    let Call::Fused(c) = &better.calls()[0] else { panic!("{better}") };
    assert_eq!(format!("{:?}", c.of.steps[2].args), "[Step(0), Step(1)]");
    assert_eq!(c.outs.iter().map(|slot| slot.buffer).collect::<Vec<_>>(), [0, 2]);
    // A value written over an input that is read in another order is not fused with its reader.
    let turned = Slot { layout: Layout::contiguous(&[3, 3]).unwrap().transpose(0, 1), ..slot(0, &[3, 3]) };
    let calls = vec![row(Pointwise::Exp, &[turned], slot(1, &[3, 3])), {
        row(Pointwise::Neg, &[slot(1, &[3, 3])], slot(0, &[3, 3]))
    }];
    let program = Program::new(buffers(1, 1, 36), calls).with_results([]);
    assert_eq!(names(&fuse(&program)), ["exp", "neg"]);
}

#[test]
fn reshaped_views_fuse() {
    let bias = Slot { layout: Layout::contiguous(&[6]).unwrap().expand(&[2, 2, 6]).unwrap(), ..slot(1, &[6]) };
    let calls = vec![
        row(Pointwise::Exp, &[slot(0, &[4, 6])], slot(2, &[4, 6])),
        row(Pointwise::Add, &[slot(2, &[2, 2, 6]), bias], slot(3, &[2, 2, 6])),
    ];
    let program = Program::new(buffers(2, 2, 96), calls).with_results([3]);
    assert_eq!(names(&fuse(&program)), ["fused exp, add"]);
}

#[test]
fn independent_groups_merge_at_their_reader() {
    let calls = vec![
        row(Pointwise::Exp, &[s(0)], s(2)),
        row(Pointwise::Neg, &[s(1)], s(3)),
        row(Pointwise::Mul, &[s(2), s(3)], s(4)),
    ];
    let program = Program::new(buffers(2, 3, 24), calls).with_results([4]);
    assert_eq!(names(&fuse(&program)), ["fused exp, neg, mul"]);
}

/// A sum over the first dimension of `x`.
fn column_sum(x: Slot, out: usize) -> Call<Slot> {
    let reduced = [true, false].into_iter().collect();
    call::Reduce { op: crate::backend::Reduce::Sum, reduced, x, out: slot(out, &[1, 3]) }.into()
}

fn on_gpu(outside: usize, own: usize, bytes: usize) -> Vec<Buffer> {
    buffers(outside, own, bytes).into_iter().map(|b| Buffer { device: Device::Cuda(0), ..b }).collect()
}

#[test]
fn sums_take_the_steps_before_them() {
    // The gradient of a broadcast factor: a product that only its sum reads.
    let calls = vec![
        row(Pointwise::Exp, &[s(0)], s(2)),
        row(Pointwise::Mul, &[s(2), s(1)], s(3)),
        column_sum(s(3), 4),
        row(Pointwise::Neg, &[s(2)], s(5)),
    ];
    let program = Program::new(on_gpu(2, 4, 24), calls.clone()).with_results([4, 5]);
    let better = fuse(&program);
    assert_eq!(names(&better), ["fused_reduce exp, mul", "fused exp, neg"]);
    better.verify().unwrap();
    let Call::FusedReduce(c) = &better.calls()[0] else { panic!("{better}") };
    assert_eq!((c.inputs.len(), c.out.buffer, c.mean), (2, 4, false));
    let Call::Fused(c) = &better.calls()[1] else { panic!("{better}") };
    assert_eq!((c.inputs.len(), c.outs.len()), (1, 1), "what only the sum needs is gone");
    assert!(better.peak() < program.peak());
    // Not if the product is read by another call as well, nor on a CPU, whose sums have no such kernel.
    let twice = Program::new(on_gpu(2, 4, 24), calls.clone()).with_results([3, 4, 5]);
    assert_eq!(names(&fuse(&twice)), ["fused exp, mul", "reduce_sum", "neg"]);
    let cpu = Program::new(buffers(2, 4, 24), calls).with_results([4, 5]);
    assert_eq!(names(&fuse(&cpu)), ["fused exp, mul", "reduce_sum", "neg"]);
}

#[test]
fn sums_of_many_inputs_leave_a_group_that_stays() {
    let calls = vec![
        row(Pointwise::Mul, &[s(0), s(1)], s(3)),
        row(Pointwise::Mul, &[s(3), s(2)], s(4)),
        column_sum(s(4), 5),
        row(Pointwise::Neg, &[s(3)], s(6)),
    ];
    // Reading three tensors again costs more than storing one.
    let program = Program::new(on_gpu(3, 4, 24), calls).with_results([5, 6]);
    assert_eq!(names(&fuse(&program)), ["fused mul, mul", "reduce_sum", "neg"]);
}

#[test]
fn sums_before_changes_in_place() {
    // %0 changes after the sum's steps have read it; the sum comes first.
    let calls = vec![
        row(Pointwise::Exp, &[s(0)], s(1)),
        row(Pointwise::Neg, &[s(0)], s(0)),
        column_sum(s(1), 2),
        row(Pointwise::Abs, &[s(0)], s(3)),
    ];
    let program = Program::new(on_gpu(1, 3, 24), calls).with_results([2, 3]);
    let better = fuse(&program);
    assert_eq!(names(&better), ["fused_reduce exp", "fused neg, abs"]);
    better.verify().unwrap();
}

/// A reduction of the last dimension.
fn row_reduce(op: crate::backend::Reduce, x: Slot, out: usize) -> Call<Slot> {
    let shape = x.layout.shape().to_vec();
    let reduced = (0..shape.len()).map(|d| d + 1 == shape.len()).collect();
    let mut to = shape.clone();
    to[shape.len() - 1] = 1;
    call::Reduce { op, reduced, x, out: slot(out, &to) }.into()
}

/// One value per row for each of `columns` elements.
fn expanded(buffer: usize, rows: &[usize], columns: usize) -> Slot {
    let layout = Layout::contiguous(&[rows, &[1]].concat()).unwrap();
    Slot { buffer, layout: layout.expand(&[rows, &[columns]].concat()).unwrap(), dtype: DType::F32 }
}

#[test]
fn norms_are_one_pass() {
    // %0 x, %1 weight; x * rsqrt(mean(x * x) + 1) * weight, whose reciprocal root is saved.
    const X: &[usize] = &[8, 8, 16];
    let x = |buffer| slot(buffer, X);
    let weight = Slot { layout: Layout::contiguous(&[16]).unwrap().expand(X).unwrap(), ..slot(1, &[16]) };
    let mean = crate::backend::Reduce::Mean;
    let calls = vec![
        row(Pointwise::Mul, &[x(0), x(0)], x(2)),
        row_reduce(mean, x(2), 3),
        row(Pointwise::Rsqrt, &[slot(3, &[64])], slot(4, &[64])),
        row(Pointwise::Mul, &[x(0), expanded(4, &[8, 8], 16)], x(5)),
        row(Pointwise::Mul, &[x(5), weight], x(6)),
    ];
    let program = Program::new(on_gpu(2, 5, 4096), calls.clone()).with_results([4, 6]);
    let better = fuse(&program);
    assert_eq!(names(&better), ["fused_rows mul, row_mean, rsqrt, mul, mul"]);
    better.verify().unwrap();
    let Call::FusedRows(c) = &better.calls()[0] else { panic!("{better}") };
    assert_eq!((c.inputs.len(), &c.reduced[..]), (2, &[false, false, true][..]));
    let outs: Vec<(usize, &[usize])> = c.outs.iter().map(|out| (out.buffer, out.layout.shape())).collect();
    assert_eq!(outs, [(4, &[8, 8, 1][..]), (6, X)]);
    assert!(better.peak() < program.peak());
    // CPUs have no such kernel, and few rows are left to reductions.
    let cpu = Program::new(buffers(2, 5, 4096), calls).with_results([4, 6]);
    assert_eq!(names(&fuse(&cpu)), ["mul", "reduce_mean", "rsqrt", "fused mul, mul"]);
}

#[test]
fn reductions_open_groups() {
    // A softmax that is written out, over a product's result.
    const X: &[usize] = &[64, 32];
    let (max, sum) = (crate::backend::Reduce::Max, crate::backend::Reduce::Sum);
    let calls = vec![
        row_reduce(max, slot(0, X), 1),
        row(Pointwise::Sub, &[slot(0, X), expanded(1, &[64], 32)], slot(2, X)),
        row(Pointwise::Exp, &[slot(2, X)], slot(3, X)),
        row_reduce(sum, slot(3, X), 4),
        row(Pointwise::Div, &[slot(3, X), expanded(4, &[64], 32)], slot(5, X)),
    ];
    let program = Program::new(on_gpu(1, 5, 8192), calls).with_results([5]);
    let better = fuse(&program);
    assert_eq!(names(&better), ["fused_rows row_max, sub, exp, row_sum, div"]);
    better.verify().unwrap();
    // A reduction alone stays what it is.
    let alone = Program::new(on_gpu(1, 1, 8192), vec![row_reduce(sum, slot(0, X), 1)]).with_results([1]);
    assert_eq!(names(&fuse(&alone)), ["reduce_sum"]);
}

#[test]
fn sums_of_columns_need_no_reduced_rows() {
    // The weight's gradient reads what a reduction of rows gives: its value is stored.
    const X: &[usize] = &[64, 32];
    let column_sum = |x: Slot, out: usize| -> Call<Slot> {
        let reduced = [true, false].into_iter().collect();
        call::Reduce { op: crate::backend::Reduce::Sum, reduced, x, out: slot(out, &[1, 32]) }.into()
    };
    let calls = vec![
        row(Pointwise::Exp, &[slot(0, X)], slot(1, X)),
        row_reduce(crate::backend::Reduce::Sum, slot(1, X), 2),
        row(Pointwise::Mul, &[slot(1, X), expanded(2, &[64], 32)], slot(3, X)),
        column_sum(slot(3, X), 4),
        row(Pointwise::Neg, &[slot(1, X)], slot(5, X)),
    ];
    let program = Program::new(on_gpu(1, 5, 8192), calls).with_results([4, 5]);
    let better = fuse(&program);
    assert_eq!(names(&better), ["fused_rows exp, row_sum, mul", "reduce_sum", "neg"]);
    better.verify().unwrap();
}

#[test]
fn integers_fuse_on_gpus() {
    let int = |buffer| Slot { dtype: DType::I64, ..s(buffer) };
    let of = |op, inputs: [Slot; 2], out: Slot| -> Call<Slot> {
        let inputs = Operands::first([inputs[0].clone(), inputs[1].clone(), inputs[1].clone()].map(Operand::Tensor), 2);
        call::Pointwise { op, compute: DType::I64, params: Numbers::default(), inputs, out }.into()
    };
    let truth = Slot { dtype: DType::Bool, ..s(4) };
    let calls = vec![
        of(Pointwise::Mul, [int(0), int(1)], int(2)),
        of(Pointwise::Add, [int(2), int(1)], int(3)),
        of(Pointwise::Lt, [int(3), int(0)], truth.clone()),
        call::Select { condition: truth, a: Operand::Tensor(int(3)), b: Operand::Scalar(Scalar::Int(7)), out: int(5) }
            .into(),
    ];
    let program = Program::new(on_gpu(2, 4, 48), calls.clone()).with_results([5]);
    assert_eq!(names(&fuse(&program)), ["fused mul, add, lt, select"]);
    let cpu = Program::new(buffers(2, 4, 48), calls).with_results([5]);
    assert_eq!(names(&fuse(&cpu)).len(), 4);
}

#[test]
fn late_readers_compute_values_again() {
    // %0 x, %1 weight: y = exp(x), z = neg(y), a product of z, and backward a product of dz with y.
    const X: &[usize] = &[512, 512];
    let x = |buffer| slot(buffer, X);
    let matrix = |buffer| slot(buffer, &[1, 512, 512]);
    let product = |a: usize, b: usize, out: usize| -> Call<Slot> {
        let plain = call::MatMul {
            alpha: 1.0,
            beta: 0.0,
            activation: Default::default(),
            a: matrix(a),
            b: matrix(b),
            bias: None,
            out: matrix(out),
        };
        plain.into()
    };
    let calls = vec![
        row(Pointwise::Exp, &[x(0)], x(2)),
        row(Pointwise::Neg, &[x(2)], x(3)),
        product(3, 1, 4),
        row(Pointwise::Mul, &[x(4), x(2)], x(5)),
    ];
    let program = Program::new(on_gpu(2, 4, 1 << 20), calls).with_results([5]);
    let better = recompute(&program);
    better.verify().unwrap();
    assert_eq!(names(&better), ["exp", "neg", "matmul", "exp", "mul"]);
    assert_eq!(names(&fuse(&better)), ["fused exp, neg", "matmul", "fused exp, mul"]);
    assert!(fuse(&better).bytes() < fuse(&program).bytes());
    // Not if the input has changed meanwhile, nor if the value is read after the program.
    let mut changed = program.calls().to_vec();
    changed.insert(3, row(Pointwise::Neg, &[x(0)], x(0)));
    let changed = Program::new(on_gpu(2, 4, 1 << 20), changed).with_results([5]);
    assert_eq!(names(&recompute(&changed)), ["exp", "neg", "matmul", "neg", "mul"]);
    assert_eq!(recompute(&program.with_results([2, 5])).calls().len(), 4);
}

#[test]
fn all_passes_verify() {
    let fill = call::Fill { value: Scalar::Float(1.0), out: s(1) };
    let calls = vec![
        fill.into(),
        row(Pointwise::Mul, &[s(0), s(1)], s(2)),
        row(Pointwise::Exp, &[s(2)], s(3)),
        row(Pointwise::Exp, &[s(2)], s(4)),
        row(Pointwise::Add, &[s(3), s(4)], s(5)),
    ];
    let program = Program::new(buffers(1, 5, 24), calls).with_results([5]);
    assert_eq!(names(&optimize(&program).unwrap()), ["fused mul, exp, add"]);
}
