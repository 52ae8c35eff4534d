//! Random permutations of a stream's words, the same on every engine.
//!
//! Numbers are distributed over buckets at random, then each bucket is shuffled: every order is equally likely, and a
//! bucket stays in the caches while it is shuffled. (A plain shuffle of a million numbers misses them at nearly every
//! step.)

/// Words per request.
pub const CHUNK: usize = 1024;
/// Maximum length: longer permutations have numbers beyond 32 bits.
pub const LONGEST: usize = 1 << 31;

/// log2 of the approximate bucket size.
const BUCKET_BITS: u32 = 11;
/// More buckets would exceed the caches while they are filled.
const MAX_BUCKETS_BITS: u32 = 11;

/// log2 of the number of buckets; 0 for short permutations.
fn bucket_bits(n: usize) -> u32 {
    let bits = usize::BITS - n.saturating_sub(1).leading_zeros();
    if bits <= BUCKET_BITS + 1 { 0 } else { (bits - BUCKET_BITS).min(MAX_BUCKETS_BITS) }
}

/// Number of words of the stream that [`permutation`] uses.
pub fn permutation_words(n: usize) -> u64 {
    let draws = n.next_multiple_of(CHUNK) as u64;
    if bucket_bits(n) == 0 { draws } else { draws + n.div_ceil(2) as u64 }
}

/// Iterator over the words from a position of the stream on.
struct Words<F> {
    fill: F,
    buffer: [u32; CHUNK],
    /// Position of the first word that is not in the buffer.
    end: usize,
}

impl<F: FnMut(u64, &mut [u32; CHUNK])> Words<F> {
    /// Some words from `at` on, at most `most`.
    fn run(&mut self, at: usize, most: usize) -> &[u32] {
        if at >= self.end || at + CHUNK < self.end {
            let first = at / CHUNK * CHUNK;
            (self.fill)(first as u64, &mut self.buffer);
            self.end = first + CHUNK;
        }
        let from = at + CHUNK - self.end;
        &self.buffer[from..CHUNK.min(from.saturating_add(most))]
    }
}

/// Writes the numbers below `out.len()` in random order. `fill` writes words of the stream from a position that is a
/// multiple of [`CHUNK`].
///
/// ```
/// use rushlight_core::rng::{Philox, permutation};
/// let stream = Philox { seed: 3, offset: 0 };
/// let mut order = [0; 6];
/// permutation(|first, words| (first..).zip(words).for_each(|(i, word)| *word = stream.word(i)), &mut order);
/// order.sort();
/// assert_eq!(order, [0, 1, 2, 3, 4, 5]);
/// ```
///
/// # Panics
/// If there are more than [`LONGEST`].
pub fn permutation(fill: impl FnMut(u64, &mut [u32; CHUNK]), out: &mut [i64]) {
    let n = out.len();
    assert!(n <= LONGEST, "permutation: {n} numbers");
    let mut words = Words { fill, buffer: [0; CHUNK], end: 0 };
    let bits = bucket_bits(n);
    if bits == 0 {
        return shuffle(&mut words, 0, |i| i as u32, out);
    }
    let mut ends = vec![0u32; 1 << bits];
    deal(&mut words, n, bits, |bucket, _| ends[bucket] += 1);
    let mut start = 0;
    for end in &mut ends {
        start += std::mem::replace(end, start);
    }
    // The numbers, as 32 bits, are kept in the upper half of the output until their bucket is shuffled: a shuffled
    // bucket ends before the numbers of the next one begin.
    // SAFETY: the memory of `n` `i64` is that of `2 n` `u32`, which need less alignment and have no invalid bits.
    let halves = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u32>(), 2 * n) };
    let waiting = &mut halves[n..];
    deal(&mut words, n, bits, |bucket, number| {
        let place = &mut ends[bucket];
        waiting[*place as usize] = number;
        *place += 1;
    });
    let mut bucket = Vec::new();
    let mut start = 0;
    for end in ends.into_iter().map(|end| end as usize) {
        let numbers = &halves[n + start..n + end];
        if bucket.len() < numbers.len() {
            bucket.resize(numbers.len(), 0);
        }
        shuffle(&mut words, start, |i| numbers[i], &mut bucket[..numbers.len()]);
        let (to, _) = halves[2 * start..2 * end].as_chunks_mut::<2>();
        for (to, &number) in to.iter_mut().zip(&bucket) {
            *to = if cfg!(target_endian = "little") { [number, 0] } else { [0, number] };
        }
        start = end;
    }
}

/// Calls `f(bucket, number)` for the numbers below `n`. A word has the bucket numbers of two; they follow the words for
/// shuffling.
fn deal<F: FnMut(u64, &mut [u32; CHUNK])>(words: &mut Words<F>, n: usize, bits: u32, mut f: impl FnMut(usize, u32)) {
    let first = n.next_multiple_of(CHUNK);
    let buckets = |word: u32| [(word as u16 >> (16 - bits)) as usize, (word >> (32 - bits)) as usize];
    let mut number = 0;
    while number + 1 < n {
        for &word in words.run(first + number / 2, (n - number) / 2) {
            let [a, b] = buckets(word);
            f(a, number as u32);
            f(b, number as u32 + 1);
            number += 2;
        }
    }
    if number < n {
        f(buckets(words.run(first + number / 2, 1)[0])[0], number as u32);
    }
}

/// Writes as many numbers as `to` holds in random order, drawn by the words from `first` on.
fn shuffle<T: Copy + From<u32>, F: FnMut(u64, &mut [u32; CHUNK])>(
    words: &mut Words<F>,
    first: usize,
    number: impl Fn(usize) -> u32,
    to: &mut [T],
) {
    let mut k = 0;
    while k < to.len() {
        for &word in words.run(first + k, to.len() - k) {
            // Inside-out shuffle: each number goes to a random position so far, and the number there to the new
            // position.
            let other = ((word as u64 * (k as u64 + 1)) >> 32) as usize;
            to[k] = to[other];
            to[other] = T::from(number(k));
            k += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Philox;

    fn of_seed(seed: u64, n: usize) -> Vec<i64> {
        let stream = Philox { seed, offset: 0 };
        let mut out = vec![-1; n];
        permutation(|first, words| (first..).zip(words).for_each(|(i, word)| *word = stream.word(i)), &mut out);
        out
    }

    #[test]
    fn every_number_is_there_once() {
        for n in [0, 1, 2, 5, 1000, 1024, 1025, 4096, 4097, 10_001, 300_000] {
            let mut order = of_seed(n as u64, n);
            assert!(n < 5 || order.iter().enumerate().any(|(i, &x)| x != i as i64));
            order.sort();
            assert!(order.into_iter().eq(0..n as i64), "{n}");
        }
    }

    #[test]
    fn orders_and_places_are_equally_likely() {
        let mut orders = std::collections::HashMap::new();
        for seed in 0..24_000 {
            *orders.entry(of_seed(seed, 4)).or_insert(0) += 1;
        }
        assert_eq!(orders.len(), 24);
        // Six standard deviations.
        assert!(orders.values().all(|&count: &i32| (count - 1000).abs() < 190), "{orders:?}");
        // A long permutation, which uses buckets: the tenths of the positions of the first numbers.
        let mut tenths = [0i32; 10];
        for seed in 0..20 {
            let order = of_seed(seed, 10_000);
            order.iter().enumerate().filter(|&(_, &x)| x < 1000).for_each(|(at, _)| tenths[at / 1000] += 1);
        }
        assert!(tenths.iter().all(|count| (count - 2000).abs() < 270), "{tenths:?}");
    }
}
