use super::*;
use crate::backend::RowNorm;

const NORMED: &[usize] = &[4, 16, 1024];

/// A layer norm of %`x` without parameters to %`y`, with its statistics in the two buffers after that.
fn row_norm(x: usize, y: usize) -> Call<Slot> {
    let spec = RowNorm { rows: 64, cols: 1024, eps: 1e-6, rms: false };
    let (mean, rstd) = (slot(y + 1, &[64]), slot(y + 2, &[64]));
    call::RowNorm { spec, x: slot(x, NORMED), weight: None, bias: None, y: slot(y, NORMED), low: None, mean, rstd }
        .into()
}

/// One row of 1024 for each of the four images.
fn per_image(buffer: usize) -> Slot {
    let layout = Layout::contiguous(&[4, 1, 1024]).unwrap().expand(NORMED).unwrap();
    Slot { layout, ..slot(buffer, &[4, 1, 1024]) }
}

#[test]
fn norms_join_their_neighbours() {
    // %3 = %0 + %1, normed to %4 with statistics %5 and %6, scaled by %2.
    let x = |buffer| slot(buffer, NORMED);
    let calls = vec![
        row(Pointwise::Add, &[x(0), x(1)], x(3)),
        row_norm(3, 4),
        row(Pointwise::Mul, &[x(4), per_image(2)], x(7)),
    ];
    let program = Program::new(on_gpu(3, 5, 1 << 18), calls.clone()).with_results([3, 5, 6, 7]);
    let better = optimize(&program).unwrap();
    assert_eq!(
        names(&better),
        ["fused_rows add, row_mean, sub, mul, row_mean, add, rsqrt, mul, mul"],
        "the norm's result and the values within it are not stored"
    );
    let Call::FusedRows(c) = &better.calls()[0] else { panic!("{better}") };
    assert_eq!(c.outs.iter().map(|out| out.buffer).collect::<Vec<_>>(), [3, 5, 6, 7]);
    // Its kernel is as good for a norm alone, and on a CPU.
    let alone = Program::new(on_gpu(1, 3, 1 << 18), vec![row_norm(0, 1)]).with_results([1, 2, 3]);
    assert_eq!(names(&optimize(&alone).unwrap()), ["row_norm"]);
    let cpu = Program::new(buffers(3, 5, 1 << 18), calls.clone()).with_results([3, 5, 6, 7]);
    assert_eq!(names(&optimize(&cpu).unwrap()), ["add", "row_norm", "mul"]);
    // Where results are not known, every value might be read.
    let open = Program::new(on_gpu(3, 5, 1 << 18), calls);
    assert_eq!(names(&optimize(&open).unwrap()), ["add", "row_norm", "mul"]);
}

#[test]
fn results_of_norms_are_computed_again() {
    // Backward, the gradient %8 of the scaled result meets the norm's result.
    let x = |buffer| slot(buffer, NORMED);
    let matrix = |buffer| slot(buffer, &[1, 64, 1024]);
    let product = call::MatMul {
        alpha: 1.0,
        beta: 0.0,
        activation: Default::default(),
        a: matrix(7),
        b: slot(9, &[1, 1024, 1024]),
        bias: None,
        out: matrix(8),
    };
    let spec = RowNorm { rows: 64, cols: 1024, eps: 1e-6, rms: false };
    let backward = |dweight: Option<Slot>| -> Call<Slot> {
        let (dy, mean, rstd) = (x(11), slot(5, &[64]), slot(6, &[64]));
        let (so_far, dx) = (Some(x(8)), Some(x(12)));
        let call = call::RowNormBackward {
            spec,
            dy,
            x: x(3),
            weight: None,
            mean,
            rstd,
            so_far,
            dx,
            low: None,
            dweight,
            dbias: None,
        };
        call.into()
    };
    let mut calls = vec![
        row(Pointwise::Add, &[x(0), x(1)], x(3)),
        row_norm(3, 4),
        row(Pointwise::Mul, &[x(4), per_image(2)], x(7)),
        product.into(),
        row(Pointwise::Mul, &[x(8), x(4)], x(10)),
        row(Pointwise::Mul, &[x(8), per_image(2)], x(11)),
        backward(None),
    ];
    let mut memory = on_gpu(3, 10, 1 << 18);
    memory[9] = Buffer { bytes: 1 << 22, outside: true, ..memory[9].clone() };
    let program = |calls: &[Call<Slot>]| Program::new(memory.clone(), calls.to_vec()).with_results([3, 10, 12]);
    let better = optimize(&program(&calls)).unwrap();
    let found = names(&better);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[2].starts_with("fused_rows ") && found[2].matches("row_mean").count() == 2, "{found:?}");
    let written: Vec<usize> = better.calls().iter().flat_map(Call::outputs).map(|slot| slot.buffer).collect();
    assert!(!written.contains(&4), "the norm's result is not stored: {written:?}");
    // Gradients of parameters come from the norm's own kernel.
    *calls.last_mut().unwrap() = backward(Some(slot(2, &[1024])));
    let better = optimize(&program(&calls)).unwrap();
    assert_eq!(names(&better).last().map(String::as_str), Some("row_norm_backward"));
}

#[test]
fn values_of_rows_may_take_the_place_of_others() {
    // As memory is used again: a row's value is read before the first reduction and stored after the last.
    const X: &[usize] = &[64, 32];
    let factor = slot(1, &[64, 1]);
    let calls = vec![
        row(Pointwise::Mul, &[slot(0, X), expanded(1, &[64], 32)], slot(2, X)),
        row_reduce(crate::backend::Reduce::Sum, slot(2, X), 3),
        row(Pointwise::Neg, &[slot(3, &[64, 1])], factor),
        row(Pointwise::Mul, &[slot(2, X), expanded(1, &[64], 32)], slot(4, X)),
    ];
    let program = Program::new(on_gpu(2, 3, 8192), calls).with_results([4]);
    let better = fuse(&program);
    assert_eq!(names(&better), ["fused_rows mul, row_sum, neg, mul"]);
    better.verify().unwrap();
}

#[test]
fn rms_norms_leave_their_gradients_no_mean() {
    // The gradient of a weight stays a call, whose mean nobody computes.
    let x = |buffer| slot(buffer, NORMED);
    let spec = RowNorm { rows: 64, cols: 1024, eps: 1e-6, rms: true };
    let Call::RowNorm(norm) = row_norm(3, 4) else { panic!("a norm") };
    let backward = call::RowNormBackward {
        spec,
        dy: x(1),
        x: x(3),
        weight: Some(slot(2, &[1024])),
        mean: slot(5, &[64]),
        rstd: slot(6, &[64]),
        so_far: None,
        dx: Some(x(8)),
        low: None,
        dweight: Some(slot(9, &[1024])),
        dbias: None,
    };
    let calls = vec![
        row(Pointwise::Add, &[x(0), x(1)], x(3)),
        call::RowNorm { spec, ..norm }.into(),
        row(Pointwise::Mul, &[x(4), per_image(2)], x(7)),
        backward.into(),
    ];
    let program = Program::new(on_gpu(3, 7, 1 << 18), calls).with_results([7, 8, 9]);
    let better = optimize(&program).unwrap();
    assert_eq!(names(&better), ["fused_rows add, mul, row_mean, add, rsqrt, mul, mul", "row_norm_backward"]);
}

#[test]
fn gradients_of_norms_are_read_and_written_in_half_precision() {
    // %0 is widened to %1, the incoming gradient; of %8, the input's, only the copy %9 in half precision is read.
    let x = |buffer| slot(buffer, NORMED);
    let half = |buffer| Slot { dtype: DType::BF16, ..x(buffer) };
    let backward = call::RowNormBackward {
        spec: RowNorm { rows: 64, cols: 1024, eps: 1e-6, rms: false },
        dy: x(1),
        x: x(2),
        weight: Some(slot(3, &[1024])),
        mean: slot(4, &[64]),
        rstd: slot(5, &[64]),
        so_far: None,
        dx: Some(x(8)),
        low: Some(half(9)),
        dweight: Some(slot(10, &[1024])),
        dbias: None,
    };
    let mut memory = on_gpu(6, 5, 1 << 18);
    memory[0].bytes = 1 << 17;
    memory[1].outside = false;
    let program = |between: Option<Call<Slot>>, results: &[usize]| {
        let widened: Call<Slot> = call::Copy { src: half(0), out: x(1) }.into();
        let calls = [Some(widened), between, Some(backward.clone().into())].into_iter().flatten().collect();
        let program = Program::new(memory.clone(), calls).with_results(results.iter().copied());
        optimize(&program).unwrap()
    };
    let last = |program: &Program| match program.calls().last() {
        Some(Call::RowNormBackward(c)) => (c.dy.buffer, c.dx.is_some()),
        _ => panic!("{program}"),
    };
    let better = program(None, &[9, 10]);
    assert_eq!(names(&better), ["row_norm_backward"]);
    assert_eq!(last(&better), (0, false));
    assert_eq!(last(&program(None, &[8, 9, 10])), (0, true), "the wide gradient is a result");
    // The gradient's memory is something else by then.
    let other: Call<Slot> = call::Fill { out: half(0), value: Scalar::Float(1.0) }.into();
    assert_eq!(last(&program(Some(other), &[9, 10])), (1, false));
}
