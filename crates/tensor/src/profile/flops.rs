//! Operations of engine calls, with the memory they read.

use rushlight_core::backend::{Call, View};
use rushlight_profile::{Options, start, stop};
use std::cell::RefCell;

/// Operations (additions and multiplications) of one engine call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedCall {
    /// How many.
    pub flops: u64,
    /// Addresses of the storages of its operands: [`Storage::ptr`](rushlight_core::backend::Storage::ptr) of a
    /// parameter says whether it is one.
    pub operands: Vec<usize>,
}

thread_local! {
    static CALLS: RefCell<Option<Vec<CountedCall>>> = const { RefCell::new(None) };
}

/// Notes a product, convolution or attention, if this thread counts.
pub(super) fn count(call: &Call<View>) {
    CALLS.with_borrow_mut(|calls| {
        let (Some(calls), flops) = (calls, call.flops()) else { return };
        if flops > 0 || matches!(call, Call::MatMul(_)) {
            // The factors; not masks and biases.
            let factors = if matches!(call, Call::Attention(_) | Call::AttentionBackward(_)) { 3 } else { 2 };
            let operands = call.inputs().into_iter().take(factors).map(|view| view.storage().ptr() as usize);
            calls.push(CountedCall { flops, operands: operands.collect() });
        }
    });
}

/// Ends counting, whatever happens.
struct Counting;

impl Drop for Counting {
    fn drop(&mut self) {
        stop();
        CALLS.take();
    }
}

/// The matrix products, convolutions and attentions that a closure has the engine do on this thread, in order. The
/// error says that the profiler is at work already.
pub fn counted_calls<T>(f: impl FnOnce() -> T) -> Result<(T, Vec<CountedCall>), String> {
    start(Options::default())?;
    let counting = Counting;
    CALLS.set(Some(Vec::new()));
    let out = f();
    let calls = CALLS.take().unwrap_or_default();
    drop(counting);
    Ok((out, calls))
}

/// Operations (additions and multiplications) of the matrix products, convolutions and attention that a closure runs,
/// counted as they reach the engine. The error says that the profiler is at work already.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, profile::count_flops};
/// let x = Tensor::ones([4, 8])?;
/// let (y, flops) = count_flops(|| x.matmul(&x.t()?))?;
/// assert_eq!(flops, 2 * 4 * 4 * 8);
/// # y?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn count_flops<T>(f: impl FnOnce() -> T) -> Result<(T, u64), String> {
    let (out, calls) = counted_calls(f)?;
    Ok((out, calls.iter().map(|call| call.flops).sum()))
}
