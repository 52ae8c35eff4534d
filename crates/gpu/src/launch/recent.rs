//! A bounded cache of prepared problems, such as the libraries' plans for a shape.

use std::collections::HashMap;
use std::hash::Hash;

/// Keeps the most recently used entries. When full, it drops the least recently used quarter, so that programs with
/// ever new shapes do not grow, and eviction stays cheap.
pub struct Recent<K, V> {
    entries: HashMap<K, Entry<V>>,
    capacity: usize,
    clock: u64,
}

struct Entry<V> {
    value: V,
    used: u64,
}

impl<K: Eq + Hash + Clone, V: Clone> Recent<K, V> {
    /// An empty cache for this many entries.
    pub fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), capacity: capacity.max(4), clock: 0 }
    }

    /// The value of a key, made on a miss.
    pub fn get_or_make<E>(&mut self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(key) {
            entry.used = self.clock;
            return Ok(entry.value.clone());
        }
        let value = make()?;
        if self.entries.len() >= self.capacity {
            self.drop_oldest();
        }
        self.entries.insert(key.clone(), Entry { value: value.clone(), used: self.clock });
        Ok(value)
    }

    fn drop_oldest(&mut self) {
        let mut times: Vec<u64> = self.entries.values().map(|entry| entry.used).collect();
        let (_, &mut oldest_kept, _) = times.select_nth_unstable(self.capacity / 4);
        self.entries.retain(|_, entry| entry.used >= oldest_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_full_cache_drops_what_was_not_used_for_longest() {
        let mut cache: Recent<usize, Arc<usize>> = Recent::new(8);
        let mut get = |key: usize| cache.get_or_make(&key, || Ok::<_, ()>(Arc::new(key))).unwrap();
        let kept: Vec<_> = (0..8).map(&mut get).collect();
        // The first entry is now the most recently used.
        get(0);
        get(8);
        let counts: Vec<usize> = kept.iter().map(Arc::strong_count).collect();
        assert_eq!(counts, [2, 1, 1, 2, 2, 2, 2, 2]);
        for key in 9..1000 {
            get(key);
        }
        assert!(cache.entries.len() <= 8);
        assert!(kept.iter().all(|value| Arc::strong_count(value) == 1));
    }

    #[test]
    fn a_failure_is_not_kept() {
        let mut cache: Recent<u8, u8> = Recent::new(4);
        assert_eq!(cache.get_or_make(&1, || Err("no")), Err("no"));
        assert_eq!(cache.get_or_make(&1, || Ok::<_, &str>(2)), Ok(2));
    }
}
