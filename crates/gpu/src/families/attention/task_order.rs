//! Task order of persistent blocks: groups heads into sets so that all blocks end at about the same time.

use rushlight_core::sync::lock;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

/// Maximum rounds of blocks per set, unless it is a single head: more would only take longer to compare.
const ROUNDS: usize = 8;

/// Tasks of a launch: every head has the same tiles.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tasks {
    /// Costs of tiles, in descending order.
    pub costs: Vec<u32>,
    pub heads: usize,
    pub blocks: usize,
    /// Maximum heads whose other operand stays in the cache.
    pub cached: usize,
}

impl Tasks {
    /// Adds a set of heads to every block's load: the tiles, sorted by cost, are dealt to blocks in alternating
    /// directions (`Tasks` in `hopper_tasks.cu`).
    fn add_set(&self, heads: usize, times: u64, loads: &mut [u64]) {
        for (n, &cost) in self.costs.iter().flat_map(|cost| std::iter::repeat_n(cost, heads)).enumerate() {
            let (round, place) = (n / self.blocks, n % self.blocks);
            let block = if round.is_multiple_of(2) { place } else { self.blocks - 1 - place };
            loads[block] += times * cost as u64;
        }
    }

    /// The largest load of a block for a given number of heads in a set.
    fn longest(&self, together: usize) -> u64 {
        let mut loads = vec![0; self.blocks];
        self.add_set(together, (self.heads / together) as u64, &mut loads);
        self.add_set(self.heads % together, 1, &mut loads);
        loads.into_iter().max().unwrap_or(0)
    }

    /// Number of heads per set. Computed once for every problem.
    pub fn together(self) -> usize {
        static FOUND: LazyLock<Mutex<HashMap<Tasks, usize>>> = LazyLock::new(Default::default);
        let mut found = lock(&FOUND);
        if let Some(&together) = found.get(&self) {
            return together;
        }
        // Small sets share more of the cache; sets below one round leave blocks idle, and sets of many rounds are
        // balanced anyway.
        let most = self.cached.min(ROUNDS * self.blocks / self.costs.len().max(1));
        let candidates = 1..=most.clamp(1, self.heads);
        let together = candidates.min_by_key(|&n| (self.longest(n), n)).unwrap_or(1);
        // Bounds the cache for programs with ever new shapes.
        if found.len() >= 4096 {
            found.clear();
        }
        found.insert(self, together);
        together
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths and heads: under a causal mask no block has much more work than the average.
    #[test]
    fn blocks_end_together() {
        for (length, heads) in [(1024, 192), (1024, 96), (512, 384), (4096, 24), (8192, 16), (12_000, 8), (700, 144)] {
            let tiles = usize::div_ceil(length, 128);
            let costs: Vec<u32> = (0..tiles).rev().map(|tile| tile as u32 + 3).collect();
            let all: u64 = costs.iter().map(|&cost| cost as u64 * heads as u64).sum();
            let tasks = Tasks { costs, heads, blocks: 132, cached: (32 << 20) / (length * 512) };
            let longest = tasks.longest(tasks.clone().together());
            assert!(longest * 132 <= all * 11 / 10, "{length} x {heads}: {longest} of {all}");
        }
    }

    /// Many tiles that share little: every number of heads would be a candidate, each with millions of tasks.
    #[test]
    fn large_problems_are_compared_by_their_first_rounds() {
        let tasks = Tasks { costs: vec![3; 8192], heads: 60_000, blocks: 132, cached: 60_000 };
        assert_eq!(tasks.together(), 1);
    }

    #[test]
    fn few_tasks_make_one_set() {
        let tasks = Tasks { costs: vec![2, 1], heads: 3, blocks: 6, cached: 0 };
        assert_eq!(tasks.clone().together(), 1);
        assert_eq!(Tasks { cached: 100, ..tasks.clone() }.together(), 3);
        assert_eq!(tasks.longest(3), 2);
    }
}
