//! PyTorch's permutations: a Mersenne Twister seeded and read as its CPU generator is.

/// Words of the twister's state.
const WORDS: usize = 624;
/// Distance of the word that each is combined with.
const SHIFT: usize = 397;

/// MT19937, seeded by 32 bits.
struct Twister {
    words: [u32; WORDS],
    at: usize,
}

impl Twister {
    fn new(seed: u32) -> Self {
        let mut words = [seed; WORDS];
        for i in 1..WORDS {
            let before = words[i - 1];
            words[i] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(i as u32);
        }
        Self { words, at: WORDS }
    }

    /// The next state of all words.
    fn twist(&mut self) {
        for i in 0..WORDS {
            let mixed = (self.words[i] & 0x8000_0000) | (self.words[(i + 1) % WORDS] & 0x7fff_ffff);
            let odd = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[i] = self.words[(i + SHIFT) % WORDS] ^ (mixed >> 1) ^ odd;
        }
        self.at = 0;
    }

    fn next(&mut self) -> u32 {
        if self.at == WORDS {
            self.twist();
        }
        let mut y = self.words[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }
}

/// The numbers below `count` in the order that `torch.randperm` gives on the CPU for a generator with this seed.
/// From 214,748,364 on PyTorch draws in another way, and the order is this library's own.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::sampler::permutation;
/// assert_eq!(permutation(10, 0), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
/// ```
pub fn permutation(count: usize, seed: u64) -> Vec<usize> {
    // PyTorch, too, seeds its twister with the lower half.
    let mut twister = Twister::new(seed as u32);
    let mut order: Vec<usize> = (0..count).collect();
    for i in 0..count.saturating_sub(1) {
        let left = count - i;
        let drawn = match count < (u32::MAX / 20) as usize {
            true => twister.next() as usize,
            // Enough bits for a large count.
            false => ((u64::from(twister.next()) << 32) | u64::from(twister.next())) as usize,
        };
        order.swap(i, i + drawn % left);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's own test: word 10,000 from the seed 5489.
    #[test]
    fn the_twister_is_the_standard_one() {
        let mut twister = Twister::new(5489);
        let last = (0..10_000).map(|_| twister.next()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
