//! Programs: the calls that a computation makes, noted, printed and verified.

use rushlight_core::Result;
use rushlight_tensor::profile::count_flops;
use rushlight_tensor::program::{Program, trace};
use rushlight_tensor::{Reduction, Tensor};

/// A step of a linear layer: forward, backward, update.
fn step(x: &Tensor, w: &Tensor, y: &Tensor) -> Result<Tensor> {
    w.zero_grad();
    let loss = x.matmul(w)?.relu()?.mse_loss(y, Reduction::Mean)?;
    loss.backward()?;
    let grad = w.grad().expect("a gradient");
    rushlight_tensor::autograd::no_grad(|| w.sub_(&grad.mul(0.1)?).map(drop))?;
    Ok(loss)
}

fn traced() -> Result<(Tensor, Program)> {
    let (x, w) = (Tensor::ones([4, 3])?, Tensor::full([3, 2], 0.5)?.requires_grad_(true)?);
    let y = Tensor::zeros([4, 2])?;
    let (loss, program) = trace(|| step(&x, &w, &y));
    Ok((loss?, program))
}

#[test]
fn a_step_is_a_program() -> Result<()> {
    let (loss, program) = traced()?;
    assert_eq!(loss.item::<f32>()?, 2.25);
    program.verify()?;
    let names: Vec<String> = program.calls().iter().map(|call| call.op_name().into_owned()).collect();
    for expected in ["matmul", "relu", "relu_backward", "sub"] {
        assert!(names.iter().any(|name| name == expected), "{expected} is not in {names:?}");
    }
    // The input, the weight and the target come from outside; everything else is the step's own.
    assert_eq!(program.buffers().iter().filter(|buffer| buffer.outside).count(), 3);
    // The product and its gradient by the weight.
    assert_eq!(program.flops(), 2 * 2 * 4 * 3 * 2);
    let text = program.to_string();
    assert!(text.starts_with(&format!(
        "# {} calls over {} buffers, 3 of them from outside",
        names.len(),
        program.buffers().len()
    )));
    assert!(text.contains("relu(%"), "{text}");
    Ok(())
}

#[test]
fn flops_are_those_of_the_counter() -> Result<()> {
    let _turn = crate::turn();
    let (x, w) = (Tensor::ones([2, 3, 8, 8])?, Tensor::ones([4, 3, 3, 3])?);
    let run = || x.conv2d(&w, None, Default::default());
    let (_, program) = trace(run);
    let (_, counted) = count_flops(run).expect("the profiler is free");
    assert_eq!(program.flops(), counted);
    Ok(())
}

#[test]
fn programs_that_are_wrong_are_told() -> Result<()> {
    let (_, program) = traced()?;
    let calls = program.calls();
    let at = calls.iter().position(|call| call.name() == "matmul").expect("a product");
    // Without the product its consumer reads memory that nothing wrote.
    let mut without = calls.to_vec();
    without.remove(at);
    let broken = Program::new(program.buffers().to_vec(), without);
    let error = broken.verify().unwrap_err().to_string();
    assert!(error.contains("was not written yet"), "{error}");
    // A buffer that is too small.
    let mut buffers = program.buffers().to_vec();
    buffers.iter_mut().for_each(|buffer| buffer.bytes /= 2);
    let error = Program::new(buffers, calls.to_vec()).verify().unwrap_err().to_string();
    assert!(error.contains("a view ends at byte"), "{error}");
    Ok(())
}

#[test]
fn traces_nest_and_end() -> Result<()> {
    let x = Tensor::ones([2])?;
    let ((_, inner), outer) = trace(|| {
        let before = x.exp();
        let inner = trace(|| x.sin());
        let after = x.cos();
        (before.and(after), inner.1)
    });
    assert_eq!(inner.calls().iter().map(|c| c.op_name().into_owned()).collect::<Vec<_>>(), ["sin"]);
    assert_eq!(outer.calls().iter().map(|c| c.op_name().into_owned()).collect::<Vec<_>>(), ["exp", "cos"]);
    let (_, nothing) = trace(|| ());
    assert!(nothing.calls().is_empty());
    Ok(())
}
