//! Learning which pairs to merge.

use super::alphabet::Alphabet;
use super::{Bpe, split_words};
use rushlight_core::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

type Pair = (u32, u32);

/// A word's tokens and its count.
struct Word {
    tokens: Vec<u32>,
    count: u64,
}

impl Word {
    fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.tokens.windows(2).map(|w| (w[0], w[1]))
    }

    fn merge(&mut self, pair: Pair, merged: u32) {
        let (mut read, mut write) = (0, 0);
        while read < self.tokens.len() {
            let is_pair = self.tokens[read] == pair.0 && self.tokens.get(read + 1) == Some(&pair.1);
            self.tokens[write] = if is_pair { merged } else { self.tokens[read] };
            read += if is_pair { 2 } else { 1 };
            write += 1;
        }
        self.tokens.truncate(write);
    }
}

/// Counts of pairs and the words that contain them; the most frequent pair first.
#[derive(Default)]
struct Pairs {
    counts: HashMap<Pair, u64>,
    /// Words a pair may be in; some may have lost it.
    words: HashMap<Pair, HashSet<usize>>,
    queue: BinaryHeap<(u64, Reverse<Pair>)>,
}

impl Pairs {
    fn add(&mut self, number: usize, word: &Word) {
        for pair in word.pairs() {
            let count = self.counts.entry(pair).or_default();
            *count += word.count;
            self.words.entry(pair).or_default().insert(number);
            self.queue.push((*count, Reverse(pair)));
        }
    }

    fn remove(&mut self, word: &Word) {
        for pair in word.pairs() {
            if let Some(count) = self.counts.get_mut(&pair) {
                *count -= word.count;
                self.queue.push((*count, Reverse(pair)));
            }
        }
    }

    /// The commonest pair that occurs at least twice; of several the one of the smallest tokens.
    fn commonest(&mut self) -> Option<Pair> {
        while let Some((count, Reverse(pair))) = self.queue.pop() {
            if count >= 2 && self.counts.get(&pair) == Some(&count) {
                return Some(pair);
            }
        }
        None
    }
}

impl Bpe {
    /// Learns a vocabulary of at most `vocab_size` tokens from a text: the 256 bytes, and pairs that occur at least
    /// twice, the commonest first. The same text always gives the same vocabulary.
    pub fn train(text: &str, vocab_size: usize) -> Result<Bpe> {
        if !(256..=1 << 24).contains(&vocab_size) {
            return Err(Error::value(format!(
                "Bpe::train: the vocabulary needs at least the 256 bytes and at most {} tokens, got {vocab_size}",
                1 << 24
            )));
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for word in split_words(text) {
            *counts.entry(word).or_default() += 1;
        }
        let mut words: Vec<Word> =
            counts.into_iter().map(|(w, count)| Word { tokens: w.bytes().map(u32::from).collect(), count }).collect();
        let mut pairs = Pairs::default();
        for (number, word) in words.iter().enumerate() {
            pairs.add(number, word);
        }
        let alphabet = Alphabet::new();
        let mut names: Vec<String> = (0u8..=255).map(|b| alphabet.name(&[b])).collect();
        let mut known: HashMap<String, u32> = names.iter().cloned().zip(0u32..).collect();
        let mut merges: Vec<Pair> = Vec::new();
        while names.len() < vocab_size {
            let Some(pair) = pairs.commonest() else { break };
            let name = format!("{}{}", names[pair.0 as usize], names[pair.1 as usize]);
            // The same bytes may have come about by another pair: they are the same token.
            let merged = *known.entry(name.clone()).or_insert(names.len() as u32);
            if merged as usize == names.len() {
                names.push(name);
            }
            merges.push(pair);
            for number in pairs.words.remove(&pair).unwrap_or_default() {
                pairs.remove(&words[number]);
                words[number].merge(pair, merged);
                pairs.add(number, &words[number]);
            }
            pairs.counts.remove(&pair);
        }
        let parts: Vec<(&str, &str)> =
            merges.iter().map(|&(a, b)| (&*names[a as usize], &*names[b as usize])).collect();
        Bpe::new(names.iter().cloned().zip(0u32..), parts)
    }
}
