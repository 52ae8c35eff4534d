//! Dropout.

use super::array::{Array, choose};
use super::execute;
use crate::backend::{View, call};
use crate::rng::Distribution;
use crate::{DType, Error, Philox, Result};

/// Mask of dropped elements: `bool`, true if the uniform of word `first + i` of the stream is below `p`, for element
/// `i` in row-major order.
pub fn dropped(like: &Array, p: f64, stream: Philox, first: u64, shape: &[usize]) -> Result<Array<'static>> {
    // Streams begin at blocks of four words: words before the first are drawn and skipped.
    let (stream, skip) = (Philox { offset: stream.offset.wrapping_add(first / 4), ..stream }, (first % 4) as usize);
    let layout = crate::Layout::contiguous(shape)?;
    let drawn = like.uninit(&[skip + layout.numel()], DType::Bool)?;
    execute(call::Random { distribution: Distribution::Bernoulli { p }, stream, out: drawn.view() })?;
    Ok(drawn.with(layout.with_offset(skip)))
}

/// Default body of [`Dropout`](call::Dropout).
pub fn dropout(c: &call::Dropout<View>) -> Result<()> {
    let call::Dropout { x, p, stream, out } = *c;
    if !out.dtype().is_float() {
        return Err(Error::dtype(format!("dropout takes floats, not {}", out.dtype())));
    }
    let (x, out) = (Array::of(x), Array::of(out));
    let dropped = dropped(&x, p, stream, 0, out.shape())?;
    choose(&dropped, 0.0, &x.div(1.0 - p)?, &out)
}

/// Default body of [`Permutation`](call::Permutation), shuffled on the host.
pub fn permutation(c: &call::Permutation<View>) -> Result<()> {
    let mut order = vec![0; c.out.numel()];
    crate::rng::permutation(
        |first, words| (first..).zip(words).for_each(|(i, word)| *word = c.stream.word(i)),
        &mut order,
    );
    let bytes: Vec<u8> = order.iter().flat_map(|v| v.to_ne_bytes()).collect();
    c.out.storage().backend().upload(&bytes, c.out.storage(), c.out.layout().offset() * DType::I64.size())
}
