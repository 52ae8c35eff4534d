//! Compiled functions: their results and gradients are those of the function.

use rushlight_core::{DType, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{Compile, Reduction, Tensor, compile};

fn ramp(shape: &[usize], from: usize) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (((i + from) * 37 % 101) as f32 - 50.0) / 50.0).collect();
    Tensor::from_slice(&values, shape)
}

#[test]
fn a_model_trains_as_without() -> Result<()> {
    let train = |compiled: bool| -> Result<Vec<f32>> {
        let w = ramp(&[8, 16], 1)?.requires_grad_(true)?;
        let (v, b) = (ramp(&[16, 4], 2)?.requires_grad_(true)?, ramp(&[16], 3)?.requires_grad_(true)?);
        let mut f = compile(|[x, y]: &[Tensor; 2]| {
            let hidden = x.matmul(&w)?.add(&b)?;
            let hidden = hidden.mul(&hidden.sigmoid()?)?;
            hidden.matmul(&v)?.mse_loss(y, Reduction::Mean)
        });
        f.compiled().set_enabled(compiled);
        let mut losses = Vec::new();
        for i in 0..6 {
            let loss = f.run(&[ramp(&[10, 8], i)?, ramp(&[10, 4], i + 7)?])?;
            [&w, &v, &b].iter().for_each(|p| p.zero_grad());
            loss.backward()?;
            for p in [&w, &v, &b] {
                let grad = p.grad().expect("a gradient");
                no_grad(|| p.sub_(&grad.mul(0.1)?).map(drop))?;
            }
            losses.push(loss.item::<f32>()?);
        }
        assert_eq!(f.compiled().recordings(), compiled as usize, "{:?}", f.compiled().reasons());
        Ok(losses)
    };
    let (plain, compiled) = (train(false)?, train(true)?);
    assert_eq!(plain, compiled);
    assert!(plain[5] < plain[0]);
    Ok(())
}

#[test]
fn gradients_flow_to_inputs_within_a_larger_graph() -> Result<()> {
    let w = ramp(&[5], 4)?.requires_grad_(true)?;
    let mut f = compile(|[x]: &[Tensor; 1]| x.mul(&w)?.exp()?.add(x));
    for i in 0..4 {
        let a = ramp(&[3, 5], i)?.requires_grad_(true)?;
        w.zero_grad();
        let y = f.run(&[a.mul(2.0)?])?;
        y.mul(3.0)?.sum(..)?.backward()?;
        let ours = (y.to_vec::<f32>()?, a.grad().expect("a gradient"), w.grad().expect("a gradient"));
        a.zero_grad();
        w.zero_grad();
        let x = a.mul(2.0)?;
        let y = x.mul(&w)?.exp()?.add(&x)?;
        y.mul(3.0)?.sum(..)?.backward()?;
        assert_eq!(ours.0, y.to_vec::<f32>()?);
        for (ours, theirs) in [(ours.1, a.grad()), (ours.2, w.grad())] {
            assert!(ours.allclose(&theirs.expect("a gradient"), 1e-6, 1e-6)?);
        }
    }
    assert_eq!(f.compiled().recordings(), 1, "{:?}", f.compiled().reasons());
    Ok(())
}

#[test]
fn each_kind_of_inputs_is_recorded() -> Result<()> {
    let mut f = compile(|[x]: &[Tensor; 1]| x.mul(2.0)?.relu());
    for shape in [[2, 3], [3, 2], [2, 3]] {
        f.run(&[ramp(&shape, 0)?])?;
    }
    assert_eq!(f.compiled().recordings(), 2);
    f.run(&[ramp(&[2, 3], 0)?.to_dtype(DType::F64)?])?;
    f.run(&[ramp(&[3, 2], 0)?.t()?])?;
    no_grad(|| f.run(&[ramp(&[2, 3], 0)?]))?;
    assert_eq!(f.compiled().recordings(), 5);
    f.compiled().clear();
    assert_eq!(f.compiled().recordings(), 0);
    Ok(())
}

#[test]
fn what_cannot_be_held_runs_and_says_why() -> Result<()> {
    let mut f = compile(|[x]: &[Tensor; 1]| if x.sum(..)?.item::<f32>()? > 0.0 { x.mul(2.0) } else { x.mul(3.0) });
    for value in [1.0, -1.0, 1.0] {
        let x = Tensor::full([2], value)?.requires_grad_(true)?;
        let y = f.run(std::array::from_ref(&x))?;
        y.sum(..)?.backward()?;
        let factor = if value > 0.0 { 2.0 } else { 3.0 };
        assert_eq!(y.to_vec::<f32>()?, [value as f32 * factor; 2]);
        assert_eq!(x.grad().expect("a gradient").to_vec::<f32>()?, [factor; 2]);
    }
    assert_eq!(f.compiled().recordings(), 0);
    assert_eq!(f.compiled().reasons(), ["item reads values on the host, or moves them"]);
    let mut same = compile(|[x]: &[Tensor; 1]| x.t());
    let x = ramp(&[2, 3], 0)?;
    assert!(same.run(std::array::from_ref(&x))?.shares_storage(&x));
    assert_eq!(same.compiled().reasons().len(), 1);
    Ok(())
}

#[test]
fn constants_and_random_numbers() -> Result<()> {
    let _turn = crate::turn();
    let mut f = compile(|[x]: &[Tensor; 1]| x.mul(&Tensor::new([1.0f32, 2.0, 4.0])?)?.dropout(0.5, true));
    let x = Tensor::ones([100, 3])?;
    let run = |f: &mut dyn FnMut() -> Result<Tensor>| -> Result<Vec<Vec<f32>>> {
        rushlight_core::rng::manual_seed(5);
        (0..3).map(|_| f()?.to_vec()).collect()
    };
    let compiled = run(&mut || f.run(std::array::from_ref(&x)))?;
    let plain = run(&mut || x.mul(&Tensor::new([1.0f32, 2.0, 4.0])?)?.dropout(0.5, true))?;
    assert_eq!(compiled, plain);
    assert_ne!(compiled[0], compiled[1]);
    assert_eq!(f.compiled().recordings(), 1);
    Ok(())
}

#[test]
fn replaced_memory_is_recorded_anew() -> Result<()> {
    let mut compiled = Compile::default();
    let mut scale = Tensor::full([3], 2.0)?;
    let x = Tensor::ones([3])?;
    let mut run = |scale: &Tensor| -> Result<Vec<f32>> {
        let y: Tensor = compiled.run_kind(0, std::slice::from_ref(&x), |x| x[0].mul(scale)?.add(1.0))?;
        y.to_vec()
    };
    assert_eq!((run(&scale)?, run(&scale)?), (vec![3.0; 3], vec![3.0; 3]));
    scale.fill_(5.0)?;
    assert_eq!(run(&scale)?, [6.0; 3]);
    scale = Tensor::full([3], 7.0)?;
    assert_eq!(run(&scale)?, [8.0; 3]);
    Ok(())
}

#[test]
fn changes_between_forward_and_backward_are_errors() -> Result<()> {
    let w = ramp(&[5], 4)?.requires_grad_(true)?;
    let mut f = compile(|[x]: &[Tensor; 1]| x.mul(&w)?.exp());
    let x = ramp(&[5], 1)?.requires_grad_(true)?;
    for _ in 0..2 {
        let y = f.run(std::array::from_ref(&x))?.sum(..)?;
        no_grad(|| w.add_(1.0).map(drop))?;
        let e = y.backward().expect_err("the weight has changed");
        assert!(e.to_string().contains("modified by an inplace operation"), "{e}");
    }
    Ok(())
}
