//! The search for the pass after which a program computes something else.

use rushlight_core::backend::{Call, call};
use rushlight_core::program::{Program, Slot, passes};
use rushlight_core::{Pointwise, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::internals::{Run, bisect};
use rushlight_tensor::program::trace;

/// A pass with a fault: it turns exponentials into sines.
fn faulty(program: &Program) -> Program {
    let change = |c: &Call<Slot>| match c {
        Call::Pointwise(c) if c.op == Pointwise::Exp => {
            Call::Pointwise(call::Pointwise { op: Pointwise::Sin, ..c.clone() })
        }
        other => other.clone(),
    };
    program.with_calls(program.calls().iter().map(change).collect())
}

#[test]
fn the_faulty_pass_and_its_call_are_named() -> Result<()> {
    let x = Tensor::linspace(-1.0, 1.0, 6)?;
    let (y, program) = trace(|| x.mul(2.0)?.exp()?.add(1.0));
    let y = y?;
    let buffer = program.buffer_at(y.storage().ptr() as usize).expect("the result");
    let from = program.buffer_at(x.storage().ptr() as usize).expect("the input");
    let program = program.with_results([buffer]).unplaced();
    let run = Run { bound: &[(from, x.storage().clone())], streams: None };
    assert_eq!(bisect(&program, &run, passes::PASSES)?, None);
    let found = bisect(&program, &run, &[("dead", passes::dead), ("faulty", faulty)])?.expect("a difference");
    assert_eq!((found.pass, found.call.clone(), found.buffer), ("faulty", Some((1, "sin".into())), buffer));
    assert!(found.to_string().contains("number 1, sin"), "{found}");
    // Memory of the caller is as it was.
    assert_eq!(x.to_vec::<f32>()?[0], -1.0);
    // A fault before fusion shows in the fused call.
    let fused = bisect(&program, &run, &[("both", |p| passes::fuse(&faulty(p)))])?.expect("a difference");
    assert_eq!(fused.call, Some((0, "fused (mul, sin, add)".into())));
    Ok(())
}
