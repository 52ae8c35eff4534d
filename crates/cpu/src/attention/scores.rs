//! Processing of scores between the two products: masks, causality, dropout.

use crate::float::Float;
use crate::simd::{Real, Vectors};
use rushlight_core::rng::uniform_f32;
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Philox};

/// A mask over `[batch, heads, l, s]`, of any strides.
#[derive(Clone, Copy)]
pub struct Mask {
    at: SendPtr<u8>,
    dtype: DType,
    strides: [usize; 4],
}

impl Mask {
    /// From the address of a `bool` or floating tensor.
    pub fn new(at: *const u8, dtype: DType, strides: [usize; 4]) -> Self {
        Self { at: SendPtr::new(at.cast_mut()), dtype, strides }
    }

    /// The mask of one head.
    pub fn head(&self, batch: usize, head: usize) -> Self {
        let offset = batch * self.strides[0] + head * self.strides[1];
        Self { at: SendPtr::new(self.at.at(offset * self.dtype.size())), ..*self }
    }

    /// Adds row `i` from key `j` on to `scores`; masked keys become negative infinity.
    ///
    /// # Safety
    /// The mask has this row and as many keys from `j` on.
    #[inline(always)]
    pub unsafe fn apply<R: Real, I: Vectors>(&self, i: usize, j: usize, scores: &mut [R]) {
        let (step, offset) = (self.strides[3], i * self.strides[2] + j * self.strides[3]);
        // SAFETY: by the caller's contract the row has these elements.
        unsafe {
            let at = self.at.at(offset * self.dtype.size());
            match self.dtype {
                DType::F32 => add::<f32, R, I>(at.cast(), step, scores),
                DType::F64 => add::<f64, R, I>(at.cast(), step, scores),
                DType::F16 => add::<half::f16, R, I>(at.cast(), step, scores),
                DType::BF16 => add::<half::bf16, R, I>(at.cast(), step, scores),
                _ => {
                    for (n, score) in scores.iter_mut().enumerate() {
                        *score = if *at.add(n * step) == 0 { R::NEG_INFINITY } else { *score };
                    }
                }
            }
        }
    }
}

/// `scores += mask`; mask elements have stride `step`.
#[inline(always)]
unsafe fn add<T: Float, R: Real, I: Vectors>(mask: *const T, step: usize, scores: &mut [R]) {
    for (n, score) in scores.iter_mut().enumerate() {
        // SAFETY: by the caller's contract.
        *score = *score + R::lit(unsafe { *mask.add(n * step) }.to_f64());
    }
}

/// Dropout of one head's probabilities.
#[derive(Clone, Copy)]
pub struct Dropout {
    p: f64,
    stream: Philox,
    /// The head's first word.
    first: u64,
    keys: usize,
}

impl Dropout {
    /// Dropout of head `head` (over all batches) with `l` by `s` scores.
    pub fn new((p, stream): (f64, Philox), head: usize, l: usize, s: usize) -> Self {
        Self { p, stream, first: head as u64 * l as u64 * s as u64, keys: s }
    }

    /// Fills `factors` for row `i` from key `j` on: 0 where dropped, `1 / (1 - p)` where kept.
    #[inline(always)]
    pub fn factors<R: Real>(&self, i: usize, j: usize, factors: &mut [R]) {
        let word = self.first + (i * self.keys + j) as u64;
        let kept = R::lit(1.0 / (1.0 - self.p));
        let p = self.p as f32;
        // Draws whole blocks of four words; the range may begin in the middle of one.
        let mut skip = (word % 4) as usize;
        let mut block = word / 4;
        let mut rest = factors;
        while !rest.is_empty() {
            let words = self.stream.block(block);
            let (now, later) = rest.split_at_mut(rest.len().min(4 - skip));
            for (factor, &word) in now.iter_mut().zip(&words[skip..]) {
                *factor = if uniform_f32(word) >= p { kept } else { R::ZERO };
            }
            (rest, skip, block) = (later, 0, block + 1);
        }
    }
}
