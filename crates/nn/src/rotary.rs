//! Rotary position embedding.

use crate::{Buffer, Module, locate};
use rushlight_core::{DType, Error, Result, setters};
use rushlight_tensor::{Options, Tensor};

/// Rotary position embedding (RoPE): rotates pairs of features of queries and keys by an angle that grows with the
/// position, so that their product depends on the distance between positions.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::RotaryEmbedding;
/// use rushlight::Tensor;
/// let rope = RotaryEmbedding::new(8, 32)?;
/// let q = Tensor::ones([1, 2, 4, 8])?; // batch, heads, length, features
/// assert_eq!(rope.forward(&q, 0)?.shape(), [1, 2, 4, 8]);
/// // The token at position 3, alone, as a cache of keys wants it.
/// let last = rope.forward(&q.narrow(2, 3, 1)?, 3)?;
/// assert!(last.allclose(&rope.forward(&q, 0)?.narrow(2, 3, 1)?, 1e-6, 1e-6)?);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
#[module(extra_repr = "Self::settings")]
pub struct RotaryEmbedding {
    /// `[max_positions, dim / 2]`.
    cos: Buffer,
    /// `[max_positions, dim / 2]`.
    sin: Buffer,
    dim: usize,
    interleaved: bool,
}

/// How the frequencies of a [`RotaryEmbedding`] are changed for contexts longer than in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// All positions divided by a factor.
    Linear(f64),
    /// Llama 3's: low frequencies divided by `factor`, high ones kept, those between blended.
    Llama3 {
        /// The factor of low frequencies.
        factor: f64,
        /// Frequencies with fewer turns than this within the original context are low.
        low_freq_factor: f64,
        /// Frequencies with more turns than this are high.
        high_freq_factor: f64,
        /// The context of training.
        original_max_position_embeddings: usize,
    },
}

impl RopeScaling {
    fn check(self) -> Result<()> {
        let wrong = |what: &str| Err(Error::value(format!("RotaryEmbedding: {what}, got {self:?}")));
        match self {
            RopeScaling::Linear(factor) if !(factor > 0.0 && factor.is_finite()) => wrong("factor must be positive"),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                if !(factor > 0.0 && factor.is_finite() && low_freq_factor > 0.0)
                    || original_max_position_embeddings == 0
                {
                    return wrong("factors and the original context must be positive");
                }
                if !(high_freq_factor > low_freq_factor && high_freq_factor.is_finite()) {
                    return wrong("high_freq_factor must be larger than low_freq_factor");
                }
                Ok(())
            }
            RopeScaling::Linear(_) => Ok(()),
        }
    }

    fn apply(self, frequency: f64) -> f64 {
        match self {
            RopeScaling::Linear(factor) => frequency / factor,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                let turns = original_max_position_embeddings as f64 * frequency / (2.0 * std::f64::consts::PI);
                let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                (1.0 - kept) * frequency / factor + kept * frequency
            }
        }
    }
}

/// The options of a [`RotaryEmbedding`].
#[derive(Clone, Debug)]
pub struct RotaryEmbeddingBuilder {
    dim: usize,
    max_positions: usize,
    base: f64,
    scaling: Option<RopeScaling>,
    interleaved: bool,
    options: Options,
}

crate::factory_options!(RotaryEmbeddingBuilder);

impl RotaryEmbeddingBuilder {
    setters! {
        /// The base of the frequencies (`rope_theta`), 10000 by default.
        base: f64;
        /// Changed frequencies for long contexts; none by default.
        scaling: into Option<RopeScaling>;
        /// Whether neighbouring features are pairs, as in Meta's code; else a feature of the first half and its
        /// counterpart in the second, as in Hugging Face's.
        interleaved: bool;
    }

    /// Makes the tables.
    pub fn build(self) -> Result<RotaryEmbedding> {
        let Self { dim, max_positions, base, scaling, interleaved, options } = self;
        if dim == 0 || !dim.is_multiple_of(2) || max_positions == 0 {
            return Err(Error::value(format!(
                "RotaryEmbedding: dim must be even and positions at least 1, got dim {dim} and {max_positions} positions"
            )));
        }
        if !(base > 0.0 && base.is_finite()) {
            return Err(Error::value(format!("RotaryEmbedding: base must be positive, got {base}")));
        }
        scaling.map_or(Ok(()), RopeScaling::check)?;
        let frequency = |i: usize| {
            let frequency = base.powf(-((2 * i) as f64) / dim as f64);
            scaling.map_or(frequency, |scaling| scaling.apply(frequency))
        };
        let frequencies = Tensor::from_iter((0..dim / 2).map(frequency))?;
        let positions = Tensor::arange_with(0, max_positions, 1, DType::F64)?.unsqueeze(1)?;
        let angles = positions.mul(&frequencies)?;
        let like = Tensor::empty_with([0], options)?;
        Ok(RotaryEmbedding {
            cos: Buffer::not_persistent(angles.cos()?.to(&like)?),
            sin: Buffer::not_persistent(angles.sin()?.to(&like)?),
            dim,
            interleaved,
        })
    }
}

impl RotaryEmbedding {
    /// For heads of `dim` features and positions below `max_positions`.
    pub fn new(dim: usize, max_positions: usize) -> Result<Self> {
        Self::builder(dim, max_positions).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](RotaryEmbeddingBuilder::build).
    pub fn builder(dim: usize, max_positions: usize) -> RotaryEmbeddingBuilder {
        let options = Options::default();
        RotaryEmbeddingBuilder { dim, max_positions, base: 10000.0, scaling: None, interleaved: false, options }
    }

    fn settings(&self) -> String {
        format!("{}, {}, interleaved={}", self.dim, self.max_positions(), crate::python::boolean(self.interleaved))
    }

    /// Number of positions it has angles for.
    pub fn max_positions(&self) -> usize {
        self.cos.shape()[0]
    }

    /// Queries or keys `[.., length, dim]` whose first token is at position `start`, turned.
    pub fn forward(&self, x: &Tensor, start: usize) -> Result<Tensor> {
        locate(self, || {
            let (rank, half) = (x.rank(), self.dim / 2);
            if rank < 2 || x.shape()[rank - 1] != self.dim {
                return Err(Error::shape(format!(
                    "RotaryEmbedding: takes [.., length, {}], got {:?}",
                    self.dim,
                    x.shape()
                )));
            }
            let length = x.shape()[rank - 2];
            if start.checked_add(length).is_none_or(|end| end > self.max_positions()) {
                return Err(Error::index(format!(
                    "RotaryEmbedding: positions {start} to {} exceed the {} it was made for",
                    start.saturating_add(length),
                    self.max_positions()
                )));
            }
            let table = |t: &Tensor| t.narrow(0, start as isize, length)?.to_dtype(x.dtype());
            let (cos, sin) = (table(&self.cos)?, table(&self.sin)?);
            if self.interleaved {
                let pairs = x.unflatten(-1, [half, 2])?;
                let (a, b) = (pairs.select(-1, 0)?, pairs.select(-1, 1)?);
                let turned = [(&a * &cos - &b * &sin).eval()?, (&b * &cos + &a * &sin).eval()?];
                return Tensor::stack(&[&turned[0], &turned[1]], -1)?.flatten(-2, -1);
            }
            let (a, b) = (x.narrow(-1, 0, half)?, x.narrow(-1, half as isize, half)?);
            let turned = [(&a * &cos - &b * &sin).eval()?, (&b * &cos + &a * &sin).eval()?];
            Tensor::cat(&[&turned[0], &turned[1]], -1)
        })
    }
}
