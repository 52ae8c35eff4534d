//! Windows over a long row of tokens.

use crate::dataset::{Dataset, out_of_range};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// Language-model samples: every window of a token sequence, with the window shifted by one as its target.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::Dataset;
/// use rushlight::data::text::TokenWindows;
/// let windows = TokenWindows::new(vec![5u32, 6, 7, 8], 2)?;
/// assert_eq!(windows.len(), 2);
/// let (x, y) = windows.get(1)?;
/// assert_eq!((x.to_vec::<i64>()?, y.to_vec::<i64>()?), (vec![6, 7], vec![7, 8]));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenWindows {
    tokens: Arc<[u32]>,
    block_size: usize,
    stride: usize,
}

impl TokenWindows {
    /// Windows of `block_size` tokens, each starting one after the other.
    pub fn new(tokens: impl Into<Arc<[u32]>>, block_size: usize) -> Result<Self> {
        let tokens = tokens.into();
        if block_size == 0 || block_size >= tokens.len() {
            return Err(Error::value(format!(
                "TokenWindows: a block of {block_size} needs at least one token, and one more than that in the row, which has {}",
                tokens.len()
            )));
        }
        Ok(Self { tokens, block_size, stride: 1 })
    }

    /// How far apart windows start; 1 by default, the block's size for windows that do not overlap.
    pub fn stride(mut self, stride: usize) -> Result<Self> {
        if stride == 0 {
            return Err(Error::value("TokenWindows: the stride must be at least 1"));
        }
        self.stride = stride;
        Ok(self)
    }

    /// The tokens of a window and the one after it.
    fn window(&self, index: usize) -> Result<&[u32]> {
        if index >= self.len() {
            return Err(out_of_range("TokenWindows", index, self.len()));
        }
        let start = index * self.stride;
        Ok(&self.tokens[start..start + self.block_size + 1])
    }

    /// Inputs and targets of some windows, `[count, block_size]` each.
    fn gather(&self, indices: &[usize]) -> Result<(Vec<i64>, Vec<i64>)> {
        let room = indices.len().saturating_mul(self.block_size);
        let (mut x, mut y) = (Vec::with_capacity(room), Vec::with_capacity(room));
        for &index in indices {
            let window = self.window(index)?;
            x.extend(window[..self.block_size].iter().map(|&t| i64::from(t)));
            y.extend(window[1..].iter().map(|&t| i64::from(t)));
        }
        Ok((x, y))
    }
}

impl Dataset for TokenWindows {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        (self.tokens.len() - self.block_size - 1) / self.stride + 1
    }

    fn get(&self, index: usize) -> Result<(Tensor, Tensor)> {
        let (x, y) = self.gather(&[index])?;
        Ok((Tensor::new(x)?, Tensor::new(y)?))
    }

    fn get_batch(&self, indices: &[usize]) -> Result<Option<(Tensor, Tensor)>> {
        let (x, y) = self.gather(indices)?;
        let shape = [indices.len(), self.block_size];
        Ok(Some((Tensor::from_slice(&x, shape)?, Tensor::from_slice(&y, shape)?)))
    }
}
