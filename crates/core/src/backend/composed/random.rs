//! Dropout.

use super::array::{Array, choose};
use crate::backend::View;
use crate::rng::Distribution;
use crate::{DType, Error, Philox, Result};

/// Mask of dropped elements: `bool`, true if the uniform of word `first + i` of the stream is below `p`, for element
/// `i` in row-major order.
pub fn dropped(like: &Array, p: f64, stream: Philox, first: u64, shape: &[usize]) -> Result<Array<'static>> {
    // Streams begin at blocks of four words: words before the first are drawn and skipped.
    let (stream, skip) = (Philox { offset: stream.offset.wrapping_add(first / 4), ..stream }, (first % 4) as usize);
    let layout = crate::Layout::contiguous(shape)?;
    let drawn = like.uninit(&[skip + layout.numel()], DType::Bool)?;
    like.engine().random(Distribution::Bernoulli { p }, stream, drawn.view())?;
    Ok(drawn.with(layout.with_offset(skip)))
}

/// Default body of [`Backend::dropout`](crate::Backend::dropout).
pub fn dropout(x: View, p: f64, stream: Philox, out: View) -> Result<()> {
    if !out.dtype.is_float() {
        return Err(Error::dtype(format!("dropout takes floats, not {}", out.dtype)));
    }
    let (x, out) = (Array::of(x), Array::of(out));
    let dropped = dropped(&x, p, stream, 0, out.shape())?;
    choose(&dropped, 0.0, &x.div(1.0 - p)?, &out)
}
