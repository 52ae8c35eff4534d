//! Key-value stores with which the processes of a job rendezvous.
//!
//! A store implements one method, [`Store::call`]; PyTorch's operations are built on it. [`TcpStore`] is a server in
//! one process with clients in the others, [`FileStore`] a file on a shared file system, [`HashStore`] a map within one
//! process, [`PrefixStore`] a namespace of another store.

pub(crate) mod auth;
mod client;
mod file;
mod frame;
mod memory;
mod server;
mod table;
#[cfg(test)]
mod tests;

pub use client::TcpStore;
pub(crate) use client::{Dialled, dial};
pub use file::FileStore;
pub use memory::{HashStore, PrefixStore};
pub use server::{StoreServer, listener_of};
pub use table::Op;

use rushlight_core::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// The default timeout of stores, as in PyTorch.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// Shared keys and values, with PyTorch's operations.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// use rushlight::dist::store::{HashStore, Store};
/// let store = HashStore::new();
/// store.set("epoch", b"3")?;
/// assert_eq!(store.get("epoch")?, b"3");
/// assert_eq!(store.add("arrived", 1)?, 1);
/// assert!(store.check(&["epoch", "arrived"])?);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait Store: Send + Sync {
    /// Runs an operation. Waiting operations block for at most `timeout`.
    fn call(&self, op: Op, args: &[&[u8]], timeout: Duration) -> Result<Vec<Vec<u8>>>;

    /// Another handle of the same keys, for a thread that blocks while others continue.
    fn try_clone(self: Arc<Self>) -> Result<Arc<dyn Store>>;

    /// Timeout of operations.
    fn timeout(&self) -> Duration;

    /// Sets the timeout of operations.
    fn set_timeout(&self, timeout: Duration);

    /// Sets a key.
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.call(Op::Set, &[key.as_bytes(), value], self.timeout()).map(drop)
    }

    /// The value of a key; waits until it is set.
    fn get(&self, key: &str) -> Result<Vec<u8>> {
        one(self.call(Op::Get, &[key.as_bytes()], self.timeout())?)
    }

    /// Adds to a key's number, which starts at 0, and returns the sum.
    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let amount = amount.to_string();
        decimal(one(self.call(Op::Add, &[key.as_bytes(), amount.as_bytes()], self.timeout())?)?)
    }

    /// Sets a key if its value is `expected`; empty means not set. Returns the value afterwards, or `expected` if the
    /// key is not set and was expected to be.
    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        one(self.call(Op::CompareSet, &[key.as_bytes(), expected, desired], self.timeout())?)
    }

    /// Waits until all keys are set.
    fn wait(&self, keys: &[&str]) -> Result<()> {
        self.wait_for(keys, self.timeout())
    }

    /// [`Store::wait`] with a separate timeout.
    fn wait_for(&self, keys: &[&str], timeout: Duration) -> Result<()> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        self.call(Op::Wait, &keys, timeout).map(drop)
    }

    /// Whether all keys are set.
    fn check(&self, keys: &[&str]) -> Result<bool> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        Ok(one(self.call(Op::Check, &keys, self.timeout())?)? == [1])
    }

    /// Deletes a key. Returns whether it existed.
    fn delete_key(&self, key: &str) -> Result<bool> {
        Ok(one(self.call(Op::Delete, &[key.as_bytes()], self.timeout())?)? == [1])
    }

    /// Appends to a key's value.
    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.call(Op::Append, &[key.as_bytes(), value], self.timeout()).map(drop)
    }

    /// The values of several keys; waits until all are set.
    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        self.call(Op::MultiGet, &keys, self.timeout())
    }

    /// Sets several keys at once.
    fn multi_set(&self, pairs: &[(&str, &[u8])]) -> Result<()> {
        let args: Vec<&[u8]> = pairs.iter().flat_map(|(key, value)| [key.as_bytes(), value]).collect();
        self.call(Op::MultiSet, &args, self.timeout()).map(drop)
    }

    /// All keys, in order.
    fn list_keys(&self) -> Result<Vec<String>> {
        let keys = self.call(Op::ListKeys, &[], self.timeout())?;
        Ok(keys.into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()).collect())
    }

    /// Appends a value to the queue of a name.
    fn queue_push(&self, queue: &str, value: &[u8]) -> Result<()> {
        self.call(Op::QueuePush, &[queue.as_bytes(), value], self.timeout()).map(drop)
    }

    /// Takes the first value of a queue; waits for one, at most for `timeout`.
    fn queue_pop(&self, queue: &str, timeout: Duration) -> Result<Vec<u8>> {
        one(self.call(Op::QueuePop, &[queue.as_bytes()], timeout)?)
    }

    /// Number of values in a queue.
    fn queue_len(&self, queue: &str) -> Result<usize> {
        decimal(one(self.call(Op::QueueLen, &[queue.as_bytes()], self.timeout())?)?).map(|n| n as usize)
    }

    /// Number of keys.
    fn num_keys(&self) -> Result<usize> {
        decimal(one(self.call(Op::NumKeys, &[], self.timeout())?)?).map(|n| n as usize)
    }
}

fn one(mut values: Vec<Vec<u8>>) -> Result<Vec<u8>> {
    values.pop().ok_or_else(|| Error::io("store: the answer is empty"))
}

fn decimal(text: Vec<u8>) -> Result<i64> {
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::io("store: the answer is not a number"))
}

/// The error of an operation that timed out.
fn timed_out(op: Op, args: &[impl AsRef<[u8]>], timeout: Duration) -> Error {
    let keys: Vec<String> = args
        .iter()
        .enumerate()
        .filter(|(i, _)| op.is_key(*i))
        .take(4)
        .map(|(_, key)| String::from_utf8_lossy(key.as_ref()).into_owned())
        .collect();
    let more = if args.len() > 4 { ", …" } else { "" };
    // Programs look for PyTorch's words.
    Error::timeout(format!(
        "store: {op:?} timed out: wait timeout after {}ms, keys: /{}{more}",
        timeout.as_millis(),
        keys.join(", /")
    ))
}

/// Milliseconds of a timeout, for storing it.
fn millis(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
}

/// Parses arbitrary bytes as a client's requests, applied to an empty store, and as a server's replies. For fuzzing.
#[doc(hidden)]
pub fn read_messages(bytes: &[u8]) {
    let mut table = table::Table::default();
    let mut rest = bytes;
    while let Ok(Some((body, used))) = frame::split(rest) {
        if let Ok((op, _, args)) = frame::parse_request(body) {
            let _ = table.apply(op, &args);
        }
        let _ = frame::parse_reply(body);
        rest = &rest[used..];
    }
}
