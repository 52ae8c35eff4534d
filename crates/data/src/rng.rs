//! The random stream of one sample.

use rushlight_core::rng::{default_generator, uniform_f64};
use rushlight_core::{Error, Generator, Philox, Result};

/// Random numbers for one sample.
///
/// The loader seeds one from its seed, the epoch, the sample's index and its place in the epoch. Random transforms that
/// draw from it give the same batch with any number of workers.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::SampleRng;
/// let mut a = SampleRng::new(7);
/// let mut b = SampleRng::new(7);
/// assert_eq!(a.uniform(), b.uniform());
/// assert!(a.below(10)? < 10);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SampleRng {
    stream: Philox,
    drawn: u64,
}

impl SampleRng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { stream: Philox { seed, offset: 0 }, drawn: 0 }
    }

    /// The stream of a sample: `index` is the dataset's, `place` counts samples since the epoch began, so that a sample
    /// drawn twice in an epoch is not changed twice in the same way.
    pub fn for_sample(seed: u64, epoch: u64, index: usize, place: u64) -> Self {
        Self::new([epoch, index as u64, place].into_iter().fold(seed ^ SAMPLES, derive_seed))
    }

    /// A stream that continues the process-wide generator, for samples read without a loader.
    pub fn from_default() -> Self {
        Self::new(draw_seed(default_generator()))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.drawn += 1;
        self.stream.word64(self.drawn - 1)
    }

    /// A number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        uniform_f64(self.bits())
    }

    /// A number in `[low, high)`; `low` where the two are equal.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// An integer below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> Result<usize> {
        if bound == 0 {
            return Err(Error::value("SampleRng::below: the bound must not be zero"));
        }
        Ok(self.scaled(bound))
    }

    /// An integer below a bound that is not zero, by multiplication: the bias is below 2⁻⁶⁴ times the bound.
    pub(crate) fn scaled(&mut self, bound: usize) -> usize {
        ((self.bits() as u128 * bound as u128) >> 64) as usize
    }

    /// True with probability `p`.
    pub fn bernoulli(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// The numbers `0..n` in random order.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for last in (1..n).rev() {
            let other = self.scaled(last + 1);
            order.swap(last, other);
        }
        order
    }

    /// A generator for the tensor functions that take one, such as `Tensor::rand_from`.
    pub fn generator(&mut self) -> Generator {
        Generator::new(self.bits())
    }
}

/// Keeps samples' streams apart from those of samplers, which use the seed itself.
const SAMPLES: u64 = 0x5361_6d70_6c65_7321;

/// The seed of a part, from the seed of the whole and the part's number.
pub(crate) fn derive_seed(seed: u64, part: u64) -> u64 {
    Philox { seed, offset: part }.word64(0)
}

/// A seed drawn from a generator.
pub(crate) fn draw_seed(generator: &Generator) -> u64 {
    generator.reserve(2).word64(0)
}

/// The indices `0..n` in the random order `Tensor::randperm_from` gives for a seed.
pub(crate) fn randperm(seed: u64, n: usize) -> Result<Vec<usize>> {
    let order = rushlight_tensor::Tensor::randperm_from(&Generator::new(seed), n)?.to_vec::<i64>()?;
    Ok(order.into_iter().map(|i| i as usize).collect())
}
