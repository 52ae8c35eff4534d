//! Concurrent use by threads: backward passes into one leaf, hooks that look at gradients, views of one
//! base.

use rushlight_core::{DType, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Backward, HookHandle, enable_grad};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs `work(0)`, …, `work(3)` concurrently.
fn four(work: impl Fn(usize) -> Result<()> + Sync) {
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for i in 0..4 {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(i).unwrap();
            });
        }
    });
}

fn all_equal(t: &Tensor, value: f32) -> Result<bool> {
    t.eq(value)?.all(..)?.item::<bool>()
}

/// Large enough that an addition takes longer than the threads' starts are apart.
#[test]
fn concurrent_backward_passes_into_one_leaf_lose_nothing() -> Result<()> {
    let x = Tensor::ones_with([3_000_000], DType::F32)?.requires_grad_(true)?;
    for trial in 0..60 {
        x.zero_grad();
        four(|i| x.mul((i + 1) as f64)?.sum(..)?.backward());
        assert!(all_equal(&x.grad().unwrap(), 10.0)?, "trial {trial}: a gradient was lost");
    }
    Ok(())
}

/// With `create_graph`, `.grad` is replaced by a sum that has a history.
#[test]
fn concurrent_recorded_passes_lose_nothing() -> Result<()> {
    let x = Tensor::ones_with([50_000], DType::F32)?.requires_grad_(true)?;
    for trial in 0..40 {
        x.zero_grad();
        four(|i| x.mul(&x)?.mul((i + 1) as f64)?.sum(..)?.backward_with(Backward::default().create_graph(true)));
        let g = x.grad().unwrap();
        assert!(g.requires_grad() && all_equal(&g.detach(), 20.0)?, "trial {trial}: a gradient was lost");
    }
    x.zero_grad();
    Ok(())
}

#[test]
fn retained_gradients_of_a_shared_graph_lose_nothing() -> Result<()> {
    let x = Tensor::ones_with([200_000], DType::F32)?.requires_grad_(true)?;
    for trial in 0..20 {
        let y = x.mul(2.0)?;
        y.retain_grad()?;
        four(|i| y.mul((i + 1) as f64)?.sum(..)?.backward_with(Backward::default().retain_graph(true)));
        assert!(all_equal(&y.grad().unwrap(), 10.0)?, "trial {trial}: a gradient was lost");
    }
    Ok(())
}

/// Gradients are set and cleared while others are added: every pass is counted or cleared completely.
#[test]
fn clearing_meanwhile_leaves_whole_sums() -> Result<()> {
    let x = Tensor::ones_with([100_000], DType::F32)?.requires_grad_(true)?;
    for _ in 0..40 {
        four(|i| match i {
            0 => {
                x.zero_grad();
                Ok(())
            }
            1 => x.set_grad(Some(Tensor::full([100_000], 100.0)?)),
            _ => x.mul(1.0)?.sum(..)?.backward(),
        });
        if let Some(g) = x.grad() {
            let v = g.narrow(0, 0, 1)?.item::<f32>()?;
            assert!(all_equal(&g, v)? && (v < 200.0 && (v % 100.0) <= 160.0), "{v}");
        }
        x.zero_grad();
    }
    Ok(())
}

/// A hook may change its leaf's gradient: nothing is locked while it runs.
#[test]
fn hooks_may_touch_the_gradient() -> Result<()> {
    let x = Tensor::ones_with([1000], DType::F32)?.requires_grad_(true)?;
    let weak = x.clone();
    let first: HookHandle = x.register_hook(move |g| {
        weak.set_grad(weak.grad())?;
        weak.register_hook(|_| Ok(None))?.remove();
        Ok(Some(g.mul(1.0)?))
    })?;
    let calls = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let last = x.register_post_accumulate_grad_hook(move |x| {
        counter.fetch_add(1, Relaxed);
        // A nested backward, into the same leaf.
        if counter.load(Relaxed) == 1 {
            enable_grad(|| x.mul(0.0)?.sum(..)?.backward())?;
        }
        x.set_grad(x.grad())
    })?;
    four(|_| x.mul(1.0)?.sum(..)?.backward());
    assert!(calls.load(Relaxed) >= 4);
    // Hooks may overwrite each other's values: the test checks only that all passes end.
    first.remove();
    last.remove();
    x.zero_grad();
    Ok(())
}

#[test]
fn an_error_while_adding_leaves_the_gradient() -> Result<()> {
    let x = Tensor::ones_with([4], DType::F32)?.requires_grad_(true)?;
    // All elements share one memory location: in-place addition is impossible.
    let given = Tensor::full([1], 5.0)?.expand([4])?;
    x.set_grad(Some(given.clone()))?;
    let e = x.mul(2.0)?.sum(..)?.backward().unwrap_err().to_string();
    assert!(e.contains("single memory location"), "{e}");
    assert!(x.grad().unwrap().is_same(&given));
    x.set_grad(None)?;
    x.mul(2.0)?.sum(..)?.backward()?;
    assert!(all_equal(&x.grad().unwrap(), 2.0)?);
    Ok(())
}

/// A leaf that is its own gradient is added to itself.
#[test]
fn a_leaf_may_be_its_own_gradient() -> Result<()> {
    let x = Tensor::full([3], 2.0)?.requires_grad_(true)?;
    for _ in 0..2 {
        x.backward_with(Backward::default().gradient(&x))?;
    }
    assert!(all_equal(&x.grad().unwrap(), 4.0)?);
    x.zero_grad();
    x.backward_with(Backward::default().gradient(&x).create_graph(true))?;
    assert!(all_equal(&x.grad().unwrap().detach(), 2.0)?);
    x.zero_grad();
    Ok(())
}

/// Threads that first use a view after a change of its base see one history, with the hooks of the first.
#[test]
fn views_get_one_history_after_a_change() -> Result<()> {
    for _ in 0..50 {
        let x = Tensor::ones_with([4], DType::F32)?.requires_grad_(true)?;
        let base = x.mul(1.0)?;
        let view = base.narrow(0, 0, 2)?;
        base.mul_(2.0)?;
        let calls = std::sync::Arc::new(AtomicUsize::new(0));
        four(|_| {
            let counter = calls.clone();
            view.register_hook(move |_| {
                counter.fetch_add(1, Relaxed);
                Ok(None)
            })?;
            Ok(())
        });
        view.sum(..)?.backward()?;
        assert_eq!(calls.load(Relaxed), 4);
        assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [2.0, 2.0, 0.0, 0.0]);
    }
    Ok(())
}

/// In-place changes of one storage by several threads count each time.
#[test]
fn versions_count_every_change() -> Result<()> {
    let x = Tensor::ones_with([8], DType::F32)?;
    let before = x.version();
    four(|i| (0..100).try_for_each(|_| x.narrow(0, 2 * i as isize, 2)?.add_(1.0).map(drop)));
    assert_eq!(x.version() - before, 400);
    assert!(all_equal(&x, 101.0)?);
    Ok(())
}
