//! A fast hash for internal keys, which are never hostile: one multiplication per word.

use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are the engine's own.
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Words>>;

/// Folds words into one.
#[derive(Default)]
pub struct Words(u64);

impl Words {
    #[inline]
    fn fold(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for Words {
    #[inline]
    fn finish(&self) -> u64 {
        // Hash maps use the lowest bits; the well-mixed bits of a product are the highest.
        self.0 ^ (self.0 >> 32)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.fold(u64::from_le_bytes(std::array::from_fn(|i| word[i])));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            self.fold(rest.iter().rev().fold(0, |word, &byte| word << 8 | byte as u64));
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.fold(value as u64);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.fold(value);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.fold(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_in_their_low_bits() {
        let hash = |bytes: &[u8]| {
            let mut words = Words::default();
            words.write(bytes);
            words.finish()
        };
        let low: std::collections::BTreeSet<u64> =
            (0..256u64).map(|i| hash(&(i << 9).to_le_bytes()) & 0xffff).collect();
        assert!(low.len() > 240, "{}", low.len());
        assert_ne!(hash(b"softmax"), hash(b"softmin"));
    }
}
