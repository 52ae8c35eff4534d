//! Functions of autograd: `grad`, higher derivatives, custom functions and checkpoints.

use crate::autograd::{grad_of, leaf, message, values};
use rushlight_core::rng::default_generator;
use rushlight_core::{DType, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{
    Backward, Context, Function, apply, checkpoint, grad, gradcheck_with, gradgradcheck_with, is_grad_enabled, no_grad,
};

// ---- derivatives of derivatives

#[test]
fn create_graph_gives_higher_derivatives() {
    let x = leaf(&[2.0]);
    let mut y = x.pow(4).unwrap();
    for expected in [32.0, 48.0, 48.0, 24.0] {
        y = grad(&[&y.sum(..).unwrap()], &[&x], Backward::default().create_graph(true)).unwrap().remove(0).unwrap();
        assert_eq!(values(&y), [expected]);
    }
    assert!(x.grad().is_none());
}

#[test]
fn a_gradient_penalty_trains_through_backward() {
    let x = leaf(&[1.0, 2.0]);
    let loss = x.pow(3).unwrap().sum(..).unwrap();
    loss.backward_with(Backward::default().create_graph(true)).unwrap();
    let penalty = x.grad().unwrap().square().unwrap().sum(..).unwrap();
    let d = grad(&[&penalty], &[&x], Backward::default()).unwrap().remove(0).unwrap();
    // d/dx (3x²)² = 36 x³
    assert_eq!(values(&d), [36.0, 288.0]);
}

#[test]
fn grad_reports_unused_inputs() {
    let (x, y) = (leaf(&[1.0]), leaf(&[2.0]));
    let z = x.mul(3.0).unwrap().sum(..).unwrap();
    let text = message(grad(&[&z], &[&x, &y], Backward::default().retain_graph(true)));
    assert!(text.contains("input 1") && text.contains("allow_unused"), "{text}");
    let found = grad(&[&z], &[&x, &y], Backward::default().allow_unused(true)).unwrap();
    assert_eq!(values(found[0].as_ref().unwrap()), [3.0]);
    assert!(found[1].is_none());
    assert!(
        message(grad(&[&z], &[&Tensor::ones([1]).unwrap()], Backward::default()))
            .contains("input 0 does not require grad")
    );
}

#[test]
fn grad_of_values_in_the_middle_and_of_several_outputs() {
    let x = leaf(&[2.0]);
    let y = x.square().unwrap();
    let (a, b) = (y.mul(3.0).unwrap(), y.mul(x.detach().mul(5.0).as_ref().unwrap()).unwrap());
    let found = grad(&[&a, &b], &[&y, &x], Backward::default()).unwrap();
    assert_eq!(values(found[0].as_ref().unwrap()), [13.0]);
    assert_eq!(values(found[1].as_ref().unwrap()), [52.0]);
}

// ---- custom functions

struct Cube;

impl Function for Cube {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        assert!(!is_grad_enabled());
        ctx.save_for_backward(&[inputs[0]]);
        Ok(vec![inputs[0].pow(3)?])
    }
    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let Some(dy) = &grads[0] else { return Ok(vec![None]) };
        Ok(vec![Some((dy * saved[0].square()?.mul(3.0)?).eval()?)])
    }
    fn name(&self) -> &'static str {
        "cube"
    }
}

/// Saves its output, and has an integer output besides.
struct ExpAndSign;

impl Function for ExpAndSign {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let y = inputs[0].exp()?;
        ctx.save_for_backward(&[&y]);
        Ok(vec![y, inputs[0].sign()?.to_dtype(DType::I64)?])
    }
    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some((grads[0].as_ref().unwrap() * &saved[0]).eval()?)])
    }
}

#[test]
fn custom_functions_are_differentiated_twice() {
    let x = leaf(&[1.5, -0.5]);
    let y = apply(Cube, &[&x]).unwrap().remove(0);
    assert_eq!(y.grad_fn().as_deref(), Some("CubeBackward"));
    gradcheck_with(|xs| apply(Cube, &[&xs[0]]), std::slice::from_ref(&x), 1e-6, 1e-6, 1e-6).unwrap();
    gradgradcheck_with(|xs| apply(Cube, &[&xs[0]]), std::slice::from_ref(&x), 1e-6, 1e-6, 1e-6).unwrap();
    gradcheck_with(|xs| apply(ExpAndSign, &[&xs[0]]), std::slice::from_ref(&x), 1e-6, 1e-6, 1e-6).unwrap();
    gradgradcheck_with(|xs| apply(ExpAndSign, &[&xs[0]]), std::slice::from_ref(&x), 1e-6, 1e-6, 1e-6).unwrap();
    assert!(!apply(ExpAndSign, &[&x]).unwrap()[1].requires_grad());
    assert!(!no_grad(|| apply(Cube, &[&x])).unwrap()[0].requires_grad());
}

#[test]
fn invalid_results_of_custom_functions_are_errors() {
    struct Wrong(usize);
    impl Function for Wrong {
        fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
            // An input that is returned must not take over the history.
            Ok(vec![inputs[0].clone()])
        }
        fn backward(&self, _: &[Tensor], _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            Ok(match self.0 {
                0 => vec![],
                _ => vec![Some(Tensor::zeros_with([7], DType::F64)?)],
            })
        }
    }
    // Of two elements: a gradient of seven would be summed to a size of one.
    let x = leaf(&[1.0, 2.0]);
    let y = apply(Wrong(0), &[&x]).unwrap().remove(0);
    assert!(x.is_leaf() && !y.is_leaf());
    assert!(message(y.sum(..).unwrap().backward()).contains("incorrect number of gradients (expected 1, got 0)"));
    let y = apply(Wrong(1), &[&x]).unwrap().remove(0);
    assert!(message(y.sum(..).unwrap().backward()).contains("[7]"));
}

#[test]
fn a_custom_function_may_change_a_view_in_place() {
    struct AddTo;
    impl Function for AddTo {
        fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
            ctx.mark_dirty(&[inputs[0]]);
            inputs[0].add_(inputs[1])?;
            Ok(vec![inputs[0].clone()])
        }
        fn backward(&self, _: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            let dy = grads[0].clone();
            let scaled = dy.as_ref().map(|g| g.mul(3.0)).transpose()?;
            Ok(vec![dy, scaled])
        }
    }
    let (x, w) = (leaf(&[1.0, 2.0, 3.0]), leaf(&[5.0, 6.0]));
    let y = x.mul(2.0).unwrap();
    let view = y.narrow(0, 1, 2).unwrap();
    let out = apply(AddTo, &[&view, &w]).unwrap().remove(0);
    assert!(out.is_same(&view));
    y.square().unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [8.0, 36.0, 48.0]);
    assert_eq!(grad_of(&w), [54.0, 72.0]);
    assert!(message(apply(AddTo, &[&x, &x]).map(drop)).contains("a leaf Variable that requires grad"));
}

// ---- checkpointing

#[test]
fn a_checkpoint_gives_the_same_gradients() {
    let (x, w) = (leaf(&[0.5, 1.5]), leaf(&[2.0, 3.0]));
    let run = |f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        x.zero_grad();
        w.zero_grad();
        f(&x).unwrap().sum(..).unwrap().backward().unwrap();
        (grad_of(&x), grad_of(&w))
    };
    let layer = |x: &Tensor, w: &Tensor| x.mul(w)?.sin()?.exp();
    let plain = run(&|x| layer(x, &w));
    let kept = w.clone();
    let saved = run(&|x| {
        let w = kept.clone();
        checkpoint(move |xs| layer(&xs[0], &w), &[x])
    });
    assert_eq!(plain, saved);
    let text = message(checkpoint(|xs| xs[0].exp(), &[&Tensor::ones([1]).unwrap()]));
    assert!(text.contains("requires grad"), "{text}");
}

#[test]
fn a_checkpoint_drops_the_same_elements_again() {
    let _turn = crate::turn();
    let x = Tensor::ones_with([256], DType::F64).unwrap().requires_grad_(true).unwrap();
    let y = checkpoint(|xs| xs[0].dropout(0.5, true), &[&x]).unwrap();
    // Random numbers drawn in between must not matter, nor be disturbed.
    Tensor::rand([10]).unwrap();
    let before = default_generator().state();
    y.sum(..).unwrap().backward().unwrap();
    assert_eq!(format!("{:?}", default_generator().state()), format!("{before:?}"));
    // The derivative of each element is its own factor, 0 or 2.
    assert_eq!(grad_of(&x), values(&y));
}
