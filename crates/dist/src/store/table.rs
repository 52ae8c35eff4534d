//! The operations of a store on a map in memory, shared by all stores.

use rushlight_core::{Error, Result};
use std::collections::{HashMap, VecDeque};

/// An operation of a store. Arguments are byte strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// key, value
    Set = 1,
    /// key; waits for it
    Get,
    /// key, amount in decimal
    Add,
    /// key, expected, desired
    CompareSet,
    /// keys; waits for all
    Wait,
    /// keys
    Check,
    /// key
    Delete,
    /// key, value
    Append,
    /// keys; waits for all
    MultiGet,
    /// key, value, key, value, …
    MultiSet,
    /// nothing
    NumKeys,
    /// key, value: set when this connection ends, unless it was released by a lease without arguments.
    Lease,
    /// nothing; answers with every key
    ListKeys,
    /// key, value: appends to the queue of that name
    QueuePush,
    /// key: takes the first element of a queue; waits for it
    QueuePop,
    /// key
    QueueLen,
}

impl Op {
    /// Every operation.
    pub(crate) const ALL: [Op; 16] = {
        use Op::*;
        [
            Set, Get, Add, CompareSet, Wait, Check, Delete, Append, MultiGet, MultiSet, NumKeys, Lease, ListKeys,
            QueuePush, QueuePop, QueueLen,
        ]
    };

    pub(crate) fn from_byte(byte: u8) -> Option<Op> {
        Self::ALL.into_iter().find(|op| *op as u8 == byte)
    }

    /// Whether argument `i` is a key.
    pub(crate) fn is_key(self, i: usize) -> bool {
        match self {
            Op::Wait | Op::Check | Op::MultiGet => true,
            Op::MultiSet => i.is_multiple_of(2),
            Op::NumKeys | Op::ListKeys => false,
            _ => i == 0,
        }
    }

    /// Whether the operation can change the table.
    pub(crate) fn changes(self) -> bool {
        use Op::*;
        matches!(self, Set | Add | CompareSet | Delete | Append | MultiSet | QueuePush | QueuePop)
    }

    fn takes(self, arguments: usize) -> bool {
        match self {
            Op::Set | Op::Add | Op::Append | Op::QueuePush => arguments == 2,
            Op::Get | Op::Delete | Op::QueuePop | Op::QueueLen => arguments == 1,
            Op::CompareSet => arguments == 3,
            Op::Wait | Op::Check | Op::MultiGet => true,
            Op::MultiSet => arguments.is_multiple_of(2),
            Op::NumKeys | Op::ListKeys => arguments == 0,
            Op::Lease => arguments == 0 || arguments == 2,
        }
    }
}

/// The outcome of an operation.
pub(crate) enum Outcome {
    Done(Vec<Vec<u8>>),
    /// A key is missing: retry when it is set.
    Blocked(Vec<u8>),
}

#[derive(Default)]
pub(crate) struct Table {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// Queues by name; none is empty.
    queues: HashMap<Vec<u8>, VecDeque<Vec<u8>>>,
}

impl Table {
    pub(crate) fn apply<A: AsRef<[u8]>>(&mut self, op: Op, args: &[A]) -> Result<Outcome> {
        if !op.takes(args.len()) {
            return Err(Error::value(format!("store: {op:?} does not take {} arguments", args.len())));
        }
        let arg = |i: usize| args[i].as_ref();
        let (map, queues) = (&mut self.values, &mut self.queues);
        let flag = |yes: bool| vec![vec![yes as u8]];
        // A queue with elements counts as a key, except for its value.
        let queued = |key: &[u8]| matches!(op, Op::Check | Op::Wait) && queues.contains_key(key);
        let missing = || args.iter().find(|key| !map.contains_key(key.as_ref()) && !queued(key.as_ref()));
        Ok(Outcome::Done(match op {
            Op::Set => {
                map.insert(arg(0).to_vec(), arg(1).to_vec());
                Vec::new()
            }
            Op::Append => {
                map.entry(arg(0).to_vec()).or_default().extend_from_slice(arg(1));
                Vec::new()
            }
            Op::MultiSet => {
                for pair in args.chunks_exact(2) {
                    map.insert(pair[0].as_ref().to_vec(), pair[1].as_ref().to_vec());
                }
                Vec::new()
            }
            Op::Add => {
                let amount = number(arg(1)).ok_or_else(|| Error::value("store: add needs a number"))?;
                let old = match map.get(arg(0)) {
                    None => 0,
                    Some(value) => number(value).ok_or_else(|| {
                        let key = String::from_utf8_lossy(arg(0));
                        Error::value(format!("store: add to the key {key:?}, whose value is not a number"))
                    })?,
                };
                let sum = old.wrapping_add(amount).to_string().into_bytes();
                map.insert(arg(0).to_vec(), sum.clone());
                vec![sum]
            }
            Op::CompareSet => {
                // PyTorch's rule: an empty expectation is met by a missing key; a missing key otherwise answers with
                // the expectation.
                let answer = match map.get(arg(0)) {
                    None if arg(1).is_empty() => None,
                    None => Some(arg(1).to_vec()),
                    Some(value) if value == arg(1) => None,
                    Some(value) => Some(value.clone()),
                };
                vec![answer.unwrap_or_else(|| {
                    map.insert(arg(0).to_vec(), arg(2).to_vec());
                    arg(2).to_vec()
                })]
            }
            Op::Delete => flag(map.remove(arg(0)).is_some()),
            Op::Check => flag(missing().is_none()),
            Op::NumKeys => vec![map.len().to_string().into_bytes()],
            Op::Wait | Op::Get | Op::MultiGet => {
                if let Some(key) = missing() {
                    return Ok(Outcome::Blocked(key.as_ref().to_vec()));
                }
                let found = args.iter().filter(|_| op != Op::Wait);
                found.map(|key| map.get(key.as_ref()).cloned().unwrap_or_default()).collect()
            }
            Op::ListKeys => {
                let mut keys: Vec<Vec<u8>> = map.keys().chain(queues.keys()).cloned().collect();
                keys.sort();
                keys.dedup();
                keys
            }
            Op::QueuePush => {
                queues.entry(arg(0).to_vec()).or_default().push_back(arg(1).to_vec());
                Vec::new()
            }
            Op::QueuePop => {
                let Some(queue) = queues.get_mut(arg(0)) else { return Ok(Outcome::Blocked(arg(0).to_vec())) };
                let first = queue.pop_front().unwrap_or_default();
                if queue.is_empty() {
                    queues.remove(arg(0));
                }
                vec![first]
            }
            Op::QueueLen => vec![queues.get(arg(0)).map_or(0, VecDeque::len).to_string().into_bytes()],
            Op::Lease => return Err(Error::unsupported("store: only a store over TCP notices that a process ends")),
        }))
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}
