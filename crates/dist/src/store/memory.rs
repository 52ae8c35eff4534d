//! Stores without a network: a map, and a prefix view of another store.

use super::table::{Op, Outcome, Table};
use super::{DEFAULT_TIMEOUT, Store, millis, timed_out};
use rushlight_core::Result;
use rushlight_core::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A store for the threads of one process.
pub struct HashStore {
    table: Mutex<Table>,
    changed: Condvar,
    timeout: AtomicU64,
}

impl HashStore {
    /// An empty store.
    pub fn new() -> Self {
        Self { table: Mutex::default(), changed: Condvar::new(), timeout: AtomicU64::new(millis(DEFAULT_TIMEOUT)) }
    }
}

impl Default for HashStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for HashStore {
    fn try_clone(self: Arc<Self>) -> Result<Arc<dyn Store>> {
        Ok(self)
    }

    fn call(&self, op: Op, args: &[&[u8]], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let started = Instant::now();
        let mut table = lock(&self.table);
        loop {
            match table.apply(op, args)? {
                Outcome::Done(values) => {
                    if op.changes() {
                        self.changed.notify_all();
                    }
                    return Ok(values);
                }
                Outcome::Blocked(_) => {
                    let left = timeout.checked_sub(started.elapsed()).ok_or_else(|| timed_out(op, args, timeout))?;
                    table = self.changed.wait_timeout(table, left).unwrap_or_else(|e| e.into_inner()).0;
                }
            }
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.load(Relaxed))
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(millis(timeout), Relaxed);
    }
}

/// The keys of another store that begin with a prefix.
pub struct PrefixStore {
    prefix: String,
    inner: Arc<dyn Store>,
}

impl PrefixStore {
    /// The part of `inner` whose keys begin with `prefix` and a slash, as PyTorch's.
    pub fn new(prefix: impl Into<String>, inner: Arc<dyn Store>) -> Self {
        Self { prefix: prefix.into(), inner }
    }

    /// The store this is a part of.
    pub fn underlying(&self) -> &Arc<dyn Store> {
        &self.inner
    }
}

impl Store for PrefixStore {
    fn try_clone(self: Arc<Self>) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::new(self.prefix.clone(), self.inner.clone().try_clone()?)))
    }

    fn call(&self, op: Op, args: &[&[u8]], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let keys: Vec<Vec<u8>> = args
            .iter()
            .enumerate()
            .map(|(i, arg)| if op.is_key(i) { [self.prefix.as_bytes(), b"/", arg].concat() } else { arg.to_vec() })
            .collect();
        let args: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = self.inner.call(op, &args, timeout)?;
        if op != Op::ListKeys {
            return Ok(values);
        }
        let own = |key: Vec<u8>| {
            key.strip_prefix(self.prefix.as_bytes()).and_then(|rest| rest.strip_prefix(b"/")).map(<[u8]>::to_vec)
        };
        Ok(values.into_iter().filter_map(own).collect())
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.inner.set_timeout(timeout);
    }
}
