//! Counter-based random numbers: Philox-4x32-10.
//!
//! The word for element `i` depends only on the seed, the call's position in the sequence of calls and `i`, so every
//! device and any number of threads produce the same numbers.

mod permutation;

use crate::sync::lock;
pub use permutation::{CHUNK as PERMUTATION_CHUNK, LONGEST as LONGEST_PERMUTATION, permutation, permutation_words};
use std::sync::Mutex;

/// One call's stream of random words: a key and a first counter.
///
/// ```
/// use rushlight_core::Philox;
/// let stream = Philox { seed: 7, offset: 0 };
/// assert_eq!(stream.word(5), stream.block(1)[1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    /// The seed, which is the cipher's key.
    pub seed: u64,
    /// The first block this call may use.
    pub offset: u64,
}

const M0: u64 = 0xD251_1F53;
const M1: u64 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

impl Philox {
    /// Marks a stream whose seed and offset are on the device; plain offsets never reach this value.
    pub const LIVE: u64 = 1 << 63;

    /// A stream for recorded steps: at each replay it begins `blocks` after the seed and offset found at `address` on
    /// the device.
    pub fn live(address: u64, blocks: u64) -> Self {
        Self { seed: address, offset: blocks | Self::LIVE }
    }

    /// Four random words: block `index` of this call.
    #[inline(always)]
    pub fn block(&self, index: u64) -> [u32; 4] {
        let counter = self.offset.wrapping_add(index);
        let (mut c0, mut c1, mut c2, mut c3) = (counter as u32, (counter >> 32) as u32, 0u32, 0u32);
        let (mut k0, mut k1) = (self.seed as u32, (self.seed >> 32) as u32);
        for _ in 0..10 {
            let p0 = M0 * c0 as u64;
            let p1 = M1 * c2 as u64;
            (c0, c1, c2, c3) = ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
            k0 = k0.wrapping_add(W0);
            k1 = k1.wrapping_add(W1);
        }
        [c0, c1, c2, c3]
    }

    /// Random word `index` of this call.
    #[inline(always)]
    pub fn word(&self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// 64 random bits from the words `2 * index` and `2 * index + 1`.
    #[inline(always)]
    pub fn word64(&self, index: u64) -> u64 {
        let block = self.block(index / 2);
        let at = (index % 2) as usize * 2;
        block[at] as u64 | (block[at + 1] as u64) << 32
    }
}

/// A uniform `f32` in `[0, 1)` with 24 random bits.
#[inline(always)]
pub fn uniform_f32(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// A uniform `f64` in `[0, 1)` with 53 random bits.
#[inline(always)]
pub fn uniform_f64(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// The values a random fill draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Floats in `[low, high)`.
    Uniform {
        /// Smallest value.
        low: f64,
        /// Exclusive upper bound.
        high: f64,
    },
    /// Normal floats, by Box and Muller.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Integers in `[low, high)`.
    Integers {
        /// Smallest value.
        low: i64,
        /// Exclusive upper bound.
        high: i64,
    },
    /// One with probability `p`, else zero.
    Bernoulli {
        /// Probability of a one.
        p: f64,
    },
}

/// A source of streams: a seed and the current offset.
///
/// ```
/// # mod rushlight { pub use rushlight_core::Generator; }
/// use rushlight::Generator;
/// let g = Generator::new(1);
/// let first = g.reserve(100);
/// g.manual_seed(1);
/// assert_eq!(g.reserve(100), first);
/// ```
#[derive(Debug)]
pub struct Generator(Mutex<Philox>);

impl Generator {
    /// A generator with a seed.
    pub const fn new(seed: u64) -> Self {
        Self(Mutex::new(Philox { seed, offset: 0 }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Philox> {
        lock(&self.0)
    }

    /// Resets the generator to a seed.
    pub fn manual_seed(&self, seed: u64) {
        *self.lock() = Philox { seed, offset: 0 };
    }

    /// The seed in use.
    pub fn initial_seed(&self) -> u64 {
        self.lock().seed
    }

    /// The whole state, for [`Generator::set_state`].
    pub fn state(&self) -> Philox {
        *self.lock()
    }

    /// Restores a state.
    pub fn set_state(&self, state: Philox) {
        *self.lock() = state;
    }

    /// Reserves a stream of at least `words` words that no other call gets.
    pub fn reserve(&self, words: u64) -> Philox {
        let mut state = self.lock();
        let stream = *state;
        state.offset = state.offset.wrapping_add(words.div_ceil(4));
        stream
    }
}

static DEFAULT: Generator = Generator::new(67_280_421_310_721);

/// The generator that random functions use by default.
pub fn default_generator() -> &'static Generator {
    &DEFAULT
}

/// Seeds the default generator.
pub fn manual_seed(seed: u64) {
    DEFAULT.manual_seed(seed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the algorithm (Salmon et al., 2011) for key and counter zero and all ones.
    #[test]
    fn known_answers() {
        assert_eq!(Philox { seed: 0, offset: 0 }.block(0), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
    }

    #[test]
    fn streams_do_not_overlap() {
        let g = Generator::new(3);
        let a = g.reserve(5);
        let b = g.reserve(1);
        assert_eq!((a.offset, b.offset), (0, 2));
        assert_eq!(a.word64(3), a.word(6) as u64 | (a.word(7) as u64) << 32);
    }
}
