//! Merging pairs within a word.

use rushlight_core::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The merge table: pairs, their results and their order.
#[derive(Clone, Debug, Default)]
pub(super) struct MergeTable {
    ranks: HashMap<(u32, u32), (u32, u32)>,
    order: Vec<(u32, u32)>,
}

impl MergeTable {
    /// Adds a pair that merges after all others.
    pub(super) fn push(&mut self, pair: (u32, u32), merged: u32) -> Result<()> {
        let rank = u32::try_from(self.order.len()).map_err(|_| Error::value("Bpe: more merges than can be counted"))?;
        // A pair listed twice keeps its first place.
        self.ranks.entry(pair).or_insert((rank, merged));
        self.order.push(pair);
        Ok(())
    }

    /// The pairs in order.
    pub(super) fn order(&self) -> &[(u32, u32)] {
        &self.order
    }

    /// Merges a word's tokens, always the pair that comes first in order, the leftmost of several, and appends the
    /// result to `out`. A queue of pairs keeps this from being quadratic in long words.
    pub(super) fn apply(&self, mut tokens: Vec<u32>, out: &mut Vec<u32>) {
        const NONE: usize = usize::MAX;
        let len = tokens.len();
        // The word as a linked list; merging takes the right one out.
        let mut next: Vec<usize> = (1..=len).map(|i| if i < len { i } else { NONE }).collect();
        let mut previous: Vec<usize> = (0..len).map(|i| i.checked_sub(1).unwrap_or(NONE)).collect();
        let mut queue = BinaryHeap::new();
        let offer = |queue: &mut BinaryHeap<_>, tokens: &[u32], left: usize, right: usize| {
            if let Some(&(rank, merged)) = self.ranks.get(&(tokens[left], tokens[right])) {
                queue.push(Reverse((rank, left, right, tokens[left], tokens[right], merged)));
            }
        };
        for left in 1..len {
            offer(&mut queue, &tokens, left - 1, left);
        }
        while let Some(Reverse((_, left, right, left_token, right_token, merged))) = queue.pop() {
            // Stale if either side has been merged since.
            if next[left] != right || tokens[left] != left_token || tokens[right] != right_token {
                continue;
            }
            tokens[left] = merged;
            next[left] = next[right];
            next[right] = NONE;
            if next[left] != NONE {
                previous[next[left]] = left;
                offer(&mut queue, &tokens, left, next[left]);
            }
            if previous[left] != NONE {
                offer(&mut queue, &tokens, previous[left], left);
            }
        }
        let mut at = if len == 0 { NONE } else { 0 };
        while at != NONE {
            out.push(tokens[at]);
            at = next[at];
        }
    }
}
