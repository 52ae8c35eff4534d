//! The tape: rejected calls, in-place changes, hooks, accumulation, modes, large graphs.

use rushlight_core::{DType, ErrorKind, Result};
use rushlight_tensor::autograd::{
    Backward, Context, Function, apply, enable_grad, grad, gradcheck_with, gradgradcheck_with, inference_mode,
    is_grad_enabled, no_grad, queue_callback, set_grad_enabled,
};
use rushlight_tensor::{Tensor, cat};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap().requires_grad_(true).unwrap()
}

pub fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec().unwrap()
}

pub fn grad_of(t: &Tensor) -> Vec<f64> {
    values(&t.grad().expect("a gradient"))
}

pub fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Autograd, "{e:?}");
            e.to_string()
        }
    }
}

// ---- rejected calls

#[test]
fn a_freed_graph_cannot_be_differentiated_again() {
    let x = leaf(&[1.0, 2.0]);
    let y = x.exp().unwrap().sum(..).unwrap();
    y.backward().unwrap();
    let text = message(y.backward());
    assert!(text.contains("second time") && text.contains("retain_graph"), "{text}");
}

#[test]
fn a_retained_graph_can() {
    let x = leaf(&[1.0, 2.0]);
    let y = x.square().unwrap().sum(..).unwrap();
    y.backward_with(Backward::default().retain_graph(true)).unwrap();
    y.backward().unwrap();
    assert_eq!(grad_of(&x), [4.0, 8.0]);
}

#[test]
fn only_scalars_need_no_initial_gradient() {
    let x = leaf(&[1.0, 2.0]);
    let text = message(x.exp().unwrap().backward());
    assert!(text.contains("grad can be implicitly created only for scalar outputs") && text.contains("[2]"), "{text}");
    let e = x.exp().unwrap().backward_with(Backward::default().gradient(&Tensor::ones([3]).unwrap())).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Shape);
    assert!(e.to_string().contains("[3]") && e.to_string().contains("[2]"));
}

#[test]
fn backward_needs_a_tensor_that_requires_grad() {
    let text = message(Tensor::new(1.0f32).unwrap().backward());
    assert!(text.contains("does not require grad"), "{text}");
    let text = message(Tensor::new(1.0f32).unwrap().register_hook(|_| Ok(None)));
    assert!(text.contains("hook"), "{text}");
    let e = Tensor::new(1i64).unwrap().requires_grad_(true).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DType);
    let y = leaf(&[1.0]).exp().unwrap();
    assert!(message(y.requires_grad_(false)).contains("leaf"));
}

// ---- in-place changes

#[test]
fn a_changed_saved_value_is_an_error_that_names_the_op() {
    let x = leaf(&[1.0, 2.0]);
    let y = x.mul(1.0).unwrap();
    let z = y.exp().unwrap();
    z.add_(1.0).unwrap();
    let text = message(z.sum(..).unwrap().backward());
    assert!(text.contains("modified by an inplace operation") && text.contains("ExpBackward"), "{text}");
    assert!(text.contains("version 1") && text.contains("expected version 0"), "{text}");
}

#[test]
fn a_value_that_was_not_saved_may_be_changed() {
    let x = leaf(&[1.0, 2.0]);
    let y = x.mul(3.0).unwrap();
    y.add_(1.0).unwrap();
    y.mul_(2.0).unwrap();
    y.sum(..).unwrap().backward().unwrap();
    assert_eq!(values(&y), [8.0, 14.0]);
    assert_eq!(grad_of(&x), [6.0, 6.0]);
}

#[test]
fn leaves_and_their_views_may_not_be_changed() {
    let x = leaf(&[1.0, 2.0]);
    assert!(message(x.add_(1.0).map(|_| ())).contains("leaf Variable that requires grad"));
    assert!(message(x.narrow(0, 0, 1).unwrap().zero_().map(|_| ())).contains("view of a leaf"));
    no_grad(|| x.add_(1.0).map(|_| ())).unwrap();
    assert_eq!(values(&x), [2.0, 3.0]);
    // A leaf that is a view.
    let y = Tensor::new([1.0f32, 2.0]).unwrap().reshape([2, 1]).unwrap().requires_grad_(true).unwrap();
    assert!(message(y.reshape([2]).unwrap().zero_().map(|_| ())).contains("view of a leaf"));
}

#[test]
fn overlapping_memory_may_not_be_written() {
    let x = Tensor::ones([1]).unwrap().expand([3]).unwrap();
    let e = x.add_(1.0).map(|_| ()).unwrap_err();
    assert!(e.to_string().contains("single memory location"), "{e}");
}

#[test]
fn a_copy_into_a_slice_sends_gradients_both_ways() {
    let (x, part) = (leaf(&[1.0, 2.0, 3.0, 4.0]), leaf(&[5.0, 6.0]));
    let y = x.mul(2.0).unwrap();
    y.narrow(0, 1, 2).unwrap().copy_(&part).unwrap();
    assert_eq!(values(&y), [2.0, 5.0, 6.0, 8.0]);
    y.square().unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [8.0, 0.0, 0.0, 32.0]);
    assert_eq!(grad_of(&part), [10.0, 12.0]);
}

#[test]
fn a_slice_of_a_fresh_tensor_takes_gradients() {
    let part = leaf(&[5.0, 6.0]);
    let buffer = Tensor::zeros_with([2, 2], DType::F64).unwrap();
    buffer.select(0, 1).unwrap().copy_(&part).unwrap();
    assert!(buffer.requires_grad());
    buffer.square().unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&part), [10.0, 12.0]);
}

#[test]
fn an_older_view_follows_its_base() {
    let x = leaf(&[1.0, 2.0, 3.0]);
    let y = x.mul(1.0).unwrap();
    let view = y.narrow(0, 0, 2).unwrap();
    y.mul_(10.0).unwrap();
    assert_eq!(values(&view), [10.0, 20.0]);
    view.sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [10.0, 10.0, 0.0]);
}

#[test]
fn views_of_views_follow_too() {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0]);
    let y = x.mul(1.0).unwrap();
    let square = y.view([2, 2]).unwrap();
    let column = square.select(1, 0).unwrap();
    column.mul_(5.0).unwrap();
    assert_eq!(values(&y), [5.0, 2.0, 15.0, 4.0]);
    square.t().unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [5.0, 1.0, 5.0, 1.0]);
}

#[test]
fn in_place_ops_have_their_derivatives() {
    let x = leaf(&[0.3, 0.7, 1.1]);
    let chain = |xs: &[Tensor]| {
        let y = xs[0].mul(1.0)?;
        y.sin_()?;
        y.narrow(0, 1, 2)?.mul_(&xs[0].narrow(0, 0, 2)?)?;
        y.add_(&xs[0])?;
        Ok(vec![y.square()?])
    };
    gradcheck_with(chain, std::slice::from_ref(&x), 1e-6, 1e-6, 1e-6).unwrap();
    gradgradcheck_with(chain, &[x], 1e-6, 1e-6, 1e-6).unwrap();
}

// ---- hooks

#[test]
fn hooks_replace_gradients_until_removed() {
    let x = leaf(&[1.0]);
    let handle = x.register_hook(|g| Ok(Some(g.mul(10.0)?))).unwrap();
    x.mul(2.0).unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [20.0]);
    handle.remove();
    x.zero_grad();
    x.mul(2.0).unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [2.0]);
}

#[test]
fn a_hook_on_a_value_in_the_middle_sees_its_whole_gradient() {
    let x = leaf(&[3.0]);
    let y = x.mul(2.0).unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    y.register_hook(move |g| {
        assert_eq!(values(g), [7.0]);
        count.fetch_add(1, SeqCst);
        Ok(Some(g.add(1.0)?))
    })
    .unwrap();
    (y.mul(3.0).unwrap().add(&y.mul(4.0).unwrap()).unwrap()).sum(..).unwrap().backward().unwrap();
    assert_eq!(seen.load(SeqCst), 1);
    assert_eq!(grad_of(&x), [16.0]);
    let wrong = x.mul(2.0).unwrap();
    wrong.register_hook(|_| Ok(Some(Tensor::zeros([5])?))).unwrap();
    assert!(message(wrong.sum(..).unwrap().backward()).contains("hook"));
}

#[test]
fn post_accumulate_hooks_fire_once_with_the_final_gradient() {
    let x = leaf(&[2.0]);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let handle = x
        .register_post_accumulate_grad_hook(move |t| {
            let expected = [5.0, 10.0][count.fetch_add(1, SeqCst)];
            assert_eq!(grad_of(t), [expected]);
            Ok(())
        })
        .unwrap();
    for _ in 0..2 {
        // Two uses: the hook waits for both.
        x.mul(2.0).unwrap().add(&x.mul(3.0).unwrap()).unwrap().sum(..).unwrap().backward().unwrap();
    }
    assert_eq!(calls.load(SeqCst), 2);
    handle.remove();
    x.sum(..).unwrap().backward().unwrap();
    assert_eq!(calls.load(SeqCst), 2);
    assert!(x.mul(1.0).unwrap().register_post_accumulate_grad_hook(|_| Ok(())).is_err());
}

#[test]
fn retain_grad_keeps_gradients_of_values_in_the_middle() {
    let x = leaf(&[2.0]);
    let y = x.mul(3.0).unwrap();
    y.retain_grad().unwrap();
    y.retain_grad().unwrap();
    y.square().unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&y), [12.0]);
    assert!(message(Tensor::ones([1]).unwrap().retain_grad()).contains("retain_grad"));
}

// ---- accumulation

#[test]
fn gradients_add_up_over_calls() {
    let x = leaf(&[1.0, 2.0]);
    for _ in 0..3 {
        x.mul(2.0).unwrap().sum(..).unwrap().backward().unwrap();
    }
    assert_eq!(grad_of(&x), [6.0, 6.0]);
    x.zero_grad();
    assert!(x.grad().is_none());
}

/// What others contributed is added within norms and products; with the same numbers as apart.
#[test]
fn gradients_add_up_within_kernels() -> Result<()> {
    let _turn = crate::turn();
    let (x, c) = (Tensor::randn_with([6, 8], DType::F64)?, Tensor::randn_with([6, 8], DType::F64)?);
    let [w, v] = [Tensor::randn_with([8, 8], DType::F64)?, Tensor::randn_with([8, 8], DType::F64)?];
    let (scale, shift) = (Tensor::randn_with([8], DType::F64)?, Tensor::randn_with([8], DType::F64)?);
    type Branch<'a> = Box<dyn Fn(&Tensor) -> Result<Tensor> + 'a>;
    let branches: [Branch; 5] = [
        Box::new(|h| h.layer_norm(&[8], Some(&scale), Some(&shift), 1e-5)),
        Box::new(|h| h.linear(&w, None)),
        Box::new(|h| h.rms_norm(&[8], None, None)),
        Box::new(|h| h.linear(&v, Some(&shift))),
        Box::new(|h| Ok(h.clone())),
    ];
    let run = |which: &[usize]| -> Result<Vec<f64>> {
        let x = x.detach().requires_grad_(true)?;
        let h = x.mul(2.0)?;
        let mut sum = Tensor::zeros([6, 8])?.to_dtype(DType::F64)?;
        for &i in which {
            sum = sum.add(&branches[i](&h)?)?;
        }
        sum.mul(&c)?.sum(..)?.backward()?;
        Ok(grad_of(&x))
    };
    let mut apart = vec![0.0; 48];
    for i in 0..branches.len() {
        apart.iter_mut().zip(run(&[i])?).for_each(|(sum, g)| *sum += g);
    }
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
        let together = run(&order)?;
        for (a, b) in together.iter().zip(&apart) {
            assert!((a - b).abs() < 1e-12, "{order:?}: {a} is not {b}");
        }
    }
    Ok(())
}

#[test]
fn a_fresh_gradient_is_taken_over_without_a_copy() {
    struct Remember(Arc<AtomicUsize>);
    impl Function for Remember {
        fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
            Ok(vec![inputs[0].mul(2.0)?])
        }
        fn backward(&self, _: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            let dx = grads[0].as_ref().unwrap().mul(2.0)?;
            self.0.store(dx.storage().ptr() as usize, SeqCst);
            Ok(vec![Some(dx)])
        }
    }
    let x = leaf(&[1.0, 2.0]);
    let address = Arc::new(AtomicUsize::new(0));
    apply(Remember(address.clone()), &[&x]).unwrap()[0].sum(..).unwrap().backward().unwrap();
    let first = x.grad().unwrap();
    assert_eq!(first.storage().ptr() as usize, address.load(SeqCst));
    // Later gradients are added into the same memory.
    apply(Remember(address.clone()), &[&x]).unwrap()[0].sum(..).unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().storage().ptr(), first.storage().ptr());
    assert_eq!(grad_of(&x), [4.0, 4.0]);
}

#[test]
fn a_shared_gradient_is_copied() {
    let x = leaf(&[1.0, 2.0]);
    let dy = Tensor::from_slice(&[1.0f64, 1.0], [2]).unwrap();
    for _ in 0..2 {
        x.add(0.0).unwrap().backward_with(Backward::default().gradient(&dy)).unwrap();
    }
    assert_eq!(values(&dy), [1.0, 1.0]);
    assert_eq!(grad_of(&x), [2.0, 2.0]);
}

#[test]
fn set_grad_checks_its_argument() {
    let x = leaf(&[1.0, 2.0]);
    assert_eq!(x.set_grad(Some(Tensor::zeros_with([3], DType::F64).unwrap())).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(x.set_grad(Some(Tensor::zeros([2]).unwrap())).unwrap_err().kind(), ErrorKind::DType);
    x.set_grad(Some(Tensor::ones_with([2], DType::F64).unwrap())).unwrap();
    x.sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [2.0, 2.0]);
}

// ---- modes

#[test]
fn modes_nest_and_end() {
    let x = leaf(&[1.0]);
    no_grad(|| {
        assert!(!x.exp()?.requires_grad());
        assert!(enable_grad(|| x.exp())?.requires_grad());
        let _guard = set_grad_enabled(true);
        assert!(is_grad_enabled());
        Ok(())
    })
    .unwrap();
    assert!(is_grad_enabled());
    let caught = std::panic::catch_unwind(|| no_grad(|| -> Result<()> { panic!("on purpose") }));
    assert!(caught.is_err() && is_grad_enabled());
    std::thread::spawn(|| assert!(is_grad_enabled())).join().unwrap();
}

#[test]
fn tensors_made_for_inference_stay_outside_graphs() {
    let x = leaf(&[1.0]);
    let y = inference_mode(|| x.exp()).unwrap();
    assert!(!y.requires_grad());
    assert!(message(x.mul(&y)).contains("inference"));
    assert!(message(y.clone().requires_grad_(true)).contains("inference"));
    assert!(x.mul(&y.copy().unwrap()).unwrap().requires_grad());
}

// ---- size

#[test]
fn a_chain_of_a_hundred_thousand_ops_fits_a_small_stack() {
    let work = || {
        let x = leaf(&[1.0]);
        let mut y = x.clone();
        for _ in 0..100_000 {
            y = y.add(1.0).unwrap();
        }
        y.sum(..).unwrap().backward().unwrap();
        assert_eq!(grad_of(&x), [1.0]);
        // One graph is dropped after its backward, another without ever being walked.
        let mut z = x.clone();
        for _ in 0..100_000 {
            z = z.mul(1.0).unwrap();
        }
        drop(z);
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(work).unwrap().join().unwrap();
}

#[test]
fn threads_run_backward_concurrently() {
    let shared = leaf(&[1.0, 2.0, 3.0]);
    std::thread::scope(|scope| {
        for n in 1..=4 {
            let shared = &shared;
            scope.spawn(move || {
                for _ in 0..50 {
                    let y = shared.mul(f64::from(n)).unwrap().square().unwrap().sum(..).unwrap();
                    let g = grad(&[&y], &[shared], Backward::default()).unwrap().remove(0).unwrap();
                    let expected: Vec<f64> = [1.0, 2.0, 3.0].iter().map(|v| 2.0 * v * f64::from(n * n)).collect();
                    assert_eq!(values(&g), expected);
                }
            });
        }
    });
    assert!(shared.grad().is_none());
}

#[test]
fn backward_may_run_on_another_thread() {
    let x = leaf(&[3.0]);
    let y = x.square().unwrap().sum(..).unwrap();
    std::thread::spawn(move || y.backward().unwrap()).join().unwrap();
    assert_eq!(grad_of(&x), [6.0]);
}

// ---- shapes and dtypes of gradients

#[test]
fn gradients_of_broadcast_operands_are_summed() {
    let (row, column) = (leaf(&[1.0, 2.0, 3.0]), leaf(&[10.0, 20.0]));
    let y = row.mul(&column.unsqueeze(1).unwrap()).unwrap();
    y.sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&row), [30.0; 3]);
    assert_eq!(grad_of(&column), [6.0; 2]);
}

#[test]
fn gradients_have_the_dtype_of_their_leaf() {
    let half = Tensor::new([1.0f32, 2.0]).unwrap().to_dtype(DType::BF16).unwrap().requires_grad_(true).unwrap();
    let wide = leaf(&[3.0, 4.0]);
    half.mul(&wide).unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(half.grad().unwrap().dtype(), DType::BF16);
    assert_eq!(wide.grad().unwrap().dtype(), DType::F64);
    assert_eq!(grad_of(&half), [3.0, 4.0]);
}

#[test]
fn joined_and_split_tensors_distribute_gradients() {
    let (a, b) = (leaf(&[1.0, 2.0]), leaf(&[3.0]));
    let parts = cat(&[&a, &b], 0).unwrap().split(1, 0).unwrap();
    // The part in the middle is not used.
    parts[0].mul(2.0).unwrap().add(&parts[2].mul(5.0).unwrap()).unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad_of(&a), [2.0, 0.0]);
    assert_eq!(grad_of(&b), [5.0]);
}

#[test]
fn callbacks_run_at_the_end_of_the_outermost_backward() -> Result<()> {
    use std::sync::Mutex;
    static SEEN: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let note = |what| SEEN.lock().unwrap().push(what);
    let x = Tensor::new([1.0f32])?.requires_grad_(true)?;
    let w = Tensor::new([2.0f32])?.requires_grad_(true)?;
    w.register_post_accumulate_grad_hook(move |_| {
        note("hook");
        queue_callback(move || {
            note("callback");
            queue_callback(move || {
                note("another");
                Ok(())
            })
        })
    })?;
    // A hook with a nested backward pass.
    let inner = w.clone();
    x.register_post_accumulate_grad_hook(move |_| {
        enable_grad(|| inner.mul(3.0)?.sum(..)?.backward())?;
        note("inner done");
        Ok(())
    })?;
    x.mul(2.0)?.sum(..)?.backward()?;
    assert_eq!(*SEEN.lock().unwrap(), ["hook", "inner done", "callback", "another"]);
    // A pass that fails drops its queued callbacks.
    SEEN.lock().unwrap().clear();
    let bad = Tensor::new([1.0f32])?.requires_grad_(true)?;
    let y = bad.mul(2.0)?;
    y.register_hook(move |_| {
        queue_callback(move || {
            note("never");
            Ok(())
        })?;
        Err(rushlight_core::Error::value("on purpose"))
    })?;
    assert!(y.sum(..)?.backward().is_err());
    w.mul(1.0)?.sum(..)?.backward()?;
    assert_eq!(*SEEN.lock().unwrap(), ["hook", "callback", "another"]);
    Ok(())
}
