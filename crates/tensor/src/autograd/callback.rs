//! Functions that run when a backward pass has ended.

use rushlight_core::{Error, Result};
use std::cell::RefCell;

type Callback = Box<dyn FnOnce() -> Result<()>>;

#[derive(Default)]
struct Queue {
    /// Backward passes under way on this thread, one inside the other.
    depth: usize,
    callbacks: Vec<Callback>,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

/// Runs `callback` at the end of the outermost backward pass under way on this thread; PyTorch's `queue_callback`. It
/// does not run if that pass fails. Data-parallel training waits for its communication there.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, autograd::queue_callback};
/// let x = Tensor::new([1.0f32])?.requires_grad_(true)?;
/// x.register_post_accumulate_grad_hook(|x| {
///     let x = x.clone();
///     queue_callback(move || x.grad().unwrap().mul_(3.0).map(drop))
/// })?;
/// x.mul(2.0)?.sum(..)?.backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [6.0]);
/// assert!(queue_callback(|| Ok(())).is_err());
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn queue_callback(callback: impl FnOnce() -> Result<()> + 'static) -> Result<()> {
    QUEUE.with_borrow_mut(|queue| {
        if queue.depth == 0 {
            return Err(Error::autograd("queue_callback: no backward pass is under way on this thread"));
        }
        queue.callbacks.push(Box::new(callback));
        Ok(())
    })
}

/// Runs a backward pass, then the callbacks queued during it if it is the outermost.
pub(super) fn around(pass: impl FnOnce() -> Result<()>) -> Result<()> {
    /// Decrements the depth even if the pass panics; the outermost pass clears the queue.
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            let dropped = QUEUE.with_borrow_mut(|queue| {
                queue.depth -= 1;
                if queue.depth == 0 { std::mem::take(&mut queue.callbacks) } else { Vec::new() }
            });
            drop(dropped);
        }
    }
    QUEUE.with_borrow_mut(|queue| queue.depth += 1);
    let guard = Guard;
    pass()?;
    // A callback may queue another.
    loop {
        let callbacks = QUEUE.with_borrow_mut(|queue| match queue.depth {
            1 => std::mem::take(&mut queue.callbacks),
            _ => Vec::new(),
        });
        if callbacks.is_empty() {
            break;
        }
        callbacks.into_iter().try_for_each(|callback| callback())?;
    }
    drop(guard);
    Ok(())
}
