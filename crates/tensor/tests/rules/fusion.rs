//! Passes over programs: what runs after them agrees with what ran before, bit by bit.

use rushlight_core::{DType, Device, Result};
use rushlight_tensor::program::{Program, Runner, Slot, passes, trace};
use rushlight_tensor::{Reduction, Tensor, where_};
use std::sync::Arc;

/// Traces a closure of some inputs, optimizes its program and runs that on the same inputs. Returns the names of its
/// calls.
fn agrees(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<Vec<String>> {
    let before: Vec<Vec<f64>> = inputs.iter().map(|t| t.to_vec()).collect::<Result<_>>()?;
    let (out, program) = trace(|| f(inputs));
    let out = out?;
    program.verify()?;
    let slots: Vec<Slot> = out
        .iter()
        .map(|t| Slot {
            buffer: program.buffer_at(t.storage().ptr() as usize).expect("an output of the program"),
            layout: t.layout().clone(),
            dtype: t.dtype(),
        })
        .collect();
    // Also over the memory that it was recorded in, where freed buffers are reused.
    passes::optimize(&program)?;
    let better = passes::optimize(&program.clone().unplaced())?;
    assert!(better.peak() <= program.peak(), "{} bytes, {} before", better.peak(), program.peak());
    let expected: Vec<Vec<f64>> = out.iter().map(|t| t.to_vec()).collect::<Result<_>>()?;
    // Changes in place are undone.
    for (t, before) in inputs.iter().zip(&before) {
        let before = Tensor::from_slice(before, t.shape())?.to_dtype(t.dtype())?;
        rushlight_tensor::autograd::no_grad(|| t.data().copy_(&before).map(drop))?;
    }
    let names = names(&better);
    let bound: Vec<_> = inputs
        .iter()
        .filter_map(|t| Some((program.buffer_at(t.storage().ptr() as usize)?, t.storage().clone())))
        .collect();
    let runner = Runner::new(better)?;
    let own: Vec<usize> = slots.iter().map(|slot| slot.buffer).collect();
    let memory = runner.run(&bound, &own)?;
    for ((slot, storage), expected) in slots.iter().zip(memory).zip(&expected) {
        // SAFETY: memory of the engine, large enough for the program's view.
        let again = unsafe { Tensor::from_storage(storage, slot.layout.clone(), slot.dtype)? };
        let same = again.to_vec::<f64>()?.iter().zip(expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
        assert!(same, "{again}\n{expected:?}\n{}", runner.program());
    }
    Ok(names)
}

fn names(program: &Program) -> Vec<String> {
    program
        .calls()
        .iter()
        .map(|call| match call {
            rushlight_core::backend::Call::Fused(c) => format!("fused {}", c.of.names()),
            _ => call.op_name().into_owned(),
        })
        .collect()
}

fn ramp(shape: &[usize], dtype: DType) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 20.0).collect();
    Tensor::from_slice(&values, shape)?.to_dtype(dtype)
}

#[test]
fn chains_with_broadcasts() -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for shape in [[3, 5], [40, 300], [7, 2000], [300, 3]] {
            let x = [ramp(&shape, dtype)?, ramp(&shape[1..], dtype)?, ramp(&[shape[0], 1], dtype)?];
            let names = agrees(&x, |x| Ok(vec![x[0].mul(&x[1])?.add(&x[2])?.tanh()?.mul(0.5)?]))?;
            assert_eq!(names, ["fused mul, add, tanh, mul"]);
        }
    }
    Ok(())
}

#[test]
fn casts_comparisons_and_selections() -> Result<()> {
    let x = [ramp(&[40, 70], DType::F32)?, ramp(&[70], DType::BF16)?];
    let names = agrees(&x, |x| {
        let a = x[0].to_dtype(DType::BF16)?.add(&x[1])?;
        let mask = a.gt(0.25)?;
        Ok(vec![where_(&mask, &a.exp()?, &a.neg()?)?.to_dtype(DType::F32)?, mask])
    })?;
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].starts_with("fused copy, add, gt"), "{names:?}");
    Ok(())
}

#[test]
fn transposed_and_sliced_operands() -> Result<()> {
    let x = [ramp(&[33, 65], DType::F32)?, ramp(&[65, 33], DType::F32)?];
    agrees(&x, |x| Ok(vec![x[0].add(&x[1].t()?)?.relu()?.mul(&x[0])?]))?;
    agrees(&x, |x| {
        let a = x[0].narrow(1, 3, 20)?;
        Ok(vec![a.exp()?.add(&x[0].narrow(1, 8, 20)?)?])
    })?;
    agrees(&x, |x| Ok(vec![x[1].t()?.exp()?.mul(2.0)?, x[1].sqrt()?.abs()?]))?;
    Ok(())
}

#[test]
fn changes_in_place() -> Result<()> {
    let x = [ramp(&[50, 30], DType::F32)?, ramp(&[50, 30], DType::F32)?];
    agrees(&x, |x| {
        let y = x[0].mul(2.0)?;
        y.add_(&x[1])?;
        x[0].add_(&y)?;
        let z = x[0].mul(&y)?;
        y.mul_(&z)?;
        Ok(vec![y, z])
    })?;
    Ok(())
}

#[test]
fn steps_with_products_reductions_and_backward() -> Result<()> {
    let [w, v] = [[16, 32], [32, 8]].map(|shape| ramp(&shape, DType::F32));
    let (w, v) = (w?.requires_grad_(true)?, v?.requires_grad_(true)?);
    let x = [ramp(&[24, 16], DType::F32)?, ramp(&[24, 8], DType::F32)?, w, v];
    let names = agrees(&x, |x| {
        x[2].zero_grad();
        x[3].zero_grad();
        let hidden = x[0].matmul(&x[2])?.mul(0.1)?;
        let gate = hidden.sigmoid()?;
        let y = hidden.mul(&gate)?.matmul(&x[3])?;
        let loss = y.mul(0.01)?.softmax(-1)?.mse_loss(&x[1], Reduction::Mean)?;
        loss.backward()?;
        Ok(vec![loss.detach(), x[2].grad().expect("a gradient"), x[3].grad().expect("a gradient")])
    })?;
    assert!(names.iter().any(|name| name.contains("sigmoid")), "{names:?}");
    let fused = names.iter().filter(|name| name.starts_with("fused")).count();
    assert_eq!(fused, 2, "{names:?}");
    Ok(())
}

#[test]
fn random_numbers_are_those_of_the_stream() -> Result<()> {
    use rushlight_core::rng::default_generator;
    let _turn = crate::turn();
    let x = Tensor::ones([64])?;
    let start = default_generator().state();
    let (y, program) = trace(|| x.dropout(0.5, true)?.add(1.0));
    let y = y?;
    let slot = program.buffer_at(y.storage().ptr() as usize).expect("an output");
    let from = program.buffer_at(x.storage().ptr() as usize).expect("an input");
    let runner = Runner::new(passes::optimize(&program.unplaced())?)?.random_from(start);
    let run = |stream| -> Result<Vec<f32>> {
        let memory = runner.run_at(&[(from, x.storage().clone())], &[slot], Some(stream))?.remove(0);
        // SAFETY: memory of the engine for as many elements.
        unsafe { Tensor::from_storage(memory, y.layout().clone(), y.dtype())? }.to_vec()
    };
    assert_eq!(run(start)?, y.to_vec::<f32>()?);
    let next = default_generator().state();
    assert_eq!(run(next)?, x.dropout(0.5, true)?.add(1.0)?.to_vec::<f32>()?);
    assert_ne!(run(next)?, y.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn runs_that_lack_memory_are_errors() -> Result<()> {
    let x = Tensor::ones([64])?;
    let (y, program) = trace(|| x.add(1.0));
    let slot = program.buffer_at(y?.storage().ptr() as usize).expect("an output");
    let from = program.buffer_at(x.storage().ptr() as usize).expect("an input");
    let runner = Runner::new(program)?;
    let e = runner.run(&[], &[slot]).expect_err("nothing is bound");
    assert!(e.to_string().contains("is not bound"), "{e}");
    let small = Tensor::ones([3])?;
    let e = runner.run(&[(from, small.storage().clone())], &[slot]).expect_err("too small");
    assert!(e.to_string().contains("takes 256 bytes of cpu, not 12"), "{e}");
    assert_eq!(x.device(), Device::Cpu);
    assert_eq!(Arc::strong_count(x.storage()), 1);
    Ok(())
}
